"""`odradek transactions`: what is open, for how long, and ending what nobody ends."""

import argparse
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from odradek.client.admin.asking import Refused
from odradek.client.admin.transactions import (
    HANGING_SECONDS,
    OPEN_STATES,
    ProducerState,
    TransactionDescription,
    abort_transaction,
    describe_producers,
    describe_transactions,
    hanging,
    list_transactions,
)
from odradek.client.client_error import ClientError
from odradek.client.cluster import Cluster, TopicPartition
from odradek.client.progress import duration
from odradek.commands.actions import act_on_cluster, add_action, add_dry_run, new_actions
from odradek.commands.asking import failed
from odradek.commands.output import Column, Output, time_text
from odradek.commands.producers import leaders_named, row_of
from odradek.commands.selecting import matching, parse_partition, parse_seconds, parse_whole

ABOUT = """\
Transactions at any Kafka broker: which are open, for how long, and in which partitions. An open
transaction holds back readers with isolation.level=read_committed from its first record on. An ID may
have * in it for list, or be /a regular expression/."""

EXAMPLES = f"""\
examples:
  odradek transactions list
  odradek transactions list 'pay-*' --older 60
  odradek transactions describe pay-7
  odradek transactions find-hanging
  odradek transactions abort orders:3 --producer-id 4012 --dry-run

A transaction hangs if its coordinator does not know that a partition belongs to it: nobody will end it
there. find-hanging looks for those that have had no record for {HANGING_SECONDS} s; abort ends one in one
partition. One that its coordinator does know is not aborted without --force: its other partitions
might be committed.

Both have to see all transactional ids: for a user who may not, transactions of others seem to hang.

keys of list and describe: transactional_id state producer_id producer_epoch timeout_ms start_time_ms
open_seconds partitions coordinator.
keys of find-hanging: those of odradek producers, and idle_seconds.
keys of abort: those of odradek producers, and aborted.

exit status: 0, or 1 when something could not be done (a sentence says what)."""

_PRODUCER = Column("producer_id", "producer", True, str)
_EPOCH = Column("producer_epoch", "epoch", True, str)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The actions and their options."""
    actions = new_actions(parser)
    one = add_action(actions, "list", "transactional ids and their transactions", _list)
    one.add_argument("ids", nargs="*", metavar="ID", help="only these")
    one.add_argument("--older", metavar="SECONDS", help="only transactions that have been open for so long")
    one.add_argument("--producer", metavar="ID", help="only the one with this producer id")
    one = add_action(actions, "describe", "state, age and partitions of transactions", _describe)
    one.add_argument("ids", nargs="+", metavar="ID")
    one = add_action(actions, "abort", "end a transaction in one partition", _abort)
    one.add_argument("partition", metavar="TOPIC:PARTITION")
    one.add_argument("--producer-id", required=True, metavar="N", help="as find-hanging or producers show it")
    one.add_argument("--force", action="store_true", help="also a transaction that its coordinator knows")
    add_dry_run(one)
    one = add_action(actions, "find-hanging", "open transactions that nobody will end", _find_hanging)
    one.add_argument(
        "topics", nargs="*", metavar="TOPIC[:PARTITION]", help="only there (default: all topics)"
    )
    one.add_argument(
        "--older",
        default=str(HANGING_SECONDS),
        metavar="SECONDS",
        help=f"without a record for so long (default {HANGING_SECONDS})",
    )


run = act_on_cluster


def _list(cluster: Cluster, options: argparse.Namespace, output: Output) -> int:
    older_s = None if options.older is None else parse_seconds(options.older, "--older")
    producers = [] if options.producer is None else [parse_whole(options.producer, "--producer")]
    states = OPEN_STATES if older_s is not None else ()
    listed = list_transactions(cluster, states=states, producer_ids=producers)
    names = set(matching((one.transactional_id for one in listed), options.ids))
    described, refused = describe_transactions(
        cluster, [one for one in listed if one.transactional_id in names]
    )
    rows = transaction_rows(described)
    if older_s is not None:
        rows = [row for row in rows if row["open_seconds"] is not None and row["open_seconds"] >= older_s]
    _print(output, rows)
    return failed(refused)


def _describe(cluster: Cluster, options: argparse.Namespace, output: Output) -> int:
    described, refused = describe_transactions(cluster, dict.fromkeys(options.ids))
    _print(output, transaction_rows(described))
    return failed(refused)


def _print(output: Output, rows: Sequence[dict[str, Any]]) -> None:
    columns = [
        Column("transactional_id"),
        Column("state"),
        _PRODUCER,
        _EPOCH,
        Column("start_time_ms", "open since", text=time_text),
        Column("open_seconds", "for", True, lambda seconds: duration(seconds)),
        Column("timeout_ms", "timeout", True, lambda ms: duration(ms / 1000)),
        Column("partitions"),
    ]
    output.rows(columns, rows, "no transactions")


def transaction_rows(described: Sequence[TransactionDescription]) -> list[dict[str, Any]]:
    """Rows of `odradek transactions list`."""
    now_ms = _now_ms()
    return [
        {
            "transactional_id": one.transactional_id,
            "state": one.state,
            "producer_id": one.producer_id,
            "producer_epoch": one.producer_epoch,
            "timeout_ms": one.timeout_ms,
            "start_time_ms": one.start_time_ms,
            "open_seconds": _age(one.start_time_ms, now_ms),
            "partitions": [f"{topic}:{partition}" for topic, partition in one.partitions],
            "coordinator": one.coordinator,
        }
        for one in described
    ]


def _age(start_time_ms: int | None, now_ms: int) -> float | None:
    return None if start_time_ms is None else max(0, now_ms - start_time_ms) / 1000


# Hanging ones -----------------------------------------------------------------------------------------


def _find_hanging(cluster: Cluster, options: argparse.Namespace, output: Output) -> int:
    older_s = parse_seconds(options.older, "--older")
    rows, refused = hanging_rows(cluster, leaders_named(cluster, options.topics or None), older_s)
    columns = [
        Column("topic"),
        Column("partition", "part", True),
        _PRODUCER,
        _EPOCH,
        Column("transaction_start_offset", "open from", True),
        Column("last_timestamp_ms", "last record", text=time_text),
        Column("idle_seconds", "idle", True, lambda seconds: duration(seconds)),
        Column("transactional_id"),
    ]
    output.rows(columns, rows, "no transaction hangs")
    return failed(refused)


def hanging_rows(
    cluster: Cluster, leaders: Mapping[TopicPartition, int], older_s: float
) -> tuple[list[dict[str, Any]], list[Refused]]:
    """Rows of `odradek transactions find-hanging`: of these partitions, without a record for so long."""
    producers, refused = describe_producers(cluster, leaders)
    now_ms = _now_ms()
    found, not_told = hanging(
        cluster, [one for one in producers if now_ms - one.last_timestamp_ms >= 1000 * older_s]
    )
    rows = [{**row_of(one, name), "idle_seconds": _age(one.last_timestamp_ms, now_ms)} for one, name in found]
    return rows, [*refused, *not_told]


@dataclass(frozen=True, slots=True)
class AbortPlan:
    """The end of a transaction in one partition; nothing is done before `carry_out`."""

    producer: ProducerState
    transactional_id: str | None
    """None if no id has this producer, or if the transaction does not hang."""

    def carry_out(self, cluster: Cluster) -> None:
        """Aborts it. ClientError for a refusal."""
        abort_transaction(cluster, self.producer)

    def row(self, *, is_done: bool) -> dict[str, Any]:
        """With the keys of `odradek transactions abort`."""
        return {**row_of(self.producer, self.transactional_id), "aborted": is_done}


def plan_abort(
    cluster: Cluster, topic: str, partition: int, producer_id: int, *, is_forced: bool = False
) -> AbortPlan:
    """The end of a transaction that hangs; with `is_forced` also of one that its coordinator knows.
    ClientError for any other, and for a producer that goes on meanwhile."""
    producer = _with_open_transaction(cluster, topic, partition, producer_id)
    found, refused = hanging(cluster, [producer])
    for one in refused:
        raise one.error
    if not found and not is_forced:
        raise ClientError(
            f"the transaction of producer {producer_id} in {topic}-{partition} does not hang: its "
            "producer will end it, or its coordinator; --force aborts it in this partition alone"
        )
    if _with_open_transaction(cluster, topic, partition, producer_id) != producer:
        # What was asked of the coordinator in between may be about its next transaction.
        raise ClientError(f"producer {producer_id} is writing to {topic}-{partition}, so nothing hangs there")
    return AbortPlan(producer, found[0][1] if found else None)


def _abort(cluster: Cluster, options: argparse.Namespace, output: Output) -> int:
    topic, partition = parse_partition(options.partition)
    producer_id = parse_whole(options.producer_id, "--producer-id")
    plan = plan_abort(cluster, topic, partition, producer_id, is_forced=options.force)
    if not options.dry_run:
        plan.carry_out(cluster)
    row = plan.row(is_done=not options.dry_run)
    columns = [
        Column("topic"),
        Column("partition", "part", True),
        _PRODUCER,
        _EPOCH,
        Column("transaction_start_offset", "open from", True),
        Column("aborted"),
    ]
    output.rows(columns, [row])
    return 0


def _with_open_transaction(cluster: Cluster, topic: str, partition: int, producer_id: int) -> ProducerState:
    producers, refused = describe_producers(cluster, leaders_named(cluster, [f"{topic}:{partition}"]))
    for failure in refused:
        raise failure.error
    for one in producers:
        if one.producer_id == producer_id and one.transaction_start_offset is not None:
            return one
    raise ClientError(f"producer {producer_id} has no open transaction in {topic}-{partition}")


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
