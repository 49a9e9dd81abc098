"""Appends to a partition's log: `append` for records of clients, coordinators and leaders, `append_marker`
for the end of a transaction.

A client's records are prepared first (`preparation.py`), which may take long. All records are checked against
the log and staged in one place (`_check_and_stage`, `_stage`). Ordinary batches have a faster function with
the same result (`Appender.append_ordinary`).
"""

from collections.abc import Callable
from enum import Enum
from functools import partial

from odradek.storage.config import INT_MAX, LONG_MAX, LogConfig
from odradek.storage.disk import Buffer
from odradek.storage.log._staging import Appended
from odradek.storage.log.availability import PartitionState
from odradek.storage.log.batches import LOG_APPEND_TIME, BatchMemory
from odradek.storage.log.preparation import (
    Batch,
    check_size,
    in_stored_codec,
    prepare,
    prepare_quickly,
    rules_of,
    segment_too_small,
    with_append_time,
)
from odradek.storage.log.transactions import Verified, marker_batch
from odradek.wire._records import BatchHeader
from odradek.wire.compression import Compression
from odradek.wire.end_marker import EndMarker
from odradek.wire.errors import ErrorCode, KafkaError
from odradek.wire.records import iter_batches, iter_whole_batches, verify_crc


class BatchHoldsStart(KafkaError):
    """The log is empty and begins within the leader's first batch: records of this batch were deleted
    (KAFKA-6975). After `LogStore.restarting` at `offset` the same batches can be appended.
    """

    def __init__(self, name: str, offset: int, log_start_offset: int) -> None:
        super().__init__(
            ErrorCode.OFFSET_OUT_OF_RANGE,
            f"{name} begins at {log_start_offset}; the first batch of its leader begins at {offset}.",
        )
        self.offset = offset


class Origin(Enum):
    """The origin of records: those of clients are checked completely, those of coordinators are trusted,
    those of leaders have offsets.
    """

    CLIENT = "client"
    COORDINATOR = "coordinator"
    REPLICATION = "replication"


class Appends:
    """See the module. `set_config` has to be called before the first append."""

    __slots__ = ("_appender", "_config", "_partition", "_rules")

    def __init__(self, partition: PartitionState) -> None:
        self._partition = partition
        self._appender = partition.appender

    def set_config(self, config: LogConfig) -> None:
        """Take new topic settings, from the next append on."""
        self._config = config
        # A topic with a codec of its own does not use the fast append either: it takes only uncompressed
        # batches.
        appender = self._appender
        appender.recompresses = config.codec not in (None, Compression.NONE)
        appender.inspects_records = (
            config.is_compacted or config.message_timestamp_before_max_ms < LONG_MAX or appender.recompresses
        )
        appender.log_append_time = config.uses_log_append_time
        appender.size_bytes_max = min(config.max_message_bytes, config.segment_bytes)
        appender.ahead_ms_max = config.message_timestamp_after_max_ms
        appender.flush_messages = config.flush_messages
        self._rules = rules_of(config)

    def append(
        self,
        records: Buffer | list[Batch],
        *,
        now_ms: int,
        origin: Origin = Origin.CLIENT,
        magic_limit: int = 2,
        transactions: Verified | None = None,
        prompt: bool = False,
        leader_epoch_max: int = INT_MAX,
    ) -> Appended:
        """Check `records`, or the result of `preparing`, and stage all or none of them. Refuses with
        `KafkaError`.

        A client sends exactly one batch, a coordinator one or more, a leader any number. `magic_limit` is the
        record format of a client's request (0 for Produce 0 and 1, 1 for Produce 2, otherwise 2). Below 2,
        message sets of the old formats are converted. A `prompt` append raises `TakesLong` if the records
        take long to prepare.

        The first batch of a transaction is refused with INVALID_TXN_STATE unless `transactions` has a valid
        verification; a coordinator's batch needs none.

        A leader's batches keep their offsets and leader epochs; their size is not limited. Their offsets
        ascend from the end of the log on; some may be missing after compaction. An incomplete last batch is
        left out. A batch with a leader epoch after `leader_epoch_max`, the epoch of the request, is left out
        with all batches after it: its leader may have other batches before it (KAFKA-18723). Refuses with
        CORRUPT_MESSAGE, with UNKNOWN_SERVER_ERROR if an offset does not ascend, and with `BatchHoldsStart`.
        """
        if isinstance(records, list):
            batches = records
        else:
            if magic_limit == 2 and origin is not Origin.REPLICATION:
                appended = self._appender.append_ordinary(
                    records, 0, len(records), now_ms, transactions, origin is Origin.COORDINATOR
                )
                if appended is not None:
                    return appended
            records = memoryview(records)
            if origin is Origin.REPLICATION:
                return self._append_leaders(records, now_ms, leader_epoch_max)
            self._check_available()
            if origin is Origin.CLIENT:
                prepares = prepare_quickly if prompt else prepare
                batches = prepares(
                    records, magic_limit, self._config, self._rules, now_ms, self._partition.name
                )
            else:
                batches = self._coordinators_batches(records, now_ms)
        return self._check_and_stage(batches, now_ms, origin, transactions)

    def _append_leaders(self, records: memoryview, now_ms: int, leader_epoch_max: int) -> Appended:
        """In the compiled module up to where the log has to roll; all of it here if some batch is not
        ordinary."""
        appender, base_offset = self._appender, self._partition.log.next_offset
        staged_bytes = max(appender.stage_leaders(records, leader_epoch_max), 0)
        rest = leaders_batches(records[staged_bytes:], leader_epoch_max)
        if not staged_bytes:
            return self._check_and_stage(rest, now_ms, Origin.REPLICATION, None)
        if rest:
            self._check_and_stage(rest, now_ms, Origin.REPLICATION, None)
        return appender.appended(base_offset, -1)

    def preparing(self, records: Buffer, *, now_ms: int, magic_limit: int = 2) -> Callable[[], list[Batch]]:
        """The part of a client's append that may take long, with the current settings: to be called in any
        thread, while `records` do not change. It refuses as `append`, which takes its result.
        """
        return partial(
            prepare, memoryview(records), magic_limit, self._config, self._rules, now_ms, self._partition.name
        )

    def _coordinators_batches(self, records: memoryview, now_ms: int) -> list[Batch]:
        """The batches of a coordinator."""
        batches = [
            Batch(records[at : at + header.size_bytes], header) for at, header in iter_batches(records)
        ]
        if not batches:
            raise KafkaError(ErrorCode.INVALID_RECORD, f"No records came for {self._partition.name}.")
        for batch, header in batches:
            check_size(header.size_bytes, self._config, self._partition.name)
            verify_crc(batch, 0, header)
            if header.is_control:
                raise KafkaError(
                    ErrorCode.INVALID_RECORD, f"A control batch for {self._partition.name} came as records."
                )
        batches = [in_stored_codec(batch, self._config, self._partition.name) for batch in batches]
        if self._appender.log_append_time:
            batches = [with_append_time(batch, now_ms) for batch in batches]
        return batches

    def _check_and_stage(
        self, batches: list[Batch], now_ms: int, origin: Origin, transactions: Verified | None
    ) -> Appended:
        """Check against the log, and stage. Large batches must not change until the commit."""
        self._check_available()
        if not batches:
            return Appended(-1, -1, -1, self._appender.log_start_offset, False, False)
        is_replication = origin is Origin.REPLICATION
        if is_replication:
            self._check_offsets(batches)
        else:
            size_bytes = sum(header.size_bytes for _, header in batches)
            if size_bytes > self._config.segment_bytes:
                raise segment_too_small(size_bytes, self._config, self._partition.name)
            for _, header in batches:
                known = self._check_producer(header, origin, transactions)
                if known is not None:
                    return self._duplicate(known)
        return self._stage(batches, now_ms, is_replication=is_replication)

    def _stage(
        self,
        batches: list[Batch],
        now_ms: int,
        *,
        is_replication: bool = False,
        marker: EndMarker | None = None,
    ) -> Appended:
        log, appender = self._partition.log, self._appender
        base_offset, leader_epoch = log.next_offset, appender.leader_epoch
        if not is_replication:
            appender.traffic.wrote(
                sum(header.record_count for _, header in batches),
                sum(header.size_bytes for _, header in batches),
            )
        for batch, header in batches:
            if is_replication:
                log.staging.stage(batch, header, header.base_offset, header.leader_epoch, now_ms)
            else:
                log.staging.stage(batch, header, log.next_offset, leader_epoch, now_ms, marker)
        return appender.appended(
            base_offset, header.max_timestamp if header.attributes & LOG_APPEND_TIME else -1
        )

    def _check_producer(
        self, header: BatchHeader, origin: Origin, transactions: Verified | None
    ) -> BatchMemory | None:
        """The entry of the same batch, if a client has sent it before."""
        if header.producer_id < 0:
            return None
        producers, is_transactional = self._partition.log.producers, header.is_transactional
        if origin is Origin.COORDINATOR:
            producers.check_coordinators(
                header.producer_id, header.producer_epoch, is_transactional, transactions
            )
            return None
        return producers.check(
            header.producer_id,
            header.producer_epoch,
            header.base_sequence,
            header.last_sequence,
            is_transactional,
            transactions,
        )

    def _check_offsets(self, batches: list[Batch]) -> None:
        """Refuse batches of a leader whose offsets do not ascend from the end of the log on."""
        expected, start_offset = self._partition.log.next_offset, self._appender.log_start_offset
        first_offset, last_offset = batches[0].header.base_offset, batches[-1].header.last_offset
        if first_offset < start_offset == expected <= last_offset:
            raise BatchHoldsStart(self._partition.name, first_offset, start_offset)
        for _, header in batches:
            if header.base_offset < expected:
                raise KafkaError(
                    ErrorCode.UNKNOWN_SERVER_ERROR,
                    f"{self._partition.name} cannot append offset {header.base_offset} after {expected - 1}.",
                )
            expected = header.last_offset + 1

    def _duplicate(self, known: BatchMemory) -> Appended:
        log = self._partition.log
        _, _, first_offset, last_offset, timestamp = known
        return Appended(
            first_offset,
            last_offset,
            timestamp,  # as in Kafka for every timestamp type of the topic
            self._appender.log_start_offset,
            True,
            last_offset >= log.durable_offset
            and log.next_offset - log.durable_offset >= self._config.flush_messages,
        )

    def append_marker(self, marker: EndMarker, *, now_ms: int) -> Appended:
        """Stage the end of a producer's transaction; no error if it has none here. Commit and flush as with
        `append`.

        Refuses with INVALID_PRODUCER_EPOCH, TRANSACTION_COORDINATOR_FENCED and, as Kafka does, with
        MESSAGE_TOO_LARGE if a marker is larger than `max.message.bytes`.
        """
        self._check_available()
        batch = marker_batch(marker, now_ms)
        if self._appender.log_append_time:
            batch = with_append_time(batch, now_ms)
        if batch.header.size_bytes > self._config.max_message_bytes:
            check_size(batch.header.size_bytes, self._config, self._partition.name)
        self._partition.log.producers.check_marker(marker)
        return self._stage([batch], now_ms, marker=marker)

    def _check_available(self) -> None:
        if self._appender.failure is not None:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, self._appender.failure)


def leaders_batches(records: memoryview, leader_epoch_max: int) -> list[Batch]:
    """The whole batches of a leader, up to the first batch of a later leader epoch."""
    batches = []
    for at, header in iter_whole_batches(records):
        if header.leader_epoch > leader_epoch_max:
            break
        batch = Batch(records[at : at + header.size_bytes], header)
        verify_crc(batch.content, 0, header)
        batches.append(batch)
    return batches
