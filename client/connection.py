"""One blocking connection to one broker: requests go out in order, responses come in that order.

`send` and `receive` are separate, so that several requests can be in flight. A response uses at most
`response_bytes_max` of memory. A response out of order ends the connection. With SASL it is authenticated
when it is made, and again before its session ends (KIP-368).
"""

import contextlib
import selectors
import socket
import struct
import threading
import time
from collections import deque
from collections.abc import Iterator, Mapping
from typing import Any

from odradek.client.client_error import ClientError, Disconnected, Mismatch
from odradek.client.patience import TOLD_AFTER_S
from odradek.client.probing import first_response, login_wanted, mismatch, server_of
from odradek.client.secured import Secured, reason_of
from odradek.client.settings import Check, Room, Tell
from odradek.config.config_error import ConfigError
from odradek.security.client_security import ClientSecurity
from odradek.wire.errors import ErrorCode, MalformedMessage
from odradek.wire.frames import read_response, request_frame
from odradek.wire.messages import api_name
from odradek.wire.messages.api_versions import ApiVersionsRequest
from odradek.wire.messages.sasl_handshake import SaslHandshakeRequest
from odradek.wire.schema import Message
from odradek.wire.version import __version__

_PROBE_S = 5.0
"""Longest wait of a look at what answers, when a connection has failed."""
SOFTWARE_NAME = "odradek"
"""Name that brokers get (KIP-511)."""
_INT32 = struct.Struct(">i")
_NO_SUCH_NAME = {socket.EAI_NONAME, getattr(socket, "EAI_NODATA", socket.EAI_NONAME)}


class Unresolved(Disconnected):
    """The name of the broker has no address; `is_final` if asking again cannot help soon."""

    @property
    def is_final(self) -> bool:
        cause = self.__cause__
        return not isinstance(cause, socket.gaierror) or cause.errno in _NO_SUCH_NAME


class Pending:
    """A sent request; `Connection.receive` returns its response."""

    __slots__ = ("correlation_id", "request_class", "response", "version")

    def __init__(self, request_class: type[Message], version: int, correlation_id: int) -> None:
        self.request_class = request_class
        self.version = version
        self.correlation_id = correlation_id
        self.response: Any = None


class Connection:
    """Connects when it is made, or raises `Disconnected`; ClientError if the two sides do not authenticate.
    `timeout_ms` bounds the connect, the handshake of TLS and each response."""

    def __init__(
        self,
        host: str,
        port: int,
        *,
        client_id: str,
        timeout_ms: int,
        response_bytes_max: int,
        secured: Secured | None = None,
        patience_ms: int | None = None,
        tell: Tell | None = None,
        check: Check | None = None,
        room: Room | None = None,
    ) -> None:
        """`patience_ms` bounds what the connection waits for until it is made, if that is less than
        `timeout_ms`; `tell` gets a sentence if that takes more than a second. `check` and
        `room` are those of `ClientSettings`."""
        self.address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        self._host, self._port = host, port
        self._is_proven = False
        """Whether the other side has answered more than ApiVersions."""
        self._secured = secured or Secured(ClientSecurity())
        self.renew_at: float | None = None
        """When the session is to be renewed; None: it has no end."""
        self._client_id = client_id
        self._check, self._room = check, room
        self._timeout_s = min(timeout_ms, patience_ms or timeout_ms) / 1000
        self._response_bytes_max = response_bytes_max
        self._waiting: deque[Pending] = deque()
        self._correlation_id = 0
        with _told_if_slow(tell, f"{self.address} does not answer; trying for {self._timeout_s:g} s"):
            self._socket = self._dialled()
            try:
                self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                self._socket = self._sealed()
                self._versions = self._negotiate_versions()
                self._authenticate()
            except BaseException:
                self.close()
                raise
        self._timeout_s = timeout_ms / 1000

    def _dialled(self) -> socket.socket:
        try:
            return socket.create_connection((self._host, self._port), self._timeout_s)
        except ConnectionRefusedError as error:
            raise Disconnected(f"{self.address} refuses connections") from error
        except (socket.gaierror, UnicodeError) as error:
            text = reason_of(error) if isinstance(error, OSError) else "it is not a name of a host"
            raise Unresolved(f"the name {self._host} has no address: {text}") from error
        except OSError as error:
            raise Disconnected(f"{self.address} cannot be reached: {reason_of(error)}") from error

    def _sealed(self) -> socket.socket:
        try:
            return self._secured.sealed(self._socket, self._host, self.address)
        except ClientError as error:
            raise self._other_protocol() or error from error.__cause__

    def _other_protocol(self) -> Mismatch | None:
        """Found by a second connection, without TLS."""
        timeout_s = min(self._timeout_s, _PROBE_S)
        try:
            heard = first_response(self._host, self._port, timeout_s)
        except OSError:
            return None
        return self._mismatch(mismatch(heard, self._secured.security, self._host, self._port, timeout_s))

    def _unanswered_login(self) -> Mismatch | None:
        """Listeners with SASL close the connection at the first request after ApiVersions without a login."""
        if self._is_proven:
            return None
        timeout_s = min(self._timeout_s, _PROBE_S)
        return self._mismatch(login_wanted(self._secured.security, self._host, self._port, timeout_s))

    def _mismatch(self, told: tuple[str, str] | None) -> Mismatch | None:
        return None if told is None else Mismatch(self.address, *told)

    def close(self) -> None:
        """May be called again."""
        self._socket.close()

    @property
    def is_open(self) -> bool:
        return self._socket.fileno() >= 0

    def fileno(self) -> int:
        """For `select`; -1 if it is closed."""
        return self._socket.fileno()

    @property
    def has_bytes(self) -> bool:
        """Whether TLS has decrypted more than was read; `select` does not know of that."""
        pending = getattr(self._socket, "pending", None)
        return self.is_open and pending is not None and pending() > 0

    def version_of(
        self, request_class: type[Message], version_max: int | None = None, version_min: int = 0
    ) -> int:
        """The highest common version within the bounds; ClientError if there is none."""
        lowest, highest = self._versions.get(request_class.api_key, (0, -1))
        least, most = max(request_class.versions[0], version_min), request_class.versions[-1]
        most = most if version_max is None else min(most, version_max)
        version = min(highest, most)
        if version < max(lowest, least):
            name, code = api_name(request_class.api_key), ErrorCode.UNSUPPORTED_VERSION
            if highest < lowest:
                raise ClientError(f"the broker at {self.address} does not serve {name}", code)
            raise ClientError(
                f"the broker at {self.address} has {name} in the versions {lowest} to {highest}, and the "
                f"client needs one of {least} to {most}",
                code,
            )
        return version

    def ask(self, request: Message, version: int) -> Any:
        """Sends a request and waits for its response."""
        return self.receive(self.send(request, version))

    def send(self, request: Message, version: int, *, is_answered: bool = True) -> Pending:
        """Sends a request. A Produce with acks=0 has no response, and must not be received."""
        if self._check is not None:
            self._check(request)
        if self.renew_at is not None and time.monotonic() >= self.renew_at:
            self._renew()
        return self._send(request, version, is_answered)

    def _send(self, request: Message, version: int, is_answered: bool = True) -> Pending:
        self._correlation_id = (self._correlation_id + 1) & 0x7FFFFFFF
        pending = Pending(type(request), version, self._correlation_id)
        frame = request_frame(request, version, self._correlation_id, self._client_id)
        try:
            self._socket.settimeout(self._timeout_s)
            self._socket.sendall(frame)
        except OSError as error:
            raise self._lost(reason_of(error)) from error
        if is_answered:
            self._waiting.append(pending)
        return pending

    def receive(self, pending: Pending) -> Any:
        """The response to `pending`; responses to earlier requests are kept for their `receive`."""
        deadline = time.monotonic() + self._timeout_s
        while pending.response is None:
            if not self.is_open:
                raise Disconnected(f"the connection to {self.address} is closed")
            assert pending in self._waiting
            self._read_response(deadline)
        return pending.response

    # SASL

    def _renew(self) -> None:
        """The broker takes only SASL between two requests: what is under way is answered first."""
        if self._waiting:
            self.receive(self._waiting[-1])
        self._authenticate()

    def _authenticate(self) -> None:
        """Without SASL it does nothing."""
        if not self._secured.security.has_sasl:
            return
        import secrets

        from odradek.security.sasl_login import RENEWAL_SHARE, NoSasl, SaslRefused

        try:
            login = self._secured.security.login(secrets.token_urlsafe())
            assert login is not None
            while (request := login.request) is not None:
                version = self.version_of(
                    type(request), version_min=int(type(request) is SaslHandshakeRequest)
                )
                login.take(self.receive(self._send(request, version)))
        except ConfigError as error:
            self.close()
            raise ClientError(str(error).rstrip(".")) from None
        except NoSasl:
            self.close()
            security = self._secured.security
            protocol = "SSL" if security.has_tls else "PLAINTEXT"
            raise Mismatch(
                self.address,
                "the listener has no login, and this client wants one",
                f"set {security.prefix}security.protocol to {protocol}, or use the port of a listener "
                "with SASL",
            ) from None
        except SaslRefused as error:
            self.close()
            raise ClientError(
                f"the broker at {self.address} {str(error).rstrip('.')}", ErrorCode.SASL_AUTHENTICATION_FAILED
            ) from None
        self.renew_at = None
        if login.lifetime_ms > 0:
            self.renew_at = time.monotonic() + login.lifetime_ms * RENEWAL_SHARE / 1000

    def _read_response(self, deadline: float) -> None:
        (size_bytes,) = _INT32.unpack(self._read(4, deadline))
        if not 4 <= size_bytes <= self._response_bytes_max:
            raise self._broken(
                f"announces a response of {size_bytes} bytes where 4 to {self._response_bytes_max} are "
                f"possible"
            )
        self._take_room(size_bytes)
        frame = self._read(size_bytes, deadline)
        pending = self._waiting.popleft()
        (correlation_id,) = _INT32.unpack_from(frame)
        if correlation_id != pending.correlation_id:
            raise self._broken(f"answers request {correlation_id} instead of {pending.correlation_id}")
        try:
            pending.response = read_response(frame, pending.request_class, pending.version)[1]
        except MalformedMessage as error:
            name = api_name(pending.request_class.api_key)
            raise self._broken(
                f"answers {name} version {pending.version} with what is none ({error})"
            ) from error
        self._is_proven = self._is_proven or pending.request_class is not ApiVersionsRequest

    def _take_room(self, size_bytes: int) -> None:
        if self._room is None:
            return
        try:
            self._room(size_bytes)
        except BaseException:
            # The response would be in the way of the next one.
            self.close()
            raise

    def _read(self, size_bytes: int, deadline: float) -> memoryview:
        view = memoryview(bytearray(size_bytes))
        position = 0
        while position < size_bytes:
            try:
                self._socket.settimeout(max(0.001, deadline - time.monotonic()))
                read = self._socket.recv_into(view[position:])
            except TimeoutError as error:
                raise self._lost(f"no answer within {self._timeout_s:g} s") from error
            except OSError as error:
                raise self._refused_certificate(error) or self._lost(reason_of(error)) from error
            if read == 0:
                self.close()
                raise self._unanswered_login() or self._lost("it was closed by the other side")
            position += read
        return view

    def _negotiate_versions(self) -> dict[int, tuple[int, int]]:
        version = ApiVersionsRequest.versions[-1]
        while True:
            request = ApiVersionsRequest(
                client_software_name=SOFTWARE_NAME, client_software_version=__version__
            )
            response = self._request_versions(request, version)
            if response.error_code == ErrorCode.NONE:
                return {one.api_key: (one.min_version, one.max_version) for one in response.api_keys}
            if response.error_code != ErrorCode.UNSUPPORTED_VERSION or version == 0:
                raise self._broken(f"refuses ApiVersions with the error {response.error_code}")
            version = min(version - 1, _highest(response, ApiVersionsRequest.api_key))

    def _request_versions(self, request: ApiVersionsRequest, version: int) -> Any:
        # A broker that does not know the version responds in version 0.
        pending = self._send(request, version)
        self._waiting.clear()
        deadline = time.monotonic() + self._timeout_s
        (size_bytes,) = _INT32.unpack(self._read(4, deadline))
        if not 10 <= size_bytes <= 1 << 20:
            self.close()
            raise self._not_kafka(_INT32.pack(size_bytes))
        frame = self._read(size_bytes, deadline)
        correlation_id, error_code = struct.unpack_from(">ih", frame)
        if correlation_id != pending.correlation_id:
            raise self._broken(f"answers request {correlation_id} instead of {pending.correlation_id}")
        in_version = 0 if error_code == ErrorCode.UNSUPPORTED_VERSION else version
        try:
            return read_response(frame, ApiVersionsRequest, in_version)[1]
        except MalformedMessage as error:
            raise self._broken(f"answers ApiVersions with what is none ({error})") from error

    def _not_kafka(self, first: bytes) -> ClientError:
        timeout_s = min(self._timeout_s, _PROBE_S)
        security = self._secured.security
        told = mismatch(server_of(first), security, self._host, self._port, timeout_s)
        return self._mismatch(told) or self._broken("answers ApiVersions with what is none")

    def _refused_certificate(self, error: OSError) -> ClientError | None:
        """With TLS 1.3 the broker tells only after the handshake that it does not take the client."""
        reason = getattr(error, "reason", None) or ""
        if not self._secured.security.has_tls or "ALERT" not in reason:
            return None
        self.close()
        return ClientError(f"{self.address} refuses the client in the TLS handshake: {reason}")

    def _lost(self, reason: str) -> Disconnected:
        self.close()
        return Disconnected(f"the connection to {self.address} is lost: {reason}")

    def _broken(self, what: str) -> ClientError:
        self.close()
        prefix = self._secured.security.prefix
        return ClientError(
            f"{self.address} {what}; {prefix}bootstrap.servers has to name listeners of Kafka brokers, and "
            f"{prefix}security.protocol their protocol, which is {self._secured.security.protocol} now"
        )


@contextlib.contextmanager
def _told_if_slow(tell: Tell | None, sentence: str) -> Iterator[None]:
    if tell is None:
        yield
        return
    timer = threading.Timer(TOLD_AFTER_S, tell, [sentence])
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def answered(
    waiting: Mapping[Connection, Pending], timeout_s: float, *, in_time: bool = False
) -> list[Connection]:
    """The connections that have something to read for their pending response, or are lost. Empty after the
    time; one that is alone is returned at once without `in_time`, as its `receive` waits as well."""
    found = [
        one
        for one, pending in waiting.items()
        if pending.response is not None or not one.is_open or one.has_bytes
    ]
    if found or not waiting:
        return found
    if len(waiting) == 1 and not in_time:
        return [*waiting]
    with selectors.DefaultSelector() as selector:
        for one in waiting:
            selector.register(one, selectors.EVENT_READ, one)
        return [key.data for key, _ in selector.select(timeout_s)]


def _highest(response: Any, api_key: int) -> int:
    """0 if an old broker does not list the API."""
    return max([one.max_version for one in response.api_keys if one.api_key == api_key], default=0)
