"""An acknowledgement that was answered is never lost, and a fenced leader changes nothing, whatever happens
to nodes and network; and the simulation that says so finds the bugs that are planted."""

from collections import Counter
from dataclasses import replace

import pytest

from odradek.apis.share_partitions import SharePartitions
from odradek.coordinator.shares.partitions.share_partition import SharePartition
from odradek.coordinator.shares.state import machine, state
from odradek.coordinator.shares.state.keys import partition_in
from odradek.coordinator.shares.state.machine import ShareMachine
from odradek.coordinator.shares.state.persister import DeliveryState
from odradek.server.coordination import share_persister
from odradek.server.network import broker_peers
from odradek.wire.messages.read_share_group_state import ReadShareGroupStateRequest
from odradek.wire.messages.write_share_group_state import WriteShareGroupStateRequest
from odradek.wire.share_batches import combined
from tests.coordinator.shares.fail_over_world import World
from tests.tiers import NIGHTLY

SEEDS = 4_000 if NIGHTLY else 120
SEEDS_OF_CHECK = 8
"""By day `make check` plays these, and the suite `log` all."""
SEEDS_OF_A_TEST = 20
SEARCHED = 60


@pytest.fixture
def world_of(monkeypatch):
    """Makes the world of a seed, which must be played before the next one is made."""

    def make(seed):
        world = World(seed)
        # The pauses of the persister are the world's chance, too.
        monkeypatch.setattr(broker_peers, "random", world.random)
        return world

    return make


@pytest.mark.parametrize(
    "seeds",
    [
        range(SEEDS_OF_CHECK),
        *(
            pytest.param(range(first, first + SEEDS_OF_A_TEST), marks=pytest.mark.deep)
            for first in range(0, SEEDS, SEEDS_OF_A_TEST)
        ),
    ],
)
def test_what_was_acknowledged_stays_so(seeds, world_of):
    happened: Counter[str] = Counter()
    for seed in seeds:
        world = world_of(seed).play()
        assert world.complaints == [], seed
        happened += world.counts
    for what in (
        "acknowledgements",
        "crashes",
        "dead letters",
        "dead letters twice",
        "elections of t",
        "elections of __share_group_state",
        "late requests",
        "lost requests",
        "prunings",
        "refused: NOT_LEADER_OR_FOLLOWER",
        "requests after their time",
        "WriteShareGroupStateRequest: FENCED_LEADER_EPOCH",
        "WriteShareGroupStateRequest: NOT_COORDINATOR",
    ):
        assert happened[what], what
    assert happened["acknowledgements"] > 100 * len(seeds)


# --- Planted bugs: each undoes one rule ---


def fences_no_leader(patch):
    patch(machine, "_check_leader_epoch", lambda kept, leader_epoch: None)


def notes_no_leader(patch):
    """The epoch of the leader that reads is not kept."""
    handle = ShareMachine.handle

    def handles(self, command, now_ms):
        if isinstance(command.request, ReadShareGroupStateRequest):
            _, asked = partition_in(command.request)
            asked.leader_epoch = -1
        return handle(self, command, now_ms)

    patch(ShareMachine, "handle", handles)


def lets_late_writes_move_the_start_back(patch):
    """As Kafka does."""
    handle = ShareMachine.handle

    def handles(self, command, now_ms):
        key, asked = partition_in(command.request)
        kept = self.states.get(key)
        is_write = isinstance(command.request, WriteShareGroupStateRequest)
        if is_write and 0 <= asked.start_offset < kept.state.start_offset:
            kept.state = replace(kept.state, start_offset=asked.start_offset)
        return handle(self, command, now_ms)

    patch(ShareMachine, "handle", handles)


def believes_the_last_write(patch):
    """Whatever the delivery counts are."""

    def newest(known, new, start_offset):
        left = []
        for batch in known:
            pieces = [batch]
            for other in new:
                pieces = [rest for piece in pieces for rest in _without(piece, other)]
            left += pieces
        return combined(sorted([*left, *new]), (), start_offset)

    patch(state, "combined", newest)


def _without(batch, other):
    if other.last_offset < batch.first_offset or batch.last_offset < other.first_offset:
        return [batch]
    found = []
    if batch.first_offset < other.first_offset:
        found.append(batch._replace(last_offset=other.first_offset - 1))
    if batch.last_offset > other.last_offset:
        found.append(batch._replace(first_offset=other.last_offset + 1))
    return found


def answers_before_it_is_stored(patch):
    acknowledge = SharePartitions.acknowledge

    def acknowledges(self, share, member, acknowledgements, done):
        acknowledge(self, share, member, acknowledgements, lambda error: None)
        done(None)

    patch(SharePartitions, "acknowledge", acknowledges)


def forgets_what_it_has_read(patch):
    """A new leader begins at the start offset with nothing."""
    read = share_persister.SharePersister.read

    def reads(self, partition, leader_epoch, then):
        read(self, partition, leader_epoch, lambda state: then(replace(state, state_batches=[])))

    patch(share_persister.SharePersister, "read", reads)


def goes_on_after_an_election(patch):
    """Who leads again, in another epoch, keeps what it had, and reads nothing."""
    patch(SharePartitions, "view_changed", lambda self: None)

    def finds(self, key, name):
        led = self._leadership.lead(name, key.partition)
        share = self._shares.get(key)
        if share is not None:
            share.leader_epoch = led.leader_epoch
        return find(self, key, name)

    find = SharePartitions.find
    patch(SharePartitions, "find", finds)


def archives_what_was_being_archived(patch):
    """A new leader does not care about the dead letters of the one before."""

    def none(self, limits):
        for run in self._runs():
            if run.state is DeliveryState.ARCHIVING:
                run.state = DeliveryState.ARCHIVED
        self._advance()
        return []

    patch(SharePartition, "unfinished", none)


FOUND_BY = {
    answers_before_it_is_stored: 0,
    archives_what_was_being_archived: 1,
    believes_the_last_write: 12,
    fences_no_leader: 0,
    forgets_what_it_has_read: 0,
    goes_on_after_an_election: 1,
    lets_late_writes_move_the_start_back: 1,
    notes_no_leader: 0,
}
"""A seed that finds the bug. When worlds have changed, another one does."""


@pytest.mark.parametrize("plant", FOUND_BY, ids=lambda plant: plant.__name__)
def test_a_planted_bug_is_found(plant, world_of, monkeypatch):
    plant(monkeypatch.setattr)
    assert any(world_of(seed).finds() for seed in (FOUND_BY[plant], *range(SEARCHED)))
