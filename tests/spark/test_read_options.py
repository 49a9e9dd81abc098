"""What may be written as an option of a read, and what a person is told who wrote something else."""

import json
import pickle

import pytest

from odradek.client.cluster import EARLIEST, LATEST
from odradek.spark.options import (
    COLUMNS,
    Assigned,
    ByOffset,
    ByTimestamp,
    Everywhere,
    Matching,
    OptionError,
    Subscribed,
    read_columns,
    read_options,
)

LEAST = {"kafka.bootstrap.servers": "127.0.0.1:9092", "subscribe": "orders"}


def batch(**options):
    return read_options(LEAST | options, is_stream=False)


def stream(**options):
    return read_options(LEAST | options, is_stream=True)


def refused(options, *, is_stream=False):
    """The sentence, which has to be one."""
    with pytest.raises(OptionError) as error:
        read_options(options, is_stream=is_stream)
    sentence = str(error.value)
    assert "\n" not in sentence
    assert ". " not in sentence
    return sentence


def test_the_least_that_is_needed_reads_everything():
    read = batch()
    assert read.settings.bootstrap_servers == "127.0.0.1:9092"
    assert read.subscription == Subscribed(("orders",))
    assert (read.start, read.end) == (Everywhere(EARLIEST), Everywhere(LATEST))
    assert read.columns == ("key", "value", "topic", "partition", "offset", "timestamp", "timestampType")
    assert read.fail_on_data_loss
    assert not read.read_committed


def test_a_stream_starts_with_what_is_new():
    assert stream().start == Everywhere(LATEST)
    assert stream(startingOffsets="earliest").start == Everywhere(EARLIEST)


def test_names_and_words_are_taken_in_any_case():
    read = read_options(
        {
            "KAFKA.bootstrap.Servers": "h:1",
            "SUBSCRIBE": " a, b ,,a",
            "startingoffsets": "EARLIEST",
            "failondataloss": "False",
            "Kafka.Isolation.Level": "READ_COMMITTED",
            "includeheaders": "TRUE",
        },
        is_stream=True,
    )
    assert read.subscription == Subscribed(("a", "b"))
    assert (read.fail_on_data_loss, read.read_committed) == (False, True)
    assert read.columns == tuple(COLUMNS)


def test_topics_are_named_in_one_of_three_ways():
    server = {"kafka.bootstrap.servers": "h:1"}
    assert read_options(server | {"subscribePattern": "a.*"}, is_stream=False).subscription == Matching("a.*")
    assigned = read_options(server | {"assign": '{"t":[2,0,0],"s":[1]}'}, is_stream=False).subscription
    assert assigned == Assigned({"s": (1,), "t": (0, 2)})
    assert "assign is needed: none is given" in refused(server)
    assert "subscribe and assign" in refused(LEAST | {"assign": '{"t":[0]}'})
    assert "kafka.bootstrap.servers" in refused({"subscribe": "t"})


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("subscribe", " , "),
        ("subscribePattern", "(("),
        ("assign", "t"),
        ("assign", '{"t":[-1]}'),
        ("assign", '{"t":[true]}'),
        ("assign", "{}"),
        ("assign", "[" * 100_000),
    ],
)
def test_topics_that_cannot_be_meant_are_refused(option, value):
    assert option in refused({"kafka.bootstrap.servers": "h:1", option: value})


def test_a_start_and_an_end_are_given_by_offset():
    read = batch(startingOffsets='{"orders":{"0":23,"1":-2}}', endingOffsets='{"orders":{"0":-1,"1":30}}')
    assert read.start == ByOffset({"orders": {0: 23, 1: EARLIEST}}, "startingOffsets")
    assert read.end == ByOffset({"orders": {0: LATEST, 1: 30}}, "endingOffsets")


def test_a_time_for_all_comes_before_times_for_each_and_these_before_offsets():
    offsets = {"startingOffsets": '{"orders":{"0":1}}'}
    times = {"startingOffsetsByTimestamp": '{"orders":{"0":1000}}'}
    assert batch(**offsets, **times).start == ByTimestamp({"orders": {0: 1000}}, "startingOffsetsByTimestamp")
    assert batch(**offsets, **times, startingTimestamp=7).start == ByTimestamp(7, "startingTimestamp")
    assert batch(endingTimestamp="7").end == ByTimestamp(7, "endingTimestamp")
    assert batch(startingTimestamp=7, startingOffsetsByTimestampStrategy="latest").unmatched_is_latest


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("startingOffsets", "newest"),
        ("startingOffsets", '{"orders":{"0":-3}}'),
        ("startingOffsets", '{"orders":{"zero":1}}'),
        ("startingOffsets", '{"orders":{"0":1.5}}'),
        ("startingOffsets", '{"orders":[0]}'),
        ("startingOffsets", "latest"),
        ("startingOffsets", '{"orders":{"0":-1}}'),
        ("endingOffsets", "earliest"),
        ("endingOffsets", '{"orders":{"0":-2}}'),
        ("startingOffsetsByTimestamp", '{"orders":{"0":-1}}'),
        ("startingTimestamp", "yesterday"),
        ("startingOffsetsByTimestampStrategy", "earliest"),
        ("failOnDataLoss", "maybe"),
        ("minPartitions", "0"),
        ("maxRecordsPerPartition", "many"),
        ("kafka.isolation.level", "serializable"),
        ("kafka.security.protocol", "TLS"),
        ("kafka.ssl.truststore.location", "/store"),
        ("kafka.bootstrap.servers", "nowhere:99999"),
        ("kafka.request.timeout.ms", "soon"),
        ("columns", "value,size"),
        ("columns", "value,VALUE"),
        ("path", "orders"),
        ("kafka.auto.offset.reset", "earliest"),
        ("kafka.max.poll.records", "10"),
        ("maxOffsetsPerTrigger", "10"),
        ("maxBytesPerTrigger", "10"),
        ("trigger", "processingTime"),
        ("startingOffset", "earliest"),
    ],
)
def test_what_a_batch_does_not_take_is_refused_by_its_name(option, value):
    assert option in refused(LEAST | {option: value})


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("endingOffsets", "latest"),
        ("endingTimestamp", "7"),
        ("endingOffsetsByTimestamp", '{"orders":{"0":1}}'),
        ("maxOffsetsPerTrigger", "0"),
        ("maxTriggerDelay", "1m"),
        ("trigger", "once"),
    ],
)
def test_what_a_stream_does_not_take_is_refused_by_its_name(option, value):
    assert option in refused(LEAST | {option: value}, is_stream=True)


def test_columns_are_taken_in_the_order_in_which_they_are_named():
    assert batch(columns="Value, offset").columns == ("value", "offset")
    assert batch(columns="headers").columns == ("headers",)
    assert "includeHeaders" in refused(LEAST | {"columns": "value", "includeHeaders": "true"})
    assert read_columns({"columns": "timestamptype", "anything": "else"}) == ("timestampType",)


def test_limits_of_a_stream():
    read = stream(
        maxOffsetsPerTrigger="30", minOffsetsPerTrigger=10, maxTriggerDelay="2min", trigger="ProcessingTime"
    )
    assert (read.max_offsets_per_trigger, read.min_offsets_per_trigger) == (30, 10)
    assert (read.max_trigger_delay_ms, read.is_processing_time) == (120_000, True)
    assert stream(minOffsetsPerTrigger=1).max_trigger_delay_ms == 15 * 60_000
    limits = {"minOffsetsPerTrigger": 31, "maxOffsetsPerTrigger": 30}
    assert "minOffsetsPerTrigger (31)" in refused(LEAST | limits, is_stream=True)
    assert stream(maxBytesPerTrigger="1000").max_bytes_per_trigger == 1_000
    limits = {"maxBytesPerTrigger": 1, "maxOffsetsPerTrigger": 30}
    assert "give one of them" in refused(LEAST | limits, is_stream=True)


@pytest.mark.parametrize(
    ("text", "expected_ms"),
    [("500ms", 500), ("1500", 1500), ("10s", 10_000), ("2h", 7_200_000)],
)
def test_durations_are_written_as_sparks(text, expected_ms):
    assert stream(minOffsetsPerTrigger=1, maxTriggerDelay=text).max_trigger_delay_ms == expected_ms


def test_a_duration_without_meaning_is_refused():
    options = LEAST | {"minOffsetsPerTrigger": "1", "maxTriggerDelay": "a while"}
    assert "maxTriggerDelay" in refused(options, is_stream=True)


def test_offsets_name_the_partitions_that_are_assigned_and_no_others():
    server = {"kafka.bootstrap.servers": "h:1", "assign": '{"t":[0,1]}'}
    assert "lacks t-1" in refused(server | {"startingOffsets": '{"t":{"0":1}}'})
    assert "names t-2" in refused(server | {"endingOffsets": '{"t":{"0":1,"1":1,"2":1}}'})
    assert "lacks t-0" in refused(server | {"startingOffsetsByTimestamp": '{"t":{"1":1}}'})


def test_a_group_is_the_name_under_which_brokers_know_the_client():
    assert batch(groupIdPrefix="nightly").settings.client_id == "nightly"
    both = {"groupIdPrefix": "nightly", "kafka.group.id": "jobs"}
    assert batch(**both).settings.client_id == "jobs"
    assert batch(**both, **{"kafka.client.id": "me"}).settings.client_id == "me"


def test_what_was_asked_for_goes_to_the_tasks_as_it_is():
    read = batch(startingOffsets=json.dumps({"orders": {"0": 3}}), columns="value")
    assert pickle.loads(pickle.dumps(read)) == read
