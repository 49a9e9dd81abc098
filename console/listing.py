"""Rows of a page: sorted, cut into pages, and found again by the URL."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from odradek.console.rendering import link

PAGE_ROWS = 100
Row = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Heading:
    """Heading of a column that rows can be sorted by."""

    url: str
    aria_sort: str
    """ascending, descending or none."""


class Listing:
    """The rows of one page of a list, and the links to the others."""

    def __init__(
        self,
        rows: Sequence[Row],
        path: str,
        query: Mapping[str, str],
        keys: Sequence[str],
        *,
        page_rows: int = PAGE_ROWS,
    ) -> None:
        """`keys` are those that rows can be sorted by; the first is the default. `query` is of the URL."""
        self._path, self._query = path, dict(query)
        wanted = query.get("sort", "")
        self.sort = wanted if wanted in keys else keys[0]
        self.is_descending = query.get("desc") == "1"
        self._keys = keys
        ordered = sorted(rows, key=_order(self.sort), reverse=self.is_descending)
        # A missing value stands at the end in both directions.
        ordered.sort(key=lambda row: row[self.sort] is None)
        self.count = len(rows)
        self.pages = max(1, math.ceil(len(rows) / page_rows))
        self.page = min(max(1, _whole(query.get("page", ""), 1)), self.pages)
        self.rows = ordered[(self.page - 1) * page_rows : self.page * page_rows]

    def heading(self, key: str, is_number: bool = False) -> Heading:
        """The link that sorts by a key, of numbers the largest first, or turns the order of it."""
        assert key in self._keys
        is_current = key == self.sort
        descends = not self.is_descending if is_current else is_number
        order = ("descending" if self.is_descending else "ascending") if is_current else "none"
        return Heading(self._url(sort=key, desc=descends, page=None), order)

    def url(self, page: int) -> str:
        """The URL of another page."""
        return self._url(page=page)

    def _url(self, **changed: object) -> str:
        return link(self._path, **{**self._query, **changed})


def _order(key: str) -> Callable[[Row], Any]:
    def order(row: Row) -> Any:
        value = row[key]
        return (0, 0) if value is None else (1, value.lower() if isinstance(value, str) else value)

    return order


def _whole(text: str, default: int) -> int:
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 9 else default
