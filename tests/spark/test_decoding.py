"""Values that are decoded, as far as it goes without Spark: what is refused, and Protobuf batch by batch."""

import json
from datetime import UTC, datetime
from decimal import Decimal

import pyarrow as pa
import pytest

from compat_tests.spark.orders import AVRO_SCHEMA, DESCRIPTOR, MESSAGE, PATH, framed, order
from odradek.spark.jobs.decoding import Decoding
from odradek.spark.jobs.errors import JobError
from odradek.spark.jobs.protobuf_values import Messages, decoding

PROTOBUF = {"value": "protobuf", "descriptor": DESCRIPTOR, "message": MESSAGE}
AT = datetime(2026, 1, 2, 3, 4, 5, 678901, tzinfo=UTC)


def decoded(*values, is_framed=False):
    """(row or None, whether it is broken) of each value."""
    batch = pa.record_batch({"offset": list(range(len(values))), "value": pa.array(values, pa.binary())})
    (found,) = decoding(Messages(DESCRIPTOR, MESSAGE, is_framed))(iter([batch]))
    found.validate(full=True)
    assert found.column("offset").to_pylist() == list(range(len(values)))
    assert found.column("value").to_pylist() == list(values)
    return list(zip(*(found.column(name).to_pylist() for name in ("decoded", "is_broken")), strict=True))


def full_order():
    one = order(id=-1, name="n", items=[{"sku": "a", "counts": [1, 2]}, {}], prices={"eur": 1.5}, state=1)
    one.item.sku = "first"
    one.at.FromDatetime(AT)
    one.large, one.blob, one.cash = 2**64 - 1, b"\xff", 2**32 - 1
    one.more.update({"a": [1, None]})
    one.nothing.SetInParent()
    return one


def test_each_kind_of_field_becomes_a_column():
    ((row, is_broken),) = decoded(full_order().SerializeToString())
    assert not is_broken
    assert json.loads(row.pop("more")) == {"a": [1, None]}
    assert row == {
        "id": -1,
        "name": "n",
        "item": {"sku": "first", "counts": []},
        "items": [{"sku": "a", "counts": [1, 2]}, {"sku": "", "counts": []}],
        "prices": [("eur", 1.5)],
        "state": "PAID",
        "at": AT,
        "large": Decimal(2**64 - 1),
        "blob": b"\xff",
        "card": None,
        "cash": 2**32 - 1,
    }


def test_what_can_be_absent_is_null_and_all_else_has_its_default():
    unknown = order()
    unknown.state = 9
    rows = decoded(b"", None, unknown.SerializeToString())
    assert rows[0] == (
        {
            **dict.fromkeys(("name", "item", "at", "card", "cash", "more")),
            "id": 0,
            "items": [],
            "prices": [],
            "state": "NEW",
            "large": Decimal(0),
            "blob": b"",
        },
        False,
    )
    assert rows[1] == (None, False)
    assert rows[2][0]["state"] == "9"


@pytest.mark.parametrize(
    "value",
    [
        full_order().SerializeToString()[:-1],
        b"garbage",
        b'{"id": 1}',
        b"\x0a\x01a",  # field 1 as text: another message
        b"\x12\x01\xff",  # no UTF-8
    ],
)
def test_a_value_that_is_no_such_message_is_broken_and_its_neighbours_are_not(value):
    good = order(id=1).SerializeToString()
    found = decoded(good, value, good)
    assert [is_broken for _, is_broken in found] == [False, True, False]
    assert found[0] == found[2]


def test_fields_that_the_descriptor_does_not_know_are_dropped():
    assert decoded(order(id=1).SerializeToString() + b"\xa0\x06\x01") == decoded(
        order(id=1).SerializeToString()
    )


def test_confluents_frame_has_to_be_there_and_to_name_this_message():
    value = order(id=1).SerializeToString()
    right = framed(PATH + value)
    wrong = [value, b"", right[:5], right[:6], framed(b"\0" + value), framed(b"\x02\x02" + value)]
    found = decoded(right, None, *wrong, framed(b"\xff" * 100), is_framed=True)
    assert found[0][0]["id"] == 1
    assert [is_broken for _, is_broken in found] == [False, False, *[True] * (len(wrong) + 1)]


def test_an_empty_path_in_the_frame_is_the_first_message():
    first = Messages(DESCRIPTOR, "shop.Nothing", True).parser()
    assert [first(framed(path)) is not None for path in (b"\0", b"\x02\0", b"\x02\x02")] == [
        True,
        True,
        False,
    ]
    inner = Messages(DESCRIPTOR, "shop.Order.Item", True).parser()
    assert [inner(framed(path)) is not None for path in (b"\x04\x04\0", PATH, b"\0")] == [True, False, False]


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"value": "xml"}, "value 'xml' is none: it is binary, json, avro or protobuf"),
        ({"mode": "dropmalformed"}, "decode mode 'dropmalformed' is none: it is permissive or failfast"),
        ({"framing": "glue"}, "framing 'glue' is none: it is none or confluent"),
        ({"value": "avro"}, "value json or avro needs a schema"),
        ({"schema": "id BIGINT"}, "a schema needs one of these values"),
        (
            {"value": "avro", "schema": "id BIGINT"},
            "the schema 'id BIGINT' is not an Avro schema, which is JSON",
        ),
        ({"value": "protobuf", "descriptor": b""}, "value protobuf needs a descriptor and the name"),
        ({"message": "m"}, "value protobuf needs a descriptor and the name"),
        ({"keep_raw": True}, "are for values that are decoded"),
        ({"framing": "confluent"}, "are for values that are decoded"),
        ({**PROTOBUF, "options": {"a": "b"}}, "the decode option a is not taken"),
        (
            {"value": "avro", "schema": AVRO_SCHEMA, "options": {"Mode": "X"}},
            "the decode option mode is not taken",
        ),
        ({**PROTOBUF, "descriptor": b"\xff"}, "make it with protoc --include_imports"),
        ({**PROTOBUF, "descriptor": b""}, "the descriptor is none that can be used (it has no file)"),
        ({**PROTOBUF, "message": "Order"}, "no message Order (it has "),
        ({**PROTOBUF, "message": "shop.Node"}, "because shop.Node contains itself"),
        ({**PROTOBUF, "message": "shop.Nothing"}, "the message shop.Nothing has no fields"),
    ],
)
def test_what_makes_no_sense_is_refused_in_one_sentence(options, sentence):
    with pytest.raises(JobError) as refused:
        Decoding(**options).check()
    assert sentence in str(refused.value)
    assert "\n" not in str(refused.value)


def test_imports_that_are_not_in_the_descriptor_are_told():
    from google.protobuf.descriptor_pb2 import FileDescriptorSet

    alone = FileDescriptorSet.FromString(DESCRIPTOR)
    del alone.file[:2]
    with pytest.raises(JobError, match="make it with protoc --include_imports"):
        Decoding(**{**PROTOBUF, "descriptor": alone.SerializeToString()}).check()


def test_what_belongs_to_a_table_leaves_out_what_may_change():
    about = Decoding(**PROTOBUF, mode="failfast").about()
    assert about == Decoding(**PROTOBUF).about()
    assert about["descriptor"].startswith("sha256:")
    assert Decoding().about() == {
        **dict.fromkeys(("schema", "descriptor", "message", "framing", "raw", "decode options")),
        "value": "binary",
    }
