"""Groups of real clients while members join, leave and are killed: nothing is lost, nothing has two owners.

Each library by itself, VerifiableConsumer with every assignor, and all libraries in one group.
"""

from __future__ import annotations

import pathlib

import pytest

from compat_tests.groups.members import CONSUMER, Group, Kind, group_of
from compat_tests.kit.transaction_brokers import TransactionBroker
from tests.tiers import NIGHTLY

BY_DAY = [
    Kind("java-4.3", "cooperative-sticky"),
    Kind("java-4.3", "range"),
    Kind("java-3.9", "sticky"),
    Kind("confluent-kafka", "cooperative-sticky"),
    Kind("aiokafka", "roundrobin"),
    Kind("kafka-python", "range"),
]
BY_NIGHT = [
    Kind("java-4.3", "roundrobin"),
    Kind("java-4.3", "sticky"),
    Kind("java-3.9", "range"),
    Kind("java-3.9", "roundrobin"),
    Kind("java-3.9", "cooperative-sticky"),
    Kind("confluent-kafka", "range"),
    Kind("confluent-kafka", "roundrobin"),
    Kind("aiokafka", "range"),
    Kind("aiokafka", "sticky"),
    Kind("kafka-python", "cooperative-sticky"),
]
NEW_BY_DAY = [
    Kind("java-4.3", "uniform", CONSUMER),
    Kind("confluent-kafka", "uniform", CONSUMER),
]
NEW_BY_NIGHT = [
    Kind("java-4.3", "range", CONSUMER),
    Kind("confluent-kafka", "range", CONSUMER),
]
ALL_KINDS_TOGETHER = [
    Kind("java-3.9", "range"),
    Kind("confluent-kafka", "range"),
    Kind("aiokafka", "range"),
    Kind("kafka-python", "range"),
    Kind("java-4.3", "range"),
]


def come_and_go(group: Group) -> None:
    """Three members at once; one more; one leaves; one is killed."""
    for _ in range(3):
        group.join()
    group.wait_until_shared()
    group.join()
    group.wait_until_shared()
    group.leave(group.members[0])
    group.wait_until_shared()
    group.kill(group.members[1])
    group.wait_until_shared()
    group.finish()


@pytest.mark.parametrize("kind", BY_DAY + BY_NIGHT * NIGHTLY, ids=str)
def test_members_come_and_go_and_every_record_has_one_reader(
    broker: TransactionBroker, kind: Kind, tmp_path: pathlib.Path
) -> None:
    with group_of(broker, tmp_path, kind) as group:
        come_and_go(group)


@pytest.mark.usefixtures("new_protocol")
@pytest.mark.parametrize("kind", NEW_BY_DAY + NEW_BY_NIGHT * NIGHTLY, ids=str)
def test_members_of_the_new_protocol_come_and_go_and_every_record_has_one_reader(
    broker: TransactionBroker, kind: Kind, tmp_path: pathlib.Path
) -> None:
    with group_of(broker, tmp_path, kind) as group:
        come_and_go(group)


def test_members_of_all_libraries_share_one_group(broker: TransactionBroker, tmp_path: pathlib.Path) -> None:
    with group_of(broker, tmp_path, ALL_KINDS_TOGETHER[0]) as group:
        for kind in ALL_KINDS_TOGETHER:
            group.join(kind)
        group.wait_until_shared()
        for _ in range(2):
            group.leave(group.members[0])
            group.wait_until_shared()
        group.finish()
