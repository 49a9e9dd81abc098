"""New keys and certificates for listeners that serve: set at run time, or found in a changed file.

Only new connections get them. A change is checked before it is accepted, as in Kafka: the stores load, no
key store goes and no trust store appears, the broker keeps its name and its addresses unless
`ssl.allow.dn.changes` or `ssl.allow.san.changes` says otherwise, and on the listener among brokers the old
and the new settings can talk to each other. Kafka notices a changed file only when its location is set again;
here it is also looked for, in a thread, since a mount may hang.

Source: SslFactory.createNewSslEngineFactory of Kafka 4.3.
"""

from __future__ import annotations

import logging
import ssl
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from odradek.config.config_error import ConfigError
from odradek.config.listener_security import ListenerSecurity, resolve
from odradek.config.options import BrokerLayers
from odradek.security.tls import TlsSettings, openssl_reason
from odradek.wire.distinguished_name import DamagedCertificate, alternative_names, name_text, subject_of

if TYPE_CHECKING:
    from odradek.config.live import LiveConfig
    from odradek.server.network.timers import Timers
    from odradek.server.network.tls_transport import TlsAcceptor

logger = logging.getLogger("odradek.broker")

POLL_MS = 10_000
FLIGHTS_MAX = 10
"""A handshake has five at most."""


def settings_of(security: ListenerSecurity, *, is_start: bool = True) -> TlsSettings:
    """Raises ConfigError, whose sentence begins with the listener."""
    return TlsSettings.of(security.values, f"Listener {security.name}: ", is_start=is_start)


class Elsewhere(Protocol):
    """Calls a function in a thread, and then on the event loop `done` with its result, or `failed`."""

    def __call__(
        self, function: Callable[[], Any], done: Callable[[Any], None], failed: Callable[[Exception], None]
    ) -> None: ...


class _Change(NamedTuple):
    settings: TlsSettings
    context: ssl.SSLContext | None
    """None: the settings are as they were; a file may have been written again with the same content."""


class TlsReload:
    """For all listeners with TLS of one broker, on its event loop."""

    def __init__(
        self,
        acceptors: Mapping[str, TlsAcceptor],
        protocols: Mapping[str, str],
        layers: BrokerLayers,
        inter_broker_listener: str,
        run_soon: Callable[[Callable[[], object]], object],
        run_elsewhere: Elsewhere,
    ) -> None:
        """`acceptors` and `protocols` are by the names of listeners. `layers` are the present settings."""
        self._acceptors = acceptors
        self._protocols = protocols
        self._layers = layers
        self._inter_broker_listener = inter_broker_listener
        self._run_soon = run_soon
        self._run_elsewhere = run_elsewhere
        self._is_looking = False
        self._follows = 0
        self._told: dict[str, str] = {}
        """By listener, the last refusal: it comes with every poll, and is said once."""

    def start(self, timers: Timers) -> Callable[[], None]:
        """Looks for changed files from now on; the returned function ends it."""
        return timers.every(POLL_MS, self.poll)

    def check(self, layers: BrokerLayers) -> None:
        """Refuses settings that a listener cannot have, with ConfigError. As in Kafka those that are as they
        were are not looked at; they may mean files that have changed, which are read soon."""
        for name in self._acceptors:
            if self._values(name, layers) != self._values(name, self._layers):
                self._change(name, layers)
        self._run_soon(self.poll)

    def follow(self, live: LiveConfig[Any]) -> None:
        """Uses the present settings, as far as they can be used."""
        self._layers = live.layers
        self._follows += 1
        for name in self._acceptors:
            self._take(name, self._judged(name, self._layers))

    def poll(self) -> None:
        """Reads files that have changed, and those that were refused."""
        if self._is_looking:
            return
        self._is_looking = True
        layers, refused, follows = self._layers, frozenset(self._told), self._follows
        self._run_elsewhere(
            lambda: self._found(layers, refused), lambda found: self._looked(follows, found), self._broken
        )

    def _found(self, layers: BrokerLayers, refused: frozenset[str]) -> dict[str, _Change | ConfigError]:
        """In a thread."""
        return {
            name: self._judged(name, layers)
            for name, acceptor in self._acceptors.items()
            if name in refused or not acceptor.settings.is_current
        }

    def _looked(self, follows: int, found: Mapping[str, _Change | ConfigError]) -> None:
        self._is_looking = False
        if follows != self._follows:
            # `follow` has read the files meanwhile, perhaps later.
            return
        for name, change in found.items():
            self._take(name, change)

    def _broken(self, error: Exception) -> None:
        self._is_looking = False
        logger.error("looking for changed TLS files failed", exc_info=error)

    def _judged(self, name: str, layers: BrokerLayers) -> _Change | ConfigError:
        try:
            return self._change(name, layers)
        except ConfigError as error:
            return error

    def _take(self, name: str, change: _Change | ConfigError) -> None:
        acceptor = self._acceptors[name]
        if isinstance(change, ConfigError):
            if self._told.get(name) != str(change):
                self._told[name] = str(change)
                logger.error("new TLS settings are not used, the old ones stay: %s", change)
            return
        self._told.pop(name, None)
        if change.context is None:
            acceptor.settings = change.settings
            return
        acceptor.use(change.settings, change.context)
        logger.info("listener %s has new TLS settings for new connections", name)

    def _security(self, name: str, layers: BrokerLayers) -> ListenerSecurity:
        return resolve(name, self._protocols[name], layers)

    def _values(self, name: str, layers: BrokerLayers) -> Mapping[str, str]:
        return self._security(name, layers).values

    def _change(self, name: str, layers: BrokerLayers) -> _Change:
        """Raises ConfigError."""
        present = self._acceptors[name].settings
        wanted = settings_of(self._security(name, layers), is_start=False)
        if wanted == present:
            return _Change(present if present.is_current else wanted, None)
        check_change(present, wanted)
        context = wanted.server_context()
        if name == self._inter_broker_listener and _talks(present, present) is None:
            _check_talks(present, wanted)
            _check_talks(wanted, present)
        return _Change(wanted, context)


def check_change(old: TlsSettings, new: TlsSettings) -> None:
    """Refuses new settings of a listener that serves, with ConfigError."""
    if old.key_store is not None and new.key_store is None:
        raise ConfigError(f"{new.origin}a listener that serves cannot lose its key store.")
    if old.trust_store is None and new.trust_store is not None:
        raise ConfigError(
            f"{new.origin}a listener that serves cannot get a trust store that it did not have."
        )
    if old.key_store is None or new.key_store is None:
        return
    before, after = old.key_store.chain[0], new.key_store.chain[0]
    try:
        _check_names(before, after, new)
    except DamagedCertificate as error:
        raise ConfigError(f"{new.origin}a certificate of the key store cannot be read: {error}.") from None


def _check_names(before: bytes, after: bytes, new: TlsSettings) -> None:
    name_before, name_after = name_text(subject_of(before)), name_text(subject_of(after))
    if not new.allows_name_changes and name_before.lower() != name_after.lower():
        raise ConfigError(
            f"{new.origin}the new certificate has the name {name_after!r} in place of {name_before!r}, and "
            "ssl.allow.dn.changes is false."
        )
    if not new.allows_address_changes and not alternative_names(before) <= alternative_names(after):
        raise ConfigError(
            f"{new.origin}the new certificate lacks alternative names that the old one has, and "
            "ssl.allow.san.changes is false."
        )


def check_talks_to_itself(settings: TlsSettings) -> None:
    """Refuses settings with which brokers could not connect to each other, with ConfigError."""
    _check_talks(settings, settings)


def _check_talks(client: TlsSettings, server: TlsSettings) -> None:
    reason = _talks(client, server)
    if reason is not None:
        raise ConfigError(
            f"{server.origin}brokers could not connect to each other with its key store and trust store: "
            f"{reason}."
        )


def _talks(client: TlsSettings, server: TlsSettings) -> str | None:
    """None if a handshake succeeds, whatever the hosts; else the reason."""
    client_context = client.client_context()
    client_context.check_hostname = False
    to_client, to_server = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = [
        client_context.wrap_bio(to_client, to_server),
        server.server_context().wrap_bio(to_server, to_client, server_side=True),
    ]
    for _ in range(FLIGHTS_MAX):
        waiting = []
        for end in ends:
            try:
                end.do_handshake()
            except ssl.SSLWantReadError:
                waiting.append(end)
            except (ssl.SSLError, OSError) as error:
                return openssl_reason(error)
        if not waiting:
            return None
    return "the handshake has no end"
