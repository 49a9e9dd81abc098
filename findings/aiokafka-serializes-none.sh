#!/bin/sh
# aiokafka 0.14.0 for Python.
# The producer gives each key and each value to the serializer that was configured, also None, and the consumer each
# key and value to the deserializer. With `value_serializer=lambda value: json.dumps(value).encode()` the value None
# leaves as the four bytes "null", which is no tombstone. A record without a key gets the key "null" in the same way:
# all of them are in one partition, and a compacted topic keeps the last one only.
# One would guess that None passes a serializer, as it means "no key" and "no value" to the client itself. The
# JsonSerializer of kafka-python 3 lets it pass, and Java's StringSerializer.
# For users of a broker: keys that a program deletes stay in a compacted topic for ever. A true tombstone makes
# `getone` raise the error of `json.loads`. Write both functions so that they return None for None.
# The broker here is the one that librdkafka has for tests (test.mock.num.brokers).
# Source: seen; https://kafka.apache.org/documentation/#compaction for what deletes a key.
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet confluent-kafka==2.16.1 aiokafka==0.14.0

cat > "$work/expected" <<'END'
send(key='a', value=None) wrote key b'"a"' value b'null'
send(key=None, value='x') wrote key b'null' value b'"x"'
getone() of a tombstone raises TypeError
END

cat > "$work/nothing.py" <<'END'
import asyncio
import json

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from confluent_kafka import Consumer, Producer, TopicPartition

other = Producer({"test.mock.num.brokers": 1, "log_level": 0})
broker = next(iter(other.list_topics(timeout=30).brokers.values()))
server = f"{broker.host}:{broker.port}"


def to_json(value):
    return json.dumps(value).encode()


async def write(*records):
    settings = {"bootstrap_servers": server, "key_serializer": to_json, "value_serializer": to_json}
    async with AIOKafkaProducer(**settings) as producer:
        for key, value in records:
            headers = [(f"send(key={key!r}, value={value!r})", b"")]
            await producer.send_and_wait("t", key=key, value=value, partition=0, headers=headers)


async def read():
    settings = {"bootstrap_servers": server, "auto_offset_reset": "earliest", "value_deserializer": json.loads}
    async with AIOKafkaConsumer("tombstones", **settings) as consumer:
        try:
            return f"gives {(await asyncio.wait_for(consumer.getone(), 60)).value}"
        except Exception as raised:
            return f"raises {type(raised).__name__}"


asyncio.run(write(("a", None), (None, "x")))
consumer = Consumer({"bootstrap.servers": server, "group.id": "g", "log_level": 0})
consumer.assign([TopicPartition("t", 0, 0)])
for message in consumer.consume(2, timeout=60):
    print(message.headers()[0][0], "wrote key", message.key(), "value", message.value())
consumer.close()
other.produce("tombstones", key="a", value=None, partition=0)
assert other.flush(60) == 0
print("getone() of a tombstone", asyncio.run(read()))
END
"$work/venv/bin/python" "$work/nothing.py" > "$work/seen"
cat "$work/seen"
if ! diff "$work/expected" "$work/seen"; then
    echo "aiokafka treats a key or a value of None otherwise now." >&2
    exit 1
fi
