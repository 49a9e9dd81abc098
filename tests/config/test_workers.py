"""The configuration of each worker, made of that of the broker; and what workers cannot be."""

import pytest

from odradek.config.broker_config import load
from odradek.config.config_error import ConfigError
from odradek.config.worker_place import PRINCIPAL, WorkerPlace
from odradek.config.workers import config_of, refuse_bounds

RACK = "machine"
AUTHORIZER = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"


def worker(index, ports, *, is_controller=False, **keywords):
    config = load(keywords={"odradek.workers": 3, **keywords})
    place = WorkerPlace(
        index=index, folder="/run/x", controller_id=config.node_id, is_controller=is_controller
    )
    return config_of(config, place, ports, RACK)


def refusal(count, **keywords):
    with pytest.raises(ConfigError) as refused:
        refuse_bounds(load(keywords={"odradek.workers": count, **keywords}), count)
    return str(refused.value)


def shown(listeners):
    return [str(one) for one in listeners]


def test_a_worker_has_an_id_ports_and_directories_of_its_own():
    own = {
        "node.id": 7,
        "listeners": "PLAINTEXT://0.0.0.0:9092,SECOND://localhost:0",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,SECOND:PLAINTEXT",
        "advertised.listeners": "PLAINTEXT://kafka.example:19092,SECOND://localhost:0",
        "log.dirs": "/a/data,/b/data/",
        "cordoned.log.dirs": "/b/data/",
    }
    config = worker(2, {"PLAINTEXT": 9094, "SECOND": 30_002}, **own)
    assert config.node_id == 9
    assert config.worker == 2
    assert shown(config.listeners) == [
        *("PLAINTEXT://0.0.0.0:9094", "SECOND://localhost:30002"),
        "ODRADEK_WORKERS:///run/x/worker-2:1",
    ]
    assert config.data_directories == ("/a/data.w2", "/b/data.w2")
    assert config.values["cordoned.log.dirs"] == ("/b/data.w2",)
    assert config.values["broker.rack"] == RACK
    assert shown(config.cluster.advertised) == [
        *("PLAINTEXT://kafka.example:19094", "SECOND://localhost:30002"),
        "ODRADEK_WORKERS:///run/x/worker-2:1",
    ]
    assert config.cluster.bootstrap_text == "/run/x/controller:1"
    assert config.inter_broker_listener == "ODRADEK_WORKERS"


def test_the_first_worker_has_the_ids_and_directories_of_the_broker():
    config = worker(0, {"PLAINTEXT": 9092}, **{"node.id": 7, "log.dirs": "/a/data", "broker.rack": "r"})
    assert config.node_id == 7
    assert config.data_directories == ("/a/data",)
    assert config.values["broker.rack"] == "r"
    controller = worker(0, {"PLAINTEXT": 9092}, is_controller=True, **{"node.id": 7, "log.dirs": "/a/data"})
    assert controller.node_id == 7
    assert controller.metadata_directory == "/a/data"
    assert shown(controller.listeners) == ["ODRADEK_CONTROLLER:///run/x/controller:1"]


def test_every_interface_is_registered_as_such():
    config = worker(1, {"PLAINTEXT": 9093}, listeners="PLAINTEXT://:9092")
    assert shown(config.cluster.advertised)[0] == "PLAINTEXT://0.0.0.0:9093"


def test_internal_topics_have_one_replica_unless_configured():
    values = worker(1, {"PLAINTEXT": 9093}).values
    assert values["offsets.topic.replication.factor"] == 1
    assert values["transaction.state.log.replication.factor"] == 1
    assert values["transaction.state.log.min.isr"] == 1
    assert values["share.coordinator.state.topic.min.isr"] == 1
    values = worker(1, {"PLAINTEXT": 9093}, **{"offsets.topic.replication.factor": 3}).values
    assert values["offsets.topic.replication.factor"] == 3


def test_workers_are_super_users_by_a_name_that_no_login_gives():
    own = {"authorizer.class.name": AUTHORIZER, "super.users": "User:admin"}
    for is_controller in (False, True):
        config = worker(0, {"PLAINTEXT": 9092}, is_controller=is_controller, **own)
        assert config.super_users == {"User:admin", PRINCIPAL}
        assert not PRINCIPAL.startswith("User:")


def test_metrics_are_at_a_port_of_each_and_none_of_the_controller():
    own = {"odradek.metrics.listen": "[::1]:9644"}
    ports = {"PLAINTEXT": 9093, "odradek.metrics.listen": 9645}
    assert worker(1, ports, **own).metrics_address == ("::1", 9645)
    assert worker(0, ports, is_controller=True, **own).metrics_address is None


@pytest.mark.parametrize(
    ("keywords", "sentence"),
    [
        ({"process.roles": "broker"}, "process.roles=broker and odradek.workers=2 exclude each other"),
        ({"process.roles": "broker,controller"}, "process.roles=broker,controller and odradek.workers=2"),
        ({"zookeeper.connect": "localhost:2181"}, "only a node alone registers in ZooKeeper"),
    ],
)
def test_other_roles_are_refused_at_once(keywords, sentence):
    with pytest.raises(ConfigError, match=sentence):
        load(keywords={"odradek.workers": 2, **keywords})


@pytest.mark.parametrize(
    ("count", "keywords", "sentence"),
    [
        (3, {"node.id": 2**31 - 2}, "no node can have the id 2147483648"),
        (3, {"listeners": "PLAINTEXT://localhost:65534"}, "choose one of 65533 or less"),
        (
            2,
            {
                "listeners": "PLAINTEXT://localhost:9092,B://localhost:9093",
                "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,B:PLAINTEXT",
            },
            "PLAINTEXT would both have port 9093",
        ),
        (2, {"odradek.metrics.listen": "9093"}, "would both have port 9093"),
        (
            2,
            {
                "listeners": "PLAINTEXT://localhost:9092,OLD://localhost:9192",
                "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,OLD:KAFKA_07",
            },
            "which only a node alone can serve",
        ),
        (2, {"offsets.topic.replication.factor": 3}, "needs 3 brokers, and odradek.workers=2 are 2"),
    ],
)
def test_what_cannot_be_is_one_sentence(count, keywords, sentence):
    assert sentence in refusal(count, **keywords)


def test_one_worker_is_a_node_alone():
    config = load(keywords={"odradek.workers": 1})
    assert config.cluster is None
    assert config.worker is None
