"""The metadata log of a KRaft cluster is followed: who leads, what comes next, what may be applied.

A node is an observer: it fetches from the leader of the quorum and votes for nobody. Any controller that does
not lead says who does. The leader also sends records that are not committed. They are kept aside until the
high watermark has passed them, so what was applied is never taken back. Nothing is stored on a disk: a start
begins at offset 0, and gets a snapshot where the log does not go back so far.

Source: KIP-595, KIP-630 (snapshots), KIP-1166; KafkaRaftClient of Kafka 4.3.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from odradek.wire.errors import ErrorCode, KafkaError
from odradek.wire.records import iter_whole_batches, verify_crc
from odradek.wire.schema import Buffer

logger = logging.getLogger("odradek.cluster")

NO_EPOCH = 0
"""Epoch of a node that knows no leader yet; a leader responds with its own."""
NO_OFFSET = -1
SNAPSHOT_BYTES_MAX = 1_073_741_824
"""Bound of what one snapshot may take in memory."""
ELSEWHERE = frozenset(
    {ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.UNKNOWN_LEADER_EPOCH}
)
"""Another controller leads, or the same one in another epoch; the response often says which."""

NO_SNAPSHOT = frozenset(
    {ErrorCode.SNAPSHOT_NOT_FOUND, ErrorCode.POSITION_OUT_OF_RANGE, ErrorCode.UNKNOWN_SERVER_ERROR}
)
"""The snapshot cannot be had from here. Kafka 4.3.1 says the last also for a wrong leader epoch."""


class Controller(NamedTuple):
    """A controller's address; the id is -1 where it is not known."""

    node_id: int
    host: str
    port: int

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"


@dataclass(frozen=True, slots=True, kw_only=True)
class FetcherSettings:
    """Options of `controller.quorum.*`, in milliseconds."""

    fetch_timeout_ms: int = 2_000
    """Without a response of the leader for this long another one is looked for."""
    retry_backoff_ms: int = 20
    retry_backoff_max_ms: int = 1_000


class FetchLog(NamedTuple):
    """Fetch the log of `controller` from an offset on."""

    controller: Controller
    leader_epoch: int
    offset: int
    last_fetched_epoch: int
    high_watermark: int
    """-1 where none is known yet."""


class FetchSnapshot(NamedTuple):
    """Fetch a part of a snapshot, which ends before `end_offset`."""

    controller: Controller
    leader_epoch: int
    end_offset: int
    epoch: int
    position: int


class FetchResult(NamedTuple):
    """Content of the response to a `FetchLog`, for the one partition of the metadata log."""

    error: ErrorCode
    leader_id: int
    leader_epoch: int
    endpoints: Sequence[Controller]
    high_watermark: int
    diverging: tuple[int, int] | None
    """Epoch and end offset up to which both logs are the same."""
    snapshot: tuple[int, int] | None
    """End offset and epoch of the snapshot that takes the place of what was asked for."""
    records: Buffer


class SnapshotResult(NamedTuple):
    """Content of the response to a `FetchSnapshot`."""

    error: ErrorCode
    leader_id: int
    leader_epoch: int
    endpoints: Sequence[Controller]
    size_bytes: int
    position: int
    records: Buffer


class Committed(NamedTuple):
    """Whole batches that may be applied."""

    batches: bytes
    next_offset: int
    """The offset after them."""
    epoch: int
    """Leader epoch of the last of them."""
    is_snapshot: bool
    """Whether the batches take the place of everything before them."""


class _Pending(NamedTuple):
    """A batch that is not committed yet."""

    data: bytes
    next_offset: int
    epoch: int


class _Snapshot:
    """A snapshot that is being fetched."""

    def __init__(self, end_offset: int, epoch: int) -> None:
        self.end_offset = end_offset
        self.epoch = epoch
        self.data = bytearray()


class MetadataFetcher:
    """Call `next_request` when `due_ms` has come; hand in what comes back. One request is under way at a
    time."""

    def __init__(self, bootstrap: Iterable[Controller], settings: FetcherSettings, now_ms: int) -> None:
        self._bootstrap = deque(bootstrap)
        self._settings = settings
        self.leader: Controller | None = None
        self.leader_epoch = NO_EPOCH
        self.high_watermark = NO_OFFSET
        self.applied_offset = 0
        """The offset after the last batch that was given out."""
        self._applied_epoch = NO_EPOCH
        self._pending: deque[_Pending] = deque()
        self._snapshot: _Snapshot | None = None
        self._failures = 0
        self._answered_ms = now_ms
        self.due_ms = now_ms

    @property
    def next_offset(self) -> int:
        """Where the next fetch begins."""
        return self._pending[-1].next_offset if self._pending else self.applied_offset

    def next_request(self) -> FetchLog | FetchSnapshot:
        """To the leader; to the controllers in turn where none is known."""
        controller = self.leader or self._bootstrap[0]
        snapshot = self._snapshot
        if snapshot is not None:
            return FetchSnapshot(
                controller, self.leader_epoch, snapshot.end_offset, snapshot.epoch, len(snapshot.data)
            )
        epoch = self._pending[-1].epoch if self._pending else self._applied_epoch
        return FetchLog(controller, self.leader_epoch, self.next_offset, epoch, self.high_watermark)

    def failed(self, now_ms: int) -> None:
        """No response came. The next controller is asked when the leader has been silent for too long."""
        if self.leader is None or now_ms - self._answered_ms >= self._settings.fetch_timeout_ms:
            self._forget_leader()
        self._back_off(now_ms)

    def fetched(self, result: FetchResult, now_ms: int) -> list[Committed]:
        """Batches that may be applied now."""
        if not self._is_from_leader(result, now_ms):
            return []
        if result.snapshot is not None:
            self._pending.clear()
            self._snapshot = _Snapshot(*result.snapshot)
        elif result.diverging is not None:
            self._cut(result.diverging[1])
        else:
            self._take_records(result.records)
            self.high_watermark = max(self.high_watermark, result.high_watermark)
        return self._committed()

    def snapshot_fetched(self, result: SnapshotResult, now_ms: int) -> list[Committed]:
        """The whole snapshot, once it is there."""
        if result.error in NO_SNAPSHOT:
            # A newer one has taken its place: the next fetch of the log names it.
            self._snapshot = None
            self._back_off(now_ms)
            return []
        snapshot = self._snapshot
        if not self._is_from_leader(result, now_ms) or snapshot is None:
            return []
        if result.position != len(snapshot.data) or result.size_bytes > SNAPSHOT_BYTES_MAX:
            raise KafkaError(
                ErrorCode.POSITION_OUT_OF_RANGE,
                f"A snapshot of {result.size_bytes} bytes was fetched from byte {len(snapshot.data)} on, the "
                f"response begins at byte {result.position}.",
            )
        snapshot.data += result.records
        if len(snapshot.data) < result.size_bytes:
            return []
        self._snapshot = None
        self.applied_offset, self._applied_epoch = snapshot.end_offset, snapshot.epoch
        self.high_watermark = max(self.high_watermark, snapshot.end_offset)
        return [Committed(bytes(snapshot.data), snapshot.end_offset, snapshot.epoch, is_snapshot=True)]

    # Leaders

    def _is_from_leader(self, result: FetchResult | SnapshotResult, now_ms: int) -> bool:
        """Whether the response counts. Takes in whom it names as the leader."""
        self._follow(result)
        if result.error is not ErrorCode.NONE:
            if result.error not in ELSEWHERE:
                logger.warning("the controllers refuse the metadata log: %s", result.error.name)
            if self.leader is None:
                self._forget_leader()
            self._back_off(now_ms)
            return False
        self._failures = 0
        self._answered_ms = self.due_ms = now_ms
        return True

    def _follow(self, result: FetchResult | SnapshotResult) -> None:
        if result.leader_epoch < self.leader_epoch:
            return
        endpoints = {one.node_id: one for one in result.endpoints}
        found = endpoints.get(result.leader_id)
        if result.leader_epoch > self.leader_epoch:
            # The snapshot of one leader may not go on with another's bytes.
            self._snapshot = None
            self.leader_epoch = result.leader_epoch
            self.leader = None
        if found is not None and found != self.leader:
            logger.info("controller %d at %s leads in epoch %d", *found[:1], found, result.leader_epoch)
            self.leader = found
            self._failures = 0

    def _forget_leader(self) -> None:
        self.leader = None
        self._bootstrap.rotate(-1)

    def _back_off(self, now_ms: int) -> None:
        settings = self._settings
        delay_ms = settings.retry_backoff_ms << min(self._failures, 10)
        self._failures += 1
        self.due_ms = now_ms + min(delay_ms, settings.retry_backoff_max_ms)

    # The log

    def _take_records(self, records: Buffer) -> None:
        """Whole batches from the end of the log on; CORRUPT_MESSAGE for damage."""
        for position, header in iter_whole_batches(records):
            verify_crc(records, position, header)
            if header.base_offset != self.next_offset:
                raise KafkaError(
                    ErrorCode.CORRUPT_MESSAGE,
                    f"The metadata log goes on at offset {header.base_offset}, not at {self.next_offset}.",
                )
            data = bytes(memoryview(records)[position : position + header.size_bytes])
            self._pending.append(_Pending(data, header.last_offset + 1, header.leader_epoch))

    def _cut(self, end_offset: int) -> None:
        """Drops what the leader does not have; it was never committed."""
        while self._pending and self._pending[-1].next_offset > end_offset:
            self._pending.pop()

    def _committed(self) -> list[Committed]:
        batches = []
        while self._pending and self._pending[0].next_offset <= self.high_watermark:
            batches.append(self._pending.popleft())
        if not batches:
            return []
        last = batches[-1]
        self.applied_offset, self._applied_epoch = last.next_offset, last.epoch
        data = b"".join(batch.data for batch in batches)
        return [Committed(data, last.next_offset, last.epoch, is_snapshot=False)]
