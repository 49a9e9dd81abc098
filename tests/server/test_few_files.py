"""A process that may open few files: partitions share them, and clients still get in."""

import contextlib
import re
import resource
import shutil
import subprocess
import sys

import pytest

from odradek.wire.messages import create_topics, produce
from odradek.wire.records import Record, build_batch
from tests.raw_client import RawClient

FILES_MAX = 64
PARTITIONS = 70


@contextlib.contextmanager
def running(directory, limit):
    """The process of a broker that a shell has started after `ulimit`, and its port."""
    if shutil.which("sh") is None:
        pytest.skip("needs a shell that can lower its limits")
    serve = f"{sys.executable} -m odradek serve --listen 127.0.0.1:0 --data-dir {directory}"
    broker = subprocess.Popen(
        ["sh", "-c", f"ulimit {limit} && exec {serve}"], stdout=subprocess.PIPE, text=True
    )
    assert broker.stdout is not None
    try:
        ready = broker.stdout.readline()
        found = re.search(r"127\.0\.0\.1:(\d+)", ready)
        assert found, ready
        yield broker.pid, int(found[1])
    finally:
        broker.terminate()
        assert broker.wait(10) == 0
        broker.stdout.close()
    assert (directory / ".kafka_cleanshutdown").exists()


@pytest.fixture
def port(tmp_path):
    with running(tmp_path, f"-n {FILES_MAX}") as (_, port):
        yield port


def test_more_partitions_than_files_are_written_to_and_closed_cleanly(port):
    with RawClient(port) as client:
        topic = create_topics.CreatableTopic(name="wide", num_partitions=PARTITIONS, replication_factor=1)
        created = client.ask(create_topics.CreateTopicsRequest(topics=[topic], timeout_ms=1000), 5)
        assert created.topics[0].error_code == 0
        for expected in range(2):
            data = [
                produce.PartitionProduceData(index=index, records=build_batch([Record(0, 1, None, b"v")]))
                for index in range(PARTITIONS)
            ]
            request = produce.ProduceRequest(
                acks=-1,
                timeout_ms=1000,
                topic_data=[produce.TopicProduceData(name="wide", partition_data=data)],
            )
            (answered,) = client.ask(request, 9).responses
            assert {(one.error_code, one.base_offset) for one in answered.partition_responses} == {
                (0, expected)
            }
        others = [RawClient(port) for _ in range(12)]
        for other in others:
            assert other.ask(create_topics.CreateTopicsRequest(topics=[topic], timeout_ms=1000), 5).topics
            other.close()


@pytest.mark.skipif(not hasattr(resource, "prlimit"), reason="only Linux tells of another process's limits")
def test_a_broker_takes_as_many_files_as_the_administrator_allows(tmp_path):
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with running(tmp_path, f"-S -n {FILES_MAX}") as (pid, _):
        assert resource.prlimit(pid, resource.RLIMIT_NOFILE) == (hard, hard)
