"""Groups must land on the partition that Kafka would choose: the topic is shared with other tools."""

import pytest

from odradek.coordinator.partitioner import java_string_hash, partition_for


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


def test_the_sign_is_cleared_not_turned():
    assert partition_for("polygenelubricants", 50) == 0
    assert partition_for("a", 50) == 97 % 50
