"""`python -m benchmarks`: Odradek measured, and beside Apache Kafka where Kafka has the same to do.

A run has parts; without options all of them, one after the other. Each core has one task: the server's, the
load's, and where there is one a third. With --output the sections of RESULTS.md that belong to the parts are
written anew, after each part, and the others stay.
"""

from __future__ import annotations

import argparse
import pathlib
import shutil
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass

from benchmarks import (
    cleaning,
    clock,
    cluster,
    cold_reads,
    command_line,
    console,
    groups,
    kit_cost,
    log_growth,
    machine,
    metrics,
    partitions,
    results,
    retention,
    saturation,
    scale,
    security,
    share,
    snapshots,
    spark,
    transactions,
    workers,
)
from benchmarks.comparison import Warming, table
from benchmarks.figures import Section
from benchmarks.run import Refused, Run


@dataclass(frozen=True)
class Part:
    """What can be run by itself. `minutes` are for five rounds on a machine of two cores."""

    says: str
    minutes: float
    measure: Callable[[Run, Warming], Section]


def alone(measure: Callable[[Run], Section]) -> Callable[[Run, Warming], Section]:
    """A part without a Kafka to be warmed."""
    return lambda run, warming: measure(run)


PARTS = {
    "pinned": Part(
        "every case beside Kafka, each broker on one core",
        30,
        lambda run, warming: table(run, warming, is_pinned=True),
    ),
    "free": Part(
        "the same with all cores free", 30, lambda run, warming: table(run, warming, is_pinned=False)
    ),
    "transactions": Part(
        "transactions beside Kafka, and what an idle transactional id costs", 22, transactions.measure
    ),
    "groups": Part(
        "consumer groups beside Kafka: requests, rebalances, ten thousand groups, a million offsets",
        25,
        groups.measure,
    ),
    "share": Part(
        "share groups beside Kafka: records a second, time to delivery, a million records in flight",
        20,
        share.measure,
    ),
    "cluster": Part(
        "three nodes beside three brokers of Kafka: acks=all, followers, fail-over, 10,000 partitions",
        25,
        cluster.measure,
    ),
    "workers": Part(
        "two workers beside one and beside Kafka; kills of workers and leaders; memory; a cluster's start",
        25,
        workers.measure,
    ),
    "spark": Part("Spark's own connector beside Kafka: count, write, stream", 8, spark.measure),
    "scale": Part("start, idle connections, committed offsets", 3, alone(scale.measure)),
    "security": Part("what ACLs, quotas and SASL cost a request", 4, alone(security.measure)),
    "metrics": Part("what metrics cost a request, and a scrape of 20,000 series", 3, alone(metrics.measure)),
    "commands": Part(
        "how long commands take, and records a second of consume", 2, alone(command_line.measure)
    ),
    "console": Part(
        "the web console: first page, search, p99 of produces beside it", 4, alone(console.measure)
    ),
    "kit-cost": Part("what the test kit costs a request", 3, alone(kit_cost.measure)),
    "clock": Part("how long a day of the test kit's clock takes", 1, alone(clock.measure)),
    "partitions": Part(
        "up to 10,000 partitions: start, stop, memory, open files, kills", 9, alone(partitions.measure)
    ),
    "segments": Part("produce and fetch with up to 3,000 segments", 4, alone(log_growth.segments)),
    "log-size": Part("produce and fetch in a log of 100 GB", 3, alone(log_growth.log_size)),
    "retention": Part("the longest wait while 1,000 segments go", 2, alone(retention.measure)),
    "snapshots": Part("snapshot and restore of a broker for tests", 2, alone(snapshots.measure)),
    "cold-reads": Part("p99 of produces beside a consumer of cold data, beside Kafka", 7, cold_reads.measure),
    "saturated-disk": Part(
        "p99 of another client beside producers that saturate the disk, beside Kafka", 5, saturation.measure
    ),
    "compaction-latency": Part("p99 of produces while 2 GB are compacted", 9, alone(cleaning.latency)),
    "compaction-speed": Part(
        "seconds to compact 2 GB, beside Kafka's cleaner, and at a limited rate", 16, alone(cleaning.speed)
    ),
}
TABLES = ("pinned", "free")


def parse_arguments(arguments: list[str]) -> argparse.Namespace:
    lines = [f"  {name:<19} {part.says} ({part.minutes:g} min)" for name, part in PARTS.items()]
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks",
        description=__doc__,
        epilog="parts:\n" + "\n".join(lines),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--parts", help="the parts to run, with commas between; all by default")
    parser.add_argument(
        "--only",
        default="",
        help="of the parts that go by cases (pinned, free, transactions, groups, share, cluster) those whose "
        "name contains this; of pinned and free unless --parts says so; nothing is written",
    )
    parser.add_argument(
        "--quick", action="store_true", help="everything small and once: whether it works; nothing is written"
    )
    parser.add_argument("--rounds", type=int, default=5, help="measurements of each case (5)")
    parser.add_argument("--seconds", type=float, default=3.0, help="length of one measurement (3)")
    parser.add_argument(
        "--warm-rounds",
        type=int,
        default=15,
        help="most measurements of 2 s spent warming Kafka for a case; fewer than six never tell (15)",
    )
    parser.add_argument(
        "--compile-seconds", type=float, default=100, help="produces to Kafka before the first case (100)"
    )
    parser.add_argument("--output", type=pathlib.Path, help="where RESULTS.md and its plots are")
    parser.add_argument(
        "--work", type=pathlib.Path, help="scratch folder on the disk to measure (never tmpfs)"
    )
    options = parser.parse_args(arguments)
    every = TABLES if options.only else tuple(PARTS)
    options.parts = every if options.parts is None else tuple(options.parts.split(","))
    if unknown := [name for name in options.parts if name not in PARTS]:
        parser.error(f"there is no part {', '.join(unknown)}; there are {', '.join(PARTS)}")
    if options.quick:
        options.rounds, options.seconds, options.warm_rounds, options.compile_seconds = 1, 0.2, 1, 0.5
    return options


def command_for(part: str, options: argparse.Namespace) -> str:
    """What measures this part alone as these options do."""
    values = {
        "--rounds": options.rounds,
        "--seconds": f"{options.seconds:g}",
        "--warm-rounds": options.warm_rounds,
        "--compile-seconds": f"{options.compile_seconds:g}",
    }
    said = " ".join(f"{option} {value}" for option, value in values.items())
    return f"make bench BENCH='--parts {part} {said}'"


def main(arguments: list[str]) -> int:
    """The status: 1 when not all that was asked for could be measured. A part that fails does not keep the
    next ones from running: nobody sits beside a run of two hours.
    """
    options = parse_arguments(arguments)
    warming = Warming(options.warm_rounds, options.compile_seconds, options.only)
    writes = options.output is not None and not (options.only or options.quick)
    # Whole, for what is started from there may have another working directory.
    work = pathlib.Path(tempfile.mkdtemp(prefix="odradek-bench-", dir=options.work)).resolve()
    missed: list[str] = []
    not_measured: list[str] = []
    try:
        run = Run(work, options.rounds, options.seconds, options.quick)
        code = machine.state_of_code()
        facts = machine.facts(work)
        print("\n".join(f"{name}: {value}" for name, value in facts.items()), flush=True)
        for name in (one for one in PARTS if one in options.parts):
            print(f"\n{name}: {PARTS[name].says}", flush=True)
            evenness = machine.Evenness()
            try:
                section = PARTS[name].measure(run, warming)
            except Refused as reason:
                print(f"not measured: {reason}", flush=True)
                not_measured.append(name)
                continue
            except Exception:
                traceback.print_exc()
                not_measured.append(name)
                continue
            section.notes.append(evenness.told())
            section.measured = f"{time.strftime('%Y-%m-%d')} at {code} by `{command_for(name, options)}`"
            missed += [f"{name}: {one}" for one in section.missed()]
            if name not in TABLES:
                results.print_section(section)
            if writes:
                results.update(options.output, {name: section}, facts, tuple(PARTS))
    finally:
        shutil.rmtree(work, ignore_errors=True)
    if options.quick:
        print("\neverything was small: what was met and what was missed means nothing")
    else:
        print(f"\n{len(missed)} targets missed" + "".join(f"\n  {name}" for name in missed))
    if not_measured:
        print(f"not measured: {', '.join(not_measured)}")
    if options.output is not None and not writes:
        print("nothing was written: that is for whole parts at full size")
    return 1 if not_measured else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
