"""Brokers that advertise older versions of APIs: what they tell and refuse, and clients that follow."""

import pytest
from confluent_kafka import Consumer, Producer
from kafka import KafkaConsumer, KafkaProducer

import odradek
from odradek.config.api_releases import RELEASES, last_versions
from odradek.wire.frames import request_frame
from odradek.wire.messages.api_versions import ApiVersionsRequest
from odradek.wire.messages.delete_groups import DeleteGroupsRequest
from odradek.wire.messages.fetch import FetchRequest
from odradek.wire.messages.sasl_authenticate import SaslAuthenticateRequest
from odradek.wire.messages.sasl_handshake import SaslHandshakeRequest
from tests.raw_client import RawClient, read_frame

API_VERSIONS, FETCH, PRODUCE, DELETE_GROUPS = 18, 1, 0, 42
TELEMETRY = {71, 72}
"""Advertised while there is a subscription."""
SASL = {
    "listeners": "SASL_PLAINTEXT://127.0.0.1:0",
    "sasl.enabled.mechanisms": "PLAIN",
    "security.inter.broker.protocol": "SASL_PLAINTEXT",
    "listener.name.sasl_plaintext.plain.sasl.jaas.config": (
        "org.apache.kafka.common.security.plain.PlainLoginModule required user_ann='pw';"
    ),
    "connection.failed.authentication.delay.ms": "10",
}
RIGHT = b"\0ann\0pw"


def asked(version):
    return ApiVersionsRequest(client_software_name="tests", client_software_version="1")


def told(broker, version):
    with RawClient(broker.port) as client:
        return client.ask(asked(version), version)


def last_of(response):
    return {one.api_key: one.max_version for one in response.api_keys}


def test_every_version_of_api_versions_tells_the_limits():
    with odradek.Broker(max_versions={"Fetch": 11, "Produce": 7}) as broker:
        for version in range(6):
            last = last_of(told(broker, version))
            assert (last[FETCH], last[PRODUCE], last[DELETE_GROUPS]) == (11, 7, 3)


def test_an_api_may_be_left_out():
    with odradek.Broker(max_versions={"DeleteGroups": -1}) as broker, RawClient(broker.port) as client:
        last = last_of(told(broker, 3))
        assert DELETE_GROUPS not in last
        assert last[FETCH] == FetchRequest.versions[-1]
        client.send_request(DeleteGroupsRequest(groups_names=["shop"]), 0)
        with pytest.raises(EOFError):
            read_frame(client.socket)
    with pytest.raises(odradek.BrokerStartError, match=r"every broker from Kafka 0\.10 on has ApiVersions"):
        odradek.Broker(max_versions={"ApiVersions": -1}).start()


def test_a_request_of_a_later_version_ends_its_connection():
    with odradek.Broker(max_versions={"Fetch": 11}) as broker, RawClient(broker.port) as client:
        client.ask(FetchRequest(), 11)
        client.send_request(FetchRequest(), 12)
        with pytest.raises(EOFError):
            read_frame(client.socket)


def test_a_later_version_of_api_versions_is_answered_with_error_35():
    with odradek.Broker(emulate="2.4") as broker, RawClient(broker.port) as client:
        client.send(request_frame(asked(4), 4, 7, "tests"))
        response = read_frame(client.socket)
        correlation_id, error, count = (
            int.from_bytes(response[start:stop], "big") for start, stop in ((0, 4), (4, 6), (6, 10))
        )
        assert (correlation_id, error, count) == (7, 35, 1)
        assert response[10:] == bytes([0, API_VERSIONS, 0, 0, 0, 3])
        # The connection goes on, as the client is to ask again.
        assert client.ask(asked(3), 3).error_code == 0


@pytest.mark.parametrize("release", RELEASES)
def test_a_release_advertises_its_versions_and_no_more(release):
    with odradek.Broker(emulate=release) as broker:
        expected = {key: last for key, last in last_versions(None, release).items() if last >= 0}
        last = last_of(told(broker, 3))
        assert last == {key: version for key, version in expected.items() if key not in TELEMETRY}


@pytest.mark.parametrize(
    ("release", "finalized"),
    [
        ("2.4", {}),
        ("3.2", {}),
        ("3.3", {"metadata.version": 7}),
        ("3.9", {"kraft.version": 1, "metadata.version": 21}),
        (
            "4.0",
            {"group.version": 1, "kraft.version": 1, "metadata.version": 25, "transaction.version": 2},
        ),
    ],
)
def test_a_release_has_its_features(release, finalized):
    with odradek.Broker(emulate=release) as broker:
        response = told(broker, 3)
        assert {one.name: one.max_version_level for one in response.finalized_features} == finalized
        supported = {one.name: one.max_version for one in response.supported_features}
        # Version 3 of ApiVersions has none that begin at level 0.
        assert supported == {name: finalized[name] for name in supported}


def test_a_directory_of_a_later_release_is_refused(tmp_path):
    with odradek.Broker(data_dir=tmp_path):
        pass
    with pytest.raises(odradek.BrokerStartError) as refused:
        odradek.Broker(data_dir=tmp_path, emulate="3.9").start()
    assert "Kafka 3.9 has eligible.leader.replicas.version 0 at most" in str(refused.value)
    assert "begin with a new directory" in str(refused.value)


def test_a_directory_of_the_same_release_is_taken_again(tmp_path):
    for _ in range(2):
        with odradek.Broker(data_dir=tmp_path, emulate="3.9") as broker:
            assert last_of(told(broker, 3))[FETCH] == 17


@pytest.mark.parametrize("release", ["2.4", "3.9"])
def test_clients_write_and_read_at_an_older_broker(release):
    with odradek.Broker(emulate=release) as broker:
        server = {"bootstrap_servers": broker.bootstrap_servers}
        producer = KafkaProducer(**server)
        producer.send("old", b"kafka-python").get(30)
        producer.close()
        native = Producer({"bootstrap.servers": broker.bootstrap_servers, "enable.idempotence": True})
        native.produce("old", b"librdkafka")
        assert native.flush(30) == 0
        consumer = KafkaConsumer("old", group_id="g", auto_offset_reset="earliest", **server)
        assert {next(consumer).value, next(consumer).value} == {b"kafka-python", b"librdkafka"}
        consumer.close()
        settings = {
            "bootstrap.servers": broker.bootstrap_servers,
            "group.id": "h",
            "auto.offset.reset": "earliest",
        }
        other = Consumer(settings)
        other.subscribe(["old"])
        assert len(other.consume(2, 30)) == 2
        other.close()
        requests = broker.metrics()
        last = last_versions(None, release)
        assert max(version for name, version in requests if name == "Fetch") <= last[FETCH]
        assert max(version for name, version in requests if name == "Produce") <= last[PRODUCE]


def test_the_limits_hold_before_a_login_too():
    limits = {"Fetch": 11, "ApiVersions": 2, "SaslAuthenticate": 1}
    with odradek.Broker(options=SASL, max_versions=limits) as broker:
        with RawClient(broker.port) as client:
            assert last_of(client.ask(asked(2), 2))[FETCH] == 11
        with RawClient(broker.port) as client:
            client.send(request_frame(asked(3), 3, 7, "tests"))
            assert int.from_bytes(read_frame(client.socket)[4:6], "big") == 35
        with RawClient(broker.port) as client:
            assert client.ask(SaslHandshakeRequest(mechanism="PLAIN"), 1).error_code == 0
            client.send_request(SaslAuthenticateRequest(auth_bytes=RIGHT), 2)
            assert client.read_to_end() == b""
        with RawClient(broker.port) as client:
            assert client.ask(SaslHandshakeRequest(mechanism="PLAIN"), 1).error_code == 0
            assert client.ask(SaslAuthenticateRequest(auth_bytes=RIGHT), 1).error_code == 0
            assert last_of(client.ask(asked(2), 2))[FETCH] == 11


def test_a_child_process_takes_the_same_arguments():
    with odradek.Broker(process=True, emulate="3.9", max_versions={"Fetch": 4}) as broker:
        last = last_of(told(broker, 3))
        assert (last[FETCH], last[PRODUCE], last[API_VERSIONS]) == (4, 11, 4)


def test_names_that_there_are_not_are_refused_at_the_start():
    with pytest.raises(odradek.BrokerStartError, match="brokers have no API 'Fetsh'; did you mean Fetch"):
        odradek.Broker(max_versions={"Fetsh": 1}).start()
