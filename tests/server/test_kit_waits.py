"""Waits of the test kit: each ends when the thing itself is there, and says what was there instead."""

import json
import socket
import threading
import time
import urllib.request

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from kafka import KafkaConsumer, KafkaProducer

import odradek
from odradek.server.test_kit.kit import TestKitError


@pytest.fixture(params=[False, True], ids=["thread", "process"])
def broker(request):
    with odradek.Broker(process=request.param) as broker:
        yield broker


@pytest.fixture
def threaded():
    with odradek.Broker() as broker:
        yield broker


def producer_of(broker, **settings):
    return Producer({"bootstrap.servers": broker.bootstrap_servers, "linger.ms": 0, **settings})


def produce(broker, topic, *values, partition=-1):
    producer = producer_of(broker)
    for value in values:
        producer.produce(topic, value, partition=partition)
    assert producer.flush(30) == 0


def consumer_of(broker, group, *topics):
    settings = {
        "bootstrap.servers": broker.bootstrap_servers,
        "group.id": group,
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
    }
    consumer = Consumer(settings)
    if topics:
        consumer.subscribe(list(topics))
    return consumer


class Beside:
    """Calls a function in another thread, and gives its result."""

    def __init__(self, function, *arguments, **keywords):
        self._result = None

        def run():
            self._result = function(*arguments, **keywords)

        self._thread = threading.Thread(target=run)
        self._thread.start()

    def result(self):
        self._thread.join(30)
        assert not self._thread.is_alive()
        return self._result


def test_records_are_waited_for_before_their_topic_exists(broker):
    waiting = Beside(broker.wait_for.records, "orders", 3)
    produce(broker, "orders", b"1", b"2")
    produce(broker, "orders", b"3")
    assert waiting.result() == 3
    assert broker.wait_for.records("orders", 2) == 3, "it is so already"


def test_records_that_do_not_come_are_told(broker):
    produce(broker, "orders", b"1")
    with pytest.raises(odradek.WaitTimeout) as failed:
        broker.wait_for.records("orders", 2, timeout=0.1)
    assert str(failed.value) == "waited 0.1 s for 2 records in 'orders': it has 1 (by partition 0: 1)"
    with pytest.raises(AssertionError) as failed:
        broker.wait_for.records("order", 1, timeout=0)
    assert str(failed.value) == (
        "waited 0 s for 1 record in 'order': there is no topic 'order'; there is orders"
    )
    with pytest.raises(TimeoutError):
        broker.wait_for.records("orders", 1, partition=7, timeout=0)


def test_records_of_one_partition_are_counted_alone():
    with odradek.Broker(num_partitions=3) as broker:
        produce(broker, "t", b"1", b"2", partition=2)
        produce(broker, "t", b"3", partition=0)
        assert broker.wait_for.records("t", 2, partition=2) == 2
        assert broker.wait_for.records("t", 3) == 3
        with pytest.raises(odradek.WaitTimeout, match="it has 1"):
            broker.wait_for.records("t", 2, partition=0, timeout=0)


def test_records_of_many_batches_are_counted_once(threaded):
    producer = producer_of(threaded, **{"compression.type": "none", "batch.size": 16_384})
    for _ in range(4):
        for _ in range(1000):
            producer.produce("t", b"x" * 1024)
        assert producer.flush(30) == 0
        threaded.wait_for.records("t", 1000)
    assert threaded.wait_for.records("t", 4000) == 4000


def test_ends_of_transactions_are_no_records(threaded):
    producer = producer_of(threaded, **{"transactional.id": "tx"})
    producer.init_transactions(30)
    for _ in range(2):
        producer.begin_transaction()
        producer.produce("t", b"x")
        producer.commit_transaction(30)
    assert threaded.wait_for.records("t", 2) == 2
    with pytest.raises(odradek.WaitTimeout, match="it has 2"):
        threaded.wait_for.records("t", 3, timeout=0.1)


def test_a_group_is_waited_for_before_it_exists(broker):
    produce(broker, "t", b"x")
    waiting = Beside(broker.wait_for.group, "shop", state="Stable", members=1)
    consumer = consumer_of(broker, "shop", "t")
    assert len(consumer.consume(1, 30)) == 1
    found = waiting.result()
    assert found["state"] == "Stable"
    assert len(found["members"]) == 1
    consumer.close()
    assert broker.wait_for.group("shop", state="Empty")["members"] == []


def test_a_group_that_does_not_come_is_told(threaded):
    produce(threaded, "t", b"x")
    consumer = consumer_of(threaded, "shop", "t")
    assert len(consumer.consume(1, 30)) == 1
    with pytest.raises(odradek.WaitTimeout) as failed:
        threaded.wait_for.group("shop", members=3, timeout=0)
    assert str(failed.value).startswith(
        "waited 0 s for 3 members in group 'shop' (Stable): it is Stable with 1 (rdkafka-"
    )
    with pytest.raises(odradek.WaitTimeout) as failed:
        threaded.wait_for.group("shops", timeout=0)
    assert str(failed.value) == (
        "waited 0 s for group 'shops' to be Stable: there is no such group; there is shop"
    )
    assert threaded.wait_for.group("shop", state=None, members=1)["state"] == "Stable"
    with pytest.raises(odradek.WaitTimeout, match="for group 'shops' to be there"):
        threaded.wait_for.group("shops", state=None, timeout=0)
    assert threaded.wait_for.group("shops", state="Dead") == {"state": "Dead", "members": []}
    consumer.close()


def test_groups_of_the_newer_protocol_are_waited_for_too(threaded):
    produce(threaded, "t", b"x")
    consumer = Consumer(
        {
            "bootstrap.servers": threaded.bootstrap_servers,
            "group.id": "new",
            "group.protocol": "consumer",
            "auto.offset.reset": "earliest",
        }
    )
    consumer.subscribe(["t"])
    assert len(consumer.consume(1, 30)) == 1
    assert len(threaded.wait_for.group("new", state="Stable", members=1)["members"]) == 1
    consumer.close()


def test_a_state_that_no_group_has_is_refused(threaded):
    with pytest.raises(TestKitError, match="a group is never 'Stabel'; did you mean Stable"):
        threaded.wait_for.group("g", state="Stabel")
    with pytest.raises(TestKitError, match="a transaction is never 'Committed'"):
        threaded.wait_for.transaction("t", state="Committed")


def test_no_lag_is_waited_for(broker):
    produce(broker, "t", b"1", b"2")
    consumer = consumer_of(broker, "shop", "t")
    assert len(consumer.consume(1, 30)) == 1
    consumer.commit(offsets=[TopicPartition("t", 0, 1)], asynchronous=False)
    assert broker.wait_for.lag("shop", at_most=1) == 1
    with pytest.raises(odradek.WaitTimeout) as failed:
        broker.wait_for.lag("shop", timeout=0)
    assert str(failed.value) == (
        "waited 0 s for a lag of at most 0 of group 'shop': it is behind by 1 (t-0: 1)"
    )
    waiting = Beside(broker.wait_for.lag, "shop", "t")
    consumer.commit(offsets=[TopicPartition("t", 0, 2)], asynchronous=False)
    assert waiting.result() == 0
    consumer.close()


def test_partitions_without_a_commit_are_behind_by_all(threaded):
    with odradek.Broker(num_partitions=2) as broker:
        produce(broker, "t", b"1", partition=0)
        produce(broker, "t", b"2", b"3", partition=1)
        consumer = consumer_of(broker, "shop")
        consumer.commit(offsets=[TopicPartition("t", 0, 1)], asynchronous=False)
        assert broker.wait_for.lag("shop", at_most=2) == 2
        with pytest.raises(odradek.WaitTimeout, match=r"behind by 2 \(t-1: 2\)"):
            broker.wait_for.lag("shop", timeout=0)
        consumer.close()


def test_a_group_that_there_is_not_has_no_lag_of_zero(threaded):
    with pytest.raises(odradek.WaitTimeout, match="there is no such group"):
        threaded.wait_for.lag("nobody", timeout=0)


def test_the_end_of_a_transaction_is_waited_for(broker):
    waiting = Beside(broker.wait_for.transaction, "tx", state="Ongoing")
    producer = producer_of(broker, **{"transactional.id": "tx"})
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce("t", b"x")
    assert producer.flush(30) == 0
    assert waiting.result() == "Ongoing"
    with pytest.raises(odradek.WaitTimeout) as failed:
        broker.wait_for.transaction("tx", timeout=0)
    assert str(failed.value) == "waited 0 s for the end of transaction 'tx': it is Ongoing"
    producer.commit_transaction(30)
    assert broker.wait_for.transaction("tx") == "CompleteCommit"
    with pytest.raises(odradek.WaitTimeout, match="there is no such transactional id"):
        broker.wait_for.transaction("other", timeout=0)


def test_a_request_is_waited_for(broker):
    broker.requests.record()
    waiting = Beside(broker.wait_for.request, api="Produce", topic="t", count=2)
    producer = KafkaProducer(bootstrap_servers=broker.bootstrap_servers, client_id="shop")
    for _ in range(2):
        producer.send("t", b"x").get(30)
    assert [one.client_id for one in waiting.result()] == ["shop", "shop"]
    mark = broker.requests.mark()
    with pytest.raises(odradek.WaitTimeout) as failed:
        broker.wait_for.request(api="Produce", client_id="shop", since=mark, timeout=0)
    assert str(failed.value).startswith(
        f"waited 0 s for 1 request with api 'Produce', client_id 'shop', since {mark}: there were none"
    )
    producer.close()


def test_what_other_requests_came_is_told(threaded):
    threaded.requests.record()
    consumer = KafkaConsumer("t", bootstrap_servers=threaded.bootstrap_servers, group_id=None)
    consumer.poll(0)
    with pytest.raises(odradek.WaitTimeout, match=r"of all that came: \d+ ApiVersions"):
        threaded.wait_for.request(api="Produce", timeout=0)
    consumer.close()


def test_a_wait_ends_when_the_broker_stops():
    broker = odradek.Broker().start()
    failures = []

    def wait():
        try:
            broker.wait_for.records("t", 1, timeout=60)
        except TestKitError as error:
            failures.append(str(error))

    waiting = Beside(wait)
    # It waits from the moment in which the broker has the operation.
    deadline = time.monotonic() + 30
    while not broker.call_kit("wait_for.waiting", {}):
        assert time.monotonic() < deadline
    broker.close()
    waiting.result()
    assert failures == ["the broker has stopped, or was restored, before there was 1 record in 't'"]


def test_many_wait_at_once(threaded):
    waiting = [Beside(threaded.wait_for.records, "t", count) for count in range(1, 9)]
    produce(threaded, "t", *[b"x"] * 8)
    assert [one.result() >= count for count, one in enumerate(waiting, 1)] == [True] * 8


def test_a_wait_over_http_returns_what_was_found_or_what_was_there_instead():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with odradek.Broker(options={"odradek.test.api.listen": f"127.0.0.1:{port}"}) as broker:
        produce(broker, "t", b"x")

        def post(operation, **arguments):
            asked = urllib.request.Request(
                f"http://127.0.0.1:{port}/admin/{operation}",
                json.dumps(arguments).encode(),
                {"Content-Type": "application/json"},
            )
            with urllib.request.urlopen(asked, timeout=30) as response:
                return json.load(response)

        assert post("wait_for/records", topic="t", count=1) == {"reached": True, "found": 1}
        assert post("wait_for/records", topic="t", count=2, timeout=0) == {
            "reached": False,
            "instead": "waited 0 s for 2 records in 't': it has 1 (by partition 0: 1)",
        }
        assert post("state/topics") == [{"topic": "t", "partitions": 1, "offsets": 1}]
