"""Envelope (key 58, version 0): the request of a client that a broker forwards, and the response to it.

The controller carries the request out for the client's principal, as if it had come from the client's own
address. The broker has to be allowed CLUSTER_ACTION.

Source: EnvelopeUtils and ControllerApis of Kafka 4.4; KIP-590.
"""

from __future__ import annotations

from collections.abc import Callable
from ipaddress import ip_address
from typing import TYPE_CHECKING, Any, NamedTuple

from odradek.apis.access import on_cluster
from odradek.apis.api import RequestContext, Waiting
from odradek.apis.controller.parts import ControllerApi, ControllerParts
from odradek.apis.declaration import Served
from odradek.wire.acl_types import Operation
from odradek.wire.codec import decode_message, decoder
from odradek.wire.errors import ErrorCode, KafkaError, MalformedMessage
from odradek.wire.frames import read_request_header, response_parts
from odradek.wire.messages import is_forwardable
from odradek.wire.messages.envelope import (
    DefaultPrincipalData,
    EnvelopeRequest,
    EnvelopeResponse,
)

if TYPE_CHECKING:
    from odradek.apis.api import ConnectionInfo
    from odradek.wire.frames import RequestHeader
    from odradek.wire.messages.sasl_handshake import SaslHandshakeResponse
    from odradek.wire.schema import Buffer


class ForwardedConnection:
    """The client's connection as its broker tells of it."""

    def __init__(self, outer: ConnectionInfo, peer_host: str, principal: str, is_token: bool) -> None:
        self._outer = outer
        self.peer_host = peer_host
        self.peer_port = 0
        self.local_host, self.local_port = outer.local_host, outer.local_port
        self.advertised_host, self.advertised_port = outer.advertised_host, outer.advertised_port
        self.listener_name = outer.listener_name
        self.principal = principal
        self.granted: Any = None
        self.is_token = is_token
        self.client_software_name, self.client_software_version = "unknown", "unknown"

    def begin_reauthentication(self, mechanism: str, version: int) -> SaslHandshakeResponse | None:
        return None

    def when_closed(self, callback: Callable[[Any], None]) -> None:
        """A broker's connection stands for those of many clients."""
        self._outer.when_closed(callback)

    def close(self, reason: str) -> None:
        self._outer.close(reason)


class _Inner(NamedTuple):
    """Content of an Envelope."""

    header: RequestHeader
    served: Served
    request: Any
    connection: ForwardedConnection


class Envelope:
    """The handler."""

    def __init__(self, parts: ControllerParts) -> None:
        self._parts = parts

    def __call__(self, envelope: EnvelopeRequest, context: RequestContext) -> EnvelopeResponse | Waiting:
        try:
            inner = self._opened(envelope, context)
        except KafkaError as error:
            return EnvelopeResponse(error_code=error.code)
        header, served, request, connection = inner
        refused = self._parts.authorizer.refused(connection, served.api.needs, request)
        inner_context = RequestContext(
            header.api_key,
            header.api_version,
            header.correlation_id,
            header.client_id,
            connection,
            context.now_ms,
            refused,
            self._parts.authorizer,
            is_forwarded=True,
        )
        handle = served.handle_refused if refused else served.handle
        response = handle(request, inner_context)
        if not isinstance(response, Waiting):
            return _wrapped(response, header)
        waiting = Waiting(response.cancel)
        response.on_complete(lambda message: waiting.complete(_wrapped(message, header)))
        return waiting

    def _opened(self, envelope: EnvelopeRequest, context: RequestContext) -> _Inner:
        """Refuses with PRINCIPAL_DESERIALIZATION_FAILURE, INVALID_REQUEST or UNSUPPORTED_VERSION."""
        kind, name, is_token = _principal(envelope.request_principal)
        host = _address(envelope.client_host_address)
        data = memoryview(envelope.request_data)
        try:
            header, position = read_request_header(data, 0)
        except MalformedMessage as error:
            raise KafkaError(ErrorCode.INVALID_REQUEST, str(error)) from error
        served = self._parts.served().get(header.api_key)
        if served is None or not is_forwardable(header.api_key):
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"API {header.api_key} cannot be forwarded.")
        if header.api_version not in served.api.versions:
            raise KafkaError(ErrorCode.UNSUPPORTED_VERSION)
        try:
            request, end = decoder(served.api.request, header.api_version)(data, position)
        except MalformedMessage as error:
            raise KafkaError(ErrorCode.INVALID_REQUEST, str(error)) from error
        if end != len(data):
            raise KafkaError(ErrorCode.INVALID_REQUEST, "There are bytes behind the request.")
        connection = ForwardedConnection(context.connection, host, f"{kind}:{name}", is_token)
        return _Inner(header, served, request, connection)


def _principal(data: Buffer | None) -> tuple[str, str, bool]:
    """Kind, name, and whether a token authenticated it."""
    try:
        if data is None or bytes(data[:2]) != bytes(2):
            raise MalformedMessage("no principal of version 0")
        found = decode_message(DefaultPrincipalData, 0, memoryview(data)[2:])
    except MalformedMessage as error:
        raise KafkaError(ErrorCode.PRINCIPAL_DESERIALIZATION_FAILURE, str(error)) from error
    return found.type, found.name, found.token_authenticated


def _address(data: Buffer) -> str:
    try:
        return str(ip_address(bytes(data)))
    except ValueError as error:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "The client's address has 4 or 16 bytes.") from error


def _wrapped(response: Any, header: RequestHeader) -> EnvelopeResponse:
    if response is None:  # a fault of the handler, which has closed the connection
        return EnvelopeResponse(error_code=ErrorCode.UNKNOWN_SERVER_ERROR)
    parts = response_parts(response, header.api_version, header.correlation_id)
    frame = b"".join(bytes(part) for part in parts)
    return EnvelopeResponse(response_data=frame[4:], error_code=ErrorCode.NONE)


API = ControllerApi(
    EnvelopeRequest,
    EnvelopeResponse,
    make=lambda parts: Envelope(parts.node),
    needs=(on_cluster(Operation.CLUSTER_ACTION),),
)
