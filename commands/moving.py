"""`odradek topics move`: partitions go to other brokers while clients go on."""

import argparse
import sys
import time
from collections.abc import Collection, Mapping, Sequence

from odradek.client.admin.asking import Refused
from odradek.client.admin.description import describe_cluster
from odradek.client.admin.replicas import list_moves, move_partitions, plan_moves
from odradek.client.admin.topics import PartitionDescription, describe_topics
from odradek.client.client_error import ClientError
from odradek.client.cluster import Cluster, TopicPartition
from odradek.commands.asking import failed
from odradek.commands.output import Column, Output
from odradek.commands.selecting import matching, no_such, parse_partition, parse_whole

LOOK_S = 0.5
_MOVES = [
    Column("topic"),
    Column("partition", right=True),
    Column("replicas"),
    Column("adding"),
    Column("removing"),
]
_PLANNED = [
    Column("topic"),
    Column("partition", right=True),
    Column("replicas_before", "before"),
    Column("replicas", "then"),
]


def move(cluster: Cluster, options: argparse.Namespace, output: Output) -> int:
    """Begins moves, takes them back, or shows those that are under way."""
    if not options.topics:
        if options.to is not None or options.cancel:
            raise ClientError("--to and --cancel need a TOPIC; '*' is every topic")
        return _show(cluster, output)
    if (options.to is None) == (not options.cancel):
        raise ClientError("give either --to, with the brokers of the replicas, or --cancel")
    replicas = {key: one.replicas for key, one in described_partitions(cluster, options.topics).items()}
    if options.cancel:
        moving = [(one.topic, one.partition) for one in list_moves(cluster)]
        return _begin(
            cluster, options, output, replicas, dict.fromkeys(key for key in moving if key in replicas)
        )
    factor = None if options.replicas is None else parse_whole(options.replicas, "--replicas", 1, 2**15 - 1)
    planned = plan_moves(replicas, _racks(cluster, options.to), factor)
    changed = {key: those for key, those in planned.items() if those != list(replicas[key])}
    return _begin(cluster, options, output, replicas, changed)


def _begin(
    cluster: Cluster,
    options: argparse.Namespace,
    output: Output,
    replicas: Mapping[TopicPartition, Sequence[int]],
    planned: Mapping[TopicPartition, Sequence[int] | None],
) -> int:
    refused: list[Refused] = []
    if planned and not options.dry_run:
        refused = move_partitions(cluster, planned)
    kept = {one.name for one in refused}
    rows = [
        {
            "topic": topic,
            "partition": partition,
            "replicas_before": list(replicas[topic, partition]),
            "replicas": None if those is None else list(those),
        }
        for (topic, partition), those in sorted(planned.items())
        if f"{topic}-{partition}" not in kept
    ]
    output.rows(_PLANNED, rows, "nothing is being moved" if options.cancel else "all is where it should be")
    if options.wait and not options.dry_run:
        _wait(cluster, planned.keys())
    return failed(refused)


def _wait(cluster: Cluster, wanted: Collection[TopicPartition]) -> None:
    """Waits until all is moved, and names brokers that it waits for in vain. Ctrl-C ends the waiting, and not
    the moves."""
    told = set[int]()
    while moving := [one for one in list_moves(cluster) if (one.topic, one.partition) in wanted]:
        fenced = {one.broker for one in describe_cluster(cluster).brokers if one.is_fenced}
        away = fenced & {broker for one in moving for broker in one.adding} - told
        if away:
            print(f"odradek: it waits for {_brokers(away)}, which does not serve now", file=sys.stderr)
            told |= away
        time.sleep(LOOK_S)


def _brokers(ids: Collection[int]) -> str:
    return " and ".join(f"broker {one}" for one in sorted(ids))


def _show(cluster: Cluster, output: Output) -> int:
    rows = [
        {
            "topic": one.topic,
            "partition": one.partition,
            "replicas": list(one.replicas),
            "adding": list(one.adding),
            "removing": list(one.removing),
        }
        for one in list_moves(cluster)
    ]
    output.rows(_MOVES, rows, "nothing is being moved")
    return 0


def described_partitions(
    cluster: Cluster, texts: Sequence[str]
) -> dict[TopicPartition, PartitionDescription]:
    """Partitions that are named, or all without names; ClientError for what names nothing."""
    found, _ = describe_topics(cluster)
    there = {(topic.name, one.partition): one for topic in found for one in topic.partitions}
    internal = {topic.name for topic in found if topic.is_internal}
    wanted = {} if texts else there
    for text in texts:
        if ":" in text:
            keys = [key for key in there if key == parse_partition(text)]
        else:
            # An internal topic is meant only by its own name.
            names = set(
                matching({key[0] for key in there if key[0] not in internal or key[0] == text}, [text])
            )
            keys = [key for key in there if key[0] in names]
        if not keys:
            raise ClientError(no_such("partition" if ":" in text else "topic", text))
        wanted.update((key, there[key]) for key in keys)
    return wanted


def _racks(cluster: Cluster, text: str) -> dict[int, str | None]:
    """The racks of the brokers of `--to`, by their ids."""
    known = {one.broker: one.rack for one in describe_cluster(cluster).brokers}
    chosen = [parse_whole(one.strip(), "--to", 0, 2**31 - 1) for one in text.split(",") if one.strip()]
    for broker in chosen:
        if broker not in known:
            listed = ", ".join(map(str, known))
            raise ClientError(f"broker {broker} does not exist: there are {listed}")
    if not chosen:
        raise ClientError("--to names no broker: it is ID,ID")
    return {broker: known[broker] for broker in chosen}
