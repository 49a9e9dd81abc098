"""Groups that live through random changes, as problems for assignors, and what one can say of an answer.

Also read by the comparison with Kafka's own assignors (compat_tests/differential/test_assignors.py).
"""

import dataclasses
import random
from collections import Counter

from odradek.coordinator.groups.assignors import (
    ASSIGNORS,
    AssignedMember,
    Assignment,
    AssignmentSpec,
)
from odradek.coordinator.streams.assignor import (
    AssignableSubtopology,
    TaskAssignment,
    TaskMember,
    TaskSpec,
    assign_tasks,
)


def topic_id(number: int) -> bytes:
    return (number + 1).to_bytes(16, "big")


# --- Consumer groups ---


def consumer_group(rng: random.Random) -> AssignmentSpec:
    """A group after some changes, all but the last of which were answered by an assignor."""
    largest_topic, largest_group = rng.choice([(4, 6), (12, 12), (40, 30)])
    counts = {topic_id(number): rng.randint(1, largest_topic) for number in range(rng.randint(1, 6))}
    all_alike = rng.random() < 0.5
    members: dict[str, AssignedMember] = {}
    for _ in range(rng.randint(1, largest_group)):
        _join(rng, members, counts, all_alike)
    spec = AssignmentSpec(members, counts)
    for _ in range(rng.randrange(4)):
        assignor = rng.choice(["uniform", "uniform", "range"])
        spec = _changed(rng, answered(spec, ASSIGNORS[assignor](spec)), all_alike)
    return spec


def answered(spec: AssignmentSpec, assignments: dict[str, Assignment]) -> AssignmentSpec:
    """The group with what an assignor has said as its assignment."""
    members = {
        member_id: member._replace(assignment=assignments[member_id])
        for member_id, member in spec.members.items()
    }
    return AssignmentSpec(members, spec.partition_counts)


def _join(rng: random.Random, members: dict, counts: dict[bytes, int], all_alike: bool) -> None:
    number = rng.randrange(10_000)
    topics = list(counts)
    # Ids do not exist for all: subscriptions name topics that were deleted.
    chosen = topics if all_alike else rng.sample(topics, rng.randint(0, len(topics)))
    instance_id = f"i{10_000 - number}" if rng.random() < 0.2 else None
    members[f"m{number}"] = AssignedMember(frozenset(chosen), {}, instance_id)


def _changed(rng: random.Random, spec: AssignmentSpec, all_alike: bool) -> AssignmentSpec:
    members, counts = dict(spec.members), dict(spec.partition_counts)
    for _ in range(rng.randint(1, 3)):
        what = rng.random()
        member_id = rng.choice(list(members))
        if what < 0.35:
            _join(rng, members, counts, all_alike)
        elif what < 0.65:
            if len(members) > 1:
                del members[member_id]
        elif what < 0.75:
            counts[rng.choice(list(counts))] += rng.randint(1, 5)
        elif what < 0.85:
            if len(counts) > 1:
                del counts[rng.choice(list(counts))]
        elif what < 0.92:
            new = topic_id(100 + rng.randrange(1_000))
            counts[new] = rng.randint(1, 6)
            for each in members if all_alike else rng.sample(list(members), rng.randint(1, len(members))):
                members[each] = _with_topics(members[each], members[each].topics | {new})
        elif not all_alike:
            chosen = rng.sample(list(counts), rng.randint(0, len(counts)))
            members[member_id] = _with_topics(members[member_id], frozenset(chosen))
    if all_alike:
        members = {each: _with_topics(member, frozenset(counts)) for each, member in members.items()}
    return AssignmentSpec(members, counts)


def _with_topics(member: AssignedMember, topics: frozenset[bytes]) -> AssignedMember:
    return member._replace(topics=topics)


def owners(assignments: dict[str, Assignment]) -> dict[tuple[bytes, int], str]:
    """Who has which partition; fails when two have one, or when a topic is there for no partition."""
    found: dict[tuple[bytes, int], str] = {}
    for member_id, assignment in assignments.items():
        for topic, partitions in assignment.items():
            assert partitions
            for partition in partitions:
                assert found.setdefault((topic, partition), member_id) == member_id
    return found


def spread(assignments: dict[str, Assignment]) -> int:
    """How many partitions who has most has more than who has least."""
    sizes = [sum(map(len, assignment.values())) for assignment in assignments.values()]
    return max(sizes) - min(sizes)


def moved(spec: AssignmentSpec, assignments: dict[str, Assignment]) -> int:
    """How many partitions that somebody had, and that are still there, have another member now."""
    now = owners(assignments)
    before = owners({member_id: member.assignment for member_id, member in spec.members.items()})
    return sum(place in now and now[place] != member_id for place, member_id in before.items())


# --- Streams groups ---


def streams_group(rng: random.Random) -> TaskSpec:
    """A group after some changes, all but the last of which were answered."""
    largest, processes = rng.choice([(4, 3), (12, 5), (40, 12)])
    subtopologies = {
        str(number): AssignableSubtopology(rng.randint(1, largest), rng.random() < 0.6)
        for number in range(rng.randint(1, 4))
    }
    members: dict[str, TaskMember] = {}
    for _ in range(rng.randint(1, 2 * processes)):
        _start_thread(rng, members, processes)
    spec = TaskSpec(members, subtopologies, rng.choice([0, 0, 1, 1, 2, 3]))
    for _ in range(rng.randrange(4)):
        spec = _streams_changed(rng, streams_answered(spec, assign_tasks(spec)), processes)
    return spec


def streams_answered(spec: TaskSpec, assignments: dict[str, TaskAssignment]) -> TaskSpec:
    members = {
        member_id: dataclasses.replace(member, assignment=assignments[member_id])
        for member_id, member in spec.members.items()
    }
    return dataclasses.replace(spec, members=members)


def _start_thread(rng: random.Random, members: dict, processes: int) -> None:
    """A thread, which may know offsets of tasks that it had before it was started again."""
    offsets = {
        (str(rng.randrange(4)), rng.randrange(12)): rng.randrange(1_000)
        for _ in range(rng.choice([0, 0, rng.randrange(8)]))
    }
    members[f"m{rng.randrange(10_000)}"] = TaskMember(
        f"p{rng.randrange(processes)}", TaskAssignment(), offsets=offsets
    )


def _streams_changed(rng: random.Random, spec: TaskSpec, processes: int) -> TaskSpec:
    members, subtopologies = dict(spec.members), dict(spec.subtopologies)
    for _ in range(rng.randint(1, 3)):
        what = rng.random()
        if what < 0.4:
            _start_thread(rng, members, processes)
        elif what < 0.75:
            gone = rng.choice(list(members.values())).process_id if rng.random() < 0.5 else None
            left = {each: member for each, member in members.items() if member.process_id != gone}
            if gone is None:
                left.pop(rng.choice(list(left)))
            members = left or members
        else:
            grown = rng.choice(list(subtopologies))
            before = subtopologies[grown]
            subtopologies[grown] = AssignableSubtopology(
                before.task_count + rng.randint(1, 4), before.is_stateful
            )
    return TaskSpec(members, subtopologies, spec.standby_replicas)


def tasks_of(spec: TaskSpec, only_stateful: bool = False) -> set[tuple[str, int]]:
    return {
        (name, index)
        for name, subtopology in spec.subtopologies.items()
        if subtopology.is_stateful or not only_stateful
        for index in range(subtopology.task_count)
    }


def holders(tasks_by_member: dict) -> dict[tuple[str, int], list[str]]:
    """Members of each task."""
    found: dict[tuple[str, int], list[str]] = {}
    for member_id, tasks in tasks_by_member.items():
        for name, indexes in tasks.items():
            assert indexes
            for index in indexes:
                found.setdefault((name, index), []).append(member_id)
    return found


@dataclasses.dataclass(frozen=True)
class Verdict:
    """What there is to say of an answer for a streams group; of each number less is better."""

    active_spread: int
    """Active tasks of members, most and least."""
    active_moved: int
    """Active tasks with another member than before."""
    missing_standbys: int
    spread: int
    """The same for all tasks."""
    cold_standbys: int
    """Standbys where the task was not before: neither active, nor as a standby, nor by an offset."""
    cold_actives: int
    """Active tasks with state, of which another member has it."""
    process_spread: float
    """Tasks for each member of a process, most and least."""


def verdict(spec: TaskSpec, assignments: dict[str, TaskAssignment]) -> Verdict:
    active = holders({member_id: tasks.active for member_id, tasks in assignments.items()})
    standby = holders({member_id: tasks.standby for member_id, tasks in assignments.items()})
    had_active = holders({member_id: member.assignment.active for member_id, member in spec.members.items()})
    had = {task: list(members) for task, members in had_active.items()}
    for member_id, member in spec.members.items():
        for task in {*holders({member_id: member.assignment.standby}), *member.offsets}:
            had.setdefault(task, []).append(member_id)
    actives = [sum(map(len, tasks.active.values())) for tasks in assignments.values()]
    sizes = {
        member_id: sum(map(len, (*tasks.active.values(), *tasks.standby.values())))
        for member_id, tasks in assignments.items()
    }
    capacity = Counter(member.process_id for member in spec.members.values())
    load: Counter[str] = Counter()
    for member_id, size in sizes.items():
        load[spec.members[member_id].process_id] += size
    loads = [load[process] / members for process, members in capacity.items()]
    stateful = tasks_of(spec, only_stateful=True)
    return Verdict(
        max(actives) - min(actives),
        sum(member_id not in had_active.get(task, [member_id]) for task, (member_id,) in active.items()),
        sum(spec.standby_replicas - len(standby.get(task, ())) for task in stateful),
        max(sizes.values()) - min(sizes.values()),
        sum(each not in had.get(task, ()) for task, members in standby.items() for each in members),
        sum(task in stateful and task in had and active[task][0] not in had[task] for task in active),
        max(loads) - min(loads),
    )
