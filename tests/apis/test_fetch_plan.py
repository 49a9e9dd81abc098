"""A plan is read without a request: as a follower or a reader in the same process would."""

import pytest

from odradek.apis.fetch_plan import Diverging, FetchAttempt, FetchPlan, Missing, PlannedPartition
from odradek.apis.replicas import EpochNotSaved, FetchingReplica
from odradek.coordinator.replication.replica_state import FollowerRead
from odradek.storage.log.partition import READ_COMMITTED
from odradek.wire.errors import ErrorCode, KafkaError
from odradek.wire.records import iter_records
from tests.apis.transactional import write

PLENTY = 1 << 20


def attempt(node, *partitions, **limits):
    planned = [one if isinstance(one, PlannedPartition) else PlannedPartition(*one) for one in partitions]
    return FetchAttempt(node.leadership, FetchPlan(planned, PLENTY, **limits))


def values(outcome):
    return [record.value for record in iter_records(b"".join(outcome.records.buffers()))]


def test_partitions_are_read_in_the_order_of_the_plan_within_its_limits(node):
    node.create("t", 2)
    node.fill("t", [b"a" * 100], [b"b"])
    node.fill("t", [b"c"], index=1)
    both = [("t", 1, 0, PLENTY), ("t", 0, 1, PLENTY)]
    outcomes = attempt(node, *both).run(is_first=True)
    assert [(one.index, values(outcome)) for one, outcome in outcomes] == [(1, [b"c"]), (0, [b"b"])]
    (_, first), (_, second) = FetchAttempt(
        node.leadership, FetchPlan([PlannedPartition(*one) for one in both], max_bytes=1)
    ).run()
    assert (values(first), len(second.records)) == ([b"c"], 0)


def test_an_attempt_that_finds_too_little_is_repeated_until_there_is_enough(node):
    node.create("t")
    reading = attempt(node, ("t", 0, 0, PLENTY), max_wait_ms=500)
    assert reading.run(is_first=True) is None
    assert reading.watchable == [node.store.get("t", 0)]
    node.fill("t", [b"a"])
    ((_, outcome),) = reading.run()
    assert values(outcome) == [b"a"]


def test_the_last_attempt_gives_what_there_is(node):
    node.create("t")
    reading = attempt(node, ("t", 0, 0, PLENTY), max_wait_ms=500)
    assert reading.run(is_first=True) is None
    ((_, outcome),) = reading.run(is_last=True)
    assert (len(outcome.records), outcome.high_watermark) == (0, 0)


def test_a_partition_that_does_not_exist_is_looked_for_once_and_named_last(node):
    node.create("t")
    reading = attempt(node, ("none", 0, 0, PLENTY), ("t", 0, 0, PLENTY), max_wait_ms=500)
    assert reading.run(is_first=True) is None
    node.create("none")
    (_, found), (missing, outcome) = reading.run(is_last=True)
    assert len(found.records) == 0
    assert missing.topic == "none"
    assert isinstance(outcome, Missing)
    assert outcome.error.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_a_reader_whose_log_has_left_ours_learns_where(node):
    node.create("t")
    node.fill("t", [b"a"])
    behind = PlannedPartition("t", 0, 5, PLENTY, last_fetched_epoch=0)
    ((_, outcome),) = attempt(node, behind, max_wait_ms=500).run(is_first=True)
    assert isinstance(outcome, Diverging)
    assert (outcome.epoch, outcome.end_offset) == (0, 1)


@pytest.mark.parametrize(
    ("planned", "limits", "code"),
    [
        (PlannedPartition("t", 0, 9, PLENTY), {}, ErrorCode.OFFSET_OUT_OF_RANGE),
        (PlannedPartition("t", 0, 0, PLENTY, current_leader_epoch=7), {}, ErrorCode.UNKNOWN_LEADER_EPOCH),
        (PlannedPartition("", 0, 0, PLENTY, topic_id=b"?" * 16), {"by_topic_id": True}, None),
        (
            PlannedPartition("t", 0, 0, PLENTY),
            {"replica": FetchingReplica(2, -1)},
            ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ),
    ],
    ids=["offset", "epoch", "topic id", "follower"],
)
def test_a_refusal_is_an_outcome_and_ends_the_wait(node, planned, limits, code):
    node.create("t")
    ((_, outcome),) = attempt(node, planned, max_wait_ms=500, **limits).run(is_first=True)
    if code is None:
        assert outcome.error.code is ErrorCode.UNKNOWN_TOPIC_ID
    else:
        assert isinstance(outcome, KafkaError)
        assert outcome.code is code


def test_a_reader_of_committed_records_stops_before_an_open_transaction(node):
    node.create("t")
    node.fill("t", [b"a"])
    write(node, 77, b"open")
    reading = attempt(node, ("t", 0, 0, PLENTY), isolation=READ_COMMITTED)
    ((_, outcome),) = reading.run()
    assert values(outcome) == [b"a"]
    assert outcome.last_stable_offset == 1


class Throttled:
    """Replicas of which those that are out of sync may be held back."""

    def __init__(self, end_offset):
        self.end_offset = end_offset
        self.is_over = True
        self.noted = []
        self.counted = []

    def read(self, key, replica, leader_epoch, fetch_offset, last_fetched_epoch):
        return FollowerRead(self.end_offset)

    def fetched(self, key, replica, fetch_offset, log_start_offset, read):
        self.noted.append((key, replica.id, fetch_offset))

    def holds_back(self, key, replica):
        return self.is_over and key == ("t", 0)

    def sent(self, key, size_bytes):
        self.counted.append((key, size_bytes))


def test_a_replica_that_is_held_back_gets_an_empty_partition_and_waits(node):
    node.create("t")
    node.fill("t", [b"a"])
    node.leadership.replicas = replicas = Throttled(1)
    reading = attempt(node, ("t", 0, 0, PLENTY), max_wait_ms=500, replica=FetchingReplica(2, 7))
    assert reading.run(is_first=True) is None
    # What it has counts all the same.
    assert replicas.noted == [(("t", 0), 2, 0)]
    ((_, outcome),) = reading.run(is_last=True)
    assert (len(outcome.records), outcome.log.high_watermark) == (0, 1)
    assert replicas.counted == []
    replicas.is_over = False
    ((_, outcome),) = reading.run()
    assert values(outcome) == [b"a"]
    assert replicas.counted == [(("t", 0), len(outcome.records))]
    assert len(replicas.noted) == 1


def test_a_partition_that_is_not_throttled_is_sent_beside_one_that_is(node):
    for name in ("t", "u"):
        node.create(name)
        node.fill(name, [name.encode()])
    node.leadership.replicas = replicas = Throttled(1)
    both = [("t", 0, 0, PLENTY), ("u", 0, 0, PLENTY)]
    (_, first), (_, second) = attempt(node, *both, max_wait_ms=500, replica=FetchingReplica(2, 7)).run(
        is_first=True
    )
    assert (len(first.records), values(second)) == (0, [b"u"])
    assert replicas.counted == [(("u", 0), len(second.records))]


class Replicas:
    """Can tell nothing about partitions that are `untold`; notes what a replica has."""

    def __init__(self):
        self.untold = set()
        self.noted = []

    def read(self, key, replica, leader_epoch, fetch_offset, last_fetched_epoch):
        if key in self.untold:
            raise EpochNotSaved
        return FollowerRead(1)

    def fetched(self, key, replica, fetch_offset, log_start_offset, read):
        self.noted.append((key, fetch_offset))

    def holds_back(self, key, replica):
        return False

    def sent(self, key, size_bytes):
        pass


def replica_attempt(node, *partitions, max_wait_ms=500):
    node.leadership.replicas = Replicas()
    reading = attempt(node, *partitions, max_wait_ms=max_wait_ms, replica=FetchingReplica(2, 102))
    return node.leadership.replicas, reading


def test_a_replica_waits_until_the_leader_can_tell_it_about_all_partitions_and_what_it_has_is_noted_once(
    node,
):
    node.create("t", 2)
    node.fill("t", [b"a"])
    node.fill("t", [b"b"], index=1)
    replicas, reading = replica_attempt(node, ("t", 0, 0, PLENTY), ("t", 1, 1, PLENTY))
    replicas.untold.add(("t", 1))
    assert reading.run(is_first=True) is None
    assert reading.watchable == [node.store.get("t", 0), node.store.get("t", 1)]
    assert reading.run() is None
    assert replicas.noted == [(("t", 0), 0)]
    replicas.untold.clear()
    outcomes = reading.run()
    assert [len(outcome.records) > 0 for _, outcome in outcomes] == [True, False]
    reading.run()
    assert replicas.noted == [(("t", 0), 0), (("t", 1), 1)]


@pytest.mark.parametrize("max_wait_ms", [500, 0])
def test_a_replica_that_waits_in_vain_is_told_to_come_again(node, max_wait_ms):
    node.create("t")
    replicas, reading = replica_attempt(node, ("t", 0, 0, PLENTY), max_wait_ms=max_wait_ms)
    replicas.untold.add(("t", 0))
    if max_wait_ms:
        assert reading.run(is_first=True) is None
    ((_, outcome),) = reading.run(is_first=not max_wait_ms, is_last=True)
    assert (outcome.code, replicas.noted) == (ErrorCode.NOT_LEADER_OR_FOLLOWER, [])
