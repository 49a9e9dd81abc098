#!/bin/sh
# confluent-kafka 2.16.1 for Python, with librdkafka 2.16.0 in it; enable.idempotence=true.
# A record is in the log, but its acknowledgement is lost. librdkafka sends it again, with others behind it. For a
# moment there are fewer replicas in sync than min.insync.replicas: the broker refuses this record and the next one.
# Then the replica is back, and the broker refuses the third one in flight, as its sequence number leaves a gap.
# librdkafka answers the gap with a new epoch of the producer. There it numbers all records from 0 again, also the one
# in doubt. The broker cannot recognise it in another epoch and appends it: the log has it twice. Each delivery report
# is a success.
# One would guess that an idempotent producer never gives a record that may be in the log to another epoch. In the same
# epoch the broker recognises it, as the second run shows: with one request in flight there is no gap.
# For users of a broker: a record of an idempotent producer may be there twice after a replica was slow. No error says
# so, and one looks for the fault in the broker. max.in.flight.requests.per.connection=1 was safe here.
# The broker here is a small one in this file, and slower than the client: it answers when three requests are there.
# In each state it says what Apache Kafka says; two brokers of 4.3.1 gave the same answers to the same batches:
# - The replicas in sync are counted before the log is asked (Partition.appendRecordsToLeader). So a record that the
#   log has gets NOT_ENOUGH_REPLICAS too, and not its offset.
# - Behind sequence 0 only 1 can follow in the same epoch: 2 is OUT_OF_ORDER_SEQUENCE_NUMBER (ProducerAppendInfo).
# - A batch with epoch and sequence numbers of one of the last five in the current epoch is not appended: it gets the
#   old offset, as a success (ProducerStateEntry.findDuplicateBatch).
# - A higher epoch begins with sequence 0, whatever came before (ProducerAppendInfo).
# Source: https://github.com/confluentinc/librdkafka/issues/4953 for the behaviour, Kafka's classes for the answers.
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet confluent-kafka==2.16.1

cat > "$work/expected" <<'END'
librdkafka 2.16.0
5 requests in flight at most
  epoch 0, sequence 0, A: at 0, but the connection ends
  epoch 0, sequence 0, A: NOT_ENOUGH_REPLICAS
  epoch 0, sequence 1, B: NOT_ENOUGH_REPLICAS
  epoch 0, sequence 2, C: OUT_OF_ORDER_SEQUENCE_NUMBER
  epoch 1, sequence 0, A: at 1
  epoch 1, sequence 1, B: at 2
  epoch 1, sequence 2, C: at 3
  A: delivered at 1
  B: delivered at 2
  C: delivered at 3
  the log is AABC
1 requests in flight at most
  epoch 0, sequence 0, A: at 0, but the connection ends
  epoch 0, sequence 0, A: NOT_ENOUGH_REPLICAS
  epoch 0, sequence 0, A: NOT_ENOUGH_REPLICAS
  epoch 0, sequence 0, A: at 0
  epoch 0, sequence 1, B: at 1
  epoch 0, sequence 2, C: at 2
  A: delivered at 0
  B: delivered at 1
  C: delivered at 2
  the log is ABC
END

cat > "$work/doubled.py" <<'END'
import contextlib
import socket
import struct
import threading

import confluent_kafka

PRODUCE, METADATA, API_VERSIONS, INIT_PRODUCER_ID = 0, 3, 18, 22
# librdkafka makes batches with sequence numbers for a broker that has Fetch 4; it is not asked for here.
SERVED = {PRODUCE: (3, 3), 1: (4, 4), METADATA: (1, 1), API_VERSIONS: (0, 0), INIT_PRODUCER_ID: (0, 0)}
NONE, NOT_ENOUGH_REPLICAS, UNSUPPORTED_VERSION, OUT_OF_ORDER = 0, 19, 35, 45
NAMES = {NOT_ENOUGH_REPLICAS: "NOT_ENOUGH_REPLICAS", OUT_OF_ORDER: "OUT_OF_ORDER_SEQUENCE_NUMBER"}
SECONDS = 60


def text(value):
    return struct.pack(f">h{len(value)}s", len(value), value.encode())


class Broker:
    """The leader of one partition; the second replica is only a number."""

    def __init__(self, in_flight):
        self.log = []  # (producer id, epoch, sequence, value)
        self.seen = []
        self.requests_out_of_sync = 2
        self.awaited = min(3, in_flight)
        self.listening = socket.create_server(("127.0.0.1", 0))
        self.port = self.listening.getsockname()[1]
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            connection, _ = self.listening.accept()
            threading.Thread(target=self.serve, args=(connection,), daemon=True).start()

    def serve(self, connection):
        # The client ends its connections as it likes.
        with contextlib.suppress(OSError), connection, connection.makefile("rb") as reader:
            waiting = []
            while size := reader.read(4):
                request = reader.read(struct.unpack(">i", size)[0])
                key, version, correlation_id = struct.unpack_from(">hhi", request)
                first, last = SERVED[key]
                assert key == API_VERSIONS or first <= version <= last, (key, version)
                if key != PRODUCE:
                    self.send(connection, correlation_id, self.answer(key, version, request))
                    continue
                waiting.append((correlation_id, request))
                if not self.log:
                    self.append(request)
                    self.seen[-1] += ", but the connection ends"
                    connection.shutdown(socket.SHUT_RDWR)
                    return
                if len(waiting) < self.awaited:
                    continue
                self.awaited = 1
                for one, produced in waiting:
                    error, offset = self.append(produced)
                    partition = struct.pack(">iihqq", 1, 0, error, offset, -1)
                    self.send(connection, one, struct.pack(">i", 1) + text("t") + partition + struct.pack(">i", 0))
                waiting.clear()

    def send(self, connection, correlation_id, body):
        connection.sendall(struct.pack(">ii", 4 + len(body), correlation_id) + body)

    def answer(self, key, version, request):
        if key == API_VERSIONS:
            if version:  # this API answers versions that it does not know in version 0
                return struct.pack(">hi", UNSUPPORTED_VERSION, 0)
            rows = b"".join(struct.pack(">hhh", one, *SERVED[one]) for one in SERVED)
            return struct.pack(">hi", NONE, len(SERVED)) + rows
        if key == INIT_PRODUCER_ID:
            return struct.pack(">ihqh", 0, NONE, 7, 0)
        assert key == METADATA, key
        node = struct.pack(">i", 1) + text("127.0.0.1") + struct.pack(">ih", self.port, -1)
        partition = struct.pack(">ihiiiiiiii", 1, NONE, 0, 1, 2, 1, 2, 2, 1, 2)
        topic = struct.pack(">h", NONE) + text("t") + b"\0" + partition
        is_asked_for = request.endswith((text("t"), struct.pack(">i", -1)))  # by its name, or all topics
        topics = struct.pack(">i", is_asked_for) + topic * is_asked_for
        return struct.pack(">i", 1) + node + struct.pack(">i", 1) + topics

    def append(self, request):
        batch = request[request.index(text("t") + struct.pack(">ii", 1, 0)) + 15 :]
        producer, epoch, sequence, count = struct.unpack_from(">qhii", batch, 43)
        assert (batch[16], count) == (2, 1), batch
        value = chr(batch[-2])  # a letter, and the count of headers behind it
        error, offset = self.decide(producer, epoch, sequence, value)
        told = NAMES.get(error) or f"at {offset}"
        self.seen.append(f"epoch {epoch}, sequence {sequence}, {value}: {told}")
        return error, offset

    def decide(self, producer, epoch, sequence, value):
        if self.log and self.requests_out_of_sync:
            self.requests_out_of_sync -= 1
            return NOT_ENOUGH_REPLICAS, -1
        same = [offset for offset, one in enumerate(self.log) if one[:3] == (producer, epoch, sequence)]
        if same:
            return NONE, same[-1]
        if self.log:
            _, last_epoch, last_sequence, _ = self.log[-1]
            assert epoch >= last_epoch
            if sequence != (last_sequence + 1 if epoch == last_epoch else 0):
                return OUT_OF_ORDER, -1
        self.log.append((producer, epoch, sequence, value))
        return NONE, len(self.log) - 1


def run(in_flight):
    broker, reports = Broker(in_flight), []

    def report(error, message):
        reports.append(f"{message.value().decode()}: {error.name() if error else f'delivered at {message.offset()}'}")

    producer = confluent_kafka.Producer(
        {
            "bootstrap.servers": f"127.0.0.1:{broker.port}",
            "enable.idempotence": True,
            "max.in.flight.requests.per.connection": in_flight,
            "batch.num.messages": 1,
            "linger.ms": 0,
            "log_level": 0,
        }
    )
    for value in "ABC":
        producer.produce("t", value, on_delivery=report)
    assert producer.flush(SECONDS) == 0, broker.seen
    print(f"{in_flight} requests in flight at most")
    for line in broker.seen + reports:
        print("  " + line)
    print("  the log is", "".join(value for *_, value in broker.log), flush=True)


print("librdkafka", confluent_kafka.libversion()[0])
run(5)
run(1)
END
"$work/venv/bin/python" "$work/doubled.py" > "$work/seen"
cat "$work/seen"
if ! diff "$work/expected" "$work/seen"; then
    echo "A record of an idempotent producer has another fate now." >&2
    exit 1
fi
