#!/bin/sh
# confluent-kafka 2.16.1 for Python.
# A Message has a length, which is the length of its value. So Python takes a message with an empty value, and one
# without a value (a tombstone), for false.
# One would guess that each message is true, as each object without a length is, and that only "no message" is false:
# `poll` returns None for that. Records of kafka-python and aiokafka are always true.
# For users of a broker: `if not message: continue` passes over tombstones without a word, and `while message := poll()`
# ends at the first one. The offsets behind it are committed all the same, so the deletion of a key is lost.
# Write `if message is None`.
# The broker here is the one that librdkafka has for tests (test.mock.num.brokers).
# Source: seen.
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet confluent-kafka==2.16.1

cat > "$work/expected" <<'END'
key b'1' value b'filled' error None: true
key b'2' value b'' error None: false
key b'3' value None error None: false
key b'4' value b'filled' error None: true
`while message := poll()` reads [b'1']
END

cat > "$work/truth.py" <<'END'
from confluent_kafka import Consumer, Producer, TopicPartition

producer = Producer({"test.mock.num.brokers": 1, "log_level": 0})
metadata = producer.list_topics(timeout=30)
servers = ",".join(f"{broker.host}:{broker.port}" for broker in metadata.brokers.values())
for key, value in ((b"1", b"filled"), (b"2", b""), (b"3", None), (b"4", b"filled")):
    producer.produce("t", key=key, value=value, partition=0)
producer.flush(30)

consumer = Consumer({"bootstrap.servers": servers, "group.id": "g", "auto.offset.reset": "earliest", "log_level": 0})
consumer.assign([TopicPartition("t", 0, 0)])
for message in consumer.consume(4, timeout=30):
    print(f"key {message.key()} value {message.value()} error {message.error()}:", "true" if message else "false")

consumer.assign([TopicPartition("t", 0, 0)])
read = []
while message := consumer.poll(30):
    read.append(message.key())
print("`while message := poll()` reads", read)
consumer.close()
END
"$work/venv/bin/python" "$work/truth.py" > "$work/seen"
cat "$work/seen"
if ! diff "$work/expected" "$work/seen"; then
    echo "The truth of confluent-kafka's messages is another one now." >&2
    exit 1
fi
