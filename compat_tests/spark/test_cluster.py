"""The connector on a cluster: executors in processes of their own, one of which is lost with its worker."""

from __future__ import annotations

import pathlib
from collections import Counter

import pytest

from compat_tests.clients import wait_until
from compat_tests.spark.cluster import Cluster
from compat_tests.spark.driver import START_SECONDS, Driver, Job
from compat_tests.spark.topics import KafkaTables, values

COUNT = 3000


@pytest.mark.nightly
def test_a_lost_worker_costs_no_row(tables: KafkaTables, tmp_path: pathlib.Path) -> None:
    source, sink = tables.new_topic("source", 4, range(COUNT)), tables.new_topic("sink", 2)
    with Cluster(tmp_path / "cluster") as cluster:
        folder = str(tmp_path / "job")
        few = {"maxOffsetsPerTrigger": "50"}
        job = Job(tables.client.bootstrap, source, sink, folder, cluster.master, few)
        with Driver(job) as driver:
            wait_until(lambda: job.committed() >= 3, "it works", [driver], START_SECONDS)
            assert [cluster.executors(number) for number in range(2)] == [1, 1]
            cluster.kill_worker(0)
            before = job.committed()
            wait_until(lambda: job.committed() >= before + 3, "it goes on", [driver], START_SECONDS)
        ending = Job(tables.client.bootstrap, source, sink, folder, cluster.master, ends=True)
        with Driver(ending) as driver:
            driver.wait()
    assert tables.values_in_files(job.files) == list(range(COUNT))
    assert sorted(Counter(values(tables.read(sink)))) == list(range(COUNT))
