"""`odradek cluster` says what the AdminClient of kafka-python says."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from kafka.admin import KafkaAdminClient

from compat_tests.clients import wait_until
from compat_tests.clients.kafka_python import KafkaPythonClient
from compat_tests.stories import topic_name

Rows = list[dict[str, Any]]
Command = Callable[..., Rows]


@pytest.fixture
def admin(bootstrap: str) -> Iterator[KafkaAdminClient]:
    client = KafkaAdminClient(bootstrap_servers=bootstrap)
    yield client
    client.close()


def test_brokers_are_those_of_the_admin_client(
    rows: Command, admin: KafkaAdminClient, is_older: bool
) -> None:
    theirs = admin.describe_cluster()
    mine = rows("cluster", "info")
    assert {row["cluster_id"] for row in mine} == {theirs["cluster_id"]}
    assert [row["broker"] for row in mine if row["controller"]] == [theirs["controller_id"]]
    assert [(row["broker"], row["host"], row["port"], row["rack"], row["fenced"]) for row in mine] == [
        tuple(one.get(name) for name in ("broker_id", "host", "port", "rack", "is_fenced"))
        for one in theirs["brokers"]
    ]
    assert {row["release"] for row in mine} == {"3.9" if is_older else "4.4"}


def test_features_are_those_of_the_admin_client(
    rows: Command, admin: KafkaAdminClient, is_older: bool
) -> None:
    theirs = {
        name: (told.get("finalized", (0, 0))[1], *told["supported"])
        for name, told in admin.describe_features().items()
    }
    mine = {
        row["feature"]: (row["finalized_level"], row["supported_min"], row["supported_max"])
        for row in rows("cluster", "features")
    }
    assert mine == theirs
    assert len(mine) > (1 if is_older else 3)


def test_directories_are_those_of_the_admin_client(
    rows: Command, admin: KafkaAdminClient, bootstrap: str
) -> None:
    KafkaPythonClient(bootstrap).create_topic(topic_name("stored"), 3)

    def theirs() -> list[Any]:
        return [
            (
                broker["broker"],
                one["log_dir"],
                sum(len(topic["partitions"]) for topic in one["topics"]),
                sum(each["partition_size"] for topic in one["topics"] for each in topic["partitions"]),
                one["total_bytes"],
            )
            for broker in admin.describe_log_dirs()
            for one in broker["log_dirs"]
        ]

    names = ("broker", "log_dir", "replicas", "size_bytes", "total_bytes")
    wait_until(
        lambda: [tuple(row[name] for name in names) for row in rows("cluster", "log-dirs")] == theirs(),
        "the directories have settled",
    )
    assert sum(one[2] for one in theirs()) >= 3


def test_a_sound_broker_is_healthy(rows: Command, is_older: bool) -> None:
    found = {row["check"]: row["healthy"] for row in rows("cluster", "health", "--min-free", "0")}
    if is_older:
        assert found.pop("brokers_fenced") is None, "3.9 does not tell who is fenced"
    assert set(found.values()) == {True}
    assert len(found) == (6 if is_older else 7)
