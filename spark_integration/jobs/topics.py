"""The topics of a job: their names, their brokers, and how a session reads them."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import odradek.spark
from odradek.client.client_error import ClientError
from odradek.client.cluster import EARLIEST, LATEST, Cluster
from odradek.spark.client_options import is_option_of_security, settings_of
from odradek.spark.jobs.errors import JobError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

READ_COMMITTED = "read_committed"
ISOLATION_LEVELS = (READ_COMMITTED, "read_uncommitted")
NAMES_SHOWN = 10
ARROW_ROWS = 2_000
"""Rows of one step into Python: a row may be a megabyte."""

Ranges = dict[tuple[str, int], tuple[int, int]]
"""(topic, partition) -> [start, end) of its offsets."""


def job_session(spark: "SparkSession") -> "SparkSession":
    """A separate session of the job, with the settings that its tables and sums need."""
    if not hasattr(spark, "_jsparkSession"):
        raise JobError(
            "the jobs need a classic Spark session, and this is one of Spark Connect: start the job with "
            "spark-submit, or without spark.remote"
        )
    session = spark.newSession()
    # Catalogs that were configured only on this session, as in a notebook.
    for name, value in spark.conf.getAll.items():
        if name.startswith("spark.sql.catalog.") or name == "spark.sql.defaultCatalog":
            session.conf.set(name, value)
    session.conf.set("spark.sql.session.timeZone", "UTC")
    # With ANSI mode an impossible cast ends the job; here it is a null, which is counted.
    session.conf.set("spark.sql.ansi.enabled", "false")
    session.conf.set("spark.sql.parquet.outputTimestampType", "TIMESTAMP_MICROS")
    # Spark finds a format by itself only in an installed wheel.
    odradek.spark.register(session)
    return session


@dataclass(frozen=True)
class Topics:
    """Topics of one cluster, by `names` or by `pattern` (of the whole name)."""

    bootstrap_servers: str
    names: Sequence[str] = ()
    pattern: str | None = None
    isolation: str = READ_COMMITTED
    options: Mapping[str, str] = field(default_factory=dict, repr=False)
    """More options of the source, such as `kafka.request.timeout.ms`; passwords may be among them."""

    def __str__(self) -> str:
        if self.pattern is not None:
            return f"topics like {self.pattern}"
        return f"topic{'s' if len(self.names) > 1 else ''} {', '.join(self.names)}"

    def check(self) -> list[str]:
        """The existing topics; JobError for a missing topic, and for wrong options."""
        if bool(self.names) == (self.pattern is not None):
            raise JobError("no topic is named: give topics by name, or one pattern, and not both")
        if self.isolation not in ISOLATION_LEVELS:
            raise JobError(f"isolation {self.isolation!r} is none: it is {' or '.join(ISOLATION_LEVELS)}")
        with self.cluster() as cluster:
            there = cluster.topics(self.pattern)
            hidden = set(self.names) - set(there)
            # Of one that this user may not see the broker says so, and a list leaves it out.
            there = sorted({*there, *cluster.partitions_of(hidden)}) if hidden else there
        if self.pattern is not None:
            if not there:
                raise JobError(f"no topic at {self.bootstrap_servers} has a name like {self.pattern}")
            return there
        for name in self.names:
            if name not in there:
                shown = ", ".join(there[:NAMES_SHOWN]) + (", …" if len(there) > NAMES_SHOWN else "")
                has = f"it has {shown}" if there else "it has none"
                raise JobError(f"topic {name} does not exist at {self.bootstrap_servers} ({has})")
        return sorted(set(self.names))

    def cluster(self) -> "Connected":
        return Connected(self)

    def ranges(self) -> Ranges:
        """The present offsets of the logs that a reader of this isolation level may see."""
        with self.cluster() as cluster:
            numbers = cluster.partitions_of(self.check())
            keys = [(topic, partition) for topic, number in numbers.items() for partition in range(number)]
            starts = cluster.list_offsets(dict.fromkeys(keys, EARLIEST))
            ends = cluster.list_offsets(dict.fromkeys(keys, LATEST), self.isolation == READ_COMMITTED)
        return {key: (starts[key], max(starts[key], ends[key])) for key in keys}

    def batch(self, spark: "SparkSession", ranges: Ranges) -> "DataFrame":
        """These offsets as a table, headers included."""
        reader = self._with_options(spark.read)
        by_topic = [dict[str, dict[str, int]](), dict[str, dict[str, int]]()]
        for (topic, partition), bounds in ranges.items():
            for offsets, offset in zip(by_topic, bounds, strict=True):
                offsets.setdefault(topic, {})[str(partition)] = offset
        reader = reader.option("startingOffsets", json.dumps(by_topic[0])).option(
            "endingOffsets", json.dumps(by_topic[1])
        )
        assigned = {
            topic: sorted(int(number) for number in offsets) for topic, offsets in by_topic[0].items()
        }
        return reader.option("assign", json.dumps(assigned)).load()

    def stream(self, spark: "SparkSession", options: Mapping[str, str]) -> "DataFrame":
        """The topics as a stream, headers included."""
        reader = self._with_options(spark.readStream)
        if self.pattern is not None:
            reader = reader.option("subscribePattern", self.pattern)
        else:
            reader = reader.option("subscribe", ",".join(self.names))
        for name, value in options.items():
            reader = reader.option(name, value)
        return reader.load()

    def _with_options(self, reader: Any) -> Any:
        reader = reader.format("odradek").option("kafka.bootstrap.servers", self.bootstrap_servers)
        reader = reader.option("kafka.isolation.level", self.isolation).option("includeHeaders", "true")
        for name, value in self.options.items():
            reader = reader.option(name, value)
        return reader


class Connected:
    """`Cluster` as a context that raises JobError."""

    def __init__(self, topics: Topics) -> None:
        self._topics = topics

    def __enter__(self) -> Cluster:
        topics = self._topics
        try:
            settings = kafka_options(topics.bootstrap_servers, topics.options)
            self._cluster = Cluster(settings_of(settings))
        except ClientError as error:
            raise JobError(str(error)) from None
        return self._cluster

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        self._cluster.close()
        if isinstance(error, ClientError):
            raise JobError(f"{self._topics.bootstrap_servers}: {error}") from None


def options_of_other(options: Mapping[str, str], others: Mapping[str, str] | None) -> dict[str, str]:
    """For the brokers of another cluster: `others`, if given, are in place of those for TLS and SASL."""
    if others is None:
        return dict(options)
    return {name: text for name, text in options.items() if not is_option_of_security(name)} | dict(others)


def kafka_options(bootstrap_servers: str, options: Mapping[str, Any]) -> dict[str, str]:
    """The client's settings for the brokers at `bootstrap_servers`."""
    ours = {name: str(value) for name, value in options.items() if name.lower().startswith("kafka.")}
    return {**ours, "kafka.bootstrap.servers": bootstrap_servers}
