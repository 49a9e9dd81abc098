"""The fixtures of the wheel, run by a pytest of their own, as a user's project runs them."""

import os
import pathlib
import re
import socket

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
        test_story=STORY,
        test_readme=example("README.md"),
        test_python_page=example("docs/python.md"),
        test_testing_page=example("docs/testing-requests.md"),
    )
    run("--odradek-in-thread").assert_outcomes(passed=5 + 1 + 3 + 2)


def test_the_fixtures_are_documented(run):
    run("--fixtures").stdout.fnmatch_lines(["*One running broker for the whole test session.*"])


NAMES = """
    import re

    import pytest

    from kafka import KafkaConsumer, KafkaProducer

    seen = set()

    @pytest.mark.parametrize("value", ["a b", "ä/ö", "x" * 400, "a-b"])
    def test_names(odradek_topic, odradek_group, value):
        assert {odradek_topic, odradek_group}.isdisjoint(seen)
        seen.update({odradek_topic, odradek_group})
        for name in (odradek_topic, odradek_group):
            assert re.fullmatch(r"[a-zA-Z0-9_-]{1,249}", name)
            assert name.startswith("test_names-")

    def test_a_topic_is_a_name_alone(odradek_broker, odradek_topic, odradek_group):
        servers = odradek_broker.bootstrap_servers
        with KafkaProducer(bootstrap_servers=servers) as producer:
            assert odradek_topic not in [one["topic"] for one in odradek_broker.call_kit("state.topics", {})]
            producer.send(odradek_topic, b"x").get(30)
        consumer = KafkaConsumer(
            odradek_topic, bootstrap_servers=servers, group_id=odradek_group, auto_offset_reset="earliest"
        )
        assert next(consumer).value == b"x"
        consumer.commit()
        odradek_broker.wait_for.lag(odradek_group)
        consumer.close()
"""


def test_each_test_has_names_of_its_own(run, pytester):
    pytester.makepyfile(NAMES)
    run("--odradek-in-thread").assert_outcomes(passed=5)


SHARED = """
    import os

    import pytest

    @pytest.mark.parametrize("number", range(6))
    def test_shared(odradek_broker, odradek_topic, number):
        from kafka import KafkaProducer

        with KafkaProducer(bootstrap_servers=odradek_broker.bootstrap_servers) as producer:
            producer.send(odradek_topic, b"x").get(30)
        assert odradek_broker.wait_for.records(odradek_topic, 1) == 1
        assert odradek_broker.is_running
        with open("{path}", "a") as file:
            print(os.environ["PYTEST_XDIST_WORKER"], odradek_broker.bootstrap_servers, file=file)

    def test_nobody_stops_it(odradek_broker):
        for stop in (odradek_broker.stop, odradek_broker.restart, odradek_broker.kill):
            with pytest.raises(RuntimeError):
                stop()
        assert odradek_broker.is_running
"""


def test_all_workers_share_one_broker(run, pytester, tmp_path):
    path = tmp_path / "brokers"
    pytester.makepyfile(SHARED.replace("{path}", str(path)))
    run("-p", "xdist.plugin", "-n", "2", "--odradek-shared").assert_outcomes(passed=7)
    used = [line.split() for line in path.read_text().splitlines()]
    assert {worker for worker, _ in used} == {"gw0", "gw1"}
    assert len({address for _, address in used}) == 1
    host, _, port = used[0][1].rpartition(":")
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection((host, int(port)), timeout=5)


def test_without_the_option_each_worker_has_its_own_broker(run, pytester, tmp_path):
    path = tmp_path / "brokers"
    story = SHARED.replace("{path}", str(path)).split("def test_nobody")[0]
    pytester.makepyfile(story)
    run("-p", "xdist.plugin", "-n", "2").assert_outcomes(passed=6)
    used = {tuple(line.split()) for line in path.read_text().splitlines()}
    assert len({address for _, address in used}) == len({worker for worker, _ in used}) == 2


def test_a_run_without_workers_takes_the_option_too(run, pytester):
    pytester.makepyfile(STORY)
    run("--odradek-shared").assert_outcomes(passed=5)


def test_a_broker_in_a_thread_is_not_shared(run, pytester):
    pytester.makepyfile(STORY)
    result = run("--odradek-shared", "--odradek-in-thread")
    result.stderr.fnmatch_lines(["*--odradek-shared is for a broker in a process of its own*"])


FAILS = """
    from kafka import KafkaConsumer, KafkaProducer

    def send(broker, topic):
        with KafkaProducer(bootstrap_servers=broker.bootstrap_servers, client_id="shop") as producer:
            producer.send(topic, b"x").get(30)

    def test_of_the_session(odradek_broker):
        odradek_broker.requests.record()
        send(odradek_broker, "orders")
        consumer = KafkaConsumer(
            "orders",
            bootstrap_servers=odradek_broker.bootstrap_servers,
            group_id="billing",
            auto_offset_reset="earliest",
            enable_auto_commit=False,
        )
        next(consumer)
        assert not "this fails"

    def test_of_its_own(odradek_broker_factory):
        send(odradek_broker_factory(), "payments")
        assert not "this fails, too"

    def test_that_passes(odradek_broker):
        send(odradek_broker, "fine")

    def test_without_a_broker():
        assert not "nothing to tell"

    def test_whose_broker_is_gone(odradek_fresh_broker):
        odradek_fresh_broker.stop()
        assert not "stopped"
"""


@pytest.mark.parametrize("form", [[], ["--odradek-in-thread"]], ids=["process", "thread"])
def test_the_report_of_a_failed_test_says_what_its_broker_has(run, pytester, form):
    pytester.makepyfile(FAILS)
    result = run(*form)
    result.assert_outcomes(passed=1, failed=4)
    text = result.stdout.str()
    assert text.count("- odradek -") == 3
    of_session, of_its_own, of_stopped = text.split("- odradek -")[1:]
    of_session = of_session.split("test_of_its_own")[0]
    assert "  orders: 1 partition, 1 offset" in of_session
    assert "  billing: Stable, 1 member, lag 1" in of_session
    assert "last 20 requests:" in of_session
    assert re.search(r"  #\d+ \w+ \d+( [\w, ]+)? of '.*': (answered|closed) after [\d.]+ ms", of_session)
    assert "  payments: 1 partition, 1 offset" in of_its_own
    assert "last 20 requests" not in of_its_own
    assert "stopped>" in of_stopped


def test_the_report_has_the_log_since_the_test_began(run, pytester):
    pytester.makepyfile("""
        import socket

        def malformed(broker):
            with socket.create_connection(("127.0.0.1", broker.port)) as client:
                client.sendall(bytes([255]) * 24)
                assert client.recv(1) == b""

        def test_first(odradek_broker):
            malformed(odradek_broker)

        def test_second(odradek_broker):
            malformed(odradek_broker)
            assert not "this fails"
    """)
    result = run()
    result.assert_outcomes(passed=1, failed=1)
    (shown,) = result.stdout.str().split("- odradek -")[1:]
    assert "log since the test began:" in shown
    assert shown.count("closing 127.0.0.1:") == 1
