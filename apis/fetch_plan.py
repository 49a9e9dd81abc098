"""The plan of a fetch, and one attempt to read it: for consumers, and for any other reader of this node.

A `FetchPlan` has partitions, offsets, limits, isolation and the longest wait; it does not know the request. A
`FetchAttempt` reads every partition of the plan once, within the limits. Its outcome for each partition is
records or a refusal; or the attempt returns None if the reader should wait for more: then the reader watches
the logs and runs the same attempt again. Records are slices of the log, never copied here.

Limits work as in KIP-74: the first partition with records gets at least one whole batch, whatever the limits,
unless the plan has `cut_first_batch`; otherwise records are cut at the limit, within a batch if need be.

A reader of committed records (READ_COMMITTED) gets the records before the last stable offset, and waits for
that to advance. As in Kafka, it waits only at the batch of that offset: a reader behind this batch gets an
empty response at once (case F of DelayedFetch).

Source: ReplicaManager.fetchMessages and readFromLog of Kafka 4.3.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Generic, NamedTuple, TypeVar

from odradek.apis.leadership import Leadership, LedPartition, check_leader_epoch, end_offset_for_epoch
from odradek.apis.replicas import EpochNotSaved
from odradek.storage.log.partition import READ_COMMITTED, READ_LOG_END, READ_UNCOMMITTED, ReadResult
from odradek.storage.log.slices import WouldWait
from odradek.wire.errors import ErrorCode, KafkaError
from odradek.wire.schema import ZERO_UUID

if TYPE_CHECKING:
    from odradek.apis.replicas import FetchingReplica, ReplicaKey
    from odradek.storage.log.partition import Partition
    from odradek.wire.work import Work

LOOKS_MAX = 16
"""The number of trials where headers of records are not in memory; the last one waits for the disk."""
AHEAD_BYTES_MAX = 1024 * 1024
AHEAD_OF_LIMIT_BYTES = 8192
"""The header after a response, which confirms the last batch."""

_NO_RECORDS = b""
_UNKNOWN_TOPIC = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID)


class PlannedPartition:
    """One partition of a plan: its fetch offset and byte limit.

    `topic` is the name; in a plan with `by_topic_id`, `topic_id` counts. An epoch of -1 is not known to the
    reader.
    """

    __slots__ = (
        "current_leader_epoch",
        "fetch_offset",
        "index",
        "last_fetched_epoch",
        "log_start_offset",
        "max_bytes",
        "name",
        "topic",
        "topic_id",
    )

    def __init__(
        self,
        topic: str,
        index: int,
        fetch_offset: int,
        max_bytes: int,
        *,
        topic_id: bytes = ZERO_UUID,
        current_leader_epoch: int = -1,
        last_fetched_epoch: int = -1,
        log_start_offset: int = -1,
    ) -> None:
        self.topic = topic
        self.topic_id = topic_id
        self.name: str | None = None
        """The last known name of the topic with this id."""
        self.index = index
        self.fetch_offset = fetch_offset
        self.max_bytes = max_bytes
        self.current_leader_epoch = current_leader_epoch
        self.last_fetched_epoch = last_fetched_epoch
        self.log_start_offset = log_start_offset


P = TypeVar("P", bound=PlannedPartition)


@dataclass(slots=True)
class FetchPlan(Generic[P]):
    """Partitions in the order of reading, and the limits for all of them."""

    partitions: Sequence[P]
    max_bytes: int
    min_bytes: int = 1
    """With fewer bytes the reader waits, up to `max_wait_ms`."""
    max_wait_ms: int = 0
    isolation: int = READ_UNCOMMITTED
    by_topic_id: bool = False
    cut_first_batch: bool = False
    replica: FetchingReplica | None = None
    """None of a consumer."""
    may_follow: bool = False
    """Whether a partition that this node follows is read, too (KIP-392)."""
    rack: str = ""
    """The rack in which the consumer looks for a replica; empty: it reads here."""
    refused: Sequence[P] = ()
    """Partitions that the reader may not read."""


class Diverging(NamedTuple):
    """The reader's log differs after the end of this epoch (KIP-595)."""

    log: Partition
    epoch: int
    end_offset: int
    records: bytes = _NO_RECORDS


class CaughtUp(NamedTuple):
    """A replica has all records of the log, or gets none for now."""

    log: Partition
    records: bytes = _NO_RECORDS


class Elsewhere(NamedTuple):
    """The reader should go to the broker `replica_id`, a follower that is nearer (KIP-392)."""

    log: Partition
    replica_id: int
    records: bytes = _NO_RECORDS


class Missing(NamedTuple):
    """The partition is refused, or did not exist at the first attempt; later attempts skip it."""

    error: KafkaError


UNAUTHORIZED = Missing(KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED))


class Unread:
    """Stands for records whose position is still to be read from disk. It counts with the largest size they
    can have; the rest of the limits is for other partitions. `log` has the offsets of the partition."""

    __slots__ = ("_arguments", "_miss", "_offset", "log")

    def __init__(self, log: Partition, offset: int, arguments: _ReadArguments, miss: WouldWait) -> None:
        self.log = log
        self._offset = offset
        self._arguments = arguments
        self._miss = miss

    def __len__(self) -> int:
        return max(self._arguments[0], 1)

    @property
    def records(self) -> Unread:
        return self

    def would_wait(self) -> bool:
        return True

    def reading(self) -> Work[ReadResult]:
        """The result of `Partition.read` after the wait; raises its errors and `OSError`."""
        miss = self._miss
        # The pages after the header are mostly those of the response.
        ahead_bytes = min(len(self), AHEAD_BYTES_MAX) + AHEAD_OF_LIMIT_BYTES
        for _ in range(LOOKS_MAX):
            yield partial(miss.load, ahead_bytes)
            try:
                return self._read(prompt=True)
            except WouldWait as another:
                miss = another
        return self._read(prompt=False)

    def _read(self, *, prompt: bool) -> ReadResult:
        max_bytes, isolation, one_batch, cut_first_batch = self._arguments
        return self.log.read(
            self._offset,
            max_bytes=max_bytes,
            isolation=isolation,
            minimum_one_batch=one_batch,
            cut_first_batch=cut_first_batch,
            prompt=prompt,
        )


_ReadArguments = tuple[int, int, bool, bool]
"""Arguments of `Partition.read`: max_bytes, isolation, minimum_one_batch, cut_first_batch."""
Outcome = ReadResult | Unread | CaughtUp | Diverging | Elsewhere | Missing | KafkaError
"""The outcome for one partition."""


class FetchAttempt(Generic[P]):
    """Reads a plan, once or repeatedly."""

    __slots__ = (
        "_find",
        "_is_first",
        "_leadership",
        "_may_wait",
        "_partitions",
        "_plan",
        "_unknown",
        "_unsaved",
        "watchable",
    )

    def __init__(self, leadership: Leadership, plan: FetchPlan[P]) -> None:
        self._leadership = leadership
        self._find = leadership.hold if plan.may_follow else leadership.lead
        self._plan = plan
        self._partitions = plan.partitions
        self._may_wait = plan.max_wait_ms > 0 and bool(plan.partitions) and plan.min_bytes > 0
        # Partitions that are refused, or did not exist at the first attempt.
        self._unknown: list[tuple[P, Outcome]] = []
        if plan.refused:
            self._unknown += [(one, UNAUTHORIZED) for one in plan.refused]
        # Partitions of a replica whose leader epoch was not on the disk at the last attempt.
        self._unsaved: set[PlannedPartition] | None = None
        self.watchable: list[Partition]
        """The logs that the last attempt read, to watch until the next one."""

    def run(self, *, is_first: bool = False, is_last: bool = False) -> list[tuple[P, Outcome]] | None:
        """Reads every partition: the outcomes, or None if the reader should wait for more.

        An unknown topic at the first attempt does not end the wait, or a consumer of a misspelt name would
        fetch without a pause; later attempts skip it. Any other refusal ends the wait.
        A replica's response waits while the leader epoch of one of its partitions is not on the disk.
        """
        plan = self._plan
        self._is_first = is_first
        may_wait = self._may_wait and not is_last
        left_bytes = plan.max_bytes
        read_bytes = 0
        one_batch = not plan.cut_first_batch
        outcomes: list[tuple[P, Outcome]] = []
        sent: list[tuple[Partition, int]] = []
        unknown = self._unknown
        self.watchable = watchable = []
        outcome: Outcome
        for planned in self._partitions:
            size = 0
            try:
                log, outcome = self._read(planned, left_bytes, one_batch)
                watchable.append(log)
                size = len(outcome.records)
            except KafkaError as error:
                if is_first and error.code in _UNKNOWN_TOPIC:
                    unknown.append((planned, Missing(error)))
                    continue
                outcome = error
                may_wait = False
            if size:
                one_batch = False
                read_bytes += size
                left_bytes = left_bytes - size if size < left_bytes else 0
                sent.append((log, size))
            else:
                if left_bytes < 0:
                    # As in Kafka, a limit below zero is an error for the first partition and then 0.
                    left_bytes = 0
                if outcome.__class__ is Diverging or outcome.__class__ is Elsewhere:
                    may_wait = False
            outcomes.append((planned, outcome))
        is_to_wait = may_wait and self._may_wait and watchable and read_bytes < plan.min_bytes
        if is_to_wait or (self._unsaved and self._may_wait and not is_last):
            if is_first and unknown:
                missing = {planned for planned, _ in unknown}
                self._partitions = [one for one in self._partitions if one not in missing]
            return None
        if plan.replica is not None:
            self._leadership.follower_fetches[plan.replica.version] += 1
            self._note_sent(outcomes)
        else:
            for log, size in sent:
                log.traffic.read(size)
        # Kafka lists refused and unknown partitions last.
        return outcomes + unknown if unknown else outcomes

    def _note_sent(self, outcomes: list[tuple[P, Outcome]]) -> None:
        """To a replica. Records whose position is still to be read count with their limit."""
        replicas = self._leadership.replicas
        if replicas is None:
            return
        for planned, outcome in outcomes:
            if isinstance(outcome, ReadResult | Unread) and len(outcome.records):
                replicas.sent((planned.name or planned.topic, planned.index), len(outcome.records))

    def _read(
        self, planned: PlannedPartition, left_bytes: int, one_batch: bool
    ) -> tuple[Partition, ReadResult | Unread | CaughtUp | Diverging | Elsewhere | EpochNotSaved]:
        """Reads one partition; refuses as ReplicaManager.readFromLog does."""
        plan = self._plan
        name = name_of(planned, self._leadership) if plan.by_topic_id else planned.topic
        led = self._find(name, planned.index)
        max_bytes = planned.max_bytes if planned.max_bytes < left_bytes else left_bytes
        log = led.log
        if plan.replica is not None:
            key = name, planned.index
            return log, self._read_for_replica(plan.replica, key, log, planned, max_bytes, one_batch)
        if planned.current_leader_epoch >= 0:
            check_leader_epoch(led, planned.current_leader_epoch)
        if plan.rack:
            elsewhere = self._elsewhere(plan.rack, log, planned.fetch_offset)
            if elsewhere is not None:
                return log, elsewhere
        if planned.last_fetched_epoch >= 0:
            diverging = _divergence(led, planned)
            if diverging is not None:
                return log, diverging
        offset, isolation, cut_first_batch = planned.fetch_offset, plan.isolation, plan.cut_first_batch
        try:
            result = log.read(
                offset,
                max_bytes=max_bytes,
                isolation=isolation,
                minimum_one_batch=one_batch,
                cut_first_batch=cut_first_batch,
                prompt=True,
            )
        except WouldWait as miss:
            return log, Unread(log, offset, (max_bytes, isolation, one_batch, cut_first_batch), miss)
        if (
            isolation == READ_COMMITTED
            and offset > result.last_stable_offset
            and log.is_behind_stable(offset)
        ):
            self._may_wait = False
        return log, result

    def _elsewhere(self, rack: str, log: Partition, fetch_offset: int) -> Elsewhere | None:
        replicas = self._leadership.replicas
        assert replicas is not None
        replica_id = replicas.preferred_read_replica((log.topic, log.index), rack, fetch_offset)
        return None if replica_id is None else Elsewhere(log, replica_id)

    def _read_for_replica(
        self,
        replica: FetchingReplica,
        key: ReplicaKey,
        log: Partition,
        planned: PlannedPartition,
        max_bytes: int,
        one_batch: bool,
    ) -> ReadResult | Unread | CaughtUp | Diverging | EpochNotSaved:
        """A replica reads to the end of the log. The first attempt that is answered notes its log end."""
        replicas = self._leadership.replicas
        if replicas is None:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        offset = planned.fetch_offset
        is_first = self._is_first or self._is_first_response(planned)
        try:
            read = replicas.read(
                key, replica, planned.current_leader_epoch, offset, planned.last_fetched_epoch
            )
        except EpochNotSaved as unsaved:
            self._unsaved = self._unsaved or set()
            self._unsaved.add(planned)
            return unsaved
        if read.diverging is not None:
            return Diverging(log, *read.diverging)
        result: ReadResult | Unread | CaughtUp
        if offset == read.log_end_offset or replicas.holds_back(key, replica):
            # Who is held back waits, too.
            log.availability.check_online()
            result = CaughtUp(log)
        else:
            try:
                result = log.read(
                    offset,
                    max_bytes=max_bytes,
                    isolation=READ_LOG_END,
                    minimum_one_batch=one_batch,
                    prompt=True,
                )
            except WouldWait as miss:
                result = Unread(log, offset, (max_bytes, READ_LOG_END, one_batch, False), miss)
        if is_first:
            replicas.fetched(key, replica, offset, planned.log_start_offset, read)
            if isinstance(result, ReadResult):
                result = replace(
                    result, high_watermark=log.high_watermark, last_stable_offset=log.last_stable_offset
                )
        return result

    def _is_first_response(self, planned: PlannedPartition) -> bool:
        unsaved = self._unsaved
        if unsaved is None or planned not in unsaved:
            return False
        unsaved.remove(planned)
        return True


def name_of(planned: PlannedPartition, leadership: Leadership) -> str:
    """The name of a topic in a plan with `by_topic_id`. Refuses unknown ids."""
    # Looked up each time: the topic may be deleted or created after the plan was made.
    view = leadership.view
    name = view.topic_names.get(planned.topic_id)
    if name is not None:
        planned.name = name
        return name
    # The last name shows the reader whether there is another topic of that name now.
    if planned.name is None:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_ID)
    if view.partition(planned.name, planned.index) is None:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    raise KafkaError(ErrorCode.INCONSISTENT_TOPIC_ID)


def _divergence(led: LedPartition, planned: PlannedPartition) -> Diverging | None:
    """Where the reader's log diverges from this one, if it does (KIP-595); consumers such as kafka-python
    send their epoch, too."""
    epoch, end_offset = end_offset_for_epoch(led, planned.last_fetched_epoch)
    if epoch < 0 or end_offset < 0:
        raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE)
    if epoch >= planned.last_fetched_epoch and end_offset >= planned.fetch_offset:
        return None
    return Diverging(led.log, epoch, end_offset)
