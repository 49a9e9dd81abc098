#!/bin/sh
# Apache Kafka 4.3.1, kafka-dump-log --print-data-log.
# The option prints of each record its key, its value and the keys of its headers. The values of the headers are
# nowhere, and no option prints them. A value with a line break makes lines of its own, without a mark: what looks like
# a record in the output may be a part of a value.
# One would guess that "data" has all of a record: kafka-console-consumer prints headers with their values
# (print.headers), and escapes nothing but has a separator to choose.
# For users of a broker: a log that is looked at after an accident has no trace ids, and a count of lines that begin
# with "| offset:" may be too high. What looks like two records below is one.
# Source: seen; the help of --print-data-log says "if set, printing the messages content".
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

cat > "$work/record.py" <<'END'
import sys

from confluent_kafka import Producer

producer = Producer({"bootstrap.servers": sys.argv[1], "log_level": 0})
producer.produce("t", "first\n| offset: 1 payload: second", headers=[("trace", b"4711"), ("empty", None)], partition=0)
producer.flush(60)
END
"$work/venv/bin/python" "$work/record.py" "$servers"
tool org.apache.kafka.tools.DumpLogSegments --print-data-log --files "$work/data/t-0/00000000000000000000.log" \
    > "$work/out" 2> "$work/log" || { cat "$work/log" >&2; exit 1; }
{
    sed -n 's/CreateTime: [0-9]*/CreateTime: .../; /^| offset/p' "$work/out"
    echo "records: $(sed -n 's/.* count: \([0-9]*\) .*/\1/p' "$work/out")"
    echo "lines with the header's value: $(grep -c 4711 "$work/out" || true)"
} > "$work/seen"

cat > "$work/expected" <<'END'
| offset: 0 CreateTime: ... keySize: -1 valueSize: 33 sequence: -1 headerKeys: [trace,empty] payload: first
| offset: 1 payload: second
records: 1
lines with the header's value: 0
END

cat "$work/seen"
if ! diff "$work/expected" "$work/seen"; then
    echo "kafka-dump-log prints records otherwise now." >&2
    exit 1
fi
