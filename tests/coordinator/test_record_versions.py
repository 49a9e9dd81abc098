"""The version of each metadata record at each metadata.version, as Kafka 4.4's controllers write them."""

import pytest

from odradek.coordinator.cluster.features import FEATURES, METADATA_VERSION
from odradek.coordinator.controller.record_versions import version_of
from odradek.wire.messages.metadata_records import (
    RECORDS,
    AbortTransactionRecord,
    BeginTransactionRecord,
    BrokerRegistrationChangeRecord,
    ClearElrRecord,
    DelegationTokenRecord,
    EndTransactionRecord,
    FenceBrokerRecord,
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

LEVELS = range(FEATURES[METADATA_VERSION].lowest, FEATURES[METADATA_VERSION].highest + 1)
IBP_3_4_IV0, IBP_3_5_IV2, IBP_3_6_IV1, IBP_3_6_IV2, IBP_3_7_IV0, IBP_3_7_IV2 = 8, 11, 13, 14, 15, 17
IBP_4_0_IV1, IBP_4_3_IV0, IBP_4_4_IV2 = 23, 30, 33
ID = b"d" * 16

REGISTER_BROKER = {7: 1, IBP_3_4_IV0: 2, IBP_3_7_IV2: 3, IBP_4_3_IV0: 4}
"""MetadataVersion.registerBrokerRecordVersion: the first metadata.version of each version."""
PARTITION = {7: 0, IBP_3_7_IV2: 1, IBP_4_0_IV1: 2}
"""MetadataVersion.partitionRecordVersion and partitionChangeRecordVersion."""
TRANSACTION, SCRAM, TOKEN = {IBP_3_6_IV1: 0}, {IBP_3_5_IV2: 0}, {IBP_3_6_IV2: 0}
"""isMetadataTransactionSupported, isScramSupported, isDelegationTokenSupported."""

VERSIONS = [
    (RegisterBrokerRecord(), REGISTER_BROKER),
    (PartitionRecord(), PARTITION),
    (PartitionChangeRecord(), PARTITION),
    # ReplicationControlManager.handleBrokerFenced and its neighbours write fixed versions.
    (BrokerRegistrationChangeRecord(fenced=1), {7: 0}),
    (BrokerRegistrationChangeRecord(fenced=-1), {7: 0}),
    (BrokerRegistrationChangeRecord(in_controlled_shutdown=1), {7: 1}),
    (BrokerRegistrationChangeRecord(log_dirs=[ID]), {IBP_3_7_IV2: 2}),
    (BrokerRegistrationChangeRecord(cordoned_log_dirs=[ID]), {IBP_4_3_IV0: 3}),
    (BrokerRegistrationChangeRecord(cordoned_log_dirs=[]), {IBP_4_3_IV0: 3}),
    (BeginTransactionRecord(), TRANSACTION),
    (EndTransactionRecord(), TRANSACTION),
    (AbortTransactionRecord(), TRANSACTION),
    (UserScramCredentialRecord(), SCRAM),
    (RemoveUserScramCredentialRecord(), SCRAM),
    (DelegationTokenRecord(), TOKEN),
    (RemoveDelegationTokenRecord(), TOKEN),
    # isElrSupported, isControllerRegistrationSupported, isControllerUnregistrationSupported.
    (ClearElrRecord(), {IBP_4_0_IV1: 0}),
    (RegisterControllerRecord(), {IBP_3_7_IV0: 0}),
    (UnregisterControllerRecord(), {IBP_4_4_IV2: 0}),
    (FenceBrokerRecord(), {}),
    (UnfenceBrokerRecord(), {}),
    (ZkMigrationStateRecord(), {}),
]
ALWAYS = RECORDS.keys() - {record.record_type for record, _ in VERSIONS}


def versions_of(record):
    """By metadata.version; None: no controller writes the record there."""
    found = {}
    for level in LEVELS:
        try:
            found[level] = version_of(record, level)
        except ValueError:
            found[level] = None
    return found


@pytest.mark.parametrize(("record", "since"), VERSIONS, ids=lambda one: type(one).__name__)
def test_each_record_has_the_version_that_kafka_writes(record, since):
    firsts = sorted(since)
    expected = {
        level: since[max(before)] if (before := [one for one in firsts if one <= level]) else None
        for level in LEVELS
    }
    assert versions_of(record) == expected


@pytest.mark.parametrize("record_type", sorted(ALWAYS))
def test_all_other_records_have_version_0_everywhere(record_type):
    assert RECORDS[record_type].versions == range(1)
    assert set(versions_of(RECORDS[record_type]()).values()) == {0}
