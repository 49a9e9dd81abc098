"""`odradek check`: checks the data directories of a stopped broker; `--repair` repairs them.

Each finding is one line: the defect, its place, and its consequence. Damage makes the exit status 1; a note
is harmless, or repaired by a start. Each partition is read once (`check_partition.py`), and each other file
(`check_files.py`); this module combines them.

`--repair` first does the steps of a start after a crash (it replays the flush journal and finishes an
interrupted compaction), then removes unsound batches and rebuilds the other files from the log. It reports
each lost byte of a log. A damaged metadata log is rebuilt from its readable records and from the directories
(`metadata_log_repair`), as by a start. Not repaired, since the right content is not known: `meta.properties`,
a directory with another topic's id, segments whose records overlap.

A directory that a broker uses is not checked. A file with a read error is damage; the other files are
checked, but its partition is not repaired.
"""

import os
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from typing import TextIO

from odradek.config.os_reason import reason_of
from odradek.coordinator.cluster.image_topics import InconsistentMetadata
from odradek.coordinator.cluster.topics import INTERNAL_TOPICS
from odradek.coordinator.cluster.view import ClusterView
from odradek.offline import imports
from odradek.offline.check_files import (
    NO_CHECKPOINT,
    check_identity,
    check_settings,
    directory_id_of,
    identity_of,
    parse_offsets,
    read_metadata,
    readable_offsets,
)
from odradek.offline.check_partition import DAMAGE, NOTE, Finding, PartitionCheck
from odradek.offline.directories import (
    IMPORT_SUFFIX,
    OFFSET_FILES,
    CannotCheck,
    Directory,
    ReadingDisk,
    directories_of,
    finish_work,
    lock_directory,
)
from odradek.offline.kraft_settings import METADATA_DIRECTORY
from odradek.offline.repair_partition import Repair, repair_caches, repair_log, sync_log
from odradek.offline.report import CannotTell, Progress, Report
from odradek.offline.workers import with_workers
from odradek.server.metadata import meta_properties
from odradek.server.metadata.meta_properties import OLD_STORE
from odradek.server.metadata.metadata_log_opening import REPAIRED, finish_repair
from odradek.storage import checkpoints
from odradek.storage.directories.data_directory import Key
from odradek.storage.directories.places import (
    DELETE_SUFFIX,
    FUTURE_SUFFIX,
    STRAY_SUFFIX,
    is_aside,
    topic_id_in,
)
from odradek.storage.directories.store import key_of
from odradek.storage.disk import Disk, Lock, OsDisk, read_file
from odradek.storage.log.durability import END_CHECKPOINTS, EndCheckpoint
from odradek.storage.log.flush_journal import NAMES as FLUSH_JOURNALS
from odradek.storage.log.flush_journal import READ_NAMES, read_entries, replay
from odradek.storage.log.scan_checkpoint import SCAN_CHECKPOINTS, ScanCheckpoint
from odradek.storage.log.segment_paths import LOG, base_offset_of
from odradek.wire.errors import MalformedMessage
from odradek.wire.schema import uuid_to_text

_LOST_WITH_CHECKPOINT = {
    checkpoints.RECOVERY_POINTS: "a start after a crash reads all logs, and takes gaps for losses",
    checkpoints.HIGH_WATERMARKS: "on a single node nothing is lost",
    checkpoints.LOG_STARTS: "records that DeleteRecords has removed may come back",
    checkpoints.FIRST_DIRTY: "compaction begins again at the start of each log",
}
_REPLICA = (
    "it is a replica in a cluster, which is not repaired: no leader would fill the gap",
    "remove this directory and .kafka_cleanshutdown beside it, and start the node, which fetches all of it "
    "again; if no other replica has it, odradek import-log takes in what is sound",
)
_INTERRUPTED_IMPORT = ("an import that was interrupted", "the next odradek import-log removes it")


def check(
    paths: Sequence[str],
    *,
    repair: bool = False,
    as_json: bool = False,
    out: TextIO,
    terminal: TextIO | None = None,
    clock: Callable[[], float] = time.monotonic,
) -> int:
    """Check the data directories of one broker, those of its workers too, and partition directories; returns
    the exit status.

    `terminal` shows the progress of a long check, by `clock`. Raises CannotCheck, and OSError only for `out`.
    When its reader has gone (a closed pipe) a check ends, and the status is of what was found until then; a
    repair goes on to its end.
    """
    disk = OsDisk() if repair else ReadingDisk()
    locks: list[Lock | None] = []
    progress = Progress(terminal, clock)
    report = Report(out, as_json, goes_on=repair)
    try:
        nodes = [directories_of(disk, of_worker) for of_worker in with_workers(paths) if of_worker]
        for directories in nodes:
            for directory in directories:
                locks.append(lock_directory(directory.path, repair=repair))
        counts = [0, 0, 0, 0]
        for directories in nodes:
            _Check(disk, directories, repair, report, progress, counts).do()
        report.summary(*counts)
        return 1 if report.damage_count else 0
    except CannotTell as failure:
        if isinstance(failure.error, BrokenPipeError):
            return 1 if report.damage_count else 0
        raise failure.error from None
    except OSError as error:
        raise CannotCheck(f"{error.filename or 'The disk'} does not answer: {reason_of(error)}.") from error
    finally:
        progress.clear()
        for lock in locks:
            if lock is not None:
                lock.release()


class _Check:
    """The check of the directories of one broker."""

    def __init__(
        self,
        disk: Disk,
        directories: list[Directory],
        repair: bool,
        report: Report,
        progress: Progress,
        counts: list[int],
    ) -> None:
        """`counts` are those of the summary so far."""
        self.report = report
        self._disk = disk
        self._directories = directories
        self._repair = repair
        self._progress = progress
        self._view: ClusterView | None = None
        self._deletions: Collection[bytes] = ()
        self._imports: set[bytes] = set()
        self._homes: dict[Key, list[str]] = {}
        """The data directories that have a partition."""
        self._counts = counts

    def do(self) -> None:
        for directory in self._directories:
            with self._going_on(directory.path):
                if directory.only is None:
                    self.report.findings(check_identity(directory.path))
            if directory.is_data_directory:
                self._look_at_checkpoints(directory)
                with self._going_on(directory.path):
                    self._look_at_flush_journal(directory)
        self._check_identities_agree()
        self._look_at_metadata()
        partitions = [
            (directory, name) for directory in self._directories for name in self._partitions(directory)
        ]
        for directory, name in partitions:
            self._progress.expect(_log_bytes(self._disk, f"{directory.path}/{name}"))
            if directory.only is None and (key := key_of(name)) is not None:
                self._homes.setdefault(key, []).append(directory.path)
        for directory, name in partitions:
            with self._going_on(f"{directory.path}/{name}"):
                self._partition(directory, name)
        self._progress.clear()
        self._look_for_missing()
        if self._repair:
            for directory in self._directories:
                with self._going_on(directory.path):
                    self._write_checkpoints(directory)

    @contextmanager
    def _going_on(self, path: str) -> Iterator[None]:
        """A file with a read or write error is reported, and the rest is checked."""
        try:
            yield
        except OSError as error:
            what = f"it cannot be read or written: {reason_of(error)}"
            consequence = "files that depend on it were not checked"
            self.report.findings([Finding(DAMAGE, error.filename or path, None, what, consequence)])

    # Around the partitions

    def _check_identities_agree(self) -> None:
        whole = [directory.path for directory in self._directories if directory.only is None]
        identities = {path: identity_of(path) for path in whole}
        first = next((identity for identity in identities.values() if identity is not None), ("", ""))
        for path, identity in identities.items():
            if identity is not None and identity != first:
                (cluster, node), (other_cluster, other_node) = identity, first
                what = (
                    f"it is of cluster {cluster} and node {node}, another is of "
                    f"{other_cluster} and {other_node}"
                )
                finding = (
                    DAMAGE,
                    f"{path}/{meta_properties.FILE_NAME}",
                    None,
                    what,
                    "one broker cannot use both",
                )
                self.report.findings([Finding(*finding)])

    def _look_at_checkpoints(self, directory: Directory) -> None:
        for name in OFFSET_FILES:
            path = f"{directory.path}/{name}"
            data = b""
            with self._going_on(path):
                data = read_file(self._disk, path) if self._disk.exists(path) else b""
            offsets = parse_offsets(data)
            if isinstance(offsets, str):
                directory.unreadable.add(name)
                if directory.only is None:
                    finding = Finding(DAMAGE, path, None, offsets, _LOST_WITH_CHECKPOINT[name])
                    self.report.findings([finding], is_repaired=self._repair)
                offsets = readable_offsets(data)
            directory.offsets[name] = offsets
        if directory.only is not None:
            return
        for path, of_numbers in (
            (f"{directory.path}/{SCAN_CHECKPOINTS}", ScanCheckpoint),
            (f"{directory.path}/{END_CHECKPOINTS}", EndCheckpoint),
        ):
            with self._going_on(path):
                if checkpoints.read_facts(self._disk, path, of_numbers) is not None:
                    continue
                consequence = "a start after a crash reads more of the logs"
                finding = Finding(DAMAGE, path, None, NO_CHECKPOINT, consequence)
                self.report.findings([finding], is_repaired=self._repair)
                if self._repair:
                    self._disk.remove(path)
                    self.report.repairs([Repair(path, None, "removed")])

    def _look_at_flush_journal(self, directory: Directory) -> None:
        if not any(self._disk.exists(f"{directory.path}/{name}") for name in READ_NAMES):
            return
        path = f"{directory.path}/{FLUSH_JOURNALS[0].rpartition('.')[0]}.*"
        if directory.was_clean:
            if directory.only is None:
                what, consequence = "it is older than the last clean stop", "a start removes it"
                self.report.findings([Finding(NOTE, path, None, what, consequence)])
            return
        points = directory.offsets[checkpoints.RECOVERY_POINTS]
        if self._repair:
            count = replay(self._disk, directory.path, lambda name: points.get(key_of(name) or ("", 0), 0))
            if count:
                self.report.repairs([Repair(path, None, f"restored {count} bytes that were only in it")])
            return
        for entry in read_entries(self._disk, directory.path):
            if entry.end_offset > points.get(key_of(entry.name) or ("", 0), 0):
                directory.waiting[entry.name] = directory.waiting.get(entry.name, 0) + len(entry.content)
        if directory.waiting and directory.only is None:
            size_bytes = sum(directory.waiting.values())
            names = ", ".join(sorted(directory.waiting)[:5])
            partitions = (
                "1 partition" if len(directory.waiting) == 1 else f"{len(directory.waiting)} partitions"
            )
            what = f"{size_bytes} bytes of {partitions} wait in it for a replay ({names})"
            advice = "start Odradek once before Kafka uses the directory"
            consequence = f"a start restores the missing bytes: {advice}"
            self.report.findings([Finding(NOTE, path, None, what, consequence)])

    def _look_at_metadata(self) -> None:
        """The metadata log, or the store of an earlier version."""
        self._look_at_import()
        for directory in self._directories:
            self._look_at_interrupted_repair(directory)
        with_log = [one for one in self._directories if self._disk.exists(f"{one.path}/{METADATA_DIRECTORY}")]
        with_store = [one for one in self._directories if self._disk.exists(f"{one.path}/{OLD_STORE}")]
        if not with_log and not with_store:
            self._look_for_metadata()
        for directory in with_store:
            if directory.only is None and directory not in with_log:
                self._look_at_old_store(directory)
        for number, directory in enumerate(with_log):
            path = f"{directory.path}/{METADATA_DIRECTORY}"
            if directory.only is None:
                self._look_at_metadata_log(directory, path)
                if number > 0:
                    what = f"{with_log[0].path} has cluster metadata, too"
                    consequence = (
                        "a broker does not start with both: check each with the directories that belong to it"
                    )
                    self.report.findings([Finding(DAMAGE, path, None, what, consequence)])
            self._read_metadata(directory, path)

    def _read_metadata(self, directory: Directory, path: str) -> None:
        """Read what the partitions are compared with; nothing, where their node has no log."""
        if meta_properties.is_member(directory.path) or not meta_properties.is_ours(directory.path):
            return
        with self._going_on(path):
            try:
                known = read_metadata(self._disk, path)
            except (InconsistentMetadata, MalformedMessage) as error:
                what, consequence = f"its records make no sense: {error}", "a start is refused"
                self.report.findings([Finding(DAMAGE, path, None, what, consequence)])
                return
            if known is None:
                return
            self._view, self._deletions = known
            if directory.only is None:
                self.report.findings(check_settings(path, known.view))

    def _look_at_old_store(self, directory: Directory) -> None:
        from odradek.server.metadata.migration import check_migration

        path = f"{directory.path}/{OLD_STORE}"
        is_whole, told = check_migration(path)
        consequence = "the next start does it" if is_whole else "a start is refused"
        kind = NOTE if is_whole else DAMAGE
        self.report.findings([Finding(kind, path, None, one, consequence) for one in told])

    def _look_at_interrupted_repair(self, directory: Directory) -> None:
        path = f"{directory.path}/{METADATA_DIRECTORY}"
        if directory.only is not None or not self._disk.exists(path + REPAIRED):
            return
        with self._going_on(path):
            what, consequence = "a repair of it was interrupted", "a start finishes it"
            self.report.findings([Finding(DAMAGE, path, None, what, consequence)], is_repaired=self._repair)
            if self._repair:
                told: list[str] = []
                finish_repair(self._disk, path, told.append)
                self.report.repairs(Repair(path, None, one) for one in [*told, "the repair was finished"])

    def _look_at_import(self) -> None:
        for directory in self._directories:
            with self._going_on(f"{directory.path}/{imports.FILE_NAME}"):
                note = imports.read_note(self._disk, directory.path)
                if note is not None:
                    self._imports.add(note.topic_id)

    def _look_for_metadata(self) -> None:
        """Reports partitions of Odradek without metadata: a broker would not serve them."""
        for directory in self._directories:
            if directory.only is not None or not meta_properties.is_ours(directory.path):
                continue
            if meta_properties.is_member(directory.path):
                # The controllers have the metadata.
                continue
            topics = {
                key[0]
                for name in self._disk.list(directory.path)
                if (key := key_of(name)) is not None
                and self._disk.exists(f"{directory.path}/{name}/{checkpoints.PARTITION_METADATA}")
            }
            if not topics:
                continue
            count = "1 topic" if len(topics) == 1 else f"{len(topics)} topics"
            path = f"{directory.path}/{METADATA_DIRECTORY}"
            what = f"it is missing, but there are partitions of {count}"
            # The advice begins with harmless steps: a start with only the second of log.dirs would make a new
            # log in it.
            consequence = (
                "if the broker has other log.dirs, one of those has it: check all of them together; "
                "if none has it, a broker would serve none of the topics: restore it from a backup, "
                "or start Odradek once without it and import each topic in place (odradek import-log "
                f"{directory.path} --topic NAME --data-dir {directory.path})"
            )
            self.report.findings([Finding(DAMAGE, path, None, what, consequence)])
            return

    def _look_at_metadata_log(self, directory: Directory, path: str) -> None:
        if not meta_properties.is_ours(directory.path) and identity_of(directory.path) is not None:
            what = "the metadata of this cluster is Apache Kafka's"
            self.report.findings([Finding(NOTE, path, None, what, "it is not checked")])
            return
        from odradek.server.metadata.metadata_log_opening import findings

        with self._going_on(path):
            found = [
                Finding(
                    DAMAGE if one.is_damage else NOTE, f"{path}/{one.name}", None, one.what, one.consequence
                )
                for one in findings(self._disk, path)
            ]
            repairs = self._repair_metadata_log(directory, path) if found and self._repair else []
            self.report.findings(found, is_repaired=bool(repairs))
            self.report.repairs(repairs)

    def _repair_metadata_log(self, directory: Directory, path: str) -> list[Repair]:
        """Mend the log as a start would; also where that loses ACLs or users."""
        from odradek.config.config_error import ConfigError
        from odradek.server.metadata.metadata_log import ThisVoter
        from odradek.server.metadata.metadata_log_opening import DamagedMetadataLog, mend_files
        from odradek.server.metadata.metadata_log_repair import repair

        identity, directory_id = identity_of(directory.path), directory_id_of(directory.path)
        if identity is None or directory_id is None:
            return []
        told: list[str] = []
        voter, now_ms = ThisVoter(int(identity[1]), directory_id), int(time.time() * 1000)
        try:
            try:
                mend_files(self._disk, path, now_ms, told.append, voter_id=voter.node_id)
            except DamagedMetadataLog:
                repair(
                    self._disk,
                    path,
                    self._directories_of_topics(directory),
                    voter,
                    now_ms=now_ms,
                    tell=told.append,
                    gives_up_guards=True,
                )
        except ConfigError as error:
            raise CannotCheck(str(error)) from error
        return [Repair(path, None, what) for what in told]

    def _directories_of_topics(self, directory: Directory) -> list[str]:
        """Directories in which topics may be found again; a controller has none."""
        if meta_properties.is_member(directory.path):
            return []
        return [one.path for one in self._directories if one.only is None]

    def _partitions(self, directory: Directory) -> Iterator[str]:
        """The names of the partition directories to check; reports the other directories."""
        for name in sorted(self._disk.list(directory.path)):
            path = f"{directory.path}/{name}"
            if (directory.only is not None and name not in directory.only) or not os.path.isdir(path):
                continue
            if name == METADATA_DIRECTORY:
                continue
            if directory.only is not None or key_of(name) is not None:
                yield name
            elif is_aside(name, DELETE_SUFFIX):
                self.report.findings([Finding(NOTE, path, None, "it is deleted", "a start removes it")])
            elif is_aside(name, FUTURE_SUFFIX):
                what, consequence = (
                    "a copy of a move between data directories that was interrupted",
                    "a start removes it, and begins the move again",
                )
                self.report.findings([Finding(NOTE, path, None, what, consequence)])
            elif name.endswith(STRAY_SUFFIX):
                what, consequence = (
                    "a partition that was set aside",
                    "it is not changed; odradek import-log can import it",
                )
                self.report.findings([Finding(NOTE, path, None, what, consequence)])
            elif is_aside(name, IMPORT_SUFFIX):
                self.report.findings([Finding(NOTE, path, None, *_INTERRUPTED_IMPORT)])

    # A partition

    def _partition(self, directory: Directory, name: str) -> None:
        path = f"{directory.path}/{name}"
        if self._repair:
            self.report.repairs(
                Repair(f"{path}/{one}", None, "finished interrupted steps")
                for one in finish_work(self._disk, path)
            )
        checked = self._checked(directory, name)
        findings = [*checked.findings, *self._against_checkpoints(directory, name, checked)]
        findings += self._against_metadata(directory, name, checked)
        self._count(checked)
        if checked.log_damage and meta_properties.is_member(directory.path):
            self.report.findings([*findings, Finding(NOTE, path, None, *_REPLICA)])
            return
        if not self._repair or checked.unread or not any(finding.kind == DAMAGE for finding in findings):
            self.report.findings(findings)
            return
        self.report.findings(findings, is_repaired=True)
        repairs = [*self._lost_at_end(directory, name, checked), *repair_log(self._disk, checked)]
        for _ in range(2):
            self._progress.expect(_log_bytes(self._disk, path))
        # The new recovery point is the log's end: files that a recovery would rebuild have to exist.
        checked = self._checked(directory, name, is_flushed=True)
        repairs += repair_caches(self._disk, checked)
        repairs += self._repair_identity(name, path, checked)
        self.report.repairs(repairs)
        key = key_of(name)
        if directory.is_data_directory and key is not None:
            self._mend_offsets(directory, key, checked)
        again = self._checked(directory, name)
        left = [*again.findings, *self._against_checkpoints(directory, name, again)]
        left += self._against_metadata(directory, name, again)
        self.report.findings(finding for finding in left if finding.kind == DAMAGE)

    def _lost_at_end(self, directory: Directory, name: str, checked: PartitionCheck) -> Iterator[Repair]:
        """The flushed offsets that are in no file and no finding."""
        point = directory.offsets.get(checkpoints.RECOVERY_POINTS, {}).get(key_of(name) or ("", 0), 0)
        last = checked.segments[-1] if checked.segments else None
        end_offset = checked.end_offset
        if last is not None and last.holes and last.holes[-1].end_position == last.size_bytes:
            end_offset = max(end_offset, last.holes[-1].end_offset)
        if checked.lost_segments:
            end_offset = max(end_offset, checked.lost_segments[-1].end_offset)
        if directory.is_data_directory and end_offset < point:
            yield Repair(checked.path, None, f"the offsets {end_offset} to {point - 1} are lost")

    def _checked(self, directory: Directory, name: str, *, is_flushed: bool = False) -> PartitionCheck:
        key = key_of(name)
        point = None
        if directory.is_data_directory and key is not None and not is_flushed:
            point = directory.offsets[checkpoints.RECOVERY_POINTS].get(key, 0)
        checked = PartitionCheck(
            self._disk,
            f"{directory.path}/{name}",
            recovery_point=point,
            was_clean=directory.was_clean,
            journal_waits=name in directory.waiting,
            is_compacted=self._may_be_compacted(key),
        )
        for size_bytes in checked.steps():
            self._progress.advance(size_bytes, checked.path)
        return checked

    def _may_be_compacted(self, key: Key | None) -> bool:
        """Whether the metadata have compaction for the topic; without a policy of its own the default
        counts."""
        topic = None if key is None or self._view is None else self._view.topics.get(key[0])
        if topic is None or topic.name in INTERNAL_TOPICS:
            return True
        return "compact" in topic.configs.get("cleanup.policy", "")

    def _count(self, checked: PartitionCheck) -> None:
        for place, count in enumerate((1, len(checked.segments), checked.batch_count, checked.size_bytes)):
            self._counts[place] += count

    def _against_checkpoints(
        self, directory: Directory, name: str, checked: PartitionCheck
    ) -> Iterator[Finding]:
        key = key_of(name)
        if not directory.is_data_directory or key is None or checked.unread:
            return
        end_offset = checked.end_offset
        ahead = {file: directory.offsets[file].get(key, 0) for file in OFFSET_FILES}
        ahead = {file: offset for file, offset in ahead.items() if offset > end_offset}
        if checkpoints.RECOVERY_POINTS in ahead or name in directory.waiting:
            ahead.pop(checkpoints.HIGH_WATERMARKS, None)
        for file, offset in ahead.items():
            lost = f"the offsets {end_offset} to {offset - 1} are gone"
            kind, consequence = {
                checkpoints.RECOVERY_POINTS: (DAMAGE, f"they had been flushed: {lost}"),
                checkpoints.HIGH_WATERMARKS: (DAMAGE if directory.was_clean else NOTE, lost),
                checkpoints.FIRST_DIRTY: (DAMAGE, "compaction skips the log"),
                checkpoints.LOG_STARTS: (
                    NOTE,
                    "a start begins the log there; all earlier records were deleted",
                ),
            }[file]
            what = f"it has offset {offset} for {name}, whose log ends at {end_offset}"
            yield Finding(kind, f"{directory.path}/{file}", None, what, consequence)

    def _against_metadata(
        self, directory: Directory, name: str, checked: PartitionCheck
    ) -> Iterator[Finding]:
        key = key_of(name)
        if key is None or self._view is None:
            return
        homes = self._homes.get(key, [directory.path])
        topic = self._view.topics.get(key[0])
        if checked.topic_id is not None and checked.topic_id in self._deletions:
            yield Finding(NOTE, checked.path, None, "its topic is deleted", "a start removes it")
        elif topic is None and checked.topic_id in self._imports:
            yield Finding(NOTE, checked.path, None, *_INTERRUPTED_IMPORT)
        elif topic is None or key[1] >= len(topic.partitions):
            consequence = "it is not changed; odradek import-log can import it"
            yield Finding(NOTE, checked.path, None, "it belongs to no topic", consequence)
        elif checked.topic_id is not None and checked.topic_id != topic.topic_id:
            here, there = uuid_to_text(checked.topic_id), uuid_to_text(topic.topic_id)
            what = f"its topic id is {here}, topic {key[0]} has {there}"
            consequence = "a start sets it aside"
            if len(homes) == 1:
                consequence += ", and the partition begins empty"
            yield Finding(DAMAGE, checked.path, None, what, consequence)
        elif directory.path != homes[0] and checked.topic_id == topic_id_in(self._disk, f"{homes[0]}/{name}"):
            what = f"the partition is in {homes[0]}, too"
            consequence = (
                "a start keeps the longer one, and removes the other if it is a part of that, as after a move"
            )
            yield Finding(NOTE, checked.path, None, what, consequence)

    def _repair_identity(self, name: str, path: str, checked: PartitionCheck) -> list[Repair]:
        """Rewrite an unreadable `partition.metadata`, if the metadata have the topic."""
        key = key_of(name)
        file = f"{path}/{checkpoints.PARTITION_METADATA}"
        topic = None if key is None or self._view is None else self._view.topics.get(key[0])
        if topic is None or checked.topic_id is not None or not self._disk.exists(file):
            return []
        checkpoints.write_partition_metadata(self._disk, file, topic.topic_id)
        return [Repair(file, None, "rebuilt from the metadata log")]

    def _mend_offsets(self, directory: Directory, key: Key, checked: PartitionCheck) -> None:
        """Set the checkpoints of a repaired partition, which was read and synced."""
        sync_log(self._disk, checked)
        end_offset = checked.end_offset
        directory.offsets[checkpoints.RECOVERY_POINTS][key] = end_offset
        directory.unreadable.add(checkpoints.RECOVERY_POINTS)
        for name in (checkpoints.HIGH_WATERMARKS, checkpoints.FIRST_DIRTY):
            if directory.offsets[name].get(key, 0) > end_offset:
                directory.offsets[name][key] = end_offset
                directory.unreadable.add(name)

    def _write_checkpoints(self, directory: Directory) -> None:
        if directory.unreadable:
            # Neither checkpoint is valid for a repaired partition; a start makes new ones quickly.
            self._disk.remove(f"{directory.path}/{SCAN_CHECKPOINTS}")
            self._disk.remove(f"{directory.path}/{END_CHECKPOINTS}")
        for name in sorted(directory.unreadable):
            path = f"{directory.path}/{name}"
            checkpoints.write_offsets(self._disk, path, directory.offsets[name])
            self.report.repairs([Repair(path, None, "written again")])

    def _look_for_missing(self) -> None:
        """Partitions of the metadata without a directory."""
        if self._view is None or any(directory.only is not None for directory in self._directories):
            return
        known: dict[Key, int] = {}
        for directory in self._directories:
            known |= directory.offsets[checkpoints.HIGH_WATERMARKS]
        for topic in self._view.topics.values():
            for partition in topic.partitions:
                key = (topic.name, partition.index)
                if key in self._homes:
                    continue
                path = f"{self._directories[0].path}/{topic.name}-{partition.index}"
                had_records = known.get(key, 0) > 0
                consequence = (
                    "a start with all log.dirs makes it again, empty; without its directory it stays "
                    "offline: check all log.dirs together"
                )
                self.report.findings(
                    [Finding(DAMAGE if had_records else NOTE, path, None, "it is missing", consequence)]
                )


def _log_bytes(disk: Disk, path: str) -> int:
    """For the progress of a check: unreadable files count 0 bytes, and are reported later."""
    try:
        return sum(
            disk.size(f"{path}/{name}") for name in disk.list(path) if base_offset_of(name, LOG) is not None
        )
    except OSError:
        return 0
