"""Transactions are atomic whatever happens to coordinators, partitions and network, their offsets with them,
and stay in order; and the simulation that says so finds the bugs that are planted.
"""

import itertools

import pytest

from odradek.coordinator.effects import AppendMarker, Reply, WriteMarkers
from odradek.coordinator.group_machine import GroupMachine
from odradek.coordinator.groups.committed_offsets import CommittedOffsets
from odradek.coordinator.transactions.machine import TransactionMachine
from odradek.coordinator.transactions.state import TransactionState
from tests.coordinator.transaction_partitions import Partition
from tests.coordinator.transaction_world import Crash, World
from tests.tiers import NIGHTLY

SCRIPT = 1
SCRIPT_MS = 400


@pytest.mark.parametrize("seed", range(400 if NIGHTLY else 3))
def test_every_transaction_is_visible_as_a_whole_and_in_order_or_not_at_all(seed):
    world = World(seed).play()
    assert world.judge() == []
    outcomes = {sent.outcome for sent in world.transactions.values()}
    assert outcomes >= {"open", "committed", "aborted"}
    assert len(world.transactions) > 100
    assert world.crashes > 5
    assert world.offsets.loads > 0
    assert len(world.offsets.told_by_log()) > 10
    states = {
        transaction.state for transaction in world.coordinator.partitions[0].machine.transactions.values()
    }
    assert all(state.is_settled for state in states)


@pytest.mark.parametrize("arrives", [False, True], ids=["lost", "arrived"])
@pytest.mark.parametrize("of", ["coordinator", "offsets", "data"])
def test_a_crash_at_any_append_leaves_every_transaction_whole(of, arrives):
    """One script without any other trouble: the coordinator crashes with its first append, with its second,
    and so on; or the partition does to which an append goes. By day it is each third append."""
    script = World(SCRIPT).play_script(SCRIPT_MS)
    assert script.judge() == []
    assert {sent.outcome for sent in script.transactions.values()} >= {"committed", "aborted"}
    appends = script.appends_of_script[of]
    assert appends > 10
    for number in range(0, appends, 1 if NIGHTLY else 3):
        world = World(SCRIPT, crash=Crash(of, number, arrives)).play_script(SCRIPT_MS, more_ms=1_500)
        assert world.judge() == [], number
        assert world.crashes + world.partition_crashes == 1
        assert len(world.transactions) > len(script.transactions)


def is_found(found_by: tuple[int, float], **mutant) -> bool:
    """Whether that world complains, or another one. Some bugs show when the log fails; where it fails often
    coordinators rest, and others do not show."""
    others = ((seed, trouble) for seed in range(10, 25) for trouble in (0.02, 0.1))
    return any(
        World(seed, log_trouble=trouble, **mutant).finds()
        for seed, trouble in itertools.chain([found_by], others)
    )


class WritesMarkersBeforeTheDecisionIsSafe(TransactionMachine):
    def handle(self, command, now_ms):
        effects = super().handle(command, now_ms)
        return sorted(effects, key=lambda effect: not isinstance(effect, WriteMarkers))


class TakesFailuresForSuccess(TransactionMachine):
    def _count_markers(self, transactional_id, ending, results):
        ending.remaining.clear()


class ForgetsWhatWasBeingEnded(TransactionMachine):
    def start(self, now_ms):
        return [effect for effect in super().start(now_ms) if not isinstance(effect, WriteMarkers)]


class FencesNobody(TransactionMachine):
    def _abort(self, transactional_id, transaction, now_ms, out):
        prepared = transaction.prepared(commit=False, version=0, next_producer_id=-1, now_ms=now_ms)
        self._begin_ending(transactional_id, prepared, now_ms, out)


class AddsForAnyEpoch(TransactionMachine):
    def _add(self, asked, version, now_ms, out):
        transaction = self.transactions.get(asked.transactional_id)
        if transaction is not None:
            asked.producer_epoch = transaction.producer_epoch
        return super()._add(asked, version, now_ms, out)


class AbortsNothingThatTimedOut(TransactionMachine):
    def _abort_timed_out(self, now_ms, out):
        pass


class DecidesTwice(TransactionMachine):
    """A repeated request for the end is taken for the first one, with the other outcome."""

    def _end_transaction(self, asked, now_ms, out):
        request = asked.request
        transaction = self.transactions.get(request.transactional_id)
        if transaction is not None and transaction.state is TransactionState.PREPARE_COMMIT:
            self._ending.pop(request.transactional_id)
            transaction.state = TransactionState.ONGOING
            request.committed = False
            request.producer_epoch = transaction.producer_epoch
        super()._end_transaction(asked, now_ms, out)


FOUND_BY = {
    WritesMarkersBeforeTheDecisionIsSafe: (13, 0.1),
    TakesFailuresForSuccess: (10, 0.02),
    ForgetsWhatWasBeingEnded: (10, 0.02),
    FencesNobody: (11, 0.1),
    AddsForAnyEpoch: (10, 0.02),
    AbortsNothingThatTimedOut: (10, 0.02),
    DecidesTwice: (14, 0.02),
}
"""Seed and trouble of a world that finds the bug. When worlds have changed, another one does."""


@pytest.mark.deep
@pytest.mark.parametrize("mutant", FOUND_BY)
def test_a_planted_bug_is_found(mutant):
    assert is_found(FOUND_BY[mutant], machine_class=mutant)


class CommitsOffsetsOfAbortedTransactions(GroupMachine):
    class offsets_class(CommittedOffsets):
        def end_transaction(self, producer_id, commit):
            super().end_transaction(producer_id, True)


class CountsOffsetsAtOnce(GroupMachine):
    class offsets_class(CommittedOffsets):
        def put_pending(self, producer_id, group_id, topic, partition, offset):
            super().put_pending(producer_id, group_id, topic, partition, offset)
            self.table.put(group_id, topic, partition, offset)


class ForgetsPendingOffsetsWhenLoaded(GroupMachine):
    def replay_pending(self, key, value, producer_id):
        pass


class ForgetsEndsWhenLoaded(GroupMachine):
    def replay_marker(self, producer_id, commit):
        pass


class AnswersBeforeOffsetsAreSafe(GroupMachine):
    def handle(self, command, now_ms):
        return sorted(super().handle(command, now_ms), key=lambda effect: not isinstance(effect, Reply))


class WritesNoMarker(GroupMachine):
    def handle(self, command, now_ms):
        effects = super().handle(command, now_ms)
        return [effect for effect in effects if not isinstance(effect, AppendMarker)]


class ForgetsWhichOffsetCameLast(GroupMachine):
    """The transaction that ends last counts, not the one that has written last."""

    class offsets_class(CommittedOffsets):
        def end_transaction(self, producer_id, commit):
            for places in self.pending.by_group.values():
                for written in places.values():
                    written.decided_at = 0
            super().end_transaction(producer_id, commit)


@pytest.mark.parametrize(
    "mutant",
    [
        CommitsOffsetsOfAbortedTransactions,
        CountsOffsetsAtOnce,
        ForgetsPendingOffsetsWhenLoaded,
        ForgetsEndsWhenLoaded,
        AnswersBeforeOffsetsAreSafe,
        WritesNoMarker,
        ForgetsWhichOffsetCameLast,
    ],
)
def test_a_bug_that_is_planted_in_the_groups_is_found(mutant):
    found_by = (12, 0.1) if mutant is ForgetsWhichOffsetCameLast else (10, 0.02)
    assert is_found(found_by, group_machine_class=mutant)


class SwapsTransactions(Partition):
    """Each is whole, and shown once; the second that a producer commits here stands before its first."""

    def committed(self):
        values = super().committed()
        tags = list(dict.fromkeys(tag for tag, _ in values))
        first = tags[0]
        second = next((tag for tag in tags[1:] if tag[0] == first[0]), first)
        swapped = {first: second, second: first}
        order = {swapped.get(tag, tag): place for place, tag in enumerate(tags)}
        return sorted(values, key=lambda value: order[value[0]])


def test_transactions_of_a_producer_in_the_wrong_order_are_found():
    world = World(10, partition_class=SwapsTransactions).play()
    assert world.open_transactions() == world.halves_and_repeats() == world.wrong_offsets() == []
    assert world.disorder()


class ForgetsWhatItHasDecidedWhenLoaded(TransactionMachine):
    def replay(self, key, value):
        super().replay(key, value)
        for transaction in self.transactions.values():
            if transaction.state in (TransactionState.PREPARE_COMMIT, TransactionState.PREPARE_ABORT):
                transaction.state = TransactionState.ONGOING


def test_the_script_of_crashes_finds_what_only_a_crash_shows():
    """The machine is in order while it runs: without a crash there is nothing to find."""
    mutant = ForgetsWhatItHasDecidedWhenLoaded
    script = World(SCRIPT, mutant).play_script(SCRIPT_MS)
    assert script.judge() == []
    assert any(
        World(SCRIPT, mutant, crash=Crash("coordinator", number, True))
        .play_script(SCRIPT_MS, more_ms=1_500)
        .judge()
        for number in range(script.appends_of_script["coordinator"])
    )
