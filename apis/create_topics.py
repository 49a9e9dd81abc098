"""CreateTopics (key 19, versions 0 to 7).

The cluster's machine checks and creates; this module reads requests, refuses duplicates and fills in the
response. Everything is done when that is sent, however long it takes; other clients are served meanwhile. The
request's time-out has no effect; for a client that did not wait the topics are created all the same.

Duplicates are refused first, then topics that the client may not create, neither in the cluster nor by name.
The settings of a new topic are told to those who may describe them.

Not done yet: policies (`create.topic.policy.class.name`).

Source: ControllerApis and ReplicationControlManager of Kafka 4.3; KIP-525 for the settings in the response.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from odradek.apis.access import each, on_topics, or_on_cluster
from odradek.apis.api import WorkResponse
from odradek.apis.declaration import Forwarding, SharedApi
from odradek.apis.describe_configs import config_layers
from odradek.apis.quotas import ClientQuotas, free
from odradek.apis.refusals import Refusal, each_of
from odradek.coordinator.cluster.topics import (
    CLUSTER_METADATA_TOPIC,
    NewTopic,
)
from odradek.wire.acl_types import CLUSTER_NAME, Operation, ResourceType
from odradek.wire.errors import ErrorCode, KafkaError
from odradek.wire.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfigs,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)

if TYPE_CHECKING:
    from odradek.apis.api import RequestContext
    from odradek.apis.node import SharedApiParts
    from odradek.apis.turn import WorkQueue
    from odradek.coordinator.cluster.decisions import Decisions
    from odradek.coordinator.cluster.view import TopicView
    from odradek.coordinator.security.client_meters import MutationCharge
    from odradek.wire.work import Work

FIRST_VERSION_WITH_CONFIGS = 5
FIRST_STRICT_VERSION = 6
"""From then on topics are refused when the client's quota of partitions is used up (KIP-599)."""
CREATE, TOPIC = Operation.CREATE, ResourceType.TOPIC
Overrides = tuple[tuple[str, str], ...]
DescribeTopicConfigs = Callable[[Mapping[str, str]], list[Any]]
"""A topic's overrides -> every topic setting with value and source, as `config.options.describe_topic` gives
them.
"""


class CreateTopics:
    """The handler."""

    def __init__(
        self,
        machine: Decisions,
        work: WorkQueue,
        describe_configs: DescribeTopicConfigs,
        quotas: ClientQuotas | None = None,
    ) -> None:
        self._quotas = quotas or ClientQuotas()
        self._machine = machine
        self._work = work
        self._describe_configs = describe_configs

    def __call__(self, request: CreateTopicsRequest, context: RequestContext) -> WorkResponse:
        charge = self._quotas.mutation_charge(context, FIRST_STRICT_VERSION)
        return WorkResponse(self._work, self._creating(request, context, charge), context)

    def _creating(
        self, request: CreateTopicsRequest, context: RequestContext, charge: MutationCharge | None
    ) -> Work[CreateTopicsResponse]:
        counts = Counter(topic.name for topic in request.topics)
        refusals: dict[str, KafkaError] = {}
        wanted = []
        for topic in request.topics:
            try:
                _check_creatable(topic, counts[topic.name], context)
            except KafkaError as error:
                refusals[topic.name] = error
            else:
                wanted.append(_new_topic(topic))
        try:
            results = yield from self._machine.creating_topics(
                wanted, validate_only=request.validate_only, charge=charge or free
            )
        except KafkaError as error:
            refusals.update((topic.name, error) for topic in wanted)
            results = []
        done = {result.name: result for result in results}
        response = CreateTopicsResponse(topics=[])
        described: dict[Overrides, list[CreatableTopicConfigs]] = {}
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
            if context.refuses(Operation.DESCRIBE_CONFIGS, TOPIC, name):
                response.topics.append(_created_unseen(result.topic))
            else:
                response.topics.append(self._created(result.topic, context.api_version, described))
            yield None
        if charge is not None:
            response.throttle_time_ms = charge.throttle_ms()
        return response

    def _created(
        self, topic: TopicView, version: int, described: dict[Overrides, list[CreatableTopicConfigs]]
    ) -> CreatableTopicResult:
        """`described` caches the settings by overrides: most topics of a request have the same ones."""
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


def _created_unseen(topic: TopicView) -> CreatableTopicResult:
    """For who may not describe the settings of the topic."""
    return CreatableTopicResult(
        name=topic.name,
        topic_id=topic.topic_id,
        error_code=0,
        error_message=None,
        topic_config_error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        num_partitions=-1,
        replication_factor=-1,
        configs=[],
    )


def _check_creatable(topic: CreatableTopic, count: int, context: RequestContext) -> None:
    if count > 1:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "Duplicate topic name.")
    if topic.name == CLUSTER_METADATA_TOPIC:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"Creation of internal topic {topic.name} is prohibited.")
    if context.refuses(CREATE, ResourceType.CLUSTER, CLUSTER_NAME) and context.refuses(
        CREATE, TOPIC, topic.name
    ):
        raise KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)


def _new_topic(topic: CreatableTopic) -> NewTopic:
    configs: dict[str, str | None] = {}
    for config in topic.configs:
        # If a setting is named twice, the last value counts, but null is refused in either place.
        if configs.get(config.name, "") is not None:
            configs[config.name] = config.value
    return NewTopic(
        name=topic.name,
        partition_count=topic.num_partitions,
        replication_factor=topic.replication_factor,
        assignments=[(one.partition_index, tuple(one.broker_ids)) for one in topic.assignments],
        configs=configs,
    )


def _make(parts: SharedApiParts) -> CreateTopics:
    node = parts.node
    return CreateTopics(node.machine, node.changes, parts.shared(config_layers).describe_topic, node.quotas)


API = SharedApi(
    CreateTopicsRequest,
    CreateTopicsResponse,
    make=_make,
    needs=(
        or_on_cluster(Operation.CREATE),
        on_topics(Operation.CREATE, each("topics", "name")),
        on_topics(Operation.DESCRIBE_CONFIGS, each("topics", "name"), is_quiet=True),
    ),
    changes=True,
    forwarded=Forwarding.AS_IT_COMES,
    refusal=Refusal(results=("topics", each_of("topics", "name"))),
)
