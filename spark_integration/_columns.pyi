"""Records into the buffers of Arrow columns."""

from typing import Any, NamedTuple

from odradek.wire._records import BatchHeader

class BytesColumn(NamedTuple):
    """Buffers of a column of bytes; `nulls` counts the rows that are not there."""

    validity: Any
    nulls: int
    offsets: Any
    data: Any

class HeadersColumn(NamedTuple):
    """Buffers of a column of lists: `offsets` into the names and values of all headers, `total` of them."""

    validity: Any
    nulls: int
    offsets: Any
    total: int
    names: BytesColumn
    values: BytesColumn

class TakenColumns(NamedTuple):
    """Gathered columns, None for a column that is not wanted. Timestamps are in microseconds."""

    rows: int
    keys: BytesColumn | None
    values: BytesColumn | None
    offsets: Any
    timestamps: Any
    headers: HeadersColumn | None

class RecordColumns:
    """Gathers the columns that are wanted of one records section after the other."""

    @property
    def rows(self) -> int: ...
    def __init__(
        self, *, keys: bool, values: bool, offsets: bool, timestamps: bool, headers: bool
    ) -> None: ...
    @property
    def size_bytes(self) -> int:
        """How many bytes the columns have, without the bitmaps."""
    def add_section(
        self, section: Any, header: BatchHeader, start: int, end: int, names_checked: bool = False
    ) -> bool:
        """Takes the records of [start, end) of a batch's records section, which is not compressed (any more).

        False, and nothing is taken, if the section is not sound, or if it has what has to be looked at: a
        timestamp beyond 64 bits of microseconds or, unless `names_checked`, a header's name that is not
        ASCII.
        """
    def take(self) -> TakenColumns:
        """Hands over the gathered columns; after that there is nothing."""
