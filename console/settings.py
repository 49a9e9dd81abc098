"""Settings of a console: where its brokers are, and what it may show and do."""

from dataclasses import dataclass, field, replace

from odradek.client.client_error import ClientError
from odradek.client.settings import ClientSettings
from odradek.commands.schemas import Schemas

PATIENCE_MS = 6_000
"""How long a page waits for brokers that do not respond; each part of it says so then."""
REQUEST_TIMEOUT_MS = 15_000
LOOPBACK = ("127.0.0.1", "::1", "localhost")


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsoleSettings:
    """Options of a console."""

    client: ClientSettings
    """Settings of the connections; their credentials are used only with `is_anonymous`."""
    read_only: bool = False
    """Nothing is changed, whoever asks."""
    hides_messages: bool = False
    """No record is read, whoever asks."""
    is_anonymous: bool = False
    """Nobody logs in: all who reach the console use the connection as it is configured."""
    hosts: frozenset[str] = field(default_factory=frozenset)
    """Names under which browsers reach the console, beside addresses and localhost."""
    schemas: Schemas = field(default_factory=Schemas)
    """Where schemas of Avro and Protobuf are from."""
    mechanism: str = ""
    """The SASL mechanism of the login; empty without SASL."""
    admin_folder: str | None = None
    """Directory with the sockets of brokers that tell more; None: there is none."""

    @property
    def has_login(self) -> bool:
        """Whether a person has to log in."""
        return self.client.security.has_sasl and not self.is_anonymous

    @property
    def brokers(self) -> str:
        """The bootstrap servers, for people."""
        return ",".join(
            f"[{host}]:{port}" if ":" in host else f"{host}:{port}" for host, port in self.client.addresses()
        )


def patient(settings: ClientSettings) -> ClientSettings:
    """The settings with bounds for a page that a person waits for."""
    return replace(
        settings,
        tell=None,
        patience_ms=min(settings.patience_ms, PATIENCE_MS),
        request_timeout_ms=min(settings.request_timeout_ms, REQUEST_TIMEOUT_MS),
    )


def check_listener(settings: ConsoleSettings, host: str) -> None:
    """ClientError for a console that would let people in without asking who they are.

    That is allowed at a loopback address, for a connection that proves nothing itself: who can reach the
    console can reach the brokers in the same way.
    """
    if settings.is_anonymous or settings.has_login:
        return
    if has_certificate(settings.client):
        raise ClientError(
            "the connection has a certificate of its own (ssl.keystore.*), which all who reach the console "
            "would use: use a listener with SASL, where each person logs in, or give --anonymous if that is "
            "meant"
        )
    if host not in LOOPBACK:
        raise ClientError(
            f"the brokers ask nobody to log in, and {host} can be reached from other machines: listen at "
            "127.0.0.1, use a listener with SASL, or give --anonymous if all who reach the console may use "
            "the cluster"
        )


def has_certificate(client: ClientSettings) -> bool:
    """Whether the connection proves by a certificate who it is."""
    return any(name.startswith("ssl.keystore.") for name, _ in client.security.tls_values)
