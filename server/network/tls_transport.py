"""TLS between a connection and its socket.

A connection is made when its client connects, not when the handshake is done: the limits of connections and
the sweep see half-open ones. To `Connection` this is a transport, to the event loop a protocol. OpenSSL works
in memory: ciphertext of all connections passes through one buffer of the listener, plaintext is decrypted
into the connection's own receive buffer, and long responses are encrypted slice by slice.

Promises:
- OpenSSL's memory of a connection (25 KiB) is taken when the first byte comes, and only for a TLS record.
- A handshake that is not done after `HANDSHAKE_MS_MAX` is closed. Kafka waits `connections.max.idle.ms`.
- Not more than what one read of the socket brings waits to be decrypted while the connection does not read.
- A connection keeps the context that it began with; a new one of the listener is for new connections.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

from odradek.config.principal_mapping import NoRuleMatches
from odradek.security.tls import openssl_reason
from odradek.server.network.failure_log import FailureLog
from odradek.wire.distinguished_name import DamagedCertificate, name_text, subject_of

if TYPE_CHECKING:
    from odradek.security.tls import TlsSettings
    from odradek.server.network.timers import Timers

logger = logging.getLogger("odradek.connection")

HANDSHAKE_MS_MAX = 30_000
SWEEP_MS = 1_000
CIPHERTEXT_BYTES = 128 * 1024
"""Size of one read of a socket."""
WRITE_BUFFER_HIGH_BYTES = 128 * 1024
"""Ciphertext that the socket does not take, above which the connection is told so."""
RECORD_BYTES = 16 * 1024
"""Size of the plaintext in one record of TLS."""
READ_SLICE_BYTES = 32 * 1024
WRITE_SLICE_BYTES = 64 * 1024
"""Ciphertext with OpenSSL at once: it keeps buffers of the largest size that they have had."""
SLICES_IN_ONE_CALL = 16
"""Slices that are encrypted before they are sent. With fewer each GB takes a tenth more of CPU."""
_HANDSHAKE_RECORD = 0x16
_INTERNAL_ERROR = bytes.fromhex("15030300020250")
"""The alert with which Kafka answers what is no TLS."""


class TlsAcceptor:
    """One listener: its present context, and the handshakes that are under way."""

    def __init__(
        self,
        settings: TlsSettings,
        now_ms: Callable[[], int],
        *,
        names_principal: bool = True,
    ) -> None:
        """`now_ms` is of a clock that does not jump. `names_principal`: whether the client's certificate says
        who it is; with SASL it does not. Raises ConfigError."""
        self.buffer = memoryview(bytearray(CIPHERTEXT_BYTES))
        self.failed_count = 0
        """Handshakes that have failed, and connections that have broken off afterwards."""
        self.established_count = 0
        """Handshakes that are done."""
        self._now_ms = now_ms
        self._failures = FailureLog()
        self._names_principal = names_principal
        self.under_way: dict[TlsTransport, int] = {}
        """Handshakes by the time of their beginning, the oldest first."""
        self.use(settings, settings.server_context())

    def use(self, settings: TlsSettings, context: ssl.SSLContext) -> None:
        """New connections have these settings, of which the context is made."""
        self.settings, self.context = settings, context

    @property
    def needs_certificate(self) -> bool:
        """Whether a client without a certificate is refused."""
        return self.context.verify_mode is ssl.CERT_REQUIRED

    def start(self, timers: Timers) -> Callable[[], None]:
        """Calls `sweep` from now on; the returned function ends it."""
        return timers.every(SWEEP_MS, self.sweep)

    def sweep(self) -> None:
        """Closes late handshakes, and tells of failures."""
        now_ms = self._now_ms()
        if self._failures:
            for line in self._failures.due(now_ms):
                logger.warning("no TLS with %s", line)
        too_old_ms = now_ms - HANDSHAKE_MS_MAX
        while self.under_way:
            oldest, began_ms = next(iter(self.under_way.items()))
            if began_ms > too_old_ms:
                return
            self.failed(oldest, f"not done within {HANDSHAKE_MS_MAX // 1000} s")
            oldest.abort()

    # For the transports

    def begun(self, transport: TlsTransport) -> None:
        self.under_way[transport] = self._now_ms()

    def ended(self, transport: TlsTransport) -> bool:
        """Whether its handshake was under way."""
        return self.under_way.pop(transport, None) is not None

    def failed(self, transport: TlsTransport, reason: str) -> None:
        self.ended(transport)
        self.failed_count += 1
        line = self._failures.note(transport.protocol.peer_host, reason, self._now_ms())
        if line is not None:
            logger.warning("no TLS with %s", line)

    def established(self, transport: TlsTransport, certificate: bytes | None) -> str | None:
        """The principal; None where somebody else will name it. Raises NoRuleMatches, DamagedCertificate."""
        principal = None
        if self._names_principal and certificate is not None:
            principal = f"User:{self.settings.mapping.name_of(name_text(subject_of(certificate)))}"
        self.ended(transport)
        self.established_count += 1
        return principal


class TlsTransport(asyncio.BufferedProtocol):
    """One connection; see the module."""

    __slots__ = (
        "_acceptor",
        "_incoming",
        "_is_ended",
        "_is_established",
        "_is_full",
        "_is_paused",
        "_is_reading",
        "_is_socket_paused",
        "_outgoing",
        "_rest",
        "_socket",
        "_tls",
        "protocol",
    )

    def __init__(self, acceptor: TlsAcceptor, protocol: Any) -> None:
        self._acceptor = acceptor
        self.protocol = protocol
        """The `Connection`."""
        self._socket: Any = None
        self._tls: ssl.SSLObject | None = None
        self._incoming: ssl.MemoryBIO | None = None
        self._outgoing: ssl.MemoryBIO | None = None
        self._is_established = False
        self._is_ended = False  # the client has said that nothing more comes
        self._is_paused = False  # by the connection
        self._is_socket_paused = False
        self._is_reading = False  # `_read` is on the stack
        self._is_full = False
        self._rest: memoryview | None = None  # of what the socket has brought

    # For the event loop

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._socket = transport
        transport.set_write_buffer_limits(high=WRITE_BUFFER_HIGH_BYTES)  # type: ignore[attr-defined]
        self.protocol.connection_made(self)
        if not transport.is_closing():
            self._acceptor.begun(self)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._acceptor.ended(self) and self._tls is not None:
            self._acceptor.failed(self, "the connection was lost")
        self._tls = self._incoming = self._outgoing = None
        self._is_paused = True
        self.protocol.connection_lost(exc)

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._acceptor.buffer

    def buffer_updated(self, nbytes: int) -> None:
        received = self._acceptor.buffer[:nbytes]
        if self._tls is None and not self._begin(received[0]):
            return
        if nbytes > READ_SLICE_BYTES:
            received, self._rest = received[:READ_SLICE_BYTES], received[READ_SLICE_BYTES:]
        self._incoming.write(received)  # type: ignore[union-attr]
        if self._is_established:
            self._read()
        else:
            self._shake_hands()
            while not self._is_established and self._feed():
                self._shake_hands()
        if self._rest is not None:
            # The connection does not want it yet.
            rest, self._rest = self._rest, None
            if self._incoming is not None:
                self._incoming.write(rest)

    def eof_received(self) -> bool:
        if self._is_established:
            return bool(self.protocol.eof_received())
        # Who connects and says nothing looks whether the port is open.
        if self._tls is not None:
            self._acceptor.failed(self, "the client has closed the connection")
        return False

    def pause_writing(self) -> None:
        self._is_full = True
        self.protocol.pause_writing()

    def resume_writing(self) -> None:
        self._is_full = False
        self.protocol.resume_writing()
        if self._is_socket_paused and not self._is_paused:
            self._go_on_soon()

    # The handshake

    def _begin(self, first_byte: int) -> bool:
        """False for what is no TLS."""
        if self._socket.is_closing():
            return False
        if first_byte != _HANDSHAKE_RECORD:
            self._socket.write(_INTERNAL_ERROR)
            self.give_up("this is not TLS; is the client set up without it?")
            return False
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = self._acceptor.context.wrap_bio(self._incoming, self._outgoing, server_side=True)
        return True

    def _shake_hands(self) -> None:
        assert self._tls is not None
        if self._socket.is_closing():
            return
        try:
            self._tls.do_handshake()
        except ssl.SSLWantReadError:
            self._send_encrypted()
            return
        except (ssl.SSLError, OSError) as error:
            self._send_encrypted()
            self.give_up(openssl_reason(error))
            return
        self._send_encrypted()
        try:
            principal = self._acceptor.established(self, self._tls.getpeercert(binary_form=True))
        except (NoRuleMatches, DamagedCertificate) as error:
            self.give_up(str(error))
            return
        self._is_established = True
        if principal is not None:
            self.protocol.principal = principal
        self._read()

    def give_up(self, reason: str) -> None:
        """The handshake has failed, or what has come after it cannot be decrypted."""
        self._acceptor.failed(self, reason)
        self._is_paused = True
        self._socket.close()

    # Reading

    def _read(self) -> None:
        """Decrypts what has come, until the connection does not want more."""
        if self._is_reading or self._is_paused or self._tls is None:
            return
        self._is_reading = True
        try:
            self._decrypt()
        finally:
            self._is_reading = False
        if self._is_paused or self._tls is None:
            return
        if self._outgoing.pending:  # type: ignore[union-attr]
            self._respond_to_control()
        if self._is_socket_paused and not self._is_full and not self._socket.is_closing():
            self._is_socket_paused = False
            self._socket.resume_reading()

    def _decrypt(self) -> None:
        tls, incoming, protocol = self._tls, self._incoming, self.protocol
        assert tls is not None
        assert incoming is not None
        while not self._is_paused and (incoming.pending or tls.pending() or self._feed()):
            room = protocol.get_buffer(-1)
            size_bytes = len(room)
            filled = 0
            while True:
                try:
                    received: Any = tls.read(size_bytes - filled, room[filled:] if filled else room)
                except ssl.SSLWantReadError:
                    if self._feed():
                        continue
                    break
                except (ssl.SSLError, OSError) as error:
                    # What came before it in the same bytes is not delivered.
                    self._send_encrypted()
                    self.give_up(f"broken after the handshake: {openssl_reason(error)}")
                    return
                if not received:
                    self._is_ended = True
                    break
                filled += received
                if filled == size_bytes or not (incoming.pending or tls.pending() or self._feed()):
                    break
            if filled:
                protocol.buffer_updated(filled)
            if self._is_ended and not protocol.eof_received():
                self.close()

    def _feed(self) -> bool:
        """The next slice for OpenSSL; False if there is none."""
        rest = self._rest
        if rest is None:
            return False
        self._rest = rest[READ_SLICE_BYTES:] if len(rest) > READ_SLICE_BYTES else None
        self._incoming.write(rest[:READ_SLICE_BYTES])  # type: ignore[union-attr]
        return True

    def _respond_to_control(self) -> None:
        """New keys were asked for. Who asks and does not read the responses is not read any more."""
        self._send_encrypted()
        if self._is_full and not self._is_socket_paused:
            self._is_socket_paused = True
            self._socket.pause_reading()

    # For the connection: the face of a transport

    def pause_reading(self) -> None:
        self._is_paused = True
        if not self._is_socket_paused and not self._socket.is_closing():
            self._is_socket_paused = True
            self._socket.pause_reading()

    def resume_reading(self) -> None:
        if self._socket.is_closing() or not self._is_paused:
            return
        self._is_paused = False
        if not self._is_reading:
            self._go_on_soon()

    def _go_on_soon(self) -> None:
        """Reads soon: first what is decrypted or has come, then the socket. Not within the call: the
        connection has not finished changing its state."""
        asyncio.get_running_loop().call_soon(self._read)

    def write(self, data: Any) -> None:
        if not self._is_established or self._socket.is_closing() or not len(data):
            return
        try:
            if len(data) > RECORD_BYTES:
                self._write_records(memoryview(data))
                return
            written = self._tls.write(data)  # type: ignore[union-attr]
            self._socket.write(self._outgoing.read())  # type: ignore[union-attr]
            if written < len(data):
                # The client has asked for records that are smaller.
                self._write_records(memoryview(data)[written:])
        except ssl.SSLError as error:
            self.give_up(f"broken after the handshake: {openssl_reason(error)}")

    def writelines(self, parts: Iterable[Any]) -> None:
        """Small parts go out together, large ones piece by piece."""
        small: list[Any] = []
        small_bytes = 0
        for part in parts:
            if small_bytes + len(part) <= RECORD_BYTES:
                small.append(part)
                small_bytes += len(part)
                continue
            self.write(b"".join(small))
            small, small_bytes = [], 0
            self.write(part)
        self.write(b"".join(small))

    def _write_records(self, data: memoryview) -> None:
        for slices in _encrypted(data, self._tls, self._outgoing):
            self._socket.writelines(slices)
        if not self._is_full and self._socket.get_write_buffer_size() > WRITE_BUFFER_HIGH_BYTES:
            # The `writelines` of asyncio's own transport does not look at its limits (Python 3.12, 3.13).
            self._socket.set_write_buffer_limits(high=WRITE_BUFFER_HIGH_BYTES)

    def _send_encrypted(self) -> None:
        outgoing = self._outgoing
        if outgoing is not None and outgoing.pending:
            self._socket.write(outgoing.read())

    def close(self) -> None:
        """Says so to the client, and waits for nothing."""
        if self._socket.is_closing():
            return
        self._is_paused = True
        if self._is_established and self._tls is not None:
            try:
                self._tls.unwrap()
            except (ssl.SSLError, OSError):
                pass  # its response has not come
            self._send_encrypted()
        self._socket.close()

    def abort(self) -> None:
        self._is_paused = True
        self._socket.abort()

    def is_closing(self) -> bool:
        return bool(self._socket.is_closing())

    def get_write_buffer_size(self) -> int:
        """Size of the ciphertext that waits."""
        return int(self._socket.get_write_buffer_size())

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Changes nothing: the limits are this transport's own, and smaller."""

    def set_protocol(self, protocol: Any) -> None:
        self.protocol = protocol

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        if name == "ssl_object":
            return self._tls or default
        return self._socket.get_extra_info(name, default)


def _encrypted(
    data: memoryview, tls: ssl.SSLObject | None, outgoing: ssl.MemoryBIO | None
) -> Iterator[list[bytes]]:
    """Slices, as many as are to be sent together. OpenSSL takes one record at a time."""
    assert tls is not None
    assert outgoing is not None
    position, size_bytes = 0, len(data)
    slices: list[bytes] = []
    while position < size_bytes:
        position += tls.write(data[position : position + RECORD_BYTES])
        if outgoing.pending >= WRITE_SLICE_BYTES or position == size_bytes:
            slices.append(outgoing.read())
            if len(slices) == SLICES_IN_ONE_CALL or position == size_bytes:
                yield slices
                slices = []
