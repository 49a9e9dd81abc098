"""The readers that the other tests trust."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from confluent_kafka import KafkaError, TopicPartition

from compat_tests.kit import readers


@dataclass
class Event:
    """What a consumer hands out of topic t: a message, or without a value the end of its partition."""

    number: int
    content: bytes | None = None

    def topic(self) -> str:
        return "t"

    def partition(self) -> int:
        return self.number

    def error(self) -> KafkaError | None:
        return KafkaError(KafkaError._PARTITION_EOF) if self.content is None else None

    def value(self) -> bytes | None:
        return self.content


class ScriptedConsumer:
    """Hands out one list of events after the other."""

    def __init__(self, *script: list[Event]) -> None:
        self._left = [*script]

    def assign(self, partitions: list[TopicPartition]) -> None:
        pass

    def close(self) -> None:
        pass

    def consume(self, num_messages: int, timeout: float) -> list[Event]:
        assert self._left, "it is read on behind the last end"
        assert len(self._left[0]) <= num_messages
        return self._left.pop(0)


def test_a_transaction_that_is_committed_while_it_is_read_is_read_to_its_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Both partitions were at their end, and then there is more than one call hands out."""
    values = [b"%d" % number for number in range(500)]
    consumer = ScriptedConsumer(
        [Event(0), Event(1), *(Event(0, value) for value in values[:498])],
        [*(Event(0, value) for value in values[498:]), Event(0)],
    )
    monkeypatch.setattr(readers, "new_consumer", lambda *_: consumer)
    assert readers.values_of("nobody:1", [("t", 0), ("t", 1)]) == {("t", 0): values, ("t", 1): []}
