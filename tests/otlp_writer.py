"""Writes metrics in OpenTelemetry's protobuf form, for tests of who reads them."""

from __future__ import annotations

import struct

DELTA, CUMULATIVE = 1, 2


def varint(value):
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def number(field, value):
    return varint(field << 3) + varint(value % (1 << 64))


def fixed(field, form, value):
    return varint(field << 3 | 1) + struct.pack(form, value)


def part(field, *contents):
    """A text or a message."""
    data = b"".join(one.encode() if isinstance(one, str) else one for one in contents)
    return varint(field << 3 | 2) + varint(len(data)) + data


def label(field, key, value):
    """A KeyValue; the value is a text, or an AnyValue as bytes."""
    any_value = part(1, value) if isinstance(value, str) else value
    return part(field, part(1, key), part(2, any_value))


def point(value, time_ms=0, **labels):
    """Of a gauge or a sum."""
    shown = fixed(6, "<q", value) if isinstance(value, int) else fixed(4, "<d", value)
    return part(
        1,
        *(label(7, key, text) for key, text in labels.items()),
        fixed(3, "<Q", time_ms * 1_000_000),
        shown,
    )


def gauge(name, *points):
    return part(2, part(1, name), part(3, "unit"), part(5, *points))


def total(name, *points, temporality=CUMULATIVE):
    return part(2, part(1, name), part(7, *points, number(2, temporality), number(3, 1)))


def metrics_data(*metrics, **labels):
    """Of one client with these labels of its own."""
    resource = part(1, *(label(1, key, text) for key, text in labels.items()))
    scope = part(1, part(1, "a scope"))
    return part(1, resource, part(2, scope, *metrics), part(3, "http://schema"))
