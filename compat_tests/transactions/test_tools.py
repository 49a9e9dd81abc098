"""Kafka's own tools on transactions, of 4.3 and of 3.9: `kafka-transactions`, the dump of what we store."""

from __future__ import annotations

import json
import pathlib
import re
import subprocess
import time
from collections.abc import Iterable, Iterator

import pytest

from compat_tests import reference
from compat_tests.clients import wait_until
from compat_tests.kit import readers
from compat_tests.kit.topics import create_topics
from compat_tests.kit.transaction_brokers import Start, TransactionBroker, starting
from compat_tests.reference import kafka_tool
from compat_tests.stories import topic_name
from compat_tests.transactions.wire import WireProducer
from odradek.wire.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)

TOOL = "org.apache.kafka.tools.TransactionsCommand"
AN_HOUR_MS = 3_600_000


@pytest.fixture(scope="module")
def broker(is_odradek: bool) -> Iterator[TransactionBroker]:
    """Takes batches for partitions that nobody has added, as brokers did for years: a transaction that hangs
    can be made no other way.
    """
    with starting(is_odradek=is_odradek) as start:
        yield start({"transaction.partition.verification.enable": "false"})


@pytest.fixture(params=[reference.CURRENT, reference.OLDER])
def version(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def producer(broker: TransactionBroker) -> Iterator[WireProducer]:
    with readers.asking(broker.direct) as side:
        producer = WireProducer(side, topic_name("id"))
        producer.open()
        yield producer


class Tool:
    """`kafka-transactions` of one version."""

    def __init__(self, broker: TransactionBroker, version: str) -> None:
        self._broker, self._version = broker, version

    def _run(self, *arguments: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        command = (TOOL, "--bootstrap-server", self._broker.bootstrap, *arguments)
        return kafka_tool(*command, version=self._version, check=check)

    def table(self, *arguments: str) -> list[dict[str, str]]:
        """The rows that it prints, by the names in the head. No value has a space in it."""
        head, *rows = [line.split() for line in self._run(*arguments).stdout.splitlines() if line.strip()]
        return [dict(zip(head, row, strict=False)) for row in rows]

    def do(self, *arguments: str) -> None:
        """Something that prints nothing."""
        self._run(*arguments)

    def refusal(self, *arguments: str) -> str:
        """What it says to what it cannot do."""
        finished = self._run(*arguments, check=False)
        assert finished.returncode == 1, finished.stdout
        return finished.stderr


@pytest.fixture
def tool(broker: TransactionBroker, version: str) -> Tool:
    return Tool(broker, version)


def test_transactions_are_listed_and_described(
    broker: TransactionBroker, tool: Tool, producer: WireProducer, version: str
) -> None:
    name = producer.transactional_id
    where = create_topics(broker.bootstrap, {topic_name("described"): 2})
    # The coordinators' clock began at a whole millisecond: it may be one behind.
    before_ms = int(time.time() * 1000) - 1
    producer.add(*where)
    listed = {
        "TransactionalId": name,
        "Coordinator": "1",
        "ProducerId": str(producer.producer_id),
        "TransactionState": "Ongoing",
    }
    assert listed in tool.table("list")
    assert listed not in tool.table("list", "--duration-filter", str(AN_HOUR_MS))
    if version == reference.CURRENT:
        assert tool.table("list", "--transactional-id-pattern", f"{name[:-4]}.*") == [listed]
        assert tool.table("list", "--transactional-id-pattern", "nothing-of-this-name") == []
    (described,) = tool.table("describe", "--transactional-id", name)
    partitions = set(described.pop("TopicPartitions").split(","))
    assert partitions == {f"{topic}-{number}" for topic, number in where}
    started_ms = int(described.pop("CurrentTransactionStartTimeMs"))
    assert before_ms <= started_ms <= time.time() * 1000
    assert 0 <= int(described.pop("TransactionDurationMs")) < AN_HOUR_MS
    facts = {
        "CoordinatorId": "1",
        "TransactionalId": name,
        "ProducerId": str(producer.producer_id),
        "ProducerEpoch": str(producer.producer_epoch),
        "TransactionTimeoutMs": "600000",
    }
    assert described == {**facts, "TransactionState": "Ongoing"}
    producer.end(commit=True)
    assert readers.wait_until_stable(broker.bootstrap, where, 20)
    (ended,) = tool.table("describe", "--transactional-id", name)
    # Of one that has ended it still tells when it began.
    assert int(ended.pop("CurrentTransactionStartTimeMs")) == started_ms
    assert int(ended.pop("TransactionDurationMs")) >= 0
    assert ended == {**facts, "TransactionState": "CompleteCommit"}


def test_an_unknown_transactional_id_is_not_described(tool: Tool) -> None:
    said = tool.refusal("describe", "--transactional-id", "nobody-has-this")
    assert "Failed to describe transaction state of transactional-id `nobody-has-this`" in said


def test_producers_of_a_partition_are_described(
    broker: TransactionBroker, tool: Tool, producer: WireProducer
) -> None:
    (where,) = create_topics(broker.bootstrap, {topic_name("producers"): 1})
    describe = ("describe-producers", "--topic", where[0], "--partition", "0")
    assert tool.table(*describe) == []
    at_ms = int(time.time() * 1000) - 5000
    producer.add(where)
    producer.produce(where, b"one", b"two", b"three", timestamp_ms=at_ms)
    facts = {"ProducerId": str(producer.producer_id), "ProducerEpoch": str(producer.producer_epoch)}
    opened = {
        **facts,
        "LatestCoordinatorEpoch": "-1",
        "LastSequence": "2",
        "LastTimestamp": str(at_ms),
        "CurrentTransactionStartOffset": "0",
    }
    assert tool.table(*describe) == [opened]
    assert tool.table(*describe, "--broker-id", "1") == [opened]
    producer.end(commit=True)
    assert readers.wait_until_stable(broker.bootstrap, [where], 20)
    (ended,) = tool.table(*describe)
    assert int(ended.pop("LastTimestamp")) >= at_ms
    assert ended == {
        **facts,
        "LatestCoordinatorEpoch": "0",
        "LastSequence": "2",
        "CurrentTransactionStartOffset": "None",
    }


def test_a_hanging_transaction_is_found_and_aborted(
    broker: TransactionBroker, tool: Tool, producer: WireProducer
) -> None:
    name = topic_name("hangs")
    well, hanging = create_topics(broker.bootstrap, {name: 2})
    long_ago_ms = int(time.time() * 1000) - AN_HOUR_MS
    producer.add(well)
    producer.produce(well, b"the coordinator knows of it", timestamp_ms=long_ago_ms)
    producer.produce(hanging, b"of this it does not know", b"nor of this", timestamp_ms=long_ago_ms)
    find = ("find-hanging", "--topic", name)
    (found,) = tool.table(*find)
    assert int(found.pop("Duration(min)")) in (60, 61)
    assert found == {
        "Topic": name,
        "Partition": "1",
        "ProducerId": str(producer.producer_id),
        "ProducerEpoch": str(producer.producer_epoch),
        "CoordinatorEpoch": "-1",
        "StartOffset": "0",
        "LastTimestamp": str(long_ago_ms),
    }
    assert tool.table(*find, "--max-transaction-timeout", "70") == []
    assert name in {row["Topic"] for row in tool.table("find-hanging", "--broker-id", "1")}
    producer.end(commit=True)
    assert readers.wait_until_stable(broker.bootstrap, [well], 20)
    assert readers.ends(broker.bootstrap, [hanging])[hanging].last_stable_offset == 0

    where = ("--topic", name, "--partition", "1")
    assert "Could not find any open transactions starting at offset 1" in tool.refusal(
        "abort", *where, "--start-offset", "1"
    )
    tool.do("abort", *where, "--start-offset", "0")
    assert readers.wait_until_stable(broker.bootstrap, [hanging], 20)
    assert tool.table(*find) == []
    kept = readers.values_of(broker.bootstrap, [well, hanging])
    assert kept == {well: [b"the coordinator knows of it"], hanging: []}


def test_a_transaction_is_terminated_by_force(broker: TransactionBroker, producer: WireProducer) -> None:
    tool, name = Tool(broker, reference.CURRENT), producer.transactional_id
    (where,) = create_topics(broker.bootstrap, {topic_name("forced"): 1})
    producer.add(where)
    producer.produce(where, b"never")
    tool.do("forceTerminateTransaction", "--transactionalId", name)
    assert readers.wait_until_stable(broker.bootstrap, [where], 20)
    assert readers.values_of(broker.bootstrap, [where]) == {where: []}
    (described,) = tool.table("describe", "--transactional-id", name)
    assert described["TransactionState"] in ("CompleteAbort", "Empty")
    with pytest.raises(AssertionError, match=r"PRODUCER_FENCED|INVALID_PRODUCER_EPOCH"):
        producer.end(commit=True)


def test_what_a_marker_of_the_last_coordinator_epoch_has_fenced_is_aborted_by_the_tool(
    broker: TransactionBroker, producer: WireProducer
) -> None:
    tool = Tool(broker, reference.CURRENT)
    (where,) = create_topics(broker.bootstrap, {topic_name("fenced"): 1})
    producer.add(where)
    fencing = WritableTxnMarker(
        producer_id=producer.producer_id,
        producer_epoch=producer.producer_epoch,
        transaction_result=False,
        topics=[WritableTxnMarkerTopic(name=where[0], partition_indexes=[0])],
        coordinator_epoch=2**31 - 1,
    )
    answer = producer.side.ask(WriteTxnMarkersRequest(markers=[fencing]), 1)
    assert answer.markers[0].topics[0].partitions[0].error_code == 0
    producer.produce(where, b"its markers are refused")
    producer.end(commit=True)
    assert readers.ends(broker.bootstrap, [where])[where].last_stable_offset == 1
    tool.do("abort", "--topic", where[0], "--partition", "0", "--start-offset", "1")
    assert readers.wait_until_stable(broker.bootstrap, [where], 20)
    assert readers.values_of(broker.bootstrap, [where]) == {where: []}


# -- the dump of what is stored

STATES = ["Empty", "Ongoing", "PrepareCommit", "PrepareAbort", "CompleteCommit", "CompleteAbort"]
"""By their number in the log."""

OLDER_RECORD = re.compile(
    r"key: transaction_metadata::transactionalId=(?P<id>\S+) payload: "
    r"producerId:(?P<producer>-?\d+),producerEpoch:(?P<epoch>-?\d+),state=(?P<state>\w+),"
)
NEWER_RECORD = re.compile(r"key: (?P<key>\{.*\}) payload: (?P<value>\{.*\})$")


def dump(version: str, files: Iterable[pathlib.Path], *arguments: str) -> str:
    main_class = "org.apache.kafka.tools.DumpLogSegments"
    if version == reference.OLDER:
        main_class = "kafka.tools.DumpLogSegments"
    finished = kafka_tool(main_class, "--files", ",".join(map(str, files)), *arguments, version=version)
    text = finished.stdout + finished.stderr
    assert "Exception" not in text, text
    return text


def states_of(text: str, transactional_id: str) -> list[tuple[str, int]]:
    """State and epoch of each record of an id, in either version's words."""
    states = []
    for line in text.splitlines():
        if found := OLDER_RECORD.search(line):
            if found["id"] == transactional_id:
                states.append((found["state"], int(found["epoch"])))
        elif found := NEWER_RECORD.search(line):
            key, value = json.loads(found["key"]), json.loads(found["value"])
            if key["data"]["transactionalId"] == transactional_id:
                data = value["data"]
                status = data["transactionStatus"]  # a name since Kafka 4.4
                state = status if status in STATES else STATES[int(status)]
                states.append((state, int(data["producerEpoch"])))
    return states


def test_the_dump_of_transaction_state_tells_every_step(broker: TransactionBroker, version: str) -> None:
    (where,) = create_topics(broker.bootstrap, {topic_name("dumped"): 1})
    ids = {number: topic_name(f"version-{number}") for number in (1, 2)}
    with readers.asking(broker.direct) as side:
        for number, name in ids.items():
            producer = WireProducer(side, name, version=number)
            producer.open()
            for commit in (True, False):
                if number == 1:
                    producer.add(where)
                producer.produce(where, b"value")
                producer.end(commit=commit)
                assert readers.wait_until_stable(broker.bootstrap, [where], 20)

    def dumped() -> str:
        logs = sorted(broker.data_dir.glob("__transaction_state-*/*.log"))
        return dump(version, logs, "--transaction-log-decoder")

    def is_whole() -> bool:
        text = dumped()
        return all(
            states_of(text, name)[-1:] and states_of(text, name)[-1][0] == "CompleteAbort"
            for name in ids.values()
        )

    wait_until(is_whole, "the last states are in the log")
    text = dumped()
    ends = ("Commit", "Abort")
    one = [("Empty", 0)] + [step for end in ends for step in _steps(end, 0, 0)]
    assert states_of(text, ids[1]) == one
    two = [("Empty", 0)] + [step for epoch, end in enumerate(ends) for step in _steps(end, epoch, epoch + 1)]
    assert states_of(text, ids[2]) == two


def _steps(end: str, epoch: int, epoch_at_end: int) -> list[tuple[str, int]]:
    return [("Ongoing", epoch), (f"Prepare{end}", epoch_at_end), (f"Complete{end}", epoch_at_end)]


def test_the_dump_of_a_log_shows_its_markers_and_aborted_transactions(
    broker: TransactionBroker, version: str
) -> None:
    name = topic_name("marked")
    (where,) = create_topics(broker.bootstrap, {name: 1})
    with readers.asking(broker.direct) as side:
        producer = WireProducer(side, name)
        producer.open()
        for commit in (True, False, True):
            producer.add(where)
            producer.produce(where, b"one", b"two")
            producer.end(commit=commit)
            assert readers.wait_until_stable(broker.bootstrap, [where], 20)
    folder = broker.data_dir / f"{name}-0"
    text = dump(version, sorted(folder.glob("*.log")), "--print-data-log", "--deep-iteration")
    markers = re.findall(r"offset: (\d+) .*endTxnMarker: (\w+) coordinatorEpoch: (\d+)", text)
    assert markers == [("2", "COMMIT", "0"), ("5", "ABORT", "0"), ("8", "COMMIT", "0")]
    assert text.count("isTransactional: true") >= 3
    aborted = dump(version, sorted(folder.glob("*.txnindex")))
    fields = {"producerId": producer.producer_id, "firstOffset": 3, "lastOffset": 5, "lastStableOffset": 6}
    for field, value in fields.items():
        assert f"{field}: {value}" in aborted
    assert aborted.count("firstOffset") == 1


PRODUCER = re.compile(
    r"producerId: (?P<id>\d+) producerEpoch: (?P<epoch>\d+) coordinatorEpoch: (?P<coordinator>-?\d+) "
    r"currentTxnFirstOffset: (?P<open>\S+) lastTimestamp: \d+ "
    r"firstSequence: (?P<first>\d+) lastSequence: (?P<last>\d+) lastOffset: (?P<offset>\d+)"
)


def test_the_dump_of_a_snapshot_shows_its_producers_and_what_they_have_open(
    start_broker: Start, version: str
) -> None:
    """A stop leaves the snapshot; of each producer its last batch, of an open transaction where it began."""
    broker, name = start_broker(), topic_name("snapshot")
    (where,) = create_topics(broker.bootstrap, {name: 1})
    with readers.asking(broker.direct) as side:
        ended, goes_on, fresh = (WireProducer(side, topic_name("id")) for _ in range(3))
        for producer in (ended, goes_on, fresh):
            producer.open()
        for producer in (ended, goes_on):
            producer.add(where)
            producer.produce(where, b"one", b"two")
            producer.end(commit=True)
            assert readers.wait_until_stable(broker.bootstrap, [where], 20)
        for producer in (goes_on, fresh):
            producer.add(where)
            producer.produce(where, b"open")
    broker.stop()
    (snapshot,) = (broker.data_dir / f"{name}-0").glob("*.snapshot")
    found = PRODUCER.finditer(dump(version, [snapshot]))
    assert {int(one["id"]): one.groups()[1:] for one in found} == {
        ended.producer_id: ("0", "0", "OptionalLong.empty", "0", "1", "1"),
        goes_on.producer_id: ("0", "0", "OptionalLong[6]", "2", "2", "6"),
        # No coordinator has ended anything of it yet.
        fresh.producer_id: ("0", "-1", "OptionalLong[7]", "0", "0", "7"),
    }
