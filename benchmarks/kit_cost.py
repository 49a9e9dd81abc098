"""The part `kit-cost`: what faults that are for other requests, or are over, cost a request.

Two processes of one program differ by more than that, so one broker is measured with and without, in turn.
"""

from __future__ import annotations

import statistics
from contextlib import ExitStack

from benchmarks.figures import Figure, Section
from benchmarks.request_cost import CASES, CONNECTIONS, WARM_SHARE, Asker, Setup, children
from benchmarks.run import Run

PAIRS, FEW_PAIRS = 24, 1
REQUESTS, FEW_REQUESTS = 10_000, 200
"""Requests of one turn."""
EXTRA_NS_MAX = 20.0
PLAIN = "no faults"


def measure(run: Run) -> Section:
    """Takes about a minute."""
    pairs, requests = run.choose(PAIRS, FEW_PAIRS), run.choose(REQUESTS, FEW_REQUESTS)
    section = Section("What the test kit costs a request")
    section.notes = [
        f"CPU time of one broker for a request, {CONNECTIONS} connections with one request in flight each: "
        f"the median of {pairs} pairs of turns of {requests:,} requests, without faults and with a fault of "
        "another API, one after the other. `after faults` is beside the turns before the first use of the "
        f"kit, which come earlier in the life of the process. At most {EXTRA_NS_MAX:g} ns more is the target."
    ]
    with children(run, {PLAIN: Setup()}) as started, ExitStack() as ending:
        child = started[PLAIN]
        askers = {case: Asker(child, *request(child), ending) for case, request in CASES.items()}
        untouched: dict[str, list[float]] = {case: [] for case in askers}
        for case, asker in askers.items():
            asker.cpu_us(max(requests // WARM_SHARE, CONNECTIONS))
            untouched[case] = [asker.cpu_us(requests) for _ in range(pairs)]
        for case, asker in askers.items():
            without, extra_ns = [], []
            for number in range(pairs):
                turns = {}
                for has_fault in (True, False) if number % 2 else (False, True):
                    if has_fault:
                        with child.broker.faults.add("DeleteTopics", error="POLICY_VIOLATION"):
                            turns[has_fault] = asker.cpu_us(requests)
                    else:
                        turns[has_fault] = asker.cpu_us(requests)
                without.append(turns[False])
                extra_ns.append((turns[True] - turns[False]) * 1000)
            after_ns = (statistics.median(without) - statistics.median(untouched[case])) * 1000
            section.figures += [
                Figure.median(f"{case}: {PLAIN}", untouched[case], "us"),
                _extra(f"{case}: more with a fault of another API", statistics.median(extra_ns)),
                _extra(f"{case}: more after faults", after_ns),
            ]
    return section


def _extra(what: str, found_ns: float) -> Figure:
    """Figure of what is more; less than nothing is nothing."""
    return Figure(what, max(0.0, found_ns), "ns", EXTRA_NS_MAX)
