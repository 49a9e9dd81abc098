"""The log of slow requests."""

import logging
from types import SimpleNamespace

import odradek
from odradek.client.cluster import Cluster
from odradek.client.settings import ClientSettings
from odradek.server.network.slow_requests import SlowRequests

CONNECTION = SimpleNamespace(
    principal="User:ann",
    client_software_name="java",
    client_software_version="4.3.1",
    peer_host="10.0.0.7",
    peer_port=4711,
)


def route(name):
    return SimpleNamespace(api_name=name, api_version=12)


def test_a_line_tells_who_asked_what_and_how_long_it_took(caplog):
    SlowRequests(lambda: 0)(route("Produce"), CONNECTION, 532_000_000, 1000, 57)
    assert caplog.messages == [
        "slow request: Produce v12 took 532 ms (1000 bytes, answer 57 bytes) of User:ann with java 4.3.1 at "
        "10.0.0.7:4711"
    ]


def test_who_waits_on_purpose_is_not_slow(caplog):
    for name in ("Fetch", "JoinGroup", "SyncGroup"):
        SlowRequests(lambda: 0)(route(name), CONNECTION, 532_000_000, 1000, 57)
    assert caplog.messages == []


def test_lines_of_a_second_are_bounded_and_the_others_are_counted(caplog):
    now_ms = [0]
    slow = SlowRequests(lambda: now_ms[0])
    for _ in range(25):
        slow(route("Produce"), CONNECTION, 532_000_000, 1000, 57)
    assert len(caplog.messages) == 10
    now_ms[0] = 1000
    slow(route("Produce"), CONNECTION, 532_000_000, 1000, 57)
    assert caplog.messages[-1].endswith("; 15 more were slow")


def test_a_broker_logs_what_is_slower_than_its_option(caplog):
    for slow_ms, is_logged in (("0", True), ("100000", False), ("-1", False)):
        caplog.clear()
        with (
            caplog.at_level(logging.WARNING, "odradek.slow"),
            odradek.Broker(options={"odradek.log.slow.request.ms": slow_ms}) as broker,
            Cluster(ClientSettings(broker.bootstrap_servers)) as cluster,
        ):
            cluster.topics()
        found = [message for message in caplog.messages if "slow request: Metadata" in message]
        assert bool(found) is is_logged
