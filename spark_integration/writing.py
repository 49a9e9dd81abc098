"""One task's rows into their topics: exactly once for a task that says which one it is, else at least once.

Exactly once: the rows and the task's marker (`markers`) are one transaction. First the transactional id is
taken over, which fences an earlier attempt and aborts what it left open. Then the rows go into a transaction,
and when their number and checksum are known the markers are read: where they say that these rows are in, the
transaction is aborted, else it is committed with the marker.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import pyarrow

from odradek.spark import markers
from odradek.spark.batching import Batches, RowsRefused
from odradek.spark.client import ANY_NODE, ClientError, Cluster, leader_of
from odradek.spark.markers import Marker, MarkerError, Rows
from odradek.spark.producing import Producer
from odradek.spark.write_options import WriteOptions
from odradek.wire.messages.metadata import MetadataRequest, MetadataRequestTopic

__all__ = ["Outcome", "Task", "finish_epoch", "write"]


@dataclass(frozen=True, slots=True)
class Task:
    """Which part of which rows: number in the plan, epoch and id of the query (or of a batch write).

    `run` is the same for all tasks of one run of the epoch, and another one when it comes again.
    """

    query: str
    epoch: int
    number: int
    run: str

    def __str__(self) -> str:
        return f"task {self.number} of query {self.query}"


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a task tells the driver."""

    task: Task | None
    written: Rows
    found: int | None = None
    """Under which number an earlier attempt had written the rows, None if this one has."""


def write(options: WriteOptions, rows: Iterable[pyarrow.RecordBatch], task: Task | None) -> Outcome:
    """Writes the rows, which have the columns `batching.COLUMNS`.

    When it returns they are in the log, and of a `task` once, whether this run wrote them or an earlier one.
    ClientError or RowsRefused says in one sentence why not.
    """
    with Cluster(options.settings) as cluster:
        batches = _batches(cluster, options)
        if task is None:
            with Producer(cluster) as producer:
                _send(producer, batches, rows)
                producer.flush()
            return Outcome(None, _rows(batches, ""))
        return _write_once(cluster, options, batches, rows, task)


def finish_epoch(options: WriteOptions, outcomes: Sequence[Outcome]) -> None:
    """For the driver, when all tasks of an epoch are done: calls the epoch whole.

    MarkerError where an earlier run had written rows that these tasks do not have: another plan, other rows.
    """
    tasks = [outcome.task for outcome in outcomes if outcome.task is not None]
    if not tasks:
        return
    query, epoch, run, topic = tasks[0].query, tasks[0].epoch, tasks[0].run, options.markers_topic
    claims = [(outcome.found, outcome.written) for outcome in outcomes if outcome.found is not None]
    with Cluster(options.settings) as cluster:
        found = markers.read(cluster, query, topic=topic)
        markers.settle(found, epoch, run, claims, f"query {query}")
        if markers.sealed(cluster, query, topic) != (epoch, len(tasks)):
            markers.seal(cluster, query, epoch, len(tasks), topic)


def _write_once(
    cluster: Cluster,
    options: WriteOptions,
    batches: Batches,
    rows: Iterable[pyarrow.RecordBatch],
    task: Task,
) -> Outcome:
    topic = options.markers_topic
    markers.prepare(cluster, topic)
    with Producer(
        cluster,
        transactional_id=markers.transactional_id(task.query, task.number),
        transaction_timeout_ms=options.transaction_timeout_ms,
    ) as producer:
        producer.init_transactions()
        producer.begin()
        try:
            _send(producer, batches, rows)
            written = _rows(batches, task.run)
            found = _end(cluster, producer, task, written, topic)
        except (MarkerError, RowsRefused):
            _abort(producer)
            raise
        except ClientError:
            raise  # the broker is in trouble, or has another attempt: the next one cleans up
        except BaseException:
            _abort(producer)
            raise
    return Outcome(task, written, found)


def _end(cluster: Cluster, producer: Producer, task: Task, written: Rows, topic: str) -> int | None:
    """Commits the transaction with the task's marker; or aborts it, where its rows are in under a number."""
    there = markers.read(cluster, task.query, task.number, topic)
    sealed = markers.sealed(cluster, task.query, topic)
    found = markers.judge(there, sealed, task.epoch, task.number, written, str(task))
    if found is not None:
        producer.abort()
        return found
    own = there.get(task.number)
    before = own.entries if own is not None and own.epoch == task.epoch else ()
    markers.write(producer, task.query, task.number, Marker(task.epoch, (*before, written)), topic)
    producer.commit()
    return None


def _send(producer: Producer, batches: Batches, rows: Iterable[pyarrow.RecordBatch]) -> None:
    for batch in rows:
        for records in batches.add(batch):
            producer.send(records)
    for records in batches.drain():
        producer.send(records)


def _abort(producer: Producer) -> None:
    """Readers need not wait for the next attempt, or for the transaction's timeout."""
    try:
        producer.abort()
    except ClientError:
        pass  # what made the task fail is what has to be told


def _rows(batches: Batches, run: str) -> Rows:
    return Rows(run, batches.rows, batches.checksum, tuple(batches.sample))


def _batches(cluster: Cluster, options: WriteOptions) -> Batches:
    return Batches(
        _counts(cluster),
        topic=options.topic,
        compression=options.compression,
        level=options.level,
        batch_bytes=options.batch_bytes,
        memory_bytes=options.memory_bytes,
        sticky_start=random.randrange(1 << 16),
    )


def _counts(cluster: Cluster) -> Callable[[str], int]:
    """How many partitions a topic has. One that is not there is asked for once, in the way in which brokers
    with `auto.create.topics.enable` create it, as Kafka's producer does."""

    def count(topic: str) -> int:
        found = cluster.partitions_of([topic]).get(topic)
        if found is None:
            connection = cluster.connect(ANY_NODE)
            request = MetadataRequest(
                topics=[MetadataRequestTopic(name=topic)], allow_auto_topic_creation=True
            )
            connection.ask(request, connection.version_of(MetadataRequest))
            cluster.connect(leader_of(topic, 0))
            found = cluster.partitions_of([topic])[topic]
        return found

    return count
