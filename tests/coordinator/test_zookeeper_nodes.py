"""What is in the nodes of ZooKeeper: the texts of Kafka 3.9.2, and readers that take anything."""

import json

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from odradek.coordinator.cluster.view import PartitionView, TopicView
from odradek.coordinator.zookeeper import nodes
from odradek.coordinator.zookeeper.nodes import Listening

NOW_MS = 1795825349704
# As a broker of Kafka 3.9.2 has written them; compat_tests/zookeeper/test_nodes_of_kafka.py compares more.
BROKER = (
    b'{"features":{},"listener_security_protocol_map":{"PLAINTEXT":"PLAINTEXT"},'
    b'"endpoints":["PLAINTEXT://127.0.0.1:25377"],"jmx_port":-1,"port":25377,"host":"127.0.0.1","version":5,'
    b'"timestamp":"1795825349704"}'
)
TOPIC = (
    b'{"partitions":{"0":[1],"1":[1]},"topic_id":"MZeluhX5Rdq6aiLUViD0Kg","adding_replicas":{},'
    b'"removing_replicas":{},"version":3}'
)
STATE = b'{"controller_epoch":1,"leader":1,"version":1,"leader_epoch":0,"isr":[1]}'
CONTROLLER = b'{"version":2,"brokerid":1,"timestamp":"1795825349704","kraftControllerEpoch":-1}'
CLUSTER_ID = b'{"version":"1","id":"HC0TmcXgSn2Mdwu56fI6VA"}'
CONFIG = b'{"version":1,"config":{}}'


def partition(index, **more):
    return PartitionView(index, **{"leader": 1, "leader_epoch": 0, "replicas": (1,), "isr": (1,), **more})


def topic(*partitions, **more):
    return TopicView("t", b"t" * 16, partitions, **more)


def test_texts_are_those_of_kafka():
    plain = [Listening("PLAINTEXT", "127.0.0.1", 25377, "PLAINTEXT")]
    assert nodes.broker(plain, None, NOW_MS) == BROKER
    ours = json.loads(nodes.topic(topic(partition(0), partition(1)), "MZeluhX5Rdq6aiLUViD0Kg"))
    assert ours.pop(nodes.MARK) == 1
    assert ours == json.loads(TOPIC)
    assert nodes.partition_state(partition(0), 1) == STATE
    assert nodes.controller(1, NOW_MS) == CONTROLLER
    assert nodes.cluster_id("HC0TmcXgSn2Mdwu56fI6VA") == CLUSTER_ID
    assert nodes.entity_config({}) == CONFIG


def test_a_broker_with_other_listeners():
    endpoints = [Listening("IN", "::1", 1, "SSL"), Listening("OUT", "h", 2, "PLAINTEXT")]
    found = json.loads(nodes.broker(endpoints, "r", NOW_MS))
    assert found["endpoints"] == ["IN://[::1]:1", "OUT://h:2"]
    assert (found["host"], found["port"], found["rack"]) == ("h", 2, "r")
    found = json.loads(nodes.broker(endpoints[:1], None, NOW_MS))
    assert (found["host"], found["port"]) == (None, -1), "old clients know PLAINTEXT alone"


def test_a_partition_that_moves_or_recovers():
    moving = topic(partition(0, replicas=(2, 3, 1), adding=(2,), removing=(1,)), partition(1))
    found = json.loads(nodes.topic(moving, "id"))
    assert (found["adding_replicas"], found["removing_replicas"]) == ({"0": [2]}, {"0": [1]})
    assert (
        json.loads(nodes.partition_state(partition(0, leader_recovery_state=1), 7))["leader_recovery_state"]
        == 1
    )


def test_what_we_write_we_read():
    ours = nodes.topic(topic(partition(0, replicas=(1, 2)), partition(1, replicas=(3,))), "id")
    assert nodes.read_topic(ours) == nodes.Assignment({0: (1, 2), 1: (3,)}, is_ours=True)
    assert nodes.read_topic(TOPIC) == nodes.Assignment({0: (1,), 1: (1,)}, is_ours=False)
    assert nodes.read_cluster_id(CLUSTER_ID) == "HC0TmcXgSn2Mdwu56fI6VA"
    assert nodes.read_entity_config(nodes.entity_config({"b": "2", "a": "1"})) == {"a": "1", "b": "2"}


NAMES = st.text(st.characters(exclude_categories=["Cs"]), min_size=1)
ENTITIES = st.fixed_dictionaries(
    {}, optional={"user": st.none() | NAMES, "client-id": st.none() | NAMES}
).filter(bool) | st.fixed_dictionaries({"ip": st.none() | st.sampled_from(["127.0.0.1", "::1"])})


@given(ENTITIES)
@example({"user": "."})
@example({"client-id": ".."})
@example({"user": "<default>", "client-id": "a/b~*+ %"})
def test_the_path_of_a_quota_says_whose_it_is(entity):
    entity = tuple(sorted(entity.items(), key=lambda part: part[0]))
    path = nodes.quota_path(entity)
    _, folder, kind, name = path.split("/", 3)
    assert folder == "config"
    assert not {"", ".", ".."}.intersection(path.split("/")[1:]), "ZooKeeper takes no such path"
    assert nodes.quota_entity_of(kind, name) == entity
    told = json.dumps({"version": 2, "entity_path": f"{kind}/{name}"}).encode()
    assert nodes.read_config_change(told) == (kind, name)


def test_paths_of_quotas_are_those_of_kafka():
    path = nodes.quota_path((("client-id", "c 2"), ("user", "a~b *+/\u00e9")))
    assert path == "/config/users/a%7Eb%20%2A%2B%2F%C3%A9/clients/c%202"
    assert nodes.quota_path((("user", None),)) == "/config/users/<default>"
    assert nodes.quota_path((("ip", "::1"),)) == "/config/ips/::1"


@pytest.mark.parametrize(
    ("content", "change"),
    [
        (b'"t"', ("topics", "t")),
        (b'{"version":1,"entity_type":"clients","entity_name":"c"}', ("clients", "c")),
        (b'{"version":2,"entity_path":"users/u/clients/c"}', ("users", "u/clients/c")),
        (b'{"version":2,"entity_path":"brokers/<default>"}', ("brokers", "<default>")),
    ],
)
def test_all_releases_tell_what_has_changed(content, change):
    assert nodes.read_config_change(content) == change


@pytest.mark.parametrize(
    "path",
    [
        "topics",
        "topics/",
        "topics/..",
        "topics/a/./b",
        "nobody/a",
        "topics/a\0",
        "topics/\ud800",
        "topics//a",
    ],
)
def test_a_change_of_what_has_no_settings_is_refused(path):
    for told in ({"version": 2, "entity_path": path}, {"version": 1, "entity_type": "", "entity_name": path}):
        with pytest.raises(ValueError, match="names nothing that has settings"):
            nodes.read_config_change(json.dumps(told).encode())


@pytest.mark.parametrize(
    ("kind", "name"),
    [("users", "a/clients"), ("users", "a/users/<default>"), ("topics", "t"), ("users", "a/topics/t")],
)
def test_what_has_no_quotas_is_refused(kind, name):
    with pytest.raises(ValueError, match="names nothing that has quotas"):
        nodes.quota_entity_of(kind, name)


@pytest.mark.parametrize(
    ("content", "offset"), [(b"0", 0), (b" 5\n", 5), (b"-1", -1), (b"9223372036854775807", 2**63 - 1)]
)
def test_an_offset_is_a_bare_number(content, offset):
    assert nodes.read_offset(content) == offset


def test_moves_and_elections_name_partitions():
    moves = b'{"version":1,"partitions":[{"topic":"t","partition":3,"replicas":[2,1]}]}'
    assert nodes.read_reassignment(moves) == [("t", 3, (2, 1))]
    assert nodes.read_election(moves) == [("t", 3)]


READERS = [
    nodes.read_cluster_id,
    nodes.read_topic,
    nodes.read_entity_config,
    nodes.read_config_change,
    nodes.read_reassignment,
    nodes.read_election,
    nodes.read_offset,
]
JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text()
    | st.sampled_from(["t", "0", "1", "topics/t", "users/a", "\ud800", "9" * 5000]),
    lambda values: (
        st.lists(values, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                [
                    "partitions",
                    "topic",
                    "partition",
                    "replicas",
                    "config",
                    "id",
                    "version",
                    "entity_path",
                    "0",
                    "1",
                ]
            )
            | st.text(),
            values,
            max_size=4,
        )
    ),
    max_leaves=20,
)


@given(st.binary() | JSON.map(json.dumps).map(str.encode))
@example(b"[" * 100_000)
@example(b'{"partitions":{"0":[' + b"9" * 5000 + b"]}}")
@example(b'{"partitions":{"' + b"9" * 5000 + b'":[1]}}')
@example('{"partitions":{"\u0661":[1]}}'.encode())
@example(b'{"partitions":[{"topic":"\\ud800","partition":0,"replicas":[1]}]}')
@example(b"--5")
@example(b"9" * 5000)
def test_readers_give_a_value_or_a_sentence(content):
    for read in READERS:
        try:
            value = read(content)
        except ValueError:
            continue
        assert value is not None
        # All of it fits into requests.
        assert repr(value).encode()
        json.dumps(_plain(value), ensure_ascii=False).encode()


def _plain(value):
    if isinstance(value, nodes.Assignment):
        return [list(map(list, value.replicas.values())), value.is_ours]
    return value


def test_who_may_write_and_read_protected_nodes():
    assert nodes.is_open("/consumers")
    assert nodes.is_open("/kafka07/consumers")
    for path in ("/consumers/g/offsets/t/0", "/brokers/topics/consumers", "/kafka07", "/"):
        assert not nodes.is_open(path), path
    for path in ("/config/users", "/config/users/a/clients/c", "/config/brokers/1"):
        assert nodes.is_secret(path), path
    for path in ("/config/topics/t", "/config/clients/c", "/brokers/ids/1", "/config"):
        assert not nodes.is_secret(path), path
