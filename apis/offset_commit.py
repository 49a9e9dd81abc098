"""OffsetCommit (key 8, versions 0 to 10).

Version 0 stores in ZooKeeper where the broker has one, else it is served like the others. From version 10 on
topics have ids instead of names. This module checks whether topic ids are known, then whether the client may
read the topics, then whether partitions exist; the group's coordinator checks the rest.

Source: KafkaApis.handleOffsetCommitRequest of Kafka 4.3.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from odradek.apis.access import each, on_topics, the_group
from odradek.apis.api import Waiting
from odradek.apis.coordinators import asked_by, client_of
from odradek.apis.declaration import Api
from odradek.apis.prefixes import Prefix, Submit
from odradek.apis.refusals import Refusal, each_partition
from odradek.apis.refused_topics import CheckedTopics
from odradek.coordinator.asked import Asked, Ticket
from odradek.wire.acl_types import Operation, ResourceType
from odradek.wire.errors import ErrorCode
from odradek.wire.frames import response_parts
from odradek.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from odradek.wire.prefixes import item_fields

if TYPE_CHECKING:
    from collections.abc import Callable

    from odradek.apis.api import RequestContext
    from odradek.apis.coordinators import Groups, OldestGroups
    from odradek.apis.leadership import Leadership
    from odradek.apis.node import ApiParts
    from odradek.coordinator.cluster.view import (
        ClusterView,
        TopicView,
    )

_UNTIL = "topics", "partitions"
FIRST_VERSION_WITH_IDS = 10
REPEATED_VERSIONS = range(2, 11)
"""Versions whose requests are remembered; version 1 has timestamps in each partition."""


class OffsetCommit:
    """The handler. A request with only unknown partitions does not reach the group's coordinator."""

    def __init__(
        self, leadership: Leadership, groups: Groups, oldest_groups: OldestGroups | None = None
    ) -> None:
        self._leadership = leadership
        self._groups = groups
        self._oldest_groups = oldest_groups

    @property
    def prefix(self) -> Prefix[OffsetCommitRequest]:
        """A consumer commits in one topic, with the same group, generation, member and topic each time."""
        return Prefix(REPEATED_VERSIONS, self._learn, _UNTIL)

    def _learn(self, request: OffsetCommitRequest, context: RequestContext) -> Submit | None:
        version, requested = context.api_version, request.topics[0]
        topic = _find(self._leadership.view, requested.name, requested.topic_id, version)
        if topic is None:
            return None
        commits = _RepeatedCommits(self._groups, request, topic, context)
        fields = item_fields(OffsetCommitRequest, version, _UNTIL)
        places = tuple(_RepeatedPartition._fields.index(name) for name in fields)
        return Submit(commits.submit, commits.respond, _RepeatedPartition(0, 0), places)

    def __call__(
        self, request: OffsetCommitRequest, context: RequestContext
    ) -> OffsetCommitResponse | Waiting:
        version = context.api_version
        view = self._leadership.view

        def find(topic: OffsetCommitRequestTopic) -> TopicView | ErrorCode:
            if context.refused and context.refuses(
                Operation.READ, ResourceType.TOPIC, topic.name or topic.topic_id
            ):
                return ErrorCode.TOPIC_AUTHORIZATION_FAILED
            found = _find(view, topic.name, topic.topic_id, version)
            if found is None:
                has_ids = version >= FIRST_VERSION_WITH_IDS
                return ErrorCode.UNKNOWN_TOPIC_ID if has_ids else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            topic.name, topic.topic_id = found.name, found.topic_id
            return found

        checked = CheckedTopics(request.topics, find, _topic_result, OffsetCommitResponsePartition)
        if not checked.known:
            return cast(OffsetCommitResponse, checked.with_refused(OffsetCommitResponse(topics=[])))
        waiting = Waiting()
        known = replace(request, topics=checked.known)
        asked = asked_by(
            client_of(context),
            API.refuse,
            known,
            lambda response: waiting.complete(checked.with_refused(response)),
        )
        groups = (self._oldest_groups if version == 0 else None) or self._groups()
        groups.submit(request.group_id, asked)
        return waiting


class _RepeatedPartition(NamedTuple):
    """In place of an `OffsetCommitRequestPartition`."""

    partition_index: int
    committed_offset: int
    committed_leader_epoch: int = -1
    commit_timestamp: int = -1
    committed_metadata: str = ""


class _RepeatedTicket(Ticket[OffsetCommitResponse]):
    """Without a function for the refusal, which hardly any commit needs."""

    __slots__ = ("_commits", "_items")

    def __init__(
        self, take: Callable[[OffsetCommitResponse], object], commits: _RepeatedCommits, items: list[Any]
    ) -> None:
        self.take, self._commits, self._items = take, commits, items

    def refused(self, code: ErrorCode) -> OffsetCommitResponse:
        return self._commits.refused(self._items, code)


class _RepeatedCommits:
    """Commits of one member in one topic, with different partitions and offsets."""

    __slots__ = ("_answered", "_client", "_frame", "_granted", "_partition_count", "_request", "_submit")

    def __init__(
        self, groups: Groups, request: OffsetCommitRequest, topic: TopicView, context: RequestContext
    ) -> None:
        self._submit = groups().submitter(request.group_id)
        named = OffsetCommitRequestTopic(name=topic.name, topic_id=topic.topic_id, partitions=[])
        self._request = replace(request, topics=[named])
        self._client = client_of(context)
        self._partition_count = len(topic.partitions)
        self._answered: list[int] = []
        """The partitions of `_granted`."""
        self._granted: OffsetCommitResponse | None = None
        """The newest response without an error; `_frame` is its frame."""
        self._frame = b""

    def submit(self, items: list[Any], ticket: Callable[[Any], None]) -> bool:
        """False if a partition does not exist."""
        partition_count, request = self._partition_count, self._request
        partitions = [item.partition_index for item in items]
        for index in partitions:
            if not 0 <= index < partition_count:
                return False
        request.topics[0].partitions = items
        granted = self._granted if partitions == self._answered else None
        self._submit(Asked(request, self._client, _RepeatedTicket(ticket, self, items), granted))
        return True

    def refused(self, items: list[Any], code: ErrorCode) -> OffsetCommitResponse:
        self._request.topics[0].partitions = items
        return cast(OffsetCommitResponse, API.refuse(self._request, self._client.version, code))

    def respond(self, items: list[Any], response: OffsetCommitResponse) -> bytes | OffsetCommitResponse:
        if response is not self._granted:
            answered = response.topics[0].partitions
            if any(one.error_code for one in answered):
                return response
            self._answered = [one.partition_index for one in answered]
            self._granted = response
            self._frame = b"".join(response_parts(response, self._client.version, 0))
        return self._frame


def _topic_result(
    topic: OffsetCommitRequestTopic, partitions: list[OffsetCommitResponsePartition]
) -> OffsetCommitResponseTopic:
    return OffsetCommitResponseTopic(name=topic.name, topic_id=topic.topic_id, partitions=partitions)


def _find(view: ClusterView, name: str, topic_id: bytes, version: int) -> TopicView | None:
    return view.topic_by_id(topic_id) if version >= FIRST_VERSION_WITH_IDS else view.topics.get(name)


def _make(parts: ApiParts) -> OffsetCommit:
    node = parts.node
    return OffsetCommit(node.leadership, node.groups, node.oldest_groups)


API = Api(
    OffsetCommitRequest,
    OffsetCommitResponse,
    make=_make,
    needs=(
        the_group(Operation.READ),
        on_topics(Operation.READ, each("topics", "name", "topic_id")),
    ),
    # The coordinator decides in the order of the requests, by a state that has the effects of those before;
    # their records are appended in that order and committed together.
    overlaps=(OffsetCommitRequest,),
    refusal=Refusal(
        results=(
            "topics",
            each_partition(
                "topics", "partitions", "partition_index", copied={"name": "name", "topic_id": "topic_id"}
            ),
        )
    ),
)
