"""The name in a certificate, as Java writes it by RFC 2253: principals and their rules are made of this text.

Java (`X500Principal.getName`) writes the parts from the last to the first, with keywords for nine attributes
only. The value of any other attribute, and a value that is no string, is `#` and the hex digits of its DER.

Sources: RFC 5280 (X.509), X.690 (DER), RFC 2253; the output of Java 17 for what they leave open.
"""

from collections.abc import Iterator
from typing import NamedTuple

_KEYWORDS = {
    "2.5.4.3": "CN",
    "2.5.4.6": "C",
    "2.5.4.7": "L",
    "2.5.4.8": "ST",
    "2.5.4.9": "STREET",
    "2.5.4.10": "O",
    "2.5.4.11": "OU",
    "0.9.2342.19200300.100.1.25": "DC",
    "0.9.2342.19200300.100.1.1": "UID",
}
_OBJECT_ID, _SEQUENCE, _SET, _VERSION, _EXTENSIONS = 0x06, 0x30, 0x31, 0xA0, 0xA3
_BOOLEAN, _OCTETS = 0x01, 0x04
_STRINGS = frozenset((0x0C, 0x13, 0x14, 0x16, 0x1B, 0x1E))
"""UTF8String, PrintableString, T61String, IA5String, GeneralString, BMPString."""
_ESCAPED = frozenset(',=+<>#;"\\')
_BLANK = " \r"
OBJECT_ID_BYTES_MAX = 256
"""A number of any length would take time by the square of it."""
_ALTERNATIVE_NAMES = "2.5.29.17"


class DamagedCertificate(ValueError):
    """The bytes are no certificate in DER."""


class _Item(NamedTuple):
    tag: int
    whole: bytes
    """With its tag and length."""
    content: bytes


def subject_of(certificate: bytes) -> bytes:
    """The DER of the subject's name. Raises DamagedCertificate."""
    return _fields(certificate)[4].whole


def issuer_of(certificate: bytes) -> bytes:
    """The DER of the issuer's name. Raises DamagedCertificate."""
    return _fields(certificate)[2].whole


def alternative_names(certificate: bytes) -> frozenset[bytes]:
    """Each subject alternative name in DER. Raises DamagedCertificate."""
    for field in _fields(certificate):
        if field.tag == _EXTENSIONS:
            for extension in _items(_one(field.content).content):
                parts = [part for part in _items(extension.content) if part.tag != _BOOLEAN]
                if not parts:
                    raise DamagedCertificate("an extension is empty")
                if _object_id(parts[0].content) == _ALTERNATIVE_NAMES and parts[-1].tag == _OCTETS:
                    return frozenset(name.whole for name in _items(_one(parts[-1].content).content))
    return frozenset()


def name_text(name: bytes) -> str:
    """The text of a name in DER. Raises DamagedCertificate."""
    parts = [_relative_text(part) for part in _items(_one(name, _SEQUENCE).content)]
    return ",".join(reversed(parts))


def last_octets(sequence: bytes) -> bytes:
    """The octet string at the end of a sequence in DER, such as an EncryptedPrivateKeyInfo. Raises
    DamagedCertificate."""
    items = list(_items(_one(sequence, _SEQUENCE).content))
    if not items or items[-1].tag != _OCTETS:
        raise DamagedCertificate("a sequence has no octets at its end")
    return items[-1].content


def _fields(certificate: bytes) -> list[_Item]:
    """Serial number, algorithm, issuer, validity, subject, key, and perhaps more."""
    signed = next(iter(_items(_one(certificate, _SEQUENCE).content)), None)
    fields = [] if signed is None else list(_items(signed.content))
    if fields and fields[0].tag == _VERSION:
        del fields[0]
    if len(fields) < 6:
        raise DamagedCertificate("a certificate has six fields at least")
    return fields


def _relative_text(part: _Item) -> str:
    if part.tag != _SET:
        raise DamagedCertificate("a part of a name is not a set")
    return "+".join(_attribute_text(attribute) for attribute in _items(part.content))


def _attribute_text(attribute: _Item) -> str:
    parts = list(_items(attribute.content))
    if len(parts) != 2 or parts[0].tag != _OBJECT_ID:
        raise DamagedCertificate("an attribute of a name is a type and a value")
    kind, value = _object_id(parts[0].content), parts[1]
    keyword = _KEYWORDS.get(kind)
    if keyword is None or value.tag not in _STRINGS:
        return f"{keyword or kind}=#{value.whole.hex()}"
    # Java reads every kind of string as UTF-8, those of two bytes a character too.
    return f"{keyword}={_escaped(value.content.decode(errors='replace'))}"


def _escaped(text: str) -> str:
    escaped = "".join(
        f"\\{character}" if character in _ESCAPED else "\\00" if character == "\0" else character
        for character in text
    )
    lead = len(escaped) - len(escaped.lstrip(_BLANK))
    trail = max(len(escaped.rstrip(_BLANK)), lead)
    return "".join(
        f"\\{character}" if index < lead or index >= trail else character
        for index, character in enumerate(escaped)
    )


# DER


def _items(content: bytes) -> Iterator[_Item]:
    position = 0
    while position < len(content):
        item = _item_at(content, position)
        position += len(item.whole)
        yield item


def _one(content: bytes, tag: int | None = None) -> _Item:
    item = _item_at(content, 0)
    if tag not in (None, item.tag):
        raise DamagedCertificate(f"tag {item.tag:#x} in place of {tag:#x}")
    return item


def _item_at(content: bytes, position: int) -> _Item:
    head = content[position : position + 2]
    if len(head) < 2 or head[0] & 0x1F == 0x1F:
        raise DamagedCertificate("an item has no head")
    begin, length = position + 2, head[1]
    if length >= 0x80:
        digits = length & 0x7F
        if not 1 <= digits <= 4:
            raise DamagedCertificate("an item has no length")
        length = int.from_bytes(content[begin : begin + digits], "big")
        begin += digits
    if begin + length > len(content):
        raise DamagedCertificate("an item is longer than its bytes")
    return _Item(head[0], content[position : begin + length], content[begin : begin + length])


def _object_id(content: bytes) -> str:
    if len(content) > OBJECT_ID_BYTES_MAX:
        raise DamagedCertificate("an object identifier is too long")
    numbers, number = [], 0
    for byte in content:
        number = number << 7 | byte & 0x7F
        if byte < 0x80:
            numbers.append(number)
            number = 0
    if not numbers:
        raise DamagedCertificate("an object identifier is empty")
    first = min(numbers[0] // 40, 2)
    return ".".join(map(str, (first, numbers[0] - 40 * first, *numbers[1:])))
