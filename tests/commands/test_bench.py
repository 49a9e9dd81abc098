"""`odradek bench`: what it says, and that it leaves nothing behind; no figure is judged."""

import json
import math
import re
import signal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.commands import bench
from odradek.commands.load import Latencies
from tests.client.topics import create_topic, delete_topic

ACTIONS = ("produce", "consume", "roundtrip")
KEYS = re.search(r"keys: ([a-z0-9_ ]+)\.", " ".join(bench.EXAMPLES.split()))[1].split()
"""Those of the help."""


def own_topics(cluster):
    return [name for name in cluster.topics() if name.startswith("odradek-bench-")]


def row_of(ended):
    assert (ended.status, ended.err) == (0, "")
    (row,) = ended.rows
    return row


def size_of(cluster, topic, partitions=1):
    return sum(cluster.list_offsets({(topic, one): -1 for one in range(partitions)}).values())


@pytest.mark.parametrize("action", ACTIONS)
def test_it_has_the_documented_keys_and_leaves_no_topic(odradek_command, cluster, action):
    row = row_of(odradek_command("bench", action, "--records", "50", "--batch", "10", "--output", "json"))
    assert [*row] == KEYS
    assert row["test"] == action
    assert row["topic"].startswith("odradek-bench-")
    assert row["records"] == 50
    assert row["latency_count"] == (1 if action == "consume" else 5)
    assert 0 < row["latency_p50_ms"] <= row["latency_p99_ms"] <= row["latency_max_ms"]
    assert row["records_per_second"] > 0
    assert row["mb_per_second"] > 0
    assert (row["size_bytes"], row["batch_records"], row["compression"], row["rate"]) == (
        100,
        10,
        "none",
        None,
    )
    assert row["acks"] == (None if action == "consume" else -1)
    assert own_topics(cluster) == []


def test_every_form_of_output(odradek_command):
    arguments = ("bench", "produce", "--records", "3")
    table = odradek_command(*arguments).out.splitlines()
    assert (
        table[0].split() == ["test", "records", "records/s", "MB/s", *table[0].split()[4:]]
        or "p99" in table[0]
    )
    assert len(table) == 2
    assert [*json.loads(odradek_command(*arguments, "--output", "jsonl").out)] == KEYS
    heads, fields = odradek_command(*arguments, "--output", "tsv").out.rstrip("\n").split("\n")
    assert heads.split("\t") == KEYS
    assert len(fields.split("\t")) == len(KEYS)


@pytest.mark.parametrize("codec", ["gzip", "lz4", "zstd", "snappy"])
def test_a_topic_that_is_named_stays_and_has_the_records(odradek_command, cluster, codec):
    topic = create_topic(cluster, 2, f"loaded-{codec}")
    arguments = ("--topic", topic, "--output", "json")
    options = ("--records", "25", "--batch", "10", "--size", "30", "--compression", codec)
    row = row_of(odradek_command("bench", "produce", *arguments, *options, "--acks", "1"))
    assert (row["topic"], row["partitions"], row["records"], row["acks"]) == (topic, 2, 25, 1)
    assert size_of(cluster, topic, 2) == 25, "the last batch is the rest"
    found = odradek_command("consume", topic).out.splitlines()
    assert {len(line) for line in found} == {30}
    row = row_of(odradek_command("bench", "consume", *arguments, "--records", "60"))
    assert row["records"] >= 60, "it has read the topic more than once"
    row = row_of(odradek_command("bench", "roundtrip", *arguments, "--records", "3", "--batch", "1"))
    assert (row["records"], row["latency_count"]) == (3, 3)
    assert size_of(cluster, topic, 2) == 28
    delete_topic(cluster, topic)


def test_seconds_and_a_rate(odradek_command, cluster):
    row = row_of(
        odradek_command(
            *("bench", "produce", "--seconds", "0.2", "--rate", "50", "--batch", "1", "--output", "json")
        )
    )
    assert 1 <= row["records"] <= 10, "at most the rate"
    assert row["rate"] == 50
    row = row_of(odradek_command("bench", "roundtrip", "--seconds", "0.1", "--output", "json"))
    assert row["records"] >= 1
    row = row_of(
        odradek_command(
            *("bench", "consume", "--seconds", "0.1", "--size", "10", "--partitions", "3", "--output", "json")
        )
    )
    assert row["partitions"] == 3
    assert row["records"] >= 1
    assert own_topics(cluster) == []


def test_an_empty_topic_has_nothing_to_read(odradek_command, cluster):
    topic = create_topic(cluster, 1, "bench-of-nothing")
    row = row_of(odradek_command("bench", "consume", "--topic", topic, "--output", "json"))
    assert (row["records"], row["latency_count"], row["latency_p99_ms"]) == (0, 0, None)


@pytest.mark.parametrize("action", ACTIONS)
@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_takes_the_topic_away(odradek_command, cluster, monkeypatch, action, number, status):
    there = []

    def interrupted(*arguments):
        there.extend(own_topics(cluster))
        signal.raise_signal(number)

    monkeypatch.setattr(bench.Progress, "update", interrupted)
    ended = odradek_command("bench", action, "--records", "1000")
    assert (ended.status, ended.out, ended.err) == (status, "", "")
    assert len(there) == 1
    assert own_topics(cluster) == []


def test_a_failure_takes_the_topic_away(odradek_command, cluster):
    refused = odradek_command("bench", "produce", "--size", "3000000", "--batch", "1", "--records", "1")
    assert (refused.status, refused.out) == (1, "")
    assert "MESSAGE_TOO_LARGE" in refused.err
    refused = odradek_command("bench", "roundtrip", "--size", "3000000", "--records", "1")
    assert (refused.status, "MESSAGE_TOO_LARGE" in refused.err) == (1, True)
    assert own_topics(cluster) == []


@pytest.mark.parametrize(
    ("arguments", "status", "why"),
    [
        (("produce", "--records", "0"), 1, "--records"),
        (("produce", "--seconds", "0"), 1, "--seconds"),
        (("produce", "--rate", "0"), 1, "--rate"),
        (("produce", "--size", "-1"), 1, "--size"),
        (("produce", "--size", "1000000", "--batch", "1000"), 1, "--size times --batch"),
        (("produce", "--topic", "nowhere"), 1, "topic nowhere does not exist"),
        (("produce", "--acks", "0"), 2, "--acks"),
        (("consume", "--acks", "1"), 2, "--acks"),
        (("roundtrip", "--partitions", "2"), 2, "--partitions"),
        ((), 2, "ACTION"),
    ],
)  # fmt: skip
def test_what_cannot_be_is_said(odradek_command, cluster, arguments, status, why):
    refused = odradek_command("bench", *arguments)
    assert (refused.status, refused.out) == (status, "")
    assert why in refused.err
    assert own_topics(cluster) == []


@given(st.lists(st.floats(1e-6, 1e3), min_size=1, max_size=200))
def test_percentiles_are_right_to_one_per_cent(seconds):
    latencies = Latencies()
    for one in seconds:
        latencies.add(one)
    assert latencies.max_s == latencies.percentile(1.0) == max(seconds)
    for share in (0.01, 0.5, 0.99):
        exact = sorted(seconds)[math.ceil(share * len(seconds) - 1e-9) - 1]
        assert exact * 0.9999 <= latencies.percentile(share) <= exact * 1.0101
