"""The same changes in Kafka 3.9 and in Odradek: both write the same nodes, field by field."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient, ConfigResource, NewPartitions, NewTopic

import odradek
from compat_tests.clients import wait_until
from compat_tests.zookeeper.conftest import Looking, in_zookeeper
from compat_tests.zookeeper.ensemble import KafkaInZooKeeper, ZooKeeper
from odradek.wire.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    EntityData,
    EntryData,
    OpData,
)
from tests.raw_client import RawClient

SECONDS = 30
OTHER_EACH_TIME = {"timestamp", "topic_id", "port", "endpoints"}
OURS = {"odradek"}
FOLDERS = {
    "/brokers/seqid",
    "/isr_change_notification",
    "/latest_producer_id_block",
    "/log_dir_event_notification",
}


def quota(name: str, value: float, **entity: str | None) -> EntryData:
    parts = [EntityData(entity_type=kind.replace("_", "-"), entity_name=who) for kind, who in entity.items()]
    return EntryData(entity=parts, ops=[OpData(key=name, value=value, remove=False)])


QUOTAS = [
    quota("producer_byte_rate", 1000, user="alice"),
    quota("producer_byte_rate", 1000, user="a~b *+/\u00e9"),
    quota("request_percentage", 12.5, client_id="c.1"),
    quota("request_percentage", 200, user="alice", client_id="c 2"),
    quota("consumer_byte_rate", 2000, user=None),
    quota("connection_creation_rate", 9, ip="127.0.0.9"),
]


@pytest.fixture(scope="module")
def sides(server: ZooKeeper) -> Iterator[dict[str, Looking]]:
    """What each of them has written, by its name."""
    addresses = {name: f"{server.address}/nodes-of-{name}" for name in ("kafka", "odradek")}
    with KafkaInZooKeeper(addresses["kafka"]) as kafka, in_zookeeper(addresses["odradek"]) as ours:
        looking = {name: Looking(address) for name, address in addresses.items()}
        for name, broker in (("kafka", kafka), ("odradek", ours)):
            change(broker, looking[name])
        yield looking
        for one in looking.values():
            one.close()


def change(broker: odradek.Broker | KafkaInZooKeeper, looking: Looking) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    topics = [
        NewTopic("plain", 2),
        NewTopic("set", 1, config={"retention.ms": "5000", "cleanup.policy": "compact"}),
    ]
    for future in admin.create_topics(topics).values():
        future.result(SECONDS)
    admin.create_partitions([NewPartitions("plain", 3)])["plain"].result(SECONDS)
    for kind, name, value in (("topic", "set", "6000"), ("broker", "1", "7000")):
        key = "retention.ms" if kind == "topic" else "log.cleaner.backoff.ms"
        resource = ConfigResource(kind, name)
        resource.add_incremental_config(entry(key, value))
        for future in admin.incremental_alter_configs([resource]).values():
            future.result(SECONDS)
    with RawClient(broker.port) as client:
        answer = client.ask(AlterClientQuotasRequest(entries=QUOTAS, validate_only=False), 1)
    assert [one.error_code for one in answer.entries] == [0] * len(QUOTAS)
    wait_until(lambda: looking.children("/config/ips") != [], "ZooKeeper has it all")


def entry(key: str, value: str) -> Any:
    from confluent_kafka.admin import AlterConfigOpType, ConfigEntry

    return ConfigEntry(key, value, incremental_operation=AlterConfigOpType.SET)


def tree(looking: Looking, path: str) -> dict[str, Any]:
    """Contents by path, of this one and all below it; JSON where it is such. Notifications, which go after a
    while, are left out."""
    content = looking.read(path) or b"null"
    try:
        found: dict[str, Any] = {path: json.loads(content)}
    except ValueError:
        found = {path: content}
    for name in looking.children(path):
        if path != "/config/changes":
            found |= tree(looking, f"{path}/{name}")
    return found


@pytest.mark.parametrize(
    "path", ["/brokers/ids", "/brokers/topics", "/config", "/cluster", "/controller", "/controller_epoch"]
)
def test_the_nodes_are_the_same(sides: dict[str, Looking], path: str) -> None:
    kafka, ours = (tree(sides[name], path) for name in ("kafka", "odradek"))
    if path == "/config":
        # With the eligible leader replicas of Kafka 4 this is a setting of the cluster.
        settings = ours.pop("/config/brokers/<default>")
        assert settings == {"version": 1, "config": {"min.insync.replicas": "1"}}
    assert kafka.keys() == ours.keys()
    for name, theirs in kafka.items():
        if isinstance(theirs, dict):
            assert kinds(theirs) == kinds({key: one for key, one in ours[name].items() if key not in OURS}), (
                name
            )
            assert settled(theirs, path) == settled(ours[name], path), name
        else:
            assert theirs == ours[name], name


def kinds(content: dict[str, Any]) -> dict[str, type]:
    return {key: type(value) for key, value in content.items()}


def settled(content: dict[str, Any], path: str) -> dict[str, Any]:
    """The fields that are the same each time."""
    other = OTHER_EACH_TIME | OURS | ({"id"} if path == "/cluster" else set())
    return {key: value for key, value in content.items() if key not in other}


def test_what_is_there_for_old_clients_is_there(sides: dict[str, Looking]) -> None:
    for path in FOLDERS | {"/consumers", "/admin/delete_topics"}:
        assert sides["kafka"].client.exists(path), path
        assert sides["odradek"].client.exists(path), path
