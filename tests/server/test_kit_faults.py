"""Faults on command: each API that is served, with each action; what can never fire is refused."""

from __future__ import annotations

import json
import pathlib
import socket
import urllib.error
import urllib.request

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

import odradek
from odradek.apis.table import MODULES, declared
from odradek.config.broker_config import load
from odradek.server.test_kit.kit import TestKitError
from odradek.server.test_kit.named import (
    GROUP,
    PARTITION,
    TOPIC,
    TOPIC_ID,
    TRANSACTIONAL_ID,
    error_places,
    kinds_named,
    named_in,
)
from odradek.server.test_kit.page import page
from odradek.server.test_kit.partial_errors import READS
from odradek.wire.errors import ErrorCode
from odradek.wire.messages import api_name
from odradek.wire.records import Record, build_batch
from odradek.wire.response_errors import errors_of
from odradek.wire.schema import fields_of
from odradek.wire.throttle import has_throttle_time
from tests.raw_client import RawClient
from tests.server.kit_samples import sample

CODE = ErrorCode.BROKER_NOT_AVAILABLE
"""One that no API of ours answers by itself."""


def each_api():
    """Each API that is served, with its first and its last version."""
    for key in sorted(MODULES):
        api = declared(key)
        for version in sorted({api.request.versions[0], api.request.versions[-1]}):
            yield api, version


def failures_of(check):
    """What `check(api, version)` complains about, for each API: none of them may hide another."""
    found = []
    for api, version in each_api():
        try:
            check(api, version)
        except Exception as error:
            found.append(f"{api_name(api.request.api_key)} {version}: {type(error).__name__} {error}")
    return found


def broker_with_orders():
    broker = odradek.Broker().start()
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    for created in admin.create_topics([NewTopic("orders", 2, 1)]).values():
        created.result(20)
    return broker


@pytest.fixture(scope="module")
def shared():
    with broker_with_orders() as running:
        yield running


@pytest.fixture
def broker(shared):
    yield shared
    shared.faults.clear()


@pytest.fixture
def doomed():
    """For requests of every API, some of which delete what the others need."""
    with broker_with_orders() as running:
        yield running


def names_in(broker):
    with RawClient(broker.port) as client:
        request = declared(3).request(topics=None)
        (topic,) = [one for one in client.ask(request, 12).topics if one.name == "orders"]
    return {
        TOPIC: "orders",
        TOPIC_ID: topic.topic_id,
        PARTITION: 0,
        GROUP: "shop",
        TRANSACTIONAL_ID: "payments",
    }


@pytest.fixture(scope="module")
def names(shared):
    return names_in(shared)


def one_record():
    return build_batch([Record(0, 1, None, b"x")])


def request_of(api, version, names):
    fields = {}
    if api.request.api_key == 0:
        fields = {"acks": 1, "transactional_id": None, "timeout_ms": 1000}
    made = sample(api.request, version, names, **fields)
    if api.request.api_key == 0:
        made.topic_data[0].partition_data[0].records = one_record()
    return made


def ask(broker, api, version, names):
    with RawClient(broker.port) as client:
        return client.ask(request_of(api, version, names), version)


def test_each_api_says_an_error_where_it_has_a_place_for_it(doomed):
    names = names_in(doomed)

    def check(api, version):
        if not error_places(api.response, version):
            return
        with doomed.faults.add(api_name(api.request.api_key), error=CODE.name, times=1) as fault:
            found = ask(doomed, api, version, names)
            assert CODE in errors_of(api.response)(found)
            assert fault.fired == 1

    assert "\n".join(failures_of(check)) == ""


def chosen(api):
    """Each way to choose requests of an API by what they name."""
    kinds = {TOPIC if kind == TOPIC_ID else kind for kind in kinds_named(api.request)}
    for kind in (TOPIC, PARTITION, GROUP, TRANSACTIONAL_ID):
        if kind in kinds:
            yield (kind,)
    if {TOPIC, PARTITION} <= kinds:
        yield TOPIC, PARTITION


def test_each_api_is_matched_by_what_it_names_and_by_nothing_else(doomed):
    names = names_in(doomed)

    def check(api, version):
        if not error_places(api.response, version):
            return
        name = api_name(api.request.api_key)
        named = [one.values for one in named_in(request_of(api, version, names))]
        for kinds in chosen(api):
            wanted = {kind: names[kind] for kind in kinds}
            if not any(wanted.items() <= with_name(values, names).items() for values in named):
                continue  # not in this version
            other = {**wanted, kinds[0]: 7 if kinds[0] == PARTITION else "other"}
            with (
                doomed.faults.add(name, error=CODE.name, times=1, **other) as unlike,
                doomed.faults.add(name, error=CODE.name, times=1, **wanted) as like,
            ):
                found = ask(doomed, api, version, names)
                assert CODE in errors_of(api.response)(found), wanted
                assert (unlike.fired, like.fired) == (0, 1), wanted

    assert "\n".join(failures_of(check)) == ""


def with_name(values, names):
    return {**values, TOPIC: names[TOPIC]} if TOPIC_ID in values else values


def test_each_api_loses_its_response_or_a_part_of_it(doomed):
    names = names_in(doomed)

    def check(api, version):
        name = api_name(api.request.api_key)
        for action, kept in (({"lose_response": True}, 0), ({"cut_response_after_bytes": 6}, 6)):
            with doomed.faults.add(name, times=1, **action) as fault, RawClient(doomed.port) as client:
                client.send_request(request_of(api, version, names), version)
                assert len(client.read_to_end()) == kept
                assert fault.fired == 1

    assert "\n".join(failures_of(check)) == ""


def test_each_api_may_never_respond_and_the_connection_stays(doomed):
    names = names_in(doomed)

    def check(api, version):
        with (
            doomed.faults.add(api_name(api.request.api_key), never_respond=True, times=1) as fault,
            RawClient(doomed.port) as client,
        ):
            client.send_request(request_of(api, version, names), version)
            assert fault.wait() == 1
            client.socket.setblocking(False)
            with pytest.raises(BlockingIOError):
                client.socket.recv(1)

    assert "\n".join(failures_of(check)) == ""


def test_each_api_says_for_how_long_its_client_is_throttled(doomed):
    names = names_in(doomed)

    def check(api, version):
        name = api_name(api.request.api_key)
        if not has_throttle_time(api.response):
            with pytest.raises(TestKitError, match=f"the response of {name} has no throttle time"):
                doomed.faults.add(name, throttle_ms=20)
            return
        (said,) = [field for field in fields_of(api.response) if field.name == "throttle_time_ms"]
        with doomed.faults.add(name, throttle_ms=20, times=1) as fault:
            found = ask(doomed, api, version, names)
            assert fault.fired == 1
            assert found.throttle_time_ms == (20 if said.exists_in(version) else 0)

    assert "\n".join(failures_of(check)) == ""


# The rest of a request


def produce(broker, names, *partitions, acks=1):
    api = declared(0)
    request = request_of(api, 13, names)
    first = request.topic_data[0].partition_data[0]
    request.topic_data[0].partition_data = [
        type(first)(index=index, records=one_record()) for index in partitions
    ]
    request.acks = acks
    with RawClient(broker.port) as client:
        (topic,) = client.ask(request, 13).responses
    return [(one.index, ErrorCode(one.error_code).name, one.base_offset) for one in topic.partition_responses]


def test_an_error_for_one_partition_leaves_the_others_alone(broker, names):
    ends = {index: offset for index, _, offset in produce(broker, names, 0, 1)}
    with broker.faults.add("Produce", topic="orders", partition=0, error="NOT_LEADER_OR_FOLLOWER", times=1):
        assert produce(broker, names, 0, 1) == [
            (0, "NOT_LEADER_OR_FOLLOWER", -1),
            (1, "NONE", ends[1] + 1),
        ]
    assert produce(broker, names, 1, 0) == [(1, "NONE", ends[1] + 2), (0, "NONE", ends[0] + 1)]


def test_the_order_of_the_request_stays_where_a_part_is_refused(broker, names):
    with broker.faults.add("Produce", partition=1, error="NOT_ENOUGH_REPLICAS", times=1):
        assert [index for index, _, _ in produce(broker, names, 1, 0)] == [1, 0]


def test_faults_fire_at_each_third_request_and_by_chance_with_a_seed(broker, names):
    with broker.faults.add("Produce", error="KAFKA_STORAGE_ERROR", every=3) as third:
        said = [produce(broker, names, 0)[0][1] for _ in range(6)]
        assert [code == "NONE" for code in said] == [True, True, False, True, True, False]
        assert (third.seen, third.fired) == (6, 2)
    runs = []
    for _ in range(2):
        with broker.faults.add("Produce", error="KAFKA_STORAGE_ERROR", probability=0.5, seed=7):
            runs.append([produce(broker, names, 0)[0][1] for _ in range(12)])
    assert runs[0] == runs[1]
    assert len(set(runs[0])) == 2


def test_a_request_for_all_topics_is_matched_like_any_other(broker):
    metadata = declared(3)
    with (
        broker.faults.add("Metadata", client_id="another", error=CODE.name) as unlike,
        broker.faults.add("Metadata", topic="missing", error=CODE.name) as missing,
        broker.faults.add("Metadata", topic="orders", error=CODE.name, times=1) as like,
        RawClient(broker.port) as client,
    ):
        topics = client.ask(metadata.request(topics=None), 12).topics
        assert {one.name: one.error_code for one in topics}["orders"] == CODE
        assert (unlike.fired, missing.fired, like.fired) == (0, 0, 1)


def test_a_fault_is_for_versions_for_a_client_and_for_a_principal(broker):
    metadata = declared(3)

    def fired(asked, sender="shop", **given):
        """Whether a fault that is given so fires at a request in a version, of a client."""
        with (
            broker.faults.add("Metadata", throttle_ms=1, **given) as fault,
            RawClient(broker.port) as client,
        ):
            client.ask(metadata.request(topics=[]), asked, client_id=sender)
            return fault.fired == 1

    assert [fired(asked, version=9) for asked in (8, 9, 10)] == [False, True, False]
    assert [fired(asked, version=[8, 10]) for asked in (8, 9, 10)] == [True, False, True]
    assert [fired(9, name, client_id="shop") for name in ("shop", "shopping")] == [True, False]
    assert fired(9, principal="User:ANONYMOUS")
    assert not fired(9, principal="User:ann")
    assert fired(9, version=9, client_id="shop", principal="User:ANONYMOUS")
    assert not fired(9, version=9, client_id="till", principal="User:ANONYMOUS")


def test_only_the_first_fault_that_fires_does(broker, names):
    with (
        broker.faults.add("Produce", error="KAFKA_STORAGE_ERROR", times=1) as first,
        broker.faults.add("Produce", error="NOT_ENOUGH_REPLICAS", times=1) as second,
    ):
        assert produce(broker, names, 0)[0][1] == "KAFKA_STORAGE_ERROR"
        assert (first.fired, second.fired) == (1, 0)
        assert produce(broker, names, 0)[0][1] == "NOT_ENOUGH_REPLICAS"
        assert produce(broker, names, 0)[0][1] == "NONE"


def test_requests_are_chosen_by_a_function_of_a_test_in_the_same_process(broker, names):
    with broker.faults.add(
        "Produce",
        error="KAFKA_STORAGE_ERROR",
        predicate=lambda request, context: len(request.topic_data[0].partition_data) == 2,
    ):
        assert produce(broker, names, 0)[0][1] == "NONE"
        assert produce(broker, names, 0, 1)[0][1] == "KAFKA_STORAGE_ERROR"


def test_a_lost_response_has_had_its_effect_and_an_error_has_none(broker, names):
    ((_, _, end),) = produce(broker, names, 0)
    with (
        broker.faults.add("Produce", lose_response=True, times=1),
        pytest.raises((EOFError, ConnectionError)),
    ):
        produce(broker, names, 0)
    with broker.faults.add("Produce", error="KAFKA_STORAGE_ERROR", times=1):
        produce(broker, names, 0)
    assert produce(broker, names, 0) == [(0, "NONE", end + 2)]


def test_a_delay_keeps_the_records_of_the_request_and_the_order_of_the_connection(broker, names):
    api = declared(0)
    with (
        broker.faults.add("Produce", delay_ms=50, times=1) as fault,
        RawClient(broker.port) as client,
    ):
        for number in range(3):
            client.send_request(request_of(api, 13, names), 13, correlation_id=number)
        offsets = []
        for number in range(3):
            answered, found = client.receive(api.request, 13)
            assert answered == number
            offsets.append(found.responses[0].partition_responses[0].base_offset)
        assert offsets == sorted(offsets)
        assert fault.fired == 1


def test_a_request_without_an_answer_is_cut_off_as_well(broker, names):
    with (
        broker.faults.add("Produce", lose_response=True, times=1) as fault,
        RawClient(broker.port) as client,
    ):
        request = request_of(declared(0), 13, names)
        request.acks = 0
        client.send_request(request, 13)
        assert client.socket.recv(1) == b""
        assert fault.fired == 1


# What is refused


def test_the_page_of_all_apis_is_as_it_is_made():
    root = pathlib.Path(__file__).parents[2]
    assert (root / "docs/testing-apis.md").read_text() == page(), (
        "run: python -m odradek.server.test_kit.page > docs/testing-apis.md"
    )


def test_each_api_that_only_reads_is_one_that_is_served():
    assert {api_name(key) for key in MODULES} >= READS


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({"api": "Produces", "error": "NOT_COORDINATOR"}, "there is no API 'Produces'"),
        ({"api": "Heartbeat", "topic": "orders", "error": "NOT_COORDINATOR"}, "Heartbeat names no topic"),
        ({"api": "Produce", "error": "NOT_LEADER"}, "there is no error 'NOT_LEADER'"),
        ({"api": "Produce", "error": "NONE"}, "NONE is not an error"),
        ({"api": "Produce"}, "a fault does something"),
        ({"api": "Produce", "error": "NOT_COORDINATOR", "lose_response": True}, "a fault does one thing"),
        ({"api": "Produce", "version": 99, "delay_ms": 1}, "Produce is served in the versions 0 to 13"),
        ({"api": "Produce", "error": 6}, "error is a text, not 6"),
        ({"api": "Produce", "delay_ms": 1, "version": 1.5}, "version is a number or a list of numbers"),
        ({"api": "Produce", "delay_ms": -1}, "delay_ms is a number from 0 on"),
        ({"api": "Produce", "delay_ms": 1, "times": 0}, "times is a number from 1 on"),
        ({"api": "Produce", "delay_ms": 1, "probability": 2}, "probability is more than 0"),
        ({"api": "Heartbeat", "leader_moved": True}, "leader_moved is for Produce, Fetch"),
        ({"api": "Produce", "coordinator_moved": True}, "coordinator_moved is for JoinGroup, SyncGroup"),
        ({"error": "NONE", "coordinator_moved": True}, "coordinator_moved is an error by itself"),
    ],
)
def test_a_fault_that_can_never_fire_is_refused_in_a_sentence(broker, arguments, sentence):
    with pytest.raises(TestKitError) as refused:
        broker.faults.add(**arguments)
    assert str(refused.value).startswith(sentence)
    assert broker.faults.all() == []


def test_a_wait_says_how_often_the_fault_fired_instead(broker):
    fault = broker.faults.add("Heartbeat", error="NOT_COORDINATOR")
    with pytest.raises(TestKitError, match=r"waited 0.01 s for a fault to fire once: it fired 0 times"):
        fault.wait(timeout=0.01)


# From other processes


def test_other_programs_add_faults_over_http():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with odradek.Broker(options={"odradek.test.api.listen": str(port)}) as tested:

        def call(method, path, body=None, content_type="application/json"):
            request = urllib.request.Request(
                f"http://127.0.0.1:{port}{path}",
                None if body is None else json.dumps(body).encode(),
                {"Content-Type": content_type},
                method=method,
            )
            try:
                with urllib.request.urlopen(request, timeout=10) as response:
                    return response.status, json.loads(response.read())
            except urllib.error.HTTPError as error:
                return error.code, json.loads(error.read())

        fault = {"api": "Produce", "topic": "orders", "error": "NOT_LEADER_OR_FOLLOWER", "times": 2}
        assert call("POST", "/admin/faults", fault) == (200, 1)
        assert call("GET", "/admin/faults") == (200, [{"id": 1, **fault, "seen": 0, "fired": 0}])
        assert call("POST", "/admin/faults", fault, "text/plain")[0] == 400
        assert call("POST", "/admin/faults/add", {"api": "Nothing"})[0] == 400
        assert call("POST", "/admin/faults/explode", {})[1]["error"].startswith("faults has no 'explode'")
        assert call("POST", "/elsewhere", {})[0] == 404
        assert call("DELETE", "/admin/faults/1") == (200, 1)
        assert call("GET", "/admin/faults") == (200, [])
        assert tested.faults.all() == []


def test_the_test_api_is_open_where_it_is_said_and_on_loopback_unless_said():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    # Whoever reads metrics breaks nothing.
    with odradek.Broker(options={"odradek.metrics.listen": str(port)}):
        request = urllib.request.Request(f"http://127.0.0.1:{port}/admin/faults")
        with pytest.raises(urllib.error.HTTPError) as refused:
            urllib.request.urlopen(request, timeout=30)
        assert refused.value.code == 404
    for given, addresses in (
        ({}, ()),
        ({"test_api": "9655"}, (("127.0.0.1", 9655),)),
        ({"test_api": "0.0.0.0:9655"}, (("0.0.0.0", 9655),)),
    ):
        assert load(**given).test_api_addresses == addresses


def test_a_broker_of_its_own_process_has_faults_too(tmp_path):
    with odradek.Broker(process=True) as tested:
        fault = tested.faults.add("Metadata", error="BROKER_NOT_AVAILABLE", times=1)
        with RawClient(tested.port) as client:
            assert client.ask(declared(3).request(topics=[]), 13).error_code == ErrorCode.BROKER_NOT_AVAILABLE
        assert fault.wait() == 1
        tested.restart()
        assert tested.faults.all() == []
        with pytest.raises(TestKitError, match="a Python object is for a broker in this process"):
            tested.faults.add("Metadata", error="BROKER_NOT_AVAILABLE", predicate=lambda *_: True)


def test_requests_are_remembered_but_for_the_time_of_a_fault(broker, names):
    def remembered(client):
        before = broker.metrics()["Produce", 13].remembered
        for _ in range(3):
            client.ask(request_of(declared(0), 13, names), 13)
        return broker.metrics()["Produce", 13].remembered - before

    produce(broker, names, 0)
    with RawClient(broker.port) as client:
        assert remembered(client) > 0
        with broker.faults.add("Produce", topic="another", error="KAFKA_STORAGE_ERROR"):
            assert remembered(client) == 0
        assert remembered(client) > 0


def test_a_leader_and_a_coordinator_of_a_broker_alone_have_moved_in_its_responses(broker, names):
    apis = {api_name(api.request.api_key): api for api, _ in each_api()}
    with broker.faults.add(leader_moved=True, topic="orders", times=1):
        api = apis["Produce"]
        found = ask(broker, api, api.versions[-1], names)
        assert ErrorCode.NOT_LEADER_OR_FOLLOWER in errors_of(api.response)(found)
    for name, kind, key in (("OffsetCommit", "group", "shop"), ("EndTxn", "transactional_id", "payments")):
        api = apis[name]
        with broker.faults.add(coordinator_moved=True, **{kind: key}) as fault:
            found = ask(broker, api, api.versions[-1], names)
            assert ErrorCode.NOT_COORDINATOR in errors_of(api.response)(found)
            assert fault.fired == 1


def test_no_leader_moves_away_from_a_broker_alone(broker):
    with pytest.raises(TestKitError, match="a broker alone leads everything: a leader moves in a cluster"):
        broker.call_kit("faults.move_leader", {"topic": "orders", "partition": 0, "to": 2})
