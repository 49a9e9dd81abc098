#!/bin/sh
# kafkajs 2.2.4 for Node and Apache Kafka 4.4.0.
# admin.alterConfigs sets the options that it is given, and puts all others of that topic back to their defaults. A
# topic with cleanup.policy=compact and retention.ms=-1 that gets another max.message.bytes is no longer compacted: it
# keeps its records for seven days. The answer is a success.
# One would guess that the options which are not named stay as they are, as with kafka-configs --add-config. kafkajs
# has no other function that changes options; Java's client took this request out, for its effect.
# For users of a broker: a table that was to be kept for ever is deleted after a week. Read the options first, and give
# all of them that are not defaults.
# kafkajs sends AlterConfigs; the request that leaves the others alone is IncrementalAlterConfigs.
# Source: seen; https://cwiki.apache.org/confluence/display/KAFKA/KIP-339%3A+Create+a+new+IncrementalAlterConfigs+API
# for the two requests.
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
(cd "$work" && npm install --silent --no-audit --no-fund kafkajs@2.2.4 > npm.log)

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

cat > "$work/alter.js" <<'END'
const { ConfigResourceTypes, Kafka, logLevel } = require("kafkajs");
const kafka = new Kafka({ brokers: [process.argv[2]], logLevel: logLevel.NOTHING });
const resource = { type: ConfigResourceTypes.TOPIC, name: "customers" };
const names = ["cleanup.policy", "max.message.bytes", "retention.ms"];

(async () => {
  const admin = kafka.admin();
  await admin.connect();
  const tell = async (when) => {
    const { resources } = await admin.describeConfigs({ resources: [{ ...resource, configNames: names }] });
    const options = resources[0].configEntries.map((one) => `${one.configName}=${one.configValue}`);
    console.log(`${when}:`, options.sort().join(" "));
  };
  const configEntries = [
    { name: "cleanup.policy", value: "compact" },
    { name: "retention.ms", value: "-1" },
  ];
  await admin.createTopics({ topics: [{ topic: "customers", numPartitions: 1, configEntries }] });
  await tell("before");
  const entry = { name: "max.message.bytes", value: "2000000" };
  const { resources } = await admin.alterConfigs({ resources: [{ ...resource, configEntries: [entry] }] });
  console.log("the answer has the error code", resources[0].errorCode);
  await tell("after");
  await admin.disconnect();
})();
END
(cd "$work" && node alter.js "$servers") > "$work/seen"

cat > "$work/expected" <<'END'
before: cleanup.policy=compact max.message.bytes=1048588 retention.ms=-1
the answer has the error code 0
after: cleanup.policy=delete max.message.bytes=2000000 retention.ms=604800000
END
cat "$work/seen"
if ! diff "$work/expected" "$work/seen"; then
    echo "kafkajs changes the options of a topic otherwise now." >&2
    exit 1
fi
