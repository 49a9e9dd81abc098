"""Fewer or more workers than before: partitions go from some to others, without a copy.

Workers that are left out give all, and new ones get their share of each topic. The directories of partitions
are renamed before any worker opens its own, and then the records of the cluster say so. A journal in the
first directory says what is to be renamed: an interrupted start is finished by the next one, whatever the
number of workers is then. A node alone is one worker here (`lone_node.py`).

Partitions with more replicas are not touched, and none of a worker that was not stopped cleanly: its logs
have to be recovered where they are. A start that would leave one of these out is refused.
"""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Protocol

from odradek.config.config_error import ConfigError
from odradek.config.os_reason import reason_of
from odradek.config.workers import directory_of
from odradek.server.metadata import meta_properties
from odradek.server.workers.directories import property_of
from odradek.storage import checkpoints
from odradek.storage.directories.data_directory import CHECKPOINTS
from odradek.storage.disk import OsDisk, read_file, replace_file
from odradek.storage.log.durability import END_CHECKPOINTS
from odradek.storage.log.scan_checkpoint import SCAN_CHECKPOINTS
from odradek.wire.errors import KafkaError
from odradek.wire.messages.metadata_records import PartitionChangeRecord, UnregisterBrokerRecord
from odradek.wire.schema import uuid_from_text
from odradek.wire.work import Work, finish

if TYPE_CHECKING:
    from odradek.coordinator.cluster.view import ClusterView

logger = logging.getLogger("odradek.workers")

JOURNAL = "worker-moves"
_OF_PARTITIONS = (*CHECKPOINTS, SCAN_CHECKPOINTS, END_CHECKPOINTS)
"""The files of a data directory with a line for each partition."""
_OF_NEW = frozenset(
    (checkpoints.CLEAN_SHUTDOWN, f"{checkpoints.CLEAN_SHUTDOWN}.tmp", f"{meta_properties.FILE_NAME}.tmp")
)
"""Files of a directory that is being made, before its `meta.properties`."""

_Entries = dict[tuple[str, int], tuple[int, ...]]


def refuse_foreign(directories: Sequence[str], node_ids: Sequence[int]) -> None:
    """ConfigError: a directory that a worker would get belongs to another node or cluster. To be called
    before any of them is changed: partitions are renamed before that worker looks itself."""
    if not _is_known(directories[0]):
        return
    cluster_id = property_of(directories[0], "cluster.id")
    for index, node_id in enumerate(node_ids):
        for directory in (directory_of(path, index) for path in directories if index):
            if not _is_known(directory):
                continue
            theirs = property_of(directory, "cluster.id"), property_of(directory, "node.id")
            if theirs != (cluster_id, str(node_id)) or not meta_properties.is_member(directory):
                raise ConfigError(
                    f"Directory {directory} is that of worker {index}, and holds data of node {theirs[1]} of "
                    f"cluster {theirs[0]}: move it elsewhere."
                )


def make_directories(directories: Sequence[str], node_ids: Sequence[int]) -> None:
    """Makes those of new workers of a broker that has been served, before one of them is forked. They are
    marked as cleanly stopped: all that will come into them is. ConfigError: one cannot be made."""
    if not meta_properties.is_member(directories[0]):
        return
    cluster_id, disk = property_of(directories[0], "cluster.id"), OsDisk()
    for index, node_id in enumerate(node_ids):
        for path in directories if index else ():
            directory = directory_of(path, index)
            try:
                os.makedirs(directory, exist_ok=True)
                if not _OF_NEW.issuperset(os.listdir(directory)):
                    continue
                checkpoints.write_clean_shutdown(disk, directory)
            except OSError as error:
                raise ConfigError(f"{directory} cannot be made: {reason_of(error)}.") from error
            new_id = meta_properties.new_id(os.urandom)
            meta_properties.write(directory, cluster_id, node_id, new_id, for_member=True)


def _is_known(directory: str) -> bool:
    return os.path.exists(os.path.join(directory, meta_properties.FILE_NAME))


class Draft(Protocol):
    """A change of the metadata."""

    def add_records(self, records: Sequence[Any]) -> None: ...


class Metadata(Protocol):
    """The machine of the controller."""

    @property
    def view(self) -> ClusterView: ...

    def changing(self, edit: Any) -> Work[Any]: ...


@dataclass(frozen=True, slots=True)
class Move:
    """A partition that goes from one worker to another."""

    topic: str
    index: int
    source: str
    """Log directory."""
    target: str
    node_id: int
    """The node that has it then."""
    directory_id: str


class Resizing:
    """`take_over` runs in the first worker, once its controller has its metadata, and before any worker has
    them. `directories` are `log.dirs` of the broker, `node_ids` those of all its workers."""

    def __init__(self, directories: Sequence[str], node_ids: Sequence[int]) -> None:
        self._directories = directories
        self._node_ids = node_ids
        self._disk = OsDisk()
        self._journal = f"{directories[0]}/{JOURNAL}"

    def take_over(self, metadata: Metadata) -> None:
        """Moves all partitions of workers that are left out. ConfigError: they cannot be moved, and nothing
        was."""
        self._finish(metadata)
        moves = self._planned(metadata.view)
        if not moves:
            moves = self._planned_for_new(metadata.view)
        if moves:
            self._begin(moves, metadata)
        self._unregister(metadata)

    def _unregister(self, metadata: Metadata) -> None:
        """The nodes that are left out have no replicas any more."""
        records = [
            UnregisterBrokerRecord(broker_id=one.node_id, broker_epoch=one.epoch)
            for one in metadata.view.registrations.values()
            if one.node_id > self._node_ids[-1]
        ]
        if not records:
            return
        try:
            finish(metadata.changing(lambda draft: _adding(draft, records)))
        except KafkaError as error:
            raise ConfigError(f"The metadata cannot be written: {error.message}") from error

    # The plan

    def _planned(self, view: ClusterView) -> list[Move]:
        moves: list[Move] = []
        for topic in view.topics.values():
            for partition in topic.partitions:
                left_out = [one for one in partition.replicas if one > self._node_ids[-1]]
                if not left_out:
                    continue
                if len(partition.replicas) > 1:
                    nodes = ", ".join(map(str, partition.replicas))
                    raise ConfigError(
                        f"{topic.name}-{partition.index} has replicas at nodes {nodes}, and "
                        f"{self._setting} leave node {left_out[0]} out: start "
                        f"{self._workers_for(left_out[0])} workers, and move it first (odradek topics move)."
                    )
                moves.append(self._planned_move(f"{topic.name}-{partition.index}", left_out[0], len(moves)))
        return moves

    def _planned_move(self, name: str, node_id: int, number: int) -> Move:
        at = number % len(self._node_ids)
        topic, _, index = name.rpartition("-")
        for path in self._directories:
            source, target = (directory_of(path, one) for one in (node_id - self._node_ids[0], at))
            if not os.path.isdir(f"{source}/{name}"):
                continue
            if not self._disk.exists(f"{source}/{checkpoints.CLEAN_SHUTDOWN}"):
                raise ConfigError(
                    f"{source} was not stopped cleanly, and {self._setting} leave it out: start "
                    f"{self._workers_for(node_id)} workers and stop them, then fewer."
                )
            if os.path.exists(f"{target}/{name}"):
                raise ConfigError(
                    f"{target}/{name} is in the way of {source}/{name}: move it elsewhere first."
                )
            if not os.path.isdir(target) or os.stat(source).st_dev != os.stat(target).st_dev:
                raise ConfigError(
                    f"{source}/{name} cannot be renamed into {target}, which is on another disk: move it "
                    "while both workers run (odradek topics move)."
                )
            return Move(
                topic, int(index), source, target, self._node_ids[at], property_of(target, "directory.id")
            )
        raise ConfigError(
            f"{name} is at node {node_id}, which {self._setting} leave out, and is in none of its "
            f"directories: start {self._workers_for(node_id)} workers."
        )

    def _planned_for_new(self, view: ClusterView) -> list[Move]:
        """The share of each topic that workers get which there were not before."""
        new = [node_id for node_id in self._node_ids if node_id not in view.registrations]
        if not new or len(new) == len(self._node_ids):
            return []
        moves: list[Move] = []
        for topic in view.topics.values():
            having: dict[int, list[int]] = {node_id: [] for node_id in self._node_ids}
            for partition in topic.partitions:
                if len(partition.replicas) == 1 and partition.replicas[0] in having:
                    having[partition.replicas[0]].append(partition.index)
            share = sum(map(len, having.values())) // len(having)
            for node_id in new:
                while len(having[node_id]) < share:
                    giving = max(having, key=lambda one: len(having[one]))
                    index = having[giving].pop()
                    having[node_id].append(index)
                    move = self._move_to_new(topic.name, index, giving, node_id)
                    if move is not None:
                        moves.append(move)
        return moves

    def _move_to_new(self, topic: str, index: int, giving: int, node_id: int) -> Move | None:
        """None: it stays where it is."""
        first = self._node_ids[0]
        for path in self._directories:
            source, target = (directory_of(path, one - first) for one in (giving, node_id))
            if not os.path.isdir(f"{source}/{topic}-{index}"):
                continue
            if not self._disk.exists(f"{source}/{checkpoints.CLEAN_SHUTDOWN}"):
                return None
            if not _is_known(target) or os.stat(source).st_dev != os.stat(target).st_dev:
                return None
            if not os.path.exists(f"{target}/{topic}-{index}"):
                return Move(topic, index, source, target, node_id, property_of(target, "directory.id"))
        return None

    @property
    def _setting(self) -> str:
        return f"odradek.workers={len(self._node_ids)}"

    def _workers_for(self, node_id: int) -> int:
        return node_id - self._node_ids[0] + 1

    # The journal

    def _write_journal(self, moves: Sequence[Move]) -> None:
        text = json.dumps([asdict(one) for one in moves])
        replace_file(self._disk, self._journal, text.encode())

    def _moves_of_journal(self) -> list[Move]:
        if not self._disk.exists(self._journal):
            return []
        return [Move(**one) for one in json.loads(read_file(self._disk, self._journal))]

    def _begin(self, moves: Sequence[Move], metadata: Metadata) -> None:
        with self._locked(moves):
            try:
                for source, target in _ways(moves):
                    self._carried(source, target, moves)
                self._write_journal(moves)
            except OSError as error:
                raise ConfigError(
                    f"Partitions cannot be renamed from worker to worker: {error}. None was."
                ) from error
            self._move(moves, metadata)

    def _finish(self, metadata: Metadata) -> None:
        """Does what an earlier start has begun."""
        moves = self._moves_of_journal()
        if moves:
            with self._locked(moves):
                self._move(moves, metadata)

    def _move(self, moves: Sequence[Move], metadata: Metadata) -> None:
        """Does what the journal says. All of it may have been done before."""
        try:
            for source, target in _ways(moves):
                self._rename(source, target, moves)
            by_key = {(one.topic, one.index): one for one in moves}
            records = list(_records(metadata.view, by_key))
            finish(metadata.changing(lambda draft: _adding(draft, records)))
        except (OSError, KafkaError) as error:
            raise ConfigError(
                f"Partitions cannot be renamed from worker to worker: {error}. The next start goes on."
            ) from error
        self._disk.remove(self._journal)
        self._disk.sync_directory(self._directories[0])
        logger.info("renamed %d partitions from worker to worker", len(moves))

    def _locked(self, moves: Sequence[Move]) -> ExitStack:
        """No node of an earlier run may still have the directories that are left out; the others are locked
        by the workers, which wait."""
        held = ExitStack()
        kept = {
            directory_of(path, index) for path in self._directories for index in range(len(self._node_ids))
        }
        for source in {move.source for move in moves} - kept:
            try:
                held.callback(self._disk.lock(f"{source}/{checkpoints.LOCK}").release)
            except BlockingIOError:
                held.close()
                raise ConfigError(f"{source} is in use by another process, and is to be left out.") from None
        return held

    def _rename(self, source: str, target: str, moves: Sequence[Move]) -> None:
        """Rename from one directory to another one. What checkpoints say of a log goes first: nothing deleted
        comes back, and a recovery after the next kill takes no gap of a compaction for damage."""
        for name, entries in self._carried(source, target, moves):
            checkpoints.write_facts(self._disk, f"{target}/{name}", entries)
        for one in _between(source, target, moves):
            name = f"{one.topic}-{one.index}"
            if self._disk.exists(f"{source}/{name}"):
                os.rename(f"{source}/{name}", f"{target}/{name}")
        for path in (target, source):
            self._disk.sync_directory(path)

    def _carried(self, source: str, target: str, moves: Sequence[Move]) -> list[tuple[str, _Entries]]:
        """The checkpoint files of a target that change, with their new entries. ConfigError: they cannot be
        read."""
        keys = {(one.topic, one.index) for one in _between(source, target, moves)}
        changed: list[tuple[str, _Entries]] = []
        for name in _OF_PARTITIONS:
            given, before = (self._entries(f"{path}/{name}") for path in (source, target))
            # The target may know a log of this name of an earlier time.
            after = {key: entry for key, entry in before.items() if key not in keys}
            after |= {key: entry for key, entry in given.items() if key in keys}
            if after != before:
                changed.append((name, after))
        return changed

    def _entries(self, path: str) -> _Entries:
        found = checkpoints.read_facts(self._disk, path, lambda *numbers: numbers)
        if found is None:
            raise ConfigError(f"{path} is damaged: see odradek check --repair.")
        return found


def _ways(moves: Sequence[Move]) -> Collection[tuple[str, str]]:
    """Pairs of source and target."""
    return dict.fromkeys((one.source, one.target) for one in moves)


def _between(source: str, target: str, moves: Sequence[Move]) -> list[Move]:
    return [one for one in moves if (one.source, one.target) == (source, target)]


def _adding(draft: Draft, records: Sequence[Any]) -> Work[None]:
    draft.add_records(records)
    return None
    yield None


def _records(view: ClusterView, moves: Mapping[tuple[str, int], Move]) -> Iterator[PartitionChangeRecord]:
    """None for what an earlier start has told, or what is deleted."""
    for topic in view.topics.values():
        for partition in topic.partitions:
            move = moves.get((topic.name, partition.index))
            if move is None or partition.replicas == (move.node_id,):
                continue
            yield PartitionChangeRecord(
                partition_id=partition.index,
                topic_id=topic.topic_id,
                isr=[move.node_id],
                # The controller knows soon that no node of an earlier run lives, and elects anew then.
                leader=move.node_id,
                replicas=[move.node_id],
                directories=[uuid_from_text(move.directory_id)],
                eligible_leader_replicas=[] if partition.elr else None,
                last_known_elr=[] if partition.last_known_elr else None,
            )
