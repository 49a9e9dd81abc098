"""A broker starts in phases and undoes them in the reverse order, from wherever it got to."""

import asyncio
import socket
import threading

import pytest

from odradek.config.broker_config import load
from odradek.embedding.free_port import free_port
from odradek.server import phase_bind, phase_open, phase_serve, standalone
from odradek.server.background.schedule import Schedule
from odradek.server.broker import BrokerServer, NotServing
from odradek.server.metadata.metadata_log import DiskMetadataLog
from odradek.server.network.ports import Ports
from odradek.storage.directories.store import LogStore
from tests.raw_client import AsyncRawClient


class Broken(Exception):
    pass


def configuration(directory, port=0, **keywords):
    return load(listen=f"127.0.0.1:{port}", data_dir=directory, keywords=keywords)


SEAMS = [
    # Where a start fails: in which module, in which function.
    (phase_bind, "_claim_directories"),
    (phase_bind, "_lock"),
    (standalone, "open_own_log"),
    (standalone, "loaded_controller"),
    (standalone, "ReplicaHomes"),
    (phase_open, "open_logs"),
    (phase_open, "_follow_changes"),
    (phase_serve, "_new_coordinators"),
    (phase_serve, "new_connections"),
    (phase_serve, "_start_background"),
    (phase_serve, "_watch_disks"),
]


@pytest.mark.parametrize(("module", "name"), SEAMS, ids=[name for _, name in SEAMS])
def test_a_start_that_fails_leaves_nothing_behind(tmp_path, monkeypatch, module, name):
    """The same port and the same directories serve the next start in the same process."""

    async def act():
        port = free_port()
        threads = threading.active_count()
        with monkeypatch.context() as patched:
            patched.setattr(module, name, fail)
            server = BrokerServer(configuration(tmp_path, port))
            with pytest.raises(Broken):
                await server.start()
        assert threading.active_count() == threads
        with pytest.raises(NotServing):
            server.store  # noqa: B018
        await server.stop()
        await serve_once(tmp_path, port)

    asyncio.run(act())


def fail(*_, **__):
    raise Broken


async def serve_once(directory, port):
    server = BrokerServer(configuration(directory, port))
    await server.start()
    try:
        client = await AsyncRawClient.connect(port)
        client.close()
    finally:
        await server.stop()
    assert (directory / ".kafka_cleanshutdown").exists()


def test_a_second_listener_that_cannot_be_bound_frees_the_first(tmp_path):
    async def act():
        port = free_port()
        with socket.create_server(("127.0.0.1", 0)) as taken:
            names = {
                "listener_security_protocol_map": "A:PLAINTEXT,B:PLAINTEXT",
                "inter_broker_listener_name": "A",
            }
            listeners = f"A://127.0.0.1:{port},B://127.0.0.1:{taken.getsockname()[1]}"
            config = load(data_dir=tmp_path / "data", keywords={"listeners": listeners, **names})
            with pytest.raises(Exception, match="is taken"):
                await BrokerServer(config).start()
        assert not (tmp_path / "data").exists()
        await serve_once(tmp_path, port)

    asyncio.run(act())


def test_a_stop_undoes_the_phases_in_the_reverse_order(tmp_path, monkeypatch):
    ended = []

    def note(owner, name):
        real = getattr(owner, name)

        def noted(self, *arguments):
            ended.append(f"{owner.__name__}.{name}")
            return real(self, *arguments)

        monkeypatch.setattr(owner, name, noted)

    note(Ports, "close")
    note(Schedule, "close")
    note(DiskMetadataLog, "close")
    note(LogStore, "close")
    stop_serving = phase_serve.stop_serving

    async def stop_serving_noted(*parts):
        ended.append("stop_serving")
        await stop_serving(*parts)

    monkeypatch.setattr(phase_serve, "stop_serving", stop_serving_noted)

    async def act():
        server = BrokerServer(configuration(tmp_path))
        await server.start()
        await server.stop()
        stopped = list(ended)
        await server.stop()
        assert ended == stopped

    asyncio.run(act())
    # The ports have nothing left to close at the end.
    assert ended == [
        "Ports.close",
        "stop_serving",
        "Schedule.close",
        "DiskMetadataLog.close",
        "LogStore.close",
        "Ports.close",
    ]


def test_a_part_that_cannot_be_ended_does_not_keep_the_others_from_it(tmp_path, monkeypatch):
    monkeypatch.setattr(Schedule, "close", fail)

    async def act():
        port = free_port()
        server = BrokerServer(configuration(tmp_path, port))
        await server.start()
        with pytest.raises(Broken):
            await server.stop()
        monkeypatch.undo()
        await serve_once(tmp_path, port)

    asyncio.run(act())


def test_a_broker_that_was_stopped_can_be_started_again(tmp_path):
    async def act():
        server = BrokerServer(configuration(tmp_path))
        with pytest.raises(NotServing):
            server.port  # noqa: B018
        for _ in range(2):
            await server.start()
            client = await AsyncRawClient.connect(server.port)
            client.close()
            await server.stop()

    asyncio.run(act())
