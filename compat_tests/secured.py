"""Apache Kafka and Odradek with a SASL listener and the same users."""

from __future__ import annotations

import contextlib
import pathlib
from collections.abc import Iterator, Mapping, Sequence

from compat_tests import reference
from odradek import Broker
from odradek.embedding.free_port import free_port

PASSWORD = "pw-of-ann"
OTHER_PASSWORD = "pw-of-bob"
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
LISTENER = "SASL_PLAINTEXT"
_SECURITY = "org.apache.kafka.common.security"
PLAIN_USERS = (
    f'{_SECURITY}.plain.PlainLoginModule required username="admin" password="pw-of-admin" '
    f'user_admin="pw-of-admin" user_ann="{PASSWORD}" user_bob="{OTHER_PASSWORD}";'
)
SCRAM_LOGIN = f'{_SECURITY}.scram.ScramLoginModule required username="admin" password="pw-of-admin";'
SCRAM_USERS = tuple(
    f"{mechanism}=[name={user},password={password}]"
    for mechanism in MECHANISMS[1:]
    for user, password in (("ann", PASSWORD), ("bob", OTHER_PASSWORD), ("admin", "pw-of-admin"))
)


def sasl_options(listener: str = LISTENER, **more: str) -> dict[str, str]:
    """Options of both; `more` have underscores for dots."""
    prefix = f"listener.name.{listener.lower()}"
    return {
        "sasl.enabled.mechanisms": ",".join(MECHANISMS),
        "sasl.mechanism.inter.broker.protocol": "PLAIN",
        "connection.failed.authentication.delay.ms": "100",
        f"{prefix}.plain.sasl.jaas.config": PLAIN_USERS,
        f"{prefix}.scram-sha-256.sasl.jaas.config": SCRAM_LOGIN,
        f"{prefix}.scram-sha-512.sasl.jaas.config": SCRAM_LOGIN,
        **{name.replace("_", "."): value for name, value in more.items()},
    }


class SecuredKafka(reference.Kafka):
    """Its listener for clients has SASL, and with SASL_SSL the TLS of `options`. `others` are listeners
    beside it. Each is at `address(name)`. `host` and `parent` are as in `reference.Kafka`."""

    def __init__(
        self,
        options: Mapping[str, str] | None = None,
        *,
        listener: str = LISTENER,
        others: Sequence[str] = (),
        version: str = reference.CURRENT,
        host: reference.Host | None = None,
        parent: pathlib.Path | None = None,
        **more: str,
    ) -> None:
        formatting = [word for user in SCRAM_USERS for word in ("--add-scram", user)]
        properties = {**sasl_options(listener, **more), **(options or {})}
        super().__init__(version, properties, formatting=formatting, host=host, parent=parent)
        self._listener = listener
        self._ports = {listener: self.port, **{name: free_port() for name in others}}

    def address(self, listener: str) -> str:
        return f"127.0.0.1:{self._ports[listener]}"

    def _format(self, config: pathlib.Path) -> None:
        super()._format(config)
        ports = {**self._ports, "CONTROLLER": self.controller_port}
        listeners = ",".join(f"{name}://127.0.0.1:{port}" for name, port in ports.items())
        for_clients = ",".join(f"{name}://127.0.0.1:{port}" for name, port in self._ports.items())
        protocols = ",".join(f"{name}:{name}" for name in self._ports)
        lines = {
            "listeners": listeners,
            "advertised.listeners": listeners if self.version == reference.CURRENT else for_clients,
            "inter.broker.listener.name": self._listener,
            "listener.security.protocol.map": f"CONTROLLER:PLAINTEXT,{protocols}",
        }
        kept = [line for line in config.read_text().splitlines() if line.partition("=")[0] not in lines]
        config.write_text("\n".join([*kept, *(f"{name}={value}" for name, value in lines.items())]) + "\n")


class SecuredOdradek(Broker):
    """A broker in a thread, at the addresses `address(listener)`."""

    def __init__(self, ports: Mapping[str, int], options: Mapping[str, str], directory: pathlib.Path) -> None:
        super().__init__(options=options, data_dir=directory)
        self._ports = dict(ports)

    def address(self, listener: str) -> str:
        return f"127.0.0.1:{self._ports[listener]}"


@contextlib.contextmanager
def secured_odradek(
    directory: pathlib.Path,
    options: Mapping[str, str] | None = None,
    *,
    listener: str = LISTENER,
    others: Sequence[str] = (),
    **more: str,
) -> Iterator[SecuredOdradek]:
    """A broker in a thread, with the users of `SCRAM_USERS`."""
    from odradek.config.broker_config import load
    from odradek.config.first_users import parse
    from odradek.server.security.stopped_users import add

    for user in parse(" ".join(SCRAM_USERS)):
        add(load(data_dir=directory), user)
    ports = {name: free_port() for name in (listener, *others)}
    settings = {
        **sasl_options(listener, **more),
        **(options or {}),
        "listeners": ",".join(f"{name}://127.0.0.1:{port}" for name, port in ports.items()),
        "inter.broker.listener.name": listener,
    }
    with SecuredOdradek(ports, settings, directory) as broker:
        yield broker
