"""Where a read starts and ends, asked of a broker."""

import pytest

from odradek.client.cluster import Cluster
from odradek.client.settings import ClientSettings
from odradek.spark.offsets import latest_offsets, resolve_end, resolve_start
from odradek.spark.options import OptionError, read_options
from tests.client.topics import Transactions, create_topic, delete_records, produce


@pytest.fixture
def topic(cluster):
    """Partition 0: ten records a second apart from 1000 on, three deleted; partition 1: one at 1000."""
    topic = create_topic(cluster, 2)
    for number in range(10):
        produce(cluster, topic, 0, [b"v"], timestamp=1000 + 1000 * number)
    produce(cluster, topic, 1, [b"v"])
    delete_records(cluster, topic, 0, 3)
    return topic


def resolved(cluster, topic, *, is_stream=False, **more):
    """(start, end) by partition."""
    options = read_options({"kafka.bootstrap.servers": "h:1", "subscribe": topic} | more, is_stream=is_stream)
    latest = latest_offsets(cluster, options)
    start, end = resolve_start(cluster, options, latest), resolve_end(cluster, options, latest)
    assert start.keys() == end.keys() == {topic}
    return start[topic], end[topic]


def test_everything_is_from_the_first_record_that_is_left_to_the_end(cluster, topic):
    assert resolved(cluster, topic) == ({0: 3, 1: 0}, {0: 10, 1: 1})
    assert resolved(cluster, topic, is_stream=True)[0] == {0: 10, 1: 1}


def test_offsets_are_taken_as_they_are_and_earliest_and_latest_in_their_place(cluster, topic):
    given = {
        "startingOffsets": f'{{"{topic}":{{"0":-2,"1":1}}}}',
        "endingOffsets": f'{{"{topic}":{{"0":7,"1":-1}}}}',
    }
    assert resolved(cluster, topic, **given) == ({0: 3, 1: 1}, {0: 7, 1: 1})


def test_a_time_finds_the_first_record_that_is_as_late(cluster, topic):
    first = {"startingOffsetsByTimestamp": f'{{"{topic}":{{"0":4500,"1":0}}}}', "endingTimestamp": 8000}
    assert resolved(cluster, topic, **first) == ({0: 4, 1: 0}, {0: 7, 1: 1})


def test_a_time_after_the_last_record_is_an_error_or_the_end(cluster, topic):
    with pytest.raises(OptionError, match=f"No offset matched startingTimestamp 5000 in {topic}-1"):
        resolved(cluster, topic, startingTimestamp=5000)
    latest = {"startingTimestamp": 5000, "startingOffsetsByTimestampStrategy": "latest"}
    assert resolved(cluster, topic, **latest)[0] == {0: 4, 1: 1}


def test_partitions_have_to_be_named_all_and_no_others(cluster, topic):
    with pytest.raises(OptionError, match=f"startingOffsets .* lacks {topic}-1"):
        resolved(cluster, topic, startingOffsets=f'{{"{topic}":{{"0":5}}}}')
    with pytest.raises(OptionError, match=f"endingOffsets names {topic}-2"):
        resolved(cluster, topic, endingOffsets=f'{{"{topic}":{{"0":5,"1":1,"2":1}}}}')


def test_topics_that_are_not_there_are_named(broker, topic):
    server = {"kafka.bootstrap.servers": "h:1"}
    cases = [
        ({"subscribe": f"{topic},nowhere"}, "topic nowhere does not exist"),
        ({"assign": '{"nowhere":[0]}'}, "topic nowhere does not exist"),
        ({"assign": f'{{"{topic}":[1,2]}}'}, f"assign names {topic}-2"),
    ]
    with Cluster(ClientSettings(broker.bootstrap_servers, retry_ms=1, unknown_topic_ms=20)) as cluster:
        for named, sentence in cases:
            with pytest.raises(OptionError, match=sentence):
                latest_offsets(cluster, read_options(server | named, is_stream=False))


def test_a_pattern_matches_whole_names_and_may_match_none(cluster, topic):
    server = {"kafka.bootstrap.servers": "h:1"}

    def ends(pattern):
        return latest_offsets(cluster, read_options(server | {"subscribePattern": pattern}, is_stream=False))

    assert ends(f"{topic[:-1]}[{topic[-1]}]") == {topic: {0: 10, 1: 1}}
    assert ends("nothing-like-it") == {}


def test_some_partitions_are_read_where_they_are_assigned(cluster, topic):
    options = read_options(
        {"kafka.bootstrap.servers": "h:1", "assign": f'{{"{topic}":[1]}}'}, is_stream=False
    )
    assert latest_offsets(cluster, options) == {topic: {1: 1}}


def test_what_is_open_is_not_there_yet_for_read_committed(cluster):
    topic = create_topic(cluster)
    produce(cluster, topic, 0, [b"decided"])
    writer = Transactions(cluster, topic)
    writer.write(topic, 0, [b"open"])
    committed = {"kafka.isolation.level": "read_committed"}
    assert resolved(cluster, topic, **committed)[1] == {0: 1}
    assert resolved(cluster, topic)[1] == {0: 2}
