"""The part `partitions`: what very many of them cost at start, at stop, in memory and in open files, and what
data costs that a kill found unflushed.

Every partition has a record, so that none is passed over as empty. Brokers with each number of partitions
exist side by side, all stopped but the one that is measured, and take turns.
"""

from __future__ import annotations

import contextlib
import time
from dataclasses import dataclass, field

from benchmarks import brokers
from benchmarks.figures import Figure, Growth, Section
from benchmarks.frames import batch_of
from benchmarks.run import GIGABYTE, MEGABYTE, Run
from benchmarks.wire_client import Pipeline, WireClient

PARTITIONS_PER_TOPIC = 10
TOPICS_PER_REQUEST = 50
COUNTS, SMALL_COUNTS = (1_000, 3_000, 10_000), (20, 60)
UNFLUSHED, SMALL_UNFLUSHED = (0, 250 * MEGABYTE, 1000 * MEGABYTE), (MEGABYTE,)
LONGER_LOG_RECORDS = 5
"""Of 1,000 bytes: more than a log may have that a stop leaves without files about it."""
BULK_PARTITIONS = 4
BULK_BATCH_RECORDS = 250
START_S_MAX = 3.0
STOP_S_MAX = 2.0
"""From SIGTERM to the end of the process, whatever there is to write."""
AFTER_KILL_US_MAX = 20.0
"""Of each partition without anything unflushed: what should be read after a kill is what is not flushed,
and to find that there is none need not take longer than to look at a directory."""
IDLE_PARTITION_KB_MAX = 12.0
OPEN_FILES_MAX = 1024 + 100
"""So many segments, and what a broker without any has."""


@dataclass
class Costs:
    """Of a broker with so many partitions; a value each round, but for what is done once."""

    creating_s: float = 0.0
    stop_all_changed_s: float = 0.0
    stop_all_longer_s: float = 0.0
    open_files: int = 0
    start_s: list[float] = field(default_factory=list)
    start_after_kill_s: list[float] = field(default_factory=list)
    stop_s: list[float] = field(default_factory=list)
    rss_at_start: list[float] = field(default_factory=list)
    rss_all_asked: list[float] = field(default_factory=list)


def topics_of(count: int) -> list[list[str]]:
    """Names of so many partitions' topics, as many in a list as go into a request."""
    names = [f"topic-{index}" for index in range(count // PARTITIONS_PER_TOPIC)]
    return [names[start : start + TOPICS_PER_REQUEST] for start in range(0, len(names), TOPICS_PER_REQUEST)]


def measure(run: Run) -> Section:
    """Takes about a minute to set up and another one a round."""
    counts = run.choose(COUNTS, SMALL_COUNTS)
    amounts = run.choose(UNFLUSHED, SMALL_UNFLUSHED)
    # A partition has five small files, of a block or two each.
    room = sum(counts) * 7 * 4096 + 2 * sum(amounts)
    run.need_room(room, f"A broker with {counts[-1]:,} partitions and {max(amounts) / GIGABYTE:g} GB of data")
    costs = {count: Costs() for count in counts}
    after_kill: dict[str, list[float]] = {}
    stops_after_bulk: list[float] = []
    with run.folder("partitions") as folder, contextlib.ExitStack() as stack:
        nodes = {}
        for count in counts:
            nodes[count] = stack.enter_context(run.odradek(folder))
            fill(nodes[count], count, costs[count])
        for _ in range(run.rounds):
            for count, node in nodes.items():
                one_round(node, count, costs[count])
        largest = nodes[counts[-1]]
        for _ in range(run.rounds):
            for amount in amounts:
                unflushed_round(largest, amount, after_kill)
            stops_after_bulk.append(stop_after_bulk(largest, amounts[-1]))
        # At last: what comes behind it would not be measured on short logs any more.
        for count, node in nodes.items():
            costs[count].stop_all_longer_s = stop_all_longer(node, count)
    return section(run, costs, after_kill, stops_after_bulk)


def fill(node: brokers.Odradek, count: int, costs: Costs) -> None:
    """Makes the partitions, writes a record to each and stops the broker."""
    with WireClient("127.0.0.1", node.port) as client:
        began = time.perf_counter()
        for names in topics_of(count):
            client.create_topics(names, PARTITIONS_PER_TOPIC)
        costs.creating_s = time.perf_counter() - began
    produce_to_all(node, count, batch_of(1, 100))
    costs.open_files = node.running.open_files()
    costs.stop_all_changed_s = node.stop()


def produce_to_all(node: brokers.Odradek, count: int, batch: bytes) -> None:
    with WireClient("127.0.0.1", node.port) as client:
        for names in topics_of(count):
            client.produce(names, batch, range(PARTITIONS_PER_TOPIC))


def stop_all_longer(node: brokers.Odradek, count: int) -> float:
    """Seconds of a stop after which each partition has indexes and a snapshot, where none had any."""
    node.start()
    produce_to_all(node, count, batch_of(LONGER_LOG_RECORDS, 1000))
    return node.stop()


def one_round(node: brokers.Odradek, count: int, costs: Costs) -> None:
    """Starts after a clean stop and after a kill, and a stop before which nothing has changed."""
    costs.start_s.append(node.start())
    time.sleep(brokers.READY_S)
    costs.rss_at_start.append(node.running.rss_bytes())
    with WireClient("127.0.0.1", node.port) as client:
        for names in topics_of(count):
            client.wait_for_leaders(names, PARTITIONS_PER_TOPIC)
    costs.rss_all_asked.append(node.running.rss_bytes())
    costs.open_files = max(costs.open_files, node.running.open_files())
    costs.stop_s.append(node.stop())
    node.start()
    node.kill()
    costs.start_after_kill_s.append(node.start())
    node.stop()


def unflushed_round(node: brokers.Odradek, amount: int, after_kill: dict[str, list[float]]) -> None:
    """A start after a kill with so many bytes that are not flushed. Then one with the same bytes in
    the same segments, after a clean stop has flushed them: those should cost nothing any more."""
    unflushed = f"{amount // MEGABYTE:,} MB not flushed"
    topic = f"bulk-{amount}-{len(after_kill.get(unflushed, []))}"
    node.start()
    produce_bulk(node, topic, amount)
    node.kill()
    after_kill.setdefault(unflushed, []).append(node.start())
    if amount:
        node.stop()
        node.start()
        node.kill()
        flushed = f"{amount // MEGABYTE:,} MB flushed at a clean stop, nothing since"
        after_kill.setdefault(flushed, []).append(node.start())
    drop(node, topic)


def stop_after_bulk(node: brokers.Odradek, amount: int) -> float:
    """Seconds of a stop with so many bytes that only the system's memory has."""
    node.start()
    produce_bulk(node, "bulk-before-stop", amount)
    took_s = node.stop()
    node.start()
    drop(node, "bulk-before-stop")
    return took_s


def produce_bulk(node: brokers.Odradek, topic: str, amount: int) -> None:
    """So many bytes into a new topic, every answer waited for."""
    batch = batch_of(BULK_BATCH_RECORDS, 1000)
    with Pipeline("127.0.0.1", node.port) as client:
        client.create_topics([topic], BULK_PARTITIONS)
        for number in range(amount // len(batch)):
            client.write(topic, batch, number % BULK_PARTITIONS)


def drop(node: brokers.Odradek, topic: str) -> None:
    """Deletes the topic, and stops the broker."""
    with WireClient("127.0.0.1", node.port) as client:
        client.delete_topics([topic])
    node.stop()


def section(
    run: Run, costs: dict[int, Costs], after_kill: dict[str, list[float]], stops_after_bulk: list[float]
) -> Section:
    found = Section("Many partitions")
    found.notes = [
        f"{run.rounds} rounds. Topics of {PARTITIONS_PER_TOPIC} partitions with a record in each; the broker "
        f"is on core {run.cores.server}. A start is measured from the start of the process to its first "
        "answer, a stop from the signal to the end of the process. A partition's files are looked at when it "
        "is first asked for, so memory is told at the start and when every partition was asked for its end. "
        "Beside a log of up to 4 KB a stop makes no indexes and no snapshot; where all grow above that at "
        "once it makes three files for each.",
        "After a kill each partition's directory is listed and its last segment's size asked for. Where they "
        "are as a flush had them, nothing is opened before somebody asks for the partition; where they are "
        "not, what no flush has vouched for is read.",
    ]
    growth = Growth("partitions", "Cost by the number of partitions", "partitions")
    for count, one in costs.items():
        growth.add("start after a clean stop", count, one.start_s, "s")
        growth.add("start after a kill, nothing unflushed", count, one.start_after_kill_s, "s")
        growth.add("stop, nothing changed", count, one.stop_s, "s")
        growth.add("stop, all changed", count, [one.stop_all_changed_s], "s")
        growth.add("RSS at the start", count, [rss / MEGABYTE for rss in one.rss_at_start], "MB")
        growth.add("RSS, all asked for", count, [rss / MEGABYTE for rss in one.rss_all_asked], "MB")
    found.growths = [growth]
    for count, one in costs.items():
        found.figures += figures_of(count, one, is_largest=count == max(costs))
    found.figures += [memory_of_one(costs), opening_after_kill(costs)]
    for what, values in after_kill.items():
        title = f"start with {max(costs):,} partitions after a kill, {what}"
        found.figures.append(Figure.median(title, values, "s"))
    bulk = f"{run.choose(UNFLUSHED, SMALL_UNFLUSHED)[-1] // MEGABYTE:,} MB"
    title = f"stop with {max(costs):,} partitions, {bulk} produced just before"
    found.figures.append(Figure.median(title, stops_after_bulk, "s", STOP_S_MAX))
    return found


def figures_of(count: int, costs: Costs, *, is_largest: bool) -> list[Figure]:
    having = f"{count:,} partitions"
    start_limit = START_S_MAX if is_largest else None
    return [
        Figure(f"creating {having}", costs.creating_s, "s"),
        Figure.median(f"start with {having} after a clean stop", costs.start_s, "s", start_limit),
        Figure.median(
            f"start with {having} after a kill, nothing unflushed", costs.start_after_kill_s, "s", start_limit
        ),
        Figure.median(f"stop with {having}, nothing changed", costs.stop_s, "s", STOP_S_MAX),
        Figure(f"stop with {having}, all changed", costs.stop_all_changed_s, "s", STOP_S_MAX),
        Figure(
            f"stop with {having}, all changed and grown above 4 KB", costs.stop_all_longer_s, "s", STOP_S_MAX
        ),
        Figure.median(f"RSS at the start with {having}", [rss / 1e6 for rss in costs.rss_at_start], "MB"),
        Figure(f"open files with {having}, all written to", costs.open_files, "", OPEN_FILES_MAX),
    ]


def memory_of_one(costs: dict[int, Costs]) -> Figure:
    """By how much the memory differs between the fewest and the most, for each that makes the difference."""
    fewest, most = min(costs), max(costs)
    grown = zip(costs[most].rss_all_asked, costs[fewest].rss_all_asked, strict=True)
    each_kb = [(larger - smaller) / (most - fewest) / 1000 for larger, smaller in grown]
    return Figure.median("memory of an idle partition", each_kb, "KB", IDLE_PARTITION_KB_MAX)


def opening_after_kill(costs: dict[int, Costs]) -> Figure:
    """What a start after a kill takes longer than one after a clean stop, for each partition of the most."""
    most = max(costs)
    pairs = zip(costs[most].start_after_kill_s, costs[most].start_s, strict=True)
    each_us = [max(0.0, after_kill - clean) / most * 1e6 for after_kill, clean in pairs]
    what = "a start after a kill, nothing unflushed: for each partition"
    return Figure.median(what, each_us, "us", AFTER_KILL_US_MAX)
