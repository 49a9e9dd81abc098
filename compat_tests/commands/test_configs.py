"""`odradek configs` says what the AdminClient of librdkafka says."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from confluent_kafka.admin import AdminClient, ConfigResource, ConfigSource, ResourceType

from compat_tests.clients import wait_until
from compat_tests.clients.kafka_python import KafkaPythonClient
from compat_tests.stories import topic_name

Rows = list[dict[str, object]]
Command = Callable[..., Rows]
KINDS = {"topic": ResourceType.TOPIC, "broker": ResourceType.BROKER, "group": ResourceType.GROUP}


@pytest.fixture
def admin(bootstrap: str) -> AdminClient:
    return AdminClient({"bootstrap.servers": bootstrap})


@pytest.fixture
def topic(bootstrap: str) -> str:
    name = topic_name("configs")
    KafkaPythonClient(bootstrap).create_topic(name, 1)
    return f"topic:{name}"


def described(admin: AdminClient, resource: str) -> dict[str, tuple[object, ...]]:
    """Value, source, sensitive and read only by name."""
    word, _, name = resource.partition(":")
    (future,) = admin.describe_configs([ConfigResource(KINDS[word], name)]).values()
    return {
        one.name: (one.value, one.source, one.is_sensitive, one.is_read_only)
        for one in future.result(30).values()
    }


def told(rows: Rows) -> dict[str, tuple[object, ...]]:
    return {
        str(row["name"]): (
            row["value"],
            ConfigSource.GROUP_CONFIG.value
            if row["source"] == "DYNAMIC_GROUP_CONFIG" and hasattr(ConfigSource, "GROUP_CONFIG")
            else ConfigSource[str(row["source"])].value,
            row["sensitive"],
            row["read_only"],
        )
        for row in rows
    }


def test_all_options_are_those_of_the_admin_client(
    rows: Command, admin: AdminClient, topic: str, is_older: bool
) -> None:
    rows("configs", "set", topic, "retention.ms=5000")
    wait_until(lambda: described(admin, topic)["retention.ms"][0] == "5000", "the option is set")
    for resource in (topic, "broker:1", *([] if is_older else ["group:readers"])):
        mine = rows("configs", "get", resource)
        assert len(mine) > 5
        assert told(mine) == described(admin, resource), resource


def test_the_difference_is_what_has_another_source(rows: Command, admin: AdminClient, topic: str) -> None:
    rows("configs", "set", topic, "cleanup.policy+=compact", "max.message.bytes=2000000")
    wait_until(lambda: described(admin, topic)["max.message.bytes"][0] == "2000000", "the options are set")
    for resource in (topic, "broker:1"):
        theirs = {
            name: one
            for name, one in described(admin, resource).items()
            if one[1] != ConfigSource.DEFAULT_CONFIG.value
        }
        assert told(rows("configs", "diff", resource)) == theirs
        assert len(theirs) > 1


def test_values_after_a_change_are_those_that_the_broker_then_has(
    rows: Command, admin: AdminClient, topic: str
) -> None:
    changes = (
        ("set", "max.message.bytes=5000", "cleanup.policy+=compact"),
        ("set", "cleanup.policy-=delete"),
        ("unset", "max.message.bytes", "cleanup.policy"),
    )
    for action, *more in changes:
        planned = rows("configs", action, topic, *more, "--dry-run")
        assert rows("configs", action, topic, *more) == planned
        for row in planned:
            wait_until(
                lambda row=row: described(admin, topic)[row["name"]][0] == row["value"],  # type: ignore[misc]
                f"it is {row}",
            )


def test_a_refused_value_changes_nothing(rows: Command, admin: AdminClient, topic: str) -> None:
    before = described(admin, topic)
    assert rows("configs", "set", topic, "max.message.bytes=5000", "retention.ms=soon", status=1) == []
    assert described(admin, topic) == before
