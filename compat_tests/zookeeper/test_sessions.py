"""What happens when ZooKeeper is lost, its answers are lost, a session ends, or the place is taken."""

from __future__ import annotations

import json
import os
import pathlib
import random
import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    ResourceType,
)

import odradek
from compat_tests.clients import wait_until
from compat_tests.kit.proxy import Proxy
from compat_tests.stories import topic_name
from compat_tests.zookeeper.conftest import Logged, Looking, in_zookeeper
from compat_tests.zookeeper.ensemble import ZooKeeper
from odradek.embedding.free_port import free_port
from odradek.wire.kafka07.requests import LATEST, Offsets, encode_request, response_of_offsets
from tests.raw_client import RawClient

SECONDS = 30
OF_GROUPS = "__consumer_offsets"


@pytest.fixture
def own_server() -> Iterator[ZooKeeper]:
    """One that a test may stop."""
    with ZooKeeper() as one:
        yield one


@pytest.fixture
def chroot(server: ZooKeeper) -> str:
    """Directories of a cluster of its own."""
    return f"{server.address}/{topic_name('sessions')}"


@pytest.fixture
def own_looking(chroot: str) -> Iterator[Looking]:
    one = Looking(chroot)
    yield one
    one.close()


class Topics:
    """Makes and deletes topics, and says whether ZooKeeper has the same ones as the broker."""

    def __init__(self, broker: odradek.Broker) -> None:
        self._admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})

    def make(self, name: str, partitions: int = 2) -> None:
        (future,) = self._admin.create_topics([NewTopic(name, partitions)]).values()
        future.result(SECONDS)

    def delete(self, name: str) -> None:
        (future,) = self._admin.delete_topics([name]).values()
        future.result(SECONDS)

    def are_in(self, looking: Looking) -> bool:
        found = {
            name: {
                int(index)
                for index in looking.children(f"/brokers/topics/{name}/partitions")
                if looking.read(f"/brokers/topics/{name}/partitions/{index}/state") is not None
            }
            for name in looking.children("/brokers/topics")
        }
        topics = self._admin.list_topics(timeout=SECONDS).topics
        return found == {name: set(topic.partitions) for name, topic in topics.items()}


def test_a_broker_without_zookeeper_serves_on_and_heals(
    own_server: ZooKeeper, tmp_path: pathlib.Path
) -> None:
    with Logged(tmp_path, own_server.address) as broker:
        looking = Looking(own_server.address)
        admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
        for name in ("stays", "goes"):
            (future,) = admin.create_topics([NewTopic(name, 2)]).values()
            future.result(SECONDS)
        wait_until(lambda: looking.children("/brokers/topics") == ["goes", "stays"], "both are there")
        looking.close()

        own_server.stop()
        wait_until(lambda: "does not answer" in broker.log, "the broker says so")
        (future,) = admin.delete_topics(["goes"]).values()
        future.result(SECONDS)
        (future,) = admin.create_topics([NewTopic("comes", 3)]).values()
        future.result(SECONDS)
        producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
        producer.produce("comes", b"x")
        assert producer.flush(SECONDS) == 0, "clients are served"

        own_server.start()
        looking = Looking(own_server.address)
        wait_until(lambda: looking.children("/brokers/topics") == ["comes", "stays"], "it is as it is now")
        wait_until(
            lambda: len(looking.children("/brokers/topics/comes/partitions")) == 3, "with its partitions"
        )
        wait_until(lambda: looking.children("/brokers/ids") == ["1"], "and the broker is there")
        wait_until(lambda: "answers again" in broker.log, "which says so")
        looking.close()
        text = broker.log
        assert (text.count("does not answer"), text.count("answers again")) == (1, 1), text
        assert "ERROR" not in text, text


class Changes:
    """Everything that may change while nobody can tell ZooKeeper, and whether it is there afterwards."""

    def __init__(self, broker: Logged) -> None:
        self._server = {"bootstrap.servers": broker.bootstrap_servers}
        self._admin = AdminClient(self._server)

    def prepare(self) -> None:
        topics = [NewTopic(name, 2) for name in ("stays", "goes", "grows", "alters", "anew")]
        for future in self._admin.create_topics(topics).values():
            future.result(SECONDS)

    def happen(self) -> None:
        admin = self._admin
        for future in admin.delete_topics(["goes", "anew"]).values():
            future.result(SECONDS)
        for future in admin.create_topics([NewTopic("comes", 3), NewTopic("anew", 1)]).values():
            future.result(SECONDS)
        for future in admin.create_partitions([NewPartitions("grows", 5)]).values():
            future.result(SECONDS)
        entry = ConfigEntry("retention.ms", "12345", incremental_operation=AlterConfigOpType.SET)
        changed = ConfigResource(ResourceType.TOPIC, "alters", incremental_configs=[entry])
        for future in admin.incremental_alter_configs([changed]).values():
            future.result(SECONDS)

    def are_in(self, looking: Looking) -> bool:
        folder = "/brokers/topics"
        wanted = {"stays": 2, "grows": 5, "alters": 2, "anew": 1, "comes": 3}
        found = {
            name: sum(
                looking.read(f"{folder}/{name}/partitions/{index}/state") is not None
                for index in looking.children(f"{folder}/{name}/partitions")
            )
            for name in looking.children(folder)
            # A consumer has the topic of groups made.
            if name != OF_GROUPS
        }
        settings = looking.json("/config/topics/alters") or {}
        return (
            found == wanted
            and {*looking.children("/config/topics")} - {OF_GROUPS} == wanted.keys()
            and settings.get("config") == {"retention.ms": "12345"}
            and looking.children("/brokers/ids") == ["1"]
        )

    def write_and_read(self, value: bytes) -> None:
        """Clients of today are served."""
        producer = Producer(self._server)
        producer.produce("stays", value, partition=0)
        assert producer.flush(SECONDS) == 0
        consumer = Consumer({**self._server, "group.id": "g"})
        consumer.assign([TopicPartition("stays", 0, 0)])
        values = []
        while value not in values:
            record = consumer.poll(SECONDS)
            assert record is not None
            values.append(record.value())
        consumer.close()


@pytest.fixture
def cut_off(
    server: ZooKeeper, chroot: str, own_looking: Looking, tmp_path: pathlib.Path
) -> Iterator[tuple[Logged, Changes, Proxy]]:
    """A broker in a directory below the chroot, whose session has ended."""
    path = chroot.partition("/")[2]
    options = {"zookeeper.session.timeout.ms": "1000"}
    with (
        Proxy(server.port) as proxy,
        Logged(tmp_path, f"127.0.0.1:{proxy.port}/{path}", options) as broker,
    ):
        changes = Changes(broker)
        changes.prepare()
        wait_until(lambda: len(own_looking.children("/config/topics")) == 5, "all are there")
        proxy.target_port = free_port()
        proxy.drop_connections()
        wait_until(lambda: own_looking.children("/brokers/ids") == [], "its session has ended")
        yield broker, changes, proxy


def test_a_broker_that_is_cut_off_for_longer_than_its_session_serves_on_and_heals(
    cut_off: tuple[Logged, Changes, Proxy], server: ZooKeeper, own_looking: Looking
) -> None:
    broker, changes, proxy = cut_off
    epoch = int(own_looking.read("/controller_epoch") or b"0")
    assert own_looking.read("/controller") is None
    changes.happen()
    # A tool asks meanwhile.
    own_looking.client.create("/admin/delete_topics/goes", b"")
    # Each pause is twice as long as the one before, at the most five seconds.
    wait_until(lambda: proxy.refused >= 8, "it has tried for ten times as long")
    changes.write_and_read(b"meanwhile")
    assert broker.log.count("does not answer") == 1
    proxy.target_port = server.port
    wait_until(lambda: changes.are_in(own_looking), "all that has changed is there")
    wait_until(lambda: own_looking.children("/admin/delete_topics") == [], "what was asked is done")
    assert int(own_looking.read("/controller_epoch") or b"0") > epoch
    wait_until(lambda: "answers again" in broker.log, "the broker says so")
    changes.write_and_read(b"after")
    text = broker.log
    assert (text.count("does not answer"), text.count("answers again")) == (1, 1), text
    assert "ERROR" not in text, text


def test_a_directory_that_has_lost_everything_gets_it_anew(
    cut_off: tuple[Logged, Changes, Proxy], server: ZooKeeper, chroot: str, own_looking: Looking
) -> None:
    broker, changes, proxy = cut_off
    cluster_id = own_looking.json("/cluster/id")["id"]
    whole = Looking(server.address)
    whole.client.delete(f"/{chroot.partition('/')[2]}", recursive=True)
    whole.close()
    changes.happen()
    proxy.target_port = server.port
    wait_until(lambda: changes.are_in(own_looking), "all is there")
    assert own_looking.json("/cluster/id")["id"] == cluster_id
    assert "ERROR" not in broker.log


def test_nothing_is_written_where_another_cluster_is_meanwhile(
    cut_off: tuple[Logged, Changes, Proxy], server: ZooKeeper, own_looking: Looking
) -> None:
    broker, changes, proxy = cut_off
    cluster_id = own_looking.read("/cluster/id")
    assert cluster_id is not None
    own_looking.client.set("/cluster/id", b'{"version":"1","id":"Other"}')
    changes.happen()
    proxy.target_port = server.port
    wait_until(lambda: "is of cluster Other" in broker.log, "the broker says so")
    assert own_looking.children("/brokers/ids") == []
    assert "comes" not in own_looking.children("/brokers/topics")
    changes.write_and_read(b"meanwhile")
    own_looking.client.set("/cluster/id", cluster_id)
    wait_until(lambda: changes.are_in(own_looking), "all is there once the other one has gone")
    assert broker.log.count("is of cluster Other") == 1


@pytest.mark.parametrize("depth", [1, 3])
def test_the_directory_of_the_address_is_made(server: ZooKeeper, depth: int) -> None:
    address = "/".join([server.address, topic_name("depth"), *["deeper"] * (depth - 1)])
    with in_zookeeper(address):
        looking = Looking(address)
        assert looking.children("/brokers/ids") == ["1"]
        looking.close()


def test_a_session_that_has_ended_is_followed_by_another(chroot: str, own_looking: Looking) -> None:
    with in_zookeeper(chroot) as broker:
        topics = Topics(broker)
        topics.make("before")
        wait_until(lambda: topics.are_in(own_looking), "ZooKeeper has the topic")
        epoch = int(own_looking.read("/controller_epoch") or b"0")
        assert broker.pid is not None
        os.kill(broker.pid, signal.SIGSTOP)
        wait_until(lambda: own_looking.children("/brokers/ids") == [], "its session ends while it sleeps")
        os.kill(broker.pid, signal.SIGCONT)
        wait_until(lambda: own_looking.children("/brokers/ids") == ["1"], "it is there again")
        wait_until(lambda: int(own_looking.read("/controller_epoch") or b"0") > epoch, "and controller again")
        topics.make("after")
        wait_until(lambda: topics.are_in(own_looking), "ZooKeeper has all topics")


def test_what_somebody_removes_comes_back(chroot: str, own_looking: Looking) -> None:
    with in_zookeeper(chroot) as broker:
        topics = Topics(broker)
        topics.make("kept")
        wait_until(lambda: topics.are_in(own_looking), "ZooKeeper has the topic")
        own_looking.client.delete("/brokers/ids/1")
        wait_until(lambda: own_looking.children("/brokers/ids") == ["1"], "the broker")
        own_looking.client.delete("/controller")
        wait_until(lambda: own_looking.read("/controller") is not None, "the controller")
        own_looking.client.delete("/brokers/topics/kept", recursive=True)
        wait_until(lambda: topics.are_in(own_looking), "the topic")
        topics.make("more")
        wait_until(lambda: topics.are_in(own_looking), "all goes on")


def test_answers_that_are_lost_change_nothing(server: ZooKeeper, chroot: str, own_looking: Looking) -> None:
    """The connection is cut at random moments, in most of them with requests under way."""
    dice = random.Random(7)
    path = chroot.partition("/")[2]
    with Proxy(server.port) as proxy, in_zookeeper(f"127.0.0.1:{proxy.port}/{path}") as broker:
        topics = Topics(broker)
        present: list[str] = []
        for number in range(30):
            loses_answers = dice.random() < 0.7
            if loses_answers:
                proxy.answers.cut()
            if present and dice.random() < 0.4:
                topics.delete(present.pop(dice.randrange(len(present))))
            else:
                present.append(f"topic-{number}")
                topics.make(present[-1], dice.randrange(1, 20))
            if loses_answers:
                proxy.drop_connections()
                proxy.answers.mend()
        wait_until(lambda: topics.are_in(own_looking), "ZooKeeper has what the broker has")
        assert sorted(own_looking.children("/config/topics")) == sorted(present)


def test_the_id_of_another_broker_refuses_the_start(chroot: str, own_looking: Looking) -> None:
    with in_zookeeper(chroot) as broker:
        before = own_looking.read("/brokers/ids/1")
        with pytest.raises(odradek.BrokerStartError, match=r"broker\.id: 1 is taken"):
            in_zookeeper(chroot).start()
        assert own_looking.read("/brokers/ids/1") == before, "the first one does not notice"
        assert broker.is_running


def test_a_node_alone_does_not_share_with_another(chroot: str, own_looking: Looking) -> None:
    with in_zookeeper(chroot):
        with pytest.raises(odradek.BrokerStartError, match=r"broker 1 is in the ZooKeeper .* already"):
            in_zookeeper(chroot, options={"node.id": "2"}).start()
        assert own_looking.children("/brokers/ids") == ["1"]


def test_clients_of_kafka_07_have_directories_of_their_own(chroot: str, own_looking: Looking) -> None:
    options = {
        "listeners": "PLAINTEXT://127.0.0.1:0,OLD://127.0.0.1:0",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,OLD:KAFKA_07",
    }

    def oldest() -> dict[str, str]:
        folder = "/kafka07/brokers/topics"
        return {
            name: (own_looking.read(f"{folder}/{name}/1") or b"").decode()
            for name in own_looking.children(folder)
        }

    with in_zookeeper(chroot, options=options) as broker:
        endpoints = own_looking.json("/brokers/ids/1")["endpoints"]
        assert endpoints == [f"PLAINTEXT://127.0.0.1:{broker.port}"]
        topics = Topics(broker)
        topics.make("one", 1)
        topics.make("three", 3)
        wait_until(lambda: oldest() == {"one": "1", "three": "3"}, "both are there")
        content = (own_looking.read("/kafka07/brokers/ids/1") or b"").decode()
        creator, host, port = content.split(":")
        assert creator.startswith("127.0.0.1-")
        with RawClient(int(port), host) as client:
            client.send(encode_request(Offsets("three", 2, LATEST, 1)))
            assert client.receive_frame() == response_of_offsets([0])[4:], "the port speaks 0.7"
        topics.delete("one")
        wait_until(lambda: oldest() == {"three": "3"}, "the other one has gone")
        broker.kill()
        broker.start()
        wait_until(
            lambda: (own_looking.read("/kafka07/brokers/ids/1") or b"").decode() != content, "a new one"
        )
        wait_until(lambda: oldest() == {"three": "3"}, "its topic is there")
    wait_until(lambda: own_looking.children("/kafka07/brokers/ids") == [], "a stop takes it away")
    assert own_looking.children("/kafka07/consumers") == []


def test_a_killed_broker_comes_back_under_its_id(chroot: str, own_looking: Looking) -> None:
    with in_zookeeper(chroot) as broker:
        Topics(broker).make("kept")
        broker.kill()
        assert own_looking.children("/brokers/ids") == ["1"], "its session lives on"
        broker.start()
        topics = Topics(broker)
        wait_until(lambda: topics.are_in(own_looking), "ZooKeeper has its topics")
        owner = own_looking.client.exists("/brokers/ids/1").ephemeralOwner
        assert owner == own_looking.client.exists("/controller").ephemeralOwner, "both are of its new session"


def test_the_cluster_has_the_id_that_zookeeper_has(
    chroot: str, own_looking: Looking, tmp_path: pathlib.Path
) -> None:
    own_looking.client.create(
        "/cluster/id", b'{"version":"1","id":"Some-Cluster_of-9999AAAA"}', makepath=True
    )
    with in_zookeeper(chroot, data_dir=tmp_path) as broker:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
        assert admin.describe_cluster().result(SECONDS).cluster_id == "Some-Cluster_of-9999AAAA"
    other = {"version": "1", "id": "Other"}
    own_looking.client.set("/cluster/id", json.dumps(other).encode())
    with pytest.raises(odradek.BrokerStartError, match=r"of cluster Other, and .* of cluster Some-Cluster"):
        in_zookeeper(chroot, data_dir=tmp_path).start()
    for nonsense in (b"nonsense", b"[1]", b'{"version":"1"}'):
        own_looking.client.set("/cluster/id", nonsense)
        with pytest.raises(odradek.BrokerStartError, match="/cluster/id"):
            in_zookeeper(chroot, data_dir=tmp_path).start()


def test_the_id_of_the_cluster_is_written_by_the_first_broker(chroot: str, own_looking: Looking) -> None:
    with in_zookeeper(chroot) as broker:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
        assert own_looking.json("/cluster/id")["id"] == admin.describe_cluster().result(SECONDS).cluster_id


def test_a_start_without_zookeeper_is_refused() -> None:
    options = {"zookeeper.connection.timeout.ms": "500"}
    with pytest.raises(
        odradek.BrokerStartError, match=r"no ZooKeeper answers at 127\.0\.0\.1:1 within 0\.5 s"
    ):
        in_zookeeper("127.0.0.1:1", options=options).start()


@pytest.mark.parametrize("address", ["127.0.0.1:port", "127.0.0.1:2181/a//b", "127.0.0.1:99999"])
def test_an_address_that_makes_no_sense_is_refused(address: str) -> None:
    with pytest.raises(odradek.BrokerStartError, match=r"zookeeper\.connect: "):
        in_zookeeper(address, options={"zookeeper.connection.timeout.ms": "500"}).start()


def test_a_start_without_kazoo_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "kazoo.client", None)
    with pytest.raises(odradek.BrokerStartError, match=r"pip install 'odradek\[zookeeper\]'"):
        odradek.Broker(options={"zookeeper.connect": "127.0.0.1:1"}).start()


def test_nothing_of_zookeeper_is_imported_without_the_option() -> None:
    program = (
        "import sys, odradek\nwith odradek.Broker(): pass\n"
        "print([name for name in sys.modules if 'zookeeper' in name or 'kazoo' in name])"
    )
    finished = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert finished.stdout == "[]\n"


def test_nothing_of_tls_is_imported_without_it(chroot: str) -> None:
    program = (
        "import sys, odradek\n"
        f"with odradek.Broker(options={{'zookeeper.connect': {chroot!r}}}): pass\n"
        "print([name for name in sys.modules if name.startswith('odradek.security')])"
    )
    finished = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert finished.stdout == "[]\n"
