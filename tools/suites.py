"""Runs suites one after the other, prints the seconds of each, and fails if one failed.

    python -m tools.suites compat reference ...
    python -m tools.suites --tier test

Runs inside the test environment. A suite that fails does not keep the next ones from running. A tier is a
list of suites with a budget. A tier that takes half as long again fails: otherwise the wait grows until
nobody waits. Machines differ, and one machine from hour to hour: the same short work before and after each
suite measures that.

No test has a second try: one that fails by chance is a fault of its own, or of what it tests.
"""

from __future__ import annotations

import argparse
import math
import os
import pathlib
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from xml.etree import ElementTree

from tests.tiers import NIGHTLY, PURE, TEST_SECONDS_MAX
from tools import durations, environment

REPORTS = environment.CHECKOUT / "build" / "reports"
SHOWN_LINES = 25
"""Last lines of a failure that is told again at the end."""
FILES_SHOWN = 12
"""Slowest files of a suite."""
ERROR_FROM = 1.5
"""How far a tier may exceed its budget, as a factor, before that is an error."""
YARDSTICK = """
import time
began = time.perf_counter()
for number in range(5_000_000):
    number + 1
print(time.perf_counter() - began)
"""
YARDSTICK_SECONDS = 0.45
"""The least that it took on each of two processors at once, where the budgets were set: 0.45 to 0.65 s."""
MEMORY = pathlib.Path("/dev/shm")
FREE_BYTES_MIN = 4 << 30
"""A suite writes a fraction of that."""
ORDER_SEED = "ODRADEK_ORDER_SEED"
"""Names the variable with a number: tests then run in a random order, the same for the same number."""


@dataclass
class Suite:
    """Commands that are run in order, and what they need that takes long to make."""

    commands: list[list[str]]
    beside: list[list[str]] = field(default_factory=list)
    """Commands that run while the others do; what they print comes at the end."""
    jars: list[str] = field(default_factory=list)
    before: list[list[str]] = field(default_factory=list)
    """Commands of the set-up, after the environment and the jars are there."""
    source: str | None = None
    python: str = "test"
    """The virtual environment whose python replaces the word `python` at the head of a command."""
    starts_java: bool = False
    """Whether it needs a JDK and Maven. It is left out where they are missing, but never by CI."""
    on_disk: bool = False
    """Whether the directory of its temporary files is on a disk by day, too."""
    ours_alone: bool = False
    """Whether it is about our code alone: no test of `smoke` is in it."""


@dataclass
class Tier:
    """Suites that a person runs together, and the seconds that they may take on two quiet cores."""

    suites: list[str]
    seconds_max: float = math.inf
    """For the tests."""
    set_up_seconds_max: float = math.inf
    """For environments, jars and archives, which are made once."""
    after: str = ""
    """The tier that has run before: its tests of programs of others are not run again."""


@dataclass
class Outcome:
    """The result of a suite."""

    passed: bool
    set_up: float = 0.0
    """Seconds."""
    tests: float = 0.0
    """Seconds."""
    skipped: bool = False

    @property
    def word(self) -> str:
        if not self.passed:
            return "FAILED"
        if self.skipped:
            return "skipped"
        return "passed"


def pytest(*arguments: str) -> list[str]:
    return ["python", "-m", "pytest", "-q", "--durations=5", *arguments]


SPREAD = ["-n", "auto", "--maxprocesses=4", "--dist", "worksteal"]
"""Tests that stand alone, on all processors; more than four would only wait for one another's brokers."""

CLIENTS = [
    "compat_tests",
    *(
        f"--ignore=compat_tests/{d}"
        for d in (
            *("dist", "spark", "soak", "differential", "kafka_python_suite", "polyglot", "streams"),
            *("transactions", "groups", "benchmarks", "cluster", "security", "monitoring"),
            *("zookeeper", "share_groups", "test_kit", "console", "kafkas_own"),
        )
    ),
]
TESTS = environment.CHECKOUT / "tests"
KIT_ROUNDS = 20
KIT = [
    *sorted(str(path.relative_to(environment.CHECKOUT)) for path in TESTS.glob("server/test_kit_*.py")),
    *(f"tests/embedding/test_pytest_{name}.py" for name in ("plugin", "workers")),
    "tests/embedding/test_testing_stories.py",
]
"""The test kit's own tests, and those of its fixtures."""
CLIENT_JARS = [
    f"kafka-{version}" for version in ("4.4.0", "3.9.2", "0.10.2.2", "0.10.0.1", "0.9.0.1", "0.8.2.2")
]

SHARE_CLIENTS = [f"kafka-clients-{version}" for version in ("4.1.2", *(["4.2.1", "4.3.1"] * NIGHTLY))]
"""The clients with share consumers, beside that of the broker's own version."""

GROUPS_OF_CLIENTS = [
    f"compat_tests/groups/test_{name}.py" for name in ("members", "migration", "phases", "static_members")
]
"""The tests of groups that know one broker; the others have both anyway."""

ODRADEK_FORMATS = sorted(
    str(path.relative_to(environment.CHECKOUT))
    for path in (environment.CHECKOUT / "compat_tests/spark").glob("test_odradek_*.py")
    # The one reads back with Spark's connector, the other is of spark-submit.
    if path.name not in ("test_odradek_sink.py", "test_odradek_submit.py")
)
"""The tests of our formats for Spark that need no jars of its connector."""

ODRADEK_ON_KAFKA = [
    f"compat_tests/spark/test_odradek_{name}.py" for name in ("both_ways", "sink", "source", "stream")
]
"""The tests of our formats for Spark that need a broker and no more: any will do."""

ALONE_AT_NIGHT = [f"compat_tests/security/test_{name}.py" for name in ("hostile_clients", "quota_rates")]
"""There ten thousand attack, and rates and the waits of others are measured: other tests beside them would
count as well.
"""

SPARK_CONNECTOR = [
    f"compat_tests/spark/test_{name}.py"
    for name in (
        *("batch", "cluster", "data_loss", "options", "read_committed"),
        *("restarts", "sink", "streaming", "subscriptions", "triggers"),
    )
]
"""The tests of Spark's own connector to Kafka, which older versions of Spark have as well."""

SPARK_FROM_4_2 = [
    f"compat_tests/spark/test_{name}.py" for name in ("batch", "options", "sink", "streaming", "triggers")
]
"""Those of the connector that say whether it works with a release of Spark."""

EPOCHS_WITHOUT_ROWS = "compat_tests/spark/test_job_latest.py::test_epochs_without_a_key_are_counted"
"""A test of the jobs: releases of Spark have differed there."""

ONE_BATCH_AND_ONE_STREAM = [
    f"compat_tests/spark/test_odradek_both_ways.py::test_a_{what}"
    for what in ("table_goes_from_topic_to_topic_as_it_is", "stream_goes_from_topic_to_topic_once")
]

SPARK_JOBS = sorted(
    str(path.relative_to(environment.CHECKOUT))
    for path in (environment.CHECKOUT / "compat_tests/spark").glob("test_job_*.py")
    # One kills each job ten times, which is not about the broker; one has no broker at all.
    if path.name not in ("test_job_kills.py", "test_job_files.py")
)
"""The tests of our jobs for Spark, which work with any broker."""

SPARK_STARTS_FAST = ["python", "-m", "compat_tests.spark.sessions"]
"""Takes a minute, once for each version: less than the sessions of the tests save."""

SPARK_JARS = ["spark-4.0.0", "spark-4.0.0-formats", "spark-4.0.0-iceberg"]
"""Jars of the session of the tests."""


def folders(*, pure: bool) -> list[str]:
    """The folders of tests/ that are of the pure layers, with the files beside them, or all others but the
    console's, which has a suite."""
    names = sorted(path.parent.name for path in TESTS.glob("*/test_*.py") if path.parent.name != "console")
    found = [f"tests/{name}" for name in dict.fromkeys(names) if (name in PURE) == pure]
    return [*found, *(f"tests/{path.name}" for path in sorted(TESTS.glob("test_*.py")) if pure)]


SMOKE = "pytest.mark.smoke"
CLIENTS_IN_PYTHON = [f"compat_tests/test_{name}.py" for name in ("aiokafka", "confluent", "kafka_python")]


def smoke(*, of_spark: bool) -> list[str]:
    """The files with tests of the smoke suites that start programs in Java: with Spark, or all others."""
    root = environment.CHECKOUT
    files = [
        str(path.relative_to(root))
        for path in sorted((root / "compat_tests").rglob("test_*.py"))
        if SMOKE in path.read_text() and ("spark" in path.relative_to(root).parts) == of_spark
    ]
    return [file for file in files if file not in CLIENTS_IN_PYTHON]


LINTERS = [
    ["python", "-m", "ruff", "check", "."],
    ["python", "-m", "ruff", "format", "--check", "."],
]
TYPES = ["python", "-m", "mypy"]
"""Without its daemon: that saves half a second, and it crashed when an environment had changed below it."""
MESSAGE = ["python", "-m", "tools.commit_message"]

SUITES = {
    # What somebody waits for before each commit.
    "check": Suite(
        [*LINTERS, MESSAGE, pytest(*SPREAD, "-m", "not deep", *folders(pure=True))],
        beside=[TYPES],
        ours_alone=True,
    ),
    "node": Suite([pytest(*SPREAD, "-m", "not deep", *folders(pure=False))], ours_alone=True),
    "smoke": Suite([pytest("-n", "2", "--dist", "loadfile", *CLIENTS_IN_PYTHON)]),
    "smoke-kafka": Suite(
        [pytest("-n", "2", "--dist", "loadfile", "-m", "smoke", *smoke(of_spark=False))],
        jars=["kafka-4.4.0"],
        starts_java=True,
    ),
    "smoke-spark": Suite(
        [pytest("-m", "smoke", *smoke(of_spark=True))],
        jars=["spark-4.0.0"],
        python="spark",
        starts_java=True,
    ),
    # Not in `check`: tracing more than doubles the processor time of the tests.
    "coverage": Suite(
        [
            pytest(*SPREAD, "-m", "not deep", "--cov", "--cov-report=html:build/reports/coverage", "tests"),
            ["python", "-m", "coverage", "report", "--format=total"],
        ],
        ours_alone=True,
    ),
    "log": Suite([pytest(*SPREAD, "-m", "deep", "tests")], ours_alone=True),
    # On a disk: environments are links to what an installer has on one. One process builds what the tests of
    # three files share, beside it is `make serve`.
    "dist": Suite([pytest("-n", "2", "--dist", "loadgroup", "compat_tests/dist")], on_disk=True),
    # Three files at once, as in `reference`: half of the time is waiting, and tests of a file share a broker.
    "compat": Suite([pytest("-n", "3", "--dist", "loadfile", *CLIENTS)], jars=CLIENT_JARS),
    "compat-on-kafka": Suite(
        [pytest("-n", "2", "--dist", "loadfile", *CLIENTS, "--broker=kafka")], jars=CLIENT_JARS
    ),
    "commands-on-kafka-3.9": Suite(
        [pytest("compat_tests/commands", "--broker=kafka", "--kafka-version=3.9.2")], jars=CLIENT_JARS
    ),
    "reference": Suite(
        # Three processes: half of the time is waiting. Four wait for the disk, and are slower. The tests of a
        # file share brokers.
        [pytest("-n", "3", "--dist", "loadfile", "compat_tests/differential")],
        jars=["kafka-4.4.0", "kafka-3.9.2"],
    ),
    "kafka-python": Suite([pytest("compat_tests/kafka_python_suite")], source="kafka-python"),
    "kafka-python-on-kafka": Suite(
        [pytest("compat_tests/kafka_python_suite", "--broker=kafka")],
        jars=["kafka-4.4.0"],
        source="kafka-python",
    ),
    "polyglot": Suite([pytest("compat_tests/polyglot")]),
    "streams": Suite([pytest("compat_tests/streams")], jars=["kafka-4.4.0", "kafka-3.9.2"]),
    "transactions": Suite(
        # Six at once, as most of the time is waiting for brokers and clients that were killed. Each test has
        # topics and names of its own, so they are dealt out one by one.
        [pytest("-n", "6", "--dist", "load", "--maxschedchunk=1", "compat_tests/transactions")],
        jars=["kafka-4.4.0", "kafka-3.9.2"],
    ),
    "transactions-on-kafka": Suite(
        [pytest("compat_tests/transactions", "--broker=kafka")], jars=["kafka-4.4.0", "kafka-3.9.2"]
    ),
    # Most of the time is waiting for sessions to end. `loadgroup`: what compares us with Kafka is marked, so
    # that only one process starts Kafkas for it.
    "groups": Suite(
        [pytest("-n", "5", "--dist", "loadgroup", "compat_tests/groups")], jars=["kafka-4.4.0", "kafka-3.9.2"]
    ),
    "groups-on-kafka": Suite(
        [pytest(*SPREAD, *GROUPS_OF_CLIENTS, "--broker=kafka")], jars=["kafka-4.4.0", "kafka-3.9.2"]
    ),
    # As in `groups`: much of the time is waiting for clients; `loadfile`, as a file's tests share programs.
    "share": Suite(
        [pytest("-n", "3", "--dist", "loadfile", "compat_tests/share_groups")],
        jars=["kafka-4.4.0", *SHARE_CLIENTS],
    ),
    # A broker or a cluster for each test, and a JVM for each class of them.
    "kafkas-own": Suite(
        [pytest("-n", "4", "--dist", "load", "--maxschedchunk=1", "compat_tests/kafkas_own")],
        jars=["kafka-4.4.0", "kafka-4.3.1", "kafka-4.3.1-tests"],
    ),
    "share-on-kafka": Suite(
        [
            pytest(
                *(
                    f"compat_tests/share_groups/test_{name}.py"
                    for name in ("admin", "consumers", "dead_letters", "franz")
                ),
                "--broker=kafka",
            )
        ],
        jars=["kafka-4.4.0", *SHARE_CLIENTS],
    ),
    # Under Kafka's own controllers; four at once, as much of the time is waiting for sessions to end. Which
    # files share a cluster, and the order, is in the folder's conftest.
    "cluster": Suite(
        [pytest("-n", "4", "--dist", "loadgroup", "--no-loadscope-reorder", "compat_tests/cluster")],
        jars=["kafka-4.4.0", "kafka-4.3.1"],
    ),
    "cluster-own": Suite(
        [
            pytest(
                *("-n", "3", "--dist", "loadgroup", "--no-loadscope-reorder", "compat_tests/cluster"),
                *("--controllers=odradek", "--kills=50"),
            )
        ],
        jars=["kafka-4.4.0", "kafka-4.3.1"],
    ),
    # Mostly waits for delays and sessions that the clients are to see.
    "security": Suite(
        [
            pytest(
                *("-n", "5", "--dist", "loadfile", "compat_tests/security"),
                *(f"--ignore={path}" for path in ALONE_AT_NIGHT if NIGHTLY),
            ),
            *([pytest(*ALONE_AT_NIGHT)] if NIGHTLY else []),
        ],
        jars=["kafka-4.4.0", "kafka-3.9.2"],
    ),
    # The oldest clients and tools; much of the time is waiting for them and for sessions to end.
    "zookeeper": Suite(
        [pytest("-n", "3", "--dist", "loadfile", "compat_tests/zookeeper")],
        jars=[
            f"kafka-{version}"
            for version in ("4.4.0", "3.9.2", "0.10.2.2", "0.8.2.2", *(["2.8.2", "0.9.0.1"] * NIGHTLY))
        ],
    ),
    # A process for each client library: most of the time is waiting for what does not come.
    "test-kit": Suite(
        [pytest("-n", "3", "--dist", "loadgroup", "compat_tests/test_kit")], jars=["kafka-4.4.0"]
    ),
    # People run tests with the kit many times a day, with more workers than processors: a failure by chance
    # has to be seen here.
    "kit-rounds": Suite([pytest("-n", "8", *KIT)] * KIT_ROUNDS, ours_alone=True),
    # Chromium shows pages of the console; files share a broker with 1,000 topics.
    "console": Suite(
        [
            pytest(*SPREAD, "-m", "not deep", "tests/console"),
            pytest("-n", "2", "--dist", "loadfile", "compat_tests/console"),
        ],
        python="console",
    ),
    # Prometheus reads brokers, then answers what boards and alerts ask.
    "monitoring": Suite([pytest("compat_tests/monitoring")]),
    "check-transactions": Suite(
        [
            pytest(
                *(f"compat_tests/transactions/test_{name}.py" for name in ("checker", "history")),
                "--history-seconds=60",
            )
        ],
        jars=["kafka-4.4.0"],
    ),
    "benchmarks": Suite([pytest("compat_tests/benchmarks")], jars=["kafka-4.4.0", *SPARK_JARS]),
    # Each file has brokers of its own, and waits most of the time.
    "soak": Suite([pytest("-n", "3", "--dist", "loadfile", "compat_tests/soak")]),
    "long-soak": Suite([pytest("compat_tests/soak", "--soak-seconds=600")]),
    "spark": Suite(
        # A file's tests share what was made for it; two sessions at once, as much of the time is waiting.
        [pytest("-n", "2", "--dist", "loadfile", "compat_tests/spark")],
        jars=[*SPARK_JARS, "kafka-4.4.0"],
        before=[SPARK_STARTS_FAST],
        python="spark",
    ),
    "spark-newest": Suite([pytest(*ODRADEK_FORMATS)], before=[SPARK_STARTS_FAST], python="spark-newest"),
    "spark-newest-briefly": Suite(
        [pytest(*ONE_BATCH_AND_ONE_STREAM)],
        before=[SPARK_STARTS_FAST],
        python="spark-newest",
        starts_java=True,
    ),
    **{
        f"spark-{release}": Suite(
            [pytest(*ODRADEK_FORMATS, *SPARK_FROM_4_2, EPOCHS_WITHOUT_ROWS)],
            jars=[f"spark-{version}"],
            before=[SPARK_STARTS_FAST],
            python=f"spark-{release}",
        )
        for release, version in (("4.2", "4.2.1"), ("4.3", "4.3.0"))
    },
    "spark-3.5": Suite(
        [pytest(*SPARK_CONNECTOR)],
        jars=["spark-3.5.7"],
        before=[SPARK_STARTS_FAST],
        python="spark-3.5",
    ),
    "spark-on-kafka": Suite(
        [
            pytest("-n", "2", "--dist", "loadfile", *paths, "--broker=kafka")
            for paths in (SPARK_CONNECTOR, [*ODRADEK_ON_KAFKA, *SPARK_JOBS])
        ],
        jars=[*SPARK_JARS, "kafka-4.4.0"],
        before=[SPARK_STARTS_FAST],
        python="spark",
    ),
}

DAY = [
    *("log", "dist", "compat", "console", "reference", "kafka-python", "transactions", "groups", "share"),
    *("cluster", "security", "zookeeper", "soak", "spark", "spark-newest-briefly"),
]
TIERS = {
    "check": Tier(["check"], seconds_max=90),
    "test": Tier(
        ["check", "node", "smoke", "smoke-kafka", "smoke-spark"], seconds_max=300, set_up_seconds_max=180
    ),
    # With `test`, which CI runs before it, 40 minutes.
    "ci": Tier(DAY, seconds_max=2100, after="test"),
    "nightly": Tier(
        [
            *("check", "node", "coverage", *DAY),
            *("cluster-own", "kafkas-own", "test-kit", "compat-on-kafka", "commands-on-kafka-3.9"),
            *("kafka-python-on-kafka", "transactions-on-kafka", "kit-rounds"),
            *("groups-on-kafka", "share-on-kafka", "polyglot", "streams", "monitoring", "benchmarks"),
            *("long-soak", "spark-3.5", "spark-4.2", "spark-4.3", "spark-newest", "spark-on-kafka"),
        ]
    ),
}


def scratch_parent(suite: Suite) -> str | None:
    """A directory in memory, where there is one with room: the tests of all layers wait for the disk for two
    fifths of their time. By night they are on a disk. None stands for the usual directory."""
    has_room = MEMORY.is_dir() and os.access(MEMORY, os.W_OK)
    if NIGHTLY or suite.on_disk or not has_room or shutil.disk_usage(MEMORY).free < FREE_BYTES_MIN:
        return None
    return str(MEMORY)


def run(suite: Suite, name: str) -> Outcome:
    """Runs the commands of a suite; their reports get this name."""
    with tempfile.TemporaryDirectory(prefix="odradek-", dir=scratch_parent(suite)) as scratch:
        return run_in(scratch, suite, name)


def run_in(scratch: str, suite: Suite, name: str) -> Outcome:
    """The same, with the directory of temporary files."""
    start = time.monotonic()
    python = environment.venv(suite.python) / "bin" / "python"
    for jars in suite.jars:
        environment.jars(jars)
    if suite.source:
        environment.source(suite.source)
    # Every broker and every worker of pytest would compile all of it anew.
    variables = {key: value for key, value in os.environ.items() if key != "PYTHONDONTWRITEBYTECODE"}
    variables["TMPDIR"] = scratch
    variables["PYTEST_TIMEOUT"] = str(TEST_SECONDS_MAX)
    where = {"cwd": environment.CHECKOUT, "env": variables}
    for command in suite.before:
        subprocess.run([str(python), *command[1:]], check=True, **where)
    ready = time.monotonic()
    outcome = Outcome(passed=True, set_up=ready - start)
    beside = [
        subprocess.Popen(
            [str(python), *command[1:]], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, **where
        )
        for command in suite.beside
    ]

    def status(command: list[str], report: str) -> int:
        print(f"== {name}: {' '.join(command)}", flush=True)
        reported = []
        if "pytest" in command:
            seconds = (REPORTS / report).with_suffix(".tsv")
            reported = [f"--junitxml={REPORTS / report}", "-p", "tools.durations", f"--seconds-to={seconds}"]
            if seed := os.environ.get(ORDER_SEED):
                reported += ["-p", "tools.random_order", f"--order-seed={seed}"]
        return subprocess.run([str(python), *command[1:], *reported], **where).returncode

    REPORTS.mkdir(parents=True, exist_ok=True)
    for report in reports(name, ""):
        report.unlink()
    for number, command in enumerate(suite.commands):
        found = status(command, f"{name}-{number}.xml")
        outcome.passed = outcome.passed and found == 0
    for command, process in zip(suite.beside, beside, strict=True):
        output, _ = process.communicate()
        print(f"== {name}: {' '.join(command)}\n{output}", end="", flush=True)
        outcome.passed = outcome.passed and process.returncode == 0
    outcome.tests = time.monotonic() - ready
    return outcome


def reports(name: str, suffix: str) -> list[pathlib.Path]:
    """Reports of a suite's last run, and not of a suite whose name begins with its name."""
    return sorted(REPORTS.glob(f"{name}-[0-9]*{suffix}"))


def failures(name: str) -> list[str]:
    """Each test of the suite's last run that failed, with the end of what it said: after an hour of output
    nobody finds it further up."""
    told = []
    for report in reports(name, ".xml"):
        for case in ElementTree.parse(report).iter("testcase"):
            for trouble in (*case.iterfind("failure"), *case.iterfind("error")):
                lines = (trouble.text or trouble.get("message") or "").splitlines()[-SHOWN_LINES:]
                told.append("\n".join([f"{case.get('classname')}::{case.get('name')}", *lines]))
    return told


def slowest(name: str) -> str:
    """Where the seconds of the last run went: the files whose tests took the most, workers added up."""
    seconds: Counter[str] = Counter()
    for report in reports(name, ".tsv"):
        for file, took in durations.seconds_of_files(report):
            seconds[pathlib.PurePath(file).stem] += took
    return ", ".join(
        f"{file.removeprefix('test_')} {took:.0f}" for file, took in seconds.most_common(FILES_SHOWN)
    )


def slowness() -> float:
    """How many times as long as on the machine of the budgets a piece of work takes now; at least 1."""
    command = [sys.executable, "-I", "-S", "-c", YARDSTICK]
    both = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    return max(1.0, sum(float(one.communicate()[0]) for one in both) / 2 / YARDSTICK_SECONDS)


def over_budget(tier: Tier, outcomes: Mapping[str, Outcome], factor: float = 1.0) -> tuple[list[str], bool]:
    """A line for each budget of the tier that its suites did not keep, and whether that is an error. A budget
    is for a machine whose `slowness`, the factor, is 1."""
    lines, is_error = [], False
    for what, took, limit in (
        ("tests", sum(one.tests for one in outcomes.values()), tier.seconds_max),
        ("set-up", sum(one.set_up for one in outcomes.values()), tier.set_up_seconds_max),
    ):
        if took > limit:
            is_too_long = took > limit * factor * ERROR_FROM
            is_error = is_error or is_too_long
            word = "error" if is_too_long else "warning"
            lines.append(f"{word}: the {what} of this tier took {took:.0f} s, {limit:g} s are allowed")
    if lines and factor > 1:
        lines.append(f"this machine was {factor:.2f} times as slow as the one for which that is meant")
    return lines, is_error


def without_smoke(suite: Suite) -> Suite:
    """The suite without the tests that `smoke` has."""
    if suite.ours_alone:
        return suite
    is_of_pytest = [command[1:3] == ["-m", "pytest"] for command in suite.commands]
    return replace(
        suite,
        commands=[
            [*command, "-m", "not smoke"] if of_pytest else command
            for command, of_pytest in zip(suite.commands, is_of_pytest, strict=True)
        ],
    )


def skipped_for(suite: Suite) -> list[str]:
    """The missing tools without which the suite is left out; CI has all or fails."""
    if os.environ.get("CI") or not (suite.starts_java or suite.jars):
        return []
    return environment.missing_for_java()


def prepare(chosen: Sequence[Suite]) -> float:
    """Makes the environments and the jars of the suites, side by side; the seconds that this took. A failure
    is told again, and counts, where a suite wants the piece.
    """
    start = time.monotonic()
    pieces = {f"venv:{suite.python}": None for suite in chosen}
    pieces |= {f"jars:{name}": None for suite in chosen for name in suite.jars}
    try:
        environment.prepare(list(pieces))
    except (subprocess.SubprocessError, environment.maven_jars.JarsMissing) as failure:
        print(f"a part of the set-up failed: {failure}", file=sys.stderr)
    return time.monotonic() - start


def run_all(names: Sequence[str], tier: Tier) -> int:
    """Runs the suites with these names and tells what came of them; the exit status."""
    chosen = {name: without_smoke(SUITES[name]) if tier.after else SUITES[name] for name in names}
    skips = {name: missing for name, suite in chosen.items() if (missing := skipped_for(suite))}
    outcomes = {
        "(set-up of all)": Outcome(True, prepare([chosen[name] for name in names if name not in skips]))
    }
    has_budget = math.isfinite(tier.seconds_max)
    factors = [slowness()] if has_budget else [1.0]
    for name, suite in chosen.items():
        if name in skips:
            outcomes[name] = Outcome(passed=True, skipped=True)
            continue
        try:
            outcomes[name] = run(suite, name)
        except (subprocess.SubprocessError, environment.maven_jars.JarsMissing) as failure:
            print(f"set-up of {name} failed: {failure}", file=sys.stderr)
            outcomes[name] = Outcome(passed=False)
        if has_budget:
            factors.append(slowness())
    told = [(name, text) for name in names for text in failures(name)]
    for name, text in told:
        print(f"\n-- {name}: {text}")
    # Last: the end of a long output is what everybody sees.
    print(f"\n{'suite':<24}{'outcome':<10}{'set-up':>9}{'tests':>9}")
    for name, outcome in outcomes.items():
        print(f"{name:<24}{outcome.word:<10}{outcome.set_up:>7.1f} s{outcome.tests:>7.1f} s")
    for name in names:
        if files := slowest(name):
            print(f"seconds of {name}: {files}")
    lines, is_too_long = over_budget(tier, outcomes, statistics.median(factors))
    for line in lines:
        print(line)
    for name, text in told:
        print(f"failed in {name}: {text.partition(chr(10))[0]}")
    if skips:
        missing = sorted({what for tools in skips.values() for what in tools})
        print(f"not run, because {' and '.join(missing)} is missing: {', '.join(skips)}")
    return 0 if all(outcome.passed for outcome in outcomes.values()) and not is_too_long else 1


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tools.suites", description="Run suites of tests.")
    parser.add_argument("--tier", choices=TIERS, help="all suites of this tier, and its budget")
    parser.add_argument("suites", nargs="*", metavar="SUITE", help=", ".join(SUITES))
    given = parser.parse_args(arguments)
    unknown = [name for name in given.suites if name not in SUITES]
    if unknown or bool(given.suites) == bool(given.tier):
        named = f"no such suite: {', '.join(unknown)}" if unknown else "name suites, or one tier"
        print(f"{named}; there are {', '.join(SUITES)}", file=sys.stderr)
        return 2
    tier = TIERS[given.tier] if given.tier else Tier(given.suites)
    return run_all(tier.suites, tier)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
