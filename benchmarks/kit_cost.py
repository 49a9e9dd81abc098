"""The part `kit-cost`: what a fault for other requests costs a request.

Without faults nothing is asked: a fault changes the way of its own API's requests alone (`Routes.interpose`).
Two processes of one program differ by more than the rest, so one broker is measured with and without, in
turn; turns that differ in nothing show what such a difference may be by chance.
"""

from __future__ import annotations

import statistics
from contextlib import ExitStack, nullcontext

from benchmarks.figures import Figure, Section
from benchmarks.request_cost import CASES, CONNECTIONS, WARM_SHARE, Asker, Setup, children
from benchmarks.run import Run

ROUNDS, FEW_ROUNDS = 60, 1
REQUESTS, FEW_REQUESTS = 10_000, 200
"""Requests of one turn."""
EXTRA_NS_MAX = 20.0
PLAIN, AGAIN, FAULT = "no faults", "no faults again", "a fault of another API"
TURNS = (PLAIN, FAULT, AGAIN)


def measure(run: Run) -> Section:
    """Takes about three minutes."""
    rounds, requests = run.choose(ROUNDS, FEW_ROUNDS), run.choose(REQUESTS, FEW_REQUESTS)
    section = Section("What the test kit costs a request")
    section.notes = [
        f"CPU time of one broker for a request, {CONNECTIONS} connections with one request in flight each: "
        f"the median of {rounds} rounds of turns of {requests:,} requests, without faults, with a fault of "
        "another API and without once more; each kind of turn is the first in a third of the "
        "rounds. `by chance` is the same difference "
        f"between the two turns without. At most {EXTRA_NS_MAX:g} ns more is the target."
    ]
    with children(run, {PLAIN: Setup()}) as started, ExitStack() as ending:
        child = started[PLAIN]
        for case, request in CASES.items():
            asker = Asker(child, *request(child), ending)
            asker.cpu_us(max(requests // WARM_SHARE, CONNECTIONS))
            taken_us: dict[str, list[float]] = {turn: [] for turn in TURNS}
            for number in range(rounds):
                for place in range(len(TURNS)):
                    turn = TURNS[(number + place) % len(TURNS)]
                    with (
                        child.broker.faults.add("DeleteTopics", error="POLICY_VIOLATION")
                        if turn == FAULT
                        else nullcontext()
                    ):
                        taken_us[turn].append(asker.cpu_us(requests))
            section.figures += [
                Figure.median(f"{case}: {PLAIN}", taken_us[PLAIN], "us"),
                Figure(f"{case}: more with {FAULT}", _more_ns(taken_us, FAULT), "ns", EXTRA_NS_MAX),
                Figure(f"{case}: more by chance", _more_ns(taken_us, AGAIN), "ns"),
            ]
    return section


def _more_ns(taken_us: dict[str, list[float]], turn: str) -> float:
    """The median of the differences within a round; below zero it is less."""
    pairs = zip(taken_us[turn], taken_us[PLAIN], strict=True)
    return statistics.median((one - plain) * 1000 for one, plain in pairs)
