"""The part `groups`: consumer groups beside Apache Kafka.

Commits, fetches of offsets and heartbeats in a closed loop; how long groups of a hundred and a thousand
members take to become stable, at first and after one has left; ten thousand groups of one member; a million
committed offsets: memory, and the time until they are loaded at a start.
"""

from __future__ import annotations

import contextlib
import itertools
import pathlib
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from benchmarks import brokers
from benchmarks.cases import WARM_UP_S, Case
from benchmarks.comparison import Warming, run_case, warm_compiler
from benchmarks.figures import Figure, Growth, Outcome, Section
from benchmarks.frames import CLIENT_ID, Frame, write_frames
from benchmarks.group_load import (
    CLASSIC,
    CONSUMER,
    HEARTBEAT_S,
    Group,
    coordinator,
    lone_member,
    wait_for_coordinator,
)
from benchmarks.load import PATIENCE_S, Pinning, run_load
from benchmarks.run import Run
from benchmarks.wire_client import WireClient
from compat_tests.reference import Kafka
from odradek.config.option import REFUSED
from odradek.config.options import BROKER_OPTIONS
from odradek.wire.errors import ErrorCode
from odradek.wire.frames import request_frame, response_parts
from odradek.wire.messages.api_versions import ApiVersionsRequest
from odradek.wire.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from odradek.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from odradek.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from odradek.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopics,
)
from odradek.wire.schema import Message

CONNECTIONS = 50
FASTER, LEVEL = 1.3, 1.0
MEMBERS, FEW_MEMBERS = (10, 100, 1000), (2, 4)
LONE_GROUPS, FEW_LONE_GROUPS = 10_000, 40
HEARTBEAT_INTERVAL_S = 3.0
"""Of the members of those: what clients have by default."""
OFFSETS, FEW_OFFSETS = (100_000, 300_000, 1_000_000), (1_000, 2_000)
OFFSETS_A_GROUP = 1000
COMMIT, FETCH, HEARTBEAT, CONSUMER_HEARTBEAT = 9, 9, 4, 1
"""Versions."""
A_CODE = 0x0101
"""An error code of which every byte differs from that of none."""

SETTINGS = {
    "group.initial.rebalance.delay.ms": "0",
    "group.consumer.min.session.timeout.ms": "600000",
    "group.consumer.max.session.timeout.ms": "1800000",
    "group.consumer.session.timeout.ms": "1800000",
    "group.consumer.assignment.interval.ms": "0",
}
"""Members that are not heard of for a while stay; a new assignment is not held back to be made of more."""


def our_settings() -> dict[str, str]:
    """Those that are not refused as not built yet."""
    return {name: value for name, value in SETTINGS.items() if BROKER_OPTIONS[name].standing != REFUSED}


def measure(run: Run, warming: Warming) -> Section:
    """Takes about 25 minutes."""
    found = Section("Consumer groups")
    found.notes = [
        f"{run.rounds} measurements of {run.seconds:g} s for each case and broker, each broker on one core, "
        f"the load on another. Requests are of versions that clients of today send: OffsetCommit {COMMIT} "
        f"and OffsetFetch {FETCH} of one partition, Heartbeat {HEARTBEAT}, ConsumerGroupHeartbeat "
        f"{CONSUMER_HEARTBEAT}; each connection has a group of its own with one member.",
        warming.told(),
        f"A group is stable when all its members have synced in one generation, or have their partitions in "
        f"one epoch. Members have a connection each and a heartbeat every {HEARTBEAT_S:g} s, by which they "
        "hear of a rebalance; there is no initial delay (group.initial.rebalance.delay.ms=0) and one "
        "partition for each member.",
        "Ten thousand groups are made by one connection, one after the other; then each member heartbeats "
        f"every {HEARTBEAT_INTERVAL_S:g} s, over {CONNECTIONS} connections.",
    ]
    stabilizing = Growth("group-members", "A group becomes stable", "members")
    loading = Growth("group-offsets", "Loading committed offsets", "offsets, a thousand in each group")
    with run.folder("groups") as folder, contextlib.ExitStack() as stack:
        running = {
            "kafka": stack.enter_context(
                brokers.kafka(run.load_program, folder, run.cores.server, settings=SETTINGS)
            ),
            "odradek": stack.enter_context(run.odradek(folder, our_settings())).running,
        }
        protocols = [CLASSIC, *([CONSUMER] if serves_new_protocol(running["odradek"]) else [])]
        warm_compiler(running["kafka"], folder, run.load_pinning, warming.compile_seconds)
        for case in all_cases(protocols):
            if warming.only in case.name:
                found.outcomes.append(run_case(case, running, run, run.load_pinning, warming))
        if warming.only:
            return found
        with run.on_core(run.cores.load):
            for protocol in protocols:
                found.outcomes += stable_times(run, running, protocol, stabilizing)
                found.outcomes += lone_groups(run, running, protocol, folder)
    outcomes, figures = committed_offsets(run, loading)
    found.outcomes += outcomes
    found.figures += figures
    found.growths = [stabilizing, loading]
    return found


def serves_new_protocol(broker: brokers.Running) -> bool:
    with WireClient("127.0.0.1", broker.port) as client:
        told = client.call(ApiVersionsRequest(client_software_name="bench", client_software_version="1"), 3)
    return any(api.api_key == ConsumerGroupHeartbeatRequest.api_key for api in told.api_keys)


# -- one request after the other


def all_cases(protocols: Iterable[str]) -> list[Case]:
    cases: list[Case] = []
    for what in ("OffsetCommit", "OffsetFetch", "Heartbeat", "ConsumerGroupHeartbeat"):
        protocol = CONSUMER if what == "ConsumerGroupHeartbeat" else CLASSIC
        if protocol not in protocols:
            continue
        for connections in (1, CONNECTIONS):
            cases.append(
                GroupCase(
                    name=f"{what}, {connections} connection{'s' * (connections > 1)}",
                    unit="requests/s",
                    at_least=FASTER,
                    what=what,
                    protocol=protocol,
                    connections=connections,
                )
            )
    return cases


@dataclass(frozen=True)
class Member:
    """Of a group of its own."""

    group: str
    member_id: str
    generation: int


def error_position(answer: Callable[[int], Message], version: int) -> int:
    """Where an answer has its error code, counted from the byte after its length; all its strings must be as
    long as those that come."""
    one, other = (b"".join(response_parts(answer(code), version, 0)) for code in (0, A_CODE))
    return next(at for at, (left, right) in enumerate(zip(one, other, strict=True)) if left != right) - 4


def commit_frame(member: Member, topic: str) -> Frame:
    partition = OffsetCommitRequestPartition(
        partition_index=0, committed_offset=1_000_000, committed_leader_epoch=0, committed_metadata=""
    )
    request = OffsetCommitRequest(
        group_id=member.group,
        generation_id_or_member_epoch=member.generation,
        member_id=member.member_id,
        topics=[OffsetCommitRequestTopic(name=topic, partitions=[partition])],
    )

    def answer(code: int) -> Message:
        told = [OffsetCommitResponsePartition(partition_index=0, error_code=code)]
        return OffsetCommitResponse(
            throttle_time_ms=0, topics=[OffsetCommitResponseTopic(name=topic, partitions=told)]
        )

    return _frame(request, COMMIT, answer)


def fetch_frame(member: Member, topic: str) -> Frame:
    asked = [OffsetFetchRequestTopics(name=topic, partition_indexes=[0])]
    # A classic member asks without its generation, and what is committed must be told to anybody.
    request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=member.group, topics=asked)])

    def answer(code: int) -> Message:
        told = [
            OffsetFetchResponsePartitions(
                partition_index=0, committed_offset=1_000_000, metadata="", error_code=code
            )
        ]
        topics = [OffsetFetchResponseTopics(name=topic, partitions=told)]
        group = OffsetFetchResponseGroup(group_id=member.group, topics=topics, error_code=0)
        return OffsetFetchResponse(throttle_time_ms=0, groups=[group])

    return _frame(request, FETCH, answer)


def heartbeat_frame(member: Member, topic: str) -> Frame:
    request = HeartbeatRequest(
        group_id=member.group, generation_id=member.generation, member_id=member.member_id
    )
    return _frame(request, HEARTBEAT, lambda code: HeartbeatResponse(throttle_time_ms=0, error_code=code))


def consumer_heartbeat_frame(member: Member, topic: str) -> Frame:
    request = ConsumerGroupHeartbeatRequest(
        group_id=member.group, member_id=member.member_id, member_epoch=member.generation
    )

    def answer(code: int) -> Message:
        return ConsumerGroupHeartbeatResponse(
            throttle_time_ms=0,
            error_code=code,
            member_id=member.member_id,
            member_epoch=member.generation,
            heartbeat_interval_ms=5000,
        )

    return _frame(request, CONSUMER_HEARTBEAT, answer)


def _frame(request: Message, version: int, answer: Callable[[int], Message]) -> Frame:
    return Frame(request_frame(request, version, 0, CLIENT_ID), -1, error_position(answer, version), 0)


FRAMES: Mapping[str, Callable[[Member, str], Frame]] = {
    "OffsetCommit": commit_frame,
    "OffsetFetch": fetch_frame,
    "Heartbeat": heartbeat_frame,
    "ConsumerGroupHeartbeat": consumer_heartbeat_frame,
}


@dataclass
class GroupCase(Case):
    """One kind of request in a closed loop, from the member of a stable group on each connection."""

    warm_up_s: ClassVar[float] = WARM_UP_S

    what: str = "OffsetCommit"
    protocol: str = CLASSIC
    connections: int = 1
    groups: int | None = None
    """None: as many as connections."""
    topic: str = field(default_factory=lambda: f"bench-groups-{time.monotonic_ns()}")

    def prepare(self, broker: brokers.Running, work: pathlib.Path) -> None:
        with WireClient("127.0.0.1", broker.port) as client:
            client.create_topics([self.topic], 1, at=broker.node_id)
            wanted = self.groups or self.connections
            members = [self._member(client, group) for group in self._groups(broker, client, wanted)]
            if self.what == "OffsetFetch":
                for member in members:
                    commit(client, member.group, self.topic, [0], member)
        frames = [FRAMES[self.what](member, self.topic) for member in members]
        write_frames(self._path(broker, work), frames)

    def _groups(self, broker: brokers.Running, client: WireClient, wanted: int) -> Iterator[str]:
        """Names of so many whose coordinator this broker is."""
        names = (f"{self.topic}-{number}" for number in itertools.count())
        is_here = (name for name in names if broker.node_id in (None, coordinator(client, name)))
        return itertools.islice(is_here, wanted)

    def _member(self, client: WireClient, group: str) -> Member:
        wait_for_coordinator(client, group)
        return Member(group, *lone_member(client, group, self.topic, self.protocol))

    def _path(self, broker: brokers.Running, work: pathlib.Path) -> pathlib.Path:
        return work / f"{broker.name}-{self.what}.frames"

    def measure(self, broker: brokers.Running, work: pathlib.Path, pinning: Pinning, seconds: float) -> float:
        arguments = ["-c", str(self.connections), "-s", str(seconds), "-w", str(self.warm_up_s)]
        result = self.watch.add(run_load(broker, pinning, self._path(broker, work), *arguments))
        return result["requests"] / result["seconds"]

    def clean_up(self, broker: brokers.Running) -> None:
        with WireClient("127.0.0.1", broker.port) as client:
            client.delete_topics([self.topic])


def commit(
    client: WireClient, group: str, topic: str, partitions: Iterable[int], member: Member | None = None
) -> None:
    """A million for each partition."""
    parts = [
        OffsetCommitRequestPartition(
            partition_index=number, committed_offset=1_000_000, committed_metadata=""
        )
        for number in partitions
    ]
    request = OffsetCommitRequest(
        group_id=group,
        generation_id_or_member_epoch=-1 if member is None else member.generation,
        member_id="" if member is None else member.member_id,
        topics=[OffsetCommitRequestTopic(name=topic, partitions=parts)],
    )
    answer = client.call(request, COMMIT)
    codes = {one.error_code for told in answer.topics for one in told.partitions}
    assert codes == {0}, codes


# -- many members


def stable_times(
    run: Run, running: Mapping[str, brokers.Running], protocol: str, growth: Growth
) -> list[Outcome]:
    """Of groups of each size: after the start, and after one has left."""
    outcomes = []
    for count in run.choose(MEMBERS, FEW_MEMBERS):
        times: dict[tuple[str, str], list[float]] = {}
        for turn in range(run.rounds):
            names = ("kafka", "odradek") if turn % 2 == 0 else ("odradek", "kafka")
            for name in names:
                start_s, leave_s = one_group(running[name].port, protocol, count)
                times.setdefault((name, "start"), []).append(start_s)
                times.setdefault((name, "leave"), []).append(leave_s)
        for moment, said in (("start", "all join"), ("leave", "one leaves")):
            theirs, ours = (times[name, moment] for name in ("kafka", "odradek"))
            outcomes.append(
                Outcome(f"{protocol}: {count:,} members stable after {said}", "s", True, None, theirs, ours)
            )
            growth.add(f"{protocol}, {said}", count, ours, "s")
    return outcomes


def one_group(port: int, protocol: str, count: int) -> tuple[float, float]:
    name = f"bench-members-{time.monotonic_ns()}"
    with WireClient("127.0.0.1", port) as client:
        client.create_topics([name], count)
        wait_for_coordinator(client, name)
        with Group(port, name, name, protocol, count) as group:
            times = group.start_s(), group.leave_s()
        client.delete_topics([name])
    return times


def lone_groups(
    run: Run, running: Mapping[str, brokers.Running], protocol: str, folder: pathlib.Path
) -> list[Outcome]:
    """Ten thousand groups of one member each: to make them, and what their heartbeats cost the broker."""
    count = run.choose(LONE_GROUPS, FEW_LONE_GROUPS)
    make_s: dict[str, list[float]] = {}
    busy: dict[str, list[float]] = {}
    memory: dict[str, list[float]] = {}
    for name, broker in running.items():
        topic = f"bench-lone-{time.monotonic_ns()}"
        before = broker.rss_bytes()
        with WireClient("127.0.0.1", broker.port) as client:
            client.create_topics([topic], 1)
            wait_for_coordinator(client, topic)
            began = time.perf_counter()
            members = [
                Member(group, *lone_member(client, group, topic, protocol))
                for group in (f"{topic}-{number}" for number in range(count))
            ]
            make_s[name] = [time.perf_counter() - began]
        memory[name] = [(broker.rss_bytes() - before) / count]
        kind = "Heartbeat" if protocol == CLASSIC else "ConsumerGroupHeartbeat"
        frames = folder / f"{name}-lone.frames"
        write_frames(frames, [FRAMES[kind](member, topic) for member in members])
        busy[name] = [
            heartbeat_share(run, broker, frames, count / HEARTBEAT_INTERVAL_S) for _ in range(run.rounds)
        ]
    what = f"{protocol}: {count:,} groups of one member"
    return [
        Outcome(f"{what}, made one after the other", "s", True, None, make_s["kafka"], make_s["odradek"]),
        Outcome(f"{what}: RSS of each", "bytes", True, None, memory["kafka"], memory["odradek"]),
        Outcome(f"{what}: CPU of their heartbeats", "%", True, LEVEL, busy["kafka"], busy["odradek"]),
    ]


def heartbeat_share(run: Run, broker: brokers.Running, frames: pathlib.Path, rate: float) -> float:
    """How much of its core the broker spends on so many a second, in percent."""
    before, began = broker.cpu_seconds(), time.perf_counter()
    arguments = ["-c", str(CONNECTIONS), "-r", str(rate), "-s", str(run.seconds), "-w", "0.5"]
    run_load(broker, run.load_pinning, frames, *arguments)
    return (broker.cpu_seconds() - before) / (time.perf_counter() - began) * 100


# -- committed offsets


def committed_offsets(run: Run, growth: Growth) -> tuple[list[Outcome], list[Figure]]:
    """Seconds of a start until so many are loaded, and the memory that they take, of both brokers."""
    counts = run.choose(OFFSETS, FEW_OFFSETS)
    with run.folder("offsets") as folder, run.on_core(run.cores.load):
        with run.odradek(folder, our_settings()) as node:
            ours = load_times(run, node, lambda: node.running, counts)
        kafka = Kafka(
            properties={**brokers.SETTINGS, **SETTINGS},
            jvm=brokers.KAFKA_JVM,
            prefix=brokers.pinned([], run.cores.server),
            parent=folder,
            is_fast_to_start=False,
        )
        with kafka:
            theirs = load_times(run, kafka, lambda: running_kafka(run, kafka), counts)
    outcomes = []
    figures = []
    for count in counts:
        for index, (what, unit) in enumerate((("start until loaded", "s"), ("RSS", "MB"))):
            is_largest = count == counts[-1]
            outcomes.append(
                Outcome(
                    f"{count:,} committed offsets: {what}",
                    unit,
                    True,
                    LEVEL if is_largest else None,
                    theirs[count][index],
                    ours[count][index],
                )
            )
            growth.add(f"Odradek, {what}", count, ours[count][index], unit)
            growth.add(f"Kafka, {what}", count, theirs[count][index], unit)
    for name, each in (("Kafka", theirs), ("Odradek", ours)):
        nothing = min(each[0][0])
        took = min(each[counts[-1]][0]) - nothing
        figures.append(Figure(f"{name}: start without any committed offset, fastest", nothing, "s"))
        figures.append(Figure(f"{name}: {counts[-1]:,} of them on top, fastest", max(took, 0.0), "s"))
    return outcomes, figures


def running_kafka(run: Run, kafka: Kafka) -> brokers.Running:
    return brokers.Running("kafka", kafka.pid, kafka.port, run.load_program)


WHILE_LOADING = (
    ErrorCode.NONE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
)
Times = tuple[list[float], list[float]]
"""Seconds until loaded and MB, of each start."""


def load_times(
    run: Run, broker: Any, running: Callable[[], brokers.Running], counts: tuple[int, ...]
) -> dict[int, Times]:
    """By number of offsets, 0 among them."""
    topic, groups = "many", 0
    found: dict[int, Times] = {}
    with WireClient("127.0.0.1", broker.port) as client:
        client.create_topics([topic], OFFSETS_A_GROUP)
    for count in (0, *counts):
        with WireClient("127.0.0.1", broker.port) as client:
            wait_for_coordinator(client, "group-0")
            while groups < count // OFFSETS_A_GROUP:
                commit(client, f"group-{groups}", topic, range(OFFSETS_A_GROUP))
                groups += 1
        found[count] = ([], [])
        for _ in range(run.rounds):
            broker.stop()
            began = time.perf_counter()
            broker.start()
            wait_until_loaded(broker.port, max(groups, 1), topic)
            found[count][0].append(time.perf_counter() - began)
            with WireClient("127.0.0.1", broker.port) as client:
                for number in range(groups):
                    assert committed_count(client, f"group-{number}") == OFFSETS_A_GROUP
            found[count][1].append(running().rss_bytes() / 1e6)
    return found


def wait_until_loaded(port: int, groups: int, topic: str) -> None:
    """Asks for one offset of each group until its coordinator has loaded.

    Kafka was seen to close the connection meanwhile, on a busy machine: then a new one asks on.
    """
    asked = [OffsetFetchRequestTopics(name=topic, partition_indexes=[0])]
    number, deadline = 0, time.monotonic() + PATIENCE_S
    while number < groups:
        try:
            with WireClient("127.0.0.1", port) as client:
                while number < groups:
                    group = OffsetFetchRequestGroup(group_id=f"group-{number}", topics=asked)
                    code = client.call(OffsetFetchRequest(groups=[group]), FETCH).groups[0].error_code
                    assert code in WHILE_LOADING, ErrorCode(code).name
                    assert time.monotonic() < deadline, f"group-{number} is not loaded"
                    if code:
                        time.sleep(0.002)
                    else:
                        number, deadline = number + 1, time.monotonic() + PATIENCE_S
        except ConnectionError:
            if time.monotonic() >= deadline:
                raise


def committed_count(client: WireClient, group: str) -> int:
    request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=group, topics=None)])
    return sum(len(topic.partitions) for topic in client.call(request, FETCH).groups[0].topics)
