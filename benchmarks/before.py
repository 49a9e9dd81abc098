"""`python -m benchmarks.before CHECKOUT`: this build beside an earlier one, in one run.

CHECKOUT is another checkout, built in place (`make links`, `setup.py build_ext --inplace`). Both run as
brokers on one core, the load on another; who is not measured is idle, and who goes first alternates.
The cases are those of the parts `pinned`, `groups`, `transactions`, `share` and `saturated-disk` whose load
is of this repository. A ratio is that of the medians, after divided by before; where less is better it is
turned round, so that below 1 is always worse.
"""

from __future__ import annotations

import argparse
import contextlib
import pathlib
import shutil
import statistics
import sys
import tempfile
from collections.abc import Mapping, Sequence

from benchmarks import groups, saturation, share, transactions
from benchmarks.cases import Case, FetchCase, ListOffsetsCase, ProduceCase
from benchmarks.cases import all_cases as pinned_cases
from benchmarks.comparison import Warming, measure_in_turn
from benchmarks.run import Run

ALLOWED = 0.98
"""A case with a smaller ratio is named at the end."""
OWN_LOADS = (ProduceCase, ListOffsetsCase, FetchCase)
SHARE_RECORDS = {100: 1_000_000, 1000: 300_000}
"""In the log of a case, by the bytes of a value."""
TINY = Warming(rounds=1, compile_seconds=0)
"""There is no Java virtual machine to be warmed."""


def all_cases() -> dict[str, list[Case]]:
    """By part; brokers have other settings in each."""
    return {
        "pinned": [
            case for case in pinned_cases() if isinstance(case, OWN_LOADS) and case.broker == "odradek"
        ],
        "groups": groups.all_cases([groups.CLASSIC, groups.CONSUMER]),
        "transactions": transactions.all_cases(is_small=True),
        "share": list(share.all_cases(SHARE_RECORDS)),
        "saturated-disk": saturation.all_cases(),
    }


def settings_of(part: str) -> Mapping[str, str]:
    return {"groups": groups.our_settings(), "share": share.SETTINGS}.get(part, {})


def ratio(case: Case, before: Sequence[float], after: Sequence[float]) -> float:
    """Below 1 is worse."""
    old, new = statistics.median(before), statistics.median(after)
    if not old or not new:
        return 1.0
    return old / new if case.lower else new / old


def measure(run: Run, links: pathlib.Path, part: str, cases: Sequence[Case]) -> list[tuple[str, float]]:
    """Prints a line for each case; returns the names and the ratios."""
    found = []
    with run.folder(part) as folder, contextlib.ExitStack() as stack:
        settings = settings_of(part)
        ends = stack.enter_context
        before = ends(run.odradek(folder, settings, name="before", links=links)).running
        after = ends(run.odradek(folder, settings, name="after")).running
        for case in cases:
            told = case.measured_before(run.rounds)
            if told is None:
                _, figures = measure_in_turn(case, before, after, run, run.load_pinning, TINY)
            else:
                _, figures = told
            found.append((case.name, ratio(case, figures["before"], figures["after"])))
            old, new = (statistics.median(figures[name]) for name in ("before", "after"))
            print(f"| {case.name} | {case.unit} | {old:,.4g} | {new:,.4g} | {found[-1][1]:.3f} |", flush=True)
    return found


def main(arguments: list[str]) -> int:
    every = all_cases()
    parser = argparse.ArgumentParser(prog="python -m benchmarks.before", description=__doc__)
    parser.add_argument("checkout", type=pathlib.Path, help="the other checkout, built in place")
    parser.add_argument("--parts", default=",".join(every), help="with commas between; all by default")
    parser.add_argument("--only", default="", help="the cases whose name contains this")
    parser.add_argument("--rounds", type=int, default=5, help="measurements of each case (5)")
    parser.add_argument("--seconds", type=float, default=1.0, help="length of one measurement (1)")
    parser.add_argument("--work", type=pathlib.Path, help="scratch folder on the disk to measure")
    options = parser.parse_args(arguments)
    links = options.checkout.resolve() / "build" / "links"
    if not links.is_dir():
        parser.error(f"{options.checkout} is not built: run `make links` and build its modules there")
    work = pathlib.Path(tempfile.mkdtemp(prefix="odradek-bench-", dir=options.work)).resolve()
    found: list[tuple[str, float]] = []
    try:
        run = Run(work, options.rounds, options.seconds)
        print("| case | unit | before | after | ratio |\n|---|---|---|---|---|", flush=True)
        for part in options.parts.split(","):
            cases = [case for case in every[part] if options.only in case.name]
            found += measure(run, links, part, cases)
    finally:
        shutil.rmtree(work, ignore_errors=True)
    slower = [f"{name}: {times:.3f}" for name, times in found if times < ALLOWED]
    print(f"\n{len(slower)} of {len(found)} below {ALLOWED}" + "".join(f"\n  {one}" for one in slower))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
