"""A log is cut, or begins anew, on a real disk by a real worker, while the event loop goes on."""

import asyncio
import threading

import pytest

from odradek.server.background.work import WorkQueue
from odradek.storage.config import LogConfig
from odradek.storage.directories.store import LogStore
from odradek.storage.disk import OsDisk
from odradek.wire.errors import ErrorCode, KafkaError
from tests.storage.stores import NOW_MS, append, offsets_of


def opened(path):
    store = LogStore(OsDisk(), [str(path)], new_lock=threading.Lock)
    store.open(NOW_MS)
    return store, store.create("t", 0, b"1" * 16, LogConfig(segment_bytes=12_000_000))


def run(work, meanwhile):
    """The result of a work, or its error; `meanwhile` is called in each turn of the loop."""

    async def act():
        loop = asyncio.get_running_loop()
        queue = WorkQueue(loop)
        done = loop.create_future()
        queue.run(work, done.set_result, done.set_exception)
        async with asyncio.timeout(60):
            while not done.done():
                meanwhile()
                await asyncio.sleep(0)
        queue.close()
        return await done

    return asyncio.run(act())


@pytest.mark.parametrize("begins_anew", [False, True])
def test_a_log_is_changed_in_a_worker_while_the_loop_reads_it_and_refuses_appends(tmp_path, begins_anew):
    store, partition = opened(tmp_path)
    append(partition, 30, size_bytes=1_000_000)
    partition.flush()
    first = partition.read(0, max_bytes=1).records
    seen = first.tobytes()
    codes, turns = set(), []

    def meanwhile():
        turns.append(len(first.tobytes()) == len(seen))
        if partition.is_available:
            return
        for act in (lambda: append(partition), lambda: partition.read(0, max_bytes=1)):
            try:
                act()
            except KafkaError as error:
                codes.add(error.code)

    end = 500 if begins_anew else 27
    work = store.restarting(partition, end) if begins_anew else store.truncating(partition, end)
    assert run(work, meanwhile) is (None if begins_anew else True)
    assert codes == {ErrorCode.KAFKA_STORAGE_ERROR}
    assert len(turns) > 2
    assert all(turns)
    append(partition, 2)
    store.close(NOW_MS)
    _, again = opened(tmp_path)
    expected = list(range(end if begins_anew else 0, end + 2))
    assert offsets_of(again) == expected


def test_a_log_that_is_deleted_while_a_worker_copies_it_is_gone(tmp_path):
    store, partition = opened(tmp_path)
    append(partition, 11, size_bytes=1_000_000)
    turns = []

    def meanwhile():
        turns.append(None)
        if len(turns) == 3:
            store.delete("t", 0)
            append(store.create("t", 0, b"2" * 16, LogConfig()), 3)

    with pytest.raises(KafkaError) as refused:
        run(store.truncating(partition, 10), meanwhile)
    assert refused.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    assert offsets_of(store.get("t", 0)) == [0, 1, 2]
    store.close(NOW_MS)
