"""Protobuf messages as columns, by Google's package `protobuf`, batch by batch in Spark's Python workers.

The types are those of Spark's own `from_protobuf`, except: unsigned numbers keep their value (uint32 is a
BIGINT, uint64 a DECIMAL(20, 0)), a field without presence has its default if it is not written, and
`google.protobuf.Struct` and its parts, which are recursive, are JSON texts.
"""

import functools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from odradek.spark.jobs.errors import JobError

if TYPE_CHECKING:
    import pyarrow
    from google.protobuf.descriptor import Descriptor, FieldDescriptor
    from google.protobuf.message import Message
    from pyspark.sql import DataFrame

SHOWN = 10
TIMESTAMP = "google.protobuf.Timestamp"
JSON_TEXTS = tuple(f"google.protobuf.{name}" for name in ("Struct", "Value", "ListValue"))
FRAME_BYTES = 5
VARINT_BITS = 63


@dataclass(frozen=True)
class Messages:
    """Decodes messages of one type; pickled for the workers."""

    descriptor: bytes
    name: str
    is_framed: bool = False

    def check(self) -> None:
        """JobError for an invalid descriptor, a missing message, or a message that cannot become a row."""
        if not _is_there():
            raise JobError(
                "value protobuf needs the package protobuf, here and on the workers: pip install "
                "'odradek[spark,protobuf]'"
            )
        _type_of_struct(_message_class(self.descriptor, self.name).DESCRIPTOR, ())

    def decoded(self, rows: "DataFrame") -> "DataFrame":
        """The rows with two more columns: `decoded`, and `is_broken` for a value that is not such a
        message."""
        from pyspark.sql.pandas.types import from_arrow_type
        from pyspark.sql.types import BooleanType, StructType

        self.check()
        kind = _message_class(self.descriptor, self.name).DESCRIPTOR
        schema = StructType([*rows.schema.fields])
        schema = schema.add("decoded", from_arrow_type(_type_of_struct(kind, ())))
        return rows.mapInArrow(decoding(self), schema.add("is_broken", BooleanType(), False))

    def parser(self) -> "Callable[[bytes], Message | None]":
        """A function from a value to its message, or None if it is not such a message."""
        from google.protobuf.message import DecodeError

        message_class = _message_class(self.descriptor, self.name)
        path = _path(message_class.DESCRIPTOR)
        known = set(message_class.DESCRIPTOR.fields_by_number)

        def parse(value: bytes) -> "Message | None":
            payload = _unframed(value, path) if self.is_framed else value
            if payload is None:
                return None
            try:
                message = message_class.FromString(payload)
            except DecodeError:
                return None
            # A known field number with another type: it is another message.
            return None if known & _unknown_numbers(message) else message

        return parse


def decoding(
    messages: Messages,
) -> "Callable[[Iterator[pyarrow.RecordBatch]], Iterator[pyarrow.RecordBatch]]":
    """For `mapInArrow`, on rows with a column `value`: appends `decoded` and `is_broken`."""

    def decode(batches: "Iterator[pyarrow.RecordBatch]") -> "Iterator[pyarrow.RecordBatch]":
        import pyarrow

        parse = messages.parser()
        kind = _message_class(messages.descriptor, messages.name).DESCRIPTOR
        for batch in batches:
            values = batch.column("value").to_pylist()
            found = [None if value is None else parse(value) for value in values]
            is_broken = [value is not None and one is None for value, one in zip(values, found, strict=True)]
            columns = [*batch.columns, _structs(kind, found), pyarrow.array(is_broken, pyarrow.bool_())]
            names = [*batch.schema.names, "decoded", "is_broken"]
            yield pyarrow.RecordBatch.from_arrays(columns, names=names)

    return decode


# What is in a value -----------------------------------------------------------------------------------


def _unframed(value: bytes, path: tuple[int, ...]) -> bytes | None:
    """The bytes after Confluent's frame: a zero, the schema's id, and the index of the message in the schema.

    None for an invalid frame, or for another message.
    """
    if len(value) < FRAME_BYTES or value[0] != 0:
        return None
    place, found = FRAME_BYTES, []
    try:
        count, place = _varint(value, place)
        for _ in range(count):
            index, place = _varint(value, place)
            found.append(index)
    except IndexError:
        return None
    # The first message of a file is written as an empty path.
    return value[place:] if tuple(found or [0]) == path else None


def _varint(value: bytes, place: int) -> tuple[int, int]:
    """A zigzag number, and its end; IndexError if the number does not end."""
    number = shift = 0
    while value[place] >= 0x80:
        if shift > VARINT_BITS:
            raise IndexError("a number without an end")
        number |= (value[place] & 0x7F) << shift
        place, shift = place + 1, shift + 7
    number |= value[place] << shift
    return (number >> 1) ^ -(number & 1), place + 1


def _path(kind: "Descriptor") -> tuple[int, ...]:
    """The indexes of the enclosing messages in the file, then of this message."""
    around = kind.containing_type
    if around is None:
        return (list(kind.file.message_types_by_name).index(kind.name),)
    return (*_path(around), [one.name for one in around.nested_types].index(kind.name))


def _unknown_numbers(message: "Message") -> set[int]:
    """Numbers of fields in the message that the descriptor lacks, or has with another type."""
    from google.protobuf.unknown_fields import UnknownFieldSet

    return {field.field_number for field in UnknownFieldSet(message)}


# Descriptors ------------------------------------------------------------------------------------------


def _is_there() -> bool:
    return find_spec("google") is not None and find_spec("google.protobuf") is not None


@functools.lru_cache(maxsize=8)
def _message_class(descriptor: bytes, name: str) -> "type[Message]":
    from google.protobuf.descriptor_pb2 import FileDescriptorSet
    from google.protobuf.descriptor_pool import DescriptorPool
    from google.protobuf.message import DecodeError
    from google.protobuf.message_factory import GetMessageClass

    try:
        files = FileDescriptorSet.FromString(descriptor).file
        if not files:
            raise DecodeError("it has no file")
        pool = DescriptorPool()
        for file in files:
            pool.Add(file)
    except (DecodeError, TypeError) as error:
        raise JobError(
            f"the descriptor is none that can be used ({str(error).splitlines()[0]}): make it with protoc "
            "--include_imports --descriptor_set_out=FILE"
        ) from None
    try:
        found: type[Any] = GetMessageClass(pool.FindMessageTypeByName(name))
        return found
    except KeyError:
        there = [
            f"{file.package}.{message.name}".lstrip(".") for file in files for message in file.message_type
        ]
        shown = ", ".join(there[:SHOWN]) + (", …" if len(there) > SHOWN else "")
        raise JobError(f"the descriptor has no message {name} (it has {shown}): give a full name") from None


def _is_repeated(field: "FieldDescriptor") -> bool:
    # Versions of the package before 6.31 have only the label, and later ones warn of it.
    if hasattr(field, "is_repeated"):
        return bool(field.is_repeated)
    return bool(field.label == field.LABEL_REPEATED)


def _is_map(field: "FieldDescriptor") -> bool:
    return field.message_type is not None and bool(field.message_type.GetOptions().map_entry)


def _fields(kind: "Descriptor") -> "list[FieldDescriptor]":
    """The fields that become columns; a message without fields does not."""
    return [field for field in kind.fields if field.message_type is None or field.message_type.fields]


# Columns ----------------------------------------------------------------------------------------------


def _scalar_type(field: "FieldDescriptor") -> "pyarrow.DataType":
    import pyarrow

    types = {
        field.TYPE_DOUBLE: pyarrow.float64(),
        field.TYPE_FLOAT: pyarrow.float32(),
        field.TYPE_BOOL: pyarrow.bool_(),
        field.TYPE_STRING: pyarrow.string(),
        field.TYPE_BYTES: pyarrow.binary(),
        field.TYPE_ENUM: pyarrow.string(),
        **dict.fromkeys((field.TYPE_INT32, field.TYPE_SINT32, field.TYPE_SFIXED32), pyarrow.int32()),
        **dict.fromkeys((field.TYPE_INT64, field.TYPE_SINT64, field.TYPE_SFIXED64), pyarrow.int64()),
        **dict.fromkeys((field.TYPE_UINT32, field.TYPE_FIXED32), pyarrow.int64()),
        **dict.fromkeys((field.TYPE_UINT64, field.TYPE_FIXED64), pyarrow.decimal128(20, 0)),
    }
    return types[field.type]


def _type_of_struct(kind: "Descriptor", around: tuple[str, ...]) -> "pyarrow.DataType":
    import pyarrow

    if kind.full_name in around:
        raise JobError(
            f"the message {around[0]} cannot become columns, because {kind.full_name} contains itself: "
            "archive it with value binary"
        )
    inside = (*around, kind.full_name)
    fields = [(field.name, _type_of(field, inside)) for field in _fields(kind)]
    if not fields:
        raise JobError(f"the message {kind.full_name} has no fields: archive it with value binary")
    return pyarrow.struct(fields)


def _type_of(field: "FieldDescriptor", around: tuple[str, ...]) -> "pyarrow.DataType":
    import pyarrow

    if _is_map(field):
        key, item = field.message_type.fields
        return pyarrow.map_(_type_of(key, around), _type_of(item, around))
    one = _type_of_one(field, around)
    return pyarrow.list_(one) if _is_repeated(field) else one


def _type_of_one(field: "FieldDescriptor", around: tuple[str, ...]) -> "pyarrow.DataType":
    import pyarrow

    kind = field.message_type
    if kind is None:
        return _scalar_type(field)
    if kind.full_name == TIMESTAMP:
        return pyarrow.timestamp("us", "UTC")
    if kind.full_name in JSON_TEXTS:
        return pyarrow.string()
    return _type_of_struct(kind, around)


def _structs(kind: "Descriptor", messages: "Sequence[Message | None]") -> "pyarrow.StructArray":
    """A column of messages; fields of a null are never read."""
    import pyarrow

    fields = _fields(kind)
    arrays = [_column(field, messages) for field in fields]
    is_null = pyarrow.array([message is None for message in messages], pyarrow.bool_())
    return pyarrow.StructArray.from_arrays(arrays, [field.name for field in fields], mask=is_null)


def _column(field: "FieldDescriptor", messages: "Sequence[Message | None]") -> "pyarrow.Array":
    """One field of all messages."""
    import pyarrow

    name = field.name
    if not _is_repeated(field):
        if field.has_presence:
            found = [
                getattr(one, name) if one is not None and one.HasField(name) else None for one in messages
            ]
        else:
            found = [None if one is None else getattr(one, name) for one in messages]
        return _values(field, found)
    parts = [() if one is None else getattr(one, name) for one in messages]
    ends = [0]
    for part in parts:
        ends.append(ends[-1] + len(part))
    offsets = pyarrow.array(ends, pyarrow.int32())
    if _is_map(field):
        key, item = field.message_type.fields
        keys = _values(key, [one for part in parts for one in part])
        return pyarrow.MapArray.from_arrays(
            offsets, keys, _values(item, [part[one] for part in parts for one in part])
        )
    return pyarrow.ListArray.from_arrays(offsets, _values(field, [one for part in parts for one in part]))


def _values(field: "FieldDescriptor", found: Sequence[Any]) -> "pyarrow.Array":
    """A column of single values, None for what is absent."""
    import pyarrow

    kind = field.message_type
    if kind is None:
        if field.type == field.TYPE_ENUM:
            names = field.enum_type.values_by_number
            found = [None if n is None else names[n].name if n in names else str(n) for n in found]
        elif field.type in (field.TYPE_UINT64, field.TYPE_FIXED64):
            found = [None if number is None else Decimal(number) for number in found]
        return pyarrow.array(found, _scalar_type(field))
    if kind.full_name == TIMESTAMP:
        micros = [None if at is None else at.seconds * 1_000_000 + at.nanos // 1000 for at in found]
        return pyarrow.array(micros, pyarrow.int64()).cast(pyarrow.timestamp("us", "UTC"))
    if kind.full_name in JSON_TEXTS:
        from google.protobuf.json_format import MessageToJson

        texts = [None if one is None else MessageToJson(one, indent=None) for one in found]
        return pyarrow.array(texts, pyarrow.string())
    return _structs(kind, found)
