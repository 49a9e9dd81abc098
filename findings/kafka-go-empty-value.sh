#!/bin/sh
# kafka-go 0.4.51 (github.com/segmentio/kafka-go), Reader; beside it confluent-kafka 2.16.1 for Python.
# An empty value and no value (a tombstone) come out alike: Message.Value is nil for both, and so are Key and the values
# of headers. What was read is written as no value again: in the copy here, an empty value is a tombstone.
# One would guess that an empty value is an empty slice, as in sarama and franz-go, since Kafka's format has -1 as the
# length of what is not there, and 0 for what is empty.
# For users of a broker: a program that keeps a table in Go by `message.Value == nil` deletes a key whose value is empty,
# and compaction deletes it from a copy. The bytes do not tell; let values have at least one byte.
# The broker here is the one that librdkafka has for tests (test.mock.num.brokers).
# Source: seen; `readNewBytes` of kafka-go; https://kafka.apache.org/documentation/#record for the format.
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet confluent-kafka==2.16.1

mkdir "$work/go"
cat > "$work/go/go.mod" <<'END'
module finding

go 1.24
END
cat > "$work/go/main.go" <<'END'
package main

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/segmentio/kafka-go"
)

func main() {
	patience, cancel := context.WithTimeout(context.Background(), 120*time.Second)
	defer cancel()
	reader := kafka.NewReader(kafka.ReaderConfig{Brokers: []string{os.Args[1]}, Topic: "t", MaxWait: time.Second})
	writer := &kafka.Writer{
		Addr: kafka.TCP(os.Args[1]), Topic: "copy", BatchSize: 1, RequiredAcks: kafka.RequireAll,
		Balancer: kafka.BalancerFunc(func(kafka.Message, ...int) int { return 0 }),
	}
	for i := 0; i < 2; i++ {
		message, err := reader.ReadMessage(patience)
		if err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		header := message.Headers[0]
		fmt.Printf("kafka-go: value nil %t, key nil %t, value of %s nil %t\n",
			message.Value == nil, message.Key == nil, header.Key, header.Value == nil)
		message = kafka.Message{Key: message.Key, Value: message.Value, Headers: message.Headers}
		err = writer.WriteMessages(patience, message)
		if err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
	}
}
END
(cd "$work/go" && go get github.com/segmentio/kafka-go@v0.4.51 && go build -o "$work/program" .) > "$work/log" 2>&1 \
    || { cat "$work/log" >&2; exit 1; }

cat > "$work/expected" <<'END'
confluent-kafka: value b'', key b'', headers [('empty', b'')]
confluent-kafka: value None, key None, headers [('none', None)]
kafka-go: value nil true, key nil true, value of empty nil true
kafka-go: value nil true, key nil true, value of none nil true
the copy: value None, key None, headers [('empty', None)]
the copy: value None, key None, headers [('none', None)]
END

cat > "$work/empty.py" <<'END'
import subprocess
import sys

from confluent_kafka import Consumer, Producer, TopicPartition

producer = Producer({"test.mock.num.brokers": 1, "log_level": 0})
broker = next(iter(producer.list_topics("copy", timeout=30).brokers.values()))
server = f"{broker.host}:{broker.port}"


def tell(who, topic):
    consumer = Consumer({"bootstrap.servers": server, "group.id": "g", "log_level": 0})
    consumer.assign([TopicPartition(topic, 0, 0)])
    for message in consumer.consume(2, timeout=60):
        value, key, headers = message.value(), message.key(), message.headers()
        print(f"{who}: value {value}, key {key}, headers {headers}", flush=True)
    consumer.close()


producer.produce("t", value=b"", key=b"", headers=[("empty", b"")], partition=0)
producer.produce("t", value=None, key=None, headers=[("none", None)], partition=0)
assert producer.flush(60) == 0
tell("confluent-kafka", "t")
subprocess.run([sys.argv[1], server], check=True)
tell("the copy", "copy")
END
"$work/venv/bin/python" "$work/empty.py" "$work/program" > "$work/seen"
cat "$work/seen"
if ! diff "$work/expected" "$work/seen"; then
    echo "kafka-go gives out empty values otherwise now." >&2
    exit 1
fi
