"""The fixtures of the wheel, run by a pytest of their own, as a user's project runs them."""

import os
import pathlib
import re
import sys
from importlib.metadata import distributions

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

    def test_session_second(odradek_broker):
        assert seen == [odradek_broker.bootstrap_servers]
        assert produce(odradek_broker) == 1

    def test_fresh(odradek_fresh_broker):
        assert odradek_fresh_broker.bootstrap_servers not in seen
        assert produce(odradek_fresh_broker) == 0
        odradek_fresh_broker.restart()
        assert produce(odradek_fresh_broker) == 1

    def test_factory(odradek_broker_factory, pytestconfig):
        broker = odradek_broker_factory(num_partitions=2)
        produce(broker)
        assert len(list(broker.data_dir.glob("t-*"))) == 2
        assert (broker.pid is None) == pytestconfig.getoption("--odradek-in-thread")

    def test_groups_start_at_once(odradek_broker, odradek_fresh_broker, odradek_broker_factory):
        made = odradek_broker_factory(num_partitions=2, options={"log.retention.ms": 77_000_000})
        for broker in (odradek_broker, odradek_fresh_broker, made):
            assert rebalance_delay(broker) == "0"

    def test_who_wants_groups_to_wait_says_so(odradek_broker_factory):
        assert rebalance_delay(odradek_broker_factory(options={DELAY: 500})) == "500"
        assert rebalance_delay(odradek_broker_factory(group_initial_rebalance_delay_ms=700)) == "700"
"""


@pytest.fixture
def run(pytester, monkeypatch):
    parent = os.path.dirname(odradek.__path__[0])
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([parent, os.environ.get("PYTHONPATH", "")]))
    # An install brings the plugin by its entry point; a checkout has to be told, also where a build left its
    # metadata: the inner pytest runs elsewhere and does not find that.
    elsewhere = [path for path in sys.path if path not in ("", str(CHECKOUT))]
    installed = list(distributions(name="odradek", path=elsewhere))
    plugin = () if installed else ("-p", "odradek.server.pytest_plugin")
    return lambda *arguments: pytester.runpytest_subprocess(*plugin, *arguments)


@pytest.mark.parametrize("arguments", [(), ("--odradek-in-thread",)], ids=["processes", "threads"])
def test_the_fixtures_give_running_brokers(run, pytester, arguments):
    pytester.makepyfile(STORY)
    run(*arguments).assert_outcomes(passed=6)


@pytest.mark.parametrize(("page", "count"), [("README.md", 1), ("docs/python.md", 3)])
@pytest.mark.parametrize("arguments", [(), ("--odradek-in-thread",)], ids=["processes", "threads"])
def test_the_tests_in_the_documents_pass(run, pytester, arguments, page, count):
    text = (CHECKOUT / page).read_text()
    (example,) = re.findall(r"```python\n(from kafka .*?\ndef test_.*?)```", text, re.DOTALL)
    pytester.makepyfile(example)
    run(*arguments).assert_outcomes(passed=count)


def test_the_fixtures_are_documented(run):
    run("--fixtures").stdout.fnmatch_lines(["*One running broker for the whole test session.*"])
