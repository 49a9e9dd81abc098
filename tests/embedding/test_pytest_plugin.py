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
    (found,) = re.findall(
        r"```python\n((?:import pytest\n)?from kafka .*?\ndef test_.*?)```", text, re.DOTALL
    )
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
        test_pytest_page=example("docs/testing-pytest.md"),
    )
    run("--odradek-in-thread").assert_outcomes(passed=5 + 1 + 3 + 2 + 3)


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
            odradek_topic,
            bootstrap_servers=servers,
            group_id=odradek_group,
            auto_offset_reset="earliest",
            metadata_max_age_ms=1000,
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
        odradek_broker.faults.add("Produce", error="NOT_LEADER_OR_FOLLOWER", times=1)
        odradek_broker.faults.add("Heartbeat", error="NOT_COORDINATOR", topic=None, group="nobody")
        send(odradek_broker, "orders")
        consumer = KafkaConsumer(
            "orders",
            bootstrap_servers=odradek_broker.bootstrap_servers,
            group_id="billing",
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            metadata_max_age_ms=1000,
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
    assert "api='Produce', error='NOT_LEADER_OR_FOLLOWER', times=1: has fired once" in of_session
    assert "api='Heartbeat', group='nobody', error='NOT_COORDINATOR': has never fired" in of_session
    assert "last 20 requests:" in of_session
    assert re.search(r"  #\d+ \w+ \d+( [\w, ]+)? of '.*': (answered|closed) after [\d.]+ ms", of_session)
    assert "  payments: 1 partition, 1 offset" in of_its_own
    requests = of_its_own.split("last 20 requests:")[1].split("log since")[0]
    assert re.search(r"  #\d+ Produce \d+ payments of 'shop': answered after [\d.]+ ms", requests)
    assert len(re.findall(r"^  #", requests, re.MULTILINE)) <= 20
    assert "faults" not in of_its_own
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


def test_the_report_has_as_many_requests_as_are_wanted_and_those_of_the_test_alone(run, pytester):
    pytester.makepyfile("""
        import socket

        import pytest
        from kafka import KafkaProducer

        from odradek.server.test_kit.kit import TestKitError

        def send(broker, topic):
            with KafkaProducer(bootstrap_servers=broker.bootstrap_servers) as producer:
                producer.send(topic, b"x").get(30)

        def test_first(odradek_broker):
            send(odradek_broker, "first")

        def test_nobody_finds_requests_that_were_not_recorded(odradek_broker):
            with pytest.raises(TestKitError):
                odradek_broker.requests()

        def test_without_a_request(odradek_broker):
            assert not "this fails"

        def test_second(odradek_broker):
            for number in range(5):
                send(odradek_broker, "second")
            assert not "this fails"
    """)
    result = run("--odradek-requests=100", "--odradek-in-thread")
    result.assert_outcomes(passed=2, failed=2)
    quiet, shown = result.stdout.str().split("- odradek -")[1:]
    assert "last 100 requests: none" in quiet
    assert shown.count(" Produce ") == 5
    assert " first of " not in shown
    assert "last" not in quiet_report(run("--odradek-requests=0", "--odradek-in-thread", "-k", "without"))
    run("--odradek-requests=-1").stderr.fnmatch_lines(["*--odradek-requests is a number from 0 on*"])


def quiet_report(result):
    (shown,) = result.stdout.str().split("- odradek -")[1:]
    return shown.split("= warnings summary =")[0].split("- Captured")[0]


RESTORED = """
    import datetime
    import time

    import pytest
    from kafka import KafkaAdminClient, KafkaProducer

    SNAPSHOTS = []

    def send(broker, topic):
        with KafkaProducer(bootstrap_servers=broker.bootstrap_servers) as producer:
            return producer.send(topic, b"x").get(30).offset

    @pytest.fixture(scope="module")
    def filled(odradek_broker):
        send(odradek_broker, "filled")
        return odradek_broker

    @pytest.fixture
    def more(filled):
        yield send(filled, "filled")
        # Clients of fixtures end before the restore.
        send(filled, "filled")

    def note(broker):
        directory = broker.data_dir
        found = directory.parent.glob(f".{directory.name}.snapshot-*")
        SNAPSHOTS.append({path.name for path in found})

    @pytest.mark.odradek_restore
    class TestMarked:
        @pytest.mark.parametrize("number", range(3))
        def test_each_begins_with_the_data_of_the_wider_fixtures(self, more, filled, number):
            assert more == 1
            assert send(filled, "filled") == 2
            assert send(filled, "of-a-test") == 0
            note(filled)

        def test_topics_and_settings_are_as_before(self, filled):
            assert [one["topic"] for one in filled.call_kit("state.topics", {})] == ["filled"]
            KafkaAdminClient(bootstrap_servers=filled.bootstrap_servers).delete_topics(["filled"])
            note(filled)

        def test_who_only_reads_causes_no_restore(self, filled):
            filled.requests.record()
            note(filled)

        def test_it_has_caused_none(self, filled):
            assert filled.requests.is_recording
            filled.requests.stop()

        def test_it_moves_the_clock(self, filled):
            filled.clock.freeze()
            filled.clock.advance(days=400)

        def test_the_clock_is_that_of_the_system(self, filled):
            assert abs(filled.clock.now_ms - time.time() * 1000) < 3_600_000
            note(filled)

        def test_one_snapshot_was_enough(self):
            assert len(set.union(*SNAPSHOTS)) == 1

        def test_also_a_stop_is_undone(self, filled):
            filled.stop()

    def test_without_a_marker(filled):
        assert filled.is_running
        assert send(filled, "filled") == 1
        note(filled)

    @pytest.mark.odradek_restore
    def test_what_others_have_done_since_stays(filled):
        assert send(filled, "filled") == 2
        note(filled)
        assert len(set.union(*SNAPSHOTS)) == 2

    def test_that_it_does(filled):
        assert send(filled, "filled") == 2

    @pytest.mark.odradek_restore
    def test_with_a_broker_of_its_own(odradek_fresh_broker):
        assert send(odradek_fresh_broker, "filled") == 0

    @pytest.mark.odradek_restore(1)
    def test_wrong(filled):
        pass
"""


@pytest.mark.parametrize("form", [[], ["--odradek-in-thread"]], ids=["process", "thread"])
def test_marked_tests_return_the_broker_of_the_session_to_its_data(run, pytester, form):
    pytester.makepyfile(RESTORED)
    result = run("--strict-markers", *form)
    result.assert_outcomes(passed=14, errors=1)
    result.stdout.fnmatch_lines(["odradek_restore takes no arguments"])


def test_a_broker_of_all_workers_is_not_restored_and_has_no_fault_of_a_marker(run, pytester):
    pytester.makepyfile("""
        import pytest

        @pytest.mark.odradek_restore
        def test_restored(odradek_broker):
            pass

        @pytest.mark.odradek_faults("Produce", error="NOT_LEADER_OR_FOLLOWER")
        def test_with_a_fault(odradek_broker):
            pass

        @pytest.mark.odradek_restore
        def test_with_a_broker_of_its_own(odradek_fresh_broker):
            pass

        def test_its_faults_end_with_it(odradek_broker):
            odradek_broker.faults.add("Heartbeat", error="NOT_COORDINATOR")

        def test_they_have(odradek_broker):
            assert odradek_broker.faults.all() == []
    """)
    result = run("-p", "xdist.plugin", "-n", "1", "--odradek-shared")
    result.assert_outcomes(passed=3, errors=2)
    result.stdout.fnmatch_lines_random(
        [
            "odradek_restore: with --odradek-shared tests of other workers use this broker, too, and a *",
            "odradek_faults: with --odradek-shared tests of other workers use this broker, too, and would *",
        ]
    )


FAULTY = """
    import time

    import pytest
    from kafka import KafkaProducer

    MOVED = pytest.mark.odradek_faults(api="Produce", error="NOT_LEADER_OR_FOLLOWER", times=2)
    LATE = pytest.mark.odradek_faults("Metadata", delay_ms=1)
    NEVER = pytest.mark.odradek_faults("Heartbeat", error="NOT_COORDINATOR")

    def send(broker, topic="orders"):
        with KafkaProducer(bootstrap_servers=broker.bootstrap_servers) as producer:
            return producer.send(topic, b"x").get(30).offset

    @pytest.fixture
    def filled(odradek_broker):
        send(odradek_broker)
        assert odradek_broker.faults.all() == [], "fixtures have no faults of markers"
        yield odradek_broker
        assert all(fault["fired"] for fault in odradek_broker.faults.all())
        send(odradek_broker)

    @MOVED
    @LATE
    def test_several(filled):
        assert [one["api"] for one in filled.faults.all()] == ["Metadata", "Produce"]
        send(filled)
        assert [one["fired"] for one in filled.faults.all() if one["api"] == "Produce"] == [2]

    def test_they_are_gone(odradek_broker):
        assert odradek_broker.faults.all() == []
        odradek_broker.faults.add("Produce", error="NOT_LEADER_OR_FOLLOWER")

    def test_so_are_those_that_a_test_adds(odradek_broker):
        assert odradek_broker.faults.all() == []
        send(odradek_broker)

    @MOVED
    class TestMarked:
        def test_of_a_class(self, odradek_fresh_broker):
            send(odradek_fresh_broker)

        def test_made_while_it_runs(self, odradek_broker_factory):
            odradek_broker_factory()
            send(odradek_broker_factory())

        def test_that_fails_by_itself(self, odradek_broker):
            assert not "its own failure"

        def test_that_is_skipped(self, odradek_broker):
            pytest.skip("for no reason")

    @NEVER
    def test_never(odradek_broker):
        send(odradek_broker)

    @pytest.mark.odradek_faults("Heartbeat", error="NOT_COORDINATOR", fires=None)
    def test_it_need_not(odradek_broker):
        send(odradek_broker)

    @pytest.mark.odradek_faults("Produce", error="NOT_LEADER_OR_FOLLOWER", times=2, fires=3)
    def test_too_seldom(odradek_broker):
        send(odradek_broker)

    @MOVED
    def test_the_broker_starts_anew(odradek_fresh_broker):
        odradek_fresh_broker.restart()
        send(odradek_fresh_broker)

    @MOVED
    def test_without_a_broker():
        pass

    @pytest.mark.odradek_faults("Produce", eror="NOT_LEADER_OR_FOLLOWER")
    def test_wrong_name(odradek_broker):
        pass

    @pytest.mark.odradek_faults("Produce", error="NOT_LEADER_OR_FOLLOWER", fires=0)
    def test_wrong_number(odradek_broker):
        pass

    @pytest.mark.odradek_faults("Produce", "orders")
    def test_wrong_places(odradek_broker):
        pass

    @pytest.mark.odradek_faults("Produce", error="NO_SUCH_ERROR")
    def test_wrong_value(odradek_broker):
        pass

    def test_it_moves_the_clock(odradek_broker):
        send(odradek_broker, "kept")
        odradek_broker.clock.advance(hours=5)

    def test_it_is_that_of_the_system_again_and_the_data_are_there(odradek_broker):
        assert abs(odradek_broker.clock.now_ms - time.time() * 1000) < 3_600_000
        assert send(odradek_broker, "kept") == 1
"""


@pytest.mark.parametrize("form", [[], ["--odradek-in-thread"]], ids=["process", "thread"])
def test_marked_tests_have_faults_that_have_to_fire(run, pytester, form):
    pytester.makepyfile(FAULTY)
    result = run("--strict-markers", *form)
    result.assert_outcomes(passed=9, skipped=1, failed=5, errors=3)
    text = result.stdout.str()
    assert "odradek_faults(api='Heartbeat', error='NOT_COORDINATOR'): it has never fired" in text
    assert "times=2): it has fired 2 times, and 3 times is the least" in text
    assert "times=2): this test has no broker and no cluster of the fixtures that it could be on" in text
    assert "odradek_faults has no argument 'eror'; did you mean error?" in text
    assert "odradek_faults: fires is a number from 1 on, or None, not 0" in text
    assert "odradek_faults takes the API as its first argument, and all others by their names" in text
    assert "error='NO_SUCH_ERROR'): there is no error 'NO_SUCH_ERROR'" in text
    assert "pytest_markers.py" not in text, "no traceback through the plugin"


def test_the_markers_are_registered(run):
    result = run("--markers")
    result.stdout.fnmatch_lines(
        ["@pytest.mark.odradek_restore: *", "@pytest.mark.odradek_faults(api=None, *"]
    )
