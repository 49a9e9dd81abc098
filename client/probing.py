"""Kind of server at an address, found by its first bytes.

A broker without TLS answers an ApiVersions request; one with TLS answers it with an alert record; servers of
other protocols say their name. Nothing here logs in.
"""

import socket
import struct
import time
from enum import Enum

from odradek.client.secured import reason_of
from odradek.wire.frames import request_frame
from odradek.wire.messages.api_versions import ApiVersionsRequest

_TLS_RECORDS = (0x14, 0x15, 0x16, 0x17)
_RESPONSE_BYTES_MAX = 1 << 20
_CORRELATION_ID = 0x0D1A


class Heard(Enum):
    """Server that a request without TLS met."""

    KAFKA = "a Kafka broker without TLS"
    TLS = "a server with TLS"
    HTTP = "an HTTP server"
    SSH = "an SSH server"
    OTHER = "a server of another protocol"
    CLOSED = "a server that closes the connection"
    SILENCE = "a server that says nothing"


def addresses_of(host: str, port: int) -> list[str]:
    """The addresses of a name, in the order in which they are tried. OSError if there are none."""
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(address[0]) for *_, address in found))


def dial(address: str, port: int, timeout_s: float) -> float:
    """Seconds until the connection is there. OSError if it cannot be made."""
    began = time.monotonic()
    socket.create_connection((address, port), timeout_s).close()
    return time.monotonic() - began


def first_response(host: str, port: int, timeout_s: float) -> Heard:
    """Asks without TLS for the versions of the APIs. OSError if there is no connection."""
    # Version 0 has no fields, and every broker knows it.
    frame = request_frame(ApiVersionsRequest(), 0, _CORRELATION_ID, "odradek-doctor")
    with socket.create_connection((host, port), timeout_s) as connected:
        try:
            connected.sendall(frame)
            heard = _read(connected, time.monotonic() + timeout_s)
        except TimeoutError:
            return Heard.SILENCE
        except OSError:
            return Heard.CLOSED
    return _what(heard)


def _read(connected: socket.socket, deadline: float) -> bytes:
    """The first bytes: eight, or what came before the end."""
    heard = b""
    while len(heard) < 8:
        connected.settimeout(max(0.001, deadline - time.monotonic()))
        try:
            more = connected.recv(8 - len(heard))
        except TimeoutError:
            if heard:
                return heard
            raise
        if not more:
            return heard
        heard += more
    return heard


def _what(heard: bytes) -> Heard:
    if not heard:
        return Heard.CLOSED
    if len(heard) >= 3 and heard[0] in _TLS_RECORDS and heard[1] == 3:
        return Heard.TLS
    if heard.startswith(b"HTTP/"):
        return Heard.HTTP
    if heard.startswith(b"SSH-"):
        return Heard.SSH
    if len(heard) == 8:
        size_bytes, correlation_id = struct.unpack(">ii", heard)
        if correlation_id == _CORRELATION_ID and 0 < size_bytes <= _RESPONSE_BYTES_MAX:
            return Heard.KAFKA
    return Heard.OTHER


def reason(error: OSError) -> str:
    """Why there is no connection, in words."""
    return "no answer in time" if isinstance(error, TimeoutError) else reason_of(error)
