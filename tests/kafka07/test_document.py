"""What the driver document of Kafka 0.7 leaves open (its FIXMEs), answered as the broker of 0.7.2 does it.

The answers are read from that broker's source; the class or function is named with each.
"""

import struct

import pytest
from kafka import KafkaConsumer, TopicPartition

import odradek
from odradek.wire.compression import Compression
from odradek.wire.kafka07.messages import encode_message, encode_set, iter_messages
from odradek.wire.kafka07.requests import (
    Error,
    Fetch,
    MultiFetch,
    MultiProduce,
    Offsets,
    Produce,
    encode_request,
)
from tests.kafka07.client import Client07, contents, options


@pytest.fixture
def running():
    given, port = options()
    with odradek.Broker(options=given) as broker:
        yield broker, port


@pytest.fixture
def port(running):
    return running[1]


@pytest.fixture
def servers(running):
    return running[0].bootstrap_servers


@pytest.fixture
def client(port):
    with Client07(port) as connected:
        connected.produce(b"one", b"two", b"three")
        yield connected


def test_which_error_codes_a_broker_sends(client):
    """ErrorMapping: 0, 1, 2, 3, 4 and -1, no others. FETCH is the only request that is answered by an error;
    the broker has no case for 2 and 4, which a client makes from what it has got."""
    assert client.fetch(0)[0] == 0
    assert client.fetch(999)[0] == 1
    assert client.fetch(0, partition=1)[0] == 3
    assert client.fetch(0, topic="a/b")[0] == -1
    assert {code.value for code in Error} == {-1, 0, 1, 2, 3, 4}


def test_a_wrong_checksum_has_no_answer(port, client):
    """Log.append raises InvalidMessageException, SocketServer closes the connection; nothing of the set is
    stored, not even what was right. So code 2 is never sent."""
    wrong = bytearray(encode_message(b"four") + encode_message(b"five"))
    wrong[-1] ^= 1
    client.request(Produce("t", 0, bytes(wrong)))
    assert client.read_to_end() == b""
    with Client07(port) as other:
        assert other.values() == [b"one", b"two", b"three"]


def test_a_partition_that_does_not_exist(client):
    """LogManager.getLogPool: WrongPartition (3) for FETCH. OFFSETS and PRODUCE end the connection."""
    assert client.fetch(0, partition=1) == (3, b"")
    client.request(Offsets("t", 1, -1, 1))
    assert client.read_to_end() == b""


def test_a_size_that_is_smaller_than_the_message(client):
    """FileMessageSet.read: no error. The answer is the first bytes of the message; InvalidFetchSize (4) is
    what ByteBufferMessageSet raises in the client when the first message is not whole."""
    for size in range(13):
        assert client.fetch(0, size) == (0, encode_message(b"one")[:size])


def test_an_offset_in_the_middle_of_a_message(client):
    """Log.read: nobody checks. The bytes from there on are sent."""
    assert client.fetch(5) == (0, encode_set([b"one", b"two", b"three"])[5:])


def test_an_invalid_topic_and_an_invalid_partition(client):
    """TopicNameValidator: InvalidTopicException has no code, so -1. A topic that there is not is empty,
    whatever the offset, and its partitions are those that it would have."""
    assert client.fetch(0, topic="") == (-1, b"")
    assert client.fetch(12345, topic="nobody") == (0, b"")
    assert client.fetch(0, topic="nobody", partition=1) == (3, b"")
    assert client.fetch(0, partition=-1) == (3, b"")


def test_an_invalid_message_size(port, client):
    """InvalidMessageSizeException of the broker: a PRODUCE whose first message is not whole ends the
    connection; what is cut behind whole messages is left out."""
    client.request(Produce("t", 0, encode_message(b"four") + encode_message(b"five")[:-1]))
    assert client.values()[3:] == [b"four"]
    client.request(Produce("t", 0, encode_message(b"five")[:-1]))
    assert client.read_to_end() == b""


def test_an_answer_ends_where_the_size_ends(client):
    """MessageSetSend: yes, this is the broker. Half a message at the end, or half a header."""
    whole = encode_set([b"one", b"two", b"three"])
    assert client.fetch(0, 13 + 5) == (0, whole[:18])
    assert client.fetch(0, 13 + 2) == (0, whole[:15])


def test_compressed_messages(servers, client):
    """CompressionUtils: as the document says, the payload is a compressed message set. Here the broker
    unpacks it: each message has its own position, and a consumer may go on between them."""
    for codec in (Compression.GZIP, Compression.SNAPPY):
        client.produce(b"four", b"five", codec=codec)
    data = client.read_all()
    assert [message.codec for message in iter_messages(data)] == [0] * 7
    assert contents(data) == [b"one", b"two", b"three", b"four", b"five", b"four", b"five"]
    consumer = KafkaConsumer(
        bootstrap_servers=servers,
        auto_offset_reset="earliest",
        consumer_timeout_ms=20_000,
    )
    consumer.assign([TopicPartition("t", 0)])
    assert [record.value for _, record in zip(range(7), consumer, strict=False)] == contents(data)
    consumer.close()


def test_several_produces_in_one(client):
    """MultiProducerRequest: one type, a count of 16 bits, then topic, partition, size and messages of each.
    The document has no count, and a type for each. No answer."""
    produces = [Produce("a", 0, encode_message(b"1")), Produce("b", 0, encode_message(b"2"))]
    frame = encode_request(MultiProduce(produces))
    each = b"".join(encode_request(one)[6:] for one in produces)
    assert frame == struct.pack(">ihh", len(each) + 4, 3, 2) + each
    client.send(frame)
    assert client.values("a") == [b"1"]
    assert client.values("b") == [b"2"]


def test_several_fetches_in_one(client):
    """MultiFetchRequest and MultiMessageSetSend: a count as above; and before the responses, which have a
    size and a code each, a size and a code of all, which is 0."""
    client.request(MultiFetch([Fetch("t", 0, 0, 13), Fetch("t", 5, 0, 13)]))
    first, second = struct.pack(">ih", 15, 0) + encode_message(b"one"), struct.pack(">ih", 2, 3)
    assert client.receive_frame() == struct.pack(">h", 0) + first + second


def test_the_response_to_offsets(client):
    """OffsetArraySend: a response header is before it, not a request header as the document has it."""
    client.request(Offsets("t", 0, -1, 10))
    assert client.receive_frame() == struct.pack(">hiqq", 0, 2, 41, 0)


# From 0.7 to today


def test_a_consumer_moves_from_its_position_in_bytes_to_an_offset(servers, client):
    """As docs/old-clients.md says it: as many records before the end as messages are after the position."""
    client.produce(*[b"%d" % number for number in range(100)])
    position = client.end() - sum(10 + len(b"%d" % number) for number in range(60, 100))
    left = len(client.values(position=position))
    consumer = KafkaConsumer(bootstrap_servers=servers, group_id="g", consumer_timeout_ms=20_000)
    partition = TopicPartition("t", 0)
    consumer.assign([partition])
    consumer.seek(partition, consumer.end_offsets([partition])[partition] - left)
    found = [record.value for _, record in zip(range(left), consumer, strict=False)]
    assert found == [b"%d" % number for number in range(60, 100)]
    consumer.commit()
    consumer.close()
