"""Damage in a follower's log is found by its checksum, and what is damaged is fetched again."""

from __future__ import annotations

import pathlib
import shutil
import subprocess
import sys

from compat_tests.cluster.bad_days import (
    lines_with,
    log_of,
    produce_all,
    values_at,
    wait_for_equal_logs,
    wait_for_isr,
)
from compat_tests.cluster.sharing import FOLLOWER, LEADER
from compat_tests.cluster.test_replication import create
from compat_tests.differential.harness import Side
from compat_tests.quorum import OdradekMember


def flip_a_byte(node: OdradekMember, topic: str) -> pathlib.Path:
    """In the middle of the only segment."""
    (path,) = (node.data_dir / f"{topic}-0").glob("*.log")
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    return path


def filled(topic: str, leader: OdradekMember, follower: OdradekMember) -> Side:
    create(leader.bootstrap_servers, topic, [LEADER, FOLLOWER], min_insync_replicas="1")
    wait_for_isr(leader.bootstrap_servers, topic, LEADER, FOLLOWER)
    side = Side("leader", leader.bootstrap_servers)
    produce_all(side, topic, *(b"%d" % number * 100 for number in range(20)))
    wait_for_equal_logs(topic, leader.data_dir, follower.data_dir)
    return side


def test_damage_in_what_was_not_flushed_is_found_by_the_start_after_a_kill(
    leader: OdradekMember, follower: OdradekMember
) -> None:
    topic = "unflushed"
    side = filled(topic, leader, follower)
    follower.kill()
    flip_a_byte(follower, topic)
    follower.start()
    assert len(lines_with(follower, f"{topic}-0: cut ", "bytes after the last sound batch")) == 1
    wait_for_isr(leader.bootstrap_servers, topic, LEADER, FOLLOWER)
    wait_for_equal_logs(topic, leader.data_dir, follower.data_dir)
    side.close()


def test_damage_in_what_was_flushed_is_found_by_a_check_and_the_replica_is_fetched_again(
    leader: OdradekMember, follower: OdradekMember
) -> None:
    """A start does not read what was flushed, as Kafka's does not."""
    topic = "flushed"
    side = filled(topic, leader, follower)
    follower.stop()
    path = flip_a_byte(follower, topic)
    command = [sys.executable, "-m", "odradek", "check", str(follower.data_dir)]
    checked = subprocess.run(command, capture_output=True, text=True)
    assert checked.returncode == 1, checked.stderr
    told = [line for line in checked.stdout.splitlines() if line.startswith("damage ")]
    assert len(told) == 1, checked.stdout
    assert f"{topic}-0/{path.name}" in told[0]
    assert "Remove this directory and .kafka_cleanshutdown beside it" in checked.stdout
    shutil.rmtree(path.parent)
    (follower.data_dir / ".kafka_cleanshutdown").unlink()
    follower.start()
    wait_for_isr(leader.bootstrap_servers, topic, LEADER, FOLLOWER)
    wait_for_equal_logs(topic, leader.data_dir, follower.data_dir)
    assert len(values_at(side, topic)) == 20
    assert log_of(follower.data_dir, topic)
    side.close()
