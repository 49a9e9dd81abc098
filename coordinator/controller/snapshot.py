"""A snapshot of the metadata log: the records that make a state of the image out of nothing.

The order is Kafka's: features, brokers and controllers, topics with their partitions, settings, quotas,
producer ids, access control entries, users, tokens. `kraft.version` is not among the features: it is a
control record. The writer of a snapshot file puts it, and the voters, before these records.

Source: MetadataImage.write of Kafka 4.4, and the images of its parts.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from odradek.coordinator.cluster.changes import ClientMetricsOwner, GroupOwner
from odradek.coordinator.cluster.features import (
    KRAFT_VERSION,
    METADATA_VERSION,
    SCRAM_SINCE,
    TOKENS_SINCE,
)
from odradek.coordinator.cluster.metadata_image import ImageState
from odradek.coordinator.cluster.view import ClusterView
from odradek.coordinator.controller.record_versions import CONTROLLERS_SINCE
from odradek.coordinator.controller.records import (
    acl_record,
    broker_record,
    config_records,
    credential_record,
    feature_records,
    partition_record,
    quota_records,
    token_record,
)
from odradek.wire.messages.metadata_records import (
    MetadataRecord,
    ProducerIdsRecord,
    TopicRecord,
)


def snapshot_records(state: ImageState) -> Iterator[MetadataRecord]:
    """All records, made while they are taken. What the cluster's metadata.version cannot have is left out.

    KeyError: there is no metadata.version.
    """
    view = state.view
    level = view.features[METADATA_VERSION]
    others = {
        name: one for name, one in view.features.items() if name not in (METADATA_VERSION, KRAFT_VERSION)
    }
    yield from feature_records({METADATA_VERSION: level, **others})
    for broker in view.registrations.values():
        yield broker_record(broker, level)
    if level >= CONTROLLERS_SINCE:
        yield from state.controllers.values()
    for topic in view.topics.values():
        yield TopicRecord(name=topic.name, topic_id=topic.topic_id)
        for partition in topic.partitions:
            yield partition_record(topic.topic_id, partition, view.features)
    yield from _settings(view)
    for entity, values in view.client_quotas.items():
        yield from quota_records(entity, values.items())
    if state.next_producer_id > 0:
        yield ProducerIdsRecord(broker_id=-1, broker_epoch=-1, next_producer_id=state.next_producer_id)
    yield from _security(view, level)


def _settings(view: ClusterView) -> Iterable[MetadataRecord]:
    for topic in view.topics.values():
        yield from config_records(topic.name, topic.configs.items())
    for node_id, values in view.broker_configs.items():
        yield from config_records(node_id, values.items())
    for name, values in view.client_metrics_configs.items():
        yield from config_records(ClientMetricsOwner(name), values.items())
    for group_id, values in view.group_configs.items():
        yield from config_records(GroupOwner(group_id), values.items())


def _security(view: ClusterView, level: int) -> Iterable[MetadataRecord]:
    if view.acls is not None:
        for acl_id, acl in view.acls.by_id.items():
            yield acl_record(acl_id, acl)
    if level >= SCRAM_SINCE:
        for key, credential in view.scram_users.credentials.items():
            yield credential_record(key, credential)
    if level >= TOKENS_SINCE:
        for token in view.delegation_tokens.by_id.values():
            yield token_record(token)
