"""Snapshots of a broker: what a restore brings back, what clients see of it, forks, archives, refusals."""

import asyncio
import contextlib
import hashlib
import http.client
import io
import json
import os
import pathlib
import threading
import time
import urllib.error
import urllib.request
from functools import partial

import confluent_kafka
import pytest
from kafka import KafkaConsumer, KafkaProducer, TopicPartition
from kafka.structs import OffsetAndMetadata

import odradek
from odradek.client.cluster import ANY_NODE, LATEST, Cluster
from odradek.client.settings import ClientSettings
from odradek.commands.main import main
from odradek.embedding.free_port import free_port
from odradek.server.test_kit.kit import TestKitError
from odradek.wire.messages.api_versions import ApiVersionsRequest
from odradek.wire.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from odradek.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from tests.client.topics import ask, create_topic, delete_topic, produce
from tests.raw_client import RawClient

PATIENCE_S = 120.0


def connected(broker):
    return Cluster(ClientSettings(broker.bootstrap_servers))


def create_rolling(broker, topic, partitions, segment_bytes):
    """A topic with very small segments."""
    small = CreatableTopicConfig(name="internal.segment.bytes", value=str(segment_bytes))
    wanted = CreatableTopic(
        name=topic, num_partitions=partitions, replication_factor=1, assignments=[], configs=[small]
    )
    with connected(broker) as cluster:
        ask(cluster, ANY_NODE, CreateTopicsRequest(topics=[wanted]))


def create(broker, topic):
    with connected(broker) as cluster:
        create_topic(cluster, 1, topic)


def ends(broker, topic, partitions=1):
    with connected(broker) as cluster:
        found = cluster.list_offsets({(topic, number): LATEST for number in range(partitions)})
    return [found[topic, number] for number in range(partitions)]


def topics(broker):
    return {row["topic"] for row in told(broker, "topics", "list")}


def told(broker, *arguments):
    """The output of a command about the broker, parsed from JSON."""
    return json.loads(run(*arguments, "-b", broker.bootstrap_servers, "-J"))


def run(*arguments):
    """The output of a command."""
    out = io.TextIOWrapper(io.BytesIO())
    with contextlib.redirect_stdout(out):
        assert main(list(arguments)) == 0
    out.flush()
    return out.buffer.getvalue().decode()


def values(broker, topic, partition=0, **options):
    consumer = KafkaConsumer(
        bootstrap_servers=broker.bootstrap_servers,
        auto_offset_reset="earliest",
        **options,
    )
    place = TopicPartition(topic, partition)
    consumer.assign([place])
    end = consumer.end_offsets([place])[place]
    found = []
    deadline = time.monotonic() + PATIENCE_S
    while consumer.position(place) < end and time.monotonic() < deadline:
        for records in consumer.poll(100).values():
            found += [record.value for record in records]
    # Shown where a test fails.
    print(f"{topic}-{partition}: {len(found)} records, at {consumer.position(place)} of {end}")
    consumer.close()
    return found


def send(broker, topic, *some, partition=0):
    with connected(broker) as cluster:
        return produce(cluster, topic, partition, some)


def is_sound(directory, capsys):
    capsys.readouterr()
    status = main(["check", str(directory)])
    out = capsys.readouterr().out
    assert "damage " not in out, out
    return status == 0


def partition_files(directory):
    """Content of the files of all partitions that Kafka's format has, by name."""
    return {
        f"{folder.name}/{file.name}": hashlib.sha256(file.read_bytes()).hexdigest()
        for folder in directory.iterdir()
        if folder.is_dir() and folder.name != "__cluster_metadata-0"
        for file in folder.iterdir()
    }


@pytest.fixture(params=["thread", "process"])
def in_process(request):
    return request.param == "process"


def test_a_restore_brings_back_records_and_topics_and_keeps_the_port(in_process):
    with odradek.Broker(process=in_process) as broker:
        with connected(broker) as cluster:
            create_topic(cluster, 2, "orders")
            create_topic(cluster, 1, "deleted-since")
        send(broker, "orders", b"one", b"two", partition=1)
        send(broker, "deleted-since", b"kept")
        port, snapshot = broker.port, broker.snapshot()
        send(broker, "orders", b"three", partition=1)
        with connected(broker) as cluster:
            create_topic(cluster, 1, "created-since")
            delete_topic(cluster, "deleted-since")
        broker.restore(snapshot)
        assert broker.port == port
        assert topics(broker) == {"orders", "deleted-since"}
        assert values(broker, "orders", 1) == [b"one", b"two"]
        assert values(broker, "deleted-since") == [b"kept"]
        assert send(broker, "orders", b"four", partition=1) == 2


def commit(broker, offset):
    consumer = KafkaConsumer(bootstrap_servers=broker.bootstrap_servers, group_id="shop")
    place = TopicPartition("orders", 0)
    consumer.assign([place])
    consumer.commit({place: OffsetAndMetadata(offset, "", -1)})
    consumer.close()


def test_users_quotas_acls_options_and_commits_come_back(in_process, tmp_path):
    secret = tmp_path / "secret"
    options = {
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "allow.everyone.if.no.acl.found": True,
        "super.users": "User:ANONYMOUS",
    }
    with odradek.Broker(process=in_process, options=options) as broker:

        def change(number):
            secret.write_text(f"secret-{number}\n")
            user = f"user-{number}"
            for command in (
                f"users add {user} --mechanism SCRAM-SHA-256 --password-file {secret}",
                f"quotas set producer_byte_rate={number}000000 --client-id shop",
                f"acls add --principal User:{user} --topic orders --consumer --group shop",
                f"configs set topic:orders retention.ms={number}0000000",
            ):
                run(*command.split(), "-b", broker.bootstrap_servers)
            commit(broker, number)

        def state():
            asked = (
                "users list",
                "quotas list",
                "acls list",
                "configs get topic:orders retention.ms",
                "groups describe shop",
            )
            rows = [told(broker, *command.split()) for command in asked]
            return [[{**row, "lag_seconds": None} for row in of_one] for of_one in rows]

        create(broker, "orders")
        send(broker, "orders", *(b"v" for _ in range(5)))
        change(1)
        before, snapshot = state(), broker.snapshot()
        change(2)
        assert all(now != then for now, then in zip(state(), before, strict=True))
        broker.restore(snapshot)
        assert state() == before


def test_an_open_transaction_is_open_again_and_can_be_committed():
    with odradek.Broker() as broker:
        create(broker, "orders")
        producer = KafkaProducer(bootstrap_servers=broker.bootstrap_servers, transactional_id="shop")
        producer.init_transactions()
        producer.begin_transaction()
        producer.send("orders", b"in doubt").get(PATIENCE_S)
        snapshot = broker.snapshot()
        producer.abort_transaction()
        assert values(broker, "orders", isolation_level="read_committed") == []
        broker.restore(snapshot)
        (row,) = told(broker, "transactions", "list")
        assert (row["transactional_id"], row["state"]) == ("shop", "Ongoing")
        assert values(broker, "orders", isolation_level="read_uncommitted") == [b"in doubt"]
        producer.close()
        with odradek_transaction(broker, "shop") as next_one:
            next_one.send("orders", b"certain").get(PATIENCE_S)
        # The new one has ended the old transaction, as Kafka does.
        assert values(broker, "orders", isolation_level="read_committed") == [b"certain"]


@contextlib.contextmanager
def odradek_transaction(broker, transactional_id):
    producer = KafkaProducer(bootstrap_servers=broker.bootstrap_servers, transactional_id=transactional_id)
    producer.init_transactions()
    producer.begin_transaction()
    yield producer
    producer.commit_transaction()
    producer.close()


def test_a_transaction_goes_on_after_a_restore_to_its_middle():
    with odradek.Broker() as broker:
        create(broker, "orders")
        producer = confluent_kafka.Producer(
            {"bootstrap.servers": broker.bootstrap_servers, "transactional.id": "shop"}
        )
        producer.init_transactions(PATIENCE_S)
        producer.begin_transaction()
        producer.produce("orders", b"before")
        assert producer.flush(PATIENCE_S) == 0
        broker.restore(broker.snapshot())
        producer.produce("orders", b"after")
        producer.commit_transaction(PATIENCE_S)
        assert values(broker, "orders", isolation_level="read_committed") == [b"before", b"after"]


def test_a_consumer_of_each_client_reconnects_by_itself(in_process):
    with odradek.Broker(process=in_process) as broker:
        create(broker, "orders")
        send(broker, "orders", b"one")
        snapshot = broker.snapshot()
        python = KafkaConsumer(
            "orders", bootstrap_servers=broker.bootstrap_servers, auto_offset_reset="earliest"
        )
        c = confluent_kafka.Consumer(
            {
                "bootstrap.servers": broker.bootstrap_servers,
                "group.id": "shop",
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
            }
        )
        c.subscribe(["orders"])
        assert next_of_python(python) == next_of_c(c) == b"one"
        broker.restore(snapshot)
        send(broker, "orders", b"two")
        assert next_of_python(python) == b"two"
        # Nothing is committed: a member whose group is gone with the data begins at the first record again.
        while (value := next_of_c(c)) == b"one":
            pass
        assert value == b"two"
        python.close()
        c.close()


def next_of_python(consumer):
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        for records in consumer.poll(200, max_records=1).values():
            return records[0].value
    return None


def next_of_c(consumer):
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        message = consumer.poll(0.2)
        if message is not None and message.error() is None:
            return message.value()
    return None


def test_both_brokers_of_a_fork_go_their_own_ways(in_process):
    with odradek.Broker(process=in_process) as broker:
        create_rolling(broker, "orders", 1, 1_000)
        for number in range(5):
            send(broker, "orders", b"%d" % number * 400)
        with contextlib.closing(broker.fork()) as fork:
            assert fork.port != broker.port
            assert fork.data_dir != broker.data_dir
            common = values(broker, "orders")
            assert values(fork, "orders") == common
            send(broker, "orders", b"of the first")
            send(fork, "orders", b"of the second", b"and more")
            assert values(broker, "orders") == [*common, b"of the first"]
            assert values(fork, "orders") == [*common, b"of the second", b"and more"]
            directory = fork.data_dir
        assert not directory.exists()
        assert values(broker, "orders") == [*common, b"of the first"]


def test_a_snapshot_is_good_for_any_number_of_restores_with_the_same_bytes(in_process, tmp_path):
    with odradek.Broker(process=in_process, data_dir=tmp_path / "data") as broker:
        create_rolling(broker, "orders", 3, 2_000)
        for number in range(30):
            send(broker, "orders", os.urandom(500), partition=number % 3)
        logs = {
            name: content for name, content in partition_files(tmp_path / "data").items() if ".log" in name
        }
        snapshot = broker.snapshot()
        before = partition_files(pathlib.Path(snapshot.path))
        assert logs.items() <= before.items()
        for _ in range(3):
            broker.restore(snapshot)
            assert partition_files(tmp_path / "data") == before
            for number in range(3):
                for _ in range(5):
                    send(broker, "orders", os.urandom(500), partition=number)
            assert partition_files(tmp_path / "data") != before
        assert partition_files(pathlib.Path(snapshot.path)) == before
    # Nothing is left beside the data directory.
    assert [one.name for one in tmp_path.iterdir()] == ["data"]


def test_an_archive_is_kept_and_restored(in_process, tmp_path, capsys):
    archive = tmp_path / "orders.tar.gz"
    with odradek.Broker(process=in_process) as broker:
        create(broker, "orders")
        send(broker, "orders", b"one")
        with broker.snapshot() as snapshot:
            snapshot.save(archive)
            with pytest.raises(TestKitError, match=r"orders.tar.gz exists: no file is replaced\."):
                snapshot.save(archive)
        assert not os.path.exists(snapshot.path)
    with odradek.Broker(process=in_process, snapshot=archive, data_dir=tmp_path / "data") as broker:
        assert values(broker, "orders") == [b"one"]
        send(broker, "orders", b"two")
        broker.restore(archive)
        assert values(broker, "orders") == [b"one"]
    assert is_sound(tmp_path / "data", capsys)


def test_the_command_writes_an_archive_of_a_directory(tmp_path, capsys):
    with odradek.Broker(data_dir=tmp_path / "data") as broker:
        create(broker, "orders")
        send(broker, "orders", b"one")
        assert main(["snapshot", str(tmp_path / "data"), str(tmp_path / "running.tar.gz"), "-J"]) == 0
    assert main(["snapshot", str(tmp_path / "data"), str(tmp_path / "stopped.tar.gz"), "-J"]) == 0
    rows = [
        json.loads(line)
        for line in capsys.readouterr().out.replace("[", "").replace("]", "").splitlines()
        if line.strip()
    ]
    assert [row["running"] for row in rows] == [True, False]
    assert {row["partitions"] for row in rows} == {1}
    for name in ("running.tar.gz", "stopped.tar.gz"):
        with odradek.Broker(snapshot=tmp_path / name) as broker:
            assert values(broker, "orders") == [b"one"]
    assert main(["snapshot", str(tmp_path), str(tmp_path / "x.tar.gz")]) == 1
    assert capsys.readouterr().err.startswith(f"odradek: {tmp_path} is not a data directory")


def test_a_stopped_or_killed_broker_has_snapshots_too(tmp_path):
    with odradek.Broker(process=True, data_dir=tmp_path / "data") as broker:
        create(broker, "orders")
        send(broker, "orders", b"one")
        broker.kill()
        of_killed = broker.snapshot()
        broker.start()
        send(broker, "orders", b"two")
        broker.stop()
        of_stopped = broker.snapshot()
        broker.restore(of_killed)
        broker.start()
        assert values(broker, "orders") == [b"one"]
        broker.restore(of_stopped)
        assert values(broker, "orders") == [b"one", b"two"]
    with odradek.Broker(snapshot=tmp_path / "data") as other:
        assert values(other, "orders") == [b"one", b"two"]


def test_a_snapshot_under_load_is_a_prefix_of_each_partition(tmp_path, capsys):
    with odradek.Broker(process=True, data_dir=tmp_path / "data") as broker:
        create_rolling(broker, "orders", 4, 20_000)
        stop, acknowledged = threading.Event(), [[] for _ in range(4)]
        writer = threading.Thread(target=write_until, args=(broker, stop, acknowledged))
        writer.start()
        try:
            snapshots = []
            for _ in range(4):
                wait_for(lambda: len(acknowledged[3]) > 200 * (len(snapshots) + 1))
                before = [list(some) for some in acknowledged]
                snapshots.append((before, broker.snapshot()))
        finally:
            stop.set()
            writer.join()
        for before, snapshot in snapshots:
            broker.restore(snapshot)
            for number in range(4):
                found = values(broker, "orders", number)
                written = acknowledged[number]
                assert found[: len(before[number])] == before[number]
                assert found[: len(written)] == written[: len(found)]
                assert found == sorted(set(found))
            assert is_sound(snapshot.path, capsys)


def write_until(broker, stop, acknowledged):
    producer = KafkaProducer(
        bootstrap_servers=broker.bootstrap_servers, acks="all", enable_idempotence=True, linger_ms=1
    )
    number = 0
    while not stop.is_set():
        sent = []
        for _ in range(20):
            for partition in range(4):
                value = b"%09d" % number
                sent.append((partition, value, producer.send("orders", value, partition=partition)))
            number += 1
        for partition, value, future in sent:
            future.get(PATIENCE_S)
            acknowledged[partition].append(value)
    producer.close()


def wait_for(condition):
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_connections_are_cut_and_the_next_one_is_served(in_process):
    with odradek.Broker(process=in_process) as broker:
        snapshot = broker.snapshot()
        client = RawClient(broker.port)
        client.ask(ApiVersionsRequest(), 0)
        broker.restore(snapshot)
        with pytest.raises((EOFError, ConnectionError)):
            client.ask(ApiVersionsRequest(), 0)
        client.close()
        client = RawClient(broker.port)
        assert client.ask(ApiVersionsRequest(), 0).error_code == 0
        client.close()


def test_the_clock_is_the_systems_after_a_restore(in_process):
    with odradek.Broker(process=in_process) as broker:
        snapshot = broker.snapshot()
        broker.clock.advance(days=400)
        broker.clock.freeze()
        broker.restore(snapshot)
        before_ms = broker.clock.now_ms
        assert abs(before_ms - time.time() * 1000) < PATIENCE_S * 1000
        # Not frozen, and it can be moved again.
        while broker.clock.now_ms == before_ms:
            pass
        broker.clock.advance(days=1)
        assert abs(broker.clock.now_ms / 1000 - time.time() - 86_400) < PATIENCE_S


def test_a_restore_ends_an_advance_that_is_under_way():
    with odradek.Broker() as broker:
        snapshot = broker.snapshot()
        failures = []

        def advance():
            try:
                broker.clock.advance(days=30_000)
            except RuntimeError as error:
                failures.append(str(error))

        advancing = threading.Thread(target=advance)
        begun_ms = broker.clock.now_ms
        advancing.start()
        while broker.clock.now_ms < begun_ms + 86_400_000:
            pass
        broker.restore(snapshot)
        advancing.join(PATIENCE_S)
        assert failures == ["clock.advance: the broker has stopped, or was restored, meanwhile"]
        assert abs(broker.clock.now_ms - time.time() * 1000) < PATIENCE_S * 1000


def alter(broker, topic, name, value):
    config = AlterableConfig(name=name, config_operation=0, value=value)
    resource = AlterConfigsResource(resource_type=2, resource_name=topic, configs=[config])
    with connected(broker) as cluster:
        ask(cluster, ANY_NODE, IncrementalAlterConfigsRequest(resources=[resource]))


def is_served(broker, snapshot):
    return broker.call_kit("snapshots.is_served", {"path": snapshot.path})


def test_the_broker_knows_whether_its_data_are_still_those_of_the_newest_snapshot(in_process):
    with odradek.Broker(process=in_process) as broker:
        create(broker, "orders")
        produce_one = partial(send, broker, "orders", b"v")
        produce_one()
        older, snapshot = broker.snapshot(), broker.snapshot()
        assert not is_served(broker, older), "only of the newest one is it known"
        changes = {
            "records": produce_one,
            "a topic": lambda: create(broker, "new"),
            "an option": partial(alter, broker, "orders", "retention.ms", "1000000"),
            "a commit": lambda: commit(broker, 1),
        }
        for name, change in changes.items():
            assert is_served(broker, snapshot), f"before {name}"
            assert ends(broker, "orders") == [1]
            assert is_served(broker, snapshot), "a look changes nothing"
            change()
            assert not is_served(broker, snapshot), name
            broker.restore(snapshot)
        assert is_served(broker, snapshot)
        broker.restore(older)
        assert not is_served(broker, snapshot)
        broker.restore(snapshot)
        assert is_served(broker, snapshot)
        broker.restart()
        assert not is_served(broker, snapshot), "after a start it is not known"


def test_a_restore_that_cannot_start_leaves_the_former_data(in_process, tmp_path):
    other = odradek.Broker(data_dir=tmp_path / "other", node_id=7)
    other.start().stop()
    with odradek.Broker(process=in_process, data_dir=tmp_path / "data") as broker:
        create(broker, "orders")
        send(broker, "orders", b"one")
        with pytest.raises(TestKitError, match=r"holds data of node 7, not of node.id="):
            broker.restore(tmp_path / "other")
        assert values(broker, "orders") == [b"one"]
        assert send(broker, "orders", b"two") == 1
    assert sorted(one.name for one in tmp_path.iterdir()) == ["data", "other"]


def test_what_is_no_source_is_refused_in_a_sentence(tmp_path):
    (tmp_path / "text").write_text("no archive")
    (tmp_path / "empty").mkdir()
    with odradek.Broker(data_dir=tmp_path / "data") as broker, odradek.Broker() as other:
        with pytest.raises(TestKitError, match="text is not an archive of a data directory"):
            broker.restore(tmp_path / "text")
        with pytest.raises(TestKitError, match="empty: it is not a data directory"):
            broker.restore(tmp_path / "empty")
        with pytest.raises(TestKitError, match="No such file"):
            broker.restore(tmp_path / "missing")
        with pytest.raises(TestKitError, match=f"a broker serves {other.data_dir}: take a snapshot of it"):
            broker.restore(other.data_dir)
        with pytest.raises(TestKitError, match="has data: name a new directory"):
            odradek.Broker(snapshot=broker.snapshot(), data_dir=tmp_path / "data")


def test_workers_and_several_directories_are_refused(tmp_path):
    workers = odradek.Broker(workers=2)
    for refused in (workers.snapshot, workers.fork, lambda: workers.restore(tmp_path)):
        with pytest.raises(TestKitError, match="for a broker of one process, and this one has workers"):
            refused()
    workers.close()
    options = {"log.dirs": f"{tmp_path}/one,{tmp_path}/two"}
    with (
        odradek.Broker(data_dir=tmp_path / "one", options=options) as broker,
        pytest.raises(TestKitError, match="with one data directory, and this one has several"),
    ):
        broker.snapshot()


def test_a_node_of_a_cluster_is_refused(tmp_path):
    port = free_port()
    node_options = {1: {"odradek.test.api.listen": f"127.0.0.1:{port}"}}
    with odradek.Cluster(nodes=1, data_dir=tmp_path, node_options=node_options) as cluster:
        with pytest.raises(urllib.error.HTTPError) as refused:
            call_http(port, "POST", "", {})
        sentence = "snapshots are for a broker alone, and this one is a node of a cluster"
        # The program's own socket is open beside the address of the test.
        with pytest.raises(TestKitError, match=sentence):
            cluster.nodes[0].call_kit("snapshots.add", {})
        assert json.loads(refused.value.read()) == {"error": sentence}


def test_a_kill_in_the_middle_of_a_restore_leaves_data_that_start(tmp_path):
    with odradek.Broker(process=True, data_dir=tmp_path / "data") as broker:
        with connected(broker) as cluster:
            create_topic(cluster, 20, "orders")
        send(broker, "orders", b"one")
        snapshot = broker.snapshot()
        for milliseconds in range(0, 40, 5):
            send(broker, "orders", b"two")
            restoring = threading.Thread(target=restore_if_it_lives, args=(broker, snapshot))
            restoring.start()
            restoring.join(milliseconds / 1000)
            broker.kill()
            restoring.join()
            broker.start()
            assert values(broker, "orders") in ([b"one"], [b"one", b"two"])
            broker.restore(snapshot)
    assert [one.name for one in tmp_path.iterdir()] == ["data"]


def restore_if_it_lives(broker, snapshot):
    with contextlib.suppress(OSError, http.client.HTTPException, RuntimeError):
        broker.restore(snapshot)


def test_a_snapshot_of_a_broker_in_asyncio():
    async def story():
        async with odradek.AsyncBroker() as broker:
            await asyncio.to_thread(create, broker, "orders")
            await asyncio.to_thread(send, broker, "orders", b"one")
            snapshot = await broker.snapshot()
            await asyncio.to_thread(send, broker, "orders", b"two")
            await broker.restore(snapshot)
            return await asyncio.to_thread(ends, broker, "orders")

    assert asyncio.run(story()) == [1]


def test_partitions_that_nobody_has_opened_are_in_a_snapshot(tmp_path, capsys):
    with odradek.Broker(data_dir=tmp_path / "data") as broker:
        create_rolling(broker, "orders", 2, 1_000)
        for number in range(6):
            send(broker, "orders", b"%d" % number * 400)
    with odradek.Broker(data_dir=tmp_path / "data") as broker:
        snapshot = broker.snapshot()
        before = values(broker, "orders")
        send(broker, "orders", b"since")
        assert is_sound(snapshot.path, capsys)
        broker.restore(snapshot)
        assert values(broker, "orders") == before
        assert len(before) == 6


def test_a_snapshot_goes_with_whoever_has_it(tmp_path):
    broker = odradek.Broker(data_dir=tmp_path / "data").start()
    first, second, third = broker.snapshot(), broker.snapshot(), broker.snapshot()
    path = first.path
    del first
    assert not os.path.exists(path)
    second.close()
    assert not os.path.exists(second.path)
    assert os.path.exists(third.path)
    broker.restart()
    broker.restore(third)
    broker.close()
    assert [one.name for one in tmp_path.iterdir()] == ["data"]


def call_http(port, method, path, body=None):
    request = urllib.request.Request(
        f"http://127.0.0.1:{port}/admin/snapshots{path}",
        None if body is None else json.dumps(body).encode(),
        {"Content-Type": "application/json"},
        method=method,
    )
    with urllib.request.urlopen(request, timeout=PATIENCE_S) as response:
        return json.loads(response.read())


def test_other_languages_take_and_restore_over_http(tmp_path):
    port = free_port()
    options = {"odradek.test.api.listen": f"127.0.0.1:{port}"}
    with odradek.Broker(data_dir=tmp_path / "data", options=options) as broker:
        call = partial(call_http, port)
        create(broker, "orders")
        taken = call("POST", "", {})
        assert call("GET", "") == [taken]
        call("POST", "/save", {"id": taken["id"], "file": str(tmp_path / "kept.tar.gz")})
        for source in ({"id": taken["id"]}, {"path": str(tmp_path / "kept.tar.gz")}):
            send(broker, "orders", b"one")
            call("POST", "/restore", source)
            assert ends(broker, "orders") == [0]
        call("DELETE", f"/{taken['id']}")
        assert not os.path.exists(taken["path"])
        with pytest.raises(urllib.error.HTTPError) as refused:
            call("POST", "/restore", {"id": taken["id"]})
        assert json.loads(refused.value.read()) == {"error": "there is no snapshot '1'; there are none"}
