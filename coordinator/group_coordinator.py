"""Runs the group machines of this node: one for each partition of `__consumer_offsets` that it leads.

What is true of any machine is in `coordinator/runtime.py`; here is what only groups have: offsets in
transactions, a listing over all machines, and the offsets of topics that are deleted.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from functools import partial
from typing import Any

from odradek.coordinator.asked import NOBODY, Asked, Client, Ticket, kind_of
from odradek.coordinator.cluster.topics import OFFSETS_TOPIC
from odradek.coordinator.cluster.view import (
    ClusterView,
    TopicView,
)
from odradek.coordinator.effects import Effect, MatchTopics
from odradek.coordinator.group_machine import GroupMachine
from odradek.coordinator.group_types import GROUP_TYPES
from odradek.coordinator.groups.commands import EndOffsets, RemoveTopics, TopicsChanged, TopicsMatched
from odradek.coordinator.groups.group import Group
from odradek.coordinator.groups.group_type import GroupTypes
from odradek.coordinator.groups.settings import GroupConfig, GroupSettings
from odradek.coordinator.late_replies import CallLater
from odradek.coordinator.log import CoordinatorLog
from odradek.coordinator.runtime import EffectHandler, RunningPartition, Runtime
from odradek.coordinator.shares.groups.commands import (
    DeleteStates,
    InitializeStates,
    StatesDeleted,
    StatesInitialized,
)
from odradek.coordinator.shares.state.persister import (
    Persister,
    Results,
)
from odradek.coordinator.streams.descriptions import (
    DeleteDescription,
    DescriptionDeleted,
    DescriptionStored,
    Failure,
    StoreDescription,
    TopologyDescriptions,
)
from odradek.coordinator.streams.group import StreamsGroup
from odradek.wire.end_marker import EndMarker
from odradek.wire.errors import ErrorCode
from odradek.wire.messages.heartbeat import HeartbeatRequest
from odradek.wire.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from odradek.wire.messages.txn_offset_commit import TxnOffsetCommitRequest, TxnOffsetCommitResponse

NODE_ITSELF = Client("", "", 0)
MatchedTopics = Mapping[str, frozenset[str]] | None
"""Names of topics by regular expression; None: they could not be looked for."""


def _cannot_match(effect: MatchTopics, then: Callable[[MatchedTopics], None]) -> None:
    """Without groups that subscribe by regular expressions."""
    raise NotImplementedError


class _GroupPartition(RunningPartition[GroupMachine]):
    __slots__ = ("removed_topics",)

    def __init__(self, index: int, leader_epoch: int) -> None:
        super().__init__(index, leader_epoch)
        self.removed_topics: set[str] = set()
        """Deleted while loading."""


class GroupCoordinator(Runtime[GroupMachine]):
    """Every method is called on the event loop; see `Runtime` for the other arguments.

    `new_member_suffix` makes the random part of the id of a member of a classic group (a UUID in its text
    form), `new_member_id` a whole id for a member of a consumer group that has none. `match_topics` looks for
    the topics of the newest view that match, and calls back with them later, never from within its call.
    `persister` gives the one that keeps the states of share partitions.
    `types` are the types of groups that are served. `descriptions` keeps those of topologies, for the streams
    groups among them; None: nobody does.
    """

    partition_class = _GroupPartition

    def __init__(
        self,
        *,
        node_id: int,
        settings: GroupSettings,
        open_log: Callable[[int], CoordinatorLog | None],
        clock_ms: Callable[[], int],
        call_later: CallLater,
        new_member_suffix: Callable[[], str],
        new_member_id: Callable[[], str] | None = None,
        match_topics: Callable[[MatchTopics, Callable[[MatchedTopics], None]], None] = _cannot_match,
        persister: Callable[[], Persister],
        after_loading: Callable[[], object] | None = None,
        types: GroupTypes = GROUP_TYPES,
        descriptions: TopologyDescriptions | None = None,
    ) -> None:
        super().__init__(
            node_id=node_id,
            topic=OFFSETS_TOPIC,
            partition_count=settings.offsets_topic_num_partitions,
            open_log=open_log,
            clock_ms=clock_ms,
            call_later=call_later,
            after_loading=after_loading,
            patience_ms=lambda: settings.offsets_commit_timeout_ms,
        )
        self._settings = settings
        self._types = types
        self._new_member_suffix = new_member_suffix
        self._new_member_id = new_member_id
        self._find_matches = match_topics
        self._made_persister = persister
        self.descriptions = descriptions
        self._view = ClusterView()

    # For the server

    def view_changed(self, view: ClusterView) -> None:
        """Load the partitions that this node leads now, give up the others. Call with each new view."""
        before, self._view = self._view, view
        super().view_changed(view)
        names = changed_topics(before, view)
        if names:
            for partition in self._partitions.values():
                # One that is loaded later looks at its topics then.
                if partition.machine is not None:
                    self._run_command(partition, TopicsChanged(names))

    def remove_topics(self, names: Collection[str]) -> None:
        """Remove the offsets of topics that have been deleted."""
        for partition in self._partitions.values():
            if partition.machine is None:
                assert isinstance(partition, _GroupPartition)
                partition.removed_topics.update(names)
            else:
                self._remove_topics(partition, dict.fromkeys(names))

    # For the handlers

    def config_of(self, group_id: str) -> GroupConfig:
        """The settings of a group, whether there is one or not."""
        return self._settings.of_group(group_id)

    def ask(self, group_id: str, command: Any) -> Any:
        """The response, if it is ready and the request has no other effect; not to be changed. None, and
        nothing done, where the request has to be submitted."""
        partition = self._partitions.get(self.partition_of(group_id))
        if partition is None or partition.machine is None or partition.held:
            return None
        try:
            return partition.machine.ask(command, self._clock_ms())
        except Exception:
            # The same error comes again in `submit`, which handles it.
            return None

    def commit_in_transaction(
        self, asked: Asked[TxnOffsetCommitRequest, TxnOffsetCommitResponse], verified: Any = None
    ) -> None:
        """Commit offsets with a transaction. `verified` is the result of its verification, for the log.

        Besides the group's own refusals: those of the log (INVALID_PRODUCER_EPOCH, INVALID_TXN_STATE).
        """
        request = asked.request
        producer = request.producer_id, request.producer_epoch
        self._submit_checked(
            self._partitions.get(self.partition_of(request.group_id)),
            asked,
            lambda log: log.check_producer(producer, verified),
        )

    def end_offsets(self, index: int, marker: EndMarker, then: Callable[[ErrorCode], None]) -> None:
        """Write a marker to a partition of `__consumer_offsets`, and let what the transaction has committed
        there count or forget it. `then` is called once: perhaps before this returns.

        INVALID_PRODUCER_EPOCH, TRANSACTION_COORDINATOR_FENCED.
        """
        command = EndOffsets(marker, ticket=Ticket(then, lambda code: code))
        self._submit_checked(self._partitions.get(index), command, lambda log: log.check_marker(marker))

    def list_groups(self, request: ListGroupsRequest) -> ListGroupsResponse:
        """The groups of all machines of this node; COORDINATOR_LOAD_IN_PROGRESS while one is not ready."""
        responses = self._handle_in_all(Asked(request, NODE_ITSELF, NOBODY))
        if responses is None:
            return ListGroupsResponse(error_code=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        groups = [group for response in responses for group in response.groups]
        return ListGroupsResponse(error_code=ErrorCode.NONE, groups=groups)

    @property
    def serves_consumer_groups(self) -> bool:
        """Whether ConsumerGroupHeartbeat and ConsumerGroupDescribe are served: checked before all else."""
        return self._settings.serves_consumer_groups

    @property
    def serves_streams_groups(self) -> bool:
        """Whether StreamsGroupHeartbeat and StreamsGroupDescribe are served, as `serves_consumer_groups`."""
        return self._settings.serves_streams_groups

    @property
    def keeps_descriptions(self) -> bool:
        """Whether descriptions of topologies are kept."""
        return self.descriptions is not None

    @property
    def serves_share_groups(self) -> bool:
        """Whether the APIs of share groups are served, as `serves_consumer_groups`."""
        return self._settings.serves_share_groups

    @property
    def serves_dead_letters(self) -> bool:
        """Whether share groups may have dead letter queues."""
        return self._settings.serves_dead_letters

    @property
    def persister(self) -> Persister:
        """Store of the states of share partitions."""
        return self._made_persister()

    # For the runtime

    def _effect_handlers(self) -> dict[type[Effect], EffectHandler]:
        return {
            **super()._effect_handlers(),
            MatchTopics: self._match_topics,
            InitializeStates: self._initialize_states,
            DeleteStates: self._delete_states,
            StoreDescription: self._store_description,
            DeleteDescription: self._delete_description,
        }

    def _refusal(self, command: Any, code: ErrorCode) -> Any:
        refusal = self._types.check(command, self._settings)
        if refusal is not None:
            return refusal
        if kind_of(command) is HeartbeatRequest and code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
            # While the group is being loaded no member can rejoin: the heartbeat succeeds, as in Kafka.
            code = ErrorCode.NONE
        return command.ticket.refused(code)

    def _new_machine(self, partition: RunningPartition[GroupMachine]) -> GroupMachine:
        return GroupMachine(
            self._settings, self._new_member_suffix, lambda: self._view, self._new_member_id, self._types
        )

    def _machine_loaded(self, partition: RunningPartition[GroupMachine]) -> None:
        assert isinstance(partition, _GroupPartition)
        assert partition.machine is not None
        # Also of topics that were deleted just before a crash, and perhaps created again, before their
        # tombstones were on the disk.
        topics = self._view.topics
        ids = {
            name: topics[name].topic_id if name in topics and name not in partition.removed_topics else None
            for name in partition.machine.topics()
        }
        partition.removed_topics = set()
        self._remove_topics(partition, ids)
        self._drop_descriptions(partition)

    def _match_topics(self, partition: RunningPartition[GroupMachine], effect: MatchTopics) -> None:
        machine = partition.machine

        def matched(topics: MatchedTopics) -> None:
            # Only for the machine that searched.
            if machine is not None and partition.machine is machine:
                command = TopicsMatched(effect.group_id, effect.version, topics)
                self._submit_to(partition, command)

        self._find_matches(effect, matched)

    def _initialize_states(self, partition: RunningPartition[GroupMachine], effect: InitializeStates) -> None:
        self.persister.initialize(effect.states, partial(self._answered, effect.command))

    def _delete_states(self, partition: RunningPartition[GroupMachine], effect: DeleteStates) -> None:
        self.persister.delete(effect.partitions, partial(self._answered, effect.command))

    def _answered(self, command: StatesInitialized | StatesDeleted, results: Results) -> None:
        """The share coordinator has answered, perhaps at once. The machine may be another one by now."""
        command.results = results
        self._call_later(0, partial(self.submit, command.group_id, command))

    def _store_description(self, partition: RunningPartition[GroupMachine], effect: StoreDescription) -> None:
        descriptions, command = self.descriptions, effect.command
        assert descriptions is not None
        if not descriptions.has_room():
            # Those of groups that other nodes have taken over are of no use.
            others = [one for one in descriptions if self.partition_of(one) not in self._partitions]
            descriptions.drop(others, _ignore)
        then = partial(self._description_changed, command)
        descriptions.put(command.group_id, command.topology_epoch, effect.description, then)

    def _delete_description(
        self, partition: RunningPartition[GroupMachine], effect: DeleteDescription
    ) -> None:
        assert self.descriptions is not None
        self.descriptions.delete(effect.command.group_id, partial(self._description_changed, effect.command))

    def _description_changed(
        self, command: DescriptionStored | DescriptionDeleted, failure: Failure | None
    ) -> None:
        """The store has done it, perhaps at once, or has not. The machine may be another one by now."""
        command.failure = failure
        self._call_later(0, partial(self.submit, command.group_id, command))

    def _drop_descriptions(self, partition: RunningPartition[GroupMachine]) -> None:
        """Drop those of groups that were deleted just before a crash, or by another coordinator."""
        descriptions, machine = self.descriptions, partition.machine
        if not descriptions or machine is None:
            return
        index, groups = partition.index, machine.groups
        gone = [one for one in descriptions if self.partition_of(one) == index and not _may_have(groups, one)]
        descriptions.drop(gone, _ignore)

    def _remove_topics(
        self, partition: RunningPartition[GroupMachine], topics: Mapping[str, bytes | None]
    ) -> None:
        if topics:
            self._run_command(partition, RemoveTopics(topics))

    def _run_command(
        self, partition: RunningPartition[GroupMachine], command: RemoveTopics | TopicsChanged
    ) -> None:
        assert partition.machine is not None
        self._run(partition, partition.machine.handle(command, self._clock_ms()))


def _ignore(failure: Failure | None) -> None:
    """Leave it: what is left over is dropped another time."""


def _may_have(groups: Mapping[str, Group], group_id: str) -> bool:
    group = groups.get(group_id)
    return isinstance(group, StreamsGroup) and group.has_description


def changed_topics(before: ClusterView, after: ClusterView) -> frozenset[str]:
    """The created, deleted and grown topics."""
    old, new = before.topics, after.topics
    if old is new:
        return frozenset()
    names = [
        name
        for name, topic in new.items()
        if (known := old.get(name)) is not topic and _shape(known) != _shape(topic)
    ]
    names += [name for name in old if name not in new]
    return frozenset(names)


def _shape(topic: TopicView | None) -> tuple[bytes, int] | None:
    return None if topic is None else (topic.topic_id, len(topic.partitions))
