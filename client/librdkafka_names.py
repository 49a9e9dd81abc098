"""The names that librdkafka, kcat and rpk have for options of security, as those of Java's clients.

    java_names({"sasl.mechanisms": "PLAIN", "sasl.username": "ann", "sasl.password": "x"})

Java's names are taken as they are. Source: librdkafka's CONFIGURATION.md.
"""

from collections.abc import Mapping

from odradek.client.client_error import ClientError

_SECURITY = "org.apache.kafka.common.security"
_MODULES = {
    "PLAIN": f"{_SECURITY}.plain.PlainLoginModule",
    "SCRAM-SHA-256": f"{_SECURITY}.scram.ScramLoginModule",
    "SCRAM-SHA-512": f"{_SECURITY}.scram.ScramLoginModule",
}
_SAME = {"metadata.broker.list": "bootstrap.servers", "sasl.mechanisms": "sasl.mechanism"}
_TRANSLATED = frozenset({"sasl.username", "sasl.password"}) | {
    f"ssl.{what}.{form}" for what in ("ca", "certificate", "key") for form in ("location", "pem")
}
SECRETS = frozenset(
    {
        "sasl.password",
        "sasl.jaas.config",
        "ssl.key.password",
        "ssl.key.pem",
        "ssl.keystore.key",
        "ssl.keystore.password",
        "ssl.truststore.password",
    }
)
"""Options whose values are, or have in them, a password or a private key."""


LIBRDKAFKA_NAMES = frozenset(_SAME) | _TRANSLATED
"""Names that `java_names` translates."""


def java_names(options: Mapping[str, str]) -> dict[str, str]:
    """The options with Java's names; those of librdkafka that have none are translated.

    ClientError for a file that cannot be read, and for a user without a password.
    """
    named = {_SAME.get(name, name): value for name, value in options.items()}
    if "security.protocol" in named:
        named["security.protocol"] = named["security.protocol"].upper()
    _name_authorities(named)
    _name_certificate(named)
    _name_user(named)
    return named


def _name_authorities(named: dict[str, str]) -> None:
    path = named.pop("ssl.ca.location", None)
    text = named.pop("ssl.ca.pem", None)
    if path is not None:
        text = _read("ssl.ca.location", path)
    if text is not None:
        named["ssl.truststore.type"] = "PEM"
        named["ssl.truststore.certificates"] = text


def _name_certificate(named: dict[str, str]) -> None:
    found = {}
    for kind in ("certificate", "key"):
        path, text = named.pop(f"ssl.{kind}.location", None), named.pop(f"ssl.{kind}.pem", None)
        if path is not None:
            text = _read(f"ssl.{kind}.location", path)
        if text is not None:
            found[kind] = text
    if not found:
        return
    for kind, other in (("certificate", "key"), ("key", "certificate")):
        if kind not in found:
            raise ClientError(f"ssl.{other}.location needs ssl.{kind}.location: give both")
    named["ssl.keystore.type"] = "PEM"
    named["ssl.keystore.certificate.chain"] = found["certificate"]
    named["ssl.keystore.key"] = found["key"]


def _name_user(named: dict[str, str]) -> None:
    user, password = named.pop("sasl.username", None), named.pop("sasl.password", None)
    if user is None and password is None:
        if named.get("sasl.mechanism", "").upper() == "OAUTHBEARER":
            # The token says who it is: librdkafka has no JAAS, and there is one module only.
            named.setdefault("sasl.jaas.config", f"{_SECURITY}.oauthbearer.OAuthBearerLoginModule required;")
        return
    if user is None or password is None:
        raise ClientError("sasl.username and sasl.password have to be given together")
    mechanism = named.get("sasl.mechanism", "").upper()
    module = _MODULES.get(mechanism)
    if module is None:
        raise ClientError(
            f"sasl.username is for the mechanisms {', '.join(_MODULES)}, and sasl.mechanism is "
            f"{mechanism or 'missing'}"
        )
    named["sasl.jaas.config"] = f"{module} required username={_quoted(user)} password={_quoted(password)};"


def _quoted(text: str) -> str:
    """Text in quotes, as Java's StreamTokenizer reads it."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n").replace("\r", "\\r")
    return f'"{escaped}"'


def _read(name: str, path: str) -> str:
    try:
        with open(path, encoding="ascii") as file:
            return file.read()
    except (OSError, ValueError) as error:
        reason = (error.strerror if isinstance(error, OSError) else None) or "it is not a PEM file"
        raise ClientError(f"{name} {path} cannot be read: {reason}") from None
