"""Repair of a metadata log that is damaged beyond mending: a new one is made of what can be read.

It begins with a snapshot of the state that the readable records make: those of the newest sound snapshot and
of the batches after it, also behind a damaged one, as long as they fit to what is known. Topics of which
records are lost are restored from the directories of their partitions. Where settings may be lost, nothing is
deleted until they are set anew, and producer ids go on far beyond all that were given out. The snapshot is
behind the end of the damaged log, so that brokers of the cluster fetch it. Every step is logged.

Nothing stands in for records that guard something (ACLs, users for SCRAM): where some may be lost, the repair
is refused, unless an administrator asks for it by `odradek check --repair`.

The damaged log is kept (`__cluster_metadata-0.0.damaged`). After a crash a repair begins again, or the next
start finishes it: the new log is complete under another name before the damaged one is touched.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace

from odradek.config.config_error import ConfigError
from odradek.coordinator.cluster.features import METADATA_VERSION, missing_levels
from odradek.coordinator.cluster.image_topics import InconsistentMetadata
from odradek.coordinator.cluster.metadata_image import MetadataImage
from odradek.coordinator.cluster.topics import OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from odradek.coordinator.cluster.view import NO_LEADER, UNASSIGNED, PartitionView
from odradek.coordinator.controller.log import SnapshotId
from odradek.coordinator.controller.records import config_records, feature_records, partition_record
from odradek.coordinator.controller.snapshot import snapshot_records
from odradek.server.metadata import quorum_state
from odradek.server.metadata.metadata_log import ThisVoter
from odradek.server.metadata.metadata_log_opening import (
    REPAIRED,
    Finding,
    examine,
    finish_repair,
    told_of_lost,
)
from odradek.server.metadata.metadata_snapshots import (
    BOOTSTRAP,
    read_snapshot,
    writing_snapshot,
)
from odradek.server.metadata.topics_on_disk import FoundTopic, topics_on_disk
from odradek.storage.directories.places import remove_with_files
from odradek.storage.disk import Disk
from odradek.wire.errors import KafkaError, MalformedMessage
from odradek.wire.messages.metadata_records import (
    AbortTransactionRecord,
    AccessControlEntryRecord,
    AnyRecord,
    BeginTransactionRecord,
    EndTransactionRecord,
    MetadataRecord,
    ProducerIdsRecord,
    RemoveAccessControlEntryRecord,
    RemoveUserScramCredentialRecord,
    TopicRecord,
    UserScramCredentialRecord,
    records_of_batch,
)
from odradek.wire.work import finish

REPAIRING = ".repairing"
KEEPING_ALL = {"cleanup.policy": "delete", "retention.ms": "-1", "retention.bytes": "-1"}
KEEPING_LATEST = {"cleanup.policy": "compact"}
NAMES_TOLD = 20
_GUARDING = (
    AccessControlEntryRecord,
    RemoveAccessControlEntryRecord,
    UserScramCredentialRecord,
    RemoveUserScramCredentialRecord,
)
_PRODUCER_IDS_MAX = 2**63 - 1

Tell = Callable[[str], object]


def repair(
    disk: Disk,
    directory: str,
    log_directories: Sequence[str],
    voter: ThisVoter,
    *,
    now_ms: int,
    tell: Tell,
    is_guarded: bool = False,
    gives_up_guards: bool = False,
) -> None:
    """Put a new log in the place of a damaged one that nobody has open. `is_guarded` says that ACLs or users
    are in use, also if no record of them can be read.

    ConfigError: the new log cannot be written (the damaged one is still there then), or guarding records may
    be lost and are not given up.
    """
    try:
        found = examine(disk, directory)
        salvage = _Salvage(voter.node_id, tell)
        salvage.take(disk, directory, found)
        if salvage.has_guards or is_guarded:
            if not gives_up_guards:
                raise ConfigError(
                    f"{directory}: {told_of_lost(found)}, and ACLs or users may be lost: without an ACL "
                    "clients could do what it forbids. Put a copy of the directory from a backup in its "
                    "place, or run odradek check --repair, which goes on without what is lost; then look at "
                    "ACLs and users before clients connect."
                )
            salvage.tell_of_guards()
        salvage.restore_topics(disk, log_directories)
        salvage.stand_in_for_lost(now_ms)
        _build(disk, directory, salvage, found, voter, now_ms)
        finish_repair(disk, directory, tell)
    except (OSError, KafkaError, InconsistentMetadata) as error:
        raise ConfigError(f"{directory} is damaged and cannot be repaired: {error}.") from error


class _Salvage:
    """The state that the readable records make."""

    def __init__(self, node_id: int, tell: Tell) -> None:
        self.has_guards = False
        """Whether there were ever ACLs or users, as far as can be read."""
        self.image = MetadataImage(node_id, "")
        self._node_id = node_id
        self._tell = tell

    def take(self, disk: Disk, directory: str, found: Finding) -> None:
        count = unfit_count = 0
        for record in _without_aborted(_readable_records(disk, directory, found)):
            count += 1
            self.has_guards = self.has_guards or isinstance(record, _GUARDING)
            unfit_count += not self._replay(record)
        self.image.publish()
        if METADATA_VERSION not in self.image.view.features:
            self.add(feature_records(missing_levels({})))
        self._tell(
            f"{directory}: {told_of_lost(found)}; {count} records of it could be read, and {unfit_count} of "
            "them did not fit to the others"
        )

    def _replay(self, record: AnyRecord) -> bool:
        """Whether the record fits to those before it."""
        try:
            if isinstance(record, AccessControlEntryRecord):
                self._forget_equal_entry(record)
            self.image.replay(record)
        except (InconsistentMetadata, ValueError, LookupError):
            return False
        return True

    def _forget_equal_entry(self, record: AccessControlEntryRecord) -> None:
        """An entry with another id is the same one: its removal is lost."""
        entries = self.image.kept.access_control_entries
        for id_, one in list(entries.items()):
            if id_ != record.id and replace(one, id=record.id) == record:
                self.image.replay(RemoveAccessControlEntryRecord(id=id_))

    def add(self, records: Iterable[MetadataRecord]) -> None:
        """Add records of which each fits."""
        for record in records:
            self.image.replay(record)
        self.image.publish()

    def tell_of_guards(self) -> None:
        view = self.image.view
        count = 0 if view.acls is None else len(view.acls)
        self._tell(
            f"ACLs and users may be lost: {count} ACLs and {len(view.scram_users.credentials)} credentials "
            "of users could be read. Look at them before clients connect; without a DENY that is lost, "
            "clients may do what it forbade"
        )

    def restore_topics(self, disk: Disk, log_directories: Sequence[str]) -> None:
        topics = self.image.view.topics
        indexes = {name: range(len(topic.partitions)) for name, topic in topics.items()}
        ids = {name: topic.topic_id for name, topic in topics.items()}
        for one in topics_on_disk(disk, log_directories, ids, indexes, (), self._tell):
            self._tell(f"topic {one.name}: found again by its directories")
            self.add(self._records_of(one))

    def _records_of(self, found: FoundTopic) -> Iterator[MetadataRecord]:
        view, here = self.image.view, (self._node_id,)
        known = view.topics.get(found.name)
        if known is None:
            yield TopicRecord(name=found.name, topic_id=found.topic_id)
        for index in range(len(known.partitions) if known else 0, found.partition_count):
            partition = PartitionView(index, NO_LEADER, 0, here, here, directories=(UNASSIGNED,))
            yield partition_record(found.topic_id, partition, view.features)

    def stand_in_for_lost(self, now_ms: int) -> None:
        """After a loss no records are deleted, and no producer id is given out twice."""
        # One id a microsecond at the most has been given out since 1970.
        following = min(max(self.image.next_producer_id, now_ms * 1000), _PRODUCER_IDS_MAX)
        records: list[MetadataRecord] = [
            ProducerIdsRecord(broker_id=-1, broker_epoch=-1, next_producer_id=following)
        ]
        kept = []
        for name, topic in sorted(self.image.view.topics.items()):
            keeping = KEEPING_LATEST if name in (OFFSETS_TOPIC, TRANSACTIONS_TOPIC) else KEEPING_ALL
            missing = [(option, value) for option, value in keeping.items() if option not in topic.configs]
            records += config_records(name, missing)
            if missing and keeping is KEEPING_ALL:
                kept.append(name)
        self.add(records)
        if kept:
            more = f" and {len(kept) - NAMES_TOLD} more" if len(kept) > NAMES_TOLD else ""
            self._tell(
                f"topics {', '.join(kept[:NAMES_TOLD])}{more}: their settings may be lost; they keep all "
                f"records until somebody says anew what {', '.join(KEEPING_ALL)} are to be"
            )


def _without_aborted(records: Iterable[AnyRecord]) -> Iterator[AnyRecord]:
    """The records, without markers of transactions, and without those of aborted ones. A transaction whose
    end cannot be read counts.
    """
    held: list[AnyRecord] = []
    is_open = False
    for record in records:
        if isinstance(record, AbortTransactionRecord):
            held, is_open = [], False
        elif isinstance(record, BeginTransactionRecord | EndTransactionRecord):
            yield from held
            held, is_open = [], isinstance(record, BeginTransactionRecord)
        elif is_open and isinstance(record, MetadataRecord):
            held.append(record)
        else:
            yield record
    yield from held


def _readable_records(disk: Disk, directory: str, found: Finding) -> Iterator[AnyRecord]:
    """All that can be read, from the best snapshot on: the newest sound one, else the newest damaged one."""
    snapshot = found.snapshot
    damaged = found.damaged_snapshots
    if snapshot is None and damaged and found.survey.start_offset != 0:
        snapshot = read_snapshot(disk, directory, damaged[0])
    batches = snapshot.batches if snapshot is not None else []
    for content in batches:
        yield from _records_in(content)
    end_offset = found.base.end_offset if found.base is not None else 0
    for batch in found.survey.batches:
        if batch.header.last_offset >= end_offset:
            yield from _records_in(batch.content)


def _records_in(batch: bytes) -> Iterator[AnyRecord]:
    try:
        yield from records_of_batch(batch)
    except MalformedMessage as error:
        raise ConfigError(
            f"The metadata log has records that this version of Odradek does not know: {error}. Start it "
            "with the version that wrote them."
        ) from error


def _build(
    disk: Disk, directory: str, salvage: _Salvage, found: Finding, voter: ThisVoter, now_ms: int
) -> None:
    """Make the new log complete, and durable, under another name."""
    building = directory + REPAIRING
    if disk.exists(building):
        remove_with_files(disk, building)
    disk.make_directory(building)
    offsets = [one.end_offset for one in found.snapshot_ids if one != BOOTSTRAP]
    epochs = [one.epoch for one in found.snapshot_ids]
    epochs += [batch.header.leader_epoch for batch in found.survey.batches]
    if found.quorum.state is not None:
        epochs.append(found.quorum.state.leader_epoch)
    # Behind all that a broker may have fetched.
    snapshot_id = SnapshotId(max([found.survey.end_offset, *offsets]) + 1, max(epochs, default=0) + 1)
    state = quorum_state.QuorumState(voter.node_id, snapshot_id.epoch)
    quorum_state.write(disk, building, state)
    view = salvage.image.view
    finish(
        writing_snapshot(
            disk,
            building,
            snapshot_id,
            voter.control_records(),
            snapshot_records(salvage.image.state),
            metadata_version=view.features[METADATA_VERSION],
            last_contained_timestamp=now_ms,
            now_ms=now_ms,
        )
    )
    disk.rename(building, directory + REPAIRED)
    disk.sync_directory(directory.rpartition("/")[0])
