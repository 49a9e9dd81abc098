"""`odradek console` as a process: its options, its end, its tail, and messages of others beside it."""

import http.client
import json
import os
import signal
import socket
import ssl
import time
from urllib.parse import urlsplit

import pytest

from tests.client.topics import create_topic, produce
from tests.console.served import Console, console
from tests.server.tls_ends import Authority

DEADLINE_S = 120


@pytest.fixture(scope="module")
def served(broker):
    with console("-b", broker.bootstrap_servers, "--listen", "0") as running:
        yield running


def opened(url):
    parts = urlsplit(url)
    return http.client.HTTPConnection(parts.hostname, parts.port, timeout=DEADLINE_S)


def get(url, path, **headers):
    connection = opened(url)
    connection.request("GET", path, headers=headers)
    response = connection.getresponse()
    return response, response.read().decode()


class Events:
    """The server-sent events of a tail."""

    def __init__(self, url, path, **headers):
        self._connection = opened(url)
        self._connection.request("GET", path, headers=headers)
        self.response = self._connection.getresponse()
        assert self.response.status == 200
        assert self.response.headers["content-type"].startswith("text/event-stream")

    def next(self, kind="rows"):
        """The next event of a kind: its id and data. Comments keep the stream alive."""
        event = {}
        deadline = time.monotonic() + DEADLINE_S
        while time.monotonic() < deadline:
            line = self.response.readline().decode().rstrip("\n")
            name, colon, value = line.partition(": ")
            if colon and name:
                event[name] = value
            elif not line and event.get("event") == kind:
                return event.get("id", ""), json.loads(event["data"])
            elif not line:
                event = {}
        raise AssertionError("no event came")

    def close(self):
        self._connection.close()


def rows_until(events, wanted):
    """Values of rows, until so many are there; and the last id."""
    found, number = [], ""
    while len(found) < wanted:
        number, data = events.next()
        found += [row["value"] for row in data["rows"]]
    return found, number


def test_it_serves_pages_and_says_where(served):
    response, text = get(served.url, "/topics")
    assert response.status == 200
    assert "<h1>Topics</h1>" in text
    assert "server" not in response.headers
    assert urlsplit(served.url).hostname == "127.0.0.1"


def test_a_foreign_host_is_refused_on_the_wire(served):
    response, _ = get(served.url, "/topics", host="evil.example")
    assert response.status == 421


def test_a_tail_has_what_comes_and_goes_on_after_a_break(served, cluster):
    topic = create_topic(cluster, partitions=2)
    produce(cluster, topic, 0, [b"before"])
    events = Events(served.url, f"/topics/{topic}/tail")
    # The places are read before the response begins, so all that is written now is new.
    produce(cluster, topic, 1, [b"first <b>", b"second"])
    values, number = rows_until(events, 2)
    assert values == ["first <b>", "second"]
    events.close()
    produce(cluster, topic, 0, [b"while nobody looked"])
    again = Events(served.url, f"/topics/{topic}/tail", **{"last-event-id": number})
    assert rows_until(again, 1)[0] == ["while nobody looked"]
    again.close()


def test_a_tail_shows_what_its_filter_chooses(served, cluster):
    topic = create_topic(cluster)
    events = Events(served.url, f"/topics/{topic}/tail?value=id%3D7&value_how=path")
    produce(cluster, topic, 0, [b'{"id": %d}' % number for number in range(20)])
    assert rows_until(events, 1)[0] == ['{"id": 7}']
    events.close()


def test_a_tail_shows_fifty_rows_a_second_and_counts_the_others(served, cluster):
    topic = create_topic(cluster)
    events = Events(served.url, f"/topics/{topic}/tail")
    produce(cluster, topic, 0, [b"x"] * 500)
    shown = left_out = 0
    while shown + left_out < 500:
        _, data = events.next()
        shown, left_out = shown + len(data["rows"]), left_out + data["left_out"]
    assert shown + left_out == 500
    assert shown >= 50
    assert left_out > 0
    events.close()


def test_only_so_many_tails_are_open_and_one_that_is_closed_frees_its_place(broker, cluster):
    """At a console of its own: the tails of other tests may be about to end."""
    topic = create_topic(cluster)
    with console("-b", broker.bootstrap_servers, "--listen", "0") as running:
        tails = [Events(running.url, f"/topics/{topic}/tail") for _ in range(8)]
        response, text = get(running.url, f"/topics/{topic}/tail")
        assert response.status == 502
        assert "So many tails are open" in text
        assert get(running.url, "/topics")[0].status == 200, "pages have threads of their own"
        for one in tails:
            one.close()
        deadline = time.monotonic() + DEADLINE_S
        while get_status(running.url, f"/topics/{topic}/tail") != 200:
            assert time.monotonic() < deadline


def get_status(url, path):
    connection = opened(url)
    connection.request("GET", path)
    try:
        return connection.getresponse().status
    finally:
        connection.close()


@pytest.mark.parametrize(("number", "status"), [(signal.SIGTERM, {0, 143}), (signal.SIGINT, {0, 130})])
def test_a_signal_ends_it_also_with_an_open_tail(broker, cluster, number, status):
    topic = create_topic(cluster)
    running = Console(["-b", broker.bootstrap_servers, "--listen", "0"])
    events = Events(running.wait(), f"/topics/{topic}/tail")
    ended, text = running.stop(number)
    assert ended in status
    assert "Traceback" not in text
    events.close()


def test_it_takes_a_socket_that_is_handed_over(broker):
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
        descriptor = listening.fileno()
        with console(
            *("-b", broker.bootstrap_servers, "--fd", str(descriptor)), pass_fds=[descriptor]
        ) as running:
            assert running.url == f"http://127.0.0.1:{port}"
            assert get(running.url, "/topics")[0].status == 200


def test_it_serves_https_with_a_certificate(broker, tmp_path):
    authority = Authority()
    issued = authority.issue("localhost", common_name="localhost")
    certificate, key = tmp_path / "certificate.pem", tmp_path / "key.pem"
    certificate.write_bytes(b"".join(one.bytes() for one in issued.cert_chain_pems))
    key.write_bytes(issued.private_key_pem.bytes())
    files = ("--tls-certificate", str(certificate), "--tls-key", str(key))
    with console("-b", broker.bootstrap_servers, "--listen", "0", *files) as running:
        parts = urlsplit(running.url)
        context = ssl.create_default_context(cadata=authority.text)
        connection = http.client.HTTPSConnection("localhost", parts.port, timeout=DEADLINE_S, context=context)
        connection.request("GET", "/topics")
        response = connection.getresponse()
        assert (parts.scheme, response.status) == ("https", 200)
        assert "Secure" in response.headers["set-cookie"]
        connection.close()


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("--listen", "0.0.0.0:0"), "can be reached from other machines"),
        (("--listen", "127.0.0.1:x"), "the port of --listen"),
        (("--listen", "no.such.host.invalid:0", "--anonymous"), "is not an address of this machine"),
        (("--fd", "99"), "is not a socket"),
        (("--tls-key", "key.pem"), "belong together"),
        (("-X", "security.protocol=SASL_PLAINTEXT"), "sasl.mechanism has to be one of PLAIN"),
        (
            ("-X", "security.protocol=SASL_PLAINTEXT", "-X", "sasl.mechanism=GSSAPI"),
            "people log in with a password",
        ),
        (("-X", "security.protocol=SSL", "-X", "ssl.keystore.location=key.pem"), "a certificate of its own"),
    ],
)
def test_what_it_cannot_start_with_is_a_sentence(arguments, told):
    status, text = Console(["-b", "127.0.0.1:1", *arguments]).ended()
    assert status == 1
    assert told in text
    assert len(text.splitlines()) == 1


def test_without_its_packages_it_says_what_to_install(tmp_path):
    for name in ("starlette", "uvicorn", "jinja2"):
        (tmp_path / f"{name}.py").write_text(f"raise ModuleNotFoundError('no', name='{name}')\n")
    path = os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])
    before = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = path
    try:
        status, text = Console(["-b", "127.0.0.1:1"]).ended()
    finally:
        if before is None:
            del os.environ["PYTHONPATH"]
        else:
            os.environ["PYTHONPATH"] = before
    assert status == 1
    assert "pip install 'odradek[console]'" in text
