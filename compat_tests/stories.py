"""What must hold with every client: a test class to inherit, with a `client` fixture of its adapter."""

from __future__ import annotations

import random
import threading
import time
import uuid

from kafka import KafkaAdminClient, TopicPartition

from compat_tests.brokers import TestBroker
from compat_tests.clients import Client, Member, Message, wait_until
from compat_tests.clients.kafka_python import KafkaPythonClient
from compat_tests.kit.working import Working

START_MS = int(time.time()) * 1000 - 3_600_000
"""An hour ago: records older than `retention.ms` may go at any moment."""


def topic_name(story: str) -> str:
    return f"{story}-{uuid.uuid4().hex[:8]}"


def some_messages(count: int, seed: int, partitions: int = 1) -> list[Message]:
    """Messages that differ in everything, reproducibly."""
    chance = random.Random(seed)
    return [
        Message(
            value=chance.randbytes(chance.randrange(200)) + b"repeats " * chance.randrange(20),
            key=chance.choice([None, b"", b"key-%d" % index]),
            headers=tuple((f"h{n}", chance.randbytes(5)) for n in range(chance.randrange(3))),
            partition=index % partitions,
            timestamp_ms=START_MS + index,
        )
        for index in range(count)
    ]


def shared_out(members: list[Member], partitions: int) -> bool:
    """Whether every member has a part, no two the same one, and all parts are given out."""
    parts = [member.assigned for member in members]
    return all(parts) and sum(map(len, parts)) == partitions == len(frozenset().union(*parts))


def delete_records(client: Client, topic: str, before_offset: int) -> None:
    """Of partition 0."""
    with KafkaAdminClient(bootstrap_servers=client.bootstrap) as admin:
        admin.delete_records({TopicPartition(topic, 0): before_offset})


class Sending(Working):
    """Records for partition 0 of a topic, one after the other while this is entered. The list of their values
    grows as they are acknowledged.
    """

    def __init__(self, client: Client, topic: str, *, pause_s: float = 0.2) -> None:
        super().__init__()
        self._client = KafkaPythonClient(client.bootstrap)
        self._topic = topic
        self._pause_s = pause_s
        self.values: list[bytes] = []

    def _run(self) -> None:
        while not self._ending.wait(self._pause_s):
            value = b"more %d" % len(self.values)
            self._client.produce(self._topic, [Message(value)])
            self.values.append(value)


class ClientStories:
    def test_every_codec_brings_back_what_was_sent(self, client: Client) -> None:
        for codec in client.codecs:
            topic = topic_name(f"codec-{codec}")
            client.create_topic(topic, 1)
            messages = some_messages(300, seed=len(codec))
            answers = client.produce(topic, messages, codec)
            assert answers == [(0, offset) for offset in range(300)], codec
            records = client.read(topic, {0: 0}, 300)
            assert [record.content() for record in records] == [
                (message.key, message.value, message.headers) for message in messages
            ], codec
            assert [record.timestamp_ms for record in records] == [m.timestamp_ms for m in messages], codec
            assert [record.offset for record in records] == list(range(300)), codec

    def test_null_is_not_empty_in_keys_values_and_headers(self, client: Client) -> None:
        topic = topic_name("nulls")
        client.create_topic(topic, 1)
        headers = (
            ("none", None if client.sends_null_headers else b"-"),
            ("empty", b""),
            ("two", b"1"),
            ("two", b"2"),
        )
        messages = [
            Message(value=None, key=b"tombstone"),
            Message(value=b"", key=b""),
            Message(value=b"v", key=None),
            Message(value=b"v", key=b"k", headers=headers),
        ]
        client.produce(topic, messages)
        records = client.read(topic, {0: 0}, len(messages))
        assert [record.content() for record in records] == [(m.key, m.value, m.headers) for m in messages]

    def test_records_of_900_kb_pass(self, client: Client) -> None:
        topic = topic_name("large")
        client.create_topic(topic, 1)
        chance = random.Random(900)
        messages = [Message(value=chance.randbytes(900_000)) for _ in range(4)]
        client.produce(topic, messages)
        records = client.read(topic, {0: 0}, 4)
        assert [record.value == message.value for record, message in zip(records, messages, strict=True)] == [
            True
        ] * 4

    def test_fetches_that_end_within_a_batch_lose_nothing(self, client: Client) -> None:
        topic = topic_name("small-fetches")
        client.create_topic(topic, 2)
        chance = random.Random(12)
        messages = [
            Message(value=chance.randbytes(chance.choice([10, 500, 3000])), partition=index % 2)
            for index in range(200)
        ]
        for start in range(0, 200, 20):
            client.produce(
                topic, messages[start : start + 20], client.codecs[start // 20 % len(client.codecs)]
            )
        for fetch_bytes in (1, 1000, 20_000):
            records = client.read(topic, {0: 0, 1: 0}, 200, fetch_bytes=fetch_bytes)
            for partition in range(2):
                read = [record.value for record in records if record.partition == partition]
                assert read == [m.value for m in messages if m.partition == partition], fetch_bytes

    def test_many_partitions_are_read_in_order_each(self, client: Client) -> None:
        topic = topic_name("wide")
        client.create_topic(topic, 60)
        messages = some_messages(1200, seed=60, partitions=60)
        client.produce(topic, messages)
        records = client.read(topic, dict.fromkeys(range(60), 0), 1200)
        for partition in range(60):
            read = [record.value for record in records if record.partition == partition]
            assert read == [message.value for message in messages if message.partition == partition]

    def test_a_seek_finds_the_offset_and_the_time(self, client: Client) -> None:
        topic = topic_name("seek")
        client.create_topic(topic, 2)
        client.produce(
            topic, [Message(b"%d" % n, timestamp_ms=START_MS + 10 * n) for n in range(100)], "gzip"
        )
        first = client.read(topic, {0: 73}, 1)[0]
        assert (first.offset, first.value) == (73, b"73")
        assert client.offset_at(topic, 0, START_MS + 10 * 42) == 42
        assert client.offset_at(topic, 0, START_MS + 10 * 42 + 1) == 43
        assert client.offset_at(topic, 0, 0) == 0
        assert client.offset_at(topic, 0, START_MS + 10_000) is None
        assert client.offset_at(topic, 1, START_MS) is None

    def test_a_position_that_the_log_does_not_have_any_more_is_reset_as_it_is_configured(
        self, client: Client
    ) -> None:
        topic, group = topic_name("reset"), topic_name("group")
        client.create_topic(topic, 1)
        client.produce(topic, [Message(b"%d" % n) for n in range(20)])
        client.commit(group, topic, {0: 5})
        delete_records(client, topic, 12)
        for position in (3, 100):  # before the start, and behind the end
            records = client.read(topic, {0: position}, 8, reset="earliest")
            assert [record.offset for record in records] == list(range(12, 20)), position
        member = client.join(group, topic)
        wait_until(lambda: len(member.records) >= 8, "the group goes on from the log's start", [member])
        member.leave()
        assert [record.offset for record in member.records] == list(range(12, 20))
        with Sending(client, topic):
            records = client.read(topic, {0: 3}, 1, reset="latest")
        assert records[0].offset >= 20

    def test_a_committed_offset_is_what_a_group_goes_on_from(self, client: Client) -> None:
        topic, group = topic_name("commit"), topic_name("group")
        client.create_topic(topic, 3)
        client.produce(topic, [Message(b"%d" % n) for n in range(50)])
        assert client.committed(group, topic, [0]) == {0: None}
        client.commit(group, topic, {0: 41, 1: 0})
        assert client.committed(group, topic, [0, 1, 2]) == {0: 41, 1: 0, 2: None}
        member = client.join(group, topic)
        wait_until(lambda: len(member.records) >= 9, "the rest is read", [member])
        member.leave()
        assert [record.value for record in member.records] == [b"%d" % n for n in range(41, 50)]
        assert client.committed(group, topic, [0]) == {0: 50}

    def test_three_members_join_and_leave_and_every_record_is_read(self, client: Client) -> None:
        topic, group = topic_name("rebalance"), topic_name("group")
        client.create_topic(topic, 6)
        sent: list[Message] = []

        def send(count: int) -> None:
            more = [Message(b"%d" % (len(sent) + n), partition=n % 6) for n in range(count)]
            client.produce(topic, more)
            sent.extend(more)

        everyone: list[Member] = []
        members: list[Member] = []
        for _ in range(3):
            members.append(client.join(group, topic))
            everyone.append(members[-1])
            wait_until(lambda: shared_out(members, 6), f"6 partitions among {len(members)}", members)
            send(60)
        while len(members) > 1:
            members.pop(0).leave()
            wait_until(lambda: shared_out(members, 6), f"6 partitions among {len(members)}", members)
            send(60)
        values = {message.value for message in sent}
        wait_until(
            lambda: {record.value for member in everyone for record in list(member.records)} == values,
            "every record is read",
            members,
        )
        members.pop().leave()
        assert client.committed(group, topic, range(6)) == dict.fromkeys(range(6), len(sent) // 6)

    def test_a_restart_in_the_middle_loses_nothing(self, client: Client, broker: TestBroker) -> None:
        topic, group = topic_name("restart"), topic_name("group")
        client.create_topic(topic, 2)
        before = [Message(b"before-%d" % n, partition=n % 2) for n in range(200)]
        after = [Message(b"after-%d" % n, partition=n % 2) for n in range(200)]
        answers = client.produce(topic, before)
        member = client.join(group, topic)
        wait_until(lambda: len(member.records) >= 100, "half is read", [member])
        down = threading.Thread(target=broker.crash_and_restart)
        down.start()
        answers += client.produce(topic, after)
        down.join()
        expected = {
            (partition, offset): message.value
            for (partition, offset), message in zip(answers, before + after, strict=True)
        }
        wait_until(
            lambda: {(r.partition, r.offset) for r in list(member.records)} >= expected.keys(),
            "every acknowledged record is read",
            [member],
        )
        member.leave()
        read = {(record.partition, record.offset): record.value for record in member.records}
        assert {where: read[where] for where in expected} == expected
        ends = {
            p: 1 + max(record.offset for record in member.records if record.partition == p) for p in (0, 1)
        }
        # aiokafka takes a coordinator's passing error after a restart for "nothing is committed".
        wait_until(lambda: client.committed(group, topic, [0, 1]) == ends, "what was read is committed")
