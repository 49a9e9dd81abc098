"""How this node authenticates to other nodes and to controllers, when their listeners have SASL.

A session that ends is renewed on the same connection, after 85 % of its life: requests wait meanwhile
(KIP-368). The messages are in `security/sasl_login.py`.
"""

from __future__ import annotations

import asyncio
import secrets
from typing import TYPE_CHECKING

from odradek.security.sasl_login import RENEWAL_SHARE, SaslLogin, SaslRefused
from odradek.server.network.peers import Peer, PeerLost

if TYPE_CHECKING:
    from odradek.config.credentials import Credentials

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
        login = SaslLogin(self._credentials, secrets.token_urlsafe())
        loop = asyncio.get_running_loop()
        while (request := login.request) is not None:
            response = await peer.ask_now(request, login.version)
            try:
                # SCRAM hashes for some milliseconds.
                await loop.run_in_executor(None, login.take, response)
            except SaslRefused as error:
                raise PeerLost(f"{peer.name} {error}") from None
        return login.lifetime_ms

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
