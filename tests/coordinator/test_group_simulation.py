"""Groups of both protocols share their topics out, whatever happens to members, coordinator, topics and
network; and the simulation that says so finds the bugs that are planted in the coordinator."""

from collections.abc import Iterator
from dataclasses import replace

import pytest

from odradek.coordinator.effects import Append, Reply
from odradek.coordinator.group_machine import GroupMachine
from odradek.coordinator.groups import (
    classic_membership,
    consumer_changes,
    consumer_group,
    consumer_membership,
    conversion,
    migration,
    reconciliation,
)
from odradek.coordinator.groups.assignors import ASSIGNORS
from odradek.coordinator.groups.classic_group import ClassicGroup
from odradek.coordinator.groups.consumer_group import ConsumerGroup
from odradek.coordinator.groups.reconciliation import MemberAssignment
from tests.coordinator.group_world import (
    AlikeConsumer,
    AuditedWorld,
    ClassicConsumer,
    Consumer,
    CooperativeConsumer,
    RangeConsumer,
    World,
)
from tests.tiers import NIGHTLY


def groups_of(size: int) -> dict[str, list[type]]:
    return {
        "alike": [AlikeConsumer] * size,
        "different": [Consumer, Consumer, RangeConsumer] * (size // 3),
        "eager": [ClassicConsumer] * (size // 3),
        "cooperative": [CooperativeConsumer] * (size // 3),
        "upgraded": [AlikeConsumer, ClassicConsumer] * (size // 6),
        "migrating": [Consumer, CooperativeConsumer, CooperativeConsumer],
    }


def check(seed: int, size: int, milliseconds: int) -> None:
    world = World(seed, groups_of(size)).play(milliseconds)
    assert world.judge() == []
    assert world.crashes > 1
    assert len({epoch for _, _, epoch in world.owners}) > 10


@pytest.mark.parametrize("seed", range(3))
def test_no_partition_has_two_owners_and_a_quiet_group_converges(seed):
    check(seed, 18, 40_000)


@pytest.mark.deep
@pytest.mark.parametrize("seed", range(100, 110 if NIGHTLY else 103))
def test_the_same_with_hundreds_of_members(seed):
    check(seed, 90, 90_000)


# --- Planted bugs ---


MIXED = {
    "eager": [ClassicConsumer] * 4,
    "cooperative": [CooperativeConsumer] * 4,
    "upgraded": [AlikeConsumer, ClassicConsumer] * 3,
    "migrating": [Consumer, CooperativeConsumer, CooperativeConsumer],
    "going back": [CooperativeConsumer, AlikeConsumer, CooperativeConsumer],
    "going back eagerly": [ClassicConsumer, AlikeConsumer, ClassicConsumer],
}
CONSUMERS = {"alike": [AlikeConsumer] * 9, "different": [Consumer, RangeConsumer] * 5}


def worlds_of(groups: dict[str, list[type]]) -> Iterator[World]:
    return (World(seed, groups, log_trouble=0.01, loss=0.1) for seed in (202, 200, 201))


def found(groups: dict[str, list[type]] = CONSUMERS) -> bool:
    """Whether any of some worlds complains."""
    return any(world.finds(30_000) for world in worlds_of(groups))


def gives_away_what_is_not_given_up(patch) -> None:
    patch(reconciliation, "_still_owns", lambda owned, revoking: False)


def gives_what_others_still_have(patch) -> None:
    patch(consumer_group.ConsumerGroup, "owner_epoch_of", lambda group, topic_id, partition: -1)


def gives_one_partition_to_two(patch) -> None:
    def twice(spec, assign=ASSIGNORS["uniform"]):
        assignments = assign(spec)
        first, *_ = assignments
        topics = spec.members[first].topics & spec.partition_counts.keys()
        return assignments | {first: {topic_id: frozenset({0}) for topic_id in topics}}

    patch(consumer_changes, "ASSIGNORS", {"uniform": twice, "range": twice})


def leaves_partitions_out(patch) -> None:
    def fewer(spec, assign=ASSIGNORS["uniform"]):
        return {
            member_id: {topic_id: kept for topic_id, have in assignment.items() if (kept := have - {3})}
            for member_id, assignment in assign(spec).items()
        }

    patch(consumer_changes, "ASSIGNORS", {"uniform": fewer, "range": fewer})


def believes_in_the_dead(patch) -> None:
    patch(consumer_membership.ConsumerMembership, "expire", lambda *arguments: None)


def starts_without_sessions(patch) -> None:
    patch(consumer_membership.ConsumerMembership, "start", lambda *arguments: None)


def does_not_see_topics_change(patch) -> None:
    patch(consumer_membership.ConsumerMembership, "topics_changed", lambda *arguments: None)


def forgets_in_the_log_what_is_to_be_given_up(patch) -> None:
    def without(current, as_value=ConsumerGroup.records.current_value):
        kept = MemberAssignment(
            current.state, current.member_epoch, current.previous_member_epoch, current.assigned, {}
        )
        return as_value(kept)

    patch(ConsumerGroup, "records", replace(ConsumerGroup.records, current_value=without))


@pytest.mark.parametrize(
    "bug",
    [
        gives_away_what_is_not_given_up,
        gives_what_others_still_have,
        gives_one_partition_to_two,
        leaves_partitions_out,
        believes_in_the_dead,
        starts_without_sessions,
        does_not_see_topics_change,
        forgets_in_the_log_what_is_to_be_given_up,
    ],
)
def test_a_planted_bug_is_found(bug, monkeypatch):
    bug(monkeypatch.setattr)
    assert found()


def believes_in_dead_classic_members(patch) -> None:
    patch(classic_membership.Membership, "_expire_session", lambda *arguments: None)


def starts_without_classic_sessions(patch) -> None:
    patch(classic_membership.Membership, "start", lambda *arguments: None)


def keeps_its_generation(patch) -> None:
    def begins(group, begin=ClassicGroup.begin_generation):
        generation = group.generation
        begin(group)
        group.generation = generation or group.generation

    patch(ClassicGroup, "begin_generation", begins)


def waits_for_no_late_joiner(patch) -> None:
    patch(ClassicGroup, "has_all_members_joined", True)


def never_downgrades(patch) -> None:
    patch(migration.Migration, "_may_downgrade", lambda *arguments, **options: False)


def tells_no_classic_member_to_join(patch) -> None:
    patch(migration, "_has_to_join", lambda group, member: False)


def forgets_what_members_had_at_an_upgrade(patch) -> None:
    patch(conversion, "_assignment_of", lambda member, view: {})
    patch(conversion, "_add_free", lambda *arguments: None)


def forgets_what_members_have_at_a_downgrade(patch) -> None:
    patch(migration, "_has", lambda member: {})


def watches_no_session_of_an_upgraded_group(patch) -> None:
    patch(migration.Migration, "upgraded", lambda *arguments: None)


MIXED_BUGS = [
    believes_in_dead_classic_members,
    starts_without_classic_sessions,
    keeps_its_generation,
    waits_for_no_late_joiner,
    never_downgrades,
    tells_no_classic_member_to_join,
    forgets_what_members_had_at_an_upgrade,
    forgets_what_members_have_at_a_downgrade,
    watches_no_session_of_an_upgraded_group,
]


def test_the_world_of_consumers_is_in_order_without_a_planted_bug():
    assert not found()


def test_groups_of_both_protocols_are_in_order_without_a_planted_bug():
    """Their consumers come and go, and with them the type of the group."""
    types = set()
    for world in worlds_of(MIXED):
        assert world.play(30_000).judge() == []
        types |= world.types
    assert {("going back", "classic"), ("going back", "consumer")} <= types


@pytest.mark.deep
@pytest.mark.parametrize("bug", MIXED_BUGS)
def test_a_bug_that_is_planted_in_the_classic_protocol_is_found(bug, monkeypatch):
    bug(monkeypatch.setattr)
    assert found(MIXED)


class AnswersBeforeTheLogHasIt(GroupMachine):
    def handle(self, command, now_ms):
        return sorted(super().handle(command, now_ms), key=lambda effect: not isinstance(effect, Reply))


class ForgetsSomeRecords(GroupMachine):
    def handle(self, command, now_ms):
        effects = super().handle(command, now_ms)
        for effect in effects:
            if isinstance(effect, Append) and len(effect.records) > 2:
                effect.records.pop()
        return effects


def complaints_at_an_audit(seed: int, groups: dict[str, list[type]], machine_class=GroupMachine) -> list[str]:
    world = AuditedWorld(seed, groups, machine_class, log_trouble=0.01, loss=0.1)
    world.begin(5_000)
    return world.complaints


@pytest.mark.parametrize("seed", range(3))
def test_nobody_is_told_what_the_log_does_not_have(seed):
    assert not complaints_at_an_audit(seed, groups_of(12))


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("machine_class", [AnswersBeforeTheLogHasIt, ForgetsSomeRecords])
def test_a_planted_bug_of_the_machine_is_found_in_every_world(machine_class, seed):
    assert complaints_at_an_audit(seed, CONSUMERS, machine_class)
