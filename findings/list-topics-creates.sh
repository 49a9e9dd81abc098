#!/bin/sh
# confluent-kafka 2.16.1 for Python (librdkafka 2.16.0) and Apache Kafka 4.3.1 with its defaults.
# `AdminClient.list_topics("no-such-topic")` creates the topic, and says that it does not exist. `list_topics` of a
# Producer creates it, too, that of a Consumer does not. `describe_topics` of the AdminClient does not.
# One would guess that a call that lists changes nothing, and least of all beside the answer "unknown topic".
# For users of a broker: a check whether a topic exists, in a start script or a health check, makes it, with the
# standard number of partitions. The second check succeeds, and a misspelt name goes unnoticed.
# The broker does what it was asked for: the request says that topics may be created (auto.create.topics.enable).
# Source: seen.
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

cat > "$work/list.py" <<'END'
import sys
import time

from confluent_kafka import Consumer, KafkaException, Producer, TopicCollection
from confluent_kafka.admin import AdminClient

SERVERS = {"bootstrap.servers": sys.argv[1], "log_level": 0}


def exists(name):
    return name in AdminClient(SERVERS).list_topics(timeout=30).topics


def report(what, name):
    deadline = time.monotonic() + 5
    while not exists(name) and time.monotonic() < deadline:
        time.sleep(0.2)
    print(f"after {what} there is {name if exists(name) else 'nothing new'}")


admin = AdminClient(SERVERS)
try:
    admin.describe_topics(TopicCollection(["a"]))["a"].result(60)
except KafkaException:
    report("AdminClient.describe_topics('a')", "a")
consumer = Consumer({**SERVERS, "group.id": "g"})
consumer.list_topics("b", timeout=60)
report("Consumer.list_topics('b')", "b")
consumer.close()
Producer(SERVERS).list_topics("c", timeout=60)
report("Producer.list_topics('c')", "c")
admin.list_topics("d", timeout=60)
report("AdminClient.list_topics('d')", "d")
END
"$work/venv/bin/python" "$work/list.py" "$servers" > "$work/seen"

cat > "$work/expected" <<'END'
after AdminClient.describe_topics('a') there is nothing new
after Consumer.list_topics('b') there is nothing new
after Producer.list_topics('c') there is c
after AdminClient.list_topics('d') there is d
END

cat "$work/seen"
if ! diff "$work/expected" "$work/seen"; then
    echo "confluent-kafka's list_topics creates other topics now." >&2
    exit 1
fi
