"""When offsets end, in groups of every kind: whose time runs since when, and what is spared.

Classic groups have a transcript of their own (`transcripts/expiry.txt`).
"""

import pytest

from odradek.coordinator.cluster.view import ClusterView
from odradek.coordinator.effects import Append, Reply
from odradek.coordinator.group_machine import EXPIRE_OFFSETS, GroupMachine
from odradek.coordinator.groups.commands import EndOffsets, RemoveTopics
from odradek.coordinator.groups.record_codec import Kind, decode_key
from odradek.coordinator.groups.settings import GroupSettings
from odradek.wire.end_marker import EndMarker
from odradek.wire.errors import ErrorCode
from odradek.wire.messages.group_records import (
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMemberMetadataValue,
    ConsumerGroupMetadataKey,
    ConsumerGroupMetadataValue,
)
from odradek.wire.schema import Message
from tests.coordinator import group_requests as requests

RETENTION_MS = 100_000
OLD_ID, NEW_ID = b"o" * 16, b"n" * 16


class Topics:
    """The cluster that the machine sees."""

    view = ClusterView()

    @classmethod
    def current(cls):
        return cls.view


@pytest.fixture
def machine():
    machine = GroupMachine(GroupSettings(offsets_retention_ms=RETENTION_MS), lambda: "1", Topics.current)
    machine.start(0)
    yield machine
    Topics.view = ClusterView()


def ask(machine, command, now_ms=0):
    """The answer to a request, or to a command."""
    if isinstance(command, Message):
        command = requests.asked(command, "a")
    (answer,) = [one.response for one in machine.handle(command, now_ms) if isinstance(one, Reply)]
    return answer


def commit(machine, *topics, now_ms=0, topic_id=bytes(16), **fields):
    offsets = [(topic, 0, 1) for topic in topics]
    command = requests.commit("g", offsets, ids=dict.fromkeys(topics, topic_id), **fields)
    assert set(requests.errors_in(ask(machine, command, now_ms))) <= {ErrorCode.NONE}


def write(machine, topic, producer_id=7, topic_id=bytes(16)):
    """Commits with a transaction."""
    request = requests.commit_in_transaction("g", producer_id, [(topic, 0, 1)])
    request.topics[0].topic_id = topic_id
    ask(machine, request)


def held(machine):
    return {topic for topic, _ in requests.results_in(ask(machine, requests.fetch("g")))}


def expire(machine, now_ms):
    """Looks for what has expired; the keys that got a tombstone."""
    keys = []
    for effect in machine.expire(EXPIRE_OFFSETS, now_ms):
        if isinstance(effect, Append):
            assert all(value is None for _, value, _ in effect.records)
            keys += [decode_key(key) for key, _, _ in effect.records]
    return keys


def put_member(machine, *topics, member_id="m", now_ms=0):
    """Makes a member of a consumer group, or (no topics) takes it away."""
    value = None
    if topics:
        value = ConsumerGroupMemberMetadataValue(
            instance_id=None,
            rack_id=None,
            client_id="c",
            client_host="/h",
            subscribed_topic_names=list(topics),
            subscribed_topic_regex=None,
            server_assignor=None,
        )
    records = [
        (ConsumerGroupMetadataKey(group_id="g"), ConsumerGroupMetadataValue(epoch=1)),
        (ConsumerGroupMemberMetadataKey(group_id="g", member_id=member_id), value),
    ]
    assert machine.store("g", records, now_ms, [])


def test_a_consumer_group_keeps_what_its_members_subscribe_to_and_the_rest_for_its_time(machine):
    put_member(machine, "t")
    commit(machine, "t", "old", generation=0, member_id="m")
    commit(machine, "young", now_ms=50_000, generation=0, member_id="m")
    assert expire(machine, RETENTION_MS - 1) == []
    assert expire(machine, RETENTION_MS) == [(Kind.OFFSET, ("g", "old", 0))]
    assert held(machine) == {"t", "young"}
    assert expire(machine, 10 * RETENTION_MS) == [(Kind.OFFSET, ("g", "young", 0))]
    assert not machine.groups["g"].is_empty


def test_in_a_consumer_group_that_became_empty_the_time_runs_since_the_commit(machine):
    """Unlike in a classic one (ConsumerGroup.offsetExpirationCondition)."""
    put_member(machine, "t")
    commit(machine, "t", generation=0, member_id="m")
    put_member(machine, now_ms=99_000)
    assert machine.groups["g"].is_empty
    assert expire(machine, RETENTION_MS) == [
        (Kind.OFFSET, ("g", "t", 0)),
        *((Kind.GROUP, key) for key in _keys_of_an_empty_group()),
    ]
    assert machine.groups == {}


def _keys_of_an_empty_group():
    machine = GroupMachine(GroupSettings(), lambda: "1")
    put_member(machine, "t")
    put_member(machine)
    return machine.groups["g"].keys()


def test_an_empty_group_without_offsets_goes_with_all_its_records(machine):
    put_member(machine, "t")
    assert expire(machine, 0) == []
    put_member(machine)
    assert [kind for kind, _ in expire(machine, 0)] == [Kind.GROUP] * len(_keys_of_an_empty_group())
    assert machine.groups == {}


def test_what_a_transaction_is_about_to_replace_stays_and_so_does_the_group(machine):
    commit(machine, "t", "u")
    write(machine, "t")
    assert expire(machine, RETENTION_MS) == [(Kind.OFFSET, ("g", "u", 0))]
    ask(machine, EndOffsets(EndMarker(7, 0, 0, False)), RETENTION_MS)
    assert expire(machine, RETENTION_MS)[0] == (Kind.OFFSET, ("g", "t", 0))
    assert machine.groups == {}


def test_a_group_that_only_a_transaction_has_written_to_stays_until_its_end(machine):
    write(machine, "t")
    assert expire(machine, 10 * RETENTION_MS) == []
    ask(machine, EndOffsets(EndMarker(7, 0, 0, False)))
    assert [kind for kind, _ in expire(machine, 10 * RETENTION_MS)] == [Kind.GROUP]


@pytest.mark.parametrize("is_pending", [False, True])
def test_only_offsets_of_the_topic_that_is_gone_are_removed(machine, is_pending):
    def put(topic, topic_id):
        if is_pending:
            write(machine, topic, topic_id=topic_id)
        else:
            commit(machine, topic, topic_id=topic_id)

    put("gone", OLD_ID)
    put("new", NEW_ID)
    put("renewed", OLD_ID)
    put("unknown", bytes(16))
    put("other", OLD_ID)
    ask(machine, RemoveTopics({"gone": None, "new": NEW_ID, "renewed": NEW_ID, "unknown": NEW_ID}))
    if is_pending:
        ask(machine, EndOffsets(EndMarker(7, 0, 0, True)))
    assert held(machine) == {"new", "unknown", "other"}


def test_offsets_of_a_subscribed_topic_cannot_be_deleted_by_others(machine):
    put_member(machine, "t")
    commit(machine, "t", "u", generation=0, member_id="m")
    answer = ask(machine, requests.delete_offsets("g", [("t", 0), ("u", 0), ("none", 0)]))
    assert requests.errors_in(answer) == [ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC, ErrorCode.NONE, ErrorCode.NONE]
    assert held(machine) == {"t"}
    put_member(machine)
    answer = ask(machine, requests.delete_offsets("g", [("t", 0)]))
    assert requests.errors_in(answer) == [ErrorCode.NONE]
    assert held(machine) == set()
