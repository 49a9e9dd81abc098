"""`mirror`: what is in the copies, what the table of offsets says of them, and groups that go on there."""

from __future__ import annotations

import pathlib
import random
import threading
from typing import TYPE_CHECKING, Any

import pytest

import odradek
from compat_tests import reference
from compat_tests.broker_host import shared_host
from compat_tests.clients import Message, wait_until
from compat_tests.clients.kafka_python import KafkaPythonClient
from compat_tests.kit import readers
from compat_tests.spark.admin import TopicAdmin
from compat_tests.spark.realistic_topic import Content, RealisticTopic, realistic_topic, some_messages
from compat_tests.spark.topics import KafkaTables
from compat_tests.stories import START_MS, topic_name
from odradek.spark.jobs import JobError, mirror
from odradek.spark.jobs.compaction import SizeRules
from odradek.spark.jobs.files import LocalFiles
from odradek.spark.markers import MARKERS_TOPIC
from odradek.spark.report import Report

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


Truth = dict[int, dict[int, int]]
"""By partition: offset in the source -> offset in the copy."""


def mirrored(
    spark: SparkSession,
    topic: RealisticTopic | str,
    source: str,
    target: str,
    table: pathlib.Path,
    **options: Any,
) -> Report:
    names = [topic if isinstance(topic, str) else topic.name]
    return mirror.run(
        spark,
        bootstrap_servers=source,
        to_bootstrap_servers=target,
        topics=options.pop("topics", names),
        offsets=str(table),
        **options,
    )


def contents(bootstrap: str, topic: str, partitions: int) -> dict[int, list[tuple[int, Content]]]:
    """(offset, content) of what readers with read_committed see, by confluent-kafka."""
    places = [(topic, number) for number in range(partitions)]
    return {
        partition: [
            (
                message.offset(),
                (message.timestamp()[1], message.key(), message.value(), tuple(message.headers() or ())),
            )
            for message in messages
        ]
        for (_, partition), messages in readers.messages(bootstrap, places).items()
    }


def truth(source: str, target: str, topic: str, partitions: int, prefix: str = "") -> Truth:
    """Of two topics whose records are the same, in the same order."""
    here, there = contents(source, topic, partitions), contents(target, prefix + topic, partitions)
    assert {p: [content for _, content in of] for p, of in here.items()} == {
        p: [content for _, content in of] for p, of in there.items()
    }
    return {
        p: {one: other for (one, _), (other, _) in zip(here[p], there[p], strict=True)}
        for p in range(partitions)
    }


def runs_of(table: pathlib.Path, topic: str) -> dict[int, list[dict[str, Any]]]:
    """By pyarrow alone, sorted; by partition."""
    import pyarrow.parquet as pq

    found: dict[int, list[dict[str, Any]]] = {}
    for path in sorted(table.glob(f"topic={topic}/*.parquet")):
        if not path.name.startswith(("_", ".")):
            for row in pq.ParquetFile(path).read().to_pylist():
                found.setdefault(row["partition"], []).append(row)
    return {p: sorted(rows, key=lambda row: int(row["source_start"])) for p, rows in found.items()}


def check_runs(table: pathlib.Path, topic: str, wanted: Truth, prefix: str = "") -> None:
    """Every offset of the source is in one run, which says where it is, and no run has anything else."""
    runs = runs_of(table, topic)
    for partition, offsets in wanted.items():
        found: dict[int, int] = {}
        for run in runs.get(partition, []):
            assert run["target_topic"] == prefix + topic
            assert run["source_end"] - run["source_start"] == run["target_end"] - run["target_start"]
            there = [offset for offset in offsets if run["source_start"] <= offset < run["source_end"]]
            assert len(there) == run["rows"]
            assert found.keys().isdisjoint(there)
            found.update({one: one - run["source_start"] + run["target_start"] for one in there})
        assert found == offsets
    assert runs.keys() == {partition for partition, offsets in wanted.items() if offsets}


def test_copies_have_every_committed_record_once_and_the_table_says_where(
    spark: SparkSession, tables: KafkaTables, target: str, tmp_path: pathlib.Path
) -> None:
    topic, source, table = realistic_topic(tables, "mirrored"), tables.client.bootstrap, tmp_path / "table"
    report = mirrored(spark, topic, source, target, table, compression="zstd")
    assert (report.figures["rows"], report.figures["rows that were there already"]) == (topic.count, 0)
    found = contents(target, topic.name, topic.partitions)
    assert {p: [content for _, content in of] for p, of in found.items()} == topic.rows
    check_runs(table, topic.name, truth(source, target, topic.name, topic.partitions))
    # Aborted transactions have left gaps in the source, and none in the copy.
    assert all(len(runs) > 3 for runs in runs_of(table, topic.name).values())
    assert mirrored(spark, topic, source, target, table).figures["rows"] == 0
    # What comes later, in more partitions than before.
    TopicAdmin(source).grow(topic.name, 3)
    topic.partitions = 3
    topic.add(some_messages(random.Random(1), 90, topic.partitions))
    report = mirrored(spark, topic, source, target, table)
    assert report.figures["rows"] == 90
    check_runs(table, topic.name, truth(source, target, topic.name, topic.partitions))
    ends = TopicAdmin(source).end_offsets(topic.name)
    assert [*report.tables[0].rows] == [(topic.name, number, end) for number, end in sorted(ends.items())]
    # Spark reads the table as any other.
    rows = spark.read.parquet(str(table)).selectExpr("sum(rows)").collect()[0][0]
    assert rows == topic.count


@pytest.mark.nightly
def test_a_mirror_goes_to_apache_kafka_and_back(
    spark: SparkSession, tables: KafkaTables, target: str, tmp_path: pathlib.Path
) -> None:
    topic, source, group = realistic_topic(tables, "there"), tables.client.bootstrap, topic_name("group")
    tables.client.commit(group, topic.name, {0: 10, 1: 100})
    with reference.Kafka(host=shared_host()) as kafka:
        between = kafka.bootstrap_servers
        there, back = tmp_path / "there", tmp_path / "back"
        for _ in range(2):
            mirrored(spark, topic, source, between, there, groups=[group])
            mirrored(spark, topic, between, target, back, groups=[group], prefix="back.")
            topic.add(some_messages(random.Random(2), 60, topic.partitions))
        mirrored(spark, topic, source, between, there)
        mirrored(spark, topic, between, target, back, prefix="back.")
        first = truth(source, between, topic.name, topic.partitions)
        second = truth(between, target, topic.name, topic.partitions, "back.")
        check_runs(there, topic.name, first)
        check_runs(back, topic.name, second, "back.")
    found = contents(target, f"back.{topic.name}", topic.partitions)
    assert {p: [content for _, content in of] for p, of in found.items()} == topic.rows
    last = KafkaPythonClient(target)
    committed = last.committed(group, f"back.{topic.name}", [0, 1])
    last.close()
    assert committed == {
        p: second[p][first[p][min(one for one in first[p] if one >= offset)]]
        for p, offset in {0: 10, 1: 100}.items()
    }


def test_a_copy_is_made_with_the_settings_of_its_source(
    spark: SparkSession, tables: KafkaTables, target: str, tmp_path: pathlib.Path
) -> None:
    source, name = tables.client.bootstrap, topic_name("settings")
    settings = {"cleanup.policy": "compact", "retention.ms": "777000", "max.message.bytes": "2000000"}
    own = {
        "min.insync.replicas": "1",
        "message.timestamp.type": "LogAppendTime",
        "internal.segment.bytes": "10000",
    }
    TopicAdmin(source).create(name, 5, {**settings, **own})
    tables.client.produce(name, [Message(b"v", b"k", partition=4)])
    options = {"prefix": "copy.", "topics": [], "topic_pattern": f"{name[:-1]}."}
    assert mirrored(spark, name, source, target, tmp_path / "table", **options).figures["rows"] == 1
    assert sorted(TopicAdmin(target).end_offsets(f"copy.{name}").items()) == [
        *((number, 0) for number in range(4)),
        (4, 2),  # the record, and the end of its transaction
    ]
    kept = {**settings, "message.timestamp.type": "CreateTime"}
    assert TopicAdmin(target).settings(f"copy.{name}") == kept
    check_runs(tmp_path / "table", name, truth(source, target, name, 5, "copy."), "copy.")


def test_gaps_of_compaction_are_gaps_of_the_table(
    spark: SparkSession, target: str, tmp_path: pathlib.Path
) -> None:
    with odradek.Broker(process=True, log_cleaner_backoff_ms=50) as broker:
        source, name = broker.bootstrap_servers, topic_name("compacted")
        settings = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01"}
        TopicAdmin(source).create(name, 1, {**settings, "internal.segment.bytes": "2000"})
        client = KafkaPythonClient(source)
        chance, now_ms = random.Random(3), START_MS
        for _ in range(5):
            messages = [
                Message(b"%030d" % n, b"key-%d" % chance.randrange(40), timestamp_ms=now_ms)
                for n in range(40)
            ]
            client.produce(name, messages)
        wait_until(lambda: len(contents(source, name, 1)[0]) < 150, "it is compacted")
        client.close()
        mirrored(spark, name, source, target, tmp_path / "table")
        offsets = truth(source, target, name, 1)
        check_runs(tmp_path / "table", name, offsets)
        assert len(runs_of(tmp_path / "table", name)[0]) > 5
        # Where an offset is gone, the next record is what its reader goes on with.
        there = sorted(offsets[0])
        gone = [offset for offset in range(there[-1]) if offset not in offsets[0]]
        for offset in gone[:: len(gone) // 3]:
            asked = {(name, 0): offset}
            place = mirror.translate(spark, offsets=str(tmp_path / "table"), committed=asked)[name, 0]
            assert place.offset == offsets[0][min(one for one in there if one > offset)]


class FullDisk(LocalFiles):
    """The job ends when the rows of an epoch are delivered, and before its files are decided."""

    def write_new(self, path: str, text: str) -> None:
        if "/epochs/" in path:
            raise OSError("no space left on device")
        super().write_new(path, text)


def die_before_the_table(
    monkeypatch: pytest.MonkeyPatch, spark: SparkSession, topic: RealisticTopic, *places: Any, **options: Any
) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(mirror, "open_files", lambda *_: FullDisk())
        with pytest.raises(JobError, match="no space left on device"):
            mirrored(spark, topic, *places, **options)


def test_runs_of_a_driver_that_was_lost_before_the_table_had_them_are_not(
    spark: SparkSession,
    tables: KafkaTables,
    target: str,
    tmp_path: pathlib.Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    topic, table = realistic_topic(tables, "lost"), tmp_path / "table"
    source = tables.client.bootstrap
    die_before_the_table(monkeypatch, spark, topic, source, target, table)
    copied = contents(target, topic.name, topic.partitions)
    assert {p: [content for _, content in of] for p, of in copied.items()} == topic.rows
    assert runs_of(table, topic.name) == {}
    # And what came meanwhile, of which the next epoch is made.
    topic.add(some_messages(random.Random(5), 30, topic.partitions))
    report = mirrored(spark, topic, source, target, table)
    assert report.figures["rows that were there already"] == topic.count - 30
    assert (report.figures["rows"], report.figures["epochs"]) == (30, 2)
    check_runs(table, topic.name, truth(source, target, topic.name, topic.partitions))


@pytest.mark.parametrize("is_all_gone", [False, True])
def test_runs_of_records_that_the_source_has_lost_meanwhile_are_not_lost(
    spark: SparkSession,
    tables: KafkaTables,
    target: str,
    tmp_path: pathlib.Path,
    monkeypatch: pytest.MonkeyPatch,
    is_all_gone: bool,
) -> None:
    topic, table = RealisticTopic(tables, tables.new_topic("gone", 3), 3), tmp_path / "table"
    source = tables.client.bootstrap
    topic.add(some_messages(random.Random(1), 30, 3))
    mirrored(spark, topic, source, target, table)
    starts = TopicAdmin(source).end_offsets(topic.name)
    topic.add(some_messages(random.Random(2), 90, 3))
    wanted = contents(source, topic.name, 3)
    die_before_the_table(monkeypatch, spark, topic, source, target, table)
    # All of one partition, and a part of another one.
    TopicAdmin(source).delete_records(topic.name, {0: starts[0] + 30, 1: starts[1] + 10})
    with pytest.raises(
        JobError, match=f"mirror of topic {topic.name} into {target} failed: .* has no offset"
    ):
        mirrored(spark, topic, source, target, table)
    report = mirrored(spark, topic, source, target, table, fail_on_data_loss=False)
    assert (report.figures["rows"], report.figures["rows that were there already"]) == (0, 90)
    there = contents(target, topic.name, 3)
    offsets = {
        p: {one: other for (one, _), (other, _) in zip(wanted[p], there[p], strict=True)} for p in range(3)
    }
    check_runs(table, topic.name, offsets)


def test_a_stream_goes_on_until_it_is_stopped_and_its_files_can_be_merged(
    spark: SparkSession, tables: KafkaTables, target: str, tmp_path: pathlib.Path
) -> None:
    topic, table = RealisticTopic(tables, tables.new_topic("streamed", 2), 2), tmp_path / "table"
    source, stop, reports = tables.client.bootstrap, threading.Event(), list[Report]()
    topic.add(some_messages(random.Random(1), 200, 2))

    def run() -> None:
        options = {"stream": True, "trigger_seconds": 0.1, "max_offsets_per_trigger": 40, "stop": stop}
        reports.append(mirrored(spark, topic, source, target, table, **options))

    def has_all() -> bool:
        return sum(run["rows"] for runs in runs_of(table, topic.name).values() for run in runs) == topic.count

    thread = threading.Thread(target=run)
    thread.start()
    try:
        wait_until(has_all, "the table has it all")
        topic.abort(2)
        topic.add(some_messages(random.Random(2), 40, 2))
        wait_until(has_all, "the table has what came later")
    finally:
        stop.set()
        thread.join()
    assert reports[0].figures["rows"] == topic.count
    assert reports[0].figures["epochs"] > 4
    offsets = truth(source, target, topic.name, 2)
    check_runs(table, topic.name, offsets)
    report = mirrored(spark, topic, source, target, table, compact=True, size_rules=SizeRules(files_min=3))
    assert report.figures["small files merged"] > 5
    assert len([*table.glob("topic=*/*.parquet")]) == 1
    check_runs(table, topic.name, offsets)


def test_groups_go_on_in_the_copy_with_the_first_record_that_they_have_not_read(
    spark: SparkSession, tables: KafkaTables, target: str, tmp_path: pathlib.Path
) -> None:
    topic, table = realistic_topic(tables, "groups"), tmp_path / "table"
    source, client, group = tables.client.bootstrap, tables.client, topic_name("group")
    client.commit(group, topic.name, {0: 0, 1: 100})
    report = mirrored(spark, topic, source, target, table, groups=[group])
    offsets = truth(source, target, topic.name, 2)
    ends = TopicAdmin(source).end_offsets(topic.name)
    other = KafkaPythonClient(target)

    def next_in_copy(partition: int, offset: int) -> int:
        left = [there for here, there in offsets[partition].items() if here >= offset]
        return min(left, default=max(offsets[partition].values()) + 1)

    def committed() -> dict[int, int | None]:
        return other.committed(group, topic.name, [0, 1])

    assert committed() == {0: next_in_copy(0, 0), 1: next_in_copy(1, 100)}
    assert report.tables[1].rows == [
        (group, topic.name, 0, 0, next_in_copy(0, 0), "is put there", max(offsets[0]) + 1),
        (group, topic.name, 1, 100, next_in_copy(1, 100), "is put there", max(offsets[1]) + 1),
    ]
    # Behind the last one, and in each gap there is.
    gaps = [offset for offset in range(ends[1]) if offset not in offsets[1]]
    assert len(gaps) > 10
    client.commit(group, topic.name, {0: ends[0], 1: gaps[-2]})
    mirrored(spark, topic, source, target, table, groups=[group])
    assert committed() == {0: next_in_copy(0, ends[0]), 1: next_in_copy(1, gaps[-2])}
    assert next_in_copy(0, ends[0]) == max(offsets[0].values()) + 1
    for gap in gaps[:: len(gaps) // 4]:
        places = mirror.translate(spark, offsets=str(table), committed={(topic.name, 1): gap})
        assert places[topic.name, 1] == mirror.Place(topic.name, next_in_copy(1, gap), max(offsets[1]) + 1)
    # It has read on there meanwhile: it does not go back.
    before = committed()
    other.commit(group, topic.name, {1: next_in_copy(1, 0) + 250})
    client.commit(group, topic.name, {1: 5})
    report = mirrored(spark, topic, source, target, table, groups=[group])
    assert committed() == {**before, 1: next_in_copy(1, 0) + 250}
    assert report.tables[1].rows[1][5] == f"was at {next_in_copy(1, 0) + 250}"
    # Nor is one that reads there disturbed, be it something else.
    client.commit(group, topic.name, {1: ends[1]})
    TopicAdmin(target).create(idle := topic_name("idle"))
    member = other.join(group, idle)
    try:
        wait_until(lambda: bool(member.assigned), "it has joined", [member])
        report = mirrored(spark, topic, source, target, table, groups=[group])
    finally:
        member.leave()
    assert [row[5] for row in report.tables[1].rows] == [
        f"was at {before[0]}",
        "has members, and was left alone",
    ]
    assert committed() == {**before, 1: next_in_copy(1, 0) + 250}
    other.close()


def test_what_is_wrong_is_told_in_one_sentence(
    spark: SparkSession, tables: KafkaTables, target: str, tmp_path: pathlib.Path
) -> None:
    source, table = tables.client.bootstrap, tmp_path / "table"
    name = tables.new_topic("wrong", 1, range(5))

    def refusal(to: str = target, offsets: pathlib.Path = table, **options: Any) -> str:
        with pytest.raises(JobError) as refused:
            mirrored(spark, name, source, to, offsets, **options)
        assert "\n" not in str(refused.value)
        return str(refused.value)

    assert f"topic nowhere does not exist at {source}" in refusal(topics=["nowhere"])
    assert "group nobodies has committed no offset" in refusal(groups=["nobodies"])
    assert "compression 'lzma' is none" in refusal(compression="lzma")
    assert "does not take the option minPartitions: a partition" in refusal(options={"minPartitions": "4"})
    assert not table.exists()
    assert "are the same cluster, and topic" in refusal(to=source, offsets=tmp_path / "same")
    pattern = {"topics": [], "topic_pattern": f".*{name}", "prefix": "copy-"}
    assert "or a prefix that no source has" in refusal(to=source, offsets=tmp_path / "same", **pattern)
    TopicAdmin(target).create(name, 1, {"message.timestamp.type": "LogAppendTime"})
    assert "would give all rows new timestamps: set it to CreateTime" in refusal()
    TopicAdmin(target).set(name, "message.timestamp.type", "CreateTime")
    assert mirrored(spark, name, source, target, table).figures["rows"] == 5
    assert "was made with prefix '', and not 'a'" in refusal(prefix="a")
    tables.produce(name, range(5, 9))
    # With another table nobody would know where the first five are: the runs of an epoch are kept until the
    # next one.
    assert mirrored(spark, name, source, target, table).figures["rows"] == 4
    assert "with another table of offsets: go on with that one" in refusal(offsets=tmp_path / "other")
    another = {"offsets": tmp_path / "another", "mirror_id": "again"}
    assert mirrored(spark, name, source, target, another.pop("offsets"), **another).figures["rows"] == 9
    TopicAdmin(target).delete(name)
    assert f"topic {name} was made anew since it was mirrored" in refusal()
    with pytest.raises(JobError, match=f"leave it out, in a pattern with .*{MARKERS_TOPIC}"):
        mirrored(spark, MARKERS_TOPIC, target, source, tmp_path / "markers")
    with pytest.raises(JobError, match="is not a table of odradek spark mirror"):
        mirror.translate(spark, offsets=str(tmp_path), committed={(name, 0): 1})
