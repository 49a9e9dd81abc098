"""The states of share partitions on a disk that loses power at every operation.

Where each append is flushed (`flush.messages=1`) no answered write is lost. Where the operating system
flushes, the end of the log may be lost, as in Kafka; but of what had been flushed nothing is, also when
records before it are deleted.
"""

import random

import pytest

from odradek.coordinator.cluster.topics import SHARE_STATE_TOPIC
from odradek.coordinator.shares.state.coordinator import ShareCoordinator
from odradek.coordinator.shares.state.persister import SharePartitionKey
from odradek.coordinator.shares.state.settings import ShareStateSettings
from odradek.server.coordination.coordinator_log import PartitionLog
from odradek.storage.config import LogConfig
from odradek.storage.directories.store import CHECKPOINT_INTERVAL_MS, LogStore
from odradek.wire.errors import ErrorCode
from odradek.wire.share_batches import Batch
from odradek.wire.work import finish
from tests.coordinator.fakes import FakeClock
from tests.coordinator.shares.share_state_requests import asked, initialize, result_of, summarize, write
from tests.coordinator.shares.test_share_state_coordinator import NODE, TOPIC_ID, view
from tests.storage.memory_disk import MemoryDisk, PowerLost
from tests.tiers import seeds

STATE_TOPIC_ID = bytes(16)
KEYS = [SharePartitionKey(group, TOPIC_ID, index) for group in ("g", "h") for index in (0, 1)]
PRUNE_MS = 1_000
SETTINGS = ShareStateSettings(
    updates_per_snapshot=3,
    prune_interval_ms=PRUNE_MS,
    cold_snapshot_interval_ms=3 * PRUNE_MS,
    topic_num_partitions=1,
)
STEPS = 40


class PromptTurn:
    """Ends at once, and flushes in the same thread: so a history has the same operations each time."""

    def add(self, partition, done, until):
        partition.commit()
        if until.flushed:
            partition.flush()
        done(None)


class History:
    """Writes of random states, and what was answered."""

    def __init__(self, disk, seed, *, flushes):
        self.disk = disk
        self.chance = random.Random(seed)
        self.flushes = flushes
        self.answered = {}
        """Start offset of each state."""
        self.flushed = {}
        """The same, of the last time when all was flushed."""

    def open(self):
        self.clock = FakeClock()
        self.store = LogStore(self.disk, ["data"], new_id=lambda: "0" * 32)
        self.store.open(self.clock.now_ms)
        config = LogConfig(
            segment_bytes=1_000, index_interval_bytes=200, flush_messages=1 if self.flushes else 2**63 - 1
        )
        self.partition = self.store.create(SHARE_STATE_TOPIC, 0, STATE_TOPIC_ID, config)
        self.coordinator = ShareCoordinator(
            node_id=NODE,
            settings=SETTINGS,
            open_log=lambda index: PartitionLog(self.partition, PromptTurn(), self.clock.clock_ms, None),
            clock_ms=self.clock.clock_ms,
            call_later=self.clock.call_later,
        )
        self.coordinator.view_changed(view(TOPIC_ID))
        self.clock.run()

    def ask(self, kind, key, *values):
        answers = []
        self.coordinator.submit_state(asked(kind(key, *values), answers.append))
        self.clock.run()
        (answer,) = answers
        return result_of(answer)

    def run(self):
        self.open()
        for key in KEYS:
            assert self.ask(initialize, key, 0, 0).error_code == ErrorCode.NONE
            self.answered[key] = 0
        for _ in range(STEPS):
            step = self.chance.choices(
                (self.write, self.wait, self.flush, self.maintain), weights=(8, 3, 1, 1)
            )[0]
            step()

    def write(self):
        # The last one is left alone: only its snapshot is written again.
        key = self.chance.choice(KEYS[:-1])
        start = self.answered[key] + self.chance.randrange(1, 50)
        batches = [Batch(start + 10 * number, start + 10 * number + 9, 0, 1) for number in range(3)]
        assert self.ask(write, key, 0, 0, start, 0, batches).error_code == ErrorCode.NONE
        self.answered[key] = start

    def wait(self):
        self.clock.run(self.chance.randrange(PRUNE_MS))

    def flush(self):
        """As the operating system does from time to time."""
        before = dict(self.answered)
        self.partition.flush()
        self.flushed = before

    def maintain(self):
        """Checkpoints and retention, as the broker has them now and then."""
        self.clock.run(CHECKPOINT_INTERVAL_MS)
        finish(self.store.maintaining(self.clock.now_ms))

    def check(self, disk):
        self.disk = disk
        self.open()
        promised = self.answered if self.flushes else self.flushed
        for key, start in promised.items():
            found = self.ask(summarize, key)
            assert found.error_code == ErrorCode.NONE
            assert found.start_offset >= start, key
        if self.flushes and len(self.answered) == len(KEYS):
            # And it goes on.
            self.write()


def operations_of(seed, flushes):
    disk = MemoryDisk()
    history = History(disk, seed, flushes=flushes)
    history.run()
    assert history.partition.log_start_offset > 0, "nothing was deleted"
    return disk.operations


@pytest.mark.parametrize("flushes", [True, False])
@pytest.mark.parametrize("seed", seeds(6, fast=1))
def test_no_state_is_lost_when_power_is_lost_at_any_operation(seed, flushes):
    for operation in range(1, operations_of(seed, flushes) + 1):
        disk = MemoryDisk()
        disk.lose_power_at = operation
        history = History(disk, seed, flushes=flushes)
        with pytest.raises(PowerLost):
            history.run()
        history.check(disk.lose_power(seed * 100_003 + operation))
