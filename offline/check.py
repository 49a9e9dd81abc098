"""`odradek check`: whether data directories hold what they should, without a broker; `--repair` makes it so.

Each finding is one line: what is wrong, where, what comes of it. Damage makes the exit status 1; a note is
something that a start takes care of, or that is as it may be. Each partition is read once
(`check_partition.py`); here is what is around them: `meta.properties`, checkpoints, the group log, the
metadata store.

`--repair` first does what a start after a crash would do (puts back what the group log holds, finishes an
interrupted compaction), then removes what is no sound batch and makes the rest anew from the log. It tells
each byte of a log that is lost. A damaged metadata store is made anew from what can be read and from the
directories (`metadata_repair`), as a start would. Not repaired, since nobody knows better: `meta.properties`,
a directory of another topic's id, segments whose records overlap.

A directory that a broker has is left alone. A file that the disk does not give is damage, and the rest is
checked, but nothing of its partition is repaired.
"""

import json
import os
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple, TextIO

from odradek.config.properties import parse_properties
from odradek.coordinator.cluster.topics import INTERNAL_TOPICS
from odradek.offline.check_partition import DAMAGE, NOTE, Finding, PartitionCheck, lost_logs
from odradek.offline.kraft_settings import METADATA_DIRECTORY
from odradek.offline.repair_partition import Repair, repair_caches, repair_log, sync_log
from odradek.server import meta_properties, metadata_store
from odradek.storage import checkpoints
from odradek.storage.disk import Disk, Lock, OsDisk, OsFile, read_file
from odradek.storage.ends import ENDS, End
from odradek.storage.group_log import NAMES as GROUP_LOGS
from odradek.storage.group_log import read_entries, replay
from odradek.storage.heads import HEADS, Head
from odradek.storage.places import FUTURE_SUFFIX, is_aside, topic_id_in
from odradek.storage.recovery import base_offset_of, finish_interrupted
from odradek.storage.segment import (
    CLEANED,
    DELETED,
    INDEX,
    LOG,
    SNAPSHOT,
    SWAP,
    TIME_INDEX,
    TRANSACTION_INDEX,
    file_name,
)
from odradek.storage.store import DELETE_SUFFIX, STRAY_SUFFIX, Key, key_of
from odradek.wire.errors import KafkaError
from odradek.wire.schema import uuid_to_text

if TYPE_CHECKING:
    from odradek.coordinator.cluster.view import ClusterView

__all__ = [
    "IMPORT_SUFFIX",
    "IMPORT_TABLE",
    "CannotCheck",
    "Progress",
    "ReadingDisk",
    "check",
    "finish_work",
    "parse_offsets",
    "surroundings",
]

IMPORT_SUFFIX = "-import"
IMPORT_TABLE = "import"
"""Rows of imports under way: topic -> JSON of the topic's id and the directories that are made for it."""
PROGRESS_INTERVAL_S = 0.2
_OFFSET_FILES = (
    checkpoints.RECOVERY_POINTS,
    checkpoints.HIGH_WATERMARKS,
    checkpoints.LOG_STARTS,
    checkpoints.FIRST_DIRTY,
)
_LOST_WITH_CHECKPOINT = {
    checkpoints.RECOVERY_POINTS: "a start after a crash reads all logs, and takes gaps for losses",
    checkpoints.HIGH_WATERMARKS: "nothing is lost with it on a single node",
    checkpoints.LOG_STARTS: "records that DeleteRecords has removed may come back",
    checkpoints.FIRST_DIRTY: "compaction begins anew from the start of each log",
}


_SEGMENT_KINDS = (LOG, INDEX, TIME_INDEX, TRANSACTION_INDEX, SNAPSHOT)
_PARTITION_FILES = (checkpoints.PARTITION_METADATA, checkpoints.LEADER_EPOCHS)
_INTERRUPTED_IMPORT = ("an import that was interrupted", "the next odradek import-log removes it")
_NO_CHECKPOINT = "it is not a checkpoint of version 0 with as many lines as it announces"


class CannotCheck(Exception):
    """Nothing was looked at; the text is one sentence for the person who asked."""


class _CannotTell(Exception):
    """`out` has failed, which would pass for the disk that is checked."""

    def __init__(self, error: OSError) -> None:
        super().__init__(error)
        self.error = error


def check(
    paths: Sequence[str],
    *,
    repair: bool = False,
    as_json: bool = False,
    out: TextIO,
    terminal: TextIO | None = None,
) -> int:
    """Check data directories (together those of one broker) and partition directories; the exit status.

    `terminal` is where to show how far a long check is. Raises CannotCheck; an OSError is of `out`.
    """
    disk = OsDisk() if repair else ReadingDisk()
    locks: list[Lock | None] = []
    try:
        directories = _directories(disk, paths)
        for directory in directories:
            locks.append(_lock(directory.path, repair=repair))
        run = _Check(disk, directories, repair, _Report(out, as_json), Progress(terminal))
        run.do()
        return 1 if run.report.damage_count else 0
    except _CannotTell as failure:
        raise failure.error from None
    except OSError as error:
        raise CannotCheck(
            f"{error.filename or 'The disk'} does not answer: {error.strerror or error}."
        ) from error
    finally:
        for lock in locks:
            if lock is not None:
                lock.release()


class ReadingDisk(OsDisk):
    """Opens files for reading only: the directory may be somebody else's, the disk may take no writes."""

    def open(self, path: str, *, create: bool = False) -> OsFile:
        assert not create
        return OsFile(os.open(path, os.O_RDONLY | os.O_CLOEXEC))


def finish_work(disk: Disk, path: str) -> list[str]:
    """Finish or take back in a partition's directory what was interrupted; returns the names that told of it.
    What tells of a lost log file is left for the check, which a start would remove.
    """
    all_names = disk.list(path)
    lost = {file_name(base, "") for base in lost_logs(all_names)}
    names = [name for name in all_names if name.partition(".")[0] not in lost]
    left = [name for name in names if name.endswith((DELETED, CLEANED, SWAP, ".tmp"))]
    if left:
        finish_interrupted(disk, path, names)
    return left


# What was asked for -----------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Directory:
    """A data directory, or the surroundings of some partition directories: then `only` names these."""

    path: str
    only: set[str] | None = None
    is_data_directory: bool = True
    was_clean: bool = False
    offsets: dict[str, dict[Key, int]] = field(default_factory=dict)
    """By the name of the checkpoint."""
    unreadable: set[str] = field(default_factory=set)
    waiting: dict[str, int] = field(default_factory=dict)
    """Bytes in the group log by the name of the partition's directory."""


def _directories(disk: Disk, paths: Sequence[str]) -> list[_Directory]:
    # By the real path: of two names of one directory the second would wait for the lock of the first.
    found: dict[str, _Directory] = {}
    for path in paths:
        path = os.path.normpath(path)
        if not os.path.isdir(path):
            raise CannotCheck(f"{path} is no directory: name a data directory, or that of a partition.")
        parent, name, has_data = surroundings(disk, path)
        if _is_partition(disk, path) or (has_data and key_of(name) is not None):
            directory = found.setdefault(os.path.realpath(parent), _Directory(parent, set(), has_data))
            if directory.only is not None:
                directory.only.add(name)
        else:
            directory = found.setdefault(os.path.realpath(path), _Directory(path))
            directory.only, directory.is_data_directory = None, True
    for directory in found.values():
        directory.was_clean = disk.exists(f"{directory.path}/{checkpoints.CLEAN_SHUTDOWN}")
    return list(found.values())


def surroundings(disk: Disk, path: str) -> tuple[str, str, bool]:
    """The data directory that a partition's directory is in, its name there, and whether it is one.

    Of somebody's link to a partition lock and checkpoints are beside what it leads to; of one in a data
    directory they are beside the link.
    """
    path = os.path.normpath(path)
    parent, name = _parted(path)
    if _has_data(disk, parent) or not os.path.islink(path):
        return parent, name, _has_data(disk, parent)
    parent, name = _parted(os.path.realpath(path))
    return parent, name, _has_data(disk, parent)


def _parted(path: str) -> tuple[str, str]:
    """The directory that a directory is in, and its name there."""
    name = os.path.basename(os.path.abspath(path))
    return os.path.normpath(os.path.join(path, os.pardir)) if name != path else os.curdir, name


def _has_data(disk: Disk, path: str) -> bool:
    return any(disk.exists(f"{path}/{name}") for name in (meta_properties.FILE_NAME, *_OFFSET_FILES))


def _is_partition(disk: Disk, path: str) -> bool:
    return any(
        name in _PARTITION_FILES or any(base_offset_of(name, kind) is not None for kind in _SEGMENT_KINDS)
        for name in disk.list(path)
    )


def _lock(path: str, *, repair: bool) -> Lock | None:
    """Keep brokers out; None where none can have been."""
    lock_path = f"{path}/{checkpoints.LOCK}"
    if not os.path.exists(lock_path):
        return None
    try:
        return OsDisk().lock(lock_path)
    except BlockingIOError:
        raise CannotCheck(
            f"The data directory {path} is in use by a broker: stop it first, it changes under the check."
        ) from None
    except OSError as error:
        if repair:
            raise CannotCheck(f"{path} cannot be written: {error.strerror}.") from None
        return None


# What is told -----------------------------------------------------------------------------------------------


class _Report:
    def __init__(self, out: TextIO, as_json: bool) -> None:
        self.damage_count = 0
        self.note_count = 0
        self.repair_count = 0
        self.lost_bytes = 0
        self._out = out
        self._as_json = as_json

    def findings(self, findings: Iterable[Finding], *, is_repaired: bool = False) -> None:
        """Damage that is repaired soon is told, too, but does not count."""
        for finding in findings:
            if finding.kind == NOTE:
                self.note_count += 1
            elif not is_repaired:
                self.damage_count += 1
            kind, path, position, what, consequence = finding
            self._line(
                {
                    "what": kind,
                    "path": path,
                    "position": position,
                    "finding": what,
                    "consequence": consequence,
                },
                f"{kind} {path}{_at(position)}: {what}. {_sentence(consequence)}",
            )

    def repairs(self, repairs: Iterable[Repair]) -> None:
        for repair in repairs:
            self.repair_count += 1
            self.lost_bytes += repair.lost_bytes
            path, position, what, lost_bytes = repair
            self._line(
                {
                    "what": "repair",
                    "path": path,
                    "position": position,
                    "done": what,
                    "lost_bytes": lost_bytes,
                },
                f"repair {path}{_at(position)}: {what}.",
            )

    def summary(self, partition_count: int, segment_count: int, batch_count: int, size_bytes: int) -> None:
        facts = {
            "partitions": partition_count,
            "segments": segment_count,
            "batches": batch_count,
            "size_bytes": size_bytes,
            "damages": self.damage_count,
            "notes": self.note_count,
            "repairs": self.repair_count,
            "lost_bytes": self.lost_bytes,
        }
        text = " ".join(f"{name}={value}" for name, value in facts.items())
        self._line({"what": "summary", **facts}, f"summary {text}")

    def _line(self, fact: dict[str, Any], text: str) -> None:
        try:
            self._out.write((json.dumps(fact) if self._as_json else text) + "\n")
        except OSError as error:
            raise _CannotTell(error) from error


def _at(position: int | None) -> str:
    return "" if position is None else f" at byte {position}"


def _sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}."


class Progress:
    """How far we are, in one line that is written over again and again; nothing without a terminal."""

    def __init__(self, terminal: TextIO | None) -> None:
        self._terminal = terminal
        self._total_bytes = 0
        self._done_bytes = 0
        self._next_s = 0.0

    def expect(self, size_bytes: int) -> None:
        self._total_bytes += size_bytes

    def advance(self, size_bytes: int, path: str) -> None:
        self._done_bytes += size_bytes
        if self._terminal is None or time.monotonic() < self._next_s:
            return
        self._next_s = time.monotonic() + PROGRESS_INTERVAL_S
        share = min(100 * self._done_bytes // max(self._total_bytes, 1), 100)
        self._terminal.write(f"\r\x1b[K{share} % of {self._total_bytes / 1e6:.0f} MB, {path}")
        self._terminal.flush()

    def clear(self) -> None:
        if self._terminal is not None and self._next_s:
            self._terminal.write("\r\x1b[K")
            self._terminal.flush()


# The check --------------------------------------------------------------------------------------------------


class _Check:
    """All of it, for the directories of one broker."""

    def __init__(
        self, disk: Disk, directories: list[_Directory], repair: bool, report: _Report, progress: Progress
    ) -> None:
        self.report = report
        self._disk = disk
        self._directories = directories
        self._repair = repair
        self._progress = progress
        self._view: ClusterView | None = None
        self._deletions: Mapping[bytes, str] = {}
        self._imports: set[bytes] = set()
        self._homes: dict[Key, list[str]] = {}
        """The data directories that have a partition."""
        self._counts = [0, 0, 0, 0]

    def do(self) -> None:
        for directory in self._directories:
            with self._going_on(directory.path):
                if directory.only is None:
                    self.report.findings(_check_identity(directory.path))
            if directory.is_data_directory:
                self._look_at_checkpoints(directory)
                with self._going_on(directory.path):
                    self._look_at_group_log(directory)
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
        self.report.summary(*self._counts)

    @contextmanager
    def _going_on(self, path: str) -> Iterator[None]:
        """One file that the disk does not give or take is told, and the rest is checked."""
        try:
            yield
        except OSError as error:
            what = f"it cannot be read or written: {error.strerror or error}"
            consequence = "what depends on it was not checked"
            self.report.findings([Finding(DAMAGE, error.filename or path, None, what, consequence)])

    # Around the partitions

    def _check_identities_agree(self) -> None:
        whole = [directory.path for directory in self._directories if directory.only is None]
        identities = {path: _identity(path) for path in whole}
        first = next((identity for identity in identities.values() if identity is not None), ("", ""))
        for path, identity in identities.items():
            if identity is not None and identity != first:
                (cluster, node), (other_cluster, other_node) = identity, first
                what = (
                    f"it is of cluster {cluster} and node {node}, another of {other_cluster} and {other_node}"
                )
                finding = (
                    DAMAGE,
                    f"{path}/{meta_properties.FILE_NAME}",
                    None,
                    what,
                    "one broker cannot have both",
                )
                self.report.findings([Finding(*finding)])

    def _look_at_checkpoints(self, directory: _Directory) -> None:
        for name in _OFFSET_FILES:
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
                offsets = _readable_offsets(data)
            directory.offsets[name] = offsets
        if directory.only is not None:
            return
        for path, of_numbers in ((f"{directory.path}/{HEADS}", Head), (f"{directory.path}/{ENDS}", End)):
            with self._going_on(path):
                if checkpoints.read_facts(self._disk, path, of_numbers) is not None:
                    continue
                consequence = "a start after a crash reads more of the logs"
                finding = Finding(DAMAGE, path, None, _NO_CHECKPOINT, consequence)
                self.report.findings([finding], is_repaired=self._repair)
                if self._repair:
                    self._disk.remove(path)
                    self.report.repairs([Repair(path, None, "removed")])

    def _look_at_group_log(self, directory: _Directory) -> None:
        if not any(self._disk.exists(f"{directory.path}/{name}") for name in GROUP_LOGS):
            return
        path = f"{directory.path}/{GROUP_LOGS[0].rpartition('.')[0]}.*"
        if directory.was_clean:
            if directory.only is None:
                what, consequence = "it is older than the last clean stop", "a start removes it"
                self.report.findings([Finding(NOTE, path, None, what, consequence)])
            return
        points = directory.offsets[checkpoints.RECOVERY_POINTS]
        if self._repair:
            count = replay(self._disk, directory.path, lambda name: points.get(key_of(name) or ("", 0), 0))
            if count:
                self.report.repairs([Repair(path, None, f"put back {count} bytes that only it had")])
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
            what = f"{size_bytes} bytes of {partitions} wait in it ({names})"
            advice = "start Odradek once before Kafka gets the directory"
            consequence = f"a start puts back what is missing of them: {advice}"
            self.report.findings([Finding(NOTE, path, None, what, consequence)])

    def _look_at_metadata(self) -> None:
        has_store = {directory.path: self._has_store(directory) for directory in self._directories}
        if not any(has_store.values()):
            self._look_for_store()
        first = ""
        for directory in self._directories:
            if not has_store[directory.path]:
                continue
            path = f"{directory.path}/{metadata_store.FILE_NAME}"
            known, findings = _look_at_store(path)
            if directory.only is None and findings:
                repairs = self._repair_metadata(directory.path, path) if self._repair else []
                self.report.findings(findings, is_repaired=bool(repairs))
                if repairs:
                    self.report.repairs(repairs)
                    known, findings = _look_at_store(path)
                    self.report.findings(findings)
            if directory.only is None:
                if first:
                    what = f"{first} has metadata of a cluster, too"
                    consequence = (
                        "a broker does not start with both: check each with the directories that belong to it"
                    )
                    self.report.findings([Finding(DAMAGE, path, None, what, consequence)])
                first = first or directory.path
            if known is not None:
                self._view, self._deletions, self._imports = known
                if directory.only is None:
                    self.report.findings(_check_settings(path, known.view))

    def _has_store(self, directory: _Directory) -> bool:
        """SQLite makes an empty file first: to a start that is as good as none."""
        path = f"{directory.path}/{metadata_store.FILE_NAME}"
        return self._disk.exists(path + metadata_store.REPAIRED) or any(
            self._disk.exists(path + ending) and self._disk.size(path + ending) > 0
            for ending in ("", metadata_store.LOG)
        )

    def _look_for_store(self) -> None:
        """Data that a broker of ours has served and none would serve any more."""
        for directory in self._directories:
            if directory.only is not None or not meta_properties.is_ours(directory.path):
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
            path = f"{directory.path}/{metadata_store.FILE_NAME}"
            is_empty = self._disk.exists(path)
            what = f"it is {'empty' if is_empty else 'not there'}, but partitions of {count} are there"
            # First what is harmless: a start with the second of log.dirs alone would make it a first one.
            consequence = (
                "if the broker has other log.dirs, one of those has the file: name all of them together; if "
                "none has it, a broker would serve none of the topics: restore the file from a backup, or "
                "start Odradek once without it and take each topic in where it is (odradek import-log "
                f"{directory.path} --topic NAME --data-dir {directory.path})"
            )
            self.report.findings([Finding(DAMAGE, path, None, what, consequence)])
            return

    def _repair_metadata(self, directory: str, path: str) -> list[Repair]:
        """Do what a start would do about a damaged store; nothing where that would not begin."""
        from odradek.config.broker_config import ConfigError
        from odradek.server.metadata_repair import repair

        identity = _identity(directory)
        if identity is None:
            return []
        told: list[str] = []
        paths = [one.path for one in self._directories if one.only is None]
        try:
            store = metadata_store.SqliteMetadataStore(path)
            try:
                _known_by(list(store.rows()))
            finally:
                store.close()
            told.append("what a kill has left in its write-ahead log was mended and taken in")
        except (metadata_store.DamagedMetadata, AssertionError, LookupError, ValueError):
            node_id, now_ms = int(identity[1]), int(time.time() * 1000)
            try:
                repair(path, self._disk, paths, node_id=node_id, now_ms=now_ms, tell=told.append).close()
            except ConfigError as error:
                raise CannotCheck(str(error)) from error
        except ConfigError:
            return []  # of a newer version, or not ours
        return [Repair(path, None, what) for what in told]

    def _partitions(self, directory: _Directory) -> Iterator[str]:
        """The names of the partition directories to check; says what else is there."""
        for name in sorted(self._disk.list(directory.path)):
            path = f"{directory.path}/{name}"
            if (directory.only is not None and name not in directory.only) or not os.path.isdir(path):
                continue
            if name == METADATA_DIRECTORY:
                what = "the metadata of this cluster is Apache Kafka's"
                self.report.findings([Finding(NOTE, path, None, what, "it is not looked into")])
            elif directory.only is not None or key_of(name) is not None:
                yield name
            elif is_aside(name, DELETE_SUFFIX):
                self.report.findings([Finding(NOTE, path, None, "it is deleted", "a start removes it")])
            elif is_aside(name, FUTURE_SUFFIX):
                what, consequence = (
                    "a copy of a move between data directories that was interrupted",
                    "a start removes it, and begins the move anew",
                )
                self.report.findings([Finding(NOTE, path, None, what, consequence)])
            elif name.endswith(STRAY_SUFFIX):
                what, consequence = (
                    "a partition that was set aside",
                    "it is left alone; odradek import-log can take it in",
                )
                self.report.findings([Finding(NOTE, path, None, what, consequence)])
            elif is_aside(name, IMPORT_SUFFIX):
                self.report.findings([Finding(NOTE, path, None, *_INTERRUPTED_IMPORT)])

    # A partition

    def _partition(self, directory: _Directory, name: str) -> None:
        path = f"{directory.path}/{name}"
        if self._repair:
            self.report.repairs(
                Repair(f"{path}/{one}", None, "finished what was interrupted")
                for one in finish_work(self._disk, path)
            )
        checked = self._checked(directory, name)
        findings = [*checked.findings, *self._against_checkpoints(directory, name, checked)]
        findings += self._against_metadata(directory, name, checked)
        self._count(checked)
        if not self._repair or checked.unread or not any(finding.kind == DAMAGE for finding in findings):
            self.report.findings(findings)
            return
        self.report.findings(findings, is_repaired=True)
        repairs = [*self._lost_at_end(directory, name, checked), *repair_log(self._disk, checked)]
        # The recovery point will vouch for all of it: what a start would have made anew has to be there.
        checked = self._checked(directory, name, is_vouched=True)
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

    def _lost_at_end(self, directory: _Directory, name: str, checked: PartitionCheck) -> Iterator[Repair]:
        """What a flush had vouched for and no file has, nor a finding of a file tells."""
        point = directory.offsets.get(checkpoints.RECOVERY_POINTS, {}).get(key_of(name) or ("", 0), 0)
        last = checked.segments[-1] if checked.segments else None
        end_offset = checked.end_offset
        if last is not None and last.holes and last.holes[-1].end_position == last.size_bytes:
            end_offset = max(end_offset, last.holes[-1].end_offset)
        if checked.lost_segments:
            end_offset = max(end_offset, checked.lost_segments[-1].end_offset)
        if directory.is_data_directory and end_offset < point:
            yield Repair(checked.path, None, f"the offsets {end_offset} to {point - 1} are lost")

    def _checked(self, directory: _Directory, name: str, *, is_vouched: bool = False) -> PartitionCheck:
        key = key_of(name)
        point = None
        if directory.is_data_directory and key is not None and not is_vouched:
            point = directory.offsets[checkpoints.RECOVERY_POINTS].get(key, 0)
        checked = PartitionCheck(
            self._disk,
            f"{directory.path}/{name}",
            recovery_point=point,
            was_clean=directory.was_clean,
            group_log_waits=name in directory.waiting,
            is_compacted=self._may_be_compacted(key),
        )
        for size_bytes in checked.steps():
            self._progress.advance(size_bytes, checked.path)
        return checked

    def _may_be_compacted(self, key: Key | None) -> bool:
        """As far as the metadata say; of a topic without a policy of its own the default is taken."""
        topic = None if key is None or self._view is None else self._view.topics.get(key[0])
        if topic is None or topic.name in INTERNAL_TOPICS:
            return True
        return "compact" in topic.configs.get("cleanup.policy", "")

    def _count(self, checked: PartitionCheck) -> None:
        for place, count in enumerate((1, len(checked.segments), checked.batch_count, checked.size_bytes)):
            self._counts[place] += count

    def _against_checkpoints(
        self, directory: _Directory, name: str, checked: PartitionCheck
    ) -> Iterator[Finding]:
        key = key_of(name)
        if not directory.is_data_directory or key is None or checked.unread:
            return
        end_offset = checked.end_offset
        ahead = {file: directory.offsets[file].get(key, 0) for file in _OFFSET_FILES}
        ahead = {file: offset for file, offset in ahead.items() if offset > end_offset}
        if checkpoints.RECOVERY_POINTS in ahead or name in directory.waiting:
            ahead.pop(checkpoints.HIGH_WATERMARKS, None)
        for file, offset in ahead.items():
            lost = f"the offsets {end_offset} to {offset - 1} are gone"
            kind, consequence = {
                checkpoints.RECOVERY_POINTS: (DAMAGE, f"a flush had vouched for them: {lost}"),
                checkpoints.HIGH_WATERMARKS: (DAMAGE if directory.was_clean else NOTE, lost),
                checkpoints.FIRST_DIRTY: (DAMAGE, "compaction passes the log over"),
                checkpoints.LOG_STARTS: (NOTE, "a start begins the log anew there; all before was deleted"),
            }[file]
            what = f"it says {offset} of {name}, whose log ends at {end_offset}"
            yield Finding(kind, f"{directory.path}/{file}", None, what, consequence)

    def _against_metadata(
        self, directory: _Directory, name: str, checked: PartitionCheck
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
            consequence = "it is left alone; odradek import-log can take it in"
            yield Finding(NOTE, checked.path, None, "no topic has it", consequence)
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
        """A `partition.metadata` that cannot be read, where the metadata know the topic."""
        key = key_of(name)
        file = f"{path}/{checkpoints.PARTITION_METADATA}"
        topic = None if key is None or self._view is None else self._view.topics.get(key[0])
        if topic is None or checked.topic_id is not None or not self._disk.exists(file):
            return []
        checkpoints.write_partition_metadata(self._disk, file, topic.topic_id)
        return [Repair(file, None, "made anew from the metadata store")]

    def _mend_offsets(self, directory: _Directory, key: Key, checked: PartitionCheck) -> None:
        """What the checkpoints are to say of a partition that was repaired: it was read and is synced."""
        sync_log(self._disk, checked)
        end_offset = checked.end_offset
        directory.offsets[checkpoints.RECOVERY_POINTS][key] = end_offset
        directory.unreadable.add(checkpoints.RECOVERY_POINTS)
        for name in (checkpoints.HIGH_WATERMARKS, checkpoints.FIRST_DIRTY):
            if directory.offsets[name].get(key, 0) > end_offset:
                directory.offsets[name][key] = end_offset
                directory.unreadable.add(name)

    def _write_checkpoints(self, directory: _Directory) -> None:
        if directory.unreadable:
            # Of a partition that was repaired neither holds any more, and they are quickly made anew.
            self._disk.remove(f"{directory.path}/{HEADS}")
            self._disk.remove(f"{directory.path}/{ENDS}")
        for name in sorted(directory.unreadable):
            path = f"{directory.path}/{name}"
            checkpoints.write_offsets(self._disk, path, directory.offsets[name])
            self.report.repairs([Repair(path, None, "written anew")])

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
                    "a start with all of log.dirs that there were makes it anew, empty, and one without "
                    "leaves it offline: check all of them together"
                )
                self.report.findings(
                    [Finding(DAMAGE if had_records else NOTE, path, None, "it is not there", consequence)]
                )


# Single files -----------------------------------------------------------------------------------------------


def parse_offsets(data: bytes) -> dict[Key, int] | str:
    """Offset by topic and partition of a checkpoint, or what is wrong with it. Kafka makes an empty file at
    first.
    """
    lines = checkpoints.decode_lines(data) if data else []
    if lines is None:
        return _NO_CHECKPOINT
    offsets: dict[Key, int] = {}
    for fields in lines:
        try:
            topic, index, offset = fields[0], int(fields[1]), int(fields[2])
        except (IndexError, ValueError):
            return f"{' '.join(fields)!r} is not a topic, a partition and an offset"
        if len(fields) != 3 or index < 0 or offset < 0:
            return f"{' '.join(fields)!r} is not a topic, a partition and an offset"
        offsets[topic, index] = offset
    return offsets


def _readable_offsets(data: bytes) -> dict[Key, int]:
    """What can be read of a damaged checkpoint, line by line."""
    offsets: dict[Key, int] = {}
    for line in data.decode("utf-8", "replace").splitlines()[2:]:
        one = parse_offsets(checkpoints.encode_lines([line]))
        if not isinstance(one, str):
            offsets |= one
    return offsets


def _check_identity(directory: str) -> Iterator[Finding]:
    path = f"{directory}/{meta_properties.FILE_NAME}"
    if not os.path.exists(path):
        if any(key_of(name) for name in os.listdir(directory)):
            yield Finding(
                NOTE, path, None, "it is not there", "a start makes a new one, with a new cluster id"
            )
        return
    with open(path, "rb") as file:
        content = file.read()
    mended = meta_properties.mended(content)
    if mended != content:
        what = "its checksum does not fit"
        consequence = "one bit of it is wrong: a start reads it as it was written"
        if not mended:
            consequence = "a start makes a new one, with a new cluster id: restore the file from a backup"
        yield Finding(DAMAGE, path, None, what, consequence)
    elif _identity(directory) is None:
        consequence = "a broker does not start with it: restore the file from a backup"
        yield Finding(DAMAGE, path, None, "it does not say version, cluster.id and node.id", consequence)


def _identity(directory: str) -> tuple[str, str] | None:
    """Cluster and node of a data directory; None when its file does not say them."""
    try:
        with open(f"{directory}/{meta_properties.FILE_NAME}", "rb") as file:
            properties = parse_properties(meta_properties.mended(file.read()))
    except (OSError, ValueError):
        return None
    node_id = properties.get("node.id", properties.get("broker.id", ""))
    cluster_id = properties.get("cluster.id", "")
    if properties.get("version") not in ("0", "1") or not cluster_id or not node_id.isdecimal():
        return None
    return cluster_id, node_id


class _Known(NamedTuple):
    """What the metadata store says: topics, deletions that are not finished, ids of imports likewise."""

    view: "ClusterView"
    deletions: Mapping[bytes, str]
    imports: set[bytes]


def _look_at_store(path: str) -> tuple[_Known | None, list[Finding]]:
    """What the metadata store says; nothing where it is damaged."""
    rows, wrong = metadata_store.verify(path)
    consequence = "a start makes it anew from what can be read, and tells what is missing"
    if not wrong:
        try:
            return _known_by(rows), []
        except (AssertionError, LookupError, ValueError):
            wrong = ["its rows contradict each other"]
    return None, [Finding(DAMAGE, path, None, what, consequence) for what in wrong]


def _known_by(rows: list[Any]) -> _Known:
    from odradek.coordinator.cluster.machine import ClusterMachine

    class Rows:
        """A store that is only read."""

        def rows(self) -> list[Any]:
            return rows

        def write(self, rows: object) -> None:
            raise NotImplementedError

        writing: Any = write

    machine = ClusterMachine(Rows(), cluster_id="", new_topic_id=lambda: bytes(16))
    machine.load()
    imports = {bytes.fromhex(json.loads(row.value)["id"]) for row in rows if row.table == IMPORT_TABLE}
    return _Known(machine.view, machine.deletions, imports)


def _check_settings(path: str, view: "ClusterView") -> Iterator[Finding]:
    from odradek.config import options

    for topic in view.topics.values():
        try:
            options.parse_topic_configs(topic.configs)
        except KafkaError as error:
            what = f"a setting of topic {topic.name} is refused: {error.message}"
            yield Finding(DAMAGE, path, None, what, "its partitions cannot be opened")
    for group_id, configs in view.group_configs.items():
        try:
            options.parse_group_configs(configs)
        except KafkaError as error:
            what = f"a setting of group {group_id} is refused: {error.message}"
            yield Finding(DAMAGE, path, None, what, "the group cannot be served: delete the setting")


def _log_bytes(disk: Disk, path: str) -> int:
    """For showing how far a check is: what cannot be asked counts nothing, and is told later."""
    try:
        return sum(
            disk.size(f"{path}/{name}") for name in disk.list(path) if base_offset_of(name, LOG) is not None
        )
    except OSError:
        return 0
