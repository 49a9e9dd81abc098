"""How a member of a streams group gets from its tasks to its target assignment (KIP-1071).

A function of values: a member first gives up what it shall not have any more, and reports it; then it gets
what is free. An active task is free when no member has it, a standby task may be kept by several members; but
no process has two copies of a task, since they would share a directory.

Source: CurrentAssignmentBuilder of Kafka's group coordinator (package streams), release 4.3.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field

from odradek.coordinator.streams.assignor import TaskAssignment, Tasks
from odradek.wire.errors import ErrorCode, KafkaError

Task = tuple[str, int]
"""Subtopology id and partition."""

EpochsOfTasks = Mapping[str, Mapping[int, int]]
"""By subtopology id and partition: the member epoch at which the member got the task."""


class MemberState(enum.IntEnum):
    """Numbered as the record has it; for members of consumer groups Kafka begins with 0."""

    STABLE = 1
    UNREVOKED_TASKS = 2
    """The member has to give up tasks."""
    UNRELEASED_TASKS = 3
    """The member waits for tasks that others have."""
    UNKNOWN = 127


@dataclass(frozen=True, slots=True)
class HeldTasks:
    """Tasks of a member, without empty entries. Never changed in place."""

    active: EpochsOfTasks = field(default_factory=dict)
    standby: Tasks = field(default_factory=dict)
    warmup: Tasks = field(default_factory=dict)

    @property
    def is_empty(self) -> bool:
        return not (self.active or self.standby or self.warmup)

    def without_epochs(self) -> TaskAssignment:
        active = {subtopology_id: frozenset(epochs) for subtopology_id, epochs in self.active.items()}
        return TaskAssignment(active, self.standby, self.warmup)


NO_TASKS = HeldTasks()


@dataclass(frozen=True, slots=True)
class MemberTasks:
    """How far a member has come."""

    member_epoch: int = 0
    previous_member_epoch: int = 0
    state: MemberState = MemberState.STABLE
    assigned: HeldTasks = NO_TASKS
    to_revoke: HeldTasks = NO_TASKS
    """Tasks that it has to give up, and has not yet."""

    @property
    def is_revoking(self) -> bool:
        return self.state is MemberState.UNREVOKED_TASKS

    def is_reconciled_to(self, epoch: int) -> bool:
        return self.state is MemberState.STABLE and self.member_epoch == epoch


class TaskOwners:
    """Which processes have which tasks, revoked ones too until their members confirm it."""

    __slots__ = ("_active", "_copies")

    def __init__(self) -> None:
        self._active: dict[Task, list[str]] = {}
        self._copies: dict[Task, list[str]] = {}
        """Standby and warm-up tasks."""

    def take(self, process_id: str, tasks: HeldTasks) -> None:
        for task in _each(tasks.active):
            self._active.setdefault(task, []).append(process_id)
        for task in _copies(tasks):
            self._copies.setdefault(task, []).append(process_id)

    def release(self, process_id: str, tasks: HeldTasks) -> None:
        for task in _each(tasks.active):
            _remove(self._active, task, process_id)
        for task in _copies(tasks):
            _remove(self._copies, task, process_id)

    def blocks_active(self, task: Task, process_id: str) -> bool:
        """Whether a member of the process has to wait before it may run the task."""
        return task in self._active or process_id in self._copies.get(task, ())

    def blocks_copy(self, task: Task, process_id: str) -> bool:
        """Whether it has to wait before it may keep a copy of it."""
        return process_id in self._active.get(task, ()) or process_id in self._copies.get(task, ())


def reconcile(
    member: MemberTasks,
    target: TaskAssignment,
    target_epoch: int,
    owners: TaskOwners,
    process_id: str,
    owned: TaskAssignment | None,
) -> MemberTasks:
    """The member's next step towards its target; the same again where it cannot move.

    `owned` is what it reports to have, None without a report; FENCED_MEMBER_EPOCH for a member in an
    unknown state, until it comes back without tasks.
    """
    if member.is_reconciled_to(target_epoch):
        return member
    epoch = member.member_epoch
    if member.state is MemberState.UNREVOKED_TASKS:
        if owned is None or _has_any(owned, member.to_revoke):
            return member
        # All is given up: the member has what its next epoch requires.
        epoch += 1
    elif member.state is MemberState.UNKNOWN:
        if owned is None or owned.active or owned.standby or owned.warmup:
            raise KafkaError(
                ErrorCode.FENCED_MEMBER_EPOCH, "The member has to give up all its tasks and join again."
            )
        epoch = target_epoch
    return _next(member, epoch, target, target_epoch, owners, process_id, owned)


def _next(
    member: MemberTasks,
    epoch: int,
    target: TaskAssignment,
    target_epoch: int,
    owners: TaskOwners,
    process_id: str,
    owned: TaskAssignment | None,
) -> MemberTasks:
    kept, to_revoke = _split(member.assigned, target)
    if not to_revoke.is_empty and (owned is None or _has_any(owned, to_revoke)):
        return MemberTasks(epoch, member.member_epoch, MemberState.UNREVOKED_TASKS, kept, to_revoke)
    active, waits_for_active = _with_free(
        target.active, kept.active, lambda task: owners.blocks_active(task, process_id)
    )
    standby, waits_for_standby = _with_free(
        target.standby, kept.standby, lambda task: owners.blocks_copy(task, process_id)
    )
    warmup, waits_for_warmup = _with_free(
        target.warmup, kept.warmup, lambda task: owners.blocks_copy(task, process_id)
    )
    waits = waits_for_active or waits_for_standby or waits_for_warmup
    assigned = HeldTasks(_with_epochs(active, kept.active, target_epoch), standby, warmup)
    state = MemberState.UNRELEASED_TASKS if waits else MemberState.STABLE
    return MemberTasks(target_epoch, member.member_epoch, state, assigned)


def _split(assigned: HeldTasks, target: TaskAssignment) -> tuple[HeldTasks, HeldTasks]:
    """Tasks that stay, and tasks that have to go."""
    active, standby, warmup = target.active, target.standby, target.warmup
    kept = HeldTasks(
        _only(assigned.active, lambda task_id, partition: partition in active.get(task_id, ())),
        _both(assigned.standby, standby),
        _both(assigned.warmup, warmup),
    )
    to_revoke = HeldTasks(
        _only(assigned.active, lambda task_id, partition: partition not in active.get(task_id, ())),
        _difference(assigned.standby, standby),
        _difference(assigned.warmup, warmup),
    )
    return kept, to_revoke


def _with_free(
    target: Tasks, kept: Mapping[str, Collection[int]], is_blocked: Callable[[Task], bool]
) -> tuple[dict[str, frozenset[int]], bool]:
    """The part of its target that a member may have, and whether it has to wait for some of it."""
    tasks: dict[str, frozenset[int]] = {}
    waits = False
    for subtopology_id, wanted in target.items():
        has = kept.get(subtopology_id, ())
        free = frozenset(
            partition
            for partition in wanted
            if partition in has or not is_blocked((subtopology_id, partition))
        )
        waits = waits or len(free) < len(wanted)
        if free:
            tasks[subtopology_id] = free
    return tasks, waits


def _with_epochs(tasks: Tasks, kept: EpochsOfTasks, epoch: int) -> dict[str, dict[int, int]]:
    return {
        subtopology_id: {
            partition: kept.get(subtopology_id, {}).get(partition, epoch) for partition in sorted(partitions)
        }
        for subtopology_id, partitions in tasks.items()
    }


def _only(epochs: EpochsOfTasks, is_wanted: Callable[[str, int], bool]) -> dict[str, dict[int, int]]:
    chosen = {
        subtopology_id: {
            partition: epoch for partition, epoch in of_each.items() if is_wanted(subtopology_id, partition)
        }
        for subtopology_id, of_each in epochs.items()
    }
    return {subtopology_id: of_each for subtopology_id, of_each in chosen.items() if of_each}


def _both(one: Tasks, other: Tasks) -> dict[str, frozenset[int]]:
    shared = {
        subtopology_id: one[subtopology_id] & other[subtopology_id]
        for subtopology_id in one
        if subtopology_id in other
    }
    return {subtopology_id: partitions for subtopology_id, partitions in shared.items() if partitions}


def _difference(one: Tasks, other: Tasks) -> dict[str, frozenset[int]]:
    rest = {
        subtopology_id: partitions - other.get(subtopology_id, frozenset())
        for subtopology_id, partitions in one.items()
    }
    return {subtopology_id: partitions for subtopology_id, partitions in rest.items() if partitions}


def _has_any(owned: TaskAssignment, tasks: HeldTasks) -> bool:
    """Whether a member still has one of the tasks, in the same role."""
    pairs = (
        (owned.active, tasks.active),
        (owned.standby, tasks.standby),
        (owned.warmup, tasks.warmup),
    )
    return any(
        partition in held.get(subtopology_id, ())
        for held, requested in pairs
        for subtopology_id, partition in _each(requested)
    )


def _each(tasks: Mapping[str, Collection[int]]) -> Iterator[Task]:
    for subtopology_id, partitions in tasks.items():
        for partition in partitions:
            yield subtopology_id, partition


def _copies(tasks: HeldTasks) -> Iterator[Task]:
    yield from _each(tasks.standby)
    yield from _each(tasks.warmup)


def _remove(owners: dict[Task, list[str]], task: Task, process_id: str) -> None:
    processes = owners[task]
    processes.remove(process_id)
    if not processes:
        del owners[task]
