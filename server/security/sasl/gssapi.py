"""GSSAPI: the client shows a ticket of Kerberos for this service.

Tokens go to and fro until the context of GSSAPI stands. Then the server offers its layers of protection, of
which it has none (01 00 00 00), wrapped by the context; the client's wrapped response chooses that and may
name an authorization id, which is ignored, as in Kafka: some clients write the name of the service there.
The response is wrapped with the key of the session, so a ticket that somebody else has copied is of no use. A
client that sent bare tokens gets nothing after its last one.

Each token is worked on in a worker thread: the library of Kerberos reads the keytab at each ticket, so new
keys need no restart, and may ask a name server.

A fault of the moment (a replay, a ticket that is not valid yet) closes without a response, so that the client
tries again. A principal with an escaped character in it is refused: its parts would not be clear.

Sources: RFC 4752; GssKrb5Server of Java; SaslServerAuthenticator and KerberosError of Kafka 4.3.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from odradek.config.config_error import ConfigError
from odradek.config.kerberos_names import NoLocalName
from odradek.server.security.sasl.mechanism import AuthenticationFailed, Later, Login, shown

if TYPE_CHECKING:
    from odradek.config.kerberos import KerberosService
    from odradek.config.kerberos_names import ShortNames

NO_LAYER: Final = 1
OFFER: Final = bytes((NO_LAYER, 0, 0, 0))
"""No layer, and so messages of no length in one."""
_KERBEROS_BASE = -1_765_328_384
"""Number of the library for error 0 of the protocol."""
_RETRIABLE = {21: "client not yet valid", 33: "ticket not yet valid", 34: "replay"}
"""Errors of the protocol (RFC 4120) that end by themselves, as in KerberosError."""
TEXT_LENGTH_MAX = 300
"""Length of the library's sentences."""


class Acceptor:
    """The library of one listener, with the key of its service."""

    def __init__(self, raw: Any, credentials: Any, names: ShortNames) -> None:
        self.raw = raw
        self.credentials = credentials
        self.names = names
        self.error: type[Exception] = raw.misc.GSSError


def open_acceptor(service: KerberosService, listener: str) -> Acceptor:
    """ConfigError: the library or the key is missing; one sentence."""
    try:
        import gssapi
        from gssapi import raw
        from gssapi.raw.misc import GSSError
    except (ImportError, OSError) as error:
        raise ConfigError(
            f"Listener {listener} offers GSSAPI, which needs a package more: pip install 'odradek[kerberos]' "
            f"({ascii(str(error))[1:-1]})."
        ) from None
    kind = gssapi.NameType.kerberos_principal
    try:
        store: dict[bytes | str, bytes | str] = {}
        if service.key_table is not None:
            store["keytab"] = service.key_table
        credentials = gssapi.Credentials(
            name=gssapi.Name(service.principal, kind),
            usage="accept",
            # No other mechanism, such as the one that negotiates.
            mechs=[gssapi.MechType.kerberos],
            store=store or None,
        )
    except GSSError as error:
        raise ConfigError(
            f"Listener {listener} cannot accept clients of Kerberos as {service.principal}: {_text(error)}."
        ) from None
    return Acceptor(raw, credentials, service.short_names(_default_realm(gssapi)))


def _default_realm(gssapi: Any) -> str:
    """Empty without one, as in Kafka."""
    try:
        name = gssapi.Name("x", gssapi.NameType.kerberos_principal).canonicalize(gssapi.MechType.kerberos)
    except gssapi.raw.misc.GSSError:
        return ""
    return str(name).partition("@")[2]


class GssapiServer:
    """One authentication."""

    def __init__(self, acceptor: Acceptor) -> None:
        self.login: Login | None = None
        self._acceptor = acceptor
        self._context: Any = None
        self._client = ""
        """The client's principal; empty before the context stands."""
        self._is_offered = False

    def respond(self, token: bytes, now_ms: int) -> Later:
        return Later(lambda: self._step(token))

    def _step(self, token: bytes) -> bytes | None:
        try:
            if self._is_offered:
                self._choice(token)
                return None
            return self._offer(token) if self._client else self._accept(token)
        except self._acceptor.error as error:
            raise _failure(error) from None

    def _accept(self, token: bytes) -> bytes:
        raw = self._acceptor.raw
        step = raw.accept_sec_context(token, self._acceptor.credentials, self._context)
        self._context = step.context
        if step.more_steps:
            return step.token or b""
        try:
            self._client = raw.display_name(step.initiator_name, False).name.decode()
        except UnicodeDecodeError:
            raise AuthenticationFailed("the name of the principal is not UTF-8") from None
        # A client that does not ask for a proof of the server has nothing to wait for.
        return step.token or self._offer(b"")

    def _offer(self, token: bytes) -> bytes:
        if token:
            raise AuthenticationFailed("a token where an empty message belongs")
        self._is_offered = True
        wrapped: bytes = self._acceptor.raw.wrap(self._context, OFFER, False).message
        return wrapped

    def _choice(self, token: bytes) -> None:
        choice = self._acceptor.raw.unwrap(self._context, token).message
        if len(choice) < len(OFFER) or choice[0] != NO_LAYER:
            raise AuthenticationFailed("a layer of protection that was not offered")
        if "\\" in self._client:
            raise AuthenticationFailed(f"principal {shown(self._client)} has an escaped character")
        try:
            name = self._acceptor.names.name_of(self._client)
        except NoLocalName as error:
            raise AuthenticationFailed(str(error)) from None
        self.login = Login(name)


def _failure(error: Any) -> AuthenticationFailed:
    number = (error.min_code - _KERBEROS_BASE) & 0xFFFF_FFFF
    known = _RETRIABLE.get(number)
    return AuthenticationFailed(_text(error) if known is None else known, is_silent=known is not None)


def _text(error: Any) -> str:
    """The library's own sentence, of the mechanism if it has one."""
    texts = error.get_all_statuses(error.min_code, False) if error.min_code else []
    texts = texts or error.get_all_statuses(error.maj_code, True)
    return shown("; ".join(texts), TEXT_LENGTH_MAX)[1:-1].rstrip(".")
