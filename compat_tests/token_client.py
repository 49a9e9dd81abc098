"""A client of the wire for delegation tokens, on SASL listeners of any broker."""

from __future__ import annotations

import base64
import socket
import struct
from collections.abc import Sequence
from typing import Any

from compat_tests.clients import wait_until
from odradek.wire.frames import read_response, request_frame
from odradek.wire.messages.create_delegation_token import CreatableRenewers, CreateDelegationTokenRequest
from odradek.wire.messages.describe_delegation_token import (
    DescribeDelegationTokenOwner,
    DescribeDelegationTokenRequest,
)
from odradek.wire.messages.sasl_authenticate import SaslAuthenticateRequest
from odradek.wire.messages.sasl_handshake import SaslHandshakeRequest
from odradek.wire.schema import Message
from odradek.wire.scram import ScramClient

SECONDS = 60.0


class Client:
    """One connection."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=SECONDS)

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    def ask(self, request: Message, version: int) -> Any:
        """None: the connection was closed."""
        try:
            self._socket.sendall(request_frame(request, version, 7, "c"))
            (size,) = struct.unpack(">i", self._receive(4))
            answer = self._receive(size)
        except (ConnectionError, EOFError):
            return None
        return read_response(answer, type(request), version)[1]

    def _receive(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            piece = self._socket.recv(size - len(data))
            if not piece:
                raise EOFError
            data += piece
        return data

    def as_user(self, name: str) -> Client:
        self.ask(SaslHandshakeRequest(mechanism="PLAIN"), 1)
        token = f"\0{name}\0pw-of-{name}".encode()
        assert self.ask(SaslAuthenticateRequest(auth_bytes=token), 2).error_code == 0
        return self

    def with_bearer(self, token: str) -> int:
        """With OAUTHBEARER; the code of the last answer."""
        self.ask(SaslHandshakeRequest(mechanism="OAUTHBEARER"), 1)
        first = f"n,,\x01auth=Bearer {token}\x01\x01".encode()
        answer = self.ask(SaslAuthenticateRequest(auth_bytes=first), 2)
        if answer.auth_bytes:
            answer = self.ask(SaslAuthenticateRequest(auth_bytes=b"\x01"), 2)
        code: int = answer.error_code
        return code

    def with_token(
        self, made: Any, mechanism: str = "SCRAM-SHA-256", extension: str = "tokenauth=true"
    ) -> Any:
        """The codes of the answers."""
        self.ask(SaslHandshakeRequest(mechanism=mechanism), 1)
        password = base64.b64encode(bytes(made.hmac)).decode()
        scram = ScramClient(mechanism, made.token_id, password, "nonce", extension)
        first = self.ask(SaslAuthenticateRequest(auth_bytes=scram.first), 2)
        if first.error_code:
            return first.error_code
        return self.ask(
            SaslAuthenticateRequest(auth_bytes=scram.final(bytes(first.auth_bytes))), 2
        ).error_code


def creation(
    version: int, renewers: Sequence[tuple[str, str]] = (), owner: Any = (None, None), life_ms: int = -1
) -> CreateDelegationTokenRequest:
    request = CreateDelegationTokenRequest(
        renewers=[CreatableRenewers(principal_type=kind, principal_name=name) for kind, name in renewers],
        max_lifetime_ms=life_ms,
    )
    if version >= 3:
        request.owner_principal_type, request.owner_principal_name = owner
    return request


def made_by(port: int, user: str, **more: Any) -> Any:
    """A token that every part of the broker knows: a new one takes Kafka a moment."""
    with Client(port) as client:
        made = client.as_user(user).ask(creation(3, **more), 3)
        assert made.error_code == 0
        wait_until(lambda: made.token_id in ids(client), "the token", seconds=SECONDS)
    return made


def ids(client: Client, owners: Sequence[str] | None = None) -> list[str]:
    return [one.token_id for one in described(client, owners).tokens]


def described(client: Client, owners: Sequence[str] | None = None, version: int = 3) -> Any:
    wanted = None
    if owners is not None:
        wanted = [DescribeDelegationTokenOwner(principal_type="User", principal_name=one) for one in owners]
    return client.ask(DescribeDelegationTokenRequest(owners=wanted), version)
