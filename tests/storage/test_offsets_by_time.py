"""Looking up offsets by time, against a plain list of all records that are there.

Segments of a few batches, timestamps in any order and missing ones, LogAppendTime for a while, batches of
several records in every codec, starts that move into the middle of a batch, retention, compaction, restarts.
"""

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from memory_disk import MemoryDisk
from stores import write_checkpoints

from odradek.storage.config import LogConfig
from odradek.storage.directories.store import LogStore
from odradek.wire.compression import Compression
from odradek.wire.records import Record, build_batch, iter_records, iter_whole_batches
from odradek.wire.work import finish
from tests.tiers import examples

START_MS = 1_700_000_000_000
NO_TIME = -1
BOTH = frozenset({"compact", "delete"})


class OffsetsByTime(RuleBasedStateMachine):
    @initialize(
        segment_bytes=st.integers(300, 1500),
        index_interval_bytes=st.integers(0, 400),
        is_compacted=st.booleans(),
    )
    def start(self, segment_bytes, index_interval_bytes, is_compacted):
        self.disk = MemoryDisk()
        self.values = {
            "segment_bytes": segment_bytes,
            "index_interval_bytes": index_interval_bytes,
            "cleanup_policy": BOTH if is_compacted else frozenset({"delete"}),
            "min_cleanable_dirty_ratio": 0.0,
            "retention_ms": -1,
            "message_timestamp_after_max_ms": 2**63 - 1,
            "file_delete_delay_ms": 0,
        }
        self.now_ms = START_MS
        # What is there: offset -> timestamp, in the order of the offsets.
        self.model: dict[int, int] = {}
        self.open()

    def open(self):
        self.store = LogStore(self.disk, ["data"], config_for=lambda topic: LogConfig(**self.values))
        self.store.open(self.now_ms)
        self.partition = self.store.create("t", 0, bytes(16), LogConfig(**self.values))

    @rule(
        steps=st.lists(st.one_of(st.integers(-300, 300), st.none()), min_size=1, max_size=5),
        keys=st.lists(st.sampled_from([b"a", b"b", b"c", b"d"]), min_size=5, max_size=5),
        compression=st.sampled_from([Compression.NONE, Compression.NONE, Compression.GZIP, Compression.ZSTD]),
        appends_time=st.booleans(),
    )
    def append(self, steps, keys, compression, appends_time):
        stamps = "LogAppendTime" if appends_time else "CreateTime"
        self.partition.set_config(LogConfig(**self.values, message_timestamp_type=stamps))
        times = [NO_TIME if step is None else self.now_ms + step for step in steps]
        if any(step is None for step in steps):
            times = [NO_TIME] * len(steps)  # a batch without timestamps
        records = [
            Record(place, timestamp, key, b"value" * 4)
            for place, (timestamp, key) in enumerate(zip(times, keys, strict=False))
        ]
        batch = build_batch(records, compression=compression)
        first = self.partition.appends.append(batch, now_ms=self.now_ms).base_offset
        self.partition.commit()
        for place, timestamp in enumerate(times):
            self.model[first + place] = self.now_ms if appends_time else timestamp
        self.now_ms += 50

    @precondition(lambda self: self.model)
    @rule(share=st.floats(0, 1))
    def delete_records(self, share):
        start = self.partition.log_start_offset
        wanted = start + int(share * (self.partition.high_watermark - start))
        self.partition.retention.delete_records(wanted)
        self.forget_before(wanted)

    @rule(kept_segments=st.integers(0, 4))
    def retain(self, kept_segments):
        values = {**self.values, "retention_bytes": kept_segments * self.values["segment_bytes"]}
        self.partition.set_config(LogConfig(**values))
        finish(self.store.maintaining(self.now_ms))
        self.partition.set_config(LogConfig(**self.values))
        self.forget_before(self.partition.log_start_offset)

    def forget_before(self, offset):
        self.model = {one: timestamp for one, timestamp in self.model.items() if one >= offset}

    @precondition(lambda self: self.values["cleanup_policy"] == BOTH)
    @rule()
    def compact(self):
        """What is left is read back: which records compaction keeps is told elsewhere."""
        self.partition.log.roll(self.now_ms)
        self.partition.flush()
        write_checkpoints(self.store)
        while self.store.compact(self.now_ms, 1 << 20):
            pass
        left = set()
        offset = self.partition.log_start_offset
        while offset < self.partition.high_watermark:
            data = self.partition.read(offset, max_bytes=1).records.tobytes()
            if not data:
                break
            for _, header in iter_whole_batches(data):
                offset = header.last_offset + 1
                if header.record_count:
                    left |= {record.offset for record in iter_records(data)}
        self.model = {one: timestamp for one, timestamp in self.model.items() if one in left}

    @rule(forgets_indexes=st.booleans(), is_killed=st.booleans())
    def restart(self, forgets_indexes, is_killed):
        self.partition.flush()
        finish(self.store.checkpointing.saving_starts([self.partition]))
        write_checkpoints(self.store)
        if is_killed:
            self.disk.held.clear()
        else:
            self.store.close(self.now_ms)
        if forgets_indexes:
            for path in [path for path in self.disk.files if path.endswith(("index",))]:
                self.disk.remove(path)
        self.open()

    @rule(shift=st.integers(-400, 400), share=st.floats(0, 1))
    def look_up(self, shift, share):
        times = list(self.model.values()) or [self.now_ms]
        wanted = max(times[int(share * (len(times) - 1))] + shift, 0)
        self.check_time(wanted)

    @invariant()
    def every_time_is_found(self):
        for wanted in {max(timestamp, 0) for timestamp in self.model.values()}:
            self.check_time(wanted)

    def check_time(self, wanted):
        expected = next(
            ((timestamp, offset) for offset, timestamp in self.model.items() if timestamp >= wanted), None
        )
        found = finish(self.partition.search.finding_timestamp(wanted))
        assert (found and found[:2]) == expected, wanted

    @invariant()
    def the_latest_is_found(self):
        stored = self.stored()
        latest = max(stored.values(), default=NO_TIME)
        offset = next((one for one, timestamp in stored.items() if timestamp == latest), None)
        expected = None if latest == NO_TIME else (latest, offset)
        found = finish(self.partition.search.finding_max_timestamp())
        assert (found and found[:2]) == expected

    def stored(self):
        """Offset -> timestamp of all that the segments hold, from before the start of the log, too."""
        found = {}
        for segment in self.partition.log.segments:
            with segment.file.pinned() as file:
                data = memoryview(file.read(0, segment.size_bytes))
            for position, header in iter_whole_batches(data):
                for record in iter_records(data[position : position + header.size_bytes]):
                    found[record.offset] = (
                        header.max_timestamp if header.uses_log_append_time else record.timestamp
                    )
        return found


TestOffsetsByTime = OffsetsByTime.TestCase
TestOffsetsByTime.settings = settings(
    max_examples=examples(30),
    stateful_step_count=30,
    deadline=None,
    derandomize=True,
    suppress_health_check=list(HealthCheck),
)


def test_the_latest_record_may_stand_before_the_start_as_long_as_its_segment_is_there():
    store = LogStore(MemoryDisk(), ["data"])
    store.open(START_MS)
    partition = store.create("t", 0, bytes(16), LogConfig(segment_bytes=400, retention_ms=-1))
    for timestamp in (5, 90, 7, 80, 3, 80, 4):
        partition.appends.append(build_batch([Record(0, timestamp, b"k", b"v" * 50)]), now_ms=START_MS)
    partition.commit()
    assert [segment.base_offset for segment in partition.log.segments] == [0, 3, 6]
    latest = []
    for start in range(1, 8):
        partition.retention.delete_records(start)
        finish(store.maintaining(START_MS))
        latest.append(finish(partition.search.finding_max_timestamp()))
    assert latest == [(90, 1, 0)] * 2 + [(80, 3, 0)] * 3 + [(4, 6, 0)] * 2


@pytest.mark.parametrize("count", [1, 3])
def test_records_without_timestamps_have_no_latest(count):
    store = LogStore(MemoryDisk(), ["data"])
    store.open(START_MS)
    partition = store.create("t", 0, bytes(16), LogConfig())
    for _ in range(count):
        partition.appends.append(build_batch([Record(0, NO_TIME, b"k", b"v")]), now_ms=START_MS)
    partition.commit()
    assert finish(partition.search.finding_max_timestamp()) is None
    assert finish(partition.search.finding_timestamp(0)) is None
