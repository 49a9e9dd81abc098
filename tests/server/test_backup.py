"""`odradek backup`: what is restored is what there was, also while a broker runs and is written to."""

import io
import json
import stat
import tarfile
import threading

import pytest

import odradek
from odradek.client.cluster import LATEST, Cluster
from odradek.client.settings import ClientSettings
from odradek.commands.main import main
from odradek.server.metadata.directory_archive import CannotBackUp, back_up, back_up_to
from tests.client.topics import create_topic, produce


def connected(broker):
    return Cluster(ClientSettings(broker.bootstrap_servers))


def restored(path, directory):
    directory.mkdir()
    with tarfile.open(path) as tar:
        tar.extractall(directory, filter="data")
    return directory


def ends(cluster, topic, partitions):
    return cluster.list_offsets({(topic, number): LATEST for number in range(partitions)})


def is_sound(directory, capsys):
    capsys.readouterr()
    status = main(["check", str(directory)])
    told = capsys.readouterr().out
    assert "damage " not in told, told
    return status == 0


def test_a_stopped_broker_comes_back_as_it_was(tmp_path, capsys):
    with odradek.Broker(data_dir=tmp_path / "data") as broker, connected(broker) as cluster:
        create_topic(cluster, 3, "orders")
        produce(cluster, "orders", 1, [b"v"] * 100)
        before = ends(cluster, "orders", 3)
    path = tmp_path / "backup.tar"
    assert main(["backup", str(tmp_path / "data"), str(path), "-J"]) == 0
    (row,) = json.loads(capsys.readouterr().out)
    assert row == {"file": str(path), "running": False, "partitions": 3, "size_bytes": path.stat().st_size}
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    directory = restored(path, tmp_path / "restored")
    assert is_sound(directory, capsys)
    with odradek.Broker(data_dir=directory) as broker, connected(broker) as cluster:
        assert ends(cluster, "orders", 3) == before


def test_what_compaction_says_is_read_after_the_logs_that_it_changes(tmp_path):
    """Else a start would take gaps, made while the logs were opened, for lost records."""
    path = tmp_path / "backup.tar"
    with odradek.Broker(process=True, data_dir=tmp_path / "data") as broker, connected(broker) as cluster:
        create_topic(cluster, 1, "orders")
        (tmp_path / "data" / "cleaner-offset-checkpoint").write_text("0\n1\norders 0 0\n")
        back_up(str(tmp_path / "data"), str(path))
    with tarfile.open(path) as tar:
        names = tar.getnames()
    assert any(name.startswith("orders-0/") for name in names)
    assert names[-1] == "cleaner-offset-checkpoint"


def test_a_broker_that_is_written_to_is_backed_up(tmp_path, capsys):
    """Segments roll and topics come meanwhile; what was acknowledged before the backup is in it."""
    stop = threading.Event()
    options = {"log.segment.bytes": 1 << 20, "log.initial.task.delay.ms": 100}
    with odradek.Broker(process=True, data_dir=tmp_path / "data", options=options) as broker:

        def write():
            with connected(broker) as cluster:
                for number in range(10_000):
                    produce(cluster, "orders", number % 3, [b"v" * 1000] * 50)
                    if stop.is_set():
                        return

        with connected(broker) as cluster:
            create_topic(cluster, 3, "orders")
            writer = threading.Thread(target=write)
            writer.start()
            try:
                while sum(ends(cluster, "orders", 3).values()) < 2000:
                    pass
                before = ends(cluster, "orders", 3)
                done = back_up(str(tmp_path / "data"), str(tmp_path / "backup.tar"))
                after = ends(cluster, "orders", 3)
            finally:
                stop.set()
                writer.join()
    assert (done.was_running, done.partitions) == (True, 3)
    directory = restored(tmp_path / "backup.tar", tmp_path / "restored")
    assert not (directory / ".kafka_cleanshutdown").exists()
    with odradek.Broker(data_dir=directory) as broker, connected(broker) as cluster:
        found = ends(cluster, "orders", 3)
    assert all(before[key] <= found[key] <= after[key] for key in before)
    assert is_sound(directory, capsys)


def test_commits_are_never_of_records_that_are_not_there(tmp_path):
    """The coordinators' topics are first in the file, so no commit is newer than the records."""
    with odradek.Broker(data_dir=tmp_path / "data", offsets_topic_num_partitions=1) as broker:
        with connected(broker) as cluster:
            create_topic(cluster, 2, "a-topic-that-sorts-first")
            create_topic(cluster, 1, "__consumer_offsets")
        out = io.BytesIO()
        back_up_to(str(tmp_path / "data"), out)
    out.seek(0)
    with tarfile.open(fileobj=out) as tar:
        directories = list(dict.fromkeys(one.partition("/")[0] for one in tar.getnames() if "/" in one))
    assert directories == [
        "__cluster_metadata-0",
        "__consumer_offsets-0",
        "a-topic-that-sorts-first-0",
        "a-topic-that-sorts-first-1",
    ]


@pytest.mark.parametrize("name", ["data/inside.tar", "there.tar"])
def test_a_place_that_cannot_be_is_refused(tmp_path, name):
    with odradek.Broker(data_dir=tmp_path / "data"):
        pass
    (tmp_path / "there.tar").touch()
    with pytest.raises(
        CannotBackUp, match=r"is in .*: choose a place outside of it|exists: no file is replaced"
    ):
        back_up(str(tmp_path / "data"), str(tmp_path / name))


def test_what_is_no_data_directory_is_refused(tmp_path, capsys):
    assert main(["backup", str(tmp_path), str(tmp_path / "x.tar")]) == 1
    told = f"odradek: {tmp_path} is not a data directory: it has no meta.properties.\n"
    assert capsys.readouterr().err == told
    assert not list(tmp_path.iterdir())
