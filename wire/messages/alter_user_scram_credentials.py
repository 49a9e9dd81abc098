"""AlterUserScramCredentials: set or remove SCRAM credentials."""

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
    """Name of the user."""
    mechanism: int = on_wire(INT8)
    """1 SCRAM-SHA-256, 2 SCRAM-SHA-512."""


@dataclass(slots=True, kw_only=True)
class ScramCredentialUpsertion(Struct):
    name: str = on_wire(STRING)
    """Name of the user."""
    mechanism: int = on_wire(INT8)
    """1 SCRAM-SHA-256, 2 SCRAM-SHA-512."""
    iterations: int = on_wire(INT32)
    """How many rounds the password was hashed."""
    salt: bytes = on_wire(BYTES)
    """Random bytes that were hashed with the password."""
    salted_password: bytes = on_wire(BYTES)
    """The password after hashing."""


@dataclass(slots=True, kw_only=True)
class AlterUserScramCredentialsRequest(Message, api_key=51, versions=(0, 0), flexible_since=0):
    deletions: list[ScramCredentialDeletion] = on_wire(Array(ScramCredentialDeletion))
    """Credentials to remove."""
    upsertions: list[ScramCredentialUpsertion] = on_wire(Array(ScramCredentialUpsertion))
    """Credentials to set."""


@dataclass(slots=True, kw_only=True)
class AlterUserScramCredentialsResult(Struct):
    user: str = on_wire(STRING)
    """Name of the user."""
    error_code: int = on_wire(INT16)
    """0 or the code of the error."""
    error_message: str | None = on_wire(STRING, nullable=ALL)
    """More about the error, null if there is none."""


@dataclass(slots=True, kw_only=True)
class AlterUserScramCredentialsResponse(Message, api_key=51, versions=(0, 0), flexible_since=0):
    throttle_time_ms: int = on_wire(INT32)
    """How long the client is asked to wait, as it used up a quota."""
    results: list[AlterUserScramCredentialsResult] = on_wire(Array(AlterUserScramCredentialsResult))
    """One answer for each item of the request."""
