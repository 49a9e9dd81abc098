"""`python -m odradek.server.health [[ssl://]HOST:PORT]`: exit status 0 when a broker answers there, else 1.

Asks ApiVersions in version 0, which every Kafka broker answers; the image's health check runs it. Without an
address it asks where the broker says that it is: `odradek serve` writes one of its addresses into the file
that the environment variable ODRADEK_ADDRESS_FILE names, when it is ready. At a listener with TLS it does not
check who answers, and one that refuses it for want of a certificate is a broker too.
"""

from __future__ import annotations

import os
import pathlib
import socket
import struct
import sys
from collections.abc import Container, Iterable

DEFAULT_ADDRESS = "127.0.0.1:9092"
ADDRESS_FILE_VARIABLE = "ODRADEK_ADDRESS_FILE"
TIMEOUT_S = 3.0
TLS = "ssl://"
CORRELATION_ID = 77


def check(address: str) -> str | None:
    """None if a broker answers; else the reason."""
    host, _, port = address.removeprefix(TLS).rpartition(":")
    try:
        with socket.create_connection((host.strip("[]"), int(port)), TIMEOUT_S) as connection:
            answer = _ask_with_tls(connection) if address.startswith(TLS) else _ask(connection)
    except (OSError, ValueError, OverflowError) as error:
        return f"no broker answers at {address}: {error}"
    if answer is None:
        return None
    _, correlation_id, error_code = struct.unpack(">iih", answer)
    if correlation_id != CORRELATION_ID or error_code != 0:
        return f"what answers at {address} is no Kafka broker"
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
    complaint = check(sys.argv[1] if len(sys.argv) > 1 else _written_address())
    if complaint is not None:
        print(complaint, file=sys.stderr)
    return 0 if complaint is None else 1


if __name__ == "__main__":
    sys.exit(main())
