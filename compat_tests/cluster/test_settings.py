"""Settings that are changed through the controllers reach a node of ours; what it cannot honour is named."""

from __future__ import annotations

import pathlib
import socket
import struct

import pytest

from compat_tests.clients import DEADLINE_SECONDS, wait_until
from compat_tests.cluster.inside import Inside
from compat_tests.cluster.test_membership import create_on
from compat_tests.differential.harness import Side
from compat_tests.quorum import Controllers, KafkaMember, OdradekMember
from compat_tests.reference import CONFIG_COMMAND, kafka_tool
from odradek.wire.errors import ErrorCode
from odradek.wire.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from odradek.wire.messages.get_telemetry_subscriptions import GetTelemetrySubscriptionsRequest
from odradek.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)

TOPIC, BROKER, LOGGER, CLIENT_METRICS = 2, 4, 8, 16
SET, DELETE = 0, 1


def altered(side: Side, kind: int, owner: str, **configs: str | None) -> tuple[ErrorCode, str | None]:
    """Sets what is given (None: deletes); underscores for dots."""
    changes = [
        AlterableConfig(
            name=name.replace("_", "."), config_operation=DELETE if value is None else SET, value=value
        )
        for name, value in configs.items()
    ]
    resource = AlterConfigsResource(resource_type=kind, resource_name=owner, configs=changes)
    answer = side.ask(IncrementalAlterConfigsRequest(resources=[resource], validate_only=False), 1)
    return ErrorCode(answer.responses[0].error_code), answer.responses[0].error_message


def described(side: Side, kind: int, owner: str, name: str) -> str | None:
    resource = DescribeConfigsResource(resource_type=kind, resource_name=owner, configuration_keys=[name])
    answer = side.ask(DescribeConfigsRequest(resources=[resource]), 4)
    assert answer.results[0].error_code == 0, answer
    value: str | None = answer.results[0].configs[0].value
    return value


API_VERSIONS = struct.pack(">ihhih", 10, 18, 0, 1, -1)


def is_let_in(port: int) -> bool:
    """Whether a new connection gets an answer at once; beyond a limit it waits."""
    with socket.create_connection(("127.0.0.1", port), timeout=5) as connection:
        connection.settimeout(0.3)
        connection.sendall(API_VERSIONS)
        try:
            return connection.recv(1) != b""
        except TimeoutError:
            return False


def test_a_topics_largest_message_follows_a_change(odradek: OdradekMember) -> None:
    from kafka import KafkaProducer
    from kafka.errors import MessageSizeTooLargeError

    side = Side("odradek", odradek.bootstrap_servers)
    create_on(side, "small", odradek.node_id)
    assert altered(side, TOPIC, "small", max_message_bytes="2000")[0] is ErrorCode.NONE
    wait_until(
        lambda: described(side, TOPIC, "small", "max.message.bytes") == "2000",
        "the node has the setting",
        seconds=DEADLINE_SECONDS,
    )
    producer = KafkaProducer(bootstrap_servers=odradek.bootstrap_servers, acks="all", retries=0)
    producer.send("small", bytes(1000)).get(DEADLINE_SECONDS)
    with pytest.raises(MessageSizeTooLargeError):
        producer.send("small", bytes(3000)).get(DEADLINE_SECONDS)
    assert altered(side, TOPIC, "small", max_message_bytes=None)[0] is ErrorCode.NONE
    wait_until(
        lambda: described(side, TOPIC, "small", "max.message.bytes") != "2000",
        "the setting is gone",
        seconds=DEADLINE_SECONDS,
    )
    producer.send("small", bytes(3000)).get(DEADLINE_SECONDS)
    producer.close()
    side.close()


def test_a_brokers_settings_reach_its_logs_and_connections_by_kafkas_tool(
    controllers: Controllers, tmp_path: pathlib.Path
) -> None:
    with Inside(controllers, 71, tmp_path) as node:
        side = Side("odradek", node.bootstrap_servers)
        create_on(side, "kept-long", 71)
        kafka_tool(
            CONFIG_COMMAND,
            *("--bootstrap-server", node.bootstrap_servers, "--alter", "--entity-type", "brokers"),
            *("--entity-name", "71", "--add-config", "log.retention.ms=12345,max.connections=3"),
        )

        def retention_ms() -> int:
            def look() -> int:
                partition = node.server.store.get("kept-long", 0)
                assert partition is not None
                return partition.config.retention_ms

            return node.call(look)

        wait_until(lambda: retention_ms() == 12345, "the log has it", seconds=DEADLINE_SECONDS)
        held = [socket.create_connection(("127.0.0.1", node.port)) for _ in range(2)]
        wait_until(lambda: not is_let_in(node.port), "a fourth connection waits", seconds=DEADLINE_SECONDS)
        assert altered(side, BROKER, "71", max_connections=None)[0] is ErrorCode.NONE
        wait_until(lambda: is_let_in(node.port), "connections are let in", seconds=DEADLINE_SECONDS)
        assert altered(side, BROKER, "", log_retention_ms="54321")[0] is ErrorCode.NONE
        assert altered(side, BROKER, "71", log_retention_ms=None)[0] is ErrorCode.NONE
        wait_until(lambda: retention_ms() == 54321, "that of all brokers counts", seconds=DEADLINE_SECONDS)
        assert altered(side, BROKER, "", log_retention_ms=None)[0] is ErrorCode.NONE
        for connection in held:
            connection.close()
        side.close()


def test_what_a_broker_cannot_have_is_refused_before_it_is_forwarded(
    odradek: OdradekMember, kafka: KafkaMember
) -> None:
    refused: list[list[ErrorCode]] = []
    for one in (odradek, kafka):
        side, own = Side("broker", one.bootstrap_servers), str(one.node_id)
        refused.append(
            [
                altered(side, BROKER, own, log_retention_ms="soon")[0],
                altered(side, BROKER, own, node_id="9")[0],
                altered(side, BROKER, "", log_retention_ms="soon")[0],
                altered(side, BROKER, "4711", log_retention_ms="1000")[0],
                altered(side, LOGGER, "4711", no_such_logger="INFO")[0],
            ]
        )
        side.close()
    assert refused[0] == refused[1] == [ErrorCode.INVALID_REQUEST] * 5


def test_a_setting_that_cannot_be_honoured_is_named_and_does_no_harm(
    odradek: OdradekMember, kafka: KafkaMember
) -> None:
    side = Side("kafka", kafka.bootstrap_servers)
    code, told = altered(side, BROKER, "", **{"no.such.option": "1"})
    if Controllers.are_ours:
        # Kafka's controller leaves it to the broker in front, which takes any name.
        assert (code, "no.such.option" in str(told)) == (ErrorCode.INVALID_REQUEST, True)
        side.close()
        return
    assert code is ErrorCode.NONE
    sentence = "not honoured here: There is no option 'no.such.option'."
    wait_until(lambda: sentence in odradek.log, "it is named", seconds=DEADLINE_SECONDS)
    create_on(side, "afterwards", odradek.node_id)
    assert altered(side, BROKER, "", **{"no.such.option": None})[0] is ErrorCode.NONE
    side.close()


def test_levels_of_loggers_are_a_nodes_own_and_are_not_forwarded(
    odradek: OdradekMember, kafka: KafkaMember
) -> None:
    answers = []
    for one, name in ((odradek, "odradek.fetch"), (kafka, "kafka.server.ReplicaManager")):
        side, own = Side("broker", one.bootstrap_servers), str(one.node_id)
        answers.append(
            [
                altered(side, LOGGER, own, **{name: "ERROR"})[0],
                described(side, LOGGER, own, name),
                altered(side, LOGGER, own, **{name: "LOUD"})[0],
                altered(side, LOGGER, own, **{name: None})[0],
                altered(side, LOGGER, own, root=None)[0],
            ]
        )
        side.close()
    assert answers[0] == answers[1]
    assert answers[0][:2] == [ErrorCode.NONE, "ERROR"]


def test_a_subscription_to_client_metrics_is_that_of_the_cluster(
    odradek: OdradekMember, kafka: KafkaMember
) -> None:
    """Made through Kafka, changed through us: both tell clients the same."""
    sides = [Side("broker", one.bootstrap_servers) for one in (odradek, kafka)]
    ours, theirs = sides
    assert altered(theirs, CLIENT_METRICS, "all", metrics="org.a")[0] is ErrorCode.NONE
    assert altered(ours, CLIENT_METRICS, "all", **{"interval.ms": "60000"})[0] is ErrorCode.NONE
    assert altered(ours, CLIENT_METRICS, "all", **{"interval.ms": "6"})[0] is ErrorCode.INVALID_REQUEST

    def wanted(side: Side) -> tuple[list[str], int]:
        answer = side.ask(GetTelemetrySubscriptionsRequest(client_instance_id=bytes(16)), 0)
        return answer.requested_metrics, answer.push_interval_ms

    for side in sides:
        wait_until(
            lambda: wanted(side) == (["org.a"], 60_000),  # noqa: B023
            "the subscription is in effect",
            seconds=DEADLINE_SECONDS,
        )
    assert altered(ours, CLIENT_METRICS, "all", metrics=None, **{"interval.ms": None})[0] is ErrorCode.NONE
    for side in sides:
        wait_until(
            lambda: wanted(side) == ([], 300_000),  # noqa: B023
            "the subscription is gone",
            seconds=DEADLINE_SECONDS,
        )
        side.close()
