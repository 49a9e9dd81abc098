"""`odradek transactions` and `odradek producers` at a broker of ours."""

import itertools
import time

import pytest

import odradek
from odradek.client.cluster import LATEST, Cluster
from odradek.client.settings import ClientSettings
from tests.client.topics import Transactions, create_topic, produce, write_hanging

_numbers = itertools.count()


@pytest.fixture(scope="module")
def broker():
    """Takes records of transactions that no coordinator knows, as brokers before Kafka 3.6 do."""
    options = {"transaction.partition.verification.enable": "false"}
    with odradek.Broker(num_partitions=2, options=options) as running:
        yield running


@pytest.fixture(scope="module")
def cluster(broker):
    with Cluster(ClientSettings(broker.bootstrap_servers, retry_ms=1)) as connected:
        yield connected


@pytest.fixture
def rows(odradek_command):
    def found(*arguments, status=0):
        ended = odradek_command(*arguments, "--output", "json")
        assert ended.status == status, ended.err
        return ended.rows

    return found


def new_id():
    return f"id-{next(_numbers)}"


def stable_end(cluster, topic):
    return cluster.list_offsets({(topic, 0): LATEST}, read_committed=True)[topic, 0]


def test_a_transaction_is_listed_and_described_while_it_is_open(rows, cluster):
    topic, transactional_id = create_topic(cluster, partitions=2), new_id()
    began = int(time.time() * 1000)
    transactions = Transactions(cluster, transactional_id)
    transactions.write(topic, 1, [b"v"])
    (listed,) = rows("transactions", "list", transactional_id)
    assert rows("transactions", "list", "--producer", str(transactions.producer_id)) != []
    (described,) = rows("transactions", "describe", transactional_id)
    assert {**described, "coordinator": 1, "open_seconds": 0} == {**listed, "open_seconds": 0}
    assert began <= listed["start_time_ms"] <= time.time() * 1000
    assert 0 <= listed["open_seconds"] < 60
    del listed["start_time_ms"], listed["open_seconds"]
    assert listed == {
        "transactional_id": transactional_id,
        "state": "Ongoing",
        "producer_id": transactions.producer_id,
        "producer_epoch": transactions.epoch,
        "timeout_ms": 60_000,
        "partitions": [f"{topic}:1"],
        "coordinator": 1,
    }
    assert rows("transactions", "list", transactional_id, "--older", "3600") == []
    assert len(rows("transactions", "list", transactional_id, "--older", "0.001")) == 1
    assert rows("transactions", "list", "--producer", "123456789") == []
    transactions.end(True)
    (described,) = rows("transactions", "describe", transactional_id)
    assert (described["start_time_ms"], described["open_seconds"], described["partitions"]) == (
        None,
        None,
        [],
    )
    assert rows("transactions", "list", transactional_id, "--older", "0.001") == []


def test_what_is_not_there_is_told_and_the_rest_is_described(odradek_command, cluster):
    transactional_id = new_id()
    Transactions(cluster, transactional_id)
    ended = odradek_command("transactions", "describe", "nobody", transactional_id, "--output", "json")
    assert (ended.status, [row["transactional_id"] for row in ended.rows]) == (1, [transactional_id])
    assert ended.err.startswith(
        "odradek: describing transaction nobody was refused: TRANSACTIONAL_ID_NOT_FOUND"
    )


def test_producers_are_shown_with_what_they_do(rows, cluster):
    topic, transactional_id = create_topic(cluster, partitions=2), new_id()
    produce(cluster, topic, 0, [b"v"] * 3)
    assert rows("producers", topic) == [], "a producer without an id"
    produce(cluster, topic, 0, [b"v"] * 3, producer_id=910_000, producer_epoch=2, base_sequence=0)
    transactions = Transactions(cluster, transactional_id)
    transactions.write(topic, 0, [b"v"] * 2)
    transactions.write(topic, 1, [b"v"])
    idempotent = {
        "topic": topic,
        "partition": 0,
        "producer_id": 910_000,
        "producer_epoch": 2,
        "last_sequence": 2,
        "last_timestamp_ms": 1002,
        "coordinator_epoch": None,
        "transaction_start_offset": None,
        "transactional_id": None,
    }
    first = {
        **idempotent,
        "producer_id": transactions.producer_id,
        "producer_epoch": transactions.epoch,
        "last_sequence": 1,
        "last_timestamp_ms": 2001,
        "transaction_start_offset": 6,
        "transactional_id": transactional_id,
    }
    second = {
        **first,
        "partition": 1,
        "last_sequence": 0,
        "last_timestamp_ms": 2000,
        "transaction_start_offset": 0,
    }
    assert rows("producers", topic) == [first, idempotent, second]
    assert rows("producers", f"{topic}:1") == [second]
    assert rows("producers", topic, "--open") == [first, second]
    transactions.end(True)
    assert rows("producers", topic, "--open") == []
    (row,) = rows("producers", f"{topic}:1")
    assert (row["coordinator_epoch"], row["transactional_id"]) == (0, transactional_id)


def test_a_hanging_transaction_is_found_and_aborted(rows, odradek_command, cluster):
    topic = create_topic(cluster)
    hour_ago = int(time.time() * 1000) - 3_600_000
    write_hanging(cluster, topic, 920_000, timestamp=hour_ago)
    (row,) = (one for one in rows("transactions", "find-hanging") if one["topic"] == topic)
    assert (row["topic"], row["partition"], row["producer_id"]) == (topic, 0, 920_000)
    assert (row["transaction_start_offset"], row["transactional_id"]) == (0, None)
    assert 3600 <= row["idle_seconds"] < 3700
    (producer,) = rows("producers", topic)
    assert row.keys() == producer.keys() | {"idle_seconds"}
    assert rows("transactions", "find-hanging", topic, "--older", "7200") == []
    assert rows("transactions", "find-hanging", create_topic(cluster)) == []
    abort = ("transactions", "abort", f"{topic}:0", "--producer-id", "920000")
    assert stable_end(cluster, topic) == 0
    (planned,) = rows(*abort, "--dry-run")
    assert (planned["aborted"], stable_end(cluster, topic)) == (False, 0)
    assert planned.keys() == producer.keys() | {"aborted"}
    assert rows(*abort) == [{**planned, "aborted": True}]
    assert stable_end(cluster, topic) == 2
    assert rows("transactions", "find-hanging", topic) == []
    again = odradek_command(*abort)
    assert (again.status, again.err) == (
        1,
        f"odradek: producer 920000 has no open transaction in {topic}-0\n",
    )


def test_one_that_its_coordinator_knows_does_not_hang(rows, odradek_command, cluster):
    topic, transactional_id = create_topic(cluster), new_id()
    transactions = Transactions(cluster, transactional_id)
    transactions.write(topic, 0, [b"v"])  # of long ago
    assert rows("transactions", "find-hanging", topic) == []
    abort = ("transactions", "abort", f"{topic}:0", "--producer-id", str(transactions.producer_id))
    ended = odradek_command(*abort)
    assert ended.status == 1
    assert ended.err.startswith(
        f"odradek: the transaction of producer {transactions.producer_id} in {topic}-0 does not hang"
    )
    assert stable_end(cluster, topic) == 0
    assert rows(*abort, "--force")[0]["aborted"] is True
    assert stable_end(cluster, topic) == 2


def test_a_known_id_whose_transaction_left_out_the_partition_is_named(rows, cluster):
    topic, transactional_id = create_topic(cluster), new_id()
    transactions = Transactions(cluster, transactional_id)
    write_hanging(cluster, topic, transactions.producer_id, timestamp=1000)
    (row,) = rows("transactions", "find-hanging", topic)
    assert (row["producer_id"], row["transactional_id"]) == (transactions.producer_id, transactional_id)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["transactions", "list", "--older", "long"], "--older is 'long': it has to be a number of seconds"),
        (["transactions", "list", "--producer", "x"], "--producer is 'x': it has to be a whole number"),
        (["transactions", "abort", "t", "--producer-id", "1"], "'t' is not TOPIC:PARTITION"),
        (["transactions", "abort", "t:0", "--producer-id", "1"], "partition t:0 does not exist"),
        (["transactions", "find-hanging", "nowhere"], "topic nowhere does not exist"),
        (["producers", "nowhere*"], "no topic matches nowhere*"),
        (["producers", "nowhere:0"], "partition nowhere:0 does not exist"),
    ],
)
def test_a_fault_is_one_sentence_and_status_1(odradek_command, arguments, sentence):
    ended = odradek_command(*arguments)
    assert ended.status == 1
    assert ended.err.startswith(f"odradek: {sentence}"), ended.err
    assert len(ended.err.splitlines()) == 1


def test_a_wrong_usage_is_status_2(run):
    for arguments in (["transactions"], ["transactions", "abort", "t:0"], ["producers"], ["groups"]):
        assert run(*arguments).status == 2
