"""The first records of a new cluster: what `kafka-storage format` writes, and what a controller adds.

Source: Formatter, BootstrapMetadata and ActivationRecordsGenerator of Kafka 4.4.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from odradek.coordinator.cluster.changes import MIN_INSYNC_REPLICAS
from odradek.coordinator.cluster.features import (
    ELIGIBLE_LEADERS_VERSION,
    KRAFT_VERSION,
    METADATA_VERSION,
    SCRAM_SINCE,
)
from odradek.coordinator.controller.log import LoadedBatch
from odradek.coordinator.controller.record_versions import TRANSACTIONS_SINCE
from odradek.coordinator.controller.records import config_records, credential_record, feature_records
from odradek.coordinator.security.scram_users import Key as ScramKey
from odradek.coordinator.security.scram_users import ScramCredential
from odradek.wire.messages.metadata_records import (
    AbortTransactionRecord,
    BeginTransactionRecord,
    EndTransactionRecord,
    FeatureLevelRecord,
    MetadataRecord,
)


class Beginning(NamedTuple):
    """Whether a log has begun a cluster."""

    has_level: bool
    """Whether there is a metadata.version."""
    is_in_transaction: bool
    """Whether, without one, a crash has left a transaction open."""


def beginning(batches: Iterable[LoadedBatch]) -> Beginning:
    """Look for the metadata.version in a log, which is in its first records."""
    has_level = is_in_transaction = False
    for batch in batches:
        for record in batch.records:
            if isinstance(record, FeatureLevelRecord) and record.name == METADATA_VERSION:
                has_level = True
            elif isinstance(record, BeginTransactionRecord):
                is_in_transaction = True
            elif isinstance(record, EndTransactionRecord):
                is_in_transaction = False
            elif isinstance(record, AbortTransactionRecord):
                is_in_transaction = has_level = False
        if has_level and not is_in_transaction:
            return Beginning(True, False)
    return Beginning(False, is_in_transaction)


def first_records(
    levels: Mapping[str, int],
    min_insync_replicas: int,
    credentials: Mapping[ScramKey, ScramCredential] = {},
) -> list[MetadataRecord]:
    """All records of a new log, to be appended at the metadata.version of the levels (see `first_levels`):
    the levels, users, and with eligible leader replicas `min.insync.replicas` for all brokers. They are a
    transaction, where the metadata.version has those.

    `kraft.version` is not among them: it is a control record, as the voters are. ValueError: the
    metadata.version has no users.
    """
    metadata_version = levels[METADATA_VERSION]
    if credentials and metadata_version < SCRAM_SINCE:
        raise ValueError(f"users need {METADATA_VERSION} {SCRAM_SINCE} or later")
    others = {
        name: level
        for name, level in sorted(levels.items())
        if level > 0 and name not in (METADATA_VERSION, KRAFT_VERSION)
    }
    records: list[MetadataRecord] = [*feature_records({METADATA_VERSION: metadata_version, **others})]
    records += [credential_record(key, one) for key, one in credentials.items()]
    if ELIGIBLE_LEADERS_VERSION in others:
        records += config_records(None, [(MIN_INSYNC_REPLICAS, str(min_insync_replicas))])
    if metadata_version < TRANSACTIONS_SINCE:
        return records
    return [BeginTransactionRecord(name="Bootstrap records"), *records, EndTransactionRecord()]
