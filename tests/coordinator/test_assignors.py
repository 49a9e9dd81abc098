"""Assignors of consumer groups: every partition once, to a subscriber, evenly, with few moves."""

import random
from functools import partial

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from odradek.coordinator.groups.assignors import (
    ASSIGNORS,
    AssignedMember,
    AssignmentSpec,
    assign_range,
    assign_uniform,
)
from tests.coordinator.assignor_problems import answered, consumer_group, moved, owners, spread, topic_id
from tests.coordinator.executed_lines import lines_run
from tests.tiers import examples

A, B, C = (topic_id(number) for number in range(3))
GROUPS = st.integers(0, 2**32).map(lambda seed: consumer_group(random.Random(seed)))
MANY = settings(max_examples=examples(100), deadline=None, derandomize=True)


def group(counts, **members):
    """Members as (topics, assignment, group instance id or None), as far as given."""
    return AssignmentSpec(
        {
            member_id: AssignedMember(frozenset(topics), *(rest or [{}]))
            for member_id, (topics, *rest) in members.items()
        },
        counts,
    )


# --- Both ---


@pytest.mark.parametrize("name", ASSIGNORS)
@MANY
@given(spec=GROUPS)
def test_every_partition_goes_to_exactly_one_subscriber(name, spec):
    assignments = ASSIGNORS[name](spec)
    assert assignments.keys() == spec.members.keys()
    for (topic, _), member_id in owners(assignments).items():
        assert topic in spec.members[member_id].topics
    assert owners(assignments).keys() == {
        (topic, partition)
        for topic, count in spec.partition_counts.items()
        if any(topic in member.topics for member in spec.members.values())
        for partition in range(count)
    }


@pytest.mark.parametrize("name", ASSIGNORS)
@MANY
@given(spec=GROUPS, rng=st.randoms())
def test_the_order_of_members_and_topics_makes_no_difference(name, spec, rng):
    members, counts = list(spec.members.items()), list(spec.partition_counts.items())
    rng.shuffle(members)
    rng.shuffle(counts)
    assert ASSIGNORS[name](AssignmentSpec(dict(members), dict(counts))) == ASSIGNORS[name](spec)


@pytest.mark.parametrize("name", ASSIGNORS)
@MANY
@given(spec=GROUPS)
def test_a_group_that_has_not_changed_keeps_the_very_objects(name, spec):
    settled = answered(spec, ASSIGNORS[name](spec))
    if name == "uniform":
        # What a bounded number of rounds leaves uneven is evened out by the next ones.
        settled = answered(settled, assign_uniform(settled))
    again = ASSIGNORS[name](settled)
    assert all(again[member_id] is member.assignment for member_id, member in settled.members.items())


@pytest.mark.parametrize("name", ASSIGNORS)
def test_nobody_and_nothing(name):
    assign = ASSIGNORS[name]
    assert assign(AssignmentSpec({}, {A: 3})) == {}
    assert assign(group({A: 3}, a=([],))) == {"a": {}}
    assert assign(group({}, a=([A], {A: frozenset({0})}))) == {"a": {}}
    assert assign(group({A: 2}, a=([A, B],), b=([B],))) == {"a": {A: frozenset({0, 1})}, "b": {}}


def test_uniform_is_preferred():
    assert list(ASSIGNORS) == ["uniform", "range"]


# --- range ---


@MANY
@given(spec=GROUPS)
def test_range_gives_runs_of_about_equal_length(spec):
    assignments = assign_range(spec)
    for topic in spec.partition_counts:
        subscribers = [each for each, member in spec.members.items() if topic in member.topics]
        shares = [sorted(assignments[each].get(topic, ())) for each in subscribers]
        assert all(share == list(range(share[0], share[-1] + 1)) for share in shares if share)
        assert not shares or max(map(len, shares)) - min(map(len, shares)) <= 1


def test_range_splits_topics_of_one_size_in_the_same_way():
    spec = group({A: 7, B: 7}, a=([A, B],), b=([A, B],), c=([A, B],))
    for assignment in assign_range(spec).values():
        assert assignment[A] == assignment[B]
    assert assign_range(spec)["a"][A] == {0, 1, 2}


def test_range_knows_static_members_by_their_names_and_puts_them_first():
    before = group({A: 3}, m1=([A], {}, "x"), m2=([A], {}, "y"), m3=([A],))
    after = group({A: 3}, m9=([A], {}, "x"), m0=([A], {}, "y"), m1=([A],))
    for spec, order in ((before, ["m1", "m2", "m3"]), (after, ["m9", "m0", "m1"])):
        assert [assign_range(spec)[member_id][A] for member_id in order] == [{0}, {1}, {2}]


def test_range_orders_names_as_java_does():
    # A surrogate pair comes before U+FF00 in UTF-16, and behind it by code points.
    astral, wide = "\U0001f600", "\uff00"
    assert assign_range(group({A: 1}, **{wide: ([A],), astral: ([A],)})) == {wide: {}, astral: {A: {0}}}


# --- uniform ---


@MANY
@given(spec=GROUPS)
def test_members_with_the_same_topics_get_equally_many_with_the_fewest_moves(spec):
    counts = spec.partition_counts
    alike = {
        member_id: AssignedMember(
            frozenset(counts), {topic: have for topic, have in member.assignment.items() if topic in counts}
        )
        for member_id, member in spec.members.items()
    }
    spec = AssignmentSpec(alike, counts)
    assignments = assign_uniform(spec)
    assert spread(assignments) <= 1
    share, larger = divmod(sum(counts.values()), len(alike))
    have = [sum(map(len, member.assignment.values())) for member in alike.values()]
    can_stay = sum(min(size, share) for size in have) + min(larger, sum(size > share for size in have))
    assert moved(spec, assignments) == sum(have) - can_stay


@MANY
@given(spec=GROUPS)
def test_nobody_can_be_relieved_by_another_subscriber(spec):
    assignments = assign_uniform(spec)
    sizes = {member_id: sum(map(len, assignment.values())) for member_id, assignment in assignments.items()}
    for (topic, _), member_id in owners(assignments).items():
        for other, member in spec.members.items():
            assert topic not in member.topics or sizes[member_id] - sizes[other] <= 1


def test_a_busy_topic_is_spread_over_members():
    assignments = assign_uniform(group({A: 6, B: 6}, a=([A, B],), b=([A, B],)))
    assert [{topic: len(parts) for topic, parts in each.items()} for each in assignments.values()] == [
        {A: 3, B: 3}
    ] * 2
    alone = assign_uniform(group({A: 6, B: 6}, a=([A, B],)))["a"]
    joined = assign_uniform(group({A: 6, B: 6}, a=([A, B], alone), b=([A, B],)))
    assert [{topic: len(parts) for topic, parts in each.items()} for each in joined.values()] == [
        {A: 3, B: 3}
    ] * 2


def test_what_one_member_gives_up_is_all_that_moves_when_another_joins():
    spec = group({A: 9}, a=([A], {A: frozenset(range(5))}), b=([A], {A: frozenset(range(5, 9))}), c=([A],))
    assignments = assign_uniform(spec)
    assert assignments["a"][A] < set(range(5))
    assert assignments["b"][A] < set(range(5, 9))
    assert [len(assignments[member_id][A]) for member_id in "abc"] == [3, 3, 3]


def test_what_is_said_to_belong_to_two_belongs_to_one():
    spec = group({A: 2}, a=([A], {A: frozenset({0, 1, 7})}), b=([A], {A: frozenset({0, 1})}))
    assert sorted(map(sorted, (each[A] for each in assign_uniform(spec).values()))) == [[0], [1]]
    spec = group({A: 2, B: 1}, a=([A], {A: frozenset({0, 1, 7})}), b=([A, B], {A: frozenset({0, 1})}))
    assert owners(assign_uniform(spec)).keys() == {(A, 0), (A, 1), (B, 0)}


def test_others_make_up_for_those_who_may_have_little():
    spec = group({A: 1, B: 7, C: 4}, a=([A],), b=([A, B],), c=([B, C],), d=([C],))
    sizes = [sum(map(len, assignment.values())) for assignment in assign_uniform(spec).values()]
    assert sorted(sizes) == [1, 3, 4, 4]


# --- Effort ---


def settling(name, member_count, topics, alike):
    """Lines run for a first assignment of ten partitions a member, for one with nothing to change, and after
    a tenth of the members has gone."""
    rng = random.Random(topics)
    counts = {topic_id(number): 10 * member_count // topics for number in range(topics)}
    everything, names = frozenset(counts), list(counts)
    members = {}
    for number in range(member_count):
        mine = everything if alike else frozenset(rng.sample(names, max(1, topics // 2)))
        members[f"member-{number:04}"] = AssignedMember(mine, {})
    fresh = AssignmentSpec(members, counts)
    settled = answered(fresh, ASSIGNORS[name](fresh))
    fewer = AssignmentSpec(dict(list(settled.members.items())[member_count // 10 :]), counts)
    return [lines_run(partial(ASSIGNORS[name], spec)) for spec in (fresh, settled, fewer)]


@pytest.mark.parametrize("topics", [1, 10])
@pytest.mark.parametrize("name", ASSIGNORS)
@pytest.mark.parametrize("alike", [True, False])
def test_twice_the_members_and_partitions_are_about_twice_the_work(name, topics, alike):
    few, many = (settling(name, count, topics, alike) for count in (100, 200))
    assert [round(b / a, 1) for a, b in zip(few, many, strict=True)] == pytest.approx([2.0] * 3, abs=0.6)
