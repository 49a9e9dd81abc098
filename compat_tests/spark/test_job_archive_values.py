"""`archive` of values that are decoded: Avro by a schema file, Protobuf by a descriptor."""

from __future__ import annotations

import json
import pathlib
from collections.abc import Sequence
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pytest

from compat_tests.clients import Message
from compat_tests.spark.orders import (
    AVRO,
    AVRO_SCHEMA,
    DESCRIPTOR,
    MESSAGE,
    NOTHING_SET,
    PATH,
    avro,
    framed,
    order,
)
from compat_tests.spark.realistic_topic import RealisticTopic
from compat_tests.spark.test_job_archive import archived
from compat_tests.spark.test_job_replay import replayed, same
from compat_tests.spark.topics import KafkaTables
from compat_tests.stories import START_MS
from odradek.spark.jobs import JobError, verify

if TYPE_CHECKING:
    from pyspark.sql import Row, SparkSession


BY_AVRO = {"value": "avro", "schema": AVRO_SCHEMA}
BY_PROTOBUF = {"value": "protobuf", "descriptor": DESCRIPTOR, "message": MESSAGE}


def topic_of(tables: KafkaTables, story: str, values: Sequence[bytes | None]) -> RealisticTopic:
    topic = RealisticTopic(tables, tables.new_topic(story), 1)
    topic.add([Message(value, b"k", timestamp_ms=START_MS) for value in values])
    return topic


def in_table(spark: SparkSession, table: pathlib.Path) -> list[Row]:
    return spark.read.parquet(str(table)).orderBy("offset").collect()


def column(rows: list[Row], name: str) -> list[Any]:
    """As plain Python."""
    return [_plain(row[name]) for row in rows]


def _plain(value: Any) -> Any:
    if isinstance(value, bytearray):
        return bytes(value)
    if hasattr(value, "asDict"):
        return {name: _plain(part) for name, part in value.asDict().items()}
    return [_plain(part) for part in value] if isinstance(value, list) else value


def refused(spark: SparkSession, topic: RealisticTopic, table: pathlib.Path, **options: Any) -> str:
    with pytest.raises(JobError) as error:
        archived(spark, topic, table, **options)
    assert "\n" not in str(error.value)
    return str(error.value)


def test_avro_values_are_columns_and_what_does_not_decode_keeps_its_bytes(
    spark: SparkSession, tables: KafkaTables, tmp_path: pathlib.Path
) -> None:
    orders = [
        {
            "id": 1,
            "name": "a",
            "address": {"street": "s", "floor": None},
            "counts": [1, 2],
            "prices": {"eur": 0.5},
        },
        {"id": 2, "name": None, "address": None, "counts": [], "prices": {}},
    ]
    good = [framed(avro(order)) for order in orders]
    cut_off, too_long = good[0][:-1], good[1] + b"\0"
    values = [*good, None, cut_off, too_long, b"", avro(orders[0]), b"\xff" * 40]
    topic, table = topic_of(tables, "avro", values), tmp_path / "table"
    options = {**BY_AVRO, "framing": "confluent", "keep_raw": True}
    told = refused(spark, topic, table, **options, decode_mode="failfast")
    assert f"topic {topic.name}, partition 0, offset 3: the value does not decode as avro" in told
    assert "SQLSTATE" not in told
    # Nothing of it is in the table, and another mode goes on there.
    report = archived(spark, topic, table, **options)
    rows = in_table(spark, table)
    assert column(rows, "value") == [*orders, *[None] * 6]
    assert column(rows, "undecoded") == [None, None, None, *values[3:]]
    assert column(rows, "raw") == values
    assert column(rows, "schema_id") == [7, 7, None, 7, 7, None, None, None]
    assert report.figures["values that did not decode"] == 5
    assert "; 5 values did not decode, their bytes are in column undecoded" in report.summary
    assert "was made with framing 'confluent', and not None" in refused(spark, topic, table, **BY_AVRO)


def test_protobuf_values_are_columns_and_what_does_not_decode_keeps_its_bytes(
    spark: SparkSession, tables: KafkaTables, tmp_path: pathlib.Path
) -> None:
    full = order(id=1, name="a", items=[{"sku": "s", "counts": [1, 2]}], prices={"eur": 0.5}, state=1)
    full.at.FromMilliseconds(START_MS)
    full.large, full.card = 2**63, "visa"
    good = [one.SerializeToString() for one in (full, order())]
    values = [*good, None, good[0][:-1], b"garbage"]
    topic, table = topic_of(tables, "protobuf", values), tmp_path / "table"
    report = archived(spark, topic, table, **BY_PROTOBUF)
    rows = in_table(spark, table)
    first, second, *others = column(rows, "value")
    at = datetime.fromtimestamp(START_MS / 1000, UTC).replace(tzinfo=None)
    absent = dict.fromkeys(("name", "item", "at", "card", "cash", "more"))
    default = {**absent, "id": 0, "items": [], "prices": {}, "state": "NEW", "large": Decimal(0), "blob": b""}
    assert second == default
    assert first.pop("at").astimezone(UTC).replace(tzinfo=None) == at
    assert first == {
        **{name: value for name, value in default.items() if name != "at"},
        "id": 1,
        "name": "a",
        "items": [{"sku": "s", "counts": [1, 2]}],
        "prices": {"eur": 0.5},
        "state": "PAID",
        "large": Decimal(2**63),
        "card": "visa",
    }
    assert others == [None] * 3
    assert column(rows, "undecoded") == [None, None, None, *values[3:]]
    assert column(rows, "key") == [b"k"] * 5
    assert report.figures["values that did not decode"] == 2
    with pytest.raises(JobError, match="their bytes are not there: only a table of --value binary, or one"):
        verify.run(spark, bootstrap_servers=tables.client.bootstrap, topic=topic.name, table=str(table))


@pytest.mark.nightly
def test_a_record_whose_fields_are_all_null_is_no_broken_one(
    spark: SparkSession, tables: KafkaTables, tmp_path: pathlib.Path
) -> None:
    values = [avro({"text": None}, NOTHING_SET), avro({"text": "t"}, NOTHING_SET), b"", b"\x04"]
    topic = topic_of(tables, "nulls", values)
    archived(spark, topic, tmp_path / "table", value="avro", schema=json.dumps(NOTHING_SET))
    rows = in_table(spark, tmp_path / "table")
    assert column(rows, "value") == [{"text": None}, {"text": "t"}, None, None]
    assert column(rows, "undecoded") == [None, None, b"", b"\x04"]


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("schema", "given", "wanted"),
    [
        ("string", ["a", ""], ["a", ""]),
        (["null", "long"], [None, 5], [None, 5]),
        ({"type": "int", "logicalType": "date"}, [date(2026, 1, 2)], [date(2026, 1, 2)]),
        (
            {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2},
            [Decimal("-1.25")],
            [Decimal("-1.25")],
        ),
        ({"type": "enum", "name": "E", "symbols": ["A", "B"]}, ["B"], ["B"]),
        ({"type": "array", "items": AVRO}, [[]], [[]]),
        (["int", "string"], [1, "a"], [{"member0": 1, "member1": None}, {"member0": None, "member1": "a"}]),
    ],
)
def test_avro_values_need_not_be_records(
    spark: SparkSession, tables: KafkaTables, tmp_path: pathlib.Path, schema: Any, given: Any, wanted: Any
) -> None:
    values = [avro(one, schema) for one in given]
    topic = topic_of(tables, "scalars", [*values, b"\xff" * 20])
    archived(spark, topic, tmp_path / "table", value="avro", schema=json.dumps(schema))
    rows = in_table(spark, tmp_path / "table")
    assert column(rows, "value") == [*wanted, None]
    assert column(rows, "undecoded") == [*[None] * len(values), b"\xff" * 20]


@pytest.mark.nightly
def test_options_of_sparks_decoders_are_handed_on(
    spark: SparkSession, tables: KafkaTables, tmp_path: pathlib.Path
) -> None:
    topic = topic_of(tables, "options", [avro("a", ["int", "string"])])
    options = {"value": "avro", "schema": '["int", "string"]'}
    named = {"enableStableIdentifiersForUnionType": "true"}
    archived(spark, topic, tmp_path / "avro", **options, decode_options=named)
    assert column(in_table(spark, tmp_path / "avro"), "value") == [{"member_int": None, "member_string": "a"}]
    assert "was made with decode options " in refused(spark, topic, tmp_path / "avro", **options)
    written = {"type": "record", "name": "R", "fields": [{"name": "id", "type": "long"}]}
    added = {"name": "note", "type": "string", "default": "none"}
    wanted = {**written, "fields": [*written["fields"], added]}
    topic = topic_of(tables, "options", [avro({"id": 1}, written), b""])
    options = {"value": "avro", "schema": json.dumps(written)}
    named = {"avroSchema": json.dumps(wanted)}
    archived(spark, topic, tmp_path / "evolved", **options, decode_options=named)
    rows = in_table(spark, tmp_path / "evolved")
    assert column(rows, "value") == [{"id": 1, "note": "none"}, None]
    topic = topic_of(tables, "options", [b'{"at": "02.01.2026"}', framed(b'{"at": "03.01.2026"}')])
    options = {"value": "json", "schema": "at DATE", "decode_options": {"dateFormat": "dd.MM.yyyy"}}
    archived(spark, topic, tmp_path / "json", **options)
    archived(spark, topic, tmp_path / "framed", **options, framing="confluent")
    first, second = {"at": date(2026, 1, 2)}, {"at": date(2026, 1, 3)}
    assert column(in_table(spark, tmp_path / "json"), "value") == [first, None]
    assert column(in_table(spark, tmp_path / "framed"), "value") == [None, second]


@pytest.mark.nightly
def test_framed_protobuf_that_keeps_its_bytes_can_be_replayed_and_compacted(
    spark: SparkSession, tables: KafkaTables, tmp_path: pathlib.Path
) -> None:
    from odradek.spark.jobs.compaction import SizeRules

    table = tmp_path / "table"
    options = {**BY_PROTOBUF, "framing": "confluent", "keep_raw": True}
    topic = topic_of(tables, "framed", [framed(PATH + order(id=1).SerializeToString()), None, b"x"])
    for number in range(2, 5):
        archived(spark, topic, table, **options)
        topic.add([Message(framed(PATH + order(id=number).SerializeToString()), timestamp_ms=START_MS)])
    rules = SizeRules(files_min=2)
    report = archived(spark, topic, table, **options, compact=True, size_rules=rules)
    assert report.figures["small files merged"] == 4
    rows = in_table(spark, table)
    assert [value and value["id"] for value in column(rows, "value")] == [1, None, None, 2, 3, 4]
    assert column(rows, "schema_id") == [7, None, None, 7, 7, 7]
    bootstrap = tables.client.bootstrap
    assert verify.run(spark, bootstrap_servers=bootstrap, topic=topic.name, table=str(table)).ok
    topic.add([Message(b"garbage", timestamp_ms=START_MS)])
    told = refused(spark, topic, table, **options, decode_mode="failfast")
    assert f"topic {topic.name}, partition 0, offset 6: the value does not decode as protobuf" in told
    archived(spark, topic, table, **options)
    to = tables.new_topic("target")
    replayed(spark, topic, table, to)
    assert same(spark, topic, to).ok


@pytest.mark.nightly
def test_a_schema_that_spark_does_not_take_is_told_before_anything_is_written(
    spark: SparkSession, tables: KafkaTables, tmp_path: pathlib.Path
) -> None:
    topic, table = topic_of(tables, "wrong", [b"x"]), tmp_path / "table"
    assert "values cannot be decoded as avro: " in refused(
        spark, topic, table, value="avro", schema='{"type": "nothing"}'
    )
    node = {"type": "record", "name": "Node", "fields": [{"name": "next", "type": ["null", "Node"]}]}
    assert "values cannot be decoded as avro: " in refused(
        spark, topic, table, value="avro", schema=json.dumps(node)
    )
    assert "is for a table of Iceberg" in refused(spark, topic, table, checkpoint=str(tmp_path))
    assert "table format 'delta' is none: it is parquet or iceberg" in refused(
        spark, topic, table, table_format="delta"
    )
    assert not table.exists()
