"""Decoded requests and responses as values of JSON: copies, without secrets.

- Fields have the names of our message classes, as in what `odradek consume --decode` and `odradek dump` print
  of messages; those that the version does not have are left out.
- Beside an error code is its name (`error_code`, `error_code_name`), beside the id of a topic its name, if
  there is such a topic (`topic_id`, `topic_name`).
- Bytes are text, or {"base64": ...} where they are no UTF-8; more than `BYTES_SHOWN_MAX` are {"size_bytes":
  ...}. Ids are in Kafka's text form.
- A field that may be a secret is "<hidden>": bytes of a login, salted passwords, HMACs of tokens, new values
  of settings.
- Records are their batches: offsets, producer, sizes; keys and values only if they are asked for.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterator
from typing import Any

from odradek.wire._records import BatchHeader
from odradek.wire.compression import Compression
from odradek.wire.errors import ErrorCode, KafkaError, MalformedMessage
from odradek.wire.record_layout import (
    COMPRESSION_MASK,
    CONTROL,
    HEADER_SIZE_BYTES,
    MAGIC_POSITION,
    MAGIC_V2,
    TRANSACTIONAL,
)
from odradek.wire.records import iter_records, iter_whole_batches
from odradek.wire.schema import RECORDS, UUID, ZERO_UUID, Array, FieldSpec, Primitive, fields_of, uuid_to_text

HIDDEN = "<hidden>"
BYTES_SHOWN_MAX = 4096
BATCHES_SHOWN_MAX = 100
"""In one partition."""
RECORDS_SHOWN_MAX = 1000
"""In one request or response."""
UNPACKED_BYTES_MAX = 4 * 1024 * 1024
"""Limit for one batch; the records of a larger one are not shown."""
_TOPIC_RESOURCE = 2
_CODES = {code.value: code.name for code in ErrorCode}


class MessageValues:
    """Reads one message of a version."""

    def __init__(
        self, version: int, topic_name: Callable[[bytes], str | None], *, with_records: bool
    ) -> None:
        """`topic_name` has the name of the topic of an id."""
        self._version = version
        self._topic_name = topic_name
        self._records_left = RECORDS_SHOWN_MAX if with_records else 0
        self.topics: set[str] = set()
        """Topics that it names, or of which it has the ids."""

    def read(self, struct: Any) -> dict[str, Any]:
        """The fields of a message or of a part of it."""
        values: dict[str, Any] = {}
        for field in fields_of(type(struct)):
            if field.exists_in(self._version):
                value = getattr(struct, field.name)
                values[field.name] = self._field(field, value)
                self._add_names(values, field, value)
        self.topics.update(_topics_in(type(struct).__name__, values))
        return values

    def _field(self, field: FieldSpec, value: Any) -> Any:
        if value is None:
            return None
        if field.hidden:
            return HIDDEN
        if isinstance(field.type, Array):
            return [self._item(field.type.item, one) for one in value]
        return self._item(field.type, value)

    def _item(self, wire_type: Any, value: Any) -> Any:
        if not isinstance(wire_type, Primitive):
            return None if value is None else self.read(value)
        if wire_type is UUID:
            return uuid_to_text(bytes(value))
        if wire_type is RECORDS:
            return self._records(value)
        if isinstance(value, bytes | bytearray | memoryview):
            return _text(value)
        # An enumeration is a number on the wire.
        return int(value) if isinstance(value, int) and not isinstance(value, bool) else value

    def _add_names(self, values: dict[str, Any], field: FieldSpec, value: Any) -> None:
        if field.name.endswith("error_code"):
            values[f"{field.name}_name"] = _CODES.get(int(value), str(int(value)))
        elif field.type is UUID and field.name.endswith("topic_id") and value != ZERO_UUID:
            name = self._topic_name(bytes(value))
            if name is not None:
                values["topic_name"] = name

    # Records

    def _records(self, records: Any) -> dict[str, Any]:
        shown: dict[str, Any] = {"size_bytes": len(records)}
        try:
            content = _content(records)
            if content is not None and len(content) > MAGIC_POSITION and content[MAGIC_POSITION] == MAGIC_V2:
                shown["batches"] = list(self._batches(content))
        except (KafkaError, MalformedMessage, OSError, ValueError) as error:
            shown["unreadable"] = str(error)
        return shown

    def _batches(self, content: memoryview) -> Iterator[dict[str, Any]]:
        for number, (position, header) in enumerate(iter_whole_batches(content)):
            if number == BATCHES_SHOWN_MAX:
                return
            yield {
                "base_offset": header.base_offset,
                "last_offset": header.base_offset + header.last_offset_delta,
                "record_count": header.record_count,
                "size_bytes": header.size_bytes,
                "compression": Compression(header.attributes & COMPRESSION_MASK).name.lower(),
                "leader_epoch": header.leader_epoch,
                "producer_id": header.producer_id,
                "producer_epoch": header.producer_epoch,
                "base_sequence": header.base_sequence,
                "is_transactional": bool(header.attributes & TRANSACTIONAL),
                "is_control": bool(header.attributes & CONTROL),
                **self._records_of(content[position : position + header.size_bytes], header),
            }

    def _records_of(self, batch: memoryview, header: BatchHeader) -> dict[str, Any]:
        """Nothing unless records are asked for."""
        if self._records_left <= 0:
            return {}
        shown = []
        for record in iter_records(batch, header, limit_bytes=UNPACKED_BYTES_MAX):
            if not self._records_left:
                break
            self._records_left -= 1
            shown.append(
                {
                    "offset": record.offset,
                    "timestamp": record.timestamp,
                    "key": _text(record.key),
                    "value": _text(record.value),
                    "headers": [{"key": key, "value": _text(value)} for key, value in record.headers],
                }
            )
        return {"records": shown}


def _content(records: Any) -> memoryview | None:
    """The bytes; None where they are not in memory, or are made while they are sent."""
    if isinstance(records, bytes | bytearray | memoryview):
        return memoryview(records)
    if not hasattr(records, "buffers") or records.would_wait():
        return None
    buffers = records.buffers()
    if len(buffers) == 1:
        return memoryview(buffers[0])
    return memoryview(b"".join(buffers)) if sum(map(len, buffers)) >= HEADER_SIZE_BYTES else None


def _text(value: bytes | bytearray | memoryview | None) -> Any:
    if value is None:
        return None
    if len(value) > BYTES_SHOWN_MAX:
        return {"size_bytes": len(value)}
    content = bytes(value)
    try:
        return content.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(content).decode()}


def _topics_in(struct_name: str, values: dict[str, Any]) -> Iterator[str]:
    """Topics that the fields of one struct name."""
    for field in ("topic", "topic_name"):
        if values.get(field):
            yield values[field]
    if "Topic" in struct_name and isinstance(values.get("name"), str):
        yield values["name"]
    if values.get("resource_type") == _TOPIC_RESOURCE and "resource_name" in values:
        yield values["resource_name"]
    for field in ("topics", "topic_names", "subscribed_topic_names"):
        for one in values.get(field) or ():
            if isinstance(one, str):
                yield one
