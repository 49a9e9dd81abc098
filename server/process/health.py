"""`python -m odradek.server.process.health [--command-config FILE] [[ssl://]HOST:PORT]`: exit status 0 when a
broker answers there, else 1.

Asks ApiVersions in version 0, which every Kafka broker answers; the image's health check runs it. Without an
address it asks where the broker says that it is: `odradek serve` writes one of its addresses into the file
that the environment variable ODRADEK_ADDRESS_FILE names, when it is ready. At a listener with TLS it does not
check who answers, and one that refuses it for want of a certificate is a broker too. With a file of options,
as Kafka's tools take it, it does check, and logs in with SASL.
"""

from __future__ import annotations

import argparse
import os
import pathlib
import socket
import struct
import sys
from collections.abc import Container, Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from odradek.security.client_security import ClientSecurity

DEFAULT_ADDRESS = "127.0.0.1:9092"
ADDRESS_FILE_VARIABLE = "ODRADEK_ADDRESS_FILE"
TIMEOUT_S = 3.0
TLS = "ssl://"
CORRELATION_ID = 77
CLIENT_ID = "odradek-health"
RESPONSE_BYTES_MAX = 1 << 20


def check(address: str, command_config: str | None = None) -> str | None:
    """None if a broker answers; else the reason."""
    host, _, port = address.removeprefix(TLS).rpartition(":")
    host = host.strip("[]")
    try:
        security = None if command_config is None else _security(command_config)
        with socket.create_connection((host, int(port)), TIMEOUT_S) as connection:
            if security is not None:
                response: bytes | None = _ask_as_client(connection, security, host)
            else:
                response = _ask_with_tls(connection) if address.startswith(TLS) else _ask(connection)
    except (OSError, ValueError, OverflowError) as error:
        return f"no broker answers at {address}: {error}"
    if response is None:
        return None
    _, correlation_id, error_code = struct.unpack(">iih", response)
    if correlation_id != CORRELATION_ID or error_code != 0:
        return f"what answers at {address} is not a Kafka broker"
    return None


def _ask(connection: socket.socket) -> bytes:
    connection.sendall(struct.pack(">ihhih", 10, 18, 0, CORRELATION_ID, -1))
    return _read(connection, 10)


def _ask_with_tls(connection: socket.socket) -> bytes | None:
    """None from a listener that wants to see a certificate."""
    import ssl

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    try:
        with context.wrap_socket(connection) as sealed:
            return _ask(sealed)
    except ssl.SSLError as error:
        if "ALERT" in (error.reason or ""):
            return None
        raise


def _security(command_config: str) -> ClientSecurity:
    """ValueError for options that cannot be used."""
    from odradek.config.config_error import ConfigError
    from odradek.security.client_security import ClientSecurity, is_security_option, read_command_config

    try:
        options = {name.lower(): value for name, value in read_command_config(command_config).items()}
        # What else is in the file is for clients that do more.
        return ClientSecurity.of({name: options[name] for name in options if is_security_option(name)})
    except ConfigError as error:
        raise ValueError(str(error)) from None


def _ask_as_client(connection: socket.socket, security: ClientSecurity, host: str) -> bytes:
    """ValueError if the broker does not take this user."""
    from odradek.config.config_error import ConfigError
    from odradek.security.sasl_login import SaslRefused
    from odradek.wire.errors import MalformedMessage

    try:
        context = security.context()
        sealed = connection if context is None else context.wrap_socket(connection, server_hostname=host)
        with sealed:
            response = _ask(sealed)
            _read(sealed, _size(response) - 6)  # the versions themselves
            _log_in(sealed, security)
            return response
    except (ConfigError, SaslRefused) as error:
        raise ValueError(f"it {error}" if isinstance(error, SaslRefused) else str(error)) from None
    except MalformedMessage:
        raise ValueError("its answers make no sense") from None


def _log_in(connection: socket.socket, security: ClientSecurity) -> None:
    import secrets

    from odradek.wire.frames import read_response, request_frame

    login = security.login(secrets.token_urlsafe())
    while login is not None and (request := login.request) is not None:
        version = login.version
        connection.sendall(request_frame(request, version, CORRELATION_ID, CLIENT_ID))
        frame = _read(connection, _size(_read(connection, 4)))
        login.take(read_response(frame, type(request), version)[1])


def _size(frame: bytes) -> int:
    """Size of a response that begins so, without these four bytes."""
    size_bytes = int.from_bytes(frame[:4], "big")
    if not 6 <= size_bytes <= RESPONSE_BYTES_MAX:
        raise ValueError(f"it announces a response of {size_bytes} bytes")
    return size_bytes


def _read(connection: socket.socket, size_bytes: int) -> bytes:
    received = b""
    while len(received) < size_bytes:
        piece = connection.recv(size_bytes - len(received))
        if not piece:
            raise ConnectionError("the connection was closed")
        received += piece
    return received


def write_address(path: str, bound: Iterable[tuple[str, str, int]], with_tls: Container[str] = ()) -> None:
    """Writes an address of a broker with these listeners (name, host, port) for clients on its own machine;
    one without TLS if there is one. Raises `OSError`."""
    name, host, port = min(bound, key=lambda listener: listener[0] in with_tls)
    protocol = TLS if name in with_tls else ""
    host = {"": "127.0.0.1", "0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
    new = f"{path}.new"
    pathlib.Path(new).write_text(protocol + (f"[{host}]:{port}" if ":" in host else f"{host}:{port}"))
    os.replace(new, path)


def _written_address() -> str:
    path = os.environ.get(ADDRESS_FILE_VARIABLE)
    if path is None:
        return DEFAULT_ADDRESS
    try:
        return pathlib.Path(path).read_text()
    except FileNotFoundError:
        # The broker is not ready, or could not write the file.
        return DEFAULT_ADDRESS


def main() -> int:
    parser = argparse.ArgumentParser("python -m odradek.server.process.health", allow_abbrev=False)
    parser.add_argument("address", nargs="?", metavar="[ssl://]HOST:PORT")
    parser.add_argument("--command-config", metavar="FILE", help="options, as for Kafka's tools")
    options = parser.parse_args()
    complaint = check(options.address or _written_address(), options.command_config)
    if complaint is not None:
        print(complaint, file=sys.stderr)
    return 0 if complaint is None else 1


if __name__ == "__main__":
    sys.exit(main())
