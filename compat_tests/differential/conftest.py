"""A pair of brokers for each reference version."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from compat_tests import reference
from compat_tests.differential.harness import Pair
from compat_tests.differential.pairs import pair_of
from tests.tiers import NIGHTLY, rest_at_night

SETTINGS = {
    "auto.create.topics.enable": "false",
    "num.partitions": "1",
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
    "share.coordinator.state.topic.num.partitions": "1",
    "share.coordinator.snapshot.update.records.per.snapshot": "3",
    "group.consumer.assignment.interval.ms": "0",
    "group.share.assignment.interval.ms": "0",
    "producer.id.expiration.check.interval.ms": "1000",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "100",
    # Retention is looked at soon and often. Ten looks a second took two thirds of all that Kafka did,
    # as the tests make thousands of topics.
    "log.initial.task.delay.ms": "0",
    "log.retention.check.interval.ms": "1000",
    "log.cleaner.backoff.ms": "500",
}

# It needs a Kerberos of the system; by its own name it runs at any time.
collect_ignore = [] if NIGHTLY else ["test_gssapi.py"]


@pytest.fixture(scope="session", params=rest_at_night(reference.CURRENT, reference.OLDER))
def pair(request: pytest.FixtureRequest) -> Iterator[Pair]:
    with pair_of(request.param, SETTINGS) as pair:
        yield pair
