"""How a broker is secured at ZooKeeper: the options that Kafka had for it before 4.0.

TLS by `zookeeper.ssl.*`, a login by the section `Client` of the file of `odradek.jaas.config.path`, and
`zookeeper.set.acl`. Kerberos is refused: what is not built must not be left out in silence.

Sources: ZkConfigs, JaasUtils and KafkaServer.zkClientConfigFromKafkaConfig of Kafka 3.9; X509Util of
ZooKeeper 3.8.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from odradek.config import logins
from odradek.config.config_error import ConfigError
from odradek.config.credentials import Credentials

if TYPE_CHECKING:
    from odradek.config.option_values import BrokerValues

CONNECT: Final = "zookeeper.connect"
TLS: Final = "zookeeper.ssl.client.enable"
SET_ACL: Final = "zookeeper.set.acl"
KEY_STORE: Final = "zookeeper.ssl.keystore.location"
_SECTION = "Client"
_DIGEST = "DIGEST-MD5"


def settings_without_use(given: Iterable[str], values: BrokerValues) -> tuple[str, ...]:
    """Settings of ZooKeeper where there is none, and of TLS where it has none."""
    return tuple(
        name
        for name in given
        if name.startswith("zookeeper.")
        and name != CONNECT
        and (not values[CONNECT] or (name.startswith("zookeeper.ssl.") and name != TLS and not values[TLS]))
    )


def tls_options(values: BrokerValues) -> dict[str, str] | None:
    """The same as options of a listener, whose names begin with `ssl.`; None: the connection has no TLS."""
    if not values[TLS]:
        return None
    versions = values["zookeeper.ssl.enabled.protocols"] or [values["zookeeper.ssl.protocol"]]
    name_check = values["zookeeper.ssl.endpoint.identification.algorithm"]
    return {
        # TLS means whatever there is.
        "ssl.enabled.protocols": "" if versions == ["TLS"] else ",".join(versions),
        "ssl.cipher.suites": ",".join(values["zookeeper.ssl.cipher.suites"] or ()),
        "ssl.endpoint.identification.algorithm": name_check,
        **_store_options(
            "keystore",
            values[KEY_STORE],
            values["zookeeper.ssl.keystore.type"],
            values["zookeeper.ssl.keystore.password"],
        ),
        **_store_options(
            "truststore",
            values["zookeeper.ssl.truststore.location"],
            values["zookeeper.ssl.truststore.type"],
            values["zookeeper.ssl.truststore.password"],
        ),
    }


def _store_options(store: str, path: str | None, kind: str | None, password: str | None) -> dict[str, str]:
    path = path or ""
    kind = kind or ("PEM" if path.endswith(".pem") else "JKS")
    found = {f"ssl.{store}.location": path, f"ssl.{store}.type": kind}
    # In a PEM the key alone has a password, and ZooKeeper has no other option for it.
    if password is not None and kind.upper() != "PEM":
        found[f"ssl.{store}.password"] = password
    elif password is not None and store == "keystore":
        found["ssl.key.password"] = password
    return found


def login_of(values: BrokerValues) -> Credentials | None:
    """The login of the section; None without one. Reads the file. ConfigError: one sentence."""
    section = logins.read_contexts(values).get(_SECTION)
    if not section:
        return None
    where = f"{values[logins.JAAS_PATH]}: the section {_SECTION}, the login to ZooKeeper,"
    module = section[0]
    if _DIGEST not in module.mechanisms:
        raise ConfigError(
            f"{where} has {module.name}, and here it has to have "
            "org.apache.zookeeper.server.auth.DigestLoginModule."
        )
    user, password = module.options.get("username"), module.options.get("password")
    if not user or not password:
        raise ConfigError(f"{where} needs username and password.")
    return Credentials(_DIGEST, user.reveal(), password)


def is_protected(values: BrokerValues, login: Credentials | None) -> bool:
    """Whether nodes are made for the broker alone to change. ConfigError: nobody would know who it is."""
    if not values[SET_ACL]:
        return False
    if login is None and not (values[TLS] and values[KEY_STORE]):
        raise ConfigError(
            f"{SET_ACL} needs a broker that ZooKeeper knows: a login in the section {_SECTION} of the file "
            f"of {logins.JAAS_PATH}, or {TLS}=true with {KEY_STORE}."
        )
    return True
