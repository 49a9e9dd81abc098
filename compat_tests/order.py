"""The order in which workers get tests: a long one that begins last keeps all others waiting."""

from __future__ import annotations

from collections.abc import Sequence

import pytest


def longest_first(items: list[pytest.Item], files: Sequence[str]) -> None:
    """Puts the tests of these files first, in this order; `files` are names such as "test_kills". Beside that
    all keep their order."""
    rank = {name: place for place, name in enumerate(files)}
    items.sort(key=lambda item: rank.get(item.path.stem, len(rank)))
