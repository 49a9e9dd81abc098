"""Walks the way of a client, step by step, and names the first step that fails with a remedy.

    for finding in diagnose(settings):
        print(finding.step, finding.subject, finding.seconds, finding.fault, finding.remedy)

The steps: the name, the connection, what answers, TLS, the versions, the login, the metadata, then every
address that the brokers tell their clients (which is where most clients fail), the coordinator of a group,
and with `topic` a record that is written, read and, in a topic of its own, removed with it.
"""

import contextlib
import secrets
import socket
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from odradek.client.client_error import ClientError, Disconnected, Mismatch
from odradek.client.cluster import Cluster, coordinator_of
from odradek.client.connection import Connection
from odradek.client.probing import Heard, addresses_of, dial, first_response, mismatch, reason
from odradek.client.secured import Secured
from odradek.client.settings import ClientSettings
from odradek.wire.errors import ErrorCode
from odradek.wire.messages.metadata import MetadataRequest

if TYPE_CHECKING:
    import ssl

STEPS = (
    *("name", "connection", "protocol", "tls", "versions", "login"),
    *("metadata", "advertised", "group", "write"),
)
"""In the order in which a client takes them."""
DAYS_TO_RENEW = 14
"""Certificates that end sooner are told."""
CLOCK_SECONDS_MAX = 5.0
"""Clocks that differ by more are told: records would seem to come late, or from the future."""
_LOOPBACK = ("localhost", "127.", "::1")


@dataclass(frozen=True, slots=True)
class Finding:
    """Finding of one step."""

    step: str
    subject: str
    """Subject of the step: an address, a user, a group."""
    seconds: float
    detail: str = ""
    """Result of the step, if all is well."""
    fault: str | None = None
    """One sentence; None: the step is done."""
    remedy: str = ""
    """Remedy for the fault, or for the warning in `detail`."""

    @property
    def is_well(self) -> bool:
        return self.fault is None


class _Fault(Exception):
    def __init__(self, sentence: str, remedy: str) -> None:
        super().__init__(sentence)
        self.remedy = remedy


Outcome = tuple[str, str]
"""Detail and remedy of a step that is done."""


def diagnose(
    settings: ClientSettings, *, writes: bool = False, topic: str | None = None
) -> Iterator[Finding]:
    """The findings, as the steps are done. After a fault come those steps alone that do not need the step.

    `writes`: a record goes to `topic`, or to a topic that is made for it and deleted again.
    """
    patient = replace(settings, patience_ms=min(settings.patience_ms, 10_000))
    reached = None
    for host, port in settings.addresses():
        findings = list(_bootstrap(patient, host, port))
        yield from findings
        if all(one.is_well for one in findings):
            reached = reached or (host, port)
    if reached is None:
        return
    yield from _in_cluster(patient, writes, topic)


def may_continue(findings: list[Finding]) -> bool:
    """Whether a client works: one bootstrap server is enough, and no later step failed."""
    first = [one for one in findings if one.step in STEPS[: STEPS.index("metadata")]]
    later = [one for one in findings if one not in first]
    return bool(later) and all(one.is_well for one in later)


# To one server ----------------------------------------------------------------------------------------


def _bootstrap(settings: ClientSettings, host: str, port: int) -> Iterator[Finding]:
    subject, timeout_s = _address(host, port), _timeout_s(settings)
    steps: list[tuple[str, Callable[[], Outcome]]] = [
        ("name", lambda: _resolve(host, port)),
        ("connection", lambda: _dial_all(host, port, timeout_s)),
        ("protocol", lambda: _listen(settings, host, port, timeout_s)),
    ]
    if settings.security.has_tls:
        steps.append(("tls", lambda: _handshake(settings, host, port, timeout_s)))
    login = "login" if settings.security.has_sasl else "versions"
    steps.append((login, lambda: _connect(settings, host, port)))
    for step, do in steps:
        finding = _done(step, subject, do)
        yield finding
        if not finding.is_well:
            return


def _done(step: str, subject: str, do: Callable[[], Outcome]) -> Finding:
    began = time.monotonic()
    try:
        detail, remedy = do()
    except _Fault as fault:
        return Finding(step, subject, time.monotonic() - began, fault=str(fault), remedy=fault.remedy)
    return Finding(step, subject, time.monotonic() - began, detail, remedy=remedy)


def _resolve(host: str, port: int) -> Outcome:
    try:
        found = addresses_of(host, port)
    except OSError as error:
        raise _Fault(
            f"the name {host} has no address: {reason(error)}",
            "look for a slip in the name; in a container, is it the name of a service in the same network?",
        ) from None
    return ", ".join(found), ""


def _dial_all(host: str, port: int, timeout_s: float) -> Outcome:
    """One address is enough for a client, as it tries them in turn."""
    failures, found = [], []
    for address in addresses_of(host, port):
        try:
            dial(address, port, timeout_s)
        except OSError as error:
            failures.append((address, error))
        else:
            found.append(address)
    if found:
        return ", ".join(found), ""
    refused = any(isinstance(error, ConnectionRefusedError) for _, error in failures)
    told = "; ".join(f"{address}: {reason(error)}" for address, error in failures)
    if refused:
        remedy = f"nothing listens at port {port} there: is the broker up, and is this its port?"
    else:
        remedy = "a firewall or a missing route: the machine does not answer at this port"
    raise _Fault(f"no connection to {_address(host, port)} ({told})", remedy)


def _listen(settings: ClientSettings, host: str, port: int, timeout_s: float) -> Outcome:
    try:
        heard = first_response(host, port, timeout_s)
    except OSError as error:
        raise _Fault(
            f"the connection is lost at once: {reason(error)}", "look into the broker's log"
        ) from None
    has_tls = settings.security.has_tls
    differs = mismatch(heard, settings.security, host, port, timeout_s)
    if differs is not None:
        raise _Fault(*differs)
    if heard in (Heard.TLS, Heard.KAFKA):
        return heard.value, ""
    if heard is Heard.CLOSED and has_tls:
        # So do TLS servers that send no alert; the next step shows it.
        return "a server that takes no plain request", ""
    if heard is Heard.CLOSED:
        raise _Fault(
            "what listens there closes the connection at the first request",
            "a proxy or port mapping without a broker behind it, a listener for controllers, or a broker at "
            "its limit of connections (max.connections)",
        )
    assert heard is Heard.SILENCE
    if has_tls:
        return "a server that answers no plain request", ""
    raise _Fault(
        f"what listens there does not answer within {timeout_s:g} s",
        "the broker hangs or still starts, or something else listens there",
    )


def _handshake(settings: ClientSettings, host: str, port: int, timeout_s: float) -> Outcome:
    import ssl

    try:
        context = settings.security.context()
    except Exception as error:
        raise _Fault(str(error).rstrip("."), "mend the option that is named") from None
    assert context is not None
    try:
        with (
            socket.create_connection((host, port), timeout_s) as connected,
            context.wrap_socket(connected, server_hostname=host) as sealed,
        ):
            return _certificate(sealed)
    except ssl.SSLCertVerificationError as error:
        raise _untrusted(error, host, settings.prefix) from None
    except ssl.SSLError as error:
        raise _Fault(
            f"the TLS handshake fails: {error.reason or 'the server ends it'}",
            "no common version or cipher suite, or the server wants a certificate of the client",
        ) from None
    except OSError as error:
        raise _Fault(f"the TLS handshake fails: {reason(error)}", "does this port have TLS?") from None


def _untrusted(error: "ssl.SSLCertVerificationError", host: str, prefix: str) -> _Fault:
    told = error.verify_message.rstrip(".")
    if error.verify_code == 10:
        return _Fault("the server's certificate has expired", "renew the certificate of the broker")
    if error.verify_code == 9:
        return _Fault("the server's certificate is not valid yet", "set the clock of this machine, or wait")
    if error.verify_code in (62, 64):
        return _Fault(
            f"the server's certificate is for another name than {host}: {told}",
            "use a name that is in the certificate, or issue one with this name",
        )
    return _Fault(
        f"the server's certificate is not trusted: {told}",
        f"give the authority that issued it: {prefix}ssl.truststore.location (or ssl.ca.location)",
    )


def _certificate(sealed: "ssl.SSLSocket") -> Outcome:
    import ssl

    certificate: Any = sealed.getpeercert() or {}
    ends = certificate.get("notAfter")
    version = sealed.version() or "TLS"
    if not ends:
        return version, ""
    days = (ssl.cert_time_to_seconds(ends) - time.time()) / 86_400
    remedy = "renew the certificate of the broker soon" if days < DAYS_TO_RENEW else ""
    return f"{version}, the certificate is good for {days:.0f} days", remedy


def _connect(settings: ClientSettings, host: str, port: int) -> Outcome:
    try:
        connection = _connection(settings, host, port)
    except ClientError as error:
        raise _login_fault(settings, error) from None
    with contextlib.closing(connection):
        newest = connection.version_of(MetadataRequest)
        security = settings.security
        if not security.has_sasl:
            return f"Metadata up to version {newest}", ""
        credentials = security.credentials
        if credentials is None:
            return "OAUTHBEARER", ""
        return f"{credentials.user} with {credentials.mechanism}", ""


def _login_fault(settings: ClientSettings, error: ClientError) -> _Fault:
    told = str(error)
    if isinstance(error, Mismatch):
        return _Fault(error.fault, error.remedy)
    if ErrorCode.UNSUPPORTED_SASL_MECHANISM.name in told:
        remedy = f"set {settings.prefix}sasl.mechanism to one that the listener has"
    elif error.code == ErrorCode.SASL_AUTHENTICATION_FAILED:
        remedy = "is the user there, with this mechanism, and is the password right?"
    elif settings.security.has_tls and "handshake" in told:
        remedy = "the broker wants a certificate of the client (ssl.keystore.location), or does not trust it"
    elif isinstance(error, Disconnected) and settings.security.has_sasl:
        remedy = "the listener may have no SASL, or the broker closed the connection: see its log"
    else:
        remedy = "see the broker's log"
    return _Fault(told, remedy)


# In the cluster ---------------------------------------------------------------------------------------


def _in_cluster(settings: ClientSettings, writes: bool, topic: str | None) -> Iterator[Finding]:
    with Cluster(settings) as cluster:
        brokers: list[Any] = []
        yield _done("metadata", settings_text(settings), lambda: _metadata(settings, cluster, brokers))
        if not brokers:
            return
        is_well = True
        for broker in brokers:
            subject = f"broker {broker.node_id} at {_address(broker.host, broker.port)}"
            finding = _done("advertised", subject, partial(_advertised, settings, broker, brokers))
            is_well = is_well and finding.is_well
            yield finding
        if not is_well:
            return
        group = f"odradek-doctor-{secrets.token_hex(4)}"
        yield _done("group", group, lambda: _coordinator(cluster, group))
        if writes:
            from odradek.client.trial import write_and_read

            yield _done(
                "write", topic or "a topic of its own", lambda: _written(cluster, topic, write_and_read)
            )


def _metadata(settings: ClientSettings, cluster: Cluster, brokers: list[Any]) -> Outcome:
    try:
        response = cluster.read_metadata(MetadataRequest(topics=[]))
    except Mismatch as error:
        raise _Fault(error.fault, error.remedy) from None
    except ClientError as error:
        if settings.security.has_sasl or settings.security.has_tls:
            remedy = "see the broker's log"
        else:
            remedy = (
                f"the listener may want a login: set {settings.prefix}security.protocol to SASL_PLAINTEXT"
            )
        raise _Fault(str(error), remedy) from None
    if not response.brokers:
        raise _Fault(
            "the cluster names no broker", "it still starts, or all of its brokers are fenced: ask again"
        )
    brokers += sorted(response.brokers, key=lambda broker: broker.node_id)
    return f"{len(brokers)} broker{'s' if len(brokers) > 1 else ''}, cluster {response.cluster_id or '?'}", ""


def _remedy_of_unreached(broker: Any, brokers: Sequence[Any], meant: str) -> str:
    ports = sorted(one.port for one in brokers if one.host == broker.host)
    if len(ports) == 1:
        return f"set {meant} to an address that clients can reach, or publish the port"
    # The workers of one broker, or several in one container: mostly the first port alone is published.
    return (
        f"publish port {broker.port}, too: brokers at {broker.host} have the ports "
        f"{', '.join(map(str, ports))}, and clients need all of them"
    )


def _advertised(settings: ClientSettings, broker: Any, brokers: Sequence[Any]) -> Outcome:
    """A client goes to the addresses that brokers tell, not to those that it was given."""
    host, port = broker.host, broker.port
    meant = "advertised.listeners of that broker"
    try:
        addresses_of(host, port)
    except OSError as error:
        raise _Fault(
            f"clients are told to use the name {host}, which has no address here: {reason(error)}",
            f"set {meant} to a name that clients can resolve",
        ) from None
    try:
        _dial_all(host, port, _timeout_s(settings))
    except _Fault as fault:
        told = f"clients are told to use {_address(host, port)}, which cannot be reached from here: {fault}"
        if host.startswith(_LOOPBACK):
            told += "; with this address every machine and container means itself"
        raise _Fault(told, _remedy_of_unreached(broker, brokers, meant)) from None
    try:
        connection = _connection(settings, host, port)
    except ClientError as error:
        raise _Fault(
            f"clients are told to use {_address(host, port)}, which does not take this client: {error}",
            f"set {meant} to the listener with the same security.protocol",
        ) from None
    with contextlib.closing(connection):
        version = connection.version_of(MetadataRequest)
        response = connection.ask(MetadataRequest(topics=[]), version)
        known = {one.node_id for one in response.brokers}
        if broker.node_id not in known or len(known) < len(brokers):
            raise _Fault(
                f"what answers at {_address(host, port)} belongs to another cluster, or has not heard of all "
                "brokers",
                f"set {meant} to an address of this broker alone",
            )
    return "reached", ""


def _coordinator(cluster: Cluster, group: str) -> Outcome:
    target = coordinator_of("group", group)
    try:
        connection = cluster.connect(target)
    except ClientError as error:
        if error.code == ErrorCode.GROUP_AUTHORIZATION_FAILED:
            return "this user may not see such a group; others may be allowed", ""
        raise _Fault(str(error), "see the logs of the brokers: has __consumer_offsets leaders?") from None
    return f"coordinated at {connection.address}", ""


def _written(
    cluster: Cluster, topic: str | None, write_and_read: Callable[[Cluster, str | None], tuple[str, float]]
) -> Outcome:
    try:
        detail, clock_s = write_and_read(cluster, topic)
    except ClientError as error:
        raise _Fault(str(error), _write_remedy(error)) from None
    if abs(clock_s) > CLOCK_SECONDS_MAX:
        direction = "ahead of" if clock_s > 0 else "behind"
        raise _Fault(
            f"the broker's clock is {abs(clock_s):.0f} s {direction} the clock of this machine",
            "set both by a time server (NTP)",
        )
    return detail, ""


def _write_remedy(error: ClientError) -> str:
    if error.code in (ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND):
        return "fewer replicas are in sync than min.insync.replicas asks for: start the missing brokers"
    if error.code is not None and error.code.name.endswith("AUTHORIZATION_FAILED"):
        return "the user lacks an ACL for this: see 'odradek acls list'"
    if error.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
        return "name a topic that exists, or none: then one is made for this"
    if error.code == ErrorCode.POLICY_VIOLATION:
        return "the broker's policy refuses such topics: name one with --topic"
    if error.code == ErrorCode.KAFKA_STORAGE_ERROR:
        if "broker is full" in str(error):
            return "make room: the broker writes again without a restart"
        return "a directory of the broker has failed or is full: see its log"
    return "see the broker's log"


def _connection(settings: ClientSettings, host: str, port: int) -> Connection:
    return Connection(
        host,
        port,
        client_id=settings.client_id,
        timeout_ms=round(_timeout_s(settings) * 1000),
        response_bytes_max=settings.response_bytes_max,
        secured=Secured(settings.security),
    )


def _timeout_s(settings: ClientSettings) -> float:
    return min(settings.request_timeout_ms, settings.patience_ms) / 1000


def _address(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def settings_text(settings: ClientSettings) -> str:
    """The addresses, as they were given."""
    return ",".join(_address(host, port) for host, port in settings.addresses())
