#!/bin/sh
# Apache Kafka 4.3.1, kafka-producer-perf-test.
# "MB/sec" counts mebibytes of 1,048,576 bytes, and of each record its value alone: keys, headers and the batches do not
# count. 10 records a second of 1,000,000 bytes are printed as 9.54 MB/sec.
# One would guess 10.00 MB/sec, since MB is a million bytes. Kafka's own quotas (producer_byte_rate) and the metric
# outgoing-byte-rate are in bytes, and network cards are sold in millions.
# For users of a broker: a figure of this tool beside one of a tool that counts millions (or of the metrics) is 4.9 %
# low for the same bytes. Compare records a second.
# Source: seen; ProducerPerformance.java divides by 1024 twice.
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


tool org.apache.kafka.tools.TopicCommand --bootstrap-server "$servers" --create --topic t > "$work/log" 2>&1
tool org.apache.kafka.tools.ProducerPerformance --bootstrap-server "$servers" --topic t --num-records 200 \
    --record-size 1000000 --throughput -1 --command-property max.request.size=1040000 2> "$work/log" > "$work/out" \
    || { cat "$work/log" "$work/out" >&2; exit 1; }
cat "$work/out"
python3 - "$work/out" > "$work/seen" <<'END'
import re
import sys

with open(sys.argv[1]) as lines:
    last = lines.read().strip().splitlines()[-1]
records, printed = (float(number) for number in re.search(r"([\d.]+) records/sec \(([\d.]+) MB/sec\)", last).groups())
print("bytes in a printed MB:", "1048576" if abs(records * 1e6 / 1048576 - printed) < 0.01 else "another number")
print("a million:", abs(records - printed) < 0.01)
END

cat > "$work/expected" <<'END'
bytes in a printed MB: 1048576
a million: False
END

cat "$work/seen"
if ! diff "$work/expected" "$work/seen"; then
    echo "kafka-producer-perf-test counts megabytes otherwise now." >&2
    exit 1
fi
