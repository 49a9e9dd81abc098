"""Which tasks of a streams group its members get: the assignor `sticky` of KIP-1071.

A function of values, like those of consumer groups (`assignors.py`). A task is a partition of a subtopology.

- Every task is active at exactly one member. The numbers of members differ by one at most, and no more tasks
  change their member than that needs; one that must goes to a member that has its state, if it can.
- A task with state has standbys besides: as many as configured, as far as there are processes without it.
  Members have tasks of both kinds about equally; where processes leave a choice, standbys stay where they are
  or go where the state is.
- The state is where a task was, or where a member tells an offset of it: after a restart it has a new id and
  no task, but its directory is there. Standbys come before those, and of each kind the furthest first.
- What is one more than equal is spread over processes. There are no warm-up tasks; racks and tags of clients
  play no part: all as in Kafka 4.4.

Kafka: StickyTaskAssignor (group-coordinator), which a differential test holds this against.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush, heapreplace

Tasks = Mapping[str, frozenset[int]]
"""Partitions by subtopology id, without empty sets. Never changed in place."""

Task = tuple[str, int]
"""Subtopology id and partition."""

PASSES_MAX = 16
"""Passes over the standbys to even them out, at most."""


@dataclass(frozen=True, slots=True)
class TaskAssignment:
    """The tasks of a member."""

    active: Tasks = field(default_factory=dict)
    standby: Tasks = field(default_factory=dict)
    warmup: Tasks = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class TaskMember:
    """A member as the assignor sees it."""

    process_id: str
    """Members of one process share its state directory: they never have the same task."""
    assignment: TaskAssignment
    """The target assignment that it has."""
    client_tags: Mapping[str, str] = field(default_factory=dict)
    rack_id: str | None = None
    instance_id: str | None = None
    offsets: Mapping[Task, int] = field(default_factory=dict)
    """How far the state in its directory has come, as it has told."""


@dataclass(frozen=True, slots=True)
class AssignableSubtopology:
    """A part of the topology with the tasks that it makes."""

    task_count: int
    """The largest number of partitions of its source topics."""
    is_stateful: bool
    """Whether it has changelog topics."""


@dataclass(frozen=True, slots=True)
class TaskSpec:
    """The input of the assignor."""

    members: Mapping[str, TaskMember]
    """By member id."""
    subtopologies: Mapping[str, AssignableSubtopology]
    """By subtopology id."""
    standby_replicas: int = 0
    """How many standbys each task with state is to have."""


def assign_tasks(spec: TaskSpec) -> dict[str, TaskAssignment]:
    """The tasks of every member. The same input gives the same result, in whatever order its members
    are."""
    if not spec.members:
        return {}
    work = _Work(spec)
    _assign_active(work)
    if spec.standby_replicas > 0 and len(work.capacities) > 1:
        _assign_standbys(work, min(spec.standby_replicas, len(work.capacities) - 1))
    return {member_id: work.assignment(member_id) for member_id in work.member_ids}


class _Work:
    """Tasks by the member that they have been given to so far, and by the member that had them."""

    __slots__ = (
        "active",
        "capacities",
        "counts",
        "former_active",
        "former_standbys",
        "loads",
        "member_ids",
        "process_of",
        "processes_with",
        "spec",
        "standby",
    )

    def __init__(self, spec: TaskSpec) -> None:
        self.spec = spec
        self.member_ids = sorted(spec.members)
        self.process_of = {member_id: spec.members[member_id].process_id for member_id in self.member_ids}
        self.capacities = Counter(self.process_of.values())
        """Members of each process."""
        self.loads = Counter(dict.fromkeys(self.capacities, 0))
        """Tasks of each process."""
        self.counts = dict.fromkeys(self.member_ids, 0)
        """Tasks of each member, of both kinds."""
        self.active: dict[str, set[Task]] = {member_id: set() for member_id in self.member_ids}
        self.standby: dict[str, set[Task]] = {member_id: set() for member_id in self.member_ids}
        self.processes_with: dict[Task, set[str]] = {}
        self.former_active: dict[Task, str] = {}
        self.former_standbys: dict[Task, list[str]] = {}
        """Members with the state of a task, those whose state is most likely to be of use first."""
        ranked: dict[Task, list[tuple[bool, int, str]]] = {}
        for member_id in self.member_ids:
            member = spec.members[member_id]
            for task in self._existing(each_task(member.assignment.active)):
                self.former_active.setdefault(task, member_id)
            standbys = set(self._existing(each_task(member.assignment.standby)))
            for task in standbys | set(self._existing(member.offsets)):
                rank = task not in standbys, -member.offsets.get(task, 0), member_id
                ranked.setdefault(task, []).append(rank)
        for task, holders in ranked.items():
            self.former_standbys[task] = [member_id for *_, member_id in sorted(holders)]

    def _existing(self, tasks: Iterable[Task]) -> Iterable[Task]:
        subtopologies = self.spec.subtopologies
        for task in tasks:
            subtopology = subtopologies.get(task[0])
            if subtopology is not None and task[1] < subtopology.task_count:
                yield task

    def tasks(self, only_stateful: bool) -> list[Task]:
        """In an order by which a task and its like in other subtopologies are neighbours."""
        tasks = [
            (subtopology_id, index)
            for subtopology_id, subtopology in self.spec.subtopologies.items()
            if subtopology.is_stateful or not only_stateful
            for index in range(subtopology.task_count)
        ]
        return sorted(tasks, key=_by_partition)

    def put(self, task: Task, member_id: str, among: dict[str, set[Task]]) -> None:
        """`among` is `active` or `standby`."""
        among[member_id].add(task)
        self.counts[member_id] += 1
        process_id = self.process_of[member_id]
        self.loads[process_id] += 1
        self.processes_with.setdefault(task, set()).add(process_id)

    def take_standby(self, task: Task, member_id: str) -> None:
        self.standby[member_id].remove(task)
        self.counts[member_id] -= 1
        process_id = self.process_of[member_id]
        self.loads[process_id] -= 1
        self.processes_with[task].remove(process_id)

    def had(self, task: Task, member_id: str) -> bool:
        """Whether a member has the state of a task, most likely."""
        return self.former_active.get(task) == member_id or member_id in self.former_standbys.get(task, ())

    def assignment(self, member_id: str) -> TaskAssignment:
        """The object that the member has, when nothing has changed."""
        before = self.spec.members[member_id].assignment
        now = TaskAssignment(compact(self.active[member_id]), compact(self.standby[member_id]))
        return before if before == now else now


def _by_partition(task: Task) -> tuple[int, str]:
    return task[1], task[0]


def each_task(tasks: Mapping[str, Collection[int]]) -> Iterator[Task]:
    for subtopology_id, indexes in tasks.items():
        for index in indexes:
            yield subtopology_id, index


def compact(tasks: Iterable[Task]) -> Tasks:
    """The same in the other form, with the subtopologies in order."""
    partitions: dict[str, list[int]] = {}
    for subtopology_id, index in sorted(tasks):
        partitions.setdefault(subtopology_id, []).append(index)
    return {subtopology_id: frozenset(indexes) for subtopology_id, indexes in partitions.items()}


# --- Active tasks ---


def _assign_active(work: _Work) -> None:
    """Tasks that may stay do; of the others first those whose state is with a member that has room."""
    counts, tasks = work.counts, work.tasks(only_stateful=False)
    share, larger_shares = divmod(len(tasks), len(work.member_ids))
    more_than_share = _with_more_than(share, work)[:larger_shares]
    larger_shares -= len(more_than_share)
    most = dict.fromkeys(work.member_ids, share) | dict.fromkeys(more_than_share, share + 1)
    rest: list[Task] = []
    for task in tasks:
        member_id = work.former_active.get(task)
        if member_id is not None and counts[member_id] < most[member_id]:
            work.put(task, member_id, work.active)
        else:
            rest.append(task)
    without_state: list[Task] = []
    for task in rest:
        limit = share + (larger_shares > 0)
        able = [member_id for member_id in work.former_standbys.get(task, ()) if counts[member_id] < limit]
        if able:
            member_id = min(able, key=counts.__getitem__)
            larger_shares -= counts[member_id] == share
            work.put(task, member_id, work.active)
        else:
            without_state.append(task)
    queue = _LeastLoaded(work)
    for task in sorted(without_state):
        member_id = queue.take(())
        assert member_id is not None
        work.put(task, member_id, work.active)


def _with_more_than(share: int, work: _Work) -> list[str]:
    """Members that had more active tasks than the share: one of each process, then the next of each."""
    had = Counter(work.former_active.values())
    of_process: Counter[str] = Counter()
    ranked: list[tuple[int, str]] = []
    for member_id in work.member_ids:
        if had[member_id] > share:
            process_id = work.process_of[member_id]
            ranked.append((of_process[process_id], member_id))
            of_process[process_id] += 1
    return [member_id for _, member_id in sorted(ranked)]


class _LeastLoaded:
    """Processes by the tasks of their least loaded member, then by tasks for each member.

    As long as one is in use, only `take` gives tasks to members, and only `_level` takes them away.
    """

    __slots__ = ("_members", "_processes", "_work")

    def __init__(self, work: _Work) -> None:
        self._work = work
        self._members: dict[str, list[tuple[int, str]]] = {process_id: [] for process_id in work.capacities}
        for member_id in work.member_ids:
            self._members[work.process_of[member_id]].append((work.counts[member_id], member_id))
        for members in self._members.values():
            heapify(members)
        self._processes = [self._entry(process_id) for process_id in sorted(work.capacities)]
        heapify(self._processes)

    def _entry(self, process_id: str) -> tuple[int, float, str]:
        work = self._work
        load = work.loads[process_id] / work.capacities[process_id]
        return self._members[process_id][0][0], load, process_id

    def take(self, without: Collection[str], below: int | None = None) -> str | None:
        """The member that is to get one more task, of a process not among `without`; None when there is none
        (with fewer than `below` tasks)."""
        passed_over = []
        found = None
        while self._processes:
            least, _, process_id = self._processes[0]
            if below is not None and least >= below:
                break
            if process_id in without:
                passed_over.append(heappop(self._processes))
                continue
            _, found = self._members[process_id][0]
            heapreplace(self._members[process_id], (least + 1, found))
            work = self._work
            load = (work.loads[process_id] + 1) / work.capacities[process_id]
            heapreplace(self._processes, (self._members[process_id][0][0], load, process_id))
            break
        for entry in passed_over:
            heappush(self._processes, entry)
        return found


# --- Standbys ---


def _assign_standbys(work: _Work, replicas: int) -> None:
    """Where they or the state were, as far as members have room; then where there is least."""
    tasks = work.tasks(only_stateful=True)
    missing: list[Task] = []
    total = sum(work.counts.values()) + replicas * len(tasks)
    share, larger_shares = divmod(total, len(work.member_ids))
    larger_shares -= sum(count > share for count in work.counts.values())
    for task in tasks:
        left = replicas
        for member_id in _former_holders(work, task):
            count = work.counts[member_id]
            if not left:
                break
            if work.process_of[member_id] in work.processes_with[task]:
                continue
            if count < share or (count == share and larger_shares > 0):
                larger_shares -= count == share
                work.put(task, member_id, work.standby)
                left -= 1
        missing += [task] * left
    queue = _LeastLoaded(work)
    for task in sorted(missing):
        free = queue.take(work.processes_with[task])
        assert free is not None
        work.put(task, free, work.standby)
    for _ in range(PASSES_MAX):
        if not _level(work):
            return


def _former_holders(work: _Work, task: Task) -> list[str]:
    """Members that had a task: the active one, then others with its state from the least loaded on."""
    holders = sorted(work.former_standbys.get(task, ()), key=work.counts.__getitem__)
    active = work.former_active.get(task)
    return holders if active is None else [active, *holders]


def _level(work: _Work) -> bool:
    """Moves standbys from members with most tasks to those with at least two fewer, if the processes allow
    it; first those that have just come. Whether any was moved."""
    counts = work.counts
    if max(counts.values()) - min(counts.values()) <= 1:
        return False
    moved = False
    queue = _LeastLoaded(work)
    least = min(counts.values())
    for giver in sorted(work.member_ids, key=lambda member_id: (-counts[member_id], member_id)):
        if counts[giver] - least <= 1:
            break
        for task in sorted(work.standby[giver], key=lambda task: (work.had(task, giver), task)):
            if counts[giver] - least <= 1:
                break
            others = work.processes_with[task] - {work.process_of[giver]}
            taker = queue.take(others, below=counts[giver] - 1)
            if taker is not None:
                work.take_standby(task, giver)
                work.put(task, taker, work.standby)
                moved = True
    return moved
