"""Several data directories: where partitions are made, what is said of moves, and cordoned ones."""

# ruff: noqa: B023  (every function is called in the round of the loop that makes it)

from __future__ import annotations

import pathlib
import time
from collections.abc import Iterator
from typing import Any

import pytest

from compat_tests import reference
from compat_tests.broker_host import shared_host
from compat_tests.differential.harness import SECONDS, Pair, Pauses, Side, common_versions, side_of
from compat_tests.differential.test_records import batch, produce
from compat_tests.differential.test_settings import BROKER, complete, incremental, partly, whole
from compat_tests.differential.topics import new_topic
from odradek.config.changes import APPEND, DELETE, SET, SUBTRACT
from odradek.embedding.embedded import Broker
from odradek.wire.messages.alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirTopic,
)
from odradek.wire.messages.create_partitions import (
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from odradek.wire.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreateTopicsRequest,
)
from odradek.wire.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from odradek.wire.messages.describe_log_dirs import DescribableLogDirTopic, DescribeLogDirsRequest
from odradek.wire.messages.find_coordinator import FindCoordinatorRequest
from odradek.wire.messages.produce import ProduceRequest

NAMES = ("one", "two", "three")


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    paths = {name: tmp_path_factory.mktemp(name) for name in ("kafka", "odradek")}
    given = {name: ",".join(str(path / one) for one in NAMES) for name, path in paths.items()}
    settings = {"auto.create.topics.enable": "false"}
    with (
        reference.Kafka(properties={**settings, "log.dirs": given["kafka"]}, host=shared_host()) as kafka,
        Broker(process=True, data_dir=given["odradek"], options=settings) as broker,
    ):
        sides = side_of("kafka", kafka.bootstrap_servers), side_of("odradek", broker.bootstrap_servers)
        for side in sides:
            for one in NAMES:
                side.remember(one, str(pathlib.Path(paths[side.name]) / one))
        yield Pair(*sides, common_versions(*sides))
        for side in sides:
            side.close()


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

            deadline = time.monotonic() + SECONDS
            pause = Pauses()
            while not is_there(side.ask(describe(topic), newest)) and time.monotonic() < deadline:
                pause()
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


def cordon(side: Side, *names: str) -> Any:
    """The operation that has these directories take nothing new; `*` and other texts stand for themselves."""
    return ("cordoned.log.dirs", SET, ",".join(side.values.get(name, name) for name in names))


def cordoning(pair: Pair, *names: str, kind: int = SET, owner: str = "1") -> None:
    """Asks both for it, and compares what they tell of it afterwards."""
    note = f"cordon {names}, {kind}"

    def request(side: Side) -> Any:
        name, _, value = cordon(side, *names)
        return incremental(partly(BROKER, owner, (name, kind, None if kind == DELETE else value)))

    pair.ask(request, 1, note)
    found = [cordoned_as_described(side) for side in pair.sides]
    deadline = time.monotonic() + SECONDS
    pause = Pauses()
    while found[0] != found[1] and time.monotonic() < deadline:  # Kafka follows behind its answer
        pause()
        found = [cordoned_as_described(side) for side in pair.sides]
    pair.compare(note, *found)


def cordoned_as_described(side: Side) -> tuple[list[str], str]:
    """The directories that the broker calls cordoned, and its description of the option."""
    resource = DescribeConfigsResource(
        resource_type=BROKER, resource_name="1", configuration_keys=["cordoned.log.dirs"]
    )
    answer = side.ask(DescribeConfigsRequest(resources=[resource], include_synonyms=True), 4)
    option = str(side.plain(answer.results[0].configs, 4))
    for name in NAMES:
        option = option.replace(side[name], name)
    return who_is_cordoned(side), option


def who_is_cordoned(side: Side) -> list[str]:
    names = {side[name]: name for name in NAMES}
    answer = side.ask(DescribeLogDirsRequest(topics=[]), 5)
    return sorted(names[one.log_dir] for one in answer.results if one.is_cordoned)


@pytest.fixture
def uncordoned(pair: Pair) -> Iterator[Pair]:
    yield pair
    cordoning(pair, kind=DELETE)


def test_directories_are_cordoned_and_told_alike(uncordoned: Pair) -> None:
    pair = uncordoned
    for names in (
        ("one",),
        ("one", "two"),
        NAMES,
        ("*",),
        ("*", "one"),
        ("one", "*"),
        ("/nowhere",),
        ("one", "/nowhere"),
        (" one",),
        ("two", "two"),
        (),
    ):
        cordoning(pair, *names)
    cordoning(pair, "one", kind=APPEND)
    cordoning(pair, "two", kind=APPEND)
    cordoning(pair, "one", kind=SUBTRACT)
    cordoning(pair, "three", owner="")
    for dry in (True, False):
        pair.ask(lambda side: complete(whole(BROKER, "1", cordon(side, "one")[::2]), dry=dry), 2, f"{dry}")
    cordoning(pair, kind=DELETE)


def test_new_partitions_avoid_cordoned_directories(uncordoned: Pair) -> None:
    pair = uncordoned
    newest = pair.versions(DescribeLogDirsRequest)[-1]
    for count, names in enumerate((("one",), ("one", "two"), ("two", "three"), ()), 2):
        cordoning(pair, *names)
        topic = new_topic(pair, "cordoned", count)
        request = describe(topic, partitions=tuple(range(count)))
        found = []
        for side in pair.sides:
            deadline = time.monotonic() + SECONDS
            pause = Pauses()
            while len(places(side, side.ask(request, newest))) < count and time.monotonic() < deadline:
                pause()
            lie = [place[0] for place in places(side, side.ask(request, newest))]
            assert len(lie) == count
            assert not set(names) & set(lie)
            found.append(sorted(lie.count(name) for name in NAMES))
        if len(names) == 2:
            assert found[0] == found[1]


def test_where_all_directories_are_cordoned_no_partitions_are_made(uncordoned: Pair) -> None:
    pair = uncordoned
    newest = pair.versions(DescribeLogDirsRequest)[-1]
    old = new_topic(pair, "before")
    cordoning(pair, "*")
    assigned = [CreatableReplicaAssignment(partition_index=0, broker_ids=[1])]
    topics = {
        "automatic": CreatableTopic(name="never", num_partitions=1, replication_factor=1),
        "defaults": CreatableTopic(name="never", num_partitions=-1, replication_factor=-1),
        "two replicas": CreatableTopic(name="never", num_partitions=1, replication_factor=2),
        "bad count": CreatableTopic(name="never", num_partitions=0, replication_factor=1),
        "there": CreatableTopic(name=old, num_partitions=1, replication_factor=1),
        "assigned": CreatableTopic(
            name="assigned", num_partitions=-1, replication_factor=-1, assignments=assigned
        ),
    }
    for note, topic in topics.items():
        for dry in (True, False):
            request = CreateTopicsRequest(topics=[topic], timeout_ms=9_000, validate_only=dry)
            # What a topic's answer tells beyond that depends on what is built from its id.
            answers = [side.ask(request, 6).topics[0] for side in pair.sides]
            for field in ("error_code", "num_partitions", "replication_factor"):
                pair.compare(f"{note}, {dry}: {field}", *(getattr(one, field) for one in answers))
            pair.compare(f"{note}: has a message", *(one.error_message is None for one in answers))
    growths = {
        "automatic": CreatePartitionsTopic(name=old, count=3, assignments=None),
        "too few": CreatePartitionsTopic(name=old, count=3, assignments=[]),
        "no growth": CreatePartitionsTopic(name=old, count=1, assignments=None),
        "assigned": CreatePartitionsTopic(
            name=old, count=2, assignments=[CreatePartitionsAssignment(broker_ids=[1])]
        ),
    }
    for note, growth in growths.items():
        pair.ask(lambda _: CreatePartitionsRequest(topics=[growth], timeout_ms=9_000), 3, note)
    request = describe(old, "assigned", partitions=(0, 1))
    found = [[place[1:3] for place in places(side, side.ask(request, newest))] for side in pair.sides]
    assert found[0] == [(old, 0)]
    pair.compare("made where all is cordoned", *found)
    coordinators = [
        side.ask(FindCoordinatorRequest(key_type=0, coordinator_keys=["g"]), 4).coordinators[0].error_code
        for side in pair.sides
    ]
    pair.compare("a coordinator whose topic cannot be made", *coordinators)


def test_nothing_is_moved_to_a_cordoned_directory(uncordoned: Pair) -> None:
    pair = uncordoned
    topic = new_topic(pair, "stays")
    version = pair.versions(AlterReplicaLogDirsRequest)[-1]
    for names in (("one",), ("*",)):
        cordoning(pair, *names)
        for note, wanted in {
            "to it": ("one", topic, 0),
            "unknown topic": ("one", "not-there", 0),
            "unknown partition": ("one", topic, 7),
            "a long name": ("one", "n" * 240, 0),
            "nowhere": ("/nowhere", topic, 0),
        }.items():
            pair.ask(lambda side: alter(side, wanted), version, f"{note}, {names}")
    cordoning(pair, kind=DELETE)
    pair.ask(lambda side: alter(side, ("three", "early-cordoned", 0)), version)
    cordoning(pair, "three")
    made = make(pair, "early-cordoned")
    newest = pair.versions(DescribeLogDirsRequest)[-1]
    found = [[place[0] for place in places(side, side.ask(describe(made), newest))] for side in pair.sides]
    pair.compare("where it was wanted before", *found)


def make(pair: Pair, name: str) -> str:
    topic = CreatableTopic(name=name, num_partitions=1, replication_factor=1)
    for side in pair.sides:
        side.ask(CreateTopicsRequest(topics=[topic], timeout_ms=30_000), 5)
    newest = pair.versions(DescribeLogDirsRequest)[-1]
    for side in pair.sides:
        deadline = time.monotonic() + SECONDS
        pause = Pauses()
        while not places(side, side.ask(describe(name), newest)) and time.monotonic() < deadline:
            pause()
    return name
