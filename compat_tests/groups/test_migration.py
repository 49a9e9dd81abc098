"""A running Java group goes from the classic protocol to the consumer protocol, member by member, and back.

Each step of a rolling upgrade or downgrade stops one member and starts another in its place, while records
are produced and consumed all the time. At the end no record may be lost, and none may have been delivered to
two members that had its partition at one time.
"""

from __future__ import annotations

import pathlib

import pytest

from compat_tests.groups.members import CLASSIC, CONSUMER, Group, Kind, group_of
from compat_tests.kit.transaction_brokers import TransactionBroker
from tests.tiers import NIGHTLY

CLASSIC_KINDS = [
    Kind("java-4.3", "range"),
    Kind("java-4.3", "cooperative-sticky"),
    *([Kind("java-3.9", "range"), Kind("confluent-kafka", "range")] * NIGHTLY),
]
NEW_KIND = Kind("java-4.3", "uniform", CONSUMER)
NAMES = ["first", "second"]

pytestmark = pytest.mark.usefixtures("new_protocol")


def exchange(group: Group, kind: Kind, instance: str | None = None) -> None:
    """Stops the member that is there longest, and starts one of this kind in its place."""
    group.leave(group.members[0])
    group.join(kind, instance)
    group.wait_until_shared()


@pytest.mark.parametrize("kind", CLASSIC_KINDS, ids=str)
def test_a_rolling_upgrade_and_downgrade_lose_and_repeat_nothing(
    broker: TransactionBroker, kind: Kind, tmp_path: pathlib.Path
) -> None:
    with group_of(broker, tmp_path, kind) as group:
        for _ in range(2):
            group.join()
        group.wait_until_shared()
        for next_kind in (NEW_KIND, NEW_KIND, kind, kind):
            exchange(group, next_kind)
        assert {member.kind.protocol for member in group.members} == {CLASSIC}
        group.finish()


def test_a_group_whose_assignor_has_data_of_its_own_is_not_upgraded(
    broker: TransactionBroker, tmp_path: pathlib.Path
) -> None:
    """librdkafka's cooperative-sticky has, once a member that had partitions is given some again (so the
    second joins after the first has its own). The group goes on as it was, and who joins is told why."""
    with group_of(broker, tmp_path, Kind("confluent-kafka", "cooperative-sticky")) as group:
        for _ in range(2):
            group.join()
            group.wait_until_shared()
        refused = group.join(NEW_KIND)
        group.members.remove(refused)
        group.wait(lambda: not refused.is_running, f"{refused.name} is refused")
        assert f"Cannot upgrade classic group {group.name} to consumer group because" in refused.complaints()
        group.finish()


def test_static_members_keep_their_names_across_protocols(
    broker: TransactionBroker, tmp_path: pathlib.Path
) -> None:
    classic = CLASSIC_KINDS[0]
    with group_of(broker, tmp_path, classic) as group:
        for name in NAMES:
            group.join(instance=name)
        group.wait_until_shared()
        for next_kind in (NEW_KIND, classic):
            for name in NAMES:
                exchange(group, next_kind, name)
        group.finish()


def test_a_member_of_the_new_protocol_that_is_killed_leaves_a_classic_group(
    broker: TransactionBroker, tmp_path: pathlib.Path
) -> None:
    with group_of(broker, tmp_path, CLASSIC_KINDS[0]) as group:
        group.join()
        group.wait_until_shared()
        newcomer = group.join(NEW_KIND)
        group.wait_until_shared()
        group.kill(newcomer)
        group.wait_until_shared()
        group.join()
        group.wait_until_shared()
        group.finish()
