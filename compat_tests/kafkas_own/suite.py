"""Kafka's tests that want a cluster: which there are, and one of them run.

Each wants a cluster in its own JVM. `KafkasOwnTests.java` gives it one that is only addresses
(`OutsideCluster.java`). The brokers are those of `clusters.py`, new for each test: tests use the same names
of topics and groups, and stop their brokers.
"""

from __future__ import annotations

import pathlib
import zipfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import NamedTuple

from compat_tests import reference
from compat_tests.kafkas_own.clusters import running
from compat_tests.kit.java import compile_java
from compat_tests.kit.programs import JavaFailure, JavaProgram
from compat_tests.outcomes import Outcome
from tools import environment

HERE = pathlib.Path(__file__).parent
VERSION = reference.PREVIOUS
"""Kafka's release whose tests these are: those of 4.4.0 are not published."""
MARK = b"org/apache/kafka/common/test/api/ClusterTe"
"""Begins the names of the annotations of tests that want a cluster."""
ASK_CONTROLLERS = (
    "ApiVersionsRequestTest",
    "BootstrapControllersIntegrationTest",
    "DescribeFeaturesTest",
    "DescribeQuorumRequestTest",
    "StaticBrokerConfigTest",
    "TransactionsWithMaxInFlightOneTest",
)
"""Classes with tests that send requests to a controller."""
TEST_SECONDS = 300
"""One of them waits two minutes itself."""


class KafkasTest(NamedTuple):
    suite: str
    """Full name of its class."""
    method: str
    number: int
    """Which one of those with this name: each has a cluster of its own kind. Counts from 1."""
    wishes: dict[str, str]
    """Properties of the brokers; a name that begins with a colon is none (`KafkasOwnTests.java`)."""

    @property
    def name(self) -> str:
        """Its name in `not_passed.toml`."""
        return self.method if self.number == 1 else f"{self.method}/{self.number}"


def suites() -> list[str]:
    """The full name of each class in Kafka's jars that has such tests."""
    found = []
    for jar in environment.jars(f"kafka-{VERSION}-tests").glob("kafka*-test.jar"):
        with zipfile.ZipFile(jar) as archive:
            found += [
                name.removesuffix(".class").replace("/", ".")
                for name in archive.namelist()
                if name.endswith("Test.class") and MARK in archive.read(name)
            ]
    return sorted(found)


@contextmanager
def program() -> Iterator[JavaProgram]:
    jars = f"{environment.jars(f'kafka-{VERSION}-tests')}/*:{reference.class_path(VERSION)}"
    class_path = compile_java(jars, HERE / "KafkasOwnTests.java", HERE / "OutsideCluster.java")
    started = JavaProgram(class_path, "KafkasOwnTests", str(TEST_SECONDS))
    try:
        yield started
    finally:
        started.close()


def tests_of(started: JavaProgram, suite: str) -> list[KafkasTest]:
    found = []
    for line in started.ask("list", suite):
        method, number, *pairs = line.split("\t")
        wishes = dict(pair.split("=", 1) for pair in pairs)
        found.append(KafkasTest(suite, method, int(number), wishes))
    return found


def run_all(started: JavaProgram, tests: Iterable[KafkasTest], *, is_odradek: bool) -> dict[str, Outcome]:
    """Outcomes, by the names of the tests."""
    return {test.name: run(started, test, is_odradek=is_odradek) for test in tests}


def run(started: JavaProgram, test: KafkasTest, *, is_odradek: bool) -> Outcome:
    try:
        has_controller = test.suite.rpartition(".")[2] in ASK_CONTROLLERS
        with running(test.wishes, is_odradek=is_odradek, has_controller=has_controller) as brokers:
            addresses = (brokers.bootstrap, brokers.controllers)
            wishes = started.ask("run", test.suite, test.method, test.number, *addresses)
            while wishes:
                what, node_id = wishes[0].split(" ")
                {"stop": brokers.stop, "start": brokers.start}[what](int(node_id))
                wishes = started.ask("done")
    except JavaFailure as failure:
        return Outcome("failed", str(failure))
    return Outcome("passed", "")
