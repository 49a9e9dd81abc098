"""`odradek import-log`: imports partition directories of Apache Kafka into a data directory of Odradek.

The directories are first copied under other names (`orders-0.<id>-import`), read completely (every checksum,
the order of offsets) and completed: wrong indexes, snapshots or epochs are rebuilt, messages of formats v0
and v1 are converted, a damaged log is refused. Then the directories get their names, the checkpoints their
lines, and at last one change in the metadata log creates the topic. Before it nothing is visible; after a
crash the next import removes the remaining files, by a note of the import under way (`offline/imports.py`).

`--move` links instead of copying, if source and target are on one file system, and removes the source when
the topic exists; a crash leaves at least one of the two. A directory that is already in its place, because a
broker found no topic for it, is imported in place.

The settings of the topic come from `--config` and from Kafka's metadata log (`kraft_settings.py`), which is
in one of the arguments or beside a partition's directory; if it is missing, that is reported. It also has the
number of partitions: fewer are refused, unless `--partition` gives their numbers. Other metadata of the
cluster is not imported. An open transaction stays in the log and is reported, since no coordinator will end
it.
"""

import errno
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TYPE_CHECKING, TextIO

from odradek.config.broker_config import BrokerConfig
from odradek.config.config_error import ConfigError
from odradek.config.os_reason import reason_of
from odradek.config.properties import parse_properties
from odradek.coordinator.cluster.image_topics import InconsistentMetadata
from odradek.coordinator.cluster.topics import (
    OFFSETS_TOPIC,
    OFFSETS_TOPIC_CONFIGS,
    SHARE_STATE_TOPIC,
    SHARE_STATE_TOPIC_CONFIGS,
    NewTopic,
)
from odradek.coordinator.cluster.view import Broker, TopicView
from odradek.coordinator.controller.alone import LoneController
from odradek.coordinator.controller.batch import PartitionDefaults
from odradek.offline.check_files import parse_offsets
from odradek.offline.check_partition import PartitionCheck
from odradek.offline.convert_segment import convert_segment
from odradek.offline.directories import IMPORT_SUFFIX, finish_work, surroundings
from odradek.offline.imports import ImportNote, read_note, remove_note, write_note
from odradek.offline.kraft_settings import METADATA_DIRECTORY, KafkaTopic, find_topic
from odradek.offline.repair_partition import repair_caches, sync_log
from odradek.offline.report import Progress
from odradek.server.metadata import meta_properties
from odradek.server.metadata.metadata_log import DiskMetadataLog
from odradek.server.metadata.metadata_log_opening import DamagedMetadataLog
from odradek.server.metadata.metadata_log_start import close_metadata_log, open_own_log
from odradek.storage import checkpoints
from odradek.storage.directories.data_directory import Key
from odradek.storage.directories.places import STRAY_SUFFIX, is_aside
from odradek.storage.directories.store import FILE_NAME_BYTES_MAX, key_of
from odradek.storage.disk import Lock, OsDisk, read_file, replace_file, write_all
from odradek.storage.log.segment_paths import (
    CLEANED,
    INDEX,
    LOG,
    SNAPSHOT,
    SWAP,
    TIME_INDEX,
    TRANSACTION_INDEX,
    base_offset_of,
    file_name,
)
from odradek.storage.recovery.recovery import finish_interrupted
from odradek.wire.errors import ErrorCode, KafkaError
from odradek.wire.messages.metadata_records import MetadataRecord, ProducerIdsRecord
from odradek.wire.schema import uuid_to_text
from odradek.wire.work import Work, finish

if TYPE_CHECKING:
    from odradek.coordinator.controller.draft import RecordDraft
    from odradek.storage.disk import Disk

_COPIED = (LOG, INDEX, TIME_INDEX, TRANSACTION_INDEX, SNAPSHOT)
_COPY_BYTES = 1 << 20
_PREALLOCATED = (INDEX, TIME_INDEX)
_PAGE_BYTES = 4096
_REPLICAS_OPTION = "min.insync.replicas"
_NOT_FOR_US = frozenset({"__transaction_state", "__cluster_metadata"})
_CONFIGS_OF_INTERNAL = {
    OFFSETS_TOPIC: OFFSETS_TOPIC_CONFIGS,
    SHARE_STATE_TOPIC: {**SHARE_STATE_TOPIC_CONFIGS, _REPLICAS_OPTION: "1"},
}
_NODE_ID = 1


class CannotImport(Exception):
    """The import is refused; the text is one sentence for the user."""


@dataclass(slots=True)
class _Source:
    """A partition directory to import, and its state."""

    path: str
    index: int
    staged: str = ""
    """The directory of the copy."""
    is_in_place: bool = False
    """Whether it is already in its place, without a topic."""
    log_start_offset: int = 0
    first_dirty: int = 0
    recovery_point: int = 0
    was_clean: bool = False
    """Whether the recovery point is the log's end."""
    checked: PartitionCheck | None = None
    converted_count: int = 0

    @property
    def parent(self) -> str:
        return os.path.abspath(surroundings(OsDisk(), self.path)[0])

    @property
    def key(self) -> Key | None:
        return key_of(surroundings(OsDisk(), self.path)[1])


def import_log(
    paths: Sequence[str],
    *,
    topic: str | None,
    data_dir: str,
    partitions: Sequence[int] = (),
    configs: Mapping[str, str] | None = None,
    move: bool = False,
    out: TextIO,
    terminal: TextIO | None = None,
    clock: Callable[[], float] = time.monotonic,
) -> None:
    """Import partition directories, or those of `topic` in a log directory, into `data_dir` as a new topic.

    `partitions` are the numbers of the directories in their order, by default from their names. `terminal`
    shows the progress of a long import, by `clock`. Raises CannotImport; then nothing is visible in
    `data_dir`. An OSError is an error of `out`.
    """
    if topic is None:
        raise _which_topic(paths)
    _check_topic(topic)
    if not data_dir:
        raise CannotImport("--data-dir is empty: name the directory where Odradek has its data.")
    sources = _sources(paths, topic, partitions)
    locks: list[Lock] = []
    try:
        if os.path.isdir(data_dir) and meta_properties.is_kafkas(data_dir):
            raise CannotImport(
                f"{data_dir} is a data directory of Apache Kafka itself: name another for --data-dir, from "
                "which Odradek will serve."
            )
        known = _known_to_kafka(paths, sources)
        if isinstance(known, KafkaTopic) and not partitions:
            _check_whole(sources, known)
        data_dir = data_dir.rstrip("/") or "/"
        run = _Import(
            sources, topic, known, data_dir, dict(configs or {}), move, out, Progress(terminal, clock)
        )
        for directory in sorted(
            {os.path.realpath(data_dir), *(os.path.realpath(one.parent) for one in sources)}
        ):
            locks += _lock(directory, is_target=directory == os.path.realpath(data_dir))
        view = run.do()
    except OSError as error:
        # Errors of reads of a source have its path; without a path it was a write.
        where = error.filename or data_dir
        raise CannotImport(f"{where}: {reason_of(error)}; nothing was imported.") from error
    except KafkaError as error:
        raise CannotImport(f"{data_dir}: {error.message or error} Nothing was imported.") from error
    except DamagedMetadataLog as error:
        raise CannotImport(f"{error} Repair it with odradek check --repair {data_dir}.") from error
    except ConfigError as error:
        raise CannotImport(str(error)) from error
    finally:
        for lock in locks:
            lock.release()
    # After all errors that mean "nothing was imported": the reader of `out` may be gone.
    run.report(view)


# Sources -----------------------------------------------------------------------------------------------


def _which_topic(paths: Sequence[str]) -> CannotImport:
    topics = sorted({key[0] for path in paths if os.path.isdir(path) for key in _keys_in(path)})
    whole = f"{paths[0]} is a whole log directory" if topics else f"{paths[0]} is to become a topic"
    there = f"; it has {_listed(topics)}" if topics else ""
    return CannotImport(f"{whole}: name the topic with --topic, one topic at a time{there}.")


def _keys_in(directory: str) -> Iterator[Key]:
    for name in os.listdir(directory):
        key = key_of(name)
        if key is not None and name != METADATA_DIRECTORY and os.path.isdir(os.path.join(directory, name)):
            yield key


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names[:10]) + (f" and {len(names) - 10} more" if len(names) > 10 else "")


def _check_topic(topic: str) -> None:
    from odradek.coordinator.cluster.topics import check_name

    try:
        check_name(topic)
    except KafkaError as error:
        raise CannotImport(error.message or "Illegal topic name.") from None
    if topic in _NOT_FOR_US:
        raise CannotImport(f"{topic} is an internal topic of Apache Kafka; Odradek cannot use it.")


def _sources(paths: Sequence[str], topic: str, partitions: Sequence[int]) -> list[_Source]:
    for path in paths:
        if not os.path.isdir(path):
            raise CannotImport(
                f"{path} is not a directory: name a partition's directory, or a directory of partitions."
            )
        if os.path.basename(os.path.abspath(path)) == METADATA_DIRECTORY:
            raise CannotImport(
                f"{path} is the metadata log of a Kafka cluster, not a topic: name a topic's "
                "directories, and the log directory of the metadata."
            )
    given = [path for path in paths if _is_partition(path)]
    whole = [path for path in paths if path not in given]
    if partitions and (whole or len(partitions) != len(given)):
        raise CannotImport("--partition is the number of a partition directory: give it once for each DIR.")
    numbers = partitions or [_number_of(path) for path in given]
    sources = [_Source(path, number) for path, number in zip(given, numbers, strict=True)]
    for path in whole:
        sources += _sources_in(path, topic)
    if not sources:
        raise _nowhere(whole, topic)
    sources.sort(key=lambda source: source.index)
    _check_numbers(sources, topic)
    return sources


def _is_partition(path: str) -> bool:
    return any(base_offset_of(name, LOG) is not None for name in os.listdir(path))


def _number_of(path: str) -> int:
    name = os.path.basename(os.path.abspath(path))
    if name.endswith(STRAY_SUFFIX):
        name = name.rpartition(".")[0]
    key = key_of(name)
    if key is None:
        raise CannotImport(f"The name of {path} has no partition number: give it with --partition.")
    return key[1]


def _sources_in(path: str, topic: str) -> list[_Source]:
    return [
        _Source(os.path.join(path, f"{topic}-{index}"), index)
        for name, index in _keys_in(path)
        if name == topic
    ]


def _nowhere(paths: list[str], topic: str) -> CannotImport:
    topics = sorted({name for path in paths for name, _ in _keys_in(path)})
    has, it = ("has", "it has") if len(paths) == 1 else ("have", "they have")
    there = _listed(topics) if topics else "no partition at all"
    return CannotImport(f"{_listed(paths)} {has} no partition of {topic}: {it} {there}.")


def _check_numbers(sources: list[_Source], topic: str) -> None:
    numbers = [source.index for source in sources]
    for one, other in pairwise(numbers):
        if one == other:
            raise CannotImport(f"There are two directories of partition {one} of {topic}.")
    if numbers != list(range(len(numbers))):
        missing = next(number for number in range(len(numbers)) if number not in numbers)
        raise CannotImport(
            f"Partition {missing} of {topic} is missing, {numbers[-1]} is there: a topic's partitions are "
            "numbered from 0 without a gap; name all of them, or give other numbers with --partition."
        )


def _known_to_kafka(paths: Sequence[str], sources: list[_Source]) -> KafkaTopic | str:
    """The topic of the directories in Kafka's metadata, or the reason why it is not known.

    One of Kafka's log directories has the metadata of the cluster, perhaps not the one of the partitions.
    """
    names = {source.key and source.key[0] for source in sources}
    name = names.pop()
    if names or name is None:
        return "the directory names do not have its name"
    places = [path for path in paths if not _is_partition(path)] + [source.parent for source in sources]
    places = [
        place for place in dict.fromkeys(places) if os.path.isdir(os.path.join(place, METADATA_DIRECTORY))
    ]
    why = f"no {METADATA_DIRECTORY} is in the directories given or beside them"
    for place in places:
        try:
            with _naming(place):
                found = find_topic(place, name)
        except ValueError as error:
            why = f"{os.path.join(place, METADATA_DIRECTORY)} cannot be read ({error})"
            continue
        if found is not None:
            return found
        why = f"{os.path.join(place, METADATA_DIRECTORY)} does not have it"
    return why


def _check_whole(sources: list[_Source], known: KafkaTopic) -> None:
    """Refuse a part of a topic, which would later look like the whole topic."""
    here = {source.index for source in sources}
    missing = [str(index) for index in sorted(known.leader_epochs.keys() - here)]
    if missing:
        those = f"partition {missing[0]} is" if len(missing) == 1 else f"partitions {_listed(missing)} are"
        raise CannotImport(
            f"{known.name} has {len(known.leader_epochs)} partitions in Kafka, and {those} not in the "
            "directories given: name all of Kafka's log.dirs, of every broker that has some, or take those "
            "here as the whole topic by naming each one's directory and giving it a number with --partition."
        )


def _lock(directory: str, *, is_target: bool) -> list[Lock]:
    path = os.path.join(directory, checkpoints.LOCK)
    if is_target:
        os.makedirs(directory, exist_ok=True)
    elif not os.path.exists(path):
        return []
    try:
        return [OsDisk().lock(path)]
    except BlockingIOError:
        raise CannotImport(f"A broker is running on {directory}: stop it first.") from None
    except OSError as error:
        if is_target:
            raise
        if error.errno in (errno.EACCES, errno.EROFS):
            return []
        raise


# Import -----------------------------------------------------------------------------------------------


class _Import:
    def __init__(
        self,
        sources: list[_Source],
        topic: str,
        known: KafkaTopic | str,
        data_dir: str,
        configs: dict[str, str],
        move: bool,
        out: TextIO,
        progress: Progress,
    ) -> None:
        self._sources = sources
        self._topic = topic
        self._known = known
        self._data_dir = data_dir
        self._configs = configs
        self._move = move
        self._out = out
        self._disk: Disk = OsDisk()
        self._progress = progress
        self._attentions: list[str] = []
        """Messages are kept until the end, so that an earlier OSError is never one of `out`."""

    def do(self) -> TopicView:
        """Import the topic; returns it for `report`."""
        identity = self._claim()
        log = open_own_log(
            BrokerConfig({"node.id": str(identity.node_id)}),
            identity,
            [self._data_dir],
            self._data_dir,
            now_ms=_now_ms,
            repairs=False,
        )
        try:
            controller = self._controller(log, identity)
            self._clear_away(controller)
            topic = self._new_topic(controller)
            self._look_at_places()
            for source in self._sources:
                self._progress.expect(2 * _bytes_of(source.path))
            try:
                for source in self._sources:
                    self._make_ready(source, topic)
                self._progress.clear()
                self._commit(controller, topic, log.directory_id)
            except BaseException:
                # Staged directories are copies. Directories with their final names are removed by the next
                # import, by its note.
                for source in self._sources:
                    if not source.is_in_place:
                        self._remove(source.staged)
                raise
        finally:
            self._progress.clear()
            # After an error all records are there all the same.
            close_metadata_log(log)
        if self._move:
            for source in self._sources:
                try:
                    self._remove_source(source)
                except OSError as error:
                    where = f"{error.filename or source.path}: {reason_of(error)}"
                    self._attentions.append(f"{where}; remove {source.path} by hand")
        return topic

    def _claim(self) -> meta_properties.Identity:
        """The identity of the data directory; a new directory gets node 1."""
        directory = self._data_dir
        path = os.path.join(directory, meta_properties.FILE_NAME)
        node_id = _NODE_ID
        if os.path.exists(path):
            entries = set(os.listdir(directory)) - {meta_properties.FILE_NAME, checkpoints.LOCK}
            # A kill of the first import leaves the identity, and a log that is not complete.
            if entries and entries.isdisjoint((meta_properties.METADATA_LOG, meta_properties.OLD_STORE)):
                raise CannotImport(
                    f"{directory} has no {meta_properties.METADATA_LOG}: name the first of the broker's "
                    "log.dirs."
                )
            with open(path, "rb") as file:
                text = parse_properties(meta_properties.mended(file.read())).get("node.id", "")
            if not text.isdecimal():
                raise CannotImport(f"{path} is damaged: run odradek check for details.")
            node_id = int(text)
        return meta_properties.claim_directories([directory], node_id=node_id)

    def _controller(self, log: DiskMetadataLog, identity: meta_properties.Identity) -> LoneController:
        from odradek.config import options

        controller = LoneController(
            log,
            node_id=identity.node_id,
            cluster_id=identity.cluster_id,
            new_id=_new_topic_id,
            check_topic_configs=lambda name, configs: _ignore(options.parse_topic_configs(configs)),
        )
        try:
            controller.load()
        except InconsistentMetadata as error:
            raise DamagedMetadataLog(f"{log.directory}: {error}.") from error
        if identity.node_id not in controller.view.brokers:
            me = Broker(identity.node_id, {}, directories=(log.directory_id,))
            controller.register(me, lambda: PartitionDefaults(node_id=identity.node_id))
        return controller

    def _new_topic(self, controller: LoneController) -> TopicView:
        """The new topic; refused if a client could not create it."""
        configs = {**self._settings(), **self._configs}
        configs = {**_CONFIGS_OF_INTERNAL.get(self._topic, {}), **configs}
        new_topic = NewTopic(self._topic, len(self._sources), 1, configs=configs)
        (result,) = controller.create_topics([new_topic], validate_only=True)
        if result.error is not None and result.error.code == ErrorCode.TOPIC_ALREADY_EXISTS:
            raise CannotImport(
                f"{self._data_dir} has a topic {self._topic} already: choose another name with --topic, or "
                "delete this topic first."
            )
        if result.topic is None:
            raise CannotImport(f"{self._topic} cannot be created: {result.error and result.error.message}")
        return replace(result.topic, topic_id=self._topic_id(controller))

    def _settings(self) -> dict[str, str]:
        """The topic's settings in Kafka's metadata; settings that Odradek refuses are left out and
        reported."""
        from odradek.config import options

        if isinstance(self._known, str):
            self._attentions.append(
                f"the settings of {self._topic} in Kafka are not known, since {self._known}: it "
                "gets the defaults, and the values of --config NAME=VALUE; name all of Kafka's log.dirs, or "
                "give its settings with --config"
            )
            return {}
        settings: dict[str, str] = {}
        for option, value in sorted(self._known.settings.items()):
            try:
                options.parse_topic_configs({option: value})
                if option == _REPLICAS_OPTION and value != "1":
                    raise KafkaError(ErrorCode.INVALID_CONFIG, "there is one replica here.")
            except KafkaError as error:
                if option not in self._configs:
                    self._attentions.append(f"{option}={value} is not imported: {error.message}")
            else:
                settings[option] = value
        return settings

    def _topic_id(self, controller: LoneController) -> bytes:
        """The topic id of the directories; a new one if they have none, or another topic here has it."""
        topic_ids = {
            checkpoints.read_partition_metadata(
                self._disk, os.path.join(one.path, checkpoints.PARTITION_METADATA)
            )
            for one in self._sources
        }
        if len(topic_ids - {None}) > 1:
            texts = sorted(uuid_to_text(topic_id) for topic_id in topic_ids if topic_id is not None)
            raise CannotImport(f"The directories are of different topics, with the ids {_listed(texts)}.")
        topic_id = next(iter(topic_ids - {None}), None)
        if topic_id is None or topic_id in controller.view.topic_names or topic_id in controller.deletions:
            return _new_topic_id()
        return topic_id

    def _look_at_places(self) -> None:
        """Check that the places of the partitions are free, except for an import in place."""
        for source in self._sources:
            place = self._place(source)
            if not os.path.lexists(place):
                continue
            if os.path.realpath(place) != os.path.realpath(source.path):
                raise CannotImport(
                    f"{place} exists already and belongs to no topic: import it, or move it away."
                )
            source.is_in_place = True
        for name in (checkpoints.RECOVERY_POINTS, checkpoints.HIGH_WATERMARKS, checkpoints.LOG_STARTS):
            path = os.path.join(self._data_dir, name)
            if os.path.exists(path) and isinstance(parse_offsets(read_file(self._disk, path)), str):
                raise CannotImport(f"{path} is damaged: odradek check --repair {self._data_dir} repairs it.")

    def _place(self, source: _Source) -> str:
        return f"{self._data_dir}/{self._topic}-{source.index}"

    # One partition

    def _make_ready(self, source: _Source, topic: TopicView) -> None:
        disk = self._disk
        self._read_surroundings(source)
        if source.is_in_place:
            source.staged = self._place(source)
        else:
            ending = f".{os.urandom(16).hex()}{IMPORT_SUFFIX}"
            name = f"{self._topic}-{source.index}"[: FILE_NAME_BYTES_MAX - len(ending)]
            source.staged = f"{self._data_dir}/{name}{ending}"
            self._copy(source)
        finish_work(disk, source.staged)
        checked = self._check(source)
        if checked.legacy_count:
            self._convert(source, checked)
            source.converted_count = checked.legacy_count
            checked = self._check(source)
        # Indexes without a flushed log: a start would remove them.
        finish_interrupted(disk, source.staged, disk.list(source.staged))
        for segment in checked.segments:
            segment.bad_indexes |= segment.padded_indexes
        repair_caches(disk, checked)
        if not any(base_offset_of(name, SNAPSHOT) is not None for name in disk.list(source.staged)):
            path = f"{source.staged}/{file_name(checked.end_offset, SNAPSHOT)}"
            replace_file(disk, path, checked.snapshot_at_end)
        path = f"{source.staged}/{checkpoints.PARTITION_METADATA}"
        checkpoints.write_partition_metadata(disk, path, topic.topic_id)
        # Linked files may not be synced: their writer may have crashed.
        sync_log(disk, checked)
        disk.sync_directory(source.staged)
        source.checked = checked

    def _read_surroundings(self, source: _Source) -> None:
        """Read the checkpoints of the source: log start, end of the compacted part, recovery point."""
        key = source.key
        if key is None:
            return
        for name in (checkpoints.LOG_STARTS, checkpoints.FIRST_DIRTY, checkpoints.RECOVERY_POINTS):
            path = os.path.join(source.parent, name)
            if not os.path.exists(path):
                continue
            with _naming(path):
                offsets = parse_offsets(read_file(self._disk, path))
            if isinstance(offsets, str):
                raise CannotImport(
                    f"{path} is damaged ({offsets}): odradek check --repair {source.path} repairs it."
                )
            if name == checkpoints.LOG_STARTS:
                source.log_start_offset = offsets.get(key, 0)
            elif name == checkpoints.FIRST_DIRTY:
                source.first_dirty = offsets.get(key, 0)
            else:
                source.recovery_point = offsets.get(key, 0)
                has_mark = os.path.exists(os.path.join(source.parent, checkpoints.CLEAN_SHUTDOWN))
                source.was_clean = has_mark and key in offsets

    def _copy(self, source: _Source) -> None:
        os.mkdir(source.staged)
        for name in sorted(os.listdir(source.path)):
            kind = name.removesuffix(SWAP)
            is_ours = kind == checkpoints.LEADER_EPOCHS or any(
                base_offset_of(kind, suffix) is not None for suffix in _COPIED
            )
            if is_ours:
                self._copy_file(os.path.join(source.path, name), os.path.join(source.staged, name))

    def _copy_file(self, source: str, target: str) -> None:
        is_log = source.endswith((LOG, LOG + SWAP))
        if self._move and _link(source, target):
            if is_log:
                self._progress.advance(os.path.getsize(source), os.path.dirname(source))
            return
        status = os.stat(source)
        reader = os.open(source, os.O_RDONLY | os.O_CLOEXEC)
        writer = self._disk.open(target, create=True)
        try:
            for position, piece in _pieces(reader, source):
                with _naming(target):
                    write_all(writer, position, [piece], len(piece))
                if is_log:
                    self._progress.advance(len(piece), os.path.dirname(source))
            with _naming(target):
                writer.sync()
        finally:
            os.close(reader)
            writer.close()
        # Retention uses the file time where records have no timestamps.
        os.utime(target, ns=(status.st_atime_ns, status.st_mtime_ns))

    def _check(self, source: _Source) -> PartitionCheck:
        """Check the staged partition; a damaged log is refused."""
        point = source.recovery_point if source.was_clean else None
        checked = PartitionCheck(self._disk, source.staged, was_clean=True, recovery_point=point)
        for size_bytes in checked.steps():
            self._progress.advance(size_bytes, source.path)
        wrong = checked.log_damage
        if wrong:
            first = wrong[0]
            at = "" if first.position is None else f" at byte {first.position}"
            more = f", and {len(wrong) - 1} more" if len(wrong) > 1 else ""
            path = os.path.join(source.path, os.path.basename(first.path))
            raise CannotImport(
                f"{path} is damaged{at} ({first.what}{more}): "
                f"odradek check --repair {source.path} saves the sound records."
            )
        if not checked.segments:
            raise CannotImport(f"{source.path} has no segment.")
        if checked.end_offset < source.recovery_point:
            raise CannotImport(
                f"{source.path} is damaged (its log ends at {checked.end_offset}, but it was flushed "
                f"up to {source.recovery_point}): odradek check --repair {source.path} saves the "
                "sound records."
            )
        return checked

    def _convert(self, source: _Source, checked: PartitionCheck) -> None:
        """Replace older messages by batches of format v2."""
        for segment in checked.segments:
            if not segment.has_legacy:
                continue
            path = f"{source.staged}/{file_name(segment.base_offset, LOG)}"
            modified_ms = self._disk.modified_ms(path)
            old, new = self._disk.open(path), self._disk.open(path + CLEANED, create=True)
            try:
                convert_segment(old, new, segment.base_offset)
            except KafkaError as error:
                raise CannotImport(f"{path} cannot be converted to format v2: {error.message}.") from error
            finally:
                old.close()
                new.close()
            for kind in (INDEX, TIME_INDEX):
                self._disk.remove(f"{source.staged}/{file_name(segment.base_offset, kind)}")
            self._disk.set_modified_ms(path + CLEANED, modified_ms)
            self._disk.rename(path + CLEANED, path)

    # All of them

    def _commit(self, controller: LoneController, topic: TopicView, directory_id: bytes) -> None:
        """Rename the directories, write the checkpoints, and at last the records."""
        disk = self._disk
        made = [source for source in self._sources if not source.is_in_place]
        names = [os.path.basename(self._place(source)) for source in made]
        write_note(disk, self._data_dir, ImportNote(topic.name, topic.topic_id, names))
        for source in made:
            disk.rename(source.staged, self._place(source))
            source.staged = ""
        disk.sync_directory(self._data_dir)
        self._write_checkpoints()
        partitions = tuple(
            partition._replace(leader_epoch=self._leader_epoch(source), directories=(directory_id,))
            for partition, source in zip(topic.partitions, self._sources, strict=True)
        )
        records = self._producer_ids(controller)

        def edit(draft: "RecordDraft") -> Work[None]:
            draft.add(replace(topic, partitions=partitions))
            draft.add_records(records)
            return
            yield None

        finish(controller.changing(edit))
        remove_note(disk, self._data_dir)

    def _leader_epoch(self, source: _Source) -> int:
        """At least the latest that Kafka has had: share groups keep it with their state, and take no older
        leader (FENCED_LEADER_EPOCH). It may have had one in which no record was written."""
        epochs = {} if isinstance(self._known, str) else self._known.leader_epochs
        in_kafka = epochs.get(source.key[1], 0) if source.key is not None else 0
        return max(_checked(source).latest_epoch, in_kafka, 0)

    def _producer_ids(self, controller: LoneController) -> list[MetadataRecord]:
        """Reserve the producer ids of the log: a new producer with such an id would send apparent
        duplicates."""
        latest = max(_checked(source).latest_producer_id for source in self._sources)
        if latest < controller.state.next_producer_id:
            return []
        return [ProducerIdsRecord(broker_id=-1, broker_epoch=-1, next_producer_id=latest + 1)]

    def _write_checkpoints(self) -> None:
        """The log was read and synced: with these checkpoints a start after a crash does not read it again,
        and takes no gap for a loss.
        """
        for name in (
            checkpoints.RECOVERY_POINTS,
            checkpoints.HIGH_WATERMARKS,
            checkpoints.LOG_STARTS,
            checkpoints.FIRST_DIRTY,
        ):
            path = f"{self._data_dir}/{name}"
            offsets = checkpoints.read_offsets(self._disk, path)
            if offsets is None:
                raise CannotImport(f"{path} is damaged: run 'odradek check --repair {self._data_dir}' first.")
            for source in self._sources:
                checked = _checked(source)
                offset = {
                    checkpoints.LOG_STARTS: min(source.log_start_offset, checked.end_offset),
                    checkpoints.FIRST_DIRTY: min(source.first_dirty, checked.end_offset),
                }.get(name, checked.end_offset)
                key = (self._topic, source.index)
                if offset > 0:
                    offsets[key] = offset
                else:
                    offsets.pop(key, None)
            checkpoints.write_offsets(self._disk, path, offsets)

    def _clear_away(self, controller: LoneController) -> None:
        """Remove copies that an interrupted import has left."""
        note = read_note(self._disk, self._data_dir)
        if note is not None:
            sources = {os.path.realpath(source.path) for source in self._sources}
            left = [f"{self._data_dir}/{name}" for name in note.names]
            if note.topic_id in controller.view.topic_names:
                left = []
            left = [path for path in left if self._id_in(path) == note.topic_id]
            for path in left:
                if os.path.realpath(path) in sources:
                    # The directory looks complete, and the checkpoints may not have its lines.
                    raise CannotImport(
                        f"{path} was left by an interrupted import: import from the same source again, "
                        f"or move it out of {self._data_dir} and import it from there."
                    )
            for path in left:
                self._remove(path)
            remove_note(self._disk, self._data_dir)
        for name in os.listdir(self._data_dir):
            if is_aside(name, IMPORT_SUFFIX):
                self._remove(f"{self._data_dir}/{name}")

    def _id_in(self, path: str) -> bytes | None:
        """The topic id of a directory; None if it has none."""
        metadata = f"{path}/{checkpoints.PARTITION_METADATA}"
        return checkpoints.read_partition_metadata(self._disk, metadata)

    def _remove(self, path: str) -> None:
        if os.path.isdir(path):
            for name in os.listdir(path):
                self._disk.remove(f"{path}/{name}")
            self._disk.remove_directory(path)

    def _remove_source(self, source: _Source) -> None:
        if source.is_in_place:
            return
        for name in os.listdir(source.path):
            self._disk.remove(os.path.join(source.path, name))
        self._disk.remove_directory(os.path.realpath(source.path))
        if os.path.islink(path := os.path.abspath(source.path)):
            self._disk.remove(path)
        self._disk.sync_directory(source.parent)

    def report(self, topic: TopicView) -> None:
        for text in self._attentions:
            self._out.write(f"attention: {text}\n")
        for source in self._sources:
            checked = _checked(source)
            start = max(source.log_start_offset, checked.start_offset)
            content = f"offsets {start} to {checked.end_offset - 1}, {len(checked.segments)} segments"
            if checked.end_offset <= start:
                content = f"empty, the next offset is {checked.end_offset}"
            if source.converted_count:
                content += f", {source.converted_count} messages of an old format converted"
            name = f"{topic.name}-{source.index}"
            self._out.write(f"partition {name}: {content}, {checked.size_bytes} bytes\n")
        self._report_open_transactions(topic)
        self._warn_of_retention(topic)
        self._out.write(
            f"topic {topic.name} (id {uuid_to_text(topic.topic_id)}) is in {self._data_dir}: "
            f"odradek serve --data-dir {self._data_dir} serves it\n"
        )

    def _report_open_transactions(self, topic: TopicView) -> None:
        """Report open transactions: their coordinator was Kafka's, and no coordinator here has them."""
        found = [
            f"{topic.name}-{source.index} from offset {offset} on (producer {producer_id})"
            for source in self._sources
            for producer_id, offset in sorted(_checked(source).open_transactions.items())
        ]
        if found:
            self._out.write(
                "attention: transactions are open, and readers of committed records stop before them until "
                f"they are aborted with kafka-transactions.sh abort: {_listed(found)}\n"
            )

    def _warn_of_retention(self, topic: TopicView) -> None:
        """Warn of old records, which retention will delete soon after the start, as in Kafka."""
        from odradek.config import options

        values = options.topic_values(
            topic.configs, options.topic_defaults(options.broker_values(options.BrokerLayers()))
        )
        retention_ms = values["retention.ms"]
        if "delete" not in values["cleanup.policy"] or retention_ms < 0:
            return
        horizon_ms = int(time.time() * 1000) - retention_ms
        old = [
            segment
            for source in self._sources
            for segment in _checked(source).segments
            if 0 <= segment.latest_timestamp < horizon_ms
        ]
        if old:
            self._out.write(
                f"attention: {len(old)} segments are older than retention.ms={retention_ms} and will be "
                "deleted soon after a start, unless the broker has another log.retention.ms\n"
            )


def _checked(source: _Source) -> PartitionCheck:
    assert source.checked is not None
    return source.checked


def _pieces(reader: int, path: str) -> Iterator[tuple[int, bytes]]:
    """The parts of a file to copy, with their positions. A killed Kafka leaves indexes of 10 MiB, with zeros
    after the entries.
    """
    is_index = path.endswith(_PREALLOCATED)
    position = 0
    while True:
        with _naming(path):
            piece = os.pread(reader, _PAGE_BYTES if is_index else _COPY_BYTES, position)
        if not piece or (is_index and not any(piece)):
            return
        yield position, piece
        position += len(piece)


@contextmanager
def _naming(path: str) -> Iterator[None]:
    """Add the path to errors of an open file."""
    try:
        yield
    except OSError as error:
        error.filename = error.filename or path
        raise


def _link(source: str, target: str) -> bool:
    """Give a file a second name; False if that is not possible."""
    try:
        os.link(source, target)
    except OSError:
        return False
    return True


def _bytes_of(path: str) -> int:
    return sum(os.path.getsize(os.path.join(path, name)) for name in os.listdir(path) if name.endswith(LOG))


def _new_topic_id() -> bytes:
    """A random id whose text does not begin like a command-line option."""
    from uuid import uuid4

    while uuid_to_text(topic_id := uuid4().bytes).startswith("-"):
        pass
    return topic_id


def _now_ms() -> int:
    return int(time.time() * 1000)


def _ignore(result: object) -> None:
    pass
