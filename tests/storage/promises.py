"""A store, what is done to it, and what it has promised: the model behind the crash tests.

`World` does operations to a store on a `MemoryDisk` and keeps book: what was sent to which offset, what is
committed, up to where it is flushed, where each log begins. `check` compares the store with the book;
`crash` pulls the plug, starts again (and perhaps loses power once more on the way), and checks.

Three topics: one whose records stay until they are deleted, one with `retention.bytes`, one that is
compacted. Like the broker, a start makes the topics that it knows and finishes a deletion that it had begun.
Two producers of each have transactions. Whether these are what the log says is asked of `transacting.py`;
that a marker is there which was promised is a matter of records like any other.

A file is cut by `truncate`, or all of them go by `begin_anew`, as a leader wants it of a follower; where a
commit that has failed is taken back; and by recovery, where power is lost or a process has died in the midst
of a write (`tear`).
"""

import random
from itertools import count
from typing import NamedTuple

from memory_disk import MemoryDisk, PowerLost
from transacting import check_transactions

from odradek.storage.config import LogConfig
from odradek.storage.directories.store import CHECKPOINT_INTERVAL_MS, LogStore
from odradek.storage.directories.truncation import find_cut
from odradek.storage.log.flush_journal import PAGE_BYTES, FlushJournal
from odradek.storage.log.leader_epochs import LeaderEpochs
from odradek.storage.log.partition import Partition
from odradek.storage.log.producer_state import ProducerState
from odradek.storage.log.segment import Segment
from odradek.storage.log.transactions import Verified, marker_batch
from odradek.wire.end_marker import EndMarker
from odradek.wire.errors import ErrorCode, KafkaError
from odradek.wire.records import Record, build_batch, iter_records, iter_whole_batches
from odradek.wire.work import finish

START_MS = 1_700_000_000_000
TRANSACTIONAL_IDS = (10, 11)
JOURNAL_BYTES = 4 * PAGE_BYTES
_SMALL = {
    "segment_bytes": 1500,
    "index_interval_bytes": 200,
    "segment_index_bytes": 4000,
    "file_delete_delay_ms": 1000,
}
CONFIGS = {
    "kept": LogConfig(**_SMALL),
    "bounded": LogConfig(**_SMALL, retention_bytes=3000),
    "compacted": LogConfig(**_SMALL, cleanup_policy=frozenset({"compact"}), min_cleanable_dirty_ratio=0.01),
}


class Sent(NamedTuple):
    timestamp: int
    key: bytes
    value: bytes | None


class Book:
    """What one partition has promised."""

    def __init__(self, topic: str, topic_id: bytes) -> None:
        self.topic = topic
        self.topic_id = topic_id
        self.config = CONFIGS[topic]
        self.sent: dict[int, set[Sent]] = {}
        self.committed: dict[int, Sent] = {}
        self.staged: dict[int, Sent] = {}
        self.flushed_end = 0
        self.safe_start = 0
        """Where the log began when a checkpoint last said so: it never begins before that again."""
        self.sequences = dict.fromkeys((*range(3), *TRANSACTIONAL_IDS), 0)
        self.epochs = dict.fromkeys(TRANSACTIONAL_IDS, 0)
        self.owners: dict[int, int] = {}
        """The producer of each record of a transaction."""
        self.may_be_cleaned: set[int] = set()
        """Offsets of markers, and of records that were aborted: compaction takes them."""
        self.leader_epoch = 0
        """The cluster's metadata say it, whatever is left of the log."""
        self.is_made = False
        self.is_being_deleted = False


class World:
    """See the module. Every operation takes its own chance, so that a history can be repeated."""

    def __init__(self, disk: MemoryDisk) -> None:
        self.disk = disk
        self.now_ms = START_MS
        self.books: dict[str, Book] = {}
        self._numbers = count()
        self._ids = count(1)
        self.start()

    def start(self) -> None:
        self._open()
        for book in list(self.books.values()):
            if book.is_being_deleted:
                self.store.delete(book.topic, 0)
                del self.books[book.topic]
            elif book.is_made:
                self._partition(book)

    def _open(self) -> None:
        self.disk.held.clear()
        self.store = LogStore(
            self.disk,
            ["data"],
            config_for=CONFIGS.__getitem__,
            leader_epoch_for=lambda topic, _: self.books[topic].leader_epoch if topic in self.books else 0,
            new_id=lambda: f"{next(self._ids):032x}",
            scan_checkpoint_interval_bytes=300,
        )
        self.store.flush_journals = [FlushJournal(self.disk, "data", file_bytes=JOURNAL_BYTES)]
        self.store.open(self.now_ms)

    def _partition(self, book: Book) -> Partition:
        partition = self.store.get(book.topic, 0)
        if partition is None or partition.topic_id != book.topic_id:
            partition = self.store.create(book.topic, 0, book.topic_id, book.config, now_ms=self.now_ms)
        return partition

    def run(self, operation: str, number: int) -> None:
        chance = random.Random(number)
        if operation not in ("stage", "commit", "transact", "end_transaction"):
            self.commit(chance)
        self.now_ms += 1000
        getattr(self, operation)(chance)

    def run_all(self, steps: list[tuple[str, int]]) -> None:
        for operation, number in steps:
            self.run(operation, number)

    def attempt(self, operation: str, number: int) -> None:
        """`run`, on a disk that may fail: what cannot be done is refused with the one code for that."""
        try:
            self.run(operation, number)
            return
        except (KafkaError, OSError) as error:
            failure = error
        is_start = operation in ("restart", "kill", "tear", "pass_by")
        # A start says so in a sentence and ends; somebody starts it again.
        assert is_start or isinstance(failure, KafkaError), f"{operation} failed with no code of Kafka"
        assert isinstance(failure, OSError) or failure.code is ErrorCode.KAFKA_STORAGE_ERROR
        if is_start:
            self.start()
            self.check(is_kill=True)
            self._resume()

    def attend(self) -> None:
        """The disk answers again: what went offline comes back, with all that was committed."""
        for _ in range(3):
            if self.store.failing_disks.needs_attention:
                self.now_ms += 60_000
                finish(self.store.failing_disks.attending(self.now_ms))
        assert not self.store.failing_disks.needs_attention
        for book in self._live_books():
            assert self._partition(book).is_available
            if not self._partition(book).log.has_staged:
                book.staged.clear()
                self._learn_sequences(book)

    def _some_book(self, chance: random.Random) -> Book | None:
        topics = sorted(book.topic for book in self._live_books())
        return self.books[chance.choice(topics)] if topics else None

    # Operations

    def create(self, chance: random.Random) -> None:
        topic = chance.choice(sorted(CONFIGS))
        if topic not in self.books:
            self.books[topic] = Book(topic, next(self._ids).to_bytes(16, "big"))
        book = self.books[topic]
        if not book.is_made:
            # What an attempt that failed has left behind is taken up: the topic has its id.
            self._partition(book)
            book.is_made = True

    def delete(self, chance: random.Random) -> None:
        book = self._some_book(chance)
        if book is not None:
            book.is_being_deleted = True
            self.store.delete(book.topic, 0)
            del self.books[book.topic]

    def _live_books(self) -> list[Book]:
        return [book for book in self.books.values() if book.is_made and not book.is_being_deleted]

    def stage(self, chance: random.Random) -> None:
        if not self.books:
            self.create(chance)
        book = self._some_book(chance)
        if book is None:
            return
        partition = self._partition(book)
        for _ in range(chance.randrange(1, 4)):
            records = [self._record(book, chance) for _ in range(chance.randrange(1, 4))]
            producer_id = chance.choice((-1, 0, 1, 2))
            batch = build_batch(
                [Record(place, *record) for place, record in enumerate(records)],
                producer_id=producer_id,
                producer_epoch=0 if producer_id >= 0 else -1,
                base_sequence=book.sequences.get(producer_id, -1),
            )
            appended = partition.appends.append(batch, now_ms=self.now_ms)
            for offset, record in enumerate(records, appended.base_offset):
                book.sent.setdefault(offset, set()).add(record)
                book.staged[offset] = record
            if producer_id >= 0:
                book.sequences[producer_id] += len(records)

    def _record(self, book: Book, chance: random.Random) -> Sent:
        number = next(self._numbers)
        is_compacted = book.config.is_compacted
        key = b"key %d" % (chance.randrange(5) if is_compacted else number)
        value = None if is_compacted and chance.random() < 0.1 else b"%d." % number * chance.randrange(1, 20)
        return Sent(self.now_ms + chance.randrange(-500, 500), key, value)

    def transact(self, chance: random.Random) -> None:
        """A batch of a transaction, the first or another one."""
        book = self._some_book(chance)
        if book is None:
            return
        partition = self._partition(book)
        producer_id = chance.choice(TRANSACTIONAL_IDS)
        epoch, sequence = book.epochs[producer_id], book.sequences[producer_id]
        records = [self._record(book, chance) for _ in range(chance.randrange(1, 4))]
        batch = build_batch(
            [Record(place, *record) for place, record in enumerate(records)],
            producer_id=producer_id,
            producer_epoch=epoch,
            base_sequence=sequence,
            transactional=True,
        )
        verification = partition.begin_verification(producer_id, epoch, sequence, version=2)
        appended = partition.appends.append(batch, now_ms=self.now_ms, transactions=Verified(verification, 2))
        for offset, record in enumerate(records, appended.base_offset):
            book.sent.setdefault(offset, set()).add(record)
            book.staged[offset] = record
            book.owners[offset] = producer_id
        book.sequences[producer_id] += len(records)

    def end_transaction(self, chance: random.Random) -> None:
        """A marker, which may be for a producer that has nothing open, or of either version."""
        book = self._some_book(chance)
        if book is None:
            return
        partition = self._partition(book)
        producer_id, version = chance.choice(TRANSACTIONAL_IDS), chance.choice((1, 2))
        if version == 2:
            book.epochs[producer_id] += 1
            book.sequences[producer_id] = 0
        marker = EndMarker(producer_id, book.epochs[producer_id], 0, chance.random() < 0.5, version)
        (record,) = iter_records(marker_batch(marker, self.now_ms).content)
        begun = {one.producer_id: one.current_txn_start_offset for one in partition.producers()}
        offset = partition.appends.append_marker(marker, now_ms=self.now_ms).base_offset
        sent = book.staged[offset] = Sent(record.timestamp, record.key, record.value)
        book.sent.setdefault(offset, set()).add(sent)
        book.may_be_cleaned.add(offset)
        if not marker.commit and begun.get(producer_id, -1) >= 0:
            owned = (one for one, owner in book.owners.items() if owner == producer_id)
            book.may_be_cleaned.update(one for one in owned if one >= begun[producer_id])

    def commit(self, chance: random.Random) -> None:
        refused: KafkaError | None = None
        for book in self._live_books():
            try:
                self._partition(book).commit()
            except KafkaError as error:
                refused = error
                book.staged.clear()
                self._learn_sequences(book)
            else:
                book.committed |= book.staged
                book.staged.clear()
        if refused is not None:
            raise refused

    def _learn_sequences(self, book: Book) -> None:
        partition = self.store.get(book.topic, 0)
        producers = {} if partition is None else partition.log.producers.producers
        book.sequences = {
            one: producers[one].last_sequence + 1 if one in producers else 0 for one in book.sequences
        }
        book.epochs = {
            one: producers[one].producer_epoch if one in producers else 0 for one in TRANSACTIONAL_IDS
        }

    def append(self, chance: random.Random) -> None:
        self.stage(chance)
        self.commit(chance)

    def flush(self, chance: random.Random) -> None:
        book = self._some_book(chance)
        if book is not None:
            self._flush(book)

    def _flush(self, book: Book) -> None:
        partition = self._partition(book)
        end_offset = partition.log_end_offset
        partition.flush()
        book.flushed_end = end_offset

    def group_flush(self, chance: random.Random) -> None:
        """As `server.network.group_flush` does it: what the flush journal does not take is flushed by
        itself."""
        (log,) = self.store.flush_journals
        if not log.is_ready and not log.has_failed:
            try:
                log.prepare()
            except OSError:
                assert log.has_failed
        books = self._live_books()
        ends = {book.topic: self._partition(book).log_end_offset for book in books}
        block = log.begin([self._partition(book) for book in books])
        taken = set()
        if block is not None:
            try:
                block.write()
            except OSError as error:
                log.finish(block, error)
            else:
                log.finish(block, None)
                taken = {partition.topic for partition, _ in block.tails}
        for book in books:
            if book.topic in taken:
                book.flushed_end = ends[book.topic]
        if retired := log.take_retired():
            self._retire(log, retired)
        for book in books:
            if book.topic not in taken:
                self._flush(book)

    def _retire(self, log: FlushJournal, partitions: list[Partition]) -> None:
        failed = []
        for partition in partitions:
            try:
                partition.flush()
            except KafkaError:
                failed.append(partition)
        log.retired_is_flushed(failed)

    def roll(self, chance: random.Random) -> None:
        book = self._some_book(chance)
        if book is not None:
            self._roll(book)

    def _roll(self, book: Book) -> None:
        try:
            self._partition(book).log.roll(self.now_ms)
        except OSError:
            # As in the store's maintenance: the next time will do.
            assert self.disk.failures

    def raise_epoch(self, chance: random.Random) -> None:
        book = self._some_book(chance)
        if book is not None:
            book.leader_epoch += 1
            self._partition(book).follow_leader_epoch(book.leader_epoch)

    def maintain(self, chance: random.Random) -> None:
        """Retention, and removing the files of what was deleted."""
        finish(self.store.maintaining(self.now_ms))

    def checkpoint(self, chance: random.Random) -> None:
        self.now_ms += CHECKPOINT_INTERVAL_MS
        starts = {book.topic: self._partition(book).log_start_offset for book in self._live_books()}
        failures = self.disk.failures
        finish(self.store.maintaining(self.now_ms))
        if self.disk.failures == failures:
            for book in self._live_books():
                book.safe_start = starts[book.topic]

    def make_scan_checkpoints(self, chance: random.Random) -> None:
        """Of all logs that have anything: the next start after a crash begins in the middle of a segment."""
        for book in self._live_books():
            self._flush(book)
        self.checkpoint(chance)

    def delete_records(self, chance: random.Random) -> None:
        book = self._some_book(chance)
        if book is not None and book.config.is_deleted:
            partition = self._partition(book)
            partition.retention.delete_records(
                chance.randint(partition.log_start_offset, partition.high_watermark)
            )

    def truncate(self, chance: random.Random) -> None:
        """What is after the cut is no promise any more; once it is done nothing may bring it back."""
        book = self._some_book(chance)
        if book is None:
            return
        partition = self._partition(book)
        if not partition.is_available:
            return
        offset = chance.randint(partition.log.bases[0], partition.log_end_offset)
        try:
            end_offset = find_cut(partition.log, offset).end_offset
            found = records_of(partition)
        except OSError as error:
            # The disk has failed the test's own look at the log: no operation has begun.
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR) from error
        book.flushed_end = min(book.flushed_end, end_offset)
        book.safe_start = min(book.safe_start, end_offset)
        # Compaction may have taken the record before the one that goes now. What DeleteRecords has hidden is
        # still there, and comes back where the checkpoint of log starts is lost.
        start = partition.log_start_offset
        hidden = {one: record for one, record in book.committed.items() if one < start}
        book.committed = {one: record for one, record in (hidden | found).items() if one < end_offset}
        if not finish(self.store.truncating(partition, offset)):
            assert partition.log_end_offset == offset
            return
        assert partition.log_end_offset == end_offset
        for of_offset in (book.sent, book.owners):
            for one in [one for one in of_offset if one >= end_offset]:
                del of_offset[one]
        book.may_be_cleaned = {one for one in book.may_be_cleaned if one < end_offset}
        self._learn_sequences(book)

    def begin_anew(self, chance: random.Random) -> None:
        """All goes, as a follower drops it whose leader begins later; nothing may bring any of it back."""
        book = self._some_book(chance)
        if book is None:
            return
        partition = self._partition(book)
        if not partition.is_available:
            return
        offset = chance.randint(0, partition.log_end_offset + 20)
        book.committed.clear()
        book.flushed_end = 0
        book.safe_start = min(book.safe_start, offset)
        finish(self.store.restarting(partition, offset))
        assert partition.log_start_offset == partition.log_end_offset == partition.high_watermark == offset
        book.flushed_end = book.safe_start = offset
        book.sent.clear()
        book.owners.clear()
        book.may_be_cleaned.clear()
        self._learn_sequences(book)

    def compact(self, chance: random.Random) -> None:
        book = self.books.get("compacted")
        if book is None or book not in self._live_books():
            return
        self._roll(book)
        self._flush(book)
        for _ in range(100):
            if not self.store.compact(self.now_ms, budget_bytes=400):
                break

    def restart(self, chance: random.Random) -> None:
        starts = {book.topic: self._partition(book).log_start_offset for book in self._live_books()}
        if self._stop():
            for topic, start in starts.items():
                self.books[topic].safe_start = start
        self.start()
        self.check(is_kill=True)

    def _stop(self) -> bool:
        """Whether it was a clean stop, after which everything is flushed."""
        self.store.close(self.now_ms)
        if not self.disk.exists("data/.kafka_cleanshutdown"):
            return False
        for book in self._live_books():
            book.flushed_end = _end_of(book)
        return True

    def pass_by(self, chance: random.Random) -> None:
        """Starts during which nobody asks for a partition, and that end with a kill or a clean stop."""
        for book in self._live_books():
            if chance.random() < 0.5:
                self._flush(book)
        if chance.random() < 0.7:
            self.checkpoint(chance)
        for _ in range(chance.randrange(1, 4)):
            self._open()
            if chance.random() < 0.5:
                self._stop()
        self.start()
        self.check(is_kill=True)
        self._resume()

    # Crashes

    def kill(self, chance: random.Random) -> None:
        """The process dies, the machine does not: all that was written is there."""
        self.start()
        self.check(is_kill=True)
        self._resume()

    def tear(self, chance: random.Random) -> None:
        """The process dies in the midst of a write: there is half a batch behind the end; a start cuts it."""
        book = self._some_book(chance)
        if book is not None:
            segment = self._partition(book).log.active
            batch = build_batch([Record(0, *self._record(book, chance))])
            segment.file.open().write(segment.size_bytes, [batch[: chance.randrange(1, len(batch))]])
        self.kill(chance)

    def crash(self, seed: int) -> None:
        """The plug is pulled; half of the time once more while the next start is under way."""
        chance = random.Random(seed)
        self.disk.lose_power_at = None
        self.disk = self.disk.lose_power(seed)
        if chance.random() < 0.5:
            self.disk.lose_power_at = chance.randrange(1, 40)
            try:
                self.start()
            except PowerLost:
                self.disk = self.disk.lose_power(seed + 1)
                self.start()
            else:
                self.disk.lose_power_at = None
        else:
            self.start()
        self.check()
        self._resume()

    def _resume(self) -> None:
        """Go on with what is there now: what was not flushed may be gone, with its sequence numbers."""
        for book in self._live_books():
            partition = self._partition(book)
            book.staged.clear()
            end_offset = partition.log_end_offset
            found = records_of(partition)
            book.committed = {
                offset: record for offset, record in (book.committed | found).items() if offset < end_offset
            }
            self._learn_sequences(book)

    def check(self, *, is_kill: bool = False) -> None:
        """Everything that was promised holds."""
        for book in self._live_books():
            partition = self._partition(book)
            found = records_of(partition)
            check_ends(partition, book)
            check_records(partition, book, found, end_offset=_end_of(book) if is_kill else book.flushed_end)
            if not book.staged:
                check_producers(partition)
                check_transactions(partition)
            check_leader_epochs(partition)
            check_indexes(partition)
            check_look_ups(partition, found)


def _end_of(book: Book) -> int:
    return max(book.committed, default=-1) + 1


def records_of(partition: Partition) -> dict[int, Sent]:
    """Every record that a consumer gets who begins at the log's start."""
    found: dict[int, Sent] = {}
    offset = partition.log_start_offset
    while offset < partition.high_watermark:
        data = memoryview(partition.read(offset, max_bytes=500).records.tobytes())
        if not data:
            # A compacted log may end before its end offset.
            assert partition.config.is_compacted, f"nothing to read at {offset} of {partition}"
            break
        for position, header in iter_whole_batches(data):
            for record in iter_records(data[position:]):
                assert record.offset not in found or record.offset < offset
                if record.offset >= partition.log_start_offset:
                    found[record.offset] = Sent(record.timestamp, record.key, record.value)
            offset = header.last_offset + 1
    return found


def check_ends(partition: Partition, book: Book) -> None:
    assert partition.log_start_offset <= partition.last_stable_offset <= partition.high_watermark
    assert partition.high_watermark <= partition.log_end_offset
    assert partition.log_end_offset >= book.flushed_end, f"flushed records of {partition} are gone"
    assert partition.log_start_offset >= book.safe_start, f"deleted records of {partition} are back"


def check_records(partition: Partition, book: Book, found: dict[int, Sent], *, end_offset: int) -> None:
    """What was there up to `end_offset` is there as it was; nothing is there that was never sent."""
    for offset, record in found.items():
        assert record in book.sent[offset], f"nobody ever sent what is at {offset} of {partition}"
    latest = {record.key: offset for offset, record in sorted(found.items())}
    for offset, record in book.committed.items():
        if not partition.log_start_offset <= offset < end_offset or found.get(offset) == record:
            continue
        assert book.config.is_compacted, f"{offset} of {partition} is lost or changed"
        if offset in book.may_be_cleaned:
            continue
        assert latest.get(record.key, -1) > offset, f"the last {record.key!r} of {partition} is lost"
    if not book.config.is_compacted:
        assert sorted(found) == list(range(partition.log_start_offset, partition.log_end_offset))


def check_producers(partition: Partition) -> None:
    """What is known of producers is what the log says of them; of those whose records are deleted it may
    be more. Compaction may take a batch's latest record, and with it its time.
    """
    compared = 3 if partition.config.is_compacted else 4
    scanned = ProducerState()
    for segment in partition.log.segments:
        for batch in segment.batches():
            scanned.replay(batch, segment.file.read)
    known = {producer_id: latest(entry) for producer_id, entry in partition.log.producers.producers.items()}
    first_offset = partition.log.segments[0].base_offset
    for producer_id, entry in scanned.producers.items():
        one = known.pop(producer_id)
        if not entry.batches and one[2] < first_offset:
            assert one[0] == entry.producer_epoch  # of its records only a marker is left
        else:
            assert one[:compared] == latest(entry)[:compared]
    assert all(last_offset < first_offset for _, _, last_offset, _ in known.values())


def latest(entry) -> tuple[int, int, int, int]:
    return entry.producer_epoch, entry.last_sequence, entry.last_data_offset, entry.last_timestamp


def check_leader_epochs(partition: Partition) -> None:
    """Epochs begin where a rescan finds them; compaction may have removed the first batch of one."""
    scanned = LeaderEpochs()
    for segment in partition.log.segments:
        for batch in segment.batches():
            scanned.assign(batch.leader_epoch, batch.base_offset)
    scanned.truncate_start(partition.log_start_offset)
    known = dict(partition.log.leader_epochs.entries())
    if partition.log_start_offset == partition.log_end_offset:
        return
    for epoch, start_offset in scanned.entries():
        assert epoch in known
        assert known[epoch] == start_offset or (partition.config.is_compacted and known[epoch] < start_offset)
    if not partition.config.is_compacted:
        assert len(known) == len(scanned.entries())


def check_indexes(partition: Partition) -> None:
    """Offset indexes are what a rebuild makes of the batches: by the topic's interval, by the usual one up to
    where a file was missing, and sparser where the disk has failed meanwhile.
    """
    for segment in partition.log.segments:
        ends = {batch.position: batch.last_offset - segment.base_offset for batch in segment.batches()}
        entries = _entries(segment)
        assert all(ends.get(position) == offset for offset, position in entries)
        again = _rebuilt(segment, partition.config.index_interval_bytes)
        if not segment.paths.disk.failures and entries != _entries(again):
            interval_bytes = partition.config.index_interval_bytes
            lost = (_rebuilt(segment, interval_bytes, count) for count in range(1, len(ends) + 1))
            assert entries in map(_entries, lost)
        assert segment.indexes.latest_timestamp()[0] == again.indexes.latest_timestamp()[0]


def _entries(segment: Segment) -> list[tuple[int, int]]:
    index = segment.indexes.offset_index
    return [index.entry(place) for place in range(len(index))]


def _rebuilt(segment: Segment, interval_bytes: int, usual_count: int = 0) -> Segment:
    """Of so many batches by the usual interval, then by another."""
    rebuilt = Segment(segment.file.pool, segment.paths.directory, segment.base_offset, segment.size_bytes, 0)
    rebuilt.indexes.reset()
    for number, batch in enumerate(segment.batches()):
        rebuilt.indexes.add(batch, 4096 if number < usual_count else interval_bytes)
    return rebuilt


def check_look_ups(partition: Partition, found: dict[int, Sent]) -> None:
    records = sorted(found.items())
    for _, wanted in records[:: max(len(records) // 5, 1)]:
        expected = next((offset for offset, one in records if one.timestamp >= wanted.timestamp), None)
        answer = finish(partition.search.finding_timestamp(wanted.timestamp))
        assert answer is not None
        assert answer[1] == expected, f"{partition}: {wanted.timestamp} is at {expected}, not {answer[1]}"


WEIGHTS = {
    "append": 12,
    "transact": 5,
    "end_transaction": 4,
    "stage": 2,
    "commit": 1,
    "flush": 4,
    "group_flush": 3,
    "roll": 2,
    "raise_epoch": 1,
    "maintain": 2,
    "checkpoint": 2,
    "make_scan_checkpoints": 2,
    "delete_records": 1,
    "truncate": 2,
    "begin_anew": 1,
    "compact": 2,
    "create": 2,
    "delete": 1,
    "restart": 1,
    "pass_by": 2,
    "kill": 1,
}


PASSED_BY = {
    "append": 6,
    "transact": 2,
    "end_transaction": 2,
    "flush": 2,
    "roll": 2,
    "checkpoint": 2,
    "delete_records": 1,
    "create": 1,
    "restart": 1,
    "pass_by": 6,
}
"""Weights of operations before and after starts at which nobody asks for anything."""


def history(seed: int, steps: int, weights: dict[str, int] = WEIGHTS) -> list[tuple[str, int]]:
    """Operations and the seeds of their chances."""
    chance = random.Random(seed)
    names = chance.choices(list(weights), list(weights.values()), k=steps)
    return [(name, chance.randrange(1 << 16)) for name in names]


EVERY_OPERATION = [
    ("create", 1),  # bounded
    ("create", 0),  # compacted
    ("create", 5),  # kept
    ("append", 0),
    ("append", 7),
    ("append", 1),
    ("append", 2),
    ("transact", 6),
    ("end_transaction", 6),  # aborts it
    ("transact", 10),  # stays open
    ("stage", 5),
    ("commit", 0),
    ("flush", 5),
    ("raise_epoch", 6),
    ("append", 5),
    ("roll", 5),
    ("append", 10),
    ("group_flush", 0),
    ("tear", 5),
    ("delete_records", 5),
    ("truncate", 3),
    ("append", 5),
    ("checkpoint", 0),
    ("append", 9),
    ("compact", 0),
    ("make_scan_checkpoints", 0),
    ("append", 17),
    ("truncate", 4),
    ("append", 17),
    ("begin_anew", 5),
    ("append", 5),
    ("kill", 0),
    ("pass_by", 1),
    ("pass_by", 4),
    *(("append", number) for number in (3, 14, 51, 85, 102, 162, 275, 332)),  # more than is retained
    ("maintain", 0),
    ("delete", 1),
    ("append", 0),
    ("restart", 0),
    ("append", 3),
    ("maintain", 0),
]
"""A history that has each of them, and in which each has something to do. The numbers say to which topic."""
