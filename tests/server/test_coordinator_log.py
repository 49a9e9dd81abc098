"""A partition under a coordinator: every append is settled once and in order, whatever goes wrong."""

import asyncio

import pytest

from odradek.server.coordinator_log import PartitionLog
from odradek.server.turn import LoopTurn
from odradek.storage.config import LogConfig
from odradek.storage.disk import OsDisk
from odradek.storage.store import LogStore

NOW_MS = 1_700_000_000_000


@pytest.fixture
def partition(tmp_path):
    store = LogStore(OsDisk(), [str(tmp_path)])
    store.open(NOW_MS)
    yield store.create("__consumer_offsets", 0, bytes(16), LogConfig())
    store.close(NOW_MS)


def play(partition, story):
    async def act():
        loop = asyncio.get_running_loop()
        log = PartitionLog(partition, LoopTurn(loop), lambda: NOW_MS, loop)
        told = []

        def tell(name):
            return lambda error: told.append(name if error is None else f"{name} {error.code.name}")

        story(log, tell)
        async with asyncio.timeout(10):
            while log._pending:
                await asyncio.sleep(0)
        return told, [value for _, value, _ in log.read_all()]

    return asyncio.run(act())


def test_an_append_that_trips_over_a_bug_is_refused_and_holds_up_nobody(partition):
    def story(log, tell):
        log.append([(b"k", b"1", NOW_MS)], tell("first"))
        log.append([(b"k", "no bytes", NOW_MS)], tell("second"))
        log.append([(b"k", b"3", NOW_MS)], tell("third"))

    assert play(partition, story) == (["first", "second UNKNOWN_SERVER_ERROR", "third"], [b"1", b"3"])


def test_a_listener_with_a_bug_does_not_keep_the_next_one_waiting(partition):
    def trip(error):
        raise RuntimeError("a bug")

    def story(log, tell):
        log.append([(b"k", b"1", NOW_MS)], tell("first"))
        log._partition.commit()
        log.append([(b"k", b"2", NOW_MS)], trip)
        log.append([(b"k", b"3", NOW_MS)], tell("third"))

    assert play(partition, story)[0] == ["first", "third"]


@pytest.mark.parametrize("read_bytes", [1, 50, 100, 1000])
def test_reads_that_end_within_a_batch_lose_nothing(partition, monkeypatch, read_bytes):
    monkeypatch.setattr("odradek.server.coordinator_log.READ_BYTES", read_bytes)

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
