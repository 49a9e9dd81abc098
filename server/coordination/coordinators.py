"""The coordinators of groups, of transactions and of share partitions: each is made when it is needed, since
many brokers use none.

Soon after a start the topics with their state are loaded even without a request, and from then on those that
come later: open transactions have to time out, and ending ones have to get their markers, also at a node that
takes them over and that no client has asked for anything.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from odradek.config.option_list import DESCRIPTIONS_IN_MEMORY
from odradek.coordinator.cluster.features import (
    GROUP_VERSION,
    SHARE_VERSION,
    STREAMS_VERSION,
    TRANSACTION_VERSION,
)
from odradek.coordinator.cluster.topics import OFFSETS_TOPIC, SHARE_STATE_TOPIC, TRANSACTIONS_TOPIC
from odradek.server.network.timers import steady_clock_ms
from odradek.wire.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from uuid import UUID

    from odradek.apis.leadership import Leadership
    from odradek.config.broker_config import BrokerConfig
    from odradek.config.live import LiveConfig
    from odradek.coordinator.cluster.view import (
        ClusterChange,
        ClusterView,
    )
    from odradek.coordinator.effects import MatchTopics, WriteMarkers
    from odradek.coordinator.group_coordinator import GroupCoordinator, MatchedTopics
    from odradek.coordinator.groups.group_type import GroupType
    from odradek.coordinator.groups.settings import GroupSettings
    from odradek.coordinator.shares.state.coordinator import ShareCoordinator
    from odradek.coordinator.shares.state.settings import ShareStateSettings
    from odradek.coordinator.streams.descriptions import TopologyDescriptions
    from odradek.coordinator.transactions.coordinator import TransactionCoordinator
    from odradek.coordinator.transactions.settings import TransactionSettings
    from odradek.server.background.work import WorkQueue, WorkQueues
    from odradek.server.coordination.coordinator_log import PartitionLog
    from odradek.server.coordination.dead_letters import Create, DeadLetterQueues
    from odradek.server.coordination.remote_log_ends import RemoteLogEnds
    from odradek.server.coordination.remote_transactions import RemoteTransactions
    from odradek.server.coordination.share_persister import SharePersister
    from odradek.server.network._clock import Clock
    from odradek.server.network._pipeline import Turn
    from odradek.server.network.broker_peers import BrokerPeers
    from odradek.server.network.timers import ClockTimers, Timers
    from odradek.storage.config import LogConfig
    from odradek.storage.directories.store import LogStore
    from odradek.wire.work import Work

logger = logging.getLogger("odradek.coordinators")


ASSIGNORS = {
    "org.apache.kafka.coordinator.group.assignor.UniformAssignor": "uniform",
    "org.apache.kafka.coordinator.group.assignor.RangeAssignor": "range",
}
"""Assignors by the names of Kafka's classes, which the option may have, too."""

C = TypeVar("C")


class Lazy(Generic[C]):
    """A value that is made at its first use."""

    def __init__(self, make: Callable[[], C]) -> None:
        self._make = make
        self._made: C | None = None

    @property
    def is_made(self) -> bool:
        return self._made is not None

    def __call__(self) -> C:
        if self._made is None:
            self._made = self._make()
        return self._made


class Coordinators:
    """All coordinators, and the parts that they share with handlers. Used on the event loop only."""

    def __init__(
        self,
        *,
        config: BrokerConfig,
        live: LiveConfig[LogConfig],
        leadership: Leadership,
        store: LogStore,
        turn: Turn,
        timers: Timers,
        clock_timers: ClockTimers,
        clock: Clock,
        new_producer_id: Callable[[], int],
        searches: WorkQueue,
        reads: WorkQueues,
        conversions: WorkQueues,
        saves: WorkQueue,
        create_topic: Callable[[str, Callable[[], None]], None],
        create_queue: Create,
        after_loading: Callable[[], object] | None = None,
        group_types: Sequence[GroupType] = (),
    ) -> None:
        """`create_topic(name, then)` creates the topic of a coordinator, and calls back once, also where that
        failed; `create_queue(topic, then)` the dead letter queue of a share group, and tells a refusal."""
        self._config = config
        self._live = live
        self.leadership = leadership
        self._store = store
        self._turn = turn
        self._timers = timers
        self._clock_timers = clock_timers
        self._loop = asyncio.get_running_loop()
        self._clock = clock
        self._now_ms = clock.now_ms
        self.new_producer_id = new_producer_id
        self._searches = searches
        self._reads = reads
        self._conversions = conversions
        self._saves = saves
        self._create_topic = create_topic
        self._create_queue = create_queue
        self._after_loading = after_loading
        self._more_group_types = group_types
        self._is_closed = False
        self._loads = False
        self._group_settings: GroupSettings | None = None
        self._transaction_settings: TransactionSettings | None = None
        self._share_settings: ShareStateSettings | None = None
        self.groups = Lazy(self._new_groups)
        self.transactions = Lazy(self._new_transactions)
        self.shares = Lazy(self._new_shares)
        self.peers: BrokerPeers | None = None
        """Connections to the other brokers of a cluster."""
        self.remote_transactions: RemoteTransactions | None = None
        self.log_ends: RemoteLogEnds | None = None
        """Coordinators and logs of other brokers; None of a node alone."""
        self._persister = Lazy(self._new_persister)
        self.dead_letters = Lazy(self._new_dead_letters)

    def load(self) -> None:
        """Begins to load their topics: those that exist, and from now on those that come."""
        self._loads = True
        topics = self.leadership.view.topics
        if OFFSETS_TOPIC in topics:
            self.groups()
        if TRANSACTIONS_TOPIC in topics:
            self.transactions()
        if SHARE_STATE_TOPIC in topics:
            self.shares()

    def follow(self, view: ClusterView, change: ClusterChange) -> None:
        """Takes up a new view."""
        if self._is_closed:
            return
        groups, transactions, shares = self.groups, self.transactions, self.shares
        if self._is_needed(groups, OFFSETS_TOPIC, view, change):
            self.settings_of_groups(view)
            groups().view_changed(view)
            if change.deleted:
                groups().remove_topics([topic.name for topic in change.deleted])
        if self._is_needed(transactions, TRANSACTIONS_TOPIC, view, change):
            self.settings_of_transactions(view)
            transactions().view_changed(view)
        if self._is_needed(shares, SHARE_STATE_TOPIC, view, change):
            self.settings_of_shares(view)
            shares().view_changed(view)
            if change.deleted:
                shares().remove_topics([topic.topic_id for topic in change.deleted])
        if self.dead_letters.is_made:
            self.dead_letters().view_changed()

    def _is_needed(
        self, coordinator: Lazy[Any], topic: str, view: ClusterView, change: ClusterChange
    ) -> bool:
        """Whether it takes up the view, made by no request perhaps. A client whose commit is decided has its
        response and asks nobody any more: without that, markers would be missing at the next coordinator for
        as long as no other client asks that node. What is kept of a deleted topic goes at once."""
        return coordinator.is_made or (topic in view.topics and (self._loads or bool(change.deleted)))

    @property
    def persister(self) -> SharePersister:
        """Through it groups and share partitions ask the share coordinators of all nodes."""
        return self._persister()

    def close(self) -> None:
        """Answers waiting commands with NOT_COORDINATOR; no view is taken up any more."""
        self._is_closed = True
        if self._persister.is_made:
            self._persister().close()
        if self.dead_letters.is_made:
            self.dead_letters().close()
        if self.transactions.is_made:
            self.transactions().close()
        if self.groups.is_made:
            self.groups().close()
        if self.shares.is_made:
            self.shares().close()

    # Groups

    def _new_groups(self) -> GroupCoordinator:
        from odradek.coordinator.group_coordinator import GroupCoordinator
        from odradek.coordinator.group_types import group_types

        descriptions = self._new_descriptions()
        view = self.leadership.view
        coordinator = GroupCoordinator(
            node_id=self.leadership.node_id,
            settings=self.settings_of_groups(view),
            open_log=lambda index: self._open_log(OFFSETS_TOPIC, index),
            clock_ms=steady_clock_ms(self._clock),
            call_later=self._clock_timers.call_later,
            new_member_suffix=_new_member_suffix,
            new_member_id=_new_member_id,
            match_topics=self._match_topics,
            persister=lambda: self.persister,
            after_loading=self._after_loading,
            types=group_types(descriptions) + self._more_group_types,
            descriptions=descriptions,
        )
        coordinator.view_changed(view)
        return coordinator

    def _new_descriptions(self) -> TopologyDescriptions | None:
        """The store that the option names, if it names one."""
        name = self._config.values["group.streams.topology.description.plugin.class"]
        if name is None:
            return None
        if name == DESCRIPTIONS_IN_MEMORY:
            from odradek.coordinator.streams.descriptions import TopologyDescriptions

            return TopologyDescriptions()
        from odradek.server.coordination.topology_file import FILE_NAME, open_descriptions
        from odradek.storage.disk import OsDisk

        path = os.path.join(self._config.data_directories[0], FILE_NAME)
        return open_descriptions(OsDisk(), path, self._saves)

    def _match_topics(self, effect: MatchTopics, then: Callable[[MatchedTopics], None]) -> None:
        def failed(error: Exception) -> None:
            logger.error("topics for the patterns of group %r were not found: %s", effect.group_id, error)
            then(None)

        self._searches.run(self._matching(effect), then, failed)

    def _matching(self, effect: MatchTopics) -> Work[MatchedTopics]:
        from odradek.coordinator.regular_expression import matches_of

        names = list(self.leadership.view.topics)
        matched: MatchedTopics = yield lambda: matches_of(effect.patterns, names)
        if effect.hidden_names is None or matched is None:
            return matched
        hidden_names = frozenset(effect.hidden_names({name for names in matched.values() for name in names}))
        return {pattern: names - hidden_names for pattern, names in matched.items()}

    def settings_of_groups(self, view: ClusterView) -> GroupSettings:
        """Settings of groups: they change with the broker's, with the groups' own, and with the levels of
        features. What groups write in one batch is bounded by what their topic takes.
        """
        settings = self._group_settings
        if settings is None:
            settings = self._group_settings = _group_settings(self._config)
        live = self._live
        settings.group_consumer_assignment_interval_ms = live.values["group.consumer.assignment.interval.ms"]
        settings.group_share_assignment_interval_ms = live.values["group.share.assignment.interval.ms"]
        settings.group_streams_assignment_interval_ms = live.values["group.streams.assignment.interval.ms"]
        settings.group_configs = view.group_configs
        settings.group_version = view.features.get(GROUP_VERSION, 0)
        settings.streams_version = view.features.get(STREAMS_VERSION, 0)
        settings.share_version = view.features.get(SHARE_VERSION, 0)
        if OFFSETS_TOPIC in view.topics:
            settings.append_max_bytes = self._batch_bytes_max(view, OFFSETS_TOPIC)
        return settings

    # Transactions

    def _new_transactions(self) -> TransactionCoordinator:
        from odradek.apis.write_txn_markers import MarkerWriter
        from odradek.coordinator.transactions.coordinator import TransactionCoordinator

        view = self.leadership.view
        markers = MarkerWriter(self.leadership, self.groups, self._turn, self._timers, self._now_ms)

        def write_markers(effect: WriteMarkers, then: Callable[[dict[Any, Any]], None]) -> None:
            remote = self.remote_transactions
            if remote is None:
                markers.write(effect.marker, effect.partitions, then)
            else:
                remote.write(effect.marker, effect.partitions, markers.write, then)

        coordinator = TransactionCoordinator(
            node_id=self.leadership.node_id,
            settings=self.settings_of_transactions(view),
            open_log=lambda index: self._open_log(TRANSACTIONS_TOPIC, index),
            new_producer_id=self.new_producer_id,
            write_markers=write_markers,
            clock_ms=steady_clock_ms(self._clock),
            call_later=self._clock_timers.call_later,
            after_loading=self._after_loading,
        )
        coordinator.view_changed(view)
        return coordinator

    def settings_of_transactions(self, view: ClusterView) -> TransactionSettings:
        """Settings of transactions: they change with the topic's and the level of `transaction.version`."""
        settings = self._transaction_settings
        if settings is None:
            settings = self._transaction_settings = _transaction_settings(self._config)
        settings.transaction_version = view.features.get(TRANSACTION_VERSION, 0)
        if TRANSACTIONS_TOPIC in view.topics:
            settings.append_max_bytes = self._batch_bytes_max(view, TRANSACTIONS_TOPIC)
        return settings

    # Share partitions

    def _new_shares(self) -> ShareCoordinator:
        from odradek.coordinator.shares.state.coordinator import ShareCoordinator

        view = self.leadership.view
        coordinator = ShareCoordinator(
            node_id=self.leadership.node_id,
            settings=self.settings_of_shares(view),
            open_log=lambda index: self._open_log(SHARE_STATE_TOPIC, index),
            clock_ms=steady_clock_ms(self._clock),
            call_later=self._clock_timers.call_later,
            after_loading=self._after_loading,
        )
        coordinator.view_changed(view)
        return coordinator

    def settings_of_shares(self, view: ClusterView) -> ShareStateSettings:
        """Settings of share state: they change with the topic's."""
        settings = self._share_settings
        if settings is None:
            settings = self._share_settings = _share_settings(self._config)
        if SHARE_STATE_TOPIC in view.topics:
            settings.append_max_bytes = self._batch_bytes_max(view, SHARE_STATE_TOPIC)
        return settings

    def _new_persister(self) -> SharePersister:
        from odradek.server.coordination.share_persister import SharePersister

        return SharePersister(
            node_id=self.leadership.node_id,
            shares=self.shares,
            current_view=lambda: self.leadership.view,
            timers=self._timers,
            create_topic=lambda then: self._create_topic(SHARE_STATE_TOPIC, then),
            peers=lambda: self.peers,
        )

    def _new_dead_letters(self) -> DeadLetterQueues:
        from odradek.server.coordination.dead_letters import DeadLetterQueues

        return DeadLetterQueues(
            leadership=self.leadership,
            live=self._live,
            groups=self.groups,
            turn=self._turn,
            timers=self._clock_timers,
            clock=self._clock,
            reads=self._reads,
            conversions=self._conversions,
            create=self._create_queue,
            peers=lambda: self.peers,
        )

    # All

    def _open_log(self, topic: str, index: int) -> PartitionLog | None:
        from odradek.server.coordination.coordinator_log import PartitionLog

        partition = self._store.get(topic, index)
        if partition is None:
            return None
        leadership = self.leadership
        led = leadership.view.partition(topic, index)
        if led is not None:
            if not leadership.has_taken_over(topic, led):
                raise KafkaError(
                    ErrorCode.NOT_LEADER_OR_FOLLOWER, "it is still being made the log of a leader"
                )
            partition.follow_leader_epoch(led.leader_epoch)
        return PartitionLog(partition, self._turn, self._now_ms, self._loop, leadership.replicas)

    def _batch_bytes_max(self, view: ClusterView, topic: str) -> int:
        return self._live.log_config(view.topics[topic].configs).max_message_bytes


def _group_settings(config: BrokerConfig) -> GroupSettings:
    from dataclasses import fields

    from odradek.coordinator.groups.settings import GroupSettings

    # Fields have the names of options, except these.
    named = {field.name: field.name.replace("_", ".") for field in fields(GroupSettings) if field.init}
    values: Mapping[str, Any] = config.values
    settings = {field: values[name] for field, name in named.items() if name in values}
    assignors = config.values["group.consumer.assignors"]
    settings |= {
        "group_consumer_assignors": tuple(dict.fromkeys(ASSIGNORS.get(name, name) for name in assignors)),
        "group_consumer_migration_policy": settings["group_consumer_migration_policy"].lower(),
        "group_coordinator_rebalance_protocols": frozenset(settings["group_coordinator_rebalance_protocols"]),
        "offsets_retention_ms": config.values["offsets.retention.minutes"] * 60_000,
        # A write of the group's own may take so long.
        "group_share_initialize_retry_interval_ms": max(
            settings["group_share_initialize_retry_interval_ms"], settings["offsets_commit_timeout_ms"]
        ),
    }
    return GroupSettings(**settings)


def _transaction_settings(config: BrokerConfig) -> TransactionSettings:
    from odradek.coordinator.transactions.settings import TransactionSettings

    value = config.values
    return TransactionSettings(
        transaction_max_timeout_ms=value["transaction.max.timeout.ms"],
        transactional_id_expiration_ms=value["transactional.id.expiration.ms"],
        abort_timed_out_interval_ms=value["transaction.abort.timed.out.transaction.cleanup.interval.ms"],
        remove_expired_interval_ms=value["transaction.remove.expired.transaction.cleanup.interval.ms"],
        transaction_topic_num_partitions=value["transaction.state.log.num.partitions"],
    )


def _share_settings(config: BrokerConfig) -> ShareStateSettings:
    from odradek.coordinator.shares.state.settings import ShareStateSettings

    value = config.values
    return ShareStateSettings(
        updates_per_snapshot=value["share.coordinator.snapshot.update.records.per.snapshot"],
        prune_interval_ms=value["share.coordinator.state.topic.prune.interval.ms"],
        cold_snapshot_interval_ms=value["share.coordinator.cold.partition.snapshot.interval.ms"],
        write_timeout_ms=value["share.coordinator.write.timeout.ms"],
        topic_num_partitions=value["share.coordinator.state.topic.num.partitions"],
    )


def _new_member_suffix() -> str:
    return str(_random_uuid())


def _new_member_id() -> str:
    """A random id, like Kafka's Uuid.randomUuid: it does not begin with a dash, as options do."""
    from odradek.wire.schema import uuid_to_text

    while (text := uuid_to_text(_random_uuid().bytes)).startswith("-"):
        pass
    return text


def _random_uuid() -> UUID:
    from uuid import UUID

    return UUID(bytes=os.urandom(16), version=4)
