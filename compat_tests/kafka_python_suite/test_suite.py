"""Runs kafka-python's integration tests and holds their outcome against `known_failures.toml`, both ways.

The list is strict: a failure that is not on it fails, and so does a test on it that passes.
"""

from __future__ import annotations

import os
import pathlib
import subprocess
import sys
import tomllib
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator

import pytest

from compat_tests import reference
from compat_tests.brokers import ApacheBroker, OdradekBroker, TestBroker
from tools import environment

HERE = pathlib.Path(__file__).parent
CLAIMED_VERSION = "4.0"
"""What kafka-python takes the broker for; decides which of its tests apply."""

NOT_OURS = [
    "--ignore=test/integration/test_sasl_integration.py",
    "--ignore=test/integration/test_ssl_integration.py",
]
"""These start brokers of their own with listeners that this one refuses so far."""

SETTINGS = {"group.initial.rebalance.delay.ms": "0", "group.min.session.timeout.ms": "1000"}
"""Some of its tests use sessions of 3 s, below the default minimum of 6 s."""


@pytest.fixture
def broker(request: pytest.FixtureRequest) -> Iterator[TestBroker]:
    """A broker set up as these tests expect: short sessions, its advertised address written out."""
    if request.config.getoption("--broker") == "kafka":
        with reference.Kafka(properties=SETTINGS) as kafka:
            yield ApacheBroker(kafka)
        return
    from odradek.server.embedded import Broker

    port = reference.free_port()
    advertised = {"advertised.listeners": f"PLAINTEXT://127.0.0.1:{port}"}
    with Broker(process=True, port=port, options={**SETTINGS, **advertised}) as odradek:
        yield OdradekBroker(odradek)


def known_failures(broker: TestBroker) -> dict[str, str]:
    """Test id -> reason; against Apache Kafka only what it fails too."""
    listed = tomllib.loads((HERE / "known_failures.toml").read_text())
    kafka = {entry["test"]: entry["reason"] for entry in listed.get("kafka_fails_too", [])}
    if not getattr(broker, "is_odradek", False):
        return kafka
    return kafka | {entry["test"]: entry["reason"] for entry in listed.get("later_issue", [])}


def outcomes(report: pathlib.Path) -> dict[str, str]:
    """Test id -> passed, failed or skipped."""
    found = {}
    for case in ElementTree.parse(report).iter("testcase"):
        kinds = {child.tag for child in case}
        outcome = "failed" if kinds & {"failure", "error"} else "skipped" if "skipped" in kinds else "passed"
        found[f"{case.get('classname', '').rpartition('.')[2]}::{case.get('name')}"] = outcome
    return found


@pytest.mark.timeout(600)
def test_kafka_pythons_own_tests_pass_but_for_the_known_ones(
    broker: TestBroker, tmp_path: pathlib.Path
) -> None:
    source = environment.source("kafka-python")
    report = tmp_path / "report.xml"
    environ = {
        **os.environ,
        "KAFKA_URI": f"kafka://{broker.bootstrap}",
        "KAFKA_VERSION": CLAIMED_VERSION,
        "KAFKA_ROOT": str(tmp_path),  # it only looks whether that is there
        "PYTHONPATH": f"{HERE / 'stand_ins'}{os.pathsep}{source}",
    }
    command = [sys.executable, "-m", "pytest", "-q", "test/integration", *NOT_OURS, "--timeout=60"]
    command += ["-p", "no:cacheprovider", f"--junitxml={report}", "-o", "addopts="]
    finished = subprocess.run(command, cwd=source, env=environ, capture_output=True, text=True)
    assert report.exists(), finished.stdout[-3000:] + finished.stderr[-3000:]
    found, known = outcomes(report), known_failures(broker)
    failed = {test for test, outcome in found.items() if outcome == "failed"}
    assert len(found) > 40, "kafka-python's tests were not collected"
    assert not failed - known.keys(), f"{sorted(failed - known.keys())}\n{finished.stdout[-6000:]}"
    passed = {test for test in known if found.get(test) == "passed"}
    assert not passed, f"these pass now: take them off the list: {sorted(passed)}"
    assert known.keys() <= found.keys(), f"no such tests: {sorted(known.keys() - found.keys())}"
