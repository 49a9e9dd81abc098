"""Topics as Spark's connector reads and writes them, with the few lines that every test would repeat."""

from __future__ import annotations

import json
import pathlib
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

from compat_tests.clients import Message, wait_until
from compat_tests.clients.kafka_python import KafkaPythonClient
from compat_tests.stories import topic_name

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import DataStreamReader, DataStreamWriter, StreamingQuery

ROW_SCHEMA = "key binary, value binary, partition int, headers array<struct<key:string,value:binary>>"


class KafkaTables:
    """Spark's reader and writer of `format("kafka")`, pointed at the broker."""

    def __init__(self, spark: SparkSession, client: KafkaPythonClient) -> None:
        self.spark, self.client = spark, client

    def new_topic(self, story: str, partitions: int = 1, values: Iterable[int] = ()) -> str:
        """A topic of its own; `values` are dealt out to the partitions in turn."""
        topic = topic_name(story)
        self.client.create_topic(topic, partitions)
        self.produce(topic, values, partitions)
        return topic

    def produce(self, topic: str, values: Iterable[int], partitions: int = 1) -> None:
        messages = [Message(b"%d" % value, partition=value % partitions) for value in values]
        if messages:
            self.client.produce(topic, messages)

    def read(self, topic: str, **options: Any) -> DataFrame:
        """The topic as a table; `subscribe` unless an option names topics otherwise."""
        return self.reading(self.spark.read.format("kafka"), topic, options).load()

    def stream(self, topic: str, **options: Any) -> DataFrame:
        return self.reading(self.spark.readStream.format("kafka"), topic, options).load()

    def reading(self, reader: Any, topic: str, options: dict[str, Any]) -> DataStreamReader:
        reader = reader.option("kafka.bootstrap.servers", self.client.bootstrap)
        if not {"assign", "subscribePattern"} & options.keys():
            reader = reader.option("subscribe", topic)
        for name, value in options.items():
            reader = reader.option(name, value)
        return reader

    def rows(self, rows: Sequence[tuple[Any, ...]], schema: str = ROW_SCHEMA) -> DataFrame:
        return self.spark.createDataFrame(list(rows), schema)

    def write(self, frame: DataFrame, topic: str | None = None, **options: Any) -> None:
        writer = frame.write.format("kafka").option("kafka.bootstrap.servers", self.client.bootstrap)
        if topic is not None:
            writer = writer.option("topic", topic)
        for name, value in options.items():
            writer = writer.option(name, value)
        writer.save()

    def to_files(self, stream: DataFrame, directory: pathlib.Path) -> DataStreamWriter:
        """Into JSON files under `directory`/files with a checkpoint beside them; to be started."""
        columns = stream.selectExpr("CAST(value AS STRING) AS value", "partition", "offset")
        return (
            columns.writeStream.format("json")
            .option("path", str(directory / "files"))
            .option("checkpointLocation", str(directory / "checkpoint"))
        )

    def to_topic(
        self, stream: DataFrame, topic: str, directory: pathlib.Path, *columns: str
    ) -> DataStreamWriter:
        """Into a topic, with a checkpoint in `directory`; `columns` are expressions (key and value)."""
        return (
            stream.selectExpr(*(columns or ("key", "value")))
            .writeStream.format("kafka")
            .option("kafka.bootstrap.servers", self.client.bootstrap)
            .option("topic", topic)
            .option("checkpointLocation", str(directory / "checkpoint"))
        )

    def values_in_files(self, directory: pathlib.Path) -> list[int]:
        """The values in what the file sink has committed, sorted, doubles included. Read without Spark: tests
        look again and again, beside the query."""
        lines = [
            line for path in committed_files(directory / "files") for line in path.read_text().splitlines()
        ]
        return sorted(int(json.loads(line)["value"]) for line in lines)

    def wait_for_files(self, query: StreamingQuery, directory: pathlib.Path, expected: list[int]) -> None:
        """Until just these values are in the files of a query that runs; raises what made it fail."""

        def are_there() -> bool:
            if (failure := query.exception()) is not None:
                raise failure
            return self.values_in_files(directory) == expected

        wait_until(are_there, f"{len(expected)} values are in the files")


def committed_files(folder: pathlib.Path) -> list[pathlib.Path]:
    """The files that Spark's file sink has committed, by its log: an entry for each batch, and from time to
    time one with all that was before."""
    logs = sorted((folder / "_spark_metadata").glob("[0-9]*"), key=lambda path: int(path.stem))
    compact = max((place for place, path in enumerate(logs) if path.suffix == ".compact"), default=0)
    # The first line of each is the version of the format.
    lines = [line for path in logs[compact:] for line in path.read_text().splitlines()[1:]]
    return [pathlib.Path(unquote(urlsplit(json.loads(line)["path"]).path)) for line in lines]


def values(frame: DataFrame) -> list[int]:
    """The numbers that are the values, sorted, doubles included."""
    return sorted(int(row.value) for row in frame.select("value").collect())


def finish(writer: DataStreamWriter) -> StreamingQuery:
    """Runs the query over all that there is now, to its end; raises what made it fail."""
    query = writer.trigger(availableNow=True).start()
    query.awaitTermination()
    return query


def batch_sizes(query: StreamingQuery) -> list[int]:
    return [rows for progress in query.recentProgress if (rows := progress["numInputRows"])]
