"""Appending by the compiled way and by the plain one: same answers, same bytes in the log, same state."""

import importlib
import os
import subprocess
import sys
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from odradek.storage import _staging_python
from odradek.storage.config import LogConfig
from odradek.storage.store import LogStore
from odradek.wire.compression import Compression
from odradek.wire.errors import KafkaError
from odradek.wire.records import Record, build_batch
from tests.storage.memory_disk import MemoryDisk

try:
    _staging = importlib.import_module("odradek.storage._staging")
except ImportError:
    _staging = None

NOW_MS = 1_700_000_000_000
SIZES = (0, 1, 50, 70, 3000, 5000, 9000)
CODECS = ("producer", "uncompressed", "gzip", "zstd")
"""Of the topic: set while it is written to."""


def test_the_compiled_twin_was_built():
    if _staging is None and not os.environ.get("CI"):
        pytest.skip("odradek.storage._staging is not built here; CI builds it")
    assert _staging is not None


def batch(sizes, sequence, damage, compression):
    options = {} if sequence is None else {"producer_id": 5, "producer_epoch": 0, "base_sequence": sequence}
    records = [Record(i, NOW_MS + i, b"k", b"v" * size) for i, size in enumerate(sizes)]
    made = build_batch(records, compression=compression, **options)
    if damage is not None:
        made[damage % len(made)] ^= 0x11
    return bytes(made)


STEPS = st.lists(
    st.one_of(
        st.none(),  # a commit
        st.sampled_from(CODECS),
        st.builds(
            batch,
            st.lists(st.sampled_from(SIZES), min_size=1, max_size=3),
            st.one_of(st.none(), st.integers(0, 8)),
            st.one_of(st.none(), st.none(), st.none(), st.integers(0, 90)),
            st.sampled_from([Compression.NONE, Compression.GZIP]),
        ),
    ),
    max_size=30,
)


def play(steps, ordinary):
    """What every step answered, what the log holds, and what is known of the producer."""
    store = LogStore(MemoryDisk(), ["/data"])
    store.open(NOW_MS)
    config = LogConfig(segment_bytes=20_000, flush_messages=3)
    partition = store.create("t", 0, b"1" * 16, config, now_ms=NOW_MS)
    told = []
    for step in steps:
        if step is None:
            partition.commit()
            continue
        if isinstance(step, str):
            partition.set_config(replace(config, compression_type=step))
            continue
        try:
            appended = None
            if ordinary:
                padded = memoryview(b"xyz" + step + b"xyz")
                appended = partition.append_ordinary(padded, 3, 3 + len(step), NOW_MS)
            if appended is None:
                appended = partition.append(step, now_ms=NOW_MS)
            told.append([getattr(appended, name) for name in _staging_python.Appended.__slots__])
        except KafkaError as error:
            told.append((error.code, error.message))
    partition.commit()
    data = [
        (segment.base_offset, segment.read(0, segment.size_bytes), list(segment.offset_index.positions))
        for segment in partition.log.segments
    ]
    producers = {
        producer_id: (entry.producer_epoch, entry.last_timestamp, tuple(entry.batches))
        for producer_id, entry in partition.log.producers.producers.items()
    }
    return told, data, producers, partition.high_watermark


@settings(max_examples=150, deadline=None)
@given(steps=STEPS)
def test_the_short_way_and_the_long_one_leave_the_same_log(steps):
    assert play(steps, ordinary=True) == play(steps, ordinary=False)


PLAY_IN_PLAIN_PYTHON = """
import random, sys
if sys.argv[1] == "plain":
    sys.modules["odradek.storage._staging"] = None
from odradek.storage import staging
from odradek.wire.compression import Compression
from tests.storage.test_staging_twins import CODECS, SIZES, batch, play
chance = random.Random(7)
for _ in range(40):
    steps = [
        chance.choice([None, None, None, *CODECS]) if chance.random() < 0.4 else batch(
            chance.choices(SIZES, k=chance.randint(1, 3)),
            chance.choice([None, chance.randrange(8)]),
            chance.choice([None, None, None, chance.randrange(90)]),
            chance.choice([Compression.NONE, Compression.GZIP]),
        )
        for _ in range(30)
    ]
    print(play(steps, True))
print(staging.COMPILED, file=sys.stderr)
"""


def test_both_twins_leave_the_same_log():
    def run(which):
        done = subprocess.run(
            [sys.executable, "-c", PLAY_IN_PLAIN_PYTHON, which], capture_output=True, text=True, check=True
        )
        return done.stdout, done.stderr.strip()

    plain, compiled = run("plain"), run("compiled")
    assert plain[1] == "False"
    assert plain[0] == compiled[0]


def test_a_producer_entry_remembers_five_batches_and_restores_them():
    for twin in [_staging_python] if _staging is None else [_staging_python, _staging]:
        entry = twin.ProducerEntry(0, NOW_MS, ((0, 0, 0, 0, NOW_MS),))
        for number in range(1, 8):
            entry.remember(0, (number, number, number, number, NOW_MS))
        memory = entry.memory()
        assert [one[0] for one in entry.batches] == [3, 4, 5, 6, 7]
        entry.remember(1, (0, 2, 8, 10, NOW_MS + 1))
        assert (entry.producer_epoch, entry.last_sequence, entry.last_data_offset) == (1, 2, 10)
        assert len(entry.batches) == 1
        entry.restore(memory)
        assert (entry.producer_epoch, entry.last_timestamp, len(entry.batches)) == (0, NOW_MS, 5)
