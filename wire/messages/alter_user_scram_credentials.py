"""AlterUserScramCredentials (API 51)."""

from dataclasses import dataclass

from odradek.wire.schema import (
    ALL,
    BYTES,
    INT8,
    INT16,
    INT32,
    STRING,
    Array,
    Message,
    Struct,
    on_wire,
)


@dataclass(slots=True, kw_only=True)
class ScramCredentialDeletion(Struct):
    name: str = on_wire(STRING)
    mechanism: int = on_wire(INT8)


@dataclass(slots=True, kw_only=True)
class ScramCredentialUpsertion(Struct):
    name: str = on_wire(STRING)
    mechanism: int = on_wire(INT8)
    iterations: int = on_wire(INT32)
    salt: bytes = on_wire(BYTES)
    salted_password: bytes = on_wire(BYTES)


@dataclass(slots=True, kw_only=True)
class AlterUserScramCredentialsRequest(Message, api_key=51, versions=(0, 0), flexible_since=0):
    deletions: list[ScramCredentialDeletion] = on_wire(Array(ScramCredentialDeletion))
    upsertions: list[ScramCredentialUpsertion] = on_wire(Array(ScramCredentialUpsertion))


@dataclass(slots=True, kw_only=True)
class AlterUserScramCredentialsResult(Struct):
    user: str = on_wire(STRING)
    error_code: int = on_wire(INT16)
    error_message: str | None = on_wire(STRING, nullable=ALL)


@dataclass(slots=True, kw_only=True)
class AlterUserScramCredentialsResponse(Message, api_key=51, versions=(0, 0), flexible_since=0):
    throttle_time_ms: int = on_wire(INT32)
    results: list[AlterUserScramCredentialsResult] = on_wire(Array(AlterUserScramCredentialsResult))
