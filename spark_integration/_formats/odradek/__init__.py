"""How Spark 4 finds the format "odradek": it looks into top-level modules `pyspark_*` for a `DefaultSource`.

Spark imports every such module for any format, so this one imports nothing before its use.
"""

from typing import Any


def __getattr__(name: str) -> Any:
    if name == "DefaultSource":
        from odradek.spark.source import OdradekDataSource

        return OdradekDataSource
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
