"""The producer against a broker that loses connections, is killed, and hands its ids on to others."""

import threading

import pytest

from compat_tests.kit import readers
from compat_tests.kit.proxy import Verdict
from compat_tests.transactions.features import set_transaction_version, transaction_version
from odradek.client.client_error import ClientError
from odradek.client.cluster import Cluster, UnknownTopic
from odradek.client.producing import Fenced, Producer
from odradek.client.settings import ClientSettings
from tests.spark.rows import all_values, new_name, new_topic, records, values

PRODUCE, END_TXN, TXN_OFFSET_COMMIT, ADD_PARTITIONS, INIT = 0, 26, 28, 24, 22
PARTITIONS = 3


def cluster_of(bootstrap, **settings):
    settings = {"request_timeout_ms": 5_000, "retry_ms": 10, "patience_ms": 20_000, **settings}
    return Cluster(ClientSettings(bootstrap, **settings))


@pytest.fixture(scope="module")
def first_version_broker(start_broker):
    """A broker whose transactions follow the rules of before KIP-890."""
    started = start_broker()
    set_transaction_version(started.bootstrap, 1)
    return started


@pytest.fixture(params=[1, 2], ids=["transaction.version=1", "transaction.version=2"])
def both_versions(request, bootstrap):
    if request.param == 1:
        return request.getfixturevalue("first_version_broker").bootstrap
    assert transaction_version(bootstrap) == 2
    return bootstrap


def test_what_is_committed_is_seen_and_what_is_aborted_is_not(both_versions):
    topic = new_topic(both_versions, "ends", PARTITIONS)
    with cluster_of(both_versions) as cluster:
        producer = Producer(cluster, transactional_id=new_name("t"))
        producer.init_transactions()
        for start, end in [(0, "commit"), (100, "abort"), (200, "commit"), (300, "abort"), (400, "commit")]:
            producer.begin()
            for batch in records(topic, range(start, start + 30), PARTITIONS):
                producer.send(batch)
            producer.send_offsets(topic, {(topic, 0): (start, f"text {start}")})
            if start == 100:
                producer.flush()  # else nothing of it is sent
            getattr(producer, end)()
        producer.begin()
        producer.abort()  # of nothing
        producer.begin()
        producer.commit()
    kept = [*range(30), *range(200, 230), *range(400, 430)]
    seen = values(both_versions, topic, PARTITIONS)
    assert seen == [[number for number in kept if number % PARTITIONS == at] for at in range(PARTITIONS)]
    assert len(all_values(both_versions, topic, PARTITIONS, readers.READ_UNCOMMITTED)) == 120
    assert readers.committed_offset(both_versions, topic, (topic, 0)) == 400


def test_whoever_takes_the_id_over_aborts_and_fences(both_versions):
    topic, name = new_topic(both_versions, "fencing"), new_name("t")
    with cluster_of(both_versions) as cluster, cluster_of(both_versions) as other:
        zombie, successor = Producer(cluster, transactional_id=name), Producer(other, transactional_id=name)
        first_id = zombie.init_transactions()
        zombie.begin()
        zombie.send(*records(topic, range(5)))
        zombie.flush()
        assert successor.init_transactions() != first_id
        zombie.send(*records(topic, range(5, 10)))
        with pytest.raises(Fenced, match=f"Another attempt writes as {name} now"):
            zombie.commit()
        with pytest.raises(Fenced):
            zombie.send(*records(topic, range(3)))
        successor.begin()
        successor.send(*records(topic, range(10, 15)))
        successor.commit()
    assert values(both_versions, topic) == [list(range(10, 15))]


def test_a_commit_of_a_zombie_does_nothing(both_versions):
    topic, name = new_topic(both_versions, "zombie"), new_name("t")
    with cluster_of(both_versions) as cluster, cluster_of(both_versions) as other:
        zombie = Producer(cluster, transactional_id=name)
        zombie.init_transactions()
        zombie.begin()
        zombie.send(*records(topic, range(5)))
        zombie.flush()
        Producer(other, transactional_id=name).init_transactions()
        with pytest.raises(Fenced):
            zombie.commit()
    assert values(both_versions, topic) == [[]]


class Cutter:
    """Cuts all connections at some requests: every third before the broker has it, every fifth behind."""

    def __init__(self, proxy, *api_keys):
        self._proxy, self._api_keys = proxy, api_keys
        self._seen = 0
        self.cuts = 0

    def __enter__(self):
        self._proxy.answer_lost = lambda _: self._cut()
        self._proxy.judge = self._judge
        return self

    def __exit__(self, *_):
        self._proxy.judge = self._proxy.answer_lost = None

    def _judge(self, api_key, _):
        if api_key not in self._api_keys:
            return Verdict.PASS
        self._seen += 1
        if self._seen % 5 == 0:
            return Verdict.LOSE_ANSWER
        if self._seen % 3 == 0:
            self._cut()
            return Verdict.LOSE_REQUEST
        return Verdict.PASS

    def _cut(self):
        self.cuts += 1
        self._proxy.drop_connections()


def test_broken_connections_lose_and_double_nothing(proxied_broker):
    topic = new_topic(proxied_broker.bootstrap, "cuts", PARTITIONS)
    with Cutter(proxied_broker.proxy, PRODUCE) as cutter, cluster_of(proxied_broker.bootstrap) as cluster:
        producer = Producer(cluster)
        for start in range(0, 1500, 30):
            for batch in records(topic, range(start, start + 30), PARTITIONS):
                producer.send(batch)
                assert producer.requests_in_flight <= 5
        producer.flush()
    assert cutter.cuts >= 10
    assert values(proxied_broker.direct, topic, PARTITIONS) == [
        list(range(at, 1500, PARTITIONS)) for at in range(PARTITIONS)
    ]


@pytest.mark.parametrize("level", [1, 2])
def test_transactions_survive_broken_connections(proxied_broker, level):
    bootstrap = proxied_broker.bootstrap
    set_transaction_version(proxied_broker.direct, level)
    topic = new_topic(bootstrap, "cuts", PARTITIONS)
    requests = (PRODUCE, END_TXN, TXN_OFFSET_COMMIT, ADD_PARTITIONS)
    with Cutter(proxied_broker.proxy, *requests) as cutter, cluster_of(bootstrap) as cluster:
        producer = Producer(cluster, transactional_id=new_name("t"))
        producer.init_transactions()
        for start in range(0, 300, 30):
            producer.begin()
            for batch in records(topic, range(start, start + 30), PARTITIONS):
                producer.send(batch)
            producer.send_offsets(topic, {(topic, 0): (start, "")})
            producer.commit() if start % 60 else producer.abort()
    assert cutter.cuts >= 5
    seen = all_values(proxied_broker.direct, topic, PARTITIONS)
    assert seen == [number for number in range(300) if number % 60 >= 30]
    assert readers.committed_offset(proxied_broker.direct, topic, (topic, 0)) == 270


def test_a_killed_broker_is_waited_for(first_version_broker):
    broker = first_version_broker
    topic = new_topic(broker.bootstrap, "kill", PARTITIONS)
    with cluster_of(broker.bootstrap) as cluster:
        producer = Producer(cluster, transactional_id="t")
        producer.init_transactions()
        producer.begin()
        for start in range(0, 1200, 30):
            if start == 600:
                killer = threading.Thread(target=broker.crash_and_restart)
                killer.start()
            for batch in records(topic, range(start, start + 30), PARTITIONS):
                producer.send(batch)
        producer.commit()
        killer.join()
    assert values(broker.bootstrap, topic, PARTITIONS) == [
        list(range(at, 1200, PARTITIONS)) for at in range(PARTITIONS)
    ]


def test_where_each_batch_is_is_known_though_connections_break(proxied_broker):
    topic = new_topic(proxied_broker.bootstrap, "placed", PARTITIONS)
    told = []
    with Cutter(proxied_broker.proxy, PRODUCE) as cutter, cluster_of(proxied_broker.bootstrap) as cluster:
        producer = Producer(cluster, transactional_id=new_name("t"))
        producer.init_transactions()
        for start in range(0, 900, 30):
            if start % 90 == 0:
                producer.begin()
            for batch in records(topic, range(start, start + 30), PARTITIONS):
                placement = producer.send(batch)
                numbers = range(start + batch.partition, start + 30, PARTITIONS)
                assert (placement.partition, placement.record_count) == (batch.partition, len(numbers))
                told.append((placement, numbers))
            if start % 90 == 60:
                producer.commit()
    assert cutter.cuts >= 10
    there = readers.read_all(proxied_broker.direct, [(topic, number) for number in range(PARTITIONS)])
    assert [
        (placement.base_offset + place, b"%d" % number)
        for partition in range(PARTITIONS)
        for placement, numbers in told
        if placement.partition == partition
        for place, number in enumerate(numbers)
    ] == [record for partition in range(PARTITIONS) for record in there[topic, partition]]


def test_requests_are_under_way_together_once_the_partition_knows_the_producer(bootstrap):
    topic = new_topic(bootstrap, "pipeline")
    most = 0
    with cluster_of(bootstrap) as cluster:
        producer = Producer(cluster)
        producer.send(*records(topic, range(3)))
        for start in range(3, 300, 3):
            producer.send(*records(topic, range(start, start + 3)))
            most = max(most, producer.requests_in_flight)
        producer.flush()
    assert most == 5
    assert values(bootstrap, topic) == [list(range(300))]


def test_what_cannot_be_written_is_one_sentence_and_the_end(bootstrap):
    topic = new_topic(bootstrap, "refused")
    with cluster_of(bootstrap, unknown_topic_ms=100) as cluster:
        producer = Producer(cluster)
        producer.send(*records(topic, range(3)))
        (large,) = records(topic, [7])
        large.section = b"\0" * 2_000_000
        producer.send(large)
        with pytest.raises(ClientError, match=r"topic refused-.*, partition 0 .* max\.message\.bytes; raise"):
            producer.flush()
        with pytest.raises(ClientError, match=r"max\.message\.bytes"):
            producer.flush()
        with pytest.raises(UnknownTopic, match="the cluster has no topic nowhere"):
            Producer(cluster).send(*records("nowhere", range(3)))


def test_a_transaction_timeout_that_the_broker_forbids_is_named(bootstrap):
    with cluster_of(bootstrap) as cluster:
        producer = Producer(cluster, transactional_id="t", transaction_timeout_ms=2_000_000)
        with pytest.raises(ClientError, match=r"set kafka\.transaction\.timeout\.ms to no more than"):
            producer.init_transactions()
