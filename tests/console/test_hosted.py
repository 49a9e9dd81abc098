"""The console of a broker: one process at the first request, its idle end, its death, who may reach it."""

import argparse
import os
import signal
import socket
import subprocess
import sys
import time

import pytest

import odradek
from odradek.client.cluster import Cluster
from odradek.client.settings import ClientSettings
from odradek.commands.serve import add_arguments
from odradek.config.broker_config import load
from odradek.config.config_error import ConfigError
from odradek.server.web_console.choosing import way_of
from tests.client.topics import create_topic
from tests.console.hosted import (
    DEADLINE_S,
    IDLE,
    broker_with_console,
    get,
    get_many,
    lives,
    logged_in,
    pids,
    pids_told,
    refusal,
    short_place,
    until,
    with_users,
)
from tests.server.tls_ends import Authority

TOPICS = "<h1>Topics</h1>"


def settings_of(broker):
    return ClientSettings(broker.bootstrap_servers, retry_ms=1)


# The process ------------------------------------------------------------------------------------------


def test_no_process_is_there_before_the_first_request_and_one_for_many_first_ones():
    with broker_with_console() as broker:
        assert pids(broker) == []
        assert get_many(broker.console_url, 20) == [200] * 20
        (pid,) = pids(broker)
        assert lives(pid)
    assert not lives(pid)


def test_a_broker_in_a_thread_has_one_that_ends_with_it(caplog):
    caplog.set_level("INFO", "odradek.console")
    with odradek.Broker(console=True) as broker:
        url = broker.console_url
        assert get_many(url, 5) == [200] * 5
        (pid,) = pids_told(caplog.text)
        broker.restart()
        assert not lives(pid)
        assert broker.console_url == url
        assert get(url)[0] == 200
    assert len(pids_told(caplog.text)) == 2
    assert not any(map(lives, pids_told(caplog.text)))


def test_it_ends_when_idle_and_starts_again():
    with broker_with_console(options={IDLE: 1}) as broker:
        assert get(broker.console_url)[0] == 200
        until(lambda: "the console has ended" in broker.log(), "the idle end")
        assert not lives(pids(broker)[0])
        assert TOPICS in get(broker.console_url)[2]
        assert len(pids(broker)) == 2


def test_an_open_tail_keeps_it():
    with broker_with_console(options={IDLE: 1}) as broker, Cluster(settings_of(broker)) as cluster:
        topic = create_topic(cluster)
        host, port = broker.console_url.removeprefix("http://").split(":")
        with socket.create_connection((host, int(port)), DEADLINE_S) as tail:
            tail.sendall(f"GET /topics/{topic}/tail HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())
            seen, began = b"", time.monotonic()
            while time.monotonic() < began + 3:
                piece = tail.recv(4096)
                assert piece, seen
                seen += piece
            assert b" 200 " in seen
            assert "the console has ended" not in broker.log()
        until(lambda: "the console has ended" in broker.log(), "the end after the tail")


def test_it_starts_again_when_it_has_died():
    with broker_with_console() as broker:
        assert get(broker.console_url)[0] == 200
        (pid,) = pids(broker)
        os.kill(pid, signal.SIGKILL)
        until(lambda: "the console has ended with status -9" in broker.log(), "the death")
        assert get_many(broker.console_url, 5) == [200] * 5
        assert len(pids(broker)) == 2


def test_it_ends_with_its_broker_however_that_ends():
    with broker_with_console() as broker:
        url = broker.console_url
        assert get(url)[0] == 200
        (pid,) = pids(broker)
        broker.kill()
        until(lambda: not lives(pid), "the end of the console after SIGKILL to its broker")
        assert broker.console_url == ""
        broker.start()
        assert broker.console_url == url
        assert get(url)[0] == 200
        (pid,) = pids(broker)
    assert not lives(pid)


def test_workers_have_one_console_for_all():
    with odradek.Broker(workers=2, console=True) as broker:
        assert get_many(broker.console_url, 8) == [200] * 8
        assert len(pids(broker)) == 1
        status, _, text = get(broker.console_url, "/brokers")
        assert status == 200
        assert "broker:1" in text.replace("%3A", ":")
        assert "broker:2" in text.replace("%3A", ":")


def test_a_broker_without_the_option_imports_nothing_of_it():
    program = (
        "import sys, odradek\n"
        "with odradek.Broker() as broker:\n"
        "    assert broker.console_url == ''\n"
        "    names = [n for n in sys.modules if 'console' in n or n in ('uvicorn', 'starlette', 'jinja2')]\n"
        "print(names)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_a_restored_snapshot_keeps_the_console():
    with broker_with_console() as broker, broker.snapshot() as snapshot:
        assert get(broker.console_url)[0] == 200
        broker.restore(snapshot)
        until(lambda: get(broker.console_url)[0] == 200, "the page after the restore")
        assert len(pids(broker)) == 1


# Safety -----------------------------------------------------------------------------------------------


def options_of(*sets):
    return load(sets=["odradek.console.listen=127.0.0.1:0", "log.dirs=/nowhere", *sets])


def test_it_is_at_loopback_without_a_host():
    config = load(sets=["log.dirs=/nowhere"], console="9080")
    assert config.console_address == ("127.0.0.1", 9080)


@pytest.mark.parametrize("address", ["0.0.0.0:0", ":0", "[::]:0", "192.0.2.1:0"])
def test_elsewhere_without_a_login_it_is_refused_before_any_data(tmp_path, address):
    told = refusal(tmp_path, "--listen", "127.0.0.1:0", "--console", address)
    assert "can be reached from other machines" in told
    assert "--console-anonymous" in told
    assert len(told.splitlines()) == 1


def test_elsewhere_without_a_login_it_is_open_where_that_is_meant():
    options = {"odradek.console.anonymous": True}
    with odradek.Broker(console="0.0.0.0:0", options=options) as broker:
        assert TOPICS in get(broker.console_url)[2]


def test_with_sasl_people_log_in_at_any_address():
    with odradek.Broker(console="0.0.0.0:0", options=with_users()) as broker:
        url = broker.console_url
        status, headers, _ = get(url)
        assert (status, headers["location"]) == (303, "/login?next=%2Ftopics")
        assert logged_in(url, "ann", "wrong") is None
        cookie = logged_in(url, "ann", "ann's")
        assert TOPICS in get(url, cookie=cookie)[2]


def test_a_listener_with_a_login_goes_before_one_without():
    config = options_of(
        "listeners=PLAINTEXT://127.0.0.1:0,SASL_PLAINTEXT://127.0.0.1:0",
        "inter.broker.listener.name=PLAINTEXT",
        "sasl.enabled.mechanisms=SCRAM-SHA-512",
    )
    assert way_of(config) == ("SASL_PLAINTEXT", "SASL_PLAINTEXT", "SCRAM-SHA-512")


def test_nobody_takes_the_place_of_others_where_only_logins_are_taken():
    sets = [f"{name}={value}" for name, value in with_users().items()]
    with pytest.raises(ConfigError, match="there is none"):
        way_of(options_of(*sets, "odradek.console.anonymous=true"))


def test_a_listener_that_wants_certificates_is_not_used():
    authority = Authority()
    options = authority.server_options(**authority.trusting())
    sets = [f"{name}={value}" for name, value in options.items()]
    config = options_of("listeners=SSL://127.0.0.1:0", "inter.broker.listener.name=SSL", *sets)
    with pytest.raises(ConfigError, match="SSL wants certificates"):
        way_of(config)


def test_read_only_and_hidden_messages_reach_the_process():
    options = {"odradek.console.read.only": True, "odradek.console.hide.messages": True}
    with broker_with_console(options=options) as broker:
        text = get(broker.console_url)[2]
        assert "read-only" in text
        assert "messages hidden" in text


def test_the_options_of_the_command_are_those_of_the_console():
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    given = parser.parse_args(["--console", "9080", "--console-read-only", "--console-anonymous"])
    assert given.console == "9080"
    assert given.console_sets == ["odradek.console.read.only=true", "odradek.console.anonymous=true"]
    assert parser.parse_args([]).console_sets == []


def test_a_foreign_host_is_refused_and_a_named_one_is_not():
    with broker_with_console(options={"odradek.console.hosts": "console.example"}) as broker:
        assert get(broker.console_url, host="evil.example")[0] == 421
        assert get(broker.console_url, host="console.example")[0] == 200


def test_a_taken_port_is_a_sentence(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        told = refusal(tmp_path, "--listen", "127.0.0.1:0", "--console", str(port))
    assert "odradek.console.listen: " in told
    assert str(port) in told
    assert len(told.splitlines()) == 1


def test_without_the_extra_it_says_what_to_install(tmp_path):
    (tmp_path / "sitecustomize.py").write_text(
        "import importlib.util\n"
        "found = importlib.util.find_spec\n"
        "importlib.util.find_spec = lambda name, package=None: (\n"
        "    None if name in ('uvicorn', 'jinja2') else found(name, package))\n"
    )
    path = os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])
    told = refusal(tmp_path, "--listen", "127.0.0.1:0", "--console", "0", PYTHONPATH=path)
    assert "(uvicorn, jinja2): pip install 'odradek[console]'" in told
    assert len(told.splitlines()) == 1


# TLS --------------------------------------------------------------------------------------------------


def test_with_tls_it_trusts_the_certificate_of_its_broker_alone():
    # Its name is another one than the address that the console uses.
    authority = Authority()
    options = authority.server_options(authority.issue("broker.example", common_name="broker"))
    with broker_with_console(
        options={"listeners": "SSL://127.0.0.1:0", "inter.broker.listener.name": "SSL", **options}
    ) as broker:
        assert TOPICS in get(broker.console_url)[2]
        assert "alert" not in get(broker.console_url)[2]


def test_with_tls_and_sasl_people_log_in():
    authority = Authority()
    options = with_users("SASL_SSL", **authority.server_options())
    with broker_with_console(options=options) as broker:
        cookie = logged_in(broker.console_url, "ann", "ann's")
        assert TOPICS in get(broker.console_url, cookie=cookie)[2]


def test_nothing_is_left_of_it(tmp_path, monkeypatch):
    with short_place() as place:
        monkeypatch.setenv("TMPDIR", str(place))
        with odradek.Broker(process=True, console=True, data_dir=tmp_path / "data") as broker:
            assert get(broker.console_url)[0] == 200
            (folder,) = place.glob("odradek-console-*")
            assert folder.stat().st_mode & 0o777 == 0o700
            (path,) = folder.glob("admin-*")
            assert path.stat().st_mode & 0o777 == 0o600
            broker.kill()
            assert folder.exists()
            broker.start()
            assert not folder.exists()
        assert not list(place.glob("odradek-console-*"))


def test_a_long_name_of_the_place_for_temporary_files_is_no_obstacle(tmp_path, monkeypatch):
    place = tmp_path / ("a" * 100)
    place.mkdir()
    monkeypatch.setenv("TMPDIR", str(place))
    with odradek.Broker(process=True, console=True, data_dir=tmp_path / "data") as broker:
        assert get(broker.console_url)[0] == 200
        assert not list(place.glob("odradek-console-*"))
