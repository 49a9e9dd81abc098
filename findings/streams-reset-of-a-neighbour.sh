#!/bin/sh
# Apache Kafka 4.4.0, kafka-streams-application-reset (org.apache.kafka.tools.StreamsResetter).
# The tool deletes each topic whose name begins with the application id and a hyphen and ends in -changelog or
# -repartition. The reset of the application "orders" so deletes the state of the application "orders-eu", too: its
# topics begin with "orders-" as well. It asks nothing, and its exit status is 0.
# One would guess that an application id means that application, as its groups and topics are kept apart everywhere else.
# For users of a broker: the application beside it goes on without an error, and counts from 0 as soon as it has to
# restore its state. Look at --dry-run first, and name the topics with --internal-topics.
# The counts here come from a program of Kafka Streams with its state in memory, which it restores at each start.
# Source: seen; the tool's last lines name what it deletes.
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
    <dependency><groupId>org.apache.kafka</groupId><artifactId>kafka-streams</artifactId><version>4.4.0</version></dependency>
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

cat > "$work/Count.java" <<'END'
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.common.serialization.StringSerializer;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.state.Stores;

public class Count {
    public static void main(String[] arguments) throws Exception {
        String servers = arguments[0];
        try (Admin admin = Admin.create(Map.of("bootstrap.servers", servers))) {
            if (!admin.listTopics().names().get().contains("in")) {
                admin.createTopics(List.of(new NewTopic("in", 1, (short) 1))).all().get();
            }
        }
        try (var producer = new KafkaProducer<>(
                Map.of("bootstrap.servers", servers), new StringSerializer(), new StringSerializer())) {
            producer.send(new ProducerRecord<>("in", "a", "one more")).get();
        }
        Properties settings = new Properties();
        settings.putAll(Map.of(
            "application.id", "orders-eu", "bootstrap.servers", servers, "state.dir", arguments[1],
            "auto.offset.reset", "earliest", "statestore.cache.max.bytes", "0",
            "session.timeout.ms", "6000", "heartbeat.interval.ms", "1000"));
        StreamsBuilder builder = new StreamsBuilder();
        CountDownLatch seen = new CountDownLatch(1);
        builder.stream("in", Consumed.with(Serdes.String(), Serdes.String()))
            .groupByKey()
            .count(Materialized.<String, Long>as(Stores.inMemoryKeyValueStore("counts")))
            .toStream()
            .foreach((key, count) -> {
                System.out.println("orders-eu counts " + count + " of " + key);
                seen.countDown();
            });
        KafkaStreams streams = new KafkaStreams(builder.build(), settings);
        streams.start();
        boolean done = seen.await(60, TimeUnit.SECONDS);
        streams.close();
        System.exit(done ? 0 : 1);
    }
}
END
mkdir "$work/classes"
javac -cp "$CLASSPATH" -d "$work/classes" "$work/Count.java"
count() { tool -cp "$work/classes:$CLASSPATH" Count "$servers" "$work/state" 2> "$work/log" || { cat "$work/log" >&2; exit 1; }; }
{
    count
    count
    tool org.apache.kafka.tools.StreamsResetter --bootstrap-server "$servers" --application-id orders 2> "$work/log" \
        | grep Deleting
    count
} > "$work/seen"

cat > "$work/expected" <<'END'
orders-eu counts 1 of a
orders-eu counts 2 of a
Deleting inferred internal topics [orders-eu-counts-changelog]
orders-eu counts 1 of a
END
cat "$work/seen"
if ! diff "$work/expected" "$work/seen"; then
    echo "kafka-streams-application-reset deletes other topics now." >&2
    exit 1
fi
