"""`odradek topics` at a broker of ours; compat_tests has the same at others."""

import time

import pytest

from odradek.client.admin import topics as admin
from odradek.wire.errors import ErrorCode
from odradek.wire.messages.metadata import MetadataRequest
from tests.client.proxy import Proxy
from tests.client.topics import produce


def now_ms():
    return int(time.time() * 1000)


def test_a_topic_is_made_shown_and_deleted(odradek_command):
    made = odradek_command("topics", "create", "a.first", "a.second", "-p", "3", "-c", "retention.ms=5000")
    assert (made.status, made.err) == (0, "")
    listed = odradek_command("topics", "list", "a.*", "--output", "json").rows
    assert listed == [
        {"topic": "a.first", "partitions": 3, "replicas": 1, "internal": False},
        {"topic": "a.second", "partitions": 3, "replicas": 1, "internal": False},
    ]
    assert odradek_command("topics", "delete", "a.*", "--dry-run", "--output", "json").rows == [
        {"topic": "a.first", "deleted": False},
        {"topic": "a.second", "deleted": False},
    ]
    assert len(odradek_command("topics", "list", "a.*", "--output", "json").rows) == 2
    assert odradek_command("topics", "delete", "a.*", "--yes").status == 0
    assert odradek_command("topics", "list", "a.*", "--output", "json").rows == []
    assert odradek_command("topics", "list", "a.*").out == "no topics\n"


def test_sizes_and_offsets_are_those_of_the_records(odradek_command, cluster):
    odradek_command("topics", "create", "sized", "-p", "2")
    produce(cluster, "sized", 1, [b"v" * 10] * 7, timestamp=now_ms())
    (row,) = odradek_command("topics", "list", "sized", "--sizes", "--output", "json").rows
    assert row["records"] == 7
    assert row["size_bytes"] > 70
    described = odradek_command("topics", "describe", "sized", "--output", "json").rows
    assert [(one["start_offset"], one["end_offset"], one["records"]) for one in described] == [
        (0, 0, 0),
        (0, 7, 7),
    ]
    assert [one["in_sync"] for one in described] == [[1], [1]]


def test_times_and_the_rate_are_those_of_the_records(odradek_command, cluster):
    odradek_command("topics", "create", "aged", "-p", "3")
    began_ms = now_ms()
    produce(cluster, "aged", 0, [b"v"] * 3, timestamp=began_ms - 3_600_000)
    produce(cluster, "aged", 0, [b"v"] * 6, timestamp=began_ms)
    produce(cluster, "aged", 0, [b"late"], timestamp=began_ms - 7_200_000)
    produce(cluster, "aged", 1, [b"v"], timestamp=began_ms - 3_600_000)
    described = odradek_command("topics", "describe", "aged", "--times", "--output", "json").rows
    assert [
        (row["oldest_time_ms"], row["newest_time_ms"], row["records_per_second"]) for row in described
    ] == [
        # From the first record of the last minute on, so the one that comes late is in it. Records of a
        # batch are a millisecond apart.
        (began_ms - 3_600_000, began_ms + 5, 7 / 60),
        (began_ms - 3_600_000, began_ms - 3_600_000, 0),
        (None, None, 0),
    ]
    shown = odradek_command("topics", "describe", "aged", "--times").out.splitlines()
    assert shown[1].split()[-3:] == ["records/s", "oldest", "newest"]
    assert shown[2].split()[-5] == "0.1"
    assert shown[4].split()[-3:] == ["0.0", "-", "-"]


def test_a_partition_without_a_leader_is_shown_without_offsets(run, broker, odradek_command, cluster):
    odradek_command("topics", "create", "orphaned", "-p", "2")
    produce(cluster, "orphaned", 0, [b"v"] * 3)

    def without_leader(answer):
        for topic in answer.topics:
            for one in topic.partitions:
                if one.partition_index == 1:
                    one.leader_id, one.error_code = -1, ErrorCode.LEADER_NOT_AVAILABLE
        return answer

    with Proxy(broker.port) as proxy:
        proxy.change(MetadataRequest, without_leader)
        reach = ("-b", f"127.0.0.1:{proxy.port}", "--timeout", "5", "--output", "json")
        described = run("topics", "describe", "orphaned", "--times", *reach)
        listed = run("topics", "list", "orphaned", "--sizes", *reach)
        offsets = run("topics", "offsets", "orphaned", *reach)
    assert (described.status, described.err) == (0, "")
    assert [(row["leader"], row["end_offset"], row["records"]) for row in described.rows] == [
        (1, 3, 3),
        (None, None, None),
    ]
    assert [row["newest_time_ms"] for row in described.rows] == [1002, None]
    assert (listed.status, [row["records"] for row in listed.rows]) == (0, [3])
    assert [row["partition"] for row in offsets.rows] == [0]
    assert (offsets.status, offsets.err) == (
        1,
        "odradek: partition 1 of topic orphaned has no leader at the moment\n",
    )


def test_records_are_trimmed_to_an_offset_the_end_or_a_time(odradek_command, cluster):
    odradek_command("topics", "create", "trimmed", "-p", "1")
    produce(cluster, "trimmed", 0, [b"v"] * 10, timestamp=now_ms())

    def start():
        (row,) = odradek_command("topics", "offsets", "trimmed", "--output", "json").rows
        return row["start_offset"]

    (row,) = odradek_command(
        "topics", "trim", "trimmed", "--before", "4", "--dry-run", "--output", "json"
    ).rows
    assert (row["start_offset"], row["records_deleted"], start()) == (4, 4, 0)
    (row,) = odradek_command("topics", "trim", "trimmed", "--before", "4", "--output", "json").rows
    assert (row["records_deleted"], start()) == (4, 4)
    assert odradek_command("topics", "trim", "trimmed:0", "--before", "-1h").status == 0
    assert start() == 4, "nothing is an hour old"
    assert odradek_command("topics", "trim", "trimmed", "--before", "99").status == 0
    assert start() == 10, "past the end is the end"


def test_partitions_are_added(odradek_command):
    odradek_command("topics", "create", "grown", "-p", "1")
    (row,) = odradek_command("topics", "add-partitions", "grown", "4", "--dry-run", "--output", "json").rows
    assert row == {"topic": "grown", "partitions_before": 1, "partitions": 4}
    assert len(odradek_command("topics", "describe", "grown", "--output", "json").rows) == 1
    assert odradek_command("topics", "add-partitions", "grown", "4").status == 0
    assert len(odradek_command("topics", "describe", "grown", "--output", "json").rows) == 4
    refused = odradek_command("topics", "add-partitions", "grown", "2")
    assert refused.status == 1
    assert "giving topic grown 2 partitions was refused: INVALID_PARTITIONS" in refused.err


def test_what_can_be_done_is_done_when_a_part_is_refused(odradek_command):
    ended = odradek_command("topics", "create", "good.one", "not good", "good.two", "--output", "json")
    assert ended.status == 1
    assert [row["topic"] for row in ended.rows] == ["good.one", "good.two"]
    assert "creating topic not good was refused: INVALID_TOPIC_EXCEPTION" in ended.err
    again = odradek_command("topics", "create", "good.one")
    assert (again.status, again.err) == (1, "odradek: topic good.one already exists\n")
    assert odradek_command("topics", "create", "good.one", "--if-not-exists").status == 0


@pytest.mark.parametrize(
    ("arguments", "topics"),
    [
        (["describe", "here.two", "nowhere", "here.one"], ["here.one", "here.two"]),
        (["describe", "here.*", "nowhere"], ["here.one", "here.two"]),
        (["offsets", "nowhere:0", "here.one:0", "here.two"], ["here.one", "here.two"]),
        (["offsets", "nowhere", "--at", "-1h"], []),
        (["trim", "nowhere", "here.one:0", "--before", "end"], ["here.one"]),
        (["delete", "here.one", "nowhere", "--dry-run"], ["here.one"]),
        (["delete", "here.one", "nowhere", "here.two"], ["here.one", "here.two"]),
    ],
)
def test_a_topic_that_is_not_there_is_told_and_the_others_are_done(odradek_command, arguments, topics):
    odradek_command("topics", "create", "here.one", "here.two", "-p", "1", "--if-not-exists")
    ended = odradek_command("topics", *arguments, "--output", "json")
    assert (ended.status, ended.err) == (1, "odradek: topic nowhere does not exist\n")
    assert [row["topic"] for row in ended.rows] == topics
    if arguments[0] == "delete":
        is_tried = "--dry-run" in arguments
        assert [row["deleted"] for row in ended.rows] == [not is_tried] * len(topics)


def test_a_partition_that_is_not_there_is_told_and_the_others_are_shown(odradek_command):
    odradek_command("topics", "create", "narrow", "-p", "1")
    ended = odradek_command("topics", "offsets", "narrow:0", "narrow:5", "--output", "json")
    assert (ended.status, ended.err) == (
        1,
        "odradek: topic narrow has no partition 5: it has 1, counted from 0\n",
    )
    assert [row["partition"] for row in ended.rows] == [0]


def test_a_description_asks_once_for_the_metadata_of_its_topics(odradek_command, monkeypatch):
    """But for where the leaders are, and which brokers there are."""
    odradek_command("topics", "create", "asked", "-p", "1")
    asked = []
    plain = admin.describe_topics

    def describe_topics(cluster, topics=None):
        asked.append(topics)
        return plain(cluster, topics)

    monkeypatch.setattr(admin, "describe_topics", describe_topics)
    assert odradek_command("topics", "describe", "asked").status == 0
    assert asked == [["asked"]]


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["describe", "nowhere"], "topic nowhere does not exist"),
        (["describe", "/(/"], "the pattern /(/ is not a regular expression"),
        (["create", "t", "-p", "many"], "--partitions is 'many': it has to be a whole number"),
        (["create", "t", "-c", "retention.ms"], "--config retention.ms is not NAME=VALUE"),
        (["create", "t", "-c", "no.such=1"], "creating topic t was refused: INVALID_CONFIG"),
        (["trim", "t", "--before", "soon"], "the time 'soon' is not understood"),
        (["add-partitions", "nowhere", "3"], "topic nowhere does not exist"),
        (["add-partitions", "*", "3"], "* names "),
        (["offsets", "t:x"], "'t:x' is not TOPIC:PARTITION"),
        (["list", "--timeout", "0"], "--timeout has to be a number of seconds above 0"),
    ],
)
def test_a_fault_is_one_sentence_and_status_1(odradek_command, arguments, sentence):
    for name in ("one", "another"):
        odradek_command("topics", "create", name, "-p", "1")
    ended = odradek_command("topics", *arguments)
    assert ended.status == 1
    assert ended.err.startswith(f"odradek: {sentence}"), ended.err
    assert len(ended.err.splitlines()) == 1


def test_a_time_before_now_needs_no_equals_sign(odradek_command, cluster):
    odradek_command("topics", "create", "timed", "-p", "1")
    produce(cluster, "timed", 0, [b"v"] * 3, timestamp=now_ms())
    (row,) = odradek_command("topics", "offsets", "timed", "--at", "-1h", "--output", "json").rows
    assert row == {"topic": "timed", "partition": 0, "start_offset": 0, "end_offset": 3, "offset": 0}


def test_a_wrong_usage_is_status_2(run):
    assert run("topics").status == 2
    assert run("topics", "nothing").status == 2
