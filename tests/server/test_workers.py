"""A broker with workers, as processes: clients of librdkafka at all of them, and bad days."""

import contextlib
import os
import signal
import socket
import stat

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tests.server.scrape import until
from tests.server.workers import Workers

PATIENCE_S = 60
PARTITIONS = 6


@pytest.fixture
def start(tmp_path):
    """Starts a broker with so many workers; all end with the test."""
    with contextlib.ExitStack() as ending:

        def start(count, *arguments, **environ):
            workers = Workers(tmp_path, count, *arguments, **environ)
            ending.callback(workers.stop)
            return workers.start()

        yield start


def make_topic(servers, name, partitions=PARTITIONS, replicas=1):
    """The topic, with its leaders."""
    admin = AdminClient({"bootstrap.servers": servers})
    admin.create_topics([NewTopic(name, partitions, replicas)])[name].result(PATIENCE_S)
    until(lambda: leaders(servers, name), lambda found: len(found) == partitions and -1 not in found)
    return leaders(servers, name)


def leaders(servers, name):
    found = AdminClient({"bootstrap.servers": servers}).list_topics(name, PATIENCE_S).topics[name]
    return [partition.leader for _, partition in sorted(found.partitions.items())]


def produce(servers, topic, values, **options):
    """Returns when all are acknowledged: record i in partition i, and so on."""
    producer = Producer({"bootstrap.servers": servers, **options})
    failed = []
    for number, value in enumerate(values):
        producer.produce(
            topic,
            value,
            partition=number % PARTITIONS,
            on_delivery=lambda error, _: error and failed.append(error),
        )
    assert producer.flush(PATIENCE_S) == 0
    assert not failed


def consume(servers, topic, count, group=None):
    """The values, sorted: of all partitions, or as a member of the group, which commits."""
    options = {
        "bootstrap.servers": servers,
        "group.id": group or "unused",
        "auto.offset.reset": "earliest",
        "isolation.level": "read_committed",
        "enable.auto.commit": False,
    }
    consumer = Consumer(options)
    if group is None:
        consumer.assign([TopicPartition(topic, index, 0) for index in range(PARTITIONS)])
    else:
        consumer.subscribe([topic])
    values = []
    while len(values) < count:
        record = consumer.poll(PATIENCE_S)
        assert record is not None, values
        if record.error() is None:
            values.append(record.value())
    if group is not None:
        consumer.commit(asynchronous=False)
    consumer.close()
    return sorted(values)


def numbered(first, count):
    return [b"%06d" % number for number in range(first, first + count)]


def test_clients_use_all_workers_and_sigterm_ends_all(start):
    workers = start(3)
    assert (workers.ready[3], workers.ready[4]) == ("1", "3")
    first = workers.addresses[0]
    assert set(make_topic(first, "t")) == {1, 2, 3}
    produce(first, "t", numbered(0, 60))
    assert consume(workers.addresses[2], "t", 60, "g") == numbered(0, 60)

    # One transaction has parts at all workers, and its coordinator is one of them.
    producer = Producer({"bootstrap.servers": first, "transactional.id": "x"})
    producer.init_transactions(PATIENCE_S)
    for commits, values in ((True, numbered(60, 12)), (False, numbered(900, 12))):
        producer.begin_transaction()
        for number, value in enumerate(values):
            producer.produce("t", value, partition=number % PARTITIONS)
        producer.commit_transaction(PATIENCE_S) if commits else producer.abort_transaction(PATIENCE_S)
    produce(first, "t", numbered(72, 6))
    assert consume(first, "t", 18, "g") == numbered(60, 18)

    pids, folder = workers.left(), workers.socket_folder
    assert len(pids) == 3
    assert folder.is_dir()
    assert workers.end() == 0
    assert not workers.left()
    assert not folder.exists()
    assert workers.said().count("stopped cleanly") == 4  # three nodes and the controller
    for address in workers.addresses:
        host, _, port = address.rpartition(":")
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection((host, int(port)))


@pytest.mark.parametrize("index", [2, 0], ids=["a_worker", "the_controller"])
def test_a_worker_that_is_killed_loses_nothing_and_is_back(start, index):
    workers = start(3)
    make_topic(workers.bootstrap_servers, "t")
    produce(workers.bootstrap_servers, "t", numbered(0, 600))
    assert consume(workers.bootstrap_servers, "t", 600, "g") == numbered(0, 600)
    workers.kill_and_wait(index)
    produce(workers.bootstrap_servers, "t", numbered(600, 600))
    assert consume(workers.bootstrap_servers, "t", 1200) == numbered(0, 1200)
    # The group goes on where it was.
    assert consume(workers.bootstrap_servers, "t", 600, "g") == numbered(600, 600)
    assert workers.process.poll() is None
    assert workers.end() == 0
    assert not workers.left()


def test_all_killed_at_once_are_back_with_all_that_was_acknowledged(start):
    workers = start(2)
    make_topic(workers.bootstrap_servers, "t")
    produce(workers.bootstrap_servers, "t", numbered(0, 60))
    pids = list(workers.pids.values())
    for pid in (workers.process.pid, *pids):
        os.kill(pid, signal.SIGKILL)
    workers.process.wait()
    until(workers.left, lambda left: not left)
    again = start(2)
    assert consume(again.bootstrap_servers, "t", 60) == numbered(0, 60)


def test_partitions_with_replicas_are_elsewhere_while_their_worker_is_away(start):
    workers = start(3, "--set", "min.insync.replicas=1")
    make_topic(workers.bootstrap_servers, "t", replicas=2)
    produce(workers.bootstrap_servers, "t", numbered(0, 60), acks="all")
    # A paused parent forks nobody; the death of a worker is told to the controller when it goes on.
    workers.kill_and_wait(2)
    assert "broker 3 is dead and is fenced" in workers.said()
    produce(workers.bootstrap_servers, "t", numbered(60, 60), acks="all")
    assert consume(workers.bootstrap_servers, "t", 120) == numbered(0, 120)


def test_nobody_else_reaches_the_controller(start):
    """An ACL lets only super users act on the cluster: workers are, at their sockets, and clients are not."""
    workers = start(
        2,
        *("--set", "authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer"),
        *("--set", "super.users=User:admin", "--set", "allow.everyone.if.no.acl.found=false"),
    )
    folder = workers.socket_folder
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert sorted(path.name for path in folder.iterdir()) == ["controller", "worker-0", "worker-1"]
    with pytest.raises(KafkaException, match="TOPIC_AUTHORIZATION_FAILED"):
        make_topic(workers.addresses[0], "t")
    # Each has registered and is unfenced, which the controller allows to nobody else.
    assert all(workers.serving().values())
