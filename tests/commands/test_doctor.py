"""`odradek doctor`: faults that are planted one by one are named, each with a remedy; sound set-ups raise
none.
"""

import contextlib
import dataclasses
import datetime
import pathlib
import socket
import threading
import time
import types

import pytest

import odradek
from odradek.client import trial
from odradek.embedding.free_port import free_port
from odradek.wire.errors import ErrorCode
from odradek.wire.messages.find_coordinator import FindCoordinatorRequest
from odradek.wire.messages.metadata import MetadataRequest
from tests.client.proxy import Proxy
from tests.secured import MECHANISMS, PASSWORD, running
from tests.server.tls_ends import Authority, chain_text


@pytest.fixture(scope="module")
def authority():
    return Authority()


@pytest.fixture(scope="module")
def ports(authority, tmp_path_factory):
    with running(authority, tmp_path_factory.mktemp("secured")) as found:
        yield found


@pytest.fixture
def doctor(run, tmp_path):
    """Runs it with properties, which are given as a file."""

    def examined(port, *arguments, host="127.0.0.1", **properties):
        file = tmp_path / "client.properties"
        lines = [f"{name.replace('_', '.')}={text}".replace("\n", "\\n") for name, text in properties.items()]
        file.write_text("\n".join(lines))
        given = ["-b", f"{host}:{port}", "--command-config", str(file), "--timeout", "2"]
        return run("doctor", *given, *arguments, "--output", "json")

    return examined


def tls(authority, with_key=False):
    options = {"ssl_truststore_type": "PEM", "ssl_truststore_certificates": authority.text}
    if with_key:
        issued = authority.issue("client", common_name="client")
        options["ssl_keystore_type"] = "PEM"
        options["ssl_keystore_key"] = issued.private_key_pem.bytes().decode()
        options["ssl_keystore_certificate_chain"] = chain_text(issued)
    return options


def sasl(mechanism="SCRAM-SHA-256", jaas=None):
    return {"sasl_mechanism": mechanism, "sasl_jaas_config": jaas or MECHANISMS[mechanism]}


def assert_sound(ended):
    assert ended.status == 0, ended
    assert ended.err == ""
    assert all(row["ok"] and row["fault"] is None for row in ended.rows)
    assert ended.rows[-1]["step"] in ("group", "write")


def assert_names(ended, step, fault, remedy):
    """The fault is that of the first step that fails, and no step follows that needs it."""
    assert ended.status == 1
    first = next(row for row in ended.rows if not row["ok"])
    assert first["step"] == step, ended.rows
    assert fault in first["fault"]
    assert remedy in first["remedy"]
    assert PASSWORD not in ended.out + ended.err
    assert [row["step"] for row in ended.rows if not row["ok"]] == [step]


# Sound set-ups ----------------------------------------------------------------------------------------


def test_a_plain_broker_is_sound_and_what_was_written_is_gone(doctor, broker, odradek_command):
    ended = doctor(broker.port, "--write")
    assert_sound(ended)
    assert [row["step"] for row in ended.rows] == [
        *("name", "connection", "protocol", "versions"),
        *("metadata", "advertised", "group", "write"),
    ]
    assert "read in" in ended.rows[-1]["detail"]
    names = [row["topic"] for row in odradek_command("topics", "list", "--output", "json").rows]
    assert not [name for name in names if name.startswith("odradek-doctor")]


def test_a_record_may_go_to_a_topic_that_is_there(doctor, broker, odradek_command):
    odradek_command("topics", "create", "examined", "-p", "1")
    assert_sound(doctor(broker.port, "--topic", "examined"))
    (row,) = odradek_command("topics", "offsets", "examined", "--output", "json").rows
    assert row["end_offset"] == 1


def test_a_name_with_several_addresses_is_sound_if_one_of_them_answers(doctor, broker):
    assert_sound(doctor(broker.port, host="localhost"))


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_a_login_is_sound(doctor, ports, mechanism):
    ended = doctor(ports["SASL_PLAINTEXT"], security_protocol="SASL_PLAINTEXT", **sasl(mechanism))
    assert_sound(ended)
    (login,) = [row for row in ended.rows if row["step"] == "login"]
    assert login["detail"] == f"ann with {mechanism}"


def test_tls_with_a_login_is_sound(doctor, ports, authority):
    ended = doctor(ports["SASL_SSL"], "--write", security_protocol="SASL_SSL", **sasl(), **tls(authority))
    assert_sound(ended)
    (sealed,) = [row for row in ended.rows if row["step"] == "tls"]
    assert sealed["detail"].startswith("TLSv1.3, the certificate is good for ")


def test_a_certificate_of_the_client_is_sound(doctor, ports, authority):
    assert_sound(doctor(ports["SSL"], security_protocol="SSL", **tls(authority, with_key=True)))


# Planted faults ---------------------------------------------------------------------------------------


def test_a_wrong_option(doctor, broker):
    ended = doctor(broker.port, security_protocol="TLS")
    assert (ended.status, ended.out) == (1, "")
    assert "security.protocol is 'TLS': it has to be one of PLAINTEXT" in ended.err


def test_a_name_without_an_address(doctor):
    ended = doctor(9092, host="no-such-host.invalid")
    assert_names(ended, "name", "the name no-such-host.invalid has no address", "a slip in the name")


def test_a_port_where_nobody_listens(doctor):
    assert_names(doctor(free_port()), "connection", "Connection refused", "is the broker up")


@contextlib.contextmanager
def server(answer):
    """Sends `answer` to who connects, or nothing (None), or closes the connection (b"")."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        kept = []

        def serve():
            while True:
                try:
                    connected, _ = listening.accept()
                except OSError:
                    return
                kept.append(connected)
                if answer is not None:
                    with contextlib.suppress(OSError):
                        connected.recv(64)
                        connected.sendall(answer)
                        connected.shutdown(socket.SHUT_RDWR)
                    connected.close()

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        try:
            yield listening.getsockname()[1]
        finally:
            listening.shutdown(socket.SHUT_RDWR)
            for connected in kept:
                connected.close()
            thread.join()


@pytest.mark.parametrize(
    ("answer", "fault", "remedy"),
    [
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "an HTTP server listens there", "the port of a Kafka listener"),
        (b"SSH-2.0-OpenSSH_9.2\r\n", "an SSH server listens there", "the port of a Kafka listener"),
        (b"+OK ready\r\n", "a server of another protocol listens there", "the port of a Kafka listener"),
        (b"", "closes the connection at the first request", "port mapping without a broker"),
        (None, "does not answer within 2 s", "hangs or still starts"),
    ],
    ids=["http", "ssh", "other", "closed", "silent"],
)
def test_what_is_no_broker(doctor, answer, fault, remedy):
    with server(answer) as port:
        assert_names(doctor(port), "protocol", fault, remedy)


def test_tls_at_a_plain_port(doctor, broker, authority):
    ended = doctor(broker.port, security_protocol="SSL", **tls(authority))
    assert_names(ended, "protocol", "a Kafka listener without TLS", "set security.protocol to PLAINTEXT")


def test_a_plain_client_at_a_port_with_tls(doctor, ports):
    assert_names(doctor(ports["SSL"]), "protocol", "the port speaks TLS", "set security.protocol to SSL")


def test_an_authority_that_is_not_trusted(doctor, ports):
    ended = doctor(ports["SASL_SSL"], security_protocol="SASL_SSL", **sasl(), **tls(Authority()))
    assert_names(ended, "tls", "is not trusted", "ssl.truststore.location")


def test_a_certificate_for_another_name(doctor, authority, tmp_path_factory):
    elsewhere = authority.server_options(authority.issue("elsewhere.example", common_name="broker"))
    with running(authority, tmp_path_factory.mktemp("elsewhere"), **elsewhere) as ports:
        ended = doctor(ports["SASL_SSL"], security_protocol="SASL_SSL", **sasl(), **tls(authority))
    assert_names(ended, "tls", "is for another name than 127.0.0.1", "use a name that is in the certificate")


def test_a_certificate_that_has_expired(doctor, authority, tmp_path_factory):
    past = datetime.datetime.now(datetime.UTC) - datetime.timedelta(days=3)
    expired = authority.server_options(
        authority.issue("127.0.0.1", "localhost", common_name="broker", not_after=past)
    )
    with running(authority, tmp_path_factory.mktemp("expired"), **expired) as ports:
        ended = doctor(ports["SASL_SSL"], security_protocol="SASL_SSL", **sasl(), **tls(authority))
    assert_names(ended, "tls", "has expired", "renew the certificate of the broker")


def test_a_certificate_that_ends_soon_is_told_and_no_fault(doctor, authority, tmp_path_factory):
    soon = datetime.datetime.now(datetime.UTC) + datetime.timedelta(days=3)
    ending = authority.server_options(
        authority.issue("127.0.0.1", "localhost", common_name="broker", not_after=soon)
    )
    with running(authority, tmp_path_factory.mktemp("ending"), **ending) as ports:
        ended = doctor(ports["SASL_SSL"], security_protocol="SASL_SSL", **sasl(), **tls(authority))
    assert ended.status == 0
    (sealed,) = [row for row in ended.rows if row["step"] == "tls"]
    assert sealed["remedy"] == "renew the certificate of the broker soon"


def test_a_certificate_that_the_client_lacks(doctor, ports, authority):
    ended = doctor(ports["SSL"], security_protocol="SSL", **tls(authority))
    first = next(row for row in ended.rows if not row["ok"])
    # With TLS 1.3 the broker tells it after the handshake.
    assert first["step"] in ("tls", "versions")
    assert "certificate of the client" in first["remedy"]


def test_a_mechanism_that_the_listener_has_not(doctor, authority, tmp_path_factory):
    with running(
        authority, tmp_path_factory.mktemp("plain"), **{"sasl.enabled.mechanisms": "PLAIN"}
    ) as ports:
        ended = doctor(ports["SASL_PLAINTEXT"], security_protocol="SASL_PLAINTEXT", **sasl())
    assert_names(ended, "login", "PLAIN", "set sasl.mechanism to one that the listener has")


def test_a_wrong_password(doctor, ports):
    wrong = MECHANISMS["PLAIN"].replace(PASSWORD, "wrong-secret")
    ended = doctor(ports["SASL_PLAINTEXT"], security_protocol="SASL_PLAINTEXT", **sasl("PLAIN", wrong))
    assert_names(ended, "login", "refuses the user 'ann'", "is the password right?")
    assert "wrong-secret" not in ended.out


def test_a_client_without_a_login(doctor, ports):
    ended = doctor(ports["SASL_PLAINTEXT"])
    assert_names(
        ended,
        "metadata",
        "the listener wants a login, and this client has none",
        "set security.protocol to SASL_PLAINTEXT, sasl.mechanism to",
    )


def advertising(directory: pathlib.Path, address: str):
    return odradek.Broker(options={"advertised.listeners": f"PLAINTEXT://{address}"}, data_dir=str(directory))


def test_an_advertised_name_without_an_address(doctor, tmp_path):
    with advertising(tmp_path / "data", "broker-in-a-container:9092") as broker:
        ended = doctor(broker.port)
    assert_names(
        ended,
        "advertised",
        "clients are told to use the name broker-in-a-container, which has no address here",
        "set advertised.listeners of that broker to a name that clients can resolve",
    )


def test_an_advertised_address_of_the_container_itself(doctor, tmp_path):
    port = free_port()
    with advertising(tmp_path / "data", f"localhost:{port}") as broker:
        ended = doctor(broker.port)
    assert_names(
        ended,
        "advertised",
        f"clients are told to use localhost:{port}, which cannot be reached from here",
        "set advertised.listeners of that broker to an address that clients can reach",
    )
    assert "every machine and container means itself" in ended.out


def test_an_advertised_address_of_another_listener(doctor, tmp_path, ports):
    with advertising(tmp_path / "data", f"127.0.0.1:{ports['SASL_SSL']}") as broker:
        ended = doctor(broker.port)
    assert_names(
        ended, "advertised", "does not take this client", "the listener with the same security.protocol"
    )


def test_a_user_who_may_not_write(doctor, tmp_path):
    authorizer = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
    options = {"authorizer.class.name": authorizer, "super.users": "User:somebody"}
    with odradek.Broker(options=options, data_dir=str(tmp_path / "data")) as running_broker:
        ended = doctor(running_broker.port, "--write")
    assert_names(ended, "write", "AUTHORIZATION_FAILED", "the user lacks an ACL")
    (group,) = [row for row in ended.rows if row["step"] == "group"]
    assert group["detail"].startswith("this user may not see such a group")


def test_a_topic_that_is_not_there(doctor, broker):
    ended = doctor(broker.port, "--topic", "nowhere")
    assert_names(ended, "write", "the cluster has no topic nowhere", "a topic that exists")


def test_a_group_without_a_coordinator(doctor, broker):
    """As where __consumer_offsets has no leaders, or asks for more replicas than there are brokers."""

    def nobody(answer):
        answer.coordinators[0].error_code = ErrorCode.COORDINATOR_NOT_AVAILABLE
        return answer

    with Proxy(broker.port) as proxy:
        proxy.change(FindCoordinatorRequest, nobody)
        ended = doctor(proxy.port)
    assert_names(ended, "group", "COORDINATOR_NOT_AVAILABLE", "has __consumer_offsets leaders?")


def test_a_port_of_a_worker_that_is_not_published(doctor, broker):
    unpublished = free_port()

    def with_a_second(answer):
        answer.brokers[0].port = proxy.port
        answer.brokers.append(dataclasses.replace(answer.brokers[0], node_id=2, port=unpublished))
        return answer

    with Proxy(broker.port) as proxy:
        proxy.change(MetadataRequest, with_a_second)
        ended = doctor(proxy.port)
    assert_names(ended, "advertised", f"127.0.0.1:{unpublished}", f"publish port {unpublished}, too")


def test_a_cluster_that_names_no_broker(doctor, broker):
    def empty(answer):
        answer.brokers = []
        return answer

    with Proxy(broker.port) as proxy:
        proxy.change(MetadataRequest, empty)
        ended = doctor(proxy.port)
    assert_names(ended, "metadata", "the cluster names no broker", "it still starts, or all of its brokers")


@pytest.mark.parametrize(("ahead_s", "fault"), [(-90, "90 s ahead of"), (90, "90 s behind")])
def test_a_clock_that_differs(doctor, broker, monkeypatch, ahead_s, fault):
    """By so much this machine's clock is ahead of the broker's."""
    now = types.SimpleNamespace(
        time=lambda: time.time() + ahead_s, time_ns=time.time_ns, monotonic=time.monotonic
    )
    monkeypatch.setattr(trial, "time", now)
    ended = doctor(broker.port, "--write")
    assert_names(ended, "write", f"the broker's clock is {fault} the clock of this machine", "NTP")
