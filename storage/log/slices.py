"""The result of a read: a slice of a segment file, not its bytes.

A `Slice` has its length at once and reads its bytes when they are sent: large slices as views of a read-only
mapping of the segment, small ones by one `pread`. A view keeps its mapping alive, so a segment may be closed,
replaced or deleted while responses are being sent. The bytes are copied from the mapping to the socket:
`sendfile` was tried and gained nothing (`docs/performance.md`).
"""

import errno
from typing import Protocol

from odradek.storage.disk import Buffer

MAP_AT_LEAST_BYTES = 65_536
"""Below this size a `pread` is cheaper than the page faults of a mapping that has just grown."""


class Source(Protocol):
    """The source of a slice (a `SegmentFile`)."""

    def read(self, position: int, size_bytes: int) -> bytes: ...

    def view(self, position: int, size_bytes: int) -> memoryview: ...

    def read_now(self, position: int, size_bytes: int) -> Buffer | None: ...

    def is_resident(self, position: int, size_bytes: int) -> bool: ...

    def load(self, position: int, size_bytes: int) -> None: ...


class Loadable(Protocol):
    """A file that a worker thread can load into the system's memory."""

    def load(self, position: int, size_bytes: int) -> None: ...


class WouldWait(Exception):
    """A search needs bytes that are not in the system's memory. After `load`, in a worker thread, it can be
    repeated.
    """

    def __init__(self, source: Loadable, position: int, size_bytes: int) -> None:
        super().__init__(f"{size_bytes} bytes at {position} are not in memory")
        self._source = source
        self._position = position
        self._size_bytes = size_bytes

    def load(self, ahead_bytes: int = 0) -> None:
        """Load the bytes, and more after them up to `ahead_bytes` in all. Raises `OSError`."""
        self._source.load(self._position, max(self._size_bytes, ahead_bytes))


class Slice:
    """`size` bytes of record batches, from `position` of a segment; the last may be cut off (KIP-74)."""

    __slots__ = ("_buffers", "_position", "_size", "_source")

    def __init__(self, source: Source, position: int, size: int) -> None:
        self._source = source
        self._position = position
        self._size = size
        self._buffers: list[memoryview] | None = None

    def __len__(self) -> int:
        return self._size

    @property
    def source(self) -> Source:
        return self._source

    @property
    def end_position(self) -> int:
        """The end position in the source."""
        return self._position + self._size

    def buffers(self) -> list[memoryview]:
        """The bytes, `len(self)` of them; the same objects at each call. Raises `OSError`."""
        if self._buffers is None:
            if self._size >= MAP_AT_LEAST_BYTES:
                buffer = self._source.view(self._position, self._size)
            elif self._size:
                buffer = memoryview(self._source.read(self._position, self._size))
            else:
                self._buffers = []
                return self._buffers
            if len(buffer) != self._size:
                # The response already has the length: with fewer bytes the client would misread the next
                # field.
                raise OSError(errno.EIO, f"the segment's file is {self._size - len(buffer)} bytes too short")
            self._buffers = [buffer]
        return self._buffers

    def would_wait(self) -> bool:
        """Whether `buffers` would wait for the disk, as far as the system can tell. Raises `OSError`.

        A missing page would stop the event loop, and with it all clients: after `load`, in a worker thread,
        `buffers` does not wait.
        """
        if self._buffers is not None or not self._size:
            return False
        if self._size >= MAP_AT_LEAST_BYTES:
            return not self._source.is_resident(self._position, self._size)
        buffer = self._source.read_now(self._position, self._size)
        if buffer is None:
            return True
        if len(buffer) == self._size:
            self._buffers = [memoryview(buffer)]
        return False

    def load(self, start: int = 0, size_bytes: int | None = None) -> None:
        """Wait until the bytes are in memory, or `size_bytes` of them from `start`. For a worker thread."""
        self._source.load(self._position + start, self._size - start if size_bytes is None else size_bytes)

    def tobytes(self) -> bytes:
        """A copy of the bytes."""
        return b"".join(self.buffers())


class _NoSource:
    def read(self, position: int, size_bytes: int) -> bytes:
        return b""

    def view(self, position: int, size_bytes: int) -> memoryview:
        return memoryview(b"")

    def read_now(self, position: int, size_bytes: int) -> Buffer | None:
        return b""

    def is_resident(self, position: int, size_bytes: int) -> bool:
        return True

    def load(self, position: int, size_bytes: int) -> None:
        pass


EMPTY = Slice(_NoSource(), 0, 0)
"""No records."""
FIRST_TOO_LARGE = Slice(_NoSource(), 0, 0)
"""No records, because the first batch is over the limit."""
