#!/bin/sh
# Apache Kafka 4.4.0, a broker that is killed while a transaction is open, and started after the transaction's time-out.
# Where transaction.abort.timed.out.transaction.cleanup.interval.ms is 500 (default: 10 s), the broker looks for
# transactions whose time-out is over as soon as it has loaded them, and aborts this one. kafka-transactions describe
# says CompleteAbort. But no marker was written into the partition: the broker did not know yet who leads it, and takes
# such a partition for one that was deleted.
# One would guess that CompleteAbort comes after the markers, as with the default interval.
# For users of a broker: consumers with read_committed stop at this transaction for ever, and get nothing of what
# comes after it; kafka-transactions abort ends it by hand, and find-hanging finds it. A short interval, as tests set
# it, is enough for that.
# Source: seen; the states are those of https://cwiki.apache.org/confluence/display/KAFKA/KIP-98.
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
    <dependency><groupId>org.apache.kafka</groupId><artifactId>kafka_2.13</artifactId><version>4.4.0</version></dependency>
    <dependency><groupId>org.apache.kafka</groupId><artifactId>kafka-tools</artifactId><version>4.4.0</version></dependency>
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
transaction.abort.timed.out.transaction.cleanup.interval.ms=500
END
tool kafka.tools.StorageTool format --standalone -t "$id" -c "$work/server.properties" \
    > "$work/log" 2>&1 || { cat "$work/log" >&2; exit 1; }
start() {
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
}
deadline=$(($(date +%s) + 300))

start
cat > "$work/producer.py" <<'END'
import os
import sys

from confluent_kafka import Producer

settings = {"bootstrap.servers": sys.argv[1], "log_level": 0, "transactional.id": "pay", "transaction.timeout.ms": 1_000}
producer = Producer(settings)
producer.init_transactions(60)
producer.begin_transaction()
producer.produce("t", "open", partition=0)
assert producer.flush(60) == 0
os._exit(0)
END
cat > "$work/later.py" <<'END'
import sys

from confluent_kafka import Consumer, Producer, TopicPartition

producer = Producer({"bootstrap.servers": sys.argv[1], "log_level": 0})
producer.produce("t", "later", partition=0)
assert producer.flush(60) == 0
for level in ("read_uncommitted", "read_committed"):
    consumer = Consumer(
        {"bootstrap.servers": sys.argv[1], "group.id": "g", "isolation.level": level, "auto.offset.reset": "earliest"}
    )
    consumer.assign([TopicPartition("t", 0, 0)])
    records = [consumer.poll(30) for _ in range(2 if level == "read_uncommitted" else 1)]
    consumer.close()
    print(level + ":", ", ".join("nothing in 30 s" if one is None else one.value().decode() for one in records))
END
"$work/venv/bin/python" "$work/producer.py" "$servers"
kill -KILL "$broker"
wait "$broker" 2> "$work/log" || true
sleep 3
start
described=
while ! echo "$described" | grep -q CompleteAbort; do
    described=$(tool org.apache.kafka.tools.TransactionsCommand --bootstrap-server "$servers" \
        describe --transactional-id pay 2> "$work/log" || true)
    [ "$(date +%s)" -lt "$deadline" ] || { echo "$described" >&2; exit 1; }
done
{
    echo "the coordinator: CompleteAbort"
    "$work/venv/bin/python" "$work/later.py" "$servers"
    tool org.apache.kafka.tools.TransactionsCommand --bootstrap-server "$servers" \
        describe-producers --topic t --partition 0 2> "$work/log" | awk 'NR == 1 { for (i = 1; i <= NF; i++) if ($i ~ /Start/) c = i } NR == 2 { print "open transaction from offset: " $c }'
} > "$work/seen"

cat > "$work/expected" <<'END'
the coordinator: CompleteAbort
read_uncommitted: open, later
read_committed: nothing in 30 s
open transaction from offset: 0
END
cat "$work/seen"
if ! diff "$work/expected" "$work/seen"; then
    echo "the transaction has another end now." >&2
    exit 1
fi
