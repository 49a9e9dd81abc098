"""Names of certificates in DER, as tests want them."""

from collections.abc import Iterable

UTF8, NUMERIC, PRINTABLE, T61, IA5, GENERAL, UNIVERSAL, BMP = 0x0C, 0x12, 0x13, 0x14, 0x16, 0x1B, 0x1C, 0x1E

CN, C, L, ST, STREET, ORGANISATION, OU = ((2, 5, 4, last) for last in (3, 6, 7, 8, 9, 10, 11))
DC, UID = ((0, 9, 2342, 19200300, 100, 1, last) for last in (25, 1))
EMAIL = (1, 2, 840, 113549, 1, 9, 1)
SERIAL_NUMBER, GIVEN_NAME = (2, 5, 4, 5), (2, 5, 4, 42)
HIGH = (2, 999, 3)

Attribute = tuple[tuple[int, ...], int, bytes]
"""Type, tag of the value, content of the value."""


def der(tag: int, content: bytes) -> bytes:
    size = len(content)
    if size < 0x80:
        return bytes([tag, size]) + content
    digits = size.to_bytes((size.bit_length() + 7) // 8, "big")
    return bytes([tag, 0x80 | len(digits)]) + digits + content


def object_id(numbers: tuple[int, ...]) -> bytes:
    content = b""
    for number in (40 * numbers[0] + numbers[1], *numbers[2:]):
        digits = [number & 0x7F]
        while number := number >> 7:
            digits.append(number & 0x7F | 0x80)
        content += bytes(reversed(digits))
    return der(6, content)


def name(*parts: Attribute | Iterable[Attribute]) -> bytes:
    """A part is one attribute, or a list of those that stand together."""
    sets = b""
    for part in parts:
        attributes = [part] if isinstance(part, tuple) else list(part)
        sets += der(
            0x31,
            b"".join(der(0x30, object_id(kind) + der(tag, value)) for kind, tag, value in attributes),
        )
    return der(0x30, sets)
