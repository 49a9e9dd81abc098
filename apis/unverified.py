"""A refusal by a transaction's coordinator, for Produce."""

from __future__ import annotations

from odradek.wire.errors import ErrorCode, KafkaError


class Unverified(KafkaError):
    """A transactional batch that its coordinator did not confirm; raised before the append.

    `explanation` goes to the client, if there is one.
    """

    def __init__(self, code: ErrorCode, explanation: str | None = None) -> None:
        super().__init__(code, explanation)
        self.explanation = explanation
