"""Descriptions of topologies (KIP-1331): what people are shown of an application, beside its group.

A group needs none of this. Its coordinator asks one member at a time for the description, and a pause follows
(`next_pause`). What the member sends is checked, stored, and given out with the group; the group's record
says for which epoch of the topology a description is stored. Each change of the store stands between two
records: the first says that nobody knows what is stored, the second says what is. So a crash leaves no wrong
promise.

`TopologyDescriptions` holds them in memory, encoded, and bounded in number and size; where there is a file,
it is asked to save the whole.

Source: StreamsGroupTopologyDescriptionManager and InMemoryTopologyDescriptionPlugin of Kafka 4.4.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from odradek.coordinator.effects import Asking
from odradek.coordinator.groups.commands import Command
from odradek.wire.codec import decode_message, encode_message
from odradek.wire.errors import ErrorCode, KafkaError, MalformedMessage
from odradek.wire.messages.streams_group_topology_description_update import (
    StreamsGroupTopologyDescriptionUpdateRequest,
    TopologyDescription,
    TopologyDescriptionGlobalStore,
    TopologyDescriptionNode,
    TopologyDescriptionSubtopology,
)

NONE_STORED = -1
UNCERTAIN = -2
"""Epochs in the record of a group: no description is stored, and a change of the store was interrupted."""
SOURCE, PROCESSOR, SINK = 1, 2, 3
"""Types of nodes."""
FIRST_PAUSE_MS = 30_000
LONGEST_PAUSE_MS = 3_600_000
LONGEST_PAUSE_AFTER = 7
"""Attempts after which the pause grows no more."""
DESCRIPTION_BYTES_MAX = 1 << 20
TOTAL_BYTES_MAX = 16 << 20
DESCRIPTIONS_MAX = 1_000


NOT_REQUESTED, NOT_STORED, FAILED, AVAILABLE = range(4)
"""Statuses of a description, as StreamsGroupDescribe tells them."""


class Pause(NamedTuple):
    """Until when no member is asked again."""

    topology_epoch: int
    attempts: int
    until_ms: int


def next_pause(before: Pause | None, topology_epoch: int, now_ms: int) -> Pause:
    """Twice as long with each attempt. Without Kafka's jitter: members ask at times of their own."""
    is_another = before is None or before.topology_epoch != topology_epoch
    attempts = 0 if is_another or before is None else before.attempts + 1
    pause_ms = min(FIRST_PAUSE_MS << min(attempts, LONGEST_PAUSE_AFTER), LONGEST_PAUSE_MS)
    return Pause(topology_epoch, attempts, now_ms + pause_ms)


class Failure(NamedTuple):
    """Why the store has not done something."""

    message: str
    is_permanent: bool = False
    """Whether the same would fail again."""


Done = Callable[[Failure | None], None]


# Commands and effects


@dataclass(slots=True)
class DescriptionStored(Command):
    """Result of a `StoreDescription`."""

    group_id: str
    topology_epoch: int
    failure: Failure | None = None


@dataclass(slots=True)
class StoreDescription(Asking):
    """Store a description, and submit a `DescriptionStored`."""

    command: DescriptionStored
    description: TopologyDescription


@dataclass(slots=True)
class DescriptionDeleted(Command):
    """Result of a `DeleteDescription`."""

    group_id: str
    deletes_group: bool = False
    """Whether the group is deleted next, for the client that has the ticket."""
    failure: Failure | None = None


@dataclass(slots=True)
class DeleteDescription(Asking):
    """Delete the description of a group, and submit a `DescriptionDeleted`."""

    command: DescriptionDeleted


# Store


class StoredDescription(NamedTuple):
    topology_epoch: int
    body: bytes
    """A StreamsGroupTopologyDescriptionUpdate 0 with the description alone."""


@dataclass(slots=True)
class DescriptionCounts:
    """Numbers of operations since the start, as Kafka's metrics have them."""

    set_success: int = 0
    set_error: int = 0
    get_success: int = 0
    get_error: int = 0
    delete_success: int = 0
    delete_error: int = 0
    cleanup_eligible: int = 0
    """Groups without members and offsets whose descriptions were to be deleted."""


Save = Callable[[Mapping[str, StoredDescription], Done], None]
"""Saves all descriptions, and calls back once, perhaps at once. Calls are carried out one after the other."""


def _in_memory(_: Mapping[str, StoredDescription], then: Done) -> None:
    then(None)


class TopologyDescriptions:
    """The descriptions of one node, by group. Those of groups that another node coordinates may be there,
    too."""

    def __init__(self, known: Mapping[str, StoredDescription] = {}, save: Save = _in_memory) -> None:
        self._stored = dict(known)
        self._bytes = sum(len(one.body) for one in known.values())
        self._save = save
        self._is_saved = True
        self.counts = DescriptionCounts()

    def __iter__(self) -> Iterator[str]:
        return iter(list(self._stored))

    def __len__(self) -> int:
        return len(self._stored)

    def has(self, group_id: str, topology_epoch: int) -> bool:
        found = self._stored.get(group_id)
        return found is not None and found.topology_epoch == topology_epoch

    def get(self, group_id: str, topology_epoch: int) -> tuple[int, TopologyDescription | None]:
        """The status, and a description of the caller's own."""
        found = self._stored.get(group_id)
        if found is None or found.topology_epoch != topology_epoch:
            self.counts.get_success += 1
            return NOT_STORED, None
        try:
            message = decode_message(StreamsGroupTopologyDescriptionUpdateRequest, 0, found.body)
        except MalformedMessage:
            self.counts.get_error += 1
            return FAILED, None
        self.counts.get_success += 1
        return AVAILABLE, message.topology_description

    def put(self, group_id: str, topology_epoch: int, description: TopologyDescription, then: Done) -> None:
        """In the place of the one that the group has. What cannot be saved is not kept."""
        stored = StoredDescription(topology_epoch, _encoded(description))
        refusal = self._refusal(group_id, len(stored.body))
        if refusal is not None:
            self.counts.set_error += 1
            then(refusal)
            return
        self._set(group_id, stored)

        def saved(failure: Failure | None) -> None:
            if failure is None:
                self.counts.set_success += 1
            else:
                self.counts.set_error += 1
                if self._stored.get(group_id) is stored:
                    self._set(group_id, None)
            then(failure)

        self._save_all(saved)

    def delete(self, group_id: str, then: Done) -> None:
        """No failure where there is none."""

        def saved(failure: Failure | None) -> None:
            if failure is None:
                self.counts.delete_success += 1
            else:
                self.counts.delete_error += 1
            then(failure)

        self.drop([group_id], saved)

    def drop(self, group_ids: Sequence[str], then: Done) -> None:
        """Forget them, uncounted: they are of no use."""
        known = [group_id for group_id in group_ids if group_id in self._stored]
        for group_id in known:
            self._set(group_id, None)
        if known or not self._is_saved:
            self._save_all(then)
        else:
            then(None)

    def has_room(self, size_bytes: int = 0) -> bool:
        return len(self._stored) < DESCRIPTIONS_MAX and self._bytes + size_bytes <= TOTAL_BYTES_MAX

    def _refusal(self, group_id: str, size_bytes: int) -> Failure | None:
        if size_bytes > DESCRIPTION_BYTES_MAX:
            return Failure(
                f"The description has {size_bytes} bytes, and {DESCRIPTION_BYTES_MAX} are the most.", True
            )
        known = self._stored.get(group_id)
        if known is not None:
            has_room = self._bytes - len(known.body) + size_bytes <= TOTAL_BYTES_MAX
        else:
            has_room = self.has_room(size_bytes)
        return None if has_room else Failure("There is no room for one more description.")

    def _set(self, group_id: str, stored: StoredDescription | None) -> None:
        before = self._stored.pop(group_id, None)
        if before is not None:
            self._bytes -= len(before.body)
        if stored is not None:
            self._stored[group_id] = stored
            self._bytes += len(stored.body)

    def _save_all(self, then: Done) -> None:
        self._is_saved = False
        kept = dict(self._stored)

        def saved(failure: Failure | None) -> None:
            self._is_saved = failure is None and kept == self._stored
            then(failure)

        self._save(kept, saved)


def _encoded(description: TopologyDescription) -> bytes:
    message = StreamsGroupTopologyDescriptionUpdateRequest(
        group_id="", member_id="", topology_epoch=0, topology_description=description
    )
    return encode_message(message, 0)


# Checks


def checked(description: TopologyDescription) -> TopologyDescription:
    """The description as it is stored: each node with what its type has, no name twice. INVALID_REQUEST."""
    return TopologyDescription(
        subtopologies=[
            TopologyDescriptionSubtopology(
                subtopology_id=one.subtopology_id, nodes=[_checked_node(node) for node in one.nodes]
            )
            for one in description.subtopologies
        ],
        global_stores=[_checked_store(one) for one in description.global_stores],
    )


def _checked_store(store: TopologyDescriptionGlobalStore) -> TopologyDescriptionGlobalStore:
    source, processor = _checked_node(store.source), _checked_node(store.processor)
    if (source.node_type, processor.node_type) != (SOURCE, PROCESSOR):
        raise _invalid("Global store must be composed of a source and a processor node.")
    return TopologyDescriptionGlobalStore(source=source, processor=processor)


def _checked_node(node: TopologyDescriptionNode) -> TopologyDescriptionNode:
    if node.node_type not in (SOURCE, PROCESSOR, SINK):
        raise _invalid(f"Unknown topology node type: {node.node_type}")
    return replace(
        node,
        source_topics=_once(node.source_topics) if node.node_type == SOURCE else [],
        stores=_once(node.stores) if node.node_type == PROCESSOR else [],
        sink_topic=node.sink_topic if node.node_type == SINK else None,
        successors=_once(node.successors),
    )


def _once(names: Sequence[str]) -> list[str]:
    return list(dict.fromkeys(names))


def _invalid(reason: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REQUEST, reason)
