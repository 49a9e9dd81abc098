"""Topics: what there is, and creating, growing, trimming and deleting them."""

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from odradek.client.admin.asking import (
    TIMEOUT_MS,
    Outcome,
    Refused,
    all_brokers,
    ask_controller,
    controller_of,
    outcome,
)
from odradek.client.client_error import ClientError, Disconnected, Unreachable, refusal
from odradek.client.cluster import Cluster, TopicPartition, leader_of
from odradek.client.patience import Patience
from odradek.wire.errors import ErrorCode, error_of
from odradek.wire.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from odradek.wire.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from odradek.wire.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from odradek.wire.messages.delete_topics import DeleteTopicsRequest
from odradek.wire.messages.describe_log_dirs import DescribableLogDirTopic, DescribeLogDirsRequest
from odradek.wire.messages.metadata import MetadataRequest, MetadataRequestTopic


@dataclass(frozen=True, slots=True)
class PartitionDescription:
    """A partition as the brokers' metadata has it."""

    partition: int
    leader: int
    """-1 for none."""
    leader_epoch: int
    replicas: list[int]
    in_sync: list[int]
    offline: list[int]
    error: ErrorCode = ErrorCode.NONE


@dataclass(frozen=True, slots=True)
class TopicDescription:
    """A topic as the brokers' metadata has it."""

    name: str
    is_internal: bool
    partitions: list[PartitionDescription] = field(default_factory=list)
    topic_id: bytes = b""

    @property
    def replication_factor(self) -> int:
        """Replication factor of the first partition, as Kafka's tools show it."""
        return len(self.partitions[0].replicas) if self.partitions else 0


def describe_topics(
    cluster: Cluster, topics: Collection[str] | None = None
) -> tuple[list[TopicDescription], list[Refused]]:
    """The topics, sorted by name; None: all that the user may see. With names, those that are not there or
    that may not be seen are refused."""
    named = None if topics is None else [MetadataRequestTopic(name=name) for name in sorted(set(topics))]
    response = cluster.read_metadata(MetadataRequest(topics=named, allow_auto_topic_creation=False))
    found, refused = [], []
    for topic in response.topics:
        code = error_of(topic.error_code)
        if code in (ErrorCode.NONE, ErrorCode.LEADER_NOT_AVAILABLE):
            partitions = sorted(map(_partition, topic.partitions), key=lambda one: one.partition)
            found.append(TopicDescription(topic.name, topic.is_internal, partitions, topic.topic_id))
        else:
            refused.append(Refused(topic.name, refusal(f"describing topic {topic.name}", code)))
    return sorted(found, key=lambda topic: topic.name), refused


def _partition(one: Any) -> PartitionDescription:
    return PartitionDescription(
        one.partition_index,
        one.leader_id,
        one.leader_epoch,
        one.replica_nodes,
        one.isr_nodes,
        one.offline_replicas,
        error_of(one.error_code),
    )


def await_topic(cluster: Cluster, topic: str, partitions: int = 1) -> int:
    """Returns its number of partitions when the brokers know so many of a topic that was just made."""
    patience = Patience(cluster.settings)
    while (count := cluster.partitions_of([topic]).get(topic, 0)) < partitions:
        patience.pause(f"waiting for topic {topic}", ClientError("the brokers do not know it yet"))
    return count


def log_sizes(
    cluster: Cluster, partitions: Iterable[TopicPartition] | None = None
) -> dict[TopicPartition, int]:
    """Bytes on disk of the largest replica of each partition; None: of all. Partitions of brokers that do
    not answer, or of which the user may not know it, are left out."""
    topics: dict[str, list[int]] = {}
    for topic, partition in partitions or ():
        topics.setdefault(topic, []).append(partition)
    wanted = [DescribableLogDirTopic(topic=name, partitions=numbers) for name, numbers in topics.items()]
    request = DescribeLogDirsRequest(topics=None if partitions is None else wanted)
    sizes: dict[TopicPartition, int] = {}
    for broker in all_brokers(cluster):
        try:
            response = cluster.ask(broker, request)
        except Disconnected:
            continue
        for result in response.results:
            for topic in result.topics:
                for one in topic.partitions:
                    if not one.is_future_key:
                        key = topic.name, one.partition_index
                        sizes[key] = max(sizes.get(key, 0), one.partition_size)
    return sizes


def create_topic(
    cluster: Cluster,
    topic: str,
    partitions: int,
    settings: Mapping[str, str],
    *,
    replication_factor: int = -1,
    only_validate: bool = False,
    doing: str | None = None,
) -> bool:
    """Creates a topic; -1 stands for the brokers' defaults. An existing topic stays as it is: False.

    `only_validate` only checks the request. ClientError for a refusal; `doing` begins its sentence.
    """
    wanted = CreatableTopic(
        name=topic,
        num_partitions=partitions,
        replication_factor=replication_factor,
        assignments=[],
        configs=[CreatableTopicConfig(name=name, value=value) for name, value in settings.items()],
    )
    request = CreateTopicsRequest(topics=[wanted], timeout_ms=TIMEOUT_MS, validate_only=only_validate)
    (response,) = ask_controller(cluster, request).topics
    if response.error_code == ErrorCode.TOPIC_ALREADY_EXISTS:
        return False
    if response.error_code != ErrorCode.NONE:
        raise refusal(
            doing or f"creating topic {topic}", error_of(response.error_code), response.error_message
        )
    return True


def add_partitions(cluster: Cluster, topic: str, partitions: int, *, only_validate: bool = False) -> None:
    """Increases the partitions of a topic to a number; ClientError for a refusal."""
    wanted = CreatePartitionsTopic(name=topic, count=partitions, assignments=None)
    request = CreatePartitionsRequest(topics=[wanted], timeout_ms=TIMEOUT_MS, validate_only=only_validate)
    (response,) = ask_controller(cluster, request).results
    if response.error_code != ErrorCode.NONE:
        doing = f"giving topic {topic} {partitions} partitions"
        raise refusal(doing, error_of(response.error_code), response.error_message)


def delete_topics(cluster: Cluster, topics: Collection[str]) -> Outcome:
    """Deletes the topics; returns the refusals."""
    request = DeleteTopicsRequest(topic_names=sorted(set(topics)), timeout_ms=TIMEOUT_MS)
    # Later versions have ids, too; names are enough here.
    response = cluster.ask(controller_of(cluster), request, version_max=5)
    return outcome(
        "deleting topic", [(one.name, one.error_code, one.error_message) for one in response.responses]
    )


def delete_records(
    cluster: Cluster, before: Mapping[TopicPartition, int]
) -> tuple[dict[TopicPartition, int], Outcome]:
    """Deletes the records before an offset of each partition (-1: all that are committed). Returns the first
    offset of each partition then, and the refusals."""
    starts: dict[TopicPartition, int] = {}
    refused: Outcome = []
    for topic, partition, offset in _sorted(before):
        one = DeleteRecordsPartition(partition_index=partition, offset=offset)
        request = DeleteRecordsRequest(
            topics=[DeleteRecordsTopic(name=topic, partitions=[one])], timeout_ms=TIMEOUT_MS
        )
        try:
            response = cluster.ask(leader_of(topic, partition), request).topics[0].partitions[0]
        except Unreachable:
            raise
        except ClientError as error:
            refused.append(Refused(f"{topic}-{partition}", error))
            continue
        refused += outcome("deleting records of", [(f"{topic}-{partition}", response.error_code, None)])
        if response.error_code == ErrorCode.NONE:
            starts[topic, partition] = response.low_watermark
    return starts, refused


def _sorted(offsets: Mapping[TopicPartition, int]) -> Iterator[tuple[str, int, int]]:
    return ((topic, partition, offsets[topic, partition]) for topic, partition in sorted(offsets))
