"""Brokers for groups: Odradek, or Apache Kafka to prove that the tests are right; and both, to compare."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from compat_tests import reference
from compat_tests.broker_host import shared_host
from compat_tests.differential.harness import Pair, Side, common_versions, served_versions, side_of
from compat_tests.groups.comparison import Both
from compat_tests.kit.transaction_brokers import Start, TransactionBroker, starting
from odradek.config.option import REFUSED
from odradek.config.options import BROKER_OPTIONS
from odradek.embedding.embedded import Broker
from odradek.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from odradek.wire.messages.streams_group_heartbeat import StreamsGroupHeartbeatRequest

QUICK_DEATHS = {
    "group.consumer.min.session.timeout.ms": 6000,
    "group.consumer.session.timeout.ms": 6000,
    "group.consumer.min.heartbeat.interval.ms": 300,
    "group.consumer.heartbeat.interval.ms": 300,
}
"""A member of the new protocol has the broker's session time-out, not one of its own."""
ONE_PARTITION = {"offsets.topic.num.partitions": 1, "transaction.state.log.num.partitions": 1}


SLOW_RESTART_MS = 30_000
"""More than a restart of Apache Kafka takes on a busy machine. Whose session ends while the broker is away
believes that it has what others have been given."""


def settings(*, is_odradek: bool) -> dict[str, int]:
    """Those of `QUICK_DEATHS` that the broker has already."""
    known = {one.name for one in BROKER_OPTIONS.values() if one.standing != REFUSED}
    return {name: value for name, value in QUICK_DEATHS.items() if name in known or not is_odradek}


@pytest.fixture(scope="session")
def is_odradek(request: pytest.FixtureRequest) -> bool:
    return bool(request.config.getoption("--broker") == "odradek")


@pytest.fixture(scope="session")
def broker(is_odradek: bool) -> Iterator[TransactionBroker]:
    """One for all tests that do not kill it; each uses topics and groups of its own."""
    with starting(is_odradek=is_odradek) as start:
        yield start(settings(is_odradek=is_odradek))


@pytest.fixture(scope="session")
def bootstrap(broker: TransactionBroker) -> str:
    return broker.bootstrap


@pytest.fixture
def start_broker(is_odradek: bool) -> Iterator[Start]:
    """Starts brokers for one test alone, which kills them."""
    options = settings(is_odradek=is_odradek)
    if not is_odradek:
        options["group.consumer.session.timeout.ms"] = SLOW_RESTART_MS
    with starting(is_odradek=is_odradek) as start:

        def start_one(*, is_patient: bool = False, **more: object) -> TransactionBroker:
            """`is_patient`: sessions of the new protocol outlast a restart, also on a busy machine."""
            patience = {"group.consumer.session.timeout.ms": SLOW_RESTART_MS} if is_patient else {}
            return start({**options, **patience}, **more)

        yield start_one


def both_brokers() -> Iterator[Both]:
    """Apache Kafka and Odradek beside each other, each with the same groups and topics."""
    theirs = {name: str(value) for name, value in {**ONE_PARTITION, **QUICK_DEATHS}.items()}
    # As Kafka is set; a broker in a program has no delay for groups of Streams either.
    delays = {"group.initial.rebalance.delay.ms": 0, "group.streams.initial.rebalance.delay.ms": 3000}
    ours = {**ONE_PARTITION, **settings(is_odradek=True), **delays}
    with (
        reference.Kafka(properties=theirs, host=shared_host()) as kafka,
        Broker(process=True, options=ours) as odradek,
        Both(kafka.bootstrap_servers, odradek.bootstrap_servers, odradek.pid) as both,
    ):
        yield both


@pytest.fixture(scope="session")
def both() -> Iterator[Both]:
    yield from both_brokers()


@pytest.fixture
def pair(both: Both) -> Iterator[Pair]:
    """The two to be asked single requests."""
    theirs, ours = side_of("kafka", both.kafka.bootstrap), side_of("odradek", both.odradek.bootstrap)
    yield Pair(theirs, ours, common_versions(theirs, ours))
    theirs.close()
    ours.close()


def serves(bootstrap: str, api_key: int) -> bool:
    side = Side("broker", bootstrap)
    try:
        return api_key in served_versions(side)
    finally:
        side.close()


@pytest.fixture(scope="session")
def new_protocol(bootstrap: str) -> None:
    """For tests of groups of the consumer protocol."""
    if not serves(bootstrap, ConsumerGroupHeartbeatRequest.api_key):
        pytest.skip("the broker does not serve the consumer protocol")


@pytest.fixture(scope="session")
def streams_protocol(bootstrap: str) -> None:
    """For tests of streams groups."""
    if not serves(bootstrap, StreamsGroupHeartbeatRequest.api_key):
        pytest.skip("the broker does not serve streams groups")
