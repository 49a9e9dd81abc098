"""A change of the cluster's metadata while it is being made, and the records that it becomes.

The records of a request have the order of Kafka's: of a new topic its name, its settings, and its partitions.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import TYPE_CHECKING

from odradek.coordinator.cluster.changes import (
    MIN_INSYNC_REPLICAS,
    ClientMetricsOwner,
    GroupOwner,
    Owner,
    differences,
)
from odradek.coordinator.cluster.draft import Draft
from odradek.coordinator.cluster.features import ELIGIBLE_LEADERS_VERSION, KRAFT_VERSION
from odradek.coordinator.cluster.view import ClusterView, Quotas, TopicView
from odradek.coordinator.controller.log import MetadataLog
from odradek.coordinator.controller.records import (
    acl_record,
    config_records,
    credential_record,
    feature_records,
    partition_record,
    quota_records,
    token_record,
)
from odradek.coordinator.security.delegation_tokens import DelegationToken
from odradek.coordinator.security.scram_users import Key as ScramKey
from odradek.coordinator.security.scram_users import ScramCredential
from odradek.wire.errors import ErrorCode, KafkaError
from odradek.wire.messages.metadata_records import (
    TOPIC_RESOURCE,
    ClearElrRecord,
    ConfigRecord,
    MetadataRecord,
    NoOpRecord,
    RemoveAccessControlEntryRecord,
    RemoveDelegationTokenRecord,
    RemoveTopicRecord,
    RemoveUserScramCredentialRecord,
    TopicRecord,
)

if TYPE_CHECKING:
    from odradek.coordinator.security.acls import Acl


class RecordDraft(Draft):
    """See the module."""

    def __init__(self, view: ClusterView, log: MetadataLog) -> None:
        super().__init__(view)
        self._log = log
        self._records: list[MetadataRecord] = []
        self._cleared: list[MetadataRecord] = []

    @property
    def first_offset(self) -> int:
        """Offset that the first record gets, if the change ends without another step."""
        return self._log.end_offset

    @property
    def records(self) -> list[MetadataRecord]:
        """All so far. Those for eligible leader replicas come last."""
        return [*self._records, *self._cleared]

    def add_records(self, records: Iterable[MetadataRecord]) -> None:
        """Add what others have decided. The parts of the draft do not show it."""
        self._records += records

    # Topics

    def add(self, topic: TopicView) -> None:
        super().add(topic)
        settings = config_records(topic.name, topic.configs.items())
        self._records.append(TopicRecord(name=topic.name, topic_id=topic.topic_id))
        self._records += settings
        self._records += self._clearing(settings)
        self._add_partitions(topic, 0)

    def remove(self, topic: TopicView) -> None:
        super().remove(topic)
        self._records.append(RemoveTopicRecord(topic_id=topic.topic_id))

    def grow(self, topic: TopicView) -> None:
        first = len(self.topics[topic.name].partitions)
        super().grow(topic)
        self._add_partitions(topic, first)

    def _add_partitions(self, topic: TopicView, first: int) -> None:
        self._records += [
            partition_record(topic.topic_id, partition, self.features)
            for partition in topic.partitions[first:]
        ]

    # Settings and features

    def configure(self, before: TopicView, after: TopicView, names: Collection[str] = ()) -> None:
        super().configure(before, after)
        self._configure(after.name, before.configs, after.configs)

    def configure_broker(
        self,
        node_id: int | None,
        before: Mapping[str, str],
        after: Mapping[str, str],
        names: Collection[str] = (),
    ) -> None:
        super().configure_broker(node_id, before, after)
        self._configure(node_id, before, after, names)

    def configure_group(
        self, group_id: str, before: Mapping[str, str], after: Mapping[str, str], names: Collection[str] = ()
    ) -> None:
        super().configure_group(group_id, before, after)
        self._configure(GroupOwner(group_id), before, after)

    def configure_client_metrics(
        self, name: str, before: Mapping[str, str], after: Mapping[str, str], names: Collection[str] = ()
    ) -> None:
        super().configure_client_metrics(name, before, after)
        self._configure(ClientMetricsOwner(name), before, after)

    def _configure(
        self,
        owner: Owner,
        before: Mapping[str, str],
        after: Mapping[str, str],
        rewritten: Iterable[str] = (),
    ) -> None:
        """`rewritten` settings get a record even if they are as before: a broker reads files again then."""
        values = dict.fromkeys(rewritten) | dict(differences(before, after))
        settings = config_records(owner, ((name, after.get(name)) for name in values))
        self._records += settings
        self._cleared += self._clearing(settings)

    def _clearing(self, settings: Iterable[ConfigRecord]) -> list[MetadataRecord]:
        """Replicas that were eligible by another `min.insync.replicas` are so no more."""
        if ELIGIBLE_LEADERS_VERSION not in self.features:
            return []
        return [
            ClearElrRecord(topic_name=one.resource_name if one.resource_type == TOPIC_RESOURCE else "")
            for one in settings
            if one.name == MIN_INSYNC_REPLICAS
        ]

    def set_features(self, levels: Mapping[str, int]) -> None:
        """Levels that stay have records too, as in Kafka.

        The level of `kraft.version` is a control record, with which the log begins. Refuses another one with
        INVALID_UPDATE_VERSION.
        """
        wanted = dict(levels)
        kraft_version = wanted.pop(KRAFT_VERSION, None)
        if kraft_version not in (None, self.features.get(KRAFT_VERSION, 0)):
            raise KafkaError(
                ErrorCode.INVALID_UPDATE_VERSION,
                f"Invalid update version {kraft_version} for feature {KRAFT_VERSION}. The cluster keeps the "
                "level with which it was made.",
            )
        super().set_features(wanted)
        self._records += feature_records(wanted)
        if kraft_version is not None:
            self._records.append(NoOpRecord())

    # Security

    def set_quotas(self, changed: Quotas) -> None:
        for entity, after in changed.items():
            before = self.client_quotas.get(entity, {})
            values = [(name, value) for name, value in after.items() if before.get(name) != value]
            gone = [(name, None) for name in before if name not in after]
            self._records += quota_records(entity, [*values, *gone])
        super().set_quotas(changed)

    def change_acls(self, added: Mapping[bytes, Acl], removed: Collection[bytes] = ()) -> None:
        super().change_acls(added, removed)
        self._records += [RemoveAccessControlEntryRecord(id=acl_id) for acl_id in removed]
        self._records += [acl_record(acl_id, acl) for acl_id, acl in added.items()]

    def change_scram_users(self, credentials: Mapping[ScramKey, ScramCredential | None]) -> None:
        super().change_scram_users(credentials)
        for (user, mechanism), one in credentials.items():
            self._records.append(
                RemoveUserScramCredentialRecord(name=user, mechanism=mechanism)
                if one is None
                else credential_record((user, mechanism), one)
            )

    def change_tokens(self, changes: Mapping[str, DelegationToken | None]) -> None:
        super().change_tokens(changes)
        for token_id, one in changes.items():
            self._records.append(
                RemoveDelegationTokenRecord(token_id=token_id) if one is None else token_record(one)
            )
