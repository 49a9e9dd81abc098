"""`odradek cluster start`: a cluster as a process, from its first line to its end."""

import contextlib
import os
import re
import signal
import subprocess
import sys

import pytest
from confluent_kafka import Consumer, Producer

SECONDS = 60
READY = re.compile(r"odradek cluster ready on (\S+, \S+) \(2 nodes, cluster \S{22}, data (\S+)\)\n")


@contextlib.contextmanager
def started(*arguments):
    """The process, its addresses, and its directory."""
    command = [sys.executable, "-m", "odradek", "cluster", "start", "--port", "0", *arguments]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    process = subprocess.Popen(command, stdout=subprocess.PIPE, env=environment, text=True)
    try:
        ready = READY.fullmatch(process.stdout.readline())
        yield process, ready[1].replace(" ", ""), ready[2]
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(SECONDS)
        process.stdout.close()


def test_it_serves_until_it_is_told_to_stop_and_leaves_nothing_behind():
    with started("--nodes", "2", "--set", "num.partitions=3") as (process, servers, data):
        producer = Producer({"bootstrap.servers": servers, "acks": "all"})
        producer.produce("orders", b"one")
        assert producer.flush(SECONDS) == 0
        described = producer.list_topics("orders").topics["orders"].partitions
        assert sorted(described) == [0, 1, 2]
        assert all(sorted(one.replicas) == [1, 2] for one in described.values())
    assert process.returncode == 0
    assert not os.path.exists(data)


def test_a_directory_that_is_named_has_the_cluster_again(tmp_path):
    arguments = ("--nodes", "2", "--data-dir", str(tmp_path / "cluster"))
    with started(*arguments) as (_, servers, _):
        producer = Producer({"bootstrap.servers": servers, "acks": "all"})
        producer.produce("orders", b"kept")
        assert producer.flush(SECONDS) == 0
    with started(*arguments) as (_, again, data):
        assert (again, data) == (servers, str(tmp_path / "cluster"))
        consumer = Consumer({"bootstrap.servers": servers, "group.id": "g", "auto.offset.reset": "earliest"})
        with contextlib.closing(consumer):
            consumer.subscribe(["orders"])
            assert consumer.poll(SECONDS).value() == b"kept"


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("--nodes", "0"), "--nodes is '0': it has to be a whole number from 1 to 100"),
        (("--port", "65535"), "--port is '65535': it has to be a whole number from 0 to 65533"),
        (("--set", "num.partitions"), "--set takes NAME=VALUE, not 'num.partitions'."),
        (("--set", "num.partition=3"), "Did you mean num.partitions?"),
        (("--set", "node.id=3"), "odradek.Cluster sets node.id by itself"),
    ],
)
def test_what_cannot_be_is_a_sentence(run, arguments, sentence):
    status, _, told = run("cluster", "start", *arguments)
    assert status == 1
    assert sentence in told
