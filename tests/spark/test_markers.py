"""Markers, and with them a task that writes its rows exactly once whatever becomes of its attempts."""

import json
from dataclasses import replace

import pyarrow
import pytest

from compat_tests.kit import readers
from compat_tests.kit.proxy import Verdict
from odradek.client.client_error import ClientError
from odradek.client.cluster import LATEST, Cluster, coordinator_of
from odradek.client.producing import Producer
from odradek.client.settings import ClientSettings
from odradek.spark import markers, writing
from odradek.spark.batching import RowsRefused
from odradek.spark.markers import Marker, MarkerError
from odradek.spark.write_options import WriteOptions
from odradek.spark.writing import Task
from odradek.wire.errors import ErrorCode
from odradek.wire.messages.delete_groups import DeleteGroupsRequest
from tests.spark.rows import all_values, new_name, new_topic, numbered, values

PARTITIONS = 2
PRODUCE, END_TXN = 0, 26


def options_for(bootstrap, topic, **options):
    settings = ClientSettings(bootstrap, retry_ms=10, patience_ms=20_000, request_timeout_ms=5_000)
    return WriteOptions(settings, topic=topic, **options)


@pytest.fixture
def options(bootstrap):
    return options_for(bootstrap, new_topic(bootstrap, "sink", PARTITIONS))


def written(options):
    return all_values(options.settings.bootstrap_servers, options.topic, PARTITIONS)


def task(query, epoch, number, run=None):
    """Of a run of its own, unless it is told which."""
    return Task(query, epoch, number, run or new_name("run"))


def test_a_task_writes_its_epoch_once(options):
    query = new_name("query")
    for number in (0, 1, 17):
        rows = numbered(range(number * 100, number * 100 + 10))
        outcomes = [writing.write(options, [rows], task(query, 4, number)) for _ in range(3)]
        assert [outcome.written.rows for outcome in outcomes] == [10, 10, 10]
        assert [outcome.found for outcome in outcomes] == [None, number, number]
    assert written(options) == [*range(10), *range(100, 110), *range(1700, 1710)]
    for number in (0, 1, 17):
        rows = numbered(range(number * 100 + 10, number * 100 + 20))
        assert writing.write(options, [rows], task(query, 5, number)).found is None
    assert written(options) == [*range(20), *range(100, 120), *range(1700, 1720)]


def log_ends(options):
    with Cluster(options.settings) as cluster:
        return cluster.list_offsets({(options.topic, number): LATEST for number in range(PARTITIONS)})


def test_what_comes_again_appends_nothing_that_anybody_reads(options):
    """Not even records of an aborted transaction, which readers with read_uncommitted get."""
    query = new_name("query")
    parts = [numbered(range(1000)), numbered(range(1000, 2000))]
    epoch(options, query, 0, *parts)
    before = log_ends(options)
    epoch(options, query, 0, *parts)
    epoch(options, query, 0, *reversed(parts))
    assert log_ends(options) == before
    with pytest.raises(MarkerError):
        epoch(options, query, 0, numbered(range(7)), parts[1])
    assert log_ends(options) == before


def test_what_is_new_in_an_epoch_that_was_written_in_part_is_written(options):
    query = new_name("query")
    parts = [numbered(range(1000)), numbered(range(1000, 2000))]
    writing.write(options, [parts[0]], task(query, 0, 0))  # and the other task never came to its end
    before = log_ends(options)
    epoch(options, query, 0, *reversed(parts))
    assert written(options) == list(range(2000))
    grown = sum(log_ends(options).values()) - sum(before.values())
    assert 1000 < grown <= 1000 + PARTITIONS, "its rows, and the markers of its transaction"


def test_the_attempts_of_one_run_know_each_other(options):
    query = new_name("query")
    first, second = task(query, 1, 0, "run"), task(query, 1, 1, "run")
    assert writing.write(options, [numbered(range(10))], first).found is None
    assert writing.write(options, [numbered(range(10))], first).found == 0
    # Two tasks of a run may have the same rows: these are twice in the table.
    assert writing.write(options, [numbered(range(10))], second).found is None
    with pytest.raises(
        MarkerError, match=r"task 0 of query .* comes with 3 rows for epoch 1, which has been"
    ):
        writing.write(options, [numbered(range(3))], first)
    assert written(options) == sorted([*range(10)] * 2)


def test_an_epoch_may_come_again_with_its_input_dealt_out_anew(options):
    query = new_name("query")
    parts = [numbered(range(10)), numbered(range(10, 20)), numbered(range(20, 30))]
    for number in (0, 1):  # and the third one never came to its end
        writing.write(options, [parts[number]], task(query, 2, number))

    def again(*order):
        run = new_name("run")
        outcomes = [
            writing.write(options, [parts[part]], task(query, 2, number, run))
            for number, part in enumerate(order)
        ]
        writing.finish_epoch(options, outcomes)
        return [outcome.found for outcome in outcomes]

    assert again(1, 2, 0) == [1, None, 0]
    assert written(options) == list(range(30))
    assert again(2, 0, 1) == [1, 0, 1]
    assert written(options) == list(range(30))


def epoch(options, query, number, *parts):
    """A whole run of an epoch."""
    run = new_name("run")
    outcomes = [writing.write(options, [part], task(query, number, n, run)) for n, part in enumerate(parts)]
    writing.finish_epoch(options, outcomes)


def test_a_whole_epoch_that_comes_again_with_other_rows_or_tasks_is_refused(options):
    query = new_name("query")
    parts = [numbered(range(10)), numbered(range(10, 20)), numbered([])]
    epoch(options, query, 3, *parts)
    epoch(options, query, 3, *parts)
    epoch(options, query, 3, *reversed(parts))
    for others in (
        [numbered(range(20))],
        [*parts, numbered([7])],
        [numbered(range(10)), numbered(range(10, 19)), numbered([19])],
        [numbered(range(100, 110)), *parts[1:]],
    ):
        with pytest.raises(
            MarkerError, match="which has been written in 3 tasks, none of which had these rows"
        ):
            epoch(options, query, 3, *others)
    for others in (parts[:1], [parts[0], parts[0], parts[2]]):
        with pytest.raises(MarkerError, match=f"query {query} had written epoch 3 before, and 10 rows of it"):
            epoch(options, query, 3, *others)
    assert written(options) == list(range(20))
    epoch(options, query, 4, numbered([20]))
    epoch(options, query, 5, *[numbered([20 + n]) for n in range(1, 20)])
    assert written(options) == list(range(40))


def test_an_epoch_that_was_cut_off_and_comes_again_with_another_plan_is_refused(options):
    query = new_name("query")
    writing.write(options, [numbered(range(10))], task(query, 0, 0))
    for others in ([numbered(range(20))], [numbered(range(9))], [numbered(range(0, 20, 2))]):
        with pytest.raises(MarkerError, match="which has been written in part, with some of these rows"):
            epoch(options, query, 0, *others)
    assert written(options) == list(range(10))
    with pytest.raises(MarkerError, match="10 rows of it by a task 0, with which no task comes now"):
        epoch(options, query, 0, numbered([]))


def test_a_checkpoint_that_is_older_than_the_topic_is_refused(options):
    query = new_name("query")
    writing.write(options, [numbered(range(10))], task(query, 3, 0))
    with pytest.raises(MarkerError, match="comes with epoch 2, and a later one is written: its checkpoint"):
        writing.write(options, [numbered(range(10))], task(query, 2, 0))
    assert written(options) == list(range(10))


def broken(rows):
    yield rows
    raise ZeroDivisionError


def test_an_attempt_that_fails_leaves_nothing_to_see_and_nothing_open(options):
    mine = task(new_name("query"), 0, 0)
    small = replace(options, batch_bytes=100)
    with pytest.raises(ZeroDivisionError):
        writing.write(small, broken(numbered(range(100))), mine)
    bootstrap = options.settings.bootstrap_servers
    places = [(options.topic, number) for number in range(PARTITIONS)]
    assert readers.wait_until_stable(bootstrap, places, 30)
    assert written(options) == []
    assert len(all_values(bootstrap, options.topic, PARTITIONS, readers.READ_UNCOMMITTED)) > 50
    writing.write(small, [numbered(range(100))], mine)
    assert written(options) == list(range(100))


def test_an_attempt_that_dies_is_aborted_by_the_next_one(options):
    mine = task(new_name("query"), 0, 0)

    def taken_over():
        yield numbered(range(10))
        # Another attempt begins and ends while this one is at work.
        writing.write(options, [numbered(range(10))], mine)
        yield numbered(range(10, 20))

    with pytest.raises(ClientError, match="Another attempt writes as odradek-spark-query"):
        writing.write(replace(options, batch_bytes=100), taken_over(), mine)
    assert written(options) == list(range(10))


def test_a_commit_whose_answer_is_lost_is_found_by_the_next_attempt(proxied_broker):
    bootstrap, proxy = proxied_broker.bootstrap, proxied_broker.proxy
    options = options_for(bootstrap, new_topic(bootstrap, "lost"))
    impatient = replace(options, settings=replace(options.settings, patience_ms=100))
    mine = task(new_name("query"), 0, 0)
    committed = []
    proxy.answer_lost = lambda key: (committed.append(key), proxy.drop_connections())
    ended = []

    def judge(api_key, _):
        if api_key != END_TXN or committed:
            if committed:
                proxy.drop_connections()
                return Verdict.LOSE_REQUEST
            return Verdict.PASS
        ended.append(api_key)
        return Verdict.LOSE_ANSWER

    proxy.judge = judge
    try:
        with pytest.raises(ClientError):
            writing.write(impatient, [numbered(range(10))], mine)
    finally:
        proxy.judge = proxy.answer_lost = None
    assert ended
    assert writing.write(options, [numbered(range(10))], mine).found == 0
    assert values(proxied_broker.direct, options.topic) == [list(range(10))]


def forget_offsets(cluster, query):
    """As brokers do when offsets.retention.minutes have passed."""
    for group in (markers.group(query, number) for number in (0, markers.PLACES)):
        answer = cluster.ask(coordinator_of("group", group), DeleteGroupsRequest(groups_names=[group]))
        assert all(one.error_code in (0, ErrorCode.GROUP_ID_NOT_FOUND) for one in answer.results)


def test_markers_outlive_the_offsets_of_their_group(options):
    query = new_name("query")
    writing.write(options, [numbered(range(10))], task(query, 7, 3))
    writing.write(options, [numbered(range(5))], task(query, 7, 3 + markers.PLACES))
    writing.write(options, [numbered([99])], task(f"{query}/3", 9, 3))  # a neighbour
    with Cluster(options.settings) as cluster:
        before = markers.read(cluster, query, 3)
        assert {number: marker.entries[0].rows for number, marker in before.items()} == {3: 10, 19: 5}
        forget_offsets(cluster, query)
        assert markers.read(cluster, query, 3) == markers.read(cluster, query, 19) == before
        assert markers.read(cluster, new_name("query"), 3) == {}
    assert writing.write(options, [numbered(range(10))], task(query, 7, 3)).found == 3
    assert written(options) == sorted([*range(10), *range(5), 99])


def test_a_marker_of_an_aborted_transaction_counts_for_nothing(options):
    query = new_name("query")
    rows = markers.Rows("run", 1, 2, (2,))
    with Cluster(options.settings) as cluster:
        markers.prepare(cluster)
        producer = Producer(cluster, transactional_id=markers.transactional_id(query, 0))
        producer.init_transactions()
        for number, end in [(1, "commit"), (2, "abort"), (3, "commit"), (4, "abort")]:
            producer.begin()
            markers.write(producer, query, 0, Marker(number, (rows,)))
            producer.flush()
            getattr(producer, end)()
        assert markers.read(cluster, query, 0) == {0: Marker(3, (rows,))}
        forget_offsets(cluster, query)
        assert markers.read(cluster, query, 0) == {0: Marker(3, (rows,))}


def test_the_markers_topic_is_compacted_and_of_the_right_size(bootstrap, options):
    topic = new_topic(bootstrap, "few", 3)
    with pytest.raises(ClientError, match=f"the markers topic {topic} has 3 partitions and needs 17"):
        writing.write(replace(options, markers_topic=topic), [], task(new_name("query"), 0, 0))
    from confluent_kafka.admin import AdminClient, ConfigResource

    writing.write(options, [], task(new_name("query"), 0, 0))
    resource = ConfigResource(ConfigResource.Type.TOPIC, markers.MARKERS_TOPIC)
    admin = AdminClient({"bootstrap.servers": bootstrap})
    (described,) = admin.describe_configs([resource]).values()
    assert described.result(30)["cleanup.policy"].value == "compact"


def test_at_least_once_writes_what_it_gets(options):
    assert writing.write(options, [numbered(range(10)), numbered(range(10, 30))], None).written.rows == 30
    assert writing.write(options, [numbered(range(10))], None).written.rows == 10
    assert written(options) == sorted([*range(30), *range(10)])
    writing.finish_epoch(options, [writing.write(options, [], None)])


def test_rows_for_no_topic_are_refused_in_one_sentence(bootstrap, options):
    nowhere = options_for(bootstrap, None)
    with pytest.raises(RowsRefused, match="a row has null as its topic"):
        writing.write(nowhere, [numbered([1], topic=pyarrow.array([None], pyarrow.string()))], None)
    with pytest.raises(RowsRefused, match='no column "topic"'):
        writing.write(nowhere, [numbered([1])], task(new_name("query"), 0, 0))


def test_an_unknown_topic_is_made_where_the_broker_does_that(bootstrap):
    name = new_name("made")
    assert writing.write(options_for(bootstrap, name), [numbered(range(10))], None).written.rows == 10
    assert values(bootstrap, name) == [list(range(10))]


def test_what_is_no_marker_is_refused():
    marker = Marker(3, (markers.Rows("a", 4, 2**64 - 1, (1, 2**64 - 1)), markers.Rows("b", 0, 0, ())))
    assert Marker.from_json(marker.to_json()) == marker
    broken = json.dumps({"epoch": 1, "written": [{"run": "", "rows": 2, "checksum": "x", "sample": ""}]})
    for text in ("", "{}", "[]", broken):
        with pytest.raises(MarkerError, match="is not a marker of format odradek"):
            Marker.from_json(text)
