#!/bin/sh
# confluent-kafka 2.16.1 for Python (librdkafka 2.16.0) and Apache Kafka 4.3.1.
# A subscription that begins with ^ is a regular expression. With group.protocol=classic librdkafka itself looks for it,
# and the expression need not reach the end of a name: ^orders subscribes to orders and orders-archive. With
# group.protocol=consumer (KIP-848) the broker looks, and it has to fit the whole name: ^orders is orders alone.
# One would guess that the protocol of the group changes who assigns partitions, not which topics are read. Java's
# subscribe(Pattern) always fits whole names.
# For users of a broker: after the change to the new protocol, which is one line, a consumer goes on without an error,
# and no longer reads some of its topics. Write ^orders.* for both.
# Source: seen.
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

cat > "$work/subscribe.py" <<'END'
import sys
import time

from confluent_kafka import Consumer
from confluent_kafka.admin import AdminClient, NewTopic

SERVERS = {"bootstrap.servers": sys.argv[1], "log_level": 0}
admin = AdminClient(SERVERS)
names = ["my-orders", "orders", "orders-archive"]
for created in admin.create_topics([NewTopic(name, 1, 1) for name in names]).values():
    created.result(60)
for expression in ("^orders", "^orders.*", "^orders$"):
    for protocol in ("classic", "consumer"):
        consumer = Consumer({**SERVERS, "group.id": f"{protocol} {expression}", "group.protocol": protocol})
        consumer.subscribe([expression])
        deadline = time.monotonic() + 60
        while not consumer.assignment() and time.monotonic() < deadline:
            consumer.poll(0.2)
        print(protocol, expression, "reads", *sorted(one.topic for one in consumer.assignment()))
        consumer.close()
END
"$work/venv/bin/python" "$work/subscribe.py" "$servers" > "$work/seen"

cat > "$work/expected" <<'END'
classic ^orders reads orders orders-archive
consumer ^orders reads orders
classic ^orders.* reads orders orders-archive
consumer ^orders.* reads orders orders-archive
classic ^orders$ reads orders
consumer ^orders$ reads orders
END

cat "$work/seen"
if ! diff "$work/expected" "$work/seen"; then
    echo "A regular expression of librdkafka subscribes to other topics now." >&2
    exit 1
fi
