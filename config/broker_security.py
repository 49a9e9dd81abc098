"""The security of all listeners of a broker, and how it logs in to others: read once, at the start."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from odradek.config import listener_security, logins
from odradek.config.config_error import ConfigError
from odradek.config.credentials import Credentials
from odradek.config.listener_security import ListenerSecurity
from odradek.config.listeners import OLDEST, Listener
from odradek.config.logins import Contexts, Logins
from odradek.config.options import BrokerLayers

if TYPE_CHECKING:
    from odradek.config.cluster_config import ClusterConfig
    from odradek.config.option_values import BrokerValues


@dataclass(frozen=True, slots=True)
class BrokerSecurity:
    """See the module."""

    listeners: Mapping[str, ListenerSecurity]
    """By name, those that are not PLAINTEXT."""
    logins: Mapping[str, Logins]
    """By the name of a listener with SASL."""
    inter_broker: Credentials | None
    """For the listener among brokers; None: it has no SASL, or the node is alone."""
    of_controllers: ListenerSecurity | None
    """For the listener of the controllers; None: it is PLAINTEXT, or the node is alone."""
    controllers: Credentials | None
    unused: tuple[str, ...]
    """Settings that no listener uses."""
    warnings: tuple[str, ...]


def read(
    values: BrokerValues,
    layers: BrokerLayers,
    opened: Iterable[Listener],
    known_names: Iterable[str],
    cluster: ClusterConfig | None,
) -> BrokerSecurity:
    """`opened` are the served listeners, `known_names` all names that settings may have. ConfigError:
    one sentence."""
    opened = tuple(opened)
    listener_security.check_names(layers.start, known_names)
    protocols = {one.name: one.protocol for one in opened}
    if cluster is not None:
        protocols[cluster.controller_listener_name] = cluster.controller_security_protocol
    listeners = {
        one.name: listener_security.resolve(one.name, one.protocol, layers)
        for one in opened
        if one.protocol not in {"PLAINTEXT", *OLDEST}
    }
    controllers = None if cluster is None else _of_controllers(layers, cluster)
    contexts = logins.read_contexts(values)
    with_sasl = [one for one in listeners.values() if one.has_sasl]
    logins_of = {one.name: logins.logins_of(one, contexts) for one in with_sasl}
    return BrokerSecurity(
        listeners,
        logins_of,
        None if cluster is None else _inter_broker(values, listeners, cluster, contexts),
        controllers,
        None if controllers is None else _login_to_controllers(values, controllers, contexts),
        listener_security.settings_without_use(layers.start, protocols),
        (
            *logins.warnings_of_file(values),
            *(warning for one in with_sasl for warning in logins.warnings_of(one, logins_of[one.name])),
        ),
    )


def _inter_broker(
    values: BrokerValues,
    listeners: Mapping[str, ListenerSecurity],
    cluster: ClusterConfig,
    contexts: Contexts,
) -> Credentials | None:
    security = listeners.get(cluster.inter_broker_listener.name)
    if security is None or not security.has_sasl:
        return None
    option: Final = "sasl.mechanism.inter.broker.protocol"
    if values[option] not in security.mechanisms:
        raise ConfigError(
            f"{option}={values[option]} is not among the mechanisms of listener {security.name}, at which "
            f"brokers reach each other: choose one of {', '.join(security.mechanisms)}, or add it there."
        )
    return logins.credentials_of(security, values[option], contexts, option)


def _of_controllers(layers: BrokerLayers, cluster: ClusterConfig) -> ListenerSecurity | None:
    name, protocol = cluster.controller_listener_name, cluster.controller_security_protocol
    if protocol == "PLAINTEXT":
        return None
    return listener_security.resolve(name, protocol, layers, is_opened=False)


def _login_to_controllers(
    values: BrokerValues, security: ListenerSecurity, contexts: Contexts
) -> Credentials | None:
    if not security.has_sasl:
        return None
    option: Final = "sasl.mechanism.controller.protocol"
    return logins.credentials_of(security, values[option], contexts, option)
