"""Runs the tests of share groups that franz-go and Kafka itself have, and holds their outcome against
`suites_not_passed.toml`, both ways: what is not listed there must pass, and what is listed must fail so
(`unsteady` ones may).

franz-go's tests take the address of a broker. Those of Kafka's `ShareConsumerTest` want a cluster in their
own JVM; `KafkasOwnTests.java` gives them one that is only an address. They use the same names of topics and
groups, and stop their broker: each gets a new one.
"""

from __future__ import annotations

import itertools
import os
import pathlib
import re
import subprocess
import tomllib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import NamedTuple

import pytest

from compat_tests import reference
from compat_tests.kit.java import compile_java
from compat_tests.kit.programs import JavaFailure, JavaProgram
from compat_tests.kit.transaction_brokers import starting
from compat_tests.outcomes import Outcome, complaints
from tools import environment

pytestmark = pytest.mark.nightly

HERE = pathlib.Path(__file__).parent

KGO = "github.com/twmb/franz-go/pkg/kgo"
RECORDS = 5000
"""Of franz-go's chain of topics."""

SHARE_CONSUMER_TEST = "org.apache.kafka.clients.consumer.ShareConsumerTest"
AT_ONCE = 3
"""So many of Kafka's tests: they wait most of the time."""
TEST_SECONDS = 300
"""One of them waits two minutes itself."""

NOT_PASSED: dict[str, list[dict[str, str]]] = tomllib.loads((HERE / "suites_not_passed.toml").read_text())


def listed(kind: str, suite: str) -> dict[str, str]:
    """Test -> what its failure says, or why it is not run."""
    return {
        entry["test"]: entry.get("says", entry["reason"])
        for entry in NOT_PASSED[kind]
        if entry["suite"] == suite
    }


def assert_only_listed(suite: str, found: dict[str, Outcome]) -> None:
    unsteady = listed("unsteady", suite)
    assert unsteady.keys() <= found.keys()
    steady = {
        test: outcome
        for test, outcome in found.items()
        if test not in unsteady or outcome.what != "failed" or unsteady[test] not in outcome.why
    }
    wrong = complaints(steady, "failed", listed("kafka_fails_too", suite))
    wrong += complaints(found, "skipped", {})
    assert not wrong, "\n\n".join(wrong)


# -- franz-go


def test_franz_gos_own_tests(bootstrap: str) -> None:
    program = environment.go_tests(HERE.parent / "polyglot" / "go", KGO)

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
    not_run = listed("not_run", "franz-go").keys()
    assert not_run <= there
    told = run("-test.v", "-test.timeout=500s", "-test.run", f"^({'|'.join(sorted(there - not_run))})$")
    found = {
        name: Outcome({"PASS": "passed", "FAIL": "failed", "SKIP": "skipped"}[what], told)
        for what, name in re.findall(r"^--- (PASS|FAIL|SKIP): (\w+)", told, re.MULTILINE)
    }
    assert found.keys() == there - not_run, told[-4000:]
    assert_only_listed("franz-go", found)


# -- Kafka's own


class KafkasTest(NamedTuple):
    name: str
    """With a number where a test runs with several settings."""
    method: str
    brokers: int
    settings: dict[str, str]


@contextmanager
def kafkas_tests() -> Iterator[JavaProgram]:
    version = reference.PREVIOUS
    jars = f"{environment.jars(f'kafka-{version}-tests')}/*:{reference.class_path(version)}"
    class_path = compile_java(jars, HERE / "KafkasOwnTests.java")
    program = JavaProgram(class_path, "KafkasOwnTests", SHARE_CONSUMER_TEST, str(TEST_SECONDS))
    try:
        yield program
    finally:
        program.close()


def list_tests(program: JavaProgram) -> list[KafkasTest]:
    lines = sorted(line.split("\t") for line in program.ask("list"))
    tests = []
    for method, same in itertools.groupby(lines, lambda line: line[0]):
        for number, (_, brokers, *pairs) in enumerate(same, 1):
            settings = dict(pair.split("=", 1) for pair in pairs)
            name = method if number == 1 else f"{method}/{number}"
            tests.append(KafkasTest(name, method, int(brokers), settings))
    return tests


def run_test(program: JavaProgram, test: KafkasTest, *, is_odradek: bool) -> Outcome:
    with starting(is_odradek=is_odradek) as start:
        broker = start(test.settings)
        try:
            wishes = program.ask("run", test.method, broker.bootstrap)
            while wishes:
                {"stop": broker.stop, "start": broker.start}[wishes[0]]()
                wishes = program.ask("done")
        except JavaFailure as failure:
            return Outcome("failed", str(failure))
    return Outcome("passed", "")


def test_kafkas_own_tests_of_share_consumers(is_odradek: bool) -> None:
    with kafkas_tests() as program:
        there = list_tests(program)
    clusters = {test.name for test in there if test.brokers > 1}
    assert clusters == listed("not_run", "kafka").keys()
    alone = [test for test in there if test.name not in clusters]

    def run_some(tests: list[KafkasTest]) -> dict[str, Outcome]:
        with kafkas_tests() as program:
            return {test.name: run_test(program, test, is_odradek=is_odradek) for test in tests}

    found: dict[str, Outcome] = {}
    with ThreadPoolExecutor(AT_ONCE) as pool:
        for some in pool.map(run_some, [alone[first::AT_ONCE] for first in range(AT_ONCE)]):
            found |= some
    assert_only_listed("kafka", found)
