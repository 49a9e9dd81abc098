"""Settings of topics and brokers changed by the admin clients of the libraries, as they come."""

from __future__ import annotations

import asyncio
import warnings
from collections.abc import Iterator

import pytest
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.admin.config_resource import ConfigResource as AioResource
from aiokafka.admin.config_resource import ConfigResourceType as AioType
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry
from confluent_kafka.admin import ConfigResource as ConfluentResource
from kafka import KafkaAdminClient
from kafka.admin import ConfigResource

from compat_tests.clients import wait_until
from compat_tests.clients.kafka_python import KafkaPythonClient
from compat_tests.stories import topic_name

BROKER_SETTING = "log.cleaner.delete.retention.ms"
"""Of no consequence to other tests that use the same broker."""


@pytest.fixture
def topic(bootstrap: str) -> str:
    name = topic_name("settings")
    KafkaPythonClient(bootstrap).create_topic(name, 2)
    return name


@pytest.fixture
def admin(bootstrap: str) -> Iterator[KafkaAdminClient]:
    with KafkaAdminClient(bootstrap_servers=bootstrap) as admin:
        yield admin


def settings_of(admin: KafkaAdminClient, kind: str, name: str) -> dict[str, str]:
    """What is set for the resource itself."""
    found = admin.describe_configs([ConfigResource(kind, name)])[kind.lower()][name]
    return {key: entry["value"] for key, entry in found.items()}


def wait_for(admin: KafkaAdminClient, topic: str, expected: dict[str, str]) -> None:
    # Apache Kafka answers before its brokers have heard of it.
    wait_until(lambda: settings_of(admin, "TOPIC", topic) == expected, f"{expected} is set")


@pytest.mark.parametrize("incremental", [True, False])
def test_kafka_python_alters_and_resets(admin: KafkaAdminClient, topic: str, incremental: bool) -> None:
    def alter(**options: object) -> str:
        resource = ConfigResource("TOPIC", topic, {"retention.ms": "86400000", "cleanup.policy": "compact"})
        return admin.alter_configs([resource], incremental=incremental, **options)["topic"][topic]

    assert alter(validate_only=True) == "OK"
    assert settings_of(admin, "TOPIC", topic) == {}
    assert alter() == "OK"
    wait_for(admin, topic, {"retention.ms": "86400000", "cleanup.policy": "compact"})
    bad = ConfigResource("TOPIC", topic, {"retention.ms": "soon"})
    assert "InvalidConfig" in admin.alter_configs([bad], incremental=incremental)["topic"][topic]
    if incremental:
        more = ConfigResource("TOPIC", topic, {"cleanup.policy": ("APPEND", "delete")})
        assert admin.alter_configs([more])["topic"][topic] == "OK"
        wait_for(admin, topic, {"retention.ms": "86400000", "cleanup.policy": "compact,delete"})
    reset = ConfigResource("TOPIC", topic, ["retention.ms", "cleanup.policy"])
    assert admin.reset_configs([reset], incremental=incremental)["topic"][topic] == "OK"
    wait_for(admin, topic, {})


def test_kafka_python_alters_a_broker(admin: KafkaAdminClient) -> None:
    def alter(value: object) -> str:
        return admin.alter_configs([ConfigResource("BROKER", "1", {BROKER_SETTING: value})])["broker"]["1"]

    assert alter("86400001") == "OK"
    wait_until(lambda: settings_of(admin, "BROKER", "1").get(BROKER_SETTING) == "86400001", "it is set")
    assert alter(("DELETE", None)) == "OK"
    wait_until(lambda: BROKER_SETTING not in settings_of(admin, "BROKER", "1"), "it is taken back")


def test_confluent_kafka_alters_incrementally_and_as_a_whole(
    bootstrap: str, admin: KafkaAdminClient, topic: str
) -> None:
    confluent = AdminClient({"bootstrap.servers": bootstrap})

    def change(name: str, value: str | None, kind: AlterConfigOpType) -> None:
        entry = ConfigEntry(name, value, incremental_operation=kind)
        resource = ConfluentResource("TOPIC", topic, incremental_configs=[entry])
        confluent.incremental_alter_configs([resource])[resource].result(30)

    change("cleanup.policy", "compact", AlterConfigOpType.APPEND)
    wait_for(admin, topic, {"cleanup.policy": "delete,compact"})
    change("cleanup.policy", "delete", AlterConfigOpType.SUBTRACT)
    change("flush.ms", "1000", AlterConfigOpType.SET)
    wait_for(admin, topic, {"cleanup.policy": "compact", "flush.ms": "1000"})
    change("cleanup.policy", None, AlterConfigOpType.DELETE)
    with pytest.raises(KafkaException, match="INVALID_CONFIG"):
        change("flush.ms", "soon", AlterConfigOpType.SET)
    wait_for(admin, topic, {"flush.ms": "1000"})
    whole = ConfluentResource("TOPIC", topic, set_config={"retention.bytes": "7"})
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        confluent.alter_configs([whole])[whole].result(30)
    wait_for(admin, topic, {"retention.bytes": "7"})


def test_aiokafka_alters_as_a_whole(bootstrap: str, admin: KafkaAdminClient, topic: str) -> None:
    async def alter() -> None:
        aio = AIOKafkaAdminClient(bootstrap_servers=bootstrap)
        await aio.start()
        try:
            resource = AioResource(AioType.TOPIC, topic, {"segment.ms": "5000000"})
            (answer,) = await aio.alter_configs([resource])
            assert answer.resources[0][0] == 0
        finally:
            await aio.close()

    asyncio.run(alter())
    wait_for(admin, topic, {"segment.ms": "5000000"})
