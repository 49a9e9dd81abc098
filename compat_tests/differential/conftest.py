"""A pair of brokers for each reference version."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from compat_tests import reference
from compat_tests.differential.harness import Pair
from compat_tests.differential.pairs import pair_of

SETTINGS = {
    "auto.create.topics.enable": "false",
    "num.partitions": "1",
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
    "group.consumer.assignment.interval.ms": "0",
    "producer.id.expiration.check.interval.ms": "100",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "100",
    # Retention is looked at soon and often.
    "log.initial.task.delay.ms": "0",
    "log.retention.check.interval.ms": "100",
    "log.cleaner.backoff.ms": "100",
}


@pytest.fixture(scope="session", params=[reference.CURRENT, reference.OLDER])
def pair(request: pytest.FixtureRequest) -> Iterator[Pair]:
    with pair_of(request.param, SETTINGS) as pair:
        yield pair
