"""The files of a table through Hadoop's file systems, as for HDFS and S3."""

from __future__ import annotations

import pathlib
from typing import TYPE_CHECKING

import pytest

from odradek.spark.jobs import JobError
from odradek.spark.jobs.compaction import Compaction, SizeRules
from odradek.spark.jobs.files import HadoopFiles, LocalFiles, open_files
from odradek.spark.jobs.publishing import Publisher

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture
def hadoop(spark: SparkSession, tmp_path: pathlib.Path) -> HadoopFiles:
    """Hadoop's own view of the local file system."""
    path = spark._jvm.org.apache.hadoop.fs.Path(f"file://{tmp_path}")
    return HadoopFiles(spark._jvm, path.getFileSystem(spark._jsc.hadoopConfiguration()))


def test_each_operation_does_what_the_local_one_does(hadoop: HadoopFiles, tmp_path: pathlib.Path) -> None:
    base = f"file://{tmp_path}/table"
    assert (hadoop.exists(base), hadoop.names(base), list(hadoop.walk(base))) == (False, [], [])
    hadoop.make_directory(f"{base}/a/b")
    hadoop.write_new(f"{base}/a/b/one.json", "ünö")
    hadoop.write_new(f"{base}/two.json", "2")
    assert hadoop.read_text(f"{base}/a/b/one.json") == "ünö"
    assert hadoop.read_text(f"{base}/none") is None
    assert [name for name in hadoop.names(base) if not name.startswith(".")] == ["a", "two.json"]
    assert [(path.rpartition("/")[2], size) for path, size in sorted(hadoop.walk(base))] == [
        ("one.json", 5),
        ("two.json", 1),
    ]
    hadoop.rename(f"{base}/two.json", f"{base}/a/b/one.json")
    assert hadoop.read_text(f"{base}/a/b/one.json") == "2"
    hadoop.remove(f"{base}/a")
    hadoop.remove(f"{base}/a")
    assert not hadoop.exists(f"{base}/a")
    hadoop.lock(f"{base}/lock").close()


def test_an_epoch_is_published_through_it(hadoop: HadoopFiles, tmp_path: pathlib.Path) -> None:
    table = f"file://{tmp_path}/table"

    def write(path: str) -> int:
        hadoop.write_new(f"{path}/topic=t/day=2026-01-01/part-00000-0f-3c.c000.snappy.parquet", "rows")
        return 1

    first, has_added = Publisher(hadoop, table).publish(3, write)
    assert (has_added, first.rows, first.size_bytes) == (True, 1, 4)
    again, has_added = Publisher(hadoop, table).publish(3, write)
    assert (has_added, again) == (False, first)
    day = tmp_path / "table" / "topic=t" / "day=2026-01-01"
    assert [path.name for path in day.glob("[!.]*")] == ["part-0000000003-00000.c000.snappy.parquet"]


def test_the_local_file_system_needs_no_hadoop_and_others_are_not_compacted(
    spark: SparkSession, hadoop: HadoopFiles, tmp_path: pathlib.Path
) -> None:
    assert isinstance(open_files(spark, str(tmp_path)), LocalFiles)
    assert isinstance(open_files(spark, f"file://{tmp_path}"), LocalFiles)
    with pytest.raises(JobError, match="leave the option compact out"):
        Compaction(spark, hadoop, "hdfs://somewhere/table", SizeRules(), "snappy")
