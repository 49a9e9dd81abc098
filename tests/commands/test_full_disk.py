"""A disk that is full: the person who writes reads that, and how much the brokers have."""

import re
import select
import signal
import subprocess
import sys

import pytest

LIMIT_BLOCKS = 4096
"""Largest file of the broker, in blocks of 512 bytes: the disk has no more room than this for a segment."""
PATIENCE_S = 60


@pytest.fixture
def full_broker(tmp_path):
    """A broker that cannot write more than 2 MB into a file; its process, and its address."""
    path = ":".join(one for one in sys.path if one)
    command = f'ulimit -f {LIMIT_BLOCKS}; exec "{sys.executable}" -m odradek serve --listen 127.0.0.1:0'
    process = subprocess.Popen(
        ["/bin/sh", "-c", command],
        env={"PYTHONPATH": path},
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert select.select([process.stdout], [], [], PATIENCE_S)[0], "no ready line"
    line = process.stdout.readline()
    yield process, re.search(r"ready on (\S+)", line)[1]
    process.kill()
    process.communicate()


def test_a_full_disk_is_told_as_full_with_what_is_written(run, full_broker, tmp_path):
    process, address = full_broker
    (tmp_path / "lines").write_text(("x" * 1023 + "\n") * 5000, encoding="ascii")
    run("topics", "create", "t", "-p", "1", "-b", address)
    ended = run(
        *("produce", "t", "--file", str(tmp_path / "lines"), "-b", address),
        *("--timeout", "1.5", "--batch-bytes", "100000"),
    )
    assert ended.status == 1
    told = ended.err.splitlines()
    refused = "was refused: KAFKA_STORAGE_ERROR (The disk of the broker is full)"
    assert told[0].startswith("odradek: writing to topic t, partition 0 " + refused)
    written = re.search(
        rf"{re.escape(refused)}; ([\d,]+) records of [\d,]+ are written for certain$", told[-1]
    )
    assert written, told
    count = int(written[1].replace(",", ""))
    assert 0 < count < 5000
    process.send_signal(signal.SIGTERM)
    log = process.communicate(timeout=PATIENCE_S)[1]
    assert re.search(r"ERROR The disk is full: writing \S+/t-0 failed: \[Errno 27\]", log), log
