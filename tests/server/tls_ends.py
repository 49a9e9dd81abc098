"""Both ends of TLS without sockets: our transport before a protocol that notes what it gets, and a client of
Python's own `ssl`. What is between them is in the hands of the test."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import trustme

from odradek.security.tls import TlsSettings
from odradek.server.network.tls_transport import TlsAcceptor, TlsTransport


class Authority:
    """An authority, and what it has issued, as options and contexts want it."""

    def __init__(self) -> None:
        self.ca = trustme.CA()

    def issue(self, *names: str, **more: Any) -> trustme.LeafCert:
        """For these hosts; those with one common name have one name."""
        return self.ca.issue_cert(*names, organization_unit_name="Tests", **more)

    @property
    def text(self) -> str:
        return self.ca.cert_pem.bytes().decode()

    def server_options(self, issued: trustme.LeafCert | None = None, **more: str) -> dict[str, str]:
        issued = issued or self.issue("localhost", "127.0.0.1", common_name="broker")
        own = {
            "ssl.keystore.type": "PEM",
            "ssl.keystore.key": issued.private_key_pem.bytes().decode(),
            "ssl.keystore.certificate.chain": chain_text(issued),
        }
        return own | {f"ssl.{name.replace('_', '.')}": value for name, value in more.items()}

    def trusting(self, client_auth: str = "required") -> dict[str, str]:
        return {"client_auth": client_auth, "truststore_type": "PEM", "truststore_certificates": self.text}

    def client_context(self, issued: trustme.LeafCert | None = None) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        self.ca.configure_trust(context)
        if issued is not None:
            issued.configure_cert(context)
        return context


def chain_text(issued: trustme.LeafCert) -> str:
    return "".join(one.bytes().decode() for one in issued.cert_chain_pems)


class Socket:
    """What is under our transport: it takes all that is written, or nothing."""

    def __init__(self) -> None:
        self.sent = bytearray()
        self.unsent = bytearray()
        self.is_blocked = False
        self.is_paused = False
        self.is_aborted = False
        self.protocol: Any = None
        self._is_closing = False
        self._high = 0

    def write(self, data: bytes) -> None:
        assert not self._is_closing
        if not self.is_blocked:
            self.sent += data
            return
        was_full = len(self.unsent) > self._high
        self.unsent += data
        if not was_full and len(self.unsent) > self._high:
            self.protocol.pause_writing()

    def writelines(self, parts: Iterable[bytes]) -> None:
        self.write(b"".join(parts))

    def unblock(self) -> None:
        self.is_blocked = False
        was_full = len(self.unsent) > self._high
        self.sent += self.unsent
        self.unsent.clear()
        if was_full:
            self.protocol.resume_writing()

    def set_write_buffer_limits(self, high: int) -> None:
        self._high = high

    def get_write_buffer_size(self) -> int:
        return len(self.unsent)

    def pause_reading(self) -> None:
        self.is_paused = True

    def resume_reading(self) -> None:
        self.is_paused = False

    def is_closing(self) -> bool:
        return self._is_closing

    def close(self) -> None:
        self._is_closing = True

    def abort(self) -> None:
        self._is_closing = self.is_aborted = True

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return ("192.0.2.7", 1) if name == "peername" else default


class Protocol:
    """In the place of a connection: notes, and does what `on_data` says."""

    def __init__(self, room: int = 4096) -> None:
        self.received = bytearray()
        self.peer_host = "192.0.2.7"
        self.principal = "User:ANONYMOUS"
        self.is_full = False
        self.is_lost = False
        self.is_ended = False
        self.transport: Any = None
        self.on_data: Callable[[], object] = lambda: None
        self._buffer = memoryview(bytearray(room))

    def connection_made(self, transport: Any) -> None:
        self.transport = transport

    def connection_lost(self, error: Exception | None) -> None:
        self.is_lost = True

    def get_buffer(self, size_hint: int) -> memoryview:
        return self._buffer

    def buffer_updated(self, size_bytes: int) -> None:
        self.received += self._buffer[:size_bytes]
        self.on_data()

    def eof_received(self) -> bool:
        self.is_ended = True
        return False

    def pause_writing(self) -> None:
        self.is_full = True

    def resume_writing(self) -> None:
        self.is_full = False


class Ends:
    """A client, and our transport before a `Protocol`. `chunk`: how many bytes the socket brings at once."""

    def __init__(self, acceptor: TlsAcceptor, context: ssl.SSLContext, chunk: int = 1 << 20) -> None:
        self.socket, self.protocol = Socket(), Protocol()
        self.transport = TlsTransport(acceptor, self.protocol)
        self.socket.protocol = self.transport
        self.transport.connection_made(self.socket)  # type: ignore[arg-type]
        self._chunk = chunk
        self._incoming, self.outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.client = context.wrap_bio(self._incoming, self.outgoing, server_hostname="localhost")

    def shake_hands(self) -> None:
        """Until both ends have done it. Raises what the client raises."""
        for _ in range(10):
            try:
                self.client.do_handshake()
            except ssl.SSLWantReadError:
                self.carry()
            else:
                self.carry()
                return
        raise AssertionError("the handshake has no end")

    def carry(self) -> None:
        """What the client has written goes to our transport, and the other way."""
        self.deliver(self.outgoing.read())
        self._incoming.write(bytes(self.socket.sent))
        self.socket.sent.clear()

    def deliver(self, data: bytes) -> None:
        """Brings bytes to our transport as a socket does, unless it is closed."""
        position = 0
        while position < len(data) and not self.socket.is_closing():
            room = self.transport.get_buffer(-1)
            size_bytes = min(self._chunk, len(room), len(data) - position)
            room[:size_bytes] = data[position : position + size_bytes]
            position += size_bytes
            self.transport.buffer_updated(size_bytes)

    def ask(self, data: bytes) -> None:
        rest = memoryview(data)
        while rest:
            rest = rest[self.client.write(rest) :]
        self.carry()

    def answers(self) -> bytes:
        """What the client can decrypt now."""
        self.carry()
        found = bytearray()
        while True:
            try:
                piece = self.client.read(1 << 16)
            except ssl.SSLWantReadError:
                return bytes(found)
            if not piece:
                return bytes(found)
            found += piece


def acceptor(options: Mapping[str, str], now_ms: Callable[[], int] = lambda: 0, **more: bool) -> TlsAcceptor:
    return TlsAcceptor(TlsSettings.of(options), now_ms, **more)


async def turn() -> None:
    """What was called soon is called."""
    for _ in range(3):
        await asyncio.sleep(0)
