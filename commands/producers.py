"""`odradek producers`: who writes to a topic."""

import argparse
from collections.abc import Iterable, Sequence
from typing import Any

from odradek.client.admin.topics import describe_topics
from odradek.client.admin.transactions import (
    ProducerState,
    describe_producers,
    leaders_of,
    list_transactions,
)
from odradek.client.client_error import ClientError
from odradek.client.cluster import Cluster, TopicPartition
from odradek.client.connecting import add_connection_arguments, cluster_of
from odradek.commands.asking import failed
from odradek.commands.output import Column, Output, add_output_arguments, time_text
from odradek.commands.selecting import named, parse_partition

ABOUT = """\
Who writes to a topic, at any Kafka broker: the idempotent and transactional producers of each
partition, as its leader has them. Producers without idempotence leave no trace. A TOPIC may have * in
it, or be /a regular expression/."""

EXAMPLES = """\
examples:
  odradek producers orders
  odradek producers orders:3 payments
  odradek producers '*' --open            whose transactions are open

keys: topic partition producer_id producer_epoch last_sequence last_timestamp_ms coordinator_epoch
transaction_start_offset transactional_id. A start offset is there while a transaction is open; the
transactional id where a coordinator tells it. Brokers forget a producer id some time after its last
record (producer.id.expiration.ms).

exit status: 0, or 1 when something could not be read (a sentence says what)."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The topics."""
    parser.add_argument("topics", nargs="+", metavar="TOPIC[:PARTITION]")
    parser.add_argument("--open", action="store_true", help="only producers with an open transaction")
    add_connection_arguments(parser)
    add_output_arguments(parser)


def run(options: argparse.Namespace) -> int:
    """Prints the producers; returns the exit status."""
    with cluster_of(options) as cluster:
        producers, refused = describe_producers(cluster, leaders_named(cluster, options.topics))
        if options.open:
            producers = [one for one in producers if one.transaction_start_offset is not None]
        rows = producer_rows(cluster, producers)
    columns = [
        Column("topic"),
        Column("partition", "part", True),
        Column("producer_id", "producer", True, str),
        Column("producer_epoch", "epoch", True, str),
        Column("last_sequence", "sequence", True),
        Column("last_timestamp_ms", "last record", text=time_text),
        Column("transaction_start_offset", "open from", True),
        Column("transactional_id"),
    ]
    Output.of(options).rows(columns, rows, "no producers")
    return failed(refused)


def leaders_named(cluster: Cluster, texts: Sequence[str] | None) -> dict[TopicPartition, int]:
    """The leader of each partition that is named as TOPIC or TOPIC:PARTITION (None: of all); ClientError for
    what is not there."""
    topics, _ = describe_topics(cluster)
    leaders = leaders_of(topics)
    if texts is None:
        return leaders
    single = {parse_partition(text) for text in texts if ":" in text}
    for topic, partition in single.difference(leaders):
        raise ClientError(f"partition {topic}:{partition} does not exist")
    # An internal topic is meant only by its own name.
    names = {topic.name for topic in topics if not topic.is_internal or topic.name in texts}
    patterns = [text for text in texts if ":" not in text]
    whole = set(named(names, patterns, "topic")) if patterns else set()
    return {key: leader for key, leader in leaders.items() if key in single or key[0] in whole}


def producer_rows(cluster: Cluster, producers: Iterable[ProducerState]) -> list[dict[str, Any]]:
    """Rows of `odradek producers`."""
    every = list(producers)
    ids = {one.producer_id for one in every}
    listed = list_transactions(cluster, producer_ids=ids) if ids else []
    names = {one.producer_id: one.transactional_id for one in listed}
    return [row_of(one, names.get(one.producer_id)) for one in every]


def row_of(one: ProducerState, transactional_id: str | None) -> dict[str, Any]:
    """With the documented keys."""
    return {
        "topic": one.topic,
        "partition": one.partition,
        "producer_id": one.producer_id,
        "producer_epoch": one.producer_epoch,
        "last_sequence": one.last_sequence,
        "last_timestamp_ms": one.last_timestamp_ms if one.last_timestamp_ms >= 0 else None,
        "coordinator_epoch": one.coordinator_epoch if one.coordinator_epoch >= 0 else None,
        "transaction_start_offset": one.transaction_start_offset,
        "transactional_id": transactional_id,
    }
