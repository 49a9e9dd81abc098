#!/bin/sh
# kafka-go 0.4.51 (github.com/segmentio/kafka-go) and Apache Kafka 4.3.1.
# A Reader with IsolationLevel ReadCommitted gives out the records of aborted transactions, like all others. The level
# reaches the broker, which sends the records up to the last stable offset and a list of what was aborted in them.
# kafka-go decodes this list and drops it. The markers that end a transaction come out as messages, too: their value is
# six zero bytes.
# One would guess that "read committed" leaves out what was not committed, as in Java's consumer, librdkafka, kafkajs,
# kafka-python and aiokafka. The broker cannot do it: a batch is sent as it is stored.
# For users of a broker: consumers in Go work on orders that were rolled back, with the safe level set and no error.
# Source: read.go of kafka-go (abortedTransactions); the documentation of IsolationLevel
set -eu
work=$(mktemp -d)
broker=
end() {
    status=$?
    if [ -n "$broker" ]; then kill "$broker" 2> "$work/log" && wait "$broker" || true; fi
    rm -rf "$work"
    exit "$status"
}
trap end EXIT
trap 'exit 1' INT TERM
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
	reader := kafka.NewReader(kafka.ReaderConfig{
		Brokers: []string{os.Args[1]}, Topic: "t", IsolationLevel: kafka.ReadCommitted, MaxWait: time.Second,
	})
	for {
		patience, cancel := context.WithTimeout(context.Background(), 60*time.Second)
		message, err := reader.ReadMessage(patience)
		cancel()
		if err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		fmt.Printf("kafka-go: %d %q key %q\n", message.Offset, message.Value, message.Key)
		if string(message.Value) == "last" {
			return
		}
	}
}
END
(cd "$work/go" && go get github.com/segmentio/kafka-go@v0.4.51 && go build -o "$work/program" .) > "$work/log" 2>&1 \
    || { cat "$work/log" >&2; exit 1; }

cat > "$work/pom.xml" <<'END'
<project>
  <modelVersion>4.0.0</modelVersion>
  <groupId>finding</groupId><artifactId>finding</artifactId><version>1</version>
  <dependencies>
    <dependency><groupId>org.apache.kafka</groupId><artifactId>kafka_2.13</artifactId><version>4.3.1</version></dependency>
    <dependency><groupId>org.apache.kafka</groupId><artifactId>kafka-tools</artifactId><version>4.3.1</version></dependency>
    <dependency><groupId>org.apache.logging.log4j</groupId><artifactId>log4j-slf4j-impl</artifactId><version>2.24.3</version></dependency>
    <dependency><groupId>org.apache.logging.log4j</groupId><artifactId>log4j-core</artifactId><version>2.24.3</version></dependency>
  </dependencies>
</project>
END
mvn -q -B -f "$work/pom.xml" dependency:copy-dependencies -DincludeScope=runtime -DoutputDirectory="$work/libs" \
    > "$work/log" || { cat "$work/log" >&2; exit 1; }
export CLASSPATH="$work/libs/*"
tool() { java -XX:TieredStopAtLevel=1 -Dlog4j2.level=ERROR "$@"; }

set -- $(python3 -c '
import base64, socket, uuid
sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(2)]
print(*[one.getsockname()[1] for one in sockets], base64.urlsafe_b64encode(b"id" + uuid.uuid4().bytes[2:]).decode()[:22])')
port=$1 controller=$2 id=$3
servers=127.0.0.1:$port
cat > "$work/server.properties" <<END
process.roles=broker,controller
node.id=1
controller.quorum.bootstrap.servers=127.0.0.1:$controller
listeners=PLAINTEXT://$servers,CONTROLLER://127.0.0.1:$controller
advertised.listeners=PLAINTEXT://$servers,CONTROLLER://127.0.0.1:$controller
controller.listener.names=CONTROLLER
log.dirs=$work/data
offsets.topic.replication.factor=1
offsets.topic.num.partitions=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
transaction.state.log.num.partitions=1
group.initial.rebalance.delay.ms=0
log.retention.ms=-1
END
tool kafka.tools.StorageTool format --standalone -t "$id" -c "$work/server.properties" \
    > "$work/log" 2>&1 || { cat "$work/log" >&2; exit 1; }
java -Xmx512m -Dlog4j2.level=ERROR kafka.Kafka "$work/server.properties" > "$work/broker.log" 2>&1 &
broker=$!
python3 - "$port" <<'END'
import socket
import sys
import time

deadline = time.monotonic() + 240
while True:
    try:
        socket.create_connection(("127.0.0.1", int(sys.argv[1]))).close()
        break
    except OSError:
        if time.monotonic() > deadline:
            raise
        time.sleep(0.2)
END

cat > "$work/transactions.py" <<'END'
import sys

from confluent_kafka import Consumer, Producer, TopicPartition

producer = Producer({"bootstrap.servers": sys.argv[1], "transactional.id": "t", "log_level": 0})
producer.init_transactions(60)
for value, end in (
    ("aborted", producer.abort_transaction),
    ("committed", producer.commit_transaction),
    ("aborted, too", producer.abort_transaction),
    ("last", producer.commit_transaction),
):
    producer.begin_transaction()
    producer.produce("t", value, partition=0)
    producer.flush(60)
    end(60)
consumer = Consumer(
    {"bootstrap.servers": sys.argv[1], "group.id": "g", "isolation.level": "read_committed", "log_level": 0}
)
consumer.assign([TopicPartition("t", 0, 0)])
for message in consumer.consume(2, timeout=60):
    print("librdkafka:", message.offset(), message.value().decode())
consumer.close()
END
"$work/venv/bin/python" "$work/transactions.py" "$servers" > "$work/seen"
"$work/program" "$servers" >> "$work/seen"

cat > "$work/expected" <<'END'
librdkafka: 2 committed
librdkafka: 6 last
kafka-go: 0 "aborted" key ""
kafka-go: 1 "\x00\x00\x00\x00\x00\x00" key "\x00\x00\x00\x00"
kafka-go: 2 "committed" key ""
kafka-go: 3 "\x00\x00\x00\x00\x00\x00" key "\x00\x00\x00\x01"
kafka-go: 4 "aborted, too" key ""
kafka-go: 5 "\x00\x00\x00\x00\x00\x00" key "\x00\x00\x00\x00"
kafka-go: 6 "last" key ""
END

cat "$work/seen"
if ! diff "$work/expected" "$work/seen"; then
    echo "kafka-go gives out other records of transactions now." >&2
    exit 1
fi
