"""Requests that the controllers of a cluster carry out go on to the controller that leads, in an Envelope.

Metadata names any live broker as the controller, so clients bring these requests to all brokers. The envelope
has the request as it came, and says who has sent it. The response comes back in the same way. When no
controller answers in time, the response is REQUEST_TIMED_OUT for everything that the request names.

Source: KIP-590, KIP-631; KafkaApis and ForwardingManager of Kafka 4.3.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from ipaddress import ip_address
from typing import TYPE_CHECKING, Any

from odradek.apis.api import Waiting
from odradek.wire.errors import ErrorCode, MalformedMessage
from odradek.wire.frames import read_response, request_frame
from odradek.wire.messages.envelope import (
    DefaultPrincipalData,
    EnvelopeRequest,
    encode_principal,
)

if TYPE_CHECKING:
    from odradek.apis.api import ConnectionInfo, RequestContext
    from odradek.apis.declaration import AnyApi
    from odradek.apis.node import Forward
    from odradek.wire.messages.envelope import EnvelopeResponse
    from odradek.wire.schema import Message

logger = logging.getLogger("odradek.apis")


class Forwarded:
    """The handler of one such API."""

    def __init__(self, api: AnyApi, forward: Forward) -> None:
        self._api = api
        self._forward = forward

    def __call__(self, request: Message, context: RequestContext) -> Waiting:
        return self.send(request, context, lambda response: response)

    def send(
        self, request: Message, context: RequestContext, finish: Callable[[Message], Message]
    ) -> Waiting:
        """The response of the controllers, with what `finish` makes of it."""
        version, correlation_id = context.api_version, context.correlation_id
        frame = request_frame(request, version, correlation_id, context.client_id)
        envelope = EnvelopeRequest(
            request_data=frame[4:],
            request_principal=_principal_data(context.connection),
            client_host_address=_address_bytes(context.connection.peer_host),
        )
        waiting = Waiting()

        def answered(response: EnvelopeResponse | None) -> None:
            waiting.complete(finish(self._unwrapped(request, version, response)))

        self._forward(envelope, answered)
        return waiting

    def _unwrapped(self, request: Message, version: int, response: EnvelopeResponse | None) -> Any:
        if response is None:
            return self._api.refuse(request, version, ErrorCode.REQUEST_TIMED_OUT)
        if response.error_code != ErrorCode.NONE or response.response_data is None:
            code = ErrorCode(response.error_code)
            if code is ErrorCode.UNSUPPORTED_VERSION:
                # Another controller leads than the one that ApiVersions has spoken of. Kafka closes the
                # connection, and an old client does not know why.
                return self._api.refuse(request, version, code)
            logger.error("the controller refuses a forwarded %s: %s", self._api.request.__name__, code.name)
            return self._api.refuse(request, version, ErrorCode.UNKNOWN_SERVER_ERROR)
        try:
            inner: Message = read_response(response.response_data, self._api.request, version)[1]
        except MalformedMessage as error:
            logger.error("the answer to a forwarded %s makes no sense: %s", self._api.request.__name__, error)
            return self._api.refuse(request, version, ErrorCode.UNKNOWN_SERVER_ERROR)
        return inner


def _principal_data(connection: ConnectionInfo) -> bytes:
    kind, _, name = connection.principal.partition(":")
    return encode_principal(
        DefaultPrincipalData(type=kind, name=name, token_authenticated=connection.is_token)
    )


def _address_bytes(host: str) -> bytes:
    """4 or 16 bytes."""
    try:
        return ip_address(host.partition("%")[0]).packed
    except ValueError:
        return bytes((127, 0, 0, 1))
