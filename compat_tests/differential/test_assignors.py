"""Our assignors and Kafka's own, from its jars, on the same random groups.

`range` gives the same, partition by partition. `uniform` is nowhere less even, and moves nowhere more. The
active tasks of streams groups are nowhere less even, and where they are as even no more of them move; all
tasks, standbys too, are as even and stay as often in the sum over all groups, not in each: neither we nor
Kafka look for the best of all ways.

Kafka breaks ties by the order of a hash map; here its members come in the order of their ids, as ours do.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Mapping

from compat_tests import reference
from compat_tests.clients.java import SOURCE
from odradek.coordinator.groups.assignors import Assignment, AssignmentSpec, assign_range, assign_uniform
from odradek.coordinator.streams.assignor import TaskAssignment, TaskSpec, assign_tasks
from tests.coordinator.assignor_problems import (
    consumer_group,
    moved,
    spread,
    streams_group,
    verdict,
)

GROUPS = 1_000


def answers(problems: Iterable[list[str]]) -> Iterator[dict[str, list[str]]]:
    """What Kafka says to each problem, as words by member id; all problems are solved in one JVM."""
    text = "".join(f"{line}\n" for problem in problems for line in (*problem, "end"))
    told = reference.run_java(SOURCE.with_name("Assignors.java"), stdin=text)
    answer: dict[str, list[str]] = {}
    for line in told.splitlines():
        if line == "end":
            yield answer
            answer = {}
        else:
            member_id, *words = line.split(" ")
            answer[member_id] = words


def written(partitions: Mapping[str, Iterable[int]]) -> str:
    parts = [
        f"{name}={'+'.join(map(str, sorted(numbers)))}" for name, numbers in partitions.items() if numbers
    ]
    return ",".join(parts) or "-"


def read(word: str) -> dict[str, frozenset[int]]:
    parts = (part.split("=") for part in word.split(",") if word != "-")
    return {name: frozenset(map(int, numbers.split("+"))) for name, numbers in parts}


# --- Consumer groups ---


def consumer_problem(assignor: str, spec: AssignmentSpec) -> list[str]:
    lines = [assignor]
    for topic, count in sorted(spec.partition_counts.items()):
        lines.append(f"topic {number_of(topic)} {count}")
    for member_id, member in sorted(spec.members.items()):
        # The group coordinator gives an assignor only topics that exist.
        topics = [number_of(topic) for topic in sorted(member.topics) if topic in spec.partition_counts]
        existing = {
            number_of(topic): partitions
            for topic, partitions in sorted(member.assignment.items())
            if topic in spec.partition_counts
        }
        words = [member.group_instance_id or "-", ",".join(topics) or "-", written(existing)]
        lines.append(" ".join(("member", member_id, *words)))
    return lines


def number_of(topic: bytes) -> str:
    return str(int.from_bytes(topic, "big"))


def consumer_answer(spec: AssignmentSpec, answer: dict[str, list[str]]) -> dict[str, Assignment]:
    """Kafka leaves members out when there is nothing to give."""
    return {
        member_id: {
            int(number).to_bytes(16, "big"): partitions
            for number, partitions in read(answer.get(member_id, ["-"])[0]).items()
        }
        for member_id in spec.members
    }


def consumer_groups() -> list[AssignmentSpec]:
    return [consumer_group(random.Random(seed)) for seed in range(GROUPS)]


def test_range_is_kafkas_partition_by_partition() -> None:
    specs = consumer_groups()
    theirs = answers(consumer_problem("range", spec) for spec in specs)
    for seed, (spec, answer) in enumerate(zip(specs, theirs, strict=True)):
        assert assign_range(spec) == consumer_answer(spec, answer), seed


def test_uniform_is_nowhere_less_even_and_moves_nowhere_more() -> None:
    specs = consumer_groups()
    theirs = answers(consumer_problem("uniform", spec) for spec in specs)
    worse = []
    fewer_moves = 0
    for seed, (spec, answer) in enumerate(zip(specs, theirs, strict=True)):
        kafka, ours = consumer_answer(spec, answer), assign_uniform(spec)
        of_kafka, of_ours = (spread(kafka), moved(spec, kafka)), (spread(ours), moved(spec, ours))
        fewer_moves += of_ours[1] < of_kafka[1]
        if of_ours[0] > of_kafka[0] or of_ours[1] > of_kafka[1]:
            worse.append((seed, of_ours, of_kafka))
    assert not worse
    print(f"fewer moves than Kafka in {fewer_moves} of {GROUPS} groups")


# --- Streams groups ---


def streams_problem(spec: TaskSpec) -> list[str]:
    lines = [f"streams {spec.standby_replicas}"]
    for name, subtopology in sorted(spec.subtopologies.items()):
        lines.append(f"subtopology {name} {subtopology.task_count} {subtopology.is_stateful:d}")
    for member_id, member in sorted(spec.members.items()):
        tasks = member.assignment
        offsets = ",".join(f"{name}={index}={offset}" for (name, index), offset in member.offsets.items())
        words = (member.process_id, written(tasks.active), written(tasks.standby), offsets or "-")
        lines.append(" ".join(("member", member_id, *words)))
    return lines


def test_active_tasks_are_nowhere_less_even_or_stay_less_and_standbys_are_not_in_all() -> None:
    specs = [streams_group(random.Random(seed)) for seed in range(GROUPS)]
    theirs = answers(map(streams_problem, specs))
    worse = []
    uneven, cold, better, less_good = [0, 0], [0, 0], 0, 0
    for seed, (spec, answer) in enumerate(zip(specs, theirs, strict=True)):
        kafka = verdict(
            spec, {member_id: TaskAssignment(*map(read, answer[member_id])) for member_id in spec.members}
        )
        ours = verdict(spec, assign_tasks(spec))
        # Evenness comes before what need not move.
        is_worse = (ours.active_spread, ours.active_moved) > (kafka.active_spread, kafka.active_moved)
        if is_worse or ours.missing_standbys != kafka.missing_standbys:
            worse.append((seed, ours, kafka))
        for which, judged in enumerate((ours, kafka)):
            uneven[which] += judged.spread
            cold[which] += judged.cold_standbys
        better += (ours.spread, ours.cold_standbys) < (kafka.spread, kafka.cold_standbys)
        less_good += (ours.spread, ours.cold_standbys) > (kafka.spread, kafka.cold_standbys)
    assert not worse
    assert uneven[0] <= uneven[1]
    # A standby moves where members are more even by it.
    assert cold[0] <= cold[1] * 1.1
    assert less_good < better
    print(f"standbys: better than Kafka's in {better} of {GROUPS} groups, less good in {less_good}")
