"""Jobs whose driver is killed, as the command line starts them; afterwards topic and table are the same."""

from __future__ import annotations

import functools
import json
import os
import pathlib
import random
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING

import pytest

from compat_tests.clients import wait_until
from compat_tests.spark import sessions, test_job_archive_iceberg
from compat_tests.spark.admin import TopicAdmin
from compat_tests.spark.driver import START_SECONDS
from compat_tests.spark.realistic_topic import RealisticTopic, realistic_topic, some_messages
from compat_tests.spark.test_job_archive import archived, parquet_files, rows_of
from compat_tests.spark.test_job_latest import brought_up, changes, expected, in_table
from compat_tests.spark.test_job_mirror import check_runs, mirrored, truth
from compat_tests.spark.test_job_replay import replayed, same
from compat_tests.spark.topics import KafkaTables
from odradek.client.cluster import LATEST
from odradek.spark.jobs.topics import Topics
from tests.tiers import NIGHTLY

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

KILLS = 10 if NIGHTLY else 1
SHOWN_LENGTH = 4_000
"""Characters of what a driver told, its last ones."""
BUCKETS = 4


class Command:
    """`odradek spark ...` with a driver of its own, which can be killed with its JVM."""

    def __init__(self, log: pathlib.Path, *arguments: str, more: Mapping[str, str] | None = None) -> None:
        settings = {
            "spark.driver.memory": "1g",
            "spark.local.dir": str(log.parent / "local"),
            sessions.JAVA_OPTIONS: " ".join((sessions.QUICK_COMPILER, *sessions.fast_start())),
            **(more or {}),
        }
        confs = [f"--conf={name}={value}" for name, value in settings.items()]
        self._log = log.open("w")
        self.process = subprocess.Popen(
            [sys.executable, "-m", "odradek", "spark", *arguments, "--master", "local[2]", *confs],
            env={
                **os.environ,
                "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
                "SPARK_LOCAL_IP": "127.0.0.1",
            },
            stdout=self._log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )

    def wait_until(self, claim: Callable[[], bool], what: str) -> None:
        """Returns as soon as `claim` holds; fails with what was told when it does not, or when it ends."""

        def runs_and_holds() -> bool:
            assert self.process.poll() is None, "it has ended"
            return claim()

        try:
            wait_until(runs_and_holds, what, seconds=START_SECONDS)
        except AssertionError as failure:
            failure.add_note(self._told()[-SHOWN_LENGTH:])
            raise

    def _told(self) -> str:
        return pathlib.Path(self._log.name).read_text()

    def kill(self) -> None:
        assert self.process.poll() is None, self._told()
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        self._log.close()

    def end(self) -> str:
        """As a service manager ends a stream; gives what it told."""
        self.process.send_signal(signal.SIGTERM)
        status, told = self.wait()
        assert status == 0, told
        return told

    def wait(self) -> tuple[int, str]:
        """Its exit status, and what it told."""
        try:
            status = self.process.wait(START_SECONDS)
        finally:
            if self.process.poll() is None:
                self.kill()
        self._log.close()
        return status, self._told()


def has_files(table: pathlib.Path, number: int) -> bool:
    return len(parquet_files(table)) >= number


def test_an_archive_that_is_killed_at_any_moment_goes_on_exactly_there(
    spark: SparkSession, tables: KafkaTables, tmp_path: pathlib.Path
) -> None:
    topic, table = realistic_topic(tables, "killed"), tmp_path / "table"
    chance = random.Random()
    for number in range(KILLS):
        topic.add(some_messages(chance, 400, topic.partitions, number % 4))
        enough = len(parquet_files(table)) + chance.randrange(1, 20)
        command = Command(
            tmp_path / f"log-{number}",
            *("archive", "-b", tables.client.bootstrap, "--topic", topic.name),
            *("--table", str(table), "--stream", "--trigger", "0", "--max-offsets-per-trigger", "40"),
        )
        try:
            command.wait_until(functools.partial(has_files, table, enough), "it writes")
        finally:
            command.kill()
        rows_of(table)  # which looks for doubles
    stream = Command(
        tmp_path / "log",
        *("archive", "-b", tables.client.bootstrap, "--topic", topic.name),
        *("--table", str(table), "--stream", "--trigger", "0.1"),
    )
    try:
        stream.wait_until(lambda: rows_of(table) == topic.rows, "the table has it all")
    finally:
        told = stream.end()
    assert f" rows of topic {topic.name} went into {table}" in told


@pytest.mark.nightly  # by day there is that of the Parquet table
def test_an_archive_in_iceberg_that_is_killed_at_any_moment_goes_on_exactly_there(
    spark: SparkSession, tables: KafkaTables, tmp_path: pathlib.Path
) -> None:
    topic, table = realistic_topic(tables, "killed"), test_job_archive_iceberg.new_name("killed")
    chance = random.Random()
    metadata = test_job_archive_iceberg.folder_of(spark, table) / "metadata"
    settings = {
        **sessions.iceberg_catalog(pathlib.Path(spark.conf.get("spark.sql.catalog.lake.warehouse"))),
        "spark.jars": sessions.jars(f"spark-{spark.version}-iceberg"),
    }
    for number in range(KILLS):
        topic.add(some_messages(chance, 400, topic.partitions, number % 4))
        enough = versions(metadata) + chance.randrange(1, 7)
        command = Command(
            tmp_path / f"log-{number}",
            *("archive", "-b", tables.client.bootstrap, "--topic", topic.name),
            *("--table", table, "--table-format", "iceberg"),
            *("--stream", "--trigger", "0", "--max-offsets-per-trigger", "40"),
            more=settings,
        )
        try:
            command.wait_until(lambda: versions(metadata) >= enough, "it writes")  # noqa: B023
        finally:
            command.kill()
        test_job_archive_iceberg.rows_of(spark, table)  # which looks for doubles
    test_job_archive_iceberg.archived(spark, topic, table)
    assert test_job_archive_iceberg.rows_of(spark, table) == topic.rows


def versions(metadata: pathlib.Path) -> int:
    """Of the table, which is there from the first one on."""
    return len(list(metadata.glob("v*.metadata.json")))


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("arguments", "what", "jar"),
    [
        (["--table-format", "iceberg"], "table format iceberg", "org.apache.iceberg:iceberg-spark-runtime-"),
        (["--value", "avro", "--schema", '"string"'], "value avro", "org.apache.spark:spark-avro_2.13:"),
    ],
)
def test_without_its_jar_a_job_says_which_one_it_needs(
    spark: SparkSession,
    tables: KafkaTables,
    tmp_path: pathlib.Path,
    arguments: list[str],
    what: str,
    jar: str,
) -> None:
    command = Command(
        tmp_path / "log",
        *("archive", "-b", tables.client.bootstrap, "--topic", tables.new_topic("jars")),
        *("--table", str(tmp_path / "table"), *arguments),
    )
    status, told = command.wait()
    assert status == 1
    assert f"odradek: {what} needs a jar that this Spark does not have: start it with --conf " in told
    assert f"spark.jars.packages={jar}" in told


def test_a_table_of_latest_values_is_right_after_kills(
    spark: SparkSession, tables: KafkaTables, tmp_path: pathlib.Path
) -> None:
    topic, table = RealisticTopic(tables, tables.new_topic("killed", 2), 2), tmp_path / "table"
    chance = random.Random()
    events = tmp_path / "events"
    events.mkdir()
    settings = {"enabled": "true", "dir": events.as_uri(), "rolling.enabled": "false", "compress": "false"}
    for number in range(KILLS):
        topic.add(changes(chance, 400, topic.partitions))
        enough = chance.randrange(2, 12)
        command = Command(
            tmp_path / f"log-{number}",
            *("latest", "-b", tables.client.bootstrap, "--topic", topic.name),
            *("--table", str(table), "--buckets", str(BUCKETS)),
            *("--stream", "--trigger", "0", "--max-offsets-per-trigger", "20"),
            more={f"spark.eventLog.{name}": value for name, value in settings.items()},
        )
        commits = table / "_odradek" / "checkpoint" / "commits"
        try:
            command.wait_until(functools.partial(has_more, commits, number_of(commits) + enough), "it writes")
        finally:
            command.kill()
        in_table(table)  # which looks for doubles
    brought_up(spark, topic, table)
    assert in_table(table) == expected(topic)
    assert not (table / "_odradek" / "merging").exists()
    # An epoch of a few rows is not taken in by the 200 tasks that Spark has for any shuffle: those that read
    # the buckets as they were, and those of the changes.
    assert BUCKETS <= max(tasks_of_stages(events)) <= 2 * BUCKETS


def tasks_of_stages(events: pathlib.Path) -> Iterator[int]:
    """By the event logs of killed drivers, which may end within a line."""
    for path in events.iterdir():
        for line in path.read_text().splitlines(keepends=True):
            if line.startswith('{"Event":"SparkListenerStageCompleted"') and line.endswith("}\n"):
                yield json.loads(line)["Stage Info"]["Number of Tasks"]


def number_of(directory: pathlib.Path) -> int:
    return sum(path.name.isdigit() for path in directory.glob("*"))


def has_more(directory: pathlib.Path, number: int) -> bool:
    return number_of(directory) >= number


@pytest.mark.nightly  # by day there is the mirror, which writes in the same way
def test_a_replay_that_is_killed_at_any_moment_goes_on_exactly_there(
    spark: SparkSession, tables: KafkaTables, tmp_path: pathlib.Path
) -> None:
    topic, table = realistic_topic(tables, "killed"), tmp_path / "table"
    chance = random.Random()
    archived(spark, topic, table)
    to = tables.new_topic("target", topic.partitions)
    # So slow that it is not done when it is killed: a transaction of each partition every second.
    rate = str(max(2, topic.count // (20 * KILLS)))
    for number in range(KILLS):
        enough = end_of(to, tables) + chance.randrange(1, topic.count // (2 * KILLS))
        command = Command(
            tmp_path / f"log-{number}",
            *("replay", "-b", tables.client.bootstrap, "--topic", topic.name, "--to", to),
            *("--table", str(table), "--rows-per-second", rate),
        )
        try:
            command.wait_until(functools.partial(has_reached, to, tables, enough), "it writes")
        finally:
            command.kill()
    assert replayed(spark, topic, table, to).figures["rows"] > 0
    # A reader that sees what is aborted, too, may see rows of the transaction in which it was killed.
    assert same(spark, topic, to).ok


def test_a_mirror_that_is_killed_at_any_moment_goes_on_exactly_there(
    spark: SparkSession, tables: KafkaTables, target: str, tmp_path: pathlib.Path
) -> None:
    topic, table = realistic_topic(tables, "killed"), tmp_path / "table"
    source, chance = tables.client.bootstrap, random.Random()
    arguments = (
        *("mirror", "-b", source, "--topic", topic.name),
        *("--to", target, "--offsets", str(table), "--stream", "--trigger", "0"),
    )
    for number in range(KILLS):
        topic.add(some_messages(chance, 400, topic.partitions, number % 4))
        enough = copied(target, topic) + chance.randrange(1, 160)
        command = Command(tmp_path / f"log-{number}", *arguments, "--max-offsets-per-trigger", "40")
        try:
            command.wait_until(
                lambda enough=enough: copied(target, topic) >= enough,  # type: ignore[misc]
                "it writes",
            )
        finally:
            command.kill()
    mirrored(spark, topic, source, target, table)
    check_runs(table, topic.name, truth(source, target, topic.name, topic.partitions))


def copied(target: str, topic: RealisticTopic) -> int:
    """Sum of the ends of the copy; 0 where it is not there yet."""
    admin = TopicAdmin(target)
    return sum(admin.end_offsets(topic.name).values()) if admin.exists(topic.name) else 0


def end_of(topic: str, tables: KafkaTables) -> int:
    """Sum of the ends of its partitions."""
    with Topics(tables.client.bootstrap, (topic,)).cluster() as cluster:
        numbers = range(cluster.partitions_of([topic])[topic])
        return sum(cluster.list_offsets({(topic, number): LATEST for number in numbers}).values())


def has_reached(topic: str, tables: KafkaTables, end: int) -> bool:
    return end_of(topic, tables) >= end
