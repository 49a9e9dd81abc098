#!/bin/sh
# Apache Kafka 4.3.1, kafka-consumer-groups --reset-offsets --to-datetime.
# The digits behind the point of a second are read as a number of milliseconds, not as a fraction: 00:00:00.5 is 5 ms
# after the full second, 00:00:00.50 is 50 ms after it. Only three digits mean what they say.
# One would guess 500 ms, as ISO 8601 has it, or an error, which six digits give (2024-01-01T00:00:00.500000).
# For users of a broker: the group goes back further than it should, with exit status 0, and reads records again that it
# had before that moment. A text with its zeros stripped, as programs write it, is enough.
# Source: seen; the help of the option has "YYYY-MM-DDThh:mm:ss.sss".
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

cat > "$work/records.py" <<'END'
import sys

from confluent_kafka import Producer

BEGIN_OF_2024_MS = 1_704_067_200_000
producer = Producer({"bootstrap.servers": sys.argv[1], "log_level": 0})
for offset, later_ms in enumerate((0, 10, 400, 600)):
    producer.produce("t", str(offset), partition=0, timestamp=BEGIN_OF_2024_MS + later_ms)
    producer.flush(60)
END
"$work/venv/bin/python" "$work/records.py" "$servers"
echo "offsets 0 to 3 are 0, 10, 400 and 600 ms after the begin of 2024" > "$work/seen"
for time in 00:00:00.5 00:00:00.500; do
    tool org.apache.kafka.tools.consumer.group.ConsumerGroupCommand --bootstrap-server "$servers" --group g \
        --topic t:0 --reset-offsets --to-datetime "2024-01-01T$time" --execute > "$work/log" 2>&1 \
        || { cat "$work/log" >&2; exit 1; }
    echo "to $time: offset $(awk '$1 == "g" { print $4 }' "$work/log")" >> "$work/seen"
done

cat > "$work/expected" <<'END'
offsets 0 to 3 are 0, 10, 400 and 600 ms after the begin of 2024
to 00:00:00.5: offset 1
to 00:00:00.500: offset 3
END

cat "$work/seen"
if ! diff "$work/expected" "$work/seen"; then
    echo "kafka-consumer-groups reads fractions of a second otherwise now." >&2
    exit 1
fi
