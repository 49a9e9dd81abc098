"""Records of `__cluster_metadata-0`, the metadata log of Kafka's controllers.

A value is framed: unsigned varints with the version of the frame (1), the type of the record and its version;
then fields, flexible in every version. In Kafka 4.3 `RegisterBroker` 1 adds controlled shutdown, 3
directories, 4 cordoned directories; `BrokerRegistrationChange` the same in 1, 2 and 3; `Partition` and
`PartitionChange` 1 directories, 2 eligible leader replicas. Kafka 4.4 adds `UnregisterController`.

Records of control batches belong to the quorum: their key is the version (int16) of the key and the type
(int16), their value is not framed. Its fields have the version again.

Sources: the schemas in Kafka's `metadata/src/main/resources/common/metadata`, `AbstractApiMessageSerde`,
`ControlRecordUtils`.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from typing import ClassVar, NamedTuple, TypeVar

from odradek.wire._records import BatchHeader, read_batch_header
from odradek.wire.codec import decode_message, decoder, encode_message
from odradek.wire.errors import MalformedMessage
from odradek.wire.records import iter_records
from odradek.wire.schema import (
    ALL,
    BOOL,
    BYTES,
    FLOAT64,
    INT8,
    INT16,
    INT32,
    INT64,
    STRING,
    UINT16,
    UUID,
    Array,
    Buffer,
    Struct,
    Versioned,
    on_wire,
)

FRAME_VERSION = 1
NO_LEADER_CHANGE = -2
"""In `PartitionChangeRecord.leader`."""
TOPIC_RESOURCE, BROKER_RESOURCE, CLIENT_METRICS_RESOURCE, GROUP_RESOURCE = 2, 4, 16, 32
"""In `ConfigRecord.resource_type`."""

R = TypeVar("R", bound=Versioned)

_CONTROL_KEY = struct.Struct(">hh")
_VERSION = struct.Struct(">h")


class MetadataRecord(Versioned):
    """A decision of the controller."""

    record_type: ClassVar[int]

    def __init_subclass__(cls, record_type: int | None = None, **arguments: object) -> None:
        super().__init_subclass__(**arguments)  # type: ignore[arg-type]
        if record_type is not None:
            cls.record_type = record_type


class ControlRecord(Versioned):
    """A fact of the quorum that keeps the log."""

    control_type: ClassVar[int]
    version: int

    def __init_subclass__(cls, control_type: int | None = None, **arguments: object) -> None:
        super().__init_subclass__(**arguments)  # type: ignore[arg-type]
        if control_type is not None:
            cls.control_type = control_type


AnyRecord = MetadataRecord | ControlRecord


class UnknownMetadataRecord(MalformedMessage):
    """A record of an unknown type or version: the cluster is newer than this node."""


# --- Brokers and controllers ---


class BrokerEndpoint(Struct):
    name: str = on_wire(STRING)
    """Name of the listener."""
    host: str = on_wire(STRING)
    """Host name or address, as advertised."""
    port: int = on_wire(UINT16)
    """Port number."""
    security_protocol: int = on_wire(INT16)
    """0 PLAINTEXT, 1 SSL, 2 SASL_PLAINTEXT, 3 SASL_SSL."""


class BrokerFeature(Struct):
    name: str = on_wire(STRING)
    """Name of the feature."""
    min_supported_version: int = on_wire(INT16)
    """Lowest level that the broker supports."""
    max_supported_version: int = on_wire(INT16)
    """Highest level that the broker supports."""


class RegisterBrokerRecord(MetadataRecord, record_type=0, versions=(0, 4), flexible_since=0):
    broker_id: int = on_wire(INT32)
    """Id of the broker."""
    is_migrating_zk_broker: bool = on_wire(BOOL, since=2)
    """Whether the broker migrates from ZooKeeper."""
    incarnation_id: bytes = on_wire(UUID)
    """Id of the process of the broker."""
    broker_epoch: int = on_wire(INT64)
    """Epoch of the registration: the offset of its record."""
    end_points: list[BrokerEndpoint] = on_wire(Array(BrokerEndpoint))
    """Addresses of the broker."""
    features: list[BrokerFeature] = on_wire(Array(BrokerFeature))
    """Feature levels that the broker supports."""
    rack: str | None = on_wire(STRING, nullable=ALL)
    """Rack of the broker, null if it has none."""
    fenced: bool = on_wire(BOOL, default=True)
    """Whether the broker is fenced."""
    in_controlled_shutdown: bool = on_wire(BOOL, since=1)
    """Whether the broker hands its leaderships over, to stop."""
    log_dirs: list[bytes] = on_wire(Array(UUID), since=3, tag=0)
    """Ids of the log directories that can be used."""
    cordoned_log_dirs: list[bytes] | None = on_wire(Array(UUID), since=4, default=None, nullable=4, tag=1)
    """Ids of log directories that take no new replicas; null before the broker has reported them."""


class UnregisterBrokerRecord(MetadataRecord, record_type=1, versions=(0, 0), flexible_since=0):
    broker_id: int = on_wire(INT32)
    """Broker to unregister."""
    broker_epoch: int = on_wire(INT64)
    """Epoch of its registration."""


class FenceBrokerRecord(MetadataRecord, record_type=7, versions=(0, 0), flexible_since=0):
    id: int = on_wire(INT32)
    """Broker to fence; only in logs from before 3.3."""
    epoch: int = on_wire(INT64)
    """Epoch of its registration."""


class UnfenceBrokerRecord(MetadataRecord, record_type=8, versions=(0, 0), flexible_since=0):
    id: int = on_wire(INT32)
    """Broker to unfence; only in logs from before 3.3."""
    epoch: int = on_wire(INT64)
    """Epoch of its registration."""


class BrokerRegistrationChangeRecord(MetadataRecord, record_type=17, versions=(0, 3), flexible_since=0):
    broker_id: int = on_wire(INT32)
    """Id of the broker."""
    broker_epoch: int = on_wire(INT64)
    """Epoch of its registration."""
    fenced: int = on_wire(INT8, tag=0)
    """1: fenced, -1: unfenced, 0: no change."""
    in_controlled_shutdown: int = on_wire(INT8, since=1, tag=1)
    """1: the broker hands its leaderships over, 0: no change."""
    log_dirs: list[bytes] = on_wire(Array(UUID), since=2, tag=2)
    """Ids of the log directories that can be used; empty: no change."""
    cordoned_log_dirs: list[bytes] | None = on_wire(Array(UUID), since=3, default=None, nullable=3, tag=3)
    """Ids of log directories that take no new replicas; null: no change."""


class ControllerEndpoint(Struct):
    name: str = on_wire(STRING)
    """Name of the listener."""
    host: str = on_wire(STRING)
    """Host name or address."""
    port: int = on_wire(UINT16)
    """Port number."""
    security_protocol: int = on_wire(INT16)
    """0 PLAINTEXT, 1 SSL, 2 SASL_PLAINTEXT, 3 SASL_SSL."""


class ControllerFeature(Struct):
    name: str = on_wire(STRING)
    """Name of the feature."""
    min_supported_version: int = on_wire(INT16)
    """Lowest level that the controller supports."""
    max_supported_version: int = on_wire(INT16)
    """Highest level that the controller supports."""


class RegisterControllerRecord(MetadataRecord, record_type=27, versions=(0, 0), flexible_since=0):
    controller_id: int = on_wire(INT32)
    """Id of the controller."""
    incarnation_id: bytes = on_wire(UUID)
    """Id of the process of the controller."""
    zk_migration_ready: bool = on_wire(BOOL)
    """Whether the controller could take over from ZooKeeper."""
    end_points: list[ControllerEndpoint] = on_wire(Array(ControllerEndpoint))
    """Addresses of the controller."""
    features: list[ControllerFeature] = on_wire(Array(ControllerFeature))
    """Feature levels that the controller supports."""


# --- Topics and partitions ---


class UnregisterControllerRecord(MetadataRecord, record_type=29, versions=(0, 0), flexible_since=0):
    controller_id: int = on_wire(INT32)
    """Id of the controller that is none any more."""


class TopicRecord(MetadataRecord, record_type=2, versions=(0, 0), flexible_since=0):
    name: str = on_wire(STRING)
    """Name of the topic."""
    topic_id: bytes = on_wire(UUID)
    """Id of the topic."""


class PartitionRecord(MetadataRecord, record_type=3, versions=(0, 2), flexible_since=0):
    partition_id: int = on_wire(INT32, default=-1)
    """Partition number."""
    topic_id: bytes = on_wire(UUID)
    """Id of the topic."""
    replicas: list[int] = on_wire(Array(INT32))
    """Brokers with a replica, the preferred leader first."""
    isr: list[int] = on_wire(Array(INT32))
    """In-sync replicas."""
    removing_replicas: list[int] = on_wire(Array(INT32))
    """Replicas that a reassignment removes."""
    adding_replicas: list[int] = on_wire(Array(INT32))
    """Replicas that a reassignment adds."""
    leader: int = on_wire(INT32, default=-1)
    """Broker that leads, -1 for none."""
    leader_recovery_state: int = on_wire(INT8, tag=0)
    """1 while the leader recovers from an unclean election, 0 otherwise."""
    leader_epoch: int = on_wire(INT32, default=-1)
    """Epoch of the leader."""
    partition_epoch: int = on_wire(INT32, default=-1)
    """Counts the changes of the partition."""
    directories: list[bytes] = on_wire(Array(UUID), since=1)
    """Id of the log directory of each replica, in the order of the replicas."""
    eligible_leader_replicas: list[int] | None = on_wire(
        Array(INT32), since=2, default=None, nullable=2, tag=1
    )
    """Replicas out of sync with all committed records."""
    last_known_elr: list[int] | None = on_wire(Array(INT32), since=2, default=None, nullable=2, tag=2)
    """Replicas that were eligible before an unclean shutdown."""


class PartitionChangeRecord(MetadataRecord, record_type=5, versions=(0, 2), flexible_since=0):
    partition_id: int = on_wire(INT32, default=-1)
    """Partition number."""
    topic_id: bytes = on_wire(UUID)
    """Id of the topic."""
    isr: list[int] | None = on_wire(Array(INT32), default=None, nullable=ALL, tag=0)
    """New in-sync replicas; null here and below: no change."""
    leader: int = on_wire(INT32, default=NO_LEADER_CHANGE, tag=1)
    """New leader, -1 for none, -2: no change. It adds 1 to the leader epoch even if it is the same."""
    replicas: list[int] | None = on_wire(Array(INT32), default=None, nullable=ALL, tag=2)
    """New replicas."""
    removing_replicas: list[int] | None = on_wire(Array(INT32), default=None, nullable=ALL, tag=3)
    """New replicas that a reassignment removes."""
    adding_replicas: list[int] | None = on_wire(Array(INT32), default=None, nullable=ALL, tag=4)
    """New replicas that a reassignment adds."""
    leader_recovery_state: int = on_wire(INT8, default=-1, tag=5)
    """New state of recovery, -1: no change."""
    directories: list[bytes] | None = on_wire(Array(UUID), since=1, default=None, nullable=1, tag=8)
    """New directories."""
    eligible_leader_replicas: list[int] | None = on_wire(
        Array(INT32), since=2, default=None, nullable=2, tag=6
    )
    """New eligible leader replicas."""
    last_known_elr: list[int] | None = on_wire(Array(INT32), since=2, default=None, nullable=2, tag=7)
    """New replicas that were eligible before an unclean shutdown."""


class RemoveTopicRecord(MetadataRecord, record_type=9, versions=(0, 0), flexible_since=0):
    topic_id: bytes = on_wire(UUID)
    """Topic to remove, with its partitions and its settings."""


class ClearElrRecord(MetadataRecord, record_type=28, versions=(0, 0), flexible_since=0):
    topic_name: str = on_wire(STRING)
    """Topic whose partitions lose their eligible leader replicas; empty: all topics."""


# --- Settings and features ---


class ConfigRecord(MetadataRecord, record_type=4, versions=(0, 0), flexible_since=0):
    resource_type: int = on_wire(INT8)
    """2 for a topic, 4 for a broker, 16 for client metrics, 32 for a group."""
    resource_name: str = on_wire(STRING)
    """Name or id of the owner; empty for all brokers."""
    name: str = on_wire(STRING)
    """Name of the setting."""
    value: str | None = on_wire(STRING, nullable=ALL, hidden=True)
    """Its value; null removes it."""


class FeatureLevelRecord(MetadataRecord, record_type=12, versions=(0, 0), flexible_since=0):
    name: str = on_wire(STRING)
    """Name of the feature."""
    feature_level: int = on_wire(INT16)
    """Its finalized level, 0 for none."""


class ProducerIdsRecord(MetadataRecord, record_type=15, versions=(0, 0), flexible_since=0):
    broker_id: int = on_wire(INT32)
    """Broker that got the block of ids."""
    broker_epoch: int = on_wire(INT64, default=-1)
    """Epoch of this broker."""
    next_producer_id: int = on_wire(INT64)
    """First id that no block has yet."""


# --- Quotas, credentials, access control, tokens ---


class EntityData(Struct):
    entity_type: str = on_wire(STRING)
    """user, client-id or ip."""
    entity_name: str | None = on_wire(STRING, nullable=ALL)
    """Name of the entity, null for the default of its type."""


class ClientQuotaRecord(MetadataRecord, record_type=14, versions=(0, 0), flexible_since=0):
    entity: list[EntityData] = on_wire(Array(EntityData))
    """The entity of the quota."""
    key: str = on_wire(STRING)
    """Name of the quota, such as producer_byte_rate."""
    value: float = on_wire(FLOAT64)
    """Its value."""
    remove: bool = on_wire(BOOL)
    """Whether the quota is removed; then the value is ignored."""


class UserScramCredentialRecord(MetadataRecord, record_type=11, versions=(0, 0), flexible_since=0):
    name: str = on_wire(STRING)
    """Name of the user."""
    mechanism: int = on_wire(INT8)
    """1 SCRAM-SHA-256, 2 SCRAM-SHA-512."""
    salt: bytes = on_wire(BYTES)
    """Salt of the password."""
    stored_key: bytes = on_wire(BYTES, hidden=True)
    """Key with which the broker checks the client (RFC 5802)."""
    server_key: bytes = on_wire(BYTES, hidden=True)
    """Key with which the broker proves itself to the client."""
    iterations: int = on_wire(INT32)
    """Iterations of the password hash."""


class RemoveUserScramCredentialRecord(MetadataRecord, record_type=22, versions=(0, 0), flexible_since=0):
    name: str = on_wire(STRING)
    """Name of the user."""
    mechanism: int = on_wire(INT8)
    """1 SCRAM-SHA-256, 2 SCRAM-SHA-512."""


class AccessControlEntryRecord(MetadataRecord, record_type=18, versions=(0, 0), flexible_since=0):
    id: bytes = on_wire(UUID)
    """Id of the entry."""
    resource_type: int = on_wire(INT8)
    """Type of the resource, as in CreateAcls."""
    resource_name: str = on_wire(STRING)
    """Name of the resource."""
    pattern_type: int = on_wire(INT8)
    """3: the name itself, 4: all names that begin with it."""
    principal: str = on_wire(STRING)
    """The principal that is allowed or denied."""
    host: str = on_wire(STRING)
    """Host of the client, * for all."""
    operation: int = on_wire(INT8)
    """The operation, as in CreateAcls."""
    permission_type: int = on_wire(INT8)
    """2: denied, 3: allowed."""


class RemoveAccessControlEntryRecord(MetadataRecord, record_type=19, versions=(0, 0), flexible_since=0):
    id: bytes = on_wire(UUID)
    """Id of the entry."""


class DelegationTokenRecord(MetadataRecord, record_type=10, versions=(0, 0), flexible_since=0):
    owner: str = on_wire(STRING)
    """Principal whose token it is."""
    requester: str = on_wire(STRING)
    """Principal that requested it."""
    renewers: list[str] = on_wire(Array(STRING))
    """Principals that may renew it."""
    issue_timestamp: int = on_wire(INT64)
    """Time of its creation."""
    max_timestamp: int = on_wire(INT64)
    """Largest lifetime, as a time."""
    expiration_timestamp: int = on_wire(INT64)
    """Expiry time without a renewal."""
    token_id: str = on_wire(STRING)
    """Id of the token."""


class RemoveDelegationTokenRecord(MetadataRecord, record_type=26, versions=(0, 0), flexible_since=0):
    token_id: str = on_wire(STRING)
    """Id of the token."""


# --- The log itself ---


class NoOpRecord(MetadataRecord, record_type=20, versions=(0, 0), flexible_since=0):
    """A record without content: the controller is alive."""


class ZkMigrationStateRecord(MetadataRecord, record_type=21, versions=(0, 0), flexible_since=0):
    zk_migration_state: int = on_wire(INT8)
    """State of a migration from ZooKeeper."""


class BeginTransactionRecord(MetadataRecord, record_type=23, versions=(0, 0), flexible_since=0):
    name: str | None = on_wire(STRING, default=None, nullable=ALL, tag=0)
    """Key of the following records."""


class EndTransactionRecord(MetadataRecord, record_type=24, versions=(0, 0), flexible_since=0):
    """The records since the begin of the transaction are valid."""


class AbortTransactionRecord(MetadataRecord, record_type=25, versions=(0, 0), flexible_since=0):
    reason: str | None = on_wire(STRING, default=None, nullable=ALL, tag=0)
    """The reason of the aborted transaction."""


# --- Control records ---


class Voter(Struct):
    voter_id: int = on_wire(INT32)
    """Id of the voter."""
    voter_directory_id: bytes = on_wire(UUID, since=1)
    """Id of its log directory."""


class LeaderChangeMessage(ControlRecord, control_type=2, versions=(0, 1), flexible_since=0):
    version: int = on_wire(INT16)
    """Version of the record."""
    leader_id: int = on_wire(INT32)
    """The leader from this record on; the batch has the leader epoch."""
    voters: list[Voter] = on_wire(Array(Voter))
    """Voters of the epoch."""
    granting_voters: list[Voter] = on_wire(Array(Voter))
    """Voters that voted for the leader."""


class SnapshotHeaderRecord(ControlRecord, control_type=3, versions=(0, 0), flexible_since=0):
    version: int = on_wire(INT16)
    """Version of the record."""
    last_contained_log_timestamp: int = on_wire(INT64)
    """Time of the last record before the snapshot."""


class SnapshotFooterRecord(ControlRecord, control_type=4, versions=(0, 0), flexible_since=0):
    version: int = on_wire(INT16)
    """Version of the record, which is the last of a whole snapshot."""


class KRaftVersionRecord(ControlRecord, control_type=5, versions=(0, 0), flexible_since=0):
    version: int = on_wire(INT16)
    """Version of the record."""
    kraft_version: int = on_wire(INT16)
    """Level of the feature kraft.version."""


class Endpoint(Struct):
    name: str = on_wire(STRING)
    """Name of the listener."""
    host: str = on_wire(STRING)
    """Host name or address."""
    port: int = on_wire(UINT16)
    """Port number."""


class KRaftVersionFeature(Struct):
    min_supported_version: int = on_wire(INT16)
    """Lowest level of kraft.version that the voter supports."""
    max_supported_version: int = on_wire(INT16)
    """Highest level of kraft.version that the voter supports."""


class VoterWithEndpoints(Struct):
    voter_id: int = on_wire(INT32)
    """Id of the voter."""
    voter_directory_id: bytes = on_wire(UUID)
    """Id of its log directory."""
    endpoints: list[Endpoint] = on_wire(Array(Endpoint))
    """Addresses of the voter."""
    kraft_version_feature: KRaftVersionFeature = on_wire(KRaftVersionFeature)
    """Versions that the voter supports."""


class VotersRecord(ControlRecord, control_type=6, versions=(0, 0), flexible_since=0):
    version: int = on_wire(INT16)
    """Version of the record."""
    voters: list[VoterWithEndpoints] = on_wire(Array(VoterWithEndpoints))
    """Voters from this record on."""


# --- Codec ---

RECORDS: dict[int, type[MetadataRecord]] = {cls.record_type: cls for cls in MetadataRecord.__subclasses__()}
"""By type."""
CONTROL_RECORDS: dict[int, type[ControlRecord]] = {
    cls.control_type: cls for cls in ControlRecord.__subclasses__()
}
"""By type."""


_DECODERS: dict[tuple[int, int], Callable[[bytes, int], tuple[MetadataRecord, int]]] = {}
"""By type and version, both of one byte, of those that have been decoded."""


class RecordFrame(NamedTuple):
    """The frame before the fields of a record."""

    record_type: int
    version: int
    size_bytes: int


def frame_of(value: Buffer) -> RecordFrame:
    """The frame of a record's value; MalformedMessage if it is incomplete or of an unknown version."""
    frame_version, position = _varint(value, 0)
    if frame_version != FRAME_VERSION:
        raise MalformedMessage(f"a record has a frame of an unknown version ({frame_version})")
    record_type, position = _varint(value, position)
    version, position = _varint(value, position)
    return RecordFrame(record_type, version, position)


def decode_metadata_record(value: Buffer) -> MetadataRecord:
    """The record in a value. Raises UnknownMetadataRecord, with type and version, for an unknown one, and
    MalformedMessage for invalid bytes. The record has no references to the buffer.
    """
    # The usual way of a start, which reads very many.
    if type(value) is bytes and len(value) > 2 and value[0] == FRAME_VERSION:
        decode = _DECODERS.get((value[1], value[2]))
        if decode is not None:
            try:
                known, end = decode(value, 3)
            except MalformedMessage:
                end = -1  # and once more, so that the error says whose it is
            if end == len(value):
                return known
    record_type, version, start = frame_of(value)
    cls = RECORDS.get(record_type)
    if cls is None:
        raise UnknownMetadataRecord(f"a metadata record of type {record_type} (version {version}) is unknown")
    if version not in cls.versions:
        raise UnknownMetadataRecord(
            f"{cls.__name__} (metadata record of type {record_type}) has no version {version} here"
        )
    record = _decoded(cls, version, bytes(value[start:]))
    if record_type < 0x80:
        _DECODERS[record_type, version] = decoder(cls, version)
    return record


def encode_metadata_record(record: MetadataRecord, version: int) -> bytes:
    """The framed value of a record in a version; ValueError if the version cannot encode it."""
    frame = bytes((FRAME_VERSION, record.record_type, version))
    return frame + encode_message(record, version)


def decode_control_record(key: Buffer, value: Buffer) -> ControlRecord:
    """The record of a control batch of the metadata log. Raises as `decode_metadata_record` does."""
    try:
        _, control_type = _CONTROL_KEY.unpack_from(key)
        (version,) = _VERSION.unpack_from(value)
    except struct.error as error:
        raise MalformedMessage(f"a control record of the metadata log: {error}") from error
    cls = CONTROL_RECORDS.get(control_type)
    if cls is None:
        raise UnknownMetadataRecord(f"a control record of type {control_type} is unknown in a metadata log")
    if version not in cls.versions:
        raise UnknownMetadataRecord(
            f"{cls.__name__} (control record of type {control_type}) has no version {version} here"
        )
    return _decoded(cls, version, bytes(value))


def records_of_batch(batch: Buffer, header: BatchHeader | None = None) -> Iterator[AnyRecord]:
    """The records of a batch of the metadata log or of a snapshot; the header is read if it is not given.

    Raises as the decoders do, and KafkaError for an unsound batch. Checksums are not checked.
    """
    header = header or read_batch_header(batch)
    for record in iter_records(batch, header):
        if header.is_control:
            yield decode_control_record(record.key or b"", record.value or b"")
        else:
            yield decode_metadata_record(record.value or b"")


def encode_control_record(record: ControlRecord) -> tuple[bytes, bytes]:
    """Key and value of a control record, in the version in its key."""
    return _CONTROL_KEY.pack(0, record.control_type), encode_message(record, record.version)


def _decoded(cls: type[R], version: int, fields: Buffer) -> R:
    try:
        return decode_message(cls, version, fields)
    except MalformedMessage as error:
        raise MalformedMessage(f"{cls.__name__} version {version}: {error}") from error


def _varint(data: Buffer, position: int) -> tuple[int, int]:
    value = shift = 0
    while shift < 35:
        if position >= len(data):
            raise MalformedMessage("a metadata record is cut short in its frame")
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
        shift += 7
    raise MalformedMessage("a number in the frame of a metadata record is too long")
