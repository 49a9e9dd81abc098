"""The part `clock`: how long the test kit takes to let a day pass, for a broker with a thousand groups."""

from __future__ import annotations

import time

import odradek
from benchmarks.figures import Figure, Section
from benchmarks.group_load import CLASSIC, CONSUMER, lone_member, wait_for_coordinator
from benchmarks.run import Run
from benchmarks.wire_client import WireClient

GROUPS, FEW_GROUPS = 1_000, 20
DAY_S_MAX = 1.0


def measure(run: Run) -> Section:
    """Takes about 5 s a round."""
    groups = run.choose(GROUPS, FEW_GROUPS)
    section = Section("The clock of the test kit")
    section.notes = [
        f"`broker.clock.advance(days=1)` of a broker in a process of its own that has just got {groups:,} "
        "groups with a member each: the sessions of all of them end, and 50 partitions of their topic are "
        "looked through for expired offsets every ten minutes. Then the same for a broker that has nothing."
    ]
    for protocol in (CLASSIC, CONSUMER):
        seconds = [day_s(run, protocol, groups) for _ in range(run.rounds)]
        section.figures.append(
            Figure.median(f"a day passes, {groups:,} {protocol} groups", seconds, "s", DAY_S_MAX)
        )
    section.figures.append(
        Figure.median("a day passes, no groups", [day_s(run, CLASSIC, 0) for _ in range(run.rounds)], "s")
    )
    return section


def day_s(run: Run, protocol: str, groups: int) -> float:
    with (
        run.folder("clock") as folder,
        odradek.Broker(process=True, data_dir=folder / "data") as broker,
        WireClient("127.0.0.1", broker.port) as client,
    ):
        client.create_topics(["t"], 1, {})
        if groups:
            wait_for_coordinator(client, "group")
        for number in range(groups):
            lone_member(client, f"group-{number}", "t", protocol)
        # The first call imports the kit.
        broker.clock.advance(seconds=1)
        began = time.perf_counter()
        broker.clock.advance(days=1)
        return time.perf_counter() - began
