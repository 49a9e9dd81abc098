"""The part `metrics`: what they cost a request, and what a scrape of 20,000 series costs.

A cost of a request is beside that of a broker without metrics. Between scrapes nothing differs, as the
counters are always there: what there is to see is the scrapes themselves, here one in a second.
"""

from __future__ import annotations

import contextlib
import http.client
import threading
import time
from collections.abc import Iterator

import odradek
from benchmarks.figures import Figure, Section
from benchmarks.request_cost import CONNECTIONS, Setup, children, cost_figures, measured_costs, record
from benchmarks.run import Run
from benchmarks.wire_client import WireClient
from odradek.embedding.free_port import free_port
from odradek.wire.messages.api_versions import ApiVersionsRequest

SHARE_MAX = 1.01
"""The most that a request may cost, beside one of a broker without metrics: 0.99 of the requests."""
PAIRS = 9
"""Of brokers, each pair with new processes: two processes of one program differ by up to 6 %, however often
they are asked.
"""
ROUNDS = 3
INTERVAL_S = 1.0
SERIES = 20_000
PARTITIONS, PARTITIONS_WHEN_QUICK = 1_500, 30
"""So many partitions have about so many series."""
SCRAPES, SCRAPES_WHEN_QUICK = 30, 3
SCRAPE_MS_MAX = 60.0
TURN_MS_MAX = 1.0
"""The most that a scrape may prolong the wait of another client."""


def scrape(port: int, path: str = "/metrics") -> bytes:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    with contextlib.closing(connection):
        connection.request("GET", path)
        answer = connection.getresponse()
        assert answer.status == 200, answer.status
        return answer.read()


@contextlib.contextmanager
def scraped(port: int) -> Iterator[None]:
    """By a Prometheus that is in a hurry."""
    end = threading.Event()

    def go_on() -> None:
        while not end.wait(INTERVAL_S):
            scrape(port)

    thread = threading.Thread(target=go_on)
    thread.start()
    try:
        yield
    finally:
        end.set()
        thread.join()


def waits_ms(client: WireClient, until: threading.Event | None = None, count: int = 1000) -> list[float]:
    """Of requests one after the other: until the event, or so many."""
    found = []
    while not until.is_set() if until is not None else len(found) < count:
        began = time.perf_counter()
        client.call(ApiVersionsRequest(client_software_name="b", client_software_version="1"), 3)
        found.append((time.perf_counter() - began) * 1000)
    return found


def p99(values: list[float]) -> float:
    return sorted(values)[len(values) * 99 // 100]


def scrape_figures(run: Run) -> list[Figure]:
    port, metrics_port = free_port(), free_port()
    options = {"odradek.metrics.listen": f"127.0.0.1:{metrics_port}", "odradek.metrics.series.max": "100000"}
    partitions = run.choose(PARTITIONS, PARTITIONS_WHEN_QUICK)
    with (
        run.folder("metrics") as folder,
        odradek.Broker(process=True, data_dir=folder / "data", options=options, port=port) as broker,
        WireClient("127.0.0.1", broker.port) as client,
    ):
        client.create_topics(["measured"], partitions, {})
        for partition in range(partitions):
            client.produce(["measured"], record(), (partition,))
        series = sum(not line.startswith(b"#") for line in scrape(metrics_port).splitlines())
        took_ms: list[float] = []
        cpu_ms: list[float] = []
        done = threading.Event()
        assert broker.pid is not None
        clock = (~broker.pid << 3) | 2

        def go_on() -> None:
            for _ in range(run.choose(SCRAPES, SCRAPES_WHEN_QUICK)):
                began, began_cpu = time.perf_counter(), time.clock_gettime(clock)
                scrape(metrics_port)
                took_ms.append((time.perf_counter() - began) * 1000)
                cpu_ms.append((time.clock_gettime(clock) - began_cpu) * 1000)
                time.sleep(0.1)

        go_on()
        quiet_ms, quiet_cpu_ms = [*took_ms], [*cpu_ms]
        waits_ms(client)  # what a broker does after a start is not measured
        alone_ms = waits_ms(client, count=5000)
        thread = threading.Thread(target=lambda: (go_on(), done.set()))
        thread.start()
        beside_ms = waits_ms(client, until=done)
        thread.join()
    most_ms = p99(alone_ms) + TURN_MS_MAX
    limit = SCRAPE_MS_MAX if series >= SERIES * 0.9 else None
    return [
        Figure.median(f"a scrape of {series:,} series", quiet_ms, "ms", limit),
        Figure.median(f"processor time of a scrape of {series:,} series", quiet_cpu_ms, "ms"),
        Figure("p99 of another client's waits, no scrape", p99(alone_ms), "ms"),
        Figure(
            "p99 of another client's waits, scrapes under way",
            p99(beside_ms),
            "ms",
            most_ms,
        ),
        Figure("longest of another client's waits, scrapes under way", max(beside_ms), "ms"),
    ]


def measure(run: Run) -> Section:
    """Takes about three minutes."""
    section = Section("What metrics cost")
    section.notes = [
        f"CPU time of the broker's process for a request, {CONNECTIONS} connections with one request in "
        f"flight each: the best of {ROUNDS} rounds, then the median of {PAIRS} pairs of brokers, which "
        f"are asked in turn. A share of 1 is the cost of a broker without metrics; at most {SHARE_MAX} is "
        "the target. The scrapes under way are 0.1 s apart."
    ]
    port = free_port()
    setups = {
        "no metrics": Setup(),
        "metrics, a scrape in a second": Setup({"odradek.metrics.listen": f"127.0.0.1:{port}"}),
    }
    found = []
    for _ in range(run.choose(PAIRS, 1)):
        with children(run, setups) as started, scraped(port):
            found.append(measured_costs(run, started, ROUNDS))
    section.figures += cost_figures(found, "no metrics", SHARE_MAX)
    section.figures += scrape_figures(run)
    return section
