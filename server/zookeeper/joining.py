"""A broker with `zookeeper.connect` that serves: it appears in ZooKeeper."""

from __future__ import annotations

import asyncio
import socket
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING

from odradek.config.config_error import ConfigError
from odradek.config.listeners import OLDEST
from odradek.coordinator.zookeeper import nodes
from odradek.server.zookeeper.oldest import OldestListener, OldestNodes
from odradek.server.zookeeper.own_requests import OwnRequests
from odradek.server.zookeeper.registration import Registration
from odradek.server.zookeeper.session import Session
from odradek.server.zookeeper.upkeep import Upkeep

if TYPE_CHECKING:
    from odradek.config.broker_config import BrokerConfig
    from odradek.coordinator.cluster.view import ClusterChange, ClusterView
    from odradek.server.network.listeners import Listener
    from odradek.server.phase_serve import Serving
    from odradek.server.zookeeper.opening import ZooKeeper
    from odradek.server.zookeeper.tools import Ask

EVERY_HOST = ("", "0.0.0.0", "::")


async def join(zookeeper: ZooKeeper, serving: Serving, ending: AsyncExitStack) -> None:
    """The broker is in ZooKeeper when this returns. `ending` gets what ends it. Raises ConfigError."""
    from kazoo.exceptions import KazooException

    session, opened = zookeeper.session, serving.opened
    bound, node, publisher = opened.bound, opened.bound.node, opened.plane.publisher
    listening = [_listening(listener, node.config) for listener in bound.ports.listeners]
    endpoints = [one for one in listening if one.security_protocol not in OLDEST]
    oldest = [
        OldestListener(f"/{one.security_protocol.lower().replace('_', '')}", one.host, one.port)
        for one in listening
        if one.security_protocol in OLDEST
    ]
    own = OwnRequests(serving.connections.dispatcher.routes, opened.schedule.loop, node.now_ms)
    ask: Ask = opened.deciding.ask_controllers or own.ask

    def content() -> bytes:
        return nodes.broker(endpoints, node.config.values["broker.rack"], node.now_ms())

    upkeep = Upkeep(
        session,
        lambda watch: Registration(session, node.id, content, watch),
        node.id,
        node.now_ms,
        lambda: publisher.view,
        ask,
        lambda: _agree(session, bound.identity.cluster_id),
        [OldestNodes(session, one, node.id, node.now_ms) for one in oldest],
    )

    def view_changed(view: ClusterView, change: ClusterChange) -> None:
        upkeep.wake()

    publisher.subscribe(view_changed)
    ending.push_async_callback(_in_thread_of_its_own, upkeep)
    try:
        await asyncio.to_thread(upkeep.agree)
        if opened.deciding.forward is None:
            await asyncio.to_thread(_refuse_others, session, node.id)
        await asyncio.to_thread(upkeep.start)
    except (KazooException, ValueError) as error:
        raise ConfigError(
            f"zookeeper.connect: the ZooKeeper at {session.address} cannot be used: {type(error).__name__}: "
            f"{error}."
        ) from None


async def _in_thread_of_its_own(upkeep: Upkeep) -> None:
    """The default pool may be busy with what waits for ZooKeeper."""
    with ThreadPoolExecutor(1) as threads:
        await asyncio.get_running_loop().run_in_executor(threads, upkeep.close)


def _agree(session: Session, ours: str) -> None:
    """On the id of the cluster."""
    session.ensure_path(nodes.CLUSTER_ID.rpartition("/")[0])
    while True:
        theirs = session.cluster_id()
        if theirs is not None:
            if theirs != ours:
                raise ConfigError(
                    f"zookeeper.connect: the ZooKeeper at {session.address} is of cluster {theirs}, and the "
                    f"data directories are of cluster {ours}: name another ZooKeeper, or another chroot."
                )
            return
        _create(session, ours)


def _refuse_others(session: Session, node_id: int) -> None:
    """A node alone knows nothing of the topics of another broker, and clients would look for them here."""
    session.ensure_path(nodes.BROKER_IDS)
    others = sorted(set(session.client.get_children(nodes.BROKER_IDS)) - {str(node_id)})
    if others:
        raise ConfigError(
            f"zookeeper.connect: broker {others[0]} is in the ZooKeeper at {session.address} already, and a "
            "node alone cannot share it: name another chroot, or let both join controllers (docs/cluster.md)."
        )


def _create(session: Session, ours: str) -> None:
    from kazoo.exceptions import NodeExistsError

    try:
        session.client.create(nodes.CLUSTER_ID, nodes.cluster_id(ours), acl=session.access(nodes.CLUSTER_ID))
    except NodeExistsError:
        # Another broker was faster, or somebody has made an empty node.
        if not session.get(nodes.CLUSTER_ID):
            session.client.set(nodes.CLUSTER_ID, nodes.cluster_id(ours))


def _listening(listener: Listener, config: BrokerConfig) -> nodes.Listening:
    """Address as advertised; without that the host of the listener, and for every interface this machine's
    name, as in Kafka."""
    host, port = listener.advertised or (listener.host, listener.port)
    if host in EVERY_HOST:
        host = socket.getfqdn()
    protocol = next(one.protocol for one in config.listeners if one.name == listener.name)
    return nodes.Listening(listener.name, host, port, protocol)
