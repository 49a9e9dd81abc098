#!/bin/sh
# Apache Kafka 4.4.0: kafka-console-producer, kafka-delete-records and kafka-consumer-groups.
# When the broker or the client refuses what they were asked for, these tools print an error, and their exit status is 0:
# a record that is too large is not written, records of an offset out of range are not deleted, and of a group that has
# members nothing is reset and nothing deleted. A group that does not exist cannot be described, with status 0 as well.
# kafka-topics and kafka-reassign-partitions end with 1 for such an error.
# One would guess another status than 0 where nothing was done, as with nearly all programs.
# For users of a broker: `set -e` in a script passes over all of that. Lines that are piped into the console producer may
# be missing in the topic, and a reset before a deployment may not have happened. Look at the output, or count.
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

cat > "$work/statuses.py" <<'END'
import json
import subprocess
import sys
import threading

from confluent_kafka import Consumer
from confluent_kafka.admin import AdminClient, NewTopic

servers = sys.argv[1]
admin = AdminClient({"bootstrap.servers": servers, "log_level": 0})
admin.create_topics([NewTopic("t", 1, 1)])["t"].result(60)
assigned, ended = threading.Event(), threading.Event()
member = Consumer({"bootstrap.servers": servers, "group.id": "busy", "log_level": 0})
member.subscribe(["t"], on_assign=lambda consumer, partitions: assigned.set())


def poll():
    while not ended.is_set():
        member.poll(0.2)


thread = threading.Thread(target=poll)
thread.start()
assert assigned.wait(60)
with open(sys.argv[2], "w") as file:
    json.dump({"version": 1, "partitions": [{"topic": "t", "partition": 0, "offset": 99}]}, file)


def run(what, tool, *options, text=""):
    command = ["java", "-XX:TieredStopAtLevel=1", "-Dlog4j2.level=ERROR", f"org.apache.kafka.tools.{tool}"]
    done = subprocess.run(
        [*command, "--bootstrap-server", servers, *options],
        input=text,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    told = "an error" if "error" in done.stdout.lower() else "no error"
    print(f"{what}: {told}, exit status {done.returncode}", flush=True)


GROUPS = "consumer.group.ConsumerGroupCommand"
TO_EARLIEST = ["--reset-offsets", "--to-earliest", "--execute"]
run("produce a record that is too large", "ConsoleProducer", "--topic", "t", text="x" * 2_000_000 + "\n")
run("delete records before an offset out of range", "DeleteRecordsCommand", "--offset-json-file", sys.argv[2])
run("reset a group with members", GROUPS, "--group", "busy", "--topic", "t", *TO_EARLIEST)
run("delete offsets of a group with members", GROUPS, "--group", "busy", "--topic", "t", "--delete-offsets")
run("delete a group with members", GROUPS, "--group", "busy", "--delete")
run("describe a group that does not exist", GROUPS, "--group", "missing", "--describe")
run("describe a topic that does not exist", "TopicCommand", "--topic", "missing", "--describe")
ended.set()
thread.join()
member.close()
END
"$work/venv/bin/python" "$work/statuses.py" "$servers" "$work/offsets.json" > "$work/seen"

cat > "$work/expected" <<'END'
produce a record that is too large: an error, exit status 0
delete records before an offset out of range: an error, exit status 0
reset a group with members: an error, exit status 0
delete offsets of a group with members: an error, exit status 0
delete a group with members: an error, exit status 0
describe a group that does not exist: an error, exit status 0
describe a topic that does not exist: an error, exit status 1
END
cat "$work/seen"
if ! diff "$work/expected" "$work/seen"; then
    echo "the tools have other exit statuses now." >&2
    exit 1
fi
