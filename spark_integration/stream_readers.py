"""Chooses the reader of a stream for the installed PySpark; `admission` is imported only from 4.2 on."""

from __future__ import annotations

import importlib.util

from pyspark.sql.datasource import DataSourceStreamReader

from odradek.spark.options import OptionError, ReadOptions
from odradek.spark.stream_source import StreamReader


def stream_reader(options: ReadOptions) -> DataSourceStreamReader:
    """The reader for the installed PySpark; OptionError for a limit that it cannot keep."""
    if has_admission_control():
        from odradek.spark.admission import AdmittingStreamReader

        return AdmittingStreamReader(options)
    if options.max_bytes_per_trigger is not None:
        raise OptionError("maxBytesPerTrigger needs PySpark 4.2: use maxOffsetsPerTrigger")
    if options.max_offsets_per_trigger is not None and not options.is_processing_time:
        raise OptionError(
            "maxOffsetsPerTrigger needs PySpark 4.2, or a query with trigger(processingTime=...) and the "
            "option trigger=processingTime to say so: before 4.2 Spark ends an AvailableNow or Once query "
            "after one limited batch, and the rest would stay unread"
        )
    return StreamReader(options)


def has_admission_control() -> bool:
    """Whether this PySpark passes the start of a batch and its limit to a stream: from 4.2 on."""
    return importlib.util.find_spec("pyspark.sql.streaming.datasource") is not None
