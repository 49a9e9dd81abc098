"""Groups of both protocols share their topics out, whatever happens to members, coordinator, topics and network;
and the simulation that says so finds the bugs that are planted in the coordinator."""

import pytest

from tests.coordinator.group_world import (
    AlikeConsumer,
    ClassicConsumer,
    Consumer,
    CooperativeConsumer,
    RangeConsumer,
    World,
)


def groups_of(size: int) -> dict[str, list[type]]:
    return {
        "alike": [AlikeConsumer] * size,
        "mixed": [Consumer, Consumer, RangeConsumer] * (size // 3),
        "eager": [ClassicConsumer] * (size // 3),
        "cooperative": [CooperativeConsumer] * (size // 3),
        "upgraded": [AlikeConsumer, ClassicConsumer] * (size // 6),
        "migrating": [AlikeConsumer, CooperativeConsumer, CooperativeConsumer],
    }


def check(seed: int, size: int, milliseconds: int) -> None:
    world = World(seed, groups_of(size)).play(milliseconds)
    assert world.judge() == []
    assert world.crashes > 1
    assert len({epoch for _, _, epoch in world.owners}) > 10


@pytest.mark.parametrize("seed", range(2))
def test_no_partition_has_two_owners_and_a_quiet_group_converges(seed):
    check(seed, 18, 40_000)


@pytest.mark.deep
@pytest.mark.parametrize("seed", range(100, 120))
def test_the_same_with_hundreds_of_members(seed):
    check(seed, 90, 90_000)
