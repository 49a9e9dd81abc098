"""A partition against a plain list: whatever is done to it, it reads as the list does."""

import errno
import random

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from memory_disk import MemoryDisk
from stores import write_checkpoints

from odradek.storage.config import LogConfig
from odradek.storage.directories.store import LogStore
from odradek.wire.errors import ErrorCode, KafkaError
from odradek.wire.records import Record, build_batch, iter_records, iter_whole_batches
from odradek.wire.work import finish
from tests.tiers import examples

START_MS = 1_700_000_000_000
INDEX_SUFFIXES = (".index", ".timeindex", ".snapshot", "-checkpoint")


class PartitionMachine(RuleBasedStateMachine):
    @initialize(
        segment_bytes=st.integers(300, 3000),
        index_interval_bytes=st.integers(0, 500),
        segment_index_bytes=st.sampled_from((24, 60, 10_000)),
        open_files_max=st.sampled_from((1, 3, 100)),
    )
    def start(self, segment_bytes, index_interval_bytes, segment_index_bytes, open_files_max):
        self.disk = MemoryDisk()
        self.config = LogConfig(
            segment_bytes=segment_bytes,
            index_interval_bytes=index_interval_bytes,
            segment_index_bytes=segment_index_bytes,
            file_delete_delay_ms=1000,
        )
        self.open_files_max = open_files_max
        self.now_ms = START_MS
        # What every offset holds: (timestamp, value). The list's place is the offset.
        self.model: list[tuple[int, bytes]] = []
        self.staged: list[tuple[int, bytes]] = []
        self.log_start_offset = 0
        self.sequences = {1: 0, 2: 0}
        self.open()

    def open(self):
        self.store = LogStore(self.disk, ["data"], open_files_max=self.open_files_max)
        self.store.open(self.now_ms)
        self.partition = self.store.create("t", 0, bytes(16), self.config)

    @rule(
        values=st.lists(st.binary(max_size=60), min_size=1, max_size=4),
        steps=st.lists(st.integers(-50, 100), min_size=4, max_size=4),
        producer_id=st.sampled_from((-1, 1, 2)),
    )
    def append(self, values, steps, producer_id):
        records = [(self.now_ms + step, value) for value, step in zip(values, steps, strict=False)]
        batch = build_batch(
            [Record(place, timestamp, b"k", value) for place, (timestamp, value) in enumerate(records)],
            producer_id=producer_id,
            producer_epoch=0 if producer_id >= 0 else -1,
            base_sequence=self.sequences.get(producer_id, -1),
        )
        appended = self.partition.appends.append(batch, now_ms=self.now_ms)
        assert appended.base_offset == len(self.model) + len(self.staged)
        assert appended.last_offset == appended.base_offset + len(records) - 1
        if producer_id >= 0:
            again = self.partition.appends.append(batch, now_ms=self.now_ms)
            assert again.is_duplicate
            assert (again.base_offset, again.last_offset) == (appended.base_offset, appended.last_offset)
            self.sequences[producer_id] += len(records)
        self.staged += records
        self.now_ms += 10

    @rule(gap=st.integers(1, 5))
    def append_with_a_gap(self, gap):
        producer_id = 1
        if self.sequences[producer_id] == 0:
            return
        batch = build_batch(
            [Record(0, self.now_ms, b"k", b"v")],
            producer_id=producer_id,
            producer_epoch=0,
            base_sequence=self.sequences[producer_id] + gap,
        )
        with pytest.raises(KafkaError) as refused:
            self.partition.appends.append(batch, now_ms=self.now_ms)
        assert refused.value.code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER

    @rule()
    def commit(self):
        self.partition.commit()
        self.model += self.staged
        self.staged = []

    @precondition(lambda self: self.staged)
    @rule(code=st.sampled_from((errno.ENOSPC, errno.EIO)), operation=st.sampled_from(("write", "create")))
    def commit_on_a_failing_disk(self, code, operation):
        sequences = dict(self.sequences)
        failed = random.Random(self.now_ms)
        self.disk.fail = lambda done, path: code if done == operation and failed.random() < 0.7 else None
        try:
            self.partition.commit()
        except KafkaError:
            # The producers' sequences go back with the records.
            producers = self.partition.log.producers.producers
            self.sequences = {
                one: producers[one].last_sequence + 1 if one in producers else 0 for one in sequences
            }
        else:
            self.model += self.staged
        self.disk.fail = lambda done, path: None
        self.staged = []

    @precondition(lambda self: not self.staged)
    @rule()
    def flush(self):
        self.partition.flush()

    @precondition(lambda self: not self.staged)
    @rule(share=st.floats(0, 1))
    def delete_records(self, share):
        wanted = int(share * len(self.model))
        self.log_start_offset = max(self.log_start_offset, wanted)
        assert self.partition.retention.delete_records(wanted) == self.log_start_offset

    @precondition(lambda self: not self.staged)
    @rule(pause_ms=st.sampled_from((0, 1000, 61_000)))
    def maintain(self, pause_ms):
        self.now_ms += pause_ms
        finish(self.store.maintaining(self.now_ms))

    @precondition(lambda self: not self.staged)
    @rule(forget=st.booleans())
    def restart(self, forget):
        self.store.close(self.now_ms)
        if forget:
            # Without the checkpoints the log begins where its first segment does.
            for path in [path for path in self.disk.files if path.endswith(INDEX_SUFFIXES)]:
                if not path.endswith("log-start-offset-checkpoint"):
                    self.disk.remove(path)
        self.open()

    @precondition(lambda self: not self.staged)
    @rule()
    def kill(self):
        write_checkpoints(self.store)  # DeleteRecords is durable with the next checkpoint, as in Kafka
        self.disk.held.clear()
        self.open()

    @precondition(lambda self: self.model)
    @rule(share=st.floats(0, 1), max_bytes=st.integers(1, 2000))
    def read(self, share, max_bytes):
        offset = self.log_start_offset + int(share * (len(self.model) - self.log_start_offset))
        result = self.partition.read(offset, max_bytes=max_bytes)
        data = memoryview(result.records.tobytes())
        if offset == len(self.model):
            assert not data
            return
        batches = list(iter_whole_batches(data))
        assert batches[0][1].base_offset <= offset <= batches[0][1].last_offset
        assert len(data) <= max_bytes or len(batches) == 1
        for position, _ in batches:
            for record in iter_records(data[position:]):
                assert self.model[record.offset] == (record.timestamp, record.value)

    @precondition(lambda self: self.model)
    @rule(share=st.floats(0, 1), shift=st.integers(-60, 60))
    def find_timestamp(self, share, shift):
        timestamp_ms = self.model[int(share * (len(self.model) - 1))][0] + shift
        expected = next(
            (
                (timestamp, self.log_start_offset + place, 0)
                for place, (timestamp, _) in enumerate(self.model[self.log_start_offset :])
                if timestamp >= timestamp_ms
            ),
            None,
        )
        assert finish(self.partition.search.finding_timestamp(timestamp_ms)) == expected

    @invariant()
    def ends_agree(self):
        partition = self.partition
        assert partition.log_end_offset == partition.high_watermark == len(self.model)
        assert partition.log_start_offset == self.log_start_offset
        assert len(self.store.pool) <= max(self.open_files_max, 1)


TestPartition = PartitionMachine.TestCase
TestPartition.settings = settings(
    max_examples=examples(40),
    stateful_step_count=40,
    deadline=None,
    derandomize=True,
    suppress_health_check=list(HealthCheck),
)
