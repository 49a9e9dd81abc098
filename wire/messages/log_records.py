"""Records of internal topics: int16 record type and fields make a key, int16 version and fields a value.

`group_records` and `transaction_records` declare the types. The type of a key determines the class of its
value; keys exist in version 0 only. A record without value (a tombstone) has no bytes and is not decoded.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import Any, ClassVar

from odradek.wire.codec import decoder, encode_message
from odradek.wire.errors import MalformedMessage
from odradek.wire.schema import Buffer, Versioned

_PREFIX = struct.Struct(">h")


class LogRecord(Versioned):
    """The key or the value of one type of record."""

    record_type: ClassVar[int]

    def __init_subclass__(cls, record_type: int | None = None, **arguments: Any) -> None:
        super().__init_subclass__(**arguments)
        if record_type is not None:
            cls.record_type = record_type


class RecordTypes:
    """The record types of one internal topic; `older_values` adds types that share a newer one's value."""

    def __init__(
        self,
        keys: tuple[type[LogRecord], ...],
        values: tuple[type[LogRecord], ...],
        older_values: Mapping[int, type[LogRecord]] | None = None,
    ) -> None:
        self.keys = {key.record_type: key for key in keys}
        self.values = {value.record_type: value for value in values} | dict(older_values or {})
        assert self.keys.keys() == self.values.keys()

    def __or__(self, other: RecordTypes) -> RecordTypes:
        """The types of keys and values, which have different numbers."""
        assert self.keys.keys().isdisjoint(other.keys)
        both = RecordTypes((), ())
        both.keys, both.values = self.keys | other.keys, self.values | other.values
        return both

    def encode_key(self, key: LogRecord) -> bytes:
        """The bytes of a key."""
        return _PREFIX.pack(key.record_type) + encode_message(key, 0)

    def decode_key(self, buffer: Buffer) -> Any:
        """The key, or None for an unknown record type, which is to be skipped."""
        cls = self.keys.get(_prefix(buffer, "key"))
        return None if cls is None else decoder(cls, 0)(buffer, 2)[0]

    def encode_value(self, value: LogRecord, version: int) -> bytes:
        """The bytes of a value in a version."""
        return _PREFIX.pack(version) + encode_message(value, version)

    def decode_value(self, key: LogRecord, buffer: Buffer) -> Any:
        """The value of `key`; MalformedMessage if its version is not known."""
        cls = self.values[key.record_type]
        version = _prefix(buffer, "value")
        if version not in cls.versions:
            raise MalformedMessage(f"{cls.__name__} has no version {version}")
        return decoder(cls, version)(buffer, 2)[0]


def _prefix(buffer: Buffer, part: str) -> int:
    try:
        (prefix,) = _PREFIX.unpack_from(buffer, 0)
    except struct.error as error:
        raise MalformedMessage(f"a {part} of an internal topic: {error}") from error
    return int(prefix)
