"""Reading ranges: whole, once, with the next request under way, whatever happens in the middle."""

import pickle
import time

import pytest

from odradek.client.client_error import ClientError
from odradek.client.cluster import LATEST, Cluster, UnknownTopic
from odradek.client.fetching import Fetcher, OffsetsGone, whole_records
from odradek.client.settings import ClientSettings
from odradek.wire.errors import ErrorCode, KafkaError
from odradek.wire.legacy_records import to_legacy
from odradek.wire.messages.api_versions import ApiVersionsRequest
from odradek.wire.messages.fetch import FetchRequest
from odradek.wire.records import build_batch
from tests.client.proxy import CUT
from tests.client.topics import (
    Transactions,
    create_topic,
    delete_records,
    delete_topic,
    produce,
    records_in,
)

SMALL = 200
"""Bytes of a fetch that bring one batch of the tests'."""
PATIENCE_S = 20


def filled(cluster, batches=10):
    topic = create_topic(cluster)
    for number in range(batches):
        produce(cluster, topic, 0, [b"%d-%d" % (number, index) for index in range(3)])
    expected = [
        (3 * number + index, b"%d-%d" % (number, index)) for number in range(batches) for index in range(3)
    ]
    return topic, expected


def fetcher(cluster, topic, start, end, *, read_committed=False, fetch_bytes=SMALL):
    return Fetcher(cluster, topic, 0, start, end, read_committed=read_committed, fetch_bytes=fetch_bytes)


def read(fetcher):
    return [record for fetched in fetcher for record in records_in(fetched.buffer)]


def test_a_range_comes_whole_and_in_order(cluster):
    topic, expected = filled(cluster)
    pieces = list(fetcher(cluster, topic, 0, 30))
    assert len(pieces) > 2
    assert [record for piece in pieces for record in records_in(piece.buffer)] == expected
    assert [piece.next_offset for piece in pieces][-1] == 30
    assert {piece.high_watermark for piece in pieces} == {30}
    assert read(fetcher(cluster, topic, 0, 30, fetch_bytes=1 << 20)) == expected


def test_a_range_begins_with_the_batch_of_its_start_and_ends_with_that_of_its_end(cluster):
    topic, expected = filled(cluster)
    assert read(fetcher(cluster, topic, 4, 10, fetch_bytes=1)) == expected[3:12]
    assert read(fetcher(cluster, topic, 6, 6)) == []


def test_the_next_fetch_is_under_way_while_one_is_used(proxy, through_proxy):
    topic, _ = filled(through_proxy)
    pieces = iter(fetcher(through_proxy, topic, 0, 30))
    next(pieces)
    deadline = time.monotonic() + PATIENCE_S
    while proxy.asked[FetchRequest] < 2:
        assert time.monotonic() < deadline
        time.sleep(0.001)
    # Other questions may be asked meanwhile, on the same connection.
    assert through_proxy.list_offsets({(topic, 0): LATEST}) == {(topic, 0): 30}
    assert records_in(next(pieces).buffer)[0][0] > 0


def test_records_that_come_later_are_waited_for(cluster, broker):
    topic, expected = filled(cluster, 1)
    pieces = iter(fetcher(cluster, topic, 0, 6))
    assert records_in(next(pieces).buffer) == expected
    with Cluster(ClientSettings(broker.bootstrap_servers)) as other:
        produce(other, topic, 0, [b"x", b"y", b"z"])
    assert records_in(next(pieces).buffer) == [(3, b"x"), (4, b"y"), (5, b"z")]
    assert next(pieces, None) is None


def with_code(code):
    def change(answer):
        answer.responses[0].partitions[0].error_code = code
        answer.responses[0].partitions[0].records = b""
        return answer

    return change


@pytest.mark.parametrize(
    "change",
    [
        with_code(ErrorCode.NOT_LEADER_OR_FOLLOWER),
        with_code(ErrorCode.UNKNOWN_TOPIC_ID),
        with_code(ErrorCode.CORRUPT_MESSAGE),
        lambda answer: CUT,
    ],
    ids=["not-leader", "unknown-id", "corrupt", "cut"],
)
def test_what_goes_wrong_in_the_middle_loses_and_doubles_nothing(proxy, through_proxy, change):
    topic, expected = filled(through_proxy)
    seen = []
    for number, piece in enumerate(fetcher(through_proxy, topic, 0, 30)):
        seen += records_in(piece.buffer)
        if number in (0, 3):
            proxy.change_once(FetchRequest, change)
    assert seen == expected


def test_records_that_were_deleted_are_named(cluster):
    topic, expected = filled(cluster)
    delete_records(cluster, topic, 0, 7)
    with pytest.raises(
        OffsetsGone, match=rf"topic {topic}, partition 0 has no offset 2 .* begins at 7"
    ) as caught:
        read(fetcher(cluster, topic, 2, 30))
    again = pickle.loads(pickle.dumps(caught.value))
    assert (again.topic, again.partition, again.wanted, again.earliest, again.latest) == (topic, 0, 2, 7, 30)
    assert str(again) == str(caught.value)
    assert read(fetcher(cluster, topic, 7, 30)) == expected[6:]
    with pytest.raises(OffsetsGone) as caught:
        read(fetcher(cluster, topic, 31, 40))
    assert (caught.value.wanted, caught.value.latest) == (31, 30)


def test_a_topic_that_was_deleted_in_the_middle_is_named(broker):
    settings = ClientSettings(broker.bootstrap_servers, retry_ms=1, unknown_topic_ms=10)
    with Cluster(settings) as cluster:
        topic, _ = filled(cluster)
        pieces = iter(fetcher(cluster, topic, 0, 30, fetch_bytes=1))
        next(pieces)
        delete_topic(cluster, topic)
        with pytest.raises(UnknownTopic, match=f"no topic {topic}"):
            list(pieces)


def settled_end(cluster, topic):
    """The end of the log when all transactions have their markers."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        wanted = {(topic, 0): LATEST}
        end, stable = cluster.list_offsets(wanted), cluster.list_offsets(wanted, read_committed=True)
        if end == stable:
            return end[topic, 0]
        assert time.monotonic() < deadline


def test_a_reader_of_what_is_committed_is_told_what_was_aborted(cluster):
    topic, _ = filled(cluster, 1)
    transactions = Transactions(cluster, "aborting")
    aborted_at = transactions.write(topic, 0, [b"a", b"b"])
    transactions.end(committed=False)
    transactions.write(topic, 0, [b"c"])
    transactions.end(committed=True)
    end = settled_end(cluster, topic)
    aborted = ((transactions.producer_id, aborted_at),)
    committed = fetcher(cluster, topic, 0, end, read_committed=True, fetch_bytes=1 << 20)
    assert next(iter(committed)).aborted == aborted
    assert {piece.aborted for piece in fetcher(cluster, topic, 0, end, fetch_bytes=1 << 20)} == {()}
    # A fetch from within the transaction is told of it too.
    within = fetcher(cluster, topic, aborted_at + 1, end, read_committed=True, fetch_bytes=1 << 20)
    assert next(iter(within)).aborted == aborted


def test_an_open_transaction_is_named_when_patience_ends(broker):
    settings = ClientSettings(broker.bootstrap_servers, retry_ms=1, patience_ms=20, request_timeout_ms=10_000)
    with Cluster(ClientSettings(broker.bootstrap_servers)) as other, Cluster(settings) as cluster:
        topic, expected = filled(other, 1)
        transactions = Transactions(other, "left open")
        transactions.write(topic, 0, [b"a"])
        pieces = iter(fetcher(cluster, topic, 0, 4, read_committed=True))
        assert records_in(next(pieces).buffer) == expected
        with pytest.raises(ClientError, match=r"nothing from offset 3 on for 0\.02 s.*a transaction is open"):
            next(pieces)
        with pytest.raises(ClientError, match="its log ends there"):
            read(fetcher(cluster, topic, 4, 9))
        transactions.end(committed=True)


def test_a_broker_without_topic_ids_is_asked_by_name(proxy, through_proxy):
    def old(answer):
        for one in answer.api_keys:
            one.max_version = min(one.max_version, {1: 11, 3: 8}.get(one.api_key, one.max_version))
        return answer

    proxy.change(ApiVersionsRequest, old)
    topic, expected = filled(through_proxy)
    assert read(fetcher(through_proxy, topic, 0, 30)) == expected


def test_an_answer_without_the_partition_is_refused(proxy, through_proxy):
    topic, _ = filled(through_proxy, 1)

    def without(answer):
        answer.responses = []
        return answer

    proxy.change(FetchRequest, without)
    with pytest.raises(ClientError, match="answers a Fetch without that partition"):
        read(fetcher(through_proxy, topic, 0, 3))


# Whole batches


BATCHES = bytes(build_batch([(5, 0, None, b"a", ()), (6, 0, None, b"b", ())]))
LEGACY = to_legacy(build_batch([(7, 0, b"k", b"c", ())]), 1, 7)


def test_what_is_cut_off_at_the_end_is_left_out_in_every_format():
    whole = BATCHES + LEGACY
    for size_bytes in range(len(whole) + 1):
        buffer, next_offset = whole_records(memoryview(whole)[:size_bytes])
        if size_bytes < len(BATCHES):
            assert (bytes(buffer), next_offset) == (b"", -1)
        elif size_bytes < len(whole):
            assert (bytes(buffer), next_offset) == (BATCHES, 7)
        else:
            assert (bytes(buffer), next_offset) == (whole, 8)


@pytest.mark.parametrize(("position", "value"), [(16, 3), (16, 255), (8, 0xFF), (11, 1)])
def test_what_no_format_has_is_refused(position, value):
    damaged = bytearray(BATCHES)
    damaged[position] = value
    if position == 11:
        damaged[8:12] = b"\0\0\0\1"
    with pytest.raises(KafkaError, match="which no format has"):
        whole_records(memoryview(damaged))
    before, next_offset = whole_records(memoryview(LEGACY + damaged))
    assert (bytes(before), next_offset) == (LEGACY, 8)


def test_an_answer_that_holds_no_batches_is_refused(proxy, through_proxy):
    topic, _ = filled(through_proxy, 1)

    def damaged(answer):
        answer.responses[0].partitions[0].records = b"x" * 100
        return answer

    proxy.change(FetchRequest, damaged)
    with pytest.raises(ClientError, match=f"topic {topic}, partition 0 answers for offset 0 with a batch of"):
        read(fetcher(through_proxy, topic, 0, 3))
