"""States of records of a share group, as `__share_group_state` has them: which are done, and how often each
was delivered.

    found = share_states(cluster, "parcels", "orders", 0)
    found.start_offset, found.batches      # Batch(first_offset, last_offset, delivery_count, delivery_state)

No request of Kafka's protocol tells this to a client; the topic tells it to whoever may read it. Records that
a member has at the moment are not in it, and records that were never given back neither.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from odradek.client.admin.topics import describe_topics
from odradek.client.client_error import ClientError
from odradek.client.cluster import EARLIEST, LATEST, Cluster, UnknownTopic
from odradek.client.reading import Reader
from odradek.client.stored_records import batches_of
from odradek.wire.errors import ErrorCode, MalformedMessage
from odradek.wire.messages.share_state_records import RECORDS, ShareSnapshotValue, ShareUpdateValue
from odradek.wire.partitioner import partition_for
from odradek.wire.schema import uuid_to_text
from odradek.wire.share_batches import Batch, are_sound, combined

TOPIC: Final = "__share_group_state"
READ_S_MAX = 5.0
"""Longest reading. Brokers delete what is older than the snapshots, so there is little as a rule."""
STATE_NAMES: Final = {0: "available", 1: "acquired", 2: "acknowledged", 3: "archiving", 4: "archived"}
"""By delivery state. Archived is a record that was rejected, or that was delivered too often."""


@dataclass(frozen=True, slots=True)
class ShareStates:
    """States of a share partition."""

    start_offset: int
    """All records before it are done; -1: not known yet."""
    batches: Sequence[Batch]
    """Records that were given back at least once, in the order of their offsets."""
    written_ms: int
    """Time of the newest record about it."""


def share_states(
    cluster: Cluster,
    group: str,
    topic: str,
    partition: int,
    clock: Callable[[], float] = time.monotonic,
) -> ShareStates | None:
    """The newest states; None if the group has none of this partition. ClientError, also for a topic of
    states that is too long to be read."""
    described, refused = describe_topics(cluster, [topic, TOPIC])
    if refused:
        raise refused[0].error
    by_name = {one.name: one for one in described}
    key = f"{group}:{uuid_to_text(by_name[topic].topic_id)}:{partition}"
    if partition >= len(by_name[topic].partitions):
        raise UnknownTopic(
            f"topic {topic} has no partition {partition}", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        )
    place = TOPIC, partition_for(key, len(by_name[TOPIC].partitions))
    start, end = cluster.list_offsets({place: EARLIEST})[place], cluster.list_offsets({place: LATEST})[place]
    found = _Found(group, by_name[topic].topic_id, partition)
    until = clock() + READ_S_MAX
    for fetched in Reader(cluster, {place: (start, end)}, read_committed=False, skipped=lambda *_: None):
        if clock() > until:
            raise ClientError(f"partition {place[1]} of {TOPIC} is too long to be read in {READ_S_MAX:g} s")
        for batch in batches_of(fetched):
            for record in batch.records:
                found.take(record.key, record.value, record.timestamp)
    return found.states


class _Found:
    """The states after each record that was taken."""

    def __init__(self, group: str, topic_id: bytes, partition: int) -> None:
        self._wanted = group, topic_id, partition
        self.states: ShareStates | None = None

    def take(self, key_bytes: Any, value_bytes: Any, timestamp_ms: int) -> None:
        try:
            key = RECORDS.decode_key(bytes(key_bytes or b""))
            if key is None or (key.group_id, key.topic_id, key.partition) != self._wanted:
                return
            value = None if value_bytes is None else RECORDS.decode_value(key, bytes(value_bytes))
        except MalformedMessage as error:
            raise ClientError(f"a record of {TOPIC} cannot be read: {error}") from None
        if value is None:
            self.states = None
        elif isinstance(value, ShareSnapshotValue):
            self.states = _after(ShareStates(-1, (), 0), value, timestamp_ms)
        elif self.states is not None:
            self.states = _after(self.states, value, timestamp_ms)


def _after(
    known: ShareStates, value: ShareSnapshotValue | ShareUpdateValue, timestamp_ms: int
) -> ShareStates:
    new = [
        Batch(one.first_offset, one.last_offset, one.delivery_count, one.delivery_state)
        for one in value.state_batches
    ]
    if not are_sound(new):
        raise ClientError(f"a record of {TOPIC} has states of no record")
    start = value.start_offset if value.start_offset != -1 else known.start_offset
    return ShareStates(start, combined(known.batches, new, start), timestamp_ms)
