"""Bytes to messages and back, by code that is generated for each (class, version) on first use and cached.

The generated source is flat: one function, loops where the message has arrays, neighbouring fields of fixed
width read or written by one precompiled `struct.Struct`. `source_of` shows it; tracebacks show its lines.

Decoders raise only `MalformedMessage`, never read past the buffer, make no list before the buffer has enough
bytes for its shortest possible items, and no more than a million items.
"""

import linecache
import struct
from collections.abc import Callable
from typing import Any, TypeVar

from odradek.wire import _decoding, _encoding
from odradek.wire.errors import MalformedMessage
from odradek.wire.schema import Buffer, Versioned

V = TypeVar("V", bound=Versioned)
Decode = Callable[[Buffer, int], tuple[V, int]]
Encode = Callable[[V, list[Any]], None]

_decoders: dict[tuple[type[Versioned], int], Callable[..., Any]] = {}
_encoders: dict[tuple[type[Versioned], int], Callable[..., Any]] = {}


def decoder(cls: type[V], version: int) -> Decode[V]:
    """The function `decode(buffer, position) -> (message, end position)` for one version of `cls`."""
    found = _decoders.get((cls, version))
    if found is None:
        _check_version(cls, version)
        source, names = _decoding.write(cls, version)
        found = _decoders[cls, version] = _compiled("decode", source, names, cls, version)
    return found


def encoder(cls: type[V], version: int) -> Encode[V]:
    """The function `encode(message, parts)` for one version of `cls`; it appends buffers to `parts`.

    It raises ValueError for a message that the version cannot encode: a value out of range, null where null
    is not allowed, or a value other than the default in a field that the version does not have and that is
    not ignorable.
    """
    found = _encoders.get((cls, version))
    if found is None:
        _check_version(cls, version)
        source, names = _encoding.write(cls, version)
        found = _encoders[cls, version] = _compiled("encode", source, names, cls, version)
    return found


def source_of(direction: str, cls: type[Versioned], version: int) -> str:
    """The generated source, for developers: `direction` is "decode" or "encode"."""
    source: str = (_decoding if direction == "decode" else _encoding).write(cls, version)[0]
    return source


def decode_message(cls: type[V], version: int, buffer: Buffer) -> V:
    """The message that fills the whole `buffer`."""
    message, end = decoder(cls, version)(buffer, 0)
    if end != len(buffer):
        raise MalformedMessage(f"{len(buffer) - end} bytes follow {cls.__name__} version {version}")
    return message


def encode_message(message: Versioned, version: int) -> bytes:
    """The bytes of a message, without header; storage slices as records are not supported here."""
    parts: list[Any] = []
    encoder(type(message), version)(message, parts)
    return parts[0] if len(parts) == 1 else b"".join(parts)


def _check_version(cls: type[Versioned], version: int) -> None:
    if version not in cls.versions:
        raise ValueError(f"{cls.__name__} has versions {cls.versions[0]} to {cls.versions[-1]}")


def _compiled(function: str, source: str, names: dict[str, Any], cls: type[Versioned], version: int) -> Any:
    file_name = f"<{function} {cls.__name__} version {version}>"
    # Only tracebacks use linecache.
    linecache.cache[file_name] = (len(source), None, source.splitlines(keepends=True), file_name)
    names["struct_error"] = struct.error
    exec(compile(source, file_name, "exec"), names)
    return names[function]
