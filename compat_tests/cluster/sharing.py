"""Clusters that the tests of several files share, once in each process of pytest.

A controller with short sessions is behind them. Whoever starts a node of its own there stops it in order, so
that nobody waits for its session to end, neither the next with its number nor who asks all brokers.
"""

from __future__ import annotations

import os
import signal
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import Any

from compat_tests.broker_host import shared_host
from compat_tests.clients import wait_until
from compat_tests.cluster.test_membership import create_on
from compat_tests.differential.harness import Side
from compat_tests.kit.proxy import Proxy
from compat_tests.quorum import START_SECONDS, Controllers, KafkaMember, OdradekMember
from compat_tests.reference import Host, free_port
from odradek.wire.messages.find_coordinator import FindCoordinatorRequest

SESSION_MS = 3_000
SHORT_SESSION = {"broker.session.timeout.ms": str(SESSION_MS)}
"""Of the controllers: whom they do not hear of for so long is fenced."""
OFTEN_HEARD = {"broker.heartbeat.interval.ms": "500"}
"""Of the nodes: a busy machine may lose five of six heartbeats."""
QUICK = {
    "replica.lag.time.max.ms": "2000",
    "replica.fetch.backoff.ms": "200",
    "replica.socket.timeout.ms": "2000",
}
"""Of nodes that are to notice trouble soon."""

RACKS = {"ours": "a", "other": "b", "kafka": "c"}
NUMBERS = {"ours": 1, "other": 2, "kafka": 7}
MEMBERS = {
    # Consumers read in their rack if they say where they are (test_nearest_replica).
    "replica.selector.class": "org.apache.kafka.common.replica.RackAwareReplicaSelector",
    # Logs are cleaned soon (test_retention_and_compaction).
    "log.retention.check.interval.ms": "300",
    "log.initial.task.delay.ms": "100",
    "log.cleaner.backoff.ms": "200",
}

Member = OdradekMember | KafkaMember


def with_short_sessions(*, host: Host | None) -> Controllers:
    """One that a test has for itself; without a `host` it can be killed."""
    return Controllers(SHORT_SESSION, of_members=OFTEN_HEARD, host=host)


class SharedControllers(Controllers):
    """With a second listener, which is advertised at the port of a proxy: a node that comes there is sent
    there again."""

    def __init__(self) -> None:
        self.second_port = free_port()
        self.proxy = Proxy(self.second_port)
        super().__init__(SHORT_SESSION, of_members=OFTEN_HEARD, are_shared=True, host=shared_host())
        host, first, second = "127.0.0.1", self.port, self.second_port
        self._properties |= {
            "listeners": f"CONTROLLER://{host}:{first},CUT://{host}:{second}",
            "advertised.listeners": f"CONTROLLER://{host}:{first},CUT://{host}:{self.proxy.port}",
            "controller.listener.names": "CONTROLLER,CUT",
            "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,CUT:PLAINTEXT",
        }

    @property
    def behind_the_proxy(self) -> dict[str, str]:
        """Of a node that reaches the controllers by the proxy alone."""
        return {
            "controller.quorum.bootstrap.servers": f"127.0.0.1:{self.proxy.port}",
            "controller.listener.names": "CUT",
            "listener.security.protocol.map": "CUT:PLAINTEXT,PLAINTEXT:PLAINTEXT",
        }

    def __exit__(self, *error: Any) -> None:
        super().__exit__(*error)
        self.proxy.close()


def start_all(stack: ExitStack, nodes: list[Any]) -> None:
    """Side by side: each waits for the controller most of the time. They end with the stack."""
    for node in nodes:
        stack.push(node.__exit__)
    with ThreadPoolExecutor(len(nodes)) as pool:
        list(pool.map(lambda node: node.start(), nodes))


def lead_something(node: OdradekMember) -> None:
    """A node that leads nothing when it stops is refused by Kafka's controllers until its session is over, as
    if the former one might live."""
    side = Side("node", node.bootstrap_servers)
    create_on(side, f"led-by-{node.node_id}", node.node_id)
    side.close()


class Members:
    """Two nodes of ours and a broker of Kafka, which stay; each is in a rack of its own. The first has a test
    API at `kit_port`."""

    def __init__(self, controllers: SharedControllers) -> None:
        def properties(name: str) -> dict[str, str]:
            return {**MEMBERS, "broker.rack": RACKS[name]}

        self.kit_port = free_port()
        kit = {"odradek.test.api.listen": str(self.kit_port)}
        self.ours = OdradekMember(controllers, NUMBERS["ours"], {**properties("ours"), **kit})
        self.other = OdradekMember(controllers, NUMBERS["other"], properties("other"))
        self.kafka = KafkaMember(controllers, NUMBERS["kafka"], properties("kafka"), host=shared_host())
        self._stack = ExitStack()

    def __enter__(self) -> Members:
        with ExitStack() as stack:
            start_all(stack, [self.ours, self.other, self.kafka])
            self._make_topics_of_coordinators()
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *error: Any) -> None:
        self._stack.__exit__(*error)

    def _make_topics_of_coordinators(self) -> None:
        """While nobody else is there: a partition on a node that leaves would have no leader for ever."""
        side = Side("broker", self.ours.bootstrap_servers)

        def are_there() -> bool:
            asked = (FindCoordinatorRequest(coordinator_keys=["any"], key_type=kind) for kind in (0, 1))
            return all(side.ask(one, 4).coordinators[0].error_code == 0 for one in asked)

        try:
            wait_until(are_there, "the coordinators are there", seconds=START_SECONDS)
        finally:
            side.close()

    def named(self) -> dict[str, Member]:
        return {"ours": self.ours, "other": self.other, "kafka": self.kafka}


LEADER, FOLLOWER, WITNESS = 11, 12, 13
BROKERS = {
    "inter.broker.listener.name": "BROKERS",
    "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,BROKERS:PLAINTEXT",
}


class Troubled:
    """Three nodes of ours to which bad things happen. `mend` makes all whole again.

    The leader and the follower have a listener for each other; in front of the leader's is `proxy`. The
    witness says what the controllers say, and follows or leads nodes that have the usual listeners.
    """

    def __init__(self, controllers: SharedControllers) -> None:
        self.proxy = Proxy(free_port())
        self.metrics_ports = {LEADER: free_port(), FOLLOWER: free_port()}
        follower_port = free_port()
        self.leader = self._node(controllers, LEADER, self.proxy.target_port, self.proxy.port)
        self.follower = self._node(controllers, FOLLOWER, follower_port, follower_port)
        self.witness = OdradekMember(controllers, WITNESS, QUICK)
        self._stack = ExitStack()

    def _node(
        self, controllers: SharedControllers, node_id: int, port: int, advertised: int
    ) -> OdradekMember:
        metrics = {"odradek.metrics.listen": f"127.0.0.1:{self.metrics_ports[node_id]}"}
        node = OdradekMember(controllers, node_id, {**QUICK, **BROKERS, **metrics})
        ours = f"PLAINTEXT://127.0.0.1:{node.port}"
        node.add_properties(
            {
                "listeners": f"{ours},BROKERS://127.0.0.1:{port}",
                "advertised.listeners": f"{ours},BROKERS://127.0.0.1:{advertised}",
            }
        )
        return node

    @property
    def nodes(self) -> list[OdradekMember]:
        return [self.leader, self.follower, self.witness]

    def __enter__(self) -> Troubled:
        with ExitStack() as stack:
            stack.callback(self.proxy.close)
            start_all(stack, self.nodes)
            for node in self.nodes:
                lead_something(node)
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *error: Any) -> None:
        self._stack.__exit__(*error)

    def mend(self) -> None:
        """A test that fails leaves something behind as well."""
        self.proxy.mend()
        for node in self.nodes:
            if node.is_running:
                os.kill(node.pid, signal.SIGCONT)
            else:
                node.start()
