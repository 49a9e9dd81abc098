"""Groups with live members on both sides, and what may be named as the one that commits offsets there."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator
from typing import Any

from compat_tests.differential.harness import SECONDS, Pair, Pauses, Side
from compat_tests.differential.topics import id_of, new_topic
from compat_tests.kit.group_wire import WireMember, form, subscription, wait_for_coordinator, wait_for_state
from odradek.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest, TopicPartitions
from odradek.wire.messages.list_groups import ListGroupsRequest

Named = tuple[str, str, int, str | None]
"""What it is, and the member, generation or epoch and instance that are named; `<x>` as remembered as x."""


_numbers = itertools.count()


def topic_of_groups(pair: Pair, prefix: str, partitions: int = 1) -> str:
    """As `new_topic`; the coordinators of groups know it, too: Kafka's hear of it a little later."""
    topic = new_topic(pair, prefix, partitions)
    group = f"knows-{next(_numbers)}"
    for side in pair.sides:
        deadline, pause = time.monotonic() + SECONDS, Pauses()
        while not side.ask(consumer_join(group, "m", topic), 1).assignment.topic_partitions:
            assert time.monotonic() < deadline, f"{side.name}: a member gets nothing of {topic}"
            pause()
        side.ask(ConsumerGroupHeartbeatRequest(group_id=group, member_id="m", member_epoch=-1), 1)
    return topic


def settle_coordinator(pair: Pair) -> None:
    """Both have their offsets topic and have loaded it: an asynchronous step at first use."""
    for side in pair.sides:
        wait_for_coordinator(side, "any")


def is_listed(pair: Pair, group: str, type_: str, state: str) -> None:
    """Compares this group's entry in the list of the groups of this type in this state. Groups of earlier
    tests end by themselves, and not on both brokers in the same moment."""
    request = ListGroupsRequest(types_filter=[type_], states_filter=[state])
    listed = [
        [side.plain(found, 5) for found in side.ask(request, 5).groups if found.group_id == group]
        for side in pair.sides
    ]
    assert listed[0], f"Kafka does not list {group} as {state}"
    pair.compare(f"ListGroups, {type_}, {state}", *listed)


def consumer_join(group: str, member: str, *topics: str, **more: Any) -> ConsumerGroupHeartbeatRequest:
    """The first heartbeat of a member of the consumer protocol."""
    fields = {"rebalance_timeout_ms": 600_000, "subscribed_topic_names": [*topics], "topic_partitions": []}
    return ConsumerGroupHeartbeatRequest(
        group_id=group, member_id=member, member_epoch=0, **{**fields, **more}
    )


def named(side: Side, member: str) -> str:
    return str(side[member[1:-1]]) if member.startswith("<") else member


def of_member(name: str, generation: int, instance: str | None = None) -> list[Named]:
    """What a live member may send, and what is wrong about it."""
    return [
        ("current", f"<{name}>", generation, instance),
        ("older", f"<{name}>", generation - 1, instance),
        ("newer", f"<{name}>", generation + 1, instance),
        ("of no generation", f"<{name}>", -1, instance),
        ("of generation -2", f"<{name}>", -2, instance),
        ("nobody of a generation", "", generation, instance),
        ("nobody", "", -1, instance),
        ("a stranger", "who", generation, instance),
        ("a stranger of no generation", "who", -1, instance),
        ("another instance", f"<{name}>", generation, "another"),
    ]


def of_epochs(name: str, last: int, instance: str | None = None) -> list[Named]:
    """A live member in every epoch from 0 to `last`."""
    return [(f"{name} of epoch {epoch}", f"<{name}>", epoch, instance) for epoch in range(last + 1)]


def classic_situations(pair: Pair, group: str, topic: str) -> Iterator[tuple[str, list[Named]]]:
    """Brings a group of a dynamic and a static member from one state to the next: (state, what to try there).

    `topic` has two partitions.
    """
    lone, static, late = {}, {}, {}
    for side in pair.sides:
        metadata = subscription(topic)
        lone[side] = WireMember(side, group, "lone", metadata)
        static[side] = WireMember(side, group, "static", metadata, instance="i")
        late[side] = WireMember(side, group, "late", metadata)
        form([lone[side], static[side]], [{topic: [0]}, {topic: [1]}])
        side.remember("lone", lone[side].member_id)
        side.remember("static", static[side].member_id)
    (generation,) = {member.generation for member in (*lone.values(), *static.values())}
    cases = [
        *of_member("lone", generation),
        *of_member("static", generation, "i"),
        ("the static one's id without its instance", "<static>", generation, None),
        ("another's id for an instance", "<lone>", generation, "i"),
    ]
    yield "stable", cases
    for side in pair.sides:
        late[side].get_id()
        late[side].ask_to_join()
        wait_for_state(side, group, "PreparingRebalance", 3)
    yield "while others join", cases[:3]
    for side in pair.sides:
        members = [late[side], lone[side], static[side]]
        for member in members[1:]:
            member.ask_to_join()
        for member in members:
            member.take_join()
        wait_for_state(side, group, "CompletingRebalance", 3)
    yield "before they have parts", of_member("lone", generation + 1)
    for side in pair.sides:
        for member in (lone[side], static[side], late[side]):
            member.leave()
    yield "empty", cases


def consumer_situations(pair: Pair, group: str, topic: str) -> Iterator[tuple[str, list[Named]]]:
    """As `classic_situations`, of the consumer protocol; the heartbeats are compared, too."""

    def beat(member: str, epoch: int, note: str, **more: Any) -> Any:
        request = ConsumerGroupHeartbeatRequest(group_id=group, member_id=member, member_epoch=epoch, **more)
        return pair.ask(lambda _: request, 1, f"{member} {note}")[0]

    def heartbeat(member: str, epoch: int, note: str, **more: Any) -> int:
        return int(beat(member, epoch, note, **more).member_epoch)

    def join(member: str, *topics: str, instance: str | None = None) -> int:
        asked = {"subscribed_topic_names": [*topics], "rebalance_timeout_ms": 600_000, "topic_partitions": []}
        return heartbeat(member, 0, "joins", instance_id=instance, **asked)

    for side in pair.sides:
        for member in ("m1", "m2"):
            side.values[member] = member
    first = join("m1", topic)
    join("m2", "not-there", instance="i")
    epoch = heartbeat("m1", first, "has both since before")
    assert epoch > first
    yield (
        "stable",
        [
            *of_member("m1", epoch),
            ("before it had any", "<m1>", first - 1, None),
            ("when it had none", "<m1>", 0, None),
            *of_member("m2", epoch, "i"),
            ("the static one's id without its instance", "<m2>", epoch, None),
        ],
    )
    static = heartbeat("m2", epoch, "wants a part", subscribed_topic_names=[topic], instance_id="i")
    yield "waits for its part", of_member("m2", static, "i")
    (kept,) = beat("m1", epoch, "has to give one up").assignment.topic_partitions
    yield "gives up a part", of_member("m1", epoch)

    def has_given_up(side: Side) -> ConsumerGroupHeartbeatRequest:
        still = [TopicPartitions(topic_id=id_of(side, topic), partitions=kept.partitions)]
        return ConsumerGroupHeartbeatRequest(
            group_id=group, member_id="m1", member_epoch=epoch, topic_partitions=still
        )

    moved = int(pair.ask(has_given_up, 1, "m1 has given it up")[0].member_epoch)
    heartbeat("m2", static, "gets its part", instance_id="i")
    assert moved > epoch
    yield "each has a part", [*of_epochs("m1", moved + 1), *of_epochs("m2", moved + 1, "i")]
    heartbeat("m2", -1, "leaves", instance_id="i")
    regained = heartbeat("m1", moved, "has both again, one since before")
    assert regained > moved
    yield "has a part since before, and one anew", of_epochs("m1", regained + 1)
    heartbeat("m1", -1, "leaves")
    yield "empty", of_member("m1", epoch)
