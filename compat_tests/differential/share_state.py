"""Requests for the states of share partitions. `of` is a topic by its name, or an id."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

from compat_tests.differential.harness import SECONDS, Pauses, Side
from compat_tests.differential.topics import id_of
from odradek.wire.messages import (
    delete_share_group_state,
    initialize_share_group_state,
    read_share_group_state,
    read_share_group_state_summary,
    write_share_group_state,
)
from odradek.wire.messages.find_coordinator import FindCoordinatorRequest
from odradek.wire.messages.initialize_share_group_state import InitializeShareGroupStateRequest
from odradek.wire.schema import Message, uuid_to_text

SHARE = 2
Batch = tuple[int, int, int, int]
"""First and last offset, state, count."""

__all__ = [
    "SHARE",
    "InitializeShareGroupStateRequest",
    "delete",
    "initialize",
    "read",
    "summarize",
    "wait_for_coordinator",
    "write",
]


def wait_for_coordinator(side: Side, topic: str) -> None:
    """Returns when the share partitions of the topic have a coordinator that answers."""
    keys = [f"g:{uuid_to_text(id_of(side, topic))}:0"]
    find = FindCoordinatorRequest(coordinator_keys=keys, key_type=SHARE)
    _wait_for(side, find, 6, lambda found: found.coordinators[0].error_code == 0)
    # Until its log is loaded.
    asked = summarize(side, topic, "nobody", 0)
    _wait_for(side, asked, 1, lambda found: found.results[0].partitions[0].error_code == 0)


def _wait_for(side: Side, request: Message, version: int, is_there: Callable[[Any], bool]) -> None:
    deadline = time.monotonic() + SECONDS
    pause = Pauses()
    while not is_there(answer := side.ask(request, version)):
        assert time.monotonic() < deadline, (side.name, answer)
        pause()


def _id(side: Side, of: str | bytes) -> bytes:
    return of if isinstance(of, bytes) else id_of(side, of)


def initialize(side: Side, of: str | bytes, group: str, *partitions: int, state=0, start=-1) -> Message:
    module = initialize_share_group_state
    named = [
        module.PartitionData(partition=index, state_epoch=state, start_offset=start) for index in partitions
    ]
    topics = [module.InitializeStateData(topic_id=_id(side, of), partitions=named)]
    return module.InitializeShareGroupStateRequest(group_id=group, topics=topics)


def read(side: Side, of: str | bytes, group: str, *partitions: int, leader=0) -> Message:
    module = read_share_group_state
    named = [module.PartitionData(partition=index, leader_epoch=leader) for index in partitions]
    topics = [module.ReadStateData(topic_id=_id(side, of), partitions=named)]
    return module.ReadShareGroupStateRequest(group_id=group, topics=topics)


def write(
    side: Side,
    of: str | bytes,
    group: str,
    *partitions: int,
    state=0,
    leader=0,
    start=-1,
    done=-1,
    batches: Sequence[Batch] = (),
) -> Message:
    module = write_share_group_state
    named = [
        module.PartitionData(
            partition=index,
            state_epoch=state,
            leader_epoch=leader,
            start_offset=start,
            delivery_complete_count=done,
            state_batches=[
                module.StateBatch(
                    first_offset=first, last_offset=last, delivery_state=what, delivery_count=count
                )
                for first, last, what, count in batches
            ],
        )
        for index in partitions
    ]
    topics = [module.WriteStateData(topic_id=_id(side, of), partitions=named)]
    return module.WriteShareGroupStateRequest(group_id=group, topics=topics)


def delete(side: Side, of: str | bytes, group: str, *partitions: int) -> Message:
    module = delete_share_group_state
    named = [module.PartitionData(partition=index) for index in partitions]
    topics = [module.DeleteStateData(topic_id=_id(side, of), partitions=named)]
    return module.DeleteShareGroupStateRequest(group_id=group, topics=topics)


def summarize(side: Side, of: str | bytes, group: str, *partitions: int) -> Message:
    module = read_share_group_state_summary
    named = [module.PartitionData(partition=index, leader_epoch=0) for index in partitions]
    topics = [module.ReadStateSummaryData(topic_id=_id(side, of), partitions=named)]
    return module.ReadShareGroupStateSummaryRequest(group_id=group, topics=topics)
