"""Every command, refusal, transition and timer of the coordinators' machines, as transcripts that a person
can read. Together they show every error that a machine answers with, and every transition between states."""

import pathlib
import re

import pytest

from odradek.coordinator.groups import reconciliation
from odradek.coordinator.groups.classic_group import RULES, ClassicGroup, GroupState
from odradek.coordinator.groups.consumer_group import ConsumerGroup
from odradek.coordinator.streams import reconciliation as streams_reconciliation
from odradek.coordinator.streams.group import StreamsGroup
from odradek.coordinator.transactions.machine import TransactionMachine
from odradek.coordinator.transactions.state import COMES_FROM, TransactionState
from odradek.wire.messages.group_records import StreamsGroupCurrentMemberAssignmentKey
from tests.coordinator.stages.description_stage import DescriptionStage
from tests.coordinator.stages.group_stage import GroupStage
from tests.coordinator.stages.migration_stage import MigrationStage
from tests.coordinator.stages.share_stage import ShareStage
from tests.coordinator.stages.share_state_stage import ShareStateStage
from tests.coordinator.stages.streams_stage import StreamsStage
from tests.coordinator.stages.transaction_stage import TransactionStage
from tests.kit.transcript import Stage, check, rewrite

SOURCES = pathlib.Path(__file__).parents[2] / "coordinator"


class ConsumerStage(GroupStage):
    folder = "consumer_transcripts"


STAGES: tuple[type[Stage], ...] = (
    GroupStage,
    ConsumerStage,
    ShareStage,
    StreamsStage,
    DescriptionStage,
    MigrationStage,
    ShareStateStage,
    TransactionStage,
)
MODULES = {
    GroupStage: [
        "groups/classic_rebalance",
        "groups/classic_members",
        "groups/classic_membership",
        "groups/classic_group",
        "groups/classic_type",
        "groups/committed_offsets",
        "group_machine",
    ],
    ConsumerStage: [
        *("groups/consumer_membership", "groups/consumer_changes", "groups/consumer_group"),
        *(f"groups/epochs/{name}" for name in ("group", "membership", "fencing")),
    ],
    ShareStage: [
        *(f"shares/groups/{name}" for name in ("membership", "group", "partition_states", "share_type")),
        *("groups/epochs/membership", "groups/epochs/fencing"),
    ],
    StreamsStage: [
        *("streams/membership", "streams/group", "streams/topology", "streams/reconciliation"),
        *(f"groups/epochs/{name}" for name in ("group", "membership", "fencing")),
    ],
    DescriptionStage: ["streams/descriptions", "streams/description_keeping"],
    MigrationStage: ["groups/migration", "groups/conversion"],
    ShareStateStage: ["shares/state/machine"],
}
NO_ERRORS = {"NONE"}
NOBODY_MEETS = {"COORDINATOR_NOT_AVAILABLE"}
"""What a dead group would answer; it is in no machine any more."""


@pytest.mark.parametrize(
    ("stage_class", "path"),
    [
        pytest.param(stage_class, path, id=f"{stage_class.folder}/{path.stem}")
        for stage_class in STAGES
        for path in stage_class.transcripts()
    ],
)
def test_the_machine_does_what_the_transcript_says(stage_class, path):
    check(path, stage_class())


@pytest.mark.parametrize("stage_class", MODULES)
def test_every_error_has_a_transcript(stage_class):
    shown = set()
    for path in stage_class.transcripts():
        shown.update(re.findall(r"\b[A-Z_]+\b", path.read_text()))
    named = set()
    for module in MODULES[stage_class]:
        named.update(re.findall(r"ErrorCode\.([A-Z_]+)", (SOURCES / f"{module}.py").read_text()))
    assert named - NO_ERRORS - NOBODY_MEETS <= shown


def play(*stage_classes: type[Stage]) -> None:
    for stage_class in stage_classes:
        for path in stage_class.transcripts():
            rewrite(path, stage_class())


def test_every_transition_of_a_classic_group_has_a_transcript(monkeypatch):
    seen = set()

    def apply(group, key, value, become=ClassicGroup.apply):
        before = group.state
        is_alive = become(group, key, value)
        seen.add((before, group.state))
        return is_alive

    def transition(group, state, go=ClassicGroup.transition):
        before = group.state
        go(group, state)
        seen.add((before, state))

    monkeypatch.setattr(ClassicGroup, "apply", apply)
    monkeypatch.setattr(ClassicGroup, "transition", transition)
    play(GroupStage, MigrationStage)
    allowed = {(before, after) for after, rules in RULES.items() for before in rules.comes_from}
    assert allowed - {(GroupState.DEAD, GroupState.DEAD)} <= seen


def test_every_transition_of_a_consumer_has_a_transcript(monkeypatch):
    seen = set()

    def set_current(group, member, current, become=ConsumerGroup._set_current):
        seen.add((member.current.state, current.state))
        become(group, member, current)

    monkeypatch.setattr(ConsumerGroup, "_set_current", set_current)
    play(ConsumerStage, MigrationStage)
    states = set(reconciliation.MemberState) - {reconciliation.MemberState.UNKNOWN}
    assert {(before, after) for before in states for after in states} <= seen


def test_every_transition_of_a_streams_member_has_a_transcript(monkeypatch):
    seen = set()

    def apply(group, key, value, become=StreamsGroup._apply_current):
        member = group.members.get(key.member_id)
        before = None if member is None else member.current.state
        is_alive = become(group, key, value)
        if before is not None and value is not None:
            seen.add((before, group.members[key.member_id].current.state))
        return is_alive

    monkeypatch.setitem(StreamsGroup.appliers, StreamsGroupCurrentMemberAssignmentKey, apply)
    play(StreamsStage)
    states = set(streams_reconciliation.MemberState) - {streams_reconciliation.MemberState.UNKNOWN}
    assert {(before, after) for before in states for after in states} <= seen


def test_every_transition_of_a_transaction_has_a_transcript(monkeypatch):
    seen = set()

    def store(machine, transactional_id, transaction, record, out, keep=TransactionMachine._store):
        before = machine.transactions.get(transactional_id)
        seen.add((TransactionState.EMPTY if before is None else before.state, transaction.state))
        keep(machine, transactional_id, transaction, record, out)

    monkeypatch.setattr(TransactionMachine, "_store", store)
    play(TransactionStage)
    possible = {(before, after) for after, befores in COMES_FROM.items() for before in befores}
    assert {(one.label, other.label) for one, other in possible - seen} == set()
