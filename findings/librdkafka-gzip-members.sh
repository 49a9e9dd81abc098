#!/bin/sh
# confluent-kafka 2.16.1 for Python, with librdkafka 2.16.0 in it; beside it kafka-python 3.0.12.
# A gzip file may consist of several members one after the other (RFC 1952, 2.2); a decompressor gives all of them
# as one. A batch of five records, compressed in two members, is read by a consumer of the one from a broker, and by
# the decoder of the other.
# librdkafka stops at the end of the first member. Its consumer gets the two records that are whole there, passes
# over the other three without an error, and goes on behind the batch: they are lost without a sign.
# kafka-python gets all five, and so does Java's consumer, whose GZIPInputStream reads on.
# With lz4 librdkafka is as strict as it is lax here: a zero byte behind the frame makes the batch an error, which
# kafka-python passes over.
# One would guess that a client reads all of a batch or says that it cannot.
# For users of a broker: no broker looks into batches that it is to keep as they are. A program that compresses with
# parts (bgzip, a writer that is closed and opened again) loses records at some of its readers only.
# Source: seen.
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet confluent-kafka==2.16.1 kafka-python==3.0.12 crc32c==2.7.1 lz4==4.4.4

cat > "$work/expected" <<'END'
librdkafka 2.16.0
gzip, one member: librdkafka 5 records, no error; kafka-python 5 records, no error
gzip, two members: librdkafka 2 records, no error; kafka-python 5 records, no error
lz4, one frame: librdkafka 5 records, no error; kafka-python 5 records, no error
lz4, a zero behind it: librdkafka 0 records, _BAD_MSG; kafka-python 5 records, no error
END

cat > "$work/members.py" <<'END'
import gzip
import socket
import struct
import time

import confluent_kafka
import crc32c
import lz4.frame
from kafka.record.memory_records import MemoryRecords

GZIP, LZ4 = 1, 3
SECONDS = 10


def varint(number):
    number = number << 1
    made = b""
    while number > 127:
        made += bytes([number & 127 | 128])
        number >>= 7
    return made + bytes([number])


def record(delta):
    value = b"value-%d" % delta * 20
    body = b"\0" + varint(0) + varint(delta) + b"\x01" + varint(len(value)) + value + b"\0"
    return varint(len(body)) + body


def batch(codec, compressed, count):
    now = int(time.time() * 1000)
    rest = struct.pack(">hiqqqhii", codec, count - 1, now, now, -1, -1, -1, count) + compressed
    checked = struct.pack(">ibI", -1, 2, crc32c.crc32c(rest)) + rest
    return struct.pack(">qi", 0, len(checked)) + checked


def produce(address, topic, records):
    text = topic.encode()
    body = struct.pack(">hhih1sh", 0, 7, 1, 1, b"c", -1) + struct.pack(">hii", -1, 5000, 1)
    body += struct.pack(">h", len(text)) + text + struct.pack(">iii", 1, 0, len(records)) + records
    with socket.create_connection(address) as connection:
        connection.sendall(struct.pack(">i", len(body)) + body)
        reader = connection.makefile("rb")
        answer = reader.read(struct.unpack(">i", reader.read(4))[0])
    # Correlation id, topics, name, partitions, index, error
    assert struct.unpack_from(">h", answer, 4 + 4 + 2 + len(text) + 4 + 4)[0] == 0, answer


def read_by_librdkafka(server, topic):
    consumer = confluent_kafka.Consumer({"bootstrap.servers": server, "group.id": "g"})
    consumer.assign([confluent_kafka.TopicPartition(topic, 0, 0)])
    count, error, end = 0, "no error", time.monotonic() + SECONDS
    while count < 5 and error == "no error" and time.monotonic() < end:
        message = consumer.poll(0.5)
        if message is not None and message.error():
            error = message.error().name()
        elif message is not None:
            count += 1
    consumer.close()
    return f"librdkafka {count} records, {error}"


def read_by_kafka_python(sent):
    found = sum(1 for batch in iter(MemoryRecords(sent).next_batch, None) for _ in batch)
    return f"kafka-python {found} records, no error"


print("librdkafka", confluent_kafka.libversion()[0])
# The broker is librdkafka's own for tests: it keeps what it gets.
owner = confluent_kafka.Producer({"test.mock.num.brokers": 1, "bootstrap.servers": "none"})
broker = next(iter(owner.list_topics(timeout=SECONDS).brokers.values()))
address, server = (broker.host, broker.port), f"{broker.host}:{broker.port}"
records = [record(delta) for delta in range(5)]
cut = len(b"".join(records[:2])) + 30
everything = b"".join(records)
for number, (name, codec, section) in enumerate(
    (
        ("gzip, one member", GZIP, gzip.compress(everything)),
        ("gzip, two members", GZIP, gzip.compress(everything[:cut]) + gzip.compress(everything[cut:])),
        ("lz4, one frame", LZ4, lz4.frame.compress(everything)),
        ("lz4, a zero behind it", LZ4, lz4.frame.compress(everything) + b"\0"),
    )
):
    topic = f"topic-{number}"
    owner.list_topics(topic, timeout=SECONDS)
    sent = batch(codec, section, len(records))
    produce(address, topic, sent)
    print(f"{name}: {read_by_librdkafka(server, topic)}; {read_by_kafka_python(sent)}", flush=True)
END
"$work/venv/bin/python" "$work/members.py" > "$work/seen"
cat "$work/seen"
if ! diff "$work/expected" "$work/seen"; then
    echo "A batch in several members is read otherwise now." >&2
    exit 1
fi
