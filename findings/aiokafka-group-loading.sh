#!/bin/sh
# aiokafka 0.14.0 for Python, consumers in a group.
# While the coordinator of a group loads it, the broker answers a question for committed offsets with an error for the
# group as a whole (COORDINATOR_LOAD_IN_PROGRESS) and without partitions. aiokafka asks in version 3, which has this
# error, and does not look at it: it takes the answer for "nothing is committed".
# One would guess that it asks again, as it does for the same error of a single partition, which version 1 has.
# For users of a broker: for some seconds after the start of a broker a consumer may begin where auto_offset_reset says.
# With "latest", the default, it passes over records without an error; with "earliest" it reads all again, and commits.
# The broker here is a small one in this file: it answers the first question with the error, and the others with 42.
# Source: the answer is described at https://kafka.apache.org/protocol#The_Messages_OffsetFetch; the rest was seen.
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet aiokafka==0.14.0

cat > "$work/expected" <<'END'
the broker answered version 3 with COORDINATOR_LOAD_IN_PROGRESS for the group
aiokafka: nothing is committed
the broker answered version 3 with the offset 42
aiokafka: 42 is committed
END

cat > "$work/committed.py" <<'END'
import asyncio
import struct

from aiokafka import AIOKafkaConsumer, TopicPartition

API_VERSIONS, METADATA, OFFSET_FETCH, FIND_COORDINATOR = 18, 3, 9, 10
SERVED = {API_VERSIONS: (0, 0), METADATA: (0, 1), OFFSET_FETCH: (1, 3), FIND_COORDINATOR: (0, 0), 1: (0, 4), 2: (0, 1)}
LOADING = 14
questions = 0


def text(value):
    return struct.pack(f">h{len(value)}s", len(value), value.encode())


def answer(api, version, port):
    global questions
    if api == API_VERSIONS:
        if version:  # this API answers versions that it does not know in version 0
            return struct.pack(">hi", 35, 0)
        return struct.pack(">hi", 0, len(SERVED)) + b"".join(struct.pack(">hhh", one, *SERVED[one]) for one in SERVED)
    node = struct.pack(">i", 1) + text("127.0.0.1") + struct.pack(">i", port)
    if api == METADATA:
        no_rack, controller = struct.pack(">h", -1), struct.pack(">i", 1)
        partition = struct.pack(">ihiiiiii", 1, 0, 0, 1, 1, 1, 1, 1)
        topic = struct.pack(">ih", 1, 0) + text("t") + b"\0" + partition
        return struct.pack(">i", 1) + node + no_rack + controller + topic
    if api == FIND_COORDINATOR:
        return struct.pack(">h", 0) + node
    assert api == OFFSET_FETCH, api
    questions += 1
    if questions == 1:
        print(f"the broker answered version {version} with COORDINATOR_LOAD_IN_PROGRESS for the group")
        return struct.pack(">iih", 0, 0, LOADING)
    print(f"the broker answered version {version} with the offset 42")
    topic = text("t") + struct.pack(">iiq", 1, 0, 42) + text("") + struct.pack(">h", 0)
    return struct.pack(">ii", 0, 1) + topic + struct.pack(">h", 0)


async def serve(reader, writer):
    port = writer.get_extra_info("sockname")[1]
    try:
        while True:
            (size,) = struct.unpack(">i", await reader.readexactly(4))
            api, version, correlation = struct.unpack(">hhi", (await reader.readexactly(size))[:8])
            body = struct.pack(">i", correlation) + answer(api, version, port)
            writer.write(struct.pack(">i", len(body)) + body)
    except asyncio.IncompleteReadError:
        writer.close()


async def main():
    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    partition = TopicPartition("t", 0)
    consumer = AIOKafkaConsumer(bootstrap_servers=f"127.0.0.1:{port}", group_id="g", enable_auto_commit=False)
    await consumer.start()
    for _ in range(2):
        offset = await consumer.committed(partition)
        print(f"aiokafka: {'nothing' if offset is None else offset} is committed")
    await consumer.stop()
    server.close()


asyncio.run(asyncio.wait_for(main(), 60))
END
"$work/venv/bin/python" "$work/committed.py" > "$work/seen"
cat "$work/seen"
if ! diff "$work/expected" "$work/seen"; then
    echo "aiokafka looks at the error of the group now, or asks otherwise." >&2
    exit 1
fi
