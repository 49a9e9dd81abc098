"""`consume -f FORMAT`: kcat's letters, and some of rpk's.

    lines = RecordFormat("%o %k %s{base64}\\n").lines("orders", 0, batch)

What a batch has in common is put in once for the batch; for each record only its own parts are.
"""

import base64
import operator
import re
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from odradek.client.client_error import ClientError
from odradek.client.stored_records import StoredBatch
from odradek.commands.decoding import Decoders
from odradek.commands.record_json import headers_json
from odradek.wire.record_layout import Record

FORMAT_HELP = """\
format (-f), with kcat's letters:
  %s or %v  value   %S  its size in bytes, -1: null   %R  that size as 4 bytes
  %k        key     %K  its size in bytes, -1: null   %h  headers: a=1,b=2
  %t  topic   %p  partition   %o  offset
  %T  timestamp in ms   %d{%H:%M:%S}  local time
  %e  leader epoch   %x  producer id   %y  producer epoch   %%  a percent sign
  \\n \\t \\r \\0 \\xNN  single bytes
  %s, %k and %h take {hex}, {base64} or {json} after them: %s{hex}
  (%T is a time as in kcat; for rpk it is the length of the topic's name)"""

Getter = Callable[[Record], Any]
"""Function from a record to one part of it: bytes for %b, a number for %d of the template."""

_ESCAPES = {"n": b"\n", "t": b"\t", "r": b"\r", "0": b"\0", "\\": b"\\"}
_TOKEN = re.compile(
    r"%d(?:\{(?P<time>[^}]*)\})?"
    r"|%(?P<letter>[A-Za-z%])(?:\{(?P<modifier>[a-z0-9]*)\})?"
    r"|\\x(?P<code>[0-9A-Fa-f]{2})"
    r"|\\(?P<escape>.)"
    r"|(?P<text>[^%\\]+)",
    re.DOTALL,
)
_KEY, _VALUE = 5, 6
"""Places of what is decoded."""
_MODIFIERS = ("hex", "base64", "json")
_CONTENT = re.compile(r"[^\n\t -~\xa0-\U0010ffff]")
"""Characters that would move the cursor of a terminal, or change its state."""


class _Part(NamedTuple):
    """A part of the format: bytes; what a batch has in common; or what each record has."""

    text: bytes = b""
    of_batch: Callable[[str, int, StoredBatch], bytes] | None = None
    placeholder: bytes = b""
    of_record: Getter | None = None


class RecordFormat:
    """A format, read; ClientError for one that is not understood.

    `nulls`: null keys and values are shown as NULL, else as nothing. `is_terminal`: characters that control a
    terminal are shown as escapes if they come from records. `decoders`: %s and %k are what these read.
    """

    def __init__(
        self,
        text: str,
        *,
        nulls: bool = False,
        is_terminal: bool = False,
        decoders: Decoders | None = None,
    ) -> None:
        self._decoders = decoders
        self._null = b"NULL" if nulls else b""
        self._is_terminal = is_terminal
        self._parts = self._read(text)
        self._getters = [part.of_record for part in self._parts if part.of_record is not None]

    def lines(self, topic: str, partition: int, batch: StoredBatch) -> list[bytes]:
        """One for each record of the batch."""
        template = b"".join(
            part.placeholder
            or (part.text if part.of_batch is None else part.of_batch(topic, partition, batch)).replace(
                b"%", b"%%"
            )
            for part in self._parts
        )
        getters, records = self._getters, self._records(topic, batch)
        if len(getters) == 1:
            (only,) = getters
            return [template % (only(record),) for record in records]
        if len(getters) == 2:
            first, second = getters
            return [template % (first(record), second(record)) for record in records]
        return [template % tuple([get(record) for get in getters]) for record in records]

    def _records(self, topic: str, batch: StoredBatch) -> Sequence[Any]:
        """With what is decoded behind the fields of each record: the key, then the value."""
        if self._decoders is None:
            return batch.records
        if batch.header.is_control:
            return [(*record, record.key, record.value) for record in batch.records]
        decoder = self._decoders.of(topic)
        decoded = [decoder.both(record) for record in batch.records]
        return [
            (*record, key.text, value.text)
            for record, (key, value) in zip(batch.records, decoded, strict=True)
        ]

    # Reading the format

    def _read(self, text: str) -> list[_Part]:
        parts, position = [], 0
        while position < len(text):
            found = _TOKEN.match(text, position)
            if found is None:
                raise ClientError(f"the format has {text[position:]!r}, which ends too early")
            parts.append(self._part(found))
            position = found.end()
        return parts

    def _part(self, found: re.Match[str]) -> _Part:
        if found["text"] is not None:
            return _Part(found["text"].encode("utf-8", "surrogateescape"))
        if found["code"] is not None:
            return _Part(bytes.fromhex(found["code"]))
        if found["escape"] is not None:
            return _Part(_escape(found["escape"]))
        if found["letter"] is None:
            return _Part(placeholder=b"%b", of_record=_time(found["time"]))
        letter, modifier = found["letter"], found["modifier"]
        if modifier is not None and (letter not in "svkh" or modifier not in _MODIFIERS):
            raise ClientError(
                f"the format has {found[0]}: %s, %k and %h take one of {{hex}}, {{base64}} and {{json}}"
            )
        if letter == "%":
            return _Part(b"%")
        if letter in _OF_BATCH:
            return _Part(of_batch=_OF_BATCH[letter])
        if letter in _NUMBERS:
            return _Part(placeholder=b"%d", of_record=_NUMBERS[letter])
        return _Part(placeholder=b"%b", of_record=self._content(letter, modifier))

    def _content(self, letter: str, modifier: str | None) -> Getter:
        if letter == "R":
            return lambda record: _size(record[3]).to_bytes(4, "big", signed=True)
        if letter == "h":
            return self._headers(modifier)
        if letter not in "svk":
            raise ClientError(f"the format has %{letter}, which is none of its letters; see the help")
        is_key, is_decoded = letter == "k", self._decoders is not None and modifier is None
        place = (_KEY if is_key else _VALUE) if is_decoded else 2 if is_key else 3
        return self._bytes(operator.itemgetter(place), modifier)

    def _bytes(self, of: Callable[[Record], bytes | None], modifier: str | None) -> Getter:
        null = self._null
        if modifier is not None:
            return lambda record: _coded(of(record), modifier, null)
        if self._is_terminal:
            return lambda record: null if (content := of(record)) is None else visible(content)
        if null:
            return lambda record: null if (content := of(record)) is None else content
        return lambda record: of(record) or b""

    def _headers(self, modifier: str | None) -> Getter:
        if modifier == "json":
            return lambda record: headers_json(record[4]).encode()
        shown = self._shown_header if modifier is None else lambda content: _coded(content, modifier, b"NULL")

        def joined(record: Record) -> bytes:
            return b",".join(
                self._shown_header(name.encode("utf-8", "surrogateescape")) + b"=" + shown(content)
                for name, content in record[4]
            )

        return joined

    def _shown_header(self, content: bytes | None) -> bytes:
        if content is None:
            return b"NULL"
        return visible(content) if self._is_terminal else content


def unescaped(text: str) -> bytes:
    """The bytes of a text with the escapes of a format, for separators; ClientError for unknown ones."""
    found, position = [], 0
    while position < len(text):
        if text[position] != "\\":
            found.append(text[position].encode("utf-8", "surrogateescape"))
            position += 1
        elif (code := re.compile(r"\\x([0-9A-Fa-f]{2})").match(text, position)) is not None:
            found.append(bytes.fromhex(code[1]))
            position = code.end()
        else:
            found.append(_escape(text[position + 1 : position + 2]))
            position += 2
    return b"".join(found)


def visible(content: bytes) -> bytes:
    """The content as text for a terminal: what would control it, and bytes that are no text, as escapes."""
    text = content.decode("utf-8", "backslashreplace")
    return _CONTENT.sub(lambda found: found[0].encode("unicode_escape").decode(), text).encode()


def _escape(letter: str) -> bytes:
    if letter not in _ESCAPES:
        raise ClientError(f"\\{letter} is not an escape: there are \\n, \\t, \\r, \\0, \\\\ and \\xNN")
    return _ESCAPES[letter]


def _size(content: bytes | None) -> int:
    return -1 if content is None else len(content)


def _coded(content: bytes | None, modifier: str, null: bytes) -> bytes:
    if content is None:
        return b"null" if modifier == "json" else null
    if modifier == "hex":
        return content.hex().encode()
    if modifier == "base64":
        return base64.b64encode(content)
    import json

    try:
        return json.dumps(content.decode(), ensure_ascii=False).encode()
    except UnicodeDecodeError:
        return json.dumps({"base64": base64.b64encode(content).decode()}).encode()


def _time(pattern: str | None) -> Getter:
    """Local time, with its zone in the default form; a timestamp of -1 is none, and shown as "-"."""
    from datetime import UTC, datetime

    def text(record: Record) -> bytes:
        try:
            if record[1] < 0:
                return b"-"
            moment = datetime.fromtimestamp(record[1] / 1000, UTC).astimezone()
        except (OverflowError, ValueError, OSError):
            return str(record[1]).encode()
        shown = moment.isoformat("T", "milliseconds") if pattern is None else moment.strftime(pattern)
        return shown.encode("utf-8", "surrogateescape")

    return text


_OF_BATCH: dict[str, Callable[[str, int, StoredBatch], bytes]] = {
    "t": lambda topic, partition, batch: topic.encode(),
    "p": lambda topic, partition, batch: b"%d" % partition,
    "e": lambda topic, partition, batch: b"%d" % batch.header.leader_epoch,
    "x": lambda topic, partition, batch: b"%d" % batch.header.producer_id,
    "y": lambda topic, partition, batch: b"%d" % batch.header.producer_epoch,
}
_NUMBERS: dict[str, Getter] = {
    "o": lambda record: record[0],
    "T": lambda record: record[1],
    "K": lambda record: _size(record[2]),
    "S": lambda record: _size(record[3]),
}
