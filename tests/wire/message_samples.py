"""Every declared message in every version, with random values; seeded, so that a failure repeats itself."""

import functools
import random
from dataclasses import fields as dataclass_fields
from typing import Any

from odradek.wire import messages
from odradek.wire.messages import (
    consumer_protocol,
    envelope,
    group_records,
    metadata_records,
    share_state_records,
    transaction_records,
)
from odradek.wire.schema import (
    BOOL,
    BYTES,
    FLOAT64,
    RECORDS,
    STRING,
    UUID,
    Array,
    FieldSpec,
    Primitive,
    Versioned,
    fields_of,
)

INTEGER_BITS = {"int8": 7, "int16": 15, "uint16": 16, "int32": 31, "uint32": 32, "int64": 63}
ALPHABET = "abcdefghij-._ABC0123 é漢🚀"


def api_messages() -> list[tuple[type[Versioned], int]]:
    """Requests and responses of every API, each with every version."""
    classes = [cls for key in messages.api_keys() for cls in messages.find(key)]
    return [(cls, version) for cls in classes for version in cls.versions]


def log_records() -> list[tuple[type[Versioned], int]]:
    """Keys and values of the internal topics, and records of the metadata log, each with every version."""
    types = (group_records.RECORDS, transaction_records.RECORDS, share_state_records.RECORDS)
    classes: dict[type[Versioned], None] = dict.fromkeys(
        cls for known in types for part in (known.keys, known.values) for cls in part.values()
    )
    classes |= dict.fromkeys(metadata_records.RECORDS.values())
    classes |= dict.fromkeys(metadata_records.CONTROL_RECORDS.values())
    return [(cls, version) for cls in classes for version in cls.versions]


@functools.cache
def all_messages() -> list[tuple[type[Versioned], int]]:
    embedded: tuple[type[Versioned], ...] = (
        consumer_protocol.ConsumerProtocolSubscription,
        consumer_protocol.ConsumerProtocolAssignment,
        envelope.DefaultPrincipalData,
    )
    return api_messages() + log_records() + [(cls, version) for cls in embedded for version in cls.versions]


@functools.cache
def all_classes() -> list[type[Versioned]]:
    return list(dict.fromkeys(cls for cls, _ in all_messages()))


def name_of(sample: Any) -> str:
    """The name of a case: `FetchRequest`."""
    return sample.__name__ if isinstance(sample, type) else str(sample)


class Samples:
    """Random messages. A tame one holds only values that libraries with richer types accept as well:
    known error codes, no negative times, plain text."""

    def __init__(self, seed: Any, *, tame: bool = False) -> None:
        self.random = random.Random(repr(seed))
        self.tame = tame

    def message(self, cls: Any, version: int) -> Any:
        message = cls()
        for spec in fields_of(cls):
            if spec.exists_in(version):
                setattr(message, spec.name, self.field(spec, version))
        return message

    def field(self, spec: FieldSpec, version: int) -> Any:
        is_struct = not isinstance(spec.type, Array | Primitive)
        null_allowed = spec.null_allowed_in(version)
        if null_allowed and self.random.random() < 0.25:
            return None
        if spec.tag is None or null_allowed:
            return self.value(spec.type, version, spec.name)
        if self.random.random() < 0.4:
            return spec.make_default()
        value = self.value(spec.type, version, spec.name)
        # A tagged struct that equals its default is left out, and comes back as None.
        return None if is_struct and value == spec.type() else value

    def value(self, wire_type: Any, version: int, name: str) -> Any:
        choose = self.random
        if isinstance(wire_type, Array):
            count = choose.choice([0, 1, 1, 2, 3])
            return [self.value(wire_type.item, version, name) for _ in range(count)]
        if not isinstance(wire_type, Primitive):
            return self.message(wire_type, version)
        if wire_type is STRING:
            alphabet = ALPHABET[:20] if self.tame else ALPHABET
            return "".join(choose.choices(alphabet, k=choose.choice([0, 1, 5, 20, 127, 200])))
        if wire_type in (BYTES, RECORDS):
            return choose.randbytes(choose.choice([0, 1, 60, 130]))
        if wire_type is UUID:
            return choose.randbytes(16)
        if wire_type is BOOL:
            return choose.random() < 0.5
        if wire_type is FLOAT64:
            return choose.uniform(-1e9, 1e9)
        return self.integer(wire_type, name)

    def integer(self, wire_type: Primitive, name: str) -> int:
        if self.tame:
            return self.random.randrange(0, 100)
        bits = INTEGER_BITS[wire_type.name]
        low = 0 if wire_type.name.startswith("u") else -(1 << bits)
        return self.random.choice([low, (1 << bits) - 1, 0, 1, self.random.randrange(low, 1 << bits)])


def plain(value: Any) -> Any:
    """Dicts and lists with the buffers as bytes, to compare and to print."""
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, memoryview | bytearray):
        return bytes(value)
    if hasattr(value, "__dataclass_fields__"):
        return {field.name: plain(getattr(value, field.name)) for field in dataclass_fields(value)}
    return value
