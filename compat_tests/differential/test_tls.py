"""TLS of Kafka and of Odradek: strangers at the port, and changes of key stores while both serve."""

from __future__ import annotations

import contextlib
import pathlib
import socket
import ssl
from collections.abc import Iterator
from dataclasses import dataclass

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

from compat_tests import reference
from compat_tests.broker_host import shared_host
from compat_tests.clients import wait_until
from compat_tests.security.certificates import Authority
from compat_tests.security.sealed_clients import confluent_settings
from compat_tests.security.served import Served

pytestmark = pytest.mark.in_order
"""The last two tests change the certificates, and a broker of Kafka does not go back to the first ones."""

PREFIX = "listener.name.plaintext."
SETTINGS = {
    "inter.broker.listener.name": "PLAINTEXT",
    "ssl.client.auth": "requested",
}


@dataclass
class Side:
    name: str
    port: int
    store: pathlib.Path
    authority: Authority

    def alter(self, prefix: str = PREFIX, **configs: object) -> int:
        """The error code of IncrementalAlterConfigs."""
        settings = [
            ConfigEntry(
                f"{prefix}ssl.{name.replace('_', '.')}",
                str(value),
                incremental_operation=AlterConfigOpType.SET,
            )
            for name, value in configs.items()
        ]
        resource = ConfigResource(ResourceType.BROKER, "1", incremental_configs=settings)
        admin = AdminClient(confluent_settings(f"127.0.0.1:{self.port}", self.authority.pem, None))
        (future,) = admin.incremental_alter_configs([resource]).values()
        try:
            future.result(30)
        except KafkaException as error:
            return int(error.args[0].code())
        return 0

    def certificate(self) -> bytes | None:
        context = ssl.create_default_context(cafile=str(self.authority.pem))
        with (
            socket.create_connection(("127.0.0.1", self.port), 30) as plain,
            context.wrap_socket(plain, server_hostname="localhost") as sealed,
        ):
            return sealed.getpeercert(True)

    def write(self, *names: str, common_name: str = "broker") -> None:
        self.authority.write_pem(self.store.stem, self.authority.issue(*names, common_name=common_name))


HOSTS = ("localhost", "127.0.0.1", "::1")


@pytest.fixture(scope="module")
def sides(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Side]]:
    authority = Authority(tmp_path_factory.mktemp("authority"))
    options = {}
    for name in ("kafka", "odradek"):
        store = authority.key_store("PEM", name, authority.issue(*HOSTS, common_name="broker"))
        prefixed = {f"{PREFIX}{option}": value for option, value in store.items()}
        options[name] = SETTINGS | store | prefixed | authority.trust_store("PEM")
    kafka_map = {"listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:SSL"}
    ours = {"listener.security.protocol.map": "PLAINTEXT:SSL", "listeners": "PLAINTEXT://127.0.0.1:0"}
    with (
        reference.Kafka(properties=options["kafka"] | kafka_map, host=shared_host()) as kafka,
        Served(tmp_path_factory.mktemp("data"), options["odradek"] | ours) as odradek,
    ):
        yield [
            Side("kafka", kafka.port, authority.directory / "kafka.pem", authority),
            Side("odradek", odradek.port("PLAINTEXT"), authority.directory / "odradek.pem", authority),
        ]


def alike(found: list[object]) -> object:
    assert found[0] == found[1]
    return found[0]


def after(side: Side, sent: bytes) -> bytes:
    """All that the broker says until it closes the connection."""
    received = b""
    with socket.create_connection(("127.0.0.1", side.port), 30) as client:
        client.sendall(sent)
        with contextlib.suppress(ConnectionResetError):
            while piece := client.recv(4096):
                received += piece
    return received


def test_what_is_no_tls_gets_the_same_alert(sides: list[Side]) -> None:
    for sent in (bytes.fromhex("0000000a00120000000000010000"), b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"):
        assert alike([after(side, sent) for side in sides]) == bytes.fromhex("15030300020250")


def test_changes_of_key_stores_are_taken_and_refused_alike(sides: list[Side], tmp_path: pathlib.Path) -> None:
    other = Authority(tmp_path / "other")
    before = [side.certificate() for side in sides]
    codes: list[list[object]] = []
    for side in sides:
        (tmp_path / "text").write_text("no keys")
        found: list[object] = []
        found.append(("absent", side.alter(keystore_location="/no/such/file")))
        found.append(("no keys", side.alter(keystore_location=tmp_path / "text")))
        found.append(("other type", side.alter(keystore_type="JKS")))
        found.append(("a password", side.alter(keystore_password="x")))
        found.append(("no prefix", side.alter("", keystore_location=side.store)))
        for what, owner, issued in (
            ("other name", side.authority, side.authority.issue(*HOSTS, common_name="other")),
            ("fewer hosts", side.authority, side.authority.issue("localhost", common_name="broker")),
            ("foreign", other, other.issue(*HOSTS, common_name="broker")),
        ):
            found.append((what, side.alter(keystore_location=owner.write_pem("next", issued))))
        codes.append(found)
    assert codes[0] == codes[1]
    assert {code for _, code in codes[0]} == {42}  # type: ignore[misc]
    assert [side.certificate() for side in sides] == before


def test_the_same_location_set_again_is_taken_and_a_certificate_that_does_not_fit_is_not_used(
    sides: list[Side],
) -> None:
    for side in sides:
        first = side.certificate()
        side.write(*HOSTS, common_name="other")
        assert side.alter(keystore_location=side.store) == 0
        # The file is read after the answer, before the next request.
        assert side.alter(keystore_location=side.store) == 0
        assert side.certificate() == first


def test_the_same_location_set_again_brings_the_new_certificate(sides: list[Side]) -> None:
    for side in sides:
        first = side.certificate()
        side.write(*HOSTS, "more.example", common_name="broker")
        assert side.alter(keystore_location=side.store) == 0
        wait_until(lambda: side.certificate() != first, f"{side.name} has the new certificate")  # noqa: B023
