"""How a member of a streams group gets from its tasks to its target assignment (KIP-1071).

A function of values: a member first gives up what it shall not have any more, and reports it; then it gets
what is free. An active task is free when no member has it, a standby task may be kept by several members; but
no process has two copies of a task, since they would share a directory. A task that the member has in another
role changes its role in one step, as soon as it is free.

Source: CurrentAssignmentBuilder of Kafka's group coordinator (package streams), release 4.4.
"""

from __future__ import annotations

import enum
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field

from odradek.coordinator.streams.assignor import Task, TaskAssignment, Tasks, compact, each_task
from odradek.wire.errors import ErrorCode, KafkaError

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
        for task in each_task(tasks.active):
            self._active.setdefault(task, []).append(process_id)
        for task in _copies(tasks):
            self._copies.setdefault(task, []).append(process_id)

    def release(self, process_id: str, tasks: HeldTasks) -> None:
        for task in each_task(tasks.active):
            _remove(self._active, task, process_id)
        for task in _copies(tasks):
            _remove(self._copies, task, process_id)

    def blocks_active(self, task: Task, process_id: str, *, has_copy: bool) -> bool:
        """Whether a member of the process has to wait before it may run the task. `has_copy`: the member
        itself has the copy that its process has."""
        return task in self._active or (process_id in self._copies.get(task, ()) and not has_copy)

    def blocks_copy(self, task: Task, process_id: str, *, is_running: bool, has_copy: bool) -> bool:
        """Whether it has to wait before it may keep a copy of it. `is_running`: it runs the task itself."""
        runs_elsewhere = process_id in self._active.get(task, ()) and not is_running
        return runs_elsewhere or (process_id in self._copies.get(task, ()) and not has_copy)


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
    running, standbys, warmups = _sets(member.assigned)
    to_run, to_stand_by, to_warm_up = _sets(target)
    copies = standbys | warmups
    free_to_run = {
        task
        for task in to_run - running
        if not owners.blocks_active(task, process_id, has_copy=task in copies)
    }
    free_to_stand_by = {
        task
        for task in to_stand_by - standbys
        if not owners.blocks_copy(task, process_id, is_running=task in running, has_copy=task in copies)
    }
    free_to_warm_up = {
        task
        for task in to_warm_up - warmups
        if not owners.blocks_copy(task, process_id, is_running=False, has_copy=task in copies)
    }
    # A copy that becomes active or of the other kind is not given up: its state stays in use.
    to_revoke = HeldTasks(
        _chosen(member.assigned.active, running - to_run),
        compact(standbys - to_stand_by - to_run - free_to_warm_up),
        compact(warmups - to_warm_up - to_run - free_to_stand_by),
    )
    if not to_revoke.is_empty and (owned is None or _has_any(owned, to_revoke)):
        kept = HeldTasks(
            _chosen(member.assigned.active, running & to_run),
            compact(standbys & (to_stand_by | to_run) | free_to_stand_by & (running | warmups)),
            compact(warmups & (to_warm_up | to_run) | free_to_warm_up & standbys),
        )
        return MemberTasks(epoch, member.member_epoch, MemberState.UNREVOKED_TASKS, kept, to_revoke)
    assigned = HeldTasks(
        _with_epochs(running & to_run | free_to_run, member.assigned.active, target_epoch),
        compact(standbys & to_stand_by | free_to_stand_by | standbys & to_run - free_to_run),
        compact(warmups & to_warm_up | free_to_warm_up | warmups & to_run - free_to_run),
    )
    waits = (
        to_run > running & to_run | free_to_run
        or to_stand_by > standbys & to_stand_by | free_to_stand_by
        or to_warm_up > warmups & to_warm_up | free_to_warm_up
    )
    state = MemberState.UNRELEASED_TASKS if waits else MemberState.STABLE
    return MemberTasks(target_epoch, member.member_epoch, state, assigned)


def _sets(tasks: HeldTasks | TaskAssignment) -> tuple[set[Task], set[Task], set[Task]]:
    """The tasks by role: active, standby, warm-up."""
    return set(each_task(tasks.active)), set(each_task(tasks.standby)), set(each_task(tasks.warmup))


def _with_epochs(tasks: Collection[Task], kept: EpochsOfTasks, epoch: int) -> dict[str, dict[int, int]]:
    """The tasks with the epochs at which the member got them; with `epoch` those that it gets now."""
    epochs: dict[str, dict[int, int]] = {}
    for subtopology_id, partition in sorted(tasks):
        since = kept.get(subtopology_id, {}).get(partition, epoch)
        epochs.setdefault(subtopology_id, {})[partition] = since
    return epochs


def _chosen(active: EpochsOfTasks, tasks: Collection[Task]) -> dict[str, dict[int, int]]:
    """A part of the active tasks, with their epochs."""
    return _with_epochs(tasks, active, -1)


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
        for subtopology_id, partition in each_task(requested)
    )


def _copies(tasks: HeldTasks) -> Iterator[Task]:
    yield from each_task(tasks.standby)
    yield from each_task(tasks.warmup)


def _remove(owners: dict[Task, list[str]], task: Task, process_id: str) -> None:
    processes = owners[task]
    processes.remove(process_id)
    if not processes:
        del owners[task]
