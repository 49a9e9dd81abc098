#!/bin/sh
# Apache Kafka 4.4.0, dead letter queues of share groups (KIP-1191) with errors.deadletterqueue.copy.record.enable=true.
# The copy of a rejected record has its key and its value. It has not its headers and not its timestamp: the headers
# tell topic, partition, offset, group, delivery count and reason, and the timestamp is the moment of the copy.
# A topic whose name lacks the prefix "dlq." is taken by kafka-configs without a word. Then each rejected record is
# archived and no copy is made; only the broker's log says so.
# One would guess that "copy the record" copies it as it is, and that a name which never works is refused.
# For users of a broker: trace ids, schema ids in headers and the time of the event are lost in the queue, unless the
# record can still be read at the offset that the header names. Check once that a rejected record arrives.
# Source: KIP-1191 names the headers; the rest is seen.
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
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
share.coordinator.state.topic.num.partitions=1
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


admin() { class=$1; shift; tool "$class" --bootstrap-server "$servers" "$@" > "$work/log" 2>&1 || { cat "$work/log" >&2; exit 1; }; }
admin org.apache.kafka.tools.TopicCommand --create --topic t
admin org.apache.kafka.tools.TopicCommand --create --topic dlq.t --config errors.deadletterqueue.group.enable=true
admin org.apache.kafka.tools.TopicCommand --create --topic letters --config errors.deadletterqueue.group.enable=true
for group in good bad; do
    name=dlq.t
    [ "$group" = good ] || name=letters
    admin org.apache.kafka.tools.ConfigCommand --alter --entity-type groups --entity-name "$group" --add-config \
        "share.auto.offset.reset=earliest,errors.deadletterqueue.topic.name=$name,errors.deadletterqueue.copy.record.enable=true"
done
# A record of the year 2001 with a header.
cat > "$work/One.java" <<'END'
import java.util.Map;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.StringSerializer;

public class One {
    public static void main(String[] arguments) throws Exception {
        var serializer = new StringSerializer();
        try (var producer = new KafkaProducer<>(Map.of("bootstrap.servers", arguments[0]), serializer, serializer)) {
            var record = new ProducerRecord<>("t", 0, 1_000_000_000_000L, "key", "value");
            record.headers().add("trace", "abc".getBytes());
            producer.send(record).get();
        }
    }
}
END
tool "$work/One.java" "$servers" > "$work/log" 2>&1 || { cat "$work/log" >&2; exit 1; }
: > "$work/seen"
for group in good bad; do
    tool org.apache.kafka.tools.consumer.ConsoleShareConsumer --bootstrap-server "$servers" --topic t --group "$group" \
        --reject --max-messages 1 --timeout-ms 60000 > "$work/out" 2> "$work/log"
    echo "$group group: $(grep -c '^value$' "$work/out") rejected" >> "$work/seen"
done
read_all() {
    tool org.apache.kafka.tools.consumer.ConsoleConsumer --bootstrap-server "$servers" --topic "$1" --from-beginning \
        --timeout-ms "$2" --formatter-property print.timestamp=true --formatter-property print.headers=true \
        --formatter-property print.key=true 2> "$work/log" | grep CreateTime || true
}
read_all dlq.t 15000 | sed -E 's/CreateTime:([0-9]+)/CreateTime of \1/; s/CreateTime of 1000000000000/its own time/; s/CreateTime of [0-9]+/another time/' |
    tr '\t,' '\n\n' >> "$work/seen"
echo "letters: $(read_all letters 5000 | wc -l) records" >> "$work/seen"
echo "lines of the broker's log about the prefix: $(grep -c 'does not comply with the DLQ topic prefix' "$work/broker.log")" >> "$work/seen"

cat > "$work/expected" <<'END'
good group: 1 rejected
bad group: 1 rejected
another time
__dlq.errors.topic:t
__dlq.errors.partition:0
__dlq.errors.offset:0
__dlq.errors.group:good
__dlq.errors.delivery.count:1
__dlq.errors.message:Offset rejected by client.
key
value
letters: 0 records
lines of the broker's log about the prefix: 1
END

cat "$work/seen"
if ! diff "$work/expected" "$work/seen"; then
    echo "Dead letters are otherwise now." >&2
    exit 1
fi
