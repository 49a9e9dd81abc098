"""Keys, values and headers of records as text for a page: bounded in size, depth and time.

    texts = Contents("auto", "orders")
    key, value = texts.both(record)     # Shown: form, text, size

The decoders are those of `odradek consume --decode`. They read at most `PARSED_BYTES_MAX`; what is larger is
text or hex, and only its beginning is decoded and shown.
"""

import json
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from odradek.commands.decoding import PARSED_BYTES_MAX, Decoded, Decoders
from odradek.commands.schemas import Schemas
from odradek.wire.record_layout import Record

FORMS: Final = ("auto", "json", "msgpack", "avro", "protobuf", "utf-8", "hex")
"""Forms that a person may choose; "auto" finds one, also that of internal topics."""
ROW_CHARACTERS = 400
"""Shown of a key or value in a list."""
WHOLE_CHARACTERS = 100_000
"""Shown of one on a page of its own."""
BEGINNING_BYTES = 256 << 10
"""Decoded of what is too large to be parsed."""
TOO_LATE = "there was no time left to decode it"
HEX_LINE_BYTES = 16
HEADERS_SHOWN = 100


class Shown(NamedTuple):
    """A key or value as a page shows it."""

    form: str
    """json, msgpack, avro, protobuf, utf-8, hex, internal, or null."""
    text: str
    size_bytes: int | None
    """Size of the content; None for null."""
    is_cut: bool
    """Whether the text is only its beginning."""
    note: str = ""
    """Which schema it has; for hex, why it was not decoded."""


class Contents:
    """The texts of the records of one topic, in a form."""

    def __init__(
        self, form: str, topic: str, characters_max: int = ROW_CHARACTERS, schemas: Schemas | None = None
    ) -> None:
        self._decoder = decoders_of(form, schemas).of(topic)
        self._characters_max = characters_max

    def both(self, record: Record) -> tuple[Shown, Shown]:
        """Key and value."""
        key, value = _bytes(record.key), _bytes(record.value)
        decoded = self._decoder.both(record._replace(key=_beginning(key), value=_beginning(value)))
        return self._shown(decoded[0], key), self._shown(decoded[1], value)

    def not_decoded(self, record: Record) -> tuple[Shown, Shown]:
        """Key and value as hex, with the reason: there is no time left."""
        found = []
        for content in (record.key, record.value):
            some = None if content is None else bytes(content[: self._characters_max])
            text = None if some is None else some.hex().encode()
            shown = self._shown(Decoded("hex", None, text, TOO_LATE), _bytes(content))
            found.append(shown._replace(is_cut=shown.is_cut or len(content or b"") > self._characters_max))
        return found[0], found[1]

    def _shown(self, decoded: Decoded, content: bytes | None) -> Shown:
        if content is None or decoded.text is None:
            return Shown("null", "", None, False)
        text = decoded.text[: 4 * self._characters_max].decode("utf-8", "replace")
        is_cut = len(content) > PARSED_BYTES_MAX or len(decoded.text) > 4 * self._characters_max
        if len(text) > self._characters_max:
            text, is_cut = text[: self._characters_max], True
        return Shown(decoded.form, text, len(content), is_cut, decoded.note)


def decoders_of(form: str, schemas: Schemas | None) -> Decoders:
    """The decoders of a form; "auto" for what is none. Without schemas nothing is Avro."""
    wanted = form if form in FORMS else "auto"
    return Decoders("hex" if wanted == "avro" and not schemas else wanted, (), schemas)


def pretty(shown: Shown) -> str:
    """JSON over several lines; every other text, and JSON that is cut, as it is."""
    if shown.is_cut or shown.form not in ("json", "msgpack", "avro", "protobuf", "internal"):
        return shown.text
    try:
        return json.dumps(json.loads(shown.text), indent=2, ensure_ascii=False)
    except (ValueError, RecursionError):
        return shown.text


def hex_lines(content: bytes, lines_max: int = 256) -> str:
    """The beginning as hex: offset, bytes, and the printable ones of ASCII."""
    lines = []
    for at in range(0, min(len(content), lines_max * HEX_LINE_BYTES), HEX_LINE_BYTES):
        some = content[at : at + HEX_LINE_BYTES]
        letters = "".join(chr(one) if 0x20 <= one < 0x7F else "." for one in some)
        lines.append(f"{at:08x}  {some.hex(' '):<{3 * HEX_LINE_BYTES}} {letters}")
    return "\n".join(lines)


def header_texts(headers: Sequence[tuple[str, Any]]) -> list[tuple[str, str]]:
    """Names and values of headers, as text or hex, each of a row's length at most."""
    found = []
    for name, value in headers[:HEADERS_SHOWN]:
        content = _bytes(value)
        if content is None:
            text = "null"
        else:
            some = content[: 4 * ROW_CHARACTERS]
            try:
                text = (
                    content[: ROW_CHARACTERS * 4].decode()
                    if len(some) == len(content)
                    else some.decode(errors="replace")
                )
            except UnicodeDecodeError:
                text = some.hex()
        found.append((name[:ROW_CHARACTERS], text[:ROW_CHARACTERS]))
    return found


def _beginning(content: bytes | None) -> bytes | None:
    if content is None or len(content) <= PARSED_BYTES_MAX:
        return content
    return content[:BEGINNING_BYTES]


def _bytes(content: Any) -> bytes | None:
    return None if content is None else bytes(content)
