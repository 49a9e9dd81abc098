"""The cluster options of a node: controllers, listeners among nodes, intervals, replication.

Only nodes of a cluster import this module: a node alone starts without it (`config/roles.py`).

Source: Kafka's KafkaConfig.validateValues and QuorumConfig, release 4.3.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

from odradek.config.config_error import ConfigError
from odradek.config.listeners import WILDCARDS, Listener, host_and_port
from odradek.config.roles import BOOTSTRAP_SERVERS, VOTERS

if TYPE_CHECKING:
    from odradek.config.option_values import BrokerValues

UNKNOWN_ID = -1
_LISTENER_NAMES: Final = "controller.listener.names"


class ControllerEndpoint(NamedTuple):
    """The address of a controller."""

    id: int
    """`UNKNOWN_ID` for a bootstrap server."""
    host: str
    port: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterConfig:
    """A node's place in its cluster, as several options have it together."""

    controllers: tuple[ControllerEndpoint, ...]
    """Never empty. The voters first, then bootstrap servers at other addresses."""
    controller_listener_name: str
    """The name of the controllers' listener: controllers return their endpoints by listener name."""
    controller_security_protocol: str
    """The protocol of connections to controllers: one of Kafka's four."""
    inter_broker_listener: Listener
    """One of `advertised`. Other brokers are reached at their listener of this name."""
    advertised: tuple[Listener, ...]
    """The listeners to register, in the order of the options. Host "" is the name of this machine; port 0 is
    the port that the listener of this name gets."""
    heartbeat_interval_ms: int
    """At least 1."""

    @property
    def bootstrap_text(self) -> str:
        """The controllers for messages: HOST:PORT, separated by commas."""
        return ",".join(_address(one) for one in self.controllers)


def cluster_config(
    values: BrokerValues,
    *,
    given: Mapping[str, str],
    node_id: int,
    opened: Iterable[Listener],
    advertised: Iterable[Listener],
    protocols: Mapping[str, str],
    inter_broker_listener_name: str,
) -> ClusterConfig:
    """The configuration of a broker of a cluster. `opened` are all listeners of the options,
    `advertised` those of `advertised.listeners`. ConfigError: Kafka would refuse these options, or they need
    a feature that is not built."""
    if "node.id" not in given and "broker.id" not in given:
        raise ConfigError("node.id is missing: give each node of a cluster a number of its own.")
    voters = _voters(values[VOTERS])
    if node_id in voters:
        raise ConfigError(
            f"{VOTERS} has node.id={node_id}, but process.roles=broker is not a controller: "
            "give this node another number."
        )
    name, protocol = _controller_listener(values, opened, protocols)
    registered = _registered(opened, advertised)
    _check_replication(values)
    return ClusterConfig(
        controllers=_controllers(voters, values[BOOTSTRAP_SERVERS]),
        controller_listener_name=name,
        controller_security_protocol=protocol,
        inter_broker_listener=_inter_broker(inter_broker_listener_name, registered),
        advertised=registered,
        # Kafka accepts 0 and less, and then sends heartbeats without a pause.
        heartbeat_interval_ms=max(values["broker.heartbeat.interval.ms"], 1),
    )


def cluster_warnings(values: BrokerValues) -> list[str]:
    """Sentences for the log at the start of a node of a cluster."""
    warnings = []
    interval, session = values["broker.heartbeat.interval.ms"], values["broker.session.timeout.ms"]
    if interval > session / 2:
        warnings.append(
            f"broker.heartbeat.interval.ms={interval} is more than half of broker.session.timeout.ms="
            f"{session}: after one lost heartbeat the controllers fence this broker."
        )
    names = values[_LISTENER_NAMES] or ()
    if len(names) > 1:
        warnings.append(f"{_LISTENER_NAMES} names several listeners: {names[0]}, the first, is used.")
    return warnings


def _voters(texts: Iterable[str]) -> dict[int, ControllerEndpoint]:
    voters = {}
    for text in texts:
        number, at, address = text.strip().partition("@")
        found = host_and_port(address) if at and number.isascii() and number.isdecimal() else None
        if found is None or found[0] in WILDCARDS:
            raise ConfigError(
                f"{VOTERS} has {text!r}: an entry is ID@HOST:PORT, such as 1@controller.example:9093."
            )
        voters[int(number)] = ControllerEndpoint(int(number), *found)
    return voters


def _controllers(
    voters: Mapping[int, ControllerEndpoint], servers: Iterable[str]
) -> tuple[ControllerEndpoint, ...]:
    known = {(one.host, one.port): one for one in voters.values()}
    for text in servers:
        found = host_and_port(text)
        if found is None:
            raise ConfigError(
                f"{BOOTSTRAP_SERVERS} has {text!r}: an entry is HOST:PORT, such as controller.example:9093."
            )
        known.setdefault(found, ControllerEndpoint(UNKNOWN_ID, *found))
    return tuple(known.values())


def _controller_listener(
    values: BrokerValues, opened: Iterable[Listener], protocols: Mapping[str, str]
) -> tuple[str, str]:
    """Name and protocol of the controllers' listener that this node uses."""
    names = [name.upper() for name in values[_LISTENER_NAMES] or ()]
    if not names or not all(names):
        raise ConfigError(
            f"{_LISTENER_NAMES} is missing: name the listener of the controllers, such as CONTROLLER."
        )
    for listener in opened:
        if listener.name in names:
            raise ConfigError(
                f"listeners has {listener.name}, which is a listener of controllers ({_LISTENER_NAMES}), and "
                "process.roles=broker is not a controller: remove it from listeners."
            )
    for name in names:
        if name not in protocols:
            raise ConfigError(
                f"{_LISTENER_NAMES} has {name} without a protocol: "
                f"add {name}:PLAINTEXT to listener.security.protocol.map."
            )
    return names[0], protocols[names[0]]


def _registered(opened: Iterable[Listener], advertised: Iterable[Listener]) -> tuple[Listener, ...]:
    """The listeners to register with the controllers."""
    registered = tuple(advertised) or tuple(opened)
    for listener in registered:
        if listener.host in WILDCARDS:
            raise ConfigError(
                f"listeners has {listener}, and other nodes cannot connect to that address: "
                "set advertised.listeners."
            )
    return registered


def _inter_broker(name: str, registered: tuple[Listener, ...]) -> Listener:
    found = next((listener for listener in registered if listener.name == name), None)
    if found is None:
        names = " or ".join(listener.name for listener in registered)
        raise ConfigError(
            f"The listener among brokers is {name}, which is not advertised to other nodes: "
            f"set inter.broker.listener.name to {names}, or add {name} to advertised.listeners."
        )
    return found


def _check_replication(values: BrokerValues) -> None:
    wait_ms = values["replica.fetch.wait.max.ms"]
    for name in ("replica.socket.timeout.ms", "replica.lag.time.max.ms"):
        if wait_ms > values[name]:
            raise ConfigError(
                f"replica.fetch.wait.max.ms={wait_ms} is above {name}={values[name]}: "
                "lower the first or raise the second."
            )


def _address(endpoint: ControllerEndpoint) -> str:
    host = f"[{endpoint.host}]" if ":" in endpoint.host else endpoint.host
    return f"{host}:{endpoint.port}"
