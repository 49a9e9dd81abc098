"""Faults that are not of requests: connections that are refused, logins that fail, disks that are full."""

import time

import pytest
from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import AdminClient, NewTopic

import odradek
from odradek.embedding.free_port import free_port
from odradek.server.test_kit.kit import TestKitError
from odradek.wire.messages.api_versions import ApiVersionsRequest
from tests.raw_client import RawClient

JAAS = "org.apache.kafka.common.security.plain.PlainLoginModule required user_ann='right' user_bob='right';"


def made(broker, *names):
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    for created in admin.create_topics([NewTopic(name, 1, 1) for name in names]).values():
        created.result(20)


def produced(broker, topic, delivery_ms=60_000):
    """The offset, or the name of the error."""
    told = []
    producer = Producer(
        {"bootstrap.servers": broker.bootstrap_servers, "delivery.timeout.ms": delivery_ms, "retries": 0}
    )
    producer.produce(topic, b"x", partition=0, callback=lambda error, message: told.append((error, message)))
    producer.flush(120)
    ((error, message),) = told
    return message.offset() if error is None else error.name()


def test_connections_are_reset_and_the_next_ones_are_served():
    with odradek.Broker() as broker, broker.faults.add(refuse_connection=True, times=2) as fault:
        for _ in range(2):
            with pytest.raises((ConnectionError, EOFError)), RawClient(broker.port) as client:
                client.ask(ApiVersionsRequest(), 0)
        with RawClient(broker.port) as client:
            assert client.ask(ApiVersionsRequest(), 0).error_code == 0
        assert fault.fired == 2


def test_a_client_gets_over_connections_that_are_refused():
    with odradek.Broker() as broker:
        made(broker, "t")
        with broker.faults.add(refuse_connection=True, times=3) as fault:
            assert produced(broker, "t") == 0
            assert fault.fired == 3


def test_a_login_fails_with_the_right_password_and_only_that_of_the_one_who_is_named():
    port = free_port()
    options = {
        "listeners": f"LOGIN://127.0.0.1:{port}",
        "listener.security.protocol.map": "LOGIN:SASL_PLAINTEXT",
        "inter.broker.listener.name": "LOGIN",
        "sasl.enabled.mechanisms": "PLAIN",
        "sasl.mechanism.inter.broker.protocol": "PLAIN",
        "listener.name.login.plain.sasl.jaas.config": f"{JAAS[:-1]} username='ann' password='right';",
        "connection.failed.authentication.delay.ms": "0",
    }

    def topics_of(user, seconds=60):
        told = []
        admin = AdminClient(
            {
                "bootstrap.servers": f"127.0.0.1:{port}",
                "security.protocol": "SASL_PLAINTEXT",
                "sasl.mechanism": "PLAIN",
                "sasl.username": user,
                "sasl.password": "right",
                "error_cb": lambda error: told.append(error.name()),
            }
        )
        try:
            return list(admin.list_topics(timeout=seconds).topics)
        except KafkaException:
            deadline = time.monotonic() + 60
            while not told and time.monotonic() < deadline:
                admin.poll(0.2)
            return told

    with odradek.Broker(options=options, port=port) as broker:
        assert topics_of("ann") == []
        with broker.faults.add(fail_login=True, principal="User:ann") as fault:
            assert "_AUTHENTICATION" in topics_of("ann", seconds=1)
            assert topics_of("bob") == []
            assert fault.fired >= 1
        assert topics_of("ann") == []


@pytest.mark.parametrize("process", [False, True])
def test_a_partition_is_on_a_full_disk_until_the_fault_is_over_and_others_are_not(process):
    with odradek.Broker(process=process) as broker:
        made(broker, "full", "free")
        assert produced(broker, "full") == 0
        with broker.faults.add(disk_error="ENOSPC", topic="full", partition=0) as fault:
            assert produced(broker, "full") == "KAFKA_STORAGE_ERROR"
            assert produced(broker, "free") == 0
            assert fault.fired >= 1
        assert produced(broker, "full") == 1


def test_a_broken_disk_takes_its_directory_offline_and_leaves_the_other(tmp_path):
    paths = [tmp_path / name for name in ("a", "b")]
    with odradek.Broker(options={"log.dirs": ",".join(map(str, paths))}, data_dir=paths[0]) as broker:
        made(broker, "one", "two", "three", "four")
        homes = {
            name: next(path for path in paths if (path / f"{name}-0").is_dir())
            for name in ("one", "two", "three", "four")
        }
        broken = homes["two"]
        with broker.faults.add(disk_error="EIO", directory=broken) as fault:
            for name, home in homes.items():
                delivery_ms = 3_000 if home == broken else 60_000
                assert isinstance(produced(broker, name, delivery_ms), int) is (home != broken), name
            assert fault.fired >= 1


def test_what_could_never_fire_is_refused(tmp_path):
    with odradek.Broker() as broker:
        for arguments, sentence in (
            ({"disk_error": "EBUSY", "directory": tmp_path}, "disk_error is ENOSPC or EIO, not 'EBUSY'"),
            ({"disk_error": "EIO", "directory": tmp_path}, f"{str(tmp_path)!r} is not a data directory"),
            ({"disk_error": "EIO", "topic": "t"}, "disk_error needs a directory, or a topic and a partition"),
            (
                {"disk_error": "EIO", "topic": "t", "partition": 7},
                "this broker has no partition t-7",
            ),
            ({"fail_login": True}, "no listener has SASL, so no login could fail"),
            ({"refuse_connection": True, "listener": "X"}, "there is no listener 'X'; there are PLAINTEXT"),
            ({"refuse_connection": True, "topic": "t"}, "refuse_connection cannot be combined with topic"),
        ):
            with pytest.raises(TestKitError) as refused:
                broker.faults.add(**arguments)
            assert str(refused.value).startswith(sentence)


def test_a_node_of_a_cluster_has_faults_of_its_own():
    with odradek.Cluster(nodes=2, min_insync_replicas=1) as cluster:
        first, second = cluster.nodes
        with first.faults.add("ApiVersions", lose_response=True):
            with pytest.raises(EOFError), RawClient(first.port) as client:
                client.ask(ApiVersionsRequest(), 0)
            with RawClient(second.port) as client:
                assert client.ask(ApiVersionsRequest(), 0).error_code == 0
