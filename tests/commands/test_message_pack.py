"""The reader of MessagePack, held against an encoder that knows nothing of it, and against nonsense."""

import base64
import json
import math
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.commands.message_pack import DEPTH_MAX, NotMessagePack, read_message_pack


class Extension(bytes):
    """Its type is -5."""


def sized(data, widths, size):
    """The size in one of the widths that have room for it; `data` chooses."""
    fitting = [(code, layout) for code, layout, most in widths if size <= most]
    code, layout = fitting[data.draw(st.integers(0, len(fitting) - 1))]
    return bytes([code + size]) if layout is None else bytes([code]) + struct.pack(layout, size)


TEXTS = ((0xA0, None, 31), (0xD9, ">B", 255), (0xDA, ">H", 65535), (0xDB, ">I", 2**32))
BINARY = ((0xC4, ">B", 255), (0xC5, ">H", 65535), (0xC6, ">I", 2**32))
ARRAYS = ((0x90, None, 15), (0xDC, ">H", 65535), (0xDD, ">I", 2**32))
MAPS = ((0x80, None, 15), (0xDE, ">H", 65535), (0xDF, ">I", 2**32))
EXTENSIONS = ((0xC7, ">B", 255), (0xC8, ">H", 65535), (0xC9, ">I", 2**32))
FIXED = {1: 0xD4, 2: 0xD5, 4: 0xD6, 8: 0xD7, 16: 0xD8}
INTEGERS = (
    (0xCC, ">B"),
    (0xCD, ">H"),
    (0xCE, ">I"),
    (0xCF, ">Q"),
    (0xD0, ">b"),
    (0xD1, ">h"),
    (0xD2, ">i"),
    (0xD3, ">q"),
)


def integer(data, value):
    forms = [struct.pack("B", value & 0xFF)] if -32 <= value < 128 else []
    for code, layout in INTEGERS:
        try:
            forms.append(bytes([code]) + struct.pack(layout, value))
        except struct.error:
            continue
    return forms[data.draw(st.integers(0, len(forms) - 1))]


def encoded(data, value):
    """The value in any of its forms."""
    if value is None or value is False or value is True:
        return {None: b"\xc0", False: b"\xc2", True: b"\xc3"}[value]
    if isinstance(value, int):
        return integer(data, value)
    if isinstance(value, float):
        return b"\xcb" + struct.pack(">d", value)
    if isinstance(value, str):
        return sized(data, TEXTS, len(value.encode())) + value.encode()
    if isinstance(value, Extension):
        if len(value) in FIXED and data.draw(st.booleans()):
            return bytes([FIXED[len(value)]]) + struct.pack("b", -5) + value
        return sized(data, EXTENSIONS, len(value)) + struct.pack("b", -5) + value
    if isinstance(value, bytes):
        return sized(data, BINARY, len(value)) + value
    if isinstance(value, list):
        return sized(data, ARRAYS, len(value)) + b"".join(encoded(data, one) for one in value)
    pairs = [encoded(data, key) + encoded(data, one) for key, one in value.items()]
    return sized(data, MAPS, len(value)) + b"".join(pairs)


def shown(value):
    """As the reader shows it."""
    if isinstance(value, Extension):
        return {"extension": -5, "base64": base64.b64encode(value).decode()}
    if isinstance(value, bytes):
        return {"base64": base64.b64encode(value).decode()}
    if isinstance(value, list):
        return [shown(one) for one in value]
    if isinstance(value, dict) and all(isinstance(key, str) for key in value):
        return {key: shown(one) for key, one in value.items()}
    if isinstance(value, dict):
        return {"map": [[key, shown(one)] for key, one in value.items()]}
    return value


SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=40)
    | st.binary(max_size=300)
    | st.binary(max_size=20).map(Extension)
)
KEYS = st.integers(-40, 300) | st.text(max_size=5)
VALUES = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=20)
        | st.dictionaries(st.text(max_size=5), inner, max_size=20)
        | st.dictionaries(KEYS, inner, max_size=5)
    ),
    max_leaves=20,
)


@given(value=VALUES, data=st.data())
def test_what_was_encoded_is_read_in_whatever_form(value, data):
    found = read_message_pack(encoded(data, value))
    assert found == shown(value)
    assert json.loads(json.dumps(found, allow_nan=False)) == found


@given(value=VALUES, data=st.data())
def test_a_part_and_more_than_one_are_none(value, data):
    content = encoded(data, value)
    for wrong in (content[: data.draw(st.integers(0, len(content) - 1))], content + b"\xc0"):
        with pytest.raises(NotMessagePack):
            read_message_pack(wrong)


@given(content=st.binary(max_size=200))
def test_any_bytes_are_read_or_refused(content):
    try:
        found = read_message_pack(content)
    except NotMessagePack:
        return
    json.dumps(found, allow_nan=False)


def test_numbers_and_texts_that_json_does_not_have():
    assert read_message_pack(b"\xca\x3f\x80\x00\x00") == 1.0
    for value, text in ((math.nan, "NaN"), (math.inf, "Infinity"), (-math.inf, "-Infinity")):
        assert read_message_pack(b"\xcb" + struct.pack(">d", value)) == text
    assert read_message_pack(b"\xa1\xff") == {"base64": "/w=="}
    assert read_message_pack(b"\x82\xa1a\x01\xa1a\x02") == {"map": [["a", 1], ["a", 2]]}


def test_levels_and_sizes_are_bounded():
    assert read_message_pack(b"\x91" * DEPTH_MAX + b"\x01")
    with pytest.raises(NotMessagePack, match="levels"):
        read_message_pack(b"\x91" * (DEPTH_MAX + 1) + b"\x01")
    for claim in (b"\xdd\xff\xff\xff\xff", b"\xdf\xff\xff\xff\xff", b"\xc6\xff\xff\xff\xff", b"\xc1"):
        with pytest.raises(NotMessagePack):
            read_message_pack(claim + b"\x01" * 100)
