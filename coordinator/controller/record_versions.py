"""Versions of metadata records: the one in which a controller writes a record at a metadata.version.

Any node that serves the metadata.version can read it. A record that a change of a broker's registration needs
has the version that brought the changed field, so that an older node can read the others.

Source: MetadataVersion, ReplicationControlManager and ClusterControlManager of Kafka 4.4.
"""

from __future__ import annotations

from collections.abc import Mapping

from odradek.coordinator.cluster.features import (
    CORDONS_SINCE,
    DIRECTORIES_SINCE,
    ELIGIBLE_LEADERS_SINCE,
    SCRAM_SINCE,
    TOKENS_SINCE,
    UNREGISTERS_CONTROLLERS_SINCE,
    broker_gates,
)
from odradek.wire.messages.metadata_records import (
    AbortTransactionRecord,
    BeginTransactionRecord,
    BrokerRegistrationChangeRecord,
    ClearElrRecord,
    DelegationTokenRecord,
    EndTransactionRecord,
    FenceBrokerRecord,
    MetadataRecord,
    PartitionChangeRecord,
    PartitionRecord,
    RegisterBrokerRecord,
    RegisterControllerRecord,
    RemoveDelegationTokenRecord,
    RemoveUserScramCredentialRecord,
    UnfenceBrokerRecord,
    UnregisterControllerRecord,
    UserScramCredentialRecord,
    ZkMigrationStateRecord,
)

TRANSACTIONS_SINCE = 13
CONTROLLERS_SINCE = 15

_SINCE: Mapping[type[MetadataRecord], int] = {
    AbortTransactionRecord: TRANSACTIONS_SINCE,
    BeginTransactionRecord: TRANSACTIONS_SINCE,
    ClearElrRecord: ELIGIBLE_LEADERS_SINCE,
    DelegationTokenRecord: TOKENS_SINCE,
    EndTransactionRecord: TRANSACTIONS_SINCE,
    RegisterControllerRecord: CONTROLLERS_SINCE,
    RemoveDelegationTokenRecord: TOKENS_SINCE,
    RemoveUserScramCredentialRecord: SCRAM_SINCE,
    UnregisterControllerRecord: UNREGISTERS_CONTROLLERS_SINCE,
    UserScramCredentialRecord: SCRAM_SINCE,
}
"""The first metadata.version with such records, where it is not the first one that there is."""
_OF_OLD_CONTROLLERS = (FenceBrokerRecord, UnfenceBrokerRecord, ZkMigrationStateRecord)


def version_of(record: MetadataRecord, metadata_version: int) -> int:
    """The version in which the record is written.

    ValueError: a cluster at this metadata.version cannot have it, or only Kafka's older controllers wrote it.
    """
    if isinstance(record, PartitionRecord | PartitionChangeRecord):
        return broker_gates(metadata_version).partition_record_version
    if isinstance(record, BrokerRegistrationChangeRecord):
        version, since = _registration_change(record)
    elif isinstance(record, RegisterBrokerRecord):
        return broker_gates(metadata_version).register_broker_record_version
    else:
        version, since = 0, _SINCE.get(type(record), 0)
    if metadata_version < since or isinstance(record, _OF_OLD_CONTROLLERS):
        name = type(record).__name__
        raise ValueError(f"no controller writes such a {name} at metadata.version {metadata_version}")
    return version


def _registration_change(record: BrokerRegistrationChangeRecord) -> tuple[int, int]:
    """The version of the newest field that has a value, and the metadata.version that has brought it."""
    if record.cordoned_log_dirs is not None:
        return 3, CORDONS_SINCE
    if record.log_dirs:
        return 2, DIRECTORIES_SINCE
    return (1, 0) if record.in_controlled_shutdown else (0, 0)
