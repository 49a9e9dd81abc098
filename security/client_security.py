"""The options with which a client connects: `security.protocol`, `ssl.*`, `sasl.*` of Kafka's clients.

    security = ClientSecurity.of({"security.protocol": "SASL_SSL", ...}, "kafka.")
    context = security.context()          # reads the key stores
    login = security.login(nonce)         # reads the file of a token

An option that cannot be honoured is refused by its name, and so is one of a protocol that is not used: who
writes `ssl.truststore.location` without `security.protocol` would else be connected without TLS. No text,
repr or error has a password. What is named by a path is read where the connection is opened.

Sources: SslConfigs, SaslConfigs of Kafka 4.3; ScramLoginModule, PlainLoginModule, OAuthBearerLoginModule.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Self

from odradek.config.config_error import ConfigError
from odradek.config.credentials import Credentials
from odradek.config.near_names import did_you_mean
from odradek.config.secret import Secret

if TYPE_CHECKING:
    import ssl

    from odradek.security.sasl_login import SaslLogin

PLAINTEXT, SSL, SASL_PLAINTEXT, SASL_SSL = PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
PROTOCOL, MECHANISM, JAAS = "security.protocol", "sasl.mechanism", "sasl.jaas.config"
TOKEN_URL = "sasl.oauthbearer.token.endpoint.url"
TOKEN_BYTES_MAX = 64 * 1024
_DEFAULT_MECHANISM = "GSSAPI"

_TLS_OPTIONS = frozenset(
    {
        "ssl.cipher.suites",
        "ssl.enabled.protocols",
        "ssl.endpoint.identification.algorithm",
        "ssl.key.password",
        "ssl.keystore.certificate.chain",
        "ssl.keystore.key",
        "ssl.keystore.location",
        "ssl.keystore.password",
        "ssl.keystore.type",
        "ssl.truststore.certificates",
        "ssl.truststore.location",
        "ssl.truststore.password",
        "ssl.truststore.type",
    }
)
SECURITY_OPTIONS = _TLS_OPTIONS | {PROTOCOL, MECHANISM, JAAS, TOKEN_URL}
"""Options that decide something here."""
_SAYS_NOTHING = {
    "ssl.protocol": ("TLS", "TLSv1.2", "TLSv1.3"),
    "ssl.keymanager.algorithm": ("SunX509",),
    "ssl.trustmanager.algorithm": ("PKIX",),
}
"""Java's names for its own parts: these values mean what is done here, too."""
_JAVA = "it names a part of Java; remove it"
_GSSAPI = "GSSAPI is not there; remove it"
_OWN_TOKENS = (
    f"tokens come from the file that {TOKEN_URL} names (file:/...), read for each connection; remove it"
)
_REASONS = {
    "security.providers": _JAVA,
    "ssl.provider": _JAVA,
    "ssl.engine.factory.class": _JAVA,
    "ssl.secure.random.implementation": _JAVA,
    "sasl.login.class": _JAVA,
    "sasl.client.callback.handler.class": _JAVA,
}
_TOKEN_CALLBACK = "sasl.login.callback.handler.class"
_TOKEN_CALLBACKS = (
    "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginCallbackHandler",
    "org.apache.kafka.common.security.oauthbearer.secured.OAuthBearerLoginCallbackHandler",
)
_LOGIN_MODULES = {
    "PLAIN": "org.apache.kafka.common.security.plain.PlainLoginModule",
    "SCRAM-SHA-256": "org.apache.kafka.common.security.scram.ScramLoginModule",
    "SCRAM-SHA-512": "org.apache.kafka.common.security.scram.ScramLoginModule",
    "OAUTHBEARER": "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule",
}
_SCRAM_OPTIONS = frozenset({"username", "password", "tokenauth", "serviceName"})
_LOGIN_OPTIONS = {
    "PLAIN": frozenset({"username", "password"}),
    "SCRAM-SHA-256": _SCRAM_OPTIONS,
    "SCRAM-SHA-512": _SCRAM_OPTIONS,
    "OAUTHBEARER": frozenset[str](),
}
"""Options of the login modules; Spark writes a `serviceName` into those that it makes."""


def is_security_option(name: str) -> bool:
    """Whether `ClientSecurity.of` is to have the option; the name is in lower case and without a prefix."""
    return name == PROTOCOL or name.startswith(("ssl.", "sasl.", "security."))


@dataclass(frozen=True, slots=True)
class ClientSecurity:
    """See the module. Can be pickled, with its secrets: a task of Spark has it."""

    protocol: str = PLAINTEXT
    tls_values: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    """Options of TLS, and their values."""
    credentials: Credentials | None = None
    token_path: str | None = None
    """With OAUTHBEARER, in place of `credentials`: where the token is."""
    prefix: str = field(default="", compare=False)
    """Before the names of options in messages."""

    @classmethod
    def of(cls, values: Mapping[str, str], prefix: str = "") -> Self:
        """From options by their names in lower case, without the prefix; all of them have to be
        `is_security_option`. Raises ConfigError: one sentence."""
        options = _Options(values, prefix)
        protocol = options.protocol()
        tls_values = options.tls(protocol)
        credentials, token_path = options.login(protocol)
        return cls(protocol, tls_values, credentials, token_path, prefix)

    @property
    def has_tls(self) -> bool:
        return self.protocol in (SSL, SASL_SSL)

    @property
    def has_sasl(self) -> bool:
        return self.protocol in (SASL_PLAINTEXT, SASL_SSL)

    def context(self) -> ssl.SSLContext | None:
        """For new connections; None without TLS. Reads the key stores. Raises ConfigError."""
        if not self.has_tls:
            return None
        from odradek.security.tls import client_context

        origin = f"Options {self.prefix}*: " if self.prefix else ""
        return client_context(dict(self.tls_values), origin)

    def login(self, nonce: str) -> SaslLogin | None:
        """For one connection; None without SASL. `nonce` is printable ASCII without a comma. Raises
        ConfigError."""
        if not self.has_sasl:
            return None
        from odradek.security.sasl_login import SaslLogin

        credentials = self.credentials
        if credentials is None:
            credentials = Credentials("OAUTHBEARER", "", self._token())
        return SaslLogin(credentials, nonce)

    def _token(self) -> Secret:
        assert self.token_path is not None
        what = f"{self.prefix}{TOKEN_URL}: {self.token_path}"
        try:
            with open(self.token_path, "rb") as file:
                content = file.read(TOKEN_BYTES_MAX + 1)
            token = content.decode("ascii").strip()
        except (OSError, ValueError) as error:
            reason = (error.strerror if isinstance(error, OSError) else None) or "it is not ASCII"
            raise ConfigError(f"{what} cannot be read: {reason}.") from None
        if len(content) > TOKEN_BYTES_MAX or not token or not token.isprintable() or " " in token:
            raise ConfigError(f"{what} has no token: one line is needed, as the issuer gives it.")
        return Secret(token)


def read_command_config(path: str) -> dict[str, str]:
    """The options of a file as Kafka's tools take it with `--command-config`. Raises ConfigError."""
    from odradek.config.properties import parse_properties

    try:
        with open(path, "rb") as file:
            return parse_properties(file.read())
    except OSError as error:
        raise ConfigError(f"--command-config {path} cannot be read: {error.strerror or error}.") from None
    except ValueError as error:
        raise ConfigError(f"--command-config {path} is not a file of properties: {error}") from None


def _unknown(name: str) -> str:
    return f"it is not known{did_you_mean(name, SECURITY_OPTIONS) or '; remove it'}"


class _Options:
    def __init__(self, values: Mapping[str, str], prefix: str) -> None:
        self._values = values
        self._prefix = prefix

    def refusal(self, name: str, sentence: str) -> ConfigError:
        return ConfigError(
            f"The option {self._prefix}{name} {sentence}{'' if sentence.endswith('?') else '.'}"
        )

    def protocol(self) -> str:
        text = self._values.get(PROTOCOL, PLAINTEXT).strip()
        if text.upper() not in PROTOCOLS:
            raise self.refusal(PROTOCOL, f"is {text!r}: it has to be one of {', '.join(PROTOCOLS)}")
        return text.upper()

    def tls(self, protocol: str) -> tuple[tuple[str, str], ...]:
        """The options of TLS that say something; refuses those that cannot be had."""
        found = []
        for name, value in sorted(self._values.items()):
            if name == PROTOCOL or name.startswith("sasl."):
                continue
            if name not in _TLS_OPTIONS and name not in _SAYS_NOTHING:
                raise self.refusal(name, f"is not taken: {_REASONS.get(name) or _unknown(name)}")
            if protocol not in (SSL, SASL_SSL):
                raise self._unused(name, protocol, f"{SSL} or {SASL_SSL}")
            if name in _TLS_OPTIONS:
                found.append((name, Secret(value)))
            elif value.strip() not in _SAYS_NOTHING[name]:
                allowed = " or ".join(_SAYS_NOTHING[name])
                raise self.refusal(name, f"is {value.strip()!r}: it has to be {allowed}, or remove it")
        return tuple(found)

    def _unused(self, name: str, protocol: str, needed: str) -> ConfigError:
        return self.refusal(
            name,
            f"has no effect with {self._prefix}{PROTOCOL}={protocol}: set that to {needed}, or remove this",
        )

    def login(self, protocol: str) -> tuple[Credentials | None, str | None]:
        """Credentials, or where a token is."""
        names = [name for name in self._values if name.startswith("sasl.")]
        if protocol not in (SASL_PLAINTEXT, SASL_SSL):
            if names:
                raise self._unused(min(names), protocol, f"{SASL_PLAINTEXT} or {SASL_SSL}")
            return None, None
        mechanism = self._mechanism()
        self._refuse_others(names, mechanism)
        return self._login_of(mechanism)

    def _mechanism(self) -> str:
        text = self._values.get(MECHANISM, _DEFAULT_MECHANISM).strip()
        if text.upper() not in _LOGIN_MODULES:
            default = "" if MECHANISM in self._values else ", the default"
            raise self.refusal(
                MECHANISM, f"is {text!r}{default}: it has to be one of {', '.join(_LOGIN_MODULES)}"
            )
        return text.upper()

    def _refuse_others(self, names: list[str], mechanism: str) -> None:
        for name in sorted(names):
            if name in (MECHANISM, JAAS) or (name == TOKEN_URL and mechanism == "OAUTHBEARER"):
                continue
            if name == _TOKEN_CALLBACK and mechanism == "OAUTHBEARER":
                # Kafka's own wants it for each token that is no unsecured one.
                if self._values[name].strip() not in _TOKEN_CALLBACKS:
                    raise self.refusal(name, f"is not taken: {_JAVA}")
                continue
            reason = _REASONS.get(name)
            if name.startswith("sasl.kerberos."):
                reason = _GSSAPI
            elif name.startswith(("sasl.oauthbearer.", "sasl.login.")) and reason is None:
                reason = (
                    _OWN_TOKENS if mechanism == "OAUTHBEARER" else f"{mechanism} has no use for it; remove it"
                )
            raise self.refusal(name, f"is not taken: {reason or _unknown(name)}")

    def _login_of(self, mechanism: str) -> tuple[Credentials | None, str | None]:
        from odradek.config.jaas import parse_one

        text = self._values.get(JAAS)
        if not text or not text.strip():
            raise self.refusal(JAAS, f"is missing: {mechanism} needs {_LOGIN_MODULES[mechanism]} there")
        login = parse_one(text, f"The option {self._prefix}{JAAS}")
        if login.name != _LOGIN_MODULES[mechanism]:
            raise self.refusal(JAAS, f"has {login.name}, and {mechanism} needs {_LOGIN_MODULES[mechanism]}")
        taken = _LOGIN_OPTIONS[mechanism]
        if not login.options.keys() <= taken:
            # Behind a forgotten quote the name of an option may be a part of a password.
            only = ", ".join(sorted(taken)) or "no option"
            raise self.refusal(JAAS, f"has an option that is not taken: {mechanism} takes {only}")
        if mechanism == "OAUTHBEARER":
            return None, self._token_path()
        user, password = login.options.get("username"), login.options.get("password")
        if not user or not password:
            raise self.refusal(JAAS, "has no username or no password, and both are needed")
        token_auth = login.options.get("tokenauth", Secret("false")).lower()
        return Credentials(mechanism, user.reveal(), Secret(password), token_auth == "true"), None

    def _token_path(self) -> str:
        import urllib.parse

        url = urllib.parse.urlsplit(self._values.get(TOKEN_URL, "").strip())
        if url.scheme != "file" or url.netloc not in ("", "localhost") or not url.path:
            raise self.refusal(TOKEN_URL, "has to be file:/PATH, a file with the token: none is fetched here")
        return urllib.parse.unquote(url.path)
