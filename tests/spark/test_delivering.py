"""Rows delivered into a topic by tasks that end anywhere, and which of their offsets became which."""

import time

import pyarrow
import pytest

from compat_tests.kit import readers
from compat_tests.kit.proxy import Verdict
from odradek.client.client_error import ClientError
from odradek.client.cluster import Cluster
from odradek.client.producing import Fenced, Placement, Producer
from odradek.client.settings import ClientSettings
from odradek.spark import markers
from odradek.spark.jobs import offset_runs
from odradek.spark.jobs.delivering import Delivery, delivering, mapping, recovering, take_over
from odradek.spark.jobs.offset_runs import Run
from tests.spark.rows import all_values, new_name, new_topic, records

SOURCE = "source"
PARTITIONS = 2
STABLE_SECONDS = 30
NOW_US = time.time_ns() // 1000
"""Retention takes what is a week old, from half a minute after the start of a broker on."""


class Killed(BaseException):
    pass


class Into:
    """A topic, and deliveries into it that have one name."""

    def __init__(self, bootstrap, direct=None):
        self.direct = direct or bootstrap
        self.topic = new_topic(self.direct, "target", PARTITIONS)
        self.name = new_name("delivery")
        self.settings = {"kafka.bootstrap.servers": bootstrap, "kafka.retry.backoff.ms": "10"}
        with Cluster(ClientSettings(self.direct)) as cluster:
            markers.prepare(cluster)

    def deliveries(self, epoch, transaction_rows=4, **settings):
        told = {**self.settings, **settings}
        delivery = Delivery(
            self.name, told, self.topic, PARTITIONS, transaction_rows=transaction_rows, epoch=epoch
        )
        return {SOURCE: delivery}

    def map(self, epoch, batches, **options):
        """What one task tells: (partition, source offset) -> (target offset, was it there)."""
        return expanded(mapping(self.deliveries(epoch, **options))(iter(batches)))

    def truth(self):
        """(partition, source offset) -> target offset, as a consumer reads it; a double fails.

        A commit is answered when it is decided; a moment later it can be read.
        """
        places = [(self.topic, number) for number in range(PARTITIONS)]
        assert readers.wait_until_stable(self.direct, places, STABLE_SECONDS)
        found = {}
        for (_, partition), there in readers.read_all(self.direct, places).items():
            for offset, value in there:
                assert (partition, int(value)) not in found
                found[partition, int(value)] = offset
        return found


@pytest.fixture
def into(bootstrap):
    return Into(bootstrap)


def rows(offsets, partition=0, at_once=3):
    """As tasks get them, a few at a time; the value is the offset."""
    batches = []
    for start in range(0, len(offsets), at_once):
        part = offsets[start : start + at_once]
        columns = {
            "key": pyarrow.nulls(len(part), pyarrow.binary()),
            "value": [b"%d" % offset for offset in part],
            "headers": pyarrow.nulls(len(part)),
            "topic": [SOURCE] * len(part),
            "partition": pyarrow.array([partition] * len(part), pyarrow.int32()),
            "timestamp": pyarrow.array([NOW_US + n for n in part], pyarrow.timestamp("us", "UTC")),
            "offset": pyarrow.array(part, pyarrow.int64()),
        }
        batches.append(pyarrow.record_batch(columns))
    return batches


def expanded(told):
    """The runs as single offsets; those that no record of the source has are among them."""
    found = {}
    for batch in told:
        for row in batch.to_pylist():
            assert row["target_end"] - row["target_start"] == row["source_end"] - row["source_start"]
            for source in range(row["source_start"], row["source_end"]):
                assert (row["partition"], source) not in found
                target = row["target_start"] + source - row["source_start"]
                found[row["partition"], source] = target, row["was_there"]
    return found


def without_gaps(told, truth):
    """What runs say of the offsets that have a record."""
    return {key: told[key][0] for key in truth}


def test_each_record_is_in_one_run_across_transactions_and_gaps(into):
    # Single ones, and gaps of compaction and of transactions.
    offsets = [0, 1, 2, 5, 6, 7, 8, 9, 10, 20, 22, 24, 25, 26, 27, 28, 1000]
    told = into.map(0, [*rows(offsets), *rows(range(7), partition=1)])
    truth = into.truth()
    assert truth.keys() == {*((0, offset) for offset in offsets), *((1, offset) for offset in range(7))}
    assert without_gaps(told, truth) == truth
    assert not any(was_there for _, was_there in told.values())


def test_an_epoch_that_comes_again_tells_the_same_and_writes_nothing(into):
    first = into.map(3, rows(range(10)))
    again = into.map(3, rows(range(10)))
    assert again == {key: (target, True) for key, (target, _) in first.items()}
    # More in the same epoch, as when a task was killed in the middle; then the next one.
    more = into.map(3, rows(range(14)))
    assert [was_there for _, was_there in more.values()] == [True] * 10 + [False] * 4
    into.map(4, rows(range(14, 20)))
    assert all_values(into.direct, into.topic, PARTITIONS) == list(range(20))
    assert into.map(4, []) == {}


def test_runs_of_a_partition_whose_rows_are_lost_are_found_by_its_number(into):
    told = into.map(0, [*rows(range(9)), *rows(range(5), partition=1)])
    asked = pyarrow.record_batch({"topic": [SOURCE] * 2, "partition": pyarrow.array([0, 1], pyarrow.int32())})
    found = expanded(recovering(into.deliveries(0))(iter([asked])))
    assert found == {key: (target, True) for key, (target, _) in told.items()}
    assert expanded(recovering(into.deliveries(1))(iter([asked]))) == {}


def test_rows_whose_runs_nobody_has_any_more_are_not_passed_over(into):
    into.map(0, rows(range(5)))
    into.map(1, rows(range(5, 8)))
    refusal = f"topic source, partition 0 was mirrored into topic {into.topic} before, up to offset 8"
    for epoch, offsets in ((2, range(9)), (1, range(4, 8))):
        with pytest.raises(ClientError, match=refusal):
            into.map(epoch, rows(offsets))
    assert all_values(into.direct, into.topic, PARTITIONS) == list(range(8))
    # Who keeps no table does not ask for them.
    results = delivering(into.deliveries(None))(iter(rows(range(10))))
    assert [row for batch in results for row in batch.to_pylist()] == [
        {"partition": 0, "rows": 2, "skipped": 8, "next_offset": 10}
    ]


def test_a_task_that_fails_leaves_nothing_open(into):
    def failing():
        yield from rows(range(6))
        raise Killed

    with pytest.raises(Killed):
        into.map(0, failing())
    place = (into.topic, 0)
    assert readers.wait_until_stable(into.direct, [place], 0)
    told = into.map(0, rows(range(9)))
    assert without_gaps(told, into.truth()) == into.truth()
    assert len(told) == 9


def test_what_killed_tasks_have_left_open_is_ended_at_once(into):
    places = [(into.topic, number) for number in range(PARTITIONS)]
    with Cluster(ClientSettings(into.direct)) as cluster:
        for number in range(PARTITIONS):
            name = markers.transactional_id(into.deliveries(0)[SOURCE].query(number), 0)
            producer = Producer(cluster, transactional_id=name)
            producer.init_transactions()
            producer.begin()
            producer.send(*records(into.topic, [number], PARTITIONS))
            producer.flush()
        assert not readers.wait_until_stable(into.direct, places, 0)
        take_over(into.deliveries(0))
        assert readers.wait_until_stable(into.direct, places, 0)
        with pytest.raises(Fenced):
            producer.commit()


@pytest.mark.deep
@pytest.mark.parametrize("verdict", [Verdict.LOSE_REQUEST, Verdict.LOSE_ANSWER])
def test_a_task_that_ends_at_any_request_goes_on_exactly_there(proxied_broker, verdict):
    proxy, number, has_failed = proxied_broker.proxy, 0, True
    while has_failed:
        into = Into(proxied_broker.bootstrap, proxied_broker.direct)
        batches = rows([*range(6), *range(10, 16)], at_once=4)
        left = number

        def judge(*_):
            nonlocal left
            left -= 1
            if left < 0 and verdict is Verdict.LOSE_REQUEST:
                proxy.drop_connections()
            return verdict if left < 0 else Verdict.PASS

        proxy.answer_lost = lambda _: proxy.drop_connections()
        proxy.judge = judge
        has_failed = False
        try:
            into.map(0, batches, **{"kafka.default.api.timeout.ms": "100"})
        except ClientError:
            has_failed = True
        finally:
            proxy.judge = proxy.answer_lost = None
        told, truth = into.map(0, batches), into.truth()
        ends = readers.ends(into.direct, [(into.topic, 0)])
        there = sorted(source for _, source in truth)
        assert there == [*range(6), *range(10, 16)], (number, has_failed, told, ends)
        assert without_gaps(told, truth) == truth
        number += 1
    assert number > 20


def test_runs_are_as_long_as_the_distance_is_the_same():
    placements = [Placement("t", 0, 3, 100), Placement("t", 0, 5, 104)]
    sources = pyarrow.array([7, 8, 9, 11, 12, 20, 21, 23])
    # The gap in front of 11 is in both logs.
    assert offset_runs.runs_of(sources, placements) == [
        Run(7, 13, 100, 5),
        Run(20, 22, 106, 2),
        Run(23, 24, 108, 1),
    ]
    with pytest.raises(ClientError, match="does not return the offsets of records in topic t, partition 0"):
        offset_runs.runs_of(sources, [Placement("t", 0, 8)])


def test_runs_are_kept_in_texts_that_a_record_can_hold():
    runs = [Run(2**62 + 3 * n, 2**62 + 3 * n + 1, 2**62 + 2 * n, 1) for n in range(25_000)]
    texts = list(offset_runs.texts(runs))
    assert [len(offset_runs.from_text(text)) for text in texts] == [10_000, 10_000, 5_000]
    assert max(map(len, texts)) < 1_000_000
    assert [run for text in texts for run in offset_runs.from_text(text)] == runs
