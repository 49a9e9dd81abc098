"""Whether an answer has a message, for every API whose answers have room for one: each request once right,
then with every value that could be wrong in each of its fields, one at a time, and in the newest version two.
The wording is ours but for a few set phrases that tools and tests look for.
"""

# ruff: noqa: B023  (every function is called in the round of the loop that makes it)

from __future__ import annotations

import copy
import itertools
import re
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import pytest

from compat_tests import reference
from compat_tests.differential.harness import Pair, Side
from compat_tests.differential.members import settle_coordinator
from compat_tests.differential.pairs import pair_of
from compat_tests.differential.test_settings import complete, incremental, partly, whole
from compat_tests.differential.topics import NOW_MS, new_topic
from odradek.config.changes import SET
from odradek.wire.messages import find
from odradek.wire.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    EntityData,
    EntryData,
    OpData,
)
from odradek.wire.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from odradek.wire.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from odradek.wire.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from odradek.wire.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from odradek.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from odradek.wire.messages.describe_client_quotas import ComponentData, DescribeClientQuotasRequest
from odradek.wire.messages.describe_cluster import DescribeClusterRequest
from odradek.wire.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from odradek.wire.messages.describe_groups import DescribeGroupsRequest
from odradek.wire.messages.describe_producers import DescribeProducersRequest, TopicRequest
from odradek.wire.messages.find_coordinator import FindCoordinatorRequest
from odradek.wire.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsTopics,
)
from odradek.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from odradek.wire.messages.streams_group_describe import StreamsGroupDescribeRequest
from odradek.wire.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest
from odradek.wire.records import Record, build_batch
from odradek.wire.schema import Array, FieldSpec, Message, Struct, fields_of

TOPIC, BROKER, CLIENT_METRICS, GROUP = 2, 4, 16, 32
STRANGE = bytes(range(16))
TIMEOUT_MS = 30_000
LEFT_ALONE = {
    "timeout_ms",
    "acks",
    "transactional_id",
    "validate_only",
    "records",
    "configuration_keys",
    "partition_data",
    "config_operation",
}
"""Fields that ask for something else (a time-out that is over at once, no answer, a transaction, a change,
all settings of a broker), or are compared elsewhere; and operations on settings that do not exist, over
which Kafka trips."""
WRONG: dict[type, tuple[Any, ...]] = {
    str: ("", " ", "not-there", "a/b", "7"),
    bool: (False, True),
    int: (-2, -1, 0, 7),
    bytes: (STRANGE, bytes(16)),  # ids
}


@pytest.fixture(scope="module")
def pair() -> Iterator[Pair]:
    """New ones, as settings and topics of all kinds come of this."""
    settings = {"auto.create.topics.enable": "false", "offsets.topic.num.partitions": "1"}
    with pair_of(reference.CURRENT, settings) as pair:
        settle_coordinator(pair)
        for side in pair.sides:
            side.remember("cluster", side.ask(DescribeClusterRequest(), 0).cluster_id)
        yield pair


# -- requests that are right


def find_coordinator(topic: str, version: int) -> Message:
    if version < 4:
        return FindCoordinatorRequest(key="g")
    return FindCoordinatorRequest(coordinator_keys=["g", "h"])


def create_topics(topic: str, version: int) -> Message:
    configs = [CreatableTopicConfig(name="retention.ms", value="5000")]
    assigned = [CreatableReplicaAssignment(partition_index=0, broker_ids=[1])]
    return CreateTopicsRequest(
        topics=[
            CreatableTopic(name="made", num_partitions=1, replication_factor=1, configs=configs),
            CreatableTopic(name="put", num_partitions=-1, replication_factor=-1, assignments=assigned),
        ],
        validate_only=True,
    )


def delete_topics(topic: str, version: int) -> Message:
    if version < 6:
        return DeleteTopicsRequest(topic_names=["absent", "nor this"], timeout_ms=TIMEOUT_MS)
    topics = [DeleteTopicState(name="absent"), DeleteTopicState(name="nor this")]
    return DeleteTopicsRequest(topics=topics, timeout_ms=TIMEOUT_MS)


def create_partitions(topic: str, version: int) -> Message:
    asked = CreatePartitionsTopic(name=topic, count=3, assignments=None)
    return CreatePartitionsRequest(topics=[asked], timeout_ms=TIMEOUT_MS, validate_only=True)


def describe_configs(topic: str, version: int) -> Message:
    resources = [
        DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=["retention.ms"])
        for kind, name in ((TOPIC, topic), (BROKER, "1"))
    ]
    return DescribeConfigsRequest(resources=resources)


def alter_configs(topic: str, version: int) -> Message:
    of_none = whole(TOPIC, "absent", ("retention.ms", "5000"))
    return complete(whole(TOPIC, topic, ("retention.ms", "5000")), of_none, dry=True)


def incremental_alter_configs(topic: str, version: int) -> Message:
    return incremental(partly(TOPIC, topic, ("retention.ms", SET, "5000")), partly(BROKER, "1"), dry=True)


def alter_reassignments(topic: str, version: int) -> Message:
    partitions = [ReassignablePartition(partition_index=0, replicas=[1])]
    return AlterPartitionReassignmentsRequest(topics=[ReassignableTopic(name=topic, partitions=partitions)])


def list_reassignments(topic: str, version: int) -> Message:
    asked = ListPartitionReassignmentsTopics(name=topic, partition_indexes=[0])
    return ListPartitionReassignmentsRequest(topics=[asked])


def update_features(topic: str, version: int) -> Message:
    update = FeatureUpdateKey(feature="group.version", max_version_level=1)
    return UpdateFeaturesRequest(feature_updates=[update], validate_only=version >= 1)


def describe_producers(topic: str, version: int) -> Message:
    return DescribeProducersRequest(topics=[TopicRequest(name=topic, partition_indexes=[0, 9])])


def produce(topic: str, version: int) -> Message:
    records = build_batch([Record(0, NOW_MS, None, b"value", [])])
    data = [PartitionProduceData(index=0, records=records)]
    asked = TopicProduceData(name="not-there", topic_id=STRANGE, partition_data=data)
    return ProduceRequest(acks=1, timeout_ms=TIMEOUT_MS, topic_data=[asked])


BASES: list[Callable[[str, int], Message]] = [
    find_coordinator,
    create_topics,
    delete_topics,
    create_partitions,
    describe_configs,
    alter_configs,
    incremental_alter_configs,
    alter_reassignments,
    list_reassignments,
    update_features,
    describe_producers,
    produce,
    lambda topic, version: DescribeClusterRequest(),
    lambda topic, version: DescribeGroupsRequest(groups=["g", "h"]),
    lambda topic, version: ConsumerGroupDescribeRequest(group_ids=["g", "h"]),
    lambda topic, version: StreamsGroupDescribeRequest(group_ids=["g", "h"]),
]
IN_CHECK_ORDER = {68, 88}
"""The heartbeats, which `test_check_order.py` asks."""
OF_SHARE_GROUPS = {*range(76, 80), *range(83, 88), 90, 91, 92}
"""In the files `test_share_*.py`."""
IN_ADMINISTRATION = {29, 30, 31, 36, 43, 48, 49, 50, 51, 55, 64, 80, 81, 94}
"""What a broker alone says of security and of its quorum, which `test_administration.py` asks."""
OF_DESCRIPTIONS = {42, 93}
"""Their messages are about a store for descriptions of topologies: DeleteGroups has one if that fails, and
`test_duplicates.py` sends descriptions."""


# -- and what can be wrong in them


class Wrong(NamedTuple):
    """A value, and where it goes: attributes and indexes."""

    path: tuple[str | int, ...]
    value: Any

    def put(self, message: Any) -> bool:
        """Whether the place is there."""
        *way, last = self.path
        for step in way:
            if isinstance(step, int):
                if step >= len(message):
                    return False
                message = message[step]
            else:
                message = getattr(message, step)
            if message is None:
                return False
        value = copy.deepcopy(self.value)
        if isinstance(last, int):
            if last >= len(message):
                return False
            message[last] = value
        else:
            setattr(message, last, value)
        return True

    def __str__(self) -> str:
        return f"{'.'.join(map(str, self.path))} {str(self.value)[:30]!r}"


def wrongs(message: Struct, version: int, path: tuple[str | int, ...] = ()) -> Iterator[Wrong]:
    for spec in fields_of(type(message)):
        if spec.exists_in(version) and spec.name not in LEFT_ALONE:
            yield from _wrongs_of(spec, getattr(message, spec.name), version, (*path, spec.name))


def _wrongs_of(spec: FieldSpec, value: Any, version: int, path: tuple[str | int, ...]) -> Iterator[Wrong]:
    if value is not None and spec.null_allowed_in(version):
        yield Wrong(path, None)
    if isinstance(value, list):
        if value:
            yield Wrong(path, [])
        for index, item in enumerate(value):
            if isinstance(item, Struct):
                yield from wrongs(item, version, (*path, index))
            else:
                yield from (Wrong((*path, index), one) for one in WRONG[type(item)] if one != item)
    elif isinstance(value, Struct):
        yield from wrongs(value, version, path)
    elif value is None:
        kind = [] if isinstance(spec.type, Array) else ""
        if not isinstance(spec.type, type):
            yield Wrong(path, kind)
    else:
        yield from (Wrong(path, one) for one in WRONG[type(value)] if one != value)


def combinations(message: Message, version: int, *, pairs: bool) -> Iterator[tuple[Wrong, ...]]:
    known = list(wrongs(message, version))
    yield ()
    yield from ((one,) for one in known)
    if not pairs:
        return
    for one, other in itertools.combinations(known, 2):
        if one.path != other.path and other.path[: len(one.path)] != one.path and not _are_twice(one, other):
            yield one, other


def _are_twice(one: Wrong, other: Wrong) -> bool:
    """Whether they name the same thing twice, which is another question (AlterConfigs of Kafka then does not
    answer at all)."""
    return (one.path[-1], one.value) == (other.path[-1], other.value)


def name_of(base: Callable[[str, int], Message]) -> str:
    return type(base("t", 4)).__name__.removesuffix("Request")


@pytest.mark.parametrize("base", BASES, ids=name_of)
def test_answers_have_a_message_where_kafkas_have_one(
    pair: Pair, base: Callable[[str, int], Message]
) -> None:
    topic = new_topic(pair, "told", 2)
    versions = pair.versions(type(base(topic, 4)))
    for version in versions:
        for combination in combinations(base(topic, version), version, pairs=version == versions[-1]):
            request = base(topic, version)
            if all(one.put(request) for one in combination):
                pair.ask(lambda _: request, version, ", ".join(map(str, combination)), see=without_ids)


def without_ids(side: Side, answer: Any) -> None:
    """Each broker has its own for a topic that might be made."""
    if isinstance(answer, CreateTopicsResponse):
        for topic in answer.topics:
            topic.topic_id = bytes(16) if topic.topic_id == bytes(16) else STRANGE


def test_every_api_with_a_message_is_asked(pair: Pair) -> None:
    asked = {type(base("t", 4)).api_key for base in BASES}
    served = {key for key in pair.api_keys if has_message(find(key)[1])}
    assert served == asked | IN_CHECK_ORDER | IN_ADMINISTRATION | OF_DESCRIPTIONS | OF_SHARE_GROUPS


def has_message(struct: type[Struct]) -> bool:
    for spec in fields_of(struct):
        kind = spec.type.item if isinstance(spec.type, Array) else spec.type
        if spec.name == "error_message" or (isinstance(kind, type) and has_message(kind)):
            return True
    return False


# -- set phrases


def quota(**entity: str) -> AlterClientQuotasRequest:
    parts = [EntityData(entity_type=kind, entity_name=name) for kind, name in entity.items()]
    ops = [OpData(key="connection_creation_rate", value=5.0)]
    return AlterClientQuotasRequest(entries=[EntryData(entity=parts, ops=ops)])


def quotas_of(*kinds: str) -> DescribeClientQuotasRequest:
    components = [ComponentData(entity_type=kind, match_type=2, match=None) for kind in kinds]
    return DescribeClientQuotasRequest(components=components)


def test_set_phrases_are_kafkas(pair: Pair) -> None:
    topic = new_topic(pair, "phrases")
    fixed = "Cannot update these configs dynamically: [log.dirs]"
    cases: list[tuple[Message, int, str | None]] = [
        (DescribeGroupsRequest(groups=["nobodys"]), 6, "Group nobodys not found."),
        (DescribeGroupsRequest(groups=[""]), 6, "Group  not found."),
        (incremental(partly(BROKER, "1", ("log.dirs", SET, "/x"))), 1, fixed),
        (incremental(partly(BROKER, "", ("log.dirs", SET, "/x"))), 1, fixed),
        (complete(whole(BROKER, "1", ("log.dirs", "/x"))), 2, fixed),
        (complete(whole(BROKER, "", ("log.dirs", "/x"))), 2, fixed),
        (incremental(partly(BROKER, "1", ("log.retention.ms", SET, "x"), ("log.dirs", SET, "x"))), 1, fixed),
        (incremental(partly(TOPIC, topic, ("no.such", SET, "1"))), 1, "Unknown topic config name: no.such"),
        (incremental(partly(GROUP, "g", ("no.such", SET, "1"))), 1, "Unknown group config name: no.such"),
        (incremental(partly(CLIENT_METRICS, "m", ("no.such", SET, "1"))), 1, None),
        (quota(user="u", ip="127.0.0.1"), 1, None),
        (quota(ip="no-such-host.invalid"), 1, "no-such-host.invalid is not a valid IP or resolvable host."),
        (quotas_of("user", "ip"), 1, None),
        (DescribeClusterRequest(endpoint_type=2), 2, None),
        (DescribeClusterRequest(endpoint_type=9), 2, None),
    ]
    for request, version, phrase in cases:
        told = [messages_of(side.ask(request, version)) for side in pair.sides]
        assert told[0] == told[1], request
        assert phrase is None or told[0] == [phrase]


def test_all_static_settings_of_a_request_are_named_whatever_else_is_wrong(pair: Pair) -> None:
    operations = [(name, SET, "x") for name in ("log.dirs", "num.partitions", "log.retention.ms", "node.id")]
    request = incremental(partly(BROKER, "1", *operations))
    for side in pair.sides:
        (told,) = messages_of(side.ask(request, 1))
        found = re.fullmatch(r"Cannot update these configs dynamically: \[(.*)\]", told)
        assert found, told
        assert sorted(found[1].split(", ")) == ["log.dirs", "node.id", "num.partitions"]


def messages_of(answer: Any) -> list[str]:
    """All that are in it."""
    if isinstance(answer, list):
        return [one for item in answer for one in messages_of(item)]
    if not isinstance(answer, Struct):
        return []
    found = [one for spec in fields_of(type(answer)) for one in messages_of(getattr(answer, spec.name))]
    own = getattr(answer, "error_message", None)
    return found if own is None else [own, *found]
