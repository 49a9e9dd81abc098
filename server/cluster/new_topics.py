"""Topics of a cluster that are created when a client needs them: the controllers are asked.

A client finds the topic in the response to the request that has created it, as on a node alone: after the
controllers have created it, the view that has it is waited for. Two clients may want it at once, at two
nodes: that it exists already is no error.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections.abc import Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from odradek.wire.errors import ErrorCode, KafkaError
from odradek.wire.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)

if TYPE_CHECKING:
    from collections.abc import Callable
    from concurrent.futures import Future

    from odradek.config.broker_config import BrokerConfig
    from odradek.coordinator.cluster.topics import NewTopic
    from odradek.coordinator.cluster.view import ClusterView
    from odradek.wire.schema import Message
    from odradek.wire.work import Work

TOPIC_CREATION_TIMEOUT_MS = 30_000
NEW_TOPIC_WAIT_S = 1.0
"""Time that a client's request waits for topics that it creates, in all. Kafka does not wait: its client asks
again."""


class Ask(Protocol):
    def __call__(self, request: Message, *, timeout_ms: float | None = None) -> Future[Any]:
        """See `ControllerLink.ask`."""


class NewTopicResult:
    """Implements `coordinator.cluster.control_plane.TopicResult`."""

    def __init__(self, name: str, error: KafkaError | None) -> None:
        self.name = name
        self.error = error


def given_numbers(config: BrokerConfig) -> tuple[int, int]:
    """Partitions and replicas, as options that were set at the start; -1 for one that was not."""
    given, values = config.layers.start, config.values
    return (
        values["num.partitions"] if "num.partitions" in given else -1,
        values["default.replication.factor"] if "default.replication.factor" in given else -1,
    )


class _AwaitedTopics:
    """New topics that a view is to have; a worker thread waits."""

    def __init__(self, names: Iterable[str]) -> None:
        self._names = frozenset(names)
        self._are_there = threading.Event()

    def look_at(self, view: ClusterView) -> None:
        if self._names <= view.topics.keys():
            self._are_there.set()

    def wait(self, seconds: float) -> None:
        self._are_there.wait(seconds)


class NewTopics:
    """`ask` sends a request to the controller that leads."""

    def __init__(
        self,
        ask: Ask,
        current_view: Callable[[], ClusterView],
        *,
        partition_count: int,
        replication_factor: int,
    ) -> None:
        """Both numbers are what this node was given, as in Kafka; -1: the default of the controllers."""
        self._ask = ask
        self._defaults = (partition_count, replication_factor)
        self._current_view = current_view
        self._asked: dict[str, Future[Any]] = {}
        """By topic, as long as there is no response."""
        self._awaited: list[_AwaitedTopics] = []
        self._is_unanswered = False
        """Whether the last request has had no response in time."""

    def view_changed(self, view: ClusterView) -> None:
        """A subscriber of the cluster's metadata."""
        for one in self._awaited:
            one.look_at(view)

    def creating(self, new_topics: Sequence[NewTopic]) -> Work[Sequence[NewTopicResult]]:
        """Asks the controllers, and waits for the view that has the topics, all in all `NEW_TOPIC_WAIT_S`. A
        topic that is asked for already is not asked for again, and nobody waits where the last request had
        no response in time. Raises KafkaError for all."""
        deadline = time.monotonic() + (0 if self._is_unanswered else NEW_TOPIC_WAIT_S)
        new = [one for one in new_topics if one.name not in self._asked]
        if new:
            self._ask_for_topics(new)
        asked = {id(future): future for one in new_topics if (future := self._asked.get(one.name))}
        errors: dict[str, KafkaError] = {}
        for future in asked.values():
            try:
                response = yield partial(future.result, max(deadline - time.monotonic(), 0))
            except (OSError, TimeoutError) as error:
                self._is_unanswered = True
                sentence = f"No controller has answered: {str(error) or type(error).__name__}"
                raise KafkaError(ErrorCode.REQUEST_TIMED_OUT, sentence) from error
            errors |= _refusals_of(response)
        awaited = _AwaitedTopics(one.name for one in new_topics if one.name not in errors)
        self._awaited.append(awaited)
        awaited.look_at(self._current_view())
        yield partial(awaited.wait, max(deadline - time.monotonic(), 0))
        self._awaited.remove(awaited)
        return [NewTopicResult(one.name, errors.get(one.name)) for one in new_topics]

    def _ask_for_topics(self, new_topics: Sequence[NewTopic]) -> None:
        request = CreateTopicsRequest(
            topics=[_creatable(one, *self._defaults) for one in new_topics],
            timeout_ms=TOPIC_CREATION_TIMEOUT_MS,
        )
        asked = self._ask(request, timeout_ms=TOPIC_CREATION_TIMEOUT_MS)
        names = [one.name for one in new_topics]
        self._asked.update(dict.fromkeys(names, asked))
        loop = asyncio.get_running_loop()

        def answered() -> None:
            for name in names:
                self._asked.pop(name, None)
            if not asked.cancelled() and asked.exception() is None:
                self._is_unanswered = False

        def done(_: object) -> None:
            with contextlib.suppress(RuntimeError):  # the loop has ended
                loop.call_soon_threadsafe(answered)

        asked.add_done_callback(done)


def _refusals_of(response: CreateTopicsResponse) -> dict[str, KafkaError]:
    """Another client may have created a topic at the same time, through this node or another one."""
    return {
        one.name: KafkaError(ErrorCode(one.error_code), one.error_message)
        for one in response.topics
        if one.error_code not in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS)
    }


def _creatable(topic: NewTopic, partition_count: int, replication_factor: int) -> CreatableTopic:
    if topic.assignments or topic.partition_count > 0:
        partition_count = topic.partition_count
    if topic.assignments or topic.replication_factor > 0:
        replication_factor = topic.replication_factor
    return CreatableTopic(
        name=topic.name,
        num_partitions=partition_count,
        replication_factor=replication_factor,
        assignments=[
            CreatableReplicaAssignment(partition_index=index, broker_ids=list(brokers))
            for index, brokers in topic.assignments
        ],
        configs=[CreatableTopicConfig(name=name, value=value) for name, value in topic.configs.items()],
    )
