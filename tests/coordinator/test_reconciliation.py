"""Reconciliation: what a member is to give up goes before it gets anything, and nobody shares a partition."""

import random

import pytest

from odradek.coordinator.groups.reconciliation import MemberAssignment, MemberState, reconcile, without_topics

T, U = b"t" * 16, b"u" * 16
STABLE, UNREVOKED, UNRELEASED, UNKNOWN = MemberState


def nobody(topic_id, partition):
    return -1


def owned_by_others(*partitions):
    return lambda topic_id, partition: 7 if (topic_id, partition) in partitions else -1


def at(epoch, assigned, state=STABLE, revoking=None):
    return MemberAssignment(state, epoch, epoch - 1, assigned, revoking or {})


def test_a_member_that_has_its_target_is_left_alone():
    member = at(5, {T: {0: 5}})
    assert reconcile(member, {T: frozenset({0})}, 5, nobody, []) is member


def test_a_new_target_with_nothing_to_give_up_is_taken_at_once():
    member = reconcile(at(5, {T: {0: 3}}), {T: frozenset({0, 1}), U: frozenset({0})}, 6, nobody, None)
    assert member == MemberAssignment(STABLE, 6, 5, {T: {0: 3, 1: 6}, U: {0: 6}}, {})


@pytest.mark.parametrize("owned", [None, [(T, [1])], [(U, [0]), (T, [0, 1])]])
def test_the_epoch_waits_until_the_client_has_given_up(owned):
    target = {T: frozenset({0}), U: frozenset({0})}
    member = reconcile(at(5, {T: {0: 3, 1: 4}}), target, 6, nobody, owned)
    assert member == MemberAssignment(UNREVOKED, 5, 5, {T: {0: 3}}, {T: {1: 4}})
    assert reconcile(member, target, 7, nobody, owned) is member
    done = reconcile(member, target, 7, nobody, [(T, [0])])
    assert done == MemberAssignment(STABLE, 7, 5, {T: {0: 3}, U: {0: 7}}, {})


def test_a_client_that_has_given_up_already_goes_on_at_once():
    member = reconcile(at(5, {T: {0: 3, 1: 4}}), {T: frozenset({0})}, 6, nobody, [(T, [0])])
    assert member == MemberAssignment(STABLE, 6, 5, {T: {0: 3}}, {})


def test_what_others_have_is_waited_for():
    target = {T: frozenset({0, 1})}
    member = reconcile(at(0, {}), target, 6, owned_by_others((T, 1)), [])
    assert member == MemberAssignment(UNRELEASED, 6, 0, {T: {0: 6}}, {})
    member = reconcile(member, target, 6, owned_by_others((T, 1)), None)
    assert member.previous_member_epoch == 6
    assert reconcile(member, target, 6, owned_by_others((T, 1)), None) is member
    assert reconcile(member, target, 6, nobody, None).assigned == {T: {0: 6, 1: 6}}


def test_what_the_member_itself_was_giving_up_is_free():
    """It may get back what a later target gives it."""
    member = at(5, {T: {0: 3}}, UNREVOKED, {T: {1: 4}})
    back = reconcile(member, {T: frozenset({0, 1})}, 7, owned_by_others((T, 1)), [(T, [0])])
    assert back == MemberAssignment(STABLE, 7, 5, {T: {0: 3, 1: 7}}, {})


def test_a_state_that_is_not_known_starts_anew():
    member = reconcile(at(9, {}, UNKNOWN), {T: frozenset({0})}, 6, nobody, [])
    assert member == MemberAssignment(STABLE, 6, 9, {T: {0: 6}}, {})


def test_topics_that_are_no_longer_subscribed_to_go_without_an_assignment():
    member = at(5, {T: {0: 3}, U: {0: 4}})
    assert without_topics(member, {T, U}, None) is member
    assert without_topics(member, {T}, None) == MemberAssignment(UNREVOKED, 5, 5, {T: {0: 3}}, {U: {0: 4}})
    assert without_topics(member, {T}, [(T, [0])]) == MemberAssignment(STABLE, 5, 5, {T: {0: 3}}, {})
    giving_up = at(5, {T: {0: 3}}, UNREVOKED, {T: {1: 4}})
    both = without_topics(giving_up, {U}, None)
    assert (both.assigned, both.revoking) == ({}, {T: {0: 3, 1: 4}})


@pytest.mark.parametrize("seed", range(40))
def test_nobody_shares_a_partition_and_all_arrive(seed):
    rng = random.Random(seed)
    names = [f"m{number}" for number in range(rng.randint(2, 6))]
    members = dict.fromkeys(names, MemberAssignment())
    clients = {name: set() for name in names}
    targets, epoch = {name: {} for name in names}, 1

    def owner_epoch_of(topic_id, partition):
        owners = [m.member_epoch for m in members.values() if partition in m.held().get(topic_id, ())]
        return owners[0] if owners else -1

    def beat(name, tells=True):
        owned = [(T, sorted(clients[name]))] if tells else None
        members[name] = reconcile(members[name], targets[name], epoch, owner_epoch_of, owned)
        held = [partition for m in members.values() for partition in m.held().get(T, ())]
        assert len(held) == len(set(held))
        assert clients[name] <= set(members[name].held().get(T, ()))

    for _ in range(200):
        if rng.random() < 0.1:
            epoch += 1
            shares = {name: set() for name in names}
            for partition in range(8):
                shares[rng.choice(names)].add(partition)
            targets = {name: {T: frozenset(share)} if share else {} for name, share in shares.items()}
        name = rng.choice(names)
        beat(name, rng.random() < 0.7)
        if rng.random() < 0.7:
            clients[name] = set(members[name].assigned.get(T, ()))
    for _ in range(4):
        for name in names:
            beat(name)
            clients[name] = set(members[name].assigned.get(T, ()))
    for name, member in members.items():
        assert member.is_reconciled_to(epoch)
        assert clients[name] == set(targets[name].get(T, ()))
