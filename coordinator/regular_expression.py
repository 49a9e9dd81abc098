"""Regular expressions that clients send, in the syntax of RE2: matching takes time in proportion to the text.

Python's own `re` tries one way after the other and can be kept busy for hours by a dozen characters.

Source: https://github.com/google/re2/wiki/Syntax; Kafka 4.3 uses RE2/J, Java's RE2.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from odradek.wire.errors import ErrorCode, KafkaError

MEMORY_BYTES = 262_144
"""Bytes of a compiled expression and of the memory of matching: some hundred names as alternatives. What an
expression of that size can cost at most is 0.2 ms for each character (measured: nested repetitions)."""
REASON_CHARACTERS_MAX = 200


class RegularExpression:
    """A compiled expression. Raises KafkaError INVALID_REGULAR_EXPRESSION with a message for a person."""

    def __init__(self, pattern: str) -> None:
        # Few brokers are ever sent one, and it takes 6 ms.
        try:
            import re2
        except ImportError as error:
            # It has no wheel for musl; an install may be without it, and all but patterns works.
            raise KafkaError(
                ErrorCode.INVALID_REGULAR_EXPRESSION,
                "This broker takes no regular expressions: its install lacks google-re2.",
            ) from error

        options = re2.Options()
        options.log_errors = False
        options.max_mem = MEMORY_BYTES
        try:
            self._compiled = re2.compile(pattern, options)
        except re2.error as error:
            reason = error.args[0] if error.args else ""
            if isinstance(reason, bytes):
                reason = reason.decode(errors="replace")
            raise KafkaError(
                ErrorCode.INVALID_REGULAR_EXPRESSION,
                f"This is not a valid regular expression: {reason[:REASON_CHARACTERS_MAX]}",
            ) from error

    def matches(self, text: str) -> bool:
        """Whether the expression matches the whole text. Other threads run meanwhile."""
        return self._compiled.fullmatch(text) is not None


def matches_of(patterns: Iterable[str], texts: Sequence[str]) -> dict[str, frozenset[str]]:
    """The texts that each of these expressions matches. Takes long; to be called in a worker thread.

    What is no expression (another broker has taken it for one) matches nothing.
    """
    found = {}
    for pattern in patterns:
        try:
            expression = RegularExpression(pattern)
        except KafkaError:
            found[pattern] = frozenset[str]()
        else:
            found[pattern] = frozenset(text for text in texts if expression.matches(text))
    return found
