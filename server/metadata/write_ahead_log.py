"""SQLite's write-ahead log, looked at before SQLite reads it: a flipped bit in it is mended.

SQLite reads the log up to the first frame with a wrong checksum, and ignores the rest without a message.
After a loss of power that is right: a torn change was never acknowledged. After a crash of the process, a bit
flipped by the disk would lose every later change of the metadata. The checksum is two sums that are linear in
the words of a frame, so the bits that can mend it are found without trying each; if there are several, the
caller chooses by the content of the pages. A frame that no single bit mends ends the log here, too, and lost
changes are counted.

Format: "WAL-Index and WAL file format" of https://www.sqlite.org/fileformat2.html, section 4.
"""

import os
import struct
from collections.abc import Iterator, Sequence
from functools import cache
from operator import eq, mul
from typing import NamedTuple

HEADER_BYTES = 32
FRAME_HEADER_BYTES = 24
_MAGIC = {"<": 0x377F0682, ">": 0x377F0683}
"""By the order of the bytes in the words that are summed."""
_VERSION = 3_007_000
_PAGE_BYTES = frozenset(1 << power for power in range(9, 17))
_COVERED_BYTES = 24
"""Size of the part of the header that its checksum covers."""
_MASK = 0xFFFFFFFF

Sums = tuple[int, int]


class Patch(NamedTuple):
    """New bytes for a damaged place."""

    position: int
    content: bytes


class Reading(NamedTuple):
    """The content of a write-ahead log."""

    patches: list[Patch]
    """Patches that mend it, together with one of `choices` where there are any."""
    choices: list[Patch]
    """Each would do, as far as the checksum tells; of one frame."""
    lost_count: int
    """Transactions, each written to its end, that cannot be read any more."""

    @property
    def is_damaged(self) -> bool:
        return bool(self.patches or self.choices or self.lost_count)


def read(log: bytes) -> Reading:
    """Look at all of a log. Nothing is changed."""
    if len(log) < HEADER_BYTES + FRAME_HEADER_BYTES:
        return Reading([], [], 0)  # nothing was ever committed to it
    walk = _Walk.begin(log)
    if walk is None:
        return Reading([], [], 1)
    while walk.step():
        pass
    return Reading(walk.patches, walk.choices, walk.count_left())


def mend(path: str) -> Reading:
    """`read` the log in the file at `path`, and apply its patches, not the choices. Raises OSError."""
    with open(path, "rb") as file:
        found = read(file.read())
    patch(path, found.patches)
    return found


def patch(path: str, patches: Sequence[Patch]) -> None:
    """Write patches to the log in the file at `path`. Raises OSError."""
    if not patches:
        return
    with open(path, "r+b") as file:
        for position, content in patches:
            file.seek(position)
            file.write(content)
        file.flush()
        os.fsync(file.fileno())


def replayed(database: bytes, log: bytes) -> bytearray:
    """The database that SQLite would read from its file and its log: with the pages of each transaction up to
    the first frame that is none of the log, or whose checksum does not fit.
    """
    pages = bytearray(database)
    if len(log) < HEADER_BYTES:
        return pages
    magic, version, page_bytes = struct.unpack_from(">III", log)
    order = next((order for order, known in _MAGIC.items() if known == magic), "")
    if not order or version != _VERSION or page_bytes not in _PAGE_BYTES:
        return pages
    sums = _sums(_words(log[:_COVERED_BYTES], order), (0, 0))
    if sums != _stored(log, _COVERED_BYTES):
        return pages
    frame_bytes = FRAME_HEADER_BYTES + page_bytes
    waiting: list[tuple[int, bytes]] = []
    for at in range(HEADER_BYTES, len(log) - frame_bytes + 1, frame_bytes):
        page = log[at + FRAME_HEADER_BYTES : at + frame_bytes]
        sums = _sums(_words(log[at : at + 8] + page, order), sums)
        if log[at + 8 : at + 16] != log[16:24] or sums != _stored(log, at + 16):
            break
        number, page_count = struct.unpack_from(">II", log, at)
        waiting.append(((number - 1) * page_bytes, page))
        if page_count:
            size_bytes = page_count * page_bytes
            pages.extend(bytes(max(size_bytes - len(pages), 0)))
            for position, content in waiting:
                pages[position : position + page_bytes] = content
            del pages[size_bytes:]
            waiting.clear()
    return pages


def likeliest_first(choices: Sequence[Patch], log: bytes, database: bytes) -> list[Patch]:
    """Choices in the order in which to try them: first those whose page is most like the one that was there
    before it. `database` is the file beside the log.
    """
    frame_bytes = len(choices[0].content)
    page_bytes = frame_bytes - FRAME_HEADER_BYTES
    position = choices[0].position
    former: dict[bytes, bytes] = {}
    for at in range(HEADER_BYTES, position, frame_bytes):
        former[log[at : at + 4]] = log[at + FRAME_HEADER_BYTES : at + frame_bytes]

    def rank(choice: Patch) -> tuple[int, bool]:
        content = choice.content
        page_at = (int.from_bytes(content[:4], "big") - 1) * page_bytes
        before = former.get(content[:4], database[max(page_at, 0) : page_at + page_bytes])
        # Without the mark of its end a transaction did not happen.
        return sum(map(eq, content[FRAME_HEADER_BYTES:], before)), content[4:8] != bytes(4)

    return sorted(choices, key=rank, reverse=True)


# The header and the frames ----------------------------------------------------------------------------------


class _Walk:
    """On its way through the frames. `_sums` are those up to where it is."""

    def __init__(self, log: bytes, header: bytes, order: str, sums: Sums) -> None:
        self.patches: list[Patch] = []
        self.choices: list[Patch] = []
        self._log = log
        self._order = order
        self._sums = sums
        self._salts = header[16:24]
        self._frame_bytes = FRAME_HEADER_BYTES + struct.unpack_from(">I", header, 8)[0]
        self._position = HEADER_BYTES
        self._note(0, [header + struct.pack(">II", *sums)])

    @classmethod
    def begin(cls, log: bytes) -> "_Walk | None":
        """At the first frame; None if the header is invalid."""
        stored = _stored(log, _COVERED_BYTES)
        for order, magic in _MAGIC.items():
            for covered, sums in _fitting(log[:_COVERED_BYTES], order, (0, 0), stored):
                told_magic, version, page_bytes = struct.unpack_from(">III", covered)
                if (told_magic, version) != (magic, _VERSION) or page_bytes not in _PAGE_BYTES:
                    continue
                walk = cls(log, covered, order, sums)
                if (covered, sums) == (log[:_COVERED_BYTES], stored) or walk._goes_on(HEADER_BYTES, sums):
                    return walk
        return None

    def step(self) -> bool:
        """Over a frame; False when the next one is none of this log, or beyond mending."""
        log, position = self._log, self._position
        end = position + self._frame_bytes
        if end > len(log):
            return False
        covered = log[position : position + 8] + log[position + FRAME_HEADER_BYTES : end]
        stored = _stored(log, position + 16)
        if log[position + 8 : position + 16] == self._salts:
            fitting = list(_fitting(covered, self._order, self._sums, stored))
        else:
            # Left over from before the log was begun anew, unless the sums go on: then the salts have
            # suffered.
            sums = _sums(_words(covered, self._order), self._sums)
            fitting = [(covered, sums)] if sums == stored else []
        if len(fitting) > 1:
            # The next frame knows whether it was the content that has suffered or the sums.
            fitting = [one for one in fitting if self._goes_on(end, one[1])] or fitting
        if not fitting or (len(fitting) > 1 and self.choices):
            return False
        right = [one[:8] + self._salts + struct.pack(">II", *sums) + one[8:] for one, sums in fitting]
        self._note(position, right)
        self._sums = fitting[0][1]
        self._position = end
        return True

    def _goes_on(self, position: int, sums: Sums) -> bool:
        """Whether the frame at `position` is as it was written, and follows these sums."""
        log, page_at = self._log, position + FRAME_HEADER_BYTES
        covered = log[position : position + 8] + log[page_at : position + self._frame_bytes]
        return (
            position + self._frame_bytes <= len(log)
            and log[position + 8 : position + 16] == self._salts
            and _sums(_words(covered, self._order), sums) == _stored(log, position + 16)
        )

    def count_left(self) -> int:
        """How many of the frames from here on belong to this log and end a transaction."""
        log = self._log
        return sum(
            log[at + 8 : at + 16] == self._salts and log[at + 4 : at + 8] != bytes(4)
            for at in range(self._position, len(log) - self._frame_bytes + 1, self._frame_bytes)
        )

    def _note(self, position: int, right: list[bytes]) -> None:
        if len(right) > 1:
            self.choices = [Patch(position, content) for content in right]
        elif self._log[position : position + len(right[0])] != right[0]:
            self.patches.append(Patch(position, right[0]))


def _fitting(covered: bytes, order: str, before: Sums, stored: Sums) -> Iterator[tuple[bytes, Sums]]:
    """Contents and sums that fit each other, with one bit of either changed at the most."""
    words = _words(covered, order)
    sums = _sums(words, before)
    if sums == stored:
        yield covered, sums
        return
    if (sums[0] ^ stored[0]).bit_count() + (sums[1] ^ stored[1]).bit_count() == 1:
        yield covered, sums
    for index, bit in _changed_bits(words, sums, stored):
        other = [*words]
        other[index] ^= 1 << bit
        yield struct.pack(f"{order}{len(other)}I", *other), stored


def _stored(log: bytes, position: int) -> Sums:
    first, second = struct.unpack_from(">II", log, position)
    return first, second


# The checksum -----------------------------------------------------------------------------------------------


def _words(covered: bytes, order: str) -> tuple[int, ...]:
    return struct.unpack(f"{order}{len(covered) // 4}I", covered)


def _sums(words: Sequence[int], before: Sums) -> Sums:
    """Both sums after these words. The first word of each pair goes into the first sum, with the second sum,
    then the second word into the second sum, with the first: written out, each word and each sum from before
    counts with a weight.
    """
    to_first, to_second, (both, across, alone) = _weights(len(words) // 2)
    first = sum(map(mul, to_first, words)) + both * before[0] + across * before[1]
    second = sum(map(mul, to_second, words)) + across * before[0] + alone * before[1]
    return first & _MASK, second & _MASK


@cache
def _weights(pairs: int) -> tuple[list[int], list[int], tuple[int, int, int]]:
    """Weights of the words in the first sum and in the second, and of the sums from before: of the first in
    itself, of each in the other, of the second in itself."""
    to_first: list[int] = []
    to_second: list[int] = []
    both, across, alone = 1, 0, 1
    for _ in range(pairs):
        to_first += (across, (both + across) & _MASK)
        to_second += (alone, (across + alone) & _MASK)
        both, across, alone = (both + across) & _MASK, (across + alone) & _MASK, (across + 2 * alone) & _MASK
    return to_first[::-1], to_second[::-1], (both, across, alone)


def _changed_bits(words: Sequence[int], sums: Sums, stored: Sums) -> Iterator[tuple[int, int]]:
    """Each word, and bit of it, that the other way makes the sums what is stored. High bits of a word leave
    the sum, so that for some there are hundreds.
    """
    to_first, to_second, _ = _weights(len(words) // 2)
    missing = (stored[0] - sums[0]) & _MASK, (stored[1] - sums[1]) & _MASK
    for index, word in enumerate(words):
        for bit in range(32):
            step = -(1 << bit) if word >> bit & 1 else 1 << bit
            if (to_first[index] * step & _MASK, to_second[index] * step & _MASK) == missing:
                yield index, bit
