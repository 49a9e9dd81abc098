"""A broker with workers, as processes: clients of librdkafka at all of them, and bad days."""

import contextlib
import datetime
import io
import json
import os
import pathlib
import re
import resource
import signal
import socket
import stat
import time

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from odradek.embedding.free_port import free_port
from odradek.offline.dump import dump
from odradek.server.workers.supervisor import FIRST_PAUSE_S, LIVED_S, PAUSE_S_MAX, Pauses
from tests.server.scrape import scraped, until
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


def partitions_shown(directory, topic):
    """Numbers of partitions of which `odradek dump` tells, for a data directory."""
    out = io.StringIO()
    assert dump([str(directory)], records=False, as_json=True, out=out, include_empty=False) == 0
    facts = [json.loads(line) for line in out.getvalue().splitlines()]
    return [one["partition"] for one in facts if one.get("topic") == topic]


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
    # The files of all three are shown.
    assert sorted(partitions_shown(workers.folder / "data", "t")) == list(range(PARTITIONS))
    for address in workers.addresses:
        host, _, port = address.rpartition(":")
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection((host, int(port)))


def test_clients_that_wait_for_the_start_find_all_workers(tmp_path):
    servers = f"127.0.0.1:{free_port()}"
    workers = Workers(tmp_path, 3, "--listen", servers).begin()
    try:
        assert set(make_topic(servers, "early")) == {1, 2, 3}
        until(lambda: workers.ready, bool)
        assert set(leaders(servers, "early")) == {1, 2, 3}
    finally:
        workers.stop()


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
    left = workers.socket_folder
    assert left.exists()
    again = start(2)
    # Nobody was there to remove it.
    assert not left.exists()
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


# Bad days


def status_of(workers):
    """Status and sentence of a start that fails."""
    workers.begin()
    status = workers.process.wait(PATIENCE_S)
    sentences = [line for line in workers.said().splitlines() if line.startswith("odradek: ")]
    assert len(sentences) == 1, workers.said()
    assert not workers.left()
    assert workers.out.read_text() == ""
    return status, sentences[0]


def test_the_death_of_the_parent_ends_all(start):
    workers = start(3)
    folder = workers.socket_folder
    workers.process.kill()
    workers.process.wait()
    until(workers.left, lambda left: not left)
    assert not folder.exists()
    assert workers.said().count("stopped cleanly") == 4


def taken_behind_a_free_one():
    """A socket that has the port behind one that is free."""
    while True:
        with contextlib.suppress(OSError):
            return socket.create_server(("127.0.0.1", free_port() + 1))


def test_a_taken_port_is_one_sentence_and_nothing_is_written(tmp_path):
    with taken_behind_a_free_one() as taken:
        port = taken.getsockname()[1]
        workers = Workers(tmp_path, 3, "--listen", f"127.0.0.1:{port - 1}")
        status, sentence = status_of(workers)
    assert status == 1
    assert f"127.0.0.1:{port} (listener PLAINTEXT) is taken by another process" in sentence
    assert not (tmp_path / "data").exists()


def test_a_metrics_port_that_is_taken_is_told_before_anything_is_written(tmp_path):
    with taken_behind_a_free_one() as taken:
        port = taken.getsockname()[1]
        status, sentence = status_of(Workers(tmp_path, 2, "--metrics", f"127.0.0.1:{port - 1}"))
    assert status == 1
    assert f"odradek.metrics.listen: 127.0.0.1:{port}" in sentence
    assert not (tmp_path / "data").exists()


def test_fewer_workers_take_partitions_over_and_more_are_welcome(start, tmp_path):
    workers = start(3)
    make_topic(workers.bootstrap_servers, "t")
    produce(workers.bootstrap_servers, "t", numbered(0, 60))
    assert consume(workers.bootstrap_servers, "t", 60, "g") == numbered(0, 60)
    admin = AdminClient({"bootstrap.servers": workers.bootstrap_servers})
    cut = [TopicPartition("t", index, 2) for index in range(PARTITIONS)]
    for future in admin.delete_records(cut).values():
        assert future.result(PATIENCE_S).low_watermark == 2
    del admin
    inodes = {path.name: path.stat().st_ino for path in tmp_path.glob("data*/*-*") if path.is_dir()}
    assert workers.end() == 0

    fewer = start(2)
    assert "partitions from worker to worker" in fewer.said()
    assert set(leaders(fewer.bootstrap_servers, "t")) == {1, 2}
    assert not list((tmp_path / "data.w2").glob("*-*/"))
    # The same directories, renamed: nothing was copied.
    assert inodes == {path.name: path.stat().st_ino for path in tmp_path.glob("data*/*-*") if path.is_dir()}
    # Two records of each partition are deleted, and stay so.
    assert consume(fewer.bootstrap_servers, "t", 48) == numbered(12, 48)
    produce(fewer.bootstrap_servers, "t", numbered(60, 60))
    assert consume(fewer.bootstrap_servers, "t", 60, "g") == numbered(60, 60)
    assert fewer.end() == 0

    more = start(4)
    assert "partitions from worker to worker" in more.said()
    assert len(more.addresses) == 4
    # Workers 2 and 3 are new to the cluster, and get their shares.
    assert leaders(more.bootstrap_servers, "t").count(4) == 1
    assert consume(more.bootstrap_servers, "t", 108) == numbered(12, 108)
    assert inodes == {path.name: path.stat().st_ino for path in tmp_path.glob("data*/*-*") if path.is_dir()}


def test_fewer_workers_are_refused_where_partitions_have_more_replicas(start, tmp_path):
    workers = start(3)
    make_topic(workers.bootstrap_servers, "t", replicas=2)
    assert workers.end() == 0
    status, sentence = status_of(Workers(tmp_path, 2))
    assert status == 1
    assert "and odradek.workers=2 leave node 3 out: start 3 workers, and move it first" in sentence


def test_fewer_workers_are_refused_after_a_kill(start, tmp_path):
    workers = start(3)
    make_topic(workers.bootstrap_servers, "t")
    for pid in (workers.process.pid, *workers.pids.values()):
        os.kill(pid, signal.SIGKILL)
    workers.process.wait()
    until(workers.left, lambda left: not left)
    before = sorted(tmp_path.glob("data*/*-*"))
    status, sentence = status_of(Workers(tmp_path, 2))
    assert status == 1
    assert f"{tmp_path}/data.w2 was not stopped cleanly" in sentence
    assert sorted(tmp_path.glob("data*/*-*")) == before


def test_more_workers_than_processors_serve_after_a_warning(start):
    count = len(os.sched_getaffinity(0)) + 1
    workers = start(count)
    assert f"odradek.workers={count} is more than the {count - 1} processors here" in workers.said()
    assert len(workers.left()) == count


@pytest.mark.parametrize("sign", ["runs as process", "registered with broker epoch", "is unfenced"])
def test_sigterm_in_mid_start_ends_all_with_status_0(tmp_path, sign):
    workers = Workers(tmp_path, 3).begin()
    until(workers.said, lambda said: sign in said or workers.process.poll() is not None)
    assert workers.end() == 0
    assert not workers.left()
    assert "Traceback" not in workers.said()
    # And the directories are good for the next start.
    assert workers.start().end() == 0


@pytest.mark.parametrize("index", [2, 0], ids=["a_worker", "the_controller"])
def test_a_worker_whose_disk_is_full_ends_and_is_back_when_there_is_room(start, index):
    """The kernel refuses the writes of its process, as on a full disk (EFBIG)."""
    workers = start(3, "--set", "min.insync.replicas=1")
    make_topic(workers.bootstrap_servers, "t", replicas=2)
    produce(workers.bootstrap_servers, "t", numbered(0, 60), acks="all")
    before, full = len(workers.serving()[index]), workers.pids[index]
    resource.prlimit(full, resource.RLIMIT_FSIZE, (300_000 if index else 1, resource.RLIM_INFINITY))
    values = [b"%06d" % number + bytes(20_000) for number in range(60, 360)]
    produce(workers.bootstrap_servers, "t", values, **{"enable.idempotence": True, "linger.ms": 0})
    # The next process has no limit: there is room again.
    until(lambda: len(workers.serving()[index]), lambda count: count > before)
    assert index == 0 or "stopping, since no data directory is left that works" in workers.said()
    assert consume(workers.bootstrap_servers, "t", 360) == [*numbered(0, 60), *values]


def test_a_keyboard_interrupt_of_the_whole_group_stops_all_in_order(start):
    """Ctrl-C in a terminal does that, and some service managers do."""
    workers = start(3)
    for pid in (*workers.pids.values(), workers.process.pid):
        os.kill(pid, signal.SIGINT)
    assert workers.process.wait(PATIENCE_S) == 0
    assert not workers.left()
    assert workers.said().count("stopped cleanly") == 4


def test_sigterm_while_the_controller_is_away_ends_all(start):
    """The others ask it to let them go: it is started again for that."""
    workers = start(3)
    workers.kill(0)
    assert workers.end() == 0
    assert not workers.left()
    assert workers.said().count("stopped cleanly") >= 2


def state_of(pid):
    """Letter of a process: "T" is stopped by a signal."""
    return pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


def forked_at(said, index):
    """Times in seconds since 1970 at which the processes of a worker were forked, by the log."""
    found = re.findall(rf"^(\S+ \S+),(\d+) \w+ worker {index} \S+ \S+ runs as process", said, re.MULTILINE)
    return [datetime.datetime.fromisoformat(second).timestamp() + int(ms) / 1000 for second, ms in found]


@pytest.mark.parametrize("index", [1, 0], ids=["a_worker", "the_controller"])
def test_sigterm_while_a_worker_is_paused_ends_all_in_order(start, index):
    workers = start(2)
    paused = workers.pids[index]
    os.kill(paused, signal.SIGSTOP)
    try:
        until(lambda: state_of(paused), lambda state: state == "T")
        assert workers.end() == 0
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.kill(paused, signal.SIGCONT)
    assert not workers.left()
    assert workers.said().count("stopped cleanly") == 3


def test_a_worker_that_dies_again_and_again_is_forked_later_each_time():
    pauses = Pauses()
    assert [pauses.after(0.05) for _ in range(9)] == pytest.approx(
        [0, FIRST_PAUSE_S, 0.2, 0.4, 0.8, 1.6, 3.2, PAUSE_S_MAX, PAUSE_S_MAX]
    )
    assert pauses.after(LIVED_S) == 0
    assert pauses.after(LIVED_S - 0.01) == FIRST_PAUSE_S


def test_the_others_serve_while_a_worker_dies_again_and_again_and_it_is_back(start):
    workers = start(3, "--set", "min.insync.replicas=1")
    make_topic(workers.bootstrap_servers, "t", replicas=3)
    killed_at = []
    for number in range(4):
        killed_at.append(time.time())
        dead = workers.kill(2)
        until(lambda: workers.pids[2], lambda pid, dead=dead: pid != dead)
        produce(workers.addresses[0], "t", numbered(6 * number, 6), acks="all")
    forked = forked_at(workers.said(), 2)
    pauses = Pauses()
    for begun, killed, again in zip(forked, killed_at, forked[1:], strict=False):
        # The log has whole milliseconds.
        assert again - killed > pauses.after(killed - begun) - 0.01
    assert len(forked) == 5
    newest = workers.pids[2]
    until(lambda: workers.serving()[2], lambda pids: newest in pids)
    assert consume(workers.addresses[2], "t", 24) == numbered(0, 24)
    assert workers.end() == 0


def test_the_end_of_whoever_has_started_the_broker_ends_all(tmp_path):
    theirs, ours = os.pipe()
    os.set_inheritable(theirs, True)
    workers = Workers(tmp_path, 2, ODRADEK_LIFELINE_FD=str(theirs))
    workers.pass_fds = (theirs,)
    workers.start()
    os.close(theirs)
    os.close(ours)
    assert workers.process.wait(PATIENCE_S) == 0
    assert not workers.left()


def test_a_listener_on_every_interface_names_the_address_of_the_client(start):
    workers = start(2, "--listen", "0.0.0.0:0")
    port = int(workers.addresses[0].rpartition(":")[2])
    for host in ("127.0.0.1", "localhost"):
        brokers = AdminClient({"bootstrap.servers": f"{host}:{port}"}).list_topics(timeout=PATIENCE_S).brokers
        assert {(one.host, one.port) for one in brokers.values()} <= {
            (host, port + index) for host in ("127.0.0.1", "::1") for index in range(2)
        }
        assert len(brokers) == 2


def test_systemd_is_told_by_the_parent_once_all_are_ready(start, tmp_path):
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as receiving:
        receiving.bind(str(tmp_path / "notify"))
        receiving.settimeout(PATIENCE_S)
        workers = start(2, NOTIFY_SOCKET=str(tmp_path / "notify"), WATCHDOG_USEC="2000000")
        first = receiving.recv(4096).decode().splitlines()
        assert first == ["READY=1", "STATUS=2 workers, nodes 1 to 2, serve", f"MAINPID={workers.process.pid}"]
        assert receiving.recv(4096) == b"WATCHDOG=1"
        assert workers.end() == 0


def test_each_worker_has_metrics_at_a_port_of_its_own(start):
    workers = start(2, "--metrics", "127.0.0.1:0")
    ports = [
        int(port) for port in re.findall(r"127\.0\.0\.1:(\d+)", workers.ready[6].partition("metrics ")[2])
    ]
    assert len(ports) == 2
    for worker, port in enumerate(ports):
        assert scraped(port)["odradek_worker_info", f'{{worker="{worker}"}}'] == 1


def test_logins_and_acls_hold_at_all_workers_and_coordinators_reach_each_other(start):
    """A user of the environment logs in at each; markers of a transaction go from worker to worker."""
    workers = start(
        2,
        *("--set", "listeners=SASL_PLAINTEXT://127.0.0.1:0"),
        *(
            "--set",
            "sasl.enabled.mechanisms=SCRAM-SHA-256",
            "--set",
            "security.inter.broker.protocol=SASL_PLAINTEXT",
        ),
        *("--set", "authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer"),
        *("--set", "super.users=User:ann", "--set", "max.connections.per.ip=20"),
        ODRADEK_ADD_SCRAM="SCRAM-SHA-256=[name=ann,password=secret]",
    )
    login = {
        "bootstrap.servers": workers.bootstrap_servers,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "SCRAM-SHA-256",
        "sasl.username": "ann",
        "sasl.password": "secret",
    }
    admin = AdminClient(login)
    admin.create_topics([NewTopic("t", PARTITIONS, 1)])["t"].result(PATIENCE_S)
    producer = Producer({**login, "transactional.id": "x"})
    producer.init_transactions(PATIENCE_S)
    producer.begin_transaction()
    for number, value in enumerate(numbered(0, 12)):
        producer.produce("t", value, partition=number % PARTITIONS)
    producer.commit_transaction(PATIENCE_S)
    consumer = Consumer({**login, "group.id": "g", "auto.offset.reset": "earliest"})
    consumer.subscribe(["t"])
    values = []
    while len(values) < 12:
        record = consumer.poll(PATIENCE_S)
        assert record.error() is None
        values.append(record.value())
    consumer.close()
    assert sorted(values) == numbered(0, 12)
