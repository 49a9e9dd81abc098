"""Java unpacks what compacted topics are served as: gzip in stored blocks, and fillers for what has gone."""

from __future__ import annotations

import pathlib
import shutil
import struct
import subprocess

import pytest

from compat_tests.kit.java import SMALL_JVM, compiled
from odradek.wire.kafka07.messages import encode_message, iter_messages
from odradek.wire.kafka07.served import Form, encode, filler, served_bytes

PROGRAM = pathlib.Path(__file__).parent / "Gunzip.java"
SIZES = (0, 1, 2, 100, 5000, 65_515, 65_525, 65_526, 300_000)
TIMEOUT_S = 60

pytestmark = pytest.mark.skipif(shutil.which("javac") is None, reason="no JDK is here")


def unpacked(streams: list[bytes]) -> list[bytes]:
    """The contents of gzip streams, by Java."""
    frames = b"".join(struct.pack(">i", len(stream)) + stream for stream in streams)
    done = subprocess.run(
        ["java", *SMALL_JVM, "-cp", str(compiled("", PROGRAM)), PROGRAM.stem],
        input=struct.pack(">i", len(streams)) + frames,
        capture_output=True,
        timeout=TIMEOUT_S,
    )
    assert done.returncode == 0, done.stderr.decode()
    rest, found = done.stdout, []
    while rest:
        (size,) = struct.unpack_from(">i", rest)
        found.append(rest[4 : 4 + size])
        rest = rest[4 + size :]
    return found


def test_java_unpacks_records_and_fillers() -> None:
    values = [b"x" * size for size in SIZES]
    served = b"".join(
        encode(Form.WRAPPED, value) + filler(served_bytes(Form.WRAPPED, len(value))) for value in values
    )
    streams = [bytes(message.payload) for message in iter_messages(served)]
    expected = [content for value in values for content in (encode_message(value), b"")]
    assert unpacked(streams) == expected
