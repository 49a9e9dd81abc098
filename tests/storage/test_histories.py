"""Random histories of a store, with a crash anywhere: what was promised holds afterwards.

Promised is (`promises.py`): what was acknowledged and flushed is there, at the same offsets; nothing is there
that was never sent; the watermarks are ordered; producers, transactions, leader epochs and indexes are what a
rescan finds, and readers of what is committed get that;
deleted records stay deleted; a crash during the recovery from a crash changes none of it. A process that is
killed loses nothing that it has committed.

In `make nightly` there are many more histories, longer ones, and new ones each night.
"""

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from memory_disk import MemoryDisk, PowerLost
from promises import EVERY_OPERATION, PASSED_BY, WEIGHTS, World, history

from tests.tiers import NIGHTLY

NUMBERS = st.integers(0, 1 << 16)


def crash_at_each_operation(steps: list[tuple[str, int]], seed: int) -> int:
    """How many crashes that were."""
    disk = MemoryDisk()
    World(disk).run_all(steps)
    crashes = 0
    for operation in range(1, disk.operations + 1):
        world = World(MemoryDisk())
        if world.disk.operations >= operation:
            continue  # the power is not there yet
        world.disk.lose_power_at = operation
        with pytest.raises(PowerLost):
            world.run_all(steps)
        crashes += 1
        world.crash(seed * 100_003 + operation)
        world.run_all([("append", operation), ("flush", operation), ("restart", operation)])
    return crashes


@pytest.mark.parametrize("seed", range(100 if NIGHTLY else 2))
def test_a_power_loss_at_every_operation_of_a_history_breaks_no_promise(seed):
    steps = history(seed, 40 if NIGHTLY else 16)
    assert crash_at_each_operation(steps, seed) > len(steps)


# These two find it when a start takes any size for the one that was noted, or what nobody asked for until a
# clean stop for something that was closed.
@pytest.mark.parametrize("seed", range(100) if NIGHTLY else (20, pytest.param(56, marks=pytest.mark.deep)))
def test_a_power_loss_between_starts_at_which_nobody_asks_for_anything_breaks_no_promise(seed):
    steps = [("create", 5), *history(seed, 20, PASSED_BY)]
    assert crash_at_each_operation(steps, seed) > len(steps)


@pytest.mark.deep
def test_a_power_loss_at_every_operation_of_the_history_that_has_them_all_breaks_no_promise():
    assert crash_at_each_operation(EVERY_OPERATION, 0) > 8 * len(EVERY_OPERATION)


def test_the_history_that_has_every_operation_gives_each_something_to_do():
    assert {operation for operation, _ in EVERY_OPERATION} == {*WEIGHTS, "tear"}
    world = World(MemoryDisk())
    cut: list[str] = []
    world.disk.fail = lambda operation, path: cut.append(path) if operation == "truncate" else None
    for operation, number in EVERY_OPERATION:
        before = state_of(world)
        cut.clear()
        world.run(operation, number)
        after = state_of(world)
        assert after != before, (operation, number)
        if operation == "delete_records":
            assert after["kept"]["start"] > before["kept"]["start"]
        elif operation == "maintain" and "bounded" in after:
            assert after["bounded"]["start"] > before["bounded"]["start"]
        elif operation == "compact":
            assert after["compacted"]["bytes"] < before["compacted"]["bytes"]
        elif operation == "tear":
            assert after["kept"] == before["kept"]
            assert any(path.startswith("data/kept-0/") and path.endswith(".log") for path in cut)


def state_of(world: World) -> dict:
    return {"operations": world.disk.operations} | {
        partition.topic: {
            "start": partition.log_start_offset,
            "end": partition.log_end_offset,
            "staged": partition.log.next_offset,
            "epoch": partition.leader_epoch,
            "bytes": sum(segment.size_bytes for segment in partition.log.segments),
        }
        for partition in world.store.places.loaded()
    }


def test_what_a_clean_stop_has_indexed_is_still_indexed_when_its_segment_is_sealed_after_a_crash():
    """The recovery point of the stop passes over the segment; the names of its index files were not safe."""
    world = World(MemoryDisk())
    world.run_all([("append", 0), ("restart", 0)])
    world.crash(2)
    world.crash(0)
    world.run("roll", 0)
    world.crash(0)


class HistoryMachine(RuleBasedStateMachine):
    @initialize()
    def begin(self):
        self.world = World(MemoryDisk())

    def run_one(self, operation, number):
        try:
            self.world.run(operation, number)
        except PowerLost:
            self.world.crash(number)

    @rule(operation=st.sampled_from(("append", "append", "stage", "commit")), number=NUMBERS)
    def write(self, operation, number):
        self.run_one(operation, number)

    @rule(operation=st.sampled_from(("transact", "transact", "end_transaction")), number=NUMBERS)
    def transact(self, operation, number):
        self.run_one(operation, number)

    @rule(operation=st.sampled_from(("flush", "group_flush")), number=NUMBERS)
    def flush(self, operation, number):
        self.run_one(operation, number)

    @rule(
        operation=st.sampled_from(("roll", "raise_epoch", "maintain", "checkpoint", "make_scan_checkpoints")),
        number=NUMBERS,
    )
    def look_after(self, operation, number):
        self.run_one(operation, number)

    @rule(
        operation=st.sampled_from(("delete_records", "begin_anew", "compact", "create", "delete")),
        number=NUMBERS,
    )
    def change(self, operation, number):
        self.run_one(operation, number)

    @rule(operation=st.sampled_from(("restart", "kill", "tear", "pass_by")), number=NUMBERS)
    def start_again(self, operation, number):
        self.run_one(operation, number)

    @rule(number=NUMBERS)
    def pull_the_plug(self, number):
        self.world.crash(number)

    @precondition(lambda self: self.world.disk.lose_power_at is None)
    @rule(operations=st.integers(1, 30))
    def let_the_power_go_soon(self, operations):
        self.world.disk.lose_power_at = self.world.disk.operations + operations

    @invariant()
    def watermarks_are_ordered(self):
        for partition in self.world.store.places.loaded():
            assert (
                partition.log_start_offset
                <= partition.last_stable_offset
                <= partition.high_watermark
                <= partition.log_end_offset
            )


TestHistories = HistoryMachine.TestCase
TestHistories.settings = settings(
    max_examples=1500 if NIGHTLY else 60,
    stateful_step_count=60 if NIGHTLY else 30,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
