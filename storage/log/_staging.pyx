# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, binding=False
"""The compiled parts of storage, each held by a class in Python: staged batches (`AppendBuffer`), producers
(`ProducerTable`), the append of an ordinary batch (`Appender`), waits for the high watermark
(`HighWatermark`), and the first check of inherited batches (`Stretch`). They call the class that holds them
only by callbacks.
"""

from bisect import bisect_left as _bisect_left, insort as _insort
from collections import deque as _deque
from operator import itemgetter as _itemgetter

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AsString, PyBytes_FromStringAndSize
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memmove

from odradek.storage.disk import write_rest as _write_rest
from odradek.wire.checksums import crc32c as _crc32c_of_many
from odradek.wire.records import survey_if_sound as _survey_if_sound

include "wire/layout.pxi"

cdef enum:
    PREFIX_BYTES = 16
    KEPT = 5
    FIELDS = 5
    # Beyond this the crc32c package's three interleaved sums outrun one sum in our own loop.
    FEW_BYTES = 4096
    # Up to this size one copy with its prefix is cheaper than two parts.
    COPIED_BYTES_MAX = 4096
    # Up to this total size, with parts of this average size, one copy costs less than a system call with many
    # parts.
    JOIN_BELOW_BYTES = 262_144
    JOIN_PARTS_BELOW_BYTES = 4096
    # Hints in each of two generations.
    HINTS_MAX = 64
    SMALL_BATCH_BYTES = 4096
    WINDOW_BYTES = 16384
    BATCHES_PER_LOOK = 1000
    BYTES_PER_LOOK = 1048576
    READ_COST_BYTES = 4096

cdef int64_t SEQUENCE_MAX = 0x7FFFFFFF
cdef int64_t RELATIVE_OFFSET_MAX = 0x7FFFFFFF
cdef int64_t UNKNOWN_EPOCH = -0x7FFFFFFFFFFFFFFF
cdef bint _crc_in_hardware = has_crc32c()


cdef class Appended:
    """The response to one append. `log_append_time_ms` is -1 unless the topic has LogAppendTime."""

    cdef readonly int64_t base_offset
    cdef readonly int64_t last_offset
    cdef readonly int64_t log_append_time_ms
    cdef readonly int64_t log_start_offset
    cdef readonly bint is_duplicate
    cdef readonly bint must_flush

    def __init__(
        self, base_offset, last_offset, log_append_time_ms, log_start_offset, is_duplicate, must_flush
    ):
        self.base_offset = base_offset
        self.last_offset = last_offset
        self.log_append_time_ms = log_append_time_ms
        self.log_start_offset = log_start_offset
        self.is_duplicate = is_duplicate
        self.must_flush = must_flush


cdef class Tail:
    """The end of a partition's active segment that is not flushed."""

    cdef readonly int64_t base_offset
    cdef readonly int64_t position
    cdef readonly int64_t end_position
    cdef readonly int64_t end_offset
    cdef readonly bytes content

    def __init__(self, base_offset, position, end_position, end_offset, content):
        self.base_offset = base_offset
        self.position = position
        self.end_position = end_position
        self.end_offset = end_offset
        self.content = content


cdef class ProducerEntry:
    """One producer; `batches` is oldest first, at most five, all of the current epoch.

    Five numbers for each batch, the oldest first.
    """

    cdef public int64_t producer_epoch
    cdef public int64_t last_timestamp
    cdef public int64_t coordinator_epoch
    cdef public int64_t current_txn_first_offset
    cdef int64_t _kept[KEPT * FIELDS]
    cdef int _count

    def __init__(
        self,
        producer_epoch,
        last_timestamp,
        batches,
        coordinator_epoch=-1,
        current_txn_first_offset=-1,
    ):
        self.producer_epoch = producer_epoch
        self.last_timestamp = last_timestamp
        self.coordinator_epoch = coordinator_epoch
        self.current_txn_first_offset = current_txn_first_offset
        for batch in batches:
            self._remember(batch[0], batch[1], batch[2], batch[3], batch[4])

    @property
    def batches(self):
        return tuple([
            tuple([self._kept[batch * FIELDS + field] for field in range(FIELDS)])
            for batch in range(self._count)
        ])

    @property
    def last_sequence(self):
        return self._last(1)

    @property
    def last_data_offset(self):
        return self._last(3)

    cdef inline int64_t _last(self, int field):
        return self._kept[(self._count - 1) * FIELDS + field] if self._count else -1

    cdef void _remember(
        self, int64_t first_sequence, int64_t last_sequence, int64_t first_offset, int64_t last_offset,
        int64_t timestamp,
    ):
        cdef int64_t *batch
        if self._count == KEPT:
            memmove(self._kept, self._kept + FIELDS, (KEPT - 1) * FIELDS * sizeof(int64_t))
        else:
            self._count += 1
        batch = self._kept + (self._count - 1) * FIELDS
        batch[0] = first_sequence
        batch[1] = last_sequence
        batch[2] = first_offset
        batch[3] = last_offset
        batch[4] = timestamp

    def remember(self, producer_epoch, batch):
        """Add the newest batch of this producer; a batch of another epoch removes the earlier ones."""
        self._begin_epoch(producer_epoch)
        self._remember(batch[0], batch[1], batch[2], batch[3], batch[4])
        self.last_timestamp = batch[4]

    cdef inline void _begin_epoch(self, int64_t producer_epoch):
        if producer_epoch != self.producer_epoch:
            self.producer_epoch = producer_epoch
            self._count = 0

    cpdef memory(self):
        """The values that a batch changes, for `restore`."""
        cdef ProducerEntry copy = ProducerEntry.__new__(ProducerEntry)
        copy._take(self)
        return copy

    def restore(self, ProducerEntry memory not None):
        """Restore the values of `memory`."""
        self._take(memory)

    cdef void _take(self, ProducerEntry other):
        self.producer_epoch = other.producer_epoch
        self.last_timestamp = other.last_timestamp
        self.current_txn_first_offset = other.current_txn_first_offset
        self._count = other._count
        memmove(self._kept, other._kept, sizeof(self._kept))


cdef class ProducerTable:
    """The producers of a partition, their transactions, and the undo of staged batches."""

    cdef readonly dict producers
    cdef readonly dict verifications
    cdef readonly dict open
    cdef public list undo
    cdef readonly list ended
    cdef readonly list unreplicated
    cdef public bint is_replicated
    cdef public object order

    def __init__(self, dict producers):
        self.producers = {} if producers is None else producers
        self.verifications = {}
        self.open = {}
        self.undo = []
        self.ended = []
        self.unreplicated = []
        for producer_id, entry in self.producers.items():
            if entry.current_txn_first_offset >= 0:
                self.open[entry.current_txn_first_offset] = producer_id
        self.order = _deque(sorted(self.open)) if self.open else None

    def stage(
        self, int64_t producer_id, int64_t producer_epoch, int64_t first_sequence, int64_t last_sequence,
        int64_t first_offset, int64_t last_offset, int64_t timestamp, bint is_transactional=False,
    ):
        """Add a batch; a rollback removes it again."""
        self._stage(
            self.producers.get(producer_id), producer_id, producer_epoch, first_sequence, last_sequence,
            first_offset, last_offset, timestamp, is_transactional,
        )

    cdef _stage(
        self, ProducerEntry entry, object producer_id, int64_t producer_epoch, int64_t first_sequence,
        int64_t last_sequence, int64_t first_offset, int64_t last_offset, int64_t timestamp,
        bint is_transactional,
    ):
        """`entry` is the producer's entry, or None."""
        if entry is None:
            self.undo.append((producer_id, None, None))
            entry = ProducerEntry.__new__(ProducerEntry)
            entry.producer_epoch = producer_epoch
            entry.coordinator_epoch = entry.current_txn_first_offset = -1
            self.producers[producer_id] = entry
        else:
            self.undo.append((producer_id, entry, entry.memory()))
            entry._begin_epoch(producer_epoch)
        entry._remember(first_sequence, last_sequence, first_offset, last_offset, timestamp)
        entry.last_timestamp = timestamp
        if is_transactional:
            if self.verifications:
                self.verifications.pop(producer_id, None)
            if entry.current_txn_first_offset < 0:
                entry.current_txn_first_offset = first_offset
                self.open[first_offset] = producer_id
                if self.order is None:
                    self.order = _deque()
                self.order.append(first_offset)

    cdef void _commit(self):
        if self.undo:
            self.undo = []
        if self.ended:
            if self.is_replicated:
                self.unreplicated += self.ended
            self.ended.clear()

    def commit(self):
        """The staged batches are in the log."""
        self._commit()


cdef class SegmentExtent:
    """The numbers of a segment that its parts share and a commit changes."""

    cdef public int64_t base_offset
    cdef public int64_t size_bytes
    cdef public int64_t inherited_bytes
    cdef public int64_t bytes_since_index
    cdef public object first_timestamp_ms
    cdef public object max_timestamp_ms
    cdef public int64_t max_timestamp_offset

    def __init__(self, base_offset, size_bytes):
        self.base_offset = self.max_timestamp_offset = base_offset
        self.size_bytes = size_bytes
        self.inherited_bytes = self.bytes_since_index = 0
        self.first_timestamp_ms = self.max_timestamp_ms = None


cdef class StagedSegment:
    """The bytes that one commit will write to one segment, and the segment's numbers afterwards."""

    cdef public object segment
    cdef public int64_t base_offset
    cdef public list parts
    cdef public int64_t size_bytes
    cdef public int64_t bytes_since_index
    cdef public int64_t max_timestamp_ms
    cdef public int64_t max_timestamp_offset
    cdef public object first_timestamp_ms
    cdef public int64_t roll_after_ms
    cdef public int64_t index_room
    cdef public list index_entries
    cdef public object snapshot

    def __init__(self, segment, index_room):
        cdef SegmentExtent extent = segment.extent
        self.segment = segment
        self.base_offset = extent.base_offset
        self.parts = []
        self.size_bytes = extent.size_bytes
        self.bytes_since_index = extent.bytes_since_index
        self.max_timestamp_ms, self.max_timestamp_offset = segment.indexes.latest_timestamp()
        self.first_timestamp_ms = extent.first_timestamp_ms
        self.roll_after_ms = -2
        self.index_room = index_room
        self.index_entries = []
        self.snapshot = None

    cdef inline bint _has_room(self, int64_t size_bytes, int64_t last_offset, int64_t timestamp, int64_t most):
        """Whether this segment has room for a batch."""
        return (
            self.size_bytes > 0
            and self.size_bytes + size_bytes <= most
            and self.index_room > 0
            and last_offset - self.base_offset <= RELATIVE_OFFSET_MAX
            and timestamp <= self.roll_after_ms
        )

    cdef _count_in(self, int64_t size_bytes, int64_t last_offset, int64_t timestamp, int64_t interval_bytes):
        if timestamp > self.max_timestamp_ms:
            self.max_timestamp_ms = timestamp
            self.max_timestamp_offset = last_offset
        if self.bytes_since_index > interval_bytes:
            self.index_entries.append(
                (last_offset, self.size_bytes, self.max_timestamp_ms, self.max_timestamp_offset)
            )
            self.index_room -= 1
            self.bytes_since_index = size_bytes
        else:
            self.bytes_since_index += size_bytes
        self.size_bytes += size_bytes

    cdef _index(self):
        """Add the staged entries to the indexes."""
        segment = self.segment
        try:
            offsets, times = segment.indexes.offset_index, segment.indexes.time_index
            for last_offset, position, timestamp_ms, timestamp_offset in self.index_entries:
                offsets.append(last_offset, position)
                times.append(timestamp_ms, timestamp_offset)
        except OSError:
            # The index was dropped from memory and cannot be read: without these entries it is only sparser.
            pass
        self.index_entries = []


cdef class AppendBuffer:
    """The staged batches of a log. `log_end_offset` counts committed records, `next_offset` staged ones
    too."""

    cdef public int64_t log_end_offset
    cdef public int64_t next_offset
    cdef public int64_t durable_offset
    cdef public int64_t segment_bytes
    cdef public int64_t index_interval_bytes
    cdef public int64_t latest_epoch
    cdef public StagedSegment stage
    cdef public list full_segments
    cdef public list epochs
    cdef public list aborted
    cdef public bint is_cut_wanted
    cdef public bint is_changed
    cdef public dict hints
    cdef public dict older_hints
    cdef public tuple flushed_position
    cdef public int64_t flush_epoch
    cdef readonly ProducerTable producers
    cdef list _written  # by the commit whose watchers are being called
    cdef int64_t _written_offset

    def __init__(self, int64_t log_end_offset, ProducerTable producers not None, int64_t durable_offset):
        self.log_end_offset = self.next_offset = log_end_offset
        self.producers = producers
        self.durable_offset = durable_offset
        self.full_segments = []
        self.epochs = []
        self.aborted = []
        self.hints = {}
        self.older_hints = {}

    # Staging

    def has_room(self, int64_t size_bytes, int64_t last_offset, int64_t timestamp):
        """Whether the newest segment has room for a batch."""
        return self.stage._has_room(size_bytes, last_offset, timestamp, self.segment_bytes)

    def put(
        self, object batch, int64_t first_offset, int64_t last_offset, int64_t max_timestamp, int64_t leader_epoch
    ):
        """Stage a batch for the newest segment, which must have room. A large batch must not change until the
        commit."""
        cdef Py_buffer view
        PyObject_GetBuffer(batch, &view, PyBUF_SIMPLE)
        try:
            self._put(
                batch, <const uint8_t *> view.buf, 0, view.len, first_offset, last_offset, max_timestamp, leader_epoch
            )
        finally:
            PyBuffer_Release(&view)

    cdef _put(
        self, object buffer, const uint8_t *bytes_, Py_ssize_t start, Py_ssize_t end, int64_t first_offset,
        int64_t last_offset, int64_t max_timestamp, int64_t leader_epoch,
    ):
        cdef StagedSegment stage = self.stage
        cdef bytes copy
        cdef uint8_t *target
        cdef Py_ssize_t size_bytes = end - start
        cdef Py_ssize_t copied = size_bytes if size_bytes <= COPIED_BYTES_MAX else PREFIX_BYTES
        copy = PyBytes_FromStringAndSize(<const char *> bytes_ + start, copied)
        target = <uint8_t *> PyBytes_AsString(copy)
        put_big_endian(target, <uint64_t> first_offset, 8)
        put_big_endian(target + 12, <uint64_t> leader_epoch, 4)
        stage.parts.append(copy)
        if copied < size_bytes:
            stage.parts.append(memoryview(buffer)[start + PREFIX_BYTES : end])
        stage._count_in(size_bytes, last_offset, max_timestamp, self.index_interval_bytes)
        if leader_epoch > self.latest_epoch:
            self.latest_epoch = leader_epoch
            self.epochs.append((leader_epoch, first_offset))
        self.next_offset = last_offset + 1

    # Committing

    cdef bint _is_plain(self):
        """Whether a write to the active segment is the whole commit."""
        return not (self.is_cut_wanted or self.full_segments or self.epochs or self.aborted)

    cdef _commit(self):
        """Write the staged batches, if the commit is plain."""
        cdef StagedSegment stage = self.stage
        self._written = self._write(stage)
        self._written_offset = self.log_end_offset
        self._add_hint(stage.segment)
        self._apply(stage)
        self._committed()

    def committed(self):
        """All staged batches are in the log."""
        self._committed()

    cdef _committed(self):
        self.is_changed = True
        self.log_end_offset = self.next_offset
        self.producers._commit()

    def written_from(self, int64_t offset, Py_ssize_t size_bytes_max):
        """The batches from `offset` on, for a watcher of the commit that has written them; else None."""
        cdef Py_ssize_t size_bytes = 0
        if self._written is None or offset != self._written_offset:
            return None
        for part in self._written:
            size_bytes += len(part)
        if size_bytes > size_bytes_max:
            return None
        if len(self._written) > 1 or type(self._written[0]) is not bytes:
            self._written = [b"".join(self._written)]
        return self._written[0]

    def write(self, StagedSegment stage not None):
        """Write the staged batches of one segment. Raises `OSError`."""
        self._write(stage)

    cdef list _write(self, StagedSegment stage):
        """Returns what was written, in the parts of the write."""
        cdef SegmentExtent extent = stage.segment.extent
        cdef int64_t position = extent.size_bytes
        cdef int64_t size_bytes = stage.size_bytes - position
        cdef int64_t written
        cdef list parts = stage.parts
        cdef Py_ssize_t count = len(parts)
        if 1 < count and size_bytes <= JOIN_BELOW_BYTES and size_bytes < count * JOIN_PARTS_BELOW_BYTES:
            parts = [b"".join(parts)]
        file = stage.segment.file.open()
        written = file.write(position, parts)
        if written < size_bytes:
            _write_rest(file, position, parts, size_bytes, written)
        return parts

    def add_hint(self, segment):
        """Note the position of the first staged batch, the segment's end, for readers that continue there."""
        self._add_hint(segment)

    cdef _add_hint(self, segment):
        cdef SegmentExtent extent = segment.extent
        if len(self.hints) >= HINTS_MAX:
            self.older_hints = self.hints
            self.hints = {}
        self.hints[self.log_end_offset] = (segment, extent.size_bytes)

    def apply(self, StagedSegment stage not None):
        """After the write: update the segment, and prepare the stage for the next commit."""
        self._apply(stage)

    cdef _apply(self, StagedSegment stage):
        cdef SegmentExtent extent = stage.segment.extent
        extent.size_bytes = stage.size_bytes
        extent.bytes_since_index = stage.bytes_since_index
        extent.max_timestamp_ms = stage.max_timestamp_ms
        extent.max_timestamp_offset = stage.max_timestamp_offset
        extent.first_timestamp_ms = stage.first_timestamp_ms
        stage.parts = []
        if stage.index_entries:
            stage._index()

    # The tail

    def tail(self, int64_t size_bytes_max):
        """The committed bytes that are not flushed; the flush journal may write them instead of a `flush`.

        The journal is enough if recovery can apply the entry: all earlier bytes are in the partition's files,
        under durable names. None if a `flush` is necessary: a segment is new, the tail is larger than
        `size_bytes_max`, or there was a rollback or rename since the last flush.
        """
        cdef tuple flushed = self.flushed_position
        cdef object segment = self.stage.segment
        cdef SegmentExtent extent = segment.extent
        cdef int64_t size_bytes
        cdef Tail tail
        if flushed is None or flushed[0] is not segment or <int64_t> flushed[2] != self.flush_epoch:
            return None
        tail = Tail.__new__(Tail)
        tail.base_offset = extent.base_offset
        tail.position = flushed[1]
        tail.end_position = extent.size_bytes
        tail.end_offset = self.log_end_offset
        size_bytes = tail.end_position - tail.position
        if size_bytes > size_bytes_max:
            return None
        try:
            tail.content = segment.file.read(tail.position, size_bytes)
        except OSError:
            return None  # the flush raises the error with more detail
        return tail if len(tail.content) == size_bytes else None

    def note_journaled(self, Tail tail not None):
        """The flush journal has the tail: recovery will restore it."""
        cdef tuple flushed = self.flushed_position
        if tail.end_offset > self.durable_offset:
            self.durable_offset = tail.end_offset
        if flushed is not None:
            if flushed[0].base_offset == tail.base_offset and flushed[1] < tail.end_position:
                self.flushed_position = (flushed[0], tail.end_position, flushed[2])


cdef class HighWatermark:
    """The offset up to which all replicas in sync have a partition's records, and the requests that wait for
    it."""

    cdef readonly int64_t offset
    cdef dict _watchers
    cdef dict _end_watchers
    cdef list _waits
    cdef object _refusal

    def __init__(self, int64_t offset):
        self.offset = offset
        self._refusal = None
        # Most partitions have none of them, and empty ones take 200 B each.
        self._watchers = self._end_watchers = self._waits = None

    def advance(self, int64_t offset):
        """Move it to `offset`, if it is before that."""
        if offset > self.offset:
            self._advance(offset)

    cdef _advance(self, int64_t offset):
        self.offset = offset
        if self._waits:
            self._settle_waits()
        if self._watchers:
            _wake_all(self._watchers)

    def lower(self, int64_t offset, error):
        """The log was cut at `offset`: waits for later offsets get the error."""
        if offset < self.offset:
            self.offset = offset
        waits = self._waits
        if waits:
            self._waits = [wait for wait in waits if wait[0] <= offset]
            for wait in waits[len(self._waits):]:
                wait[1](error)
        self.wake()

    cdef _settle_waits(self):
        cdef list waits = self._waits
        cdef Py_ssize_t count = 0
        while count < len(waits) and <int64_t> waits[count][0] <= self.offset:
            count += 1
        if count:
            self._waits = waits[count:]
            for _, done in waits[:count]:
                done(None)

    def when(self, int64_t offset, done):
        """Call `done(None)` once it is at `offset` or later, perhaps at once; `done(error)` if it will not
        reach it."""
        if offset <= self.offset:
            done(None)
        elif self._refusal is not None:
            done(self._refusal)
        elif not self._waits:
            self._waits = [(offset, done)]
        elif <int64_t> self._waits[len(self._waits) - 1][0] <= offset:
            self._waits.append((offset, done))
        else:
            _insort(self._waits, (offset, done), key=_wanted_offset)

    def cancel(self, int64_t offset, done):
        """Remove a `when` of that offset."""
        cdef list waits = self._waits
        cdef Py_ssize_t place
        if not waits:
            return
        place = _bisect_left(waits, offset, key=_wanted_offset)
        while place < len(waits) and <int64_t> waits[place][0] == offset:
            if waits[place][1] == done:
                del waits[place]
                return
            place += 1

    def fail(self, error):
        """The partition is closed, deleted or offline: all waits get the error."""
        waits = self._waits
        self._waits = None
        for _, done in waits or ():
            done(error)
        self.wake()

    def refuse(self, error):
        """Fail as `fail`; later waits get the error too, until `refuse(None)`: batches that a leader has staged
        may be committed after it has lost the leadership."""
        self._refusal = error
        if error is not None:
            self.fail(error)

    def watch(self, wake, bint at_log_end):
        if at_log_end:
            if self._end_watchers is None:
                self._end_watchers = {}
            self._end_watchers[wake] = None
        else:
            if self._watchers is None:
                self._watchers = {}
            self._watchers[wake] = None

    def unwatch(self, wake):
        if self._watchers:
            self._watchers.pop(wake, None)
        if self._end_watchers:
            self._end_watchers.pop(wake, None)

    @property
    def is_watched(self):
        return bool(self._watchers or self._end_watchers)

    def start_moved(self):
        """The log begins later: those who watch its end are told of that too."""
        if self._end_watchers:
            _wake_all(self._end_watchers)

    def wake(self):
        """Call all watchers."""
        if self._watchers:
            _wake_all(self._watchers)
        if self._end_watchers:
            _wake_all(self._end_watchers)


_wanted_offset = _itemgetter(0)


cdef _wake_all(dict watchers):
    for wake in tuple(watchers):
        wake()


cdef class Traffic:
    """Counts of the writes and reads of clients since a partition was opened here."""

    cdef readonly int64_t records_in
    cdef readonly int64_t bytes_in
    cdef readonly int64_t produce_requests
    cdef readonly int64_t bytes_out
    cdef readonly int64_t fetch_requests
    cdef readonly int64_t failed_produce_requests
    cdef readonly int64_t failed_fetch_requests

    def wrote(self, int64_t records, int64_t size_bytes):
        """Count one request."""
        self._wrote(records, size_bytes)

    cdef void _wrote(self, int64_t records, int64_t size_bytes):
        self.produce_requests += 1
        self.records_in += records
        self.bytes_in += size_bytes

    def read(self, int64_t size_bytes):
        """Records of one request."""
        self.fetch_requests += 1
        self.bytes_out += size_bytes

    def refused_produce(self):
        """An append was refused."""
        self.failed_produce_requests += 1

    def refused_fetch(self):
        """A read was refused."""
        self.failed_fetch_requests += 1


cdef struct Batch:
    int64_t last_offset_delta
    int64_t record_count
    int64_t base_timestamp
    int64_t max_timestamp
    int64_t producer_id
    int64_t producer_epoch
    int64_t base_sequence
    uint32_t crc
    bint is_transactional


cdef class Appender:
    """The fast append of a partition: stages ordinary batches, and commits them if a write is enough.

    `append_ordinary` takes only the common case; `Appends.append` takes all others, and refuses with a
    reason. `commit_whole()` commits stages that are not plain, `commit_failed(error)` takes all staged
    batches back and raises.
    """

    cdef public AppendBuffer buffer
    cdef readonly HighWatermark high_watermark
    cdef readonly Traffic traffic
    cdef public int64_t log_start_offset
    cdef public int64_t leader_epoch
    cdef public object failure
    cdef public bint is_replicated
    cdef public bint inspects_records
    cdef public bint log_append_time
    cdef public bint recompresses
    cdef public int64_t size_bytes_max
    cdef public int64_t ahead_ms_max
    cdef public int64_t flush_messages
    cdef object _commit_whole
    cdef object _commit_failed

    def __init__(self, AppendBuffer buffer not None, commit_whole, commit_failed, high_watermark=None):
        self.buffer = buffer
        self.traffic = Traffic.__new__(Traffic)
        self.is_replicated = high_watermark is not None
        self.high_watermark = HighWatermark(high_watermark if self.is_replicated else buffer.log_end_offset)
        self._commit_whole = commit_whole
        self._commit_failed = commit_failed

    def commit(self):
        """Write the staged batches and make them visible to readers.

        After a failure no staged batch remains, in memory or on the disk, and KAFKA_STORAGE_ERROR is raised.
        Later appends may succeed, for example when a full disk has space again.
        """
        cdef AppendBuffer buffer = self.buffer
        if buffer.next_offset == buffer.log_end_offset or not buffer._is_plain():
            self._commit_whole()
            return
        try:
            buffer._commit()
        except OSError as error:
            self._commit_failed(error)
        self._committed()

    def committed(self):
        """The log has grown."""
        self._committed()

    cdef _committed(self):
        cdef HighWatermark high_watermark = self.high_watermark
        assert self.log_start_offset <= self.buffer.log_end_offset
        if not self.is_replicated:
            high_watermark._advance(self.buffer.log_end_offset)
        if high_watermark._end_watchers:
            _wake_all(high_watermark._end_watchers)
        self.buffer._written = None

    def append_ordinary(
        self, object buffer, Py_ssize_t start, Py_ssize_t end, int64_t now_ms, object verified=None,
        bint is_coordinators=False,
    ):
        """Stage the batch `buffer[start:end]`; None, without a change, if it is not ordinary.

        A batch in its producer's open transaction is ordinary, and so is the first batch of a known
        producer's transaction with a valid `verified`. Large batches are written from `buffer`, which must
        not change until the commit. The records of a coordinator's batch, which is in no transaction, are not
        checked.
        """
        cdef Py_buffer view
        if self.log_append_time or self.failure is not None:
            return None
        if self.recompresses if is_coordinators else self.inspects_records:
            return None
        PyObject_GetBuffer(buffer, &view, PyBUF_SIMPLE)
        try:
            if not 0 <= start <= end <= view.len:
                return None
            return self._append(
                buffer, <const uint8_t *> view.buf, start, end, now_ms, verified, is_coordinators
            )
        finally:
            PyBuffer_Release(&view)

    cdef _append(
        self,
        object buffer,
        const uint8_t *bytes_,
        Py_ssize_t start,
        Py_ssize_t end,
        int64_t now_ms,
        object verified,
        bint is_coordinators,
    ):
        cdef Batch batch
        cdef AppendBuffer log = self.buffer
        cdef ProducerTable producers = log.producers
        cdef ProducerEntry entry = None
        cdef object producer_id = None
        cdef bint is_first = False
        cdef Py_ssize_t size_bytes = end - start
        cdef int64_t first_offset = log.next_offset
        cdef int64_t last_offset
        if size_bytes > self.size_bytes_max or not _read(bytes_ + start, size_bytes, &batch):
            return None
        if is_coordinators and batch.producer_id >= 0:
            return None
        if batch.max_timestamp < -1 or batch.max_timestamp - now_ms > self.ahead_ms_max:
            return None
        last_offset = first_offset + batch.last_offset_delta
        if not log.stage._has_room(size_bytes, last_offset, batch.max_timestamp, log.segment_bytes):
            return None
        if batch.producer_id >= 0:
            if batch.base_sequence + batch.last_offset_delta > SEQUENCE_MAX:
                return None
            producer_id = batch.producer_id
            entry = producers.producers.get(producer_id)
            # An unknown producer may begin with any sequence.
            if entry is not None and (
                entry.producer_epoch != batch.producer_epoch
                or batch.base_sequence != entry._last(1) + 1
                or (entry.current_txn_first_offset >= 0 and not batch.is_transactional)
            ):
                return None
        # The first batch of a transaction needs the confirmation of its coordinator, and ends the
        # verification.
        if batch.is_transactional:
            verification = producers.verifications.get(producer_id)
            is_first = entry is not None and entry.current_txn_first_offset < 0
            if entry is None or is_first == (verification is None):
                return None
            if is_first and (verified is None or verified.verification is not verification):
                return None
            if is_first and entry._count and batch.base_sequence > verification.lowest_sequence:
                return None
        if _crc_of(buffer, bytes_, start, end) != batch.crc:
            return None
        if not is_coordinators:
            survey = _survey_if_sound(
                memoryview(buffer)[start + HEADER_SIZE_BYTES : end], batch.record_count, batch.base_timestamp
            )
            if survey is None or survey[1] != batch.max_timestamp:
                return None
        log._put(buffer, bytes_, start, end, first_offset, last_offset, batch.max_timestamp, self.leader_epoch)
        if batch.producer_id >= 0:
            producers._stage(
                entry, producer_id, batch.producer_epoch, batch.base_sequence,
                batch.base_sequence + batch.last_offset_delta, first_offset, last_offset, batch.max_timestamp,
                batch.is_transactional,
            )
        self.traffic._wrote(batch.record_count, size_bytes)
        return self._appended(first_offset, -1)

    def stage_leaders(self, object buffer, int64_t leader_epoch_max):
        """Stage the whole batches of a leader at the start of `buffer`; returns their size in bytes. Batches
        of a later leader epoch, and all after them, are left out, and so is an incomplete last batch.

        -1, without a change, if one of them is a marker, empty, or wrong. All are checked before the first is
        staged; less than all are staged if the log has to roll.
        """
        cdef Py_buffer view
        if self.failure is not None:
            return -1
        PyObject_GetBuffer(buffer, &view, PyBUF_SIMPLE)
        try:
            if not self._are_ordinary(buffer, <const uint8_t *> view.buf, view.len, leader_epoch_max):
                return -1
            return self._stage_leaders(buffer, <const uint8_t *> view.buf, view.len, leader_epoch_max)
        finally:
            PyBuffer_Release(&view)

    cdef bint _are_ordinary(
        self, object buffer, const uint8_t *bytes_, Py_ssize_t size_bytes, int64_t leader_epoch_max
    ) except -1:
        cdef batch_header header
        cdef Py_ssize_t position = 0
        cdef int64_t next_offset = self.buffer.next_offset
        while size_bytes - position >= HEADER_SIZE_BYTES:
            unpack_header(bytes_ + position, &header)
            if header.magic != 2 or header.size_bytes < HEADER_SIZE_BYTES:
                return False
            if header.size_bytes > size_bytes - position or header.leader_epoch > leader_epoch_max:
                return True
            if header.base_offset < next_offset or not _is_leaders(&header):
                return False
            if _crc_of(buffer, bytes_, position, position + header.size_bytes) != header.crc:
                return False
            next_offset = header.base_offset + header.last_offset_delta + 1
            position += header.size_bytes
        return True

    cdef Py_ssize_t _stage_leaders(
        self, object buffer, const uint8_t *bytes_, Py_ssize_t size_bytes, int64_t leader_epoch_max
    ) except -1:
        cdef batch_header header
        cdef AppendBuffer log = self.buffer
        cdef Py_ssize_t position = 0
        cdef Py_ssize_t end
        cdef int64_t last_offset
        while size_bytes - position >= HEADER_SIZE_BYTES:
            unpack_header(bytes_ + position, &header)
            end = position + header.size_bytes
            if end > size_bytes or header.leader_epoch > leader_epoch_max:
                break
            last_offset = header.base_offset + header.last_offset_delta
            if not log.stage._has_room(header.size_bytes, last_offset, header.max_timestamp, log.segment_bytes):
                break
            log._put(
                buffer, bytes_, position, end, header.base_offset, last_offset, header.max_timestamp,
                header.leader_epoch,
            )
            self._stage_leaders_producer(&header)
            position = end
        return position

    cdef _stage_leaders_producer(self, const batch_header *header):
        cdef ProducerTable producers = self.buffer.producers
        cdef object producer_id
        if header.producer_id >= 0:
            producer_id = header.producer_id
            producers._stage(
                producers.producers.get(producer_id), producer_id, header.producer_epoch,
                header.base_sequence, header.base_sequence + header.last_offset_delta, header.base_offset,
                header.base_offset + header.last_offset_delta, header.max_timestamp,
                header.attributes & TRANSACTIONAL != 0,
            )

    def offsets(self):
        """Log start, log end and high watermark."""
        return self.log_start_offset, self.buffer.log_end_offset, self.high_watermark.offset

    def survey_leaders(self, object buffer not None, Py_ssize_t start, Py_ssize_t end, int64_t leader_epoch_max):
        """The size in bytes of the whole batches of a leader at the start of `buffer[start:end]`, and the
        offset after them, if `append_leaders` can take them. Batches of a later leader epoch, and all after
        them, are left out, and so is an incomplete last batch.

        None if there are none, if one of them is a marker, empty, or wrong, if the log has to roll, if batches
        are staged already, or if a flush has to follow.
        """
        cdef Py_buffer view
        cdef AppendBuffer log = self.buffer
        cdef int64_t next_offset = log.next_offset
        cdef Py_ssize_t size_bytes
        if self.failure is not None or next_offset != log.log_end_offset:
            return None
        PyObject_GetBuffer(buffer, &view, PyBUF_SIMPLE)
        try:
            if not 0 <= start <= end <= view.len:
                return None
            size_bytes = self._survey(buffer, <const uint8_t *> view.buf, start, end, leader_epoch_max, &next_offset)
        finally:
            PyBuffer_Release(&view)
        if size_bytes <= 0 or next_offset - log.durable_offset >= self.flush_messages:
            return None
        return size_bytes, next_offset

    cdef Py_ssize_t _survey(
        self, object buffer, const uint8_t *bytes_, Py_ssize_t start, Py_ssize_t end, int64_t leader_epoch_max,
        int64_t *next_offset,
    ) except -2:
        """The size in bytes of the whole batches; -1 where one is not ordinary, or has no room."""
        cdef batch_header header
        cdef StagedSegment stage = self.buffer.stage
        cdef Py_ssize_t position = start
        cdef int64_t index_room = stage.index_room
        cdef int64_t last_offset
        if stage.size_bytes <= 0:
            return -1
        while end - position >= HEADER_SIZE_BYTES:
            unpack_header(bytes_ + position, &header)
            if header.magic != 2 or header.size_bytes < HEADER_SIZE_BYTES:
                return -1
            if header.size_bytes > end - position or header.leader_epoch > leader_epoch_max:
                break
            last_offset = header.base_offset + header.last_offset_delta
            if (
                header.base_offset < next_offset[0]
                or not _is_leaders(&header)
                # Each batch adds one entry to the indexes at most.
                or index_room <= 0
                or stage.size_bytes + (position - start) + header.size_bytes > self.buffer.segment_bytes
                or last_offset - stage.base_offset > RELATIVE_OFFSET_MAX
                or header.max_timestamp > stage.roll_after_ms
            ):
                return -1
            if _crc_of(buffer, bytes_, position, position + header.size_bytes) != header.crc:
                return -1
            index_room -= 1
            next_offset[0] = last_offset + 1
            position += header.size_bytes
        return position - start

    def append_leaders(self, object buffer not None, Py_ssize_t start, Py_ssize_t end):
        """Stage the batches `buffer[start:end]`, as `survey_leaders` has found them, and commit them. They keep
        their bytes, and are written from `buffer`. Raises as `commit`.
        """
        cdef batch_header header
        cdef Py_buffer view
        cdef AppendBuffer log = self.buffer
        cdef Py_ssize_t position = start
        assert log.next_offset == log.log_end_offset
        PyObject_GetBuffer(buffer, &view, PyBUF_SIMPLE)
        try:
            assert 0 <= start < end <= view.len
            while position < end:
                unpack_header(<const uint8_t *> view.buf + position, &header)
                log.stage._count_in(
                    header.size_bytes, header.base_offset + header.last_offset_delta, header.max_timestamp,
                    log.index_interval_bytes,
                )
                if header.leader_epoch > log.latest_epoch:
                    log.latest_epoch = header.leader_epoch
                    log.epochs.append((header.leader_epoch, header.base_offset))
                log.next_offset = header.base_offset + header.last_offset_delta + 1
                self._stage_leaders_producer(&header)
                position += header.size_bytes
        finally:
            PyBuffer_Release(&view)
        log.stage.parts.append(memoryview(buffer)[start:end])
        self.commit()

    def appended(self, int64_t first_offset, int64_t log_append_time_ms):
        """The response for the batches staged from an offset on."""
        return self._appended(first_offset, log_append_time_ms)

    cdef Appended _appended(self, int64_t first_offset, int64_t log_append_time_ms):
        cdef AppendBuffer log = self.buffer
        cdef Appended appended = Appended.__new__(Appended)
        appended.base_offset = first_offset
        appended.last_offset = log.next_offset - 1
        appended.log_append_time_ms = log_append_time_ms
        appended.log_start_offset = self.log_start_offset
        appended.must_flush = log.next_offset - log.durable_offset >= self.flush_messages
        return appended


cdef uint32_t _crc_of(object buffer, const uint8_t *bytes_, Py_ssize_t start, Py_ssize_t end) except? 0:
    """The checksum of the batch `buffer[start:end]`, whose bytes are at `bytes_`."""
    if _crc_in_hardware and end - start <= FEW_BYTES:
        return crc32c_of_few(bytes_ + start + ATTRIBUTES_POSITION, end - start - ATTRIBUTES_POSITION)
    return _crc32c_of_many(memoryview(buffer)[start + ATTRIBUTES_POSITION : end])


cdef bint _is_leaders(const batch_header *header) noexcept:
    """Whether it is an ordinary batch of a leader; the checksum and the place in the log are not checked."""
    if header.attributes & CONTROL or header.record_count < 1 or header.last_offset_delta < 0:
        return False
    return header.producer_id < 0 or (
        header.base_sequence >= 0 and header.base_sequence + header.last_offset_delta <= SEQUENCE_MAX
    )


cdef bint _read(const uint8_t *start, Py_ssize_t size_bytes, Batch *batch) noexcept:
    """Whether these bytes are an ordinary batch; the checksum is not checked."""
    cdef int attributes
    if size_bytes < HEADER_SIZE_BYTES:
        return False
    if <int> big_endian(start + 8, 4) != size_bytes - LOG_OVERHEAD_BYTES or start[16] != 2:
        return False
    if big_endian(start, 8):
        return False
    attributes = <int> big_endian(start + 21, 2)
    if attributes & ~TRANSACTIONAL:
        return False  # compressed and special batches need more checks
    batch.is_transactional = attributes != 0
    batch.crc = <uint32_t> big_endian(start + 17, 4)
    batch.last_offset_delta = <int> big_endian(start + 23, 4)
    batch.base_timestamp = <int64_t> big_endian(start + 27, 8)
    batch.max_timestamp = <int64_t> big_endian(start + 35, 8)
    batch.producer_id = <int64_t> big_endian(start + 43, 8)
    batch.producer_epoch = <short> big_endian(start + 51, 2)
    batch.base_sequence = <int> big_endian(start + 53, 4)
    batch.record_count = <int> big_endian(start + 57, 4)
    if batch.record_count < 1 or batch.record_count != batch.last_offset_delta + 1:
        return False
    return batch.producer_id == -1 or (
        batch.producer_id >= 0 and batch.producer_epoch >= 0 and batch.base_sequence >= 0
    )


# The first check of inherited batches

cdef struct Place:
    int64_t base_offset
    int64_t length
    int64_t leader_epoch
    int64_t magic
    int64_t last_offset_delta
    int64_t record_count
    uint32_t crc


cdef class Stretch:
    """A range of whole batches that were checked.

    `next_offset` is the lowest offset that the batch at `end` may have; `leader_epoch` is the epoch of the
    batch before `end`, None if it is not known.
    """

    cdef readonly int64_t start
    cdef readonly int64_t end
    cdef readonly int64_t next_offset
    cdef int64_t _leader_epoch

    def __init__(self, start, end, next_offset, leader_epoch=None):
        self.start = start
        self.end = end
        self.next_offset = next_offset
        self._leader_epoch = UNKNOWN_EPOCH if leader_epoch is None else leader_epoch

    @property
    def leader_epoch(self):
        return None if self._leader_epoch == UNKNOWN_EPOCH else self._leader_epoch

    def extend(self, read, int64_t until, int64_t size_bytes, int64_t limit_offset):
        """Check more batches, until `end` is not before `until` or a damaged batch follows. To keep the event
        loop free it may stop earlier, after at least one batch.

        It checks the fields outside of the checksum: base offset, length, leader epoch, magic. A batch counts
        as sound when the next batch is sound, too: offsets ascend (in the last batch to less than
        `limit_offset`), and before missing offsets, as in a compacted log, the checksum of the batch is
        right. A base offset that is too high shows at the next batch, whose offset is then too low.
        """
        cdef Place place
        cdef int64_t begin = self.end
        cdef int64_t position = begin
        cdef int64_t next_offset = self.next_offset
        cdef int64_t leader_epoch = self._leader_epoch
        cdef uint32_t crc = 0
        cdef bytes window = b""
        cdef int64_t start = 0
        cdef int64_t window_bytes = WINDOW_BYTES
        cdef int64_t spent_bytes = 0
        cdef int turn
        for turn in range(BATCHES_PER_LOOK):
            if self.end >= until or (spent_bytes >= BYTES_PER_LOOK and self.end > begin):
                return
            if position >= size_bytes:
                place.base_offset = limit_offset
                place.leader_epoch = leader_epoch
            else:
                if position - start + HEADER_SIZE_BYTES > len(window):
                    window = read(position, min(window_bytes, size_bytes - position))
                    start = position
                    spent_bytes += READ_COST_BYTES + len(window)
                    if len(window) < HEADER_SIZE_BYTES:
                        return
                _read_place(<const uint8_t *> PyBytes_AsString(window) + (position - start), &place)
            if position > self.end:
                # Between `end` and `position` is a batch that is accepted with the next one.
                if place.base_offset < next_offset:
                    return
                if not _is_between(self._leader_epoch, leader_epoch, place.leader_epoch):
                    return
                if place.base_offset > next_offset:
                    spent_bytes += READ_COST_BYTES + position - self.end
                    if not _has_crc(read, self.end, position, crc):
                        return
                self.end = position
                self.next_offset = next_offset
                self._leader_epoch = leader_epoch
            if position >= size_bytes or not _may_follow(&place, next_offset, limit_offset):
                return
            if place.length + LOG_OVERHEAD_BYTES > size_bytes - position:
                return
            next_offset = place.base_offset + place.last_offset_delta + 1
            leader_epoch = place.leader_epoch
            crc = place.crc
            position += place.length + LOG_OVERHEAD_BYTES
            window_bytes = WINDOW_BYTES if place.length < SMALL_BATCH_BYTES else HEADER_SIZE_BYTES


cdef void _read_place(const uint8_t *start, Place *place) noexcept:
    place.base_offset = <int64_t> big_endian(start, 8)
    place.length = <int> big_endian(start + 8, 4)
    place.leader_epoch = <int> big_endian(start + 12, 4)
    place.magic = start[16]
    place.crc = <uint32_t> big_endian(start + 17, 4)
    place.last_offset_delta = <int> big_endian(start + 23, 4)
    place.record_count = <int> big_endian(start + 57, 4)


cdef bint _may_follow(const Place *place, int64_t next_offset, int64_t limit_offset) noexcept:
    """Whether the header has offsets in this range."""
    return (
        place.magic == 2
        and place.base_offset >= next_offset
        and 0 <= place.record_count <= place.last_offset_delta + 1
        and place.length >= HEADER_SIZE_BYTES - LOG_OVERHEAD_BYTES
        and place.last_offset_delta < limit_offset - place.base_offset
    )


cdef bint _has_crc(object read, int64_t position, int64_t end, uint32_t crc) except -1:
    content = read(position, end - position)
    return len(content) == end - position and _crc32c_of_many(memoryview(content)[ATTRIBUTES_POSITION:]) == crc


cdef bint _is_between(int64_t before, int64_t epoch, int64_t after) noexcept:
    """False for an epoch outside of the range of both neighbours."""
    if before == UNKNOWN_EPOCH or epoch == UNKNOWN_EPOCH or after == UNKNOWN_EPOCH or before > after:
        return True
    return before <= epoch <= after
