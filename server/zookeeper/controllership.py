"""The one broker that writes for the cluster: it owns `/controller`, and each of its writes checks its epoch.

A node alone is always that broker; of the Odradek nodes of a cluster one is. Every write is a transaction
that also checks the version of `/controller_epoch`, so that a broker that was the controller, and does not
know yet that another one is, writes nothing (KAFKA-6082).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from odradek.coordinator.zookeeper import nodes
from odradek.coordinator.zookeeper.projection import Step
from odradek.server.zookeeper.session import Session

logger = logging.getLogger("odradek.zookeeper")

STEPS_MAX = 200
"""Steps in one transaction."""
BYTES_MAX = 500_000
"""Size of one transaction; ZooKeeper refuses a request of 1 MiB."""


class NotController(Exception):
    """Another broker writes, or has written what we had not seen: begin anew."""


class Controllership(NamedTuple):
    epoch: int
    epoch_version: int
    """Version of the node `/controller_epoch`."""


def elect(
    session: Session, node_id: int, now_ms: Callable[[], int], watch: Callable[[Any], object]
) -> Controllership | None:
    """Wins, or finds that it has won before in this session; None if another broker is the controller.
    `watch` is called when `/controller` changes."""
    from kazoo.exceptions import BadVersionError, NodeExistsError, NoNodeError, RolledBackError

    client = session.client
    while True:
        # Without the watch, which would see the node that we make.
        if client.exists(nodes.CONTROLLER) is not None:
            found = client.exists(nodes.CONTROLLER, watch)
            if found is None:
                continue
            if found.ephemeralOwner != session.id:
                return None
            # Won, and the response was lost.
            content, stat = client.get(nodes.CONTROLLER_EPOCH)
            return Controllership(int(content), stat.version)
        try:
            content, stat = client.get(nodes.CONTROLLER_EPOCH)
        except NoNodeError:
            try:
                client.create(nodes.CONTROLLER_EPOCH, b"0", acl=session.access(nodes.CONTROLLER_EPOCH))
            except NodeExistsError:
                pass
            continue
        epoch = int(content) + 1
        transaction = client.transaction()
        acl = session.access(nodes.CONTROLLER)
        transaction.create(nodes.CONTROLLER, nodes.controller(node_id, now_ms()), acl=acl, ephemeral=True)
        transaction.set_data(nodes.CONTROLLER_EPOCH, str(epoch).encode(), version=stat.version)
        results = transaction.commit()
        if not any(isinstance(one, Exception) for one in results):
            client.exists(nodes.CONTROLLER, watch)
            logger.info("controller of epoch %d in the ZooKeeper at %s", epoch, session.address)
            return Controllership(epoch, results[1].version)
        for one in results:
            if isinstance(one, Exception) and not isinstance(
                one, (BadVersionError, NodeExistsError, RolledBackError)
            ):
                raise one


def write(session: Session, controllership: Controllership, steps: Iterable[Step]) -> int:
    """Carries the steps out, as many in a transaction as fit; how many there were. Raises NotController."""
    batch: list[Step] = []
    count = size_bytes = 0
    for step in steps:
        step_bytes = len(step.path) + len(step.content or b"") + 50
        if batch and (len(batch) == STEPS_MAX or size_bytes + step_bytes > BYTES_MAX):
            _commit(session, controllership, batch)
            batch, size_bytes = [], 0
        batch.append(step)
        size_bytes += step_bytes
        count += 1
    if batch:
        _commit(session, controllership, batch)
    return count


def _commit(session: Session, controllership: Controllership, steps: Iterable[Step]) -> None:
    transaction = session.client.transaction()
    transaction.check(nodes.CONTROLLER_EPOCH, controllership.epoch_version)
    for step in steps:
        if step.content is None:
            transaction.delete(step.path)
        elif step.is_new:
            transaction.create(step.path, step.content, acl=session.access(step.path))
        else:
            transaction.set_data(step.path, step.content)
    failures = [one for one in transaction.commit() if isinstance(one, Exception)]
    if failures:
        raise NotController(", ".join(type(one).__name__ for one in failures))


def remove(session: Session, controllership: Controllership, path: str) -> None:
    """Removes one node, which may be gone already. Raises NotController."""
    from kazoo.exceptions import NoNodeError

    transaction = session.client.transaction()
    transaction.check(nodes.CONTROLLER_EPOCH, controllership.epoch_version)
    transaction.delete(path)
    failures = [one for one in transaction.commit() if isinstance(one, Exception)]
    if failures and not any(isinstance(one, NoNodeError) for one in failures):
        raise NotController(", ".join(type(one).__name__ for one in failures))
