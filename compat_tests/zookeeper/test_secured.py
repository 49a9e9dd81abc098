"""A ZooKeeper that wants TLS or a login: the broker finds its way in, protects its nodes, and is refused."""

from __future__ import annotations

import json
import pathlib
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic
from kazoo.client import KazooClient
from kazoo.exceptions import NoAuthError, NoNodeError

import odradek
from compat_tests.clients import wait_until
from compat_tests.security.certificates import Authority
from compat_tests.zookeeper.conftest import PATIENT, SESSION_MS, Logged, in_zookeeper
from compat_tests.zookeeper.ensemble import KafkaInZooKeeper, ZooKeeper
from odradek.config.option import PASSWORD
from odradek.config.options import BROKER_OPTIONS
from odradek.embedding.free_port import free_port
from tests.tiers import rest_at_night

SECONDS = 30
DIGEST = "org.apache.zookeeper.server.auth.DigestLoginModule"
USER = "broker"


def of_zookeeper(options: dict[str, str]) -> dict[str, str]:
    """Options of a client of Kafka, as those of the connection to ZooKeeper."""
    return {f"zookeeper.{name}": value for name, value in options.items()}


class Secure:
    """A server with a port for TLS, where a client has to show a certificate of the authority."""

    def __init__(self, directory: pathlib.Path) -> None:
        self.authority = Authority(directory / "authority")
        self.port = free_port()
        self.server = ZooKeeper()
        self.use(self.authority)

    def use(self, authority: Authority) -> None:
        """At the next start its certificate is of this authority, and those of clients have to be."""
        self.server.settings = {
            "secureClientPort": str(self.port),
            "serverCnxnFactory": "org.apache.zookeeper.server.NettyServerCnxnFactory",
            "authProvider.x509": "org.apache.zookeeper.server.auth.X509AuthenticationProvider",
            "ssl.keyStore.location": str(authority.write_pem("zookeeper", authority.server())),
            "ssl.trustStore.location": str(authority.pem),
        }

    def options(self, kind: str = "PEM", authority: Authority | None = None) -> dict[str, str]:
        authority = authority or self.authority
        issued = authority.issue("client", common_name="broker")
        return {
            "zookeeper.ssl.client.enable": "true",
            **of_zookeeper(authority.key_store(kind, f"broker-{kind}", issued)),
            **of_zookeeper(authority.trust_store(kind)),
        }

    def client(self, name: str, chroot: str) -> KazooClient:
        """kazoo's own, with a certificate of that name."""
        path = self.authority.write_pem(name, self.authority.issue("client", common_name=name))
        client = KazooClient(
            f"localhost:{self.port}/{chroot}",
            use_ssl=True,
            ca=str(self.authority.pem),
            certfile=str(path),
            keyfile=str(path),
        )
        client.start(SECONDS)
        return client


@pytest.fixture(scope="module")
def secure(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secure]:
    one = Secure(tmp_path_factory.mktemp("secure"))
    with one.server:
        yield one


def serves(broker: odradek.Broker | Logged, topic: str) -> None:
    """A topic is made, written and read."""
    server = {"bootstrap.servers": broker.bootstrap_servers}
    admin = AdminClient(server)
    (future,) = admin.create_topics([NewTopic(topic, 1)]).values()
    future.result(SECONDS)
    producer = Producer(server)
    producer.produce(topic, b"x", partition=0)
    assert producer.flush(SECONDS) == 0
    consumer = Consumer({**server, "group.id": "g"})
    consumer.assign([TopicPartition(topic, 0, 0)])
    record = consumer.poll(SECONDS)
    assert record is not None
    assert record.value() == b"x"
    consumer.close()


@pytest.mark.parametrize("kind", rest_at_night("PEM", "PKCS12", "JKS"))
def test_a_broker_is_in_zookeeper_over_tls(secure: Secure, kind: str) -> None:
    chroot = f"tls-{kind}"
    with in_zookeeper(f"localhost:{secure.port}/{chroot}", options=secure.options(kind)) as broker:
        serves(broker, "t")
        client = secure.client("reader", chroot)
        wait_until(lambda: client.exists("/brokers/topics/t/partitions/0/state"), "the topic is there")
        assert client.get_children("/brokers/ids") == ["1"]
        client.stop()
        client.close()


def test_nodes_are_protected_from_others(secure: Secure) -> None:
    options = {**secure.options(), "zookeeper.set.acl": "true"}
    options |= {
        "listeners": "PLAINTEXT://127.0.0.1:0,OLD://127.0.0.1:0",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,OLD:KAFKA_07",
    }
    with in_zookeeper(f"localhost:{secure.port}/acl", options=options) as broker:
        serves(broker, "t")
        other, own = secure.client("other", "acl"), secure.client("broker", "acl")
        state = "/brokers/topics/t/partitions/0/state"
        wait_until(lambda: other.exists(state), "the topic is there")
        readable = [
            "/brokers/ids/1",
            "/brokers/topics/t",
            state,
            "/controller",
            "/cluster/id",
            "/config/topics/t",
        ]
        for path in (*readable, "/controller_epoch", "/kafka07/brokers/ids/1"):
            assert other.get(path)[0], path
            with pytest.raises(NoAuthError):
                other.set(path, b"changed")
        for path in ("/config/users", "/config/brokers"):
            with pytest.raises(NoAuthError):
                other.get_children(path)
            own.get_children(path)
        with pytest.raises(NoAuthError):
            other.create("/admin/delete_topics/t")
        for path in ("/consumers/g", "/kafka07/consumers/g"):
            other.create(path)
        own.create("/admin/delete_topics/t")
        wait_until(lambda: not own.exists("/brokers/topics/t"), "who has the broker's certificate may do all")
        for client in (other, own):
            client.stop()
            client.close()


def test_nodes_of_a_cluster_that_have_one_name_write_for_each_other(secure: Secure) -> None:
    """What the first controller has made, the second one may change."""
    in_tls = {
        **secure.options(),
        "zookeeper.connect": f"localhost:{secure.port}/cluster",
        "zookeeper.set.acl": "true",
        "zookeeper.session.timeout.ms": str(SESSION_MS),
        **PATIENT,
    }
    options = {"broker.session.timeout.ms": "3000", "broker.heartbeat.interval.ms": "500"}
    with odradek.Cluster(2, options=options, node_options=dict.fromkeys((1, 2), in_tls)) as cluster:
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
        (future,) = admin.create_topics([NewTopic("t", 1, 2)]).values()
        future.result(SECONDS)
        client = secure.client("reader", "cluster")

        def writer() -> int | None:
            try:
                return int(json.loads(client.get("/controller")[0])["brokerid"])
            except NoNodeError:
                return None

        def in_sync() -> list[int]:
            return list(json.loads(client.get("/brokers/topics/t/partitions/0/state")[0])["isr"])

        wait_for_node(client, "/brokers/topics/t/partitions/0/state")
        before = writer()
        assert before is not None
        cluster.node(before).kill()
        wait_until(lambda: writer() == 3 - before, "the other one is the controller")
        wait_until(lambda: in_sync() == [3 - before], "and writes that it is alone")
        client.stop()
        client.close()


def refusal(address: str, options: dict[str, str]) -> str:
    options = {"zookeeper.connection.timeout.ms": "4000", **options}
    with pytest.raises(odradek.BrokerStartError) as caught:
        in_zookeeper(address, options=options).start()
    return str(caught.value)


def test_a_zookeeper_that_nobody_vouches_for_is_refused(secure: Secure, tmp_path: pathlib.Path) -> None:
    other = Authority(tmp_path / "other")
    own = secure.options()
    address = f"localhost:{secure.port}/refused"
    text = refusal(address, {**own, "zookeeper.ssl.truststore.location": str(other.pem)})
    assert "with TLS (the certificate is refused" in text
    del own["zookeeper.ssl.truststore.location"]
    del own["zookeeper.ssl.truststore.type"]
    assert "with TLS (the certificate is refused" in refusal(address, own), "nor does the system"
    # The name localhost is in the certificate.
    text = refusal(f"127.0.0.2:{secure.port}/refused", secure.options())
    assert "with TLS (the certificate is refused" in text
    options = {**secure.options(), "zookeeper.ssl.endpoint.identification.algorithm": ""}
    with in_zookeeper(f"127.0.0.2:{secure.port}/refused", options=options) as broker:
        serves(broker, "t")


def test_who_shows_no_certificate_is_refused(secure: Secure) -> None:
    options = {name: value for name, value in secure.options().items() if "keystore" not in name}
    assert "no ZooKeeper answers at localhost" in refusal(f"localhost:{secure.port}/refused", options)
    assert "no ZooKeeper answers at localhost" in refusal(f"localhost:{secure.port}/refused", {})


def test_other_keys_count_for_the_next_connection(tmp_path: pathlib.Path) -> None:
    secure = Secure(tmp_path)
    options = secure.options()
    with secure.server, in_zookeeper(f"localhost:{secure.port}", options=options) as broker:
        serves(broker, "before")
        secure.server.stop()
        newer = Authority(tmp_path / "newer")
        more = secure.options(authority=newer)
        for name in ("zookeeper.ssl.keystore.location", "zookeeper.ssl.truststore.location"):
            pathlib.Path(more[name]).replace(options[name])
        newer.pem.write_bytes(newer.ca.cert_pem.bytes())
        serves(broker, "meanwhile")
        secure.authority = newer
        secure.use(newer)
        secure.server.start()
        client = secure.client("reader", "")
        wait_until(lambda: client.get_children("/brokers/ids") == ["1"], "the broker is there")
        wait_until(lambda: "meanwhile" in client.get_children("/brokers/topics"), "and what changed")
        client.stop()
        client.close()


def test_a_key_that_others_may_read_is_named(secure: Secure, tmp_path: pathlib.Path) -> None:
    options = secure.options()
    path = pathlib.Path(options["zookeeper.ssl.keystore.location"])
    path.chmod(0o644)
    with Logged(tmp_path, f"localhost:{secure.port}/readable", options) as broker:
        assert f"everybody on this machine can read the private key in {path}" in broker.log
        assert "PRIVATE KEY" not in broker.log


class WithLogins:
    """A server with users, whose passwords may change at its next start."""

    def __init__(self, directory: pathlib.Path) -> None:
        self._file = directory / "server.jaas"
        self.server = ZooKeeper(
            {
                "authProvider.sasl": "org.apache.zookeeper.server.auth.SASLAuthenticationProvider",
                "enforce.auth.enabled": "true",
                "enforce.auth.schemes": "sasl",
            },
            [f"-Djava.security.auth.login.config={self._file}"],
        )
        self.set_password("right")

    def set_password(self, password: str) -> None:
        users = f'user_{USER}="{password}" user_other="other"'
        self._file.write_text(f"Server {{ {DIGEST} required {users}; }};\n")

    def client(self, user: str = "other", password: str = "other") -> KazooClient:
        sasl: dict[str, Any] = {"mechanism": "DIGEST-MD5", "username": user, "password": password}
        client = KazooClient(self.server.address, sasl_options=sasl)
        client.start(SECONDS)
        return client


def login(directory: pathlib.Path, password: str) -> dict[str, str]:
    path = directory / "broker.jaas"
    path.write_text(f'Client {{\n  {DIGEST} required username="{USER}" password="{password}";\n}};\n')
    path.chmod(0o600)
    return {"odradek.jaas.config.path": str(path)}


def test_a_broker_logs_in_to_zookeeper(tmp_path: pathlib.Path) -> None:
    place = WithLogins(tmp_path)
    with place.server:
        text = refusal(place.server.address, login(tmp_path, "wrong"))
        assert f"refuses the login of {USER}" in text
        assert "wrong" not in text
        options = {**login(tmp_path, "right"), "zookeeper.set.acl": "true"}
        with in_zookeeper(place.server.address, options=options) as broker:
            serves(broker, "t")
            client = place.client()
            wait_until(lambda: client.exists("/brokers/topics/t/partitions/0/state"), "the topic is there")
            acls = {(one.id.scheme, one.id.id) for one in client.get_acls("/brokers/topics/t")[0]}
            assert acls == {("sasl", USER), ("world", "anyone")}
            with pytest.raises(NoAuthError):
                client.set("/brokers/topics/t", b"changed")
            client.stop()
            client.close()


def access(client: KazooClient, path: str) -> dict[str, set[tuple[int, str, str]]]:
    """Who may do what with each node at the path and below it."""
    found = {path: {(one.perms, one.id.scheme, one.id.id) for one in client.get_acls(path)[0]}}
    for name in client.get_children(path):
        found |= access(client, f"{path}/{name}")
    return found


ONLY_OF_KAFKA = ("/kafka-acl", "/delegation_token", "/feature", "/config/changes/")
"""Rules, tokens and feature levels are kept elsewhere; notifications go after a while."""


def test_nodes_and_options_are_those_of_kafka(tmp_path: pathlib.Path) -> None:
    place = WithLogins(tmp_path)
    protecting = {"zookeeper.set.acl": "true"}
    options = login(tmp_path, "right")
    jvm = [f"-Djava.security.auth.login.config={options['odradek.jaas.config.path']}"]
    with (
        place.server,
        KafkaInZooKeeper(f"{place.server.address}/kafka", protecting, jvm) as kafka,
        in_zookeeper(f"{place.server.address}/odradek", options={**options, **protecting}) as ours,
    ):
        admins = [AdminClient({"bootstrap.servers": one.bootstrap_servers}) for one in (kafka, ours)]
        for admin in admins:
            (future,) = admin.create_topics([NewTopic("t", 2)]).values()
            future.result(SECONDS)
        client = place.client(USER, "right")
        for name in ("kafka", "odradek"):
            wait_for_node(client, f"/{name}/brokers/topics/t/partitions/1/state")
        (theirs, own) = (
            {path.removeprefix(f"/{name}"): one for path, one in access(client, f"/{name}").items()}
            for name in ("kafka", "odradek")
        )
        theirs = {path: one for path, one in theirs.items() if not path.startswith(ONLY_OF_KAFKA)}
        own = {path: one for path, one in own.items() if not path.startswith(ONLY_OF_KAFKA)}
        # With the eligible leader replicas of Kafka 4 there is a setting of the cluster.
        assert own.pop("/config/brokers/<default>") == own["/config/brokers"]
        assert own == theirs
        client.stop()
        client.close()
        (future,) = admins[0].describe_configs([ConfigResource("broker", "1")]).values()
        told = {name: one for name, one in future.result(SECONDS).items() if name.startswith("zookeeper.")}
    declared = {name: one for name, one in BROKER_OPTIONS.items() if name.startswith("zookeeper.")}
    assert told.keys() == declared.keys()
    set_here = {"zookeeper.connect", "zookeeper.session.timeout.ms", *PATIENT, *protecting}
    defaults = {name: one.value for name, one in told.items() if name not in set_here}
    assert defaults == {name: declared[name].default_text for name in defaults}
    assert {name for name, one in told.items() if one.is_sensitive} == {
        name for name, one in declared.items() if one.kind == PASSWORD
    }


def test_a_login_that_is_refused_later_is_tried_until_it_is_taken(tmp_path: pathlib.Path) -> None:
    place = WithLogins(tmp_path)
    options = login(tmp_path, "right")
    with place.server, Logged(tmp_path, place.server.address, options) as broker:
        serves(broker, "before")
        for number in (1, 2):
            place.server.stop()
            place.set_password("another")
            place.server.start()
            wait_for_words(broker, "the login is refused", number)
            serves(broker, f"meanwhile-{number}")
            place.server.stop()
            place.set_password("right")
            place.server.start()
            wait_for_words(broker, "answers again", number)
            client = place.client()
            wait_for_node(client, f"/brokers/topics/meanwhile-{number}/partitions/0/state")
            client.stop()
            client.close()
        assert broker.log.count("the login is refused") == 2
        assert broker.log.count("does not answer") == 2
        assert "Traceback" not in broker.log


def wait_for_node(client: KazooClient, path: str) -> None:
    wait_until(lambda: client.exists(path) is not None, f"{path} is there")


def wait_for_words(broker: Logged, words: str, count: int) -> None:
    wait_until(lambda: broker.log.count(words) == count, f"the log has {words!r}")
