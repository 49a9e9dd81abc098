"""Members of streams groups in states that no transcript reaches, and records as older brokers wrote them."""

import pytest

from odradek.coordinator.streams.assignor import TaskAssignment
from odradek.coordinator.streams.group import StreamsGroup
from odradek.coordinator.streams.reconciliation import (
    HeldTasks,
    MemberState,
    MemberTasks,
    TaskOwners,
    reconcile,
)
from odradek.wire.errors import ErrorCode, KafkaError
from odradek.wire.messages.group_records import (
    AssignedTaskIds,
    StreamsGroupCurrentMemberAssignmentKey,
    StreamsGroupCurrentMemberAssignmentValue,
    StreamsGroupMemberMetadataKey,
    StreamsGroupMemberMetadataValue,
)

ONE, BOTH = {"0": frozenset({0})}, {"0": frozenset({0, 1})}


def test_a_member_in_a_state_of_a_later_broker_begins_anew_without_tasks():
    member = MemberTasks(3, 2, MemberState.UNKNOWN, HeldTasks({"0": {0: 2}}))
    owners = TaskOwners()
    owners.take("p", member.assigned)
    for owned in (None, TaskAssignment(ONE)):
        with pytest.raises(KafkaError) as refused:
            reconcile(member, TaskAssignment(BOTH), 5, owners, "p", owned)
        assert refused.value.code is ErrorCode.FENCED_MEMBER_EPOCH
    begun = reconcile(member, TaskAssignment(BOTH), 5, owners, "p", TaskAssignment())
    assert (begun.member_epoch, begun.state) == (5, MemberState.STABLE)
    assert begun.assigned.active == {"0": {0: 2, 1: 5}}


def test_a_copy_in_the_same_process_keeps_a_task_from_a_member():
    owners = TaskOwners()
    owners.take("p", HeldTasks(standby=ONE))
    waiting = reconcile(MemberTasks(), TaskAssignment(BOTH), 2, owners, "p", TaskAssignment())
    assert (waiting.state, waiting.assigned.active) == (MemberState.UNRELEASED_TASKS, {"0": {1: 2}})
    elsewhere = reconcile(MemberTasks(), TaskAssignment(BOTH), 2, owners, "q", TaskAssignment())
    assert elsewhere.state is MemberState.STABLE


def test_a_warm_up_task_of_a_record_is_kept_and_given_up_like_any_other():
    member = MemberTasks(2, 1, MemberState.STABLE, HeldTasks(warmup=ONE))
    revoking = reconcile(member, TaskAssignment(), 3, TaskOwners(), "p", None)
    assert (revoking.state, revoking.to_revoke.warmup) == (MemberState.UNREVOKED_TASKS, ONE)
    done = reconcile(revoking, TaskAssignment(), 3, TaskOwners(), "p", TaskAssignment())
    assert (done.state, done.member_epoch, done.assigned.is_empty) == (MemberState.STABLE, 3, True)


def listed(*partitions, epochs=None):
    return [AssignedTaskIds(subtopology_id="0", partitions=list(partitions), assignment_epochs=epochs)]


STABLE, REVOKING, WAITING = MemberState.STABLE, MemberState.UNREVOKED_TASKS, MemberState.UNRELEASED_TASKS


@pytest.mark.parametrize(
    ("number", "revokes", "state"),
    [
        # As Kafka counts.
        *((1, False, STABLE), (2, True, REVOKING), (3, False, WAITING)),
        # As builds before 0.1.0 did.
        *((0, False, STABLE), (1, True, REVOKING), (2, False, WAITING)),
    ],
)
def test_states_are_read_as_kafka_counts_them_and_as_early_builds_did(number, revokes, state):
    group = StreamsGroup("g")
    value = StreamsGroupCurrentMemberAssignmentValue(
        member_epoch=2,
        previous_member_epoch=1,
        state=number,
        active_tasks=listed(0, 1),
        standby_tasks=[],
        warmup_tasks=[],
        active_tasks_pending_revocation=listed(2) if revokes else [],
        standby_tasks_pending_revocation=[],
        warmup_tasks_pending_revocation=[],
    )
    assert group.apply(StreamsGroupCurrentMemberAssignmentKey(group_id="g", member_id="m"), value)
    current = group.members["m"].current
    assert current.state is state
    assert group.records.current("g", "m", current)[1].state == [STABLE, REVOKING, WAITING].index(state) + 1


def test_records_may_come_in_any_order_and_without_epochs():
    """As compaction leaves them: what a member runs before who it is, the next owner before the last one."""
    group = StreamsGroup("g")

    def current(member_id, active, epoch):
        key = StreamsGroupCurrentMemberAssignmentKey(group_id="g", member_id=member_id)
        value = StreamsGroupCurrentMemberAssignmentValue(
            member_epoch=epoch,
            previous_member_epoch=epoch - 1,
            state=9,
            active_tasks=active,
            standby_tasks=[],
            warmup_tasks=[],
            active_tasks_pending_revocation=[],
            standby_tasks_pending_revocation=[],
            warmup_tasks_pending_revocation=[],
        )
        assert group.apply(key, value)

    current("new", listed(0, 1), 7)
    current("old", listed(1, epochs=[3]), 5)
    current("old", listed(epochs=[]), 8)
    metadata = StreamsGroupMemberMetadataValue(
        instance_id=None,
        rack_id=None,
        client_id="c",
        client_host="/h",
        topology_epoch=0,
        process_id="p",
        client_tags=[],
    )
    assert group.apply(StreamsGroupMemberMetadataKey(group_id="g", member_id="new"), metadata)
    member = group.members["new"]
    assert (member.current.state, member.metadata.process_id) == (MemberState.UNKNOWN, "p")
    assert member.current.assigned.active == {"0": {0: 7, 1: 7}}
    assert group.owners.blocks_active(("0", 1), "p", has_copy=False)
    assert group.owners.blocks_copy(("0", 1), "p", is_running=False, has_copy=False)
    assert not group.owners.blocks_copy(("0", 1), "", is_running=False, has_copy=False)
    assert group.members["old"].current.assigned.is_empty
