"""DescribeUserScramCredentials: list users with SCRAM credentials."""

from odradek.wire.schema import (
    ALL,
    INT8,
    INT16,
    INT32,
    STRING,
    Array,
    Message,
    Struct,
    on_wire,
)


class UserName(Struct):
    name: str = on_wire(STRING)
    """Name of the user."""


class DescribeUserScramCredentialsRequest(Message, api_key=50, versions=(0, 0), flexible_since=0):
    users: list[UserName] | None = on_wire(Array(UserName), nullable=ALL)
    """Only these users, null for all."""


class CredentialInfo(Struct):
    mechanism: int = on_wire(INT8)
    """1 SCRAM-SHA-256, 2 SCRAM-SHA-512."""
    iterations: int = on_wire(INT32)
    """Iterations of the password hash."""


class DescribeUserScramCredentialsResult(Struct):
    user: str = on_wire(STRING)
    """Name of the user."""
    error_code: int = on_wire(INT16)
    """Error code, 0 for none."""
    error_message: str | None = on_wire(STRING, nullable=ALL)
    """Message of the error, null for none."""
    credential_infos: list[CredentialInfo] = on_wire(Array(CredentialInfo))
    """The mechanisms for which the user has a credential."""


class DescribeUserScramCredentialsResponse(Message, api_key=50, versions=(0, 0), flexible_since=0):
    throttle_time_ms: int = on_wire(INT32)
    """Throttle time in ms after an exceeded quota; 0: none."""
    error_code: int = on_wire(INT16)
    """Error code, 0 for none."""
    error_message: str | None = on_wire(STRING, nullable=ALL)
    """Message of the error, null for none."""
    results: list[DescribeUserScramCredentialsResult] = on_wire(Array(DescribeUserScramCredentialsResult))
    """One result for each item of the request."""
