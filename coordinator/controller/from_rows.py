"""The metadata of a node alone, rows of its store, as records of a metadata log.

Registrations of brokers are no rows. So no partition has a leader yet: the node registers, and is elected as
after a stop. Topics that are being deleted are no records: whoever migrates finishes their deletion.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import NamedTuple

from odradek.coordinator.cluster.features import METADATA_VERSION, missing_levels
from odradek.coordinator.cluster.machine import LoadedRows, Row
from odradek.coordinator.cluster.metadata_image import ImageState
from odradek.coordinator.cluster.view import NO_LEADER, UNASSIGNED, ClusterView, PartitionView
from odradek.coordinator.controller.snapshot import snapshot_records
from odradek.coordinator.security.delegation_tokens import NO_TOKENS, DelegationTokens
from odradek.wire.messages.metadata_records import MetadataRecord


class FromRows(NamedTuple):
    """See the module."""

    records: list[MetadataRecord]
    """All records, to be appended to an empty log as a whole."""
    view: ClusterView
    """The state that they make, without leaders."""
    deletions: Mapping[bytes, str]
    """Names by id of topics whose directories have to go."""

    @property
    def metadata_version(self) -> int:
        return self.view.features[METADATA_VERSION]


def from_rows(
    rows: Iterable[Row], directories: Mapping[tuple[str, int], bytes], default_directory: bytes = UNASSIGNED
) -> FromRows:
    """Make records of all rows. `directories` has the id of the log directory of each partition that was
    found, `default_directory` that of the others.

    ValueError: rows contradict each other, or are missing.
    """
    loaded = LoadedRows()
    try:
        for row in rows:
            loaded.add(row)
        topics = loaded.topics()
    except (AssertionError, LookupError) as error:
        raise ValueError(f"partitions of topic {error} are missing") from error
    for name, topic in topics.items():
        placed = [
            _placed(one, directories.get((name, one.index), default_directory)) for one in topic.partitions
        ]
        topics[name] = replace(topic, partitions=tuple(placed))
    view = ClusterView(
        cluster_id="",
        topics=topics,
        topic_names={topic.topic_id: name for name, topic in topics.items()},
        broker_configs=loaded.broker_configs,
        group_configs=loaded.group_configs,
        client_metrics_configs=loaded.client_metrics_configs,
        features={**loaded.features, **missing_levels(loaded.features)},
        client_quotas=loaded.quotas,
        acls=loaded.acl_rules(),
        scram_users=loaded.scram_users(),
        delegation_tokens=DelegationTokens(loaded.tokens) if loaded.tokens else NO_TOKENS,
    )
    records = list(snapshot_records(ImageState(-1, view, loaded.next_producer_id, {})))
    return FromRows(records, view, loaded.deletions)


def _placed(partition: PartitionView, directory: bytes) -> PartitionView:
    """The partition in a directory, without a leader."""
    return partition._replace(leader=NO_LEADER, directories=(directory,) * len(partition.replicas))
