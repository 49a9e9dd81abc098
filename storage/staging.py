"""The hot part of appending: compiled where that was built, else in plain Python; `COMPILED` says which."""

__all__ = [
    "COMPILED",
    "Appended",
    "BatchMemory",
    "LogStaging",
    "PartitionStaging",
    "ProducerEntry",
    "ProducerTable",
    "SegmentExtent",
    "StagedSegment",
    "Tail",
]

from typing import TYPE_CHECKING

from odradek.storage._staging_python import BatchMemory

if TYPE_CHECKING:  # the twins are alike; the plain one says its types
    from odradek.storage._staging_python import (
        Appended,
        LogStaging,
        PartitionStaging,
        ProducerEntry,
        ProducerTable,
        SegmentExtent,
        StagedSegment,
        Tail,
    )

    COMPILED: bool
else:
    try:
        from odradek.storage._staging import (
            Appended,
            LogStaging,
            PartitionStaging,
            ProducerEntry,
            ProducerTable,
            SegmentExtent,
            StagedSegment,
            Tail,
        )

        COMPILED = True
    except ImportError:
        from odradek.storage._staging_python import (
            Appended,
            LogStaging,
            PartitionStaging,
            ProducerEntry,
            ProducerTable,
            SegmentExtent,
            StagedSegment,
            Tail,
        )

        COMPILED = False
