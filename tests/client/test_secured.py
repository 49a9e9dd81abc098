"""The blocking client at listeners with TLS and SASL: whom it trusts, how it authenticates, what it says."""

import pickle
import time

import pytest

from odradek.client.client_error import ClientError
from odradek.client.cluster import ANY_NODE, Cluster
from odradek.client.connection import Connection
from odradek.client.secured import Secured
from odradek.spark.client_options import settings_of
from odradek.wire.errors import ErrorCode
from odradek.wire.messages.list_groups import ListGroupsRequest
from tests.client.topics import create_topic, produce
from tests.secured import MECHANISMS, PASSWORD, PROTOCOLS, SECURITY, running
from tests.server.tls_ends import Authority, chain_text


@pytest.fixture(scope="module")
def authority():
    return Authority()


@pytest.fixture(scope="module")
def ports(authority, tmp_path_factory):
    with running(authority, tmp_path_factory.mktemp("secured")) as found:
        yield found


def tls(authority, *, with_key=False):
    options = {"kafka.ssl.truststore.type": "PEM", "kafka.ssl.truststore.certificates": authority.text}
    if with_key:
        issued = authority.issue("client", common_name="client")
        options["kafka.ssl.keystore.type"] = "PEM"
        options["kafka.ssl.keystore.key"] = issued.private_key_pem.bytes().decode()
        options["kafka.ssl.keystore.certificate.chain"] = chain_text(issued)
    return options


def sasl(mechanism="SCRAM-SHA-256", jaas=None):
    return {"kafka.sasl.mechanism": mechanism, "kafka.sasl.jaas.config": jaas or MECHANISMS[mechanism]}


def settings(ports, protocol, *options):
    given = {"kafka.bootstrap.servers": f"127.0.0.1:{ports[protocol]}", "kafka.security.protocol": protocol}
    given |= {"kafka.retry.backoff.ms": "1", "kafka.default.api.timeout.ms": "2000"}
    for some in options:
        given |= some
    return settings_of(given)


def topics_of(*given):
    with Cluster(settings(*given)) as cluster:
        return cluster.topics()


def refusal(*given):
    with pytest.raises(ClientError) as caught:
        topics_of(*given)
    assert PASSWORD not in repr(caught.value) + str(caught.value.__cause__)
    return str(caught.value)


@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize("protocol", PROTOCOLS[1:])
def test_each_mechanism_writes_and_reads_with_and_without_tls(authority, ports, protocol, mechanism):
    more = [tls(authority)] if protocol == "SASL_SSL" else []
    with Cluster(settings(ports, protocol, sasl(mechanism), *more)) as cluster:
        topic = create_topic(cluster, 1)
        produce(cluster, topic, 0, [b"one"])
        assert topic in cluster.topics()


def test_a_client_shows_its_certificate(authority, ports):
    assert isinstance(topics_of(ports, "SSL", tls(authority, with_key=True)), list)
    assert "refuse" in refusal(ports, "SSL", tls(authority))


def test_a_broker_of_another_authority_is_not_trusted_and_is_not_asked_again(ports):
    began = time.monotonic()
    told = refusal(ports, "SASL_SSL", sasl(), tls(Authority()))
    assert "the certificate of 127.0.0.1" in told
    assert "is not trusted" in told
    assert time.monotonic() - began < 2, "a certificate becomes no better by a second look"


def test_a_broker_has_to_be_the_host_that_is_asked(authority, tmp_path):
    elsewhere = authority.server_options(authority.issue("elsewhere.example", common_name="broker"))
    with running(authority, tmp_path, **elsewhere) as ports:
        assert "is not trusted" in refusal(ports, "SASL_SSL", sasl(), tls(authority))
        unchecked = {"kafka.ssl.endpoint.identification.algorithm": ""}
        assert isinstance(topics_of(ports, "SASL_SSL", sasl(), tls(authority), unchecked), list)


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_a_wrong_password_is_told_at_once_and_is_not_shown(ports, mechanism):
    wrong = MECHANISMS[mechanism].replace(PASSWORD, "wrong-secret")
    told = refusal(ports, "SASL_PLAINTEXT", sasl(mechanism, wrong))
    assert "refuses the user 'ann' (SASL_AUTHENTICATION_FAILED)" in told
    assert "wrong-secret" not in told


def test_a_delegation_token_is_offered_as_one_and_refused_as_one(ports):
    jaas = f'{SECURITY}.scram.ScramLoginModule required username="id" password="hmac" tokenauth=true;'
    assert "refuses the delegation token 'id'" in refusal(
        ports, "SASL_PLAINTEXT", sasl("SCRAM-SHA-256", jaas)
    )


def test_a_mechanism_that_the_broker_lacks_is_told_with_those_that_it_has(ports, tmp_path):
    token = tmp_path / "token"
    token.write_text("a.b.c\n")
    oauth = sasl("OAUTHBEARER", f"{SECURITY}.oauthbearer.OAuthBearerLoginModule required;")
    oauth["kafka.sasl.oauthbearer.token.endpoint.url"] = f"file:{token}"
    told = refusal(ports, "SASL_PLAINTEXT", oauth)
    assert "does not take the SASL mechanism OAUTHBEARER" in told
    assert "SCRAM-SHA-512" in told


def test_protocols_that_do_not_meet_end_with_a_sentence(authority, ports):
    at_tls = {"SASL_PLAINTEXT": ports["SASL_SSL"]}
    told = refusal(at_tls, "SASL_PLAINTEXT", sasl())
    assert told.endswith(
        "the port speaks TLS, and this client does not; set kafka.security.protocol to SASL_SSL"
    )
    at_plain = {"SASL_SSL": ports["SASL_PLAINTEXT"]}
    told = refusal(at_plain, "SASL_SSL", sasl(), tls(authority))
    assert (
        "listener without TLS, and this client speaks TLS; set kafka.security.protocol to SASL_PLAINTEXT"
        in told
    )
    at_plain = {"PLAINTEXT": ports["SASL_PLAINTEXT"]}
    assert (
        "wants a login, and this client has none; set kafka.security.protocol to SASL_PLAINTEXT, kafka.sasl."
        in (refusal(at_plain, "PLAINTEXT"))
    )
    told = refusal({"PLAINTEXT": ports["SASL_SSL"]}, "PLAINTEXT")
    assert (
        "the port speaks TLS, and this client does not; set kafka.security.protocol to SASL_SSL, kafka.s"
        in told
    )
    told = refusal({"SASL_SSL": ports["SSL"]}, "SASL_SSL", sasl(), tls(authority, with_key=True))
    assert "has no login, and this client wants one; set kafka.security.protocol to SSL" in told


def test_a_session_that_ends_is_renewed_also_with_requests_under_way(authority, tmp_path):
    with running(authority, tmp_path, **{"connections.max.reauth.ms": "1300"}) as ports:
        chosen = settings(ports, "SASL_SSL", sasl(), tls(authority))
        with Cluster(chosen) as cluster:
            connection = cluster.connect(ANY_NODE)
            sessions = {connection.renew_at}
            deadline = time.monotonic() + 60
            while len(sessions) < 3 and time.monotonic() < deadline:
                pending = connection.send(ListGroupsRequest(), 4)
                assert connection.ask(ListGroupsRequest(), 4).error_code == ErrorCode.NONE
                assert connection.receive(pending).error_code == ErrorCode.NONE
                sessions.add(connection.renew_at)
            assert len(sessions) == 3
            assert connection is cluster.connect(ANY_NODE), "one connection, over three sessions"


def test_without_a_session_that_ends_nothing_is_renewed(ports):
    secured = Secured(settings(ports, "SASL_PLAINTEXT", sasl()).security)
    connection = Connection(
        "127.0.0.1", ports["SASL_PLAINTEXT"], client_id="c", timeout_ms=10_000, response_bytes_max=1 << 20,
        secured=secured,
    )  # fmt: skip
    assert connection.renew_at is None
    connection.close()


def test_settings_go_to_tasks_with_their_secrets_and_show_none(ports, authority):
    chosen = settings(ports, "SASL_SSL", sasl(), tls(authority, with_key=True))
    copy = pickle.loads(pickle.dumps(chosen))
    assert copy == chosen
    with Cluster(copy) as cluster:
        assert isinstance(cluster.topics(), list)
    for shown in (repr(chosen), str(chosen), repr(copy), f"{chosen}"):
        assert PASSWORD not in shown
        assert "PRIVATE KEY" not in shown
