"""The epoch of a member that sends a heartbeat, commits, or fetches offsets (KIP-848).

Source: GroupMetadataManager.java of Kafka 4.3; the texts that clients are shown are Kafka's.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from odradek.coordinator.groups.group import SHARE, TypeOfGroup
from odradek.wire.errors import ErrorCode, KafkaError


def check_epoch(group_type: TypeOfGroup, current: Any, epoch: int, has_no_more: Callable[[], bool]) -> None:
    """FENCED_MEMBER_EPOCH, unless the member comes with the epoch before, as it has not got the last
    response, and `has_no_more` than it was given."""
    known = current.member_epoch
    if epoch == known:
        return
    previous = current.previous_member_epoch
    if epoch == previous < known and has_no_more():
        return
    relation, why = "greater" if epoch > known else "smaller", ""
    if group_type == SHARE and epoch < known:
        why = f", and it does not match the previous member epoch ({previous})"
    raise KafkaError(
        ErrorCode.FENCED_MEMBER_EPOCH,
        f"The {group_type} group member has a {relation} member epoch ({epoch}) than the one known by the "
        f"group coordinator ({known}){why}. The member must abandon all its partitions and rejoin.",
    )
