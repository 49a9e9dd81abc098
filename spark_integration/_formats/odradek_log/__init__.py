"""How Spark 4 finds the format "odradek-log": it looks for a `DefaultSource` in top-level modules
`pyspark_*`.

Spark imports every such module for any format, so this one imports nothing before its use.
"""

from typing import Any


def __getattr__(name: str) -> Any:
    if name == "DefaultSource":
        from odradek.spark.log_source import OdradekLogDataSource

        return OdradekLogDataSource
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
