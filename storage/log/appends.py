"""The two ways into a partition's log: `append` for records of clients, coordinators and leaders,
`append_marker` for the end of a transaction.

A client's records are prepared first (`preparation.py`), which may take long. Whatever comes is judged by the
log's content and staged in one place (`_check_and_stage`, `_stage`). What is ordinary has a shorter way that
comes to the same (`Appender.append_ordinary`).
"""

from collections.abc import Callable
from enum import Enum
from functools import partial

from odradek.storage.config import INT_MAX, LONG_MAX, LogConfig
from odradek.storage.disk import Buffer
from odradek.storage.log._staging import Appended, Appender
from odradek.storage.log.batches import LOG_APPEND_TIME, BatchMemory
from odradek.storage.log.log import Log
from odradek.storage.log.preparation import prepare, prepare_quickly
from odradek.storage.log.transactions import Verified, marker_batch
from odradek.storage.log.validation import (
    Batch,
    check_size,
    in_stored_codec,
    rules_of,
    segment_too_small,
    with_append_time,
)
from odradek.wire.compression import Compression
from odradek.wire.end_marker import EndMarker
from odradek.wire.errors import ErrorCode, KafkaError
from odradek.wire.records import BatchHeader, iter_batches, iter_whole_batches, verify_crc


class BatchHoldsStart(KafkaError):
    """The log is empty, and begins within the first batch of the leader: records of that batch were deleted
    (KAFKA-6975). After `LogStore.restarting` at `offset` the same batches can be appended.
    """

    def __init__(self, name: str, offset: int, log_start_offset: int) -> None:
        super().__init__(
            ErrorCode.OFFSET_OUT_OF_RANGE,
            f"{name} begins at {log_start_offset}; the first batch of its leader begins at {offset}.",
        )
        self.offset = offset


class Origin(Enum):
    """Who appends: clients are checked in everything, coordinators own what they write, leaders assigned
    offsets.
    """

    CLIENT = "client"
    COORDINATOR = "coordinator"
    REPLICATION = "replication"


class Appends:
    """See the module. `log` may become another; `set_config` comes before the first append."""

    __slots__ = ("_appender", "_config", "_name", "_rules", "append_ordinary", "log")

    def __init__(self, name: str, log: Log, appender: Appender) -> None:
        self._name = name
        self.log = log
        self._appender = appender
        self.append_ordinary = appender.append_ordinary

    def set_config(self, config: LogConfig) -> None:
        """Take new topic settings, from the next append on."""
        self._config = config
        # What is to be packed anew does not go the short way either: that takes uncompressed batches alone.
        appender = self._appender
        appender.packs_anew = config.codec not in (None, Compression.NONE)
        appender.inspects_records = (
            config.is_compacted or config.message_timestamp_before_max_ms < LONG_MAX or appender.packs_anew
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
        """Judge `records`, or what `preparing` has made of them, and stage all or none of them. Refuses with
        `KafkaError`.

        Of a client exactly one batch is expected, of a coordinator one or more, of a leader any number.
        `magic_limit` is the record format of a client's request: 0 in Produce 0 and 1, 1 in Produce 2, else
        2. Below 2 message sets of the old formats are converted. A `prompt` append raises `TakesLong` where
        the records take long to prepare.

        The first batch of a transaction is refused with INVALID_TXN_STATE unless `transactions` brings a
        verification that still holds; that of a coordinator may come without any.

        A leader's batches keep their offsets and leader epochs, whatever their size is. Their offsets rise,
        from the end of the log on; some may be missing, as compaction has removed records. A last batch that
        is cut off is left out. So is, with all that follow it, a batch of a leader epoch after
        `leader_epoch_max`, the one of the request: its leader may have sent other batches before it
        (KAFKA-18723). Refuses with CORRUPT_MESSAGE, with UNKNOWN_SERVER_ERROR where an offset does not rise,
        and with `BatchHoldsStart`.
        """
        if isinstance(records, list):
            batches = records
        else:
            if magic_limit == 2 and origin is not Origin.REPLICATION:
                appended = self.append_ordinary(
                    records, 0, len(records), now_ms, transactions, origin is Origin.COORDINATOR
                )
                if appended is not None:
                    return appended
            records = memoryview(records)
            self._check_available()
            if origin is Origin.CLIENT:
                prepares = prepare_quickly if prompt else prepare
                batches = prepares(records, magic_limit, self._config, self._rules, now_ms, self._name)
            elif origin is Origin.COORDINATOR:
                batches = self._coordinators_batches(records, now_ms)
            else:
                batches = _leaders_batches(records, leader_epoch_max)
        return self._check_and_stage(batches, now_ms, origin, transactions)

    def preparing(self, records: Buffer, *, now_ms: int, magic_limit: int = 2) -> Callable[[], list[Batch]]:
        """The part of a client's append that may take long, by the settings of now: to be called in any
        thread, while `records` stay as they are. It refuses as `append`, which takes its result.
        """
        return partial(
            prepare, memoryview(records), magic_limit, self._config, self._rules, now_ms, self._name
        )

    def _coordinators_batches(self, records: memoryview, now_ms: int) -> list[Batch]:
        """What a coordinator has sent, as it will stand in the log."""
        batches = [
            Batch(records[at : at + header.size_bytes], header) for at, header in iter_batches(records)
        ]
        if not batches:
            raise KafkaError(ErrorCode.INVALID_RECORD, f"No records came for {self._name}.")
        for batch, header in batches:
            check_size(header.size_bytes, self._config, self._name)
            verify_crc(batch, 0, header)
            if header.is_control:
                raise KafkaError(
                    ErrorCode.INVALID_RECORD, f"A control batch for {self._name} came as records."
                )
        batches = [in_stored_codec(batch, self._config, self._name) for batch in batches]
        if self._appender.log_append_time:
            batches = [with_append_time(batch, now_ms) for batch in batches]
        return batches

    def _check_and_stage(
        self, batches: list[Batch], now_ms: int, origin: Origin, transactions: Verified | None
    ) -> Appended:
        """Judge by what is in the log, and stage. Large batches must stay as they are until the commit."""
        self._check_available()
        if not batches:
            return Appended(-1, -1, -1, self._appender.log_start_offset, False, False)
        is_replication = origin is Origin.REPLICATION
        if is_replication:
            self._check_offsets(batches)
        else:
            size_bytes = sum(header.size_bytes for _, header in batches)
            if size_bytes > self._config.segment_bytes:
                raise segment_too_small(size_bytes, self._config, self._name)
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
        log, appender = self.log, self._appender
        base_offset, leader_epoch = log.next_offset, appender.leader_epoch
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
        """The memory of the same batch, if a client had it appended before."""
        if header.producer_id < 0:
            return None
        producers, is_transactional = self.log.producers, header.is_transactional
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
        """The offsets of a leader's batches rise from the end of the log on."""
        expected, start_offset = self.log.next_offset, self._appender.log_start_offset
        first_offset, last_offset = batches[0].header.base_offset, batches[-1].header.last_offset
        if first_offset < start_offset == expected <= last_offset:
            raise BatchHoldsStart(self._name, first_offset, start_offset)
        for _, header in batches:
            if header.base_offset < expected:
                raise KafkaError(
                    ErrorCode.UNKNOWN_SERVER_ERROR,
                    f"{self._name} cannot append offset {header.base_offset} after {expected - 1}.",
                )
            expected = header.last_offset + 1

    def _duplicate(self, known: BatchMemory) -> Appended:
        log = self.log
        _, _, first_offset, last_offset, timestamp = known
        return Appended(
            first_offset,
            last_offset,
            timestamp,  # Kafka tells it here, whatever the topic's timestamp type
            self._appender.log_start_offset,
            True,
            last_offset >= log.durable_offset
            and log.next_offset - log.durable_offset >= self._config.flush_messages,
        )

    def append_marker(self, marker: EndMarker, *, now_ms: int) -> Appended:
        """Stage the end of a producer's transaction; no error when it has none here. Commit and flush as with
        `append`.

        Refuses with INVALID_PRODUCER_EPOCH, TRANSACTION_COORDINATOR_FENCED and, as Kafka does, with
        MESSAGE_TOO_LARGE where not even a marker fits into `max.message.bytes`.
        """
        self._check_available()
        batch = marker_batch(marker, now_ms)
        if self._appender.log_append_time:
            batch = with_append_time(batch, now_ms)
        if batch.header.size_bytes > self._config.max_message_bytes:
            check_size(batch.header.size_bytes, self._config, self._name)
        self.log.producers.check_marker(marker)
        return self._stage([batch], now_ms, marker=marker)

    def _check_available(self) -> None:
        if self._appender.failure is not None:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, self._appender.failure)


def _leaders_batches(records: memoryview, leader_epoch_max: int) -> list[Batch]:
    """The whole batches that a leader has sent, up to the first one of a later leader epoch."""
    batches = []
    for at, header in iter_whole_batches(records):
        if header.leader_epoch > leader_epoch_max:
            break
        batch = Batch(records[at : at + header.size_bytes], header)
        verify_crc(batch.content, 0, header)
        batches.append(batch)
    return batches
