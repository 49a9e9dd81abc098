"""Several data directories: where partitions are made, and what is said of moves between them."""

# ruff: noqa: B023  (every function is called in the round of the loop that makes it)

from __future__ import annotations

import pathlib
import time
from collections.abc import Iterator
from typing import Any

import pytest

from compat_tests import reference
from compat_tests.differential.harness import Pair, Side, served_versions
from compat_tests.differential.test_records import batch, produce
from compat_tests.differential.topics import new_topic
from odradek.server.embedded import Broker
from odradek.wire.messages.alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirTopic,
)
from odradek.wire.messages.describe_log_dirs import DescribableLogDirTopic, DescribeLogDirsRequest
from odradek.wire.messages.produce import ProduceRequest

NAMES = ("one", "two", "three")


@pytest.fixture(scope="module")
def brokers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    paths = {name: tmp_path_factory.mktemp(name) for name in ("kafka", "odradek")}
    given = {name: ",".join(str(path / one) for one in NAMES) for name, path in paths.items()}
    settings = {"auto.create.topics.enable": "false"}
    with (
        reference.Kafka(properties={**settings, "log.dirs": given["kafka"]}) as kafka,
        Broker(process=True, data_dir=given["odradek"], options=settings) as broker,
    ):
        sides = Side("kafka", kafka.bootstrap_servers), Side("odradek", broker.bootstrap_servers)
        for side in sides:
            side.remember("port", side.port, "port")
            side.remember("host", side.host)
            for one in NAMES:
                side.remember(one, str(pathlib.Path(paths[side.name]) / one))
        served, wanted = (served_versions(side) for side in sides)
        versions = {
            key: range(max(served[key].start, wanted[key].start), min(served[key].stop, wanted[key].stop))
            for key in served.keys() & wanted.keys()
        }
        yield Pair(*sides, versions)
        for side in sides:
            side.close()


@pytest.fixture
def pair(brokers: Pair) -> Iterator[Pair]:
    brokers.found.clear()
    yield brokers
    assert not brokers.found, "\n" + "\n".join(brokers.found)


def alter(side: Side, *wanted: tuple[str, str, int]) -> AlterReplicaLogDirsRequest:
    """`wanted`: (name of a directory, topic, partition)."""
    return AlterReplicaLogDirsRequest(
        dirs=[
            AlterReplicaLogDir(
                path=side.values.get(name, name),
                topics=[AlterReplicaLogDirTopic(name=topic, partitions=[index])],
            )
            for name, topic, index in wanted
        ]
    )


def describe(*topics: str, partitions: tuple[int, ...] = (0,)) -> DescribeLogDirsRequest:
    asked = [DescribableLogDirTopic(topic=topic, partitions=list(partitions)) for topic in topics]
    return DescribeLogDirsRequest(topics=asked)


def places(side: Side, answer: Any) -> list[tuple[str, str, int, int, int, bool]]:
    names = {side[name]: name for name in NAMES}
    return sorted(
        (
            names[directory.log_dir],
            topic.name,
            partition.partition_index,
            partition.partition_size,
            partition.offset_lag,
            partition.is_future_key,
        )
        for directory in answer.results
        for topic in directory.topics
        for partition in topic.partitions
    )


def test_new_partitions_go_where_there_are_fewest(pair: Pair) -> None:
    version = pair.versions(DescribeLogDirsRequest)[-1]
    topics = [new_topic(pair, "spread", count) for count in (3, 1, 5, 2, 4)]
    for topic in topics:
        counts = []
        for side in pair.sides:
            answer = side.ask(
                describe(*topics[: topics.index(topic) + 1], partitions=tuple(range(5))), version
            )
            found = [place[0] for place in places(side, answer)]
            counts.append(sorted(found.count(name) for name in NAMES))
        assert counts[0] == counts[1]
        assert counts[1][-1] - counts[1][0] <= 1


def test_partitions_are_moved_between_directories(pair: Pair) -> None:
    newest = pair.versions(DescribeLogDirsRequest)[-1]
    topic = new_topic(pair, "moved")
    produced = pair.versions(ProduceRequest)[-1]
    for round_number, target in enumerate([*NAMES, *NAMES]):
        version = pair.versions(AlterReplicaLogDirsRequest)[round_number % 2 - 1]
        for n in range(5):
            records = batch(4, start=20 * round_number + 4 * n)
            pair.ask(lambda side: produce(side, topic, records), produced)
        pair.ask(lambda side: alter(side, (target, topic, 0)), version, f"to {target}")
        found = []
        for side in pair.sides:

            def is_there(answer: Any) -> bool:
                return [place[0] for place in places(side, answer)] == [target]

            deadline = time.monotonic() + 20
            while not is_there(side.ask(describe(topic), newest)) and time.monotonic() < deadline:
                time.sleep(0.05)
            answer = side.ask(describe(topic), newest)
            found.append(places(side, answer))
        pair.compare(f"where {topic} lies", found[0], found[1])
        assert [place[0] for place in found[1]] == [target]


def test_what_cannot_be_moved_is_refused_alike(pair: Pair) -> None:
    topic = new_topic(pair, "refused", 2)
    long_name = new_topic(pair, "n" * 215)
    for version in pair.versions(AlterReplicaLogDirsRequest):
        for note, wanted in {
            "nowhere": [("/nowhere", topic, 0)],
            "no path": [("", topic, 0)],
            "relative": [("./one", topic, 0)],
            "unknown topic": [("one", "not-there", 0)],
            "unknown partition": [("two", topic, 7)],
            "negative partition": [("two", topic, -1)],
            "nowhere, unknown topic": [("/nowhere", "not-there", 0)],
            "a long name": [("one", long_name, 0)],
            "twice": [("one", topic, 0), ("/nowhere", topic, 0)],
            "many": [("/nowhere", topic, 0), ("two", "not-there", 3), ("/nowhere", topic, 1)],
            "nothing": [],
        }.items():
            pair.ask(lambda side: alter(side, *wanted), version, note)


def test_what_is_moved_before_it_is_there_is_made_there(pair: Pair) -> None:
    newest = pair.versions(DescribeLogDirsRequest)[-1]
    version = pair.versions(AlterReplicaLogDirsRequest)[-1]
    for target in NAMES:
        name = f"early-{target}"
        pair.ask(lambda side: alter(side, (target, name, 0)), version)
    for target in NAMES:
        made = make(pair, f"early-{target}")
        found = [
            [place[0] for place in places(side, side.ask(describe(made), newest))] for side in pair.sides
        ]
        pair.compare(f"where {made} lies", *found)


def make(pair: Pair, name: str) -> str:
    from odradek.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest

    topic = CreatableTopic(name=name, num_partitions=1, replication_factor=1)
    for side in pair.sides:
        side.ask(CreateTopicsRequest(topics=[topic], timeout_ms=30_000), 5)
    newest = pair.versions(DescribeLogDirsRequest)[-1]
    for side in pair.sides:
        deadline = time.monotonic() + 20
        while not places(side, side.ask(describe(name), newest)) and time.monotonic() < deadline:
            time.sleep(0.05)
    return name
