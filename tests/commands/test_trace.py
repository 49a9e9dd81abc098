"""`odradek trace`: requests as a broker saw them, as lines of JSON."""

import json
import subprocess
import sys

import pytest

import odradek
from odradek.embedding.free_port import free_port
from odradek.wire.messages.describe_cluster import DescribeClusterRequest
from odradek.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from tests.raw_client import RawClient


@pytest.fixture
def api():
    return f"127.0.0.1:{free_port()}"


@pytest.fixture
def traced(api):
    with odradek.Broker(options={"odradek.test.api.listen": api}) as broker:
        yield broker


@pytest.fixture
def trace(run, api):
    return lambda *arguments: run("trace", "--test-api", api, *arguments)


def lines(text):
    return [json.loads(line) for line in text.splitlines()]


def ask(broker, *client_ids):
    with RawClient(broker.port) as client:
        for client_id in client_ids:
            client.ask(DescribeClusterRequest(), 0, client_id=client_id)


def test_recorded_requests_are_lines_of_json(traced, trace):
    assert trace("--record") == (0, "", "")
    ask(traced, "shop", "other")
    ended = trace()
    assert (ended.status, ended.err) == (0, "")
    assert [(one["api"], one["client_id"]) for one in lines(ended.out)] == [
        ("DescribeCluster", "shop"),
        ("DescribeCluster", "other"),
    ]
    assert lines(ended.out)[0]["response"]["error_code_name"] == "NONE"


def test_requests_are_chosen_by_api_topic_client_and_time(traced, trace):
    trace("--record")
    ask(traced, "shop", "other")
    with RawClient(traced.port) as client:
        client.ask(MetadataRequest(topics=[MetadataRequestTopic(name="orders")]), 4)
    assert len(lines(trace("--client-id", "shop").out)) == 1
    assert [one["api"] for one in lines(trace("--api", "Metadata").out)] == ["Metadata"]
    assert [one["topics"] for one in lines(trace("--topic", "orders").out)] == [["orders"]]
    assert len(lines(trace("--since", "-1h").out)) == 3
    assert trace("--since", "2099-01-01").out == ""


def test_a_broker_that_keeps_nothing_is_told_and_how_to_begin(traced, trace):
    ended = trace()
    assert (ended.status, ended.out) == (1, "")
    assert ended.err == (
        "odradek: the broker keeps no requests: begin with odradek trace -f, or with --record\n"
    )
    trace("--record")
    assert trace().status == 0
    trace("--stop")
    assert trace().status == 1


def test_an_api_that_there_is_not_is_refused(traced, trace):
    trace("--record")
    ended = trace("--api", "Prodce")
    assert ended.err == "odradek: there is no API 'Prodce' here; did you mean Produce?\n"


def test_a_port_without_a_broker_is_told(trace, api):
    ended = trace()
    assert ended.status == 1
    assert ended.err == (
        f"odradek: there is no test API at {api}: Connection refused; a broker opens one with odradek serve "
        "--test-api\n"
    )


def test_the_port_of_clients_is_no_test_api(traced, run):
    ended = run("trace", "--test-api", str(traced.port))
    assert ended.status == 1
    assert ended.err.startswith(f"odradek: there is no test API at {traced.port}: ")


def test_what_was_dropped_is_said(traced, trace):
    traced.requests.record(requests_max=1)
    ask(traced, "one", "two", "three")
    ended = trace()
    assert len(lines(ended.out)) == 1
    assert ended.err == "odradek: 2 older requests were dropped for newer ones\n"


def test_followed_requests_are_printed_when_they_are_answered(traced, api):
    command = [sys.executable, "-m", "odradek", "trace", "--test-api", api, "-f", "--client-id", "shop"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as tracing:
        try:
            while not traced.requests.is_recording:
                assert tracing.poll() is None
            ask(traced, "shop", "other", "shop")
            shown = [json.loads(tracing.stdout.readline()) for _ in range(2)]
            ask(traced, "shop")
            shown.append(json.loads(tracing.stdout.readline()))
        finally:
            tracing.terminate()
        assert tracing.wait(30) == 143
    assert [one["client_id"] for one in shown] == ["shop"] * 3
    assert {one["outcome"] for one in shown} == {"answered"}
