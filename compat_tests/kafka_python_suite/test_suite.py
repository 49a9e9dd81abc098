"""Runs kafka-python's integration tests and holds their outcome against `not_passed.toml`, both ways.

The list is strict: a failure or a skip that is not on it fails, and so does a test on it that passes.
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

import pytest

from compat_tests import reference
from compat_tests.brokers import ApacheBroker, OdradekBroker, TestBroker
from compat_tests.outcomes import Outcome, complaints
from tools import environment

HERE = pathlib.Path(__file__).parent
INTEGRATION = "test/integration"
CLAIMED_VERSION = "4.3"
"""What kafka-python takes the broker for; decides which of its tests apply."""
PASSED_MIN = 49
"""So many of kafka-python's tests pass, or it is not they that were run."""

SETTINGS = {
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "1000",  # some of its sessions are 3 s; by default 6 s are the least
    "num.partitions": "4",  # as its own fixtures set up a broker
}
AUTHORIZER = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "allow.everyone.if.no.acl.found": "true",
}
"""As the suite's own fixtures configure it."""


@pytest.fixture
def broker(request: pytest.FixtureRequest) -> Iterator[TestBroker]:
    """A broker set up as these tests expect: short sessions, its advertised address written out."""
    if request.config.getoption("--broker") == "kafka":
        with reference.Kafka(properties=SETTINGS | AUTHORIZER) as kafka:
            yield ApacheBroker(kafka)
        return
    from odradek.embedding.embedded import Broker

    port = reference.free_port()
    advertised = {"advertised.listeners": f"PLAINTEXT://127.0.0.1:{port}"}
    with Broker(process=True, port=port, options={**SETTINGS, **AUTHORIZER, **advertised}) as odradek:
        yield OdradekBroker(odradek)


NOT_PASSED: dict[str, list[dict[str, str]]] = tomllib.loads((HERE / "not_passed.toml").read_text())


def listed(*kinds: str) -> dict[str, str]:
    """Test id -> what its failure says or it is skipped for, of some kinds of `not_passed.toml`."""
    return {entry["test"]: entry["says"] for kind in kinds for entry in NOT_PASSED[kind]}


def known_failures() -> dict[str, str]:
    """Test id -> what its failure says: Apache Kafka fails it, too."""
    return listed("kafka_fails_too")


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
    found: dict[str, Outcome] = {}
    for case in ElementTree.parse(report).iter("testcase"):
        told = [child for child in case if child.tag in ("failure", "error", "skipped")]
        what = "skipped" if all(child.tag == "skipped" for child in told) else "failed"
        why = "\n".join(f"{child.get('message', '')}\n{child.text}" for child in told)
        name = f"{case.get('classname', '').rpartition('.')[2]}::{case.get('name')}"
        # A test whose end fails as well is there twice.
        if name not in found or found[name].what != "failed":
            found[name] = Outcome(what if told else "passed", why)
    return found


def test_every_file_is_run_or_on_the_list() -> None:
    source = environment.source("kafka-python")
    not_run = {entry["file"] for entry in NOT_PASSED["not_run"]}
    there = {str(path.relative_to(source)) for path in (source / INTEGRATION).rglob("test_*.py")}
    run = {f"{INTEGRATION}/test_{name}_integration.py" for name in ("admin", "consumer", "producer")}
    assert there == run | not_run


def test_kafka_pythons_own_tests_pass_but_for_the_known_ones(
    broker: TestBroker, tmp_path: pathlib.Path
) -> None:
    not_run = [f"--ignore={entry['file']}" for entry in NOT_PASSED["not_run"]]
    found = run(broker, tmp_path / "report.xml", INTEGRATION, *not_run)
    wrong = complaints(found, "failed", known_failures())
    wrong += complaints(found, "skipped", listed("skipped"))
    assert not wrong, "\n\n".join(wrong)
    passed = sum(outcome.what == "passed" for outcome in found.values())
    assert passed >= PASSED_MIN, f"only {passed} of kafka-python's tests passed"


@pytest.mark.parametrize(
    ("what", "why"), [("passed", ""), ("skipped", "no reason"), ("failed", "another error")]
)
def test_a_listed_failure_that_does_not_fail_so_and_an_unlisted_skip_are_told(what: str, why: str) -> None:
    found = {"a::listed": Outcome(what, why), "a::new": Outcome("skipped", "no broker")}
    assert len(complaints(found, "failed", {"a::listed": "the error"})) == 1
    assert any(told.startswith("a::new is skipped") for told in complaints(found, "skipped", {}))
    assert any(told.startswith("a::gone") for told in complaints(found, "skipped", {"a::gone": "why"}))
