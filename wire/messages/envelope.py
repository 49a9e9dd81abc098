"""Envelope: a broker forwards a client's request to the controller, with the client's principal (KIP-590)."""

from odradek.wire.codec import encode_message
from odradek.wire.schema import ALL, BOOL, BYTES, INT16, STRING, Buffer, Message, Versioned, on_wire


class EnvelopeRequest(Message, api_key=58, versions=(0, 0), flexible_since=0):
    request_data: Buffer = on_wire(BYTES)
    """The client's request: its header and its body, without the size before it."""
    request_principal: Buffer | None = on_wire(BYTES, nullable=ALL)
    """The client's principal in the format of `encode_principal`; null if the broker does not know it."""
    client_host_address: Buffer = on_wire(BYTES)
    """Address of the client: the 4 or 16 bytes of an IP address."""


class EnvelopeResponse(Message, api_key=58, versions=(0, 0), flexible_since=0):
    response_data: Buffer | None = on_wire(BYTES, default=None, nullable=ALL)
    """The controller's response to the client: header and body; null after an error of the envelope
    itself."""
    error_code: int = on_wire(INT16)
    """Error code of the envelope, such as NOT_CONTROLLER; 0 for none."""


class DefaultPrincipalData(Versioned, versions=(0, 0), flexible_since=0):
    """A client's principal. In an envelope an int16 with the version is before it."""

    type: str = on_wire(STRING)
    """Type of the principal, such as User."""
    name: str = on_wire(STRING)
    """Name of the principal."""
    token_authenticated: bool = on_wire(BOOL)
    """Whether a delegation token authenticated the client."""


def encode_principal(principal: DefaultPrincipalData) -> bytes:
    """The bytes for `request_principal`."""
    return bytes(2) + encode_message(principal, 0)
