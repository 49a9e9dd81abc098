"""Orders of a shop, as Avro and as Protobuf, written by the libraries of these formats."""

from __future__ import annotations

import io
import json
from typing import Any

import fastavro
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, struct_pb2, text_format
from google.protobuf import timestamp_pb2 as timestamps
from google.protobuf.message import Message

AVRO = {
    "type": "record",
    "name": "Order",
    "namespace": "shop",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "name", "type": ["null", "string"], "default": None},
        {
            "name": "address",
            "type": [
                "null",
                {
                    "type": "record",
                    "name": "Address",
                    "fields": [
                        {"name": "street", "type": "string"},
                        {"name": "floor", "type": ["null", "int"]},
                    ],
                },
            ],
            "default": None,
        },
        {"name": "counts", "type": {"type": "array", "items": "int"}, "default": []},
        {"name": "prices", "type": {"type": "map", "values": "double"}, "default": {}},
    ],
}
AVRO_SCHEMA = json.dumps(AVRO)
NOTHING_SET = {"type": "record", "name": "Note", "fields": [{"name": "text", "type": ["null", "string"]}]}
"""A record whose every field may be null."""


def avro(value: Any, schema: Any = AVRO) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(schema), value)
    return out.getvalue()


def framed(value: bytes, schema_id: int = 7) -> bytes:
    """As Confluent's serializers write it; of Protobuf the path of the message is in front of `value`."""
    return b"\0" + schema_id.to_bytes(4, "big") + value


PROTO = """
name: "shop.proto" package: "shop" syntax: "proto3"
dependency: "google/protobuf/timestamp.proto" dependency: "google/protobuf/struct.proto"
enum_type { name: "State" value { name: "NEW" number: 0 } value { name: "PAID" number: 1 } }
message_type { name: "Nothing" }
message_type { name: "Node" field { name: "next" number: 1 label: LABEL_OPTIONAL type: TYPE_MESSAGE type_name: ".shop.Node" } }
message_type {
  name: "Order"
  nested_type {
    name: "Item"
    field { name: "sku" number: 1 label: LABEL_OPTIONAL type: TYPE_STRING }
    field { name: "counts" number: 2 label: LABEL_REPEATED type: TYPE_INT32 }
  }
  nested_type {
    name: "PricesEntry" options { map_entry: true }
    field { name: "key" number: 1 label: LABEL_OPTIONAL type: TYPE_STRING }
    field { name: "value" number: 2 label: LABEL_OPTIONAL type: TYPE_DOUBLE }
  }
  field { name: "id" number: 1 label: LABEL_OPTIONAL type: TYPE_INT64 }
  field { name: "name" number: 2 label: LABEL_OPTIONAL type: TYPE_STRING proto3_optional: true oneof_index: 1 }
  field { name: "item" number: 3 label: LABEL_OPTIONAL type: TYPE_MESSAGE type_name: ".shop.Order.Item" }
  field { name: "items" number: 4 label: LABEL_REPEATED type: TYPE_MESSAGE type_name: ".shop.Order.Item" }
  field { name: "prices" number: 5 label: LABEL_REPEATED type: TYPE_MESSAGE type_name: ".shop.Order.PricesEntry" }
  field { name: "state" number: 6 label: LABEL_OPTIONAL type: TYPE_ENUM type_name: ".shop.State" }
  field { name: "at" number: 7 label: LABEL_OPTIONAL type: TYPE_MESSAGE type_name: ".google.protobuf.Timestamp" }
  field { name: "large" number: 8 label: LABEL_OPTIONAL type: TYPE_UINT64 }
  field { name: "blob" number: 9 label: LABEL_OPTIONAL type: TYPE_BYTES }
  field { name: "card" number: 10 label: LABEL_OPTIONAL type: TYPE_STRING oneof_index: 0 }
  field { name: "cash" number: 11 label: LABEL_OPTIONAL type: TYPE_UINT32 oneof_index: 0 }
  field { name: "more" number: 12 label: LABEL_OPTIONAL type: TYPE_MESSAGE type_name: ".google.protobuf.Struct" }
  field { name: "nothing" number: 13 label: LABEL_OPTIONAL type: TYPE_MESSAGE type_name: ".shop.Nothing" }
  oneof_decl { name: "paid" } oneof_decl { name: "_name" }
}
"""  # noqa: E501
"""What a .proto file is once it is compiled, with each kind of field."""


def _files() -> descriptor_pb2.FileDescriptorSet:
    files = descriptor_pb2.FileDescriptorSet()
    for module in (timestamps, struct_pb2):
        module.DESCRIPTOR.CopyToProto(files.file.add())
    text_format.Parse(PROTO, files.file.add())
    return files


DESCRIPTOR: bytes = _files().SerializeToString()
"""As of `protoc --include_imports --descriptor_set_out`."""
MESSAGE = "shop.Order"
PATH = b"\x02\x04"
"""Before a message of this type in Confluent's frame: one index, 2."""


def order(**fields: Any) -> Message:
    """A message of the type `MESSAGE`."""
    pool = descriptor_pool.DescriptorPool()
    for file in _files().file:
        pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(MESSAGE))(**fields)
