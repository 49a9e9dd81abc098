"""TLS as options have it: versions, suites, outgoing connections, changes while a listener serves."""

from __future__ import annotations

import os
import pathlib
import ssl
from collections.abc import Callable
from typing import Any

import pytest

from odradek.config.broker_config import load
from odradek.config.config_error import ConfigError
from odradek.config.listener_security import resolve
from odradek.config.live import LiveConfig
from odradek.config.options import BrokerLayers
from odradek.security.tls import TlsSettings, client_context
from odradek.server.network.tls_reload import TlsReload, check_change, check_talks_to_itself
from odradek.server.network.tls_transport import TlsAcceptor
from odradek.server.security.outgoing import OutgoingTls, following_files
from odradek.wire.errors import ErrorCode, KafkaError
from tests.server.tls_ends import Authority, Ends, acceptor, chain_text

SUITES_1_3 = "TLS_AES_256_GCM_SHA384,TLS_AES_128_GCM_SHA256,TLS_CHACHA20_POLY1305_SHA256"
ECDSA = "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256"


@pytest.fixture(scope="module")
def authority() -> Authority:
    return Authority()


def negotiated(authority: Authority, **more: str) -> tuple[str | None, str]:
    ends = Ends(acceptor(authority.server_options(**more)), authority.client_context())
    ends.shake_hands()
    cipher = ends.client.cipher()
    assert cipher is not None
    return ends.client.version(), cipher[0]


def test_versions_and_suites_are_those_of_the_options(authority: Authority) -> None:
    assert negotiated(authority)[0] == "TLSv1.3"
    assert negotiated(authority, enabled_protocols="TLSv1.2")[0] == "TLSv1.2"
    assert negotiated(authority, enabled_protocols=" TLSv1.3 ")[0] == "TLSv1.3"
    assert negotiated(authority, cipher_suites=ECDSA) == ("TLSv1.2", "ECDHE-ECDSA-AES128-GCM-SHA256")
    assert negotiated(authority, cipher_suites=f"{ECDSA},{SUITES_1_3}")[0] == "TLSv1.3"
    more = {"cipher_suites": f"{ECDSA},{SUITES_1_3}", "enabled_protocols": "TLSv1.2"}
    assert negotiated(authority, **more) == ("TLSv1.2", "ECDHE-ECDSA-AES128-GCM-SHA256")


def test_an_older_version_than_the_options_have_is_refused(authority: Authority) -> None:
    context = authority.client_context()
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    listener = acceptor(authority.server_options(enabled_protocols="TLSv1.3"))
    ends = Ends(listener, context)
    with pytest.raises(ssl.SSLError):
        ends.shake_hands()
    assert listener.failed_count == 1


@pytest.mark.parametrize(
    ("more", "reason"),
    [
        ({"enabled_protocols": "TLSv1.1,TLSv1.2"}, "ssl.enabled.protocols has 'TLSv1.1'"),
        ({"cipher_suites": "TLS_AES_128_GCM_SHA256"}, "Python has all or none"),
        ({"cipher_suites": "TLS_NULL_WITH_NULL_NULL"}, "not a suite that is known here"),
        ({"cipher_suites": "AES128-SHA"}, "not a suite that is known here"),
        ({"cipher_suites": ECDSA, "enabled_protocols": "TLSv1.3"}, "has none for TLSv1.3"),
        ({"client_auth": "required"}, "needs a trust store"),
        ({"client_auth": "requested"}, "needs a trust store"),
        ({"client_auth": "maybe"}, "has to be none or requested or required"),
        ({"endpoint_identification_algorithm": "LDAPS"}, "has to be https or empty"),
        ({"principal_mapping_rules": "RULE:x"}, "a rule is DEFAULT or"),
    ],
)
def test_what_cannot_be_had_is_refused(authority: Authority, more: dict[str, str], reason: str) -> None:
    with pytest.raises(ConfigError) as refused:
        TlsSettings.of(authority.server_options(**more)).server_context()
    assert reason in str(refused.value)


def test_a_server_of_another_name_or_another_authority_is_refused_by_our_clients(
    authority: Authority,
) -> None:
    listener = acceptor(authority.server_options(authority.issue("elsewhere.example")))
    trust = {"ssl.truststore.type": "PEM", "ssl.truststore.certificates": authority.text}
    other = {"ssl.truststore.type": "PEM", "ssl.truststore.certificates": Authority().text}
    unchecked = {"ssl.endpoint.identification.algorithm": ""}
    Ends(listener, client_context(trust | unchecked)).shake_hands()
    for values in (trust, other, other | unchecked, {}):
        with pytest.raises(ssl.SSLCertVerificationError):
            Ends(listener, client_context(values)).shake_hands()


def test_our_client_shows_its_certificate(authority: Authority) -> None:
    listener = acceptor(authority.server_options(**authority.trusting()))
    values = authority.server_options(
        authority.issue("x.example", common_name="node"), **authority.trusting()
    )
    ends = Ends(listener, client_context(values))
    ends.shake_hands()
    assert ends.protocol.principal.startswith("User:CN=node,")


# Changes while a listener serves


def settings(authority: Authority, *names: str, **more: str) -> TlsSettings:
    issued = authority.issue(*(names or ("localhost",)), common_name=more.pop("common_name", "broker"))
    return TlsSettings.of(authority.server_options(issued, **more))


def test_a_new_certificate_keeps_name_and_addresses_unless_the_options_allow_more(
    authority: Authority,
) -> None:
    old = settings(authority, "a.example", "b.example")
    check_change(old, settings(authority, "a.example", "b.example", "c.example"))
    check_change(old, settings(authority, "a.example", "b.example", common_name="BROKER"))
    with pytest.raises(ConfigError, match="the new certificate has the name"):
        check_change(old, settings(authority, "a.example", "b.example", common_name="other"))
    check_change(
        old, settings(authority, "a.example", "b.example", common_name="other", allow_dn_changes="true")
    )
    with pytest.raises(ConfigError, match="lacks alternative names"):
        check_change(old, settings(authority, "a.example"))
    check_change(old, settings(authority, "a.example", allow_san_changes="true"))


def test_no_store_appears_or_goes(authority: Authority) -> None:
    plain, trusting = settings(authority), settings(authority, **authority.trusting())
    with pytest.raises(ConfigError, match="cannot lose its key store"):
        check_change(plain, TlsSettings.of({}))
    with pytest.raises(ConfigError, match="cannot get a trust store"):
        check_change(plain, trusting)
    check_change(trusting, plain)


def test_brokers_have_to_trust_their_own_certificates(authority: Authority) -> None:
    check_talks_to_itself(settings(authority, **authority.trusting()))
    foreign = Authority()
    for more in (foreign.trusting(), foreign.trusting("none")):
        with pytest.raises(ConfigError, match="could not connect to each other"):
            check_talks_to_itself(settings(authority, **more))


class Listener:
    """One listener INSIDE that is reloaded, with its key store in a file."""

    def __init__(self, authority: Authority, directory: pathlib.Path, **more: str) -> None:
        self.authority = authority
        self.path = directory / "broker.pem"
        self.write()
        prefix = "listener.name.inside."
        self.given = {
            "listeners": "INSIDE://localhost:0",
            "listener.security.protocol.map": "INSIDE:SSL",
            f"{prefix}ssl.keystore.type": "PEM",
            f"{prefix}ssl.keystore.location": str(self.path),
            **{f"{prefix}ssl.{name.replace('_', '.')}": value for name, value in more.items()},
        }
        config = load(sets=[f"{name}={value}" for name, value in self.given.items()])
        self.live: LiveConfig[Any] = LiveConfig(config, dict)
        values = {
            name.removeprefix(prefix): text for name, text in self.given.items() if name.startswith(prefix)
        }
        self.acceptor = TlsAcceptor(TlsSettings.of(values), lambda: 0)
        self.soon: list[Any] = []
        self.run_elsewhere: Callable[..., None] = lambda function, done, failed: done(function())
        self.reload = TlsReload(
            {"INSIDE": self.acceptor},
            {"INSIDE": "SSL"},
            config.layers,
            "INSIDE",
            self.soon.append,
            lambda *calls: self.run_elsewhere(*calls),
        )
        self.live.checks.append(self.reload.check)
        self.reload.follow(self.live)

    def write(self, authority: Authority | None = None, name: str = "broker") -> None:
        issued = (authority or self.authority).issue("localhost", common_name=name)
        fresh = self.path.with_suffix(".new")
        fresh.write_text(issued.private_key_pem.bytes().decode() + chain_text(issued))
        os.replace(fresh, self.path)

    def certificate(self, authority: Authority | None = None) -> bytes | None:
        """That a new client gets."""
        ends = Ends(self.acceptor, (authority or self.authority).client_context())
        ends.shake_hands()
        return ends.client.getpeercert(True)

    def alter(self, **configs: str) -> None:
        """As IncrementalAlterConfigs of this broker, with what follows from it. Raises KafkaError."""
        prefixed = {
            f"listener.name.inside.ssl.{name.replace('_', '.')}": text for name, text in configs.items()
        }
        self.live.check_broker("1", prefixed)
        self.live.follow({1: prefixed})
        self.reload.follow(self.live)
        while self.soon:
            self.soon.pop()()


def test_a_changed_file_is_noticed(authority: Authority, tmp_path: pathlib.Path) -> None:
    listener = Listener(authority, tmp_path)
    first = listener.certificate()
    listener.reload.poll()
    assert listener.certificate() == first
    listener.write()
    assert listener.certificate() == first
    listener.reload.poll()
    assert listener.certificate() != first


def test_the_same_location_set_again_means_the_file_as_it_is_now(
    authority: Authority, tmp_path: pathlib.Path
) -> None:
    listener = Listener(authority, tmp_path)
    first = listener.certificate()
    listener.alter(keystore_location=str(listener.path))
    assert listener.certificate() == first
    listener.write()
    listener.alter(keystore_location=str(listener.path))
    assert listener.certificate() != first


def test_another_location_is_used_at_once_and_left_when_the_setting_is_deleted(
    authority: Authority, tmp_path: pathlib.Path
) -> None:
    listener = Listener(authority, tmp_path)
    first = listener.certificate()
    (tmp_path / "other").mkdir()
    other = Listener(authority, tmp_path / "other")
    listener.alter(keystore_location=str(other.path))
    assert listener.certificate() == other.certificate()
    listener.alter()
    assert listener.certificate() == first


def test_settings_that_the_listener_cannot_have_are_refused_and_change_nothing(
    authority: Authority, tmp_path: pathlib.Path
) -> None:
    listener = Listener(authority, tmp_path)
    first = listener.certificate()
    for configs in (
        {"keystore_location": "/no/such/file"},
        {"keystore_type": "JKS"},
        {"keystore_password": "x"},
        {"truststore_certificates": authority.text, "truststore_type": "PEM"},
        {"client_auth": "required"},
    ):
        with pytest.raises(KafkaError) as refused:
            listener.alter(**configs)
        assert refused.value.code is ErrorCode.INVALID_REQUEST
        assert "Listener INSIDE: " in str(refused.value)
    assert listener.certificate() == first


def test_a_file_that_cannot_be_used_leaves_the_old_keys_and_is_told_once(
    authority: Authority, tmp_path: pathlib.Path, caplog: pytest.LogCaptureFixture
) -> None:
    listener = Listener(authority, tmp_path)
    first = listener.certificate()
    for _ in range(3):
        listener.path.write_text("half a fi")
        listener.reload.poll()
    listener.write(name="other")
    for _ in range(3):
        listener.reload.poll()
    assert listener.certificate() == first
    told = [record.getMessage() for record in caplog.records if "are not used" in record.getMessage()]
    assert len(told) == 2
    listener.path.unlink()
    listener.reload.poll()
    listener.write()
    listener.reload.poll()
    assert listener.certificate() != first


def test_the_listener_among_brokers_keeps_a_chain_that_the_others_trust(
    authority: Authority, tmp_path: pathlib.Path
) -> None:
    listener = Listener(authority, tmp_path, **authority.trusting("none"))
    first = listener.certificate()
    (tmp_path / "foreign").mkdir()
    foreign = Listener(Authority(), tmp_path / "foreign")
    with pytest.raises(KafkaError, match="could not connect to each other"):
        listener.alter(keystore_location=str(foreign.path))
    listener.write(foreign.authority)
    listener.alter(keystore_location=str(listener.path))
    assert listener.certificate() == first


def test_layers_without_a_change_are_read_no_second_time(
    authority: Authority, tmp_path: pathlib.Path
) -> None:
    listener = Listener(authority, tmp_path)
    present = listener.acceptor.settings
    listener.reload.check(BrokerLayers(start=listener.given, options=listener.live.layers.options))
    listener.reload.follow(listener.live)
    assert listener.acceptor.settings is present


def test_a_private_key_that_everybody_can_read_is_named(authority: Authority, tmp_path: pathlib.Path) -> None:
    listener = Listener(authority, tmp_path)
    listener.path.chmod(0o644)
    assert listener.acceptor.settings.readable_by_others == [str(listener.path)]
    listener.path.chmod(0o640)
    assert listener.acceptor.settings.readable_by_others == []


# Connections that this node opens


def test_a_connection_to_controllers_gets_the_authorities_of_a_changed_file(
    authority: Authority, tmp_path: pathlib.Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "ca.pem"
    path.write_text(Authority().text)
    prefix = "listener.name.controller.ssl.truststore."
    layers = BrokerLayers(start={f"{prefix}type": "PEM", f"{prefix}location": str(path)})
    outgoing = OutgoingTls(following_files(resolve("CONTROLLER", "SSL", layers)))
    listener = acceptor(authority.server_options())
    with pytest.raises(ssl.SSLCertVerificationError):
        Ends(listener, outgoing()).shake_hands()
    for _ in range(2):
        path.write_text("half a fi")
        with pytest.raises(ssl.SSLCertVerificationError):
            Ends(listener, outgoing()).shake_hands()
    assert len([one for one in caplog.records if "are not used" in one.getMessage()]) == 1
    path.write_text(authority.text)
    Ends(listener, outgoing()).shake_hands()
    assert outgoing() is outgoing()


def test_a_path_that_became_a_pipe_stops_nobody_who_serves(
    authority: Authority, tmp_path: pathlib.Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Opening it would wait for somebody who writes."""
    listener = Listener(authority, tmp_path)
    first = listener.certificate()
    ca = tmp_path / "ca.pem"
    ca.write_text(authority.text)
    prefix = "listener.name.controller.ssl.truststore."
    layers = BrokerLayers(start={f"{prefix}type": "PEM", f"{prefix}location": str(ca)})
    outgoing = OutgoingTls(following_files(resolve("CONTROLLER", "SSL", layers)))
    before = outgoing()
    for path in (listener.path, ca):
        path.unlink()
        os.mkfifo(path)
    listener.reload.poll()
    assert (listener.certificate(), outgoing()) == (first, before)
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with pytest.raises(KafkaError, match="is not a regular file"):
        listener.alter(keystore_location=str(pipe))
    assert len([one for one in caplog.records if "is not a regular file" in one.getMessage()]) == 2


def test_a_mount_that_hangs_is_asked_once_and_in_a_thread(
    authority: Authority, tmp_path: pathlib.Path
) -> None:
    listener = Listener(authority, tmp_path)
    first = listener.certificate()
    asked: list[Any] = []
    listener.run_elsewhere = lambda *calls: asked.append(calls)
    listener.write()
    listener.reload.poll()
    listener.reload.poll()
    ((function, done, _),) = asked
    assert listener.certificate() == first
    done(function())
    second = listener.certificate()
    assert second != first
    listener.write()
    listener.reload.poll()
    function, done, _ = asked.pop()
    found = function()
    listener.write()
    listener.reload.follow(listener.live)
    newest = listener.certificate()
    done(found)
    assert listener.certificate() == newest != second, "what was read before is older"


def test_at_a_start_keys_may_come_through_a_pipe(authority: Authority) -> None:
    issued = authority.issue("localhost")
    reading, writing = os.pipe()
    try:
        os.write(writing, (issued.private_key_pem.bytes().decode() + chain_text(issued)).encode())
        os.close(writing)
        values = {"ssl.keystore.type": "PEM", "ssl.keystore.location": f"/dev/fd/{reading}"}
        assert TlsSettings.of(values).key_store is not None
    finally:
        os.close(reading)


def test_a_connection_to_brokers_has_the_present_keys_of_the_listener(authority: Authority) -> None:
    present = [settings(authority, **authority.trusting(), common_name=name) for name in ("first", "second")]
    listener = acceptor(authority.server_options(**authority.trusting()))
    outgoing = OutgoingTls(lambda: present[0])
    for name in ("first", "second"):
        ends = Ends(listener, outgoing())
        ends.shake_hands()
        assert ends.protocol.principal.startswith(f"User:CN={name},")
        present.pop(0)
        if not present:
            present.append(settings(authority))


def test_keys_that_cannot_be_used_for_connections_to_controllers_stop_the_start() -> None:
    layers = BrokerLayers(start={"ssl.truststore.location": "/no/such/file"})
    with pytest.raises(ConfigError, match=r"^Listener CONTROLLER: ssl\.truststore\.location=/no/such/file"):
        following_files(resolve("CONTROLLER", "SSL", layers))
