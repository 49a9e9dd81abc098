#!/bin/sh
# confluent-kafka 2.16.1 for Python (librdkafka 2.16.0) and Apache Kafka 4.3.1.
# A transactional producer sends a record, and the connection ends before the response comes. The broker has the
# record. The program aborts the transaction, as after any doubt, and begins the next one with the same producer.
# librdkafka gives the sequence number of the doubtful record to the first record of the new transaction, with the
# same producer id and epoch. The broker takes that for the record that it has, and acknowledges it at the offset of
# the aborted one. The delivery report has no error, the commit succeeds, and the record is in no log: it is lost.
# One would guess that a commit which succeeds has all records that were delivered.
# For users of a broker: what is acknowledged and committed may be lost while the broker does all that it has to. A
# program is safe that makes a new producer after an abort with a delivery report that has an error.
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
sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(3)]
print(*[one.getsockname()[1] for one in sockets], base64.urlsafe_b64encode(b"id" + uuid.uuid4().bytes[2:]).decode()[:22])')
port=$1 controller=$2 proxy=$3 id=$4
servers=127.0.0.1:$proxy
cat > "$work/server.properties" <<END
process.roles=broker,controller
node.id=1
controller.quorum.bootstrap.servers=127.0.0.1:$controller
listeners=PLAINTEXT://127.0.0.1:$port,CONTROLLER://127.0.0.1:$controller
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

cat > "$work/abort.py" <<'END'
import contextlib
import socket
import struct
import sys
import threading
import time

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

BROKER, PROXY = int(sys.argv[1]), int(sys.argv[2])
SERVER = f"127.0.0.1:{PROXY}"
PRODUCE = 0
loses, is_lost = threading.Event(), threading.Event()


def frames(source):
    with contextlib.suppress(OSError):  # it has ended
        reader = source.makefile("rb")
        while size := reader.read(4):
            yield size + reader.read(struct.unpack(">i", size)[0])


def pass_on(client):
    """Each request and its response, until a response to Produce is to be lost: then the connection ends."""
    broker = socket.create_connection(("127.0.0.1", BROKER))
    doubtful = set()

    def requests():
        for frame in frames(client):
            key, _, correlation_id = struct.unpack_from(">hhi", frame, 4)
            if key == PRODUCE and loses.is_set():
                doubtful.add(correlation_id)
            broker.sendall(frame)
        broker.close()

    threading.Thread(target=requests, daemon=True).start()
    for frame in frames(broker):
        if struct.unpack_from(">i", frame, 4)[0] in doubtful:
            loses.clear()
            client.shutdown(socket.SHUT_RDWR)
            is_lost.set()
            return
        client.sendall(frame)


def serve():
    with socket.create_server(("127.0.0.1", PROXY)) as listening:
        while True:
            threading.Thread(target=pass_on, args=(listening.accept()[0],), daemon=True).start()


def delivered(name):
    def report(error, message):
        print(f"{name}: {error.name() if error else f'delivered at {message.offset()}'}")

    return report


threading.Thread(target=serve, daemon=True).start()
admin = AdminClient({"bootstrap.servers": SERVER, "log_level": 0})
admin.create_topics([NewTopic("topic", 1, 1)])["topic"].result(60)
producer = Producer({"bootstrap.servers": SERVER, "transactional.id": "id", "linger.ms": 0, "log_level": 0})
producer.init_transactions(60)
producer.begin_transaction()
producer.produce("topic", b"first", on_delivery=delivered("first"))
producer.flush(60)
loses.set()
producer.produce("topic", b"doubtful", on_delivery=delivered("doubtful"))
assert is_lost.wait(60)
time.sleep(0.02)  # librdkafka sends it again after retry.backoff.ms, 100
producer.abort_transaction(60)
print("aborted")
producer.begin_transaction()
producer.produce("topic", b"after", on_delivery=delivered("after"))
producer.commit_transaction(60)
print("committed")

consumer = Consumer({"bootstrap.servers": SERVER, "group.id": "g", "enable.partition.eof": True, "log_level": 0})
consumer.assign([TopicPartition("topic", 0, 0)])
read = []
while True:
    message = consumer.poll(60)
    if message is None or message.error():
        break
    read.append(message.value().decode())
print("a reader of what is committed gets", read)
consumer.close()
END
"$work/venv/bin/python" "$work/abort.py" "$port" "$proxy" > "$work/seen"

cat > "$work/expected" <<'END'
first: delivered at 0
doubtful: _PURGE_QUEUE
aborted
after: delivered at 1
committed
a reader of what is committed gets []
END

cat "$work/seen"
if ! diff "$work/expected" "$work/seen"; then
    echo "The record after an abort has another fate now." >&2
    exit 1
fi
