"""DescribeUserScramCredentials (API 50)."""

from dataclasses import dataclass

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


@dataclass(slots=True, kw_only=True)
class UserName(Struct):
    name: str = on_wire(STRING)


@dataclass(slots=True, kw_only=True)
class DescribeUserScramCredentialsRequest(Message, api_key=50, versions=(0, 0), flexible_since=0):
    users: list[UserName] | None = on_wire(Array(UserName), nullable=ALL)


@dataclass(slots=True, kw_only=True)
class CredentialInfo(Struct):
    mechanism: int = on_wire(INT8)
    iterations: int = on_wire(INT32)


@dataclass(slots=True, kw_only=True)
class DescribeUserScramCredentialsResult(Struct):
    user: str = on_wire(STRING)
    error_code: int = on_wire(INT16)
    error_message: str | None = on_wire(STRING, nullable=ALL)
    credential_infos: list[CredentialInfo] = on_wire(Array(CredentialInfo))


@dataclass(slots=True, kw_only=True)
class DescribeUserScramCredentialsResponse(Message, api_key=50, versions=(0, 0), flexible_since=0):
    throttle_time_ms: int = on_wire(INT32)
    error_code: int = on_wire(INT16)
    error_message: str | None = on_wire(STRING, nullable=ALL)
    results: list[DescribeUserScramCredentialsResult] = on_wire(Array(DescribeUserScramCredentialsResult))
