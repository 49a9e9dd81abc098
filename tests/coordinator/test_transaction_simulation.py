"""Transactions are atomic whatever happens to coordinator, partitions and network; and the simulation that
says so finds the bugs that are planted in the coordinator."""

import pytest

from odradek.coordinator.effects import WriteMarkers
from odradek.coordinator.transaction_machine import TransactionMachine
from odradek.coordinator.transaction_state import TransactionState
from tests.coordinator.transaction_world import World


@pytest.mark.parametrize("seed", range(6))
def test_every_transaction_is_visible_as_a_whole_or_not_at_all(seed):
    world = World(seed).play()
    assert world.complaints() == []
    outcomes = {sent.outcome for sent in world.transactions.values()}
    assert outcomes >= {"open", "committed", "aborted"}
    assert len(world.transactions) > 100
    assert world.crashes > 5
    states = {
        transaction.state for transaction in world.coordinator._partitions[0].machine.transactions.values()
    }
    assert all(state.is_settled for state in states)


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
    def _add(self, command, now_ms, out):
        transaction = self.transactions.get(command.transactional_id)
        if transaction is not None:
            command.producer_epoch = transaction.producer_epoch
        return super()._add(command, now_ms, out)


class AbortsNothingThatTimedOut(TransactionMachine):
    def _abort_timed_out(self, now_ms, out):
        pass


class DecidesTwice(TransactionMachine):
    """A repeated request for the end is taken for the first one, with the other outcome."""

    def _end_transaction(self, command, now_ms, out):
        transaction = self.transactions.get(command.transactional_id)
        if transaction is not None and transaction.state is TransactionState.PREPARE_COMMIT:
            self._ending.pop(command.transactional_id)
            transaction.state = TransactionState.ONGOING
            command.commit = False
            command.producer_epoch = transaction.producer_epoch
        super()._end_transaction(command, now_ms, out)


@pytest.mark.parametrize(
    "mutant",
    [
        WritesMarkersBeforeTheDecisionIsSafe,
        TakesFailuresForSuccess,
        ForgetsWhatWasBeingEnded,
        FencesNobody,
        AddsForAnyEpoch,
        AbortsNothingThatTimedOut,
        DecidesTwice,
    ],
)
def test_a_planted_bug_is_found(mutant):
    # Some bugs show when the log fails; where it fails often the coordinator rests, and others do not show.
    worlds = (World(seed, mutant, log_trouble=trouble) for seed in range(10, 25) for trouble in (0.02, 0.1))
    assert any(world.play().complaints() for world in worlds)
