"""`python -m odradek.server.health [HOST:PORT]`: exit status 0 when a broker answers there, else 1 and why.

Asks ApiVersions in version 0, which every Kafka broker answers; the image's health check runs it.
"""

from __future__ import annotations

import socket
import struct
import sys

DEFAULT_ADDRESS = "127.0.0.1:9092"
TIMEOUT_S = 3.0
CORRELATION_ID = 77


def check(address: str) -> str | None:
    """None when a broker answers; else a sentence."""
    host, _, port = address.rpartition(":")
    try:
        with socket.create_connection((host.strip("[]"), int(port)), TIMEOUT_S) as connection:
            connection.sendall(struct.pack(">ihhih", 10, 18, 0, CORRELATION_ID, -1))
            answer = _read(connection, 10)
    except (OSError, ValueError, OverflowError) as error:
        return f"no broker answers at {address}: {error}"
    _, correlation_id, error_code = struct.unpack(">iih", answer)
    if correlation_id != CORRELATION_ID or error_code != 0:
        return f"what answers at {address} is no Kafka broker"
    return None


def _read(connection: socket.socket, size_bytes: int) -> bytes:
    received = b""
    while len(received) < size_bytes:
        piece = connection.recv(size_bytes - len(received))
        if not piece:
            raise ConnectionError("the connection was closed")
        received += piece
    return received


def main() -> int:
    complaint = check(sys.argv[1] if len(sys.argv) > 1 else DEFAULT_ADDRESS)
    if complaint is not None:
        print(complaint, file=sys.stderr)
    return 0 if complaint is None else 1


if __name__ == "__main__":
    sys.exit(main())
