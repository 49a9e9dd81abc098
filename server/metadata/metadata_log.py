"""The metadata log on the disk: `__cluster_metadata-0`, which a controller alone leads.

The files are Kafka's: segments with their indexes, `leader-epoch-checkpoint`, `partition.metadata`,
`quorum-state`, snapshots. Segments are those of every other log (`storage/log`). An append is durable when it
returns, and counts then: the high watermark is the end of the log. It is one batch, or a transaction of
several that are synced one after the other (`metadata_log_survey.py` says why).

Each start of the voter begins a new leader epoch: `quorum-state` is durable before the log has a record of
the epoch, and the first one is a LeaderChange. A new log has `kraft.version` and the voters in the same
batch.

A snapshot begins a new segment. A start reads the newest snapshot and the segments from there on. At least
two snapshots are kept, and the log from the older one on, so that one of them may be damaged; older ones go
by `metadata.max.retention.bytes` and `metadata.max.retention.ms`.

Source: KafkaRaftLog, KafkaRaftClient, LeaderState, SnapshotGenerator and QuorumController of Kafka 4.4.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from odradek.config.config_error import ConfigError
from odradek.config.os_reason import reason_of
from odradek.coordinator.controller.log import EpochEnd, LoadedBatch, SnapshotId
from odradek.coordinator.controller.record_versions import TRANSACTIONS_SINCE
from odradek.server.metadata import quorum_state
from odradek.server.metadata.metadata_batches import (
    BATCH_BYTES_MAX,
    BATCH_RECORDS_MAX,
    BatchBuilder,
    control_batch,
)
from odradek.server.metadata.metadata_log_opening import (
    Opened,
    log_config,
    open_files,
    open_segments,
)
from odradek.server.metadata.metadata_snapshots import (
    BOOTSTRAP,
    file_name_of,
    read_snapshot,
    remove_snapshot,
    writing_snapshot,
)
from odradek.storage.directories.truncation import find_cut
from odradek.storage.disk import Disk, sync_file
from odradek.storage.log.log import Log
from odradek.storage.log.segment_paths import LOG
from odradek.storage.log.slices import Slice
from odradek.wire._records import BatchHeader, read_batch_header
from odradek.wire.errors import ErrorCode, KafkaError, MalformedMessage
from odradek.wire.messages.metadata_records import (
    AnyRecord,
    BeginTransactionRecord,
    ControlRecord,
    Endpoint,
    EndTransactionRecord,
    KRaftVersionFeature,
    KRaftVersionRecord,
    LeaderChangeMessage,
    MetadataRecord,
    Voter,
    VotersRecord,
    VoterWithEndpoints,
    records_of_batch,
)
from odradek.wire.records import iter_batches
from odradek.wire.work import Work, finish

KRAFT_VERSION_LEVEL = 1
SNAPSHOTS_KEPT = 2
RECORDS_WITHOUT_SNAPSHOT_MAX = 1000
"""Records after the snapshot, above which a clean stop makes another one."""
_RECORDS_PER_STEP = 200

logger = logging.getLogger("odradek.metadata")


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class MetadataLogSettings:
    """Options of the log, with Kafka's defaults."""

    segment_bytes: int = 1_073_741_824
    """`metadata.log.segment.bytes`"""
    segment_ms: int = 604_800_000
    """`metadata.log.segment.ms`"""
    bytes_between_snapshots_max: int = 20_971_520
    """`metadata.log.max.record.bytes.between.snapshots`"""
    snapshot_interval_ms_max: int = 3_600_000
    """`metadata.log.max.snapshot.interval.ms`; 0: no snapshot by time alone."""
    retention_bytes: int = 104_857_600
    """`metadata.max.retention.bytes`; negative: no limit, as below."""
    retention_ms: int = 604_800_000
    """`metadata.max.retention.ms`"""


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class ThisVoter:
    """The voter whose log it is."""

    node_id: int
    directory_id: bytes
    """Id of the log directory with the log, as in its `meta.properties`."""
    endpoints: Sequence[tuple[str, str, int]] = field(default=())
    """Name, host and port of each listener for controllers and brokers."""

    def voters_record(self) -> VotersRecord:
        endpoints = [Endpoint(name=name, host=host, port=port) for name, host, port in self.endpoints]
        feature = KRaftVersionFeature(min_supported_version=0, max_supported_version=KRAFT_VERSION_LEVEL)
        voter = VoterWithEndpoints(
            voter_id=self.node_id,
            voter_directory_id=self.directory_id,
            endpoints=endpoints,
            kraft_version_feature=feature,
        )
        return VotersRecord(version=0, voters=[voter])

    def control_records(self) -> list[ControlRecord]:
        """`kraft.version` and the voters, as a log or a snapshot begins with them."""
        return [KRaftVersionRecord(version=0, kraft_version=KRAFT_VERSION_LEVEL), self.voters_record()]


class DiskMetadataLog:
    """See the module. A `coordinator.controller.log.MetadataLog`. One thread owns it; functions that its
    works yield may run in another. `now_ms` is a clock.

    ConfigError: the disk does not let it be opened, or it is no log of ours; `DamagedMetadataLog`: it is
    damaged beyond mending, and `metadata_log_repair` knows what to do.
    """

    def __init__(
        self,
        disk: Disk,
        directory: str,
        voter: ThisVoter,
        *,
        now_ms: Callable[[], int],
        settings: MetadataLogSettings = MetadataLogSettings(),
        tell: Callable[[str], object] = logger.error,
        on_failure: Callable[[str], object] = lambda reason: None,
    ) -> None:
        """`on_failure(reason)` is called when nothing can be appended any more until the next start."""
        self._on_failure = on_failure
        self.directory = directory
        self._is_abandoned = False
        self._disk = disk
        self._voter = voter
        self._now_ms = now_ms
        self._settings = settings
        self._tell = tell
        self._config = log_config(settings.segment_bytes, settings.segment_ms)
        try:
            opened = open_files(disk, directory, self._config, now_ms(), tell, voter_id=voter.node_id)
            self._begin(opened)
        except OSError as error:
            raise ConfigError(f"{directory} cannot be opened: {reason_of(error)}.") from error
        except KafkaError as error:
            raise ConfigError(f"{directory} cannot be written: {error.message}") from error

    def _begin(self, opened: Opened) -> None:
        """Begin the next leader epoch."""
        self._log: Log = opened.log
        self.start_offset = opened.log_start_offset
        self.snapshots = opened.snapshots
        """Snapshots in the directory, oldest first; the first may be the one of a formatted directory."""
        self._base = opened.base
        self._end_offset = self._log.log_end_offset
        self._failure: str | None = None
        self._last_timestamp = opened.last_timestamp
        self._snapshot_end_offset = opened.base.end_offset if opened.base is not None else 0
        self._bytes_since_snapshot = opened.bytes_since_snapshot
        self._snapshot_ms = self._now_ms()
        self._is_writing_snapshot = False
        self._watchers: list[Callable[[], None]] = []
        epoch_before = max(opened.quorum_epoch, self._log.leader_epochs.latest)
        if opened.base is not None:
            epoch_before = max(epoch_before, opened.base.epoch)
        self.leader_epoch = epoch_before + 1
        state = quorum_state.QuorumState(self._voter.node_id, self.leader_epoch)
        quorum_state.write(self._disk, self.directory, state)
        self._write_leader_change(opened.voters)

    def _write_leader_change(self, known: VotersRecord | None) -> None:
        me = Voter(voter_id=self._voter.node_id)
        change = LeaderChangeMessage(
            version=0, leader_id=self._voter.node_id, voters=[me], granting_voters=[me]
        )
        is_other = (
            known is None or self._end_offset == 0 or known.voters != self._voter.voters_record().voters
        )
        control = [change, *self._voter.control_records()] if is_other else [change]
        self.epoch_start_offset = self._end_offset
        batch = control_batch(control, self._end_offset, self.leader_epoch, self._now_ms())
        finish(self._writing([batch]))

    # Reading

    @property
    def end_offset(self) -> int:
        """Offset of the next record."""
        return self._end_offset

    @property
    def directory_id(self) -> bytes:
        """Id of the log directory with the log."""
        return self._voter.directory_id

    @property
    def has_state_snapshot(self) -> bool:
        """Whether it begins with a snapshot of a cluster's state."""
        return self._base is not None

    def batches(self) -> Iterator[LoadedBatch]:
        """All batches of the newest sound snapshot, then all after it. Those of a formatted directory are not
        among them (`bootstrap_records`).

        ConfigError: the records are of a newer version, or the disk does not answer.
        """
        try:
            if self._base is not None:
                for content in read_snapshot(self._disk, self.directory, self._base).batches:
                    yield LoadedBatch(self._decoded(content), self._base.end_offset - 1, True)
            for content, header in self._batches_from(self._base.end_offset if self._base else 0):
                yield LoadedBatch(self._decoded(content, header), header.last_offset, False)
        except OSError as error:
            raise ConfigError(f"{self.directory} cannot be read: {reason_of(error)}.") from error

    def _decoded(self, content: bytes, header: BatchHeader | None = None) -> Iterator[AnyRecord]:
        """One after the other: all of many partitions would be a lot of memory."""
        try:
            yield from records_of_batch(content, header)
        except MalformedMessage as error:
            raise ConfigError(
                f"{self.directory} has records that this version of Odradek does not know: {error}. Start it "
                "with the version that wrote them."
            ) from error

    def _batches_from(self, offset: int) -> Iterator[tuple[bytes, BatchHeader]]:
        for segment in self._log.files.from_offset(offset):
            content = segment.file.read(0, segment.size_bytes)
            for position, header in iter_batches(content):
                if header.last_offset >= offset:
                    yield content[position : position + header.size_bytes], header

    def bootstrap_records(self) -> list[MetadataRecord]:
        """Records with which `kafka-storage format` wants the cluster to begin; none if it was not used.

        ConfigError: they cannot be read.
        """
        if BOOTSTRAP not in self.snapshots:
            return []
        try:
            batches = read_snapshot(self._disk, self.directory, BOOTSTRAP).records()
            return [one for records in batches for one in records if isinstance(one, MetadataRecord)]
        except (OSError, MalformedMessage) as error:
            raise ConfigError(
                f"{self.directory}/{file_name_of(BOOTSTRAP)} cannot be read: {error}."
            ) from error

    def read(self, offset: int, max_bytes: int) -> Slice:
        """Batches from the one that holds `offset`, up to `max_bytes`, but one at least; none at the end.

        KafkaError: OFFSET_OUT_OF_RANGE; CORRUPT_MESSAGE and KAFKA_STORAGE_ERROR, if the disk has failed.
        """
        if not self.start_offset <= offset <= self._end_offset:
            raise KafkaError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"The metadata log goes from {self.start_offset} to {self._end_offset}, without {offset}.",
            )
        try:
            return self._log.reader.read(offset, self._end_offset, max_bytes, True, False)
        except OSError as error:
            raise _storage_error("read", error) from error

    def end_offset_for_epoch(self, epoch: int) -> EpochEnd:
        """The largest known epoch not after `epoch`, and its end; that of the log, if none is known."""
        found, end_offset = self._log.leader_epochs.end_offset_for(epoch, self._end_offset)
        if found < 0:
            return EpochEnd(self.leader_epoch, self._end_offset)
        earliest = self._earliest_snapshot
        if earliest is not None and end_offset == earliest.end_offset and found == epoch:
            return EpochEnd(earliest.epoch, end_offset)
        return EpochEnd(found, end_offset)

    def diverging_epoch(self, offset: int, last_fetched_epoch: int) -> EpochEnd | None:
        """The end of the epoch up to which a fetcher's log is as this one, if it is not up to `offset`."""
        if self.start_offset == offset == last_fetched_epoch == 0:
            return None
        end = self.end_offset_for_epoch(last_fetched_epoch)
        return end if end.epoch != last_fetched_epoch or end.end_offset < offset else None

    def snapshot_for(self, offset: int, last_fetched_epoch: int) -> SnapshotId | None:
        """The snapshot that a fetcher at `offset` needs, since the log does not go back so far."""
        if self.start_offset == offset == last_fetched_epoch == 0:
            return None
        earliest = self._earliest_snapshot
        if earliest is None:
            return None
        is_before = offset < self.start_offset or last_fetched_epoch < earliest.epoch
        is_other = offset == self.start_offset and last_fetched_epoch != earliest.epoch
        return self._base if is_before or is_other else None

    def watch(self, appended: Callable[[], None]) -> None:
        """Call it once, after the next append."""
        self._watchers.append(appended)

    def unwatch(self, appended: Callable[[], None]) -> None:
        """No error if it does not wait."""
        if appended in self._watchers:
            self._watchers.remove(appended)

    @property
    def _earliest_snapshot(self) -> SnapshotId | None:
        return self.snapshots[0] if self.snapshots else None

    def read_snapshot(self, snapshot_id: SnapshotId, position: int, max_bytes: int) -> tuple[int, bytes]:
        """Size of a snapshot, and bytes of it from a position on.

        KafkaError: SNAPSHOT_NOT_FOUND, POSITION_OUT_OF_RANGE, KAFKA_STORAGE_ERROR.
        """
        if snapshot_id not in self.snapshots:
            raise KafkaError(
                ErrorCode.SNAPSHOT_NOT_FOUND, f"There is no snapshot {file_name_of(snapshot_id)}."
            )
        try:
            file = self._disk.open(f"{self.directory}/{file_name_of(snapshot_id)}")
            try:
                size_bytes = file.size()
                if not 0 <= position < size_bytes:
                    raise KafkaError(
                        ErrorCode.POSITION_OUT_OF_RANGE,
                        f"Position {position} is not in a snapshot of {size_bytes} bytes.",
                    )
                return size_bytes, file.read(position, max(max_bytes, 0))
            finally:
                file.close()
        except OSError as error:
            raise _storage_error("read", error) from error

    # Appending

    def append(self, records: Iterable[MetadataRecord], metadata_version: int) -> int:
        """`appending` here and now."""
        return finish(self.appending(records, metadata_version))

    def appending(self, records: Iterable[MetadataRecord], metadata_version: int) -> Work[int]:
        """Append all records as a whole, durable at its end; those that do not fit into one batch as a
        transaction. Returns the offset of the last record.

        Nothing has changed after a KafkaError, nor when it is closed before its end. Nothing else may be
        appended until then. After an error of the disk that leaves it open what the disk has, nothing more
        can be appended.
        """
        self._check_usable()
        try:
            batches = yield from self._building(records, metadata_version)
        except ValueError as error:
            # As Kafka's controller: such as a setting of more bytes than a string in a record can have.
            raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, str(error)) from error
        yield from self._writing(batches)
        return self._end_offset - 1

    def _building(self, records: Iterable[MetadataRecord], metadata_version: int) -> Work[list[bytearray]]:
        """Build the batches; more than one have the records of a transaction."""
        now_ms, batches = self._now_ms(), list[bytearray]()
        builder = BatchBuilder(self._end_offset, self.leader_epoch, now_ms)
        held = list(records)
        is_split = len(held) > BATCH_RECORDS_MAX
        if not is_split:
            for number, record in enumerate(held, 1):
                if not builder.takes(record, metadata_version):
                    is_split = True
                    break
                if number % _RECORDS_PER_STEP == 0:
                    yield None
        if not is_split:
            _check_size(builder)
            return [builder.build()]
        if not isinstance(held[0], BeginTransactionRecord):
            if metadata_version < TRANSACTIONS_SINCE:
                raise KafkaError(
                    ErrorCode.UNKNOWN_SERVER_ERROR,
                    f"{len(held)} records are too many for metadata.version {metadata_version}.",
                )
            held = [BeginTransactionRecord(), *held, EndTransactionRecord()]
        builder = BatchBuilder(self._end_offset, self.leader_epoch, now_ms)
        for number, record in enumerate(held, 1):
            if not builder.takes(record, metadata_version):
                _check_size(builder)
                batches.append(builder.build())
                builder = BatchBuilder(builder.next_offset, self.leader_epoch, now_ms)
                builder.takes(record, metadata_version)
            if number % _RECORDS_PER_STEP == 0:
                yield None
        _check_size(builder)
        return [*batches, builder.build()]

    def _writing(self, batches: Sequence[bytearray]) -> Work[None]:
        """Write batches, each durable before the next."""
        log, is_done = self._log, False
        try:
            for batch in batches:
                header = read_batch_header(batch)
                log.staging.stage(batch, header, header.base_offset, self.leader_epoch, header.max_timestamp)
                log.commit()
                yield log.durability.flush
            is_done = True
        except OSError as error:
            raise _storage_error("written", error) from error
        finally:
            if not is_done:
                self._take_back()
        self._end_offset = log.log_end_offset
        self._last_timestamp = read_batch_header(batches[-1]).max_timestamp
        self._bytes_since_snapshot += sum(map(len, batches))
        watchers, self._watchers = self._watchers, []
        for appended in watchers:
            appended()

    def _take_back(self) -> None:
        """Remove what was appended after the end offset. If the disk does not let it be removed, there are no
        more appends: the next start decides by what is there.
        """
        log = self._log
        log.rollback()
        if log.log_end_offset == self._end_offset:
            return
        try:
            cut = find_cut(log, self._end_offset)
            assert cut.end_offset == self._end_offset
            for segment in reversed(log.segments[cut.place + 1 :]):
                segment.remove()
            file = cut.segment.file.open()
            file.truncate(cut.position)
            sync_file(file, cut.segment.paths.path(LOG))
            log.files.close()
            self._disk.sync_directory(self.directory)
            self._log = open_segments(
                self._disk,
                self.directory,
                self._config,
                recovery_point=cut.segment.base_offset,
                log_start_offset=self.start_offset,
                now_ms=self._now_ms(),
            ).log
            self._log.durability.flush()
        except OSError as error:
            self._failure = f"a change that failed could not be taken back: {error}"
            self._on_failure(self._failure)

    def _check_usable(self) -> None:
        if self._failure is not None:
            raise KafkaError(
                ErrorCode.KAFKA_STORAGE_ERROR,
                f"The metadata log cannot be written until a restart: {self._failure}.",
            )

    # Snapshots

    def is_snapshot_due(self, now_ms: int) -> bool:
        """Whether a snapshot should be made, by the bytes or the time since the last one."""
        if self._is_writing_snapshot or self._end_offset <= self._snapshot_end_offset:
            return False
        interval_ms = self._settings.snapshot_interval_ms_max
        return self._bytes_since_snapshot >= self._settings.bytes_between_snapshots_max or (
            interval_ms > 0 and now_ms - self._snapshot_ms >= interval_ms
        )

    @property
    def is_snapshot_due_at_stop(self) -> bool:
        """Whether a snapshot saves time at the next start."""
        count = self._end_offset - self._snapshot_end_offset
        return count > RECORDS_WITHOUT_SNAPSHOT_MAX and not self._is_abandoned

    def writing_snapshot(self, records: Iterable[MetadataRecord], metadata_version: int) -> Work[SnapshotId]:
        """Write a snapshot of the state at the end of the log, as it is when this is called: `records` make
        it out of nothing. Appends may go on meanwhile. Then older snapshots are removed that are not needed.

        KafkaError (KAFKA_STORAGE_ERROR), or a close before the end: there is no new snapshot.
        """
        snapshot_id = SnapshotId(self._end_offset, self._log.leader_epochs.epoch_at(self._end_offset - 1))
        return self._writing_snapshot(snapshot_id, records, metadata_version)

    def write_snapshot(self, records: Iterable[MetadataRecord], metadata_version: int) -> SnapshotId:
        """`writing_snapshot` here and now."""
        return finish(self.writing_snapshot(records, metadata_version))

    def _writing_snapshot(
        self, snapshot_id: SnapshotId, records: Iterable[MetadataRecord], metadata_version: int
    ) -> Work[SnapshotId]:
        if snapshot_id in self.snapshots:
            return snapshot_id
        now_ms = self._now_ms()
        bytes_before, self._is_writing_snapshot = self._bytes_since_snapshot, True
        # Also after a failure: another attempt at once would fail, too.
        self._snapshot_ms = now_ms
        try:
            if self._log.log_end_offset == snapshot_id.end_offset == self._end_offset:
                # A start reads whole segments.
                self._log.roll(now_ms)
            yield from writing_snapshot(
                self._disk,
                self.directory,
                snapshot_id,
                self._voter.control_records(),
                records,
                metadata_version=metadata_version,
                last_contained_timestamp=self._last_timestamp,
                now_ms=now_ms,
            )
        except OSError as error:
            raise _storage_error("written", error) from error
        finally:
            self._is_writing_snapshot = False
        self.snapshots.append(snapshot_id)
        self._base = snapshot_id
        self._snapshot_end_offset = snapshot_id.end_offset
        self._bytes_since_snapshot -= bytes_before
        self._clean(now_ms)
        return snapshot_id

    def _clean(self, now_ms: int) -> None:
        """Remove the oldest snapshots beyond the retention, and the log before the first that stays."""
        try:
            while len(self.snapshots) > SNAPSHOTS_KEPT and self._is_too_much(now_ms):
                self._forget_oldest(now_ms)
        except OSError as error:
            self._tell(f"Old files of {self.directory} cannot be removed: {error}")

    def _is_too_much(self, now_ms: int) -> bool:
        settings, oldest = self._settings, self.snapshots[0]
        if settings.retention_bytes >= 0:
            sizes = [self._disk.size(f"{self.directory}/{file_name_of(one)}") for one in self.snapshots]
            if self._log.size_bytes + sum(sizes) > settings.retention_bytes:
                return True
        if settings.retention_ms < 0:
            return False
        timestamp = read_snapshot(self._disk, self.directory, oldest).last_contained_timestamp
        return now_ms - timestamp > settings.retention_ms

    def _forget_oldest(self, now_ms: int) -> None:
        start_offset = self.snapshots[1].end_offset
        count = sum(base <= start_offset for base in self._log.bases) - 1
        if count > 0:
            for segment in self._log.drop_segments(count, now_ms):
                segment.remove()
        if start_offset > self.start_offset:
            self.start_offset = start_offset
            self._log.leader_epochs.truncate_start(start_offset)
        remove_snapshot(self._disk, self.directory, self.snapshots.pop(0))

    # End

    def abandon(self) -> None:
        """`close` leaves the files as a kill would: nothing is written, and no snapshot is due."""
        self._is_abandoned = True

    def close(self) -> None:
        """Write indexes, and close the files. KafkaError (KAFKA_STORAGE_ERROR): the disk has failed; all
        records are there."""
        if self._is_abandoned:
            self._log.files.close()
            return
        try:
            self._log.close()
        except OSError as error:
            raise _storage_error("written", error) from error


def _check_size(builder: BatchBuilder) -> None:
    if builder.size_bytes > BATCH_BYTES_MAX:
        raise KafkaError(
            ErrorCode.RECORD_LIST_TOO_LARGE,
            f"A metadata record of {builder.size_bytes} bytes is larger than {BATCH_BYTES_MAX}.",
        )


def _storage_error(done: str, error: OSError) -> KafkaError:
    return KafkaError(
        ErrorCode.KAFKA_STORAGE_ERROR, f"The metadata log could not be {done}: {reason_of(error)}."
    )
