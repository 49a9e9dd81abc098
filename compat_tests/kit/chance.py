"""Chance that can be repeated: seeds that are told, and what happens by them."""

from __future__ import annotations

import os
import random
from collections.abc import Mapping

import pytest


def told_seed(capsys: pytest.CaptureFixture[str], name: str) -> int:
    """A seed, or the one of the variable of the environment that repeats a run; printed."""
    seed = int(os.environ.get(name) or random.randrange(1 << 32))
    with capsys.disabled():
        print(f"\n{name}={seed}", flush=True)
    return seed


class Blows:
    """What may happen, and how often each comes. Each comes once; then as chance will have it."""

    def __init__(self, weights: Mapping[str, int], chance: random.Random) -> None:
        self._weights, self._chance = weights, chance
        self.planned = chance.sample(list(weights), len(weights))
        """The first ones, which are to come."""

    def next(self) -> str:
        if self.planned:
            return self.planned.pop()
        return self._chance.choices(list(self._weights), list(self._weights.values()))[0]
