"""`odradek topics`: what there is, and creating, changing, trimming and deleting it."""

import argparse
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from odradek.client.admin import topics as admin
from odradek.client.admin.asking import Outcome, Refused
from odradek.client.admin.lag import first_times, offset_bounds
from odradek.client.admin.topics import TopicDescription
from odradek.client.client_error import ClientError, Unreachable
from odradek.client.cluster import NEWEST, Cluster, TopicPartition
from odradek.commands.actions import act_on_cluster, add_action, add_dry_run, new_actions
from odradek.commands.asking import failed
from odradek.commands.confirming import add_yes, confirm
from odradek.commands.moving import move
from odradek.commands.output import Column, Output, quantity, size_text, time_text
from odradek.commands.selecting import (
    is_pattern,
    matching,
    named_and_missing,
    parse_partition,
    parse_time_ms,
    parse_whole,
)
from odradek.wire.errors import ErrorCode

ABOUT = """\
Topics of any Kafka broker. A TOPIC may have * in it, or be /a regular expression/.
Their options are shown and changed by 'odradek configs', such as configs get topic:orders."""

EXAMPLES = """\
examples:
  odradek topics list
  odradek topics list 'shop.*' --sizes
  odradek topics describe orders
  odradek topics describe orders --times
                                          of when its records are, and how many come
  odradek topics create orders -p 6 -c retention.ms=86400000
  odradek topics add-partitions orders 12
  odradek topics move orders payments --to 4,5,6 --dry-run
                                          from where they are; --wait, or odradek topics move
  odradek topics offsets orders --at 2026-11-27T09:00
  odradek topics trim orders --before -7d --dry-run
  odradek topics delete 'test-*'          shows them, and asks; in a script: --yes

keys of list: topic partitions replicas internal; with --sizes records size_bytes, too.
keys of describe: topic partition leader leader_epoch replicas in_sync offline start_offset
end_offset records size_bytes; with --times oldest_time_ms newest_time_ms records_per_second, too:
of the first record, of the one with the latest time, and of the last minute.
keys of create: topic created.
keys of delete: topic deleted.
keys of add-partitions: topic partitions_before partitions.
keys of move: topic partition replicas_before replicas; without --to: topic partition replicas
adding removing.
keys of trim: topic partition start_offset_before start_offset records_deleted.
keys of offsets: topic partition start_offset end_offset; with --at offset, too.

exit status: 0, or 1 when something could not be done (a sentence says what)."""

_SIZE = Column("size_bytes", "size", True, size_text)
_RECORDS = Column("records", right=True)
RATE_S = 60
"""Time over which `records_per_second` is the mean."""
_TIMES = [
    Column("records_per_second", "records/s", True, lambda rate: f"{rate:,.1f}"),
    Column("oldest_time_ms", "oldest", text=time_text),
    Column("newest_time_ms", "newest", text=time_text),
]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The actions and their options."""
    actions = new_actions(parser)
    one = add_action(actions, "list", "names and sizes", _list)
    one.add_argument("topics", nargs="*", metavar="TOPIC", help="only these")
    one.add_argument("--internal", action="store_true", help="also __consumer_offsets and its like")
    one.add_argument("--sizes", action="store_true", help="also records and bytes on disk")
    one = add_action(actions, "describe", "partitions, leaders, replicas, offsets and sizes", _describe)
    one.add_argument("topics", nargs="+", metavar="TOPIC")
    one.add_argument(
        "--times",
        action="store_true",
        help="also when the oldest and the newest record are of, and the rate of the last minute",
    )
    one = add_action(actions, "create", "make topics", _create)
    one.add_argument("topics", nargs="+", metavar="NAME")
    one.add_argument("-p", "--partitions", default="-1", metavar="N", help="default: as the brokers are set")
    one.add_argument("-r", "--replicas", default="-1", metavar="N", help="default: as the brokers are set")
    _add_configs(one)
    one.add_argument("--if-not-exists", action="store_true", help="a topic that exists is not a failure")
    add_dry_run(one)
    one = add_action(actions, "delete", "delete topics with all their records", _delete)
    one.add_argument("topics", nargs="+", metavar="TOPIC")
    add_dry_run(one)
    add_yes(one)
    one = add_action(actions, "add-partitions", "give a topic more partitions", _add_partitions)
    one.add_argument("topic", metavar="TOPIC")
    one.add_argument("partitions", metavar="N", help="how many it has then")
    add_dry_run(one)
    one = add_action(actions, "trim", "delete the records before an offset or a time", _trim)
    one.add_argument("topics", nargs="+", metavar="TOPIC[:PARTITION]")
    one.add_argument(
        "--before", required=True, metavar="WHERE", help="an offset, 'end', or a time as -7d or in ISO 8601"
    )
    add_dry_run(one)
    add_yes(one)
    one = add_action(actions, "move", "move partitions to other brokers, or show what is being moved", move)
    one.add_argument("topics", nargs="*", metavar="TOPIC[:PARTITION]", help="without any: show what is moved")
    one.add_argument("--to", metavar="ID,ID", help="the brokers that share the replicas then")
    one.add_argument("--replicas", metavar="N", help="how many each partition has then (default: as before)")
    one.add_argument("--cancel", action="store_true", help="take moves back that are not done")
    one.add_argument("--wait", action="store_true", help="return when all is moved")
    add_dry_run(one)
    one = add_action(actions, "offsets", "first and last offsets, or those of a time", _offsets)
    one.add_argument("topics", nargs="+", metavar="TOPIC[:PARTITION]")
    one.add_argument("--at", metavar="TIME", help="the first record of this time or later: -1h, or ISO 8601")


def run(options: argparse.Namespace) -> int:
    """Does the action; returns the exit status."""
    return act_on_cluster(options)


def _add_configs(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "-c",
        "--config",
        action="append",
        default=[],
        dest="configs",
        metavar="NAME=VALUE",
        help="an option of the topic; may be given many times",
    )


# Looking ----------------------------------------------------------------------------------------------


def _list(cluster: Cluster, options: argparse.Namespace, output: Output) -> int:
    found, _ = admin.describe_topics(cluster)
    if not options.internal:
        found = [topic for topic in found if not topic.is_internal]
    names = set(matching((topic.name for topic in found), options.topics))
    found = [topic for topic in found if topic.name in names]
    rows = topic_rows(found)
    columns = [Column("topic"), Column("partitions", right=True), Column("replicas", right=True)]
    if options.sizes:
        bounds = offset_bounds(cluster, led(found))
        add_sizes(rows, found, bounds, admin.log_sizes(cluster))
        columns += [_RECORDS, _SIZE]
    output.rows(columns, rows, "no topics")
    return 0


def topic_rows(found: Sequence[TopicDescription]) -> list[dict[str, Any]]:
    """Rows of `odradek topics list`."""
    return [
        {
            "topic": topic.name,
            "partitions": len(topic.partitions),
            "replicas": topic.replication_factor,
            "internal": topic.is_internal,
        }
        for topic in found
    ]


def add_sizes(
    rows: Sequence[dict[str, Any]],
    found: Sequence[TopicDescription],
    bounds: Mapping[TopicPartition, tuple[int, int]],
    sizes: Mapping[TopicPartition, int],
) -> None:
    """Adds records and bytes on disk to the rows of these topics; None where no partition's is known."""
    for row, topic in zip(rows, found, strict=True):
        keys = [(topic.name, one.partition) for one in topic.partitions]
        row["records"] = _sum(bounds[key][1] - bounds[key][0] for key in keys if key in bounds)
        row["size_bytes"] = _sum(sizes[key] for key in keys if key in sizes)


def _sum(known: Iterable[int]) -> int | None:
    numbers = list(known)
    return sum(numbers) if numbers else None


def _describe(cluster: Cluster, options: argparse.Namespace, output: Output) -> int:
    found, refused = _existing(cluster, options.topics)
    bounds = offset_bounds(cluster, led(found))
    partitions = [(topic.name, one.partition) for topic in found for one in topic.partitions]
    sizes = admin.log_sizes(cluster, partitions)
    columns = [
        Column("partition", right=True),
        Column("leader", right=True),
        Column("replicas"),
        Column("in_sync"),
        Column("start_offset", "start", True),
        Column("end_offset", "end", True),
        _RECORDS,
        _SIZE,
    ]
    times, no_times = {}, {}
    if options.times:
        columns += _TIMES
        times, no_times = _times(cluster, bounds), {column.key: None for column in _TIMES}
    rows = []
    for topic in found:
        described = []
        for one in topic.partitions:
            start, end = bounds.get((topic.name, one.partition), (None, None))
            described.append(
                {
                    "topic": topic.name,
                    "partition": one.partition,
                    "leader": one.leader if one.leader >= 0 else None,
                    "leader_epoch": one.leader_epoch,
                    "replicas": one.replicas,
                    "in_sync": one.in_sync,
                    "offline": one.offline,
                    "start_offset": start,
                    "end_offset": end,
                    "records": None if start is None or end is None else end - start,
                    "size_bytes": sizes.get((topic.name, one.partition)),
                    **times.get((topic.name, one.partition), no_times),
                }
            )
        if output.is_table:
            output.heading(f"{topic.name}: {quantity(len(topic.partitions), 'partition')}")
            output.rows(columns, described)
        rows += described
    if not output.is_table:
        output.rows([Column("topic"), *columns], rows)
    return failed(refused)


def led(topics: Sequence[TopicDescription]) -> list[TopicPartition]:
    """Partitions with a leader: nobody knows the offsets of the others."""
    return [(topic.name, one.partition) for topic in topics for one in topic.partitions if one.leader >= 0]


def _times(
    cluster: Cluster, bounds: Mapping[TopicPartition, tuple[int, int]]
) -> dict[TopicPartition, dict[str, Any]]:
    """Times of records, set by their writers or by the append (message.timestamp.type), and their rate."""
    newest = cluster.list_offsets(dict.fromkeys(bounds, NEWEST))
    rates = record_rates(cluster, bounds)
    first = first_times(cluster, ((key, start) for key, (start, _) in bounds.items()), bounds)
    last = first_times(cluster, ((key, offset) for key, offset in newest.items() if offset >= 0), bounds)
    return {
        key: {
            "oldest_time_ms": first.get(key),
            "newest_time_ms": last.get(key),
            "records_per_second": rates[key],
        }
        for key in bounds
    }


def record_rates(
    cluster: Cluster, bounds: Mapping[TopicPartition, tuple[int, int]]
) -> dict[TopicPartition, float]:
    """Records a second of the last minute, by their times."""
    begun = cluster.list_offsets(dict.fromkeys(bounds, _now_ms() - 1000 * RATE_S))
    return {key: (end - begun[key]) / RATE_S if begun[key] >= 0 else 0.0 for key, (_, end) in bounds.items()}


def _offsets(cluster: Cluster, options: argparse.Namespace, output: Output) -> int:
    partitions, missing = _partitions(cluster, options.topics)
    bounds = offset_bounds(cluster, partitions)
    rows: list[dict[str, Any]] = [
        {
            "topic": topic,
            "partition": number,
            "start_offset": bounds[topic, number][0],
            "end_offset": bounds[topic, number][1],
        }
        for topic, number in partitions
        if (topic, number) in bounds
    ]
    columns = [
        Column("topic"),
        Column("partition", right=True),
        Column("start_offset", "start", True),
        Column("end_offset", "end", True),
    ]
    if options.at is not None:
        at_ms = parse_time_ms(options.at, _now_ms())
        offsets = cluster.list_offsets(dict.fromkeys(bounds, at_ms))
        for row in rows:
            offset = offsets[row["topic"], row["partition"]]
            row["offset"] = offset if offset >= 0 else row["end_offset"]
        columns.insert(2, Column("offset", f"from {time_text(at_ms)}", True))
    output.rows(columns, rows)
    return failed(missing)


# Changing ---------------------------------------------------------------------------------------------


def _create(cluster: Cluster, options: argparse.Namespace, output: Output) -> int:
    partitions = parse_whole(options.partitions, "--partitions", -1, 2**31 - 1)
    replicas = parse_whole(options.replicas, "--replicas", -1, 2**15 - 1)
    configs = dict(parse_config(text) for text in options.configs)
    status, rows = 0, []
    for name in options.topics:
        try:
            is_new = admin.create_topic(
                cluster,
                name,
                partitions,
                configs,
                replication_factor=replicas,
                only_validate=options.dry_run,
            )
            if not is_new and not options.if_not_exists:
                raise ClientError(f"topic {name} already exists")
        except Unreachable:
            raise
        except ClientError as error:
            print(f"odradek: {error}", file=sys.stderr)
            status = 1
            continue
        rows.append({"topic": name, "created": is_new and not options.dry_run})
    output.rows([Column("topic"), Column("created")], rows)
    return status


def _delete(cluster: Cluster, options: argparse.Namespace, output: Output) -> int:
    found, missing = _existing(cluster, options.topics)
    names = [topic.name for topic in found]
    confirm(
        options,
        options.topics,
        names,
        "delete",
        "topic with all its records",
        "topics with all their records",
    )
    refused = [] if options.dry_run or not names else admin.delete_topics(cluster, names)
    kept = {one.name for one in refused} | (set(names) if options.dry_run else set())
    rows = [{"topic": name, "deleted": name not in kept} for name in names]
    output.rows([Column("topic"), Column("deleted")], rows)
    return failed([*missing, *refused])


def _add_partitions(cluster: Cluster, options: argparse.Namespace, output: Output) -> int:
    number = parse_whole(options.partitions, "N", 1, 2**31 - 1)
    described, missing = _existing(cluster, [options.topic])
    if missing:
        return failed(missing)
    if len(described) > 1:
        raise ClientError(f"{options.topic} names {quantity(len(described), 'topic')}, and has to name one")
    (found,) = described
    admin.add_partitions(cluster, found.name, number, only_validate=options.dry_run)
    row = {"topic": found.name, "partitions_before": len(found.partitions), "partitions": number}
    output.rows(
        [Column("topic"), Column("partitions_before", "before", True), Column("partitions", right=True)],
        [row],
    )
    return 0


def _trim(cluster: Cluster, options: argparse.Namespace, output: Output) -> int:
    plan = plan_trim(cluster, options.topics, options.before)
    whole = sorted({topic for topic, _ in plan.before})
    confirm(options, options.topics, whole, "delete records of", "topic", "topics")
    if not options.dry_run:
        plan.carry_out(cluster)
    columns = [
        Column("topic"),
        Column("partition", right=True),
        Column("start_offset_before", "start before", True),
        Column("start_offset", "start", True),
        Column("records_deleted", "to delete" if options.dry_run else "deleted", True),
    ]
    output.rows(columns, plan.rows())
    return failed(plan.refused)


@dataclass(slots=True)
class TrimPlan:
    """Deletion of the first records of partitions; nothing is done before `carry_out`."""

    bounds: Mapping[TopicPartition, tuple[int, int]]
    before: Mapping[TopicPartition, int]
    """First offset that stays."""
    refused: Outcome
    starts: Mapping[TopicPartition, int] | None = None
    """First offsets after it was done."""

    def carry_out(self, cluster: Cluster) -> None:
        """Deletes them; what is refused is in `refused` then."""
        self.starts = {}
        if self.before:
            self.starts, not_done = admin.delete_records(cluster, self.before)
            self.refused = [*self.refused, *not_done]

    def rows(self) -> list[dict[str, Any]]:
        """Rows of what is not refused, with the keys of `odradek topics trim`."""
        starts = self.before if self.starts is None else self.starts
        return [
            {
                "topic": topic,
                "partition": number,
                "start_offset_before": self.bounds[topic, number][0],
                "start_offset": start,
                "records_deleted": max(0, start - self.bounds[topic, number][0]),
            }
            for (topic, number), start in sorted(starts.items())
        ]


def plan_trim(cluster: Cluster, texts: Sequence[str], where: str) -> TrimPlan:
    """The deletion of the records before `where`: an offset, "end", or a time; `texts` are TOPIC or
    TOPIC:PARTITION. ClientError for a place that is not understood."""
    partitions, missing = _partitions(cluster, texts)
    bounds = offset_bounds(cluster, partitions)
    return TrimPlan(bounds, _trim_offsets(cluster, where, bounds), missing)


def _trim_offsets(
    cluster: Cluster, where: str, bounds: dict[TopicPartition, tuple[int, int]]
) -> dict[TopicPartition, int]:
    """The first offset that stays: never past the end, nor before the start."""
    if where == "end":
        return {key: end for key, (_, end) in bounds.items()}
    if where.isdecimal():
        offset = parse_whole(where, "--before")
        return {key: min(max(offset, start), end) for key, (start, end) in bounds.items()}
    found = cluster.list_offsets(dict.fromkeys(bounds, parse_time_ms(where, _now_ms())))
    return {key: found[key] if found[key] >= 0 else end for key, (_, end) in bounds.items()}


# Reading what was typed -------------------------------------------------------------------------------


def _existing(cluster: Cluster, patterns: Sequence[str]) -> tuple[list[TopicDescription], Outcome]:
    """The topics that the patterns name, sorted, and a refusal of each pattern that names none."""
    if not any(map(is_pattern, patterns)):
        # A cluster may have 100,000 others.
        found, refused = admin.describe_topics(cluster, patterns)
        return found, [_missing(one) for one in refused]
    found, _ = admin.describe_topics(cluster)
    # An internal topic is meant only by its own name.
    known = [topic.name for topic in found if not topic.is_internal or topic.name in patterns]
    names, missing = named_and_missing(known, patterns, "topic")
    wanted = set(names)
    return [topic for topic in found if topic.name in wanted], missing


def _missing(one: Refused) -> Refused:
    if one.error.code != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
        return one
    return Refused(one.name, ClientError(f"topic {one.name} does not exist"))


def _partitions(cluster: Cluster, texts: Sequence[str]) -> tuple[list[TopicPartition], Outcome]:
    """TOPIC (all its partitions) or TOPIC:PARTITION, sorted, and refusals of what is not there, or without
    a leader."""
    single = {parse_partition(text) for text in texts if ":" in text}
    whole = [text for text in texts if ":" not in text]
    described, refused = _existing(cluster, [*whole, *{topic for topic, _ in single}])
    there = {(topic.name, one.partition) for topic in described for one in topic.partitions}
    known = {topic.name: len(topic.partitions) for topic in described}
    refused += [
        Refused(
            f"{topic}:{number}",
            ClientError(f"topic {topic} has no partition {number}: it has {known[topic]}, counted from 0"),
        )
        for topic, number in sorted(single - there)
        if topic in known
    ]
    names = set(matching(known, whole)) if whole else set()
    wanted = {key for key in there if key in single or key[0] in names}
    present = wanted.intersection(led(described))
    refused += [
        Refused(
            f"{topic}:{number}",
            ClientError(f"partition {number} of topic {topic} has no leader at the moment"),
        )
        for topic, number in sorted(wanted - present)
    ]
    return sorted(present), refused


def parse_config(text: str) -> tuple[str, str]:
    """NAME=VALUE of an option; ClientError."""
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise ClientError(f"--config {text} is not NAME=VALUE")
    return name, value


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
