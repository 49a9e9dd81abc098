#!/bin/sh
# Apache Kafka 4.4.0, kafka-acls (org.apache.kafka.tools.AclCommand).
# `--remove --allow-principal User:bob --topic t` without --operation removes the rule that allows bob the operation
# ALL, and no other. bob's rules for READ and WRITE stay. With --force the tool says nothing, and its exit status is 0,
# whether it removed a rule or not. Without a principal the same command removes the rules of all operations.
# One would guess that it removes all rules of bob on that topic, or says that there was no such rule.
# For users of a broker: someone whose access was withdrawn still has it. Name the operations, and list the rules
# afterwards.
# Source: the help of --operation says that the default is All; the rest was seen.
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
authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer
super.users=User:ANONYMOUS
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

acls() {
    tool org.apache.kafka.tools.AclCommand --bootstrap-server "$servers" "$@" > "$work/told" 2>&1 \
        || { cat "$work/told" >&2; exit 1; }
}
rules() {
    acls --list
    echo "$1:" $(grep -o 'operation=[A-Z]*' "$work/told" | sort)
}
{
    acls --add --allow-principal User:bob --operation Read --operation Write --topic t
    rules "after --add"
    acls --remove --force --allow-principal User:bob --topic t
    echo "--remove says $(wc -c < "$work/told") bytes, with exit status 0"
    rules "after --remove with a principal"
    acls --remove --force --topic t
    rules "after --remove without one"
} > "$work/seen"

cat > "$work/expected" <<'END'
after --add: operation=READ operation=WRITE
--remove says 0 bytes, with exit status 0
after --remove with a principal: operation=READ operation=WRITE
after --remove without one:
END
cat "$work/seen"
if ! diff "$work/expected" "$work/seen"; then
    echo "kafka-acls --remove removes other rules now." >&2
    exit 1
fi
