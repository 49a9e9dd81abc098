"""One wrong bit in a record batch of the metadata log is found and mended.

The CRC-32C of a batch is linear: what one wrong bit changes in it depends only on the distance of the bit
from the end of the batch, and is another value for each bit of a batch below 256 MB. So the bit is found by a
walk back from the difference of the two checksums, without trying each. The fields before the checksum are
known otherwise: offsets in this log have no gaps, the format is always 2, and with a wrong length the
checksum fits at the right one.

Source: `DefaultRecordBatch.java` for the layout; R. Williams, "A painless guide to CRC error detection
algorithms", for walking back.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from struct import Struct
from typing import NamedTuple

from odradek.wire._records import BatchHeader, read_batch_header
from odradek.wire.checksums import crc32c
from odradek.wire.errors import KafkaError, MalformedMessage
from odradek.wire.messages.metadata_records import AnyRecord, records_of_batch
from odradek.wire.record_layout import (
    ATTRIBUTES_POSITION,
    CRC_POSITION,
    HEADER_SIZE_BYTES,
    LEADER_EPOCH_POSITION,
    LENGTH_POSITION,
    LOG_OVERHEAD_BYTES,
    MAGIC_POSITION,
    MAGIC_V2,
)

_POLYNOMIAL = 0x82F63B78
"""CRC-32C's, the lowest bit first."""
_OFFSET_BYTES = 8
_LENGTH_BITS = 31
_OFFSET = Struct(">q")
_EPOCH = Struct(">i")


class Patch(NamedTuple):
    """New bytes for a damaged place."""

    position: int
    content: bytes


class Mended(NamedTuple):
    """A batch as it was written: its size, and the patches that make it so."""

    size_bytes: int
    patches: tuple[Patch, ...]


class ReadBatch(NamedTuple):
    """A sound batch of a file."""

    position: int
    content: bytes
    """Its bytes, mended where one bit was wrong."""
    header: BatchHeader
    patches: tuple[Patch, ...] = ()
    """Patches that mend the file."""

    @property
    def end_position(self) -> int:
        return self.position + len(self.content)

    def records(self) -> list[AnyRecord]:
        """Raises as the decoders do."""
        return list(records_of_batch(self.content, self.header))

    def with_epoch(self, leader_epoch: int) -> ReadBatch:
        """The batch with its right leader epoch, which the checksum does not cover."""
        if self.header.leader_epoch == leader_epoch:
            return self
        right = _EPOCH.pack(leader_epoch)
        content = bytearray(self.content)
        content[LEADER_EPOCH_POSITION : LEADER_EPOCH_POSITION + len(right)] = right
        patch = Patch(self.position + LEADER_EPOCH_POSITION, right)
        return ReadBatch(self.position, bytes(content), read_batch_header(content), (*self.patches, patch))


def mended_batch(
    content: bytes, position: int, base_offset: int | None, leader_epoch: int | None = None
) -> ReadBatch | None:
    """The batch at a position of a file, with one wrong bit at the most; None if it is damaged further.
    `base_offset` and `leader_epoch` are those that it has to have, None if they are not known.
    """
    found = mended(content, position, base_offset)
    if found is None:
        return None
    data = bytearray(content[position : position + found.size_bytes])
    for at, right in found.patches:
        data[at - position : at - position + len(right)] = right
    try:
        batch = ReadBatch(position, bytes(data), read_batch_header(data), found.patches)
        if found.patches:
            # Of many wrong bits one may seem to be the only one, once in a billion batches.
            batch.records()
    except (KafkaError, MalformedMessage):
        return None
    if leader_epoch is None or batch.header.leader_epoch == leader_epoch:
        return batch
    return None if found.patches else batch.with_epoch(leader_epoch)


def base_offset_at(content: bytes, position: int) -> int:
    """First offset of the batch at a position."""
    offset: int = _OFFSET.unpack_from(content, position)[0]
    return offset


def mended(content: bytes, position: int, base_offset: int | None) -> Mended | None:
    """The batch at `position` of a file, with one wrong bit at the most; None if it is damaged further, or
    cut off. `base_offset` is its first offset, None if it is not known. The leader epoch is not looked at.
    """
    if len(content) - position < HEADER_SIZE_BYTES:
        return None
    patches = _patches_of_prefix(content, position, base_offset)
    if patches is None:
        return None
    size_bytes = LOG_OVERHEAD_BYTES + _number(content, position + LENGTH_POSITION, 4)
    if HEADER_SIZE_BYTES <= size_bytes <= len(content) - position:
        difference = _stored(content, position) ^ _computed(content, position, size_bytes)
        if difference == 0:
            return Mended(size_bytes, patches)
        if patches:
            return None
        found = _wrong_bit(difference, size_bytes - ATTRIBUTES_POSITION)
        if found is not None:
            place, bit = found
            place += position + ATTRIBUTES_POSITION
            return Mended(size_bytes, (Patch(place, bytes((content[place] ^ 1 << bit,))),))
        if difference.bit_count() == 1:
            right = _computed(content, position, size_bytes).to_bytes(4, "big")
            return Mended(size_bytes, (Patch(position + CRC_POSITION, right),))
    return None if patches else _with_other_length(content, position)


def sound_after(content: bytes, position: int, base_offset: int) -> Iterator[int]:
    """Positions of sound batches after a damaged one at `position`, in order, the next one of each looked for
    after its end. `base_offset` is the first offset of the damaged one.
    """
    # The offsets of neighbours have the same upper bytes, save at a carry.
    starts = {(base_offset + ahead).to_bytes(_OFFSET_BYTES, "big")[:5] for ahead in (0, 1 << 24)}
    at = position + 1
    while True:
        places = [place for start in starts if (place := content.find(start, at)) >= 0]
        if not places:
            return
        at = min(places)
        size_bytes = sound_size(content, at)
        if size_bytes and _number(content, at, _OFFSET_BYTES) > base_offset:
            yield at
            at += size_bytes
        else:
            at += 1


def sound_size(content: bytes, position: int) -> int:
    """Size of the batch at a position by its checksum; 0 if it is not sound."""
    if len(content) - position < HEADER_SIZE_BYTES or content[position + MAGIC_POSITION] != MAGIC_V2:
        return 0
    size_bytes = LOG_OVERHEAD_BYTES + _number(content, position + LENGTH_POSITION, 4)
    if not HEADER_SIZE_BYTES <= size_bytes <= len(content) - position:
        return 0
    return size_bytes if _computed(content, position, size_bytes) == _stored(content, position) else 0


def _patches_of_prefix(content: bytes, position: int, base_offset: int | None) -> tuple[Patch, ...] | None:
    """Patches of the first offset and the format; None if more than one bit of them is wrong."""
    patches, wrong_bits = [], 0
    if base_offset is not None:
        right = base_offset.to_bytes(_OFFSET_BYTES, "big")
        wrong_bits += (_number(content, position, _OFFSET_BYTES) ^ base_offset).bit_count()
        if wrong_bits:
            patches.append(Patch(position, right))
    wrong_in_magic = (content[position + MAGIC_POSITION] ^ MAGIC_V2).bit_count()
    if wrong_in_magic:
        patches.append(Patch(position + MAGIC_POSITION, bytes((MAGIC_V2,))))
    return tuple(patches) if wrong_bits + wrong_in_magic <= 1 else None


def _with_other_length(content: bytes, position: int) -> Mended | None:
    told = _number(content, position + LENGTH_POSITION, 4)
    for bit in range(_LENGTH_BITS + 1):
        length = told ^ 1 << bit
        size_bytes = LOG_OVERHEAD_BYTES + length
        if not HEADER_SIZE_BYTES <= size_bytes <= len(content) - position:
            continue
        if _computed(content, position, size_bytes) == _stored(content, position):
            return Mended(size_bytes, (Patch(position + LENGTH_POSITION, length.to_bytes(4, "big")),))
    return None


def _number(content: bytes, position: int, size_bytes: int) -> int:
    return int.from_bytes(content[position : position + size_bytes], "big")


def _stored(content: bytes, position: int) -> int:
    return _number(content, position + CRC_POSITION, 4)


def _computed(content: bytes, position: int, size_bytes: int) -> int:
    return crc32c(memoryview(content)[position + ATTRIBUTES_POSITION : position + size_bytes])


def _wrong_bit(difference: int, size_bytes: int) -> tuple[int, int] | None:
    """Byte, and bit of it, that make this difference of two checksums of `size_bytes` bytes."""
    table, by_upper_byte = _table()
    bits = {table[1 << bit]: bit for bit in range(8)}
    for place in range(size_bytes - 1, -1, -1):
        bit = bits.get(difference)
        if bit is not None:
            return place, bit
        # One byte of zeros less behind it.
        lower = by_upper_byte[difference >> 24]
        difference = ((difference ^ table[lower]) << 8) & 0xFFFFFFFF | lower
    return None


@cache
def _table() -> tuple[list[int], list[int]]:
    """The register after each byte, and the byte by the upper byte of the register, which no two share."""
    table = []
    for byte in range(256):
        register = byte
        for _ in range(8):
            register = register >> 1 ^ (_POLYNOMIAL if register & 1 else 0)
        table.append(register)
    by_upper_byte = [0] * 256
    for byte, register in enumerate(table):
        by_upper_byte[register >> 24] = byte
    return table, by_upper_byte
