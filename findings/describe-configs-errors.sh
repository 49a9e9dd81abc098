#!/bin/sh
# kafka-python 3.0.12, KafkaAdminClient.
# describe_configs does not look at the error that a broker gives for a topic: the result has an empty dict for it, as
# for a topic where each option has its default. That is so for a topic that does not exist, and for one that the user
# may not see. Of a topic that does not exist describe_topics of the same client has the error code in its result, and
# delete_topics raises an exception.
# One would guess that the result says so as well, or that there is an exception.
# For users of a broker: a script that compares the options of a topic with what they should be takes "I may not see it"
# for "nothing is set". Look for the topic with describe_topics first.
# The broker here is a small one in this file. Apache Kafka 4.4.0 gave the same error for a topic that does not exist,
# and describe_configs the same result.
# Source: seen.
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet kafka-python==3.0.12

cat > "$work/expected" <<'END'
kafka-python 3.0.12
the broker answers for "missing" with UNKNOWN_TOPIC_OR_PARTITION
describe_configs: {'topic': {'missing': {}}}
the broker answers for "secret" with TOPIC_AUTHORIZATION_FAILED
describe_configs: {'topic': {'secret': {}}}
the broker answers for "plain" with NONE
describe_configs: {'topic': {'plain': {}}}
END

cat > "$work/describe.py" <<'END'
import socket
import struct
import threading

import kafka
from kafka.admin import ConfigResource

API_VERSIONS, METADATA, DESCRIBE_CONFIGS = 18, 3, 32
# Fetch and Produce are not asked for here; a broker without them is none.
SERVED = {API_VERSIONS: (0, 0), METADATA: (0, 1), DESCRIBE_CONFIGS: (0, 1), 0: (3, 3), 1: (4, 4)}
UNSUPPORTED_VERSION, TOPIC = 35, 2
ERRORS = {
    "missing": (3, "UNKNOWN_TOPIC_OR_PARTITION"),
    "secret": (29, "TOPIC_AUTHORIZATION_FAILED"),
    "plain": (0, "NONE"),
}


def text(value):
    return struct.pack(f">h{len(value)}s", len(value), value.encode())


def answer(api, version, body, port):
    if api == API_VERSIONS:
        if version:  # this API answers versions that it does not know in version 0
            return struct.pack(">hi", UNSUPPORTED_VERSION, 0)
        return struct.pack(">hi", 0, len(SERVED)) + b"".join(struct.pack(">hhh", one, *SERVED[one]) for one in SERVED)
    if api == METADATA:
        node = struct.pack(">i", 1) + text("127.0.0.1") + struct.pack(">i", port)
        no_rack, controller, no_topics = struct.pack(">h", -1), struct.pack(">i", 1), struct.pack(">i", 0)
        return struct.pack(">i", 1) + node + (no_rack + controller if version else b"") + no_topics
    assert api == DESCRIBE_CONFIGS, api
    (name,) = [one for one in ERRORS if text(one) in body]
    error, word = ERRORS[name]
    print(f'the broker answers for "{name}" with {word}')
    no_options = struct.pack(">i", 0)
    result = struct.pack(">h", error) + text(word) + struct.pack(">b", TOPIC) + text(name) + no_options
    return struct.pack(">ii", 0, 1) + result


def serve(connection, port):
    with connection, connection.makefile("rb") as reader:
        while size := reader.read(4):
            request = reader.read(struct.unpack(">i", size)[0])
            api, version, correlation = struct.unpack_from(">hhi", request)
            body = struct.pack(">i", correlation) + answer(api, version, request, port)
            connection.sendall(struct.pack(">i", len(body)) + body)


def accept(listening):
    while True:
        connection, _ = listening.accept()
        threading.Thread(target=serve, args=(connection, listening.getsockname()[1]), daemon=True).start()


listening = socket.create_server(("127.0.0.1", 0))
threading.Thread(target=accept, args=(listening,), daemon=True).start()
print("kafka-python", kafka.__version__)
admin = kafka.KafkaAdminClient(bootstrap_servers=f"127.0.0.1:{listening.getsockname()[1]}")
for name in ERRORS:
    print("describe_configs:", admin.describe_configs([ConfigResource("TOPIC", name)]))
admin.close()
END
"$work/venv/bin/python" "$work/describe.py" > "$work/seen"
cat "$work/seen"
if ! diff "$work/expected" "$work/seen"; then
    echo "describe_configs of kafka-python looks at the error now." >&2
    exit 1
fi
