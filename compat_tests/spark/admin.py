"""What happens to topics while Spark works with them: they grow, lose records, go and come back."""

from __future__ import annotations

from collections.abc import Mapping

from confluent_kafka import ConsumerGroupState, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ConfigSource,
    NewPartitions,
    NewTopic,
    OffsetSpec,
)

from compat_tests.clients import DEADLINE_SECONDS, wait_until


class TopicAdmin:
    """Each of its methods returns when every client can see what it did."""

    def __init__(self, bootstrap: str) -> None:
        self._admin = AdminClient({"bootstrap.servers": bootstrap})

    def create(self, topic: str, partitions: int = 1, settings: Mapping[str, str] | None = None) -> None:
        new = NewTopic(topic, partitions, 1, config=dict(settings or {}))
        self._admin.create_topics([new])[topic].result(DEADLINE_SECONDS)
        wait_until(lambda: self._partitions(topic) == partitions, f"{topic} is there")

    def delete(self, topic: str) -> None:
        self._admin.delete_topics([topic])[topic].result(DEADLINE_SECONDS)
        wait_until(lambda: self._partitions(topic) == 0, f"{topic} is gone")

    def grow(self, topic: str, partitions: int) -> None:
        self._admin.create_partitions([NewPartitions(topic, partitions)])[topic].result(DEADLINE_SECONDS)
        wait_until(lambda: self._partitions(topic) == partitions, f"{topic} has {partitions} partitions")

    def set(self, topic: str, name: str, value: str) -> None:
        """One setting; the others stay."""
        entry = ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
        resource = ConfigResource(ConfigResource.Type.TOPIC, topic, incremental_configs=[entry])
        self._admin.incremental_alter_configs([resource])[resource].result(DEADLINE_SECONDS)

    def settings(self, topic: str) -> dict[str, str]:
        """Those that the topic has of its own."""
        resource = ConfigResource(ConfigResource.Type.TOPIC, topic)
        (described,) = self._admin.describe_configs([resource]).values()
        found = described.result(DEADLINE_SECONDS).values()
        own = ConfigSource.DYNAMIC_TOPIC_CONFIG.value
        return {one.name: one.value for one in found if one.source == own}

    def delete_records(self, topic: str, before: Mapping[int, int]) -> None:
        """By partition all records with lower offsets."""
        wanted = [TopicPartition(topic, partition, offset) for partition, offset in before.items()]
        for done in self._admin.delete_records(wanted).values():
            done.result(DEADLINE_SECONDS)

    def first_offsets(self, topic: str) -> dict[int, int]:
        return self._offsets(topic, OffsetSpec.earliest())

    def end_offsets(self, topic: str) -> dict[int, int]:
        return self._offsets(topic, OffsetSpec.latest())

    def _offsets(self, topic: str, which: OffsetSpec) -> dict[int, int]:
        wanted = [TopicPartition(topic, number) for number in range(self._partitions(topic))]
        answers = self._admin.list_offsets(dict.fromkeys(wanted, which))
        return {where.partition: int(answers[where].result(DEADLINE_SECONDS).offset) for where in wanted}

    def exists(self, topic: str) -> bool:
        return self._partitions(topic) > 0

    def groups(self) -> set[str]:
        """The groups that have members."""
        found = self._admin.list_consumer_groups().result(DEADLINE_SECONDS).valid
        return {group.group_id for group in found if group.state == ConsumerGroupState.STABLE}

    def _partitions(self, topic: str) -> int:
        # All topics: to ask for one by its name might create it.
        found = self._admin.list_topics(timeout=DEADLINE_SECONDS).topics.get(topic)
        return 0 if found is None else len(found.partitions)
