"""Addresses of the brokers, timeouts and security of a client, from options with Kafka's names."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Self

from odradek.client.client_error import ClientError
from odradek.config.config_error import ConfigError
from odradek.security.client_security import ClientSecurity, is_security_option
from odradek.wire.schema import Message

_FIELD_OF_OPTION = {
    "bootstrap.servers": "bootstrap_servers",
    "client.id": "client_id",
    "request.timeout.ms": "request_timeout_ms",
    "retry.backoff.ms": "retry_ms",
    "default.api.timeout.ms": "patience_ms",
}
CLIENT_OPTIONS = frozenset(_FIELD_OF_OPTION)
"""Options of `ClientSettings.from_options`, without those of security."""
DEFAULT_PORT = 9092
Tell = Callable[[str], None]
Check = Callable[[Message], None]
Room = Callable[[int], None]


@dataclass(frozen=True, slots=True)
class ClientSettings:
    """Addresses of the brokers, and timeouts of the client; in milliseconds or bytes."""

    bootstrap_servers: str | Sequence[str]
    """`host:port`, several with commas (or a sequence); `host` alone has Kafka's port 9092."""
    client_id: str = "odradek"
    request_timeout_ms: int = 30_000
    """The longest wait for a response."""
    retry_ms: int = 50
    """The first pause before a retry; each is twice the last, up to a second."""
    patience_ms: int = 60_000
    """How long one request is retried."""
    unknown_topic_ms: int = 5_000
    """How long a topic may be unknown, as a new topic is for a moment."""
    response_bytes_max: int = 256 << 20
    """The largest response; a peer that announces more is not a broker."""
    security: ClientSecurity = field(default_factory=ClientSecurity)
    """TLS and SASL."""
    prefix: str = field(default="", compare=False)
    """Before the names of options in messages."""
    tell: Tell | None = field(default=None, compare=False)
    """Called with a sentence after a second of waiting for brokers; None: nobody reads it."""
    check: Check | None = field(default=None, compare=False)
    """Called with each request before it is sent, except those with which a connection begins; what it raises
    keeps the request from being sent."""
    room: Room | None = field(default=None, compare=False)
    """Called with the size of each response before it is read; what it raises ends the connection."""

    @classmethod
    def from_options(cls, options: Mapping[str, Any], prefix: str = "") -> Self:
        """From options with Kafka's names in lower case after `prefix`; others than those of
        `is_client_option` are ignored.

        ClientError for an option of security that cannot be honoured, for a wrong value, and without
        `bootstrap.servers`.
        """
        named = {
            name.removeprefix(prefix): value for name, value in options.items() if name.startswith(prefix)
        }
        if not str(named.get("bootstrap.servers", "")).strip():
            raise ClientError(
                f"the option {prefix}bootstrap.servers is missing: host:port of one broker or more"
            )
        values: dict[str, Any] = {}
        for name, attribute in _FIELD_OF_OPTION.items():
            if name in named:
                is_time = attribute.endswith("_ms")
                value = named[name]
                values[attribute] = _whole_number(prefix + name, value) if is_time else str(value)
        settings = cls(**values, security=_security(named, prefix), prefix=prefix)
        settings.addresses()
        return settings

    @property
    def bootstrap_option(self) -> str:
        """The name of the option with the addresses, for messages."""
        return f"{self.prefix}bootstrap.servers"

    def addresses(self) -> list[tuple[str, int]]:
        """Host and port of each bootstrap server; ClientError for a text that is not host:port."""
        servers = self.bootstrap_servers
        named = servers.split(",") if isinstance(servers, str) else servers
        found = [self._address(text.strip()) for text in named if text.strip()]
        if not found:
            raise ClientError(f"{self.bootstrap_option} names no broker: it is host:port of one or more")
        return found

    def _address(self, text: str) -> tuple[str, int]:
        found = re.fullmatch(
            r"(?:[A-Z_]+://)?(?:\[(?P<in_brackets>[^\[\]]+)\]|(?P<name>[^:\[\]]+))(?::(?P<port>[0-9]{1,5}))?",
            text,
        )
        if found is None or not 0 < int(found["port"] or DEFAULT_PORT) < 65536:
            raise ClientError(
                f"{self.bootstrap_option} has {text!r}, which is not host:port; an IPv6 address stands in [ ]"
            )
        return found["in_brackets"] or found["name"], int(found["port"] or DEFAULT_PORT)


def is_client_option(name: str) -> bool:
    """Whether `ClientSettings.from_options` reads the option; the name is in lower case, without a prefix."""
    return name in _FIELD_OF_OPTION or is_security_option(name)


def _security(named: Mapping[str, Any], prefix: str) -> ClientSecurity:
    given = {name: str(value) for name, value in named.items() if is_security_option(name)}
    try:
        return ClientSecurity.of(given, prefix)
    except ConfigError as error:
        raise ClientError(str(error).rstrip(".")) from None


def _whole_number(name: str, value: Any) -> int:
    text = str(value).strip()
    if not re.fullmatch(r"[1-9][0-9]{0,8}", text):
        raise ClientError(f"the option {name} is {text!r}: it has to be a number of milliseconds from 1 on")
    return int(text)
