"""A partition with transactions against a plain list that knows them: whatever is done to it, what is stable,
and what a reader of what is committed gets, is what the list says.
"""

import errno
import random
from typing import NamedTuple

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from memory_disk import MemoryDisk
from stores import write_checkpoints
from transacting import NOW_MS, check_transactions, committed

from odradek.storage.config import LogConfig
from odradek.storage.directories.store import LogStore
from odradek.storage.log.transactions import Verified
from odradek.wire.end_marker import EndMarker
from odradek.wire.errors import KafkaError
from odradek.wire.records import Record, build_batch
from odradek.wire.work import finish
from tests.tiers import examples

CACHES = (".index", ".timeindex", ".txnindex", ".snapshot", "-checkpoint")
PRODUCERS = (1, 2, 3)


class Entry(NamedTuple):
    """What stands at an offset: a record, or (`commits` is not None) a marker."""

    producer_id: int
    value: bytes
    commits: bool | None = None


class TransactionMachine(RuleBasedStateMachine):
    @initialize(
        segment_bytes=st.integers(200, 1500),
        index_interval_bytes=st.integers(0, 300),
        open_files_max=st.sampled_from((1, 100)),
    )
    def start(self, segment_bytes, index_interval_bytes, open_files_max):
        self.disk = MemoryDisk()
        self.config = LogConfig(
            segment_bytes=segment_bytes, index_interval_bytes=index_interval_bytes, file_delete_delay_ms=1000
        )
        self.open_files_max = open_files_max
        self.now_ms = NOW_MS
        self.model: list[Entry] = []
        self.staged: list[Entry] = []
        self.log_start_offset = 0
        self.forgotten_before = 0
        self.open()

    def open(self):
        self.store = LogStore(self.disk, ["data"], open_files_max=self.open_files_max)
        self.store.open(self.now_ms)
        self.partition = self.store.create("t", 0, bytes(16), self.config)

    def next_of(self, producer_id: int) -> tuple[int, int]:
        """Epoch and sequence of a producer's next batch."""
        for one in self.partition.producers():
            if one.producer_id == producer_id:
                return one.producer_epoch, one.last_sequence + 1
        return 0, 0

    @rule(values=st.lists(st.binary(max_size=40), min_size=1, max_size=3))
    def plain(self, values):
        batch = build_batch([Record(place, self.now_ms, b"k", value) for place, value in enumerate(values)])
        self.partition.appends.append(batch, now_ms=self.now_ms)
        self.staged += [Entry(-1, value) for value in values]

    @rule(
        producer_id=st.sampled_from(PRODUCERS),
        values=st.lists(st.binary(max_size=40), min_size=1, max_size=3),
        version=st.sampled_from((1, 2)),
    )
    def transact(self, producer_id, values, version):
        epoch, sequence = self.next_of(producer_id)
        batch = build_batch(
            [Record(place, self.now_ms, b"k", value) for place, value in enumerate(values)],
            producer_id=producer_id,
            producer_epoch=epoch,
            base_sequence=sequence,
            transactional=True,
        )
        verification = self.partition.begin_verification(producer_id, epoch, sequence, version=version)
        verified = Verified(verification, version)
        appended = self.partition.appends.append(batch, now_ms=self.now_ms, transactions=verified)
        assert appended.base_offset == len(self.model) + len(self.staged)
        assert self.partition.appends.append(batch, now_ms=self.now_ms).is_duplicate
        self.staged += [Entry(producer_id, value) for value in values]

    @rule(producer_id=st.sampled_from(PRODUCERS), commits=st.booleans(), version=st.sampled_from((1, 2)))
    def end(self, producer_id, commits, version):
        epoch, _ = self.next_of(producer_id)
        marker = EndMarker(producer_id, epoch + (version == 2), 0, commits, version)
        self.partition.appends.append_marker(marker, now_ms=self.now_ms)
        self.staged.append(Entry(producer_id, b"", commits))

    @rule()
    def commit(self):
        self.partition.commit()
        self.model += self.staged
        self.staged = []

    @precondition(lambda self: self.staged)
    @rule(number=st.integers(0, 1000), suffix=st.sampled_from((".log", ".txnindex")))
    def commit_on_a_failing_disk(self, number, suffix):
        chance = random.Random(number)
        self.disk.fail = lambda done, path: (
            errno.ENOSPC
            if done in ("write", "create") and path.endswith(suffix) and chance.random() < 0.7
            else None
        )
        try:
            self.partition.commit()
            self.model += self.staged
        except KafkaError:
            pass
        self.disk.fail = lambda done, path: None
        self.staged = []

    @precondition(lambda self: not self.staged)
    @rule()
    def flush(self):
        self.partition.flush()

    @precondition(lambda self: not self.staged)
    @rule()
    def roll(self):
        self.partition.log.roll(self.now_ms)

    @precondition(lambda self: not self.staged)
    @rule(share=st.floats(0, 1))
    def delete_records(self, share):
        self.log_start_offset = max(self.log_start_offset, int(share * len(self.model)))
        self.partition.retention.delete_records(self.log_start_offset)

    @precondition(lambda self: not self.staged)
    @rule()
    def maintain(self):
        self.now_ms += 1500
        finish(self.store.maintaining(self.now_ms))

    @precondition(lambda self: not self.staged)
    @rule(forget=st.booleans())
    def restart(self, forget):
        self.store.close(self.now_ms)
        if forget:
            for path in [path for path in self.disk.files if path.endswith(CACHES)]:
                # Without this one the log begins where its first segment does.
                if not path.endswith("log-start-offset-checkpoint"):
                    self.disk.remove(path)
        self.open()
        if forget:
            self.forgotten_before = self.partition.log.segments[0].base_offset

    @precondition(lambda self: not self.staged)
    @rule()
    def kill(self):
        write_checkpoints(self.store)
        self.disk.held.clear()
        self.open()

    def begun(self) -> dict[int, int]:
        """First offset of each open transaction, of those that are not forgotten with their first records."""
        begun: dict[int, int] = {}
        for offset, entry in enumerate(self.model):
            if entry.commits is not None:
                begun.pop(entry.producer_id, None)
            elif entry.producer_id >= 0 and offset >= self.forgotten_before:
                begun.setdefault(entry.producer_id, offset)
        return begun

    def good_offsets(self, end_offset: int) -> list[int]:
        good, of_transactions = [], {}
        for offset, entry in enumerate(self.model):
            if entry.commits is not None:
                good += of_transactions.pop(entry.producer_id, []) if entry.commits else []
                of_transactions.pop(entry.producer_id, None)
            elif entry.producer_id >= 0:
                of_transactions.setdefault(entry.producer_id, []).append(offset)
            else:
                good.append(offset)
        return sorted(offset for offset in good if offset < end_offset)

    @precondition(lambda self: not self.staged)
    @rule(share=st.floats(0, 1), max_bytes=st.integers(1, 1000))
    def read_committed(self, share, max_bytes):
        start = self.log_start_offset + int(share * (len(self.model) - self.log_start_offset))
        found = [(record.offset, record.value) for record in committed(self.partition, start, max_bytes)]
        good = self.good_offsets(self.partition.last_stable_offset)
        assert found == [(offset, self.model[offset].value) for offset in good if offset >= start]

    @invariant()
    def ends_agree(self):
        partition = self.partition
        assert partition.log_start_offset == self.log_start_offset
        assert partition.high_watermark == partition.log_end_offset == len(self.model)
        stable = min([len(self.model), *self.begun().values()])
        assert partition.last_stable_offset == max(stable, self.log_start_offset)

    @precondition(lambda self: not self.staged)
    @invariant()
    def a_walk_through_the_log_says_the_same(self):
        check_transactions(self.partition)


TestTransactions = TransactionMachine.TestCase
TestTransactions.settings = settings(
    max_examples=examples(40),
    stateful_step_count=40,
    deadline=None,
    derandomize=True,
    suppress_health_check=list(HealthCheck),
)
