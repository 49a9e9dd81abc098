"""spark-submit as the guide has it, to a cluster whose workers have nothing of ours but what was packed."""

from __future__ import annotations

import json
import os
import pathlib
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from compat_tests.clients import Message
from compat_tests.clients.kafka_python import KafkaPythonClient
from compat_tests.outside import clean_environment
from compat_tests.spark.cluster import Cluster
from compat_tests.spark.test_job_archive import rows_of
from compat_tests.stories import topic_name
from tools import build_dists, environment

pytestmark = [pytest.mark.nightly, pytest.mark.usefixtures("spark_is_there")]

GUIDE = environment.CHECKOUT / "docs" / "spark.md"
ADDRESS = "127.0.0.1:9092"
BROKER = "kafka:9092"
TABLE = "hdfs://head/orders"
COUNTS = {0: 20, 1: 10}
PATIENCE_S = 500

PROBE = """
def look(_):
    import os, sys
    import pyspark, pyspark_odradek
    modules = {"odradek": odradek.__file__, "format": pyspark_odradek.__file__, "pyspark": pyspark.__file__}
    yield {**modules, "directory": os.getcwd(), "path": [os.path.realpath(entry) for entry in sys.path]}

import json

seen = spark.sparkContext.parallelize([0], 1).mapPartitions(look).collect()
print("SEEN " + json.dumps({"driver": odradek.__file__, "executors": seen}))
"""
"""Comes behind the program of the guide: where the driver and the executors have their modules."""


@dataclass(frozen=True)
class Guide:
    """The section of the guide: its commands, each a block for a shell, and its program."""

    pack: str
    submit_program: str
    submit_job: str
    program: str

    @classmethod
    def read(cls) -> Guide:
        section = GUIDE.read_text().split("\n## On a cluster", 1)[1].split("\n## ")[0]
        block = re.compile(r"^```python\n(.*?)^```\n", re.MULTILINE | re.DOTALL)
        (program,) = block.findall(section)
        return cls(*re.findall(r"(?:^    .*\n?)+", block.sub("", section), re.MULTILINE), program)


@dataclass(frozen=True)
class Directory:
    """Where the commands of the guide are run, with a cluster."""

    path: pathlib.Path
    cluster: Cluster

    def submit(self, command: str, names: dict[str, str], **variables: str) -> str:
        import pyspark

        home = pathlib.Path(pyspark.__file__).parent
        small = "--executor-memory 600m --driver-memory 600m --conf spark.ui.enabled=false"
        own = {"spark-submit ": f"{home}/bin/spark-submit {small} ", "spark://head:7077": self.cluster.master}
        own |= names
        return run(command, own, self.path, SPARK_HOME=str(home), SPARK_LOCAL_IP="127.0.0.1", **variables)


def run(commands: str, names: dict[str, str], directory: pathlib.Path, **variables: str) -> str:
    """What they tell on stdout; `names` has what the guide calls otherwise."""
    for name, own in names.items():
        assert name in commands
        commands = commands.replace(name, own)
    done = subprocess.run(
        ["bash", "-ec", commands],
        cwd=directory,
        env=clean_environment(**variables),
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
    )
    assert done.returncode == 0, f"{commands}\n{done.stdout[-2000:]}\n{done.stderr[-6000:]}"
    return done.stdout


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Directory]:
    """With the archive and the environment of which it was made, into which a wheel of this checkout went."""
    path = tmp_path_factory.mktemp("submitting")
    wheel = build_dists.build(path).wheel
    names = {"python3 -m venv": f"{sys.executable} -m venv", " odradek ": f" {wheel} "}
    run(Guide.read().pack, names, path)
    with Cluster(path / "cluster", workers=1) as cluster:
        yield Directory(path, cluster)


@pytest.fixture
def topic(client: KafkaPythonClient) -> str:
    topic = topic_name("submitted")
    client.create_topic(topic, len(COUNTS))
    client.produce(
        topic, [Message(b"%d" % n, partition=part) for part, count in COUNTS.items() for n in range(count)]
    )
    return topic


def test_executors_have_what_was_packed_and_nothing_of_the_drivers(
    directory: Directory, client: KafkaPythonClient, topic: str
) -> None:
    guide = Guide.read()
    program = guide.program.replace(ADDRESS, client.bootstrap).replace('"orders"', repr(topic))
    (directory.path / "counts.py").write_text(f"{program}{PROBE}")
    # The driver has the checkout first.
    links = environment.CHECKOUT / "build" / "links"
    told = directory.submit(guide.submit_program, {}, PYTHONPATH=str(links))
    counts = re.findall(r"^\|\s*(\d+)\|\s*(\d+)\|$", told, re.MULTILINE)
    assert {int(partition): int(count) for partition, count in counts} == COUNTS
    (line,) = re.findall("^SEEN (.*)$", told, re.MULTILINE)
    seen = json.loads(line)
    assert seen["driver"] == str(links / "odradek" / "__init__.py")
    (executor,) = seen["executors"]
    assert pathlib.Path(executor["directory"]).is_relative_to(directory.cluster.work(0))
    inside = pathlib.Path(executor["directory"], "environment")
    for name in ("odradek", "format"):
        assert pathlib.Path(executor["directory"], executor[name]).resolve().is_relative_to(inside.resolve())
    assert "pyspark.zip" in executor["pyspark"]
    assert not [path for path in executor["path"] if path.startswith(f"{environment.CHECKOUT}{os.sep}")]


def test_a_job_is_submitted_as_a_file_of_the_package(
    directory: Directory, client: KafkaPythonClient, topic: str
) -> None:
    table = directory.path / "table"
    names = {BROKER: client.bootstrap, "--topic orders": f"--topic {topic}", TABLE: str(table)}
    told = directory.submit(Guide.read().submit_job, names)
    assert f"archive: {sum(COUNTS.values())} rows of topic {topic} went into {table}" in told
    values = {partition: [int(row[2] or b"") for row in rows] for partition, rows in rows_of(table).items()}
    assert values == {partition: list(range(count)) for partition, count in COUNTS.items()}
