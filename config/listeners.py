"""Listeners and addresses: parsing, and checks across listeners.

Sources: Kafka's SocketServerConfigs, KafkaConfig and Utils, release 4.3.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from socket import inet_aton
from typing import TYPE_CHECKING

from odradek.config.config_error import ConfigError

if TYPE_CHECKING:
    from odradek.config.option_values import BrokerValues

HOST_PORT = r"(?:\[(?P<ipv6>[0-9a-zA-Z:.%]+)\]|(?P<host>[0-9a-zA-Z._%-]*)):(?P<port>[0-9]{1,5})"
# Here the brackets of an IPv6 address may be missing, as in Kafka.
_BARE_PORT = r"(?P<bare>[0-9a-fA-F]*(?::[0-9a-fA-F.]*){2,}(?:%[0-9a-zA-Z]+)?):(?P<bare_port>[0-9]{1,5})"
_ENDPOINT = re.compile(rf"(?P<name>[^:/]+)://(?:{_BARE_PORT}|{HOST_PORT})")
_SERVER = rf"(?:[0-9a-zA-Z%._-]*://)?(?:{_BARE_PORT}|{HOST_PORT})"
WILDCARDS = ("0.0.0.0", "::")
"""Hosts that mean every interface, of both address families."""
KAFKA_07, KAFKA_06 = "KAFKA_07", "KAFKA_06"
"""The protocol of clients of Kafka 0.7, and the same for clients that know only the messages of Kafka 0.6;
both without TLS and SASL. Kafka has no such names."""
OLDEST = frozenset({KAFKA_07, KAFKA_06})
_PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL", KAFKA_07, KAFKA_06)


@dataclass(frozen=True, slots=True)
class Listener:
    """An address to listen on, or an advertised one."""

    name: str
    host: str
    """"" means every interface (or, advertised, the address at which the client connected)."""
    port: int
    """0 means any free port."""
    protocol: str = "PLAINTEXT"
    principal: str | None = None
    """The principal of all who connect, if nobody else can (`config/worker_place.py`)."""

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.name}://{host}:{self.port}"


def protocol_map(text: str) -> dict[str, str]:
    protocols: dict[str, str] = {}
    for pair in text.split(","):
        if not pair.strip():
            continue
        name, _, protocol = pair.rpartition(":")
        name, protocol = name.strip().upper(), protocol.strip().upper()
        if not name or protocol not in _PROTOCOLS:
            raise ConfigError(
                f"listener.security.protocol.map has {pair.strip()!r}: a pair is NAME:PROTOCOL, "
                f"the protocol one of {', '.join(_PROTOCOLS)}."
            )
        if protocols.setdefault(name, protocol) != protocol:
            raise ConfigError(f"listener.security.protocol.map gives listener {name} two protocols.")
    return protocols


def endpoints(option: str, texts: Iterable[str], protocols: Mapping[str, str]) -> list[Listener]:
    found: list[Listener] = []
    for text in texts:
        match = _ENDPOINT.fullmatch(text.strip())
        port = -1 if match is None else int(match["port"] or match["bare_port"])
        if match is None or port > 65535:
            raise ConfigError(
                f"{option} has {text!r}: an entry is NAME://HOST:PORT, such as PLAINTEXT://localhost:9092."
            )
        name = match["name"].upper()
        if name not in protocols:
            raise ConfigError(
                f"{option} has a listener {name!r} without a protocol: "
                f"add {name}:PLAINTEXT to listener.security.protocol.map."
            )
        host = match["ipv6"] or match["bare"] or match["host"] or ""
        found.append(Listener(name, host, port, protocols[name]))
    return found


def is_name(host: str) -> bool:
    """Whether `host` is a name, and not an address (such as 127.1) or every interface."""
    if not host or ":" in host:
        return False
    try:
        inet_aton(host)
    except OSError:
        return True
    return False


def check_ports_differ(listeners: Iterable[Listener]) -> None:
    """Refuse listeners with the same name, or with the same port, unless one has an IPv4 and the other an
    IPv6 address (KIP-797)."""
    names: set[str] = set()
    ports: dict[int, list[Listener]] = {}
    for listener in listeners:
        if listener.port:
            ports.setdefault(listener.port, []).append(listener)
        if listener.name in names:
            raise ConfigError(f"listeners has {listener.name} twice: give each listener a name of its own.")
        names.add(listener.name)
    for port, sharing in ports.items():
        families = [":" in listener.host for listener in sharing]
        is_wild = any(listener.host in ("", *WILDCARDS) for listener in sharing)
        if len(set(families)) != len(families) or (is_wild and len(sharing) > 1):
            raise ConfigError(f"listeners has port {port} twice: give each listener a port of its own.")


def advertised_listeners(
    listeners: Iterable[Listener], opened: set[str], controllers: set[str]
) -> dict[str, Listener]:
    advertised: dict[str, Listener] = {}
    for listener in listeners:
        if listener.name in controllers:
            continue
        if listener.name not in opened:
            raise ConfigError(
                f"advertised.listeners has {listener.name}, which is not in listeners: use the same names."
            )
        if listener.host in WILDCARDS:
            raise ConfigError(
                f"advertised.listeners has {listener}, and clients cannot connect to that address: "
                "name a host that they can reach, or leave the option out."
            )
        if listener.name in advertised:
            raise ConfigError(f"advertised.listeners has {listener.name} twice: give it one address.")
        advertised[listener.name] = listener
    return advertised


def inter_broker_listener(
    given: Mapping[str, str],
    values: "BrokerValues",
    listeners: tuple[Listener, ...],
    controllers: set[str],
    *,
    or_first: bool = True,
) -> str:
    """`or_first`: if no listener has Kafka's default name, it is the first one."""
    named = values["inter.broker.listener.name"]
    if named is None:
        protocol = values["security.inter.broker.protocol"]
        same = [listener.name for listener in listeners if listener.name == protocol]
        return same[0] if same else listeners[0].name if or_first else protocol
    named = named.upper()
    if "security.inter.broker.protocol" in given:
        raise ConfigError(
            "inter.broker.listener.name and security.inter.broker.protocol exclude each other: give only one."
        )
    if named in controllers:
        raise ConfigError(
            f"inter.broker.listener.name={named} is a listener of controllers: choose one for clients."
        )
    if all(listener.name != named for listener in listeners):
        raise ConfigError(f"inter.broker.listener.name={named} is not in listeners: choose one of them.")
    return named


def host_and_port(text: str) -> tuple[str, int] | None:
    """The address of another node, HOST:PORT; None if the text is no address. As in Kafka a protocol before
    it is ignored, and an IPv6 address needs no brackets."""
    match = re.fullmatch(_SERVER, text.strip())
    if match is None:
        return None
    host = match["ipv6"] or match["bare"] or match["host"]
    port = int(match["port"] or match["bare_port"])
    return (host, port) if host and 0 < port <= 65535 else None
