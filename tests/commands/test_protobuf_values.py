"""Protobuf beside Google's package: what it writes is read here, by a .proto file and by numbers alone."""

import json
import time

import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, json_format, message_factory
from hypothesis import given, settings
from hypothesis import strategies as st

from odradek.commands.protobuf_schema import WELL_KNOWN, NotProto, parse_proto
from odradek.commands.protobuf_values import NotProtobuf, read_fields, read_index, read_message
from tests.tiers import examples

SCALARS = {
    "double": st.floats(allow_nan=False, allow_infinity=False),
    "float": st.floats(width=32, allow_nan=False, allow_infinity=False),
    "int64": st.integers(-(2**63), 2**63 - 1),
    "uint64": st.integers(0, 2**64 - 1),
    "int32": st.integers(-(2**31), 2**31 - 1),
    "fixed64": st.integers(0, 2**64 - 1),
    "fixed32": st.integers(0, 2**32 - 1),
    "bool": st.booleans(),
    "string": st.text(max_size=8),
    "bytes": st.binary(max_size=8),
    "uint32": st.integers(0, 2**32 - 1),
    "sfixed32": st.integers(-(2**31), 2**31 - 1),
    "sfixed64": st.integers(-(2**63), 2**63 - 1),
    "sint32": st.integers(-(2**31), 2**31 - 1),
    "sint64": st.integers(-(2**63), 2**63 - 1),
}
FIELDS = "\n".join(f"  {kind} one_{kind} = {number};" for number, kind in enumerate(SCALARS, 1))
LISTS = "\n".join(f"  repeated {kind} all_{kind} = {number};" for number, kind in enumerate(SCALARS, 101))
PROTO = f"""
// A comment; "with" {{ signs }}
syntax = "proto3";
package shop.v1;
import "google/protobuf/timestamp.proto";
option java_package = "x.y";
message Order {{
{FIELDS}
{LISTS}
  repeated Order inner = 200;
  map<string, int32> counts = 201;
  map<int64, Order> orders = 202 [deprecated = true, (custom).x = {{ a: [1, 2] }}];
  oneof choice {{ State state = 203; .shop.v1.Order.Line line = 204; }}
  reserved 300, 310 to max; reserved "gone";
  enum State {{ option allow_alias = true; NEW = 0; PAID = 1; LATE = -5; OTHER = 1 [deprecated = true]; }}
  message Line {{ string sku = 1; message Deep {{ bool yes = 1; }} }}
}}
message Second {{ Order.Line line = 1; }}
service Shop {{ rpc Get(Order) returns (stream Order) {{ option (x) = {{ get: "/a" }}; }} }}
"""


def google_class():
    """The message Order of PROTO, declared by hand for Google's package."""
    file = descriptor_pb2.FileDescriptorProto(name="o.proto", package="shop.v1", syntax="proto3")
    order = file.message_type.add(name="Order")
    field = descriptor_pb2.FieldDescriptorProto
    for prefix, first, label in (("one", 1, field.LABEL_OPTIONAL), ("all", 101, field.LABEL_REPEATED)):
        for number, kind in enumerate(SCALARS, first):
            kind_number = getattr(field, f"TYPE_{kind.upper()}")
            order.field.add(name=f"{prefix}_{kind}", number=number, type=kind_number, label=label)
    own = {"type": field.TYPE_MESSAGE, "label": field.LABEL_REPEATED}
    order.field.add(name="inner", number=200, type_name=".shop.v1.Order", **own)
    for name, number, key, value in (
        ("counts", 201, field.TYPE_STRING, {"type": field.TYPE_INT32}),
        ("orders", 202, field.TYPE_INT64, {"type": field.TYPE_MESSAGE, "type_name": ".shop.v1.Order"}),
    ):
        entry = order.nested_type.add(name=f"{name.capitalize()}Entry")
        entry.options.map_entry = True
        entry.field.add(name="key", number=1, type=key, label=field.LABEL_OPTIONAL)
        entry.field.add(name="value", number=2, label=field.LABEL_OPTIONAL, **value)
        order.field.add(name=name, number=number, type_name=f".shop.v1.Order.{entry.name}", **own)
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("shop.v1.Order"))


ORDER = google_class()
TYPES = parse_proto(PROTO)


def fields(depth):
    found = {f"one_{kind}": values for kind, values in SCALARS.items()}
    found |= {f"all_{kind}": st.lists(values, max_size=2) for kind, values in SCALARS.items()}
    found["counts"] = st.dictionaries(st.text(max_size=4), SCALARS["int32"], max_size=2)
    if depth:
        found["inner"] = st.lists(fields(depth - 1), max_size=2)
        found["orders"] = st.dictionaries(SCALARS["int64"], fields(depth - 1), max_size=2)
    return st.fixed_dictionaries({}, optional=found)


def filled(found):
    message = ORDER()
    for name, value in found.items():
        if name == "inner":
            message.inner.extend(filled(one) for one in value)
        elif name == "orders":
            for key, one in value.items():
                message.orders[key].CopyFrom(filled(one))
        elif name == "counts":
            message.counts.update(value)
        elif isinstance(value, list):
            getattr(message, name).extend(value)
        else:
            setattr(message, name, value)
    return message


def as_google(value, kind=""):
    """Our JSON as Google's: bytes as base64, numbers of 64 bits as texts."""
    if isinstance(value, list):
        return [as_google(one, kind) for one in value]
    if isinstance(value, dict):
        if kind == "bytes":
            return value["base64"]
        return {name: as_google(one, name.rpartition("_")[2]) for name, one in value.items()}
    if kind.endswith("64"):
        return str(value)
    return float(value) if kind in ("double", "float") else value


@given(fields(1))
@settings(max_examples=examples(300), deadline=None)
def test_what_google_writes_is_read(found):
    message = filled(found)
    content = message.SerializeToString(deterministic=True)
    ours = as_google(read_message(TYPES.message("shop.v1.Order"), content))
    theirs = json_format.MessageToDict(ORDER.FromString(content), preserving_proto_field_name=True)
    assert ours == as_floats(theirs)


def as_floats(value):
    """Floats of 32 bits are written with fewer digits there."""
    if isinstance(value, dict):
        return {name: as_floats(one) for name, one in value.items()}
    if isinstance(value, list):
        return [as_floats(one) for one in value]
    return pytest.approx(value, rel=1e-5, abs=1e-44) if isinstance(value, float) else value


@given(st.binary(max_size=200))
@settings(max_examples=examples(900), deadline=None)
def test_any_bytes_are_a_message_or_refused(content):
    for read in (lambda: read_message(TYPES.message("shop.v1.Order"), content), lambda: read_fields(content)):
        try:
            found = read()
        except NotProtobuf:
            pass
        else:
            json.dumps(found)


def test_enums_oneofs_and_fields_that_are_not_known():
    order = TYPES.message("shop.v1.Order")
    assert read_message(order, b"\xd8\x0c\x01") == {"state": "PAID"}
    assert read_message(order, b"\xd8\x0c\x09") == {"state": 9}
    negative = b"\xd8\x0c\xfb\xff\xff\xff\xff\xff\xff\xff\xff\x01"
    assert read_message(order, negative) == {"state": "LATE"}
    assert read_message(order, b"\xe2\x0c\x03\x0a\x01x") == {"line": {"sku": "x"}}
    assert read_message(order, b"\x92\x4b\x02hi\x92\x4b\x01!") == {"1202": ["hi", "!"]}


def test_a_header_leads_to_a_nested_message():
    assert read_index(b"\x00rest", 0) == ([0], 1)
    assert read_index(b"\x04\x00\x02", 0) == ([0, 1], 3)
    assert TYPES.at([0]).name == "shop.v1.Order"
    assert TYPES.at([0, 0, 0]).name == "shop.v1.Order.Line.Deep"
    assert TYPES.at([1]).name == "shop.v1.Second"
    assert TYPES.at([0, 9]) is None
    for broken in (b"", b"\x01", b"\xff" * 20, b"\x7e" + b"\x00" * 9):
        with pytest.raises(NotProtobuf):
            read_index(broken, 0)


def test_googles_types_are_what_they_stand_for():
    text = 'syntax = "proto3"; message M {' + "".join(
        f" google.protobuf.{kind} f{number} = {number};"
        for number, kind in enumerate(("Timestamp", "Duration", "Int64Value", "Struct", "BoolValue"), 1)
    )
    imports = "".join(f'import "{name}";' for name in WELL_KNOWN)
    kind = parse_proto(imports + text + "}").message("M")
    found = read_message(
        kind,
        b"\x0a\x04\x08\x05\x10\x00" + b"\x12\x07\x08\x01\x10\x80\xc2\xd7\x2f" + b"\x1a\x02\x08\x07\x2a\x00",
    )
    assert found == {"f1": "1970-01-01T00:00:05Z", "f2": "1.100s", "f3": 7, "f5": False}
    struct = b"\x22\x0b\x0a\x09\x0a\x01a\x12\x04\x1a\x02hi"
    assert read_message(kind, struct) == {"f4": {"a": "hi"}}


def test_proto2_has_groups_and_files_import_each_other():
    other = 'syntax = "proto2"; package common; message Id { optional string text = 1; }'
    text = """syntax = "proto2"; import public "common/id.proto";
        message M { required common.Id id = 1; repeated group Item = 2 { optional int32 n = 1; }
        extensions 100 to 199; } extend M { optional int32 x = 100; }"""
    kind = parse_proto(text, {"common/id.proto": other}).message("M")
    assert read_message(kind, b"\x0a\x03\x0a\x01x\x13\x08\x01\x14\x13\x08\x02\x14") == {
        "id": {"text": "x"},
        "item": [{"n": 1}, {"n": 2}],
    }
    with pytest.raises(NotProto, match=r"common.Id.*is not declared"):
        parse_proto(text)


@pytest.mark.parametrize("content", [b"\x0b" * 5000, b"\x0b" * 60_000, b"\x08\x01" * 60_000])
def test_what_is_deep_or_long_is_refused_in_time(content):
    began = time.process_time()
    for read in (lambda: read_message(TYPES.message("shop.v1.Order"), content), lambda: read_fields(content)):
        with pytest.raises(NotProtobuf):
            read()
    assert time.process_time() - began < 20


def test_messages_in_each_other_without_a_schema_are_bounded():
    content = b"\x08\x80\x01"
    for _ in range(100):
        size, lead = len(content), b""
        while size > 127:
            lead, size = lead + bytes([size & 0x7F | 0x80]), size >> 7
        content = b"\x0a" + lead + bytes([size]) + content
    with pytest.raises(NotProtobuf, match="levels"):
        read_fields(content)


@pytest.mark.parametrize(
    "text",
    [
        "message",
        "message M {",
        "message M { int32 a; }",
        "message M { int32 a = 0; }",
        "message M { int32 a = 536870912; }",
        "message M { NoSuch a = 1; }",
        "message M { int32 a = x1; }",
        "\x00",
        "message M {" * 500,
        "enum E { A = ; }",
    ],
)
def test_what_is_no_proto_file_is_refused(text):
    with pytest.raises(NotProto):
        parse_proto(text)
