"""Runs kafka-python's integration tests and holds their outcome against `known_failures.toml`, both ways.

The list is strict: a failure that is not on it fails, and so does a test on it that passes.
kafka-python is as it comes, but for one race that `stand_ins/subscriptions_kept.py` mends and describes.
"""

from __future__ import annotations

import os
import pathlib
import subprocess
import sys
import tomllib
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator
from dataclasses import dataclass

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

SETTINGS = {
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "1000",  # some of its sessions are 3 s; by default 6 s are the least
    "num.partitions": "4",  # as its own fixtures set up a broker
}
AUTHORIZER = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "allow.everyone.if.no.acl.found": "true",
}
"""Apache Kafka gets the authorizer that the suite's own fixtures configure; here ACLs are a later issue's."""


@pytest.fixture
def broker(request: pytest.FixtureRequest) -> Iterator[TestBroker]:
    """A broker set up as these tests expect: short sessions, its advertised address written out."""
    if request.config.getoption("--broker") == "kafka":
        with reference.Kafka(properties=SETTINGS | AUTHORIZER) as kafka:
            yield ApacheBroker(kafka)
        return
    from odradek.server.embedded import Broker

    port = reference.free_port()
    advertised = {"advertised.listeners": f"PLAINTEXT://127.0.0.1:{port}"}
    with Broker(process=True, port=port, options={**SETTINGS, **advertised}) as odradek:
        yield OdradekBroker(odradek)


def listed(kind: str) -> dict[str, str]:
    """Test id -> reason, of one kind of `known_failures.toml`."""
    entries = tomllib.loads((HERE / "known_failures.toml").read_text()).get(kind, [])
    return {entry["test"]: entry["reason"] for entry in entries}


def known_failures(broker: TestBroker) -> dict[str, str]:
    """Test id -> reason; against Apache Kafka only what it fails too."""
    if not getattr(broker, "is_odradek", False):
        return listed("kafka_fails_too")
    return listed("kafka_fails_too") | listed("later_issue")


@dataclass
class Outcome:
    passed: bool
    failed: bool
    why: str
    """What pytest reported of a failure."""


def run(broker: TestBroker, report: pathlib.Path, *selection: str) -> dict[str, Outcome]:
    """Runs these of kafka-python's tests against the broker; test id -> outcome."""
    source = environment.source("kafka-python")
    environ = {
        **os.environ,
        "KAFKA_URI": f"kafka://{broker.bootstrap}",
        "KAFKA_VERSION": CLAIMED_VERSION,
        "KAFKA_ROOT": str(report.parent),  # it only looks whether that is there
        "PYTHONPATH": f"{HERE / 'stand_ins'}{os.pathsep}{source}",
    }
    command = [sys.executable, "-m", "pytest", "-q", *selection, "--timeout=60", "--tb=short"]
    command += [
        "-p",
        "subscriptions_kept",
        "-p",
        "no:cacheprovider",
        f"--junitxml={report}",
        "-o",
        "addopts=",
    ]
    finished = subprocess.run(command, cwd=source, env=environ, capture_output=True, text=True)
    assert report.exists(), finished.stdout[-3000:] + finished.stderr[-3000:]
    return outcomes(report)


def outcomes(report: pathlib.Path) -> dict[str, Outcome]:
    found = {}
    for case in ElementTree.parse(report).iter("testcase"):
        problems = [child for child in case if child.tag in ("failure", "error")]
        skipped = any(child.tag == "skipped" for child in case)
        why = "\n".join(f"{problem.get('message', '')}\n{problem.text}" for problem in problems)
        name = f"{case.get('classname', '').rpartition('.')[2]}::{case.get('name')}"
        found[name] = Outcome(passed=not problems and not skipped, failed=bool(problems), why=why)
    return found


@pytest.mark.timeout(600)
def test_kafka_pythons_own_tests_pass_but_for_the_known_ones(
    broker: TestBroker, tmp_path: pathlib.Path
) -> None:
    found, known = run(broker, tmp_path / "report.xml", "test/integration", *NOT_OURS), known_failures(broker)
    assert len(found) > 40, "kafka-python's tests were not collected"
    unexpected = {test for test, outcome in found.items() if outcome.failed} - known.keys()
    reasons = "\n\n".join(f"{test}\n{found[test].why[-4000:]}" for test in sorted(unexpected))
    assert not unexpected, f"{sorted(unexpected)}\n{reasons}"
    passed = {test for test in known if test in found and found[test].passed}
    assert not passed, f"these pass now: take them off the list: {sorted(passed)}"
    assert known.keys() <= found.keys(), f"no such tests: {sorted(known.keys() - found.keys())}"
