"""Avro beside fastavro: what it writes is read here as it was meant; damage and size are refused in time."""

import io
import json
import time
import uuid
from datetime import UTC, date, datetime
from datetime import time as clock_time
from decimal import Decimal

import fastavro
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from odradek.commands.avro_values import VALUES_MAX, NotAvro, parse_avro_schema, read_avro
from tests.tiers import examples

LONG = st.integers(-(2**63), 2**63 - 1)
ORDER = {
    "type": "record",
    "name": "Order",
    "namespace": "shop",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "small", "type": "int"},
        {"name": "flag", "type": "boolean"},
        {"name": "price", "type": "double"},
        {"name": "text", "type": ["null", "string"]},
        {"name": "raw", "type": "bytes"},
        {"name": "state", "type": {"type": "enum", "name": "State", "symbols": ["NEW", "PAID"]}},
        {"name": "tags", "type": {"type": "map", "values": "string"}},
        {"name": "code", "type": {"type": "fixed", "name": "Code", "size": 3}},
        {"name": "inner", "type": {"type": "array", "items": ["null", "Order", "shop.State"]}},
    ],
}


def orders(depth):
    inner = st.none() | st.sampled_from(["NEW", "PAID"])
    if depth:
        inner = inner | orders(depth - 1)
    return st.fixed_dictionaries(
        {
            "id": LONG,
            "small": st.integers(-(2**31), 2**31 - 1),
            "flag": st.booleans(),
            "price": st.floats(allow_nan=False, allow_infinity=False),
            "text": st.none() | st.text(max_size=9),
            "raw": st.just(b"\xff\x00"),
            "state": st.sampled_from(["NEW", "PAID"]),
            "tags": st.dictionaries(st.text(max_size=5), st.text(max_size=5), max_size=3),
            "code": st.binary(min_size=3, max_size=3),
            "inner": st.lists(inner, max_size=3),
        }
    )


def written(schema, value):
    to = io.BytesIO()
    fastavro.schemaless_writer(to, fastavro.parse_schema(schema), value)
    return to.getvalue()


def expected(value):
    if isinstance(value, dict):
        return {name: expected(one) for name, one in value.items()}
    if isinstance(value, list):
        return [expected(one) for one in value]
    if isinstance(value, bytes):
        import base64

        return {"base64": base64.b64encode(value).decode()}
    return value


@given(orders(2))
@settings(max_examples=examples(300), deadline=None)
def test_what_fastavro_writes_is_read(value):
    assert read_avro(parse_avro_schema(json.dumps(ORDER)), written(ORDER, value)) == expected(value)


@given(st.binary(max_size=200))
@settings(max_examples=examples(600), deadline=None)
def test_any_bytes_are_a_value_or_refused(content):
    try:
        found = read_avro(parse_avro_schema(json.dumps(ORDER)), content)
    except NotAvro:
        pass
    else:
        json.dumps(found)


@pytest.mark.parametrize(
    ("schema", "value", "text"),
    [
        (
            {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2},
            Decimal("-12.30"),
            "-12.30",
        ),
        ({"type": "int", "logicalType": "date"}, date(2026, 11, 30), "2026-11-30"),
        ({"type": "int", "logicalType": "time-millis"}, clock_time(9, 0, 1, 5000), "09:00:01.005"),
        (
            {"type": "long", "logicalType": "timestamp-millis"},
            datetime(2026, 11, 30, 9, tzinfo=UTC),
            "2026-11-30T09:00:00.000Z",
        ),
        (
            {"type": "long", "logicalType": "local-timestamp-micros"},
            datetime(1969, 12, 31, 23, 59, 59, 999_999),
            "1969-12-31T23:59:59.999999",
        ),
        ({"type": "string", "logicalType": "uuid"}, uuid.UUID(int=5), str(uuid.UUID(int=5))),
        ({"type": "long", "logicalType": "no-such"}, 5, 5),
        ("double", float("nan"), "NaN"),
        ("float", float("-inf"), "-Infinity"),
    ],
)  # fmt: skip
def test_logical_types_are_texts(schema, value, text):
    assert read_avro(parse_avro_schema(json.dumps(schema)), written(schema, value)) == text


def test_a_time_out_of_range_stays_a_number():
    schema = {"type": "long", "logicalType": "timestamp-millis"}
    assert read_avro(parse_avro_schema(json.dumps(schema)), written("long", 2**62)) == 2**62


@pytest.mark.parametrize(
    ("schema", "content"),
    [
        ({"type": "array", "items": "null"}, written("long", 2**60)),
        ({"type": "array", "items": {"type": "fixed", "name": "F", "size": 0}}, written("long", 2**60)),
        ({"type": "record", "name": "R", "fields": [{"name": "r", "type": "R"}]}, b""),
        ({"type": "array", "items": {"type": "array", "items": "null"}}, b"\x02\x80\x80\x80\x80\x10"),
        ("string", written("long", 2**40)),
        ("bytes", written("long", -5)),
        ("long", b"\xff" * 50),
    ],
)
def test_what_claims_to_be_huge_is_refused_at_once(schema, content):
    began = time.process_time()
    with pytest.raises(NotAvro, match=r"more than|ends too early"):
        read_avro(parse_avro_schema(json.dumps(schema)), content)
    assert time.process_time() - began < 20


def test_types_that_grow_without_bytes_are_bounded():
    """Each record has two of the next: 2^60 values in no byte at all."""
    schema = "null"
    for number in range(60):
        fields = [
            {"name": "a", "type": schema},
            {"name": "b", "type": f"R{number - 1}" if number else "null"},
        ]
        schema = {"type": "record", "name": f"R{number}", "fields": fields}
    with pytest.raises(NotAvro, match=f"{VALUES_MAX:,}|too large"):
        read_avro(parse_avro_schema(json.dumps(schema)), b"")


@pytest.mark.parametrize(
    "text",
    [
        "{",
        "[" * 100_000,
        '{"type": "array"}',
        '{"type": "record", "name": "R"}',
        '{"type": "fixed", "name": "F", "size": -1}',
        '"NoSuchType"',
        '{"type": "enum", "symbols": []}',
        "7",
        '{"type": "record", "name": "R", "fields": [{"name": "a"}]}',
    ],
)
def test_what_is_no_schema_is_refused(text):
    with pytest.raises(NotAvro):
        parse_avro_schema(text)
