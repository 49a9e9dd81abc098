"""The settings of the client, from options that begin with `kafka.`, as Spark's own source names them."""

from collections.abc import Mapping
from typing import Any, Final

from odradek.client import settings
from odradek.client.settings import ClientSettings
from odradek.security.client_security import is_security_option

PREFIX: Final = "kafka."
CLIENT_ID: Final = "odradek-spark"
"""Where no option names one."""


def settings_of(options: Mapping[str, Any]) -> ClientSettings:
    """Settings from the options for which `is_client_option` is true; ClientError as from
    `ClientSettings.from_options`."""
    return ClientSettings.from_options({f"{PREFIX}client.id": CLIENT_ID, **_lowered(options)}, PREFIX)


def is_client_option(name: str) -> bool:
    """Whether `settings_of` reads the option; the name is in any case."""
    lowered = name.lower()
    return lowered.startswith(PREFIX) and settings.is_client_option(lowered.removeprefix(PREFIX))


def is_option_of_security(name: str) -> bool:
    """Whether it is about TLS or SASL; the name is in any case."""
    lowered = name.lower()
    return lowered.startswith(PREFIX) and is_security_option(lowered.removeprefix(PREFIX))


def _lowered(options: Mapping[str, Any]) -> dict[str, Any]:
    return {name.lower(): value for name, value in options.items()}
