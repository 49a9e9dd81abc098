"""CreateTopics (key 19, versions 0 to 7), DeleteTopics (20, 0 to 6) and CreatePartitions (37, 0 to 3).

The cluster's machine judges and creates; here requests are taken apart, doubles are refused and answers
filled in. Everything is done when the answer leaves, however long that takes: others are served meanwhile.
The time-outs of these requests are not looked at; a client that did not wait finds everything done later.

Not done yet: policies (`create.topic.policy.class.name`) and quotas on the rate of changes.

Source: ControllerApis and ReplicationControlManager of Kafka 4.3; KIP-525 for the settings in the answer.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING

from odradek.apis.api import WorkAnswer
from odradek.coordinator.cluster.topics import (
    CLUSTER_METADATA_TOPIC,
    NewPartitions,
    NewTopic,
)
from odradek.wire.errors import ErrorCode, KafkaError
from odradek.wire.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopicResult,
)
from odradek.wire.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfigs,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from odradek.wire.messages.delete_topics import (
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
)
from odradek.wire.schema import ZERO_UUID

if TYPE_CHECKING:
    from odradek.apis.api import RequestContext
    from odradek.apis.turn import WorkQueue
    from odradek.coordinator.cluster.machine import ClusterMachine
    from odradek.coordinator.cluster.view import TopicView
    from odradek.wire.work import Work

FIRST_VERSION_WITH_CONFIGS = 5
FIRST_VERSION_WITH_DELETION_DISABLED = 3
FIRST_VERSION_OF_DELETION_BY_ID = 6

DescribeTopicConfigs = Callable[[Mapping[str, str]], list]
"""A topic's overrides -> every topic setting with value and source, as `config.options.describe_topic` gives
them.
"""


class CreateTopics:
    """The handler."""

    def __init__(
        self, machine: ClusterMachine, work: WorkQueue, describe_configs: DescribeTopicConfigs
    ) -> None:
        self._machine = machine
        self._work = work
        self._describe_configs = describe_configs

    def __call__(self, request: CreateTopicsRequest, context: RequestContext) -> WorkAnswer:
        return WorkAnswer(self._work, self._creating(request, context.api_version), context)

    def _creating(self, request: CreateTopicsRequest, version: int) -> Work[CreateTopicsResponse]:
        counts = Counter(topic.name for topic in request.topics)
        refusals: dict[str, KafkaError] = {}
        wanted = []
        for topic in request.topics:
            try:
                _check_creatable(topic, counts[topic.name])
            except KafkaError as error:
                refusals[topic.name] = error
            else:
                wanted.append(_new_topic(topic))
        try:
            results = yield from self._machine.creating_topics(wanted, validate_only=request.validate_only)
        except KafkaError as error:
            refusals.update((topic.name, error) for topic in wanted)
            results = []
        done = {result.name: result for result in results}
        response = CreateTopicsResponse(topics=[])
        described: dict[tuple, list[CreatableTopicConfigs]] = {}
        for name in counts:
            result = done.get(name)
            refusal = refusals.get(name) if result is None else result.error
            if refusal is not None:
                response.topics.append(
                    CreatableTopicResult(name=name, error_code=refusal.code, error_message=refusal.message)
                )
                continue
            assert result is not None, name
            assert result.topic is not None, name
            response.topics.append(self._created(result.topic, version, described))
            yield None
        return response

    def _created(
        self, topic: TopicView, version: int, described: dict[tuple, list[CreatableTopicConfigs]]
    ) -> CreatableTopicResult:
        """`described` has the settings of topics with the same overrides: most requests have few kinds."""
        configs: list[CreatableTopicConfigs] = []
        if version >= FIRST_VERSION_WITH_CONFIGS:
            kind = tuple(topic.configs.items())
            if kind not in described:
                described[kind] = self._configs(topic)
            configs = described[kind]
        return CreatableTopicResult(
            name=topic.name,
            topic_id=topic.topic_id,
            error_code=0,
            error_message=None,
            num_partitions=len(topic.partitions),
            replication_factor=topic.replication_factor,
            configs=configs,
        )

    def _configs(self, topic: TopicView) -> list[CreatableTopicConfigs]:
        return [
            CreatableTopicConfigs(
                name=one.name,
                value=one.value,
                read_only=one.read_only,
                config_source=one.source,
                is_sensitive=one.sensitive,
            )
            for one in self._describe_configs(topic.configs)
        ]


def _check_creatable(topic: CreatableTopic, count: int) -> None:
    if count > 1:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "Duplicate topic name.")
    if topic.name == CLUSTER_METADATA_TOPIC:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"Creation of internal topic {topic.name} is prohibited.")


def _new_topic(topic: CreatableTopic) -> NewTopic:
    configs: dict[str, str | None] = {}
    for config in topic.configs:
        # Of a setting that is named twice the last value counts, but null is refused wherever it stands.
        if configs.get(config.name, "") is not None:
            configs[config.name] = config.value
    return NewTopic(
        name=topic.name,
        partition_count=topic.num_partitions,
        replication_factor=topic.replication_factor,
        assignments=[(one.partition_index, tuple(one.broker_ids)) for one in topic.assignments],
        configs=configs,
    )


class DeleteTopics:
    """The handler. `is_enabled` is `delete.topic.enable`; `announce` is called with names before they go."""

    def __init__(
        self,
        machine: ClusterMachine,
        work: WorkQueue,
        announce: Callable[[Iterable[str]], None],
        *,
        is_enabled: bool = True,
    ) -> None:
        self._machine = machine
        self._work = work
        self._announce = announce
        self._is_enabled = is_enabled

    def __call__(self, request: DeleteTopicsRequest, context: RequestContext) -> WorkAnswer:
        return WorkAnswer(self._work, self._deleting(request, context), context)

    def _deleting(self, request: DeleteTopicsRequest, context: RequestContext) -> Work[DeleteTopicsResponse]:
        requested: list[tuple[str | None, bytes]]
        if context.api_version < FIRST_VERSION_OF_DELETION_BY_ID:
            requested = [(name, ZERO_UUID) for name in request.topic_names]
        else:
            requested = [(topic.name, topic.topic_id) for topic in request.topics]
        if not self._is_enabled:
            code = ErrorCode.TOPIC_DELETION_DISABLED
            if context.api_version < FIRST_VERSION_WITH_DELETION_DISABLED:
                code = ErrorCode.INVALID_REQUEST
            return DeleteTopicsResponse(
                responses=[_deleted(name, topic_id, code) for name, topic_id in requested]
            )
        names, responses = self._names(requested)
        self._announce(names)
        try:
            results = yield from self._machine.deleting_topics(list(names))
        except KafkaError as error:
            responses += [_deleted(name, names[name], error.code, error.message) for name in names]
            return DeleteTopicsResponse(responses=responses)
        for result in results:
            if result.topic is not None:
                responses.append(_deleted(result.name, result.topic.topic_id, ErrorCode.NONE))
            else:
                refusal = result.error
                assert refusal is not None, result
                responses.append(_deleted(result.name, ZERO_UUID, refusal.code, refusal.message))
        return DeleteTopicsResponse(responses=responses)

    def _names(
        self, requested: list[tuple[str | None, bytes]]
    ) -> tuple[dict[str, bytes], list[DeletableTopicResult]]:
        """What is to be deleted, by name with its id, and the refusals of what makes no sense."""
        view = self._machine.view
        wanted: list[tuple[str, str | None, bytes]] = []
        refused = []
        # Something asked for in the same words twice is answered once.
        for name, topic_id in dict.fromkeys(requested):
            if name is not None and topic_id != ZERO_UUID:
                message = "A topic is named by its name or by its id, not by both."
                refused.append(_deleted(name, topic_id, ErrorCode.INVALID_REQUEST, message))
            elif name is not None:
                wanted.append((name, name, topic_id))
            elif topic_id == ZERO_UUID:
                refused.append(_deleted(None, topic_id, ErrorCode.INVALID_REQUEST, "Neither name nor id."))
            elif (known := view.topic_by_id(topic_id)) is None:
                refused.append(
                    _deleted(None, topic_id, ErrorCode.UNKNOWN_TOPIC_ID, "There is no topic of this id.")
                )
            else:
                wanted.append((known.name, None, topic_id))
        requested_count = Counter(requested)
        names: dict[str, bytes] = {}
        by_id = set()
        for topic, name, topic_id in wanted:
            if name is None:
                by_id.add(topic)
            if requested_count[name, topic_id] > 1:
                refused.append(_deleted(name, topic_id, ErrorCode.INVALID_REQUEST, "Named twice."))
            elif name is None:
                names[topic] = topic_id
        for topic, name, topic_id in wanted:
            if name is None or requested_count[name, topic_id] > 1:
                continue
            if topic in by_id:
                names.pop(topic, None)
                message = "The id of this topic is named, too."
                known_id = view.topics[topic].topic_id
                refused.append(_deleted(name, known_id, ErrorCode.INVALID_REQUEST, message))
            else:
                names[topic] = topic_id
        return names, refused


def _deleted(
    name: str | None, topic_id: bytes, code: ErrorCode, message: str | None = None
) -> DeletableTopicResult:
    return DeletableTopicResult(name=name, topic_id=topic_id, error_code=code, error_message=message)


class CreatePartitions:
    """The handler."""

    def __init__(self, machine: ClusterMachine, work: WorkQueue) -> None:
        self._machine = machine
        self._work = work

    def __call__(self, request: CreatePartitionsRequest, context: RequestContext) -> WorkAnswer:
        return WorkAnswer(self._work, self._growing(request), context)

    def _growing(self, request: CreatePartitionsRequest) -> Work[CreatePartitionsResponse]:
        counts = Counter(topic.name for topic in request.topics)
        growths = [
            NewPartitions(
                topic.name,
                topic.count,
                None if topic.assignments is None else [tuple(one.broker_ids) for one in topic.assignments],
            )
            for topic in request.topics
            if counts[topic.name] == 1
        ]
        results = [
            _grown(name, KafkaError(ErrorCode.INVALID_REQUEST, "Duplicate topic name."))
            for name, count in counts.items()
            if count > 1
        ]
        try:
            grown = yield from self._machine.creating_partitions(growths, validate_only=request.validate_only)
        except KafkaError as error:
            results += [_grown(growth.name, error) for growth in growths]
        else:
            results += [_grown(result.name, result.error) for result in grown]
        return CreatePartitionsResponse(results=results)


def _grown(name: str, error: KafkaError | None) -> CreatePartitionsTopicResult:
    if error is None:
        return CreatePartitionsTopicResult(name=name, error_code=0, error_message=None)
    # Kafka says nothing beside this code.
    message = None if error.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION else error.message
    return CreatePartitionsTopicResult(name=name, error_code=error.code, error_message=message)
