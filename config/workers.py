"""The workers of a broker (`odradek.workers`): nodes of one cluster in processes of one machine.

Worker k is the node `node.id` + k, at the ports of the options + k, with `log.dirs` + `.wk`. The first one is the
controller, too. Workers reach each other and the controller at Unix sockets in a directory that only their user
may enter: no listener of the options has to be one among brokers.

Only brokers with workers import this module.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from odradek.config.broker_config import METRICS_LISTEN, BrokerConfig
from odradek.config.cluster_config import ClusterConfig, ControllerEndpoint
from odradek.config.config_error import ConfigError
from odradek.config.controller_config import ControllerConfig
from odradek.config.listeners import OLDEST, WILDCARDS, Listener
from odradek.config.roles import Role

if TYPE_CHECKING:
    from odradek.config.option_values import BrokerValues

WORKERS: Final = "odradek.workers"
AMONG_WORKERS: Final = "ODRADEK_WORKERS"
"""The listener at which a worker serves the others."""
OF_CONTROLLER: Final = "ODRADEK_CONTROLLER"
"""The listener at which the first worker serves all as their controller."""
PRINCIPAL: Final = "Worker:odradek"
"""Who connects at these two: a super user. No login gives this name, whose type is not User."""
SOCKET_PORT: Final = 1
"""The port of a Unix socket in the metadata of the cluster, in which each address has one."""
_FACTORS: Final = (
    "default.replication.factor",
    "offsets.topic.replication.factor",
    "transaction.state.log.replication.factor",
    "share.coordinator.state.topic.replication.factor",
)
NODE_ID_MAX, PORT_MAX = 2**31 - 1, 65_535


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
            return Listener(OF_CONTROLLER, f"{self.folder}/controller", SOCKET_PORT, principal=PRINCIPAL)
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
                ControllerEndpoint(self.controller_id, f"{self.folder}/controller", SOCKET_PORT),
            ),
            controller_listener_name=OF_CONTROLLER,
            controller_security_protocol="PLAINTEXT",
            inter_broker_listener=self.listener,
            advertised=(*registered, self.listener),
            heartbeat_interval_ms=max(values["broker.heartbeat.interval.ms"], 1),
        )

    def controller(self, values: BrokerValues, data_directory: str) -> ControllerConfig:
        """The options of the controller, whose log is in the first directory of the first worker."""
        log_directory = values["metadata.log.dir"] or data_directory
        return ControllerConfig(listeners=(self.listener,), log_directory=log_directory)


def _registered(listener: Listener, advertised: Listener | None) -> Listener:
    """The address of a listener for the metadata of the cluster."""
    host = listener.host if advertised is None else advertised.host
    port = listener.port if advertised is None or not advertised.port else advertised.port
    return Listener(listener.name, host or WILDCARDS[0], port, listener.protocol)


def directory_of(path: str, index: int) -> str:
    """The directory of a worker for one of `log.dirs`. Not one in it: any name there may be a partition's."""
    return path if index == 0 else f"{path.rstrip('/') or path}.w{index}"


def refuse_roles(values: BrokerValues) -> None:
    """ConfigError for a broker with workers that has another role than a node alone."""
    roles = ",".join(values["process.roles"] or ())
    if roles:
        raise ConfigError(
            f"process.roles={roles} and {WORKERS}={values[WORKERS]} exclude each other: workers have a controller "
            "of their own. Leave process.roles out, or start one process for each node."
        )
    if values["zookeeper.connect"]:
        raise ConfigError(
            f"zookeeper.connect and {WORKERS}={values[WORKERS]} exclude each other: only a node alone registers in "
            "ZooKeeper."
        )


def refuse_bounds(config: BrokerConfig, count: int) -> None:
    """ConfigError: a worker would have an id or a port that there is not, or the port of another listener."""
    last_id = config.node_id + count - 1
    if last_id > NODE_ID_MAX:
        raise ConfigError(f"node.id={config.node_id} and {WORKERS}={count} are too much: {last_id} is no id of a node.")
    known: dict[int, str] = {}
    ports = [(listener.name, listener.port) for listener in config.listeners if listener.port]
    if config.metrics_address is not None and config.metrics_address[1]:
        ports.append((METRICS_LISTEN, config.metrics_address[1]))
    for name, first in ports:
        if first + count - 1 > PORT_MAX:
            raise ConfigError(
                f"{name} has port {first}, and {WORKERS}={count} need {count} ports from there on: choose one of "
                f"{PORT_MAX - count + 1} or less."
            )
        for port in range(first, first + count):
            other = known.setdefault(port, name)
            if other != name:
                raise ConfigError(
                    f"{name} and {other} would both have port {port} with {WORKERS}={count}, since each worker has "
                    f"a port of its own: leave {count} ports between them."
                )
    for name in _FACTORS:
        factor = config.values[name]
        if factor > count:
            raise ConfigError(f"{name}={factor} needs {factor} brokers, and {WORKERS}={count} are {count}: lower it.")
    oldest = next((one for one in config.listeners if one.protocol in OLDEST), None)
    if oldest is not None:
        raise ConfigError(
            f"The listener {oldest.name} has the protocol {oldest.protocol}, which only a node alone can serve: "
            f"leave it or {WORKERS} out."
        )


def config_of(
    config: BrokerConfig, place: WorkerPlace, ports: Mapping[str, int], rack: str
) -> BrokerConfig:
    """The configuration of a worker, or of the controller, made of that of the broker. `ports` are the bound
    ones by the names of listeners, `rack` is the default of `broker.rack`. Raises ConfigError."""
    given = dict(config.layers.start)
    index = place.index
    given["node.id"] = str(config.node_id + index)
    if "broker.id" in given:
        given["broker.id"] = given["node.id"]
    given.setdefault("broker.rack", rack)
    given["log.dirs"] = ",".join(directory_of(path, index) for path in config.data_directories)
    cordoned = given.get("cordoned.log.dirs", "").strip()
    if cordoned not in ("", "*"):
        given["cordoned.log.dirs"] = ",".join(directory_of(path.strip(), index) for path in cordoned.split(","))
    given["listeners"] = ",".join(
        str(Listener(one.name, one.host, ports[one.name])) for one in config.listeners
    )
    if "advertised.listeners" in given:
        given["advertised.listeners"] = ",".join(_advertised(config, index, ports))
    if config.metrics_address is not None and not place.is_controller:
        host = config.metrics_address[0]
        given[METRICS_LISTEN] = f"{f'[{host}]' if ':' in host else host}:{ports[METRICS_LISTEN]}"
    else:
        given.pop(METRICS_LISTEN, None)
    return BrokerConfig(
        given,
        cluster_id=config.cluster_id,
        first_levels=config.first_levels if place.is_controller else None,
        first_users=config.first_users if place.is_controller else (),
        place=place,
    )


def _advertised(config: BrokerConfig, index: int, ports: Mapping[str, int]) -> Sequence[str]:
    return [
        str(Listener(one.name, one.host, one.port + index if one.port else ports[one.name]))
        for one in config.advertised.values()
    ]
