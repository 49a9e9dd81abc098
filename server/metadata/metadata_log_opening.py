"""Opening the metadata log: what is there, what is mended, what is cut, and what is beyond both.

`examine` looks and changes nothing; `odradek check` and the repair use it, too. A start then mends wrong
bits, cuts a write that was never finished, and opens the segments. Damage beyond that is
`DamagedMetadataLog`, with all files as they were.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import chain
from typing import NamedTuple

from odradek.config.config_error import ConfigError
from odradek.config.os_reason import reason_of
from odradek.coordinator.cluster.topics import CLUSTER_METADATA_TOPIC_ID
from odradek.coordinator.controller.log import SnapshotId
from odradek.server.metadata import quorum_state
from odradek.server.metadata.batch_mending import Patch
from odradek.server.metadata.metadata_log_survey import Place, Survey, survey
from odradek.server.metadata.metadata_snapshots import (
    BOOTSTRAP,
    Snapshot,
    file_name_of,
    read_snapshot,
    remove_leftovers,
    remove_snapshot,
    snapshot_ids,
)
from odradek.server.metadata.quorum_state import ReadState
from odradek.storage.checkpoints import (
    LEADER_EPOCHS,
    PARTITION_METADATA,
    read_partition_metadata,
    write_partition_metadata,
)
from odradek.storage.config import LogConfig
from odradek.storage.disk import Disk, sync_file, write_all
from odradek.storage.log.log import Log
from odradek.storage.log.segment_file import FilePool
from odradek.storage.log.segment_paths import LOG, file_name
from odradek.storage.recovery.recovery import Recovered, open_log
from odradek.wire.messages.metadata_records import LeaderChangeMessage, VotersRecord

REPAIRED = ".repaired"
"""Suffix of the new log of a repair (`metadata_log_repair.py`) once it is complete."""

Tell = Callable[[str], object]


class DamagedMetadataLog(ConfigError):
    """The log is ours, and damaged beyond mending."""


def finish_repair(disk: Disk, directory: str, tell: Tell) -> None:
    """Finish a repair that a crash has interrupted after its new log was complete. To be called before each
    opening of the log. Raises OSError.
    """
    if not disk.exists(directory + REPAIRED):
        return
    if disk.exists(directory):
        number = 0
        while disk.exists(kept := f"{directory}.{number}.damaged"):
            number += 1
        disk.rename(directory, kept)
        tell(f"the damaged metadata log is kept as {kept}")
    disk.rename(directory + REPAIRED, directory)
    disk.sync_directory(directory.rpartition("/")[0])


class Finding(NamedTuple):
    """The content of the directory."""

    quorum: ReadState
    snapshot_ids: list[SnapshotId]
    base: SnapshotId | None
    """The newest sound snapshot; None: the log from its beginning is all."""
    snapshot: Snapshot | None
    """Its content."""
    damaged_snapshots: list[SnapshotId]
    """Newer ones, beyond mending."""
    survey: Survey
    """The log from the snapshot on."""

    @property
    def is_lost(self) -> bool:
        return bool(self.survey.lost)


class KnownVoters(NamedTuple):
    """The voters of the log."""

    record: VotersRecord | None
    """Voters of the newest record; None: the options of Kafka's nodes name them (kraft.version 0)."""
    ids: list[int]


class Opened(NamedTuple):
    """An open log, and what its last run has left."""

    log: Log
    log_start_offset: int
    snapshots: list[SnapshotId]
    base: SnapshotId | None
    quorum_epoch: int
    voters: VotersRecord | None
    last_timestamp: int
    bytes_since_snapshot: int


def log_config(segment_bytes: int, segment_ms: int) -> LogConfig:
    """The settings of the log: nothing is deleted but by snapshots."""
    return LogConfig(segment_bytes=segment_bytes, segment_ms=segment_ms, retention_ms=-1, retention_bytes=-1)


def examine(disk: Disk, directory: str) -> Finding:
    """Look at all that a start needs. Raises OSError."""
    quorum = quorum_state.read(disk, directory)
    ids = snapshot_ids(disk.list(directory))
    base, content, damaged = None, None, []
    for one in reversed(ids):
        if one == BOOTSTRAP:
            break
        content = read_snapshot(disk, directory, one)
        if content.is_whole:
            base = one
            break
        damaged.append(one)
    from_offset = base.end_offset if base is not None else 0
    epoch = quorum.state.leader_epoch if quorum.state is not None else None
    found = survey(disk, directory, from_offset, epoch)
    if found.end_offset < from_offset or (found.start_offset < 0 and _had_segments(disk, directory, damaged)):
        found.lost.append(Place(file_name(max(found.start_offset, 0), LOG), 0))
    return Finding(quorum, ids, base, content if base is not None else None, damaged, found)


def _had_segments(disk: Disk, directory: str, damaged: Sequence[SnapshotId]) -> bool:
    return bool(damaged) or disk.exists(f"{directory}/{LEADER_EPOCHS}")


class Wrong(NamedTuple):
    """Something in the directory that a start changes, or that makes it refuse."""

    name: str
    """Name of the file."""
    what: str
    """A clause about the file."""
    consequence: str
    """A clause about the next start."""
    is_damage: bool = True


def findings(disk: Disk, directory: str) -> list[Wrong]:
    """List damage in the directory; nothing is changed. Raises OSError."""
    found = examine(disk, directory)
    wrong = [
        Wrong(name, f"a bit at byte {patch.position} is wrong", "a start mends it")
        for name, patch in [*_snapshot_patches(found), *found.survey.patches]
    ]
    if found.quorum.is_damaged:
        consequence = "a start makes it anew, since the leader epoch is known otherwise"
        wrong.append(Wrong(quorum_state.FILE_NAME, "it is damaged", consequence))
    lost = "it cannot be mended: a start makes a new log of the rest, unless ACLs or users may be lost"
    kept = "a start removes it: the records that it sums up are there"
    wrong += [
        Wrong(file_name_of(one), "it is damaged", lost if found.is_lost else kept)
        for one in found.damaged_snapshots
    ]
    if found.survey.torn is not None:
        place = found.survey.torn
        what = f"a change at byte {place.position} was never finished"
        wrong.append(Wrong(place.name, what, "a start cuts it", is_damage=False))
    wrong += [
        Wrong(place.name, f"it is damaged at byte {place.position}", lost) for place in found.survey.lost
    ]
    return wrong


def told_of_lost(found: Finding) -> str:
    """The damaged places, as a clause."""
    places = [f"{place.name} at byte {place.position}" for place in found.survey.lost]
    damaged = [file_name_of(one) for one in found.damaged_snapshots]
    return f"the metadata log is damaged in {', '.join([*damaged, *places])}"


def open_files(
    disk: Disk,
    directory: str,
    config: LogConfig,
    now_ms: int,
    tell: Tell,
    *,
    voter_id: int,
) -> Opened:
    """Open the log in a directory, which is made if there is none. Raises OSError and DamagedMetadataLog, and
    ConfigError for the log of other voters.
    """
    disk.make_directory(directory)
    remove_leftovers(disk, directory)
    _write_identity(disk, f"{directory}/{PARTITION_METADATA}", CLUSTER_METADATA_TOPIC_ID)
    found = examine(disk, directory)
    if found.is_lost:
        raise DamagedMetadataLog(f"{directory}: {told_of_lost(found)}.")
    voters = _known_voters(found)
    _refuse_others(directory, voters, voter_id)
    mend(disk, directory, [*_snapshot_patches(found), *found.survey.patches], tell)
    if found.quorum.is_damaged:
        tell(f"{directory}/{quorum_state.FILE_NAME} was damaged, and is written anew")
    if found.survey.torn is not None:
        # The opening of the segments cuts it, as in every log.
        tell(f"{directory}: {_told_of_torn(found.survey.torn)}, and has been cut")
    from_offset = found.base.end_offset if found.base is not None else 0
    recovered = open_segments(
        disk,
        directory,
        config,
        recovery_point=from_offset,
        log_start_offset=found.survey.start_offset if found.survey.start_offset >= 0 else from_offset,
        now_ms=now_ms,
    )
    log = recovered.log
    assert log.log_end_offset == found.survey.end_offset, f"{directory} changes while it is being opened"
    # The checkpoint has all epochs before `quorum-state` has the next one: they are compared with each other.
    log.durability.flush()
    for one in found.damaged_snapshots:
        name = file_name_of(one)
        tell(f"{directory}/{name} was damaged; the records before it were there, and it is removed")
        remove_snapshot(disk, directory, one)
    batches = found.survey.batches
    return Opened(
        log,
        recovered.log_start_offset,
        [one for one in found.snapshot_ids if one not in found.damaged_snapshots],
        found.base,
        found.quorum.state.leader_epoch if found.quorum.state is not None else 0,
        voters.record,
        batches[-1].header.max_timestamp if batches else _timestamp_of(found.snapshot),
        sum(len(batch.content) for batch in batches if batch.header.base_offset >= from_offset),
    )


def mend_files(disk: Disk, directory: str, now_ms: int, tell: Tell, *, voter_id: int) -> None:
    """Mend and cut the log as a start does, and nothing else. ConfigError: see `open_files`; or the disk does
    not let it be done.
    """
    settings = LogConfig(retention_ms=-1, retention_bytes=-1)
    try:
        open_files(disk, directory, settings, now_ms, tell, voter_id=voter_id).log.close()
    except OSError as error:
        raise ConfigError(f"{directory} cannot be mended: {reason_of(error)}.") from error


def open_segments(
    disk: Disk,
    directory: str,
    config: LogConfig,
    *,
    recovery_point: int,
    log_start_offset: int,
    now_ms: int,
) -> Recovered:
    """Open the segments, whose batches are sound; those from the one of the recovery point on are read.
    Raises OSError."""
    return open_log(
        FilePool(disk),
        directory,
        config,
        clean=False,
        recovery_point=recovery_point,
        log_start_offset=log_start_offset,
        now_ms=now_ms,
    )


def mend(disk: Disk, directory: str, patches: Iterable[tuple[str, Patch]], tell: Tell) -> None:
    """Write patches, by the name of their file, and tell of each file once. Raises OSError."""
    by_name: dict[str, list[Patch]] = {}
    for name, patch in patches:
        by_name.setdefault(name, []).append(patch)
    for name, wanted in by_name.items():
        path = f"{directory}/{name}"
        file = disk.open(path)
        try:
            for position, content in wanted:
                write_all(file, position, [content], len(content))
            sync_file(file, path)
        finally:
            file.close()
        places = ", ".join(str(position) for position, _ in wanted)
        tell(f"{path} was damaged at byte {places}, and has been mended")


def _snapshot_patches(found: Finding) -> list[tuple[str, Patch]]:
    if found.base is None or found.snapshot is None:
        return []
    return [(file_name_of(found.base), patch) for patch in found.snapshot.patches]


def _timestamp_of(snapshot: Snapshot | None) -> int:
    return snapshot.last_contained_timestamp if snapshot is not None else -1


def _told_of_torn(place: Place) -> str:
    return f"a change in {place.name} at byte {place.position} was never finished"


def _write_identity(disk: Disk, path: str, topic_id: bytes) -> None:
    if read_partition_metadata(disk, path) != topic_id:
        write_partition_metadata(disk, path, topic_id)


def refuse_other_voters(disk: Disk, directory: str, voter_id: int) -> None:
    """ConfigError: the log, if there is one, has other voters, or cannot be read. Nothing is changed. For a
    directory that nobody has claimed yet."""
    try:
        if disk.exists(directory):
            _refuse_others(directory, _known_voters(examine(disk, directory)), voter_id)
    except OSError as error:
        raise ConfigError(f"{directory} cannot be read: {reason_of(error)}.") from error


def _refuse_others(directory: str, known: KnownVoters, voter_id: int) -> None:
    others = [str(one) for one in known.ids if one != voter_id]
    if others:
        raise ConfigError(
            f"{directory} is the log of several voters, among them {', '.join(others)}: run them with Apache "
            "Kafka; a node of Odradek that has the metadata is the only voter of its cluster."
        )


def _known_voters(found: Finding) -> KnownVoters:
    record, ids = None, list[int]()
    of_log = (batch.records() for batch in found.survey.batches if batch.header.is_control)
    for one in chain(found.snapshot.control_records() if found.snapshot else (), chain.from_iterable(of_log)):
        if isinstance(one, VotersRecord):
            record, ids = one, [voter.voter_id for voter in one.voters]
        elif isinstance(one, LeaderChangeMessage) and record is None:
            ids = [voter.voter_id for voter in one.voters]
    return KnownVoters(record, ids)
