"""Streams groups share their tasks out, whatever happens to threads, coordinator, topics and network; and the
simulation that says so finds the bugs that are planted in the coordinator."""

from dataclasses import replace

import pytest

from odradek.coordinator.streams import membership as streams_membership
from odradek.coordinator.streams import reconciliation as streams_reconciliation
from odradek.coordinator.streams.group import StreamsGroup
from odradek.coordinator.streams.reconciliation import MemberTasks, TaskOwners
from tests.coordinator.streams_world import StreamsWorld
from tests.tiers import NIGHTLY


def check(seed: int, size: int, milliseconds: int) -> None:
    """With `size` threads in all three groups together."""
    world = StreamsWorld(seed, dict.fromkeys(("plain", "counts", "words"), size // 3))
    world.play(milliseconds)
    assert world.judge() == []
    assert world.crashes > 1
    assert len({epoch for _, _, epoch in world.owners}) > 10


@pytest.mark.parametrize("seed", range(3))
def test_no_task_has_two_owners_and_a_quiet_group_converges(seed):
    check(seed, 24, 30_000)


@pytest.mark.deep
@pytest.mark.parametrize("seed", range(100, 108 if NIGHTLY else 102))
def test_the_same_with_hundreds_of_threads(seed):
    check(seed, 240, 90_000)


# --- Planted bugs ---


def test_the_world_is_in_order_without_a_planted_bug():
    assert not found()


def found() -> bool:
    """Whether any of some worlds complains."""
    worlds = (
        StreamsWorld(seed, {"plain": 6, "counts": 8, "words": 6}, log_trouble=0.01, loss=0.1)
        for seed in range(200, 203)
    )
    return any(world.finds(25_000) for world in worlds)


def gives_away_what_is_not_given_up(patch) -> None:
    patch(streams_reconciliation, "_has_any", lambda owned, tasks: False)


def gives_what_others_still_run(patch) -> None:
    patch(TaskOwners, "blocks_active", lambda owners, task, process_id: False)


def gives_a_process_two_copies(patch) -> None:
    patch(TaskOwners, "blocks_copy", lambda owners, task, process_id: False)


def leaves_tasks_out(patch) -> None:
    def fewer(spec, assign=streams_membership.assign_tasks):
        targets = assign(spec)
        return targets | dict.fromkeys(list(targets)[:1], streams_membership.NO_TARGET)

    patch(streams_membership, "assign_tasks", fewer)


def believes_in_the_dead(patch) -> None:
    patch(streams_membership.StreamsMembership, "expire", lambda *arguments: None)


def starts_without_sessions(patch) -> None:
    patch(streams_membership.StreamsMembership, "start", lambda *arguments: None)


def does_not_see_topics_change(patch) -> None:
    patch(streams_membership.StreamsMembership, "topics_changed", lambda *arguments: None)


def forgets_in_the_log_what_is_to_be_given_up(patch) -> None:
    def without(tasks, as_value=StreamsGroup.records.current_value):
        return as_value(
            MemberTasks(tasks.member_epoch, tasks.previous_member_epoch, tasks.state, tasks.assigned)
        )

    patch(StreamsGroup, "records", replace(StreamsGroup.records, current_value=without))


@pytest.mark.parametrize(
    "bug",
    [
        gives_away_what_is_not_given_up,
        gives_what_others_still_run,
        gives_a_process_two_copies,
        leaves_tasks_out,
        believes_in_the_dead,
        starts_without_sessions,
        does_not_see_topics_change,
        forgets_in_the_log_what_is_to_be_given_up,
    ],
)
def test_a_planted_bug_is_found(bug, monkeypatch):
    bug(monkeypatch.setattr)
    assert found()
