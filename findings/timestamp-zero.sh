#!/bin/sh
# confluent-kafka 2.16.1 and aiokafka 0.14.0 for Python, kafkajs 2.2.4 for Node.
# A record with the timestamp 0, which is the begin of 1970, is a valid record. aiokafka writes it.
# confluent-kafka writes the present time instead, and so does kafkajs for the number 0; for the text '0' kafkajs writes
# 0. No client says so.
# One would guess that a timestamp that is given is kept, as the timestamp 1 is by all of them.
# For users of a broker: who copies topics with these clients moves such records to now. They then live on for the whole
# retention, and a search by time finds them in the wrong place.
# The broker here is the one that librdkafka has for tests (test.mock.num.brokers).
# Source: seen; `rd_kafka_msg_new0` in rdkafka_msg.c of librdkafka.
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet confluent-kafka==2.16.1 aiokafka==0.14.0
(cd "$work" && npm install --silent --no-audit --no-fund kafkajs@2.2.4 > npm.log)

cat > "$work/expected" <<'END'
confluent-kafka wrote 0: now
confluent-kafka wrote 1: 1
aiokafka wrote 0: 0
aiokafka wrote 1: 1
kafkajs wrote the number 0: now
kafkajs wrote the text 0: 0
kafkajs wrote the number 1: 1
END

cat > "$work/write.js" <<'END'
const { Kafka, Partitioners, logLevel } = require('kafkajs')
const kafka = new Kafka({ brokers: [process.argv[2]], logLevel: logLevel.NOTHING })
const producer = kafka.producer({ createPartitioner: Partitioners.DefaultPartitioner })
async function write() {
  await producer.connect()
  const messages = [
    { key: 'kafkajs wrote the number 0', value: '', timestamp: 0 },
    { key: 'kafkajs wrote the text 0', value: '', timestamp: '0' },
    { key: 'kafkajs wrote the number 1', value: '', timestamp: 1 },
  ]
  for (const message of messages) await producer.send({ topic: 't', messages: [{ ...message, partition: 0 }] })
  await producer.disconnect()
}
write()
END

cat > "$work/write.py" <<'END'
import asyncio
import subprocess
import sys
import time

from aiokafka import AIOKafkaProducer
from confluent_kafka import Consumer, Producer, TopicPartition

began_ms = time.time() * 1000 - 1
producer = Producer({"test.mock.num.brokers": 1, "log_level": 0})
broker = next(iter(producer.list_topics(timeout=30).brokers.values()))
server = f"{broker.host}:{broker.port}"
for timestamp in (0, 1):
    producer.produce("t", key=f"confluent-kafka wrote {timestamp}", partition=0, timestamp=timestamp)
    producer.flush(30)


async def write_asynchronously():
    async with AIOKafkaProducer(bootstrap_servers=server) as aio:
        for timestamp in (0, 1):
            key = f"aiokafka wrote {timestamp}".encode()
            await aio.send_and_wait("t", key=key, value=b"", partition=0, timestamp_ms=timestamp)


asyncio.run(write_asynchronously())
subprocess.run(["node", sys.argv[1], server], check=True)

consumer = Consumer({"bootstrap.servers": server, "group.id": "g", "log_level": 0})
consumer.assign([TopicPartition("t", 0, 0)])
for message in consumer.consume(7, timeout=30):
    timestamp = message.timestamp()[1]
    print(f"{message.key().decode()}: {'now' if timestamp >= began_ms else timestamp}")
consumer.close()
END
"$work/venv/bin/python" "$work/write.py" "$work/write.js" > "$work/seen"
cat "$work/seen"
if ! diff "$work/expected" "$work/seen"; then
    echo "The clients treat the timestamp 0 otherwise now." >&2
    exit 1
fi
