"""The fixtures of the wheel, run by a pytest of their own, as a user's project runs them."""

import os
import pathlib
import re

import pytest

import odradek

CHECKOUT = pathlib.Path(__file__).resolve().parents[2]

pytest_plugins = ["pytester"]

STORY = """
    from kafka import KafkaAdminClient, KafkaProducer
    from kafka.admin import ConfigResource, ConfigResourceType

    seen = []
    DELAY = "group.initial.rebalance.delay.ms"

    def rebalance_delay(broker):
        admin = KafkaAdminClient(bootstrap_servers=broker.bootstrap_servers)
        asked = ConfigResource(ConfigResourceType.BROKER, "1", [DELAY])
        described = admin.describe_configs([asked], config_filter="all")
        admin.close()
        return described["broker"]["1"][DELAY]["value"]

    def produce(broker):
        producer = KafkaProducer(bootstrap_servers=broker.bootstrap_servers)
        offset = producer.send("t", b"x").get(10).offset
        producer.close()
        return offset

    def test_session_first(odradek_broker):
        seen.append(odradek_broker.bootstrap_servers)
        assert produce(odradek_broker) == 0
        assert rebalance_delay(odradek_broker) == "0", "groups start at once"

    def test_session_second(odradek_broker):
        assert seen == [odradek_broker.bootstrap_servers]
        assert produce(odradek_broker) == 1

    def test_fresh(odradek_fresh_broker):
        assert odradek_fresh_broker.bootstrap_servers not in seen
        assert produce(odradek_fresh_broker) == 0
        assert rebalance_delay(odradek_fresh_broker) == "0"
        odradek_fresh_broker.restart()
        assert produce(odradek_fresh_broker) == 1

    def test_factory(odradek_broker_factory, pytestconfig):
        broker = odradek_broker_factory(num_partitions=2, options={"log.retention.ms": 77_000_000})
        produce(broker)
        assert rebalance_delay(broker) == "0"
        assert len(list(broker.data_dir.glob("t-*"))) == 2
        assert (broker.pid is None) == pytestconfig.getoption("--odradek-in-thread")

    def test_who_wants_groups_to_wait_says_so(odradek_broker_factory):
        assert rebalance_delay(odradek_broker_factory(options={DELAY: 500})) == "500"
        assert rebalance_delay(odradek_broker_factory(group_initial_rebalance_delay_ms=700)) == "700"
"""


@pytest.fixture
def run(pytester, monkeypatch):
    parent = os.path.dirname(odradek.__path__[0])
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([parent, os.environ.get("PYTHONPATH", "")]))
    # The other plugins of this environment take longer to import than the brokers to start. That an install
    # brings ours by its entry point is for `compat_tests/dist`.
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    plugin = ("-p", "odradek.embedding.pytest_plugin")
    return lambda *arguments: pytester.runpytest_subprocess(*plugin, *arguments)


def example(page):
    text = (CHECKOUT / page).read_text()
    (found,) = re.findall(r"```python\n(from kafka .*?\ndef test_.*?)```", text, re.DOTALL)
    return found


def test_the_fixtures_give_running_brokers_in_processes(run, pytester):
    pytester.makepyfile(STORY)
    run().assert_outcomes(passed=5)


def test_the_fixtures_give_brokers_in_threads_and_the_tests_in_the_documents_pass(run, pytester):
    pytester.makepyfile(
        test_story=STORY, test_readme=example("README.md"), test_python_page=example("docs/python.md")
    )
    run("--odradek-in-thread").assert_outcomes(passed=5 + 1 + 3)


def test_the_fixtures_are_documented(run):
    run("--fixtures").stdout.fnmatch_lines(["*One running broker for the whole test session.*"])
