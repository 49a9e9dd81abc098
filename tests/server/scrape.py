"""What the endpoint of metrics answers, for tests."""

import contextlib
import http.client
import re
import time

SAMPLE = re.compile(r"([a-z_0-9]+)(\{.*\})? ([-+.0-9e]+)")
PATIENCE_S = 30
PAUSE_S = 0.005


def get(port, path, method="GET", **headers):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    with contextlib.closing(connection):
        connection.request(method, path, headers=headers)
        answer = connection.getresponse()
        return answer, answer.read()


def scraped(port):
    """The samples by name and labels."""
    answer, body = get(port, "/metrics")
    assert answer.status == 200
    samples = {}
    for line in body.decode().splitlines():
        if not line.startswith("#"):
            name, labels, value = SAMPLE.fullmatch(line).groups()
            assert (name, labels) not in samples
            samples[name, labels] = float(value)
    return samples


def until(ask, holds):
    """The first answer for which that holds."""
    deadline = time.monotonic() + PATIENCE_S
    while not holds(answer := ask()):
        assert time.monotonic() < deadline, answer
        time.sleep(PAUSE_S)
    return answer
