"""How a transaction's coordinator and Produce agree on a refusal."""

from __future__ import annotations

from odradek.wire.errors import ErrorCode, KafkaError


class Unverified(KafkaError):
    """A batch of a transaction that its coordinator does not vouch for; found out before any log is written.

    `explanation` goes to the client, if there is one.
    """

    def __init__(self, code: ErrorCode, explanation: str | None = None) -> None:
        super().__init__(code, explanation)
        self.explanation = explanation
