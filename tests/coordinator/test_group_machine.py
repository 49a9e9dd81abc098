"""What does not fit a transcript: texts that no record can hold, and the fates of a group by hand."""

import gc
from types import FunctionType, ModuleType

import pytest

from odradek.coordinator.asked import Asked
from odradek.coordinator.effects import Append, Reply
from odradek.coordinator.group_machine import RECORDS_PER_APPEND, GroupMachine
from odradek.coordinator.groups.classic_group import RULES, GroupState
from odradek.coordinator.groups.settings import GroupSettings
from odradek.wire.errors import ErrorCode
from odradek.wire.schema import Message
from tests.coordinator import group_requests as requests

TOO_LONG = "ü" * 20_000


@pytest.fixture
def settings():
    return GroupSettings(offset_metadata_max_bytes=100_000)


@pytest.fixture
def machine(settings):
    return GroupMachine(settings, lambda: "1")


def asked(request, **client):
    return requests.asked(request, "a", **client)


def join(version=9, client_id="", **changes):
    options = {"protocols": [("range", b"")], **changes}
    return asked(requests.join(**options), version=version, client_id=client_id)


def commit(offsets, group_id="g", **fields):
    return asked(requests.commit(group_id, offsets, **fields))


@pytest.mark.parametrize(
    "command",
    [
        join(group_id=TOO_LONG),
        join(client_id=TOO_LONG),
        join(group_instance_id=TOO_LONG),
        join(protocol_type=TOO_LONG),
        join(protocols=[(TOO_LONG, b"")]),
        commit([("t", 0, 1)], TOO_LONG),
        asked(requests.commit_in_transaction(TOO_LONG, 7, [("t", 0, 1)])),
    ],
)
def test_a_text_that_no_record_can_hold_is_refused_and_changes_nothing(machine, command):
    (reply,) = machine.handle(command, 0)
    codes = (
        requests.errors_in(reply.response)
        if hasattr(reply.response, "topics")
        else [reply.response.error_code]
    )
    assert codes == [ErrorCode.UNKNOWN_SERVER_ERROR]
    assert not machine.groups


def test_metadata_that_no_record_can_hold_is_too_large_whatever_the_limit(machine):
    offsets = [("t", 0, 1, -1, TOO_LONG), ("t", 1, 1, -1, "ü" * 16_000)]
    append, reply = machine.handle(commit(offsets), 0)
    assert requests.errors_in(reply.response) == [ErrorCode.OFFSET_METADATA_TOO_LARGE, ErrorCode.NONE]
    assert len(append.records) == 1


def test_the_metadata_limit_counts_as_java_does(machine, settings):
    settings.offset_metadata_max_bytes = 4
    offsets = [("t", 0, 1, -1, "😀😀"), ("t", 1, 1, -1, "😀😀x")]
    _, reply = machine.handle(commit(offsets), 0)
    assert requests.errors_in(reply.response) == [ErrorCode.NONE, ErrorCode.OFFSET_METADATA_TOO_LARGE]


def test_the_longest_client_id_still_gives_a_member_id_that_can_be_kept(machine):
    machine.handle(join(client_id="c" * 32_767, version=3), 0)
    effects = machine.expire(("join", "g"), 3_000)
    (reply,) = (effect for effect in effects if isinstance(effect, Reply))
    assert reply.response.error_code is ErrorCode.NONE
    assert len(reply.response.member_id) < 32_000


def test_a_big_deletion_is_spread_over_batches(machine, settings):
    count = RECORDS_PER_APPEND * 2 + 5
    offsets = [("t", partition, 1) for partition in range(count)]
    settings.append_max_bytes = 10**9
    machine.handle(commit(offsets), 0)
    effects = machine.expire(("expire_offsets",), 8 * 24 * 3_600_000)
    sizes = [len(effect.records) for effect in effects if isinstance(effect, Append)]
    assert sizes == [RECORDS_PER_APPEND, RECORDS_PER_APPEND, 6]
    assert not machine.groups


def test_every_state_has_rules_and_can_be_left():
    assert RULES.keys() == set(GroupState)
    for state in set(GroupState) - {GroupState.DEAD}:
        assert any(
            state in rules.comes_from for target, rules in RULES.items() if target is not GroupState.DEAD
        )
        assert state in RULES[GroupState.DEAD].comes_from


def test_a_retention_without_end_is_taken_as_the_longest_there_is(machine):
    """It overflowed the record's field, and every group of the partition had to be loaded again."""
    command = commit([("t", 0, 1)], retention_time_ms=2**63 - 1)
    append, reply = machine.handle(command, 1_700_000_000_000)
    assert requests.errors_in(reply.response) == [ErrorCode.NONE]
    assert isinstance(append, Append)
    assert machine.offsets.get("g", "t", 0).expire_timestamp_ms == 2**63 - 1


UNSEEN = (type, FunctionType, ModuleType, requests.Named)


def reachable(root):
    """All objects that an object holds, directly or not, except by tickets; no classes and functions."""
    found, left = {}, [root]
    while left:
        one = left.pop()
        if id(one) not in found and not isinstance(one, UNSEEN):
            found[id(one)] = one
            left += gc.get_referents(one)
    return found.values()


def test_a_machine_keeps_no_request(machine):
    """Messages are mutable: whoever has sent one may change it."""
    for command in (
        join(version=3),
        asked(requests.sync("g", 1, "-1", {"-1": b"all"})),
        asked(requests.beat("g", 1, "-1")),
        commit([("t", 0, 1)], group_id="other"),
        asked(requests.commit_in_transaction("other", 7, [("t", 1, 1)])),
        asked(requests.fetch("other")),
        asked(requests.delete_offsets("other", [("t", 0)])),
        asked(requests.describe("g")),
        asked(requests.delete("other")),
        asked(requests.leave("g", "-1")),
    ):
        machine.handle(command, 0)
        kept = [one for one in reachable(machine) if isinstance(one, Message | Asked)]
        assert not [one for one in kept if not type(one).__name__.endswith("Response")]
        machine.expire(("join", "g"), 3_000)
