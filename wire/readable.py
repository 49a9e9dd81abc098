"""Messages, and the records of internal topics, as values of JSON: for people, never for brokers."""

from __future__ import annotations

import base64
from collections.abc import Callable
from typing import Any, NamedTuple

from odradek.wire.schema import uuid_to_text


class InternalRecord(NamedTuple):
    """A record of an internal topic by its fields."""

    type: str
    """The class of its key, without `Key`."""
    key: Any
    value: Any
    """None: a tombstone."""


InternalReader = Callable[[bytes | None, bytes | None], InternalRecord | None]


def internal_reader(topic: str) -> InternalReader | None:
    """Reads key and value of the records of an internal topic; None for any other topic.

    The reader gives None for a type of records that is not known, and raises MalformedMessage.
    """
    module: Any
    if topic == "__consumer_offsets":
        from odradek.wire.messages import group_records as module
    elif topic == "__transaction_state":
        from odradek.wire.messages import transaction_records as module
    elif topic == "__share_group_state":
        from odradek.wire.messages import share_state_records as module
    else:
        return None

    def read(key_bytes: bytes | None, value_bytes: bytes | None) -> InternalRecord | None:
        key = module.decode_key(key_bytes) if key_bytes is not None else None
        if key is None:
            return None
        value = None if value_bytes is None else module.decode_value(key, value_bytes)
        return InternalRecord(type(key).__name__.removesuffix("Key"), plain(key), plain(value))

    return read


def plain(value: Any, name: str = "") -> Any:
    """The value as a type of JSON: a message by its fields; bytes as text, else as {"base64": ...}. `name` is
    that of the field: ids of topics have their own text."""
    if isinstance(value, bytes | bytearray | memoryview):
        value = bytes(value)
        if name.endswith("topic_id") and len(value) == 16:
            return uuid_to_text(value)
        try:
            return value.decode()
        except UnicodeDecodeError:
            return {"base64": base64.b64encode(value).decode()}
    if isinstance(value, list | tuple):
        return [plain(one, name) for one in value]
    fields = getattr(value, "__dataclass_fields__", None)
    if fields is not None:
        return {field: plain(getattr(value, field), field) for field in fields}
    return value
