"""The listener for Kafka 0.7 of a whole broker: what is written and read, answers and errors as in 0.7."""

import random
import struct

import pytest
from kafka import KafkaConsumer, KafkaProducer, TopicPartition
from kafka.admin import KafkaAdminClient

import odradek
from odradek.wire.compression import Compression
from odradek.wire.kafka07.messages import encode_message, encode_set
from odradek.wire.kafka07.requests import EARLIEST, Error, Fetch, Offsets, Produce
from odradek.wire.messages.metadata import MetadataRequest
from tests.kafka07.client import Client07, contents, options
from tests.raw_client import RawClient


@pytest.fixture
def running():
    given, port = options(num_partitions=2)
    with odradek.Broker(options=given) as broker, Client07(port) as client:
        broker.old_port = port
        yield broker, client


@pytest.fixture
def client(running):
    return running[1]


@pytest.fixture
def broker(running):
    return running[0]


def produce_today(broker, *values, topic="t", partition=0, **more):
    with KafkaProducer(bootstrap_servers=broker.bootstrap_servers, **more) as producer:
        for value in values:
            producer.send(topic, value, b"key", partition=partition).get(timeout=20)


def read_today(broker, count, topic="t", partition=0):
    consumer = KafkaConsumer(
        bootstrap_servers=broker.bootstrap_servers, auto_offset_reset="earliest", consumer_timeout_ms=20_000
    )
    consumer.assign([TopicPartition(topic, partition)])
    records = [record for _, record in zip(range(count), consumer, strict=False)]
    consumer.close()
    return records


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("codec", [Compression.NONE, Compression.GZIP, Compression.SNAPPY])
def test_what_0_7_writes_is_read_by_0_7_and_by_todays_clients(broker, client, magic, codec):
    values = [b"one", b"", b"three" * 1000]
    client.produce(*values, magic=magic, codec=codec)
    assert client.values() == values
    records = read_today(broker, 3)
    assert [record.value for record in records] == values
    assert {record.key for record in records} == {None}


def test_what_todays_clients_write_is_read_by_0_7(broker, client):
    produce_today(broker, b"one", None, b"three")
    produce_today(broker, b"four", compression_type="gzip")
    assert client.values() == [b"one", b"", b"three", b"four"]
    assert client.end() == sum(10 + size for size in (3, 0, 5, 4))


def test_a_fetch_has_a_slice_of_the_log_whatever_it_cuts(client):
    client.produce(b"one", b"two", b"three")
    whole = client.read_all()
    assert whole == encode_set([b"one", b"two", b"three"])
    for size in range(len(whole) + 1):
        assert client.fetch(0, size) == (0, whole[:size])
    chance = random.Random(7)
    for _ in range(20):
        begin = chance.randrange(len(whole))
        size = chance.randrange(len(whole))
        assert client.fetch(begin, size) == (0, whole[begin : begin + size])


def test_the_end_of_a_log_is_an_empty_set_and_beyond_it_is_out_of_range(client):
    client.produce(b"one")
    assert client.fetch(13) == (Error.NONE, b"")
    assert client.fetch(14) == (Error.OFFSET_OUT_OF_RANGE, b"")
    assert client.fetch(-1) == (Error.OFFSET_OUT_OF_RANGE, b"")
    assert client.fetch(2**63 - 1) == (Error.OFFSET_OUT_OF_RANGE, b"")


def test_topics_and_partitions_that_there_are_not(client):
    assert client.fetch(1234, topic="nobody") == (Error.NONE, b"")
    assert client.fetch(0, topic="nobody", partition=1) == (Error.NONE, b"")
    assert client.fetch(0, topic="nobody", partition=2) == (Error.WRONG_PARTITION, b"")
    client.produce(b"one")
    assert client.fetch(0, partition=-1) == (Error.WRONG_PARTITION, b"")
    assert client.fetch(0, partition=2) == (Error.WRONG_PARTITION, b"")
    # Nobody has written to it: 0.7 has no log there.
    assert client.fetch(1234, partition=1) == (Error.NONE, b"")
    for name in (None, "", "a/b", ".", "x" * 256):
        assert client.fetch(0, topic=name) == (Error.UNKNOWN, b"")


def test_a_random_partition_is_one_that_there_is(client):
    for number in range(20):
        client.produce(b"%d" % number, partition=-1)
    found = client.values(partition=0) + client.values(partition=1)
    assert sorted(found, key=int) == [b"%d" % number for number in range(20)]
    assert client.values(partition=0)
    assert client.values(partition=1)


def test_a_produce_without_messages_makes_the_topic(broker, client):
    client.request(Produce("made", 1, b""))
    assert client.offsets(topic="made", partition=1) == [0]
    assert read_today(broker, 0, "made") == []
    assert client.fetch(0, topic="made", partition=2)[0] == Error.WRONG_PARTITION


def test_several_requests_in_one(client):
    client.multi_produce(
        Produce("a", 0, encode_set([b"one"])),
        Produce("b", 1, encode_set([b"two", b"three"])),
        Produce("a", 0, encode_set([b"four"])),
    )
    fetches = [
        Fetch("a", 0, 0, 1000),
        Fetch("a", 7, 0, 1000),
        Fetch("b", 1, 13, 1000),
        Fetch("c", 0, 5, 1000),
        Fetch("a", 0, 99, 1000),
    ]
    assert client.multi_fetch(*fetches) == [
        (Error.NONE, encode_set([b"one", b"four"])),
        (Error.WRONG_PARTITION, b""),
        (Error.NONE, encode_set([b"three"])),
        (Error.NONE, b""),
        (Error.OFFSET_OUT_OF_RANGE, b""),
    ]
    assert client.multi_fetch() == []


def wrong_checksum(value):
    message = bytearray(encode_message(value))
    message[-1] ^= 1
    return bytes(message)


@pytest.mark.parametrize(
    "request_07",
    [
        Produce("t", 0, encode_message(b"one") + wrong_checksum(b"two")),
        Produce("t", 2, encode_message(b"one")),
        Produce("t", -2, encode_message(b"one")),
        Produce("a/b", 0, encode_message(b"one")),
        Produce("t", 0, struct.pack(">i", 50)),
        Produce("t", 0, encode_message(b"", codec=3)),
        Produce("t", 0, encode_message(b"no gzip", codec=Compression.GZIP)),
        Offsets("t", 2, -1, 1),
        Offsets("t", 0, -1, -1),
        Offsets(None, 0, -1, 1),
        Fetch("t", 0, 0, -1),
    ],
)
def test_what_0_7_cannot_answer_ends_the_connection_and_stores_nothing(broker, client, request_07):
    client.produce(b"before")
    client.request(request_07)
    assert client.read_to_end() == b""
    with Client07(broker.old_port) as other:
        assert other.values() == [b"before"]


@pytest.mark.parametrize(
    "frame",
    [b"\0\0\0\0", b"\xff" * 4, b"\0\0\0\1\0", b"\0\0\0\2\0\5", b"\0\0\0\2\0\0", b"GET / HTTP/1.1\r\n\r\n"],
)
def test_bytes_that_are_no_request_end_the_connection(client, frame):
    client.send(frame)
    assert client.read_to_end() == b""


def test_a_payload_that_is_too_large_is_dropped_and_the_connection_stays(client):
    client.produce(b"one")
    client.produce(b"two", b"x" * 1_100_000)
    client.produce(b"three")
    assert client.values() == [b"one", b"three"]


def test_the_largest_payloads_of_a_topic_are_stored(client):
    # max.message.bytes is of a batch, which has 82 bytes more.
    values = [bytes([65 + n]) * 1_048_506 for n in range(3)]
    client.produce(*values)
    assert client.values() == values


def test_offsets_at_both_ends(broker, client):
    assert client.offsets(-1, 10, topic="nobody") == [0]
    assert client.offsets(-2, 10, topic="nobody") == [0]
    assert client.offsets(0, 10, topic="nobody") == []
    client.produce(b"one", b"two")
    assert client.offsets(-2, 10) == [0]
    assert client.offsets(-1, 10) == [26, 0]
    assert client.offsets(-1, 1) == [26]
    assert client.offsets(-1, 0) == []
    assert client.offsets(2**62, 10) == [26, 0]
    assert client.offsets(1000, 10) == []


def test_requests_without_a_wait_are_answered_in_their_order(client):
    for number in range(50):
        client.request(Produce("t", 0, encode_message(b"%02d" % number)))
        client.request(Fetch("t", 0, 12 * number, 1000))
    for number in range(50):
        assert client.receive_frame()[2:] == encode_message(b"%02d" % number)


def test_a_client_that_writes_and_leaves_has_written(broker, client):
    for number in range(20):
        with Client07(broker.old_port) as writer:
            writer.request(Produce("t", 0, encode_message(b"%02d" % number)))
    assert sorted(record.value for record in read_today(broker, 20)) == [b"%02d" % n for n in range(20)]


def test_long_answers_come_whole_to_a_slow_reader(broker, client):
    values = [bytes([n % 256]) * 50_000 for n in range(400)]
    for start in range(0, 400, 20):
        client.produce(*values[start : start + 20])
    with Client07(broker.old_port, receive_buffer_bytes=8192) as slow:
        assert slow.fetch(0, 2**31 - 1) == (0, encode_set(values))
        assert slow.fetch(0, 100) == (0, encode_set(values)[:100])


def test_the_listener_is_not_told_to_todays_clients(broker):
    with RawClient(broker.port) as client:
        answer = client.ask(MetadataRequest(topics=[]), 12)
    assert [one.port for one in answer.brokers] == [broker.port]
    assert broker.port != broker.old_port


def test_positions_begin_where_a_log_begins_that_has_lost_its_front(broker, client):
    produce_today(broker, *[b"%d" % n for n in range(10)])
    assert client.fetch(11, 11) == (0, encode_message(b"1"))
    admin = KafkaAdminClient(bootstrap_servers=broker.bootstrap_servers)
    admin.delete_records({TopicPartition("t", 0): 4})
    admin.close()
    assert client.offsets(EARLIEST) == [44]
    assert client.fetch(43) == (Error.OFFSET_OUT_OF_RANGE, b"")
    assert contents(client.fetch(44)[1]) == [b"%d" % n for n in range(4, 10)]
    assert client.offsets(-1, 10) == [110, 44]
