"""The part `console`: its first page, its search, what a produce waits beside it, and what a broker pays for
it while nobody looks.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import pathlib
import re
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator

import odradek
from benchmarks.command_line import CREATED_MS, VALUE
from benchmarks.figures import Figure, Section
from benchmarks.load import LOWEST_PRIORITY
from benchmarks.metrics import p99
from benchmarks.run import Run
from benchmarks.wire_client import WireClient
from odradek.client.cluster import Cluster
from odradek.client.settings import ClientSettings
from odradek.console.contents import Contents
from odradek.console.filters import chooser
from odradek.console.rendering import STATIC
from odradek.console.search import Wanted, search
from odradek.wire.records import Record, build_batch

COLD_MS_MAX, WARM_MS_MAX = 1_500.0, 200.0
ASSETS_KB_MAX = 150.0
RECORDS_PER_S_MIN = 150_000
P99_SHARE_MAX = 1.2
PAID_SHARE_MAX = 1.03
"""Share of a produce's processor time beside a broker without a console: nothing, but pairs differ by as
much."""
RECORDS, RECORDS_WHEN_QUICK = 10_000_000, 50_000
"""Searched beside a producer; of 100 B they are a gigabyte."""
RECORDS_PER_BATCH = 1_000
STARTS = 9
PRODUCES, PRODUCES_WHEN_QUICK = 4_000, 100
PAIRS, UNSEEN_PAIRS = 5, 15
TOPIC, OTHER = "filled", "written"


def fill(client: WireClient, records: int) -> None:
    batch = bytes(build_batch([Record(n, CREATED_MS, None, VALUE) for n in range(RECORDS_PER_BATCH)]))
    client.create_topics([TOPIC, OTHER], 1, {})
    for _ in range(records // RECORDS_PER_BATCH):
        client.produce([TOPIC], batch)


@contextlib.contextmanager
def console(port: int, core: int, *, is_lowest: bool = False) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A console on its core, when it can be asked, and its URL. `is_lowest`: whatever else runs on the core
    goes first, as if that had a core of its own."""

    def prepare() -> None:
        os.sched_setaffinity(0, {core})
        if is_lowest:
            os.nice(LOWEST_PRIORITY)

    with subprocess.Popen(
        [sys.executable, "-m", "odradek", "console", "-b", f"127.0.0.1:{port}", "--listen", "0"],
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "ODRADEK_CONFIG": os.devnull},
        preexec_fn=prepare,
    ) as process:
        try:
            assert process.stderr is not None
            found = re.search(r"the console is at (\S+)", process.stderr.readline())
            assert found is not None
            yield process, found[1]
        finally:
            process.terminate()


def page_ms(url: str) -> float:
    began = time.perf_counter()
    with urllib.request.urlopen(url, timeout=60) as response:
        response.read()
    return (time.perf_counter() - began) * 1000


def assets_kb() -> float:
    """Kilobytes of all that a page may load, as it is sent."""
    return sum(path.stat().st_size for path in pathlib.Path(STATIC).iterdir()) / 1000


def search_rates(port: int, records: int, rounds: int) -> list[float]:
    """Records a second of a search that finds nothing, in this process."""
    rates = []
    with Cluster(ClientSettings(f"127.0.0.1:{port}")) as cluster:
        for _ in range(rounds):
            positions, looked_at, began = {0: records}, 0, time.perf_counter()
            while positions[0]:
                wanted = Wanted(
                    topic=TOPIC,
                    bounds={0: (0, records)},
                    positions=positions,
                    is_newest_first=True,
                    limit=50,
                    chooses=chooser({"value": "refund"}),
                    contents=Contents("auto", TOPIC),
                )
                step = search(cluster, wanted)
                positions, looked_at = step.positions, looked_at + step.looked_at
            rates.append(looked_at / (time.perf_counter() - began))
    return rates


def produce_ms(client: WireClient, count: int) -> list[float]:
    """Waits of produces of one record, one after the other."""
    batch = bytes(build_batch([Record(0, CREATED_MS, None, VALUE)]))
    found = []
    for _ in range(count):
        began = time.perf_counter()
        client.produce([OTHER], batch)
        found.append((time.perf_counter() - began) * 1000)
    return found


@contextlib.contextmanager
def searched(url: str) -> Iterator[None]:
    """By the console, asked by a process of the lowest priority."""
    asking = multiprocessing.get_context("spawn").Process(target=search_on, args=(url,))
    asking.start()
    try:
        yield
    finally:
        asking.terminate()
        asking.join()


def search_on(url: str) -> None:
    """One step after the other, from the start again at the end."""
    os.nice(LOWEST_PRIORITY)
    place = first = f"{url}/topics/{TOPIC}/messages?value=refund"
    while True:
        with urllib.request.urlopen(place, timeout=60) as response:
            text = response.read().decode()
        following = re.search(r'rel="next" href="([^"]+)"', text)
        place = first if following is None else url + following[1].replace("&amp;", "&")


def processor_s(broker: odradek.Broker) -> float:
    """Processor time of the broker's process; see clock_getcpuclockid of libc."""
    assert broker.pid is not None
    return time.clock_gettime((~broker.pid << 3) | 2)


def resting_ms(broker: odradek.Broker, seconds: float) -> float:
    """Processor time while nothing is asked, for a second."""
    before = processor_s(broker)
    time.sleep(seconds)
    return (processor_s(broker) - before) * 1000 / seconds


def produces_s(broker: odradek.Broker, count: int) -> float:
    """Processor time of the broker for so many produces."""
    with WireClient("127.0.0.1", broker.port) as client:
        produce_ms(client, count // 10)
        before = processor_s(broker)
        produce_ms(client, count)
        return processor_s(broker) - before


def paid_unseen(run: Run, count: int) -> tuple[list[float], list[float]]:
    """Costs of a console at which nobody looks, in pairs with a broker without one: the processor time of
    produces as a share, and the difference of processor milliseconds a second at rest. The brokers of each
    pair are new ones: two processes of one program differ, too."""
    shares, idle_ms = [], []
    for number in range(run.choose(UNSEEN_PAIRS, 1)):
        with contextlib.ExitStack() as stack:
            brokers: dict[bool, odradek.Broker] = {}
            for has_console in (True, False) if number % 2 else (False, True):
                folder = stack.enter_context(run.folder(f"console-{has_console}"))
                broker = odradek.Broker(process=True, data_dir=folder / "data", console=has_console)
                brokers[has_console] = stack.enter_context(broker)
                assert broker.pid is not None
                os.sched_setaffinity(broker.pid, {run.cores.server})
                with WireClient("127.0.0.1", broker.port) as client:
                    client.create_topics([OTHER], 1, {})
            with run.on_core(run.cores.load):
                order = [*brokers, *reversed(brokers)]
                took = {False: 0.0, True: 0.0}
                for has_console in order:
                    took[has_console] += produces_s(brokers[has_console], count)
                shares.append(took[True] / took[False])
                at_rest = {has: resting_ms(one, run.seconds) for has, one in brokers.items()}
                idle_ms.append(at_rest[True] - at_rest[False])
    return shares, idle_ms


def measure(run: Run) -> Section:
    """Takes about four minutes."""
    section = Section("The web console")
    records = run.choose(RECORDS, RECORDS_WHEN_QUICK)
    count = run.choose(PRODUCES, PRODUCES_WHEN_QUICK)
    section.notes = [
        "The broker has a core, and the console another, which it shares with who asks. A cold page "
        "is the list of topics, with the start of the console's process; a warm one is the same again. A "
        "search finds nothing in records of 100 bytes. Produces have one record; the p99 while the console "
        f"searches is beside that without a search, the median of {PAIRS} pairs: the console and who asks it "
        "have the lowest priority then, so that the producer has its core. What a console costs that nobody "
        f"has opened is the processor time of the broker, the median of {UNSEEN_PAIRS} pairs of new brokers."
    ]
    rounds = range(run.choose(STARTS, 1))
    cold_ms, warm_ms, shares, searching_ms = [], [], [], []
    with (
        run.folder("console") as folder,
        odradek.Broker(process=True, data_dir=folder / "data") as broker,
        WireClient("127.0.0.1", broker.port) as client,
    ):
        assert broker.pid is not None
        os.sched_setaffinity(broker.pid, {run.cores.server})
        fill(client, records)
        with run.on_core(run.cores.load):
            for _ in rounds:
                began = time.perf_counter()
                with console(broker.port, run.cores.load) as (_, url):
                    page_ms(f"{url}/topics")
                    cold_ms.append((time.perf_counter() - began) * 1000)
                    warm_ms.append(min(page_ms(f"{url}/topics") for _ in range(3)))
            rates = search_rates(broker.port, min(records, 2_000_000), run.rounds)
            for _ in range(run.choose(PAIRS, 1)):
                with console(broker.port, run.cores.load, is_lowest=True) as (_, url):
                    page_ms(f"{url}/topics")
                    produce_ms(client, count // 10)
                    alone = p99(produce_ms(client, count))
                    with searched(url):
                        beside = p99(produce_ms(client, count))
                    searching_ms.append(beside)
                    shares.append(beside / alone)
    paid, idle_ms = paid_unseen(run, count)
    section.figures = [
        Figure.median("first page, cold", cold_ms, "ms", COLD_MS_MAX),
        Figure.median("first page, warm", warm_ms, "ms", WARM_MS_MAX),
        Figure("sheets and scripts", assets_kb(), "kB", ASSETS_KB_MAX),
        Figure.median("search", rates, "records/s", at_least=RECORDS_PER_S_MIN),
        Figure.median("p99 of produces while it searches", searching_ms, "ms"),
        Figure.median("the same, beside no search", shares, "", P99_SHARE_MAX),
        Figure.median("produces beside a console that nobody opened, and none", paid, "", PAID_SHARE_MAX),
        Figure.median("its processor time at rest, beyond that of one without", idle_ms, "ms/s"),
    ]
    return section
