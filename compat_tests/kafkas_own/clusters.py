"""The brokers of one of Kafka's tests: one alone where that is what it wants, else nodes under a controller.

Their ids are 0, 1, ..., as tests expect.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from typing import Any, Protocol

import odradek
from compat_tests import reference
from compat_tests.kit.transaction_brokers import SETTINGS
from compat_tests.quorum import Controllers, KafkaMember, OdradekMember

STATE_PARTITIONS = 3
"""Partitions of the topics of coordinators, unless a test says otherwise: few load quickly."""
COPIES_MAX = 3
OF_COORDINATORS = ("offsets.topic", "transaction.state.log", "share.coordinator.state.topic")

CONTROLLER = 3000
"""Id of the first controller, as tests expect."""
NOT_SETTABLE = ("unstable.api.versions.enable", "unstable.feature.versions.enable")
"""Options that Odradek refuses. Nearly all tests that set them want only what is there anyway."""


class Brokers(Protocol):
    """Brokers 0, 1, ... that run."""

    @property
    def bootstrap(self) -> str:
        """Their addresses, in the order of their ids."""

    @property
    def controllers(self) -> str:
        """Addresses of the controllers, "" where a broker is alone."""

    def stop(self, node_id: int) -> None: ...

    def start(self, node_id: int) -> None: ...


class _One:
    def __init__(self, broker: odradek.Broker | reference.Kafka) -> None:
        self._broker = broker

    @property
    def bootstrap(self) -> str:
        return self._broker.bootstrap_servers

    @property
    def controllers(self) -> str:
        return ""

    def stop(self, node_id: int) -> None:
        self._broker.stop()

    def start(self, node_id: int) -> None:
        self._broker.start()


class _Several:
    def __init__(self, controllers: Controllers, nodes: Sequence[OdradekMember | KafkaMember]) -> None:
        self._controllers, self._nodes = controllers, nodes

    @property
    def bootstrap(self) -> str:
        return ",".join(node.bootstrap_servers for node in self._nodes)

    @property
    def controllers(self) -> str:
        return self._controllers.bootstrap_servers

    def stop(self, node_id: int) -> None:
        self._nodes[node_id].stop()

    def start(self, node_id: int) -> None:
        self._nodes[node_id].start()


class _OurControllers(Controllers):
    are_ours = True


@contextmanager
def running(wishes: Mapping[str, str], *, is_odradek: bool, has_controller: bool) -> Iterator[Brokers]:
    """The brokers that the test wishes for (`KafkasOwnTests.java`), until it has ended. `has_controller`: one
    that is alone has a controller, too."""
    settings = {
        name: value
        for name, value in wishes.items()
        if not name.startswith(":") and not (is_odradek and name in NOT_SETTABLE)
    }
    features = _part(wishes, ":feature.")
    count = int(wishes[":brokers"])
    if count == 1 and not features and wishes[":disks"] == "1" and not has_controller:
        single = {"node.id": "0", **settings, **_part(wishes, ":of.0.")}
        # Without a look at its coordinators: their topics are not to be there before a test has used them.
        alone = (
            odradek.Broker(process=True, options={**SETTINGS, **single})
            if is_odradek
            else reference.Kafka(reference.CURRENT, {**_as_text(SETTINGS), **single, "node.id": "1"})
        )
        with alone as broker:
            yield _One(broker)
        return
    kind = _OurControllers if is_odradek else Controllers
    with ExitStack() as stack:
        levels = {name: int(level) for name, level in features.items()}
        of_controller = {**settings, "node.id": str(CONTROLLER), **_part(wishes, f":of.{CONTROLLER}.")}
        controllers = kind(of_controller, features=levels)
        stack.enter_context(controllers)
        nodes = [
            _node(
                controllers, node_id, wishes, {**_of_coordinators(count), **settings}, is_odradek=is_odradek
            )
            for node_id in range(count)
        ]
        for node in nodes:
            stack.push(node.__exit__)
        # Side by side: each waits for the controller most of the time.
        with ThreadPoolExecutor(count) as pool:
            list(pool.map(lambda node: node.start(), nodes))
        yield _Several(controllers, nodes)


def _node(
    controllers: Controllers,
    node_id: int,
    wishes: Mapping[str, str],
    settings: Mapping[str, str],
    *,
    is_odradek: bool,
) -> OdradekMember | KafkaMember:
    kind = OdradekMember if is_odradek else KafkaMember
    node = kind(controllers, node_id, {**settings, **_part(wishes, f":of.{node_id}.")})
    if isinstance(node, OdradekMember) and (disks := int(wishes[":disks"])) > 1:
        directories = [str(node.directory / f"data-{number}") for number in range(disks)]
        node.add_properties({"log.dirs": ",".join(directories)})
    return node


def _as_text(settings: Mapping[str, Any]) -> dict[str, str]:
    return {name: str(value) for name, value in settings.items()}


def _part(wishes: Mapping[str, str], begin: str) -> dict[str, str]:
    return {name.removeprefix(begin): value for name, value in wishes.items() if name.startswith(begin)}


def _of_coordinators(count: int) -> dict[str, str]:
    copies = str(min(count, COPIES_MAX))
    return {
        "transaction.state.log.min.isr": "1",
        "share.coordinator.state.topic.min.isr": "1",
        **{
            f"{topic}.{what}": value
            for topic in OF_COORDINATORS
            for what, value in (("num.partitions", str(STATE_PARTITIONS)), ("replication.factor", copies))
        },
    }
