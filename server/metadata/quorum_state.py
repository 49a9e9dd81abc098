"""`quorum-state`: the leader epoch of the voter, which is durable before a record of the epoch is.

One line of JSON in version 1, as Kafka writes it with kraft.version 1, and behind it, where Kafka's reader
does not look, the checksum of `storage/checkpoints.py`. One wrong bit is mended by it. A voter alone needs
only the number; without the file it continues after the epochs of its log.

Source: FileQuorumStateStore, QuorumStateDataJsonConverter and ElectionState of Kafka 4.4.
"""

from __future__ import annotations

import json
from typing import NamedTuple

from odradek.storage.checkpoints import sealed, unsealed
from odradek.storage.disk import Disk, read_file, replace_file
from odradek.wire.schema import ZERO_UUID, uuid_to_text

FILE_NAME = "quorum-state"
NOBODY = -1
_VERSION = 1
_MENDED_BYTES_MAX = 1024


class QuorumState(NamedTuple):
    """The leader of an epoch. Once it is known, the vote is not needed any more, and Kafka stores none."""

    leader_id: int
    leader_epoch: int


class ReadState(NamedTuple):
    """The content of the file; `state` is None if there is none, or it cannot be read."""

    state: QuorumState | None
    is_damaged: bool = False


def encode(state: QuorumState) -> bytes:
    fields = {
        "leaderId": state.leader_id,
        "leaderEpoch": state.leader_epoch,
        "votedId": NOBODY,
        "votedDirectoryId": uuid_to_text(ZERO_UUID),
        "data_version": _VERSION,
    }
    return sealed(json.dumps(fields, separators=(",", ":")).encode())


def decode(data: bytes) -> ReadState:
    """With one wrong bit it is damaged, and has its state; with more, none."""
    state = _decoded(data)
    if state is not None:
        return ReadState(state)
    if len(data) <= _MENDED_BYTES_MAX:
        for place in range(len(data)):
            for bit in range(8):
                other = bytearray(data)
                other[place] ^= 1 << bit
                # Kafka's own file has no checksum: nothing tells then which bit is wrong.
                state = _decoded(bytes(other)) if _is_sealed(bytes(other)) else None
                if state is not None:
                    return ReadState(state, True)
    return ReadState(None, True)


def write(disk: Disk, directory: str, state: QuorumState) -> None:
    """Durable on return. Raises OSError."""
    replace_file(disk, f"{directory}/{FILE_NAME}", encode(state))


def read(disk: Disk, directory: str) -> ReadState:
    """Raises OSError, but not for a missing file."""
    try:
        return decode(read_file(disk, f"{directory}/{FILE_NAME}"))
    except FileNotFoundError:
        return ReadState(None)


def _is_sealed(data: bytes) -> bool:
    content = unsealed(data)
    return content is not None and len(content) < len(data)


def _decoded(data: bytes) -> QuorumState | None:
    content = unsealed(data)
    try:
        fields = json.loads(content or b"")
        numbers = [fields[name] for name in ("leaderId", "leaderEpoch", "data_version")]
    except (ValueError, TypeError, LookupError):
        return None
    if any(type(number) is not int for number in numbers):
        return None
    leader_id, leader_epoch, version = numbers
    return QuorumState(leader_id, leader_epoch) if version in (0, 1) and leader_epoch >= 0 else None
