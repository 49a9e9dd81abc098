"""TLS as the options of one listener have it, and the contexts of Python's `ssl` that come of it.

`TlsSettings.of` reads key and trust stores and refuses, with one ConfigError, what cannot be had: a broker
does not start half protected. What Java means by an option and Python cannot do is refused, never left out.

Sources: SslConfigs, SslFactory and DefaultSslEngineFactory of Kafka 4.3; KIP-519, KIP-651, KIP-684.
"""

from __future__ import annotations

import os
import ssl
import stat
from collections.abc import Mapping
from dataclasses import dataclass, field

from odradek.config.config_error import ConfigError
from odradek.config.options import BROKER_OPTIONS
from odradek.config.principal_mapping import PrincipalMapping
from odradek.security.key_stores import (
    FileState,
    KeyStore,
    TrustStore,
    key_store_of,
    keys_as_file,
    to_pem,
    trust_store_of,
)

NONE, REQUESTED, REQUIRED = "none", "requested", "required"
_VERIFY = {NONE: ssl.CERT_NONE, REQUESTED: ssl.CERT_OPTIONAL, REQUIRED: ssl.CERT_REQUIRED}
_VERSIONS = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}
_SUITES_1_3 = frozenset(("TLS_AES_256_GCM_SHA384", "TLS_AES_128_GCM_SHA256", "TLS_CHACHA20_POLY1305_SHA256"))
_SUITES_1_2 = {
    f"TLS_{exchange.replace('-', '_')}_WITH_{cipher}": f"{exchange}-{name}"
    for exchange in ("ECDHE-ECDSA", "ECDHE-RSA", "DHE-RSA")
    for cipher, name in (
        ("AES_256_GCM_SHA384", "AES256-GCM-SHA384"),
        ("AES_128_GCM_SHA256", "AES128-GCM-SHA256"),
        ("CHACHA20_POLY1305_SHA256", "CHACHA20-POLY1305"),
        ("AES_128_CBC_SHA256", "AES128-SHA256"),
        ("AES_256_CBC_SHA", "AES256-SHA"),
        ("AES_128_CBC_SHA", "AES128-SHA"),
    )
} | {
    "TLS_ECDHE_ECDSA_WITH_AES_256_CBC_SHA384": "ECDHE-ECDSA-AES256-SHA384",
    "TLS_ECDHE_RSA_WITH_AES_256_CBC_SHA384": "ECDHE-RSA-AES256-SHA384",
    "TLS_DHE_RSA_WITH_AES_256_CBC_SHA256": "DHE-RSA-AES256-SHA256",
    "TLS_RSA_WITH_AES_256_GCM_SHA384": "AES256-GCM-SHA384",
    "TLS_RSA_WITH_AES_128_GCM_SHA256": "AES128-GCM-SHA256",
    "TLS_RSA_WITH_AES_256_CBC_SHA256": "AES256-SHA256",
    "TLS_RSA_WITH_AES_128_CBC_SHA256": "AES128-SHA256",
    "TLS_RSA_WITH_AES_256_CBC_SHA": "AES256-SHA",
    "TLS_RSA_WITH_AES_128_CBC_SHA": "AES128-SHA",
}
"""The name in IANA's list, which Java uses, to OpenSSL's."""


@dataclass(frozen=True, slots=True)
class TlsSettings:
    """See the module. Equal ones make equal contexts, as long as their files are as they were read."""

    key_store: KeyStore | None
    trust_store: TrustStore | None
    client_auth: str
    versions: tuple[str, str]
    """The oldest and the newest."""
    ciphers: str
    """Ciphers of TLS 1.2, as OpenSSL takes them; empty: those of Python."""
    checks_host: bool
    """Client only: whether the server's certificate has to name the host."""
    allows_name_changes: bool
    allows_address_changes: bool
    mapping_text: str
    mapping: PrincipalMapping = field(compare=False)
    """Rules of `mapping_text`, parsed."""
    origin: str = field(default="", compare=False)
    """Before the names of options in messages."""

    @classmethod
    def of(cls, values: Mapping[str, str], origin: str = "", *, is_start: bool = True) -> TlsSettings:
        """From the options that one listener sees. `is_start` False: stores have to be regular files, since
        others would wait for the reader. Raises ConfigError."""
        options = _Texts(values, origin)
        versions, ciphers = _versions_and_ciphers(options)
        mapping_text = options["ssl.principal.mapping.rules"]
        return cls(
            key_store=key_store_of(values, origin, is_start=is_start),
            trust_store=trust_store_of(values, origin, is_start=is_start),
            client_auth=options.one_of("ssl.client.auth", _VERIFY),
            versions=versions,
            ciphers=ciphers,
            checks_host=options.one_of("ssl.endpoint.identification.algorithm", ("https", "")) == "https",
            allows_name_changes=options.is_true("ssl.allow.dn.changes"),
            allows_address_changes=options.is_true("ssl.allow.san.changes"),
            mapping_text=mapping_text,
            mapping=PrincipalMapping(mapping_text),
            origin=origin,
        )

    @property
    def is_current(self) -> bool:
        """Whether the files of the stores are those that were read. One that has gone meanwhile counts as
        not changed: it is about to be written."""
        return all(
            store is None or store.path is None or FileState.of(store.path) in (store.state, None)
            for store in (self.key_store, self.trust_store)
        )

    @property
    def readable_by_others(self) -> list[str]:
        """Files with private keys that every user of the machine can read."""
        path = None if self.key_store is None else self.key_store.path
        try:
            return [path] if path is not None and os.stat(path).st_mode & stat.S_IROTH else []
        except OSError:
            return []

    def server_context(self) -> ssl.SSLContext:
        """Raises ConfigError."""
        if self.key_store is None:
            raise ConfigError(
                f"{self.origin}ssl.keystore.location is missing: a listener with TLS needs a key and its "
                "certificate."
            )
        context = self._context(ssl.PROTOCOL_TLS_SERVER)
        context.options |= ssl.OP_NO_RENEGOTIATION | ssl.OP_CIPHER_SERVER_PREFERENCE
        context.verify_mode = _VERIFY[self.client_auth]
        if self.client_auth != NONE:
            if self.trust_store is None:
                raise ConfigError(
                    f"{self.origin}ssl.client.auth={self.client_auth} needs a trust store, which says whose "
                    "certificates count: set ssl.truststore.location or ssl.truststore.certificates."
                )
            # Who resumes a session shows no certificate again. TLS 1.3 has nothing to resume then. In TLS 1.2
            # a ticket has the certificate, encrypted with a key of this context, and a changed trust store
            # makes a new context (`TlsAcceptor.use`). No OP_NO_TICKET: OpenSSL would keep each session in
            # memory, as it does for clients of TLS 1.2 that take no tickets (20,480 at the most).
            context.num_tickets = 0
        self._trust(context)
        return context

    def client_context(self) -> ssl.SSLContext:
        """For connections that this node opens. Without a trust store those count as in Java whom the system
        trusts. Raises ConfigError."""
        context = self._context(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname = self.checks_host
        if self.trust_store is None:
            context.load_default_certs()
        self._trust(context)
        return context

    def _context(self, protocol: ssl._SSLMethod) -> ssl.SSLContext:
        context = ssl.SSLContext(protocol)
        oldest, newest = self.versions
        context.minimum_version, context.maximum_version = _VERSIONS[oldest], _VERSIONS[newest]
        context.options |= ssl.OP_NO_COMPRESSION
        if self.ciphers:
            self._set_ciphers(context)
        if self.key_store is not None:
            self._load_keys(context, self.key_store)
        return context

    def _set_ciphers(self, context: ssl.SSLContext) -> None:
        refused = f"{self.origin}ssl.cipher.suites has a suite that OpenSSL does not have here"
        try:
            context.set_ciphers(self.ciphers)
        except ssl.SSLError:
            raise ConfigError(f"{refused}.") from None
        missing = set(self.ciphers.split(":")) - {str(one["name"]) for one in context.get_ciphers()}
        if missing:
            raise ConfigError(f"{refused}: {', '.join(sorted(missing))}.")

    def _load_keys(self, context: ssl.SSLContext, store: KeyStore) -> None:
        # Never a prompt: without a password OpenSSL would ask at the terminal.
        password = store.password or ""
        with keys_as_file(store) as path:
            try:
                context.load_cert_chain(path, password=lambda: password)
            except (ssl.SSLError, OSError, ValueError) as error:
                raise ConfigError(
                    f"{self.origin}the private key and its certificates cannot be used: {_key_reason(error)}."
                ) from None

    def _trust(self, context: ssl.SSLContext) -> None:
        if self.trust_store is None:
            return
        # As in Java, whatever is in the trust store counts, also if somebody else has signed it.
        context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
        try:
            context.load_verify_locations(cadata=to_pem(self.trust_store.certificates))
        except ssl.SSLError:
            raise ConfigError(f"{self.origin}a certificate of the trust store cannot be read.") from None


def client_context(values: Mapping[str, str], origin: str = "") -> ssl.SSLContext:
    """For connections that this node opens at a listener with these options. Raises ConfigError."""
    return TlsSettings.of(values, origin).client_context()


class _Texts:
    """Options of one listener, with Kafka's defaults."""

    def __init__(self, values: Mapping[str, str], origin: str) -> None:
        self._values = values
        self._origin = origin

    def __getitem__(self, name: str) -> str:
        found = self._values.get(name)
        return (BROKER_OPTIONS[name].default_text or "") if found is None else found.strip()

    def is_true(self, name: str) -> bool:
        return self[name].lower() == "true"

    def names(self, name: str) -> tuple[str, ...]:
        return tuple(filter(None, (one.strip() for one in self[name].split(","))))

    def one_of(self, name: str, known: Mapping[str, object] | tuple[str, ...]) -> str:
        found = self[name].lower()
        if found not in known:
            shown = " or ".join(one or "empty" for one in known)
            raise self.refusal(name, f"is {self[name]!r}, and has to be {shown}")
        return found

    def refusal(self, name: str, sentence: str) -> ConfigError:
        return ConfigError(f"{self._origin}{name} {sentence}.")


def _versions_and_ciphers(options: _Texts) -> tuple[tuple[str, str], str]:
    name = "ssl.enabled.protocols"
    enabled = options.names(name) or tuple(_VERSIONS)
    for one in enabled:
        if one not in _VERSIONS:
            raise options.refusal(name, f"has {one!r}, and here are {' and '.join(_VERSIONS)}")
    suites = options.names("ssl.cipher.suites")
    if not suites:
        return (min(enabled), max(enabled)), ""
    newer = _SUITES_1_3.intersection(suites)
    older = [one for one in suites if one not in newer]
    _check_suites(options, newer, older)
    # Without a suite for it a version cannot be had, in Java too.
    usable = [
        version
        for version, its_suites in (("TLSv1.2", older), ("TLSv1.3", newer))
        if version in enabled and its_suites
    ]
    if not usable:
        raise options.refusal("ssl.cipher.suites", f"has none for {' and '.join(enabled)} ({name})")
    return (usable[0], usable[-1]), ":".join(_SUITES_1_2[one] for one in older)


def _check_suites(options: _Texts, newer: frozenset[str], older: list[str]) -> None:
    unknown = [one for one in older if one not in _SUITES_1_2]
    if unknown:
        raise options.refusal(
            "ssl.cipher.suites",
            f"has {', '.join(map(repr, unknown))}, which is not a suite that is known here",
        )
    if newer and newer != _SUITES_1_3:
        raise options.refusal(
            "ssl.cipher.suites",
            f"names some suites of TLS 1.3, and Python has all or none of them: name "
            f"{', '.join(sorted(_SUITES_1_3))}, or none and leave TLSv1.3 out of ssl.enabled.protocols",
        )


def _key_reason(error: Exception) -> str:
    reason = getattr(error, "reason", None)
    if reason == "KEY_VALUES_MISMATCH":
        return "the key is not that of the first certificate"
    if reason in ("BAD_DECRYPT", "PASSWORD_TOO_LONG") or "PKCS12" in str(reason):
        return "ssl.key.password is wrong, or the key is damaged"
    if reason is not None:
        return f"OpenSSL says {reason}"
    return "OpenSSL cannot read them, or ssl.key.password is wrong"


def openssl_reason(error: Exception) -> str:
    """OpenSSL's name of a fault: its text would have paths of its sources."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"the certificate is refused ({error.verify_message})"
    reason = getattr(error, "reason", None)
    return type(error).__name__ if reason is None else str(reason).lower().replace("_", " ")
