"""A group of one protocol as the records of the other: its members stay, and keep their partitions.

Functions of values: they look at a group and change nothing; `coordinator/groups/migration.py` decides when a
group is converted, and for its members.

Source: ConsumerGroup.fromClassicGroup and ClassicGroup.fromConsumerGroup of Kafka 4.3.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import NamedTuple

from odradek.coordinator.cluster.view import ClusterView
from odradek.coordinator.groups.classic_group import (
    CONSUMER_PROTOCOL_TYPE,
    ClassicGroup,
    Member,
    OfferedProtocol,
)
from odradek.coordinator.groups.consumer_group import ConsumerGroup
from odradek.coordinator.groups.epochs.group import metadata_hash
from odradek.coordinator.groups.group import GroupRecord
from odradek.coordinator.groups.reconciliation import Assignment, MemberAssignment, MemberState
from odradek.wire.errors import MalformedMessage
from odradek.wire.messages import consumer_protocol
from odradek.wire.messages.consumer_protocol import (
    AssignedTopicPartitions,
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
)
from odradek.wire.messages.group_records import (
    ClassicMemberMetadata,
    ClassicProtocol,
    ConsumerGroupMemberMetadataValue,
)

_VERSION = struct.Struct(">h")
# Clients show these words, and Kafka's own tests compare them: they are Kafka's.
_MALFORMED = "the embedded consumer protocol is malformed"
_CUSTOM_ASSIGNOR = (
    "an unsupported custom assignor is in use. Please refer to the documentation or switch to a default "
    "assignor before re-attempting the upgrade"
)


class CannotConvert(Exception):
    """The text is the reason, as the end of a sentence."""


class ClassicConsumer(NamedTuple):
    """A member of the classic protocol in a consumer group."""

    member_id: str
    metadata: ConsumerGroupMemberMetadataValue
    has: Assignment
    """All partitions that it may use."""


# Classic to consumer


def as_consumer_group(group: ClassicGroup, view: ClusterView) -> list[GroupRecord]:
    """The tombstone of a classic group of consumers, and records of a consumer group with the same members.

    Each member is stable in the epoch of its generation. It has the assignment of the last leader, and of the
    partitions that it had when it joined those without an owner: in the middle of a cooperative rebalance
    members keep what they need not give up. Raises CannotConvert.
    """
    group_id, epoch = group.group_id, group.generation
    protocol = group.protocol or ""
    if not protocol and group.members:
        # In the first rebalance: the protocol that it would select.
        protocol = group.protocol_counts.select(group.members.values())
    metadata, assigned, owned = {}, {}, {}
    try:
        for member_id, member in group.members.items():
            subscription = consumer_protocol.decode_subscription(member.metadata(protocol))
            metadata[member_id] = _metadata_of(member, subscription)
            assigned[member_id] = _assignment_of(member, view)
            owned[member_id] = owned_partitions(subscription, view)
    except MalformedMessage as error:
        raise CannotConvert(_MALFORMED) from error
    taken = _owners(assigned.values())
    for member_id, partitions in owned.items():
        _add_free(assigned[member_id], partitions, taken, view)
    names = {name for value in metadata.values() for name in value.subscribed_topic_names}
    consumer = ConsumerGroup.records
    return [
        *((key, None) for key in group.keys()),  # noqa: SIM118
        *(consumer.member(group_id, member_id, value) for member_id, value in metadata.items()),
        consumer.epoch(group_id, epoch, metadata_hash(names, view)),
        *(consumer.target(group_id, member_id, target) for member_id, target in assigned.items()),
        consumer.target_epoch(group_id, epoch),
        *(
            consumer.current(group_id, member_id, _settled(target, epoch))
            for member_id, target in assigned.items()
        ),
    ]


def _metadata_of(
    member: Member, subscription: ConsumerProtocolSubscription
) -> ConsumerGroupMemberMetadataValue:
    return classic_metadata(
        subscription,
        instance_id=member.group_instance_id,
        client_id=member.client_id,
        client_host=member.client_host,
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        session_timeout_ms=member.session_timeout_ms,
        protocols=member.protocols,
    )


def classic_metadata(
    subscription: ConsumerProtocolSubscription,
    *,
    instance_id: str | None,
    client_id: str,
    client_host: str,
    rebalance_timeout_ms: int,
    session_timeout_ms: int,
    protocols: Iterable[OfferedProtocol],
) -> ConsumerGroupMemberMetadataValue:
    """How a consumer group knows a member of the classic protocol."""
    return ConsumerGroupMemberMetadataValue(
        instance_id=instance_id,
        rack_id=subscription.rack_id or None,
        client_id=client_id,
        client_host=client_host,
        subscribed_topic_names=subscribed_names(subscription),
        subscribed_topic_regex="",
        rebalance_timeout_ms=rebalance_timeout_ms,
        server_assignor=None,
        classic_member_metadata=ClassicMemberMetadata(
            session_timeout_ms=session_timeout_ms,
            supported_protocols=[
                ClassicProtocol(name=name, metadata=bytes(data)) for name, data in protocols
            ],
        ),
    )


def subscribed_names(subscription: ConsumerProtocolSubscription) -> list[str]:
    """In an order of their own, so that the same topics are the same list."""
    return sorted(set(subscription.topics))


def owned_partitions(
    subscription: ConsumerProtocolSubscription, view: ClusterView
) -> list[tuple[bytes, list[int]]]:
    """The partitions that a member reports, by topic id, without those of deleted topics."""
    owned = []
    for of_topic in subscription.owned_partitions:
        topic = view.topics.get(of_topic.topic)
        if topic is not None:
            owned.append((topic.topic_id, of_topic.partitions))
    return owned


def _assignment_of(member: Member, view: ClusterView) -> dict[bytes, frozenset[int]]:
    """Raises MalformedMessage and CannotConvert."""
    if not member.assignment:
        return {}
    decoded = consumer_protocol.decode_assignment(member.assignment)
    if decoded.user_data:
        raise CannotConvert(_CUSTOM_ASSIGNOR)
    assigned: dict[bytes, frozenset[int]] = {}
    for of_topic in decoded.assigned_partitions:
        topic = view.topics.get(of_topic.topic)
        if topic is None:
            continue
        there = frozenset(range(len(topic.partitions))).intersection(of_topic.partitions)
        if there:
            assigned[topic.topic_id] = assigned.get(topic.topic_id, frozenset()) | there
    return assigned


def _owners(assignments: Iterable[Assignment]) -> set[tuple[bytes, int]]:
    """All that is assigned. In the classic protocol a leader may give a partition to two members, here that
    raises CannotConvert."""
    taken: set[tuple[bytes, int]] = set()
    for assignment in assignments:
        for topic_id, partitions in assignment.items():
            places = {(topic_id, partition) for partition in partitions}
            if not taken.isdisjoint(places):
                raise CannotConvert(_CUSTOM_ASSIGNOR)
            taken |= places
    return taken


def _add_free(
    assigned: dict[bytes, frozenset[int]],
    owned: Iterable[tuple[bytes, list[int]]],
    taken: set[tuple[bytes, int]],
    view: ClusterView,
) -> None:
    """The member also gets existing partitions of `owned` that have no owner."""
    for topic_id, partitions in owned:
        count = len(view.topics[view.topic_names[topic_id]].partitions)
        free = frozenset(
            index for index in partitions if 0 <= index < count and (topic_id, index) not in taken
        )
        taken.update((topic_id, index) for index in free)
        if free:
            assigned[topic_id] = assigned.get(topic_id, frozenset()) | free


def _settled(assignment: Assignment, epoch: int) -> MemberAssignment:
    return MemberAssignment(
        MemberState.STABLE,
        epoch,
        epoch,
        {topic_id: dict.fromkeys(sorted(partitions), epoch) for topic_id, partitions in assignment.items()},
        {},
    )


# Consumer to classic


def as_classic_group(
    group_id: str, epoch: int, members: Iterable[ClassicConsumer], view: ClusterView
) -> ClassicGroup:
    """A classic group with these members, at least one, and what they have as their assignments.

    Its generation is the consumer group's epoch. The group is in no machine: its `record` is to be stored.
    """
    group = ClassicGroup(group_id, generation=epoch, protocol_type=CONSUMER_PROTOCOL_TYPE)
    has_by_id = {}
    for member_id, metadata, has in members:
        classic = metadata.classic_member_metadata
        assert classic is not None, member_id
        has_by_id[member_id] = has
        group.add(
            Member(
                member_id=member_id,
                group_instance_id=metadata.instance_id,
                client_id=metadata.client_id,
                client_host=metadata.client_host,
                rebalance_timeout_ms=metadata.rebalance_timeout_ms,
                session_timeout_ms=classic.session_timeout_ms,
                protocols=[OfferedProtocol(one.name, one.metadata) for one in classic.supported_protocols],
            )
        )
    group.protocol = group.protocol_counts.select(group.members.values())
    for member in group.members.values():
        offered = member.metadata(group.protocol)
        member.assignment = classic_assignment(has_by_id[member.member_id], offered, view)
    return group


def classic_assignment(assignment: Assignment, offered: bytes, view: ClusterView) -> bytes:
    """The assignment in SyncGroup for a member that offered this metadata: in its version, topics by name."""
    topics = [
        AssignedTopicPartitions(topic=name, partitions=sorted(partitions))
        for topic_id, partitions in assignment.items()
        if (name := view.topic_names.get(topic_id)) is not None
    ]
    topics.sort(key=lambda of_topic: of_topic.topic)
    return consumer_protocol.encode(
        ConsumerProtocolAssignment(assigned_partitions=topics), _version_of(offered)
    )


def _version_of(offered: bytes) -> int:
    """Protocols of the member: only the first is read when it joins, so this may be anything."""
    versions = ConsumerProtocolAssignment.versions
    if len(offered) < _VERSION.size:
        return versions[0]
    version: int = _VERSION.unpack_from(offered)[0]
    return min(max(version, versions[0]), versions[-1])
