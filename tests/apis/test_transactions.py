"""Transactions by way of their APIs: the real coordinator and real logs of data, a clock that we turn."""

import pytest

from odradek.apis.write_txn_markers import MarkerWriter
from odradek.coordinator.cluster.topics import OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from odradek.wire.errors import ErrorCode, KafkaError
from odradek.wire.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from odradek.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from odradek.wire.messages.describe_transactions import DescribeTransactionsRequest
from odradek.wire.messages.end_txn import EndTxnRequest
from odradek.wire.messages.find_coordinator import FindCoordinatorRequest
from odradek.wire.messages.init_producer_id import InitProducerIdRequest
from odradek.wire.messages.list_transactions import ListTransactionsRequest
from odradek.wire.records import iter_batches, iter_records, read_end_txn_marker

NONE = ErrorCode.NONE
FENCED, BAD_EPOCH = ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH


@pytest.fixture
def txn_node(node):
    """A node whose `__transaction_state` exists and is loaded, with a topic `t` of three partitions."""
    find(node, "me")
    node.loop.turn()
    node.create("t", 3)
    return node


def find(node, *keys, version=6, key_type=1):
    if version < 4:
        return node.ask(FindCoordinatorRequest(key=keys[0], key_type=key_type), version)
    return node.ask(FindCoordinatorRequest(coordinator_keys=list(keys), key_type=key_type), version)


def init(node, transactional_id="me", version=5, timeout_ms=60_000, **fields):
    request = InitProducerIdRequest(
        transactional_id=transactional_id, transaction_timeout_ms=timeout_ms, **fields
    )
    return node.ask(request, version)


def topics_of(partitions):
    """Partitions, by topic, as a request has them."""
    topics = {}
    for name, index in partitions:
        topics.setdefault(name, AddPartitionsToTxnTopic(name=name, partitions=[])).partitions.append(index)
    return list(topics.values())


def codes(topic_results):
    return {
        (topic.name, one.partition_index): ErrorCode(one.partition_error_code)
        for topic in topic_results
        for one in topic.results_by_partition
    }


def add(node, producer, *partitions, transactional_id="me", version=3):
    """Codes by partition, of a client's request."""
    request = AddPartitionsToTxnRequest(
        v3_and_below_transactional_id=transactional_id,
        v3_and_below_producer_id=producer.producer_id,
        v3_and_below_producer_epoch=producer.producer_epoch,
        v3_and_below_topics=topics_of(partitions),
    )
    return codes(node.ask(request, version).results_by_topic_v3_and_below)


def transaction(producer, *partitions, transactional_id="me", verify_only=False):
    """A part of a broker's request."""
    return AddPartitionsToTxnTransaction(
        transactional_id=transactional_id,
        producer_id=producer.producer_id,
        producer_epoch=producer.producer_epoch,
        verify_only=verify_only,
        topics=topics_of(partitions),
    )


def add_many(node, *transactions):
    """Codes by partition for each transaction, of a broker's request."""
    response = node.ask(AddPartitionsToTxnRequest(transactions=list(transactions)), 5)
    assert response.error_code == NONE
    return [(one.transactional_id, codes(one.topic_results)) for one in response.results_by_transaction]


def end(node, producer, *, commit, transactional_id="me", version=4):
    request = EndTxnRequest(
        transactional_id=transactional_id,
        producer_id=producer.producer_id,
        producer_epoch=producer.producer_epoch,
        committed=commit,
    )
    return node.ask(request, version)


def describe(node, *transactional_ids):
    request = DescribeTransactionsRequest(transactional_ids=list(transactional_ids))
    return node.ask(request, 0).transaction_states


def list_ids(node, version=2, **fields):
    fields = {"state_filters": [], "producer_id_filters": [], **fields}
    response = node.ask(ListTransactionsRequest(**fields), version)
    assert response.error_code == NONE
    return [one.transactional_id for one in response.transaction_states], response.unknown_state_filters


def settle(node):
    """Lets the coordinator come to its end with what it does."""
    node.loop.advance(50)


def markers(node, index=0, topic="t"):
    """The ends of transactions in a partition's log: (producer id, epoch, whether it was committed)."""
    log = node.partition(topic, index)
    found = []
    if log.log_end_offset > log.log_start_offset:
        data = b"".join(log.read(log.log_start_offset, max_bytes=1 << 20).records.buffers())
        for position, header in iter_batches(data):
            if header.is_control:
                (record,) = iter_records(data[position : position + header.size_bytes])
                found.append(
                    (header.producer_id, header.producer_epoch, read_end_txn_marker(record).committed)
                )
    return found


# FindCoordinator


@pytest.mark.parametrize("version", [1, 3, 4, 6])
def test_the_first_question_creates_the_topic_of_transactions_and_is_answered(node, version):
    answer = find(node, "me", version=version)
    if version >= 4:
        (answer,) = answer.coordinators
    assert (answer.error_code, answer.node_id) == (0, 1)
    assert (answer.host, answer.port) == ("broker.example", 19092)
    topic = node.machine.view.topics[TRANSACTIONS_TOPIC]
    assert topic.is_internal
    assert len(topic.partitions) == 3
    assert topic.configs["cleanup.policy"] == "compact"
    assert OFFSETS_TOPIC not in node.machine.view.topics


def test_without_the_topic_nobody_coordinates(node):
    assert init(node).error_code == ErrorCode.NOT_COORDINATOR
    node.metadata.failure = KafkaError(ErrorCode.KAFKA_STORAGE_ERROR)
    (answer,) = find(node, "me").coordinators
    assert answer.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE


# InitProducerId


@pytest.mark.parametrize("fields", [{"producer_id": 5}, {"producer_epoch": 5}])
def test_an_id_without_an_epoch_or_an_epoch_without_an_id_is_refused(txn_node, fields):
    answer = init(txn_node, None, **fields)
    assert (answer.error_code, answer.producer_id, answer.producer_epoch) == (
        ErrorCode.INVALID_REQUEST,
        -1,
        -1,
    )


def test_a_fenced_producer_is_told_so_in_words_that_each_version_knows(txn_node):
    old, *newer = [init(txn_node) for _ in range(3)]
    assert [one.producer_epoch for one in (old, *newer)] == [0, 1, 2]
    for version, code in ((3, BAD_EPOCH), (4, FENCED)):
        answer = init(txn_node, version=version, producer_id=old.producer_id, producer_epoch=0)
        assert (answer.error_code, answer.producer_id, answer.producer_epoch) == (code, -1, -1)
    for version, code in ((1, BAD_EPOCH), (2, FENCED)):
        assert add(txn_node, old, ("t", 0), version=version) == {("t", 0): code}
        assert add_offsets(txn_node, old, version=version) == code
        assert end(txn_node, old, commit=True, version=version).error_code == code


def test_a_store_that_fails_gives_no_producer_ids(txn_node):
    txn_node.metadata.failure = KafkaError(ErrorCode.KAFKA_STORAGE_ERROR)
    assert init(txn_node).error_code != NONE
    txn_node.metadata.failure = None
    assert init(txn_node).error_code == NONE


# AddPartitionsToTxn


def test_one_partition_that_is_not_there_keeps_all_from_being_added(txn_node):
    me = init(txn_node)
    answer = add(txn_node, me, ("t", 0), ("t", 7), ("u", 0), (TRANSACTIONS_TOPIC, 0), ("t", 1))
    assert answer == {
        ("t", 0): ErrorCode.OPERATION_NOT_ATTEMPTED,
        ("t", 7): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ("t", 1): ErrorCode.OPERATION_NOT_ATTEMPTED,
        ("u", 0): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        (TRANSACTIONS_TOPIC, 0): ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    }
    assert describe(txn_node, "me")[0].transaction_state == "Empty"


def test_a_broker_asks_for_several_transactions_at_once(txn_node):
    me, other = init(txn_node), init(txn_node, "other")
    init(txn_node, "fenced")
    fenced = init(txn_node, "fenced")
    init(txn_node, "fenced")
    answers = add_many(
        txn_node,
        transaction(me, ("t", 0), ("t", 1)),
        transaction(other, ("t", 0), ("u", 0), transactional_id="other"),
        transaction(fenced, ("t", 0), transactional_id="fenced"),
    )
    assert answers == [
        ("me", {("t", 0): NONE, ("t", 1): NONE}),
        (
            "other",
            {
                ("t", 0): ErrorCode.OPERATION_NOT_ATTEMPTED,
                ("u", 0): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            },
        ),
        ("fenced", {("t", 0): FENCED}),
    ]
    assert add_many(txn_node) == []


def test_what_is_asked_twice_is_answered_twice_when_added_and_once_when_verified(txn_node):
    me = init(txn_node)
    asked = AddPartitionsToTxnTopic(name="t", partitions=[1, 1])
    for verify_only, count in ((False, 2), (True, 1)):
        told = transaction(me, verify_only=verify_only)
        told.topics = [asked]
        answer = txn_node.ask(AddPartitionsToTxnRequest(transactions=[told]), 4)
        (topic,) = answer.results_by_transaction[0].topic_results
        assert [one.partition_error_code for one in topic.results_by_partition] == [NONE] * count


def test_of_a_transaction_that_is_named_twice_the_last_partitions_are_added(txn_node):
    me = init(txn_node)
    first, last = transaction(me, ("t", 0)), transaction(me, ("t", 1))
    answers = add_many(txn_node, first, last)
    assert [codes for _, codes in answers] == [{("t", 0): NONE}] * 2
    (state,) = describe(txn_node, "me")
    assert state.topics[0].partitions == [1]


def test_a_broker_may_only_want_to_know(txn_node):
    me = init(txn_node)
    add(txn_node, me, ("t", 0))
    asked = transaction(me, ("t", 0), ("t", 1), verify_only=True)
    ((_, answer),) = add_many(txn_node, asked)
    assert answer == {("t", 0): NONE, ("t", 1): ErrorCode.TRANSACTION_ABORTABLE}
    (state,) = describe(txn_node, "me")
    assert state.topics[0].partitions == [0]


def test_a_broker_may_add_the_offsets_of_a_group(txn_node):
    txn_node.create(OFFSETS_TOPIC, 5)
    me = init(txn_node)
    ((_, answer),) = add_many(txn_node, transaction(me, (OFFSETS_TOPIC, 1)))
    assert answer == {(OFFSETS_TOPIC, 1): NONE}


def test_a_client_need_not_pause_between_two_transactions(txn_node):
    """Its question waits for the markers of the transaction before, if that is a matter of milliseconds."""
    me = init(txn_node)
    add(txn_node, me, ("t", 0))
    ended = txn_node.start(
        EndTxnRequest(
            transactional_id="me",
            producer_id=me.producer_id,
            producer_epoch=me.producer_epoch,
            committed=True,
        ),
        4,
    )
    asked = AddPartitionsToTxnRequest(
        v3_and_below_transactional_id="me",
        v3_and_below_producer_id=me.producer_id,
        v3_and_below_producer_epoch=me.producer_epoch,
        v3_and_below_topics=topics_of([("t", 1)]),
    )
    answer = txn_node.start(asked, 3)
    txn_node.loop.turn()
    txn_node.loop.advance(7)
    assert ended.response.error_code == NONE
    assert codes(answer.response.results_by_topic_v3_and_below) == {("t", 1): NONE}


def test_a_client_is_told_when_the_end_of_its_transaction_takes_longer(txn_node, monkeypatch):
    me = init(txn_node)
    add(txn_node, me, ("t", 0))
    monkeypatch.setattr(MarkerWriter, "write", lambda self, marker, partitions, then: None)
    assert end(txn_node, me, commit=True).error_code == NONE
    asked = AddPartitionsToTxnRequest(
        v3_and_below_transactional_id="me",
        v3_and_below_producer_id=me.producer_id,
        v3_and_below_producer_epoch=me.producer_epoch,
        v3_and_below_topics=topics_of([("t", 1)]),
    )
    answer = txn_node.start(asked, 3)
    txn_node.loop.advance(6)
    assert not answer.was_sent
    txn_node.loop.advance(1)
    told = codes(answer.response.results_by_topic_v3_and_below)
    assert told == {("t", 1): ErrorCode.CONCURRENT_TRANSACTIONS}
    ((_, told),) = add_many(txn_node, transaction(me, ("t", 1)))
    assert told == {("t", 1): ErrorCode.CONCURRENT_TRANSACTIONS}


# AddOffsetsToTxn


def add_offsets(node, producer, *, transactional_id="me", version=4):
    request = AddOffsetsToTxnRequest(
        transactional_id=transactional_id,
        producer_id=producer.producer_id,
        producer_epoch=producer.producer_epoch,
        group_id="g",
    )
    return node.ask(request, version).error_code


def test_the_offsets_of_a_group_join_by_their_partition(txn_node):
    me = init(txn_node)
    assert add_offsets(txn_node, me) == NONE
    (state,) = describe(txn_node, "me")
    index = txn_node.groups.partition_of("g")
    assert [(topic.topic, topic.partitions) for topic in state.topics] == [(OFFSETS_TOPIC, [index])]


# EndTxn


@pytest.mark.parametrize(("version", "commit"), [(4, True), (5, True), (5, False)])
def test_the_end_is_written_to_every_partition(txn_node, version, commit):
    me = init(txn_node)
    add(txn_node, me, ("t", 0), ("t", 2))
    answer = end(txn_node, me, commit=commit, version=version)
    assert answer.error_code == NONE
    settle(txn_node)
    epoch = 1 if version >= 5 else 0
    if version >= 5:
        assert (answer.producer_id, answer.producer_epoch) == (me.producer_id, 1)
    for index in (0, 2):
        assert markers(txn_node, index) == [(me.producer_id, epoch, commit)]
    assert markers(txn_node, 1) == []
    (state,) = describe(txn_node, "me")
    assert state.transaction_state == ("CompleteCommit" if commit else "CompleteAbort")
    assert state.topics == []


# DescribeTransactions, ListTransactions


def test_a_transaction_is_described(txn_node):
    me = init(txn_node, timeout_ms=30_000)
    began_ms = txn_node.loop.now_ms
    asked = [("t", 2), ("t", 0)]
    assert add(txn_node, me, *asked) == dict.fromkeys(asked, NONE)
    txn_node.loop.advance(500)
    mine, nobodys, unnamed = describe(txn_node, "me", "nobody", "")
    assert (mine.error_code, mine.transactional_id, mine.transaction_state) == (0, "me", "Ongoing")
    assert (mine.transaction_timeout_ms, mine.transaction_start_time_ms) == (30_000, began_ms)
    assert (mine.producer_id, mine.producer_epoch) == (me.producer_id, me.producer_epoch)
    assert [(topic.topic, topic.partitions) for topic in mine.topics] == [("t", [0, 2])]
    assert nobodys.error_code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
    assert nobodys.transactional_id == "nobody"
    assert unnamed.error_code == ErrorCode.INVALID_REQUEST
    assert describe(txn_node) == []


def test_transactions_are_listed_by_state_and_producer(txn_node):
    producers = {name: init(txn_node, name) for name in ("a", "b", "c")}
    add(txn_node, producers["b"], ("t", 0), transactional_id="b")
    assert sorted(list_ids(txn_node)[0]) == ["a", "b", "c"]
    assert list_ids(txn_node, state_filters=["Ongoing", "Nonsense"]) == (["b"], ["Nonsense"])
    assert list_ids(txn_node, state_filters=["Nonsense"]) == ([], ["Nonsense"])
    of_c = list_ids(txn_node, producer_id_filters=[producers["c"].producer_id])
    assert of_c == (["c"], [])


def test_transactions_are_listed_by_duration_and_pattern(txn_node):
    for name in ("app-1", "app-2", "other"):
        add(txn_node, init(txn_node, name), ("t", 0), transactional_id=name)
        txn_node.loop.advance(1_000)
    assert list_ids(txn_node, 1, duration_filter=2_500)[0] == ["app-1"]
    assert sorted(list_ids(txn_node, 1, duration_filter=1_500)[0]) == ["app-1", "app-2"]
    assert sorted(list_ids(txn_node, 2, transactional_id_pattern="app-.*")[0]) == ["app-1", "app-2"]
    assert len(list_ids(txn_node, 2, transactional_id_pattern="")[0]) == 3
    request = ListTransactionsRequest(
        state_filters=[], producer_id_filters=[], transactional_id_pattern="(ab(cd"
    )
    assert txn_node.ask(request, 2).error_code == ErrorCode.INVALID_REGULAR_EXPRESSION


# When the log fails


def test_what_cannot_be_written_did_not_happen(txn_node):
    me = init(txn_node)
    log = txn_node.transaction_logs[txn_node.transactions.partition_of("me")]
    log.failure = KafkaError(ErrorCode.KAFKA_STORAGE_ERROR)
    assert add(txn_node, me, ("t", 0)) == {("t", 0): ErrorCode.NOT_COORDINATOR}
    log.failure = None
    txn_node.loop.advance(10_000)
    assert describe(txn_node, "me")[0].transaction_state == "Empty"
    assert add(txn_node, me, ("t", 0)) == {("t", 0): NONE}
