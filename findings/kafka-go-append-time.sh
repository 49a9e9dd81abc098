#!/bin/sh
# kafka-go 0.4.51 (github.com/segmentio/kafka-go) and Apache Kafka 4.3.1, message.timestamp.type=LogAppendTime.
# The broker stores its time of arrival in the header of a batch and sets a bit there; the times of the producer
# stay in the records. kafka-go does not look at the bit: Message.Time is the time of the producer.
# One would guess that Time is the record's timestamp, as each other client that was tried gives it out (librdkafka,
# kafka-python, aiokafka, kafkajs), and as the topic is set.
# For users of a broker: a topic is set so in order not to depend on the clocks of producers. Windows and delays that
# are computed in Go depend on them all the same; here they are wrong by decades.
# Source: message_reader.go of kafka-go; the bit is described at https://kafka.apache.org/documentation/#recordbatch
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
		fmt.Printf("kafka-go: %s at %d\n", message.Value, message.Time.UnixMilli())
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

cat > "$work/times.py" <<'END'
import sys
import time

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

began_ms = time.time() * 1000 - 1
SERVERS = {"bootstrap.servers": sys.argv[1], "log_level": 0}
topic = NewTopic("t", 1, 1, config={"message.timestamp.type": "LogAppendTime"})
admin = AdminClient(SERVERS)
admin.create_topics([topic])["t"].result(60)
producer = Producer(SERVERS)
producer.produce("t", "first", partition=0, timestamp=1_000_000_000_000)
producer.produce("t", "last", partition=0, timestamp=1_000_000_005_000)
producer.flush(60)
consumer = Consumer({**SERVERS, "group.id": "g"})
consumer.assign([TopicPartition("t", 0, 0)])
for message in consumer.consume(2, timeout=60):
    timestamp = message.timestamp()[1]
    print(f"librdkafka: {message.value().decode()} at", "arrival" if timestamp >= began_ms else timestamp)
consumer.close()
END
"$work/venv/bin/python" "$work/times.py" "$servers" > "$work/seen"
"$work/program" "$servers" >> "$work/seen"

cat > "$work/expected" <<'END'
librdkafka: first at arrival
librdkafka: last at arrival
kafka-go: first at 1000000000000
kafka-go: last at 1000000005000
END

cat "$work/seen"
if ! diff "$work/expected" "$work/seen"; then
    echo "kafka-go gives out other times of records now." >&2
    exit 1
fi
