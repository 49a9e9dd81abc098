"""The hot parts of storage: compiled where that was built, else in plain Python; `COMPILED` says which."""

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
    "Stretch",
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
        Stretch,
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
            Stretch,
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
            Stretch,
            Tail,
        )

        COMPILED = False
