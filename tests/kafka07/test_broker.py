"""Whole brokers with a listener for Kafka 0.7: kills, compaction, settings and permissions."""

import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from kafka import KafkaConsumer, KafkaProducer, TopicPartition
from kafka.admin import KafkaAdminClient, NewTopic

import odradek
from odradek.config.broker_config import load
from odradek.config.config_error import ConfigError
from odradek.embedding.free_port import free_port
from odradek.wire.kafka07.messages import encode_message, encode_set, iter_messages
from odradek.wire.kafka07.requests import Error, Fetch, Produce
from tests.kafka07.client import Client07, contents, options, whole_bytes


def produce_keyed(broker, *pairs, topic="t"):
    with KafkaProducer(bootstrap_servers=broker.bootstrap_servers) as producer:
        for key, value in pairs:
            producer.send(topic, value, key, partition=0).get(timeout=20)


def create(broker, topic, **configs):
    admin = KafkaAdminClient(bootstrap_servers=broker.bootstrap_servers)
    settings = {name.replace("_", "."): str(value) for name, value in configs.items()}
    admin.create_topics([NewTopic(topic, num_partitions=1, replication_factor=1, topic_configs=settings)])
    admin.close()


PATIENCE_S = 30


def until(call, holds):
    """The result of `call` for which `holds`."""
    deadline = time.monotonic() + PATIENCE_S
    while not holds(result := call()):
        assert time.monotonic() < deadline, result
    return result


# Kills


def test_positions_and_messages_stay_over_kills_and_restarts(tmp_path):
    given, port = options(log_segment_bytes=1_048_576)
    values = [b"%05d" % number * 1000 for number in range(1200)]
    with odradek.Broker(process=True, data_dir=tmp_path, options=given) as broker:
        known = b""
        for number in range(2):
            with Client07(port) as client:
                client.produce(*values[number * 600 : number * 600 + 600])
                assert client.start() == 0
                data = client.read_all()
                assert data.startswith(known)
                known = data
            if number:
                broker.stop()
            else:
                broker.kill()
            broker.start()
        assert known == encode_set(values)
        with Client07(port) as client:
            # Somebody who has stopped in the middle goes on from there.
            for begin in (1, 2_055_000, len(known) // 2, len(known) - 3):
                assert client.fetch(begin, 100) == (0, known[begin : begin + 100])
            assert client.end() == len(known)
            offsets = client.offsets(-1, 1000)
            assert offsets == sorted(offsets, reverse=True)
            assert (offsets[0], offsets[-1]) == (len(known), 0)
            assert len(offsets) > 4
            # Each is the begin of a message.
            for offset in offsets[1:]:
                assert next(iter_messages(known[offset:])).codec == 0
            assert client.offsets(-1, 3) == offsets[:3]


def test_what_was_told_before_a_kill_is_told_after_it_also_without_a_flush(tmp_path):
    given, port = options()
    with odradek.Broker(process=True, data_dir=tmp_path, options=given) as broker:
        ends = []
        for number in range(3):
            with Client07(port) as client:
                client.produce(b"x" * number)
                ends.append(client.end())
            broker.kill()
            broker.start()
            with Client07(port) as client:
                assert client.end() == ends[-1]
                assert client.fetch(ends[-1]) == (0, b"")
        assert ends == [sum(10 + n for n in range(number + 1)) for number in range(3)]


# Retention


def test_positions_stay_when_segments_go(tmp_path):
    given, port = options(log_retention_check_interval_ms=20)
    with odradek.Broker(options=given) as broker, Client07(port) as client:
        create(broker, "t", retention_bytes=2_500_000, segment_bytes=1_048_576)
        values = [b"%04d" % number * 5000 for number in range(400)]
        for start in range(0, 400, 20):
            client.produce(*values[start : start + 20])
            assert client.end() == 20_010 * (start + 20)
        # A segment has 50 records, and goes while the others have more than 2.5 MB.
        start = until(client.start, lambda found: found > 20_010 * 400 - 3_600_000)
        error, data = client.fetch(start, 2**30)
        assert error == 0
        assert start % 20_010 == 0
        kept = len(data) // 20_010
        assert 100 < kept <= 400 - start // 20_010
        assert contents(data) == values[-kept:]
        assert client.fetch(0) == (Error.OFFSET_OUT_OF_RANGE, b"")
        until(lambda: client.offsets(-1, 1000)[-1] == client.start(), bool)


# Compaction


def test_positions_stay_when_records_are_compacted_away(tmp_path):
    given, port = options(log_cleaner_backoff_ms=20)
    with odradek.Broker(process=True, data_dir=tmp_path, options=given) as broker:
        create(broker, "t", cleanup_policy="compact", segment_bytes=1_048_576, min_cleanable_dirty_ratio=0.01)
        with Client07(port) as client:
            pairs = [(b"key %d" % (number % 7), b"value %d" % number * 2000) for number in range(200)]
            produce_keyed(broker, *pairs[:100])
            before = client.read_all()
            assert len(sizes(before)) == 100
            end = client.end()
            produce_keyed(broker, *pairs[100:])
            after = until(client.read_all, lambda data: len(contents(data)) < 60)
            assert client.fetch(end)[0] == 0
            # Each message has its old place, or a filler has it.
            assert sizes(after)[: len(sizes(before))] == sizes(before)
            latest = dict(pairs)
            kept = contents(after)
            assert [value for _, value in pairs if value in kept] == kept
            assert set(latest.values()) <= set(kept)
        broker.kill()
        broker.start()
        with Client07(port) as client:
            assert sizes(client.read_all()) == sizes(after)
            position = sum(sizes(after)[:50])
            assert sizes(client.read_all(position=position)) == sizes(after)[50:]


def sizes(data):
    return [10 + len(message.payload) for message in iter_messages(data)]


# Settings


def test_a_listener_of_0_7_is_refused_where_it_cannot_work():
    given, _ = options()
    cluster = {
        "process.roles": "broker",
        "node.id": "1",
        "controller.listener.names": "CONTROLLER",
        "controller.quorum.bootstrap.servers": "127.0.0.1:1",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,OLD:KAFKA_07,CONTROLLER:PLAINTEXT",
    }
    with pytest.raises(ConfigError, match="only a node alone can serve"):
        load(sets=[f"{name}={value}" for name, value in (given | cluster).items()])
    alone = given | {"listeners": "OLD://127.0.0.1:0"}
    with pytest.raises(ConfigError, match="has none for clients"):
        load(sets=[f"{name}={value}" for name, value in alone.items()])
    among = given | {"inter.broker.listener.name": "OLD"}
    with pytest.raises(ConfigError, match="not in listeners"):
        load(sets=[f"{name}={value}" for name, value in among.items()])


def test_nothing_of_0_7_is_imported_without_such_a_listener(tmp_path):
    program = (
        "import sys, odradek\n"
        f"with odradek.Broker(data_dir={str(tmp_path)!r}):\n"
        "    print([name for name in sys.modules if 'kafka07' in name])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
    assert not list(tmp_path.glob("kafka07*"))


def test_topics_are_not_made_where_that_is_switched_off():
    given, port = options(auto_create_topics_enable="false")
    with odradek.Broker(options=given) as broker, Client07(port) as client:
        client.request(Produce("t", 0, encode_message(b"one")))
        assert client.read_to_end() == b""
        create(broker, "t")
        with Client07(port) as other:
            other.produce(b"two")
            assert other.values() == [b"two"]


def test_an_idle_connection_ends_and_connections_are_limited():
    given, port = options(connections_max_idle_ms=200)
    with odradek.Broker(options=given), Client07(port) as client:
        client.produce(b"one")
        assert client.read_to_end() == b""
    given, port = options(max_connections_per_ip=2)
    with odradek.Broker(options=given), Client07(port) as one, Client07(port) as two:
        one.produce(b"one")
        two.produce(b"two")
        with Client07(port) as third:
            assert third.read_to_end() == b""


def test_who_may_not_is_refused():
    given, port = options(
        authorizer_class_name="org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        allow_everyone_if_no_acl_found="false",
    )
    with odradek.Broker(options=given), Client07(port) as client:
        assert client.fetch(0) == (Error.UNKNOWN, b"")
        assert client.multi_fetch(Fetch("t", 0, 0, 10)) == [(Error.UNKNOWN, b"")]
        client.request(Produce("t", 0, encode_message(b"one")))
        assert client.read_to_end() == b""


def test_who_may_is_served():
    given, port = options(
        authorizer_class_name="org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        allow_everyone_if_no_acl_found="false",
        super_users="User:ANONYMOUS",
    )
    with odradek.Broker(options=given), Client07(port) as client:
        client.produce(b"one")
        assert client.values() == [b"one"]


def test_readers_at_the_end_get_all_that_several_clients_write():
    given, port = options()
    count, writers = 150, 3

    def write(name):
        with Client07(port) as client:
            for number in range(count):
                client.request(Produce("t", 0, encode_message(b"%d %d" % (name, number))))
                if number % 10 == 0:
                    client.end()
            client.end()

    def read(_):
        with Client07(port) as client:
            found, at = [], 0
            deadline = time.monotonic() + PATIENCE_S
            while len(found) < count * writers:
                assert time.monotonic() < deadline, len(found)
                error, data = client.fetch(at, 500)
                assert error == 0
                data = data[: whole_bytes(data)]
                found += contents(data)
                at += len(data)
            return found

    with odradek.Broker(options=given), ThreadPoolExecutor() as threads:
        reading = [threads.submit(read, None) for _ in range(4)]
        list(threads.map(write, range(writers)))
        first, *others = (one.result() for one in reading)
        assert all(found == first for found in others)
        for name in range(writers):
            of_one = [value for value in first if value.startswith(b"%d " % name)]
            assert of_one == [b"%d %d" % (name, number) for number in range(count)]


def test_a_topic_that_is_made_anew_begins_anew():
    given, port = options(log_segment_delete_delay_ms=0)
    with odradek.Broker(options=given) as broker, Client07(port) as client:
        client.produce(b"one", b"two")
        assert client.end() == 26
        admin = KafkaAdminClient(bootstrap_servers=broker.bootstrap_servers)
        admin.delete_topics(["t"])
        admin.close()
        assert client.fetch(26) == (Error.NONE, b"")
        client.produce(b"three")
        assert client.values() == [b"three"]
        assert client.end() == 15


def test_kafka_python_reads_from_where_0_7_writes_and_commits():
    given, port = options()
    with odradek.Broker(options=given) as broker, Client07(port) as client:
        client.produce(*[b"%d" % n for n in range(100)])
        consumer = KafkaConsumer(
            bootstrap_servers=broker.bootstrap_servers,
            group_id="g",
            auto_offset_reset="earliest",
            consumer_timeout_ms=20_000,
        )
        consumer.assign([TopicPartition("t", 0)])
        found = [(record.offset, record.value) for _, record in zip(range(100), consumer, strict=False)]
        assert found == [(n, b"%d" % n) for n in range(100)]
        consumer.commit()
        assert consumer.committed(TopicPartition("t", 0)) == 100
        consumer.close()


# Clients of Kafka 0.6


def test_clients_of_0_6_have_a_listener_of_their_own_with_their_own_positions(tmp_path):
    given, port = options()
    older = free_port()
    given["listeners"] += f",OLDER://127.0.0.1:{older}"
    given["listener.security.protocol.map"] += ",OLDER:KAFKA_06"
    with odradek.Broker(data_dir=tmp_path, options=given) as broker:
        for _ in range(2):
            with Client07(port) as of_0_7, Client07(older) as of_0_6:
                of_0_6.produce(b"one", magic=0)
                of_0_7.produce(b"two")
                assert of_0_7.end() // 13 == of_0_6.end() // 12 > 0
                assert of_0_7.end() % 13 == of_0_6.end() % 12 == 0
                count = of_0_7.end() // 26
                values = [b"one", b"two"] * count
                assert of_0_7.read_all() == encode_set(values, magic=1)
                assert of_0_6.read_all() == encode_set(values, magic=0)
                assert of_0_6.fetch(5, 9) == (0, encode_set(values, magic=0)[5:14])
            broker.stop()
            broker.start()
        create(broker, "c", cleanup_policy="compact")
        produce_keyed(broker, (b"key", b"value"), topic="c")
        with Client07(older) as of_0_6:
            assert of_0_6.fetch(0, topic="c") == (Error.UNKNOWN, b"")
