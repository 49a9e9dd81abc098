"""The blocking client: what it asks again, what it refuses, and what no peer can do to it."""

import pickle
import struct

import pytest

import odradek
from odradek.client.client_error import ClientError
from odradek.client.cluster import (
    ANY_NODE,
    EARLIEST,
    LATEST,
    Cluster,
    UnknownTopic,
    coordinator_of,
    leader_of,
)
from odradek.client.settings import ClientSettings
from odradek.embedding.free_port import free_port
from odradek.spark.client_options import settings_of
from odradek.wire.errors import ErrorCode
from odradek.wire.frames import response_parts
from odradek.wire.messages.api_versions import ApiVersion, ApiVersionsRequest, ApiVersionsResponse
from odradek.wire.messages.find_coordinator import FindCoordinatorRequest
from odradek.wire.messages.heartbeat import HeartbeatRequest
from odradek.wire.messages.list_groups import ListGroupsRequest
from odradek.wire.messages.list_offsets import ListOffsetsRequest
from odradek.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from odradek.wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup
from tests.client.proxy import CUT, Peer, Proxy
from tests.client.topics import Transactions, create_topic, produce


def settings(port, **options):
    return ClientSettings(f"127.0.0.1:{port}", **{"retry_ms": 1, "patience_ms": 50, **options})


def with_code(code):
    """A change of ListOffsets answers: this code in place of offsets."""

    def change(answer):
        for topic in answer.topics:
            for one in topic.partitions:
                one.error_code = code
        return answer

    return change


# Topics and offsets


def test_partitions_of_the_topics_that_exist(cluster):
    one, three = create_topic(cluster, 1), create_topic(cluster, 3)
    assert cluster.partitions_of([three, "not-there", one]) == {one: 1, three: 3}
    assert cluster.partitions_of([]) == {}


def test_looking_for_a_topic_does_not_create_it(cluster):
    assert cluster.partitions_of(["not-made"]) == {}
    assert "not-made" not in cluster.topics()


def test_a_pattern_matches_whole_names_and_internal_topics_are_left_out(cluster):
    for name in ("pattern-a1", "pattern-a22", "pattern-b1"):
        create_topic(cluster, name=name)
    Transactions(cluster, "makes the internal topic")
    assert cluster.topics("pattern-a.") == ["pattern-a1"]
    assert cluster.topics("pattern-.*") == ["pattern-a1", "pattern-a22", "pattern-b1"]
    assert not [name for name in cluster.topics() if name.startswith("__")]
    with pytest.raises(ClientError, match="the pattern '\\(' is not a regular expression"):
        cluster.topics("(")


def test_offsets_by_their_names_and_by_timestamp(cluster):
    topic = create_topic(cluster, 2)
    produce(cluster, topic, 0, [b"a", b"b", b"c"], timestamp=1000)
    wanted = {(topic, 0): EARLIEST, (topic, 1): LATEST}
    assert cluster.list_offsets(wanted) == {(topic, 0): 0, (topic, 1): 0}
    assert cluster.list_offsets({(topic, 0): LATEST}) == {(topic, 0): 3}
    assert cluster.list_offsets({(topic, 0): 1001}) == {(topic, 0): 1}
    assert cluster.list_offsets({(topic, 0): 1003}) == {(topic, 0): -1}
    assert cluster.list_offsets({}) == {}


def test_a_reader_of_what_is_committed_sees_the_last_stable_offset_as_the_end(cluster):
    topic = create_topic(cluster)
    produce(cluster, topic, 0, [b"a"])
    transactions = Transactions(cluster, "open")
    transactions.write(topic, 0, [b"b", b"c"])
    assert cluster.list_offsets({(topic, 0): LATEST}) == {(topic, 0): 3}
    assert cluster.list_offsets({(topic, 0): LATEST}, read_committed=True) == {(topic, 0): 1}
    transactions.end(committed=True)


# Trying again


def test_a_leader_that_has_moved_is_looked_up_again(proxy, through_proxy):
    topic = create_topic(through_proxy)
    produce(through_proxy, topic, 0, [b"a", b"b"])
    asked = proxy.asked[MetadataRequest]
    proxy.change_once(ListOffsetsRequest, with_code(ErrorCode.NOT_LEADER_OR_FOLLOWER))
    assert through_proxy.list_offsets({(topic, 0): LATEST}) == {(topic, 0): 2}
    assert proxy.asked[ListOffsetsRequest] == 2
    assert proxy.asked[MetadataRequest] == asked + 1


def test_a_leader_that_died_is_looked_up_again(proxy, through_proxy):
    topic = create_topic(through_proxy)

    def at_a_dead_port(answer):
        answer.brokers[0].port = free_port()
        return answer

    proxy.change_once(MetadataRequest, at_a_dead_port)
    produce(through_proxy, topic, 0, [b"a"])
    assert proxy.asked[MetadataRequest] == 2
    assert through_proxy.list_offsets({(topic, 0): LATEST}) == {(topic, 0): 1}


@pytest.fixture
def two_proxies(broker):
    """As two brokers of a cluster, of which the second leads everything."""
    with Proxy(broker.port) as one, Proxy(broker.port) as other:
        yield one, other


def through(*proxies):
    servers = [f"127.0.0.1:{proxy.port}" for proxy in proxies]
    return Cluster(ClientSettings(servers, retry_ms=1, patience_ms=20_000))


def test_who_names_a_dead_leader_for_ever_is_not_the_only_one_that_is_asked(cluster, two_proxies):
    """As a broker that is cut off from the controllers."""
    stale, other = two_proxies
    topic, port = create_topic(cluster), free_port()

    def at_a_dead_port(answer):
        answer.brokers[0].port = port
        return answer

    stale.change(MetadataRequest, at_a_dead_port)
    with through(stale, other) as client:
        assert client.list_offsets({(topic, 0): LATEST}) == {(topic, 0): 0}
    assert (stale.asked[MetadataRequest], other.asked[MetadataRequest]) == (1, 1)


def test_a_leader_of_an_older_epoch_is_none(cluster, two_proxies):
    stale, other = two_proxies
    topic = create_topic(cluster)

    def of_later_epoch(answer):
        answer.topics[0].partitions[0].leader_epoch = 7
        return answer

    other.change(MetadataRequest, of_later_epoch)
    with through(other, stale) as client:
        assert client.list_offsets({(topic, 0): LATEST}) == {(topic, 0): 0}
        other.change_once(ListOffsetsRequest, with_code(ErrorCode.NOT_LEADER_OR_FOLLOWER))
        assert client.list_offsets({(topic, 0): LATEST}) == {(topic, 0): 0}
        assert client.leader_epoch(topic, 0) == 7
    assert stale.asked[MetadataRequest] == 1
    assert stale.asked[ListOffsetsRequest] == 0


def test_a_coordinator_is_asked_of_another_broker_when_one_knows_none(two_proxies):
    stale, other = two_proxies

    def nobody(answer):
        answer.coordinators[0].error_code = ErrorCode.COORDINATOR_NOT_AVAILABLE
        return answer

    stale.change(FindCoordinatorRequest, nobody)
    with through(stale, other) as client:
        answer = client.ask(coordinator_of("group", "g"), offsets_of("g"))
    assert answer.groups[0].error_code == ErrorCode.NONE
    assert (stale.asked[FindCoordinatorRequest], other.asked[FindCoordinatorRequest]) == (1, 1)


def test_a_request_whose_connection_was_cut_is_asked_again(proxy, through_proxy):
    topic = create_topic(through_proxy)
    proxy.change_once(ListOffsetsRequest, lambda answer: CUT)
    assert through_proxy.list_offsets({(topic, 0): LATEST}) == {(topic, 0): 0}
    assert proxy.asked[ListOffsetsRequest] == 2


def offsets_of(group):
    return OffsetFetchRequest(
        group_id="", groups=[OffsetFetchRequestGroup(group_id=group, member_id=None, topics=None)]
    )


def test_a_coordinator_is_found_and_found_again_when_it_has_moved(proxy, through_proxy):
    def not_yet(answer):
        answer.coordinators[0].error_code = ErrorCode.COORDINATOR_NOT_AVAILABLE
        return answer

    def not_here(answer):
        answer.groups[0].error_code = ErrorCode.NOT_COORDINATOR
        return answer

    proxy.change_once(FindCoordinatorRequest, not_yet)
    proxy.change_once(OffsetFetchRequest, not_here)
    answer = through_proxy.ask(coordinator_of("group", "g"), offsets_of("g"))
    assert (answer.groups[0].group_id, answer.groups[0].error_code) == ("g", ErrorCode.NONE)
    assert proxy.asked[OffsetFetchRequest] == 2
    assert proxy.asked[FindCoordinatorRequest] == 3


def test_a_broker_that_restarts_is_waited_for():
    with odradek.Broker() as broker, Cluster(settings(broker.port, patience_ms=20_000)) as cluster:
        topic = create_topic(cluster)
        produce(cluster, topic, 0, [b"a"])
        broker.restart()
        assert cluster.list_offsets({(topic, 0): LATEST}) == {(topic, 0): 1}
        assert cluster.partitions_of([topic]) == {topic: 1}


def test_a_code_that_is_not_to_be_tried_again_is_in_the_answer(cluster):
    request = HeartbeatRequest(group_id="g", generation_id=1, member_id="nobody")
    answer = cluster.ask(coordinator_of("group", "g"), request)
    assert answer.error_code == ErrorCode.UNKNOWN_MEMBER_ID


def test_any_broker_and_one_by_its_id_can_be_asked(cluster):
    assert cluster.ask(ANY_NODE, ListGroupsRequest()).error_code == ErrorCode.NONE
    (node,) = cluster.ask(ANY_NODE, MetadataRequest(topics=[])).brokers
    assert cluster.ask(node.node_id, ListGroupsRequest()).error_code == ErrorCode.NONE


def test_answers_come_to_whom_they_belong_in_whatever_order_they_are_received(cluster):
    first, second = create_topic(cluster, 1), create_topic(cluster, 2)
    connection = cluster.connect(ANY_NODE)
    version = connection.version_of(MetadataRequest)
    sent = [connection.send(metadata_of(topic), version) for topic in (first, second, first)]
    names = [connection.receive(pending).topics[0].name for pending in reversed(sent)]
    assert names == [first, second, first]


def metadata_of(topic):
    return MetadataRequest(topics=[MetadataRequestTopic(name=topic)])


# What cannot be


def test_a_topic_that_is_not_there_is_named(broker):
    with Cluster(settings(broker.port, unknown_topic_ms=5, patience_ms=20_000)) as cluster:
        with pytest.raises(UnknownTopic, match="no topic orderz: create it, or look for a slip"):
            cluster.list_offsets({("orderz", 0): LATEST})
        topic = create_topic(cluster, 2)
        with pytest.raises(UnknownTopic, match=f"topic {topic} has no partition 2: it has 2, counted from 0"):
            cluster.ask(leader_of(topic, 2), ListOffsetsRequest(replica_id=-1, isolation_level=0, topics=[]))


def test_brokers_that_are_not_there_are_named_when_patience_ends():
    port = free_port()
    with (
        Cluster(settings(port)) as cluster,
        pytest.raises(
            ClientError, match=f"no broker answered in 0.05 s: 127.0.0.1:{port} refuses connections"
        ),
    ):
        cluster.partitions_of(["t"])


def test_a_retriable_code_that_stays_ends_with_its_name(proxy, broker):
    with Cluster(settings(proxy.port)) as cluster:
        topic = create_topic(cluster)
        proxy.change(ListOffsetsRequest, with_code(ErrorCode.NOT_LEADER_OR_FOLLOWER))
        with pytest.raises(
            ClientError, match=f"offsets of {topic}-0 failed for 0.05 s.*NOT_LEADER"
        ) as caught:
            cluster.list_offsets({(topic, 0): LATEST})
    assert caught.value.code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    again = pickle.loads(pickle.dumps(caught.value))
    assert (str(again), again.code) == (str(caught.value), caught.value.code)


def versions_answer(**ranges):
    keys = [
        ApiVersion(api_key=int(key[1:]), min_version=low, max_version=high)
        for key, (low, high) in ranges.items()
    ]

    def answer(request):
        correlation_id = struct.unpack_from(">i", request, 4)[0]
        message = ApiVersionsResponse(error_code=0, api_keys=keys)
        return b"".join(response_parts(message, struct.unpack_from(">h", request, 2)[0], correlation_id))

    return answer


METADATA_KEY = {"_3": (4, 9), "_18": (0, 4)}


@pytest.mark.parametrize(
    ("answers", "sentence"),
    [
        (
            [b"HTTP/1.1 400 Bad Request\r\n\r\n"],
            ": an HTTP server listens there, not a Kafka broker; use the port of a",
        ),
        ([struct.pack(">i", 2**31 - 1)], "a server of another protocol listens there"),
        ([struct.pack(">i", -5)], "a server of another protocol listens there"),
        ([struct.pack(">iihi", 10, 77, 0, 0)], "answers request 77 instead of 1"),
        ([struct.pack(">iihi", 10, 1, 0, 99)], "answers ApiVersions with what is none"),
        ([versions_answer(_18=(0, 4))], "does not serve Metadata"),
        ([versions_answer(_3=(0, 3))], "has Metadata in the versions 0 to 3"),
        ([versions_answer(**METADATA_KEY), struct.pack(">i", 2**31 - 1)], "a response of 2147483647 bytes"),
        ([versions_answer(**METADATA_KEY), struct.pack(">ii", 4, 9)], "answers request 9 instead of 2"),
        (
            [versions_answer(**METADATA_KEY), struct.pack(">iib", 5, 2, 0)],
            "answers Metadata version 9 with what is none",
        ),
    ],
)
def test_a_peer_that_is_no_broker_is_refused_at_once(answers, sentence):
    with (
        Peer(*answers) as peer,
        Cluster(settings(peer.port, patience_ms=20_000)) as cluster,
        pytest.raises(ClientError, match=sentence),
    ):
        cluster.partitions_of(["t"])


def test_a_peer_that_closes_and_one_that_is_silent_are_given_up():
    with (
        Peer() as peer,
        Cluster(settings(peer.port)) as cluster,
        pytest.raises(ClientError, match="it was closed by the other side"),
    ):
        cluster.partitions_of(["t"])
    with (
        Peer(b"", b"", b"") as peer,
        Cluster(settings(peer.port, request_timeout_ms=30)) as cluster,
        pytest.raises(ClientError, match=r"no answer within 0\.03 s"),
    ):
        cluster.partitions_of(["t"])


def test_a_broker_that_knows_an_older_apiversions_is_asked_in_its_version():
    def too_new(request):
        correlation_id = struct.unpack_from(">i", request, 4)[0]
        known = [ApiVersion(api_key=ApiVersionsRequest.api_key, min_version=0, max_version=2)]
        message = ApiVersionsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION, api_keys=known)
        return b"".join(response_parts(message, 0, correlation_id))

    asked = []

    def in_version_2(request):
        asked.append(struct.unpack_from(">h", request, 2)[0])
        return versions_answer(_3=(0, 3))(request)

    with (
        Peer(too_new, in_version_2) as peer,
        Cluster(settings(peer.port)) as cluster,
        pytest.raises(ClientError, match="has Metadata in the versions 0 to 3"),
    ):
        cluster.partitions_of(["t"])
    assert asked == [2]


# Settings


def test_settings_are_read_from_options_with_kafkas_names():
    read = settings_of(
        {
            "Kafka.Bootstrap.Servers": "a:1, PLAINTEXT://b:2,[::1]:3",
            "kafka.client.id": "me",
            "kafka.request.timeout.ms": "1000",
            "kafka.security.protocol": "plaintext",
            "kafka.max.poll.records": "5",
        }
    )
    assert read.addresses() == [("a", 1), ("b", 2), ("::1", 3)]
    assert (read.client_id, read.request_timeout_ms) == ("me", 1000)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({}, "the option kafka.bootstrap.servers is missing"),
        ({"kafka.bootstrap.servers": " , "}, "names no broker"),
        ({"kafka.bootstrap.servers": "::1"}, "has '::1', which is not host:port; an IPv6 address stands in"),
        ({"kafka.bootstrap.servers": "h:99999"}, "has 'h:99999', which is not host:port"),
        (
            {"kafka.security.protocol": "TLS"},
            "kafka.security.protocol is 'TLS': it has to be one of PLAINTEXT",
        ),
        ({"kafka.ssl.truststore.location": "x"}, "kafka.ssl.truststore.location has no effect with"),
        ({"kafka.sasl.jaas.config": "secret"}, "kafka.sasl.jaas.config has no effect with"),
        ({"kafka.security.protocol": "SSL", "kafka.ssl.provider": "x"}, "kafka.ssl.provider is not taken"),
        ({"kafka.request.timeout.ms": "1s"}, "kafka.request.timeout.ms is '1s': it has to be a number"),
    ],
)
def test_what_cannot_be_a_setting_is_refused_by_name(options, sentence):
    with pytest.raises(ClientError, match=sentence) as caught:
        settings_of({"kafka.bootstrap.servers": "h:1", **options} if options else {})
    assert "secret" not in str(caught.value)
