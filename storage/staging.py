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
]

from odradek.storage._staging_python import BatchMemory

try:
    from odradek.storage._staging import (  # type: ignore[import-not-found]
        Appended,
        LogStaging,
        PartitionStaging,
        ProducerEntry,
        ProducerTable,
        SegmentExtent,
        StagedSegment,
    )

    COMPILED = True
except ImportError:
    from odradek.storage._staging_python import (  # type: ignore[assignment]
        Appended,
        LogStaging,
        PartitionStaging,
        ProducerEntry,
        ProducerTable,
        SegmentExtent,
        StagedSegment,
    )

    COMPILED = False
