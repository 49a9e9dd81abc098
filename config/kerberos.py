"""The service of Kerberos as which a listener with GSSAPI accepts clients: from the options of
Krb5LoginModule and `sasl.kerberos.*`.

    com.sun.security.auth.module.Krb5LoginModule required useKeyTab=true storeKey=true
        keyTab="/etc/kafka.keytab" principal="kafka/broker.example.com@EXAMPLE.COM" serviceName="kafka";

One that accepts needs its key and no ticket, so options of tickets and of kinit have no effect.

Sources: KerberosLogin of Kafka 4.3; Krb5LoginModule of Java.
"""

from __future__ import annotations

from dataclasses import dataclass

from odradek.config.config_error import ConfigError
from odradek.config.jaas import LoginModule
from odradek.config.kerberos_names import OPTION, KerberosName, ShortNames
from odradek.config.listener_security import ListenerSecurity, listener_prefix

GSSAPI = "GSSAPI"
_SERVICE = "sasl.kerberos.service.name"


@dataclass(frozen=True, slots=True)
class KerberosService:
    """See the module."""

    principal: str
    """`primary/host@REALM`; without a realm it is of the default one."""
    key_table: str | None
    """Path of the keytab; None: the one of the library (KRB5_KTNAME, krb5.conf)."""
    rules: tuple[str, ...]
    """The rules of `sasl.kerberos.principal.to.local.rules`."""

    def short_names(self, default_realm: str) -> ShortNames:
        return ShortNames(self.rules, default_realm)


def service_of(security: ListenerSecurity, login: LoginModule | None) -> KerberosService:
    """ConfigError: one sentence about what is missing or makes no sense."""
    jaas = f"{listener_prefix(security.name)}gssapi.sasl.jaas.config"
    if login is None:
        raise ConfigError(
            f"Listener {security.name} offers GSSAPI, the default of sasl.enabled.mechanisms, and has no "
            f"Krb5LoginModule: give it in {jaas}, or enable other mechanisms."
        )
    options = {key: value.reveal() for key, value in login.options.items()}
    if options.get("useKeyTab", "false").lower() != "true":
        raise ConfigError(
            f"Listener {security.name} offers GSSAPI and needs a keytab: add useKeyTab=true and keyTab to "
            f"{jaas}."
        )
    principal = options.get("principal", "")
    _check_principal(principal, security, jaas)
    _check_service_name(options.get("serviceName"), security, jaas)
    service = KerberosService(principal, _path(options.get("keyTab")), tuple(security.value(OPTION) or ()))
    service.short_names("")
    return service


def _check_principal(principal: str, security: ListenerSecurity, jaas: str) -> None:
    try:
        name = KerberosName.parse(principal if "@" in principal else f"{principal}@")
    except ValueError:
        name = KerberosName("", None, None)
    if not name.primary or not name.host:
        raise ConfigError(
            f"Listener {security.name} offers GSSAPI and needs the principal of its service: give one of the "
            f"form primary/host@REALM as principal in {jaas}, which has {principal!r}."
        )


def _check_service_name(in_jaas: str | None, security: ListenerSecurity, jaas: str) -> None:
    """Refuse two names: Kafka starts with one name in one or in both places."""
    name = security.text(_SERVICE)
    if in_jaas is not None and name is not None and in_jaas != name:
        raise ConfigError(
            f"serviceName in {jaas} is {in_jaas!r}, and {_SERVICE} is {name!r}: remove one of them."
        )
    if not in_jaas and not name:
        raise ConfigError(
            f"Listener {security.name} offers GSSAPI and has no name of its service: set {_SERVICE}, or "
            f"serviceName in {jaas}."
        )


def _path(key_table: str | None) -> str | None:
    return key_table.removeprefix("FILE:") if key_table else None
