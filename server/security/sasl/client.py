"""How this node authenticates to other nodes and to controllers, when their listeners have SASL.

A session that ends is renewed on the same connection, after 85 % of its life: requests wait meanwhile
(KIP-368).

Sources: SaslClientAuthenticator of Kafka 4.3.
"""

from __future__ import annotations

import asyncio
import secrets
from typing import TYPE_CHECKING

from odradek.server.peers import Peer, PeerLost
from odradek.wire.errors import ErrorCode
from odradek.wire.messages.sasl_authenticate import SaslAuthenticateRequest
from odradek.wire.messages.sasl_handshake import SaslHandshakeRequest
from odradek.wire.scram import ScramClient

if TYPE_CHECKING:
    from odradek.config.logins import Credentials

__all__ = ["PeerLogin"]

HANDSHAKE_VERSION, AUTHENTICATE_VERSION = 1, 2
RENEWAL_SHARE = 0.85
_TIMEOUT_MS = 10_000


class PeerLogin:
    """Authenticates connections with one user."""

    def __init__(self, credentials: Credentials) -> None:
        self._credentials = credentials

    def __repr__(self) -> str:
        return f"PeerLogin({self._credentials.mechanism}, {self._credentials.user!r})"

    async def log_in(self, peer: Peer) -> None:
        """Before the first request. Raises PeerLost."""
        self._renew_later(peer, await self._authenticate(peer))

    async def _authenticate(self, peer: Peer) -> int:
        """Returns the life of the session in ms; 0: it has no end."""
        mechanism = self._credentials.mechanism
        answer = await peer.ask_now(SaslHandshakeRequest(mechanism=mechanism), HANDSHAKE_VERSION)
        if answer.error_code != ErrorCode.NONE:
            offered = ", ".join(answer.mechanisms) or "none"
            raise PeerLost(f"{peer.name} does not take the SASL mechanism {mechanism}; it offers: {offered}")
        if mechanism == "PLAIN":
            return await self._plain(peer)
        return await self._scram(peer)

    async def _plain(self, peer: Peer) -> int:
        user, password = self._credentials.user, self._credentials.password
        _, lifetime_ms = await self._send(peer, b"\0".join((b"", user.encode(), password.encode())))
        return lifetime_ms

    async def _scram(self, peer: Peer) -> int:
        known = self._credentials
        client = ScramClient(known.mechanism, known.user, known.password.reveal(), secrets.token_urlsafe())
        loop = asyncio.get_running_loop()
        try:
            challenge, _ = await self._send(peer, client.first)
            final = await loop.run_in_executor(None, client.final, challenge)
            answer, lifetime_ms = await self._send(peer, final)
            client.verify(answer)
        except ValueError as error:
            raise PeerLost(f"{peer.name}: {error}") from None
        return lifetime_ms

    async def _send(self, peer: Peer, token: bytes) -> tuple[bytes, int]:
        answer = await peer.ask_now(SaslAuthenticateRequest(auth_bytes=token), AUTHENTICATE_VERSION)
        if answer.error_code != ErrorCode.NONE:
            raise PeerLost(
                f"{peer.name} refuses the user {self._credentials.user!r} "
                f"({ErrorCode(answer.error_code).name}): {answer.error_message or ''}"
            )
        return bytes(answer.auth_bytes), answer.session_lifetime_ms

    # Sessions that end

    def _renew_later(self, peer: Peer, lifetime_ms: int) -> None:
        if lifetime_ms > 0:
            peer.call_later(lifetime_ms * RENEWAL_SHARE / 1000, lambda: peer.run(self._renew(peer)))

    async def _renew(self, peer: Peer) -> None:
        peer.hold()
        try:
            async with asyncio.timeout(_TIMEOUT_MS / 1000):
                lifetime_ms = await self._authenticate(peer)
        except TimeoutError:
            peer.close(PeerLost(f"{peer.name} has not renewed the session within {_TIMEOUT_MS} ms"))
        except PeerLost as error:
            peer.close(error)
        else:
            self._renew_later(peer, lifetime_ms)
            peer.end_hold()
