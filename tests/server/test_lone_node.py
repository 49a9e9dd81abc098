"""A node alone becomes several workers and is alone again: what is kept, what a kill leaves, what is
refused."""

import asyncio
import contextlib
import os
import shutil
import signal
import traceback
from types import SimpleNamespace

import pytest
from confluent_kafka import Consumer, Producer, TopicCollection, TopicPartition
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ConfigResource,
    NewTopic,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

import odradek
from odradek.config.broker_config import load
from odradek.config.config_error import ConfigError
from odradek.config.workers import directory_of
from odradek.coordinator.cluster.topics import NewTopic as NewTopicOfMachine
from odradek.coordinator.cluster.view import Broker
from odradek.coordinator.controller.machine import Controller
from odradek.coordinator.controller.records import broker_record, feature_records
from odradek.server.broker import BrokerServer
from odradek.server.metadata import meta_properties
from odradek.server.metadata.metadata_log_start import loaded_controller, open_own_log
from odradek.server.node import Node
from odradek.server.reconfiguration import live_config
from odradek.server.workers.directories import own_directories, property_of
from odradek.server.workers.lone_node import become_first_worker, become_lone
from odradek.server.workers.resizing import JOURNAL, Resizing, make_directories
from odradek.storage import checkpoints
from odradek.storage.directories.store import LogStore
from odradek.storage.disk import OsDisk
from odradek.wire.messages.metadata_records import AccessControlEntryRecord
from odradek.wire.schema import uuid_from_text
from odradek.wire.work import finish
from tests.kit.data_directories import NOW_MS, controller_of, fill
from tests.server.scrape import until
from tests.server.test_workers import PARTITIONS, consume, leaders, make_topic, numbered, produce, status_of
from tests.server.workers import Workers

PATIENCE_S = 60
CLUSTER_ID = "AAAAAAAAAAAAAAAAAAAAAA"
WITH_ACLS = (
    *("--set", "authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer"),
    *("--set", "super.users=User:ANONYMOUS", "--set", "offsets.topic.num.partitions=5"),
)


@pytest.fixture
def start(tmp_path):
    """Starts a node alone (1) or a broker with so many workers; all end with the test."""
    with contextlib.ExitStack() as ending:

        def start(count, *arguments):
            workers = Workers(tmp_path, count, *arguments)
            ending.callback(workers.stop)
            return workers.start()

        yield start


def inodes(folder):
    """Inodes of the directories of partitions, by their names."""
    found = [one for one in folder.glob("*/*-*/") if one.name[0] != "_" and not one.name.endswith("-delete")]
    return {one.name: one.stat().st_ino for one in found}


# With processes and clients


def test_a_node_alone_becomes_three_workers_and_is_alone_again_with_all_that_it_had(start, tmp_path):
    alone = start(1, *WITH_ACLS)
    servers = alone.bootstrap_servers
    make_topic(servers, "t")
    admin = AdminClient({"bootstrap.servers": servers})
    configs = {"cleanup.policy": "compact", "retention.ms": "7654321"}
    for name in ("kept", "gone"):
        admin.create_topics([NewTopic(name, PARTITIONS, 1, config=configs)])[name].result(PATIENCE_S)
    admin.delete_topics(["gone"])["gone"].result(PATIENCE_S)
    change_security(admin)
    produce(servers, "t", numbered(0, 60))
    assert consume(servers, "t", 60, "g") == numbered(0, 60)
    in_transactions(servers, numbered(60, 6), numbered(900, 6))
    keyed(servers, b"before")
    cut = [TopicPartition("t", index, 2) for index in range(PARTITIONS)]
    for future in admin.delete_records(cut).values():
        assert future.result(PATIENCE_S).low_watermark == 2
    known = facts(admin)
    assert alone.end() == 0
    before = inodes(tmp_path)

    workers = start(3, *WITH_ACLS)
    assert "took the directories of a node alone over" in workers.said()
    servers = workers.bootstrap_servers
    assert sorted(leaders(servers, "t")) == [1, 1, 2, 2, 3, 3]
    assert inodes(tmp_path) == before  # renamed, not copied
    assert facts(AdminClient({"bootstrap.servers": servers})) == known
    assert consume(servers, "t", 54) == numbered(12, 54)
    assert consume(servers, "t", 6, "g") == numbered(60, 6)
    assert keys(servers) == {b"before": b"6"}
    keyed(servers, b"between")
    # The producer of the transactions is known, and goes on.
    in_transactions(servers, numbered(66, 6), numbered(906, 6))
    produce(servers, "t", numbered(72, 6))
    assert workers.end() == 0

    alone = start(1, *WITH_ACLS)
    assert "took the directories of a broker with workers over" in alone.said()
    servers = alone.bootstrap_servers
    assert leaders(servers, "t") == [1] * PARTITIONS
    assert inodes(tmp_path) == before
    assert not list(tmp_path.glob("data.w*/*-*/"))
    assert facts(AdminClient({"bootstrap.servers": servers})) == known
    assert consume(servers, "t", 66) == numbered(12, 66)
    assert consume(servers, "t", 12, "g") == numbered(66, 12)
    assert keys(servers) == {b"before": b"6", b"between": b"6"}
    in_transactions(servers, numbered(78, 6), numbered(912, 6))
    assert consume(servers, "t", 72) == numbered(12, 72)
    brokers = AdminClient({"bootstrap.servers": servers}).list_topics(timeout=PATIENCE_S).brokers
    assert list(brokers) == [1]
    assert alone.end() == 0

    again = start(1, *WITH_ACLS)
    assert "with workers" not in again.said()
    assert consume(again.bootstrap_servers, "t", 72) == numbered(12, 72)


def change_security(admin):
    acl = AclBinding(
        *(ResourceType.TOPIC, "t", ResourcePatternType.LITERAL, "User:ann", "*"),
        *(AclOperation.READ, AclPermissionType.ALLOW),
    )
    admin.create_acls([acl])[acl].result(PATIENCE_S)
    login = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 4096)
    user = UserScramCredentialUpsertion("ann", login, b"secret")
    admin.alter_user_scram_credentials([user])["ann"].result(PATIENCE_S)


def facts(admin):
    """Topics with their ids, configs, ACLs and users."""
    names = sorted(name for name in admin.list_topics(timeout=PATIENCE_S).topics if name[0] != "_")
    described = admin.describe_topics(TopicCollection(names))
    kept = ConfigResource(ConfigResource.Type.TOPIC, "kept")
    configs = admin.describe_configs([kept])[kept].result(PATIENCE_S)
    anything = AclBindingFilter(
        *(ResourceType.ANY, None, ResourcePatternType.ANY, None, None),
        *(AclOperation.ANY, AclPermissionType.ANY),
    )
    acls = admin.describe_acls(anything).result(PATIENCE_S)
    users = admin.describe_user_scram_credentials(["ann"])["ann"].result(PATIENCE_S)
    found = (
        {name: str(one.result(PATIENCE_S).topic_id) for name, one in described.items()},
        {name: configs[name].value for name in ("cleanup.policy", "retention.ms")},
        [(one.name, one.principal) for one in acls],
        [one.mechanism for one in users.scram_credential_infos],
    )
    assert all(found)
    return found


def in_transactions(servers, committed, aborted):
    producer = Producer({"bootstrap.servers": servers, "transactional.id": "x"})
    producer.init_transactions(PATIENCE_S)
    for is_committed, values in ((False, aborted), (True, committed)):
        producer.begin_transaction()
        for number, value in enumerate(values):
            producer.produce("t", value, partition=number % PARTITIONS)
        producer.flush(PATIENCE_S)
        producer.commit_transaction(PATIENCE_S) if is_committed else producer.abort_transaction(PATIENCE_S)


def keyed(servers, key):
    producer = Producer({"bootstrap.servers": servers})
    for number in range(1, 7):
        producer.produce("kept", b"%d" % number, key)
    assert producer.flush(PATIENCE_S) == 0


def keys(servers):
    """The newest value of each key of `kept`."""
    options = {"bootstrap.servers": servers, "group.id": "unused", "enable.partition.eof": True}
    consumer = Consumer({**options, "auto.offset.reset": "earliest"})
    consumer.assign([TopicPartition("kept", index, 0) for index in range(PARTITIONS)])
    found, ended = {}, 0
    while ended < PARTITIONS:
        record = consumer.poll(PATIENCE_S)
        assert record is not None
        if record.error():
            ended += 1
        else:
            found[record.key()] = record.value()
    consumer.close()
    return found


def test_what_a_killed_node_alone_had_is_recovered_and_shared(start):
    alone = start(1)
    make_topic(alone.bootstrap_servers, "t")
    produce(alone.bootstrap_servers, "t", numbered(0, 60))
    alone.process.kill()
    alone.process.wait()
    workers = start(3)
    assert "after an unclean stop" in workers.said()
    assert sorted(leaders(workers.bootstrap_servers, "t")) == [1, 1, 2, 2, 3, 3]
    assert consume(workers.bootstrap_servers, "t", 60) == numbered(0, 60)


def test_after_a_kill_of_workers_a_node_alone_is_refused_until_they_have_recovered(start, tmp_path):
    workers = start(3)
    make_topic(workers.bootstrap_servers, "t")
    produce(workers.bootstrap_servers, "t", numbered(0, 60))
    kill_all(workers)
    before = sorted(tmp_path.glob("data*/*-*"))
    status, sentence = status_of(Workers(tmp_path, 1))
    assert status == 1
    assert ".w" in sentence
    assert "was not stopped cleanly, and odradek.workers=1 leave it out: start " in sentence
    assert sorted(tmp_path.glob("data*/*-*")) == before
    assert start(3).end() == 0
    assert consume(start(1).bootstrap_servers, "t", 60) == numbered(0, 60)


def kill_all(workers):
    for pid in (workers.process.pid, *workers.pids.values()):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    workers.process.wait()
    until(workers.left, lambda left: not left)


def test_workers_that_are_killed_while_they_take_over_lose_nothing(start, tmp_path):
    alone = start(1)
    make_topic(alone.bootstrap_servers, "t")
    produce(alone.bootstrap_servers, "t", numbered(0, 60))
    assert alone.end() == 0
    workers = Workers(tmp_path, 3).begin()
    until(workers.said, lambda said: "partitions from worker to worker" in said)
    kill_all(workers)
    again = start(2)
    assert consume(again.bootstrap_servers, "t", 60) == numbered(0, 60)


@pytest.mark.parametrize("metadata", ["apart", "b"])
def test_several_directories_and_one_for_the_metadata_are_taken_over_both_ways(start, tmp_path, metadata):
    places = (
        *("--set", f"log.dirs={tmp_path}/a,{tmp_path}/b"),
        *("--set", f"metadata.log.dir={tmp_path}/{metadata}"),
    )
    alone = start(1, *places)
    make_topic(alone.bootstrap_servers, "t")
    produce(alone.bootstrap_servers, "t", numbered(0, 60))
    assert alone.end() == 0
    before = inodes(tmp_path)

    workers = start(2, *places)
    assert sorted(leaders(workers.bootstrap_servers, "t")) == [1, 1, 1, 2, 2, 2]
    assert consume(workers.bootstrap_servers, "t", 60) == numbered(0, 60)
    assert workers.end() == 0
    assert {one for one in "ab" if list(tmp_path.glob(f"{one}.w1/t-*/"))} == {"a", "b"}

    alone = start(1, *places)
    assert consume(alone.bootstrap_servers, "t", 60) == numbered(0, 60)
    assert inodes(tmp_path) == before
    assert alone.end() == 0


# A kill at each step


@pytest.fixture(scope="module")
def lone(tmp_path_factory):
    """A directory of a node alone with five partitions, cleanly stopped."""
    data = str(tmp_path_factory.mktemp("lone") / "data")
    with controller_of(data, cluster_id=CLUSTER_ID) as controller:
        controller.create_topics([NewTopicOfMachine("orders", 5, 1)])
    store = LogStore(OsDisk(), [data])
    store.open(NOW_MS)
    fill(store, partitions=5)
    store.close(NOW_MS)
    return data


@pytest.fixture(scope="module")
def shared(lone, tmp_path_factory):
    """The same as three workers leave it."""
    data = copy(lone, tmp_path_factory.mktemp("shared"))
    convert(data, 3)
    return data


def copy(data, folder):
    for index in range(5):
        if os.path.isdir(directory_of(data, index)):
            shutil.copytree(directory_of(data, index), directory_of(f"{folder}/data", index))
    return f"{folder}/data"


def configuration(data, **keywords):
    return load(listen="127.0.0.1:0", data_dir=data, keywords=keywords)


@contextlib.contextmanager
def machine(data):
    """The controller over the metadata log of a directory, marked or not."""
    config = configuration(data)
    ids = {path: property_of(path, "directory.id") for path in own_directories(config)}
    identity = meta_properties.Identity(CLUSTER_ID, 1, ids)
    log = open_own_log(config, identity, [data], data, now_ms=lambda: NOW_MS)
    try:
        yield loaded_controller(Controller, config, log, CLUSTER_ID, live_config(config))
    finally:
        log.close()


def add(controller, records):
    def edit(draft):
        draft.add_records(records)
        return
        yield None

    finish(controller.changing(edit))


def convert(data, count):
    """Does what a start with so many workers does before one of them serves; and registers them."""
    if count == 1:
        if meta_properties.is_member(data):
            become_lone(Node(config=configuration(data)))
        return
    become_first_worker(configuration(data))
    node_ids = list(range(1, count + 1))
    make_directories([data], node_ids)
    with machine(data) as controller:
        Resizing([data], node_ids).take_over(controller)
        level = controller.metadata_version
        new = [
            Broker(node_id, {}, directories=(id_of(directory_of(data, node_id - 1)),))
            for node_id in node_ids
            if node_id not in controller.view.registrations
        ]
        add(controller, [broker_record(one, level) for one in new])


def id_of(directory):
    return uuid_from_text(property_of(directory, "directory.id"))


def killed_at(step, act):
    """`act` in a process that is killed at that change of the disk; whether it ended before."""
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            left = iter(range(step))
            for name in ("rename", "replace", "remove", "unlink", "mkdir", "fsync", "fdatasync", "pwritev"):
                setattr(os, name, dying(getattr(os, name), left))
            act()
            status = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(status)
    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    assert status in (0, -signal.SIGKILL)
    return status == 0


def dying(real, left):
    def call(*arguments, **keywords):
        if next(left, None) is None:
            os.kill(os.getpid(), signal.SIGKILL)
        return real(*arguments, **keywords)

    return call


def assert_whole(data, count):
    """Each partition is in one place, with all of its records, and the metadata say where."""
    assert not os.path.exists(f"{data}/{JOURNAL}")
    assert meta_properties.is_member(data) is (count > 1)
    found = {}
    for index in range(5):
        directory = directory_of(data, index)
        if not os.path.isdir(directory):
            continue
        store = LogStore(OsDisk(), [directory])
        store.open(NOW_MS)
        for partition in store.partitions():
            assert partition.log_end_offset == 5
            found[partition.name] = (*found.get(partition.name, ()), index + 1)
        store.close(NOW_MS)
    with machine(data) as controller:
        told = {f"orders-{one.index}": one.replicas for one in controller.view.topics["orders"].partitions}
        directories = [one.directories for one in controller.view.topics["orders"].partitions]
        assert max(controller.view.registrations) <= count
    assert found == told
    assert len(told) == 5
    assert {node for nodes in told.values() for node in nodes} <= set(range(1, count + 1))
    assert directories == [(id_of(directory_of(data, nodes[0] - 1)),) for nodes in told.values()]


@pytest.mark.parametrize("to", [3, 1], ids=["to_workers", "to_a_node_alone"])
def test_a_kill_at_any_change_of_the_disk_is_finished_by_the_next_start(lone, shared, tmp_path, to):
    """Whatever number of workers that has: one after the other."""
    template = lone if to == 3 else shared
    step, is_done = 0, False
    while not is_done:
        folder = tmp_path / str(step)
        folder.mkdir()
        data = copy(template, folder)
        is_done = killed_at(step, lambda data=data: convert(data, to))
        following = to if is_done else (1, 2, 3, 4)[step % 4]
        convert(data, following)
        assert_whole(data, following)
        shutil.rmtree(folder)
        step += 1
    assert step > 30


def test_marks_that_a_kill_has_set_or_removed_in_part_are_of_no_consequence(tmp_path):
    """The first of log.dirs has the mark before all others and after all others."""
    more = {"log_dirs": f"{tmp_path}/a,{tmp_path}/b", "metadata_log_dir": f"{tmp_path}/metadata"}
    config = load(listen="127.0.0.1:0", keywords=more)
    asyncio.run(started_and_stopped(config))
    directories = own_directories(config)
    assert [os.path.basename(one) for one in directories] == ["a", "b", "metadata"]
    for marked in range(1, 4):
        for count in (1, 2):
            for number, path in enumerate(directories):
                ids = (property_of(path, "cluster.id"), 1, property_of(path, "directory.id"))
                meta_properties.write(path, *ids, for_member=number < marked)
            become_lone(Node(config=config)) if count == 1 else become_first_worker(config)
            assert [meta_properties.is_member(one) for one in directories] == [count > 1] * 3
    become_lone(Node(config=config))
    asyncio.run(started_and_stopped(config))


async def started_and_stopped(config):
    server = BrokerServer(config)
    await server.start()
    await server.stop()


# What is refused


def state_of(data):
    """All names below the directories, and the marks. Not the metadata log: a look begins an epoch in it."""
    found = {}
    for index in range(5):
        directory = directory_of(data, index)
        for folder, _, names in os.walk(directory):
            if not folder.endswith("__cluster_metadata-0"):
                found[folder] = sorted(name for name in names if name != checkpoints.LOCK)
        if os.path.isdir(directory):
            found[f"{directory} is marked"] = meta_properties.is_member(directory)
    return found


def assert_refused(data, sentence, count, **keywords):
    """Refused by a start with so many workers, which changes nothing."""
    before = state_of(data)
    config = configuration(data, **keywords)
    with pytest.raises(ConfigError, match=sentence):
        become_lone(Node(config=config)) if count == 1 else become_first_worker(config)
    assert state_of(data) == before


def test_metadata_of_an_earlier_version_are_taken_over_by_a_node_alone_first(lone, tmp_path):
    data = copy(lone, tmp_path)
    open(f"{data}/{meta_properties.OLD_STORE}", "x").close()
    assert_refused(data, "start once without odradek.workers, which takes them over", 2)


def test_directories_that_are_in_use_are_refused(start, tmp_path):
    alone = start(1)
    status, sentence = status_of(Workers(tmp_path, 2))
    assert (status, "is in use by another broker" in sentence) == (1, True)
    assert not meta_properties.is_member(str(tmp_path / "data"))
    assert not (tmp_path / "data.w1").exists()
    alone.process.terminate()
    assert alone.process.wait(PATIENCE_S) == 0
    workers = start(2)
    status, sentence = status_of(Workers(tmp_path, 1))
    assert (status, "is in use by another broker" in sentence) == (1, True)
    assert meta_properties.is_member(str(tmp_path / "data"))
    workers.process.terminate()
    assert workers.process.wait(PATIENCE_S) == 0


def test_a_left_worker_that_still_runs_is_refused(shared, tmp_path):
    data = copy(shared, tmp_path)
    held = OsDisk().lock(f"{data}.w2/{checkpoints.LOCK}")
    assert_refused(data, "data.w2 is in use by another process, and is to be left out", 1)
    held.release()
    convert(data, 1)
    assert_whole(data, 1)


def test_a_killed_worker_is_refused(shared, tmp_path):
    data = copy(shared, tmp_path)
    os.remove(f"{data}.w1/{checkpoints.CLEAN_SHUTDOWN}")
    assert_refused(data, "data.w1 was not stopped cleanly, and odradek.workers=1 leave it out", 1)


def test_another_disk_is_refused(shared, tmp_path, monkeypatch):
    data, real = copy(shared, tmp_path), os.stat
    before = state_of(data)

    def stat(path):
        found = real(path)
        return SimpleNamespace(st_dev=7, st_mode=found.st_mode) if path == f"{data}.w1" else found

    with monkeypatch.context() as patched, machine(data) as controller:
        patched.setattr("odradek.server.workers.resizing.os.stat", stat)
        with pytest.raises(ConfigError, match="which is on another disk"):
            Resizing([data], [1]).take_over(controller)
    assert state_of(data) == before
    convert(data, 1)
    assert_whole(data, 1)


def test_a_damaged_checkpoint_is_refused_before_anything_is_renamed(shared, tmp_path):
    data = copy(shared, tmp_path)
    with open(f"{data}.w2/{checkpoints.RECOVERY_POINTS}", "wb") as file:
        file.write(b"damaged")
    assert_refused(data, f"data.w2/{checkpoints.RECOVERY_POINTS} is damaged", 1)


def test_partitions_with_more_replicas_are_refused(start, tmp_path):
    workers = start(2)
    make_topic(workers.bootstrap_servers, "t", replicas=2)
    assert workers.end() == 0
    before = state_of(str(tmp_path / "data"))
    status, sentence = status_of(Workers(tmp_path, 1))
    assert status == 1
    assert "and odradek.workers=1 leave node 2 out: start 2 workers, and move it first" in sentence
    assert state_of(str(tmp_path / "data")) == before


@pytest.mark.parametrize(
    ("cluster_id", "node_id", "is_member"),
    [("BBBBBBBBBBBBBBBBBBBBBB", 2, True), (CLUSTER_ID, 3, True), (CLUSTER_ID, 2, False)],
)
def test_a_directory_of_others_in_the_place_of_a_workers_is_refused(
    lone, tmp_path, cluster_id, node_id, is_member
):
    data = copy(lone, tmp_path)
    os.makedirs(f"{data}.w1")
    new_id = meta_properties.new_id(os.urandom)
    meta_properties.write(f"{data}.w1", cluster_id, node_id, new_id, for_member=is_member)
    before = state_of(data)
    status, sentence = status_of(Workers(tmp_path, 2))
    assert status == 1
    assert f"{data}.w1 is that of worker 1, and holds data of node {node_id} of cluster" in sentence
    assert state_of(data) == before


def test_brokers_of_another_time_are_refused(lone, tmp_path):
    data = copy(lone, tmp_path)
    with machine(data) as controller:
        add(controller, [broker_record(Broker(2, {}, directories=(b"d" * 16,)), controller.metadata_version)])
    assert_refused(data, r"know brokers of another time \(1, 2\), whose ids workers may get", 2)


def test_acls_that_workers_would_not_enforce_are_refused(lone, tmp_path):
    data = copy(lone, tmp_path)
    acl = AccessControlEntryRecord(
        id=b"a" * 16,
        resource_type=2,
        resource_name="orders",
        pattern_type=3,
        principal="User:ann",
        host="*",
        operation=3,
        permission_type=3,
    )
    with machine(data) as controller:
        add(controller, [acl])
    assert_refused(data, "has ACLs, and this node does not enforce them", 2)


def test_levels_that_workers_do_not_serve_are_refused(tmp_path):
    data = str(tmp_path / "data")
    with odradek.Broker(data_dir=data) as broker:
        assert broker.is_running
    with machine(data) as controller:
        add(controller, feature_records({"metadata.version": 20}))
    assert_refused(data, "has finalized metadata.version=20, .* before it is started with odradek.workers", 2)


def test_a_new_directory_is_refused_in_the_same_start(lone, shared, tmp_path):
    for name, template, count in (("lone", lone, 2), ("shared", shared, 1)):
        folder = tmp_path / name
        folder.mkdir()
        data = copy(template, folder)
        more = {"log_dirs": f"{data},{folder}/more"}
        assert_refused(data, "more of log.dirs has no meta.properties", count, **more)


def test_another_cluster_is_refused(lone, shared, tmp_path):
    for name, template, count in (("lone", lone, 2), ("shared", shared, 1)):
        folder = tmp_path / name
        folder.mkdir()
        data = copy(template, folder)
        before, config = state_of(data), load(data_dir=data, cluster_id="BBBBBBBBBBBBBBBBBBBBBB")
        with pytest.raises(ConfigError, match=f"is of cluster {CLUSTER_ID}, not of BBBB"):
            become_lone(Node(config=config)) if count == 1 else become_first_worker(config)
        assert state_of(data) == before


def test_metadata_elsewhere_have_to_be_named(shared, tmp_path):
    data = copy(shared, tmp_path)
    elsewhere = {"metadata_log_dir": str(tmp_path / "elsewhere")}
    assert_refused(data, "name their directory in metadata.log.dir", 1, **elsewhere)


def test_the_directory_of_a_controller_of_other_nodes_is_refused(tmp_path):
    data = str(tmp_path / "data")
    os.makedirs(data)
    meta_properties.write(data, CLUSTER_ID, 1, meta_properties.new_id(os.urandom), for_member=True)
    with machine(data) as controller:
        add(controller, [broker_record(Broker(2, {}, directories=(b"d" * 16,)), controller.metadata_version)])
    assert_refused(data, "has the log of a controller, whose brokers have other directories", 1)


def test_the_directory_of_a_node_of_a_cluster_is_refused_as_such(tmp_path):
    data = str(tmp_path / "data")
    os.makedirs(data)
    meta_properties.write(data, CLUSTER_ID, 1, meta_properties.new_id(os.urandom), for_member=True)
    with pytest.raises(odradek.BrokerStartError, match="belongs to a node of a cluster"):
        odradek.Broker(data_dir=data).start()
    assert os.listdir(data) == [meta_properties.FILE_NAME]


def test_a_usual_start_of_a_node_alone_looks_for_no_workers(tmp_path, monkeypatch):
    asked = []
    monkeypatch.setattr("odradek.server.broker._take_workers_over", asked.append)
    monkeypatch.setattr("odradek.config.workers.directory_of", lambda *_: asked.append(_))
    with odradek.Broker(data_dir=tmp_path / "data") as broker:
        broker.restart()
        assert broker.is_running
    assert not asked
