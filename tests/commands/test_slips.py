"""Sentences for a person who has made a slip, or whose broker is not there."""

import os
import re
import socket
import time

import pytest

from odradek.commands.command import COMMANDS
from odradek.embedding.free_port import free_port
from tests.kit.terminal import Terminal

DEADLINE_S = 60
# The console starts without a broker: its pages say that none answers (tests/console).
ON_BROKERS = [
    name
    for name, one in COMMANDS.items()
    if one.tells_failures and name not in ("config", "completion", "console", "trace")
]
ACTIONS = {
    "users": ["list"],
    "topics": ["list"],
    "groups": ["list"],
    "transactions": ["list"],
    "producers": ["t"],
    "configs": ["get", "topic:t"],
    "acls": ["list"],
    "quotas": ["list"],
    "cluster": ["info"],
    "doctor": [],
    "produce": ["t", "--file", os.devnull],
    "consume": ["t"],
    "bench": ["consume", "--topic", "t"],
}


def test_a_command_that_is_not_there_is_told_with_the_one_that_was_meant(run):
    ended = run("topcs", "list")
    assert ended.status == 2
    told = "odradek: error: there is no command 'topcs'; did you mean topics?"
    assert ended.err == f"usage: odradek COMMAND ...\n{told}\n"
    assert run("topic", "list").err.endswith("did you mean topics?\n")


@pytest.mark.parametrize("name", ["topics", "groups", "cluster", "bench", "acls", "config", "users", "spark"])
def test_a_command_without_its_action_shows_its_help(run, name):
    ended = run(name)
    assert ended.status == 2
    assert re.search(r"^ +(ACTION|JOB)$", ended.err, re.MULTILINE)


@pytest.mark.deep  # it waits 2.5 s for each
@pytest.mark.parametrize("name", ON_BROKERS)
def test_each_command_says_what_it_waits_for_and_then_that_no_broker_answered(run, name):
    address = f"127.0.0.1:{free_port()}"
    ended = run(name, *ACTIONS[name], "-b", address, "--timeout", "2.5")
    assert ended.status == 1
    if name == "doctor":
        assert f"no connection to {address}" in ended.out
    else:
        assert ended.err == (
            f"odradek: {address} refuses connections; trying for 2.5 s (odradek doctor says more)\n"
            f"odradek: no broker answered in 2.5 s: {address} refuses connections\n"
        )


def test_a_broker_that_accepts_and_says_nothing_is_told_after_a_second(run):
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        ended = run("topics", "list", "-b", address, "--timeout", "2.5")
    assert ended.status == 1
    assert ended.err.startswith(
        f"odradek: {address} does not answer; trying for 2.5 s (odradek doctor says more)\n"
    )
    assert "no broker answered in 2.5 s" in ended.err


@pytest.mark.parametrize("name", ON_BROKERS)
def test_a_name_without_an_address_ends_each_command_at_once(run, name):
    began = time.monotonic()
    ended = run(name, *ACTIONS[name], "-b", "a..b:9092", "--timeout", "600")
    assert time.monotonic() - began < DEADLINE_S
    assert ended.status == 1
    assert "the name a..b has no address" in ended.err + ended.out


def test_several_topics_wait_for_a_broker_once(run):
    address = f"127.0.0.1:{free_port()}"
    ended = run("topics", "create", "a", "b", "c", "-b", address, "--timeout", "0.3")
    assert (ended.status, ended.err) == (
        1,
        f"odradek: no broker answered in 0.3 s: {address} refuses connections\n",
    )


def test_at_a_port_of_http_every_command_says_so(run):
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        child = os.fork()
        if child == 0:
            connected, _ = server.accept()
            connected.recv(1)
            connected.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")
            os._exit(0)
        ended = run("topics", "list", "-b", f"127.0.0.1:{port}")
        os.waitpid(child, 0)
    told = "an HTTP server listens there, not a Kafka broker; use the port of a Kafka listener"
    assert (ended.status, ended.err) == (1, f"odradek: 127.0.0.1:{port}: {told}\n")


def test_a_slip_in_a_property_does_not_lead_to_another_cluster(run):
    ended = run("topics", "list", "-X", "bootstrap.server=h:1")
    told = "odradek: there is no property bootstrap.server; did you mean bootstrap.servers?\n"
    assert (ended.status, ended.err) == (1, told)
    ended = run("topics", "list", "-X", "ssl.truststore.locaton=x", "-X", "security.protocol=SSL")
    assert "is not taken: it is not known; did you mean ssl.truststore.location?\n" in ended.err


def test_a_form_of_output_has_one_name_everywhere(odradek_command):
    odradek_command("topics", "create", "forms", "-p", "1")
    assert odradek_command("topics", "list", "-J").rows == odradek_command("topics", "list", "--json").rows
    lines = odradek_command("consume", "forms", "--output", "json")
    assert lines == odradek_command("consume", "forms", "-J") == odradek_command("consume", "forms", "--json")


@pytest.mark.parametrize("command", ["check", "dump"])
def test_json_of_files_has_the_same_names(run, command, tmp_path):
    (tmp_path / "orders-0").mkdir()
    (tmp_path / "orders-0" / ("0" * 20 + ".log")).touch()
    told = run(command, str(tmp_path / "orders-0"), "--output", "json")
    assert told.out.startswith("{")
    assert told == run(command, str(tmp_path / "orders-0"), "-J")


def test_a_person_at_a_terminal_reads_at_once_that_nobody_listens():
    address = f"127.0.0.1:{free_port()}"
    with Terminal("topics", "list", "-b", address, columns=200) as terminal:
        told = terminal.read_until("\n")
        assert told == (
            f"odradek: {address} refuses connections; trying for 15 s (odradek doctor says more)\n"
        )
        assert terminal.is_running
