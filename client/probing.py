"""Kind of server at an address, found by its first bytes, and what a client has to set for it.

A broker without TLS answers an ApiVersions request; one with TLS answers it with an alert record; servers of
other protocols say their name. Nothing here logs in.
"""

import socket
import struct
import time
from enum import Enum

from odradek.client.secured import reason_of
from odradek.security.client_security import ClientSecurity
from odradek.wire.errors import MalformedMessage
from odradek.wire.frames import read_response, request_frame
from odradek.wire.messages.api_versions import ApiVersionsRequest
from odradek.wire.messages.sasl_handshake import SaslHandshakeRequest

_TLS_RECORDS = (0x14, 0x15, 0x16, 0x17)
_RESPONSE_BYTES_MAX = 1 << 20
_HANDSHAKE_VERSION = 1
_CLIENT_ID = "odradek-doctor"
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
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except UnicodeError:  # "a..b", or a label of more than 63 characters
        raise socket.gaierror(socket.EAI_NONAME, "it is not a name of a host") from None
    return list(dict.fromkeys(str(address[0]) for *_, address in found))


def dial(address: str, port: int, timeout_s: float) -> float:
    """Seconds until the connection is there. OSError if it cannot be made."""
    began = time.monotonic()
    socket.create_connection((address, port), timeout_s).close()
    return time.monotonic() - began


def first_response(host: str, port: int, timeout_s: float) -> Heard:
    """Asks without TLS for the versions of the APIs. OSError if there is no connection."""
    # Version 0 has no fields, and every broker knows it.
    frame = request_frame(ApiVersionsRequest(), 0, _CORRELATION_ID, _CLIENT_ID)
    with socket.create_connection((host, port), timeout_s) as connected:
        try:
            connected.sendall(frame)
            heard = _read(connected, time.monotonic() + timeout_s)
        except TimeoutError:
            return Heard.SILENCE
        except OSError:
            return Heard.CLOSED
    return server_of(heard)


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


def server_of(heard: bytes) -> Heard:
    """Server that begins its response with these bytes: four of them are enough, except for KAFKA."""
    if not heard:
        return Heard.CLOSED
    if len(heard) >= 3 and heard[0] in _TLS_RECORDS and heard[1] == 3:
        return Heard.TLS
    if heard.startswith(b"HTTP"):
        return Heard.HTTP
    if heard.startswith(b"SSH-"):
        return Heard.SSH
    if len(heard) == 8:
        size_bytes, correlation_id = struct.unpack(">ii", heard)
        if correlation_id == _CORRELATION_ID and 0 < size_bytes <= _RESPONSE_BYTES_MAX:
            return Heard.KAFKA
    return Heard.OTHER


def mechanisms_at(host: str, port: int, timeout_s: float, *, with_tls: bool) -> list[str]:
    """Mechanisms of SASL that the listener has; empty if it has no SASL, or does not say so. The certificate
    is not looked at, as nothing secret is sent."""
    frame = request_frame(SaslHandshakeRequest(mechanism=""), _HANDSHAKE_VERSION, _CORRELATION_ID, _CLIENT_ID)
    try:
        with socket.create_connection((host, port), timeout_s) as connected:
            asked = _unverified(connected) if with_tls else connected
            with asked:
                asked.sendall(frame)
                (size_bytes,) = struct.unpack(">i", _read_whole(asked, 4))
                if not 4 <= size_bytes <= _RESPONSE_BYTES_MAX:
                    return []
                content = _read_whole(asked, size_bytes)
        return list(read_response(content, SaslHandshakeRequest, _HANDSHAKE_VERSION)[1].mechanisms)
    except (OSError, struct.error, MalformedMessage):
        return []


def _unverified(connected: socket.socket) -> socket.socket:
    import ssl

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context.wrap_socket(connected)


def _read_whole(connected: socket.socket, size_bytes: int) -> bytes:
    """OSError if fewer bytes come."""
    found = b""
    while len(found) < size_bytes:
        more = connected.recv(size_bytes - len(found))
        if not more:
            raise ConnectionError("the end")
        found += more
    return found


def mismatch(
    heard: Heard, security: ClientSecurity, host: str, port: int, timeout_s: float
) -> tuple[str, str] | None:
    """Fault and remedy, where what was heard is not what the client's options say."""
    option = f"{security.prefix}security.protocol"
    if heard is Heard.TLS:
        if security.has_tls:
            return None
        mechanisms = [] if security.has_sasl else mechanisms_at(host, port, timeout_s, with_tls=True)
        protocol = "SASL_SSL" if security.has_sasl or mechanisms else "SSL"
        return "the port speaks TLS, and this client does not", _setting(security, protocol, mechanisms)
    if heard is Heard.KAFKA:
        if not security.has_tls:
            return None
        plain = "SASL_PLAINTEXT" if security.has_sasl else "PLAINTEXT"
        return (
            "the port is a Kafka listener without TLS, and this client speaks TLS",
            f"set {option} to {plain}, or use the port of a listener with TLS",
        )
    if heard in (Heard.HTTP, Heard.SSH, Heard.OTHER):
        return f"{heard.value} listens there, not a Kafka broker", "use the port of a Kafka listener"
    return None


def login_wanted(security: ClientSecurity, host: str, port: int, timeout_s: float) -> tuple[str, str] | None:
    """Fault and remedy, if the listener wants a login and the client has none."""
    if security.has_sasl:
        return None
    mechanisms = mechanisms_at(host, port, timeout_s, with_tls=security.has_tls)
    if not mechanisms:
        return None
    protocol = "SASL_SSL" if security.has_tls else "SASL_PLAINTEXT"
    return "the listener wants a login, and this client has none", _setting(security, protocol, mechanisms)


def _setting(security: ClientSecurity, protocol: str, mechanisms: list[str]) -> str:
    setting = f"set {security.prefix}security.protocol to {protocol}"
    if not mechanisms:
        return setting
    known = mechanisms[0] if len(mechanisms) == 1 else f"one of {', '.join(mechanisms)}"
    return f"{setting}, {security.prefix}sasl.mechanism to {known}, and name a user"


def reason(error: OSError) -> str:
    """Why there is no connection, in words."""
    return "no answer in time" if isinstance(error, TimeoutError) else reason_of(error)
