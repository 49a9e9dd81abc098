"""What is run outside the checkout: in an environment that cannot lead back to it."""

from __future__ import annotations

import os

HIDDEN = ("PYTHON", "PYSPARK_", "SPARK_", "KAFKA_", "ODRADEK_", "PYTEST_", "VIRTUAL_ENV")


def clean_environment(**more: str) -> dict[str, str]:
    """Ours without what could bring the checkout in, or set options of a broker or of Spark."""
    return {**{name: value for name, value in os.environ.items() if not name.startswith(HIDDEN)}, **more}
