"""A controller: which configurations make one, and those that are refused."""

import pytest

from odradek.config.broker_config import BrokerConfig, ConfigError, Listener
from odradek.config.first_users import FirstUser, parse

CONTROLLER = {
    "process.roles": "controller",
    "node.id": "100",
    "controller.quorum.bootstrap.servers": "127.0.0.1:9093",
    "controller.listener.names": "CONTROLLER",
    "listeners": "CONTROLLER://127.0.0.1:9093",
    "log.dirs": "data,more",
}
"""The configuration in Kafka's documentation."""


def controller(changes=None, **more):
    """The configuration with changes; None takes an option out."""
    given = {**CONTROLLER, **(changes or {})}
    return BrokerConfig({name: value for name, value in given.items() if value is not None}, **more)


def test_kafkas_configuration_of_a_controller_makes_one():
    config = controller()
    assert config.cluster is None
    assert config.controller.listeners == config.listeners == (Listener("CONTROLLER", "127.0.0.1", 9093),)
    assert config.metadata_directory == "data"
    assert (config.node_id, config.advertised) == (100, {})
    assert config.warnings == config.without_effect == ()
    # As a broker of the cluster has it, and unlike a node alone.
    assert config.values["offsets.topic.replication.factor"] == 3


def test_the_log_has_a_directory_of_its_own_on_demand():
    assert controller({"metadata.log.dir": "fast"}).metadata_directory == "fast"


def test_listeners_are_in_the_order_of_the_names_and_may_be_advertised():
    config = controller(
        {
            "controller.listener.names": "two,ONE,THREE",
            "listeners": "ONE://:9093,TWO://:9094",
            "advertised.listeners": "ONE://host.example:1",
        }
    )
    assert [one.name for one in config.controller.listeners] == ["TWO", "ONE"]
    assert config.advertised == {"ONE": Listener("ONE", "host.example", 1)}


def test_options_of_controllers_count_there_alone():
    of_controllers = {
        "metadata.log.max.record.bytes.between.snapshots": "4096",
        "leader.imbalance.check.interval.seconds": "7",
        "broker.session.timeout.ms": "4000",
        "unclean.leader.election.enable": "true",
    }
    assert controller(of_controllers).without_effect == ()
    assert controller({"replica.lag.time.max.ms": "7000"}).without_effect == ("replica.lag.time.max.ms",)
    del of_controllers["metadata.log.max.record.bytes.between.snapshots"]  # a node alone has the log, too
    assert BrokerConfig(of_controllers).without_effect == tuple(of_controllers)


def test_it_forms_the_cluster_and_gives_it_levels_and_users():
    users = parse("SCRAM-SHA-256=[name=ada,password=secret]")
    config = controller(first_users=users, first_levels={"metadata.version": 30})
    assert config.first_levels == {"metadata.version": 30}
    (user,) = config.first_users
    assert isinstance(user, FirstUser)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"node.id": None}, "node.id is missing"),
        ({"controller.listener.names": None}, "controller.listener.names is missing"),
        ({"controller.listener.names": ","}, "controller.listener.names is missing"),
        ({"listeners": None}, "listeners has none of controller.listener.names"),
        ({"listeners": "CONTROLLER://:9093,PLAINTEXT://:9092"}, "PLAINTEXT, which is for clients"),
        ({"advertised.listeners": "OTHER://a:1"}, "OTHER' without a protocol"),
        ({"controller.quorum.voters": "100@a:1,101@b:1"}, "beside the controllers 101@b:1"),
        ({"controller.quorum.bootstrap.servers": "a:1,b:1"}, "beside the controllers a:1,b:1"),
    ],
)
def test_others_are_refused_in_one_sentence(changes, words):
    with pytest.raises(ConfigError) as caught:
        controller(changes)
    assert words in str(caught.value)
    assert str(caught.value).endswith(".")
