"""The part `workers`: a broker of two processes, and three nodes under a controller of ours.

Measured are: two workers beside one, and beside Apache Kafka; the memory of a worker; how long a worker that
was killed is away; the same of a leader among three nodes, beside three brokers of Kafka; and how soon a new
cluster takes its first record.

Where there are two cores, the load needs one of them, and two workers share the other. So what is compared
there is how many requests they serve in a second of processor time.
"""

from __future__ import annotations

import contextlib
import os
import pathlib
import signal
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

import odradek
from benchmarks import brokers, cluster
from benchmarks.brokers import PATIENCE_S, READY_S, Running
from benchmarks.cases import BULK_S, Case, FetchCase, ProduceCase, settle
from benchmarks.cluster import Found, Trio
from benchmarks.comparison import Warming, measure_in_turn, run_case, trust, warm_compiler
from benchmarks.figures import Figure, Section
from benchmarks.frames import batch_of
from benchmarks.groups import GroupCase
from benchmarks.load import CorePinning, Pinning
from benchmarks.run import GIGABYTE, MEGABYTE, Run
from benchmarks.wire_client import PRODUCE_VERSION, WireClient, produce_request
from odradek.wire.errors import ErrorCode

WORKERS = 2
CONNECTIONS, BULK_CONNECTIONS = 50, 8
GROUPS = 16
FETCHED_BATCHES, FEW_BATCHES = 500, 20
SETTINGS = {"group.initial.rebalance.delay.ms": "0"}
FAILED_OVER_S, RESTARTED_S = 0.1, 0.5
WORKER_PSS_MB = 25
WORKER_BACK_S = 0.3
FIRST_RECORD_S = 1.2
LOOK_S = 0.001


def measure(run: Run, warming: Warming) -> Section:
    """Takes about 25 minutes."""
    run.need_room(run.choose(20 * GIGABYTE, GIGABYTE), "two workers beside Kafka")
    found = Section("Workers, and nodes under a controller of ours")
    places = Places.of_machine()
    found.notes = [
        f"{run.rounds} rounds, who goes first alternating; who is not measured is idle. {places.told()} "
        f"Workers are measured with {CONNECTIONS} connections to each ({FetchCase.CONNECTIONS} of fetches), "
        f"a partition of each, and {GROUPS} groups of each; the other side, a node without workers, has as "
        "many as one worker.",
        "Beside Kafka both have all cores, and the load, too; its connections are shared out evenly among "
        f"the workers. {warming.told()}",
        "PSS is RSS in which a page that several processes have counts in part. It is taken "
        f"{READY_S:g} s after the start, all idle; pages of files count in part for every program that runs "
        "the same Python.",
        "A worker or a node serves when it has acknowledged a record in a partition that has no other "
        "replica; a worker's time begins with its kill -9 and its parent forks the next one.",
        "The three nodes are under one controller of ours, the three brokers of Kafka under one of Kafka's; "
        "topics have three replicas and min.insync.replicas=2; all are on all cores. The gap is the longest "
        "time between two acknowledgements to a producer that sends one record at a time with acks=all and "
        "asks all brokers who leads as soon as it gets no answer. A node that was killed is started at once; "
        "its time counts from the start of the process, and tells besides when the node is in the ISR again.",
    ]
    for part in (scaling, beside_kafka, single_workers, three_nodes, first_records):
        if warming.only in part.__name__:
            outcomes, figures = part(run, warming, found.notes)
            found.outcomes += outcomes
            found.figures += figures
    return found


# -- two workers beside one node


@dataclass(frozen=True)
class Places:
    """The cores of one node, of two workers, and of the load."""

    node: int
    workers: tuple[int, ...]
    load: tuple[int, ...]

    @classmethod
    def of_machine(cls) -> Places:
        """Two cores for the workers, and two for the load, where there are four."""
        allowed = sorted(os.sched_getaffinity(0))
        if len(allowed) >= 2 * WORKERS:
            return cls(allowed[0], (allowed[0], allowed[2]), (allowed[1], allowed[3]))
        return cls(allowed[0], (allowed[0],), (allowed[1 % len(allowed)],))

    @property
    def are_shared(self) -> bool:
        """Whether the workers have no core each."""
        return len(self.workers) < WORKERS

    def told(self) -> str:
        if self.are_shared:
            return (
                "Two workers beside one: both workers together have one core, the node has the same one, and "
                "the load has another. The figure is two times the rate of both workers on that core, over "
                "that of the node; rates are requests in a second of the processor time that the server "
                "used. So it is what two free cores would give."
            )
        return (
            "Two workers beside one: two cores for the workers, one of them for the node, and two others for "
            "the load. The figure is the rate of the workers over that of the node."
        )


@dataclass
class OnEachWorker(Case):
    """The same case on each worker at the same time; rates are added. On a broker without workers it is that
    case alone."""

    make: Callable[[int], Case] | None = None
    """Makes the case of one worker out of so many."""
    by_processor_time: bool = False
    """The rate is that of a second of processor time of the server."""
    bulk: bool = False
    """See `settle`. The cases that it makes do not settle anything."""
    _cases: dict[str, list[Case]] = field(default_factory=dict)

    def prepare(self, broker: Running, work: pathlib.Path) -> None:
        assert self.make is not None
        self._cases[broker.name] = [self.make(len(broker.nodes)) for _ in broker.nodes]
        for node, case in zip(broker.nodes, self._cases[broker.name], strict=True):
            case.prepare(node, work)

    def measure(self, broker: Running, work: pathlib.Path, pinning: Pinning, seconds: float) -> float:
        if self.bulk:
            settle(work)
            seconds = BULK_S
        cases = self._cases[broker.name]
        before = broker.cpu_seconds()
        with ThreadPoolExecutor(len(cases)) as pool:
            measured = [
                pool.submit(case.measure, node, work, pinning, seconds)
                for node, case in zip(broker.nodes, cases, strict=True)
            ]
        rate = sum(one.result() for one in measured)
        spent_s = broker.cpu_seconds() - before
        self.watch.add_together([case.watch for case in cases])
        if not self.by_processor_time:
            return rate
        # What the loads sent before they measured is in the processor time as well, which is told in ticks.
        return rate * (seconds + cases[0].warm_up_s) / max(spent_s, 1 / os.sysconf("SC_CLK_TCK"))

    def clean_up(self, broker: Running) -> None:
        for node, case in zip(broker.nodes, self._cases.pop(broker.name), strict=True):
            case.clean_up(node)


def scaling_cases(batches: int, *, by_processor_time: bool) -> list[OnEachWorker]:
    """The load of one worker is that of a node without workers. Each worker has its own partition, or its own
    groups."""
    return [
        OnEachWorker(name, unit, at_least, make=make, by_processor_time=by_processor_time)
        for name, unit, at_least, make in (
            (
                f"one-record produce, {CONNECTIONS} connections",
                "requests/s",
                1.8,
                lambda _: ProduceCase("", connections=CONNECTIONS),
            ),
            (
                f"one-record produce, {CONNECTIONS} connections, 16 in flight",
                "requests/s",
                1.8,
                lambda _: ProduceCase("", connections=CONNECTIONS, depth=16),
            ),
            (
                f"OffsetCommit, {CONNECTIONS} connections, {GROUPS} groups",
                "requests/s",
                1.85,
                lambda _: GroupCase("", "requests/s", connections=CONNECTIONS, groups=GROUPS),
            ),
            (
                f"fetch of 1 MB batches, {FetchCase.CONNECTIONS} connections",
                "GB/s",
                1.9,
                lambda _: FetchCase("", "GB/s", rate=True, batches=batches),
            ),
        )
    ]


def scaling(run: Run, warming: Warming, notes: list[str]) -> Found:
    """Two workers over one node."""
    places = Places.of_machine()
    cases = scaling_cases(run.choose(FETCHED_BATCHES, FEW_BATCHES), by_processor_time=places.are_shared)
    figures = []
    with run.folder("workers") as folder, contextlib.ExitStack() as stack:

        def start(name: str, cores: brokers.Cores, workers: int) -> Running:
            node = brokers.Odradek(
                run.load_program, folder, cores, settings=SETTINGS, name=name, workers=workers
            )
            return stack.enter_context(node).running

        one, two = start("one", places.node, 1), start("two", places.workers, WORKERS)
        for case in cases:
            _, rates = measure_in_turn(case, one, two, run, CorePinning(places.load), warming)
            print(f"{case.name}: {rates}", flush=True)
            times = WORKERS if places.are_shared else 1
            ratios = [times * both / alone for both, alone in zip(rates["two"], rates["one"], strict=True)]
            what = f"two workers over one: {case.name}"
            figures.append(Figure.median(what, ratios, "x", at_least=case.at_least))
    notes += trust(cases, [])
    return [], figures


# -- two workers beside Kafka


def kafka_cases() -> list[OnEachWorker]:
    """The load is the same for both brokers."""
    return [
        OnEachWorker(
            f"two workers: one-record produce, {CONNECTIONS} connections",
            "requests/s",
            1.8,
            make=lambda workers: ProduceCase("", connections=CONNECTIONS // workers),
        ),
        OnEachWorker(
            f"two workers: produce of 16 KB batches, {BULK_CONNECTIONS} connections",
            "MB/s",
            1.6,
            make=lambda workers: ProduceCase(
                "", "MB/s", connections=BULK_CONNECTIONS // workers, batch_bytes=16_000
            ),
            bulk=True,
        ),
    ]


def beside_kafka(run: Run, warming: Warming, notes: list[str]) -> Found:
    """Both with all cores."""
    cases, pinning = kafka_cases(), CorePinning(None)
    with run.folder("workers") as folder, contextlib.ExitStack() as stack:
        theirs = stack.enter_context(brokers.kafka(run.load_program, folder, None))
        ours = stack.enter_context(brokers.Odradek(run.load_program, folder, None, workers=WORKERS))
        warm_compiler(theirs, folder, pinning, warming.compile_seconds)
        running = {"kafka": theirs, "odradek": ours.running}
        outcomes = [run_case(case, running, run, pinning, warming) for case in cases]
    notes += trust(cases, outcomes)
    return outcomes, []


# -- memory and death of a worker


def single_workers(run: Run, warming: Warming, notes: list[str]) -> Found:
    """PSS of each process of a broker with two workers, and how long one is away that was killed."""
    pss_mb: dict[str, list[float]] = {"the parent": [], "the first worker": [], "a further worker": []}
    away_s: dict[str, list[float]] = {"the further worker": [], "the first worker, the controller": []}
    for _ in range(run.rounds):
        with (
            run.folder("workers") as folder,
            brokers.Odradek(run.load_program, folder, None, workers=WORKERS) as broker,
        ):
            time.sleep(READY_S)
            running = broker.running
            first, further = running.nodes
            for sizes, process in zip(pss_mb.values(), (running, first, further), strict=True):
                sizes.append(process.pss_bytes() / MEGABYTE)
            for times, worker in zip(away_s.values(), (further, first), strict=True):
                times.append(_away_s(worker))
    limits = {"a further worker": WORKER_PSS_MB}
    return [], [
        *(Figure.median(f"PSS of {who}", sizes, "MB", limits.get(who)) for who, sizes in pss_mb.items()),
        *(
            Figure.median(f"kill -9 of {who}, until it serves again", times, "s", WORKER_BACK_S)
            for who, times in away_s.items()
        ),
    ]


def _away_s(worker: Running) -> float:
    topic = f"killed-{worker.name}"
    with WireClient("127.0.0.1", worker.port) as client:
        client.create_topics([topic], 1, at=worker.node_id)
    began = time.perf_counter()
    os.kill(worker.pid, signal.SIGKILL)
    # Until then an acknowledgement may be one of the process that is being killed.
    _wait_until_gone(worker.pid)
    wait_until_acknowledged(worker.port, topic)
    return time.perf_counter() - began


def _wait_until_gone(pid: int) -> None:
    deadline = time.perf_counter() + PATIENCE_S
    while pathlib.Path(f"/proc/{pid}").exists():
        assert time.perf_counter() < deadline, f"process {pid} survives kill -9"
        time.sleep(LOOK_S)


def wait_until_acknowledged(port: int, topic: str) -> None:
    """Returns when whoever is at this port has taken a record into partition 0, with acks=all; asks again as
    long as nobody is there, or it does not lead."""
    request, deadline = produce_request([topic], batch_of(1, 100), [0]), time.perf_counter() + PATIENCE_S
    while not _is_acknowledged(port, request):
        if time.perf_counter() > deadline:
            raise TimeoutError(f"{topic} takes no record after {PATIENCE_S:g} s")
        time.sleep(LOOK_S)


def _is_acknowledged(port: int, request: object) -> bool:
    try:
        with WireClient("127.0.0.1", port) as client:
            answer = client.call(request, PRODUCE_VERSION).responses[0].partition_responses[0]
    except OSError:
        return False
    return bool(answer.error_code == ErrorCode.NONE)


# -- three nodes


def three_nodes(run: Run, warming: Warming, notes: list[str]) -> Found:
    """Death of a leader and restart of a node, beside Kafka."""
    with cluster.trios(run, are_apart=True) as both:
        gaps = cluster.gap_values(run, both, signal.SIGKILL)
        serving: cluster.Values = {trio.name: [] for trio in both}
        in_sync: cluster.Values = {trio.name: [] for trio in both}
        for trio in cluster.in_turn(run, both):
            serves_s, in_sync_s = _restart_s(trio)
            serving[trio.name].append(serves_s)
            in_sync[trio.name].append(in_sync_s)
    rows = (
        ("kill -9 of a leader, until the next record with acks=all", gaps, FAILED_OVER_S),
        ("restart of a node at once after its kill -9, until it serves", serving, RESTARTED_S),
        ("the same, until it is in the ISR again", in_sync, None),
    )
    return [
        cluster.compared(f"three nodes: {what}", "s", values, None, lower=True) for what, values, _ in rows
    ], [
        Figure.median(f"odradek, three nodes: {what}", values["odradek"], "s", limit)
        for what, values, limit in rows
        if limit is not None
    ]


def _restart_s(trio: Trio) -> tuple[float, float]:
    """Seconds from the start of the process until the node serves, and until it is in the ISR."""
    lone, _ = trio.create(replicas=1)
    shared, _ = trio.create()
    node = trio.members[0]
    node.kill()
    began = time.perf_counter()
    node.launch()
    wait_until_acknowledged(node.port, lone)
    serves_s = time.perf_counter() - began
    # It serves, so its session before has ended: it is in the ISR anew.
    trio.wait_until_in_sync(shared, place=1)
    in_sync_s = time.perf_counter() - began
    node.wait_until_ready()
    trio.clean_up()
    return serves_s, in_sync_s


def first_records(run: Run, warming: Warming, notes: list[str]) -> Found:
    """From the call of odradek.Cluster until a record has three replicas."""
    times = [_first_record_s(run) for _ in range(run.rounds)]
    what = "odradek.Cluster(nodes=3): from the call to the first record with acks=all"
    return [], [Figure.median(what, times, "s", FIRST_RECORD_S)]


def _first_record_s(run: Run) -> float:
    with run.folder("cluster") as folder:
        began = time.perf_counter()
        with odradek.Cluster(nodes=3, data_dir=folder / "data") as made:
            leader = made.nodes[0]
            with WireClient("127.0.0.1", leader.port) as client:
                client.create_placed(["first"], [[node.node_id for node in made.nodes]])
            wait_until_acknowledged(leader.port, "first")
            return time.perf_counter() - began
