"""The ordinary exchange of a follower with one leader, compiled: see `_fetching.pyx`."""

from collections.abc import Callable

from odradek.coordinator.replication.replica_fetcher import Fetched, ReplicaFetcher
from odradek.coordinator.replication.values import ReplicaKey
from odradek.wire.messages.fetch import FetchPartition
from odradek.wire.schema import Message

RESPONSE_BYTES_MAX: int
"""Bound of one response, in case that a leader sends nonsense."""

class FetchExchange:
    """One request is under way at a time: `begin` makes the frame of one of the machine's.

    The protocol of a connection: whoever holds it sets `send`, and overrides `ended`, `other` and `broken`.
    Without a connection `judge` and `next_frame` do the same.
    """

    send: Callable[[bytes], object]
    """Sends a frame."""
    failed: Callable[[ReplicaKey, Exception], object]
    """Gets a change of a partition's log that has failed."""

    failures: dict[ReplicaKey, str]
    """A partition is taken out when something has succeeded."""
    @property
    def fetcher(self) -> ReplicaFetcher: ...
    @property
    def correlation_id(self) -> int:
        """Number of the request under way, which its response repeats."""
    @property
    def sent_ns(self) -> int:
        """Monotonic time of the newest request."""
    @property
    def judged_count(self) -> int:
        """Responses that were carried out here."""
    @property
    def is_waiting(self) -> bool:
        """Whether a request is under way."""
    def __init__(
        self,
        fetcher: ReplicaFetcher,
        client_id: str,
        failed: Callable[[ReplicaKey, Exception], object],
        failures: dict[ReplicaKey, str] | None = None,
    ) -> None: ...
    def begin(self, request: Message, version: int) -> bytes:
        """The frame of a request of the machine. What was received before may be written over from now on."""
    def judge(self, buffer: bytearray, start: int, end: int) -> bool:
        """Whether the response `buffer[start:end]`, a frame without its size, was an ordinary one. Then it is
        carried out, and `next_frame` is to be called; otherwise there was no effect."""
    def next_frame(self) -> bytes | None:
        """After a response was judged: the frame of the request that follows; None if the machine makes
        it."""

    # Rules, apart so that a test can undo one

    def is_as_asked(self, one: Fetched, asked: FetchPartition, log_end_offset: int) -> bool:
        """See `ReplicaFetcher`: a response counts only for the log and the leader epoch of its request."""
    def high_watermark_of(self, leaders: int, next_offset: int) -> int:
        """The leader's, at most the end of the log."""

    # The connection

    def get_buffer(self, size_hint: int) -> memoryview: ...
    def buffer_updated(self, size_bytes: int) -> None: ...
    def ended(self) -> None:
        """A response was carried out, and the next request is the machine's."""
    def other(self, frame: memoryview) -> None:
        """A response for the machine; valid until `begin`."""
    def broken(self, error: Exception | None) -> None:
        """The leader sends what is no response; or `error`, a bug."""
