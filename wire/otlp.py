"""Metrics in OpenTelemetry's protobuf form (OTLP), as clients of Kafka push them (KIP-714).

Only what a reader of values needs is read; the rest is skipped. What comes is bounded: bytes by the caller,
fields, points and the length of texts here. Every loop over fields ends a step now and then, but for those
within one point or one resource, which may have few. A point is one value: of a gauge or a sum the value, of
a histogram or a summary the sum and the number of observations.

Source: opentelemetry/proto/metrics/v1/metrics.proto and common/v1/common.proto; the encoding of protobuf.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from struct import Struct
from struct import error as StructError
from typing import Any, NamedTuple

from odradek.wire.errors import ErrorCode, KafkaError
from odradek.wire.work import Work

POINTS_MAX = 4096
"""Points of one push; more are left out. Kafka's Java consumer of 100 partitions has about 1,000."""
LABELS_MAX = 32
"""Labels of one point; more are left out."""
FIELDS_MAX = 200_000
"""Fields of one push; with more it is refused."""
FIELDS_OF_ONE_MAX = 1_000
"""Fields of one point, or one resource, with their labels; with more the push is refused."""
FIELDS_PER_STEP = 500
"""Less than a millisecond."""
TEXT_CHARACTERS_MAX = 256
"""Characters of a name or a label; the rest is left out."""

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_VARINT_BYTES_MAX = 10
_double = Struct("<d").unpack
_signed = Struct("<q").unpack
_unsigned = Struct("<Q").unpack
_DELTA = 1

Value = int | memoryview
"""The value of a field: a number, or the bytes of a text, a message or a fixed number."""


class MetricPoint(NamedTuple):
    """One value of a client."""

    name: str
    labels: Mapping[str, str]
    value: int | float
    """For histograms and summaries the sum of all observations."""
    observations: int | None
    """The count of a histogram or a summary; None for other kinds."""
    is_delta: bool
    """Whether it counts from the push before, instead of from the client's start."""
    time_ms: int
    """The client's clock."""


class MetricsPush(NamedTuple):
    """One push of a client."""

    labels: Mapping[str, str]
    """Labels of the client itself, such as `group_id`."""
    points: tuple[MetricPoint, ...]
    left_out: int
    """Points over `POINTS_MAX`."""
    text_bytes: int
    """Memory of the names and labels, at most."""


class _Kind(NamedTuple):
    """Numbers of fields that kinds of metrics have."""

    labels: int
    value: tuple[int, ...]
    observations: int | None = None


_NUMBERS = _Kind(labels=7, value=(4, 6))
_HISTOGRAM = _Kind(labels=9, value=(5,), observations=4)
_EXPONENTIAL = _Kind(labels=1, value=(5,), observations=4)
_SUMMARY = _Kind(labels=7, value=(5,), observations=4)
_KINDS = {5: _NUMBERS, 7: _NUMBERS, 9: _HISTOGRAM, 10: _EXPONENTIAL, 11: _SUMMARY}
"""By number of the field in a Metric."""
_AS_INT = 6
"""The number of a value that is a whole one, in `_NUMBERS`."""


def reading_metrics(data: bytes) -> Work[MetricsPush]:
    """Reads a `MetricsData`. Raises KafkaError(INVALID_RECORD) for what is none, or has too many fields."""
    return _Reader().reading(memoryview(data))


class _Reader:
    def __init__(self) -> None:
        self._labels: dict[str, str] = {}
        self._points: list[MetricPoint] = []
        self._left_out = 0
        self._text_bytes = 0
        self._fields_left = FIELDS_MAX
        self._fields_left_min = 0
        self._step_end = FIELDS_MAX - FIELDS_PER_STEP

    def reading(self, data: memoryview) -> Work[MetricsPush]:
        for number, value in self._fields(data):
            if number == 1:
                yield from self._reading_resource(_message(value))
            if self._ends_step():
                yield None
        return MetricsPush(self._labels, tuple(self._points), self._left_out, self._text_bytes)

    def _reading_resource(self, resource_metrics: memoryview) -> Work[None]:
        for number, value in self._fields(resource_metrics):
            if number == 1:
                self._read_resource(_message(value))
            elif number == 2:
                yield from self._reading_scope(_message(value))
            if self._ends_step():
                yield None

    def _read_resource(self, resource: memoryview) -> None:
        self._begin_one()
        for number, value in self._fields(resource):
            if number == 1:
                self._add_label(self._labels, _message(value))
        self._end_one()

    def _reading_scope(self, scope_metrics: memoryview) -> Work[None]:
        for number, value in self._fields(scope_metrics):
            if number == 2:
                yield from self._reading_metric(_message(value))
            if self._ends_step():
                yield None

    def _reading_metric(self, metric: memoryview) -> Work[None]:
        name, kind, content = "", _NUMBERS, metric[:0]
        for number, value in self._fields(metric):
            if number == 1:
                name = self._text(value)
            elif number in _KINDS:
                # The last one counts, as everywhere in protobuf.
                kind, content = _KINDS[number], _message(value)
            if self._ends_step():
                yield None
        is_delta = False
        points: list[memoryview] = []
        for number, value in self._fields(content):
            if number == 1 and len(self._points) + len(points) < POINTS_MAX:
                points.append(_message(value))
            elif number == 1:
                self._left_out += 1
            elif number == 2:
                is_delta = value == _DELTA
            if self._ends_step():
                yield None
        for point in points:
            self._read_point(name, kind, point, is_delta)
            if self._ends_step():
                yield None

    def _begin_one(self) -> None:
        """From here to `_end_one` no step ends."""
        self._fields_left_min = max(self._fields_left - FIELDS_OF_ONE_MAX, 0)

    def _end_one(self) -> None:
        self._fields_left_min = 0

    def _ends_step(self) -> bool:
        if self._fields_left > self._step_end:
            return False
        self._step_end = self._fields_left - FIELDS_PER_STEP
        return True

    def _read_point(self, name: str, kind: _Kind, point: memoryview, is_delta: bool) -> None:
        labels: dict[str, str] = {}
        found: int | float = 0
        observations = None if kind.observations is None else 0
        time_ms = 0
        self._begin_one()
        for number, value in self._fields(point):
            if number in kind.value:
                unpack = _signed if number == _AS_INT else _double
                found = _fixed(unpack, value)
            elif number == kind.observations:
                observations = _fixed(_unsigned, value)
            elif number == kind.labels:
                self._add_label(labels, _message(value))
            elif number == 3:
                time_ms = _fixed(_unsigned, value) // 1_000_000
        self._end_one()
        self._points.append(MetricPoint(name, labels, found, observations, is_delta, time_ms))

    def _add_label(self, labels: dict[str, str], pair: memoryview) -> None:
        key, text = "", ""
        for number, value in self._fields(pair):
            if number == 1:
                key = self._text(value)
            elif number == 2:
                text = self._any_value(_message(value))
        if len(labels) < LABELS_MAX:
            labels[key] = text

    def _any_value(self, data: memoryview) -> str:
        """Lists and maps, which no client of Kafka sends as a label, are empty."""
        found = ""
        for number, value in self._fields(data):
            if number == 1:
                found = self._text(value)
            elif number == 2:
                found = "true" if value else "false"
            elif number == 3 and isinstance(value, int):
                found = str(value - (1 << 64) if value >> 63 else value)
            elif number == 4:
                found = str(_fixed(_double, value))
        return found

    def _text(self, value: Value) -> str:
        # A character has four bytes at most, on the wire and in memory.
        kept = _message(value)[: 4 * TEXT_CHARACTERS_MAX]
        text = str(kept, "utf-8", "replace")[:TEXT_CHARACTERS_MAX]
        self._text_bytes += len(text) if text.isascii() else 4 * len(text)
        return text

    def _fields(self, data: memoryview) -> Iterator[tuple[int, Value]]:
        """Number and value of each field. Groups, which protobuf has given up, are refused."""
        position, end = 0, len(data)
        while position < end:
            self._fields_left -= 1
            if self._fields_left < self._fields_left_min:
                raise _malformed(f"more than {FIELDS_MAX} fields, or {FIELDS_OF_ONE_MAX} of one point")
            tag, position = _varint(data, position)
            number, wire_type = tag >> 3, tag & 7
            if wire_type == _VARINT:
                value, position = _varint(data, position)
                yield number, value
                continue
            if wire_type == _BYTES:
                size, position = _varint(data, position)
            elif wire_type == _FIXED64:
                size = 8
            elif wire_type == _FIXED32:
                size = 4
            else:
                raise _malformed(f"the wire type {wire_type}")
            if size > end - position:
                raise _malformed("a field beyond its end")
            yield number, data[position : position + size]
            position += size


def _varint(data: memoryview, position: int) -> tuple[int, int]:
    value = shift = 0
    for byte in data[position : position + _VARINT_BYTES_MAX]:
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value & 0xFFFF_FFFF_FFFF_FFFF, position
        shift += 7
    raise _malformed("a number without an end")


def _message(value: Value) -> memoryview:
    if isinstance(value, int):
        raise _malformed("a number in place of a message")
    return value


def _fixed(unpack: Any, value: Value) -> Any:
    try:
        return unpack(value)[0]
    except (StructError, TypeError):
        raise _malformed("a number of another size") from None


def _malformed(what: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_RECORD, f"The metrics of a client have {what}.")
