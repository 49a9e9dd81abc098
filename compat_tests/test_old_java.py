"""Clients of the 0.8, 0.9 and 0.10 years: message sets instead of record batches, with timestamps from 0.10
on, and the lowest versions of every API.

Against `--broker=kafka` these run on Kafka 3.9.2, the last line that still speaks those versions.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator

import pytest
from kafka.admin import KafkaAdminClient, NewTopic

from compat_tests import reference
from compat_tests.brokers import ApacheBroker, OdradekBroker, TestBroker
from compat_tests.clients import Client, Message
from compat_tests.clients.java import SOURCE, OldJavaClient
from compat_tests.clients.kafka_python import KafkaPythonClient
from compat_tests.stories import START_MS, ClientStories, some_messages, topic_name

CODECS = ("none", "gzip", "snappy", "lz4")


@pytest.fixture(scope="module")
def broker(request: pytest.FixtureRequest) -> Iterator[TestBroker]:
    if request.config.getoption("--broker") == "kafka":
        with reference.Kafka(reference.OLDER) as kafka:
            yield ApacheBroker(kafka)
    else:
        yield OdradekBroker(request.getfixturevalue("odradek_broker"))


@pytest.fixture(scope="module")
def bootstrap(broker: TestBroker) -> str:
    return broker.bootstrap


def run_java(program: str, version: str, *arguments: str) -> list[list[str]]:
    """Runs one of our programs against the jars of `version`; its lines, split into fields."""
    source = SOURCE.with_name(f"{program}.java")
    told = reference.run_java(source, arguments=arguments, version=version)
    return [line.split("\t") for line in told.splitlines() if "\t" in line]


def encoded(part: bytes | None) -> str:
    return "-" if part is None else base64.b64encode(part).decode()


RECORDS = [
    (
        None if n % 10 == 0 else b"key-%d" % n,
        None if n % 50 == 1 else b"value-%d-of-many-that-compress-well-well-well" % n,
    )
    for n in range(200)
]
"""What the programs send."""


@pytest.mark.parametrize("version", ["0.8.2.2", "0.9.0.1"])
def test_an_old_producer_and_simple_consumer_see_the_same_records(bootstrap: str, version: str) -> None:
    client = KafkaPythonClient(bootstrap)
    topics = {codec: topic_name(f"old-{codec}") for codec in CODECS}
    for topic in topics.values():
        client.create_topic(topic, 1)
    host, port = bootstrap.split(":")
    facts = run_java("OldProducer", version, host, port, *(f"{c}={topic}" for c, topic in topics.items()))
    texts = [(encoded(key), encoded(value)) for key, value in RECORDS]
    for topic in topics.values():
        mine = [fact[1:] for fact in facts if fact[0] == topic]
        assert [fact for fact in mine if fact[0] == "acknowledged"] == [
            ["acknowledged", str(n)] for n in range(200)
        ]
        assert ["partition", "0", "0"] in mine
        assert ["earliest", "0"] in mine
        assert ["latest", "200"] in mine
        assert [fact[1:] for fact in mine if fact[0] == "read"] == [
            [str(offset), key, value] for offset, (key, value) in enumerate(texts)
        ]
        newer = client.read(topic, {0: 0}, 200)
        assert [(record.key, record.value) for record in newer] == RECORDS


@pytest.mark.parametrize("version", ["0.10.0.1", "0.10.2.2"])
def test_a_client_of_format_v1_sees_its_own_records_and_those_of_newer_clients(
    bootstrap: str, version: str
) -> None:
    client = KafkaPythonClient(bootstrap)
    own = {codec: topic_name(f"v1-{codec}") for codec in CODECS}
    newer = {codec: topic_name(f"newer-{codec}") for codec in CODECS}
    stamped = topic_name("v1-stamped")
    for topic in (*own.values(), *newer.values()):
        client.create_topic(topic, 1)
    with KafkaAdminClient(bootstrap_servers=bootstrap) as admin:
        settings = {"message.timestamp.type": "LogAppendTime"}
        admin.create_topics([NewTopic(stamped, 1, 1, topic_configs=settings)])
    messages = some_messages(200, seed=10)
    for codec, topic in newer.items():
        client.produce(topic, messages, codec)
    tasks = [f"{codec}={topic}" for codec, topic in own.items()]
    tasks += [f"={topic}" for topic in newer.values()] + [f"gzip={stamped}"]
    facts = run_java("TimestampClient", version, bootstrap, topic_name("group"), str(START_MS), *tasks)

    def facts_of(topic: str, kind: str) -> list[list[str]]:
        return [fact[2:] for fact in facts if fact[:2] == [topic, kind]]

    times = [START_MS + n * 37 % 200 for n in range(200)]
    for topic in own.values():
        assert facts_of(topic, "acknowledged") == [[str(n), str(times[n])] for n in range(200)]
        assert facts_of(topic, "read") == [
            [str(n), str(times[n]), "CreateTime", encoded(key), encoded(value)]
            for n, (key, value) in enumerate(RECORDS)
        ]
        assert [
            (record.offset, record.timestamp_ms, record.key, record.value)
            for record in client.read(topic, {0: 0}, 200)
        ] == [(n, times[n], *RECORDS[n]) for n in range(200)]
    for topic in newer.values():
        assert facts_of(topic, "read") == [
            [str(n), str(one.timestamp_ms), "CreateTime", encoded(one.key), encoded(one.value)]
            for n, one in enumerate(messages)
        ]
    appended = [fact[1] for fact in facts_of(stamped, "read")]
    assert min(map(int, appended)) > max(times)
    assert facts_of(stamped, "read") == [
        [str(n), appended[n], "LogAppendTime", encoded(key), encoded(value)]
        for n, (key, value) in enumerate(RECORDS)
    ]
    if version != "0.10.0.1":  # whose producer tells the time that it was given
        assert [fact[1] for fact in facts_of(stamped, "acknowledged")] == appended
    for topic in (*own.values(), *newer.values(), stamped):
        assert facts_of(topic, "committed") == [["200"]]


def test_the_first_look_up_by_time_finds_what_a_newer_client_wrote(bootstrap: str) -> None:
    client = KafkaPythonClient(bootstrap)
    topic = topic_name("by-time")
    client.create_topic(topic, 1)
    messages = [Message(b"%d" % n, timestamp_ms=START_MS + 10 * n, partition=0) for n in range(50)]
    client.produce(topic, messages, "lz4")
    asked = [START_MS - 5, START_MS, START_MS + 101, START_MS + 490, START_MS + 491]
    facts = run_java("TimeLookup", "0.10.2.2", bootstrap, topic, *map(str, asked))
    assert facts == [
        ["found", "0", str(START_MS)],
        ["found", "0", str(START_MS)],
        ["found", "11", str(START_MS + 110)],
        ["found", "49", str(START_MS + 490)],
        ["found", "-"],
        ["begin", "0"],
        ["end", "50"],
    ]


def test_the_first_group_consumer_shares_out_what_a_new_producer_wrote(bootstrap: str) -> None:
    client = KafkaPythonClient(bootstrap)
    topic = topic_name("old-group")
    client.create_topic(topic, 3)
    messages = [
        Message(b"%d" % n, headers=(("h", b"lost on the way down"),), partition=n % 3) for n in range(90)
    ]
    client.produce(topic, messages, "gzip")
    facts = run_java("OldGroup", "0.9.0.1", bootstrap, topic, topic_name("group"), "90")
    read = {(int(p), int(offset), value) for kind, p, offset, value in (f for f in facts if f[0] == "read")}
    assert read == {(n % 3, n // 3, str(n)) for n in range(90)}
    assert ["placed", "3"] in facts
    assert [fact for fact in facts if fact[0] == "committed"] == [
        ["committed", str(p), "30"] for p in range(3)
    ]
    assert ["sought", "7"] in facts
    assert ["end", "30"] in facts


@pytest.fixture(scope="module")
def client(bootstrap: str) -> Iterator[Client]:
    client = OldJavaClient(bootstrap, "0.9.0.1")
    yield client
    client.close()


class TestFirstGroupConsumer:
    """Of what every client is tried with, all that can be said in 0.9."""

    test_records_of_900_kb_pass = ClientStories.test_records_of_900_kb_pass
    test_many_partitions_are_read_in_order_each = ClientStories.test_many_partitions_are_read_in_order_each
    test_a_committed_offset_is_what_a_group_goes_on_from = (
        ClientStories.test_a_committed_offset_is_what_a_group_goes_on_from
    )
    test_a_position_that_the_log_does_not_have_any_more_is_reset_as_it_is_configured = (
        ClientStories.test_a_position_that_the_log_does_not_have_any_more_is_reset_as_it_is_configured
    )
    test_three_members_join_and_leave_and_every_record_is_read = (
        ClientStories.test_three_members_join_and_leave_and_every_record_is_read
    )
    test_a_restart_in_the_middle_loses_nothing = ClientStories.test_a_restart_in_the_middle_loses_nothing
