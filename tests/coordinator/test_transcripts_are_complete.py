"""The transcripts show every error that groups answer with, and every transition between their states."""

import pathlib
import re

import pytest

from odradek.coordinator.groups import reconciliation
from odradek.coordinator.groups.classic_group import RULES, ClassicGroup, GroupState
from odradek.coordinator.groups.consumer_group import ConsumerGroup
from odradek.coordinator.streams import group as streams_group
from odradek.coordinator.streams import reconciliation as streams_reconciliation
from odradek.coordinator.streams.group import StreamsGroup
from odradek.wire.messages.group_records import StreamsGroupCurrentMemberAssignmentKey
from tests.coordinator import migration_transcript
from tests.coordinator.share_transcript import ShareStage
from tests.coordinator.streams_transcript import StreamsStage
from tests.coordinator.transcript import Stage, rewrite

HERE = pathlib.Path(__file__).parent
SOURCES = HERE.parents[1] / "coordinator"
CLASSIC, CONSUMER, SHARE, STREAMS, MIGRATION = (
    f"{prefix}transcripts" for prefix in ("", "consumer_", "share_", "streams_", "migration_")
)
STAGES = {
    CLASSIC: Stage,
    CONSUMER: Stage,
    SHARE: ShareStage,
    STREAMS: StreamsStage,
    MIGRATION: migration_transcript.Stage,
}
MODULES = {
    CLASSIC: [
        "groups/classic_rebalance",
        "groups/classic_members",
        "groups/classic_membership",
        "groups/classic_group",
        "groups/classic_type",
        "groups/committed_offsets",
        "group_machine",
    ],
    CONSUMER: ["groups/consumer_membership", "groups/consumer_changes", "groups/consumer_group"],
    SHARE: [f"share_groups/{name}" for name in ("membership", "group", "partition_states", "share_type")],
    STREAMS: ["streams/membership", "streams/group", "streams/topology", "streams/reconciliation"],
    MIGRATION: ["groups/migration", "groups/conversion"],
}
NO_ERRORS = {"NONE"}
NOBODY_MEETS = {"COORDINATOR_NOT_AVAILABLE"}
"""What a dead group would answer; it is in no machine any more."""


@pytest.mark.parametrize("folder", MODULES)
def test_every_error_has_a_transcript(folder):
    shown = set()
    for path in (HERE / folder).glob("*.txt"):
        shown.update(re.findall(r"\b[A-Z_]+\b", path.read_text()))
    named = set()
    for module in MODULES[folder]:
        named.update(re.findall(r"ErrorCode\.([A-Z_]+)", (SOURCES / f"{module}.py").read_text()))
    assert named - NO_ERRORS - NOBODY_MEETS <= shown


def play(*folders: str) -> None:
    for folder in folders:
        for path in sorted((HERE / folder).glob("*.txt")):
            rewrite(path, STAGES[folder]())


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
    play(CLASSIC, MIGRATION)
    allowed = {(before, after) for after, rules in RULES.items() for before in rules.comes_from}
    assert allowed - {(GroupState.DEAD, GroupState.DEAD)} <= seen


def test_every_transition_of_a_consumer_has_a_transcript(monkeypatch):
    seen = set()

    def set_current(group, member, current, become=ConsumerGroup._set_current):
        seen.add((member.current.state, current.state))
        become(group, member, current)

    monkeypatch.setattr(ConsumerGroup, "_set_current", set_current)
    play(CONSUMER, MIGRATION)
    states = set(reconciliation.MemberState) - {reconciliation.MemberState.UNKNOWN}
    assert {(before, after) for before in states for after in states} <= seen


def test_every_transition_of_a_streams_member_has_a_transcript(monkeypatch):
    seen = set()

    def apply(group, key, value, become=StreamsGroup._apply_current):
        member = group.members.get(key.member_id)
        before = None if member is None else member.tasks.state
        is_alive = become(group, key, value)
        if before is not None and value is not None:
            seen.add((before, group.members[key.member_id].tasks.state))
        return is_alive

    monkeypatch.setitem(streams_group._APPLY, StreamsGroupCurrentMemberAssignmentKey, apply)
    play(STREAMS)
    states = set(streams_reconciliation.MemberState) - {streams_reconciliation.MemberState.UNKNOWN}
    assert {(before, after) for before in states for after in states} <= seen
