"""Known failures of Apache Kafka are told, and nothing else."""

from __future__ import annotations

import re
from types import SimpleNamespace
from typing import Any

import pytest

from compat_tests.kit.readers import assert_copied
from compat_tests.kit.transaction_brokers import KNOWN_OF_KAFKA, broken_by_kafka, known_reason

PENDING = "g does not say where it is in ('t', 0): UNSTABLE_OFFSET_COMMIT"
SENT = [b"a", b"b", b"c"]
KAFKA: Any = SimpleNamespace(is_odradek=False)
ODRADEK: Any = SimpleNamespace(is_odradek=True)


def test_each_known_failure_is_told_of_kafka_with_its_reason() -> None:
    for failure in (PENDING, "a transaction is still open", "1 of 3 copies are missing: [b'b']"):
        assert known_reason(failure) in KNOWN_OF_KAFKA.values()
        told = pytest.raises(pytest.xfail.Exception, match="Apache Kafka after a kill")
        with told, broken_by_kafka(KAFKA):
            raise AssertionError(failure)
        with pytest.raises(AssertionError), broken_by_kafka(ODRADEK):
            raise AssertionError(failure)


def test_version_2_of_the_protocol_loses_no_copy() -> None:
    assert known_reason(PENDING, speaks_version_2=True)
    assert known_reason("1 of 3 copies are missing: [b'b']", speaks_version_2=True) is None


@pytest.mark.parametrize(
    "failure",
    [
        AssertionError("g does not say where it is in ('t', 0): NOT_COORDINATOR"),
        AssertionError("copies are doubled, wrong or out of order"),
        AssertionError("31 messages came"),
        TimeoutError("timed out"),
    ],
)
def test_any_other_failure_of_kafka_is_one(failure: Exception) -> None:
    with pytest.raises(type(failure), match=re.escape(str(failure))), broken_by_kafka(KAFKA):
        raise failure


@pytest.mark.parametrize(
    ("copied", "said"),
    [
        ([b"a", b"c"], "1 of 3 copies are missing"),
        ([b"a", b"b", b"b", b"c"], "doubled"),
        ([b"b", b"a"], "doubled, wrong or out of order"),
        ([b"a", b"b", b"c", b"d"], "doubled, wrong or out of order"),
    ],
)
def test_missing_copies_are_told_apart(copied: list[bytes], said: str) -> None:
    assert_copied(SENT, SENT)
    with pytest.raises(AssertionError, match=said):
        assert_copied(copied, SENT)
