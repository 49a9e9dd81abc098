"""Decisions about topics, settings, features and security: what is refused, and what becomes of the rest.

A request is judged against the view that the change before it has left, and edits a `Draft`; a subclass says
how a draft becomes durable and the next view: rows of a store (`machine.py`), or records of the metadata log
(`coordinator/controller/machine.py`). Changes may be large, so each is a `Work`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import TypeVar

from odradek.coordinator.cluster.changes import (
    CORDONED_LOG_DIRS,
    MIN_INSYNC_REPLICAS,
    NO_CONFIGS,
    Charge,
    ClientMetricsOwner,
    ConfigChange,
    ConfigCheck,
    GroupOwner,
    TopicDefaults,
    TopicResult,
    accept_configs,
    check_cordons_are_fewer,
    check_cordons_are_known,
    check_min_insync_replicas,
    free,
    unknown_topic,
    without_nulls,
)
from odradek.coordinator.cluster.draft import Draft
from odradek.coordinator.cluster.features import ELIGIBLE_LEADERS_VERSION
from odradek.coordinator.cluster.placement import Candidates, place_replicas
from odradek.coordinator.cluster.publishing import Publisher
from odradek.coordinator.cluster.topics import (
    INTERNAL_TOPICS,
    NewPartitions,
    NewTopic,
    check_manual_replicas,
    check_name,
    check_partition_budget,
    collision_key,
    replicas_of_new_topic,
)
from odradek.coordinator.cluster.view import ClusterView, PartitionView, TopicView
from odradek.wire.errors import ErrorCode, KafkaError
from odradek.wire.work import Work, finish

PARTITIONS_PER_STEP = 256

R = TypeVar("R")


class Decisions(ABC):
    """See the module. One change at a time."""

    def __init__(
        self,
        *,
        cluster_id: str,
        new_id: Callable[[], bytes],
        defaults: TopicDefaults,
        check_topic_configs: ConfigCheck = accept_configs,
        check_broker_configs: ConfigCheck = accept_configs,
        check_group_configs: ConfigCheck = accept_configs,
    ) -> None:
        self.publisher = Publisher(ClusterView(cluster_id=cluster_id))
        self.new_id = new_id
        self._defaults = defaults
        self._check_topic_configs = check_topic_configs
        self._check_broker_configs = check_broker_configs
        self._check_group_configs = check_group_configs
        self._is_changing = False
        self._collision_keys: dict[str, set[str]] = {}

    @property
    def view(self) -> ClusterView:
        """The newest one."""
        return self.publisher.view

    # Topics

    def creating_topics(
        self, new_topics: Sequence[NewTopic], *, validate_only: bool = False, charge: Charge = free
    ) -> Work[list[TopicResult]]:
        """Create each topic that can be created, all of them at once; one result each, in order.

        `charge` gets the number of partitions of each, and may refuse the topic. The caller has refused names
        that the request has twice (INVALID_REQUEST in Kafka's ControllerApis).
        Raises KafkaError when it cannot be made durable: nothing was created.
        """
        with self._one_at_a_time():
            draft = self._draft()
            results = []
            for new_topic in new_topics:
                try:
                    topic = yield from self._new_topic(new_topic, draft)
                    charge(len(topic.partitions))
                except KafkaError as error:
                    results.append(TopicResult(new_topic.name, error=error))
                else:
                    draft.add(topic)
                    results.append(TopicResult(new_topic.name, topic))
                yield None
            if not validate_only:
                yield from self._committing(draft)
            return results

    def create_topics(
        self, new_topics: Sequence[NewTopic], *, validate_only: bool = False
    ) -> list[TopicResult]:
        """`creating_topics` here and now."""
        return finish(self.creating_topics(new_topics, validate_only=validate_only))

    def deleting_topics(self, names: Sequence[str], charge: Charge = free) -> Work[list[TopicResult]]:
        """Delete each topic that exists, all of them at once; UNKNOWN_TOPIC_OR_PARTITION for the others.
        `charge` gets the number of partitions of each, and may refuse.

        Raises KafkaError when it cannot be made durable: nothing was deleted.
        """
        with self._one_at_a_time():
            draft = self._draft()
            results = []
            for name in names:
                topic = draft.topics.get(name)
                try:
                    if topic is None:
                        raise unknown_topic(name)
                    charge(len(topic.partitions))
                except KafkaError as error:
                    results.append(TopicResult(name, error=error))
                else:
                    draft.remove(topic)
                    results.append(TopicResult(name, topic))
                yield None
            yield from self._committing(draft)
            return results

    def delete_topics(self, names: Sequence[str]) -> list[TopicResult]:
        """`deleting_topics` here and now."""
        return finish(self.deleting_topics(names))

    def creating_partitions(
        self, growths: Sequence[NewPartitions], *, validate_only: bool = False, charge: Charge = free
    ) -> Work[list[TopicResult]]:
        """Grow each topic that can be grown, all of them at once. `charge` gets the number of new partitions
        of each, and may refuse. POLICY_VIOLATION for all of them if they are too many."""
        with self._one_at_a_time():
            draft = self._draft()
            results = []
            known = ((growth, draft.topics.get(growth.name)) for growth in growths)
            added = (growth.total_count - len(topic.partitions) for growth, topic in known if topic)
            check_partition_budget(sum(one for one in added if one > 0))
            for growth in growths:
                try:
                    topic = yield from self._grown_topic(growth, draft)
                    charge(len(topic.partitions) - len(draft.topics[growth.name].partitions))
                except KafkaError as error:
                    results.append(TopicResult(growth.name, error=error))
                else:
                    draft.grow(topic)
                    results.append(TopicResult(growth.name, topic))
                yield None
            if not validate_only:
                yield from self._committing(draft)
            return results

    def create_partitions(
        self, growths: Sequence[NewPartitions], *, validate_only: bool = False
    ) -> list[TopicResult]:
        """`creating_partitions` here and now."""
        return finish(self.creating_partitions(growths, validate_only=validate_only))

    # Settings and features

    def changing_configs(
        self, changes: Sequence[ConfigChange], *, validate_only: bool = False
    ) -> Work[list[KafkaError | None]]:
        """Change the overrides of each owner that may have them so, all of them at once; the refusals (None:
        done), in order.

        Raises KafkaError when it cannot be made durable: nothing was changed.
        """
        with self._one_at_a_time():
            draft = self._draft()
            refusals: list[KafkaError | None] = []
            for change in changes:
                try:
                    self._change_configs(change, draft)
                except KafkaError as error:
                    refusals.append(error)
                else:
                    refusals.append(None)
                yield None
            if not validate_only:
                yield from self._committing(draft)
            return refusals

    def changing_features(self, levels: Mapping[str, int]) -> Work[None]:
        """Finalize feature levels, 0 to remove one, together with the settings that follow from them. The
        caller has checked them against what it supports.

        Raises KafkaError when it cannot be made durable: nothing was changed.
        """
        with self._one_at_a_time():
            draft = self._draft()
            if levels.get(ELIGIBLE_LEADERS_VERSION, 0) > 0:
                self._unify_min_insync_replicas(draft)
            draft.set_features(levels)
            yield from self._committing(draft)

    def set_features(self, levels: Mapping[str, int]) -> None:
        """`changing_features` here and now."""
        finish(self.changing_features(levels))

    # Security

    def changing(self, edit: Callable[[Draft], Work[R]]) -> Work[R]:
        """A change of the parts that `Draft` has methods for, as a whole; `edit` makes it and returns the
        result.

        Raises KafkaError when it cannot be made durable: nothing was changed.
        """
        with self._one_at_a_time():
            draft = self._draft()
            result = yield from edit(draft)
            yield from self._committing(draft)
            return result

    # For subclasses

    @abstractmethod
    def _draft(self) -> Draft:
        """A draft of the newest view."""

    @abstractmethod
    def _commit(self, draft: Draft) -> Work[None]:
        """Make the draft durable, and publish the next view. KafkaError: nothing has changed."""

    @abstractmethod
    def _candidates(self) -> Candidates:
        """Brokers that may be given replicas."""

    @abstractmethod
    def _new_partition(
        self, index: int, replicas: tuple[int, ...], without_leader: ErrorCode
    ) -> PartitionView:
        """A partition on these brokers. `without_leader` is the refusal where none of them may lead."""

    @abstractmethod
    def check_node(self, node_id: int) -> None:
        """Refuse settings of a node that nobody knows (BROKER_ID_NOT_REGISTERED)."""

    @contextmanager
    def _one_at_a_time(self) -> Iterator[None]:
        assert not self._is_changing, "one change of topics at a time"
        self._is_changing = True
        try:
            yield
        finally:
            self._is_changing = False

    def _note_names(self, deleted: Sequence[TopicView], added: Sequence[TopicView]) -> None:
        for topic in deleted:
            key = collision_key(topic.name)
            names = self._collision_keys[key]
            names.discard(topic.name)
            if not names:
                del self._collision_keys[key]
        for topic in added:
            self._collision_keys.setdefault(collision_key(topic.name), set()).add(topic.name)

    # Inside

    def _committing(self, draft: Draft) -> Work[None]:
        yield from self._commit(draft)
        self._note_names(draft.deleted, draft.added)

    def _new_topic(self, new_topic: NewTopic, draft: Draft) -> Work[TopicView]:
        name = new_topic.name
        if name in draft.topics:
            raise KafkaError(ErrorCode.TOPIC_ALREADY_EXISTS, f"There is a topic {name!r} already.")
        check_name(name)
        # Kafka compares with the topics that were there before the request, not within it.
        if others := self._collision_keys.get(collision_key(name)):
            raise KafkaError(
                ErrorCode.INVALID_TOPIC_EXCEPTION,
                f"Topic {name!r} and the existing {min(others)!r} differ only in '.' and '_'.",
            )
        configs = without_nulls(new_topic.configs)
        self._check_topic_configs(name, configs)
        defaults, topic_id = self._defaults, self.new_id()
        placed = replicas_of_new_topic(
            new_topic,
            topic_id,
            self._candidates(),
            defaults.partition_count,
            defaults.replication_factor,
        )
        check_partition_budget(sum(len(topic.partitions) for topic in draft.added) + len(placed))
        partitions = yield from self._new_partitions(placed, 0, bool(new_topic.assignments))
        return TopicView(name, topic_id, partitions, name in INTERNAL_TOPICS, configs)

    def _change_configs(self, change: ConfigChange, draft: Draft) -> None:
        """The order of the checks is Kafka's: whether the owner exists comes last."""
        owner = change.owner
        if isinstance(owner, GroupOwner):
            self._change_group_configs(owner.group_id, change, draft)
        elif isinstance(owner, ClientMetricsOwner):
            from odradek.coordinator.client_metrics.subscriptions import check_subscription

            before = draft.client_metrics_configs.get(owner.name, NO_CONFIGS)
            after = dict(change.change(before))
            check_subscription(owner.name, after)
            draft.configure_client_metrics(owner.name, before, after, change.names)
        elif isinstance(owner, str):
            self._change_topic_configs(owner, change, draft)
        else:
            before = draft.broker_configs.get(owner, NO_CONFIGS)
            after = dict(change.change(before))
            self._check_broker_configs("" if owner is None else str(owner), after)
            if ELIGIBLE_LEADERS_VERSION in draft.features:
                check_min_insync_replicas(change, before, after)
            if CORDONED_LOG_DIRS in change.names:
                check_cordons_are_known(draft.features)
                if change.is_direct:
                    check_cordons_are_fewer(before, after)
            if owner is not None:
                self.check_node(owner)
            draft.configure_broker(owner, before, after, change.names)

    def _change_topic_configs(self, name: str, change: ConfigChange, draft: Draft) -> None:
        topic = draft.topics.get(name)
        after = dict(change.change(NO_CONFIGS if topic is None else topic.configs))
        if not name:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "There are no settings for all topics.")
        check_name(name)
        self._check_topic_configs(name, after)
        if topic is None:
            raise unknown_topic(name)
        draft.configure(topic, replace(topic, configs=after), change.names)

    def _change_group_configs(self, group_id: str, change: ConfigChange, draft: Draft) -> None:
        before = draft.group_configs.get(group_id, NO_CONFIGS)
        after = dict(change.change(before))
        if not group_id:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "Default group resources are not allowed.")
        self._check_group_configs(group_id, after)
        draft.configure_group(group_id, before, after, change.names)

    def _unify_min_insync_replicas(self, draft: Draft) -> None:
        """Which replicas may lead depends on it, so all brokers have to mean the same by it (KIP-966)."""
        configs = draft.broker_configs.get(None, NO_CONFIGS)
        if MIN_INSYNC_REPLICAS not in configs:
            default = str(self._defaults.min_insync_replicas)
            draft.configure_broker(None, configs, {**configs, MIN_INSYNC_REPLICAS: default})
        for owner, before in list(draft.broker_configs.items()):
            if owner is not None and MIN_INSYNC_REPLICAS in before:
                after = {key: value for key, value in before.items() if key != MIN_INSYNC_REPLICAS}
                draft.configure_broker(owner, before, after)

    def _grown_topic(self, growth: NewPartitions, draft: Draft) -> Work[TopicView]:
        topic = draft.topics.get(growth.name)
        if topic is None:
            raise unknown_topic(growth.name)
        count = len(topic.partitions)
        added = growth.total_count - count
        if added <= 0:
            raise KafkaError(
                ErrorCode.INVALID_PARTITIONS,
                f"Topic {growth.name!r} has {count} partition(s); {growth.total_count} would be no growth.",
            )
        candidates, factor = self._candidates(), topic.replication_factor
        if growth.assignments is None:
            placed = place_replicas(candidates.usable, topic.topic_id, count, added, factor)
        elif len(growth.assignments) != added:
            raise KafkaError(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                f"{added} partition(s) are to be added, but {len(growth.assignments)} are assigned.",
            )
        else:
            assignable = candidates.assignable
            placed = [check_manual_replicas(replicas, assignable, factor) for replicas in growth.assignments]
        new = yield from self._new_partitions(placed, count, growth.assignments is not None)
        return replace(topic, partitions=topic.partitions + new)

    def _new_partitions(
        self, placed: Sequence[tuple[int, ...]], first: int, are_assigned: bool
    ) -> Work[tuple[PartitionView, ...]]:
        code = ErrorCode.INVALID_REPLICATION_FACTOR
        if are_assigned:
            code = ErrorCode.INVALID_REPLICA_ASSIGNMENT
        partitions = []
        for index, replicas in enumerate(placed, first):
            partitions.append(self._new_partition(index, replicas, code))
            if index % PARTITIONS_PER_STEP == 0:
                yield None
        return tuple(partitions)
