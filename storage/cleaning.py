"""The hot part of compaction: compiled where that was built, else in plain Python; `COMPILED` says which."""

from typing import TYPE_CHECKING

from odradek.storage._cleaning_python import FilterRules, Selection

__all__ = [
    "COMPILED",
    "SLOT_BYTES",
    "Copy",
    "FilterRules",
    "OffsetMap",
    "Selection",
    "filter_batches",
    "index_batches",
    "index_section",
    "select_records",
    "shift_timestamps",
]

if TYPE_CHECKING:  # the twins are alike; the plain one says its types
    from odradek.storage._cleaning_python import (
        SLOT_BYTES,
        Copy,
        OffsetMap,
        filter_batches,
        index_batches,
        index_section,
        select_records,
        shift_timestamps,
    )

    COMPILED: bool
else:
    try:
        from odradek.storage._cleaning import (
            SLOT_BYTES,
            Copy,
            OffsetMap,
            filter_batches,
            index_batches,
            index_section,
            select_records,
            shift_timestamps,
        )

        COMPILED = True
    except ImportError:
        from odradek.storage._cleaning_python import (
            SLOT_BYTES,
            Copy,
            OffsetMap,
            filter_batches,
            index_batches,
            index_section,
            select_records,
            shift_timestamps,
        )

        COMPILED = False
