"""The memory of the cleaner: its map of keys stays within `log.cleaner.dedupe.buffer.size`."""

import os
import subprocess
import sys

import pytest

from odradek.server.process.child_python import child_environment

MEMORY_BYTES = 24 << 20
PROGRAM = f"""
import os
from odradek.storage.compaction._cleaning import SLOT_BYTES, OffsetMap

def taken():
    return int(open("/proc/self/statm").read().split()[1]) * os.sysconf("SC_PAGE_SIZE")

slots = {MEMORY_BYTES} // SLOT_BYTES
before = taken()
held = OffsetMap(slots, bytes(range(16)))
for number in range(slots):
    held.put(b"%016d" % number, 2**40 + number)
print(len(held), taken() - before)
"""


@pytest.mark.skipif(not os.path.exists("/proc/self/statm"), reason="the system does not tell what is taken")
def test_a_full_map_stays_within_its_memory():
    # In a process that has freed nothing yet.
    command = [sys.executable, "-c", PROGRAM]
    told = subprocess.run(command, env=child_environment(), capture_output=True, text=True, check=True)
    count, taken_bytes = map(int, told.stdout.split())
    assert count == 1 << 20
    assert MEMORY_BYTES * 0.9 < taken_bytes < MEMORY_BYTES * 1.05
