"""The workers of a broker (`odradek.workers`): nodes of one cluster in processes of one machine.

Worker k is the node `node.id` + k, at the ports of the options + k, with `log.dirs` + `.wk`. The first one is
the controller, too. Workers reach each other and the controller at Unix sockets in a directory that only
their user may enter: no listener of the options has to be one among brokers.

Only brokers with workers import this module, and a node alone that was given their directories.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, Literal

from odradek.config.broker_config import CONSOLE_LISTEN, METRICS_LISTEN, TEST_API_LISTEN, BrokerConfig
from odradek.config.config_error import ConfigError
from odradek.config.listeners import OLDEST, Listener
from odradek.config.worker_place import WORKERS, WorkerPlace

_Factor = Literal[
    "default.replication.factor",
    "offsets.topic.replication.factor",
    "transaction.state.log.replication.factor",
    "share.coordinator.state.topic.replication.factor",
]
_FACTORS: Final[tuple[_Factor, ...]] = (
    "default.replication.factor",
    "offsets.topic.replication.factor",
    "transaction.state.log.replication.factor",
    "share.coordinator.state.topic.replication.factor",
)
NODE_ID_MAX, PORT_MAX = 2**31 - 1, 65_535


def directory_of(path: str, index: int) -> str:
    """The directory of a worker for one of `log.dirs`. Not one in it: any name there may be a partition's."""
    return path if index == 0 else f"{path.rstrip('/') or path}.w{index}"


def refuse_bounds(config: BrokerConfig, count: int) -> None:
    """ConfigError: a worker would have an id or a port that there is not, or the port of another listener."""
    last_id = config.node_id + count - 1
    if last_id > NODE_ID_MAX:
        raise ConfigError(
            f"node.id={config.node_id} and {WORKERS}={count} are too much: no node can have the id {last_id}."
        )
    known: dict[int, str] = {}
    ports = [(listener.name, listener.port) for listener in config.listeners if listener.port]
    if config.metrics_address is not None and config.metrics_address[1]:
        ports.append((METRICS_LISTEN, config.metrics_address[1]))
    for name, first in ports:
        if first + count - 1 > PORT_MAX:
            raise ConfigError(
                f"{name} has port {first}, and {WORKERS}={count} need {count} ports from there on: choose "
                f"one of {PORT_MAX - count + 1} or less."
            )
        for port in range(first, first + count):
            other = known.setdefault(port, name)
            if other != name:
                raise ConfigError(
                    f"{name} and {other} would both have port {port} with {WORKERS}={count}, since each "
                    f"worker has a port of its own: leave {count} ports between them."
                )
    for name in _FACTORS:
        factor = config.values[name]
        if factor > count:
            raise ConfigError(
                f"{name}={factor} needs {factor} brokers, and {WORKERS}={count} are {count}: lower it."
            )
    if config.test_api_addresses:
        raise ConfigError(f"{TEST_API_LISTEN} is for a broker of one process: leave it or {WORKERS} out.")
    oldest = next((one for one in config.listeners if one.protocol in OLDEST), None)
    if oldest is not None:
        raise ConfigError(
            f"The listener {oldest.name} has the protocol {oldest.protocol}, which only a node alone can "
            f"serve: leave it or {WORKERS} out."
        )


def config_of(config: BrokerConfig, place: WorkerPlace, ports: Mapping[str, int], rack: str) -> BrokerConfig:
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
        given["cordoned.log.dirs"] = ",".join(
            directory_of(path.strip(), index) for path in cordoned.split(",")
        )
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
    if place.is_controller:
        given.pop(CONSOLE_LISTEN, None)
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
