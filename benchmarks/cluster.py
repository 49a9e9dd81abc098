"""The part `cluster`: three brokers of Apache Kafka and three nodes of ours under one of Kafka's controllers.

All brokers share the server's core, so that rates are those of one core and not of as many as there are
brokers; the controller shares the load's. While the brokers of one kind are measured, the others are idle.
Measured are: produces with acks=all to three replicas, one at a time and many; the processor time of
followers; how fast a follower that was away catches up; how long nobody can produce when a leader is killed
or stopped; the start of a node; and ten thousand partitions.
"""

from __future__ import annotations

import contextlib
import os
import pathlib
import signal
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from benchmarks.brokers import DELETE_DELAY, KAFKA_JVM, PATIENCE_S, Running, cpu_seconds, pinned
from benchmarks.comparison import Warming, is_warm
from benchmarks.figures import Figure, Outcome, Section
from benchmarks.frames import batch_of, produce_frame, write_frames
from benchmarks.load import run_load
from benchmarks.run import GIGABYTE, MEGABYTE, Run
from benchmarks.wire_client import Pipeline, WireClient, produce_request
from compat_tests.quorum import Controllers, KafkaMember, OdradekMember
from odradek.wire.errors import ErrorCode
from odradek.wire.messages.delete_topics import DeleteTopicsRequest
from odradek.wire.messages.metadata import MetadataRequest, MetadataRequestTopic

Member = OdradekMember | KafkaMember

KAFKA_IDS, OUR_IDS = (1, 2, 3), (11, 12, 13)
SETTINGS = {DELETE_DELAY: "100", "min.insync.replicas": "2", "offsets.topic.num.partitions": "1"}
CONTROLLER_SESSION_MS = 9_000
"""`broker.session.timeout.ms` by default: a broker that was killed leads so long."""
MANY_PARTITIONS, FEW_PARTITIONS = 10_000, 30
PARTITIONS_PER_TOPIC = 100
LOOK_S = 0.005
FOLLOWER_BATCH_BYTES = 100_000
WARM_UP_S = 2.0
JVM = [option for option in KAFKA_JVM if not option.startswith("-Xm")] + ["-Xms512m", "-Xmx512m"]


@dataclass
class Trio:
    """Three brokers of one kind. The first one leads what is measured."""

    name: str
    members: Sequence[Member]
    load_program: pathlib.Path
    topics: list[str] = field(default_factory=list)

    @property
    def ids(self) -> list[int]:
        return [one.node_id for one in self.members]

    def running(self, place: int = 0) -> Running:
        member = self.members[place]
        return Running(self.name, member.pid, member.port, self.load_program)

    def create(
        self,
        partitions: int = 1,
        *,
        replicas: int = 3,
        turning: bool = False,
        configs: Mapping[str, str] = {},
    ) -> tuple[str, bytes]:
        """A topic whose replicas are all in sync: its name and id. `turning`: the brokers lead in turn."""
        name = f"bench-{self.name}-{time.monotonic_ns()}"
        self.topics.append(name)
        placed = [self._replicas(index * turning)[:replicas] for index in range(partitions)]
        with WireClient("127.0.0.1", self.members[0].port) as client:
            ids = client.create_placed([name], placed, configs)
        self.wait_until_in_sync(name, replicas)
        return name, ids[name]

    def wait_until_in_sync(self, name: str, replicas: int = 3, place: int = 0) -> float:
        """Returns after how many seconds the member at that place names all replicas in sync."""
        with WireClient("127.0.0.1", self.members[place].port) as client:
            return wait_until(
                lambda: self._is_in_sync(client, name, replicas), f"all replicas of {name} are in sync"
            )

    def _replicas(self, first: int) -> list[int]:
        ids, start = self.ids, first % len(self.members)
        return ids[start:] + ids[:start]

    @staticmethod
    def _is_in_sync(client: WireClient, name: str, replicas: int) -> bool:
        (topic,) = client.call(MetadataRequest(topics=[MetadataRequestTopic(name=name)]), 9).topics
        return topic.error_code == 0 and all(
            one.error_code == 0 and len(one.isr_nodes) == replicas for one in topic.partitions
        )

    def clean_up(self) -> None:
        """Deletes what `create` made. The first broker may be down."""
        names, self.topics = self.topics, []
        with WireClient("127.0.0.1", self.members[-1].port) as client:
            client.call(DeleteTopicsRequest(topic_names=names, timeout_ms=60_000), 5)


def wait_until(condition: Callable[[], bool], what: str, seconds: float = PATIENCE_S) -> float:
    """Returns after how many seconds it holds."""
    began = time.perf_counter()
    while not condition():
        if time.perf_counter() - began > seconds:
            raise TimeoutError(f"after {seconds:g} s not yet: {what}")
        time.sleep(LOOK_S)
    return time.perf_counter() - began


class OurControllers(Controllers):
    """One controller of ours."""

    are_ours = True


@contextlib.contextmanager
def trios(run: Run, *, are_apart: bool = False) -> Iterator[tuple[Trio, Trio]]:
    """Kafka's and ours under one controller of Kafka, on a core for the brokers and one for the controller.
    `are_apart`: ours under a controller of ours, and all on all cores."""
    server, load = ([], []) if are_apart else (pinned([], run.cores.server), pinned([], run.cores.load))
    with run.folder("cluster") as folder, contextlib.ExitStack() as stack:
        controllers = stack.enter_context(Controllers(prefix=load, parent=folder))
        our_controllers = controllers
        if are_apart:
            our_controllers = stack.enter_context(OurControllers(prefix=load, parent=folder))
        kafka = [
            KafkaMember(
                controllers, node_id, SETTINGS, jvm=JVM, prefix=server, parent=folder, is_fast_to_start=False
            )
            for node_id in KAFKA_IDS
        ]
        ours = [
            OdradekMember(our_controllers, node_id, SETTINGS, prefix=server, parent=folder)
            for node_id in OUR_IDS
        ]
        for member in [*kafka, *ours]:
            stack.enter_context(member)
        yield Trio("kafka", kafka, run.load_program), Trio("odradek", ours, run.load_program)


def measure(run: Run, warming: Warming) -> Section:
    """Takes about 25 minutes."""
    room_bytes = run.choose(20 * GIGABYTE, GIGABYTE)
    run.need_room(room_bytes, "two clusters of three brokers")
    found = Section("Three brokers")
    found.notes = [
        "Three brokers of Apache Kafka and three nodes of ours under one of Kafka's controllers. All brokers "
        "share one core, the controller and the load another: a rate is what one core gives, for the leader "
        f"and both followers. Topics have three replicas and min.insync.replicas=2. {run.rounds} rounds, who "
        "goes first alternating.",
        warming.told(),
        "A gap is the longest time between two acknowledgements to a producer that sends one record at a "
        "time with acks=all and asks all brokers who leads as soon as it gets no answer. A broker that was "
        "killed is taken for alive until its session ends, "
        f"{CONTROLLER_SESSION_MS / 1000:g} s after its last heartbeat.",
        "Serving means: another broker names the node in its metadata. The process starts after the session "
        "of the last one has ended, as controllers refuse its registration until then.",
    ]
    with trios(run) as (kafka, ours):
        both = (kafka, ours)
        parts = (one_at_a_time, many_at_once, followers, catching_up, gaps, starts, many_partitions)
        for part in parts:
            if warming.only in part.__name__:
                outcomes, figures = part(run, both, warming)
                for outcome in outcomes:
                    print(f"{outcome.case}: {outcome.kafka} {outcome.odradek}", flush=True)
                found.outcomes += outcomes
                found.figures += figures
                for trio in both:
                    trio.clean_up()
    return found


Found = tuple[list[Outcome], list[Figure]]
Both = tuple[Trio, Trio]
Values = dict[str, list[float]]


def in_turn(run: Run, both: Both) -> Iterator[Trio]:
    """Each trio once a round."""
    for turn in range(run.rounds):
        yield from both if turn % 2 == 0 else reversed(both)


def warm(trio: Trio, warming: Warming, measure_once: Callable[[], float]) -> bool:
    """Measures until it does not get better any more; whether it came to that."""
    seen: list[float] = []
    while len(seen) < warming.rounds:
        seen.append(measure_once())
        if is_warm(seen):
            return True
    return False


def compared(
    case: str, unit: str, values: Values, at_least: float | None, *, lower: bool, is_warm: bool = True
) -> Outcome:
    return Outcome(case, unit, lower, at_least, values["kafka"], values["odradek"], is_warm)


class _Produces:
    """The load in C against one topic of a trio."""

    def __init__(self, run: Run, trio: Trio, batch_bytes: int, *arguments: str, replicas: int = 3) -> None:
        self.run, self.trio = run, trio
        self.name, topic_id = trio.create(replicas=replicas)
        self.batch_bytes = batch_bytes
        self._arguments = arguments
        self._frames = run.work / f"{self.name}.frames"
        batch = batch_of(max(1, batch_bytes // 1000), min(batch_bytes, 1000))
        write_frames(self._frames, [produce_frame(self.name, topic_id, 0, batch)])

    def measure(self, seconds: float) -> dict[str, float]:
        arguments = [*self._arguments, "-s", str(seconds), "-w", "0.5"]
        return run_load(self.trio.running(), self.run.load_pinning, self._frames, *arguments)

    def rate(self, seconds: float) -> float:
        found = self.measure(seconds)
        return found["requests"] / found["seconds"]


def one_at_a_time(run: Run, both: Both, warming: Warming) -> Found:
    """p50 and p99 of one record at a time."""
    loads = {trio.name: _Produces(run, trio, 100, "-c", "1", "-d", "1") for trio in both}
    is_kafka_warm = warm(both[0], warming, lambda: loads["kafka"].rate(WARM_UP_S))
    p50: Values = {trio.name: [] for trio in both}
    p99: Values = {trio.name: [] for trio in both}
    for trio in in_turn(run, both):
        found = loads[trio.name].measure(run.seconds)
        p50[trio.name].append(found["p50_us"] / 1000)
        p99[trio.name].append(found["p99_us"] / 1000)
    case = "acks=all, three replicas, one record at a time"
    return [
        compared(f"{case}: {what}", "ms", values, 0.7, lower=True, is_warm=is_kafka_warm)
        for what, values in (("p50", p50), ("p99", p99))
    ], []


def many_at_once(run: Run, both: Both, warming: Warming) -> Found:
    """Rates with three replicas, and ours beside one replica."""
    outcomes, figures = [], []
    for case, batch_bytes, arguments in (
        ("one record, 50 connections", 100, ("-c", "50", "-d", "1")),
        ("16 KB batches, 8 connections", 16_000, ("-c", "8", "-d", "1")),
    ):
        rates: dict[int, Values] = {}
        is_kafka_warm = True
        for replicas in (3, 1):
            loads = {
                trio.name: _Produces(run, trio, batch_bytes, *arguments, replicas=replicas) for trio in both
            }
            is_kafka_warm &= warm(both[0], warming, lambda loads=loads: loads["kafka"].rate(WARM_UP_S))  # type: ignore[misc]
            rates[replicas] = {trio.name: [] for trio in both}
            for trio in in_turn(run, both):
                rates[replicas][trio.name].append(loads[trio.name].rate(run.seconds))
            for trio in both:
                trio.clean_up()
        outcomes.append(
            compared(
                f"acks=all, three replicas, {case}",
                "requests/s",
                rates[3],
                2.0,
                lower=False,
                is_warm=is_kafka_warm,
            )
        )
        for trio in both:
            share = statistics.median(rates[3][trio.name]) / statistics.median(rates[1][trio.name])
            figures.append(Figure(f"{trio.name}: rate with three replicas beside one, {case}", share, ""))
    return outcomes, figures


def followers(run: Run, both: Both, warming: Warming) -> Found:
    """Processor time of a follower for a gigabyte that it takes."""
    costs: Values = {trio.name: [] for trio in both}
    loads = {trio.name: _Produces(run, trio, FOLLOWER_BATCH_BYTES, "-c", "8", "-d", "1") for trio in both}
    warm(both[0], warming, lambda: loads["kafka"].rate(WARM_UP_S))
    for trio in in_turn(run, both):
        before = [cpu_seconds(one.pid) for one in trio.members[1:]]
        found = loads[trio.name].measure(run.seconds)
        spent = sum(cpu_seconds(one.pid) for one in trio.members[1:]) - sum(before)
        # The load's half second of warming up is sent as well.
        gigabytes = found["bytes_sent"] * (1 + 0.5 / found["seconds"]) / GIGABYTE
        costs[trio.name].append(spent / 2 / gigabytes)
    outcome = compared("a follower's processor time for a gigabyte", "s", costs, None, lower=True)
    return [outcome], [Figure.median("odradek: " + outcome.case, costs["odradek"], "s", 0.7)]


def catching_up(run: Run, both: Both, warming: Warming) -> Found:
    """How fast a follower takes what it has missed."""
    size_bytes = run.choose(2 * GIGABYTE, 20 * MEGABYTE)
    rates: Values = {trio.name: [] for trio in both}
    batch = batch_of(900, 1000)
    for trio in in_turn(run, both):
        away = trio.members[2]
        name, _ = trio.create()
        away.stop()
        with Pipeline("127.0.0.1", trio.members[0].port) as pipeline:
            for _ in range(size_bytes // len(batch)):
                pipeline.write(name, batch)
        os.sync()
        away.start()
        log = away.data_dir / f"{name}-0"
        wait_until(lambda log=log: _size_of(log) > 0, "the follower fetches")  # type: ignore[misc]
        took = wait_until(
            lambda log=log: _size_of(log) >= size_bytes // len(batch) * len(batch), "it has all"
        )  # type: ignore[misc]
        rates[trio.name].append(size_bytes / took / GIGABYTE)
        trio.clean_up()
    outcome = compared("a follower catches up", "GB/s", rates, 1.0, lower=False)
    return [outcome], []


def _size_of(log: pathlib.Path) -> int:
    """Bytes of records; Kafka's indexes are not among them."""
    with contextlib.suppress(FileNotFoundError):
        return sum(one.stat().st_size for one in log.glob("*.log"))
    return 0


def gaps(run: Run, both: Both, warming: Warming) -> Found:
    """The longest time without an acknowledgement when the leader is killed, and when it is stopped."""
    outcomes = []
    for case, how in (("is killed", signal.SIGKILL), ("is stopped", signal.SIGTERM)):
        values = gap_values(run, both, how)
        outcomes.append(compared(f"nobody can produce when the leader {case}", "s", values, 1.0, lower=True))
    return outcomes, []


def gap_values(run: Run, both: Both, how: signal.Signals) -> Values:
    """Seconds without an acknowledgement when the leader gets this signal, once a round."""
    values: Values = {trio.name: [] for trio in both}
    for trio in in_turn(run, both):
        name, _ = trio.create()
        values[trio.name].append(_gap(trio, name, how))
        trio.members[0].start()
        trio.wait_until_in_sync(name, place=1)
        trio.clean_up()
    return values


def _gap(trio: Trio, name: str, how: signal.Signals) -> float:
    batch = batch_of(1, 100)
    producer = _LeaderFinder(trio, name)
    for _ in range(200):
        producer.produce(batch)
    leader = trio.members[0]
    os.kill(leader.pid, how)
    longest, last = 0.0, time.perf_counter()
    deadline = last + 4 * CONTROLLER_SESSION_MS / 1000
    after = 0
    while after < 200:
        if time.perf_counter() > deadline:
            raise TimeoutError(f"{name} has no leader again")
        if producer.produce(batch):
            now = time.perf_counter()
            longest, last = max(longest, now - last), now
            after += producer.leader_id != leader.node_id
    producer.close()
    leader.stop()
    return longest


class _LeaderFinder:
    """Sends one record at a time to whoever leads."""

    def __init__(self, trio: Trio, name: str) -> None:
        self._trio, self._name = trio, name
        self._client: WireClient | None = None
        self.leader_id = -1

    def produce(self, batch: bytes) -> bool:
        """Whether it was acknowledged."""
        try:
            if self._client is None:
                self._client = self._find()
            if self._client is not None:
                request = produce_request([self._name], batch, [0])
                answer = self._client.call(request, 9).responses[0].partition_responses[0]
                if answer.error_code == ErrorCode.NONE:
                    return True
        except OSError:
            pass
        self.close()
        return False

    def _find(self) -> WireClient | None:
        for member in self._trio.members[1:]:
            with contextlib.suppress(OSError), WireClient("127.0.0.1", member.port) as asked:
                wanted = MetadataRequest(topics=[MetadataRequestTopic(name=self._name)])
                (topic,) = asked.call(wanted, 9).topics
                self.leader_id = topic.partitions[0].leader_id
                for one in self._trio.members:
                    if one.node_id == self.leader_id:
                        return WireClient("127.0.0.1", one.port)
        time.sleep(LOOK_S)
        return None

    def close(self) -> None:
        if self._client is not None:
            self._client.__exit__()
            self._client = None


def starts(run: Run, both: Both, warming: Warming) -> Found:
    """From the start of the process until another broker names it."""
    values: Values = {trio.name: [] for trio in both}
    for trio in in_turn(run, both):
        started = trio.members[2]
        started.stop()
        with WireClient("127.0.0.1", trio.members[0].port) as client:
            _wait_for_name(client, started.node_id, is_named=False)
            # A controller refuses the next registration while the session of the last one lasts.
            time.sleep(run.choose(CONTROLLER_SESSION_MS / 1000 + 1, 0))
            began = time.perf_counter()
            started.launch()
            _wait_for_name(client, started.node_id, is_named=True)
            values[trio.name].append(time.perf_counter() - began)
        started.wait_until_ready()
    outcome = compared("from exec to serving", "s", values, None, lower=True)
    return [outcome], [Figure.median("odradek: " + outcome.case, values["odradek"], "s", 0.5)]


def _wait_for_name(client: WireClient, node_id: int, *, is_named: bool) -> None:
    """Until a broker names that one, or does not any more."""

    def found() -> bool:
        brokers = client.call(MetadataRequest(topics=[]), 9).brokers
        return any(one.node_id == node_id for one in brokers) == is_named

    wait_until(found, f"broker {node_id} is {'there' if is_named else 'gone'}")


def many_partitions(run: Run, both: Both, warming: Warming) -> Found:
    """Ten thousand partitions of three replicas each: made, their leaders changed, and the memory. The first
    broker of each kind is down afterwards: Kafka may need longer than a minute for its next start."""
    count = run.choose(MANY_PARTITIONS, FEW_PARTITIONS)
    per_topic = min(PARTITIONS_PER_TOPIC, count)
    made: Values = {trio.name: [] for trio in both}
    moved: Values = {trio.name: [] for trio in both}
    memory: Values = {trio.name: [] for trio in both}
    for trio in both:
        bare = trio.running(1).rss_bytes()
        began = time.perf_counter()
        for _ in range(count // per_topic):
            trio.create(per_topic, turning=True)
        made[trio.name].append(time.perf_counter() - began)
        memory[trio.name].append((trio.running(1).rss_bytes() - bare) / MEGABYTE)
        leaving = trio.members[0]
        with WireClient("127.0.0.1", trio.members[1].port) as client:
            began = time.perf_counter()
            # `stop` would kill it after 30 s.
            os.kill(leaving.pid, signal.SIGTERM)
            wait_until(
                lambda client=client, leaving=leaving: not _leads(client, leaving.node_id), "others lead"
            )  # type: ignore[misc]
            moved[trio.name].append(time.perf_counter() - began)
        leaving.kill()
        trio.clean_up()
    case = f"{count:,} partitions of three replicas"
    return [
        compared(f"{case}: until all are in sync", "s", made, 1.0, lower=True),
        compared(f"{case}: SIGTERM until others lead", "s", moved, 1.0, lower=True),
        compared(f"{case}: memory that a node takes for them", "MB", memory, 1.0, lower=True),
    ], []


def _leads(client: WireClient, node_id: int) -> bool:
    topics = client.call(MetadataRequest(topics=None), 9).topics
    return any(one.leader_id in (node_id, -1) for topic in topics for one in topic.partitions)
