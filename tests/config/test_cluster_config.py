"""A node of a cluster: which configurations make one, what it is told of the cluster, and what is refused."""

import pytest

from odradek.config import options
from odradek.config.broker_config import ConfigError, Listener, load
from odradek.config.cluster_config import ControllerEndpoint
from odradek.config.live import LiveConfig
from odradek.config.options import IN_CLUSTER, TOPIC_OPTIONS
from tests.config.config_sources import CONTAINER, KAFKAS_OWN, from_text

BROKER = """\
process.roles=broker
node.id=7
controller.quorum.bootstrap.servers=127.0.0.1:9093
controller.listener.names=CONTROLLER
listeners=PLAINTEXT://127.0.0.1:9092
advertised.listeners=PLAINTEXT://127.0.0.1:9092
inter.broker.listener.name=PLAINTEXT
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT
log.dirs=data
"""
"""The configuration of a broker beside controllers, as Kafka's documentation has it."""


def changed(text):
    """`BROKER` with lines changed: NAME=VALUE sets one, -NAME takes it out."""
    lines = dict(line.split("=", 1) for line in BROKER.splitlines())
    for line in text.splitlines():
        name, equals, value = line.strip().partition("=")
        if equals:
            lines[name] = value
        else:
            del lines[name.removeprefix("-")]
    return "\n".join(f"{name}={value}" for name, value in lines.items())


@pytest.fixture
def node(tmp_path):
    def node(text="", **more):
        return from_text(tmp_path, changed(text), **more)

    return node


def test_kafkas_configuration_of_a_broker_makes_a_node_of_a_cluster(node):
    config = node("broker.rack=r1\nbroker.heartbeat.interval.ms=1000\ncontrolled.shutdown.enable=false")
    cluster = config.cluster
    assert cluster.controllers == (ControllerEndpoint(-1, "127.0.0.1", 9093),)
    assert cluster.controller_listener_name == "CONTROLLER"
    assert cluster.controller_security_protocol == "PLAINTEXT"
    assert cluster.inter_broker_listener == Listener("PLAINTEXT", "127.0.0.1", 9092)
    assert cluster.advertised == (Listener("PLAINTEXT", "127.0.0.1", 9092),)
    assert (config.values["broker.rack"], cluster.heartbeat_interval_ms) == ("r1", 1000)
    assert not config.values["controlled.shutdown.enable"]
    assert config.node_id == 7 == node("-node.id\nbroker.id=7").node_id
    assert config.warnings == config.without_effect == ()


def test_a_node_without_controllers_is_alone():
    assert load().cluster is None
    assert load(environ=CONTAINER).cluster is None


def test_the_combined_node_of_kafkas_own_file_is_alone(tmp_path):
    config = from_text(tmp_path, KAFKAS_OWN)
    assert config.cluster is None
    assert config.warnings == ()
    assert [one.name for one in config.controller_listeners] == ["CONTROLLER"]
    assert "controller.quorum.bootstrap.servers" not in config.without_effect


def test_a_broker_that_names_no_controllers_is_alone_and_warned():
    config = load(sets=["process.roles=broker"])
    assert config.cluster is None
    assert config.without_effect == ("process.roles",)
    assert "this node runs alone" in config.warnings[0]


def test_voters_come_with_their_ids_and_before_other_bootstrap_servers(node):
    config = node(
        "controller.quorum.voters=1@a.example:9093, 2@[::1]:9094\n"
        "controller.quorum.bootstrap.servers=a.example:9093,CONTROLLER://b.example:1,::1:9095"
    )
    assert config.cluster.controllers == (
        ControllerEndpoint(1, "a.example", 9093),
        ControllerEndpoint(2, "::1", 9094),
        ControllerEndpoint(-1, "b.example", 1),
        ControllerEndpoint(-1, "::1", 9095),
    )
    assert config.cluster.bootstrap_text == "a.example:9093,[::1]:9094,b.example:1,[::1]:9095"


def test_of_two_voters_with_one_id_the_last_counts_as_in_kafka(node):
    config = node("-controller.quorum.bootstrap.servers\ncontroller.quorum.voters=1@a:1,1@b:2")
    assert config.cluster.controllers == (ControllerEndpoint(1, "b", 2),)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        # Each of these Kafka 4.3 refuses, too.
        ("-process.roles", "process.roles is missing"),
        ("process.roles=", "process.roles is missing"),
        ("process.roles=broker,controller\ncontroller.quorum.voters=1@a:1", "beside the controllers 1@a:1"),
        ("-controller.listener.names", "controller.listener.names is missing"),
        ("controller.listener.names=", "controller.listener.names is missing"),
        ("controller.listener.names=CONTROLLER,CTL2", "CTL2 without a protocol"),
        ("listener.security.protocol.map=PLAINTEXT:PLAINTEXT", "CONTROLLER without a protocol"),
        ("listeners=PLAINTEXT://127.0.0.1:1,CONTROLLER://127.0.0.1:2", "remove it from listeners"),
        ("listeners=CONTROLLER://127.0.0.1:1", "none for clients"),
        ("controller.quorum.voters=7@127.0.0.1:9093", "give this node another number"),
        ("controller.quorum.voters=127.0.0.1:9093", "an entry is ID@HOST:PORT"),
        ("controller.quorum.voters=x@127.0.0.1:9093", "an entry is ID@HOST:PORT"),
        ("controller.quorum.voters=1@127.0.0.1", "an entry is ID@HOST:PORT"),
        ("controller.quorum.voters=1@127.0.0.1:70000", "an entry is ID@HOST:PORT"),
        ("controller.quorum.voters=1@0.0.0.0:9093", "an entry is ID@HOST:PORT"),
        ("controller.quorum.bootstrap.servers=localhost", "an entry is HOST:PORT"),
        ("controller.quorum.bootstrap.servers=localhost:70000", "an entry is HOST:PORT"),
        ("controller.quorum.bootstrap.servers=localhost:1,", "an entry is HOST:PORT"),
        ("controller.quorum.bootstrap.servers=1@localhost:9093", "an entry is HOST:PORT"),
        ("inter.broker.listener.name=CONTROLLER", "is a listener of controllers"),
        ("inter.broker.listener.name=OTHER", "is not in listeners"),
        ("security.inter.broker.protocol=PLAINTEXT", "exclude each other"),
        ("listeners=PLAINTEXT://0.0.0.0:1\n-advertised.listeners", "set advertised.listeners"),
        ("-node.id", "node.id is missing"),
        ("broker.id=8", "differ"),
        ("replica.fetch.wait.max.ms=40000", "above replica.socket.timeout.ms=30000"),
        ("replica.lag.time.max.ms=400", "above replica.lag.time.max.ms=400"),
        # And these, of what Kafka takes, it cannot work with or is not built.
        ("controller.quorum.voters=-1@127.0.0.1:9093", "an entry is ID@HOST:PORT"),
        ("controller.quorum.bootstrap.servers=localhost:0", "an entry is HOST:PORT"),
        (
            "process.roles=controller\nlisteners=CONTROLLER://:9093\n-advertised.listeners\n"
            "odradek.metrics.listen=9644",
            "a controller serves no metrics",
        ),
        ("process.roles=controller\ncontroller.quorum.voters=7@a:1,8@b:1", "beside the controllers 8@b:1"),
        ("process.roles=controller\ncontroller.quorum.bootstrap.servers=a:1,b:1", "controllers a:1,b:1"),
        (
            "process.roles=broker,controller\ncontroller.quorum.voters=7@a:1,8@b:1",
            "beside the controllers 8@b:1",
        ),
        (
            "process.roles=broker,controller\ncontroller.quorum.bootstrap.servers=a:1,b:1",
            "beside the controllers a:1,b:1",
        ),
    ],
)  # fmt: skip
def test_what_cannot_be_a_node_of_a_cluster_is_refused_in_one_sentence(node, text, words):
    with pytest.raises(ConfigError) as caught:
        node(text)
    assert words in str(caught.value)
    assert str(caught.value).endswith(".")


def test_the_feature_levels_are_those_of_the_cluster(node):
    with pytest.raises(ConfigError, match="a cluster has its feature levels"):
        node(first_levels={"metadata.version": 25})


def test_the_listener_among_brokers_has_to_be_advertised(node):
    protocols = "listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,B:PLAINTEXT"
    two = f"listeners=PLAINTEXT://127.0.0.1:1,B://127.0.0.1:2\n{protocols}"
    with pytest.raises(ConfigError, match=r"listener among brokers is B, .* to PLAINTEXT, or add B"):
        node(f"{two}\ninter.broker.listener.name=B")
    # Kafka looks for a listener with the name of the protocol; a node alone would take the first one.
    only = f"listeners=B://127.0.0.1:2\nadvertised.listeners=B://a.example:2\n{protocols}"
    with pytest.raises(ConfigError, match="listener among brokers is PLAINTEXT"):
        node(f"{only}\n-inter.broker.listener.name")
    assert node(f"{only}\ninter.broker.listener.name=b").cluster.inter_broker_listener.name == "B"


def test_without_advertised_listeners_those_that_are_opened_are_registered(node):
    config = node(
        "-advertised.listeners\n-inter.broker.listener.name\nlisteners=PLAINTEXT://:0,B://b.example:2\n"
        "listener.security.protocol.map=PLAINTEXT:PLAINTEXT,B:PLAINTEXT,CONTROLLER:PLAINTEXT"
    )
    assert config.cluster.advertised == (Listener("PLAINTEXT", "", 0), Listener("B", "b.example", 2))
    assert config.cluster.inter_broker_listener.name == "PLAINTEXT"


def test_advertised_addresses_of_controllers_are_left_out_as_in_kafka(node):
    config = node("advertised.listeners=PLAINTEXT://a.example:1,CONTROLLER://a.example:2")
    assert config.cluster.advertised == (Listener("PLAINTEXT", "a.example", 1),)


def test_a_listener_of_controllers_needs_no_protocol_in_the_default_map(node):
    config = node("-listener.security.protocol.map\ncontroller.listener.names=controller")
    assert config.cluster.controller_listener_name == "CONTROLLER"


def test_what_is_unwise_is_warned_of(node):
    (first, second) = node(
        "broker.heartbeat.interval.ms=5000\ncontroller.listener.names=CONTROLLER,PLAINTEXT2\n"
        "listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT2:SSL,PLAINTEXT:PLAINTEXT"
    ).warnings
    assert "more than half of broker.session.timeout.ms=9000" in first
    assert "CONTROLLER, the first, is used" in second


def test_heartbeats_have_a_pause_between_them(node):
    assert node("broker.heartbeat.interval.ms=0").cluster.heartbeat_interval_ms == 1


def test_internal_topics_have_kafkas_replicas_in_a_cluster(node):
    config = node()
    factors = ("offsets.topic.replication.factor", "transaction.state.log.replication.factor")
    assert [config.values[name] for name in factors] == [3, 3]
    assert config.values["transaction.state.log.min.isr"] == 2
    assert [load().values[name] for name in factors] == [1, 1]
    (entry,) = options.describe_broker(config.layers, ["offsets.topic.replication.factor"])
    assert (entry.value, entry.source) == ("3", options.FROM_DEFAULT)
    config = node("offsets.topic.replication.factor=5")
    assert config.values["offsets.topic.replication.factor"] == 5


def test_what_a_node_alone_cannot_do_is_without_effect_there_only(node):
    replication = {"replica.fetch.max.bytes": "5", "num.replica.fetchers": "2"}
    texts = [f"{name}={value}" for name, value in replication.items()]
    assert load(sets=texts).without_effect == tuple(replication)
    config = node("\n".join([*texts, "num.io.threads=2"]))
    assert config.without_effect == ("num.io.threads",)
    assert [config.values[name] for name in replication] == [5, 2]
    throttled = ["leader.replication.throttled.replicas", "unclean.leader.election.enable"]
    assert options.without_effect(throttled, load().topic_options) == tuple(throttled)
    assert options.without_effect(throttled, config.topic_options) == ()


def test_a_change_at_run_time_is_judged_as_the_node_is(node):
    rates = {"leader.replication.throttled.rate": "5"}
    for config, named in ((load(), tuple(rates)), (node(), ())):
        live = LiveConfig(config, dict)
        live.follow({None: rates})
        assert live.values["leader.replication.throttled.rate"] == 5
        assert live.without_effect == named


def test_a_node_alone_may_contradict_itself_about_replication():
    assert load(sets=["replica.fetch.wait.max.ms=40000"]).cluster is None


def test_three_topic_options_are_honoured_in_a_cluster_alone():
    assert {option.name for option in TOPIC_OPTIONS.values() if option.standing == IN_CLUSTER} == {
        "unclean.leader.election.enable",
        "leader.replication.throttled.replicas",
        "follower.replication.throttled.replicas",
    }


def test_the_option_rules_over_the_variable_with_the_cluster_id():
    assert load(environ={"CLUSTER_ID": "one"}).cluster_id == "one"
    assert load(environ={"CLUSTER_ID": "one"}, cluster_id="two").cluster_id == "two"
