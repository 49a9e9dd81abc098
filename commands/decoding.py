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
from odradek.commands.record_json import json_lines
from odradek.wire.errors import MalformedMessage
from odradek.wire.readable import internal_reader
from odradek.wire.record_layout import Record

DECODE_HELP = """\
decoding (--decode, and -s as kcat has it) of keys and values, for %s, %k, the default and --json:
  auto      records of internal topics (__consumer_offsets, ...) by their fields; else JSON, UTF-8
            without control characters, MessagePack, other UTF-8, whichever is first; else hex
  internal, json, utf-8, msgpack, hex
            this form, and hex for what does not have it; values of more than 1 MiB are not parsed
  -s key=PACK, -s value=PACK, -s PACK (both)
            numbers one after the other: b B (8 bits, signed and not), h H (16), i I (32), q Q (64),
            c a character, s the rest as text, $ the end; > big-endian (default), < little-endian;
            without $ what follows is not looked at
  --json has key_form, key_decoded, value_form and value_decoded beside the bytes, which stay."""

FORMS = ("auto", "json", "msgpack", "utf-8", "hex", "internal", "avro")
PARSED_BYTES_MAX = 1 << 20
"""Larger contents are text or hex."""
_NOT_TEXT = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]")
_json_text = json.JSONEncoder(ensure_ascii=False, allow_nan=False).encode


class Decoded(NamedTuple):
    """A key or a value."""

    form: str
    """json, msgpack, utf-8, hex, internal, pack, or null."""
    value: Any
    """For JSON."""
    text: bytes | None
    """For a format; None is null."""


Parse = Callable[[bytes], Decoded | None]
"""None: the content does not have this form."""
_NULL = Decoded("null", None, None)


class Decoders:
    """The decoders of all topics, by the options; ClientError for what is not understood."""

    def __init__(self, form: str | None, packs: Sequence[str]) -> None:
        """Without a form what has no pack stays as it is."""
        self._form = form
        self._packs = {part: parse for text in packs for part, parse in _packs(text).items()}
        if form == "avro":
            raise ClientError(_NO_AVRO)
        self._made: dict[str, Decoder] = {}

    def of(self, topic: str) -> "Decoder":
        found = self._made.get(topic)
        if found is None:
            found = self._made[topic] = Decoder(self._form, self._packs, topic)
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

    def __init__(self, form: str | None, packs: dict[str, Parse], topic: str) -> None:
        self._key = _parses(form, packs.get("key"))
        self._value = _parses(form, packs.get("value"))
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
        for name, one in (("key", key), ("value", value))
    )


# Forms ------------------------------------------------------------------------------------------------


def _parses(form: str | None, pack: Parse | None) -> tuple[Parse, ...]:
    if pack is not None:
        return (pack,)
    if form is None:
        return (_as_it_is,)
    if form == "auto":
        return _json, _plain_text, _message_pack, _text
    return {"json": (_json,), "msgpack": (_message_pack,), "utf-8": (_text,)}.get(form, ())


def _first(parses: Sequence[Parse], content: bytes | None) -> Decoded:
    if content is None:
        return _NULL
    for parse in parses:
        found = parse(content)
        if found is not None:
            return found
    return Decoded("hex", content.hex(), content.hex().encode())


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


def _message_pack(content: bytes) -> Decoded | None:
    if len(content) > PARSED_BYTES_MAX:
        return None
    try:
        return _decoded("msgpack", read_message_pack(content))
    except NotMessagePack:
        return None


# Packs ------------------------------------------------------------------------------------------------

_NO_AVRO = (
    "avro needs the schemas of a registry, which this command does not ask: "
    "--decode hex shows the bytes, and -f '%s' writes them to a program that decodes them"
)


def _packs(text: str) -> dict[str, Parse]:
    """By part of the record; ClientError."""
    part, equals, pack = text.partition("=")
    if not equals:
        return dict.fromkeys(("key", "value"), _pack(text))
    if part not in ("key", "value"):
        raise ClientError(f"-s {text} is not understood: -s key=PACK, -s value=PACK or -s PACK")
    return {part: _pack(pack)}


def _pack(pack: str) -> Parse:
    if pack == "avro":
        raise ClientError(_NO_AVRO)
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
