#!/bin/sh
# Apache Kafka 4.4.0, Java's Admin client and kafka-delete-records.
# deleteRecords for a topic that does not exist asks for metadata again and again until default.api.timeout.ms is over,
# and without a pause: one call sends a thousand requests a second and more. It then ends in a TimeoutException that
# does not say what is wrong. describeProducers does the same; listOffsets says at once that there is no such topic.
# One would guess that a retry waits for retry.backoff.ms (100 ms, and more with each attempt), as its documentation
# says, which gives about ten attempts in 6 s.
# For users of a broker: a job that deletes records of a topic which somebody removed loads the broker with as many
# requests as a busy client, for a minute each time. Look for the topic first.
# Source: https://kafka.apache.org/documentation/#adminclientconfigs for what the option promises; the rest was seen.
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

cat > "$work/Attempts.java" <<'END'
import java.util.List;
import java.util.Map;
import java.util.concurrent.ExecutionException;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.clients.admin.RecordsToDelete;
import org.apache.kafka.common.KafkaFuture;
import org.apache.kafka.common.TopicPartition;

public class Attempts {
    static Admin admin;
    static double before;

    static double requests() {
        return admin.metrics().entrySet().stream()
            .filter(one -> one.getKey().group().equals("admin-client-metrics"))
            .filter(one -> one.getKey().name().equals("request-total"))
            .mapToDouble(one -> (Double) one.getValue().metricValue()).sum();
    }

    static void tell(String what, KafkaFuture<?> future) throws InterruptedException {
        String end = "success";
        try {
            future.get();
        } catch (ExecutionException raised) {
            end = raised.getCause().getClass().getSimpleName();
        }
        double count = requests() - before;
        before = requests();
        System.out.println(what + ": " + end + " after " + (count > 300 ? "more" : "not more") + " than 300 requests");
        System.err.println(what + ": " + (long) count + " requests");
    }

    public static void main(String[] arguments) throws Exception {
        admin = Admin.create(Map.of(
            "bootstrap.servers", arguments[0], "default.api.timeout.ms", "6000", "request.timeout.ms", "3000"));
        admin.describeCluster().nodes().get();
        before = requests();
        TopicPartition missing = new TopicPartition("missing", 0);
        tell("listOffsets", admin.listOffsets(Map.of(missing, OffsetSpec.latest())).all());
        tell("deleteRecords", admin.deleteRecords(Map.of(missing, RecordsToDelete.beforeOffset(1))).all());
        tell("describeProducers", admin.describeProducers(List.of(missing)).all());
        admin.close();
    }
}
END
tool -Dlog4j2.level=OFF "$work/Attempts.java" "$servers" > "$work/seen" 2> "$work/log" \
    || { cat "$work/log" >&2; exit 1; }
grep 'requests$' "$work/log" >&2

cat > "$work/expected" <<'END'
listOffsets: UnknownTopicOrPartitionException after not more than 300 requests
deleteRecords: TimeoutException after more than 300 requests
describeProducers: TimeoutException after more than 300 requests
END
cat "$work/seen"
if ! diff "$work/expected" "$work/seen"; then
    echo "Java's Admin asks for metadata in another way now." >&2
    exit 1
fi
