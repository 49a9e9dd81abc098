"""UTF-8 as Java reads it: Kafka takes each text of a request, and replaces what is not UTF-8.

Programs without a notion of encodings send Latin-1. Python's own "replace" makes three characters of half a
surrogate pair, Java one. Seen with Kafka 4.3.1 (compat_tests/differential/test_frames.py).
"""

import codecs

AS_JAVA = "odradek-as-java"
"""The name of the error handler, for `bytes.decode` and `str`."""
REPLACEMENT = "\ufffd"
SURROGATE_BYTES = 3


def _replaced(error: UnicodeError) -> tuple[str, int]:
    assert isinstance(error, UnicodeDecodeError)
    start = error.start
    half = error.object[start : start + SURROGATE_BYTES]
    is_surrogate = len(half) == SURROGATE_BYTES and half[0] == 0xED and half[1] & 0xE0 == 0xA0
    if is_surrogate and half[2] & 0xC0 == 0x80:
        return REPLACEMENT, start + SURROGATE_BYTES
    return REPLACEMENT, error.end


codecs.register_error(AS_JAVA, _replaced)
