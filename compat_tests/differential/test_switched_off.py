"""What is looked at before the coordinator: whether the protocol is switched on, and what is wrong with a
request in itself. Asked before there is a coordinator of groups, and after.
"""

# ruff: noqa: B023  (every function is called in the round of the loop that makes it)

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from compat_tests import reference
from compat_tests.differential.harness import Pair, Side
from compat_tests.differential.members import settle_coordinator
from compat_tests.differential.pairs import pair_of
from compat_tests.differential.test_check_order import (
    CASES,
    PRODUCER,
    World,
    combinations,
    seen,
    versions_of,
)
from compat_tests.differential.test_transactions import begun
from compat_tests.differential.topics import new_topic
from odradek.wire.errors import ErrorCode
from odradek.wire.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from odradek.wire.messages.delete_groups import DeleteGroupsRequest
from odradek.wire.messages.describe_groups import DescribeGroupsRequest
from odradek.wire.messages.list_groups import ListGroupsRequest
from odradek.wire.messages.streams_group_describe import StreamsGroupDescribeRequest
from odradek.wire.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest

ONLY_CLASSIC = {"group.coordinator.rebalance.protocols": "classic"}
SETTINGS = {"offsets.topic.num.partitions": "1", "transaction.state.log.num.partitions": "1"}
GROUP = "nobodys"
SAFE_DOWNGRADE = 2
FEATURES = ("group.version", "streams.version")


@pytest.fixture
def pair() -> Iterator[Pair]:
    with pair_of(reference.CURRENT, SETTINGS) as pair:
        yield pair


@pytest.fixture
def pair_of_classics() -> Iterator[Pair]:
    with pair_of(reference.CURRENT, {**SETTINGS, **ONLY_CLASSIC}) as pair:
        yield pair


def ask_everything(pair: Pair, note: str, *, names: Iterator[str] | list[str] | None = None) -> set[int]:
    """Every fault and every two, and what tells of several groups. The codes of refusals at the top."""
    topic = new_topic(pair, "switched", 2)
    world = World(GROUP, topic, "m1", 1, None)
    codes = set()
    for name in CASES if names is None else names:
        case = CASES[name]
        for version in versions_of(pair, name, type(case.build(world, pair.kafka, 3))):
            for combination in combinations(case.faults, version, no_group):

                def build(side: Side) -> Any:
                    message = case.build(world, side, version)
                    for one in combination:
                        one.put(message)
                    return message

                what = f"{note}: {', '.join(map(str, combination))}"
                theirs, _ = pair.ask(build, version, what, see=seen)
                codes.add(getattr(theirs, "error_code", None))
    return codes


def no_group(pair: Pair, topic: str) -> World:
    """As `test_check_order.absent`."""
    raise NotImplementedError


def describe(pair: Pair, note: str) -> set[int]:
    codes = set()
    for groups in ([GROUP], ["", GROUP, GROUP], []):
        for request in (
            ConsumerGroupDescribeRequest(group_ids=groups, include_authorized_operations=True),
            StreamsGroupDescribeRequest(group_ids=groups, include_authorized_operations=True),
        ):
            for version in pair.versions(type(request)):
                theirs, _ = pair.ask(lambda _: request, version, f"{note}: {groups}")
                codes.update(one.error_code for one in theirs.groups)
    return codes


HEARTBEATS = [name for name in CASES if name.startswith(("ConsumerGroup", "StreamsGroup"))]


def test_requests_without_a_coordinator_are_refused_alike(pair: Pair) -> None:
    begun(pair, PRODUCER, settle=None)
    assert ErrorCode.NOT_COORDINATOR in ask_everything(pair, "no coordinator")
    describe(pair, "no coordinator")
    for request in (
        DescribeGroupsRequest(groups=["", GROUP]),
        DeleteGroupsRequest(groups_names=["", GROUP]),
        ListGroupsRequest(),
    ):
        for version in pair.versions(type(request)):
            pair.ask(lambda _: request, version, "no coordinator")


def test_protocols_that_are_not_in_the_setting_are_refused_alike(pair_of_classics: Pair) -> None:
    pair = pair_of_classics
    for note in ("before there is a coordinator", "when there is one"):
        assert ask_everything(pair, note, names=HEARTBEATS) == {ErrorCode.UNSUPPORTED_VERSION}
        assert describe(pair, note) == {ErrorCode.UNSUPPORTED_VERSION}
        settle_coordinator(pair)


def test_protocols_whose_feature_is_at_level_0_are_refused_alike(pair: Pair) -> None:
    down = [
        FeatureUpdateKey(feature=name, max_version_level=0, upgrade_type=SAFE_DOWNGRADE) for name in FEATURES
    ]
    request = UpdateFeaturesRequest(timeout_ms=30_000, feature_updates=down)
    pair.ask(lambda _: request, 2, "switched off")
    describe_one = ConsumerGroupDescribeRequest(group_ids=[GROUP])
    pair.ask(
        lambda _: describe_one,
        1,
        "is off",
        settle=lambda answer: answer.groups[0].error_code == ErrorCode.UNSUPPORTED_VERSION,
    )
    for note in ("before there is a coordinator", "when there is one"):
        assert ask_everything(pair, note, names=HEARTBEATS) == {ErrorCode.UNSUPPORTED_VERSION}
        assert describe(pair, note) == {ErrorCode.UNSUPPORTED_VERSION}
        settle_coordinator(pair)
