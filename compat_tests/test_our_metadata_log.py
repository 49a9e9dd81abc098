"""Our metadata log on the disk, as Apache Kafka's dump tool reads it: log, snapshot, and the snapshot of a
formatted directory."""

from __future__ import annotations

import pathlib
import re

import pytest

from compat_tests.reference import kafka_tool
from odradek.server.metadata.meta_properties import METADATA_LOG as DIRECTORY
from odradek.server.metadata.metadata_log import DiskMetadataLog, ThisVoter
from odradek.storage.disk import OsDisk
from tests.server.metadata_logs import LEVEL, level, setting, settings_records, write_bootstrap_snapshot

VOTER = ThisVoter(1, bytes(range(16)), (("CONTROLLER", "localhost", 9093),))


@pytest.fixture
def directory(tmp_path: pathlib.Path) -> pathlib.Path:
    """Two epochs, a transaction and a snapshot."""
    path = tmp_path / DIRECTORY
    write_bootstrap_snapshot(OsDisk(), str(path), VOTER.control_records(), [level()], LEVEL, 1000)
    log = DiskMetadataLog(OsDisk(), str(path), VOTER, now_ms=lambda: 2000)
    log.append([level(), setting("a", "1")], LEVEL)
    log.append([setting(f"s{number}", "1") for number in range(10_001)], LEVEL)
    log.write_snapshot(settings_records({"a": "1"}), LEVEL)
    log.close()
    log = DiskMetadataLog(OsDisk(), str(path), VOTER, now_ms=lambda: 3000)
    log.append([setting("b", "2")], LEVEL)
    log.close()
    return path


def dumped(path: pathlib.Path) -> list[str]:
    """Names of the records, in order; nothing else may be said of a batch than that it is valid."""
    finished = kafka_tool(
        "org.apache.kafka.tools.DumpLogSegments", "--cluster-metadata-decoder", "--files", str(path)
    )
    assert "rror" not in finished.stdout + finished.stderr, finished.stdout[-2000:] + finished.stderr
    assert "isvalid: false" not in finished.stdout
    names = []
    for line in finished.stdout.splitlines():
        if line.startswith("| offset"):
            content = line.partition("headerKeys: [] ")[2].removeprefix("payload: ")
            named = re.match(r'(?:\{"type":")?(\w+)', content)
            assert named is not None, line
            names.append(named[1])
    return names


def test_kafkas_tool_reads_log_and_snapshots(directory: pathlib.Path) -> None:
    first, second = sorted(directory.glob("*.log"))
    names = dumped(first)
    assert names[:6] == [
        "LeaderChange",
        "KRaftVersion",
        "KRaftVoters",
        "FEATURE_LEVEL_RECORD",
        "CONFIG_RECORD",
        "BEGIN_TRANSACTION_RECORD",
    ]
    assert names[6:] == ["CONFIG_RECORD"] * 10_001 + ["END_TRANSACTION_RECORD"]
    assert dumped(second) == ["LeaderChange", "CONFIG_RECORD"]
    bootstrap, snapshot = sorted(directory.glob("*.checkpoint"))
    assert bootstrap.name == "00000000000000000000-0000000000.checkpoint"
    control = ["SnapshotHeader", "KRaftVersion", "KRaftVoters"]
    assert dumped(bootstrap) == [*control, "FEATURE_LEVEL_RECORD", "SnapshotFooter"]
    assert dumped(snapshot) == [*control, "FEATURE_LEVEL_RECORD", "CONFIG_RECORD", "SnapshotFooter"]
