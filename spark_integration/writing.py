"""Writes the rows of one task into their topics: exactly once with a `Task`, else at least once.

Exactly once: the rows and the task's marker (`markers`) are one transaction. First the task takes its
transactional id over, which fences an earlier attempt and aborts its open transaction. Then it writes the
rows in a transaction. When their number and checksum are known, it reads the markers: if these rows were
written before, it aborts the transaction, else it commits with the marker.

If an earlier run has written rows of this epoch, the markers decide before anything is sent: records of an
aborted transaction stay in the log, and readers with read_uncommitted, as Spark's are by default, get them.
The encoded rows wait in a temporary file meanwhile.
"""

from __future__ import annotations

import pickle
import random
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import pyarrow

from odradek.client.client_error import ClientError
from odradek.client.cluster import ANY_NODE, Cluster, leader_of
from odradek.client.producing import Producer
from odradek.spark import markers
from odradek.spark.batching import Batches, RecordsBuffer, RowsRefused
from odradek.spark.markers import Marker, MarkerError, Rows
from odradek.spark.write_options import WriteOptions
from odradek.wire.messages.metadata import MetadataRequest, MetadataRequestTopic


@dataclass(frozen=True, slots=True)
class Task:
    """Identifies the rows of a task: number in the plan, epoch and id of the query (or of a batch write).

    `run` is the same for all tasks of one run of the epoch; a repeated epoch has another one.
    """

    query: str
    epoch: int
    number: int
    run: str

    def __str__(self) -> str:
        return f"task {self.number} of query {self.query}"


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of a task, for the driver."""

    task: Task | None
    written: Rows
    found: int | None = None
    """The number of the task whose earlier attempt had written the rows, None if this attempt has."""


def write(options: WriteOptions, rows: Iterable[pyarrow.RecordBatch], task: Task | None) -> Outcome:
    """Writes the rows, which have the columns `batching.COLUMNS`.

    On return they are in the log, with a `task` exactly once, whether this run wrote them or an earlier one.
    Else ClientError or RowsRefused with one sentence.
    """
    with Cluster(options.settings) as cluster:
        batches = _batches(cluster, options)
        if task is None:
            with Producer(cluster) as producer:
                for records in _encoded(batches, rows):
                    producer.send(records)
                producer.flush()
            return Outcome(None, _rows(batches, ""))
        return _write_once(cluster, options, batches, rows, task)


def finish_epoch(options: WriteOptions, outcomes: Sequence[Outcome]) -> None:
    """For the driver, after all tasks of an epoch: seals the epoch.

    MarkerError if an earlier run wrote rows that these tasks do not have: another plan, other rows.
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
        encoded = _encoded(batches, rows)
        if _may_be_written(cluster, task, topic):
            with _held(encoded) as held:
                found = _found(cluster, task, _rows(batches, task.run), topic)
                if found is not None:
                    return Outcome(task, _rows(batches, task.run), found)
                return _commit(cluster, producer, batches, held, task, topic)
        return _commit(cluster, producer, batches, encoded, task, topic)


def _commit(
    cluster: Cluster,
    producer: Producer,
    batches: Batches,
    encoded: Iterable[RecordsBuffer],
    task: Task,
    topic: str,
) -> Outcome:
    """One transaction with the rows and the marker."""
    producer.begin()
    try:
        for records in encoded:
            producer.send(records)
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


def _may_be_written(cluster: Cluster, task: Task, topic: str) -> bool:
    """Whether another run has written rows of the epoch, or another attempt those of this task."""
    there = markers.read(cluster, task.query, task.number, topic, may_be_expired=False)
    return any(
        marker.epoch == task.epoch
        and (number == task.number or any(one.run != task.run for one in marker.entries))
        for number, marker in there.items()
    )


@contextmanager
def _held(encoded: Iterable[RecordsBuffer]) -> Iterator[Iterator[RecordsBuffer]]:
    """Takes all, and gives them again from a file: a task may have more rows than memory."""
    with tempfile.TemporaryFile(prefix="odradek-spark-") as file:
        for records in encoded:
            pickle.dump(records, file, pickle.HIGHEST_PROTOCOL)
        size_bytes = file.tell()
        file.seek(0)

        def again() -> Iterator[RecordsBuffer]:
            while file.tell() < size_bytes:
                yield pickle.load(file)

        yield again()


def _found(cluster: Cluster, task: Task, written: Rows, topic: str) -> int | None:
    """The number of the task that has written the rows; None if they have to be written."""
    there = markers.read(cluster, task.query, task.number, topic)
    sealed = markers.sealed(cluster, task.query, topic)
    return markers.judge(there, sealed, task.epoch, task.number, written, str(task))


def _end(cluster: Cluster, producer: Producer, task: Task, written: Rows, topic: str) -> int | None:
    """Commits the transaction with the task's marker, or aborts it if its rows were written before."""
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


def _encoded(batches: Batches, rows: Iterable[pyarrow.RecordBatch]) -> Iterator[RecordsBuffer]:
    for batch in rows:
        yield from batches.add(batch)
    yield from batches.drain()


def _abort(producer: Producer) -> None:
    """Aborts, so that readers need not wait for the next attempt or for the transaction's timeout."""
    try:
        producer.abort()
    except ClientError:
        pass  # the first error of the task is the one to raise


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
    """The number of partitions of a topic. For a missing topic one Metadata request allows its creation
    (`auto.create.topics.enable`), as in Kafka's producer."""

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
