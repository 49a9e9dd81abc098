"""Random histories of a share partition, against a dictionary with the state of each record.

Promises: a record is with one member at most. Its count grows by one with each delivery, up to the limit.
What was acknowledged, and stored, never comes again, also not with the next leader. In the end every record
of the log was acknowledged, or delivered as often as it may be. Where the group has a dead letter queue, what
was given up has a letter.
"""

from dataclasses import replace

from hypothesis import example, given
from hypothesis import strategies as st

from odradek.coordinator.shares.partitions.share_partition import (
    Acknowledgement,
    AcknowledgeType,
    Demand,
    LogBatch,
    ShareLimits,
    SharePartition,
)
from odradek.coordinator.shares.state.persister import DeliveryState
from odradek.wire.errors import KafkaError
from odradek.wire.messages.read_share_group_state import PartitionResult as ShareState
from tests.coordinator.shares.share_state_requests import state_batch

LIMITS = ShareLimits(lock_ms=10, deliveries_max=4, locks_max=40)
MEMBERS = ("a", "b", "c")
END = 10**6


class World:
    """The log, the share partition, and what everybody knows."""

    def __init__(self, sizes, limits=LIMITS):
        self.limits = limits
        self.log, base = [], 0
        for size, gap in sizes:
            self.log.append(LogBatch(base, base + size - 1))
            base += size + gap
        self.end = base
        self.now_ms = 0
        self.partition = SharePartition(ShareState(), 0)
        self.held = {}
        """Member and deadline of each record that is with somebody, as the members know it."""
        self.count = {}
        self.done = set()
        """Acknowledged and stored."""
        self.stored = {}
        """State and count of each record, as the share coordinator has it."""
        self.stored_start = 0
        self.pending = []
        self.letters = []
        """Dead letters that are not written yet."""
        self.given_up, self.dead = set(), set()
        """Offsets that were to be archived, and those with a dead letter."""

    def acquire(self, member, records_max, batch_size, is_strict):
        partition = self.partition
        read_from = partition.next_offset()
        batches = [one for one in self.log if one.last_offset >= read_from]
        demand = Demand(member, records_max, batch_size, is_strict)
        found = partition.acquire(demand, read_from, batches, (), self.limits, self.now_ms)
        offsets = [offset for first, last, _ in found for offset in range(first, last + 1)]
        assert len(offsets) == len(set(offsets))
        if is_strict:
            assert len(offsets) <= records_max
        for first, last, count in found:
            for offset in range(first, last + 1):
                assert offset not in self.held
                assert offset not in self.done
                # A leader that has not stored a delivery does not count it.
                assert count <= self.count.get(offset, 0) + 1
                assert count <= self.limits.deliveries_max
                self.count[offset] = count
                self.held[offset] = member, self.now_ms + self.limits.lock_ms

    def acknowledge(self, first, last, kind, member, is_stored):
        try:
            change = self.partition.acknowledge(
                member, [Acknowledgement(first, last, [kind])], self.limits, self.now_ms
            )
        except KafkaError:
            has_all = all(self.held.get(offset, ("", 0))[0] == member for offset in range(first, last + 1))
            assert not has_all or self.waiting() & set(range(first, last + 1))
            return
        if kind is AcknowledgeType.RENEW:
            for offset in range(first, last + 1):
                if offset in self.held:
                    self.held[offset] = member, self.now_ms + self.limits.lock_ms
            return
        self.pending.append((change, kind, self.partition.start, is_stored))
        for batch in change.batches:
            for offset in range(batch.first_offset, batch.last_offset + 1):
                assert self.held[offset][0] == member

    def waiting(self):
        """Offsets whose change is being stored."""
        return {
            offset
            for change, *_ in self.pending
            for batch in change.batches
            for offset in range(batch.first_offset, batch.last_offset + 1)
        }

    def finish(self):
        """The answer of the share coordinator for the change that waits for the longest time."""
        if not self.pending:
            return
        change, _, start, is_stored = self.pending.pop(0)
        if is_stored:
            self.store(change.batches, start)
            self.partition.stored(change)
            self.letters += change.dead_letters
        else:
            self.partition.undo(change, self.limits, self.now_ms)
        for batch in change.batches:
            for offset in range(batch.first_offset, batch.last_offset + 1):
                is_lost = self.held[offset][1] <= self.now_ms
                if self.limits.has_dead_letters and self.count[offset] == self.limits.deliveries_max:
                    # Only the next look at the locks takes it away.
                    is_lost = False
                if is_stored or is_lost:
                    del self.held[offset]

    def store(self, batches, start):
        self.stored_start = max(self.stored_start, start)
        for batch in batches:
            for offset in range(batch.first_offset, batch.last_offset + 1):
                self.stored[offset] = batch.delivery_state, batch.delivery_count
                if batch.delivery_state is not DeliveryState.AVAILABLE:
                    self.done.add(offset)
                if batch.delivery_state is DeliveryState.ARCHIVING:
                    self.given_up.add(offset)

    def write_letter(self):
        if self.letters:
            letter = self.letters.pop(0)
            self.dead |= set(range(letter.first_offset, letter.last_offset + 1))
            change = self.partition.archive(letter)
            self.store(change.batches, self.partition.start)
            self.partition.stored(change)

    def wait(self, ms):
        self.now_ms += ms
        change = self.partition.expire(self.limits, self.now_ms)
        self.store(change.batches, self.partition.start)
        self.letters += change.dead_letters
        pending = self.waiting()
        for offset, (_, deadline_ms) in list(self.held.items()):
            if deadline_ms <= self.now_ms and offset not in pending:
                del self.held[offset]

    def move_leader(self):
        while self.pending:
            self.finish()
        batches = [
            state_batch(offset, offset, *self.stored[offset])
            for offset in sorted(self.stored)
            if offset >= self.stored_start
        ]
        self.held.clear()
        self.partition = SharePartition(ShareState(state_batches=batches), self.stored_start)
        self.letters = self.partition.unfinished(self.limits)

    def drain(self):
        while self.pending:
            self.finish()
        self.wait(self.limits.lock_ms)
        rounds = 0
        while self.partition.start < self.log[-1].last_offset + 1:
            rounds += 1
            while self.letters:
                self.write_letter()
            assert rounds < 2_000, "it does not end"
            self.acquire("a", 7, 5, is_strict=False)
            for offset in sorted(self.held):
                self.acknowledge(offset, offset, AcknowledgeType.ACCEPT, "a", is_stored=True)
                self.finish()
        records = {offset for base, last in self.log for offset in range(base, last + 1)}
        assert records <= self.done
        assert self.given_up == self.dead


SIZES = st.lists(st.tuples(st.integers(1, 12), st.sampled_from([0, 0, 0, 5])), min_size=1, max_size=12)
STEP = (
    st.tuples(
        st.just("acquire"),
        st.sampled_from(MEMBERS),
        st.integers(1, 25),
        st.integers(1, 20),
        st.booleans(),
    ),
    st.tuples(
        st.just("acknowledge"),
        st.integers(0, 60),
        st.integers(0, 12),
        st.sampled_from(list(AcknowledgeType)),
        st.sampled_from(MEMBERS),
        st.booleans(),
    ),
    st.tuples(st.just("acknowledge_held"), st.sampled_from(list(AcknowledgeType)), st.booleans()),
    st.tuples(st.just("release"), st.sampled_from(MEMBERS)),
    st.tuples(st.just("finish")),
    st.tuples(st.just("wait"), st.integers(0, 12)),
    st.tuples(st.just("move_leader")),
)
STEPS = st.lists(st.one_of(*STEP), max_size=40)
STEPS_WITH_LETTERS = st.lists(st.one_of(*STEP, st.tuples(st.just("write_letter"))), min_size=12, max_size=40)
REJECTED = [
    ("acquire", "a", 3, 3, False),
    ("acknowledge_held", AcknowledgeType.REJECT, True),
    ("finish",),
    ("move_leader",),
]


def take(world, name, *arguments):
    if name == "acknowledge":
        first, more, *others = arguments
        world.acknowledge(first, first + more, *others)
    elif name == "acknowledge_held":
        kind, is_stored = arguments
        if world.held:
            offset = min(world.held)
            world.acknowledge(offset, offset, kind, world.held[offset][0], is_stored)
    elif name == "release":
        (member,) = arguments
        change = world.partition.release(member, world.limits)
        world.pending.append((change, None, world.partition.start, True))
    else:
        getattr(world, name)(*arguments)


def play(world, steps):
    for step in steps:
        take(world, *step)
        partition = world.partition
        assert 0 <= partition.done_count <= max(partition.in_flight, 0)
        assert partition.start <= partition.next_offset() <= partition.fresh
        assert partition.start >= world.stored_start
    world.drain()


@given(SIZES, STEPS)
def test_no_history_breaks_a_promise(sizes, steps):
    play(World(sizes), steps)


@given(SIZES, STEPS_WITH_LETTERS)
@example([(3, 0)], REJECTED)
def test_no_history_loses_a_dead_letter(sizes, steps):
    play(World(sizes, replace(LIMITS, has_dead_letters=True)), steps)
