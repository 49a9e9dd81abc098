"""The cluster's metadata while one change of them is being made: later edits of it see the earlier ones."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, TypeVar

from odradek.coordinator.cluster.features import METADATA_VERSION, SCRAM_SINCE, TOKENS_SINCE
from odradek.coordinator.cluster.view import ClusterView, Quotas, TopicView
from odradek.coordinator.security.delegation_tokens import DelegationToken
from odradek.coordinator.security.scram_users import Deletion, ScramCredential, Upsertion
from odradek.coordinator.security.scram_users import Key as ScramKey
from odradek.wire.errors import KafkaError
from odradek.wire.work import Work

if TYPE_CHECKING:
    from odradek.coordinator.security.acls import Acl

R = TypeVar("R")
D = TypeVar("D", bound="Draft")


class Draft:
    """Parts of a view that a change may edit. A subclass makes of each edit what makes it durable."""

    def __init__(self, view: ClusterView) -> None:
        self.topics = dict(view.topics)
        self.topic_names = dict(view.topic_names)
        self.broker_configs = dict(view.broker_configs)
        self.group_configs = dict(view.group_configs)
        self.client_metrics_configs = dict(view.client_metrics_configs)
        self.features = view.features
        self.client_quotas = view.client_quotas
        self.acls = view.acls
        self.scram_users = view.scram_users
        self.tokens = view.delegation_tokens
        self.added: list[TopicView] = []
        """New topics."""
        self.deleted: list[TopicView] = []

    # Topics

    def add(self, topic: TopicView) -> None:
        self.topics[topic.name] = topic
        self.topic_names[topic.topic_id] = topic.name
        self.added.append(topic)

    def remove(self, topic: TopicView) -> None:
        del self.topics[topic.name], self.topic_names[topic.topic_id]
        self.deleted.append(topic)

    def grow(self, topic: TopicView) -> None:
        """The topic has more partitions than before."""
        self.topics[topic.name] = topic

    # Settings and features. Each takes all overrides before and after, which may be the same; `names` are the
    # settings that the request has named.

    def configure(self, before: TopicView, after: TopicView, names: Collection[str] = ()) -> None:
        self.topics[after.name] = after

    def configure_broker(
        self,
        node_id: int | None,
        before: Mapping[str, str],
        after: Mapping[str, str],
        names: Collection[str] = (),
    ) -> None:
        self.broker_configs[node_id] = after
        if not after:
            del self.broker_configs[node_id]

    def configure_group(
        self, group_id: str, before: Mapping[str, str], after: Mapping[str, str], names: Collection[str] = ()
    ) -> None:
        self.group_configs[group_id] = after
        if not after:
            del self.group_configs[group_id]

    def configure_client_metrics(
        self, name: str, before: Mapping[str, str], after: Mapping[str, str], names: Collection[str] = ()
    ) -> None:
        self.client_metrics_configs[name] = after
        if not after:
            del self.client_metrics_configs[name]

    def set_features(self, levels: Mapping[str, int]) -> None:
        """A level of 0 removes a feature."""
        self.features = {name: level for name, level in {**self.features, **levels}.items() if level > 0}

    # Security

    def set_quotas(self, changed: Quotas) -> None:
        """All quotas of each entity from now on."""
        quotas = {**self.client_quotas, **changed}
        self.client_quotas = {entity: values for entity, values in quotas.items() if values}

    def change_acls(self, added: Mapping[bytes, Acl], removed: Collection[bytes] = ()) -> None:
        """By id. ValueError: see `AclRules.changed`."""
        if added or removed:
            from odradek.coordinator.security.acls import AclRules

            self.acls = (self.acls or AclRules()).changed(added, removed)

    def alter_scram_users(
        self, deletions: Sequence[Deletion], upsertions: Sequence[Upsertion]
    ) -> Mapping[str, KafkaError | None]:
        """Change the credentials of each user that may have them so; the refusal (None: done) of each."""
        are_supported = self.features.get(METADATA_VERSION, 0) >= SCRAM_SINCE
        results, credentials = self.scram_users.alterations(
            deletions, upsertions, are_supported=are_supported
        )
        self.change_scram_users(credentials)
        return results

    def change_scram_users(self, credentials: Mapping[ScramKey, ScramCredential | None]) -> None:
        """None: removed."""
        if credentials:
            self.scram_users = self.scram_users.with_changes(credentials)

    @property
    def has_tokens(self) -> bool:
        """Whether the metadata.version has delegation tokens."""
        return self.features.get(METADATA_VERSION, 0) >= TOKENS_SINCE

    def change_tokens(self, changes: Mapping[str, DelegationToken | None]) -> None:
        """By id; None: removed."""
        if changes:
            self.tokens = self.tokens.with_changes(changes)


def at_once(edit: Callable[[D], R]) -> Callable[[D], Work[R]]:
    """A change without steps, for `changing`."""

    def editing(draft: D) -> Work[R]:
        return edit(draft)
        yield None

    return editing
