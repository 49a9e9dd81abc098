"""The metadata log of Apache Kafka, of which a record does not say what it should."""

import pytest

from odradek.offline.kraft_settings import find_topic
from odradek.wire.records import Record, build_batch

TOPIC_ID = bytes(range(1, 17))
FRAME, TOPIC, CONFIG = 1, 2, 4


def record(kind, content, frame=FRAME):
    return bytes([frame, kind, 0]) + content + b"\0"


def text(value):
    return bytes([len(value) + 1]) + value


SOUND = record(TOPIC, text(b"orders") + TOPIC_ID)


@pytest.fixture
def found(tmp_path):
    """What is known of the topic when these records are in the log."""

    def find(*values):
        directory = tmp_path / "__cluster_metadata-0"
        directory.mkdir(exist_ok=True)
        batch = build_batch([Record(offset, 1, None, value) for offset, value in enumerate(values)])
        (directory / f"{0:020}.log").write_bytes(bytes(batch))
        return find_topic(str(tmp_path), "orders")

    return find


def test_a_directory_without_metadata_knows_no_topic(tmp_path):
    assert find_topic(str(tmp_path), "orders") is None


def test_a_topic_is_known_by_its_record(found):
    assert found(SOUND) is not None
    assert found(record(TOPIC, text(b"others") + TOPIC_ID)) is None


@pytest.mark.parametrize(
    ("broken", "words"),
    [
        (record(TOPIC, text(b"orders") + TOPIC_ID, frame=2), "frame of an unknown version"),
        (record(TOPIC, text(b"orders") + TOPIC_ID)[:-8], "cut short"),
        (record(TOPIC, bytes([100]) + b"orders"), "cut short"),
        (bytes([0x80] * 6), "too long"),
    ],
)
def test_a_record_that_cannot_be_read_is_said_and_not_passed_over(found, broken, words):
    with pytest.raises(ValueError, match=words):
        found(SOUND, broken)


def test_records_of_a_newer_kafka_are_passed_over_unless_they_would_matter(found):
    newer = record(99, b"whatever")
    assert found(SOUND, newer) is not None
    with pytest.raises(ValueError, match=r"ConfigRecord .* has no version 7"):
        found(SOUND, bytes([FRAME, CONFIG, 7]))
