"""Nothing is changed in place in a closed file: hard links of a snapshot keep their content, whatever the
brokers on both sides of them do."""

import hashlib
import os
import time
from pathlib import Path

import pytest
from kafka import KafkaProducer

import odradek
from odradek.client.cluster import ANY_NODE, Cluster
from odradek.client.settings import ClientSettings
from odradek.storage.log.still import closed_names
from odradek.wire.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from tests.client.topics import ask, delete_records, delete_topic, produce

PATIENCE_S = 60.0
SEGMENT_BYTES = 3_000
METADATA = "__cluster_metadata-0"


def create(broker, topic, **configs):
    named = {name.replace("_", "."): str(value) for name, value in configs.items()}
    wanted = CreatableTopic(
        name=topic,
        num_partitions=1,
        replication_factor=1,
        assignments=[],
        configs=[CreatableTopicConfig(name=name, value=value) for name, value in named.items()],
    )
    with connected(broker) as cluster:
        ask(cluster, ANY_NODE, CreateTopicsRequest(topics=[wanted]))


def connected(broker):
    return Cluster(ClientSettings(broker.bootstrap_servers))


def fill(broker, topics):
    """Some segments of each topic, with few keys, and aborted transactions among the records."""
    producer = KafkaProducer(
        bootstrap_servers=broker.bootstrap_servers,
        transactional_id="shop",
        max_request_size=1_000,
        linger_ms=0,
    )
    producer.init_transactions()
    for number in range(30):
        producer.begin_transaction()
        for topic in topics:
            producer.send(topic, b"v" * 300, key=b"%d" % (number % 3))
        producer.flush()
        (producer.abort_transaction if number % 4 == 0 else producer.commit_transaction)()
    producer.close()


def contents(directory):
    """Hash and inode of each file in the folders of partitions, by its path."""
    return {
        f"{folder.name}/{file.name}": (hashlib.sha256(file.read_bytes()).hexdigest(), file.stat().st_ino)
        for folder in directory.iterdir()
        if folder.is_dir()
        for file in folder.iterdir()
    }


def closed(directory):
    """Hashes by (path, inode) of all files that nothing may change any more."""
    found = {}
    for folder in directory.iterdir():
        if folder.is_dir() and folder.name != METADATA:
            found.update(closed_in(folder))
    return found


def closed_in(folder):
    """Those of one folder, which the broker goes on to change: a file may go while it is looked at."""
    while True:
        try:
            names = closed_names(os.listdir(folder), lambda name: (folder / name).stat().st_size)
            return {
                (f"{folder.name}/{name}", (folder / name).stat().st_ino): hashlib.sha256(
                    (folder / name).read_bytes()
                ).hexdigest()
                for name in names
            }
        except FileNotFoundError:
            if not folder.exists():
                return {}


class Life:
    """The life of a data directory, and of snapshots of it, with a look after each event."""

    def __init__(self, directory):
        self.directory = directory
        self.seen = {}
        self.snapshots = {}

    def look(self):
        now = closed(self.directory)
        changed = [name for name in now.keys() & self.seen.keys() if now[name] != self.seen[name]]
        assert not changed, "changed in place"
        self.seen.update(now)
        for snapshot, before in self.snapshots.items():
            assert contents(Path(snapshot.path)) == before

    def take(self, broker):
        snapshot = broker.snapshot()
        self.snapshots[snapshot] = contents(Path(snapshot.path))
        return snapshot


def wait_for(condition):
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def logs(directory, topic):
    return {(file.name, file.stat().st_ino) for file in (directory / f"{topic}-0").glob("*.log")}


@pytest.mark.parametrize("preallocate", [False, True])
def test_links_keep_their_content_through_all_that_a_broker_does(tmp_path, preallocate):
    directory = tmp_path / "data"
    life = Life(directory)
    options = {
        "log.preallocate": preallocate,
        "log.retention.check.interval.ms": 100,
        "log.initial.task.delay.ms": 0,
        "log.cleaner.backoff.ms": 100,
        "log.segment.delete.delay.ms": 0,
        "log.flush.offset.checkpoint.interval.ms": 100,
        "transaction.state.log.num.partitions": 1,
    }
    small = {"internal.segment.bytes": SEGMENT_BYTES}
    with odradek.Broker(process=True, data_dir=directory, options=options) as broker:
        create(broker, "kept", **small)
        create(broker, "trimmed", **small)
        create(broker, "deleted", **small)
        fill(broker, ["kept", "trimmed", "deleted"])
        life.look()
        first = life.take(broker)
        shared = [one for one in (directory / "kept-0").glob("*.log") if one.stat().st_nlink > 1]
        assert len(shared) == len(logs(directory, "kept")) - 1 > 2
        # Appends, and new segments.
        fill(broker, ["kept"])
        life.look()
        # Compaction replaces segments.
        create(broker, "compacted", cleanup_policy="compact", min_cleanable_dirty_ratio=0.01, **small)
        fill(broker, ["compacted"])
        second = life.take(broker)
        before = logs(directory, "compacted")
        fill(broker, ["compacted"])
        wait_for(lambda: not before <= logs(directory, "compacted"))
        life.look()
        # Retention and deletion remove them.
        with connected(broker) as cluster:
            delete_records(cluster, "trimmed", 0, 20)
            delete_topic(cluster, "deleted")
        wait_for(lambda: not (directory / "deleted-0").exists())
        life.look()
        # A kill, and the recovery after it.
        for _ in range(2):
            fill(broker, ["kept", "compacted"])
            life.look()
            life.take(broker)
            broker.kill()
            broker.start()
            fill(broker, ["kept"])
            life.look()
        # A clean stop, and a start after it.
        broker.restart()
        fill(broker, ["kept", "compacted"])
        life.look()
        # A restore, and the same in what it has made of the links.
        for snapshot in (first, second, first):
            broker.restore(snapshot)
            life.look()
            fill(broker, ["kept"])
            broker.kill()
            broker.start()
            fill(broker, ["kept"])
            life.look()
            broker.restart()
            fill(broker, ["kept"])
            life.look()
        produced = produced_to_end(broker)
        life.look()
        assert produced


def produced_to_end(broker):
    with connected(broker) as cluster:
        return produce(cluster, "kept", 0, [b"last"])
