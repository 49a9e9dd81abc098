"""Parts that the readers of binary contents share."""

import math


class TooMuch(Exception):
    """A content has more values or levels than are read; the text says how many."""


def finite(value: float) -> float | str:
    """The number, or the text that stands for what JSON has no form for."""
    if math.isfinite(value):
        return value
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
