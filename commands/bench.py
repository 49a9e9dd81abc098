"""`odradek bench`: a load for any Kafka broker, and how long its requests take."""

import argparse
import contextlib
import secrets
import sys
from collections.abc import Callable, Iterator
from typing import Any

from odradek.client.admin.topics import await_topic, create_topic, delete_topics
from odradek.client.client_error import ClientError
from odradek.client.cluster import LATEST, Cluster
from odradek.client.producing import ACKS_ALL, ACKS_LEADER
from odradek.client.progress import Progress
from odradek.commands.actions import act_on_cluster, add_action, new_actions
from odradek.commands.asking import failed
from odradek.commands.load import (
    Plan,
    Progressed,
    Result,
    fill,
    measure_consume,
    measure_produce,
    measure_roundtrip,
)
from odradek.commands.output import Column, Output, size_text, terminal
from odradek.commands.selecting import parse_seconds, parse_whole
from odradek.wire.compression import compression_named

ABOUT = """\
Put a load on a broker, and print records a second, MB a second and the latencies of requests. The
load generator is Python on one core, and shares the machine with a broker that runs on it: compare
brokers and settings on one machine with it, but do not take its figures for the most that a broker
can do. Batches are made once and sent again and again, and what is read is not decoded."""

EXAMPLES = """\
examples:
  odradek bench produce
  odradek bench produce --seconds 30 --size 1000 --batch 500 --compression lz4
  odradek bench produce --records 100000 --rate 5000 --acks 1 --topic orders.load
  odradek bench consume --records 1000000 --output json
  odradek bench roundtrip --seconds 10 --rate 100

Without --topic a topic odradek-bench-... is made, and deleted at the end and after Ctrl-C. With it
produce and roundtrip leave their records in the topic; consume reads what it has, from its start.

latencies: produce: from sending a request (with --rate: from when it is due) to its response, with five
requests under way on a connection; consume: the wait for each response; roundtrip: from sending a
batch to having read it with a second client, one batch after the other, in partition 0.

keys: test topic partitions records seconds records_per_second mb_per_second latency_count
latency_p50_ms latency_p99_ms latency_max_ms size_bytes batch_records compression acks rate. MB are
10^6 bytes: of values before compression, for consume of what comes from the log. Percentiles are
right to one per cent. acks (-1: all) is null for consume, rate without --rate; a latency is null
where nothing was measured.

exit status: 0, 1 when a request was refused or the topic could not be deleted, 130 after Ctrl-C, 143
after SIGTERM."""

SECONDS = 5.0
"""How long it takes if nothing is said."""
SIZE_BYTES, SIZE_BYTES_MAX = 100, 64 << 20
BATCH_RECORDS = {"produce": 100, "consume": 100, "roundtrip": 1}
BATCH_BYTES_MAX = 64 << 20
FILL_RECORDS = 100_000
"""Records in a topic to read from, without --records; fewer where that would be much."""
FILL_BYTES_MAX = 256 << 20
_ACKS = {"all": ACKS_ALL, "-1": ACKS_ALL, "1": ACKS_LEADER}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The actions."""
    actions = new_actions(parser)
    for name, about in (
        ("produce", "write batches as fast as they are taken, or at a rate"),
        ("consume", "read a topic, again and again"),
        ("roundtrip", "write and read back, one batch after the other"),
    ):
        _add_load(add_action(actions, name, about, _bench), name)


def _add_load(parser: argparse.ArgumentParser, name: str) -> None:
    parser.add_argument(
        "--topic", metavar="TOPIC", help="this topic, which has to exist (default: one of its own)"
    )
    if name != "roundtrip":
        parser.add_argument(
            "--partitions", default="1", metavar="N", help="of a topic of its own (default 1)"
        )
    parser.add_argument("--records", metavar="N", help="end after so many records")
    parser.add_argument(
        "--seconds",
        metavar="N",
        help=f"end after so long (default {SECONDS:g} without --records)",
    )
    parser.add_argument("--rate", metavar="N", help="records a second at most")
    parser.add_argument(
        "--size",
        default=str(SIZE_BYTES),
        metavar="BYTES",
        help=f"of each value (default {SIZE_BYTES}); hex digits, which compress to about a half",
    )
    parser.add_argument(
        "--batch",
        default=str(BATCH_RECORDS[name]),
        metavar="N",
        help=f"records in a batch (default {BATCH_RECORDS[name]})",
    )
    parser.add_argument(
        "--compression", choices=("none", "gzip", "snappy", "lz4", "zstd"), default="none", metavar="CODEC"
    )
    if name != "consume":
        parser.add_argument(
            "--acks",
            choices=("all", "-1", "1"),
            default="all",
            help="all replicas in sync (default), or the leader",
        )


def run(options: argparse.Namespace) -> int:
    """Puts the load on; returns the exit status."""
    return act_on_cluster(options)


def _bench(cluster: Cluster, options: argparse.Namespace, output: Output) -> int:
    plan = _plan(options)
    partitions = parse_whole(getattr(options, "partitions", "1"), "--partitions", 1, 10_000)
    refused: list[Any] = []
    with _topic(cluster, options.topic, partitions, refused.extend) as (topic, count):
        progress = Progress(f"bench {options.action}", terminal())
        try:
            result = _measured(cluster, options, topic, count, plan, progress.update)
        finally:
            progress.clear()
        row = _row(options, topic, count, plan, result)
        output.rows(_columns() if output.is_table else [Column(key) for key in row], [row])
    return failed(refused)


def _measured(
    cluster: Cluster,
    options: argparse.Namespace,
    topic: str,
    partitions: int,
    plan: Plan,
    progressed: Progressed,
) -> Result:
    if options.action == "produce":
        return measure_produce(cluster, topic, partitions, plan, progressed)
    if options.action == "roundtrip":
        with Cluster(cluster.settings) as reading:
            return measure_roundtrip((cluster, reading), topic, plan, progressed)
    if options.topic is None:
        most = max(1, FILL_BYTES_MAX // max(1, plan.size_bytes))
        fill(cluster, topic, partitions, plan, min(plan.records or FILL_RECORDS, most))
    return measure_consume(cluster, topic, partitions, plan, progressed)


def _plan(options: argparse.Namespace) -> Plan:
    records = None if options.records is None else parse_whole(options.records, "--records", 1)
    seconds = None if options.seconds is None else parse_seconds(options.seconds, "--seconds")
    plan = Plan(
        records=records,
        seconds=SECONDS if records is None and seconds is None else seconds,
        rate=None if options.rate is None else parse_whole(options.rate, "--rate", 1, 10**9),
        size_bytes=parse_whole(options.size, "--size", 0, SIZE_BYTES_MAX),
        batch_records=parse_whole(options.batch, "--batch", 1, 1_000_000),
        compression=compression_named(options.compression),
        acks=_ACKS[getattr(options, "acks", "all")],
    )
    if plan.size_bytes * plan.batch_records > BATCH_BYTES_MAX:
        raise ClientError(f"--size times --batch is more than {size_text(BATCH_BYTES_MAX)}")
    return plan


@contextlib.contextmanager
def _topic(
    cluster: Cluster, name: str | None, partitions: int, refused: Callable[[Any], object]
) -> Iterator[tuple[str, int]]:
    """The topic and its number of partitions; one of its own is deleted in the end."""
    if name is not None:
        count = cluster.partitions_of([name]).get(name)
        if not count:
            raise ClientError(f"topic {name} does not exist")
        _await_leaders(cluster, name, count)
        yield name, count
        return
    topic = f"odradek-bench-{secrets.token_hex(4)}"
    try:
        create_topic(cluster, topic, partitions, {})
        await_topic(cluster, topic, partitions)
        _await_leaders(cluster, topic, partitions)
        yield topic, partitions
    finally:
        if isinstance(sys.exc_info()[1], KeyboardInterrupt):
            cluster.close()  # half of a response may have been read
        refused(delete_topics(cluster, [topic]))


def _await_leaders(cluster: Cluster, topic: str, partitions: int) -> None:
    """Waits until the leaders know that they lead: the metadata of a new topic may name them before."""
    cluster.list_offsets({(topic, number): LATEST for number in range(partitions)})


# What is printed --------------------------------------------------------------------------------------


def _row(
    options: argparse.Namespace, topic: str, partitions: int, plan: Plan, result: Result
) -> dict[str, Any]:
    seconds = max(result.seconds, 1e-9)
    latencies = result.latencies
    return {
        "test": options.action,
        "topic": topic,
        "partitions": partitions,
        "records": result.records,
        "seconds": round(result.seconds, 3),
        "records_per_second": round(result.records / seconds),
        "mb_per_second": round(result.size_bytes / seconds / 1e6, 3),
        "latency_count": latencies.count,
        "latency_p50_ms": _ms(latencies.percentile(0.5)),
        "latency_p99_ms": _ms(latencies.percentile(0.99)),
        "latency_max_ms": _ms(latencies.max_s if latencies.count else None),
        "size_bytes": plan.size_bytes,
        "batch_records": plan.batch_records,
        "compression": plan.compression.name.lower(),
        "acks": None if options.action == "consume" else plan.acks,
        "rate": plan.rate,
    }


def _columns() -> list[Column]:
    return [
        Column("test"),
        Column("records", right=True),
        Column("seconds", right=True),
        Column("records_per_second", "records/s", True),
        Column("mb_per_second", "MB/s", True),
        Column("latency_p50_ms", "p50 ms", True),
        Column("latency_p99_ms", "p99 ms", True),
        Column("latency_max_ms", "max ms", True),
    ]


def _ms(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds * 1000, 3)
