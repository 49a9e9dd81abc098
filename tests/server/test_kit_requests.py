"""Recorded requests: what clients really sent, and what they got."""

import json

import pytest
from confluent_kafka import Producer
from kafka import KafkaConsumer, KafkaProducer

import odradek
from odradek.server.test_kit import requests as part
from odradek.server.test_kit.kit import TestKitError
from odradek.server.test_kit.message_values import HIDDEN, MessageValues
from odradek.wire.messages import api_keys, find
from odradek.wire.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialUpsertion,
)
from odradek.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from odradek.wire.messages.describe_cluster import DescribeClusterRequest
from odradek.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from odradek.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from odradek.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from odradek.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from odradek.wire.messages.sasl_authenticate import SaslAuthenticateRequest
from odradek.wire.records import build_batch
from odradek.wire.schema import Array, fields_of
from tests.raw_client import RawClient

SECRET = "s3cr3t-value"


@pytest.fixture(params=[False, True], ids=["thread", "process"])
def broker(request):
    with odradek.Broker(process=request.param) as broker:
        yield broker


@pytest.fixture
def threaded():
    with odradek.Broker() as broker:
        yield broker


def create(client, name, partitions=1):
    topic = CreatableTopic(name=name, num_partitions=partitions, replication_factor=1)
    assert client.ask(CreateTopicsRequest(topics=[topic]), 7).topics[0].error_code == 0


def produce_request(topic, *values, acks=-1, partition=0):
    batch = build_batch([(number, 1, b"k", value) for number, value in enumerate(values)])
    data = PartitionProduceData(index=partition, records=bytes(batch))
    return ProduceRequest(
        acks=acks, timeout_ms=1000, topic_data=[TopicProduceData(name=topic, partition_data=[data])]
    )


def test_requests_come_decoded_with_their_responses(broker):
    broker.requests.record()
    mark = broker.requests.mark()
    producer = KafkaProducer(bootstrap_servers=broker.bootstrap_servers, client_id="shop")
    producer.send("orders", SECRET.encode(), key=b"k").get(30)
    producer.close()
    (seen,) = broker.requests(api="Produce", topic="orders", since=mark)
    assert (seen.client_id, seen.principal, seen.outcome) == ("shop", "User:ANONYMOUS", "answered")
    assert seen.has_response
    assert seen.address.startswith("127.0.0.1:")
    assert seen.duration_ms > 0
    (partition,) = seen.response["responses"][0]["partition_responses"]
    assert (partition["base_offset"], partition["error_code"], partition["error_code_name"]) == (0, 0, "NONE")
    (batch,) = seen.request["topic_data"][0]["partition_data"][0]["records"]["batches"]
    assert (batch["record_count"], batch["compression"]) == (1, "none")
    assert "records" not in batch
    assert SECRET not in json.dumps(seen.request)


def test_requests_that_were_never_recorded_are_refused_and_not_missing(broker):
    with pytest.raises(TestKitError, match=r"no requests are recorded: call requests\.record\(\) before"):
        broker.requests(api="Produce")
    with pytest.raises(TestKitError, match="no requests are recorded"):
        broker.wait_for.request(api="Produce")


def test_an_api_that_there_is_not_is_refused(threaded):
    threaded.requests.record()
    with pytest.raises(TestKitError, match="there is no API 'Prodce' here; did you mean Produce"):
        threaded.requests(api="Prodce")


def test_requests_of_repeated_beginnings_are_seen_too(threaded):
    producer = Producer({"bootstrap.servers": threaded.bootstrap_servers, "linger.ms": 0})
    for _ in range(3):
        producer.produce("t", b"before")
        assert producer.flush(30) == 0
    threaded.requests.record()
    mark = threaded.requests.mark()
    for _ in range(5):
        producer.produce("t", b"x")
        assert producer.flush(30) == 0
    assert len(threaded.requests(api="Produce", since=mark)) == 5
    threaded.requests.stop()
    producer.produce("t", b"after")
    assert producer.flush(30) == 0
    with pytest.raises(TestKitError):
        threaded.requests()


def test_records_are_shown_if_they_are_asked_for(threaded):
    threaded.requests.record(with_records=True)
    producer = KafkaProducer(bootstrap_servers=threaded.bootstrap_servers, compression_type="gzip")
    producer.send("t", b"value" * 200, key=b"key", headers=[("h", b"\xff")]).get(30)
    consumer = KafkaConsumer(
        "t", bootstrap_servers=threaded.bootstrap_servers, auto_offset_reset="earliest", group_id=None
    )
    assert next(consumer).value == b"value" * 200
    consumer.close()
    producer.close()
    (sent,) = threaded.requests(api="Produce")
    (batch,) = sent.request["topic_data"][0]["partition_data"][0]["records"]["batches"]
    assert batch["compression"] == "gzip"
    (record,) = batch["records"]
    assert (record["key"], record["value"]) == ("key", "value" * 200)
    assert record["headers"] == [{"key": "h", "value": {"base64": "/w=="}}]
    fetched = [
        record
        for one in threaded.requests(api="Fetch", topic="t")
        if one.response is not None
        for topic in one.response["responses"]
        for partition in topic["partitions"]
        for batch in (partition["records"] or {}).get("batches", ())
        for record in batch["records"]
    ]
    assert [(one["offset"], one["value"]) for one in fetched] == [(0, "value" * 200)]


def test_the_oldest_are_dropped_and_counted(threaded):
    threaded.requests.record(requests_max=3)
    with RawClient(threaded.port) as client:
        for number in range(10):
            client.ask(DescribeClusterRequest(), 0, number)
    seen = threaded.requests()
    assert [one.correlation_id for one in seen] == [7, 8, 9]
    assert (seen.dropped, threaded.requests.dropped) == (7, 7)
    assert threaded.requests(since=5).dropped == 2
    assert threaded.requests(since=8).dropped == 0


def test_memory_is_bounded_in_bytes(threaded):
    threaded.requests.record(bytes_max=20_000)
    with RawClient(threaded.port) as client:
        for number in range(100):
            client.ask(DescribeClusterRequest(), 0, number)
    status = threaded.call_kit("requests.status", {})
    assert status["size_bytes"] <= 20_000
    assert status["recorded"] + status["dropped"] == 100
    assert status["recorded"] > 3


@pytest.mark.parametrize(("name", "value"), [("requests_max", 0), ("bytes_max", "many")])
def test_bounds_that_are_none_are_refused(threaded, name, value):
    with pytest.raises(TestKitError, match=f"{name} is a number from 1 on"):
        threaded.requests.record(**{name: value})


def test_a_request_without_acks_has_no_response(threaded):
    threaded.requests.record()
    with RawClient(threaded.port) as client:
        create(client, "t")
        client.send_request(produce_request("t", b"x", acks=0), 9)
        (seen,) = threaded.wait_for.request(api="Produce", timeout=60)
    (seen,) = threaded.requests(api="Produce")
    assert (seen.outcome, seen.response, seen.has_response) == ("none", None, False)


def test_a_request_under_way_waits_and_its_connection_may_close(threaded):
    threaded.requests.record()
    client = RawClient(threaded.port)
    create(client, "t")
    partition = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1000)
    fetch = FetchRequest(
        max_wait_ms=600_000,
        min_bytes=1,
        max_bytes=1000,
        topics=[FetchTopic(topic="t", partitions=[partition])],
    )
    client.send_request(fetch, 11)
    (seen,) = threaded.wait_for.request(api="Fetch", timeout=60)
    assert (seen.outcome, seen.response, seen.duration_ms) == ("waiting", None, None)
    client.close()
    # The end of the connection wakes nobody but the record: another connection's request comes after it.
    while (seen := threaded.requests(api="Fetch")[0]).outcome == "waiting":
        with RawClient(threaded.port) as other:
            other.ask(DescribeClusterRequest(), 0)
    assert (seen.outcome, seen.response) == ("closed", None)
    assert seen.duration_ms > 0


def test_a_late_response_is_recorded_when_it_comes(threaded):
    threaded.requests.record()
    with RawClient(threaded.port) as client, RawClient(threaded.port) as writer:
        create(writer, "t")
        partition = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1000)
        topics = [FetchTopic(topic="t", partitions=[partition])]
        client.send_request(FetchRequest(max_wait_ms=600_000, min_bytes=1, max_bytes=1000, topics=topics), 11)
        threaded.wait_for.request(api="Fetch", timeout=60)
        writer.ask(produce_request("t", b"x"), 9)
        _, response = client.receive(FetchRequest, 11)
        assert response.responses[0].partitions[0].high_watermark == 1
    (seen,) = threaded.requests(api="Fetch")
    records = seen.response["responses"][0]["partitions"][0]["records"]
    assert [batch["base_offset"] for batch in records["batches"]] == [0]


def test_topics_are_found_by_their_ids(threaded):
    threaded.requests.record()
    with RawClient(threaded.port) as client:
        create(client, "t")
        wanted = MetadataRequest(topics=[MetadataRequestTopic(name="t")])
        topic_id = client.ask(wanted, 12).topics[0].topic_id
        partition = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1000)
        topics = [FetchTopic(topic_id=topic_id, partitions=[partition])]
        client.ask(FetchRequest(max_bytes=1000, topics=topics), 13)
    (seen,) = threaded.requests(api="Fetch", topic="t")
    assert seen.topics == ("t",)
    assert seen.request["topics"][0]["topic_name"] == "t"
    assert "topic" not in seen.request["topics"][0], "Fetch 13 has ids alone"
    assert threaded.requests(api="Fetch", topic="other") == []


def test_secrets_are_hidden(threaded):
    threaded.requests.record()
    secret = SECRET.encode()
    upsertion = ScramCredentialUpsertion(
        name="u", mechanism=1, iterations=4096, salt=b"salt", salted_password=secret
    )
    resource = AlterConfigsResource(
        resource_type=4,
        resource_name="1",
        configs=[AlterableConfig(name="ssl.key.password", config_operation=0, value=SECRET)],
    )
    with RawClient(threaded.port) as client:
        client.ask(AlterUserScramCredentialsRequest(upsertions=[upsertion]), 0)
        client.ask(IncrementalAlterConfigsRequest(resources=[resource]), 1)
        client.ask(SaslAuthenticateRequest(auth_bytes=secret), 2)
    seen = threaded.requests()
    assert len(seen) == 3
    told = repr(list(seen))
    assert SECRET not in told
    assert told.count(HIDDEN) >= 3


def test_every_message_of_every_version_becomes_json():
    for key in api_keys():
        for message in find(key):
            for version in message.versions:
                read = MessageValues(version, lambda _: None, with_records=True).read(filled(message))
                names = {field.name for field in fields_of(message) if field.exists_in(version)}
                assert names <= read.keys()
                json.dumps(read)


def filled(struct):
    """An object with an item in each array."""
    made = struct()
    for field in fields_of(struct):
        if isinstance(field.type, Array) and isinstance(field.type.item, type):
            setattr(made, field.name, [filled(field.type.item)])
    return made


def test_unreadable_records_are_recorded_as_they_are(threaded):
    threaded.requests.record(with_records=True)
    request = produce_request("t", b"x")
    records = bytearray(request.topic_data[0].partition_data[0].records)
    records[21] = 0xFF
    records[22] = 0xFF
    request.topic_data[0].partition_data[0].records = bytes(records)
    with RawClient(threaded.port) as client:
        create(client, "t")
        client.ask(request, 9)
    (seen,) = threaded.requests(api="Produce")
    shown = seen.request["topic_data"][0]["partition_data"][0]["records"]
    assert shown["size_bytes"] == len(records)
    assert shown["unreadable"]
    assert seen.response["responses"][0]["partition_responses"][0]["error_code_name"] != "NONE"


def test_what_is_kept_is_a_copy(threaded):
    threaded.requests.record(with_records=True)
    with RawClient(threaded.port) as client:
        create(client, "t")
        for value in (b"first" * 500, b"other" * 500):
            client.ask(produce_request("t", value), 9)
    values = [
        one.request["topic_data"][0]["partition_data"][0]["records"]["batches"][0]["records"][0]["value"]
        for one in threaded.requests(api="Produce")
    ]
    assert values == ["first" * 500, "other" * 500]


def test_recording_ends_with_its_context(threaded):
    with threaded.requests.record() as requests:
        assert requests.is_recording
    assert not threaded.requests.is_recording


def test_the_default_bounds_are_those_of_the_documents():
    assert (part.REQUESTS_MAX, part.BYTES_MAX) == (10_000, 64 * 1024 * 1024)


def test_the_last_requests_are_kept_beside_the_record_and_only_found_there(broker):
    assert broker.call_kit("requests.last", {}) is None
    broker.call_kit("requests.keep", {"count": 3})
    with RawClient(broker.port) as client:
        create(client, "kept")
        for number in range(4):
            client.ask(produce_request("kept", b"%d" % number), 8)
    last = broker.call_kit("requests.last", {})
    assert [(one["api"], one["outcome"], one["topics"]) for one in last] == [
        ("Produce", "answered", ["kept"])
    ] * 3
    assert [one["number"] for one in last] == [2, 3, 4]
    assert broker.call_kit("requests.last", {"since": 4}) == last[2:]
    assert not broker.requests.is_recording
    with pytest.raises(TestKitError, match="no requests are recorded"):
        broker.requests()
    broker.requests.record(requests_max=1)
    with RawClient(broker.port) as client:
        for number in range(2):
            client.ask(produce_request("kept", b"%d" % number), 8)
    assert [one.number for one in broker.requests()] == [6]
    assert [one["number"] for one in broker.call_kit("requests.last", {})] == [4, 5, 6]
    broker.requests.stop()
    with RawClient(broker.port) as client:
        client.ask(produce_request("kept", b"more"), 8)
    assert [one["number"] for one in broker.call_kit("requests.last", {})] == [5, 6, 7]
    broker.call_kit("requests.keep", {"count": 0})
    assert broker.call_kit("requests.last", {}) is None
    with pytest.raises(TestKitError, match="count is a number from 0 on, not -1"):
        broker.call_kit("requests.keep", {"count": -1})
