"""The simple assignor of share groups: all is with somebody, evenly, and stays where it is if it can."""

from hypothesis import given, settings
from hypothesis import strategies as st

from odradek.coordinator.shares.groups.assignor import Reader, assign_partitions
from tests.tiers import examples

A, B = b"a".rjust(16, b"\0"), b"b".rjust(16, b"\0")


def readers(*topics, **targets):
    return {
        name: Reader(topics, {topic: frozenset(indexes) for topic, indexes in target.items()})
        for name, target in targets.items()
    }


def sizes(targets):
    return {name: sum(map(len, target.values())) for name, target in targets.items()}


def test_nobody_and_nothing():
    assert assign_partitions({}, {A: {0}}) == {}
    assert assign_partitions(readers(A, m={}), {}) == {"m": {}}
    assert assign_partitions(readers(m={A: {0}}), {A: {0}}) == {"m": {}}


# As in Kafka's own tests of the assignor.


def test_two_members_share_two_topics():
    targets = assign_partitions(readers(A, B, m1={}, m2={}), {A: range(3), B: range(2)})
    assert sorted(sizes(targets).values()) == [2, 3]
    assert targets == {
        "m1": {A: frozenset({0, 2}), B: frozenset({1})},
        "m2": {A: frozenset({1}), B: frozenset({0})},
    }


def test_more_members_than_partitions_share_them():
    targets = assign_partitions(readers(A, **{f"m{number}": {} for number in range(5)}), {A: range(2)})
    assert sizes(targets) == dict.fromkeys(targets, 1) | {
        name: 2 for name, target in targets.items() if len(target[A]) == 2
    }
    holders = {index: sum(index in target[A] for target in targets.values()) for index in (0, 1)}
    assert holders == {0: 3, 1: 3}


def test_members_with_other_subscriptions_share_each_topic_by_itself():
    members = {"m1": Reader((A,), {}), "m2": Reader((B,), {}), "m3": Reader((A, B), {})}
    targets = assign_partitions(members, {A: range(4), B: range(2)})
    assert [len(targets["m1"][A]), len(targets["m2"][B])] == [2, 1]
    assert [len(targets["m3"][A]), len(targets["m3"][B])] == [2, 1]


def test_a_new_member_takes_no_more_than_its_share():
    had = readers(A, m1={A: {0, 1}}, m2={A: {2, 3}}, m3={})
    targets = assign_partitions(had, {A: range(4)})
    assert sorted(sizes(targets).values()) == [1, 1, 2]
    assert (
        sum(len(targets[name].get(A, frozenset()) - had[name].target.get(A, frozenset())) for name in had)
        == 1
    )


def test_when_a_member_goes_the_others_keep_what_they_have():
    targets = assign_partitions(readers(A, m1={A: {0}}, m3={A: {3}}), {A: range(4)})
    assert 0 in targets["m1"][A]
    assert 3 in targets["m3"][A]


TOPICS = [bytes([number]) * 16 for number in range(4)]
assignments = st.dictionaries(st.sampled_from(TOPICS), st.frozensets(st.integers(0, 6), min_size=1))
problems = st.tuples(
    st.dictionaries(
        st.sampled_from([f"m{number}" for number in range(9)]),
        st.builds(Reader, st.frozensets(st.sampled_from(TOPICS)), assignments),
        max_size=9,
    ),
    st.dictionaries(st.sampled_from(TOPICS), st.frozensets(st.integers(0, 6), min_size=1)),
)


@settings(max_examples=examples(100))
@given(problems)
def test_what_holds_of_every_assignment(problem):
    members, assignable = problem
    targets = assign_partitions(members, assignable)
    assert targets.keys() == members.keys()
    for name, target in targets.items():
        assert target.keys() <= set(members[name].topics)
        assert all(indexes and indexes <= assignable[topic] for topic, indexes in target.items())
    subscribers = {
        topic: [name for name, member in members.items() if topic in member.topics] for topic in TOPICS
    }
    are_alike = all(len(names) in (0, len(members)) for names in subscribers.values())
    count = sum(len(indexes) for topic, indexes in assignable.items() if subscribers[topic])
    for topic, indexes in assignable.items():
        names = subscribers[topic]
        if names:
            sharing = -(-len(names) // (count if are_alike else len(indexes)))
            holders = [sum(index in targets[name].get(topic, ()) for name in names) for index in indexes]
            assert 1 <= min(holders) <= max(holders) <= sharing
    again = assign_partitions(
        {name: Reader(member.topics, targets[name]) for name, member in members.items()}, assignable
    )
    assert again == targets


@settings(max_examples=examples(100))
@given(problems)
def test_members_with_the_same_topics_have_equally_much(problem):
    members, assignable = problem
    topics = sorted({topic for member in members.values() for topic in member.topics})
    alike = {name: Reader(topics, member.target) for name, member in members.items()}
    count = sum(len(assignable.get(topic, ())) for topic in topics)
    targets = assign_partitions(alike, assignable)
    if count:
        sharing = -(-len(alike) // count)
        have = sizes(targets).values()
        assert max(have) - min(have) <= 1
        assert max(have) <= -(-sharing * count // len(alike))
