"""Facts of a cluster as records of its metadata log, for changes and snapshots.

Records come without a version; a field that the cluster's metadata.version does not have is left out.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING

from odradek.coordinator.cluster.changes import ClientMetricsOwner, GroupOwner, Owner
from odradek.coordinator.cluster.features import (
    CORDONS_SINCE,
    DIRECTORIES_SINCE,
    ELIGIBLE_LEADERS_VERSION,
    METADATA_VERSION,
)
from odradek.coordinator.cluster.metadata_image import SECURITY_PROTOCOLS
from odradek.coordinator.cluster.view import Broker, PartitionView, QuotaEntity
from odradek.coordinator.security.delegation_tokens import DelegationToken
from odradek.coordinator.security.scram_users import Key as ScramKey
from odradek.coordinator.security.scram_users import ScramCredential
from odradek.wire.messages.metadata_records import (
    BROKER_RESOURCE,
    CLIENT_METRICS_RESOURCE,
    GROUP_RESOURCE,
    TOPIC_RESOURCE,
    AccessControlEntryRecord,
    BrokerEndpoint,
    BrokerFeature,
    ClientQuotaRecord,
    ConfigRecord,
    DelegationTokenRecord,
    EntityData,
    FeatureLevelRecord,
    PartitionRecord,
    RegisterBrokerRecord,
    UserScramCredentialRecord,
)

if TYPE_CHECKING:
    from odradek.coordinator.security.acls import Acl


def broker_record(broker: Broker, metadata_version: int) -> RegisterBrokerRecord:
    """The registration as it is now, with all changes since."""
    cordoned = broker.cordoned_directories
    return RegisterBrokerRecord(
        broker_id=broker.node_id,
        incarnation_id=broker.incarnation_id,
        broker_epoch=broker.epoch,
        end_points=[
            BrokerEndpoint(
                name=name,
                host=one.host,
                port=one.port,
                security_protocol=SECURITY_PROTOCOLS.index(one.security_protocol),
            )
            for name, one in broker.endpoints.items()
        ],
        features=[
            BrokerFeature(name=name, min_supported_version=lowest, max_supported_version=highest)
            for name, (lowest, highest) in broker.features.items()
        ],
        rack=broker.rack,
        fenced=broker.is_fenced,
        in_controlled_shutdown=broker.in_controlled_shutdown,
        log_dirs=list(broker.directories) if metadata_version >= DIRECTORIES_SINCE else [],
        cordoned_log_dirs=(
            list(cordoned) if cordoned is not None and metadata_version >= CORDONS_SINCE else None
        ),
    )


def partition_record(
    topic_id: bytes, partition: PartitionView, features: Mapping[str, int]
) -> PartitionRecord:
    """The partition as it is now. Eligible leader replicas are written where they are switched on."""
    elr, last_known_elr = (
        (partition.elr, partition.last_known_elr) if features.get(ELIGIBLE_LEADERS_VERSION) else ((), ())
    )
    has_directories = features.get(METADATA_VERSION, 0) >= DIRECTORIES_SINCE
    return PartitionRecord(
        partition_id=partition.index,
        topic_id=topic_id,
        replicas=list(partition.replicas),
        isr=list(partition.isr),
        removing_replicas=list(partition.removing),
        adding_replicas=list(partition.adding),
        leader=partition.leader,
        leader_recovery_state=partition.leader_recovery_state,
        leader_epoch=partition.leader_epoch,
        partition_epoch=partition.partition_epoch,
        directories=list(partition.directories) if has_directories else [],
        eligible_leader_replicas=list(elr) or None,
        last_known_elr=list(last_known_elr) or None,
    )


def config_records(owner: Owner, values: Iterable[tuple[str, str | None]]) -> list[ConfigRecord]:
    """Settings by name; None: removed."""
    kind, name = _resource_of(owner)
    return [
        ConfigRecord(resource_type=kind, resource_name=name, name=key, value=value) for key, value in values
    ]


def _resource_of(owner: Owner) -> tuple[int, str]:
    """Type and name, as in a record."""
    if isinstance(owner, GroupOwner):
        return GROUP_RESOURCE, owner.group_id
    if isinstance(owner, ClientMetricsOwner):
        return CLIENT_METRICS_RESOURCE, owner.name
    if isinstance(owner, str):
        return TOPIC_RESOURCE, owner
    return BROKER_RESOURCE, "" if owner is None else str(owner)


def feature_records(levels: Mapping[str, int]) -> list[FeatureLevelRecord]:
    """In the order of the levels."""
    return [FeatureLevelRecord(name=name, feature_level=level) for name, level in levels.items()]


def quota_records(
    entity: QuotaEntity, values: Iterable[tuple[str, float | None]]
) -> Iterator[ClientQuotaRecord]:
    """Quotas of an entity by name; None: removed."""
    for key, value in values:
        yield ClientQuotaRecord(
            entity=[EntityData(entity_type=kind, entity_name=name) for kind, name in entity],
            key=key,
            value=value or 0.0,
            remove=value is None,
        )


def acl_record(acl_id: bytes, acl: Acl) -> AccessControlEntryRecord:
    return AccessControlEntryRecord(
        id=acl_id,
        resource_type=acl.resource_type,
        resource_name=acl.name,
        pattern_type=acl.pattern_type,
        principal=acl.principal,
        host=acl.host,
        operation=acl.operation,
        permission_type=acl.permission,
    )


def credential_record(key: ScramKey, credential: ScramCredential) -> UserScramCredentialRecord:
    user, mechanism = key
    return UserScramCredentialRecord(
        name=user,
        mechanism=mechanism,
        salt=credential.salt,
        stored_key=credential.stored_key,
        server_key=credential.server_key,
        iterations=credential.iterations,
    )


def token_record(token: DelegationToken) -> DelegationTokenRecord:
    return DelegationTokenRecord(
        owner=token.owner,
        requester=token.requester,
        renewers=list(token.renewers),
        issue_timestamp=token.issued_ms,
        max_timestamp=token.max_ms,
        expiration_timestamp=token.expiry_ms,
        token_id=token.token_id,
    )
