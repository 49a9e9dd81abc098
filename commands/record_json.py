"""A record as one line of JSON, both ways: what `consume --json` prints `produce --json` takes.

Keys: topic, partition, offset, timestamp (ms since 1970), timestamp_type (create, append, none), key, value,
headers: a list of {"key", "value"} in order. Bytes that are no UTF-8 are under the same name with `_base64`
after it; null is null. A control record has also `control` (commit, abort, other). `consume --decode` adds
key_form, key_decoded, value_form and value_decoded, and maybe key_note and value_note; they are not read.
"""

import base64
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from odradek.client.client_error import ClientError
from odradek.client.stored_records import StoredBatch
from odradek.wire.errors import KafkaError
from odradek.wire.records import read_end_txn_marker

_quoted: Callable[[str], str] = json.JSONEncoder(ensure_ascii=False).encode
_KEYS = frozenset(
    {
        "topic",
        "partition",
        "offset",
        "timestamp",
        "timestamp_type",
        "key",
        "key_base64",
        "value",
        "value_base64",
        "headers",
        "key_form",
        "key_decoded",
        "value_form",
        "value_decoded",
        "key_note",
        "value_note",
    }
)
TIMESTAMPS = range(-1, 2**62)
PARTITIONS = range(-1, 2**31)


# Writing ----------------------------------------------------------------------------------------------


def json_lines(topic: str, partition: int, batch: StoredBatch) -> list[bytes]:
    """A line for each record of the batch, with its newline."""
    before = f'{{"topic": {_quoted(topic)}, "partition": {partition}, "offset": '
    after = f', "timestamp_type": "{batch.timestamp_type}"'
    if batch.header.is_control:
        after += _control(batch)
    return [
        (
            f'{before}{offset}, "timestamp": {timestamp}{after}{_member("key", key)}'
            f'{_member("value", value)}, "headers": {headers_json(headers)}}}\n'
        ).encode()
        for offset, timestamp, key, value, headers in batch.records
    ]


def headers_json(headers: Sequence[tuple[str, bytes | None]]) -> str:
    """The list of headers."""
    if not headers:
        return "[]"
    return f"[{', '.join(map(_header, headers))}]"


def _header(header: tuple[str, bytes | None]) -> str:
    name = header[0].encode("utf-8", "surrogateescape")
    return f"{{{_member('key', name)[2:]}{_member('value', header[1])}}}"


def _member(name: str, content: bytes | None) -> str:
    if content is None:
        return f', "{name}": null'
    try:
        return f', "{name}": {_quoted(content.decode())}'
    except UnicodeDecodeError:
        return f', "{name}_base64": "{base64.b64encode(content).decode()}"'


def _control(batch: StoredBatch) -> str:
    """A control batch has one record."""
    try:
        marker = read_end_txn_marker(batch.records[0])
    except KafkaError:
        marker = None
    return f', "control": "{"other" if marker is None else "commit" if marker.committed else "abort"}"'


# Reading ----------------------------------------------------------------------------------------------


class ReadRecord(NamedTuple):
    """A record as a line gives it; what the line leaves out is None."""

    topic: str | None
    partition: int | None
    timestamp_ms: int | None
    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, bytes | None]]


def read_record(line: bytes) -> ReadRecord:
    """ClientError with the reason ("has no value") for a line that is no record."""
    try:
        found = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise ClientError(f"is not JSON: {error}") from None
    if not isinstance(found, dict):
        raise ClientError("is JSON, but no object")
    if "control" in found:
        raise ClientError("is a control record of a transaction, which only brokers write")
    if not found.keys() <= _KEYS:
        raise ClientError(
            f"has the key {min(found.keys() - _KEYS)!r}, which is none of {', '.join(sorted(_KEYS))}"
        )
    if "value" not in found and "value_base64" not in found:
        raise ClientError('has neither "value" nor "value_base64"; a tombstone has "value": null')
    topic = found.get("topic")
    if topic is not None and not isinstance(topic, str):
        raise ClientError('has a "topic" that is not text')
    return ReadRecord(
        topic,
        _number(found, "partition", PARTITIONS),
        _number(found, "timestamp", TIMESTAMPS),
        _content(found, "key"),
        _content(found, "value"),
        headers_of(found.get("headers")),
    )


def _number(found: Mapping[str, Any], name: str, bounds: range) -> int | None:
    number = found.get(name)
    if number is None:
        return None
    if type(number) is not int or number not in bounds:
        raise ClientError(f'has a "{name}" that is not a whole number from {bounds[0]} to {bounds[-1]}')
    return number


def _content(found: Mapping[str, Any], name: str) -> bytes | None:
    text, coded = found.get(name), found.get(f"{name}_base64")
    if text is not None and coded is not None:
        raise ClientError(f'has both "{name}" and "{name}_base64"')
    if not isinstance(text, str | None) or not isinstance(coded, str | None):
        raise ClientError(
            f'has a "{name}" that is neither text nor null; JSON in it has to be quoted as text'
        )
    try:
        if coded is not None:
            return base64.b64decode(coded, validate=True)
        return None if text is None else text.encode()
    except ValueError:  # binascii.Error, UnicodeEncodeError
        what = (
            f'"{name}_base64" that is not base64'
            if coded is not None
            else f'"{name}" that is not Unicode text'
        )
        raise ClientError(f"has a {what}") from None


def headers_of(found: Any) -> list[tuple[str, bytes | None]]:
    """Headers of a list that was JSON; ClientError with the reason ("has a header that ...")."""
    if found is None:
        return []
    if not isinstance(found, list) or not all(isinstance(one, dict) for one in found):
        raise ClientError('has "headers" that are not a list of {"key": ..., "value": ...}')
    headers = []
    for one in found:
        name = _content(one, "key")
        if name is None or not one.keys() <= {"key", "key_base64", "value", "value_base64"}:
            raise ClientError('has a header that is not {"key": ..., "value": ...}')
        headers.append((name.decode("utf-8", "surrogateescape"), _content(one, "value")))
    return headers
