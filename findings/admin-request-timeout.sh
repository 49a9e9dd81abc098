#!/bin/sh
# Apache Kafka 4.4.0, Java's Admin client.
# request.timeout.ms is 2 s here, default.api.timeout.ms is 8 s, and retries have their default. The broker does not
# answer one request; the next one it would answer at once. Admin waits 8 s for that answer, does not ask again, and
# ends in a TimeoutException "after 1 attempt(s)". A producer and a consumer ask again after request.timeout.ms.
# One would guess the same of Admin: its documentation says of request.timeout.ms that the request is sent again.
# For users of a broker: an answer that is lost without an end of the connection, as behind a firewall that drops
# packets, costs the whole of default.api.timeout.ms and the operation, however short request.timeout.ms is. Tools that
# administer should try again by themselves.
# The broker here is a small one in this file.
# Source: https://kafka.apache.org/documentation/#adminclientconfigs for what the option promises; the rest was seen.
set -eu
work=$(mktemp -d)
broker=
end() {
    status=$?
    if [ -n "$broker" ]; then { kill "$broker" && wait "$broker"; } 2> "$work/log" || true; fi
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
    <dependency><groupId>org.apache.kafka</groupId><artifactId>kafka-clients</artifactId><version>4.4.0</version></dependency>
    <dependency><groupId>org.slf4j</groupId><artifactId>slf4j-nop</artifactId><version>1.7.36</version></dependency>
  </dependencies>
</project>
END
mvn -q -B -f "$work/pom.xml" dependency:copy-dependencies -DincludeScope=runtime -DoutputDirectory="$work/libs" \
    > "$work/log" || { cat "$work/log" >&2; exit 1; }

cat > "$work/broker.py" <<'END'
import socket
import struct
import sys
import threading

CREATE_TOPICS, METADATA, API_VERSIONS = 19, 3, 18
# Produce and Fetch are not asked for here; a broker without them is none.
SERVED = {0: (3, 3), 1: (4, 4), METADATA: (1, 1), API_VERSIONS: (0, 0), CREATE_TOPICS: (2, 2)}
UNSUPPORTED_VERSION = 35
asked = 0


def text(value):
    return struct.pack(f">h{len(value)}s", len(value), value.encode())


def answer(api, version, port):
    """None: no answer at all."""
    global asked
    if api == API_VERSIONS:
        if version:  # this API answers versions that it does not know in version 0
            return struct.pack(">hi", UNSUPPORTED_VERSION, 0)
        return struct.pack(">hi", 0, len(SERVED)) + b"".join(struct.pack(">hhh", one, *SERVED[one]) for one in SERVED)
    if api == METADATA:
        node = struct.pack(">i", 1) + text("127.0.0.1") + struct.pack(">ih", port, -1)
        no_topics = struct.pack(">i", 0)
        return struct.pack(">i", 1) + node + struct.pack(">i", 1) + no_topics
    assert api == CREATE_TOPICS, api
    asked += 1
    if asked == 1:
        print("the broker does not answer request 1 for a new topic", flush=True)
        return None
    print(f"the broker answers request {asked} for a new topic", flush=True)
    return struct.pack(">ii", 0, 1) + text("orders") + struct.pack(">hh", 0, -1)


def serve(connection, port):
    with connection, connection.makefile("rb") as reader:
        while size := reader.read(4):
            request = reader.read(struct.unpack(">i", size)[0])
            api, version, correlation = struct.unpack_from(">hhi", request)
            found = answer(api, version, port)
            if found is not None:
                connection.sendall(struct.pack(">ii", 4 + len(found), correlation) + found)


listening = socket.create_server(("127.0.0.1", 0))
port = listening.getsockname()[1]
with open(sys.argv[1], "w") as file:
    print(port, file=file)
while True:
    connection, _ = listening.accept()
    threading.Thread(target=serve, args=(connection, port), daemon=True).start()
END

cat > "$work/Create.java" <<'END'
import java.util.List;
import java.util.Map;
import java.util.concurrent.ExecutionException;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.NewTopic;

public class Create {
    public static void main(String[] arguments) throws Exception {
        Map<String, Object> settings = Map.of(
            "bootstrap.servers", arguments[0], "request.timeout.ms", 2000, "default.api.timeout.ms", 8000);
        try (Admin admin = Admin.create(settings)) {
            long start = System.nanoTime();
            String outcome = "the topic is there";
            try {
                admin.createTopics(List.of(new NewTopic("orders", 1, (short) 1))).all().get();
            } catch (ExecutionException failure) {
                String message = failure.getCause().getMessage();
                outcome = failure.getCause().getClass().getSimpleName() + ", "
                    + message.substring(message.lastIndexOf(" after ") + 1);
            }
            boolean waitedForAll = System.nanoTime() - start >= 7_000_000_000L;
            System.out.println(outcome);
            System.out.println("it has waited for " + (waitedForAll ? "default.api.timeout.ms" : "less"));
        }
    }
}
END
javac -cp "$work/libs/*" -d "$work" "$work/Create.java"

python3 "$work/broker.py" "$work/port" > "$work/asked" &
broker=$!
python3 - "$work/port" <<'END'
import pathlib
import sys
import time

deadline = time.monotonic() + 60
while not pathlib.Path(sys.argv[1]).exists() or not pathlib.Path(sys.argv[1]).read_text().endswith("\n"):
    assert time.monotonic() < deadline
    time.sleep(0.1)
END
java -XX:TieredStopAtLevel=1 -cp "$work/libs/*:$work" Create "127.0.0.1:$(cat "$work/port")" > "$work/told"
cat "$work/told" "$work/asked" > "$work/seen"

cat > "$work/expected" <<'END'
TimeoutException, after 1 attempt(s)
it has waited for default.api.timeout.ms
the broker does not answer request 1 for a new topic
END

cat "$work/seen"
if ! diff "$work/expected" "$work/seen"; then
    echo "Java's Admin asks again now, or gives up earlier." >&2
    exit 1
fi
