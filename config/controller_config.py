"""The options of a controller: its listeners, where it is reached, and what it looks after.

Only controllers import this module (`config/roles.py`).

Source: Kafka's KafkaConfig.validateValues and QuorumConfig, release 4.4.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from odradek.config.config_error import ConfigError
from odradek.config.listeners import Listener

if TYPE_CHECKING:
    from odradek.config.option_values import BrokerValues

_LISTENER_NAMES: Final = "controller.listener.names"


@dataclass(frozen=True, slots=True, kw_only=True)
class ControllerConfig:
    """Values of a controller that several options have together."""

    listeners: tuple[Listener, ...]
    """The listeners to open, in the order of `controller.listener.names`."""


def listener_names(values: BrokerValues) -> list[str]:
    """The names of listeners of controllers, each once. ConfigError: there is none."""
    names = [name.upper() for name in values[_LISTENER_NAMES] or ()]
    if not names or not all(names):
        raise ConfigError(
            f"{_LISTENER_NAMES} is missing: name the listener of the controllers, such as CONTROLLER."
        )
    return list(dict.fromkeys(names))


def controller_config(
    values: BrokerValues,
    *,
    given: Mapping[str, str],
    names: Sequence[str],
    opened: Iterable[Listener],
) -> ControllerConfig:
    """`names` are those of `listener_names`, `opened` all listeners of the options. ConfigError: Kafka would
    refuse these options."""
    if "node.id" not in given and "broker.id" not in given:
        raise ConfigError("node.id is missing: give each node of a cluster a number of its own.")
    by_name = {listener.name: listener for listener in opened}
    for name in by_name:
        if name not in names:
            raise ConfigError(
                f"listeners has {name}, which is for clients, and process.roles=controller serves none: "
                f"remove it, or add it to {_LISTENER_NAMES}."
            )
    listeners = tuple(by_name[name] for name in names if name in by_name)
    if not listeners:
        raise ConfigError(
            f"listeners has none of {_LISTENER_NAMES}: add one, such as {names[0]}://localhost:9093."
        )
    return ControllerConfig(listeners=listeners)
