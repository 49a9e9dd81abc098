#!/bin/sh
# Apache Kafka 4.3.1, kafka-console-consumer with --timeout-ms and --max-messages.
# When records do not come, or not as many as asked for, the tool logs "Error processing message, terminating consumer
# process" at level ERROR, and its exit status is 0. So it is for a topic that does not exist, which it creates besides.
# One would guess another status: --max-messages 5 that brought 2 has not done what it was asked for, and the
# tool itself calls that an error.
# For users of a broker: a script or a health check that reads one record to see whether the broker delivers passes
# with an empty topic and with a misspelt one. Count the lines instead.
# Source: seen; the help of --timeout-ms only says "exit if no message is available".
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
printf 'one\ntwo\n' | tool org.apache.kafka.tools.ConsoleProducer --bootstrap-server "$servers" --topic t > "$work/log" 2>&1
: > "$work/seen"
for topic in t no-such-topic; do
    status=0
    tool org.apache.kafka.tools.consumer.ConsoleConsumer --bootstrap-server "$servers" --topic "$topic" \
        --from-beginning --max-messages 5 --timeout-ms 15000 > "$work/out" 2> "$work/log" || status=$?
    cat "$work/log" >> "$work/out"
    errors=$(grep -c 'ERROR.*terminating consumer process' "$work/out" || true)
    records=$(sed -n 's/Processed a total of //p' "$work/out")
    echo "$topic: $records of 5, lines of level ERROR: $errors, exit status $status" >> "$work/seen"
done
tool org.apache.kafka.tools.TopicCommand --bootstrap-server "$servers" --list 2> "$work/log" | grep no-such >> "$work/seen"

cat > "$work/expected" <<'END'
t: 2 messages of 5, lines of level ERROR: 1, exit status 0
no-such-topic: 0 messages of 5, lines of level ERROR: 1, exit status 0
no-such-topic
END

cat "$work/seen"
if ! diff "$work/expected" "$work/seen"; then
    echo "kafka-console-consumer ends otherwise now." >&2
    exit 1
fi
