"""AlterUserScramCredentials: set or remove SCRAM credentials."""

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


class ScramCredentialDeletion(Struct):
    name: str = on_wire(STRING)
    """Name of the user."""
    mechanism: int = on_wire(INT8)
    """1 SCRAM-SHA-256, 2 SCRAM-SHA-512."""


class ScramCredentialUpsertion(Struct):
    name: str = on_wire(STRING)
    """Name of the user."""
    mechanism: int = on_wire(INT8)
    """1 SCRAM-SHA-256, 2 SCRAM-SHA-512."""
    iterations: int = on_wire(INT32)
    """Iterations of the password hash."""
    salt: bytes = on_wire(BYTES)
    """Random bytes that were hashed with the password."""
    salted_password: bytes = on_wire(BYTES, hidden=True)
    """The password after hashing."""


class AlterUserScramCredentialsRequest(Message, api_key=51, versions=(0, 0), flexible_since=0):
    deletions: list[ScramCredentialDeletion] = on_wire(Array(ScramCredentialDeletion))
    """Credentials to remove."""
    upsertions: list[ScramCredentialUpsertion] = on_wire(Array(ScramCredentialUpsertion))
    """Credentials to set."""


class AlterUserScramCredentialsResult(Struct):
    user: str = on_wire(STRING)
    """Name of the user."""
    error_code: int = on_wire(INT16)
    """Error code, 0 for none."""
    error_message: str | None = on_wire(STRING, nullable=ALL)
    """Message of the error, null for none."""


class AlterUserScramCredentialsResponse(Message, api_key=51, versions=(0, 0), flexible_since=0):
    throttle_time_ms: int = on_wire(INT32)
    """Throttle time in ms after an exceeded quota; 0: none."""
    results: list[AlterUserScramCredentialsResult] = on_wire(Array(AlterUserScramCredentialsResult))
    """One result for each item of the request."""
