"""How full the disks are: what is told while a read hangs or fails, and when a disk will be full."""

import asyncio
import threading

import pytest

from odradek.server.metrics.disk_space import DiskSpace, FreeHistory, Space

HOUR_S = 3600.0
SECONDS = 20


async def until(holds):
    async with asyncio.timeout(SECONDS):
        while not holds():
            await asyncio.sleep(0.001)


def test_a_mount_that_hangs_holds_up_nobody_and_keeps_its_last_value():
    hung, reads = threading.Event(), []

    def read(path):
        reads.append(path)
        if path == "hanging" and reads.count(path) == 2:
            hung.wait(SECONDS)
        return Space(100 * reads.count(path), 1000)

    async def act():
        space = DiskSpace(asyncio.get_running_loop(), lambda: ["hanging", "sound"], read)
        await until(lambda: space.space("hanging") and space.space("sound"))
        assert space.space("hanging") == Space(100, 1000)
        space.look()
        await until(lambda: space.space("sound") == Space(200, 1000))
        assert space.space("hanging") == Space(100, 1000)
        # Its read is under way: no other one is begun.
        space.look()
        await until(lambda: space.space("sound") == Space(300, 1000))
        assert reads.count("hanging") == 2
        assert space.age_s("hanging") >= space.age_s("sound")
        hung.set()
        await until(lambda: space.space("hanging") == Space(200, 1000))
        space.close()

    asyncio.run(act())


def test_a_close_does_not_wait_for_a_read_that_hangs():
    hung = threading.Event()

    async def act():
        space = DiskSpace(asyncio.get_running_loop(), lambda: ["hanging"], lambda path: hung.wait(SECONDS))
        space.close()
        assert space.space("hanging") is None

    asyncio.run(act())
    hung.set()


def test_a_read_that_fails_leaves_the_value_before_it():
    reads = []

    def read(path):
        reads.append(path)
        if len(reads) == 2:
            raise OSError
        return Space(len(reads), 10)

    async def act():
        space = DiskSpace(asyncio.get_running_loop(), lambda: ["one"], read)
        await until(lambda: space.space("one") == Space(1, 10))
        space.look()
        await until(lambda: len(reads) == 2 and not space.is_reading)
        assert space.space("one") == Space(1, 10)
        space.look()
        await until(lambda: space.space("one") == Space(3, 10))
        space.close()

    asyncio.run(act())


def test_the_seconds_until_a_disk_is_full_are_told_after_an_hour():
    history = FreeHistory()
    history.note(0, 1000)
    assert history.seconds_until_full(HOUR_S - 1, 900) is None
    # 100 in an hour, 900 are left.
    assert history.seconds_until_full(HOUR_S, 900) == pytest.approx(9 * HOUR_S)
    assert history.seconds_until_full(HOUR_S, 1000) is None
    assert history.seconds_until_full(HOUR_S, 1100) is None
    assert history.seconds_until_full(HOUR_S, 0) == 0


def test_what_is_older_than_a_day_does_not_count():
    history = FreeHistory()
    history.note(0, 1_000_000)
    for hour in range(1, 30):
        for minute in range(0, 60, 10):
            history.note(hour * HOUR_S + minute * 60, 10_000 - 100 * hour)
    now_s = 30 * HOUR_S
    assert history.seconds_until_full(now_s, 7_000) == pytest.approx(70 * HOUR_S, rel=0.1)
