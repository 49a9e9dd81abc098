"""SaslHandshake (API 17)."""

from dataclasses import dataclass

from odradek.wire.schema import (
    INT16,
    STRING,
    Array,
    Message,
    on_wire,
)


@dataclass(slots=True, kw_only=True)
class SaslHandshakeRequest(Message, api_key=17, versions=(0, 1)):
    mechanism: str = on_wire(STRING)


@dataclass(slots=True, kw_only=True)
class SaslHandshakeResponse(Message, api_key=17, versions=(0, 1)):
    error_code: int = on_wire(INT16)
    mechanisms: list[str] = on_wire(Array(STRING))
