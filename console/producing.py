"""A new record from a form: its fields as texts and back, byte by byte, and its way to the brokers.

    typed = typed_of(record)                 # fields of a form that would make the same record
    draft = draft_of(fields, original)       # a Draft; ClientError with what is not understood
    written = write(cluster, draft, now_ms)  # a Written: partition and offset

A text of a form loses what browsers change (the ends of lines) and what a page does not show (control
characters): such contents are base64, or, with "same", those of an original that is read again.
"""

import base64
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from odradek.client.client_error import ClientError
from odradek.client.cluster import Cluster, UnknownTopic
from odradek.client.gathering import Gatherer
from odradek.client.partitioning import Partitioner
from odradek.client.producing import Producer
from odradek.commands.record_json import headers_json, headers_of
from odradek.console.rendering import visible
from odradek.wire.errors import ErrorCode
from odradek.wire.record_layout import Record

FORMS: Final = ("text", "base64", "null")
SAME: Final = "same"
"""The content of the original, which the form does not have."""
TYPED_BYTES_MAX = 256 << 10
"""Size of a content that is filled into a form; a larger one is `SAME`."""
PARTITION_MAX = 2**31 - 1


class Typed(NamedTuple):
    """A key or a value as a form has it."""

    form: str
    text: str


@dataclass(frozen=True, slots=True)
class Draft:
    """A record that is to be written."""

    topic: str
    partition: int | None
    """None: the key chooses, as in Java's clients."""
    key: bytes | None
    value: bytes | None
    headers: Sequence[tuple[str, bytes | None]]


@dataclass(frozen=True, slots=True)
class Written:
    """A place in the log; the offset is -1 where the broker does not know it any more."""

    topic: str
    partition: int
    offset: int


# Filling a form ---------------------------------------------------------------------------------------


def typed_of(content: bytes | memoryview | None) -> Typed:
    """The fields that make this content again."""
    if content is None:
        return Typed("null", "")
    if len(content) > TYPED_BYTES_MAX:
        return Typed(SAME, "")
    found = bytes(content)
    try:
        text = found.decode()
    except UnicodeDecodeError:
        return Typed("base64", base64.b64encode(found).decode())
    if visible(text) != text:
        return Typed("base64", base64.b64encode(found).decode())
    return Typed("text", text)


def typed_again(form: str, text: str) -> Typed:
    """Fields that a person typed, for the form that is shown again: a page would change some texts."""
    if form != "text":
        return Typed(form, text)
    return typed_of(_text_bytes(text)) if len(text) <= TYPED_BYTES_MAX else Typed(form, text)


def headers_text(headers: Sequence[tuple[str, Any]]) -> str:
    """A header a line: `name=value`, or as a line of `odradek consume --json` has it."""
    lines = []
    for name, value in headers:
        line = None if value is None else _plain_line(name, bytes(value))
        lines.append(line or _ascii(headers_json([(name, value if value is None else bytes(value))])))
    return "\n".join(lines)


def _plain_line(name: str, value: bytes) -> str | None:
    try:
        line = f"{name}={value.decode()}"
        line.encode()
    except ValueError:
        return None
    is_plain = line.isprintable() and line == line.strip() and name and "=" not in name and line[0] != "{"
    return line if is_plain else None


def _ascii(headers: str) -> str:
    """JSON that a page and a browser leave as it is."""
    (header,) = json.loads(headers)
    return json.dumps(header)


# Reading a form ---------------------------------------------------------------------------------------


def draft_of(fields: Mapping[str, str], original: Record | None) -> Draft:
    """The record of a form: topic, partition, key, key_form, value, value_form, headers. `original` is the
    record of `SAME`. ClientError for what is not understood."""
    topic = fields.get("topic", "").strip()
    if not topic:
        raise ClientError("a topic is needed")
    return Draft(
        topic,
        _partition(fields.get("partition", "").strip()),
        _content("key", fields, original),
        _content("value", fields, original),
        _headers(fields.get("headers", "")),
    )


def _partition(text: str) -> int | None:
    if not text:
        return None
    if not (text.isascii() and text.isdecimal() and len(text) <= 10 and int(text) <= PARTITION_MAX):
        raise ClientError(f"the partition {text[:40]!r} is not a number; left empty, the key chooses it")
    return int(text)


def _content(name: str, fields: Mapping[str, str], original: Record | None) -> bytes | None:
    form, text = fields.get(f"{name}_form", ""), fields.get(name, "")
    if form == "null":
        return None
    if form == SAME:
        if original is None:
            raise ClientError(f"the {name} is to be that of a message, and none is named")
        content = original.key if name == "key" else original.value
        return None if content is None else bytes(content)
    if form == "base64":
        try:
            return base64.b64decode("".join(text.split()), validate=True)
        except ValueError:
            raise ClientError(f"the {name} is not base64") from None
    return _text_bytes(text)


def _text_bytes(text: str) -> bytes:
    # Browsers send the ends of lines so, whatever was there.
    return text.replace("\r\n", "\n").encode("utf-8", "surrogateescape")


def _headers(text: str) -> list[tuple[str, bytes | None]]:
    headers = []
    for number, line in enumerate(text.replace("\r\n", "\n").split("\n"), 1):
        line = line.strip()
        if line:
            try:
                headers.append(_header(line))
            except ClientError as error:
                raise ClientError(f"line {number} of the headers {error}") from None
    return headers


def _header(line: str) -> tuple[str, bytes | None]:
    if not line.startswith("{"):
        name, equals, value = line.partition("=")
        if not equals or not name:
            raise ClientError('is neither name=value nor {"key": ..., "value": ...}')
        return name, value.encode("utf-8", "surrogateescape")
    try:
        found = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise ClientError(f"is not JSON: {error}") from None
    (header,) = headers_of([found])
    return header


# Writing ----------------------------------------------------------------------------------------------


def write(cluster: Cluster, draft: Draft, now_ms: int) -> Written:
    """Writes the record with acks=all; ClientError if that cannot be."""
    count = cluster.partitions_of([draft.topic]).get(draft.topic)
    if not count:
        raise UnknownTopic(f"there is no topic {draft.topic}", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    partition = draft.partition
    if partition is None:
        partition = Partitioner("murmur2", count).partition(draft.key)
    if partition >= count:
        raise ClientError(f"topic {draft.topic} has {count} partitions, counted from 0: {partition} is none")
    gatherer = Gatherer()
    gatherer.add(draft.topic, partition, now_ms, draft.key, draft.value, draft.headers)
    with Producer(cluster) as producer:
        (batch,) = gatherer.drain()
        placement = producer.send(batch)
        producer.flush()
    return Written(draft.topic, partition, placement.base_offset)
