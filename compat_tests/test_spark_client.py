"""The client of Spark's tasks against Odradek, Apache Kafka 4.4 (`--broker=kafka`) and, always, Kafka 3.9."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from confluent_kafka import Producer

from compat_tests import reference
from compat_tests.stories import topic_name
from compat_tests.test_import import CODECS, create, producing
from odradek.client.client_error import ClientError
from odradek.client.cluster import EARLIEST, LATEST, Cluster, UnknownTopic, coordinator_of
from odradek.client.fetching import Fetcher, OffsetsGone
from odradek.client.settings import ClientSettings
from odradek.wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup
from odradek.wire.records import iter_records, iter_whole_batches

PER_CODEC = 30
FLUSH_S = 30.0


@pytest.fixture(scope="module", params=["broker", reference.OLDER])
def servers(request: pytest.FixtureRequest) -> Iterator[str]:
    if request.param == "broker":
        yield request.getfixturevalue("bootstrap")
    else:
        with reference.Kafka(reference.OLDER) as kafka:
            yield kafka.bootstrap_servers


@pytest.fixture
def cluster(servers: str) -> Iterator[Cluster]:
    with Cluster(ClientSettings(servers, unknown_topic_ms=500)) as connected:
        yield connected


def flushed(producer: Producer) -> None:
    assert producer.flush(FLUSH_S) == 0


def values_in(fetcher: Fetcher) -> list[tuple[int, bytes]]:
    found = []
    for fetched in fetcher:
        for position, header in iter_whole_batches(fetched.buffer):
            if not header.is_control:
                batch = fetched.buffer[position : position + header.size_bytes]
                found += [(record.offset, record.value) for record in iter_records(batch)]
    return found


def test_topics_offsets_and_records_of_every_codec(servers: str, cluster: Cluster) -> None:
    topic = topic_name("client")
    create(servers, topic, 2)
    expected = []
    for codec in CODECS:
        producer = producing(servers, compression_codec=codec)
        for number in range(PER_CODEC):
            expected.append(f"{codec} {number}".encode() * 20)
            producer.produce(topic, expected[-1], partition=1)
        flushed(producer)
    assert cluster.partitions_of([topic, f"{topic}-not"]) == {topic: 2}
    assert topic in cluster.topics("client.*|.*client.*")
    end = len(CODECS) * PER_CODEC
    assert cluster.list_offsets({(topic, 0): LATEST, (topic, 1): LATEST}) == {(topic, 0): 0, (topic, 1): end}
    assert cluster.list_offsets({(topic, 1): EARLIEST}) == {(topic, 1): 0}
    for fetch_bytes in (1000, 1 << 20):
        fetcher = Fetcher(cluster, topic, 1, 0, end, read_committed=False, fetch_bytes=fetch_bytes)
        assert values_in(fetcher) == list(enumerate(expected))
    with pytest.raises(OffsetsGone) as caught:
        values_in(Fetcher(cluster, topic, 1, end + 5, end + 9, read_committed=False))
    assert (caught.value.earliest, caught.value.latest) == (0, end)
    with pytest.raises(UnknownTopic, match="no topic"):
        cluster.list_offsets({(f"{topic}-not", 0): LATEST})
    with pytest.raises(ClientError, match="has no partition 2"):
        cluster.list_offsets({(topic, 2): LATEST})


def test_aborted_transactions_are_named_to_who_reads_what_is_committed(
    servers: str, cluster: Cluster
) -> None:
    topic = topic_name("aborted")
    create(servers, topic, 1)
    producer = producing(servers, transactional_id=topic)
    producer.init_transactions(FLUSH_S)
    for number in range(4):
        producer.begin_transaction()
        producer.produce(topic, b"%d" % number, partition=0)
        flushed(producer)
        if number % 2:
            producer.abort_transaction(FLUSH_S)
        else:
            producer.commit_transaction(FLUSH_S)
    # Each is a record and a marker; the reader waits for the last marker.
    fetched = list(Fetcher(cluster, topic, 0, 0, 8, read_committed=True))
    aborted = {first for one in fetched for _, first in one.aborted}
    assert aborted == {2, 6}
    assert cluster.list_offsets({(topic, 0): LATEST}, read_committed=True) == {(topic, 0): 8}


def test_a_coordinator_is_found_and_asked(cluster: Cluster) -> None:
    group = OffsetFetchRequestGroup(group_id=topic_name("group"), topics=None)
    request = OffsetFetchRequest(group_id="", groups=[group])
    answer = cluster.ask(coordinator_of("group", group.group_id), request, version_max=9)
    assert [(one.group_id, one.error_code, one.topics) for one in answer.groups] == [(group.group_id, 0, [])]
