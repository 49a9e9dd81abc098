"""The security settings of one listener: its protocol, its SASL mechanisms, and the options as it sees them.

An option may be set for all listeners (`ssl.keystore.location`), for one listener
(`listener.name.inside.ssl.keystore.location`), and a few options for one mechanism of one listener
(`listener.name.inside.plain.sasl.jaas.config`). The narrower setting takes precedence. The names of listener
and mechanism are in lower case. Exceptions, as in Kafka:

- `sasl.jaas.config` of a server counts only with both prefixes.
- `ssl.client.auth` of a SASL_SSL listener counts only with the prefix of the listener.

Names that begin with `listener.name.` are refused at the start if they mean nothing: a wrong letter in one
would leave a listener less protected than its owner believes.

Sources: ChannelBuilders, SaslChannelBuilder and JaasContext of Kafka, release 4.3.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from odradek.config.config_error import ConfigError
from odradek.config.near_names import nearest
from odradek.config.options import (
    BROKER_OPTIONS,
    BrokerLayers,
    BrokerOptions,
    ListenerParts,
    option_of_listener,
    parts_of_listener,
)
from odradek.config.secret import Secret

MECHANISMS: Final = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER", "GSSAPI")
"""Kafka's mechanisms; of others it has no login modules."""
_JAVA_CLASSES: Final = (
    "sasl.server.callback.handler.class",
    "sasl.login.class",
    "sasl.login.callback.handler.class",
)
"""Classes that decide in Kafka who may log in; here nothing would call them. OAUTHBEARER's are judged with
its other settings (`config/oauthbearer.py`)."""
_FOR_LISTENERS: Final = (
    "connections.max.reauth.ms",
    "principal.builder.class",
    "max.connections",
    "max.connection.creation.rate",
)
_JAAS: Final = "sasl.jaas.config"
_CLIENT_AUTH: Final = "ssl.client.auth"


def _is_of_security(option: str) -> bool:
    return option.startswith(("ssl.", "sasl.")) or option in _FOR_LISTENERS


@dataclass(frozen=True, slots=True)
class ListenerSecurity:
    """See the module; made by `resolve`, never changed. Settings of TLS at run time make another one."""

    name: str
    """The listener's name, in upper case."""
    protocol: str
    """PLAINTEXT, SSL, SASL_PLAINTEXT or SASL_SSL."""
    mechanisms: tuple[str, ...]
    """The SASL mechanisms that are offered, in the order of `sasl.enabled.mechanisms`; empty without SASL."""
    values: Mapping[str, str] = field(repr=False)
    """The text of each option of TLS, SASL and listeners that is set for this listener or has a default.
    PASSWORD options are `Secret`."""
    of_mechanisms: Mapping[str, Mapping[str, str]] = field(repr=False)
    """The texts with both prefixes, by mechanism."""
    options: BrokerOptions = field(repr=False)

    @property
    def has_sasl(self) -> bool:
        return self.protocol.startswith("SASL_")

    @property
    def has_tls(self) -> bool:
        return self.protocol.endswith("SSL")

    def value(self, option: str, mechanism: str | None = None) -> Any:
        """The Python value of an option, also of a mechanism; None if it has none."""
        text = self.text(option, mechanism)
        return None if text is None else self.options[option].parse(text)

    def text(self, option: str, mechanism: str | None = None) -> str | None:
        """The text of an option, also of a mechanism."""
        if mechanism is not None and option in self.of_mechanisms.get(mechanism, {}):
            return self.of_mechanisms[mechanism][option]
        if option == _JAAS and mechanism is not None:
            return None
        return self.values.get(option)


def listener_prefix(name: str) -> str:
    """With what the names of settings of one listener begin."""
    return f"listener.name.{name.lower()}."


def resolve(name: str, protocol: str, layers: BrokerLayers, *, is_opened: bool = True) -> ListenerSecurity:
    """The security of the listener `name`. One that only others open (`is_opened` false) offers no mechanisms
    here. ConfigError: one sentence about a setting that it cannot have."""
    values = _defaults(layers)
    own: dict[str, str] = {}
    of_mechanisms: dict[str, dict[str, str]] = {}
    for layer in (layers.start, layers.all_brokers, layers.broker):
        for key, text in layer.items():
            if _is_of_security(key) and key in layers.options:
                values[key] = _hidden(key, text, layers)
                continue
            parts = parts_of_listener(key)
            if parts is None or parts.listener != name.lower():
                continue
            _, mechanism, option = parts
            if option not in layers.options or not _is_of_security(option):
                continue
            texts = own if mechanism is None else of_mechanisms.setdefault(mechanism.upper(), {})
            texts[option] = _hidden(option, text, layers)
    if protocol == "SASL_SSL" and _CLIENT_AUTH not in own:
        values[_CLIENT_AUTH] = "none"
    values |= own
    security = ListenerSecurity(name, protocol, (), values, of_mechanisms, layers.options)
    if not security.has_sasl or not is_opened:
        return security
    return replace(security, mechanisms=_mechanisms(security))


def check_names(given: Iterable[str], listeners: Iterable[str]) -> None:
    """Refuse settings of listeners that there are not, of mechanisms that there are not, and of options that
    there are not. `listeners` are names in any case, also those of controllers."""
    known = {name.lower() for name in listeners}
    mechanisms = [one.lower() for one in MECHANISMS]
    for name in given:
        if not name.startswith("listener.name."):
            continue
        parts = parts_of_listener(name)
        if parts is None or option_of_listener(name) is None:
            raise ConfigError(f"There is no option {name!r}.{_hint(parts)}")
        if parts.listener not in known:
            raise ConfigError(
                f"{name} is for a listener {parts.listener!r}, which is not in listeners or "
                f"listener.security.protocol.map: they have {', '.join(sorted(known))}, here in lower case."
            )
        if parts.mechanism not in (None, *mechanisms):
            # Kafka looks for the name in lower case, and does not see another one.
            raise ConfigError(
                f"{name} is for a mechanism {parts.mechanism!r}: the mechanisms are {', '.join(mechanisms)}, "
                "in lower case."
            )


def settings_without_use(given: Iterable[str], protocols: Mapping[str, str]) -> tuple[str, ...]:
    """The settings that no listener uses, such as those of SASL without a listener that has it.
    `protocols` are those of the opened listeners, by name."""
    by_name = {name.lower(): protocol for name, protocol in protocols.items()}
    unused = []
    for name in given:
        parts = parts_of_listener(name)
        if parts is None:
            uses, mechanism, option = list(by_name.values()), None, name
        else:
            uses, mechanism, option = [by_name.get(parts.listener, "")], parts.mechanism, parts.option
        needs = _needs(option)
        is_incomplete = option == _JAAS and mechanism is None
        if is_incomplete or (needs is not None and not any(needs(protocol) for protocol in uses)):
            unused.append(name)
    return tuple(unused)


def _needs(option: str) -> Callable[[str], bool] | None:
    if option.startswith("sasl.") or option == "connections.max.reauth.ms":
        return lambda protocol: protocol.startswith("SASL_")
    if option.startswith("ssl."):
        return lambda protocol: protocol.endswith("SSL")
    return None


def _defaults(layers: BrokerLayers) -> dict[str, str]:
    return {
        option.name: option.default_text
        for option in layers.options.values()
        if _is_of_security(option.name) and option.default_text is not None
    }


def _hidden(option: str, text: str, layers: BrokerLayers) -> str:
    return Secret(text) if layers.options[option].is_sensitive else text


def _mechanisms(security: ListenerSecurity) -> tuple[str, ...]:
    enabled = tuple(one for one in security.value("sasl.enabled.mechanisms") if one)
    if not enabled:
        raise ConfigError(
            f"Listener {security.name} has the protocol {security.protocol} and no mechanism: "
            f"name at least one in sasl.enabled.mechanisms, of {', '.join(MECHANISMS)}."
        )
    if unknown := [one for one in enabled if one not in MECHANISMS]:
        raise ConfigError(
            f"sasl.enabled.mechanisms of listener {security.name} has {', '.join(unknown)}: "
            f"the mechanisms are {', '.join(MECHANISMS)}."
        )
    for option in _JAVA_CLASSES:
        for mechanism in enabled:
            if mechanism != "OAUTHBEARER" and security.text(option, mechanism):
                raise ConfigError(
                    f"{option} of listener {security.name} is a Java class, and none can decide here who may "
                    "log in: remove the option."
                )
    return enabled


def _hint(parts: ListenerParts | None) -> str:
    near = None if parts is None else nearest(parts.option, BROKER_OPTIONS)
    return "" if near is None or parts is None else f" Did you mean listener.name.{parts.listener}.{near}?"
