"""`consume --decode FORM` and `-s [key=|value=]PACK`: keys and values as text that people can read.

    decoder = Decoders("auto", ["key=q"]).of("orders")
    key, value = decoder.both(record)

JSON is left as it is. What does not have the wanted form is shown as hex.
"""

import json
import re
import struct
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from odradek.client.client_error import ClientError
from odradek.client.stored_records import StoredBatch
from odradek.commands.message_pack import NotMessagePack, read_message_pack
from odradek.commands.protobuf_values import NotProtobuf, read_fields
from odradek.commands.record_json import json_lines
from odradek.commands.schemas import Found, NoSchema, Schemas
from odradek.wire.errors import MalformedMessage
from odradek.wire.readable import internal_reader
from odradek.wire.record_layout import Record

DECODE_HELP = """\
decoding (--decode, and -s as kcat has it) of keys and values, for %s, %k, the default and --json:
  auto      records of internal topics (__consumer_offsets, ...) by their fields; else JSON, UTF-8
            without control characters, MessagePack, Protobuf by the numbers of its fields, other
            UTF-8, whichever is first; else hex; before all, what a schema is there for
  internal, json, utf-8, msgpack, avro, protobuf, hex
            this form, and hex for what does not have it; values of more than 1 MiB are not parsed;
            avro needs a schema (below), protobuf may have one
  -s key=PACK, -s value=PACK, -s PACK (both)
            numbers one after the other: b B (8 bits, signed and not), h H (16), i I (32), q Q (64),
            c a character, s the rest as text, $ the end; > big-endian (default), < little-endian;
            without $ what follows is not looked at
  --json has key_form, key_decoded, value_form and value_decoded beside the bytes, which stay; and
            key_note, value_note: the schema, or why there is none."""

FORMS = ("auto", "json", "msgpack", "utf-8", "hex", "internal", "avro", "protobuf")
PARSED_BYTES_MAX = 1 << 20
"""Larger contents are text or hex."""
_NOT_TEXT = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]")
_json_text = json.JSONEncoder(ensure_ascii=False, allow_nan=False).encode


class Decoded(NamedTuple):
    """A key or a value."""

    form: str
    """json, msgpack, avro, protobuf, utf-8, hex, internal, pack, or null."""
    value: Any
    """For JSON."""
    text: bytes | None
    """For a format; None is null."""
    note: str = ""
    """Which schema it has; for hex, why it was not decoded."""


Parse = Callable[[bytes], Decoded | str | None]
"""None: the content does not have this form; a text: it should have, and this is wrong."""
_NULL = Decoded("null", None, None)


class Decoders:
    """The decoders of all topics, by the options; ClientError for what is not understood."""

    def __init__(self, form: str | None, packs: Sequence[str], schemas: Schemas | None = None) -> None:
        """Without a form what has no pack stays as it is."""
        self._form, self._schemas = form, schemas or Schemas()
        self._packs = {part: parse for text in packs for part, parse in _packs(text, self._schemas).items()}
        if form == "avro" and not self._schemas:
            raise ClientError(_NO_AVRO)
        self._made: dict[str, Decoder] = {}

    def of(self, topic: str) -> "Decoder":
        found = self._made.get(topic)
        if found is None:
            found = self._made[topic] = Decoder(self._form, self._packs, topic, self._schemas)
        return found

    def json_lines(self, topic: str, partition: int, batch: StoredBatch) -> list[bytes]:
        """Lines of `record_json.json_lines`, with the decoded keys and values."""
        lines = json_lines(topic, partition, batch)
        if batch.header.is_control:
            return lines
        decoder = self.of(topic)
        return [
            line[:-2] + _members(*decoder.both(record)).encode() + b"}\n"
            for line, record in zip(lines, batch.records, strict=True)
        ]


class Decoder:
    """Decoder for the records of one topic."""

    def __init__(self, form: str | None, packs: dict[str, Parse], topic: str, schemas: Schemas) -> None:
        self._key = _parses(form, packs.get("key"), _by_schema(schemas, topic, "key", form))
        self._value = _parses(form, packs.get("value"), _by_schema(schemas, topic, "value", form))
        self._read = internal_reader(topic) if form in ("auto", "internal") and not packs else None

    def both(self, record: Record) -> tuple[Decoded, Decoded]:
        """Key and value."""
        return self._internal(record) or (
            _first(self._key, record.key),
            _first(self._value, record.value),
        )

    def _internal(self, record: Record) -> tuple[Decoded, Decoded] | None:
        if self._read is None:
            return None
        try:
            found = self._read(record.key, record.value)
        except MalformedMessage:
            return None
        if found is None:
            return None
        key = {"type": found.type, **found.key}
        value = _NULL if found.value is None else _decoded("internal", found.value)
        return _decoded("internal", key), value


def _members(key: Decoded, value: Decoded) -> str:
    return "".join(
        f', "{name}_form": "{one.form}", "{name}_decoded": {_json_text(one.value)}'
        + (f', "{name}_note": {_json_text(one.note)}' if one.note else "")
        for name, one in (("key", key), ("value", value))
    )


# Forms ------------------------------------------------------------------------------------------------


def _parses(form: str | None, pack: Parse | None, by_schema: Sequence[Parse]) -> tuple[Parse, ...]:
    if pack is not None:
        return (pack,)
    if form is None:
        return (_as_it_is,)
    if form == "auto":
        return *by_schema, _json, _plain_text, _message_pack, _protobuf_fields, _text
    if form == "avro":
        return tuple(by_schema)
    if form == "protobuf":
        return *by_schema, _protobuf_fields
    return {"json": (_json,), "msgpack": (_message_pack,), "utf-8": (_text,)}.get(form, ())


def _first(parses: Sequence[Parse], content: bytes | None) -> Decoded:
    if content is None:
        return _NULL
    for parse in parses:
        found = parse(content)
        if isinstance(found, str):
            return Decoded("hex", content.hex(), content.hex().encode(), found)
        if found is not None:
            return found
    return Decoded("hex", content.hex(), content.hex().encode())


def _by_schema(schemas: Schemas, topic: str, part: str, form: str | None) -> list[Parse]:
    """Parsers by a file of the topic, then by Confluent's header."""
    if form not in ("auto", "avro", "protobuf"):
        return []
    finds: list[Callable[[bytes], Found | None]] = []
    if schemas.folder is not None:
        finds.append(lambda content: schemas.of_topic(topic, part, content))
    if schemas.registry is not None:
        finds.append(schemas.framed)
    return [_with_schema(find, form) for find in finds]


def _with_schema(find: Callable[[bytes], Found | None], form: str) -> Parse:
    def parse(content: bytes) -> Decoded | str | None:
        if len(content) > PARSED_BYTES_MAX:
            return None
        try:
            found = find(content)
        except NoSchema as error:
            return str(error)
        if found is None or form not in ("auto", found.form):
            return None
        try:
            return _decoded(found.form, found.value)._replace(note=found.note)
        except (ValueError, RecursionError):
            return f"{found.note} gives what JSON has no form for"

    return parse


def _decoded(form: str, value: Any) -> Decoded:
    return Decoded(form, value, _json_text(value).encode("utf-8", "surrogateescape"))


def _json(content: bytes) -> Decoded | None:
    if len(content) > PARSED_BYTES_MAX:
        return None
    try:
        value = json.loads(content.decode(), parse_constant=_no_constant)
        # What JSON can say and its reader not, as 1e999, would not come out again.
        _json_text(value).encode()
    except (ValueError, RecursionError):
        return None
    return Decoded("json", value, content)


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


def _plain_text(content: bytes) -> Decoded | None:
    found = _text(content)
    return None if found is None or _NOT_TEXT.search(found.value) else found


def _text(content: bytes) -> Decoded | None:
    try:
        return Decoded("utf-8", content.decode(), content)
    except UnicodeDecodeError:
        return None


def _as_it_is(content: bytes) -> Decoded:
    return _text(content) or Decoded("hex", content.hex(), content)


def _protobuf_fields(content: bytes) -> Decoded | None:
    if len(content) > PARSED_BYTES_MAX:
        return None
    try:
        return _decoded("protobuf", read_fields(content))
    except NotProtobuf:
        return None


def _message_pack(content: bytes) -> Decoded | None:
    if len(content) > PARSED_BYTES_MAX:
        return None
    try:
        return _decoded("msgpack", read_message_pack(content))
    except NotMessagePack:
        return None


# Packs ------------------------------------------------------------------------------------------------

_NO_AVRO = (
    "avro needs schemas: name a registry (--schema-registry http://HOST:8081) or a folder (--schemas DIR)"
)


def _packs(text: str, schemas: Schemas) -> dict[str, Parse]:
    """By part of the record; ClientError."""
    part, equals, pack = text.partition("=")
    if not equals:
        return dict.fromkeys(("key", "value"), _pack(text, schemas))
    if part not in ("key", "value"):
        raise ClientError(f"-s {text} is not understood: -s key=PACK, -s value=PACK or -s PACK")
    return {part: _pack(pack, schemas)}


def _pack(pack: str, schemas: Schemas) -> Parse:
    if pack == "avro":
        if schemas.registry is None:
            raise ClientError(_NO_AVRO)
        return _with_schema(schemas.framed, "avro")
    if not re.fullmatch(r"[<>bBhHiIqQc]*s?\$?", pack) or not pack.strip("<>$"):
        raise ClientError(
            f"-s {pack!r} is not understood: letters of b B h H i I q Q c, one s behind them, $ at the end, "
            "and > or < before those it is for"
        )

    def parse(content: bytes) -> Decoded | None:
        values = _unpacked(pack, content)
        if values is None:
            return None
        return Decoded("pack", values, " ".join(map(str, values)).encode())

    return parse


def _unpacked(pack: str, content: bytes) -> list[Any] | None:
    values: list[Any] = []
    order, position = ">", 0
    for letter in pack:
        if letter in "<>":
            order = letter
            continue
        if letter == "$":
            return values if position == len(content) else None
        if letter == "s":
            values.append(content[position:].decode("utf-8", "backslashreplace"))
            position = len(content)
            continue
        size = 1 if letter == "c" else struct.calcsize(f">{letter}")
        taken = content[position : position + size]
        if len(taken) < size:
            return None
        values.append(chr(taken[0]) if letter == "c" else struct.unpack(order + letter, taken)[0])
        position += size
    return values
