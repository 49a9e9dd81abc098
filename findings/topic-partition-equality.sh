#!/bin/sh
# confluent-kafka 2.16.1 for Python.
# Two TopicPartition of the same topic and partition are equal, whatever their offsets are, and have the same hash. What
# `committed` and `position` return are lists of them, and the lists are then equal, too.
# One would guess that they differ when their offsets do, since an offset, a leader epoch and metadata are what these
# objects carry; the TopicPartition of Java, kafka-python and aiokafka is equal likewise, but has no offset.
# For users of a broker: `consumer.committed(partitions) == consumer.position(partitions)`, as a check that everything
# that was read is committed, is always true, and a set of offsets keeps one per partition. Compare `.offset`.
# The broker here is the one that librdkafka has for tests (test.mock.num.brokers).
# Source: seen; `TopicPartition_richcompare` in confluent_kafka.c.
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet confluent-kafka==2.16.1

cat > "$work/expected" <<'END'
committed 1, position 3: equal
END

cat > "$work/equality.py" <<'END'
from confluent_kafka import Consumer, Producer, TopicPartition

producer = Producer({"test.mock.num.brokers": 1, "log_level": 0})
broker = next(iter(producer.list_topics(timeout=30).brokers.values()))
for value in ("first", "second", "third"):
    producer.produce("t", value, partition=0)
assert producer.flush(60) == 0
settings = {"bootstrap.servers": f"{broker.host}:{broker.port}", "group.id": "g", "enable.auto.commit": False}
consumer = Consumer({**settings, "log_level": 0})
partitions = [TopicPartition("t", 0, 0)]
consumer.assign(partitions)
first, second, third = consumer.consume(3, timeout=60)
consumer.commit(message=first, asynchronous=False)
committed = consumer.committed(partitions, timeout=60)
position = consumer.position(partitions)
equal = "equal" if committed == position and len({*committed, *position}) == 1 else "not equal"
print(f"committed {committed[0].offset}, position {position[0].offset}: {equal}")
consumer.close()
END
"$work/venv/bin/python" "$work/equality.py" > "$work/seen"
cat "$work/seen"
if ! diff "$work/expected" "$work/seen"; then
    echo "confluent-kafka compares offsets of partitions now." >&2
    exit 1
fi
