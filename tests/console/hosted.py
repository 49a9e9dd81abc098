"""Brokers with a console, and what asks it over the wire."""

import contextlib
import http.client
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from urllib.parse import urlencode, urlsplit

import odradek
from tests.console.browsers import Page

DEADLINE_S = 120
IDLE = "odradek.console.idle.seconds"
PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule required"


@contextlib.contextmanager
def short_place():
    """A directory for temporary files whose path leaves room for the path of a socket, wherever tests have
    theirs."""
    with tempfile.TemporaryDirectory(prefix="o-", dir="/tmp") as place:
        yield pathlib.Path(place)


def until(condition, what):
    """Waits for what a condition finds, and returns it."""
    deadline = time.monotonic() + DEADLINE_S
    while True:
        found = condition()
        if found:
            return found
        assert time.monotonic() < deadline, what
        time.sleep(0.02)


def get(url, path="/topics", method="GET", body=None, **headers):
    """Status, headers and text."""
    parts = urlsplit(url)
    connection = http.client.HTTPConnection(parts.hostname, parts.port, timeout=DEADLINE_S)
    try:
        connection.request(
            method, path, body, {name.replace("_", "-"): text for name, text in headers.items()}
        )
        response = connection.getresponse()
        return response.status, response.headers, response.read().decode()
    finally:
        connection.close()


def get_many(url, count):
    """The statuses of requests that are all sent at once."""
    with ThreadPoolExecutor(count) as pool:
        return [status for status, _, _ in pool.map(lambda _: get(url), range(count))]


def logged_in(url, user, password):
    """The cookie of a person who has logged in; None: they were refused."""
    _, headers, text = get(url, "/login")
    cookie = headers["set-cookie"].partition(";")[0]
    form = {
        "token": Page(text).all("input", name="token")[0]["value"],
        "user": user,
        "password": password,
    }
    status, headers, _ = get(
        url,
        "/login",
        "POST",
        urlencode(form),
        cookie=cookie,
        origin=url,
        content_type="application/x-www-form-urlencoded",
    )
    return headers["set-cookie"].partition(";")[0] if status == 303 else None


def with_users(protocol="SASL_PLAINTEXT", mechanism="PLAIN", **more):
    """Options of a broker at a free port of 127.0.0.1 with ann, whose password is "ann's"."""
    return {
        "listeners": f"{protocol}://127.0.0.1:0",
        "inter.broker.listener.name": protocol,
        "sasl.enabled.mechanisms": mechanism,
        "sasl.mechanism.inter.broker.protocol": mechanism,
        f"listener.name.{protocol.lower()}.plain.sasl.jaas.config": f'{PLAIN} user_ann="ann\'s";',
        **more,
    }


def pids(broker):
    """Ids of all processes of the console since the start, by the log of a broker in a process."""
    return pids_told(broker.log())


def pids_told(text):
    """The same by the text of the log."""
    return [int(pid) for pid in re.findall(r"the console has started, process (\d+)", text)]


def lives(pid):
    """Whether a process is there, and is no zombie."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8") as file:
            return file.read().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def refusal(tmp_path, *arguments, **environment):
    """What `odradek serve` prints when it does not start."""
    done = subprocess.run(
        [sys.executable, "-m", "odradek", "serve", "--data-dir", str(tmp_path / "data"), *arguments],
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        env={**os.environ, **environment},
        check=False,
    )
    assert done.returncode == 1, done.stdout
    assert not (tmp_path / "data").exists()
    return done.stderr


def broker_with_console(**more):
    """A broker in a process."""
    return odradek.Broker(console=True, process=True, **more)
