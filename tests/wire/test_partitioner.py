"""Groups must land on the partition that Kafka would choose: the topic is shared with other tools."""

import pytest

from odradek.wire.partitioner import java_string_hash, partition_for


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("", 0),
        ("a", 97),
        ("hello", 99162322),
        ("console-consumer-12345", 158455506),
        ("polygenelubricants", -(2**31)),
        ("ü", 252),
        ("😀", 1772899),
    ],
)
def test_the_hash_is_that_of_java(text, value):
    assert java_string_hash(text) == value


@pytest.mark.parametrize(
    ("key", "partition"),
    [("a", 97 % 50), ("polygenelubricants", 0), ("group-0", 48), ("orders", 31), ("copies", 23)],
)
def test_the_partition_is_that_of_the_absolute_value(key, partition):
    assert partition_for(key, 50) == partition
