"""What no sound client sends: Kafka's own error, bounded memory, and other groups do not notice."""

from __future__ import annotations

import contextlib
import dataclasses
import pathlib
import re
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from compat_tests.differential.harness import CLOSED, NO_ANSWER, Pair, Side
from compat_tests.differential.topics import metadata_of
from compat_tests.groups.comparison import Both
from compat_tests.kit.group_wire import (
    LONG_MS,
    WireMember,
    assignment,
    commit,
    commit_request,
    form,
    state_of,
    subscription,
    wait_for_coordinator,
)
from odradek.wire.errors import ErrorCode
from odradek.wire.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from odradek.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest, TopicPartitions
from odradek.wire.messages.heartbeat import HeartbeatRequest
from odradek.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from odradek.wire.messages.leave_group import LeaveGroupRequest, MemberIdentity
from odradek.wire.messages.sync_group import SyncGroupRequest

pytestmark = pytest.mark.xdist_group("beside-kafka")

BYSTANDER = "bystander"
PATIENCE_S = 2.0
"""The longest that another group may wait meanwhile, on a machine that is busy with tests."""
MEGABYTE = 1_000_000
JOINS = 1000


@pytest.fixture(scope="module")
def topic(both: Both) -> str:
    both.create_topic("bad-input", 2)
    return "bad-input"


@pytest.fixture(scope="module")
def _bystanders(both: Both, topic: str) -> dict[str, WireMember]:
    members = {}
    for node in both.nodes:
        members[node.name] = WireMember(node.side, BYSTANDER, BYSTANDER, subscription(topic))
        form([members[node.name]], [{topic: [0, 1]}])
    return members


@pytest.fixture
def bystander(_bystanders: dict[str, WireMember], topic: str) -> Iterator[Callable[[], None]]:
    """A stable group on our broker; called, and at the end, it shows that it is served as always."""
    member = _bystanders["odradek"]

    def is_served() -> None:
        began = time.monotonic()
        assert member.heartbeat() == 0
        who = {"member": member.member_id, "generation": member.generation}
        commit(member.side, BYSTANDER, {(topic, 0): 1}, **who)
        assert state_of(member.side, BYSTANDER) == ("Stable", 1)
        took = time.monotonic() - began
        assert took < PATIENCE_S, f"another group waited {took:.1f} s"

    yield is_served
    is_served()


def rss_bytes(both: Both) -> int:
    status = pathlib.Path(f"/proc/{both.odradek_pid}/status").read_text()
    found = re.search(r"VmRSS:\s+(\d+) kB", status)
    assert found is not None
    return int(found[1]) * 1024


@contextlib.contextmanager
def bounded_memory(both: Both, most_bytes: int) -> Iterator[None]:
    """What is done within may cost our broker so much, and no more."""
    before = rss_bytes(both)
    yield
    grown = rss_bytes(both) - before
    assert grown < most_bytes, f"{grown / MEGABYTE:.0f} MB more than before"


class Groups:
    """A stable group of one member on each side, and the names under which the two are compared."""

    def __init__(self, pair: Pair, name: str, topic: str) -> None:
        self.name = name
        self.members = {}
        for side in pair.sides:
            member = WireMember(side, name, name, subscription(topic))
            form([member], [{topic: [0, 1]}])
            side.remember(f"member of {name}", member.member_id)
            self.members[side.name] = member

    def id_on(self, side: Side) -> str:
        return self.members[side.name].member_id


@pytest.mark.usefixtures("bystander")
def test_member_ids_of_others_and_generations_of_the_past_are_refused(pair: Pair, topic: str) -> None:
    mine, other = Groups(pair, "mine", topic), Groups(pair, "other", topic)
    cases = [
        ("of another group", other.id_on, 1),
        ("of nobody", lambda _: "nobody-7", 1),
        ("without id", lambda _: "", 1),
        ("of the past", mine.id_on, 0),
        ("of the future", mine.id_on, 2),
        ("below zero", mine.id_on, -1),
        ("of the past of another group", other.id_on, 0),
    ]
    for note, member, generation in cases:
        pair.ask(
            lambda side, member=member, generation=generation: HeartbeatRequest(
                group_id="mine", generation_id=generation, member_id=member(side)
            ),
            4,
            note,
        )
        pair.ask(
            lambda side, member=member, generation=generation: SyncGroupRequest(
                group_id="mine",
                generation_id=generation,
                member_id=member(side),
                protocol_type="consumer",
                protocol_name="range",
            ),
            5,
            note,
        )
        pair.ask(
            lambda side, member=member, generation=generation: commit_request(
                "mine", {(topic, 0): 5}, member=member(side), generation=generation
            ),
            9,
            note,
        )
        if member != mine.id_on:
            pair.ask(
                lambda side, member=member: LeaveGroupRequest(
                    group_id="mine", members=[MemberIdentity(member_id=member(side))]
                ),
                5,
                note,
            )
    for instance in ("nobody", ""):
        pair.ask(
            lambda side, instance=instance: HeartbeatRequest(
                group_id="mine", generation_id=1, member_id=mine.id_on(side), group_instance_id=instance
            ),
            4,
            f"instance {instance!r}",
        )
    for side in pair.sides:
        assert state_of(side, "mine") == ("Stable", 1), side.name


@pytest.mark.usefixtures("bystander")
def test_commits_for_what_is_not_there_are_refused(pair: Pair, topic: str) -> None:
    for side in pair.sides:
        wait_for_coordinator(side, "nothing")
    for note, offsets in (
        ("no topic", {("no-such-topic", 0): 5}),
        ("no partition", {(topic, 99): 5}),
        ("a partition below zero", {(topic, -1): 5}),
        ("one of three", {(topic, 0): 5, ("no-such-topic", 0): 5, (topic, 99): 5}),
        ("a topic of no name", {("", 0): 5}),
        ("a topic of a name that none may have", {("no such/topic", 0): 5}),
    ):
        pair.ask(lambda _, offsets=offsets: commit_request("nothing", offsets), 9, note)
    many = {(f"no-such-topic-{number}", 0): 5 for number in range(10_000)}
    pair.ask(lambda _: commit_request("nothing", many), 9, "ten thousand topics")


@pytest.mark.usefixtures("bystander")
def test_a_subscription_of_ten_thousand_topics_is_taken(both: Both, pair: Pair) -> None:
    names = [f"a-topic-with-a-name-of-usual-length-{number:05}" for number in range(10_000)]
    with bounded_memory(both, 60 * MEGABYTE):
        for side in pair.sides:
            member = WireMember(side, "ten-thousand", "ten-thousand", subscription(*names))
            form([member], [{names[0]: [0]}])
            assert member.heartbeat() == 0
            member.leave()


def test_an_assignment_of_ten_megabytes_is_refused_and_forgotten(
    both: Both, pair: Pair, topic: str, bystander: Callable[[], None]
) -> None:
    huge = assignment({topic: range(2)}) + bytes(10 * MEGABYTE)
    with bounded_memory(both, 80 * MEGABYTE):
        codes = {}
        for side in pair.sides:
            wait_for_coordinator(side, "huge")
            member = WireMember(side, "huge", "huge", subscription(topic))
            member.get_id()
            member.ask_to_join()
            member.take_join()
            member.ask_to_sync({member.member_id: huge})
            answer = side.answer(SyncGroupRequest, 5, "huge")
            codes[side.name] = answer if answer in (CLOSED, NO_ANSWER) else ErrorCode(answer.error_code)
            if side is pair.odradek:
                bystander()
            codes[f"{side.name}, afterwards"] = member.heartbeat()
            member.leave()
        assert codes["odradek"] == codes["kafka"], codes
        assert codes["odradek, afterwards"] == codes["kafka, afterwards"], codes


GARBAGE = {
    "nothing": b"",
    "one byte": b"\x00",
    "a version below zero": b"\xff\xff" + bytes(8),
    "a version of the future": b"\x7f\xff" + bytes(8),
    "more topics than bytes": b"\x00\x00\x7f\xff\xff\xff",
    "a count below zero": b"\x00\x00\xff\xff\xff\xfe" + bytes(4),
    "a name that is cut off": b"\x00\x00\x00\x00\x00\x01\x00\x40abc",
    "a name that is no text": b"\x00\x00\x00\x00\x00\x01\x00\x02\xff\xfe\xff\xff\xff\xff",
    "a megabyte of noise": bytes(range(256)) * 4000,
}


@pytest.mark.parametrize("what", GARBAGE)
def test_garbage_in_the_embedded_protocol_harms_nobody_else(
    both: Both, what: str, bystander: Callable[[], None]
) -> None:
    """Kafka answers such a join never (seen with 4.3.1); ours may refuse or take it, but stays as it is."""
    side = Side("odradek", both.odradek.bootstrap)
    group = f"garbage-{list(GARBAGE).index(what)}"
    try:
        wait_for_coordinator(side, group)
        with bounded_memory(both, 40 * MEGABYTE):
            member = WireMember(side, group, group, GARBAGE[what])
            member.get_id()
            member.ask_to_join()
            answer = side.answer(JoinGroupRequest, 9, group)
            bystander()
            if answer not in (CLOSED, NO_ANSWER) and answer.error_code == 0:
                member.generation = answer.generation_id
                member.ask_to_sync({member.member_id: GARBAGE[what]})
                side.answer(SyncGroupRequest, 5, group)
        state_of(side, group)
    finally:
        side.close()


def test_a_thousand_joins_and_no_sync_cost_little_and_end_with_their_sessions(
    both: Both, topic: str, bystander: Callable[[], None]
) -> None:
    side = Side("odradek", both.odradek.bootstrap)

    def join(number: int) -> JoinGroupRequest:
        return JoinGroupRequest(
            group_id="a-thousand",
            member_id="",
            session_timeout_ms=6000,
            rebalance_timeout_ms=LONG_MS,
            protocol_type="consumer",
            protocols=[JoinGroupRequestProtocol(name="range", metadata=subscription(topic))],
        )

    try:
        wait_for_coordinator(side, "a-thousand")
        with bounded_memory(both, 60 * MEGABYTE):
            # Version 3 makes a member of each at once, version 9 gives it an id to come back with.
            for number in range(JOINS):
                side.request(join(number), 3, f"old-{number}")
                side.request(join(number), 9, f"new-{number % 20}")
                if number % 250 == 0:
                    bystander()
            for number in range(20):
                assert side.answer(JoinGroupRequest, 9, f"new-{number}").error_code == (
                    ErrorCode.MEMBER_ID_REQUIRED
                )
            bystander()
        for number in range(JOINS):
            side.hang_up(f"old-{number}")
        deadline = time.monotonic() + 60
        while state_of(side, "a-thousand")[1]:
            assert time.monotonic() < deadline, state_of(side, "a-thousand")
            time.sleep(0.2)
    finally:
        side.close()


# -- the new protocol


def beat(
    member: str = "one", epoch: int = 0, group: str = "new", **more: object
) -> ConsumerGroupHeartbeatRequest:
    joining = {
        "rebalance_timeout_ms": 60_000,
        "subscribed_topic_names": ["bad-input"],
        "topic_partitions": [],
    }
    settings = {**(joining if epoch == 0 else {}), **more}
    return ConsumerGroupHeartbeatRequest(group_id=group, member_id=member, member_epoch=epoch, **settings)  # type: ignore[arg-type]


REFUSED = {
    "no group": beat(group=""),
    "no member id": beat(member=""),
    "an epoch below -2": beat(epoch=-3),
    "no rebalance time-out": beat(rebalance_timeout_ms=-1),
    "a rebalance time-out of zero": beat(rebalance_timeout_ms=0),
    "no topics": beat(subscribed_topic_names=None),
    "neither topics nor expression": beat(subscribed_topic_names=None, subscribed_topic_regex=None),
    "an expression that is none": beat(subscribed_topic_names=None, subscribed_topic_regex="(a"),
    "owns before it joins": beat(topic_partitions=[TopicPartitions(topic_id=bytes(16), partitions=[0])]),
    "no partitions told": beat(topic_partitions=None),
    "an empty assignor": beat(server_assignor=""),
    "an assignor that nobody has": beat(server_assignor="mine"),
    "an empty instance": beat(instance_id=""),
    "an empty rack": beat(rack_id=""),
    "a member that is not there": beat(member="nobody", epoch=5),
    "leaves and was not there": beat(member="nobody", epoch=-1),
    "leaves for a while without a name": beat(epoch=-2),
}


@pytest.fixture
def _new_protocol(pair: Pair, topic: str) -> None:
    if not pair.versions(ConsumerGroupHeartbeatRequest):
        pytest.skip("the broker does not serve the consumer protocol")
    for side in pair.sides:
        wait_for_coordinator(side, "new")
        (told,) = side.ask(metadata_of(topic), 12).topics
        side.remember("topic", told.topic_id)


def see_member(side: Side, answer: Any) -> None:
    """Version 0 may leave it to the broker to make an id."""
    if answer.member_id:
        side.remember("member", answer.member_id)


@pytest.mark.usefixtures("_new_protocol", "bystander", "topic")
def test_heartbeats_of_the_new_protocol_are_refused_alike(pair: Pair) -> None:
    for version in pair.versions(ConsumerGroupHeartbeatRequest):
        for number, (note, refused) in enumerate(REFUSED.items()):
            if version == 0 and refused.subscribed_topic_regex is not None:
                continue
            # A group of its own for each: what is taken all the same ends with its session, at any moment.
            group = refused.group_id and f"new-{version}-{number}"
            request = dataclasses.replace(refused, group_id=group)
            see = see_member if not request.member_id else None
            pair.ask(lambda _, request=request: request, version, note, see=see)


@pytest.mark.usefixtures("_new_protocol", "bystander", "topic")
def test_epochs_of_the_past_and_the_future_are_fenced_alike(pair: Pair) -> None:
    pair.ask(lambda _: beat("one", group="epochs"), 1, "joins")
    pair.ask(lambda _: beat("two", group="epochs"), 1, "joins, too")
    for epoch in (9999, 2, 1):
        pair.ask(lambda _, epoch=epoch: beat("two", epoch, group="epochs"), 1, f"epoch {epoch}")
    pair.ask(lambda _: beat("one", -1, group="epochs"), 1, "leaves")
    pair.ask(lambda _: beat("one", 1, group="epochs"), 1, "has left")
    for epoch in (0, 1, 9999):
        pair.ask(
            lambda _, epoch=epoch: commit_request(
                "epochs", {("bad-input", 0): 1}, member="two", generation=epoch
            ),
            9,
            f"commit in epoch {epoch}",
        )
    pair.ask(
        lambda _: commit_request("epochs", {("bad-input", 0): 1}, member="nobody", generation=1),
        9,
        "of nobody",
    )


@pytest.mark.usefixtures("_new_protocol", "bystander", "topic")
def test_ten_thousand_topics_of_the_new_protocol_are_taken(both: Both, pair: Pair) -> None:
    names = [f"a-topic-with-a-name-of-usual-length-{number:05}" for number in range(10_000)]
    with bounded_memory(both, 60 * MEGABYTE):
        pair.ask(lambda _: beat("one", group="many-topics", subscribed_topic_names=names), 1)
        pair.ask(lambda _: beat("one", -1, group="many-topics"), 1)


@pytest.mark.usefixtures("_new_protocol", "topic")
def test_a_thousand_members_that_never_come_again_are_forgotten(
    both: Both, bystander: Callable[[], None]
) -> None:
    side = Side("odradek", both.odradek.bootstrap)
    described = ConsumerGroupDescribeRequest(group_ids=["forgotten"])
    try:
        with bounded_memory(both, 40 * MEGABYTE):
            for number in range(JOINS):
                assert side.ask(beat(f"member-{number}", group="forgotten"), 1).error_code == 0
                if number % 250 == 0:
                    bystander()
        # Their sessions are of six seconds.
        deadline = time.monotonic() + 60
        while side.ask(described, 1).groups[0].group_state != "Empty":
            assert time.monotonic() < deadline
            time.sleep(0.2)
    finally:
        side.close()
