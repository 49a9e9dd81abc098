"""The known name that somebody meant who typed another one."""

from collections.abc import Iterable

SIMILAR = 0.75
"""Share of the letters that two names have in common, above which one is taken for a slip of the other."""


def nearest(name: str, known: Iterable[str], similar: float = SIMILAR) -> str | None:
    """The known name that is most similar; None if none is similar."""
    from difflib import get_close_matches  # needed only for an unknown name

    found = get_close_matches(name, known, n=1, cutoff=similar)
    return found[0] if found else None


def did_you_mean(name: str, known: Iterable[str], similar: float = SIMILAR) -> str:
    """`; did you mean NAME?` for the end of a sentence; empty if no known name is similar."""
    near = nearest(name, known, similar)
    return f"; did you mean {near}?" if near else ""
