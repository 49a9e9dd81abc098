"""Static members: a restart moves nothing, a second one of the same name drives the first one out."""

from __future__ import annotations

import pathlib
from collections.abc import Iterator

import pytest

from compat_tests.groups.log import GroupLog
from compat_tests.groups.members import CONSUMER, Group, Kind, Member, group_of
from compat_tests.kit.transaction_brokers import TransactionBroker, starting
from tests.tiers import NIGHTLY

NAMES = ["first", "second", "third"]
KINDS = [
    Kind("java-4.3", "range"),
    Kind("confluent-kafka", "range"),
    Kind("kafka-python", "range"),
    *([Kind("java-3.9", "cooperative-sticky"), Kind("confluent-kafka", "cooperative-sticky")] * NIGHTLY),
]
NEW_KINDS = [Kind("java-4.3", "uniform", CONSUMER), Kind("confluent-kafka", "uniform", CONSUMER)]

SESSION_MS = 45_000
"""Longer than a JVM takes to start, on a busy machine, too."""


@pytest.fixture(scope="module")
def patient_broker(is_odradek: bool) -> Iterator[TransactionBroker]:
    """One whose members of the new protocol have time, too."""
    with starting(is_odradek=is_odradek) as start:
        yield start({})


def last_state(group: Group) -> object:
    """Generation and assignment by name, as the broker has them in its log."""
    log = GroupLog(group.broker.direct, group.name, group.topic)
    return log.generations()[-1:]


def restart(group: Group, name: str, *, is_killed: bool) -> Member:
    """Ends the first member and starts it anew under its name."""
    member = group.members[0]
    if is_killed:
        group.kill(member)
    else:
        group.leave(member)
    return group.join(instance=name)


def restart_in_turn(group: Group, deaths: list[bool]) -> None:
    """One member after the other; each of `deaths` says whether it is killed or closed."""
    for name in NAMES:
        group.join(instance=name)
    group.wait_until_shared()
    state = last_state(group)
    names = list(NAMES)
    for is_killed in deaths:
        others = group.members[1:]
        before = {other.name: other.rebalances() for other in others}
        had, name = group.members[0].owned, names[0]
        again = restart(group, name, is_killed=is_killed)
        group.wait_until_shared()
        assert again.owned == had
        assert {other.name: other.rebalances() for other in others} == before
        assert last_state(group) == state
        names = [*names[1:], name]
    group.finish()


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_a_static_member_that_restarts_has_its_partitions_and_nobody_else_notices(
    patient_broker: TransactionBroker, kind: Kind, tmp_path: pathlib.Path
) -> None:
    with group_of(patient_broker, tmp_path, kind, session_ms=SESSION_MS) as group:
        restart_in_turn(group, [True, False])


@pytest.mark.usefixtures("new_protocol")
@pytest.mark.parametrize("kind", NEW_KINDS, ids=str)
def test_a_static_member_of_the_new_protocol_that_restarts_has_its_partitions(
    patient_broker: TransactionBroker, kind: Kind, tmp_path: pathlib.Path
) -> None:
    """It says that it leaves for a while; one that is killed has its name until its session ends."""
    with group_of(patient_broker, tmp_path, kind, session_ms=SESSION_MS) as group:
        restart_in_turn(group, [False, False])


@pytest.mark.usefixtures("new_protocol")
@pytest.mark.parametrize("kind", NEW_KINDS, ids=str)
def test_a_second_member_of_a_name_is_refused_by_the_new_protocol(
    patient_broker: TransactionBroker, kind: Kind, tmp_path: pathlib.Path
) -> None:
    with group_of(patient_broker, tmp_path, kind, session_ms=SESSION_MS) as group:
        for name in NAMES:
            group.join(instance=name)
        group.wait_until_shared()
        second = group.join(instance=NAMES[0])
        group.members.remove(second)
        group.wait(lambda: not second.is_running, f"{second.name} is refused")
        group.wait_until_shared()
        group.finish()


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_a_second_member_of_a_name_fences_the_first(
    patient_broker: TransactionBroker, kind: Kind, tmp_path: pathlib.Path
) -> None:
    with group_of(patient_broker, tmp_path, kind, session_ms=SESSION_MS) as group:
        for name in NAMES:
            group.join(instance=name)
        group.wait_until_shared()
        old = group.members.pop(0)
        had = old.owned
        new = group.join(instance=NAMES[0])
        group.wait(lambda: not old.is_running, f"{old.name} is fenced")
        assert "fenced" in old.complaints().lower()
        group.wait_until_shared()
        assert new.owned == had
