"""The assignor of streams groups: every task active once, standbys elsewhere, evenly, with few moves."""

import dataclasses
import random
from collections import Counter
from functools import partial

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from odradek.coordinator.streams.assignor import (
    AssignableSubtopology,
    TaskAssignment,
    TaskMember,
    TaskSpec,
    assign_tasks,
)
from tests.coordinator.assignor_problems import (
    holders,
    streams_answered,
    streams_group,
    tasks_of,
    verdict,
)
from tests.coordinator.executed_lines import lines_run
from tests.tiers import examples

GROUPS = st.integers(0, 2**32).map(lambda seed: streams_group(random.Random(seed)))
MANY = settings(max_examples=examples(100), deadline=None, derandomize=True)


def group(subtopologies, standby_replicas=0, **members):
    """Members as (process id, active tasks, standbys), as far as given."""
    return TaskSpec(
        {
            member_id: TaskMember(process_id, TaskAssignment(*({"0": frozenset(one)} for one in rest if one)))
            for member_id, (process_id, *rest) in members.items()
        },
        {name: AssignableSubtopology(*subtopology) for name, subtopology in subtopologies.items()},
        standby_replicas,
    )


def test_a_member_that_was_started_again_gets_the_tasks_whose_state_it_has():
    members = {
        "m1": TaskMember("a", TaskAssignment({"0": frozenset({0, 1})})),
        "m2": TaskMember("b", TaskAssignment(), offsets={("0", 1): 7, ("0", 3): 500, ("9", 0): 1}),
        "m3": TaskMember("c", TaskAssignment(), offsets={("0", 3): 20, ("0", 2): 20}),
    }
    subtopologies = {"0": AssignableSubtopology(4, True)}
    found = assign_tasks(TaskSpec(members, subtopologies))
    assert {member_id: tasks.active["0"] for member_id, tasks in found.items()} == {
        "m1": {0, 1},
        "m2": {3},
        "m3": {2},
    }
    found = assign_tasks(TaskSpec(members, subtopologies, standby_replicas=1))
    assert 1 in found["m2"].standby["0"]
    assert 3 in found["m3"].standby["0"]


@MANY
@given(spec=GROUPS)
def test_every_task_is_active_once_and_stands_by_in_other_processes(spec):
    assignments = assign_tasks(spec)
    assert assignments.keys() == spec.members.keys()
    active = holders({member_id: tasks.active for member_id, tasks in assignments.items()})
    standby = holders({member_id: tasks.standby for member_id, tasks in assignments.items()})
    assert active.keys() == tasks_of(spec)
    assert all(len(members) == 1 for members in active.values())
    processes = {member.process_id for member in spec.members.values()}
    replicas = min(spec.standby_replicas, len(processes) - 1)
    assert standby.keys() == (tasks_of(spec, only_stateful=True) if replicas else set())
    for task, members in standby.items():
        assert len(members) == replicas
        everywhere = [spec.members[member_id].process_id for member_id in (*members, *active[task])]
        assert max(Counter(everywhere).values()) == 1
    assert not any(tasks.warmup for tasks in assignments.values())


@MANY
@given(spec=GROUPS)
def test_active_tasks_are_even_and_the_fewest_move(spec):
    assignments = assign_tasks(spec)
    judged = verdict(spec, assignments)
    assert judged.active_spread <= 1
    tasks = tasks_of(spec)
    share, larger = divmod(len(tasks), len(spec.members))
    have = [len(tasks & holders({"": member.assignment.active}).keys()) for member in spec.members.values()]
    can_stay = sum(min(size, share) for size in have) + min(larger, sum(size > share for size in have))
    assert judged.active_moved == sum(have) - can_stay


@MANY
@given(spec=GROUPS)
def test_a_group_that_has_not_changed_keeps_its_tasks(spec):
    settled = streams_answered(spec, assign_tasks(spec))
    judged = verdict(settled, assign_tasks(settled))
    assert (judged.active_moved, judged.cold_actives) == (0, 0)


@MANY
@given(spec=GROUPS, rng=st.randoms())
def test_the_order_of_members_and_subtopologies_makes_no_difference(spec, rng):
    members, subtopologies = list(spec.members.items()), list(spec.subtopologies.items())
    rng.shuffle(members)
    rng.shuffle(subtopologies)
    other = dataclasses.replace(spec, members=dict(members), subtopologies=dict(subtopologies))
    assert assign_tasks(other) == assign_tasks(spec)


def test_nobody_and_nothing():
    assert assign_tasks(group({"0": (2, False)})) == {}
    assert assign_tasks(group({}, a=("p", {0}))) == {"a": TaskAssignment()}
    assert assign_tasks(group({"0": (1, True)}, 2, a=("p",))) == {"a": TaskAssignment({"0": frozenset({0})})}


def test_a_standby_takes_over_from_the_member_that_is_gone():
    spec = group({"0": (4, True)}, 0, a=("p", {0, 1}, {2}), b=("q", (), {3}))
    active = holders({member_id: tasks.active for member_id, tasks in assign_tasks(spec).items()})
    assert active == {("0", 0): ["a"], ("0", 1): ["a"], ("0", 2): ["b"], ("0", 3): ["b"]}


def test_the_state_of_a_task_that_moves_away_stays_as_a_standby():
    spec = group({"0": (4, True)}, 1, a=("p", {0, 1, 2, 3}), b=("q",))
    assignments = assign_tasks(spec)
    assert assignments["b"].active == assignments["a"].standby
    assert len(assignments["b"].active["0"]) == 2


def test_what_is_more_than_equal_is_spread_over_processes():
    spec = group({"0": (6, False)}, 0, a=("p",), b=("p",), c=("q",), d=("q",))
    sizes = {member_id: len(tasks.active["0"]) for member_id, tasks in assign_tasks(spec).items()}
    assert (sizes["a"] + sizes["b"], sizes["c"] + sizes["d"]) == (3, 3)


def test_standbys_even_out_what_active_tasks_leave():
    spec = group({"0": (3, True)}, 1, a=("p",), b=("q",), c=("r",), d=("s",))
    sizes = [
        sum(map(len, (*tasks.active.values(), *tasks.standby.values())))
        for tasks in assign_tasks(spec).values()
    ]
    assert sorted(sizes) == [1, 1, 2, 2]


def test_a_member_gets_the_same_partitions_of_subtopologies_of_one_size():
    tasks = assign_tasks(group({"0": (6, False), "1": (6, False)}, 0, a=("p",), b=("q",), c=("r",)))
    assert all(each.active["0"] == each.active["1"] for each in tasks.values())


def settling(thread_count):
    """Lines run for a first assignment of ten tasks a thread, for one with nothing to change, and after a
    tenth of the threads has gone."""
    subtopologies = {
        str(number): AssignableSubtopology(thread_count, number % 2 == 0) for number in range(10)
    }
    members = {
        f"m{number:04}": TaskMember(f"p{number // 4}", TaskAssignment()) for number in range(thread_count)
    }
    spec = TaskSpec(members, subtopologies, 1)
    settled = streams_answered(spec, assign_tasks(spec))
    fewer = dataclasses.replace(settled, members=dict(list(settled.members.items())[thread_count // 10 :]))
    return [lines_run(partial(assign_tasks, problem)) for problem in (spec, settled, fewer)]


def test_twice_the_threads_and_tasks_are_about_twice_the_work():
    few, many = settling(100), settling(200)
    assert [round(b / a, 1) for a, b in zip(few, many, strict=True)] == pytest.approx([2.0] * 3, abs=0.6)
