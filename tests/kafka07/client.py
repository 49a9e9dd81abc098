"""A client of Kafka 0.7 for tests: it sends requests or any bytes, and looks at each answer."""

import struct

from odradek.embedding.free_port import free_port
from odradek.wire.kafka07.messages import encode_set, iter_messages, payloads
from odradek.wire.kafka07.requests import (
    EARLIEST,
    LATEST,
    Fetch,
    MultiFetch,
    MultiProduce,
    Offsets,
    Produce,
    encode_request,
)
from tests.raw_client import RawClient

ENOUGH = 1 << 20


def options(protocol="KAFKA_07", **more):
    """Options of a broker with a listener for Kafka 0.7, and its port."""
    port = free_port()
    given = {
        "listeners": f"OLD://127.0.0.1:{port},PLAINTEXT://127.0.0.1:{free_port()}",
        "listener.security.protocol.map": f"PLAINTEXT:PLAINTEXT,OLD:{protocol}",
        "auto.create.topics.enable": "true",
        "log.initial.task.delay.ms": 0,
    }
    return given | {name.replace("_", "."): value for name, value in more.items()}, port


def contents(data):
    """The payloads of a set, unpacked."""
    return [bytes(one) for message in iter_messages(data) for one in payloads(message)]


class Client07(RawClient):
    """One blocking connection."""

    def request(self, request):
        self.send(encode_request(request))

    def produce(self, *values, topic="t", partition=0, magic=1, codec=0):
        """Writes, and returns when it is stored: the next answer of the connection comes after that."""
        self.request(Produce(topic, partition, encode_set(list(values), magic, codec)))
        self.offsets(topic=topic, partition=max(partition, 0))

    def multi_produce(self, *produces):
        self.request(MultiProduce(produces))

    def fetch(self, position=0, size=ENOUGH, topic="t", partition=0):
        """(error code, bytes)"""
        self.request(Fetch(topic, partition, position, size))
        return answer_of(self.receive_frame())

    def multi_fetch(self, *fetches):
        """(error code, bytes) of each."""
        self.request(MultiFetch(fetches))
        frame = self.receive_frame()
        error, rest = answer_of(frame)
        assert error == 0
        answers = []
        while rest:
            size = struct.unpack_from(">i", rest)[0]
            answers.append(answer_of(rest[4 : 4 + size]))
            rest = rest[4 + size :]
        return answers

    def offsets(self, time=LATEST, count=1, topic="t", partition=0):
        self.request(Offsets(topic, partition, time, count))
        error, content = answer_of(self.receive_frame())
        assert error == 0
        number = struct.unpack_from(">i", content)[0]
        return list(struct.unpack_from(f">{number}q", content, 4))

    def end(self, topic="t", partition=0):
        return self.offsets(LATEST, 1, topic, partition)[0]

    def start(self, topic="t", partition=0):
        return self.offsets(EARLIEST, 1, topic, partition)[0]

    def read_all(self, topic="t", partition=0, position=None, size=ENOUGH):
        """The bytes of a log from a position, by default the first, to its end. As clients do it, a message
        that is cut is read again from its begin."""
        at = self.start(topic, partition) if position is None else position
        found = b""
        while True:
            error, data = self.fetch(at, size, topic, partition)
            assert error == 0
            if not data:
                return found
            data = data[: whole_bytes(data)]
            assert data, "a message is longer than a fetch"
            found += data
            at += len(data)

    def values(self, topic="t", partition=0, position=None):
        return contents(self.read_all(topic, partition, position))


def whole_bytes(data):
    """The size of the whole messages at the front."""
    at = 0
    while len(data) - at >= 4:
        size = struct.unpack_from(">i", data, at)[0]
        if len(data) - at - 4 < size:
            break
        at += 4 + size
    return at


def answer_of(frame):
    return struct.unpack_from(">h", frame)[0], frame[2:]
