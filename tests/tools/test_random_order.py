"""Tests in a random order."""

from __future__ import annotations

import random
from dataclasses import dataclass

from tools.random_order import shuffled


@dataclass(frozen=True)
class Item:
    path: str
    number: int
    is_in_order: bool = False

    def get_closest_marker(self, name: str) -> str | None:
        return name if name == "in_order" and self.is_in_order else None


ITEMS = [Item(path, number, path == "kept") for path in ("a", "kept", "b") for number in range(20)]


def test_a_seed_is_an_order_in_which_files_stay_together() -> None:
    orders = [shuffled(ITEMS, random.Random(seed)) for seed in (*range(20), 19)]
    assert orders[-1] == orders[-2]
    assert len({order[0].path for order in orders}) == 3
    for order in orders:
        assert sorted(map(hash, order)) == sorted(map(hash, ITEMS))
        paths = [item.path for item in order]
        assert all(paths[paths.index(path) :][:20] == [path] * 20 for path in ("a", "kept", "b"))


def test_only_a_file_that_says_so_keeps_its_own_order() -> None:
    order = shuffled(ITEMS, random.Random(1))
    of = {path: [item.number for item in order if item.path == path] for path in ("a", "kept", "b")}
    assert of["kept"] == sorted(of["a"]) == sorted(of["b"])
    assert of["kept"] not in (of["a"], of["b"])
