"""Keys of share partitions, by the names that requests have for them.

As a text a key is GROUP:TOPIC-ID:PARTITION; a group's id may have colons. Source: SharePartitionKey of Kafka
4.3.
"""

from __future__ import annotations

import re
from typing import Any

from odradek.coordinator.shares.state.persister import SharePartitionKey
from odradek.wire.schema import uuid_from_text

_NUMBER = re.compile(r"[+-]?[0-9]{1,10}")


def share_partition_key(text: str) -> SharePartitionKey | None:
    """None for a text that is no key."""
    # Kafka does not see colons at the end.
    rest, _, number = text.rstrip(":").rpartition(":")
    group_id, _, topic_id = rest.rpartition(":")
    # Java's `trim` takes control characters away, too.
    if not group_id.strip("".join(map(chr, range(33)))) or not _NUMBER.fullmatch(number):
        return None
    partition = int(number)
    if not -(2**31) <= partition < 2**31:
        return None
    try:
        return SharePartitionKey(group_id, uuid_from_text(topic_id.removesuffix("==")), partition)
    except ValueError:
        return None


def partition_in(request: Any) -> tuple[SharePartitionKey, Any]:
    """The one share partition that a request of the share coordinator names, and what it has of it."""
    (topic,) = request.topics
    (one,) = topic.partitions
    return SharePartitionKey(request.group_id, topic.topic_id, one.partition), one
