"""Passwords and keys among the options: texts that no log line, error or dump shows."""

from typing import Final, Self

HIDDEN: Final = "[hidden]"


class Secret(str):
    """A text that prints as `[hidden]`; `reveal` gives the text itself, for code that needs it.

    Comparison, hash, slices, `encode` and `join` are those of a text, so a setting equals its plain form.
    Compare what a client has sent by `hmac.compare_digest`, not by `==`.
    """

    __slots__ = ()

    def __new__(cls, text: str) -> Self:
        # `str` would ask a secret how it prints.
        return super().__new__(cls, text[:])

    def reveal(self) -> str:
        """The text itself."""
        return self[:]

    def __repr__(self) -> str:
        return HIDDEN

    def __str__(self) -> str:
        return HIDDEN

    def __format__(self, _: str) -> str:
        return HIDDEN

    def __mod__(self, _: object) -> str:
        return HIDDEN
