"""Dozens of members on an unreliable network against one machine that is restarted at any moment.

Every member is a small consumer: it joins, leads if it has to (a range assignor), syncs, sends heartbeats,
commits, plainly or in transactions, and joins again when told to. Requests and answers are late or lost,
members die, leave and come back, requests are sent twice, markers come long after their transaction, the
machine is replaced by a replay of its log. All by one seed; no real time passes. What is committed, and what
may not be told yet, is worked out once more from the log.
"""

import heapq
import itertools
import random

import pytest

from odradek.coordinator.effects import (
    Append,
    AppendMarker,
    CancelTimer,
    LoggedRecord,
    MarkerRecord,
    Reply,
    SetTimer,
    TransactionalRecord,
)
from odradek.coordinator.group_machine import GroupMachine
from odradek.coordinator.groups import record_codec
from odradek.coordinator.groups.classic_group import GroupState
from odradek.coordinator.groups.commands import (
    CommitOffsets,
    CommitTransactionalOffsets,
    EndOffsets,
    FetchOffsets,
    Heartbeat,
    Join,
    Leave,
    LeavingMember,
    OfferedProtocol,
    OffsetToCommit,
    Sync,
)
from odradek.coordinator.groups.settings import GroupSettings
from odradek.wire.end_marker import EndMarker
from odradek.wire.errors import ErrorCode
from tests.coordinator.stages.group_stage import durable_state, subscription
from tests.kit.machine import logged, replay_all

GROUP = "g"
PARTITIONS = 16
SESSION_MS = 6_000
REBALANCE_MS = 8_000
HEARTBEAT_MS = 1_500
LATEST_MARKER_MS = 40_000
PROTOCOLS = [OfferedProtocol("range", subscription("t"))]


class World:
    def __init__(self, seed: int, member_count: int) -> None:
        self.random = random.Random(seed)
        self.settings = GroupSettings(group_initial_rebalance_delay_ms=500)
        self.numbers = itertools.count(1)
        self.events: list = []
        self.now_ms = 0
        self.chaos = True
        self.log: list[LoggedRecord] = []
        self.timers: dict = {}
        self.assigned: dict[int, dict[int, str]] = {}
        """By generation: who was given a partition."""
        self.restarts = 0
        self.longest_calm_ms = self.random.choice((1_500, 6_000, 15_000))
        self.machine = self.new_machine()
        self.members = [Consumer(self, index) for index in range(member_count)]

    def new_machine(self) -> GroupMachine:
        return GroupMachine(self.settings, lambda: str(next(self.numbers)))

    def at(self, delay_ms: int, action, *arguments) -> None:
        heapq.heappush(self.events, (self.now_ms + delay_ms, next(self.numbers), action, arguments))

    def run(self, until_ms: int) -> None:
        while self.events and self.events[0][0] <= until_ms:
            self.now_ms, _, action, arguments = heapq.heappop(self.events)
            action(*arguments)
        self.now_ms = until_ms

    # The network

    def send(self, command) -> None:
        if self.chaos and self.random.random() < 0.02:
            return
        self.at(self.latency(), self.receive, command)
        if self.chaos and self.random.random() < 0.05:
            self.at(self.latency(), self.receive, command)

    def latency(self) -> int:
        is_slow = self.chaos and self.random.random() < 0.1
        return self.random.randrange(1, 4_000 if is_slow else 40)

    def receive(self, command) -> None:
        self.carry_out(self.machine.handle(command, self.now_ms))

    def carry_out(self, effects) -> None:
        for effect in effects:
            if isinstance(effect, Append | AppendMarker):
                self.log += logged(effect)
            elif isinstance(effect, SetTimer):
                self.timers[effect.key] = number = next(self.numbers)
                self.at(max(effect.at_ms - self.now_ms, 0), self.ring, effect.key, number)
            elif isinstance(effect, CancelTimer):
                self.timers.pop(effect.key, None)
            elif isinstance(effect, Reply) and not (self.chaos and self.random.random() < 0.02):
                self.at(self.latency(), effect.ticket, effect.value)

    def ring(self, key, number: int) -> None:
        if self.timers.get(key) == number:
            del self.timers[key]
            self.carry_out(self.machine.expire(key, self.now_ms))

    # Trouble

    def restart(self) -> None:
        self.restarts += 1
        self.carry_out(self.machine.refuse_waiting(ErrorCode.NOT_COORDINATOR))
        before = durable_state(self.machine)
        self.machine = self.new_machine()
        replay_all(self.machine, self.log)
        after = durable_state(self.machine)
        for group_id, state in before[0].items():
            assert state is None or state == after[0][group_id]
        assert after[1:] == before[1:]
        self.timers = {}
        self.carry_out(self.machine.start(self.now_ms))
        self.check_offsets()

    def check_offsets(self) -> None:
        """The machine tells what the log says, and nothing of what is not decided yet."""
        committed, pending = offsets_in(self.log)
        asked = [("t", partition) for partition in range(PARTITIONS)]
        for require_stable in (False, True):
            command = FetchOffsets(None, GROUP, asked, require_stable=require_stable)
            (reply,) = self.machine.handle(command, self.now_ms)
            for found in reply.value.offsets:
                if require_stable and found.partition in pending:
                    assert (found.error_code, found.offset) == (ErrorCode.UNSTABLE_OFFSET_COMMIT, -1)
                else:
                    assert found.error_code is ErrorCode.NONE
                    assert found.offset == committed.get(found.partition, -1)

    def trouble(self) -> None:
        if not self.chaos:
            return
        what = self.random.random()
        member = self.random.choice(self.members)
        if what < 0.1:
            self.restart()
        elif what < 0.45:
            member.die()
        elif what < 0.6:
            member.leave()
        else:
            member.begin()
        self.at(self.random.randrange(50, self.longest_calm_ms), self.trouble)

    def given(self, generation: int, partition: int, who: str) -> None:
        owners = self.assigned.setdefault(generation, {})
        owner = owners.setdefault(partition, who)
        assert owner == who, f"t-{partition} belongs to {owner} and {who} in generation {generation}"


def offsets_in(log: list[LoggedRecord]) -> tuple[dict[int, int], set[int]]:
    """What a log says of the partitions of `t`: the committed offsets, and which are about to be replaced."""
    committed: dict[int, tuple[int, int]] = {}
    opened: dict[int, dict[int, tuple[int, int]]] = {}
    for place, record in enumerate(log):
        if isinstance(record, MarkerRecord):
            for partition, written in opened.pop(record.producer_id, {}).items():
                if record.commit and written > committed.get(partition, (-1, -1)):
                    committed[partition] = written
            continue
        kind, subject = record_codec.decode_key(record[0])
        if kind is record_codec.Kind.OFFSET:
            partition, written = subject[2], (place, record_codec.decode_offset(record[1]).offset)
            if isinstance(record, TransactionalRecord):
                opened.setdefault(record.producer_id, {})[partition] = written
            else:
                committed[partition] = written
    told = {partition: offset for partition, (_, offset) in committed.items()}
    return told, {partition for places in opened.values() for partition in places}


class Consumer:
    """One third of them are static members."""

    def __init__(self, world: World, index: int) -> None:
        self.world = world
        self.producer_id = index
        self.instance_id = f"i{index}" if index % 3 == 0 else None
        self.version = 9 if index % 2 else 3
        self.life = 0
        self.is_alive = False
        self.reset()
        world.at(world.random.randrange(5_000), self.begin)

    def reset(self) -> None:
        self.member_id = ""
        self.generation = -1
        self.owned: list[int] = []
        self.has_assignment = False

    def begin(self) -> None:
        if not self.is_alive:
            self.is_alive = True
            self.life += 1
            self.reset()
            self.join()

    def die(self) -> None:
        self.is_alive = False

    def leave(self) -> None:
        if self.is_alive and self.member_id and self.instance_id is None:
            self.world.send(Leave(self.heard(lambda answer: None), GROUP, [LeavingMember(self.member_id)]))
            self.die()

    def heard(self, then):
        """A ticket that counts only as long as this life, and this attempt, lasts."""
        life, step = self.life, self.step

        def ticket(answer) -> None:
            if self.is_alive and (life, step) == (self.life, self.step):
                then(answer)

        return ticket

    step = 0

    def attempt(self, command_of, then, timeout_ms: int, again) -> None:
        """Send a command; when nothing is heard of it, do `again`."""
        self.step += 1
        self.world.send(command_of(self.heard(then)))
        self.world.at(timeout_ms, self.heard(lambda _: again()), None)

    def join(self) -> None:
        self.has_assignment = False
        self.attempt(
            lambda ticket: Join(
                ticket,
                GROUP,
                self.member_id,
                "consumer",
                PROTOCOLS,
                SESSION_MS,
                REBALANCE_MS,
                self.instance_id,
                version=self.version,
            ),
            self.joined,
            REBALANCE_MS + SESSION_MS,
            self.join,
        )

    def joined(self, answer) -> None:
        code = answer.error_code
        if code is ErrorCode.MEMBER_ID_REQUIRED:
            self.member_id = answer.member_id
            self.join()
        elif code is ErrorCode.NONE:
            self.member_id, self.generation = answer.member_id, answer.generation
            assignments = {}
            if answer.leader == self.member_id and not answer.skip_assignment:
                assignments = assign([member.member_id for member in answer.members])
            self.sync(assignments)
        else:
            self.refused(code)

    def sync(self, assignments) -> None:
        self.attempt(
            lambda ticket: Sync(
                ticket,
                GROUP,
                self.generation,
                self.member_id,
                self.instance_id,
                "consumer",
                "range",
                assignments,
            ),
            self.synced,
            REBALANCE_MS,
            self.join,
        )

    def synced(self, answer) -> None:
        if answer.error_code is not ErrorCode.NONE:
            return self.refused(answer.error_code)
        self.owned = list(answer.assignment)
        self.has_assignment = True
        for partition in self.owned:
            self.world.given(self.generation, partition, self.instance_id or self.member_id)
        self.work()

    def work(self) -> None:
        world = self.world
        offsets = [OffsetToCommit("t", partition, world.now_ms) for partition in self.owned]
        what = world.random.random() if self.owned else 1.0
        if what < 0.3:
            # Beside the heartbeat, as from a producer: it keeps no session.
            self.end_later()
            world.send(self.in_transaction(offsets))
        if 0.3 <= what < 0.6:
            self.attempt(
                lambda ticket: CommitOffsets(
                    ticket, GROUP, self.generation, self.member_id, offsets, self.instance_id
                ),
                lambda answer: self.heartbeat_answered(answer.errors[0]),
                HEARTBEAT_MS,
                self.work,
            )
        else:
            self.attempt(
                lambda ticket: Heartbeat(ticket, GROUP, self.generation, self.member_id, self.instance_id),
                lambda answer: self.heartbeat_answered(answer.error_code),
                HEARTBEAT_MS,
                self.work,
            )

    def in_transaction(self, offsets: list[OffsetToCommit]) -> CommitTransactionalOffsets:
        return CommitTransactionalOffsets(
            lambda answer: None,
            GROUP,
            self.producer_id,
            0,
            self.member_id,
            self.generation,
            self.instance_id,
            offsets,
        )

    def end_later(self) -> None:
        """The marker comes from elsewhere, whatever becomes of the member; perhaps before the commit."""
        world = self.world
        marker = EndMarker(self.producer_id, 0, 0, world.random.random() < 0.7)
        is_late = world.chaos and world.random.random() < 0.2
        delay_ms = world.random.randrange(1, LATEST_MARKER_MS if is_late else 200)
        world.at(delay_ms, world.receive, EndOffsets(lambda answer: None, 0, marker))

    def heartbeat_answered(self, code: ErrorCode) -> None:
        if code is ErrorCode.NONE:
            self.step += 1
            self.world.at(HEARTBEAT_MS, self.heard(lambda _: self.work()), None)
        else:
            self.refused(code)

    def refused(self, code: ErrorCode) -> None:
        if code is ErrorCode.FENCED_INSTANCE_ID:
            return self.die()
        if code in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION):
            self.reset()
        else:
            assert code in (ErrorCode.REBALANCE_IN_PROGRESS, ErrorCode.NOT_COORDINATOR), code
        self.step += 1
        self.has_assignment = False
        self.world.at(self.world.random.randrange(1, 300), self.heard(lambda _: self.join()), None)


def assign(member_ids: list[str]) -> dict[str, bytes]:
    """A range assignor: partition numbers as bytes."""
    ordered = sorted(member_ids)
    return {
        member_id: bytes(
            range(PARTITIONS)[index * PARTITIONS // len(ordered) :][: share(index, len(ordered))]
        )
        for index, member_id in enumerate(ordered)
    }


def share(index: int, count: int) -> int:
    return (index + 1) * PARTITIONS // count - index * PARTITIONS // count


@pytest.mark.parametrize("seed", range(9))
def test_a_group_converges_after_any_trouble_and_never_owns_a_partition_twice(seed):
    world = World(seed, member_count=24)
    world.at(3_000, world.trouble)
    world.run(300_000)
    world.chaos = False
    for member in world.members[:: 1 + seed % 3]:
        member.begin()
    world.run(world.now_ms + 120_000)
    world.restart()
    world.run(world.now_ms + 30_000)

    group = world.machine.groups[GROUP]
    alive = [member for member in world.members if member.is_alive]
    assert alive
    assert group.state is GroupState.STABLE
    assert sorted(group.members) == sorted(member.member_id for member in alive)
    assert all(member.has_assignment and member.generation == group.generation for member in alive)
    assert sorted(partition for member in alive for partition in member.owned) == list(range(PARTITIONS))
    assert group.static_members.keys() == {member.instance_id for member in alive if member.instance_id}
    for member in world.members:
        world.receive(EndOffsets(lambda answer: None, 0, EndMarker(member.producer_id, 0, 0, True)))
    world.check_offsets()
    assert not world.machine.pending.by_group
    assert len(world.machine.offsets.of_topic(GROUP, "t")) == PARTITIONS
    assert world.restarts > 1
    assert len(world.assigned) > 3
