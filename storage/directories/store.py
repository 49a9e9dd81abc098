"""All partitions under the data directories: opening, creating, deleting, background work, closing.

A partition's files are looked at when it is first asked for, so that a clean start takes as long with ten
thousand partitions as with ten. After any other stop than a clean one those that have something that no flush
had are recovered in `open`. The number of open segment files is bounded.

Each data directory holds `.lock`, six checkpoint files and `.kafka_cleanshutdown`, all but two of the
checkpoints as Kafka's do. One that fails takes only its own partitions offline, at the start and later; they
come back when its disk answers again (`attending`, `rescan.py`), those of a directory that could not be
opened with the next start. One thread owns a store; only `Partition.flush` and what a `Work` hands out may
run elsewhere.

`LogStore` is what others see. The parts share a table, `places.py`; each has one story: `opening.py`,
`upkeep.py` (retention, removing files), `checkpointing.py`, `failing_disks.py`, `relocation.py` (moves
between directories).
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from os import urandom
from typing import TYPE_CHECKING

from odradek.storage import checkpoints
from odradek.storage.checkpoints import FIRST_DIRTY
from odradek.storage.config import CLEANING_STEP_BYTES, LogConfig
from odradek.storage.directories.checkpointing import Checkpointing
from odradek.storage.directories.data_directory import DataDirectory, Key
from odradek.storage.directories.failing_disks import FailingDisks
from odradek.storage.directories.opening import DirectoryInUse, Opening
from odradek.storage.directories.places import (
    DELETE_SUFFIX,
    FILE_NAME_BYTES_MAX,
    STRAY_SUFFIX,
    Place,
    Places,
    StoreListener,
    default_config,
    first_leader_epoch,
    key_of,
    topic_id_in,
    unknown_topic_id,
)
from odradek.storage.directories.relocation import Relocation
from odradek.storage.directories.truncation import Truncation
from odradek.storage.directories.upkeep import Upkeep
from odradek.storage.disk import Disk
from odradek.storage.log.flush_journal import FlushJournal
from odradek.storage.log.partition import ZERO_UUID, Partition
from odradek.storage.log.producer_state import EXPIRATION_MS
from odradek.storage.log.scan_checkpoint import SCAN_CHECKPOINT_INTERVAL_BYTES
from odradek.storage.log.segment import LOG, FilePool, Segment
from odradek.storage.recovery.recovery import base_offset_of, begin_log, open_log
from odradek.storage.throttle import Allowance
from odradek.wire.errors import ErrorCode, KafkaError
from odradek.wire.work import Work, finish

if TYPE_CHECKING:
    from odradek.storage.compaction.cleaner import Cleaner
    from odradek.storage.log.log import Log

__all__ = [
    "CHECKPOINT_INTERVAL_MS",
    "DELETE_SUFFIX",
    "FILE_NAME_BYTES_MAX",
    "STRAY_SUFFIX",
    "DirectoryInUse",
    "Key",
    "LogStore",
    "StoreListener",
    "key_of",
]

CHECKPOINT_INTERVAL_MS = 60_000
"""Default of `log.flush.offset.checkpoint.interval.ms`."""
MANY_TO_CLOSE = 64
"""From so many changed partitions on one sync of the file system before theirs is cheaper."""


def _new_id() -> str:
    return urandom(16).hex()


def _inconsistent(name: str) -> KafkaError:
    return KafkaError(
        ErrorCode.INCONSISTENT_TOPIC_ID, f"{name} on the disk belongs to a topic with another id."
    )


class LogStore:
    """See the module. `config_for` gives the settings of a topic that is found on the disk, `topic_id_for`
    the id of the topic that a partition belongs to, None when there is none, `leader_epoch_for` the least
    epoch in which a partition may go on: its log, all of which may be deleted, need not know.

    A directory that says another id when it is loaded is set aside, as by Kafka's LogManager, an empty
    partition takes its place, and `listener.stray` is told. The calls of `maintaining` in
    `retention_interval_ms` go round once. Where logs start is written every `start_checkpoint_interval_ms`,
    the other checkpoints every `checkpoint_interval_ms`. `new_lock` makes what keeps threads apart
    (`threading.Lock`).
    """

    def __init__(
        self,
        disk: Disk,
        directories: Sequence[str],
        *,
        config_for: Callable[[str], LogConfig] = default_config,
        topic_id_for: Callable[[str, int], bytes | None] = unknown_topic_id,
        leader_epoch_for: Callable[[str, int], int] = first_leader_epoch,
        listener: StoreListener | None = None,
        open_files_max: int = 1024,
        new_id: Callable[[], str] = _new_id,
        checkpoint_interval_ms: int = CHECKPOINT_INTERVAL_MS,
        start_checkpoint_interval_ms: int = CHECKPOINT_INTERVAL_MS,
        scan_checkpoint_interval_bytes: int = SCAN_CHECKPOINT_INTERVAL_BYTES,
        producer_expiration_ms: int = EXPIRATION_MS,
        retention_interval_ms: int = 0,
        new_lock: Callable[[], AbstractContextManager] = nullcontext,
    ) -> None:
        self.disk = disk
        self.directories = [directory.rstrip("/") for directory in directories]
        self.cordoned: frozenset[str] = frozenset()
        """Data directories that take no new partitions; see `cordon`."""
        self.pool = FilePool(disk, open_files_max)
        self.flush_journals = [FlushJournal(disk, directory) for directory in self.directories]
        self.listener = StoreListener() if listener is None else listener
        self._homes = {path: DataDirectory(disk, path, new_lock()) for path in self.directories}
        self._table = Places(
            disk,
            self.pool,
            self._homes,
            config_for=config_for,
            topic_id_for=topic_id_for,
            leader_epoch_for=leader_epoch_for,
            listener=self.listener,
            new_id=new_id,
            gate=new_lock(),
            producer_expiration_ms=producer_expiration_ms,
        )
        self._places = self._table.by_key
        self._opening = Opening(self._table)
        self._upkeep = Upkeep(
            self._table,
            self.get,
            retention_interval_ms=retention_interval_ms,
        )
        self._checkpointing = Checkpointing(
            self._table, checkpoint_interval_ms, start_checkpoint_interval_ms, scan_checkpoint_interval_bytes
        )
        self._failing = FailingDisks(self._table, self._opening)
        self._relocation = Relocation(self._table, self.get, self._upkeep.remove_directory)
        self._truncation = Truncation(
            self._table, lambda: self.flush_journals, self._is_compacting, self.remove_later
        )
        self._cleaner: Cleaner | None = None
        self._flushes_asked_ms: int | None = None

    @property
    def was_clean(self) -> bool:
        """Whether the stop before `open` was a clean one, in every directory."""
        return self._opening.was_clean

    @property
    def restored_bytes(self) -> int:
        """What `open` found in flush journals and nowhere else."""
        return self._opening.restored_bytes

    @property
    def producer_expiration_ms(self) -> int:
        """`producer.id.expiration.ms`; may be set at any time."""
        return self._table.producer_expiration_ms

    @producer_expiration_ms.setter
    def producer_expiration_ms(self, expiration_ms: int) -> None:
        self._table.producer_expiration_ms = expiration_ms

    def cordon(self, directories: Iterable[str]) -> None:
        """Have these data directories take no new partitions (`cordoned.log.dirs`)."""
        self.cordoned = frozenset(directory.rstrip("/") for directory in directories)

    @property
    def has_uncordoned(self) -> bool:
        """Whether a data directory takes new partitions."""
        return not self.cordoned.issuperset(self.directories)

    # Opening and closing

    def lock(self) -> None:
        """Take the directories for this process alone: whoever wants to look at what is beside the logs does
        it before `open`. Raises `DirectoryInUse`; of one that cannot be used `open` tells.
        """
        try:
            for home in self._homes.values():
                try:
                    self._opening.lock(home)
                except OSError:
                    continue
        except DirectoryInUse:
            self._unlock()
            raise

    def open(self, now_ms: int) -> dict[Key, int]:
        """Lock the directories and find the partitions; after another stop than a clean one recover those
        that no flush had all of.

        Returns of which partitions how many bytes at the end were not sound and have been cut. Raises
        `DirectoryInUse`, and `OSError` when no directory can be used; see `failures` for those that cannot.
        """
        self._table.now_ms = now_ms
        self._checkpointing.begin(now_ms)
        try:
            for home in self._homes.values():
                try:
                    self._opening.open_directory(home)
                except OSError as error:
                    if all(other is home or other.failure is not None for other in self._homes.values()):
                        raise
                    home.unlock()
                    self._failing.fail(home, str(error))
        except BaseException:
            self._unlock()
            raise
        self._relocation.take_up(self._opening.interrupted_moves)
        return self._opening.cut_bytes

    def close(self, now_ms: int) -> None:
        """Flush everything, write snapshots, indexes and checkpoints, mark the stop as clean, unlock.

        A directory whose disk does not play along is not marked, and the next start recovers. Of one that
        `open` was refused nothing is written.
        """
        homes = [home for home in self._homes.values() if home.lock is not None]
        if not homes:
            return
        self._table.now_ms = now_ms
        if self._cleaner is not None:
            self._cleaner.close()
        self._write_down()
        unclean = {home.path for home in homes if home.failure is not None or not home.was_opened}
        for key, place in list(self._places.items()):
            try:
                if place.failure is not None:
                    unclean.add(place.home.path)
                elif place.partition is not None and place.home.failure is None:
                    self._checkpointing.close_one(key, place)
            except (KafkaError, OSError):
                unclean.add(place.home.path)
        finish(self._upkeep.removing_segments(None))
        # A start that believes in a clean stop would take such a directory for one that has been closed.
        unclean |= {home.path for home in finish(self._relocation.leaving_behind())}
        for home in homes:
            self._close_directory(home, is_clean=home.path not in unclean)
        self._unlock()

    def _close_directory(self, home: DataDirectory, *, is_clean: bool) -> None:
        """Where the disk does not play along the mark is left out."""
        try:
            if home.failure is None and home.was_opened:
                finish(self._checkpointing.noting(home))
                home.write()
            for journal in self.flush_journals:
                if journal.directory != home.path:
                    continue
                if is_clean:
                    journal.discard()
                else:
                    journal.close()
            if is_clean:
                checkpoints.write_clean_shutdown(self.disk, home.path)
        except OSError:
            pass

    def _write_down(self) -> None:
        """Where many partitions are to be closed: writes what their closing would write and syncs the file
        systems. At a sync of each file, five a partition, the device flushes its cache each time, whether
        there is something in it or not.
        """
        places = [place for place in self._places.values() if place.home.failure is None]
        loaded = [place.partition for place in places if place.partition is not None]
        changed = [one.log for one in loaded if one.is_available and one.log.is_changed]
        if len(changed) < MANY_TO_CLOSE:
            return
        written: list[Log] = []
        for log in changed:
            try:
                log.write_down()
                written.append(log)
            except OSError:
                pass  # its own close will say so
        try:
            for home in self._homes.values():
                if home.failure is None:
                    self.disk.sync_file_system(home.path)
        except OSError:
            return
        for log in written:
            log.is_safe()

    def _unlock(self) -> None:
        for home in self._homes.values():
            home.unlock()

    # Partitions

    def create(
        self,
        topic: str,
        index: int,
        topic_id: bytes,
        config: LogConfig,
        *,
        leader_epoch: int = 0,
        now_ms: int | None = None,
    ) -> Partition:
        """The partition, made if it is not there. One that is there takes the settings given.

        Refuses with INCONSISTENT_TOPIC_ID when it is there and belongs to another topic of the same name,
        with KAFKA_STORAGE_ERROR when the disk does not answer.
        """
        if now_ms is not None:
            self._table.now_ms = now_ms
        try:
            self._look_before_adopting(topic, index, topic_id)
            partition = self.get(topic, index)
            if partition is None:
                partition = self._make(topic, index, topic_id, config)
            elif partition.topic_id != topic_id:
                self._adopt(partition, topic_id)
        except OSError as error:
            raise KafkaError(
                ErrorCode.KAFKA_STORAGE_ERROR, f"Creating {topic}-{index} failed: {error}"
            ) from error
        if partition.config is not config:
            partition.set_config(config)
        partition.follow_leader_epoch(leader_epoch)
        return partition

    def _look_before_adopting(self, topic: str, index: int, topic_id: bytes) -> None:
        """To load a directory that nobody knows may change it: not before it is clear that it is the topic's,
        and that we can read it.
        """
        place = self._places.get((topic, index))
        if place is None or place.partition is not None or place.offline_because is not None:
            return
        said = topic_id_in(self.disk, place.path)
        if said not in (None, topic_id):
            raise _inconsistent(place.name)
        if said is None:
            from odradek.storage.recovery.legacy_segments import begins_with_messages  # rare

            if begins_with_messages(self.disk, place.path):
                path = self.set_aside(topic, index)
                self.listener.damage(
                    f"{path} has messages of format v0 or v1, which a new topic cannot take as they are: "
                    "odradek import-log takes it in under another name."
                )

    def _make(self, topic: str, index: int, topic_id: bytes, config: LogConfig) -> Partition:
        """In the emptiest directory that can be written and is not cordoned, as Kafka's LogManager, or where
        it is wanted. Who wants it here although all are cordoned gets it in the first.
        """
        failure = OSError("every data directory has failed")
        alive = [home for home in self._homes.values() if home.failure is None]
        uncordoned = [home for home in alive if home.path not in self.cordoned]
        homes = sorted(uncordoned, key=lambda home: home.partition_count) or alive[:1]
        preferred = self._relocation.take_preferred((topic, index))
        for home in homes if preferred is None else [preferred, *homes]:
            if home.failure is not None:
                continue
            try:
                return self._make_in(home, topic, index, topic_id, config)
            except OSError as error:
                self._table.failed(
                    home.path, error, f"Creating {topic}-{index} in {home.path} failed: {error}"
                )
                failure = error
        raise failure

    def _make_in(
        self, home: DataDirectory, topic: str, index: int, topic_id: bytes, config: LogConfig
    ) -> Partition:
        key = (topic, index)
        place = Place(home, f"{topic}-{index}")
        self._forget_offsets(key)
        is_new = self._make_directory(place, topic_id)
        checkpoints.write_partition_metadata(
            self.disk,
            f"{place.path}/{checkpoints.PARTITION_METADATA}",
            topic_id,
            directory_is_new=is_new,
        )
        if is_new:
            log = begin_log(self.pool, place.path, config, self._table.now_ms)
        else:
            # Left behind by a creation that failed half-way.
            log = open_log(
                self.pool,
                place.path,
                config,
                clean=True,
                recovery_point=0,
                log_start_offset=0,
                now_ms=self._table.now_ms,
            ).log
        partition = Partition(
            topic,
            index,
            topic_id,
            config,
            log,
            leader_epoch=self._table.leader_epoch_for(topic, index),
            on_trouble=self._table.report_trouble,
        )
        place.partition = partition
        self._table.enter(key, place)
        return partition

    def _make_directory(self, place: Place, topic_id: bytes) -> bool:
        """Whether there was none. One of another topic that is in the way is kept beside it."""
        if self.disk.make_directory(place.path):
            return True
        if topic_id_in(self.disk, place.path) in (None, topic_id):
            return False
        key = key_of(place.name)
        assert key is not None
        self.listener.stray(*key, self._table.rename_aside(place.home, place.name, STRAY_SUFFIX))
        return self.disk.make_directory(place.path)

    def _forget_offsets(self, key: Key) -> None:
        """What an earlier topic of this name left in the checkpoints is not about the one to come. On the
        disk neither: a start after a kill would cut off what is before the other's log start.
        """
        for home in self._homes.values():
            if home.forget(key) and home.failure is None:
                home.want()
                home.write()

    def _adopt(self, partition: Partition, topic_id: bytes) -> None:
        if partition.topic_id != ZERO_UUID:
            raise _inconsistent(partition.name)
        path = f"{partition.log.directory}/{checkpoints.PARTITION_METADATA}"
        checkpoints.write_partition_metadata(self.disk, path, topic_id)
        partition.adopt(topic_id)

    def get(self, topic: str, index: int) -> Partition | None:
        """The partition, loaded if need be; None when there is none. KAFKA_STORAGE_ERROR when it cannot
        be read.
        """
        key = (topic, index)
        place = self._places.get(key)
        if place is None:
            return None
        if place.partition is None:
            if place.offline_because is not None:
                raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, place.offline_because)
            try:
                topic_id = self._table.topic_id_for(topic, index)
                if topic_id is not None and self.topic_id_of(topic, index) not in (None, topic_id):
                    self.listener.stray(topic, index, self.set_aside(topic, index))
                    return self._make(topic, index, topic_id, self._table.config_for(topic))
                cut_bytes = self._opening.load(key, place, clean=place.was_clean)
                if cut_bytes:
                    self.listener.damage(
                        f"{place.path}: the last {cut_bytes} bytes were not sound any more and are cut."
                    )
            except OSError as error:
                sentence = f"Opening {place.path} failed: {error}"
                self._table.failed(place.home.path, error, sentence)
                raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, sentence) from error
        return place.partition

    def is_unopened(self, topic: str, index: int) -> bool:
        """Whether `get` would have to look at files."""
        place = self._places.get((topic, index))
        return place is not None and place.partition is None and place.offline_because is None

    def __contains__(self, key: Key) -> bool:
        return key in self._places

    def names(self) -> list[Key]:
        """(topic, index) of every partition, loaded or not."""
        return list(self._places)

    def loaded(self) -> Iterator[Partition]:
        """The partitions that have been asked for since the start."""
        return (place.partition for place in list(self._places.values()) if place.partition is not None)

    def partitions(self) -> Iterator[Partition]:
        """Every partition; loads what is not loaded yet. Those that cannot be read are left out."""
        for topic, index in list(self._places):
            try:
                partition = self.get(topic, index)
            except KafkaError:
                continue
            if partition is not None:
                yield partition

    def sizes(self) -> Iterator[tuple[str, str, int, int | None]]:
        """(data directory, topic, index, bytes of its segments) of every partition in a directory that
        serves, without loading any.

        None instead of the bytes where the disk does not answer.
        """
        for (topic, index), place in list(self._places.items()):
            if place.home.failure is not None:
                continue
            size_bytes: int | None
            if place.partition is not None:
                size_bytes = place.partition.size_bytes
            else:
                try:
                    size_bytes = self._bytes_on_disk(place.path)
                except OSError:
                    size_bytes = None
            yield place.home.path, topic, index, size_bytes

    def _bytes_on_disk(self, path: str) -> int:
        """Of the segments of a partition's directory."""
        return sum(
            self.disk.size(f"{path}/{name}")
            for name in self.disk.list(path)
            if base_offset_of(name, LOG) is not None
        )

    def delete(self, topic: str, index: int, *, sync: bool = True) -> None:
        """Delete a partition: out of sight at once, off the disk after `file.delete.delay.ms`. No error
        if unknown. Without `sync` a loss of power may undo it, until `sync_directories`.

        In a directory that has failed it stays on the disk: it is forgotten, and KAFKA_STORAGE_ERROR says so.
        """
        key = (topic, index)
        place = self._places.get(key)
        if place is None:
            return
        to_delete = self._move_away(key, place, DELETE_SUFFIX, sync=sync)
        delay_ms = 0 if place.partition is None else place.partition.config.file_delete_delay_ms
        self._upkeep.remove_directory(to_delete, delay_ms, place.partition)

    def set_aside(self, topic: str, index: int) -> str:
        """Take a partition that is nobody's out of the way without losing it; returns its directory's new
        path.
        """
        key = (topic, index)
        return self._move_away(key, self._places[key], STRAY_SUFFIX)

    def sync_directories(self) -> None:
        """Make what was deleted stay so. May run in a worker thread. Raises `OSError`."""
        for home in self._homes.values():
            if home.failure is None:
                self.disk.sync_directory(home.path)

    def _move_away(self, key: Key, place: Place, suffix: str, *, sync: bool = True) -> str:
        """Rename a partition's directory, and forget the partition."""
        path = place.path
        self._relocation.clear_place(key)
        error: OSError | str | None = place.home.failure
        # At once for a worker that tries to bring the partition back: the path may be another topic's next.
        with self._table.gate:
            if error is None:
                try:
                    path = self._table.rename_aside(place.home, place.name, suffix)
                    if sync:
                        self.disk.sync_directory(place.home.path)
                except OSError as failed:
                    sentence = f"Renaming {place.path} failed: {failed}"
                    self._table.failed(place.home.path, failed, sentence)
                    raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, sentence) from failed
            self._table.leave(key)
        if place.partition is not None:
            place.partition.moved_to_deletion(path)
        place.home.forget(key)
        if error is not None:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"{path} stays, its disk has failed: {error}")
        return path

    def topic_id_of(self, topic: str, index: int) -> bytes | None:
        """What a partition's directory says of its topic's id, without loading it; None when it says
        nothing.
        """
        place = self._places[topic, index]
        if place.partition is not None:
            topic_id = place.partition.topic_id
            return None if topic_id == ZERO_UUID else topic_id
        return topic_id_in(self.disk, place.path)

    def saving_starts(self, partitions: Iterable[Partition]) -> Work[list[Partition]]:
        """Put on the disk where these logs start now; returns those of which that failed.

        Kafka writes them once a minute: what DeleteRecords has answered, a kill may undo there.
        """
        return self._checkpointing.saving_starts(partitions)

    # Moves between directories

    def begin_move(self, topic: str, index: int, directory: str) -> None:
        """Let a partition, or one that is made later, lie in another data directory.

        Ends a move to anywhere else. Refuses with KAFKA_STORAGE_ERROR while a directory is offline, and with
        REPLICA_NOT_AVAILABLE when there is no such partition; when there will be, it is made there.
        """
        self._relocation.begin(topic, index, directory)

    def moves(self) -> Iterator[tuple[str, str, int, int, int]]:
        """(new data directory, topic, index, bytes copied, offsets to go) of partitions that are moved."""
        return self._relocation.moves()

    @property
    def has_moves(self) -> bool:
        """Whether `moving` has something to do."""
        return self._relocation.has_moves

    @property
    def move_allowance(self) -> Allowance:
        """How many bytes a second moves may copy."""
        return self._relocation.allowance

    def moving(self, now_ms: int) -> Work[None]:
        """Go on with the moves: copy, change over, remove what has been left. After `begin_move`, and every
        second while there are any. One such work at a time.
        """
        self._table.now_ms = now_ms
        return self._relocation.moving(now_ms)

    # Disks that fail

    @property
    def failures(self) -> dict[str, str]:
        """Why data directories are offline, by their paths."""
        return self._failing.failures

    @property
    def has_unopened(self) -> bool:
        """Whether there is a data directory of which nobody knows what it holds."""
        return not all(home.was_opened for home in self._homes.values())

    def offline(self) -> set[Key]:
        """The partitions that answer KAFKA_STORAGE_ERROR. Those of a directory whose names could never be
        read are not among them.
        """
        return {key for key, place in self._places.items() if place.offline_because is not None}

    @property
    def needs_attention(self) -> bool:
        """Whether `attending` has something to do."""
        return self._failing.needs_attention

    def attending(self, now_ms: int) -> Work[None]:
        """Look at the disks that gave errors, take directories offline whose disk does not answer, bring
        back what can be brought back. Soon after `listener.trouble`, and every second while there is a need.
        """
        self._table.now_ms = now_ms
        return self._failing.attending(now_ms)

    # Background work

    def maintain(self, now_ms: int) -> None:
        """`maintaining` here and now."""
        finish(self.maintaining(now_ms))

    def maintaining(self, now_ms: int) -> Work[None]:
        """Retention, removing what was deleted, checkpoints.

        Of very many partitions each call takes some; those that nobody has asked for are loaded for it,
        fewer still. Anything may happen to the store between the steps; one such work at a time.
        """
        self._table.now_ms = now_ms
        yield from self._upkeep.maintaining(now_ms)
        yield from self._checkpointing.writing_if_due(now_ms)

    def expire_producers(self, now_ms: int) -> None:
        """`expiring_producers` here and now."""
        finish(self.expiring_producers(now_ms))

    def expiring_producers(self, now_ms: int, *, only_late: bool = False) -> Work[bool]:
        """Forget producers that have been silent for `producer_expiration_ms`, in the partitions that are
        loaded; an other forgets its own when it is. True: something is staged in some of them, whose turn is
        in the next call, or, with `only_late`, in one for them alone.
        """
        return self._upkeep.expiring_producers(now_ms, only_late=only_late)

    def remove_later(self, segments: Sequence[Segment], due_ms: int) -> None:
        """Remove the files of segments that are out of sight, when nobody can be reading them any more."""
        self._upkeep.remove_segments(segments, due_ms)

    def flush_due(self, now_ms: int) -> list[Partition]:
        """The partitions that want a `flush` soon: sealed segments not on the disk yet, or `flush.ms` is
        over, or would be before the next such question, or the scan checkpoint of one is to be made.
        """
        asked_ms, self._flushes_asked_ms = self._flushes_asked_ms, now_ms
        if asked_ms is None or asked_ms > now_ms:
            asked_ms = now_ms  # the first time, or the clock was put back
        due = {
            partition: None
            for partition in self.loaded()
            if partition.is_available and partition.wants_flush(now_ms, asked_ms)
        }
        return list(due | dict.fromkeys(self._checkpointing.waiting_for_flush()))

    def truncating(self, partition: Partition, offset: int) -> Work[bool]:
        """Cut a log: the batch that holds `offset` goes, and all after it. False where it ends before. What
        is staged is refused, and the high watermark is lowered where it is after the end.

        Refuses with KAFKA_STORAGE_ERROR when it is offline or the disk does not play along, and then it is
        offline; with OFFSET_OUT_OF_RANGE what is before the first segment; with REASSIGNMENT_IN_PROGRESS
        while it is on its way to another directory.
        """
        key = (partition.topic, partition.index)
        place = self._places.get(key)
        if self._relocation.is_moved(key) or (place is not None and place.old_home is not None):
            raise KafkaError(ErrorCode.REASSIGNMENT_IN_PROGRESS, f"{partition.name} is being moved.")
        return (yield from self._truncation.truncating(partition, offset))

    # Compaction

    def _is_compacting(self, partition: Partition) -> bool:
        return self._cleaner is not None and self._cleaner.is_swapping(partition)

    def compact(self, now_ms: int, budget_bytes: int = CLEANING_STEP_BYTES) -> bool:
        """One bounded step of compaction here and now; True while there is more to do."""
        return self.cleaner.step(now_ms, budget_bytes)

    @property
    def cleaner(self) -> "Cleaner":
        """What compaction is to be done, under way and impossible: see there."""
        if self._cleaner is None:
            from odradek.storage.compaction.cleaner import Cleaner  # not needed to start

            self._cleaner = Cleaner(self)
        return self._cleaner

    def new_token(self) -> str:
        """A part of the name of files that nobody else writes to."""
        return self._table.new_id()[:8]

    def is_held(self, partition: Partition) -> bool:
        """Whether this is still the partition of its name, and stays where it is."""
        is_there = self._table.place_of(partition) is not None
        return is_there and not self._relocation.is_moved((partition.topic, partition.index))

    def first_dirty_of(self, partition: Partition) -> int:
        """How far the partition has been compacted."""
        key = (partition.topic, partition.index)
        return self._places[key].home.offset(FIRST_DIRTY, key)

    def noting_first_dirty(self, partition: Partition, offset: int) -> Work[None]:
        """Note how far the partition is compacted now, on the disk, too. Raises `OSError`."""
        return self._checkpointing.noting_first_dirty(partition, offset)

    def noting_flushed(self, partition: Partition, end_offset: int) -> Work[bool]:
        """Whether all before `end_offset` is flushed, and the recovery point on the disk says so: recovery
        takes gaps after that for losses, and compaction makes gaps. Raises `OSError`.

        False while it is not flushed (`flush_due` names it): a flush here would block this thread, and might
        meet that of a worker.
        """
        if not self.is_held(partition):
            return False
        return (yield from self._checkpointing.noting_flushed(partition, end_offset))
