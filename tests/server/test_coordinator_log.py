"""A partition under a coordinator: every append is settled once and in order, whatever goes wrong."""

import asyncio

import pytest

from odradek.apis.turn import COMMITTED
from odradek.coordinator.effects import MarkerRecord, TransactionalRecord
from odradek.server.coordination.coordinator_log import PartitionLog
from odradek.server.network._pipeline import Turn
from odradek.storage.config import LogConfig
from odradek.storage.directories.store import LogStore
from odradek.storage.disk import OsDisk
from odradek.storage.log.partition import READ_COMMITTED
from odradek.storage.log.transactions import Verified
from odradek.wire.end_marker import EndMarker
from odradek.wire.errors import ErrorCode, KafkaError

NOW_MS = 1_700_000_000_000


@pytest.fixture
def partition(tmp_path):
    store = LogStore(OsDisk(), [str(tmp_path)])
    store.open(NOW_MS)
    yield store.create("__consumer_offsets", 0, bytes(16), LogConfig())
    store.close(NOW_MS)


def play(partition, story, read=None):
    """What was told, and the values read back; the whole of what was read goes to `read`."""

    async def act():
        loop = asyncio.get_running_loop()
        log = PartitionLog(partition, Turn(loop), lambda: NOW_MS, loop)
        told = []

        def tell(name):
            return lambda error: told.append(name if error is None else f"{name} {error.code.name}")

        story(log, tell)
        async with asyncio.timeout(10):
            while log.pending:
                await asyncio.sleep(0)
        found = list(log.read_all())
        if read is not None:
            read.extend(found)
        return told, [record[1] for record in found]

    return asyncio.run(act())


def test_an_append_that_trips_over_a_bug_is_refused_and_holds_up_nobody(partition):
    def story(log, tell):
        log.append([(b"k", b"1", NOW_MS)], tell("first"))
        log.append([(b"k", "no bytes", NOW_MS)], tell("second"))
        log.append([(b"k", b"3", NOW_MS)], tell("third"))

    assert play(partition, story) == (["first", "second UNKNOWN_SERVER_ERROR", "third"], [b"1", b"3"])


def test_what_waits_for_nothing_more_is_told_to_the_turn_by_the_constant_that_it_compares_with(partition):
    class Asked:
        def add(self, partition, done, until):
            self.until = until

    turn = Asked()
    log = PartitionLog(partition, turn, lambda: NOW_MS, loop=None)
    log.append([(b"k", b"1", NOW_MS)], lambda error: None)
    assert turn.until is COMMITTED
    partition.commit()


def test_a_listener_with_a_bug_does_not_keep_the_next_one_waiting(partition):
    def trip(error):
        raise RuntimeError("a bug")

    def story(log, tell):
        log.append([(b"k", b"1", NOW_MS)], tell("first"))
        partition.commit()
        log.append([(b"k", b"2", NOW_MS)], trip)
        log.append([(b"k", b"3", NOW_MS)], tell("third"))

    assert play(partition, story)[0] == ["first", "third"]


@pytest.mark.parametrize("read_bytes", [1, 50, 100, 1000])
def test_reads_that_end_within_a_batch_lose_nothing(partition, monkeypatch, read_bytes):
    monkeypatch.setattr("odradek.server.coordination.coordinator_log.READ_BYTES", read_bytes)

    def story(log, tell):
        for number in range(20):
            log.append([(b"k", b"v" * number, NOW_MS)], tell(number))

    assert play(partition, story)[1] == [b"v" * number for number in range(20)]


def test_everything_is_read_back_however_long_it_is(partition):
    def story(log, tell):
        for number in range(500):
            log.append([(b"k%d" % (number % 3), b"v" * 5_000 + b"%d" % number, NOW_MS)], tell(number))

    told, values = play(partition, story)
    assert told == list(range(500))
    assert [int(value[5_000:]) for value in values] == list(range(500))


# Transactions


def marker(producer_id, commit, *, epoch=0, coordinator_epoch=0):
    return EndMarker(producer_id, epoch, coordinator_epoch, commit)


@pytest.mark.parametrize("read_bytes", [1, 100, 10_000])
def test_records_of_transactions_and_their_ends_are_read_back_as_such(partition, monkeypatch, read_bytes):
    monkeypatch.setattr("odradek.server.coordination.coordinator_log.READ_BYTES", read_bytes)
    read = []

    def story(log, tell):
        log.append([(b"a", b"1", NOW_MS), (b"b", None, NOW_MS)], tell("plain"))
        log.append([(b"a", b"2", NOW_MS), (b"c", b"3", NOW_MS)], tell("in 7"), (7, 0))
        log.append([(b"a", b"4", NOW_MS)], tell("in 8"), (8, 5))
        log.append_marker(marker(7, True), tell("end of 7"))
        log.append([(b"d", None, NOW_MS)], tell("deleted in 8"), (8, 5))
        log.append_marker(marker(8, False, epoch=5), tell("end of 8"))
        log.append_marker(marker(9, True), tell("end of 9"))

    told, _ = play(partition, story, read)
    assert told == ["plain", "in 7", "in 8", "end of 7", "deleted in 8", "end of 8", "end of 9"]
    assert read == [
        (b"a", b"1", NOW_MS),
        (b"b", None, NOW_MS),
        TransactionalRecord(b"a", b"2", NOW_MS, 7),
        TransactionalRecord(b"c", b"3", NOW_MS, 7),
        TransactionalRecord(b"a", b"4", NOW_MS, 8),
        MarkerRecord(7, True),
        TransactionalRecord(b"d", None, NOW_MS, 8),
        MarkerRecord(8, False),
        MarkerRecord(9, True),
    ]
    assert [type(record) for record in read[:2]] == [tuple, tuple]
    assert partition.last_stable_offset == partition.high_watermark == 9
    result = partition.read(0, max_bytes=10_000, isolation=READ_COMMITTED)
    assert result.aborted == [(8, 4)]


def test_an_open_transaction_holds_back_the_last_stable_offset(partition):
    def story(log, tell):
        log.append([(b"a", b"1", NOW_MS)], tell("plain"))
        log.append([(b"a", b"2", NOW_MS)], tell("in 7"), (7, 0))
        log.append([(b"a", b"3", NOW_MS)], tell("plain"))

    play(partition, story)
    assert (partition.last_stable_offset, partition.high_watermark) == (1, 3)


def test_what_would_be_refused_can_be_known_before(partition):
    codes = []

    def refusal(check, *arguments):
        try:
            check(*arguments)
        except KafkaError as error:
            codes.append(error.code)
        else:
            codes.append(None)

    def story(log, tell):
        log.append([(b"a", b"1", NOW_MS)], tell("in 7"), (7, 3))
        refusal(log.check_producer, (7, 3), None)
        refusal(log.check_producer, (7, 2), None)
        refusal(log.check_producer, (7, 3), Verified(None, 2))
        refusal(log.check_producer, (8, 0), Verified(None, 2))
        verification = partition.begin_verification(8, 0, -1, version=2)
        refusal(log.check_producer, (8, 0), Verified(verification, 2))
        log.append_marker(marker(8, False), tell("end of 8"))
        refusal(log.check_producer, (8, 0), Verified(verification, 2))
        refusal(log.check_marker, marker(7, True, epoch=3))
        refusal(log.check_marker, marker(7, True, epoch=2))
        log.append_marker(marker(7, True, epoch=3, coordinator_epoch=1), tell("end of 7"))
        refusal(log.check_marker, marker(7, True, epoch=3))

    told, _ = play(partition, story)
    assert told == ["in 7", "end of 8", "end of 7"]
    assert codes == [
        None,
        ErrorCode.INVALID_PRODUCER_EPOCH,
        None,
        ErrorCode.INVALID_TXN_STATE,
        None,
        ErrorCode.INVALID_TXN_STATE,
        None,
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.TRANSACTION_COORDINATOR_FENCED,
    ]


def test_refused_records_and_markers_are_told_in_their_turn(partition):
    def story(log, tell):
        log.append([(b"a", b"1", NOW_MS)], tell("in 7"), (7, 3))
        log.append([(b"a", b"2", NOW_MS)], tell("late"), (7, 2))
        log.append_marker(marker(7, True, epoch=2), tell("late marker"))
        log.append_marker(marker(7, True, epoch=3), tell("marker"))

    told, _ = play(partition, story)
    assert told == ["in 7", "late INVALID_PRODUCER_EPOCH", "late marker INVALID_PRODUCER_EPOCH", "marker"]


@pytest.mark.parametrize("flush_messages", [1, 1000])
def test_what_other_replicas_have_to_have_is_settled_when_they_have_it_and_in_order(
    partition, flush_messages
):
    partition.set_config(LogConfig(flush_messages=flush_messages))
    partition.set_replicated(True)

    async def act():
        loop = asyncio.get_running_loop()
        turn = Turn(loop)
        log = PartitionLog(partition, turn, lambda: NOW_MS, loop)
        told = []

        async def settle():
            async with asyncio.timeout(10):
                while not turn.is_idle:
                    await asyncio.sleep(0.001)

        for name in ("first", "second"):
            log.append([(b"k", name.encode(), NOW_MS)], lambda error, name=name: told.append((name, error)))
            await settle()
        log.append_marker(EndMarker(7, 0, 0, True, 1), lambda error: told.append(("marker", error)))
        await settle()
        assert told == []
        assert [value for _, value, _ in list(log.read_all())[:2]] == [b"first", b"second"]
        seen = []
        for high_watermark in (1, 2, 3):
            partition.advance_high_watermark(high_watermark)
            seen.append([name for name, error in told if error is None])
        assert seen == [["first"], ["first", "second"], ["first", "second", "marker"]]
        log.append([(b"k", b"4", NOW_MS)], lambda error: told.append(("fourth", error.code)))
        await settle()
        refused = KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "another leads it now")
        partition.appender.high_watermark.fail(refused)
        assert told[3:] == [("fourth", ErrorCode.NOT_LEADER_OR_FOLLOWER)]
        assert not log.pending
        turn.close()

    asyncio.run(act())


# Other replicas


def test_a_log_whose_end_the_other_replicas_lack_tells_when_they_have_it(partition):
    partition.set_replicated(True)
    told = []

    def story(log, tell):
        log.append([(b"k", b"1", NOW_MS)], tell("first"))
        partition.commit()
        assert log.is_replicated
        assert [record[1] for record in log.read_all()] == [b"1"]
        assert log.waits_for_replicas(told.append)
        log.append([(b"k", b"2", NOW_MS)], tell("second"))
        partition.commit()
        assert told == []
        partition.advance_high_watermark(1)
        assert told == [None], "what came later is of no interest"
        assert not log.waits_for_replicas(told.append)
        partition.advance_high_watermark(2)

    assert play(partition, story) == (["first", "second"], [b"1", b"2"])
    assert told == [None]


def test_a_log_that_is_led_by_another_before_the_replicas_had_it_says_so(partition):
    partition.set_replicated(True)
    told = []

    def story(log, tell):
        log.append([(b"k", b"1", NOW_MS)], tell("first"))
        partition.commit()
        list(log.read_all())
        log.waits_for_replicas(told.append)
        partition.appender.high_watermark.refuse(KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER))

    assert play(partition, story)[0] == ["first NOT_LEADER_OR_FOLLOWER"]
    assert [error.code for error in told] == [ErrorCode.NOT_LEADER_OR_FOLLOWER]


def test_positions_count_from_the_batch_in_which_the_log_begins(partition):
    async def act():
        loop = asyncio.get_running_loop()
        turn = Turn(loop)
        log = PartitionLog(partition, turn, lambda: NOW_MS, loop)

        async def begin_at(offset):
            told = loop.create_future()
            log.delete_before(offset, told.set_result)
            async with asyncio.timeout(10):
                error = await told
            return None if error is None else error.code.name

        def read():
            return [value for _, value, _ in log.read_all()]

        log.append([(b"k", b"%d" % number, NOW_MS) for number in range(10)], lambda error: None)
        log.append([(b"k", b"10", NOW_MS)], lambda error: None)
        assert await begin_at(4) is None
        assert partition.log_start_offset == 4
        # A batch is read as a whole.
        assert (read(), log.read_from) == ([b"%d" % number for number in range(11)], 0)
        assert await begin_at(10) is None
        assert (read(), log.read_from) == ([b"10"], 10)
        assert await begin_at(12) == "OFFSET_OUT_OF_RANGE"
        turn.close()

    asyncio.run(act())
