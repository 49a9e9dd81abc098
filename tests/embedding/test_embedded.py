"""`odradek.Broker` as people use it: in a thread, as a child process, from asyncio; how it ends or fails."""

import asyncio
import logging
import os
import pathlib
import re
import resource
import socket
import subprocess
import sys
import textwrap
import time

import pytest
from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer
from kafka.admin import ConfigResource, ConfigResourceType

import odradek
from odradek.embedding.free_port import free_port
from odradek.server.process.health import check
from odradek.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from tests.kafka_python import REFRESH_MS
from tests.raw_client import RawClient


def send(broker, *values, topic="t"):
    producer = KafkaProducer(bootstrap_servers=broker.bootstrap_servers)
    futures = [producer.send(topic, value) for value in values]
    offsets = [future.get(10).offset for future in futures]
    producer.close()
    return offsets


def receive(broker, count, topic="t"):
    consumer = KafkaConsumer(
        topic,
        bootstrap_servers=broker.bootstrap_servers,
        auto_offset_reset="earliest",
        consumer_timeout_ms=10_000,
    )
    values = [record.value for _, record in zip(range(count), consumer, strict=False)]
    consumer.close()
    return values


@pytest.fixture(params=["thread", "process"])
def in_process(request):
    return request.param == "process"


def test_a_client_produces_and_consumes_and_nothing_is_left_behind(in_process):
    with odradek.Broker(process=in_process) as broker:
        assert broker.is_running
        assert send(broker, b"a", b"b") == [0, 1]
        assert receive(broker, 2) == [b"a", b"b"]
        directory = broker.data_dir
        assert directory.exists()
    assert not broker.is_running
    assert not directory.exists()


def test_consumers_of_kafka_python_look_at_the_metadata_each_second_in_all_tests():
    with odradek.Broker() as broker:
        consumer = KafkaConsumer(bootstrap_servers=broker.bootstrap_servers)
        assert consumer.config["metadata_max_age_ms"] == REFRESH_MS
        consumer.close()


def test_a_restart_keeps_port_and_data(in_process, tmp_path):
    with odradek.Broker(process=in_process, data_dir=tmp_path) as broker:
        address = broker.bootstrap_servers
        send(broker, b"a")
        broker.restart()
        assert broker.bootstrap_servers == address
        assert send(broker, b"b") == [1]
    assert (tmp_path / "t-0").exists()


def test_options_are_keywords(in_process):
    with odradek.Broker(
        process=in_process, num_partitions=4, options={"log.retention.ms": 77_000_000}
    ) as broker:
        send(broker, b"a")
        assert len(list(broker.data_dir.glob("t-*"))) == 4


def rebalance_delay(broker):
    admin = KafkaAdminClient(bootstrap_servers=broker.bootstrap_servers)
    asked = ConfigResource(ConfigResourceType.BROKER, "1", ["group.initial.rebalance.delay.ms"])
    described = admin.describe_configs([asked], config_filter="all")
    admin.close()
    return described["broker"]["1"]["group.initial.rebalance.delay.ms"]["value"]


def test_groups_do_not_wait_unless_somebody_wants_it(in_process):
    with odradek.Broker(process=in_process) as broker:
        assert rebalance_delay(broker) == "0"
    with odradek.Broker(process=in_process, options={"group.initial.rebalance.delay.ms": 500}) as broker:
        assert rebalance_delay(broker) == "500"
    with odradek.Broker(process=in_process, group_initial_rebalance_delay_ms=700) as broker:
        assert rebalance_delay(broker) == "700"


def test_the_quick_start_prints_what_was_sent():
    readme = (pathlib.Path(__file__).parents[2] / "README.md").read_text()
    (program,) = re.findall(r"## Quick start\n.*?```python\n(.*?)```", readme, re.DOTALL)
    path = ":".join(one for one in sys.path if one)
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "PYTHONPATH": path},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    assert done.stdout == "b'hello'\n"


def test_a_wrong_option_is_told_in_a_sentence(in_process):
    with pytest.raises(odradek.BrokerStartError, match=r"num\.partition.*Did you mean num\.partitions"):
        odradek.Broker(process=in_process, num_partition=4).start()


def test_a_taken_port_is_told_in_a_sentence(in_process):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        broker = odradek.Broker(process=in_process, port=taken.getsockname()[1])
        with pytest.raises(odradek.BrokerStartError, match="is taken by another process"):
            broker.start()
    with broker:
        assert check(broker.bootstrap_servers) is None


def test_listeners_in_the_options_are_those_of_the_broker(in_process):
    """Not one without TLS and SASL in their place."""
    ports = [free_port(), free_port()]
    listeners = ",".join(f"L{port}://127.0.0.1:{port}" for port in ports)
    protocols = ",".join(f"L{port}:PLAINTEXT" for port in ports)
    options = {
        "listeners": listeners,
        "listener.security.protocol.map": protocols,
        "inter.broker.listener.name": f"L{ports[0]}",
    }
    with odradek.Broker(process=in_process, options=options) as broker:
        assert broker.port == ports[0]
        assert [check(f"127.0.0.1:{port}") for port in ports] == [None, None]


def test_what_was_acknowledged_survives_a_kill():
    with odradek.Broker(process=True) as broker:
        pid = broker.pid
        send(broker, b"a", b"b")
        broker.kill()
        assert broker.pid is None
        broker.restart()
        assert broker.pid not in (None, pid)
        assert receive(broker, 2) == [b"a", b"b"]


def test_a_program_with_a_thousand_open_files_can_start_a_broker():
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    opened = [os.open(os.devnull, os.O_RDONLY)]
    try:
        while opened[-1] <= 1024:
            opened.append(os.dup(opened[0]))
        with odradek.Broker(process=True) as broker:
            assert broker.is_running
    finally:
        for descriptor in opened:
            os.close(descriptor)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_a_broker_with_workers_is_killed_as_a_whole_and_keeps_ports_and_data(tmp_path):
    with odradek.Broker(workers=2, data_dir=tmp_path / "data", start_timeout_s=60) as broker:
        port = broker.port
        assert send(broker, b"a") == [0]
        broker.kill()
        assert broker.start().port == port
        assert send(broker, b"b") == [1]
        assert (tmp_path / "data.w1").is_dir()
        assert "process" in repr(broker)
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port + 1))


def test_a_broker_in_a_thread_has_no_workers():
    with pytest.raises(odradek.BrokerStartError, match=r"odradek\.Broker\(workers=\.\.\.\)"):
        odradek.Broker(odradek_workers=2).start()


def test_a_broker_in_a_thread_cannot_be_killed():
    with odradek.Broker() as broker, pytest.raises(RuntimeError, match="process=True"):
        broker.kill()


@pytest.mark.parametrize("in_process", [False, True])
def test_the_levels_of_loggers_belong_to_the_program_that_has_the_process(in_process):
    """So clients change them only where the broker is the program."""
    wanted = AlterableConfig(name="odradek.fetch", config_operation=0, value="DEBUG")
    loggers = AlterConfigsResource(resource_type=8, resource_name="1", configs=[wanted])
    before = logging.getLogger("odradek.fetch").level
    with odradek.Broker(process=in_process) as broker:
        client = RawClient(broker.port)
        (answer,) = client.ask(IncrementalAlterConfigsRequest(resources=[loggers]), 1).responses
        client.close()
        if not in_process:
            assert broker.metrics().clients == ()
    assert answer.error_code == (0 if in_process else 42)
    assert logging.getLogger("odradek.fetch").level == before


def test_asyncio_programs_await_it():
    async def act():
        async with odradek.AsyncBroker() as broker:
            assert check(broker.bootstrap_servers) is None
            await broker.restart()
            address = broker.bootstrap_servers
            assert check(address) is None
        assert check(address) is not None

    asyncio.run(act())


def test_the_asyncio_program_of_the_documents_does_what_it_says():
    page = (pathlib.Path(__file__).parents[2] / "docs" / "python.md").read_text()
    (example,) = re.findall(r"```python\n(import asyncio\n.*?)```", page, re.DOTALL)
    result = subprocess.run(
        [sys.executable, "-c", example], capture_output=True, timeout=60, check=True, env=with_our_package()
    )
    assert result.stdout == b"greetings 0 True\n"


def test_a_child_ends_with_its_parent_however_that_ends():
    program = """
        import os, signal, sys, odradek
        broker = odradek.Broker(process=True, data_dir=sys.argv[1]).start()
        print(broker.pid, broker.bootstrap_servers, flush=True)
        os.kill(os.getpid(), signal.SIGKILL)
    """
    directory = os.path.join(os.environ.get("TMPDIR", "/tmp"), f"odradek-orphan-{os.getpid()}")
    result = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program), directory],
        stdout=subprocess.PIPE,
        timeout=60,
        env=with_our_package(),
    )
    pid, address = result.stdout.split()
    deadline = time.monotonic() + 10
    while check(address.decode()) is None:
        assert time.monotonic() < deadline, "the child lives on"
    while os.path.exists(f"/proc/{int(pid)}") and time.monotonic() < deadline:
        os.sched_yield()
    # It had the time for a clean stop.
    assert os.path.exists(os.path.join(directory, ".kafka_cleanshutdown"))
    subprocess.run(["rm", "-r", directory], check=True)


def with_our_package():
    parent = os.path.dirname(odradek.__path__[0])
    return {**os.environ, "PYTHONPATH": os.pathsep.join([parent, os.environ.get("PYTHONPATH", "")])}


def test_importing_the_package_is_light():
    program = "import sys, odradek; print('asyncio' in sys.modules, odradek.__version__, dir(odradek))"
    result = subprocess.run(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, check=True, env=with_our_package()
    )
    assert result.stdout.startswith(b"False 0.")


def test_the_health_check_tells_a_broker_from_none():
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
    assert "no broker answers" in check(f"127.0.0.1:{port}")
    assert "no broker answers" in check("nonsense")
    with odradek.Broker() as broker:
        command = [sys.executable, "-m", "odradek.server.process.health", broker.bootstrap_servers]
        assert subprocess.run(command, env=with_our_package()).returncode == 0


@pytest.mark.parametrize("process", [False, True])
def test_directories_that_an_option_names_are_used(tmp_path, process):
    with odradek.Broker(process=process, log_dirs=f"{tmp_path / 'a'},{tmp_path / 'b'}"):
        assert {path.name for path in tmp_path.iterdir()} == {"a", "b"}
        assert (tmp_path / "a" / "meta.properties").exists()
