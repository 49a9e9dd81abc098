#!/bin/sh
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

cat > "$work/topics.py" <<'END'
import subprocess
import sys
import time

from confluent_kafka.admin import AdminClient, NewTopic

admin = AdminClient({"bootstrap.servers": sys.argv[1], "log_level": 0})
names = ["orders.v1", "orders-v1", "ordersXv1", "orders.v10"]
for created in admin.create_topics([NewTopic(name, 1, 1) for name in names]).values():
    created.result(60)


def topics():
    return sorted(admin.list_topics(timeout=60).topics)


print("before:", *topics())
tool = ["java", "-XX:TieredStopAtLevel=1", "-Dlog4j2.level=ERROR", "org.apache.kafka.tools.TopicCommand"]
command = [*tool, "--bootstrap-server", sys.argv[1], "--delete", "--topic", "orders.v1"]
done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
print("delete says:", repr(done.stdout), "exit status", done.returncode)
deadline = time.monotonic() + 10
while len(topics()) > 1 and time.monotonic() < deadline:
    time.sleep(0.2)
print("after:", *topics())
END
"$work/venv/bin/python" "$work/topics.py" "$servers" > "$work/seen"

cat > "$work/expected" <<'END'
before: orders-v1 orders.v1 orders.v10 ordersXv1
delete says: '' exit status 0
after: orders.v10
END

cat "$work/seen"
if ! diff "$work/expected" "$work/seen"; then
    echo "kafka-topics --delete deletes other topics now." >&2
    exit 1
fi
