#!/bin/bash
# Apache Kafka 4.3.1, kafka-topics (org.apache.kafka.tools.TopicCommand).
# `--topic` is a regular expression, except for --create. A dot is allowed in names of topics, and is common there
# (orders.v1), but as an expression it stands for any character. So `--delete --topic orders.v1` also deletes orders-v1
# and ordersXv1, without a question and without a line of output. `--alter --partitions` changes all of them, too.
# One would guess that the name of a topic that exists means that topic: kafka-configs takes it so, and --create of
# the same tool.
# For users of a broker: topics are deleted that nobody named, and their records are gone. Write 'orders\.v1'.
# Source: the help of the option `--topic` says that it "accepts a regular expression".
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
<project xmlns="http://maven.apache.org/POM/4.0.0">
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

read -r port controller < <(python3 -c '
import socket
sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(2)]
print(*[one.getsockname()[1] for one in sockets])')
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
tool kafka.tools.StorageTool format --standalone -t "$(tool kafka.tools.StorageTool random-uuid)" \
    -c "$work/server.properties" > "$work/log" 2>&1 || { cat "$work/log" >&2; exit 1; }
java -Xmx512m -Dlog4j2.level=ERROR kafka.Kafka "$work/server.properties" > "$work/broker.log" 2>&1 &
broker=$!
for _ in $(seq 240); do
    if (exec 3<> "/dev/tcp/127.0.0.1/$port") 2> "$work/log"; then break; fi
    sleep 0.5
done


for topic in orders.v1 orders-v1 ordersXv1 orders.v10; do
    tool org.apache.kafka.tools.TopicCommand --bootstrap-server "$servers" --create --topic "$topic" > "$work/log" 2>&1
done
topics() { tool org.apache.kafka.tools.TopicCommand --bootstrap-server "$servers" --list 2> "$work/log" | tr '\n' ' '; }
{
    echo "before: $(topics)"
    said=$(tool org.apache.kafka.tools.TopicCommand --bootstrap-server "$servers" --delete --topic orders.v1 2>&1)
    echo "delete says: $said"
    for _ in $(seq 50); do
        after=$(topics)
        if [ "$after" = "orders.v10 " ]; then break; fi
        sleep 0.1
    done
    echo "after: $after"
} > "$work/seen"

cat > "$work/expected" <<'END'
before: orders-v1 orders.v1 orders.v10 ordersXv1 
delete says: 
after: orders.v10 
END

cat "$work/seen"
if ! diff "$work/expected" "$work/seen"; then
    echo "kafka-topics --delete deletes other topics now." >&2
    exit 1
fi
