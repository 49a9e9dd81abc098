"""The story of docs/testing-stories.md that has Spark in it; `tests/embedding/test_testing_stories.py` runs
the others."""

from __future__ import annotations

import pathlib
from typing import TYPE_CHECKING, Any

import odradek
import odradek.spark
from tests.kit.pages import block_with

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_the_story_with_spark_passes(
    spark: SparkSession, tmp_path: pathlib.Path, odradek_fresh_broker: odradek.Broker
) -> None:
    odradek.spark.register(spark)  # as from an install
    names: dict[str, Any] = {}
    story = block_with("testing-stories.md", "python", "spark")
    exec(compile(story, "docs/testing-stories.md", "exec"), names)
    names["test_a_spark_query_on_a_bad_day"](spark, tmp_path, odradek_fresh_broker)
