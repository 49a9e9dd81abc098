#!/bin/bash
# confluent-kafka 2.16.1 for Python (librdkafka 2.16.0) and Apache Kafka 4.3.1 with its defaults.
# `AdminClient.list_topics("no-such-topic")` says that the topic does not exist, and creates it. `list_topics` of a
# Producer does the same, that of a Consumer does not. `describe_topics` of the AdminClient does not.
# One would guess that a call that lists changes nothing, and least of all after the answer "unknown topic".
# For users of a broker: a check whether a topic exists, in a start script or a health check, makes it, with the
# standard number of partitions. The second check succeeds, and a misspelt name goes unnoticed.
# The broker does what it was asked for: the request says that topics may be created (auto.create.topics.enable).
# Source: seen; `allow.auto.create.topics` in CONFIGURATION.md of librdkafka is for consumers alone.
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

cat > "$work/list.py" <<'END'
import sys
import time

from confluent_kafka import Consumer, KafkaException, Producer, TopicCollection
from confluent_kafka.admin import AdminClient

SERVERS = {"bootstrap.servers": sys.argv[1], "log_level": 0}


def exists(name):
    return name in AdminClient(SERVERS).list_topics(timeout=30).topics


def report(what, name, error):
    deadline = time.monotonic() + 5
    while not exists(name) and time.monotonic() < deadline:
        time.sleep(0.2)
    print(f"{what}: {error}, afterwards {'there is' if exists(name) else 'there is no'} {name}")


admin = AdminClient(SERVERS)
try:
    admin.describe_topics(TopicCollection(["a"]))["a"].result(30)
except KafkaException as refusal:
    report("AdminClient.describe_topics", "a", refusal.args[0].name())
consumer = Consumer({**SERVERS, "group.id": "g"})
report("Consumer.list_topics", "b", consumer.list_topics("b", timeout=30).topics["b"].error.name())
consumer.close()
report("Producer.list_topics", "c", Producer(SERVERS).list_topics("c", timeout=30).topics["c"].error.name())
report("AdminClient.list_topics", "d", admin.list_topics("d", timeout=30).topics["d"].error.name())
END
"$work/venv/bin/python" "$work/list.py" "$servers" > "$work/seen"

cat > "$work/expected" <<'END'
AdminClient.describe_topics: UNKNOWN_TOPIC_OR_PART, afterwards there is no a
Consumer.list_topics: UNKNOWN_TOPIC_OR_PART, afterwards there is no b
Producer.list_topics: UNKNOWN_TOPIC_OR_PART, afterwards there is c
AdminClient.list_topics: UNKNOWN_TOPIC_OR_PART, afterwards there is d
END

cat "$work/seen"
if ! diff "$work/expected" "$work/seen"; then
    echo "confluent-kafka's list_topics creates other topics now." >&2
    exit 1
fi
