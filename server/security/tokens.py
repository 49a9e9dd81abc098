"""Delegation tokens of a running node: which passwords of SCRAM they are, and the end of those that have
expired."""

from __future__ import annotations

import base64
import logging
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

from odradek.coordinator.security.delegation_tokens import (
    USER,
    DelegationToken,
    DelegationTokens,
    TokenRules,
    TokenSecret,
)
from odradek.coordinator.security.scram_users import ScramCredential, credential_of
from odradek.wire.scram import ITERATIONS_MIN, salted_password

if TYPE_CHECKING:
    from odradek.apis.turn import Timers, WorkQueue
    from odradek.config.broker_config import BrokerConfig
    from odradek.coordinator.cluster.decisions import Decisions
    from odradek.coordinator.cluster.draft import Draft
    from odradek.wire.work import Work

logger = logging.getLogger("odradek.broker")

CREDENTIALS_MAX = 10_000
"""Credentials that are remembered; about 500 bytes each."""


def token_rules(config: BrokerConfig) -> TokenRules:
    """Rules for delegation tokens, from the options."""
    text = config.values["delegation.token.secret.key"]
    return TokenRules(
        TokenSecret(text.reveal()) if text else None,
        config.values["delegation.token.max.lifetime.ms"],
        config.values["delegation.token.expiry.time.ms"],
    )


class TokenLogins:
    """The tokens as users of SCRAM. `credential` may be called in any thread."""

    def __init__(self, secret: TokenSecret, tokens: Callable[[], DelegationTokens]) -> None:
        self._secret = secret
        self._tokens = tokens
        self._credentials: dict[tuple[str, int, bytes], ScramCredential] = {}
        """The oldest first."""
        self._present: DelegationTokens | None = None
        """When those of removed tokens were forgotten."""
        self._lock = threading.Lock()

    def find(self, token_id: str, now_ms: int) -> DelegationToken | None:
        """The token, if one can log in with it now. The owner has to be a user: a principal of another type
        would become the user of the same name."""
        token = self._tokens().get(token_id)
        if token is None or token.is_over(now_ms) or not token.owner.startswith(f"{USER}:"):
            return None
        return token

    def known_credential(self, token_id: str, mechanism: int, salt: bytes) -> ScramCredential | None:
        """None: it has to be made."""
        with self._lock:
            return self._credentials.get((token_id, mechanism, salt))

    def credential(self, token_id: str, mechanism: int, salt: bytes) -> ScramCredential:
        """Takes some milliseconds."""
        password = base64.b64encode(self._secret.hmac_of(token_id)).decode()
        salted = salted_password(mechanism, password, salt, ITERATIONS_MIN)
        made = credential_of(mechanism, salt, salted, ITERATIONS_MIN)
        with self._lock:
            self._forget_removed()
            self._credentials[token_id, mechanism, salt] = made
            if len(self._credentials) > CREDENTIALS_MAX:
                del self._credentials[next(iter(self._credentials))]
        return made

    def _forget_removed(self) -> None:
        """Their keys should not stay in memory."""
        present = self._tokens()
        if present is not self._present:
            self._present = present
            gone = [one for one in self._credentials if present.get(one[0]) is None]
            for one in gone:
                del self._credentials[one]


class TokenSweep:
    """Removes expired tokens of a node alone, each `delegation.token.expiry.check.interval.ms`."""

    def __init__(
        self,
        machine: Decisions,
        changes: WorkQueue,
        timers: Timers,
        now_ms: Callable[[], int],
        interval_ms: int,
    ) -> None:
        self._machine = machine
        self._changes = changes
        self._timers = timers
        self._now_ms = now_ms
        self._interval_ms = interval_ms
        self._timer = timers.after(interval_ms, self._begin)

    def stop(self) -> None:
        self._timer.cancel()

    def _begin(self) -> None:
        if self._machine.view.delegation_tokens.over(self._now_ms()):
            self._changes.run(self._machine.changing(self._sweep), self._swept, self._failed)
        self._timer = self._timers.after(self._interval_ms, self._begin)

    def _sweep(self, draft: Draft) -> Work[int]:
        yield None
        expired = draft.tokens.over(self._now_ms())
        draft.change_tokens({one.token_id: None for one in expired})
        return len(expired)

    def _swept(self, count: int) -> None:
        logger.info("%d expired delegation token(s) were removed", count)

    def _failed(self, error: Exception) -> None:
        logger.error("expired delegation tokens stay until the next attempt: %s", error)
