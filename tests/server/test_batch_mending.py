"""One wrong bit anywhere in a batch is found; more are not guessed."""

from __future__ import annotations

import random

from odradek.server.metadata.batch_mending import mended, sound_after, sound_size
from odradek.wire.record_layout import LEADER_EPOCH_POSITION, Record
from odradek.wire.records import build_batch

BASE = 1000
BEFORE, AFTER = (
    bytes(build_batch([Record(BASE - 1, 5, None, b"before")])),
    bytes(build_batch([Record(BASE + 3, 5, None, b"after")])),
)
BATCH = bytes(build_batch([Record(BASE + number, 5, None, b"value %d" % number) for number in range(3)]))
CONTENT = BEFORE + BATCH + AFTER
START = len(BEFORE)


def flipped(content: bytes, *bits: int) -> bytes:
    other = bytearray(content)
    for bit in bits:
        other[bit // 8] ^= 1 << bit % 8
    return bytes(other)


def patched(content: bytes) -> bytes | None:
    """The content with the batch mended."""
    found = mended(content, START, BASE)
    if found is None:
        return None
    other = bytearray(content)
    for position, right in found.patches:
        other[position : position + len(right)] = right
    assert found.size_bytes == len(BATCH)
    return bytes(other)


def test_a_sound_batch_needs_no_patch() -> None:
    assert mended(CONTENT, START, BASE) == (len(BATCH), ())


def test_each_single_bit_is_mended() -> None:
    epoch = range(8 * LEADER_EPOCH_POSITION, 8 * (LEADER_EPOCH_POSITION + 4))
    for bit in range(8 * len(BATCH)):
        if bit not in epoch:
            assert patched(flipped(CONTENT, 8 * START + bit)) == CONTENT, bit


def test_two_wrong_bits_are_not_mended() -> None:
    chance = random.Random(1)
    epoch = range(8 * LEADER_EPOCH_POSITION, 8 * (LEADER_EPOCH_POSITION + 4))
    bits = [bit for bit in range(8 * len(BATCH)) if bit not in epoch]
    for _ in range(2000):
        two = chance.sample(bits, 2)
        assert patched(flipped(CONTENT, *(8 * START + bit for bit in two))) is None, two


def test_a_batch_that_is_cut_off_is_not_mended() -> None:
    for size in range(len(BATCH)):
        assert mended(CONTENT[: START + size], START, BASE) is None


def test_a_wrong_bit_in_a_large_batch_is_found() -> None:
    batch = bytes(build_batch([Record(0, 5, None, bytes(300_000))]))
    for place in (21, 100, 150_000, len(batch) - 1):
        found = mended(flipped(batch, 8 * place + 3), 0, 0)
        assert found is not None
        assert found.patches == ((place, batch[place : place + 1]),)


def test_sound_batches_are_found_behind_a_damaged_one() -> None:
    damaged = BEFORE + bytes(len(BATCH)) + AFTER + bytes(10) + AFTER
    after = len(BEFORE) + len(BATCH)
    assert list(sound_after(damaged, START, BASE)) == [after, after + len(AFTER) + 10]
    assert list(sound_after(damaged, START, BASE + 3)) == []
    assert sound_size(damaged, after) == len(AFTER)
    assert sound_size(damaged, START) == 0


def test_offsets_are_compared_beyond_a_carry() -> None:
    base = 0x00FFFFFF
    first, second = (
        bytes(build_batch([Record(base, 5, None, b"first")])),
        bytes(build_batch([Record(base + 1, 5, None, b"second")])),
    )
    assert list(sound_after(bytes(len(first)) + second, 0, base)) == [len(first)]
