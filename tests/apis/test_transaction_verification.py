"""What Produce does with a transactional request: what is asked, when, and what each version is told."""

import pytest

from odradek.apis.api import RequestContext
from odradek.coordinator.transactions.machine import ADDED_BY_BROKERS_SINCE
from odradek.coordinator.transactions.queries import partitions_in, result_by_partition
from odradek.wire.errors import ErrorCode
from odradek.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
)
from odradek.wire.messages.end_txn import EndTxnRequest
from odradek.wire.messages.find_coordinator import FindCoordinatorRequest
from odradek.wire.messages.init_producer_id import InitProducerIdRequest
from odradek.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from odradek.wire.records import iter_batches, iter_records
from odradek.wire.work import finish

NONE = ErrorCode.NONE
CONCURRENT = ErrorCode.CONCURRENT_TRANSACTIONS
VERSIONS = range(3, 14)


class Asked:
    """The transactions of a node, with all that they are asked, and answers that may be made up."""

    def __init__(self, transactions):
        self._transactions = transactions
        self.commands = []
        self.replies = []

    def __getattr__(self, name):
        return getattr(self._transactions, name)

    def submit(self, transactional_id, command):
        self.commands.append(command)
        if self.replies:
            code = self.replies.pop(0)
            if code is not None:
                command.ticket.take(command.ticket.refused(code))
                return
        self._transactions.submit(transactional_id, command)


@pytest.fixture
def asked(make_node):
    node = make_node()
    node.ask(FindCoordinatorRequest(coordinator_keys=["me"], key_type=1), 6)
    node.loop.turn()
    node.create("t", 3)
    handler = node.apis[0].handle
    verification = handler._verification()
    asked = Asked(verification.transactions())
    verification.transactions = lambda: asked
    asked.node = node
    return asked


@pytest.fixture
def txn_node(asked):
    return asked.node


def init(node, transactional_id="me"):
    request = InitProducerIdRequest(transactional_id=transactional_id, transaction_timeout_ms=60_000)
    return node.ask(request, 5)


def add(node, producer, *indexes):
    request = AddPartitionsToTxnRequest(
        v3_and_below_transactional_id="me",
        v3_and_below_producer_id=producer.producer_id,
        v3_and_below_producer_epoch=producer.producer_epoch,
        v3_and_below_topics=[AddPartitionsToTxnTopic(name="t", partitions=list(indexes))],
    )
    (topic,) = node.ask(request, 3).results_by_topic_v3_and_below
    assert {one.partition_error_code for one in topic.results_by_partition} == {NONE}


def end(node, producer, version, *, commit=True):
    request = EndTxnRequest(
        transactional_id="me",
        producer_id=producer.producer_id,
        producer_epoch=producer.producer_epoch,
        committed=commit,
    )
    answer = node.ask(request, version)
    assert answer.error_code == NONE
    return answer


def batch(node, producer, *values, sequence=0, transactional=True, epoch=None):
    return node.batch(
        *values,
        producer_id=producer.producer_id,
        producer_epoch=producer.producer_epoch if epoch is None else epoch,
        base_sequence=sequence,
        transactional=transactional,
    )


def produce(node, version, *batches, first=0, topic="t", acks=-1, transactional_id="me"):
    """A request with a batch for each partition from `first` on."""
    view = node.machine.view.topics.get(topic)
    data = TopicProduceData(
        name=topic,
        topic_id=b"\x77" * 16 if view is None else view.topic_id,
        partition_data=[
            PartitionProduceData(index=index, records=records) for index, records in enumerate(batches, first)
        ],
    )
    return ProduceRequest(
        transactional_id=transactional_id, acks=acks, timeout_ms=1000, topic_data=[data]
    ), version


def codes(response):
    return [ErrorCode(one.error_code) for topic in response.responses for one in topic.partition_responses]


def values(node, index=0):
    log = node.partition("t", index)
    if log.log_end_offset == 0:
        return []
    data = b"".join(log.read(0, max_bytes=1 << 20).records.buffers())
    return [
        record.value
        for position, header in iter_batches(data)
        if not header.is_control
        for record in iter_records(data[position : position + header.size_bytes])
    ]


# What is asked


@pytest.mark.parametrize("version", VERSIONS)
def test_a_write_to_a_partition_of_the_transaction_is_taken(txn_node, version):
    me = init(txn_node)
    if version < 12:
        add(txn_node, me, 0)
    answer = txn_node.ask(*produce(txn_node, version, batch(txn_node, me, b"a")))
    assert codes(answer) == [NONE]
    assert txn_node.partition("t").last_stable_offset == 0
    assert values(txn_node) == [b"a"]


@pytest.mark.parametrize("version", VERSIONS)
def test_a_write_to_another_partition_is_refused_until_12_and_adds_it_from_then_on(txn_node, version):
    me = init(txn_node)
    add(txn_node, me, 0)
    answer = txn_node.ask(*produce(txn_node, version, batch(txn_node, me, b"a"), batch(txn_node, me, b"b")))
    if version >= 12:
        assert codes(answer) == [NONE, NONE]
        assert values(txn_node, 1) == [b"b"]
        return
    refused = ErrorCode.TRANSACTION_ABORTABLE if version == 11 else ErrorCode.INVALID_TXN_STATE
    assert codes(answer) == [NONE, refused]
    assert (values(txn_node, 0), values(txn_node, 1)) == ([b"a"], [])
    told = answer.responses[0].partition_responses[1]
    assert (told.base_offset, told.log_append_time_ms) == (-1, -1)
    if version >= 5:
        assert told.log_start_offset == -1
    if version >= 8:
        assert bool(told.error_message) == (version < 11)


@pytest.mark.parametrize("version", [9, 11, 13])
def test_only_the_first_write_to_a_partition_is_asked_about(asked, version):
    node = asked.node
    me = init(node)
    if version < 12:
        add(node, me, 0)
    for sequence in range(3):
        answer = node.ask(*produce(node, version, batch(node, me, b"x", sequence=sequence)))
        assert codes(answer) == [NONE]
    (command,) = asked.commands
    (transaction,) = command.request.transactions
    assert transaction.verify_only is (version < 12)
    assert transaction.transactional_id == "me"
    assert partitions_in(transaction) == [("t", 0)]
    assert command.client.version >= ADDED_BY_BROKERS_SINCE


def test_each_transaction_is_asked_about_anew(asked):
    node = asked.node
    me = init(node)
    for _ in range(3):
        assert codes(node.ask(*produce(node, 12, batch(node, me, b"x")))) == [NONE]
        me = end(node, me, 5)
        node.loop.advance(50)
    assert len(asked.commands) == 3
    assert node.partition("t").last_stable_offset == node.partition("t").log_end_offset == 6


def test_what_is_not_transactional_is_not_asked_about(asked):
    node = asked.node
    me = init(node)
    plain = node.batch(b"plain")
    idempotent = batch(node, me, b"idempotent", transactional=False)
    assert codes(node.ask(*produce(node, 9, plain, idempotent))) == [NONE, NONE]
    assert codes(node.ask(*produce(node, 9, plain, transactional_id=None))) == [NONE]
    assert asked.commands == []


def test_a_setting_leaves_the_question_out_for_old_clients_only(make_node):
    is_enabled = False
    node = make_node(verifies_transactions=lambda: is_enabled)
    node.ask(FindCoordinatorRequest(coordinator_keys=["me"], key_type=1), 6)
    node.loop.turn()
    node.create("t", 2)
    me = init(node)
    assert codes(node.ask(*produce(node, 11, batch(node, me, b"a")))) == [NONE]
    is_enabled = True
    refused = node.ask(*produce(node, 11, batch(node, me, b"a"), first=1))
    assert codes(refused) == [ErrorCode.TRANSACTION_ABORTABLE]
    is_enabled = False
    assert codes(node.ask(*produce(node, 12, batch(node, me, b"b"), first=1))) == [NONE]
    end(node, me, 5)
    node.loop.advance(50)
    assert node.partition("t", 1).last_stable_offset == 2


# What is told


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.PRODUCER_FENCED,
        ErrorCode.INVALID_PRODUCER_ID_MAPPING,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.TRANSACTION_ABORTABLE,
    ],
)
def test_a_coordinators_refusal_comes_in_words_that_producers_know(asked, version, code):
    node = asked.node
    me = init(node)
    asked.replies = [code]
    answer = node.ask(*produce(node, version, batch(node, me, b"a")))
    told = {
        ErrorCode.PRODUCER_FENCED: ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.INVALID_PRODUCER_ID_MAPPING: code,
        ErrorCode.INVALID_REQUEST: code,
        ErrorCode.TRANSACTION_ABORTABLE: code if version >= 11 else ErrorCode.INVALID_TXN_STATE,
    }
    assert codes(answer) == [told.get(code, ErrorCode.NOT_ENOUGH_REPLICAS)]
    assert values(node) == []


@pytest.mark.parametrize("version", [9, 12])
def test_the_real_coordinator_refuses_strangers_and_the_fenced(txn_node, version):
    old = init(txn_node)
    me = init(txn_node)
    answer = txn_node.ask(*produce(txn_node, version, batch(txn_node, old, b"a")))
    assert codes(answer) == [ErrorCode.INVALID_PRODUCER_EPOCH]
    request = produce(txn_node, version, batch(txn_node, me, b"a"), transactional_id="nobody")
    assert codes(txn_node.ask(*request)) == [ErrorCode.INVALID_PRODUCER_ID_MAPPING]
    request = produce(txn_node, version, batch(txn_node, me, b"a"), transactional_id="")
    assert codes(txn_node.ask(*request)) == [ErrorCode.INVALID_REQUEST]


@pytest.mark.parametrize("version", [3, 12])
def test_two_producers_in_one_request_are_refused_altogether(asked, version):
    node = asked.node
    me = init(node)
    batches = batch(node, me, b"a"), batch(node, me, b"b", epoch=1), node.batch(b"c")
    answer = node.ask(*produce(node, version, *batches))
    assert codes(answer) == [ErrorCode.INVALID_PRODUCER_ID_MAPPING] * 3
    if version >= 8:
        assert all(one.error_message for one in answer.responses[0].partition_responses)
    assert asked.commands == []


def test_what_is_wrong_with_one_partition_is_told_and_the_others_are_written(txn_node):
    me = init(txn_node)
    torn = batch(txn_node, me, b"torn")
    torn[-1] ^= 1
    batches = [batch(txn_node, me, b"a"), torn, batch(txn_node, me, b"c"), batch(txn_node, me, b"d"), None]
    answer = txn_node.ask(*produce(txn_node, 12, *batches))
    assert codes(answer)[:3] == [NONE, ErrorCode.CORRUPT_MESSAGE, NONE]
    assert codes(answer)[3] == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert codes(answer)[4] != NONE
    unknown = txn_node.ask(*produce(txn_node, 12, batch(txn_node, me, b"a"), topic="u"))
    assert codes(unknown) == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]


def test_internal_topics_are_not_written_to(asked):
    node = asked.node
    me = init(node)
    answer = node.ask(*produce(node, 12, batch(node, me, b"a"), topic="__transaction_state"))
    assert codes(answer) == [ErrorCode.INVALID_TOPIC_EXCEPTION]
    assert asked.commands == []


def test_a_producer_with_an_open_transaction_writes_nothing_beside_it(txn_node):
    me = init(txn_node)
    assert codes(txn_node.ask(*produce(txn_node, 12, batch(txn_node, me, b"a")))) == [NONE]
    beside = batch(txn_node, me, b"b", sequence=1, transactional=False)
    answer = txn_node.ask(*produce(txn_node, 12, beside, transactional_id=None))
    assert codes(answer) == [ErrorCode.INVALID_TXN_STATE]
    assert answer.responses[0].partition_responses[0].log_start_offset == 0


# Waiting


def test_a_coordinator_that_is_busy_is_asked_again_until_it_is_not(asked):
    node = asked.node
    me = init(node)
    asked.replies = [CONCURRENT] * 4
    answer = node.start(*produce(node, 12, batch(node, me, b"a")))
    assert not answer.was_sent
    assert answer.result.holds_back
    node.loop.advance(1 + 2 + 4 + 8)
    assert codes(answer.response) == [NONE]
    assert len(asked.commands) == 5


@pytest.mark.parametrize("version", [9, 11, 12, 13])
def test_a_producer_asks_for_itself_when_it_takes_too_long(asked, version):
    node = asked.node
    me = init(node)
    asked.replies = [CONCURRENT] * 100
    answer = node.start(*produce(node, version, batch(node, me, b"a")))
    node.loop.advance(99)
    assert not answer.was_sent
    node.loop.advance(1)
    assert codes(answer.response) == [CONCURRENT if version >= 12 else ErrorCode.NOT_ENOUGH_REPLICAS]
    # After 1, 3, 7, 15, then every 20 ms, and at the end of the 100.
    assert len(asked.commands) == 10
    assert values(node) == []


def test_the_settings_say_how_often_and_how_long(make_node):
    node = make_node(verification_pause_ms_max=2, verification_patience_ms=5)
    node.ask(FindCoordinatorRequest(coordinator_keys=["me"], key_type=1), 6)
    node.loop.turn()
    node.create("t", 3)
    verification = node.apis[0].handle._verification()
    asked = Asked(verification.transactions())
    verification.transactions = lambda: asked
    me = init(node)
    asked.replies = [CONCURRENT] * 100
    answer = node.start(*produce(node, 12, batch(node, me, b"a")))
    node.loop.advance(5)
    assert codes(answer.response) == [CONCURRENT]
    assert len(asked.commands) == 4


def test_the_next_transaction_begins_while_the_last_one_is_being_ended(txn_node):
    """No pause of the client is needed: its write waits for the markers of the transaction before."""
    me = init(txn_node)
    assert codes(txn_node.ask(*produce(txn_node, 12, batch(txn_node, me, b"a")))) == [NONE]
    ended = txn_node.start(
        EndTxnRequest(
            transactional_id="me",
            producer_id=me.producer_id,
            producer_epoch=me.producer_epoch,
            committed=True,
        ),
        5,
    )
    while not ended.was_sent:
        txn_node.loop.turn()
    me = ended.response
    answer = txn_node.start(*produce(txn_node, 12, batch(txn_node, me, b"b")))
    txn_node.loop.advance(20)
    assert codes(answer.response) == [NONE]
    assert values(txn_node) == [b"a", b"b"]
    assert txn_node.partition("t").last_stable_offset == 2


def test_a_request_that_waits_keeps_its_records(asked):
    """The buffer that it came in goes on with other requests meanwhile."""
    node = asked.node
    me = init(node)
    request, version = produce(node, 12, batch(node, me, b"kept"))
    asked.replies = [CONCURRENT]
    buffer = bytearray(request.topic_data[0].partition_data[0].records)
    handler = node.apis[0].handle
    request.topic_data[0].partition_data[0].records = memoryview(buffer)
    context = RequestContext(0, version, 1, "tester", node.connection, node.loop.now_ms)
    waiting = handler(request, context)
    buffer[:] = bytes(len(buffer))
    answers = []
    waiting.on_complete(answers.append)
    node.loop.advance(5)
    assert codes(answers[0]) == [NONE]
    assert values(node) == [b"kept"]


def test_without_acknowledgement_nothing_is_answered_after_the_wait_either(asked):
    node = asked.node
    me = init(node)
    asked.replies = [CONCURRENT]
    answer = node.start(*produce(node, 12, batch(node, me, b"a"), acks=0))
    node.loop.advance(5)
    assert answer.response is None
    assert values(node) == [b"a"]
    assert node.connection.closed is None
    asked.replies = [ErrorCode.PRODUCER_FENCED]
    node.start(*produce(node, 12, batch(node, me, b"b"), first=1, acks=0))
    node.loop.advance(5)
    assert "INVALID_PRODUCER_EPOCH" in node.connection.closed


def test_a_client_that_goes_while_its_write_waits_has_written_all_the_same(asked):
    node = asked.node
    me = init(node)
    asked.replies = [CONCURRENT]
    answer = node.start(*produce(node, 12, batch(node, me, b"a")))
    answer.cancel()
    node.loop.advance(5)
    assert not answer.was_sent
    assert values(node) == [b"a"]
    assert node.loop.pending_timers <= 2  # the coordinator's own


@pytest.mark.parametrize("version", [9, 12])
def test_a_batch_that_is_packed_anew_takes_what_was_found_out_along_to_its_gate(make_node, version):
    """The second one is verified, too, since nothing of the first is in the log yet."""
    value = bytes(range(256)) * 2_000
    preparing = []

    class Slowly:
        def run(self, work, done, failed):
            preparing.append(lambda: done(finish(work)))

    node = make_node(conversions=Slowly())
    node.ask(FindCoordinatorRequest(coordinator_keys=["me"], key_type=1), 6)
    node.loop.turn()
    node.create("t", compression_type="gzip")
    me = init(node)
    if version < 12:
        add(node, me, 0)
    answers = [
        node.start(*produce(node, version, batch(node, me, value, sequence=sequence)))
        for sequence in range(2)
    ]
    node.loop.turn()
    assert not any(answer.was_sent for answer in answers)
    while preparing:
        preparing.pop(0)()
        node.loop.turn()
    assert [codes(answer.response) for answer in answers] == [[NONE], [NONE]]
    assert values(node) == [value] * 2
    end(node, me, 5 if version >= 12 else 4)
    node.loop.advance(50)
    assert node.partition("t").last_stable_offset == 3


def test_a_marker_that_overtakes_the_answer_of_the_coordinator_makes_it_void(asked):
    """Nothing may be written behind the end of a transaction, or it would hang for ever."""
    node = asked.node
    me = init(node)
    add(node, me, 0)
    held = []
    asked.submit = lambda transactional_id, command: held.append((transactional_id, command))
    answer = node.start(*produce(node, 9, batch(node, me, b"late")))
    end(node, me, 4, commit=False)
    node.loop.advance(50)
    for transactional_id, command in held:
        (transaction,) = command.request.transactions
        errors = dict.fromkeys(partitions_in(transaction), NONE)
        result = result_by_partition(transactional_id, errors)
        command.ticket.take(AddPartitionsToTxnResponse(results_by_transaction=[result]))
        assert transactional_id == "me"
    node.loop.turn()
    assert codes(answer.response) == [ErrorCode.INVALID_TXN_STATE]
    assert values(node) == []
    assert node.partition("t").last_stable_offset == node.partition("t").log_end_offset


# Many at once


def begin_at_once(asked, count, size_bytes=1):
    """As many producers as that write their first record before the loop turns; their answers."""
    node = asked.node
    producers = [init(node, f"id-{number}") for number in range(count)]
    asked.commands.clear()
    return [
        node.start(*produce(node, 12, batch(node, one, b"x" * size_bytes), transactional_id=f"id-{number}"))
        for number, one in enumerate(producers)
    ]


def begun(asked):
    return sum(not command.request.transactions[0].verify_only for command in asked.commands)


def test_of_many_transactions_some_begin_in_each_turn(asked):
    node = asked.node
    answers = begin_at_once(asked, 30)
    counts = [begun(asked)]

    def look():
        counts.append(begun(asked))
        if counts[-1] < len(answers):
            node.loop.call_soon(look)

    node.loop.call_soon(look)
    node.loop.turn()
    # The first at once, of 29 a quarter and so on, until only four are left for a turn.
    assert counts == [1, 8, 13, 17, 21, 25, 29, 30]
    assert [codes(answer.response) for answer in answers] == [[NONE]] * 30
    assert len(values(node)) == 30


def test_a_transaction_that_ends_does_not_wait_for_those_that_begin(asked):
    node = asked.node
    me = init(node)
    assert codes(node.ask(*produce(node, 12, batch(node, me, b"a")))) == [NONE]
    node.loop.turn()
    begin_at_once(asked, 30)
    ended = node.start(
        EndTxnRequest(
            transactional_id="me",
            producer_id=me.producer_id,
            producer_epoch=me.producer_epoch,
            committed=True,
        ),
        5,
    )
    begun_before = []

    def look():
        if not ended.was_sent:
            begun_before.append(begun(asked))
            node.loop.call_soon(look)

    look()
    node.loop.turn()
    assert ended.response.error_code == NONE
    assert begun_before[-1] < begun(asked) == 30


def test_what_a_connection_sends_behind_a_waiting_write_waits_as_well(asked):
    *_, last = begin_at_once(asked, 2)
    assert last.result.holds_back
    assert begun(asked) == 1


def test_a_large_write_begins_at_once(asked):
    answers = begin_at_once(asked, 3, size_bytes=70_000)
    assert begun(asked) == 3
    asked.node.loop.turn()
    assert [codes(answer.response) for answer in answers] == [[NONE]] * 3
