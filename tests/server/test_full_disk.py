"""A disk that takes no more bytes: the produce fails, nothing acknowledged is lost, and it heals.

The kernel refuses the writes of a running broker for real: RLIMIT_FSIZE is set on its process from outside
and lifted again; and, run as a program, this file has a small file system of its own, which it fills (the
in-memory disk of tests/storage knows ENOSPC itself).
"""

import io
import marshal
import os
import resource
import shlex
import shutil
import subprocess
import sys
import time
from contextlib import redirect_stderr, redirect_stdout, suppress
from pathlib import Path

import pytest
from kafka import KafkaConsumer, KafkaProducer, TopicPartition
from kafka.errors import KafkaError, KafkaStorageError

import odradek
from odradek.commands.main import main
from odradek.wire.errors import ErrorCode
from odradek.wire.messages import create_topics, find_coordinator, offset_commit, offset_fetch, produce
from odradek.wire.records import Record, build_batch
from tests.raw_client import RawClient

CHECKOUT = Path(__file__).parents[2]
DISK_BYTES = 16 << 20


def limit_file_size(pid: int, size_bytes: int) -> None:
    """No file of the process may grow past this; SIGXFSZ is ignored by Python, the write fails."""
    _, hard = resource.prlimit(pid, resource.RLIMIT_FSIZE)
    resource.prlimit(pid, resource.RLIMIT_FSIZE, (size_bytes, hard))


def values_of(broker: odradek.Broker, topic: str, count: int) -> list[bytes]:
    consumer = KafkaConsumer(bootstrap_servers=broker.bootstrap_servers, consumer_timeout_ms=10_000)
    partition = TopicPartition(topic, 0)
    consumer.assign([partition])
    consumer.seek_to_beginning(partition)
    values: list[bytes] = []
    for record in consumer:
        values.append(record.value)
        if len(values) == count:
            break
    consumer.close()
    return values


def test_a_full_disk_refuses_the_produce_loses_nothing_and_heals():
    with odradek.Broker(process=True) as broker:
        assert broker.pid is not None
        producer = KafkaProducer(
            bootstrap_servers=broker.bootstrap_servers, retries=0, enable_idempotence=False, acks="all"
        )
        before = [b"%d" % index * 100 for index in range(10)]
        for value in before:
            producer.send("filling", value, partition=0).get(10)

        limit_file_size(broker.pid, 4096)
        with pytest.raises(KafkaStorageError):
            producer.send("filling", b"x" * 10_000, partition=0).get(10)
        assert values_of(broker, "filling", 10) == before, "readers are served while the disk is full"

        limit_file_size(broker.pid, resource.RLIM_INFINITY)
        after = [b"again %d" % index for index in range(10)]
        metadata = [producer.send("filling", value, partition=0).get(10) for value in after]
        assert [entry.offset for entry in metadata] == list(range(10, 20)), "no offset was lost or used twice"
        assert values_of(broker, "filling", 20) == before + after

        broker.kill()
        broker.restart()
        assert values_of(broker, "filling", 20) == before + after
        producer.close()


def test_a_topic_that_cannot_be_made_on_a_full_disk_can_be_made_later():
    with odradek.Broker(process=True) as broker:
        assert broker.pid is not None
        limit_file_size(broker.pid, 0)
        producer = KafkaProducer(bootstrap_servers=broker.bootstrap_servers, retries=0, max_block_ms=3000)
        with pytest.raises(KafkaError):
            producer.send("later", b"refused", partition=0).get(10)
        producer.close()

        limit_file_size(broker.pid, resource.RLIM_INFINITY)
        producer = KafkaProducer(bootstrap_servers=broker.bootstrap_servers)
        assert producer.send("later", b"taken", partition=0).get(10).offset == 0
        assert values_of(broker, "later", 1) == [b"taken"]
        producer.close()


@pytest.mark.deep
def test_what_is_imported_while_the_disk_is_full_leaves_no_half_bytecode(tmp_path, monkeypatch):
    monkeypatch.delenv("PYTHONDONTWRITEBYTECODE", raising=False)
    monkeypatch.setenv("PYTHONPYCACHEPREFIX", str(tmp_path))
    with odradek.Broker(process=True) as broker:
        assert broker.pid is not None
        limit_file_size(broker.pid, 100)
        producer = KafkaProducer(bootstrap_servers=broker.bootstrap_servers, retries=0, max_block_ms=3000)
        with pytest.raises(KafkaError):
            producer.send("later", b"refused", partition=0).get(10)
        producer.close()
    written = list(tmp_path.rglob("*.pyc"))
    assert written
    for path in written:
        assert marshal.loads(path.read_bytes()[16:])


# On a file system of its own


def ask(broker: odradek.Broker, request, version: int):
    with RawClient(broker.port, timeout_s=10) as client:
        return client.ask(request, version)


def produced(broker: odradek.Broker, value: bytes) -> tuple[ErrorCode, int]:
    data = produce.PartitionProduceData(
        index=0, records=build_batch([Record(0, 1_700_000_000_000, None, value)])
    )
    topic = produce.TopicProduceData(name="t", partition_data=[data])
    request = produce.ProduceRequest(acks=-1, timeout_ms=1000, topic_data=[topic])
    (answer,) = ask(broker, request, 9).responses[0].partition_responses
    return ErrorCode(answer.error_code), answer.base_offset


def created(broker: odradek.Broker, name: str, partitions: int) -> tuple[ErrorCode, str]:
    topic = create_topics.CreatableTopic(
        name=name, num_partitions=partitions, replication_factor=1, configs=[]
    )
    answer = ask(broker, create_topics.CreateTopicsRequest(topics=[topic], timeout_ms=5000), 5)
    return ErrorCode(answer.topics[0].error_code), answer.topics[0].error_message or ""


def committed(broker: odradek.Broker, offset: int) -> ErrorCode:
    """Commits an offset with more to say of it than fits into what is left of a page."""
    partition = offset_commit.OffsetCommitRequestPartition(
        partition_index=0, committed_offset=offset, committed_metadata="x" * 4096
    )
    topic = offset_commit.OffsetCommitRequestTopic(name="t", partitions=[partition])
    request = offset_commit.OffsetCommitRequest(group_id="g", topics=[topic])
    return ErrorCode(ask(broker, request, 7).topics[0].partitions[0].error_code)


def offset_of_group(broker: odradek.Broker) -> int:
    topic = offset_fetch.OffsetFetchRequestTopic(name="t", partition_indexes=[0])
    answer = ask(broker, offset_fetch.OffsetFetchRequest(group_id="g", topics=[topic]), 5)
    return answer.topics[0].partitions[0].committed_offset


def find(broker: odradek.Broker) -> ErrorCode:
    return ErrorCode(ask(broker, find_coordinator.FindCoordinatorRequest(key="g"), 2).error_code)


def until(call, wanted):
    deadline = time.monotonic() + 20
    while (got := call()) != wanted:
        assert time.monotonic() < deadline, got
        time.sleep(0.005)


def fill(path: Path) -> None:
    with path.open("wb", buffering=0) as file, pytest.raises(OSError, match="No space left"):
        _write_for_ever(file)


def _write_for_ever(file) -> None:
    while True:
        file.write(bytes(4096))


def on_a_disk_that_fills(directory: Path) -> None:
    """Needs a small file system at `directory`."""
    ballast = directory / "ballast"
    settings = {"offsets_topic_num_partitions": 1, "auto_create_topics_enable": False}
    with odradek.Broker(process=True, data_dir=directory / "data", **settings) as broker:
        assert created(broker, "t", 1)[0] is ErrorCode.NONE
        values = [b"%d" % number * 100 for number in range(10)]
        for offset, value in enumerate(values):
            assert produced(broker, value) == (ErrorCode.NONE, offset)
        until(lambda: find(broker), ErrorCode.NONE)
        until(lambda: committed(broker, 0), ErrorCode.NONE)

        for number in (1, 2):
            names = [f"other{number}", f"many{number}"]
            fill(ballast)
            assert produced(broker, b"x" * 10_000)[0] is ErrorCode.KAFKA_STORAGE_ERROR
            # What Kafka makes of that for a client of a group (CoordinatorOperationExceptionHelper).
            assert committed(broker, number + 100) is ErrorCode.NOT_COORDINATOR
            for name in names:
                code, message = created(broker, name, 300)
                assert code is ErrorCode.KAFKA_STORAGE_ERROR
                assert "The metadata log could not be written" in message, "it has no room"
            assert values_of(broker, "t", len(values)) == values, "readers are served meanwhile"
            assert offset_of_group(broker) == number - 1

            ballast.unlink()
            value = b"again %d" % number
            assert produced(broker, value) == (ErrorCode.NONE, len(values)), "no offset was lost"
            values.append(value)
            until(lambda number=number: committed(broker, number), ErrorCode.NONE)
            for name in names:
                assert created(broker, name, 300)[0] is ErrorCode.NONE, "nothing of it was left behind"

        broker.kill()
        broker.restart()
        assert values_of(broker, "t", len(values)) == values
        until(lambda: find(broker), ErrorCode.NONE)
        assert offset_of_group(broker) == 2
        for number in (1, 2):
            assert created(broker, f"many{number}", 1)[0] is ErrorCode.TOPIC_ALREADY_EXISTS
            assert len(list((directory / "data").glob(f"many{number}-*"))) == 300
        assert produced(broker, b"last") == (ErrorCode.NONE, len(values))


def odradek_says(*arguments: str) -> tuple[int, str, str]:
    with redirect_stdout(io.StringIO()) as out, redirect_stderr(io.StringIO()) as err:
        status = main(arguments)
    return status, out.getvalue(), err.getvalue()


def looked_at_on_a_full_disk(directory: Path) -> None:
    """Needs a small file system at `directory`."""
    ballast, data = directory / "ballast", directory / "data"
    with odradek.Broker(process=True, data_dir=data) as broker:
        assert created(broker, "t", 1)[0] is ErrorCode.NONE
        assert produced(broker, b"x" * 100) == (ErrorCode.NONE, 0)
        broker.kill()
        killed = directory / "killed"
        shutil.copytree(data, killed)
        broker.restart()
    for path in (killed, data):
        fill(ballast)
        status, told, _ = odradek_says("check", str(path))
        assert (status, told.count("damage ")) == (0, 0), told
        # The file system may or may not have the room for what a start writes.
        with (
            suppress(odradek.BrokerStartError),
            odradek.Broker(process=True, data_dir=path) as broker,
        ):
            assert values_of(broker, "t", 1) == [b"x" * 100]
        ballast.unlink()
        with odradek.Broker(process=True, data_dir=path) as broker:
            assert values_of(broker, "t", 1) == [b"x" * 100]


def own_mounts() -> list[str]:
    """What gives a program a view of the file systems of its own; skips where that is not allowed."""
    command = ["unshare", "-m"] if os.geteuid() == 0 else ["unshare", "-rm"]
    try:
        tried = subprocess.run([*command, "mount", "-t", "tmpfs", "odradek", "/tmp"], capture_output=True)
        refusal = tried.stderr.decode() if tried.returncode else ""
    except OSError as error:
        refusal = str(error)
    if refusal and os.environ.get("CI") and os.geteuid() == 0:
        pytest.fail(f"CI runs as root and may not mount a file system of its own: {refusal}")
    if refusal:
        pytest.skip(f"a file system of its own may not be mounted here: {refusal}")
    return command


def told_on_a_file_system_of_its_own(story, tmp_path: Path) -> None:
    mounts = f"mount -t tmpfs -o size={DISK_BYTES} odradek {shlex.quote(str(tmp_path))}"
    program = [sys.executable, "-m", "tests.server.test_full_disk", story.__name__, str(tmp_path)]
    command = [*own_mounts(), "sh", "-c", f"{mounts} && exec {shlex.join(program)}"]
    told = subprocess.run(
        command, cwd=CHECKOUT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=100
    )
    assert told.returncode == 0, told.stdout
    assert not list(tmp_path.iterdir()), "what it did is on its own file system"


def test_a_file_system_without_room_refuses_records_offsets_and_topics_loses_nothing_and_heals(tmp_path):
    told_on_a_file_system_of_its_own(on_a_disk_that_fills, tmp_path)


def test_a_full_disk_is_no_damage_to_a_check_and_a_start_loses_nothing_on_it(tmp_path):
    told_on_a_file_system_of_its_own(looked_at_on_a_full_disk, tmp_path)


if __name__ == "__main__":
    {story.__name__: story for story in (on_a_disk_that_fills, looked_at_on_a_full_disk)}[sys.argv[1]](
        Path(sys.argv[2])
    )
