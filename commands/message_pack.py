"""MessagePack as values of JSON: one object that is the whole content.

    read_message_pack(b"\\x81\\xa1a\\x01") == {"a": 1}

What JSON has no form for: bytes, and texts that are no UTF-8, are {"base64": ...}; an extension is
{"extension": type, "base64": ...}; a map whose keys are not all texts, or double, is {"map": [[key, value],
...]}; NaN and the infinities are the texts "NaN", "Infinity", "-Infinity". Source: the specification of
MessagePack (msgpack.org).
"""

import base64
import math
import struct
from typing import Any

DEPTH_MAX = 64
"""Greatest depth of arrays and maps in each other."""

_NUMBERS = {
    0xCA: ">f",
    0xCB: ">d",
    0xCC: ">B",
    0xCD: ">H",
    0xCE: ">I",
    0xCF: ">Q",
    0xD0: ">b",
    0xD1: ">h",
    0xD2: ">i",
    0xD3: ">q",
}
_SIZES = {1: ">B", 2: ">H", 4: ">I"}
_BINARY = {0xC4: 1, 0xC5: 2, 0xC6: 4}
_EXTENSIONS = {0xC7: 1, 0xC8: 2, 0xC9: 4}
_FIXED_EXTENSIONS = {0xD4: 1, 0xD5: 2, 0xD6: 4, 0xD7: 8, 0xD8: 16}
_TEXTS = {0xD9: 1, 0xDA: 2, 0xDB: 4}
_ARRAYS = {0xDC: 2, 0xDD: 4}
_MAPS = {0xDE: 2, 0xDF: 4}
_CONSTANTS = {0xC0: None, 0xC2: False, 0xC3: True}


class NotMessagePack(Exception):
    """The content is not one object of MessagePack."""


def read_message_pack(content: bytes) -> Any:
    """The object; NotMessagePack for anything else, and for more than DEPTH_MAX levels.

    It takes time and memory in proportion to the bytes that are there, whatever sizes they claim.
    """
    reader = _Reader(content)
    found = reader.value(0)
    if reader.position != len(content):
        raise NotMessagePack("bytes are left behind the object")
    return found


class _Reader:
    def __init__(self, content: bytes) -> None:
        self._content = content
        self.position = 0

    def value(self, depth: int) -> Any:
        code = self._take(1)[0]
        if code < 0x80:
            return code
        if code >= 0xE0:
            return code - 0x100
        if code < 0x90:
            return self._map(code & 0x0F, depth)
        if code < 0xA0:
            return self._array(code & 0x0F, depth)
        if code < 0xC0:
            return _text(self._take(code & 0x1F))
        if code in _CONSTANTS:
            return _CONSTANTS[code]
        if code in _NUMBERS:
            return _number(self._unpack(_NUMBERS[code]))
        return self._sized(code, depth)

    def _sized(self, code: int, depth: int) -> Any:
        if code in _TEXTS:
            return _text(self._take(self._size(_TEXTS[code])))
        if code in _BINARY:
            return _coded(self._take(self._size(_BINARY[code])))
        if code in _ARRAYS:
            return self._array(self._size(_ARRAYS[code]), depth)
        if code in _MAPS:
            return self._map(self._size(_MAPS[code]), depth)
        size = _FIXED_EXTENSIONS.get(code)
        if size is None:
            if code not in _EXTENSIONS:
                raise NotMessagePack("no object begins with C1")
            size = self._size(_EXTENSIONS[code])
        kind = self._unpack(">b")
        return {"extension": kind, **_coded(self._take(size))}

    def _array(self, size: int, depth: int) -> list[Any]:
        self._check(size, 1, depth)
        return [self.value(depth + 1) for _ in range(size)]

    def _map(self, size: int, depth: int) -> dict[str, Any]:
        self._check(size, 2, depth)
        pairs = [(self.value(depth + 1), self.value(depth + 1)) for _ in range(size)]
        if all(isinstance(key, str) for key, _ in pairs) and len({key for key, _ in pairs}) == size:
            return dict(pairs)
        return {"map": [[key, value] for key, value in pairs]}

    def _check(self, size: int, least: int, depth: int) -> None:
        """Each item has a byte at least: what claims more is not read at all."""
        if depth >= DEPTH_MAX:
            raise NotMessagePack(f"there are more than {DEPTH_MAX} levels")
        if size * least > len(self._content) - self.position:
            raise NotMessagePack("it ends too early")

    def _size(self, width: int) -> int:
        return int(self._unpack(_SIZES[width]))

    def _unpack(self, layout: str) -> Any:
        return struct.unpack(layout, self._take(struct.calcsize(layout)))[0]

    def _take(self, size: int) -> bytes:
        taken = self._content[self.position : self.position + size]
        if len(taken) < size:
            raise NotMessagePack("it ends too early")
        self.position += size
        return taken


def _number(value: int | float) -> int | float | str:
    if isinstance(value, int) or math.isfinite(value):
        return value
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"


def _text(content: bytes) -> Any:
    try:
        return content.decode()
    except UnicodeDecodeError:
        return _coded(content)


def _coded(content: bytes) -> dict[str, Any]:
    return {"base64": base64.b64encode(content).decode()}
