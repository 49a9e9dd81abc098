"""What clients of the classic protocol may send in sizes and shapes that nobody means well: bounded, and
nobody else's problem."""

import struct
import tracemalloc

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from odradek.coordinator.effects import Append, Reply
from odradek.coordinator.group_machine import GroupMachine
from odradek.coordinator.groups import classic_group
from odradek.coordinator.groups.classic_group import GroupState
from odradek.coordinator.groups.record_codec import subscribed_topics
from odradek.coordinator.groups.settings import GroupSettings
from odradek.wire.errors import ErrorCode
from odradek.wire.messages import consumer_protocol
from odradek.wire.messages.consumer_protocol import ConsumerProtocolSubscription
from tests.coordinator import group_requests as requests
from tests.tiers import examples

MIB = 1_048_576


class Coordinator:
    """A machine that answers at once, with ids that count up."""

    def __init__(self, **settings) -> None:
        self.count = 0
        self.settings = GroupSettings(group_initial_rebalance_delay_ms=0, **settings)
        self.machine = GroupMachine(self.settings, self.suffix)
        self.replies: dict = {}
        self.appended_bytes = 0

    def suffix(self) -> str:
        self.count += 1
        return str(self.count)

    def carry_out(self, effects) -> None:
        for effect in effects:
            if isinstance(effect, Reply):
                self.replies[effect.ticket] = effect.response
            elif isinstance(effect, Append):
                self.appended_bytes += sum(len(key) + len(value or b"") for key, value, _ in effect.records)

    def ask(self, request, ticket, now_ms=0, version=9):
        """The answer, None while it is parked."""
        self.carry_out(self.machine.handle(requests.asked(request, ticket, version), now_ms))
        return self.replies.get(ticket)

    def expire(self, key, now_ms) -> None:
        self.carry_out(self.machine.expire(key, now_ms))

    def join(self, ticket, group_id="g", metadata=b"", member_id="", now_ms=0):
        request = requests.join(group_id, member_id, [("range", metadata)], 10_000, 30_000)
        return self.ask(request, str(ticket), now_ms, version=3)

    def settle(self, group_id="g") -> str:
        """A group with one member, which leads."""
        self.join("one", group_id, subscription(["t"]))
        self.expire(("join", group_id), 0)
        member_id = self.replies["one"].member_id
        assert self.sync(member_id, {member_id: b"all"}, group_id).error_code is ErrorCode.NONE
        return member_id

    def sync(self, member_id, assignments, group_id="g", generation=1):
        request = requests.sync(group_id, generation, member_id, assignments)
        return self.ask(request, f"sync {member_id}")


def subscription(topics, version=1) -> bytes:
    return consumer_protocol.encode(ConsumerProtocolSubscription(topics=topics, owned_partitions=[]), version)


def test_an_assignment_that_no_record_can_hold_is_refused_and_the_members_join_again():
    coordinator = Coordinator()
    other = coordinator.settle("other")
    appended_before = coordinator.appended_bytes
    coordinator.join("a", metadata=subscription(["t"]))
    coordinator.join("b", metadata=subscription(["t"]))
    coordinator.expire(("join", "g"), 0)
    coordinator.expire(("join", "g"), 0)
    leader, follower = coordinator.replies["a"].member_id, coordinator.replies["b"].member_id
    assert coordinator.sync(follower, {}) is None
    refused = coordinator.sync(leader, {leader: bytes(10 * MIB), follower: b"x"})
    assert refused.error_code is ErrorCode.UNKNOWN_SERVER_ERROR
    assert coordinator.replies[f"sync {follower}"].error_code is ErrorCode.UNKNOWN_SERVER_ERROR
    assert coordinator.appended_bytes - appended_before < 1_000
    assert coordinator.machine.groups["g"].state is GroupState.PREPARING_REBALANCE
    # The group goes on with an assignment that fits, and the other one never noticed.
    coordinator.join("a2", metadata=subscription(["t"]), member_id=leader)
    coordinator.join("b2", metadata=subscription(["t"]), member_id=follower)
    assert coordinator.sync(leader, {leader: b"y"}, generation=2).assignment == b"y"
    heartbeat = requests.beat("other", 1, other)
    assert coordinator.ask(heartbeat, "h").error_code is ErrorCode.NONE


def test_an_assignment_of_ten_megabytes_passes_where_the_topic_takes_it():
    coordinator = Coordinator(append_max_bytes=16 * MIB)
    member_id = coordinator.settle()
    coordinator.join("again", metadata=subscription(["t"]), member_id=member_id)
    large = bytes(10 * MIB)
    assert coordinator.sync(member_id, {member_id: large}, generation=2).assignment == large


def test_assignments_for_members_that_are_none_are_dropped():
    coordinator = Coordinator()
    coordinator.join("a", metadata=subscription(["t"]))
    coordinator.expire(("join", "g"), 0)
    leader = coordinator.replies["a"].member_id
    strangers = {f"stranger {number}": bytes(1_000) for number in range(5_000)}
    assert coordinator.sync(leader, {leader: b"mine", **strangers}).assignment == b"mine"
    assert coordinator.appended_bytes < 1_000


def test_a_thousand_joins_without_a_sync_leave_an_empty_group():
    coordinator = Coordinator()
    for number in range(1_000):
        coordinator.join(number, metadata=subscription(["t"]))
    coordinator.expire(("join", "g"), 0)
    coordinator.expire(("join", "g"), 0)
    answers = coordinator.replies.values()
    assert {answer.error_code for answer in answers} == {ErrorCode.NONE}
    assert sorted(len(answer.members) for answer in answers)[-2:] == [0, 1_000]
    coordinator.expire(("sync", "g"), 30_000)
    group = coordinator.machine.groups["g"]
    assert (group.state, len(group.members), len(group.pending_sync)) == (GroupState.EMPTY, 0, 0)
    assert not group.static_members
    assert group.awaiting_join_count == 0


def test_joins_that_are_only_ever_begun_take_bounded_memory():
    """Each asks for an id, in the hope that the broker keeps what came with the request."""
    coordinator = Coordinator()
    metadata = bytes(10_000)

    def begin(count):
        for _ in range(count):
            request = requests.join("g", "", [("range", metadata)], 10_000)
            assert coordinator.ask(request, "t").error_code is ErrorCode.MEMBER_ID_REQUIRED

    begin(10_000)
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        begin(2_000)
        after, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(coordinator.machine.groups["g"].pending_members) == 10_000
    assert after - before < MIB


def test_a_subscription_of_ten_thousand_topics_is_known_topic_by_topic():
    coordinator = Coordinator()
    topics = [f"topic-{number}" for number in range(10_000)]
    coordinator.join("a", metadata=subscription(topics))
    coordinator.expire(("join", "g"), 0)
    group = coordinator.machine.groups["g"]
    assert group.is_subscribed_to("topic-9999")
    assert not group.is_subscribed_to("topic-10000")


def test_subscriptions_are_read_once_in_a_generation_and_the_same_one_once_for_all(monkeypatch):
    read = []

    def count(metadata, parse=classic_group.subscribed_topics):
        read.append(metadata)
        return parse(metadata)

    monkeypatch.setattr(classic_group, "subscribed_topics", count)
    coordinator = Coordinator()
    for number in range(100):
        coordinator.join(number, metadata=subscription([f"topic-{number % 3}", "t"]))
    coordinator.expire(("join", "g"), 0)
    coordinator.expire(("join", "g"), 0)
    member_ids = [coordinator.replies[str(number)].member_id for number in range(100)]
    coordinator.sync(member_ids[0], dict.fromkeys(member_ids, b"all"))
    group = coordinator.machine.groups["g"]
    assert group.state is GroupState.STABLE
    assert group.subscriptions.topics == {"t", "topic-0", "topic-1", "topic-2"}
    assert len(read) == 3
    # One that leaves is reason to read again, what the others offer only.
    for member_id in member_ids[2::3]:
        coordinator.ask(requests.leave("g", member_id), f"leave {member_id}")
    staying = [member_id for place, member_id in enumerate(member_ids) if place % 3 != 2]
    for place, member_id in enumerate(staying):
        metadata = subscription([f"topic-{place % 2}", "t"])
        coordinator.join(f"again {member_id}", metadata=metadata, member_id=member_id)
    assert coordinator.sync(staying[0], {}, generation=2).error_code is ErrorCode.NONE
    assert group.subscriptions.topics == {"t", "topic-0", "topic-1"}
    assert len(read) == 5


LYING = [
    b"",
    b"\x00",
    b"\x00\x00",
    b"\x00\x00\x7f\xff\xff\xff",  # two thousand million topics
    b"\x00\x00\xff\xff\xff\xff",  # a null list
    b"\x00\x00\x00\x00\x00\x01\x7f\xff",  # a name that is longer than what follows
    b"\x00\x00\x00\x00\x00\x01\xff\xff",  # a name of length -1
    b"\x00\x00\x00\x00\x00\x00\x7f\xff\xff\xff",  # user data that is longer than what follows
    b"\xff\xff" + subscription(["t"])[2:],  # version -1
]


@pytest.mark.parametrize("metadata", LYING, ids=lambda metadata: metadata[:12].hex() or "nothing")
def test_metadata_that_lies_about_its_lengths_hides_the_subscription_and_nothing_else(metadata):
    coordinator = Coordinator()
    coordinator.join("liar", metadata=metadata)
    coordinator.join("honest", metadata=subscription(["t"]))
    coordinator.expire(("join", "g"), 0)
    coordinator.expire(("join", "g"), 0)
    liar, honest = coordinator.replies["liar"], coordinator.replies["honest"]
    assert (liar.error_code, honest.error_code) == (ErrorCode.NONE, ErrorCode.NONE)
    assert [member.metadata for member in liar.members] == [metadata, subscription(["t"])]
    # Since it may use any topic, all offsets of the group are in use.
    answer = coordinator.ask(requests.delete_offsets("g", [("elsewhere", 0)]), "d")
    assert requests.errors_in(answer) == [ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC]


@given(st.binary(max_size=64))
def test_any_bytes_are_a_subscription_or_none(metadata):
    topics = subscribed_topics(metadata)
    assert topics is None or all(isinstance(topic, str) for topic in topics)


@settings(max_examples=examples(60))
@given(st.lists(st.text(max_size=20), max_size=20), st.integers(0, 3), st.binary(max_size=20))
def test_subscriptions_of_every_version_are_read_whatever_follows_them(topics, version, rest):
    later = struct.pack(">h", version + 40) + subscription(topics, version)[2:]
    for metadata in (subscription(topics, version), subscription(topics, version) + rest, later):
        assert subscribed_topics(metadata) == frozenset(topics)
