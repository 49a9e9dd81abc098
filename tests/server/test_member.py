"""The end of a node of a cluster: it waits for its controllers, and not for ever."""

import asyncio
import gc
import logging
import os
import signal
import sys

import pytest

from odradek.config.broker_config import load
from odradek.coordinator.kraft.broker_lifecycle import BrokerState, LifecycleSettings
from odradek.coordinator.kraft.metadata_fetcher import Controller, FetcherSettings
from odradek.server.cluster.controller_link import LinkSettings
from odradek.server.cluster.member import LEAVE_S, Member
from odradek.server.cluster.replica_homes import ReplicaHomes
from odradek.server.process import main_loop
from odradek.wire.messages.broker_registration import BrokerRegistrationRequest


class Link:
    """To controllers that have ended: it asks to be let go, and nobody grants it."""

    def __init__(self, member):
        self._member = member
        self.is_closed = False

    def begin_shutdown(self):
        self._member.state_changed(BrokerState.PENDING_CONTROLLED_SHUTDOWN, 1, is_fenced=False)

    def close(self):
        self.is_closed = True


def in_a_member_whose_controllers_have_ended(tmp_path, act):
    """Runs `act(member)`: the node serves."""
    properties = {
        "process.roles": "broker",
        "node.id": "7",
        "controller.quorum.bootstrap.servers": "127.0.0.1:1",
        "controller.listener.names": "CONTROLLER",
    }
    config = load(listen="127.0.0.1:0", data_dir=tmp_path, keywords=properties)
    settings = LinkSettings(
        bootstrap=[Controller(-1, "127.0.0.1", 1)],
        cluster_id="c" * 22,
        node_id=7,
        registration=BrokerRegistrationRequest(broker_id=7),
        directory_id=bytes(16),
        lifecycle=LifecycleSettings(),
        fetcher=FetcherSettings(),
    )

    async def run():
        member = Member(settings, config, ReplicaHomes(7, {}, None), lambda: None)
        member.link = Link(member)
        await act(member)
        assert member.link.is_closed

    asyncio.run(run())


def test_a_controlled_shutdown_that_nobody_grants_ends_with_its_time(tmp_path, caplog):
    async def act(member):
        await member.leave(within_s=0)

    in_a_member_whose_controllers_have_ended(tmp_path, act)
    assert "the controllers have not let this node go within 0 s: stopping" in caplog.messages
    assert LEAVE_S == 300


def test_a_second_signal_ends_a_controlled_shutdown(tmp_path, caplog):
    async def act(member):
        leaving = asyncio.ensure_future(member.leave())
        while member.state is not BrokerState.PENDING_CONTROLLED_SHUTDOWN:
            await asyncio.sleep(0)
        assert not leaving.done()
        member.hurry()
        await leaving

    with caplog.at_level(logging.WARNING):
        in_a_member_whose_controllers_have_ended(tmp_path, act)
    assert "stopping before the controllers have let this node go" in caplog.messages


@pytest.mark.parametrize("second", [signal.SIGTERM, signal.SIGINT])
def test_the_main_loop_hands_a_second_signal_to_the_stop(monkeypatch, second):
    monkeypatch.setattr(sys, "dont_write_bytecode", sys.dont_write_bytecode)

    class Server:
        node_id, cluster_id = 7, "c"

        async def start(self):
            self.hurried = asyncio.Event()

        async def stop(self):
            os.kill(os.getpid(), second)
            await self.hurried.wait()

        def hurry(self):
            self.hurried.set()

    before = [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)]
    try:
        assert main_loop.run(lambda _: Server(), lambda _: os.kill(os.getpid(), signal.SIGTERM)) == 0
    finally:
        for number, handler in zip((signal.SIGTERM, signal.SIGINT), before, strict=True):
            signal.signal(number, handler)
        gc.unfreeze()
        gc.enable()
