"""A user's project whose tests use the fixtures and the test kit, with many workers at once: it passes each
time, also with more workers than processors. The suite `kit-rounds` runs it twenty times, with the kit's own
tests."""

import os

import pytest

import odradek
from tests.tiers import NIGHTLY

pytest_plugins = ["pytester"]
WORKERS = "8" if NIGHTLY else "3"

PROJECT = """
    import threading

    import pytest
    from confluent_kafka import Consumer
    from kafka import KafkaConsumer, KafkaProducer

    SECONDS = 60

    def send(broker, topic, value=b"x"):
        with KafkaProducer(bootstrap_servers=broker.bootstrap_servers, acks="all") as producer:
            return producer.send(topic, value).get(SECONDS).offset

    @pytest.mark.parametrize("number", range(4))
    def test_what_is_sent_is_read_in_a_group(odradek_broker, odradek_topic, odradek_group, number):
        assert send(odradek_broker, odradek_topic, b"%d" % number) == 0
        consumer = KafkaConsumer(
            odradek_topic,
            bootstrap_servers=odradek_broker.bootstrap_servers,
            group_id=odradek_group,
            auto_offset_reset="earliest",
            metadata_max_age_ms=1000,
        )
        assert next(consumer).value == b"%d" % number
        consumer.commit()
        odradek_broker.wait_for.lag(odradek_group, timeout=SECONDS)
        consumer.close()

    @pytest.mark.parametrize("number", range(3))
    def test_librdkafka_reads_what_is_there(odradek_broker, odradek_topic, odradek_group, number):
        send(odradek_broker, odradek_topic)
        consumer = Consumer(
            {
                "bootstrap.servers": odradek_broker.bootstrap_servers,
                "group.id": odradek_group,
                "auto.offset.reset": "earliest",
            }
        )
        consumer.subscribe([odradek_topic])
        message = consumer.poll(SECONDS)
        assert message.error() is None
        assert message.value() == b"x"
        consumer.close()

    @pytest.mark.parametrize("number", range(3))
    def test_a_fault_is_for_its_topic_alone(odradek_broker, odradek_topic, number):
        error = "NOT_LEADER_OR_FOLLOWER"
        with odradek_broker.faults.add("Produce", topic=odradek_topic, error=error, times=2) as fault:
            assert send(odradek_broker, odradek_topic) == 0
            assert fault.wait(2, timeout=SECONDS) == 2

    def test_a_request_is_held_until_another_one_has_come(odradek_broker, odradek_topic):
        told = []
        with odradek_broker.faults.add("Produce", topic=odradek_topic, hold=True, times=1) as fault:
            sending = threading.Thread(target=lambda: told.append(send(odradek_broker, odradek_topic)))
            sending.start()
            fault.wait(1, timeout=SECONDS)
            assert send(odradek_broker, odradek_topic) == 0
            fault.release()
            sending.join(SECONDS)
        assert told == [1]

    @pytest.mark.parametrize("number", range(2))
    def test_a_day_passes_for_a_broker_of_its_own(odradek_fresh_broker, number):
        send(odradek_fresh_broker, "old")
        odradek_fresh_broker.roll("old")
        odradek_fresh_broker.clock.advance(days=8)
        odradek_fresh_broker.run_retention()
        assert [one["offsets"] for one in odradek_fresh_broker.call_kit("state.topics", {})] == [0]

    def test_a_fresh_broker_returns_to_its_snapshot(odradek_fresh_broker):
        assert send(odradek_fresh_broker, "orders") == 0
        snapshot = odradek_fresh_broker.snapshot()
        assert send(odradek_fresh_broker, "orders") == 1
        odradek_fresh_broker.restore(snapshot)
        assert send(odradek_fresh_broker, "orders") == 1
"""

MARKED = """
    import pytest
    from kafka import KafkaProducer

    def send(broker, topic):
        with KafkaProducer(bootstrap_servers=broker.bootstrap_servers, acks="all") as producer:
            return producer.send(topic, b"x").get(60).offset

    @pytest.mark.odradek_restore
    @pytest.mark.parametrize("number", range(8))
    def test_each_test_finds_the_broker_as_it_was(odradek_broker, number):
        assert send(odradek_broker, "marked") == 0

    @pytest.mark.odradek_faults("Produce", topic="flaky", error="NOT_LEADER_OR_FOLLOWER", times=1)
    @pytest.mark.parametrize("number", range(4))
    def test_a_fault_of_a_marker_fires(odradek_broker, number):
        send(odradek_broker, "flaky")
"""


@pytest.fixture
def run(pytester, monkeypatch):
    """Runs a project by a pytest of its own, with our plugin and with workers."""
    parent = os.path.dirname(odradek.__path__[0])
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([parent, os.environ.get("PYTHONPATH", "")]))
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    plugins = ("-p", "odradek.embedding.pytest_plugin", "-p", "xdist.plugin", "-n", WORKERS)
    return lambda *arguments: pytester.runpytest_subprocess(*plugins, *arguments)


def test_a_project_passes_with_a_broker_for_each_worker(run, pytester):
    pytester.makepyfile(test_project=PROJECT, test_marked=MARKED)
    run("--strict-markers").assert_outcomes(passed=14 + 12)


def test_a_project_passes_with_one_broker_for_all_workers(run, pytester):
    pytester.makepyfile(test_project=PROJECT)
    run("--odradek-shared").assert_outcomes(passed=14)
