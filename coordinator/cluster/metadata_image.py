"""The state of a cluster, as the records of its controllers have made it, and the views of it.

`MetadataImage.replay` is the only writer of a cluster's views. A batch of the metadata log is replayed record
by record and ended with `end_batch`; `publish` makes the next immutable `ClusterView` of all that came since
the last one, and a `ClusterChange` that says what is different. Records between the begin and the end of a
transaction are held back; they count as a whole, or not at all. A snapshot replaces the image: call
`begin_snapshot`, replay it, end it as one batch; `publish` then tells the difference to the view before.

Views share what did not change: where one of 10,000 partitions is other, a new view is one new partition, one
new topic and one copied mapping of topics.

Quotas, users for SCRAM and delegation tokens are in the view, and ACLs become its rules. All of them are kept
(`MetadataImage.kept`).

Sources: `MetadataDelta`, `PartitionRegistration`, `ClusterDelta`, `MetadataBatchLoader` of Kafka.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from odradek.coordinator.cluster.features import KRAFT_VERSION
from odradek.coordinator.cluster.image_topics import (
    Configs,
    ConfigsTaken,
    InconsistentMetadata,
    Topics,
    TopicsTaken,
)
from odradek.coordinator.cluster.view import (
    Broker,
    ClusterChange,
    ClusterView,
    Endpoint,
    QuotaEntity,
    Quotas,
    quota_entity,
)
from odradek.coordinator.security.delegation_tokens import NO_TOKENS, DelegationToken, DelegationTokens
from odradek.coordinator.security.scram_users import NO_USERS, ScramCredential, ScramUsers
from odradek.wire.acl_types import Operation, PatternType, Permission, ResourceType
from odradek.wire.messages.metadata_records import (
    BROKER_RESOURCE,
    CLIENT_METRICS_RESOURCE,
    GROUP_RESOURCE,
    TOPIC_RESOURCE,
    AbortTransactionRecord,
    AccessControlEntryRecord,
    AnyRecord,
    BeginTransactionRecord,
    BrokerEndpoint,
    BrokerRegistrationChangeRecord,
    ClearElrRecord,
    ClientQuotaRecord,
    ConfigRecord,
    DelegationTokenRecord,
    EndTransactionRecord,
    FeatureLevelRecord,
    FenceBrokerRecord,
    KRaftVersionRecord,
    LeaderChangeMessage,
    MetadataRecord,
    NoOpRecord,
    PartitionChangeRecord,
    PartitionRecord,
    ProducerIdsRecord,
    RegisterBrokerRecord,
    RegisterControllerRecord,
    RemoveAccessControlEntryRecord,
    RemoveDelegationTokenRecord,
    RemoveTopicRecord,
    RemoveUserScramCredentialRecord,
    SnapshotFooterRecord,
    SnapshotHeaderRecord,
    TopicRecord,
    UnfenceBrokerRecord,
    UnregisterBrokerRecord,
    UnregisterControllerRecord,
    UserScramCredentialRecord,
    VotersRecord,
    ZkMigrationStateRecord,
)

if TYPE_CHECKING:
    from odradek.coordinator.security.acls import Acl, AclRules

SECURITY_PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
"""By their number in records."""

K = TypeVar("K")


class Publication(NamedTuple):
    view: ClusterView
    change: ClusterChange
    """Differences from the view before."""


class ImageState(NamedTuple):
    """All that the records up to an offset have made. It stays as it is: a snapshot may be made of it while
    the image goes on."""

    offset: int
    """Offset of the last record."""
    view: ClusterView
    next_producer_id: int
    """First id that no broker has in a block yet."""
    controllers: Mapping[int, RegisterControllerRecord]
    """Registered controllers by their id."""


class KeptRecords:
    """Whom to let in, and how much each may do, by key."""

    def __init__(self) -> None:
        self.quotas: dict[QuotaEntity, dict[str, float]] = {}
        self._scram_credentials: dict[tuple[str, int], ScramCredential] = {}
        self._scram_users: ScramUsers | None = NO_USERS
        self.access_control_entries: dict[bytes, AccessControlEntryRecord] = {}
        """By id."""
        self.touched_acls: set[bytes] = set()
        """Ids of what may be other than in the last view."""
        self._tokens: dict[str, DelegationToken] = {}
        self._delegation_tokens: DelegationTokens | None = NO_TOKENS
        self._quotas_are_new = True

    @property
    def scram_users(self) -> ScramUsers:
        """Another table after each change."""
        if self._scram_users is None:
            self._scram_users = ScramUsers(dict(self._scram_credentials))
        return self._scram_users

    def set_quota(self, record: ClientQuotaRecord) -> None:
        entity = quota_entity((one.entity_type, one.entity_name) for one in record.entity)
        values = self.quotas.setdefault(entity, {})
        if record.remove:
            values.pop(record.key, None)
        else:
            values[record.key] = record.value
        if not values:
            del self.quotas[entity]
        self._quotas_are_new = True

    def quotas_taken(self, before: Quotas) -> Quotas:
        """The quotas as a mapping that stays as it is; `before` itself when none is other."""
        if not self._quotas_are_new:
            return before
        self._quotas_are_new = False
        now = {entity: dict(values) for entity, values in self.quotas.items()}
        return before if now == before else now

    def set_credential(self, record: UserScramCredentialRecord) -> None:
        self._scram_users = None
        self._scram_credentials[record.name, record.mechanism] = ScramCredential(
            bytes(record.salt), bytes(record.stored_key), bytes(record.server_key), record.iterations
        )

    def remove_credential(self, record: RemoveUserScramCredentialRecord) -> None:
        self._scram_users = None
        self._scram_credentials.pop((record.name, record.mechanism), None)

    def set_entry(self, record: AccessControlEntryRecord) -> None:
        self.access_control_entries[record.id] = record
        self.touched_acls.add(record.id)

    def remove_entry(self, record: RemoveAccessControlEntryRecord) -> None:
        self.access_control_entries.pop(record.id, None)
        self.touched_acls.add(record.id)

    def acl_rules(self, before: AclRules | None) -> AclRules | None:
        """The rules now; `before` itself when none is other. Raises InconsistentMetadata."""
        touched, self.touched_acls = self.touched_acls, set()
        if not touched:
            return before
        from odradek.coordinator.security.acls import AclRules

        rules = AclRules() if before is None else before
        entries = self.access_control_entries
        try:
            now = {one: _acl_of(entries[one]) for one in touched if one in entries}
            others = [one for one in touched if rules.by_id.get(one) != now.get(one)]
            if not others:
                return before
            return rules.changed(
                {one: now[one] for one in others if one in now}, [one for one in others if one in rules.by_id]
            )
        except ValueError as error:
            raise InconsistentMetadata(str(error)) from None

    def set_token(self, record: DelegationTokenRecord) -> None:
        self._delegation_tokens = None
        self._tokens[record.token_id] = DelegationToken(
            record.token_id,
            record.owner,
            record.requester,
            tuple(record.renewers),
            record.issue_timestamp,
            record.max_timestamp,
            record.expiration_timestamp,
        )

    def remove_token(self, record: RemoveDelegationTokenRecord) -> None:
        self._delegation_tokens = None
        self._tokens.pop(record.token_id, None)

    @property
    def delegation_tokens(self) -> DelegationTokens:
        """Another table after each change."""
        if self._delegation_tokens is None:
            self._delegation_tokens = DelegationTokens(dict(self._tokens))
        return self._delegation_tokens


class _Brokers:
    """Registrations. A registration is replaced, never edited."""

    def __init__(self) -> None:
        self.registrations: dict[int, Broker] = {}
        self.touched: set[int] = set()

    def register(self, record: RegisterBrokerRecord) -> None:
        cordoned = record.cordoned_log_dirs
        broker = Broker(
            record.broker_id,
            {one.name: _endpoint(one) for one in record.end_points},
            record.rack,
            record.broker_epoch,
            record.incarnation_id,
            record.fenced,
            record.in_controlled_shutdown,
            tuple(sorted(record.log_dirs)),
            None if cordoned is None else tuple(sorted(cordoned)),
            {one.name: (one.min_supported_version, one.max_supported_version) for one in record.features},
        )
        self._put(broker)

    def unregister(self, record: UnregisterBrokerRecord) -> None:
        self._find(record.broker_id, record.broker_epoch, record)
        del self.registrations[record.broker_id]
        self.touched.add(record.broker_id)

    def fence(self, record: FenceBrokerRecord) -> None:
        self._put(replace(self._find(record.id, record.epoch, record), is_fenced=True))

    def unfence(self, record: UnfenceBrokerRecord) -> None:
        self._put(replace(self._find(record.id, record.epoch, record), is_fenced=False))

    def change(self, record: BrokerRegistrationChangeRecord) -> None:
        broker = self._find(record.broker_id, record.broker_epoch, record)
        cordoned = record.cordoned_log_dirs
        self._put(
            replace(
                broker,
                is_fenced=record.fenced > 0 if record.fenced else broker.is_fenced,
                in_controlled_shutdown=record.in_controlled_shutdown > 0 or broker.in_controlled_shutdown,
                directories=tuple(sorted(record.log_dirs)) or broker.directories,
                cordoned_directories=(
                    broker.cordoned_directories if cordoned is None else tuple(sorted(cordoned))
                ),
            )
        )

    def taken(self, before: Mapping[int, Broker]) -> Mapping[int, Broker]:
        """The registrations as a mapping that stays as it is; `before` itself when none is other."""
        now = {node_id: self.registrations.get(node_id) for node_id in self.touched}
        self.touched.clear()
        if all(before.get(node_id) == broker for node_id, broker in now.items()):
            return before
        return dict(self.registrations)

    def _find(self, node_id: int, epoch: int, record: MetadataRecord) -> Broker:
        broker = self.registrations.get(node_id)
        if broker is None or broker.epoch != epoch:
            known = "is not registered" if broker is None else f"has the epoch {broker.epoch}"
            raise InconsistentMetadata(f"{record}: broker {node_id} {known}")
        return broker

    def _put(self, broker: Broker) -> None:
        self.registrations[broker.node_id] = broker
        self.touched.add(broker.node_id)


class _Contents:
    """Contents of the records so far."""

    def __init__(self, node_id: int) -> None:
        self.kept = KeptRecords()
        self.brokers = _Brokers()
        self.configs = Configs()
        self.topics = Topics(node_id, self.configs)
        self.features: Mapping[str, int] = {}
        self.next_producer_id = 0
        self.controllers: Mapping[int, RegisterControllerRecord] = {}
        self._held: list[MetadataRecord] | None = None
        self._replays = self._handlers()

    @property
    def is_in_transaction(self) -> bool:
        return self._held is not None

    def replay(self, record: AnyRecord) -> None:
        if isinstance(record, BeginTransactionRecord):
            if self._held is not None:
                raise InconsistentMetadata(f"{record}: a transaction is open already")
            self._held = []
        elif isinstance(record, EndTransactionRecord | AbortTransactionRecord):
            held, self._held = self._held, None
            if held is None:
                raise InconsistentMetadata(f"{record}: no transaction is open")
            if isinstance(record, EndTransactionRecord):
                for one in held:
                    self._replays[type(one)](one)
        elif self._held is not None and isinstance(record, MetadataRecord):
            self._held.append(record)
        else:
            self._replays[type(record)](record)

    def touch_all(self, view: ClusterView) -> None:
        """Have all that a view has looked at when the next one is made."""
        self.topics.touch_all(view.topics.values())
        if view.acls is not None:
            self.kept.touched_acls.update(view.acls.by_id)
        self.brokers.touched.update(view.registrations)
        owners = {
            TOPIC_RESOURCE: view.topics,
            BROKER_RESOURCE: ["" if one is None else str(one) for one in view.broker_configs],
            GROUP_RESOURCE: view.group_configs,
            CLIENT_METRICS_RESOURCE: view.client_metrics_configs,
        }
        for kind, names in owners.items():
            self.configs.touched.update((kind, name) for name in names)

    def _handlers(self) -> dict[type[AnyRecord], Callable[[Any], None]]:
        topics, brokers, kept = self.topics, self.brokers, self.kept
        return {
            AccessControlEntryRecord: kept.set_entry,
            BrokerRegistrationChangeRecord: brokers.change,
            ClearElrRecord: topics.clear_elr,
            ClientQuotaRecord: kept.set_quota,
            ConfigRecord: self.configs.change,
            DelegationTokenRecord: kept.set_token,
            FeatureLevelRecord: self._set_feature_level,
            FenceBrokerRecord: brokers.fence,
            KRaftVersionRecord: self._set_kraft_version,
            PartitionChangeRecord: topics.change_partition,
            PartitionRecord: topics.add_partition,
            ProducerIdsRecord: self._set_producer_ids,
            RegisterBrokerRecord: brokers.register,
            RegisterControllerRecord: self._register_controller,
            RemoveAccessControlEntryRecord: kept.remove_entry,
            RemoveDelegationTokenRecord: kept.remove_token,
            RemoveTopicRecord: topics.remove,
            RemoveUserScramCredentialRecord: kept.remove_credential,
            TopicRecord: topics.add,
            UnfenceBrokerRecord: brokers.unfence,
            UnregisterBrokerRecord: brokers.unregister,
            UnregisterControllerRecord: self._unregister_controller,
            UserScramCredentialRecord: kept.set_credential,
            **dict.fromkeys(WITHOUT_EFFECT, _ignore),
        }

    def _set_kraft_version(self, record: KRaftVersionRecord) -> None:
        self._set_feature(KRAFT_VERSION, record.kraft_version)

    def _set_feature_level(self, record: FeatureLevelRecord) -> None:
        self._set_feature(record.name, record.feature_level)

    def _set_feature(self, name: str, level: int) -> None:
        features = {**self.features, name: level}
        if level == 0:
            del features[name]
        self.features = features

    def _register_controller(self, record: RegisterControllerRecord) -> None:
        self.controllers = {**self.controllers, record.controller_id: record}

    def _unregister_controller(self, record: UnregisterControllerRecord) -> None:
        others = {key: one for key, one in self.controllers.items() if key != record.controller_id}
        self.controllers = others

    def _set_producer_ids(self, record: ProducerIdsRecord) -> None:
        self.next_producer_id = record.next_producer_id


def _acl_of(record: AccessControlEntryRecord) -> Acl:
    """ValueError: nobody can know what it means."""
    from odradek.coordinator.security.acls import Acl, member_or_code

    pattern_type, permission = PatternType(record.pattern_type), Permission(record.permission_type)
    if pattern_type not in (PatternType.LITERAL, PatternType.PREFIXED) or permission not in (
        Permission.DENY,
        Permission.ALLOW,
    ):
        raise ValueError(f"{record}: neither the pattern nor the permission may be of another type")
    return Acl(
        member_or_code(ResourceType, record.resource_type),
        record.resource_name,
        pattern_type,
        record.principal,
        record.host,
        member_or_code(Operation, record.operation),
        permission,
    )


def _endpoint(record: BrokerEndpoint) -> Endpoint:
    number = record.security_protocol
    if not 0 <= number < len(SECURITY_PROTOCOLS):
        raise InconsistentMetadata(f"listener {record.name} has the security protocol {number}")
    return Endpoint(record.host, record.port, SECURITY_PROTOCOLS[number])


class MetadataImage:
    """The image of one node of a cluster, and the last view that it has published.

    Not safe for threads; its views are. After an exception the image is of no use any more: the node stops,
    or begins a snapshot.
    """

    def __init__(self, node_id: int, cluster_id: str) -> None:
        self.view = ClusterView(cluster_id=cluster_id)
        self.offset = -1
        """Offset of the last record that the image has as a whole; -1: it has none."""
        self._node_id = node_id
        self._contents = _Contents(node_id)

    @property
    def kept(self) -> KeptRecords:
        return self._contents.kept

    @property
    def next_producer_id(self) -> int:
        """First id that no broker has in a block yet."""
        return self._contents.next_producer_id

    @property
    def state(self) -> ImageState:
        """Right where all that was replayed has been published, or makes no other view."""
        contents = self._contents
        return ImageState(self.offset, self.view, contents.next_producer_id, contents.controllers)

    @property
    def is_in_transaction(self) -> bool:
        return self._contents.is_in_transaction

    def replay(self, record: AnyRecord) -> None:
        """Take in a record. Raises InconsistentMetadata for one that does not fit to those before it."""
        self._contents.replay(record)

    def end_batch(self, last_offset: int) -> None:
        """The records up to this offset were replayed. An open transaction leaves `offset` as it was."""
        if not self.is_in_transaction:
            self.offset = last_offset

    def begin_snapshot(self) -> None:
        """Forget everything but the last view; the records of a snapshot follow."""
        self._contents = _Contents(self._node_id)
        self._contents.touch_all(self.view)

    def publish(self) -> Publication | None:
        """The next view and what is new in it; None when nothing is: the view stays.

        Raises InconsistentMetadata when a topic has a gap in its partitions.
        """
        before, contents = self.view, self._contents
        registrations = contents.brokers.taken(before.registrations)
        rehomed = _with_other_directories(before.registrations, registrations)
        configs = contents.configs.taken(before)
        topics = contents.topics.taken(before, registrations, rehomed, configs.topics)
        after = replace(
            before,
            topics=topics.topics,
            topic_names=topics.topic_names,
            registrations=registrations,
            broker_configs=configs.broker_configs,
            group_configs=configs.group_configs,
            client_metrics_configs=configs.client_metrics_configs,
            features=before.features if contents.features == before.features else contents.features,
            client_quotas=contents.kept.quotas_taken(before.client_quotas),
            acls=contents.kept.acl_rules(before.acls),
            scram_users=contents.kept.scram_users,
            delegation_tokens=contents.kept.delegation_tokens,
        )
        if _is_same(before, after):
            return None
        if registrations is not before.registrations:
            brokers = {node_id: one for node_id, one in registrations.items() if not one.is_fenced}
            after = replace(after, brokers=brokers, controller_id=self._named_controller(brokers))
        self.view = replace(after, version=before.version + 1, features_epoch=max(self.offset, 0))
        return Publication(self.view, _change(before, self.view, topics, configs))

    def _named_controller(self, brokers: Mapping[int, Broker]) -> int:
        """The controller that clients are told: every broker forwards what it cannot decide."""
        return self._node_id if self._node_id in brokers else min(brokers, default=-1)


WITHOUT_EFFECT = (
    LeaderChangeMessage,
    NoOpRecord,
    SnapshotFooterRecord,
    SnapshotHeaderRecord,
    VotersRecord,
    ZkMigrationStateRecord,
)
"""Records without effect here: who reads the log reads leader and voters itself."""


def _ignore(record: AnyRecord) -> None:
    pass


def _with_other_directories(before: Mapping[int, Broker], after: Mapping[int, Broker]) -> set[int]:
    """Brokers that came, went, or have other directories."""
    if before is after:
        return set()
    pairs = {node_id: (before.get(node_id), after.get(node_id)) for node_id in before.keys() | after.keys()}
    return {
        node_id
        for node_id, (old, new) in pairs.items()
        if old is None or new is None or old.directories != new.directories
    }


def _is_same(before: ClusterView, after: ClusterView) -> bool:
    """Whether nothing has changed. An unchanged part is the same object: nothing large is compared."""
    return all(
        getattr(before, name) is getattr(after, name)
        for name in (
            *("topics", "registrations", "features", "acls"),
            *("broker_configs", "group_configs", "client_metrics_configs", "client_quotas", "scram_users"),
            "delegation_tokens",
        )
    )


def _change(
    before: ClusterView, after: ClusterView, topics: TopicsTaken, configs: ConfigsTaken
) -> ClusterChange:
    return ClusterChange(
        topics.created,
        topics.deleted,
        topics.configured,
        configs.brokers,
        configs.groups,
        topics.changed,
        topics.removed,
        _differences(before.registrations, after.registrations),
        _differences(before.features, after.features),
    )


def _differences(before: Mapping[K, object], after: Mapping[K, object]) -> list[K]:
    """Keys that have another value, or that only one of the two has."""
    if before is after:
        return []
    return [key for key in before.keys() | after.keys() if before.get(key) != after.get(key)]
