"""Share groups on both sides, and their members: requests of the APIs that clients use, and groups that are
set up the same way."""

# ruff: noqa: B023  (every function is called in the round of the loop that makes it)

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from compat_tests.differential.harness import SECONDS, Pair, Pauses, Side
from compat_tests.differential.share_state import wait_for_coordinator
from compat_tests.differential.topics import id_of
from odradek.wire.messages import (
    alter_share_group_offsets,
    delete_share_group_offsets,
    describe_share_group_offsets,
    share_acknowledge,
    share_fetch,
)
from odradek.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from odradek.wire.messages.share_acknowledge import ShareAcknowledgeRequest
from odradek.wire.messages.share_fetch import ShareFetchRequest
from odradek.wire.messages.share_group_describe import ShareGroupDescribeRequest
from odradek.wire.messages.share_group_heartbeat import (
    ShareGroupHeartbeatRequest,
    ShareGroupHeartbeatResponse,
)
from odradek.wire.schema import Message

GAP, ACCEPT, RELEASE, REJECT, RENEW = range(5)
FINAL = -1
"""Epoch of the last request of a share session."""

GROUP_RESOURCE, SET = 32, 0
WAIT_MS = 5_000
"""For records that are there, or will be soon."""
SHORTEST_INTERVAL_MS = 5_000
"""That the broker allows between heartbeats."""
Place = tuple[str | bytes, int]
"""A topic by its name, or an id; and a partition."""
Acknowledged = tuple[int, int, Sequence[int]]
"""First and last offset, types."""
_numbers = itertools.count()


def new_group() -> str:
    return f"sharing-{next(_numbers)}"


def until(
    side: Side,
    build: Callable[[], Message],
    version: int,
    done: Callable[[Any], bool],
    connection: str = "main",
) -> Any:
    """Asks one side until an answer is as it should be."""
    deadline = time.monotonic() + SECONDS
    pause = Pauses()
    while not done(answer := side.ask(build(), version, connection)):
        assert time.monotonic() < deadline, (side.name, answer)
        pause()
    return answer


# Members


def heartbeat(
    group: str, member: str, epoch: int, topics: Iterable[str] | None = None, **more: Any
) -> ShareGroupHeartbeatRequest:
    names = None if topics is None else list(topics)
    return ShareGroupHeartbeatRequest(
        group_id=group, member_id=member, member_epoch=epoch, subscribed_topic_names=names, **more
    )


def without_partitions(side: Side, answer: Any) -> None:
    """Of more members than partitions, which ones a member has, and how many, goes by the hashes of ids.
    And Kafka keeps the names of topics in a hash table."""
    if isinstance(answer, ShareGroupHeartbeatResponse):
        answer.assignment = None
        return
    for group in answer.groups:
        for member in group.members:
            member.subscribed_topic_names.sort()
            member.assignment.topic_partitions = []


def beat(pair: Pair, request: ShareGroupHeartbeatRequest, note: str, **more: Any) -> int:
    """The epoch that the member is told."""
    return int(pair.ask(lambda _: request, 1, note, **more)[1].member_epoch)


def join(pair: Pair, group: str, member: str, *topics: str, partitions: int) -> int:
    """A member that has so many partitions at the end; its epoch. Not compared: how often it has to ask,
    since a share partition gets its state between two heartbeats."""
    epochs = []
    for side in pair.sides:
        request = heartbeat(group, member, 0, topics)
        had = 0

        def has_all(answer: Any) -> bool:
            nonlocal had, request
            assert answer.error_code == 0, (side.name, answer)
            if answer.assignment is not None:
                had = sum(len(one.partitions) for one in answer.assignment.topic_partitions)
            request = heartbeat(group, member, answer.member_epoch)
            return had == partitions

        answer = until(side, lambda: request, 1, has_all)
        epochs.append(answer.member_epoch)
    assert epochs[0] == epochs[1], epochs
    return int(epochs[0])


def describe(
    pair: Pair,
    *groups: str,
    note: str,
    operations: bool = False,
    see: Callable[[Side, Any], None] | None = None,
) -> None:
    request = ShareGroupDescribeRequest(group_ids=[*groups], include_authorized_operations=operations)
    for version in pair.versions(ShareGroupDescribeRequest):
        pair.ask(lambda _: request, version, note, see=see)


def set_group(pair: Pair, group: str, **settings: str) -> None:
    """Its settings, which its members know when this returns: coordinators take them up a little later."""
    interval_ms = SHORTEST_INTERVAL_MS + 1 + next(_numbers)
    values = {**settings, "heartbeat_interval_ms": str(interval_ms)}
    configs = [
        AlterableConfig(name=f"share.{name.replace('_', '.')}", config_operation=SET, value=value)
        for name, value in values.items()
    ]
    resource = AlterConfigsResource(resource_type=GROUP_RESOURCE, resource_name=group, configs=configs)
    pair.ask(lambda _: IncrementalAlterConfigsRequest(resources=[resource]), 1, f"settings of {group}")
    for side in pair.sides:
        request = heartbeat(group, "watcher", 0, ["none"])

        def has_interval(answer: Any) -> bool:
            assert answer.error_code == 0, (side.name, answer)
            return bool(answer.heartbeat_interval_ms == interval_ms)

        until(side, lambda: request, 1, has_interval)
        until(side, lambda: heartbeat(group, "watcher", -1), 1, lambda answer: answer.error_code == 0)


# Offsets


def describe_offsets_request(
    *groups: tuple[str, Mapping[str, Sequence[int]] | None],
) -> describe_share_group_offsets.DescribeShareGroupOffsetsRequest:
    """Of partitions of topics, or of all that have any."""
    module = describe_share_group_offsets
    asked = [
        module.DescribeShareGroupOffsetsRequestGroup(
            group_id=group,
            topics=None
            if topics is None
            else [
                module.DescribeShareGroupOffsetsRequestTopic(topic_name=name, partitions=[*partitions])
                for name, partitions in topics.items()
            ],
        )
        for group, topics in groups
    ]
    return module.DescribeShareGroupOffsetsRequest(groups=asked)


def describe_offsets(
    pair: Pair, *groups: tuple[str, Mapping[str, Sequence[int]] | None], note: str, **more: Any
) -> None:
    """In every version."""
    request = describe_offsets_request(*groups)
    for version in pair.versions(type(request)):
        pair.ask(lambda _: request, version, note, **more)


def alter_offsets(
    group: str, *topics: tuple[str, Mapping[int, int]]
) -> alter_share_group_offsets.AlterShareGroupOffsetsRequest:
    module = alter_share_group_offsets
    return module.AlterShareGroupOffsetsRequest(
        group_id=group,
        topics=[
            module.AlterShareGroupOffsetsRequestTopic(
                topic_name=name,
                partitions=[
                    module.AlterShareGroupOffsetsRequestPartition(partition_index=index, start_offset=start)
                    for index, start in starts.items()
                ],
            )
            for name, starts in topics
        ],
    )


def delete_offsets(group: str, *topics: str) -> delete_share_group_offsets.DeleteShareGroupOffsetsRequest:
    module = delete_share_group_offsets
    return module.DeleteShareGroupOffsetsRequest(
        group_id=group,
        topics=[module.DeleteShareGroupOffsetsRequestTopic(topic_name=name) for name in topics],
    )


# Records


def _topic_id(side: Side, topic: str | bytes) -> bytes:
    return topic if isinstance(topic, bytes) else id_of(side, topic)


def _by_topic(places: Iterable[Place]) -> dict[str | bytes, list[int]]:
    found: dict[str | bytes, list[int]] = {}
    for topic, index in places:
        found.setdefault(topic, []).append(index)
    return found


def fetch_request(
    side: Side,
    group: str | None,
    member: str | None,
    epoch: int,
    places: Sequence[Place] = (),
    *,
    acknowledged: Mapping[Place, Sequence[Acknowledged]] | None = None,
    forget: Sequence[Place] = (),
    **more: Any,
) -> ShareFetchRequest:
    told = acknowledged or {}
    fields = {"max_wait_ms": WAIT_MS, "min_bytes": 1, "max_bytes": 1 << 20}
    fields |= {"max_records": 500, "batch_size": 500}
    return ShareFetchRequest(
        group_id=group,
        member_id=member,
        share_session_epoch=epoch,
        topics=[
            share_fetch.FetchTopic(
                topic_id=_topic_id(side, topic),
                partitions=[
                    share_fetch.FetchPartition(
                        partition_index=index,
                        acknowledgement_batches=[
                            share_fetch.AcknowledgementBatch(
                                first_offset=first, last_offset=last, acknowledge_types=[*types]
                            )
                            for first, last, types in told.get((topic, index), ())
                        ],
                    )
                    for index in indexes
                ],
            )
            for topic, indexes in _by_topic(dict.fromkeys((*places, *told))).items()
        ],
        forgotten_topics_data=[
            share_fetch.ForgottenTopic(topic_id=_topic_id(side, topic), partitions=indexes)
            for topic, indexes in _by_topic(forget).items()
        ],
        **{**fields, **more},
    )


def acknowledge_request(
    side: Side,
    group: str | None,
    member: str | None,
    epoch: int,
    acknowledged: Mapping[Place, Sequence[Acknowledged]],
    *,
    renews: bool = False,
) -> ShareAcknowledgeRequest:
    return ShareAcknowledgeRequest(
        group_id=group,
        member_id=member,
        share_session_epoch=epoch,
        is_renew_ack=renews,
        topics=[
            share_acknowledge.AcknowledgeTopic(
                topic_id=_topic_id(side, topic),
                partitions=[
                    share_acknowledge.AcknowledgePartition(
                        partition_index=index,
                        acknowledgement_batches=[
                            share_acknowledge.AcknowledgementBatch(
                                first_offset=first, last_offset=last, acknowledge_types=[*types]
                            )
                            for first, last, types in acknowledged[topic, index]
                        ],
                    )
                    for index in indexes
                ],
            )
            for topic, indexes in _by_topic(acknowledged).items()
        ],
    )


class Member:
    """A member of a share group with a connection of its own; its share session goes on with each request."""

    def __init__(self, pair: Pair, group: str, member: str = "m") -> None:
        self._pair = pair
        self.group, self.member = group, member
        self.epoch = 0
        self.connection = f"{member} of {group}"

    def fetch(self, *places: Place, note: str = "", version: int = 2, **more: Any) -> list[Any]:
        """The answers of both. `settle`, `see` and `any_order` are for the pair, the rest is of the request;
        `epoch` is for a request that is out of order."""
        asked = {name: more.pop(name) for name in ("settle", "see", "any_order", "seconds") if name in more}
        epoch = more.pop("epoch", self.epoch)

        answers = self._pair.ask(
            lambda side: fetch_request(side, self.group, self.member, epoch, places, **more),
            version,
            note,
            connection=self.connection,
            **asked,
        )
        self._next(epoch, answers)
        return [*answers]

    def look(self, *places: Place, note: str = "", **more: Any) -> list[Any]:
        """As `fetch`, and does not wait for records."""
        return self.fetch(*places, note=note, max_wait_ms=0, min_bytes=0, **more)

    def poll(self, *places: Place, note: str, **more: Any) -> list[Any]:
        """As `fetch`, but asks each side as often as it needs to until there are records."""
        answers, epochs = [], []
        for side in self._pair.sides:
            numbers = itertools.count(self.epoch)
            answers.append(
                until(
                    side,
                    lambda: fetch_request(side, self.group, self.member, next(numbers), places, **more),
                    2,
                    _has_records,
                    self.connection,
                )
            )
            epochs.append(next(numbers))
        self._pair.compare(
            f"ShareFetch v2 ({note})",
            *(side.plain(answer, 2) for side, answer in zip(self._pair.sides, answers, strict=True)),
        )
        # Both sessions go on with the same number.
        self.epoch = max(epochs)
        for side, epoch in zip(self._pair.sides, epochs, strict=True):
            for number in range(epoch, self.epoch):
                request = acknowledge_request(side, self.group, self.member, number, {})
                assert side.ask(request, 2, self.connection).error_code == 0
        return answers

    def acknowledge(
        self,
        acknowledged: Mapping[Place, Sequence[Acknowledged]],
        note: str = "",
        *,
        version: int = 2,
        epoch: int | None = None,
        renews: bool = False,
    ) -> None:
        sent = self.epoch if epoch is None else epoch
        answers = self._pair.ask(
            lambda side: acknowledge_request(
                side, self.group, self.member, sent, acknowledged, renews=renews
            ),
            version,
            note,
            connection=self.connection,
        )
        self._next(sent, answers)

    def _next(self, epoch: int, answers: Sequence[Any]) -> None:
        if epoch == self.epoch and answers[0].error_code == 0:
            self.epoch = epoch + 1

    def close(self, note: str = "") -> None:
        """Gives back what it has."""
        self.acknowledge({}, note or f"{self.member} ends", epoch=FINAL)
        self.hang_up()

    def hang_up(self) -> None:
        for side in self._pair.sides:
            side.hang_up(self.connection)
        self.epoch = 0


def _has_records(answer: Any) -> bool:
    assert answer.error_code == 0, answer
    return any(one.acquired_records for topic in answer.responses for one in topic.partitions)


def readers(pair: Pair, topic: str, partitions: int = 1, **settings: str) -> str:
    """A group that reads the topic from its beginning on, with a state for each partition."""
    group = new_group()
    for side in pair.sides:
        wait_for_coordinator(side, topic)
    set_group(pair, group, **{"auto_offset_reset": "earliest", "assignment_interval_ms": "0", **settings})
    join(pair, group, "m", topic, partitions=partitions)
    return group
