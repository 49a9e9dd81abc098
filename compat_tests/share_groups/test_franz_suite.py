"""Runs the tests of share groups that franz-go has, which take the address of a broker. All that need one
must pass. Kafka's own are in `compat_tests/kafkas_own`."""

from __future__ import annotations

import os
import pathlib
import re
import subprocess

import pytest

from compat_tests.outcomes import Outcome, complaints
from tools import environment

pytestmark = pytest.mark.nightly

GO = pathlib.Path(__file__).parent.parent / "polyglot" / "go"
KGO = "github.com/twmb/franz-go/pkg/kgo"
RECORDS = 5000
"""Records in franz-go's chain of topics."""
NEED_NO_BROKER = {
    "TestAuditShareLeaveWaitsForInflightMigration",
    "TestAuditShareMetadataMigrationWaitsForLeave",
    "TestAuditShareMoveCollapseMarksCursorUnusable",
    "TestOptValuesTxnIDAndShare",
}


def test_franz_gos_own_tests(bootstrap: str) -> None:
    program = environment.go_tests(GO, KGO)

    def run(*arguments: str) -> str:
        variables = {
            "KGO_SEEDS": bootstrap,
            "KGO_TEST_RF": "1",
            "KGO_TEST_RECORDS": str(RECORDS),
            "KGO_LOG_LEVEL": "none",
        }
        command = [str(program), *arguments]
        finished = subprocess.run(command, env={**os.environ, **variables}, capture_output=True, text=True)
        return finished.stdout + finished.stderr

    there = set(run("-test.list", "Share").split())
    assert there >= NEED_NO_BROKER
    chosen = there - NEED_NO_BROKER
    told = run("-test.v", "-test.timeout=500s", "-test.run", f"^({'|'.join(sorted(chosen))})$")
    found = {
        name: Outcome({"PASS": "passed", "FAIL": "failed", "SKIP": "skipped"}[what], told)
        for what, name in re.findall(r"^--- (PASS|FAIL|SKIP): (\w+)", told, re.MULTILINE)
    }
    assert found.keys() == chosen, told[-4000:]
    wrong = [*complaints(found, "failed", {}), *complaints(found, "skipped", {})]
    assert not wrong, "\n\n".join(wrong)
