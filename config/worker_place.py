"""The place of a worker among the others, and of the controller of all, as nodes of one cluster.

Only brokers with workers import this module (`config/workers.py`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from odradek.config.cluster_config import ClusterConfig, ControllerEndpoint
from odradek.config.config_error import ConfigError
from odradek.config.controller_config import ControllerConfig
from odradek.config.listeners import WILDCARDS, Listener
from odradek.config.roles import Role

if TYPE_CHECKING:
    from odradek.config.option_values import BrokerValues

WORKERS: Final = "odradek.workers"
AMONG_WORKERS: Final = "ODRADEK_WORKERS"
"""The listener at which a worker serves the others."""
OF_CONTROLLER: Final = "ODRADEK_CONTROLLER"
"""The listener at which the first worker serves all as their controller."""
PRINCIPAL: Final = "Worker:odradek"
"""The principal of all who connect at these two: a super user. No login gives a name of this type."""
CONTROLLER_SOCKET: Final = "controller"
SOCKET_PORT: Final = 1
"""The port of a Unix socket in the metadata of the cluster, in which each address has one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerPlace:
    """The place of one worker, or of the controller, among the others."""

    index: int
    folder: str
    """Directory of the Unix sockets."""
    controller_id: int
    is_controller: bool = False

    @property
    def role(self) -> Role:
        return Role.CONTROLLER if self.is_controller else Role.WORKER

    @property
    def listener(self) -> Listener:
        """The listener at the Unix socket of this place."""
        if self.is_controller:
            return Listener(
                OF_CONTROLLER, f"{self.folder}/{CONTROLLER_SOCKET}", SOCKET_PORT, principal=PRINCIPAL
            )
        path = f"{self.folder}/worker-{self.index}"
        return Listener(AMONG_WORKERS, path, SOCKET_PORT, principal=PRINCIPAL)

    def cluster(
        self, values: BrokerValues, opened: Iterable[Listener], advertised: Mapping[str, Listener]
    ) -> ClusterConfig:
        """The place of a worker in the cluster; `opened` are its listeners for clients, `advertised` their
        advertised addresses by name. A wildcard stands for the address at which a client has connected."""
        registered = tuple(_registered(one, advertised.get(one.name)) for one in opened)
        return ClusterConfig(
            controllers=(
                ControllerEndpoint(self.controller_id, f"{self.folder}/{CONTROLLER_SOCKET}", SOCKET_PORT),
            ),
            controller_listener_name=OF_CONTROLLER,
            controller_security_protocol="PLAINTEXT",
            inter_broker_listener=self.listener,
            advertised=(*registered, self.listener),
            heartbeat_interval_ms=max(values["broker.heartbeat.interval.ms"], 1),
        )

    def controller(self) -> ControllerConfig:
        """The options of the controller, which is in the process of the first worker."""
        return ControllerConfig(listeners=(self.listener,))


def _registered(listener: Listener, advertised: Listener | None) -> Listener:
    """The address of a listener for the metadata of the cluster."""
    host = listener.host if advertised is None else advertised.host
    port = listener.port if advertised is None or not advertised.port else advertised.port
    return Listener(listener.name, host or WILDCARDS[0], port, listener.protocol)


def refuse_roles(values: BrokerValues) -> None:
    """ConfigError for a broker with workers that has another role than a node alone."""
    roles = ",".join(values["process.roles"] or ())
    if roles:
        raise ConfigError(
            f"process.roles={roles} and {WORKERS}={values[WORKERS]} exclude each other: workers have a "
            "controller of their own. Leave process.roles out, or start one process for each node."
        )
    if values["zookeeper.connect"]:
        raise ConfigError(
            f"zookeeper.connect and {WORKERS}={values[WORKERS]} exclude each other: only a node alone "
            "registers in ZooKeeper."
        )
