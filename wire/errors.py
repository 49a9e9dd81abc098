"""Error codes, the exception of a refusal, and the exception for bytes that are no message.

The codes are those of Kafka 4.4 (`org.apache.kafka.common.protocol.Errors`), -1 to 136 without a gap. A
handler turns a `KafkaError` into an `error_code` of its response. A `MalformedMessage` has no response: the
connection is closed.
"""

from enum import IntEnum


class ErrorCode(IntEnum):
    """Every error code of Kafka 4.4, by its protocol name."""

    UNKNOWN_SERVER_ERROR = -1
    NONE = 0
    OFFSET_OUT_OF_RANGE = 1
    CORRUPT_MESSAGE = 2
    UNKNOWN_TOPIC_OR_PARTITION = 3
    INVALID_FETCH_SIZE = 4
    LEADER_NOT_AVAILABLE = 5
    NOT_LEADER_OR_FOLLOWER = 6
    REQUEST_TIMED_OUT = 7
    BROKER_NOT_AVAILABLE = 8
    REPLICA_NOT_AVAILABLE = 9
    MESSAGE_TOO_LARGE = 10
    STALE_CONTROLLER_EPOCH = 11
    OFFSET_METADATA_TOO_LARGE = 12
    NETWORK_EXCEPTION = 13
    COORDINATOR_LOAD_IN_PROGRESS = 14
    COORDINATOR_NOT_AVAILABLE = 15
    NOT_COORDINATOR = 16
    INVALID_TOPIC_EXCEPTION = 17
    RECORD_LIST_TOO_LARGE = 18
    NOT_ENOUGH_REPLICAS = 19
    NOT_ENOUGH_REPLICAS_AFTER_APPEND = 20
    INVALID_REQUIRED_ACKS = 21
    ILLEGAL_GENERATION = 22
    INCONSISTENT_GROUP_PROTOCOL = 23
    INVALID_GROUP_ID = 24
    UNKNOWN_MEMBER_ID = 25
    INVALID_SESSION_TIMEOUT = 26
    REBALANCE_IN_PROGRESS = 27
    INVALID_COMMIT_OFFSET_SIZE = 28
    TOPIC_AUTHORIZATION_FAILED = 29
    GROUP_AUTHORIZATION_FAILED = 30
    CLUSTER_AUTHORIZATION_FAILED = 31
    INVALID_TIMESTAMP = 32
    UNSUPPORTED_SASL_MECHANISM = 33
    ILLEGAL_SASL_STATE = 34
    UNSUPPORTED_VERSION = 35
    TOPIC_ALREADY_EXISTS = 36
    INVALID_PARTITIONS = 37
    INVALID_REPLICATION_FACTOR = 38
    INVALID_REPLICA_ASSIGNMENT = 39
    INVALID_CONFIG = 40
    NOT_CONTROLLER = 41
    INVALID_REQUEST = 42
    UNSUPPORTED_FOR_MESSAGE_FORMAT = 43
    POLICY_VIOLATION = 44
    OUT_OF_ORDER_SEQUENCE_NUMBER = 45
    DUPLICATE_SEQUENCE_NUMBER = 46
    INVALID_PRODUCER_EPOCH = 47
    INVALID_TXN_STATE = 48
    INVALID_PRODUCER_ID_MAPPING = 49
    INVALID_TRANSACTION_TIMEOUT = 50
    CONCURRENT_TRANSACTIONS = 51
    TRANSACTION_COORDINATOR_FENCED = 52
    TRANSACTIONAL_ID_AUTHORIZATION_FAILED = 53
    SECURITY_DISABLED = 54
    OPERATION_NOT_ATTEMPTED = 55
    KAFKA_STORAGE_ERROR = 56
    LOG_DIR_NOT_FOUND = 57
    SASL_AUTHENTICATION_FAILED = 58
    UNKNOWN_PRODUCER_ID = 59
    REASSIGNMENT_IN_PROGRESS = 60
    DELEGATION_TOKEN_AUTH_DISABLED = 61
    DELEGATION_TOKEN_NOT_FOUND = 62
    DELEGATION_TOKEN_OWNER_MISMATCH = 63
    DELEGATION_TOKEN_REQUEST_NOT_ALLOWED = 64
    DELEGATION_TOKEN_AUTHORIZATION_FAILED = 65
    DELEGATION_TOKEN_EXPIRED = 66
    INVALID_PRINCIPAL_TYPE = 67
    NON_EMPTY_GROUP = 68
    GROUP_ID_NOT_FOUND = 69
    FETCH_SESSION_ID_NOT_FOUND = 70
    INVALID_FETCH_SESSION_EPOCH = 71
    LISTENER_NOT_FOUND = 72
    TOPIC_DELETION_DISABLED = 73
    FENCED_LEADER_EPOCH = 74
    UNKNOWN_LEADER_EPOCH = 75
    UNSUPPORTED_COMPRESSION_TYPE = 76
    STALE_BROKER_EPOCH = 77
    OFFSET_NOT_AVAILABLE = 78
    MEMBER_ID_REQUIRED = 79
    PREFERRED_LEADER_NOT_AVAILABLE = 80
    GROUP_MAX_SIZE_REACHED = 81
    FENCED_INSTANCE_ID = 82
    ELIGIBLE_LEADERS_NOT_AVAILABLE = 83
    ELECTION_NOT_NEEDED = 84
    NO_REASSIGNMENT_IN_PROGRESS = 85
    GROUP_SUBSCRIBED_TO_TOPIC = 86
    INVALID_RECORD = 87
    UNSTABLE_OFFSET_COMMIT = 88
    THROTTLING_QUOTA_EXCEEDED = 89
    PRODUCER_FENCED = 90
    RESOURCE_NOT_FOUND = 91
    DUPLICATE_RESOURCE = 92
    UNACCEPTABLE_CREDENTIAL = 93
    INCONSISTENT_VOTER_SET = 94
    INVALID_UPDATE_VERSION = 95
    FEATURE_UPDATE_FAILED = 96
    PRINCIPAL_DESERIALIZATION_FAILURE = 97
    SNAPSHOT_NOT_FOUND = 98
    POSITION_OUT_OF_RANGE = 99
    UNKNOWN_TOPIC_ID = 100
    DUPLICATE_BROKER_REGISTRATION = 101
    BROKER_ID_NOT_REGISTERED = 102
    INCONSISTENT_TOPIC_ID = 103
    INCONSISTENT_CLUSTER_ID = 104
    TRANSACTIONAL_ID_NOT_FOUND = 105
    FETCH_SESSION_TOPIC_ID_ERROR = 106
    INELIGIBLE_REPLICA = 107
    NEW_LEADER_ELECTED = 108
    OFFSET_MOVED_TO_TIERED_STORAGE = 109
    FENCED_MEMBER_EPOCH = 110
    UNRELEASED_INSTANCE_ID = 111
    UNSUPPORTED_ASSIGNOR = 112
    STALE_MEMBER_EPOCH = 113
    MISMATCHED_ENDPOINT_TYPE = 114
    UNSUPPORTED_ENDPOINT_TYPE = 115
    UNKNOWN_CONTROLLER_ID = 116
    UNKNOWN_SUBSCRIPTION_ID = 117
    TELEMETRY_TOO_LARGE = 118
    INVALID_REGISTRATION = 119
    TRANSACTION_ABORTABLE = 120
    INVALID_RECORD_STATE = 121
    SHARE_SESSION_NOT_FOUND = 122
    INVALID_SHARE_SESSION_EPOCH = 123
    FENCED_STATE_EPOCH = 124
    INVALID_VOTER_KEY = 125
    DUPLICATE_VOTER = 126
    VOTER_NOT_FOUND = 127
    INVALID_REGULAR_EXPRESSION = 128
    REBOOTSTRAP_REQUIRED = 129
    STREAMS_INVALID_TOPOLOGY = 130
    STREAMS_INVALID_TOPOLOGY_EPOCH = 131
    STREAMS_TOPOLOGY_FENCED = 132
    SHARE_SESSION_LIMIT_REACHED = 133
    GROUP_DELETION_FAILED = 134
    STREAMS_TOPOLOGY_DESCRIPTION_UPDATE_FAILED = 135
    CONTROLLER_ID_NOT_REGISTERED = 136


MESSAGE_LENGTH_MAX = 4_000
"""The limit of characters of a refusal's message; at most four bytes each."""


class KafkaError(Exception):
    """A refusal for the client: `code` and perhaps `message` of the response."""

    def __init__(self, code: ErrorCode, message: str | None = None) -> None:
        super().__init__(code, message)
        self.code = code
        # Cut, so that a message with a name of 32767 bytes fits into a string of the response.
        own = None if message is None else message[:MESSAGE_LENGTH_MAX]
        self.message = error_message(code) if own is None else own
        self.own_message = None if code is ErrorCode.UNKNOWN_SERVER_ERROR else own
        """The message of the refusal itself, or None: for responses in which Kafka's message is null without
        a special reason, and after internal errors."""

    def __str__(self) -> str:
        return f"{self.code.name}: {self.message}"


class MalformedMessage(Exception):
    """The bytes are no message of this type and version; the caller closes the connection."""


def error_of(code: int) -> ErrorCode:
    """The error of a code; UNKNOWN_SERVER_ERROR for one that a later Kafka has."""
    return _BY_CODE.get(code, ErrorCode.UNKNOWN_SERVER_ERROR)


def error_message(code: ErrorCode) -> str:
    """The default text for a code, for refusals without a message."""
    return _MESSAGES[code]


def is_retriable(code: ErrorCode) -> bool:
    """Whether Kafka's clients repeat the request after this code (Java: a RetriableException)."""
    return code in _RETRIABLE


_BY_CODE = {int(code): code for code in ErrorCode}
_MESSAGES = {
    ErrorCode.UNKNOWN_SERVER_ERROR: "The broker had an unexpected error; see the broker's log.",
    ErrorCode.NONE: "No error.",
    ErrorCode.OFFSET_OUT_OF_RANGE: "The offset is not in the log of this partition.",
    ErrorCode.CORRUPT_MESSAGE: "The record batch is damaged: its checksum, size or keys are not sound.",
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: "This broker has no such topic or partition.",
    ErrorCode.INVALID_FETCH_SIZE: "The number of bytes to fetch is not valid.",
    ErrorCode.LEADER_NOT_AVAILABLE: "The partition has no leader at the moment.",
    ErrorCode.NOT_LEADER_OR_FOLLOWER: (
        "Another broker leads this partition, and this broker has no replica to serve."
    ),
    ErrorCode.REQUEST_TIMED_OUT: "The request was not completed within its time-out.",
    ErrorCode.BROKER_NOT_AVAILABLE: "The broker is not available.",
    ErrorCode.REPLICA_NOT_AVAILABLE: "This broker has no usable replica of the partition.",
    ErrorCode.MESSAGE_TOO_LARGE: "The record batch is larger than max.message.bytes allows.",
    ErrorCode.STALE_CONTROLLER_EPOCH: "The request comes from a controller that has been replaced.",
    ErrorCode.OFFSET_METADATA_TOO_LARGE: "The metadata text of the commit is longer than the broker accepts.",
    ErrorCode.NETWORK_EXCEPTION: "The connection ended before an answer arrived.",
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS: "The coordinator is still reading its state from its log.",
    ErrorCode.COORDINATOR_NOT_AVAILABLE: "No coordinator is available at the moment.",
    ErrorCode.NOT_COORDINATOR: "Another broker coordinates this group or transactional id.",
    ErrorCode.INVALID_TOPIC_EXCEPTION: "The topic's name is not valid, or it may not be used in this way.",
    ErrorCode.RECORD_LIST_TOO_LARGE: "The record batch does not fit into a segment of this log.",
    ErrorCode.NOT_ENOUGH_REPLICAS: (
        "Fewer replicas are in sync than min.insync.replicas requires; nothing was written."
    ),
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND: (
        "The records were written, but to fewer replicas than required."
    ),
    ErrorCode.INVALID_REQUIRED_ACKS: "The number of acknowledgements must be -1, 0 or 1.",
    ErrorCode.ILLEGAL_GENERATION: "The generation is not the group's current one.",
    ErrorCode.INCONSISTENT_GROUP_PROTOCOL: (
        "The member shares no protocol type or protocol with the rest of its group."
    ),
    ErrorCode.INVALID_GROUP_ID: "The group id is not valid.",
    ErrorCode.UNKNOWN_MEMBER_ID: "The group has no member with this id.",
    ErrorCode.INVALID_SESSION_TIMEOUT: (
        "The session timeout lies outside group.min.session.timeout.ms and group.max.session.timeout.ms."
    ),
    ErrorCode.REBALANCE_IN_PROGRESS: "The group is rebalancing; the member has to join again.",
    ErrorCode.INVALID_COMMIT_OFFSET_SIZE: "The offset commit is too large to be stored.",
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: "Not authorized for this topic.",
    ErrorCode.GROUP_AUTHORIZATION_FAILED: "Not authorized for this group.",
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: "Not authorized for this cluster.",
    ErrorCode.INVALID_TIMESTAMP: "A record's timestamp is outside of what the topic accepts.",
    ErrorCode.UNSUPPORTED_SASL_MECHANISM: "The listener does not offer this SASL mechanism.",
    ErrorCode.ILLEGAL_SASL_STATE: "The request does not belong at this point of the SASL exchange.",
    ErrorCode.UNSUPPORTED_VERSION: "The broker does not support this version of the request.",
    ErrorCode.TOPIC_ALREADY_EXISTS: "A topic of this name exists already.",
    ErrorCode.INVALID_PARTITIONS: "The number of partitions is not valid.",
    ErrorCode.INVALID_REPLICATION_FACTOR: "The replication factor is below 1 or above the number of brokers.",
    ErrorCode.INVALID_REPLICA_ASSIGNMENT: "The assignment of replicas to brokers is not valid.",
    ErrorCode.INVALID_CONFIG: "The configuration is not valid.",
    ErrorCode.NOT_CONTROLLER: "Another node is the cluster's controller.",
    ErrorCode.INVALID_REQUEST: "The request contradicts itself or is not allowed.",
    ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT: (
        "The format in which the records are stored cannot serve this request."
    ),
    ErrorCode.POLICY_VIOLATION: "A policy of the broker forbids these parameters.",
    ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER: "The producer's sequence numbers have a gap.",
    ErrorCode.DUPLICATE_SEQUENCE_NUMBER: "The producer's sequence number was used before.",
    ErrorCode.INVALID_PRODUCER_EPOCH: "The producer's epoch is older than the one in the log.",
    ErrorCode.INVALID_TXN_STATE: "The transaction's state does not allow this.",
    ErrorCode.INVALID_PRODUCER_ID_MAPPING: "The producer id does not belong to this transactional id.",
    ErrorCode.INVALID_TRANSACTION_TIMEOUT: (
        "The transaction timeout is above transaction.max.timeout.ms or not positive."
    ),
    ErrorCode.CONCURRENT_TRANSACTIONS: "Another operation of this transactional id is still under way.",
    ErrorCode.TRANSACTION_COORDINATOR_FENCED: (
        "The markers come from a transaction coordinator that has been replaced."
    ),
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: "Not authorized for this transactional id.",
    ErrorCode.SECURITY_DISABLED: "The broker runs without an authorizer.",
    ErrorCode.OPERATION_NOT_ATTEMPTED: "Not tried, because another part of the same request failed.",
    ErrorCode.KAFKA_STORAGE_ERROR: "The disk of the broker failed or is full.",
    ErrorCode.LOG_DIR_NOT_FOUND: "The broker has no such log directory.",
    ErrorCode.SASL_AUTHENTICATION_FAILED: "The credentials were refused.",
    ErrorCode.UNKNOWN_PRODUCER_ID: "The log has no state of this producer id any more.",
    ErrorCode.REASSIGNMENT_IN_PROGRESS: "The partition's replicas are being moved.",
    ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED: "Delegation tokens are not enabled on this broker.",
    ErrorCode.DELEGATION_TOKEN_NOT_FOUND: "The broker has no such delegation token.",
    ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH: "The delegation token belongs to another principal.",
    ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED: (
        "This connection is not secure enough to request delegation tokens."
    ),
    ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED: "Not authorized for this delegation token.",
    ErrorCode.DELEGATION_TOKEN_EXPIRED: "The delegation token has expired.",
    ErrorCode.INVALID_PRINCIPAL_TYPE: "This type of principal is not supported.",
    ErrorCode.NON_EMPTY_GROUP: "The group still has members.",
    ErrorCode.GROUP_ID_NOT_FOUND: "There is no such group.",
    ErrorCode.FETCH_SESSION_ID_NOT_FOUND: "The broker does not have this fetch session any more.",
    ErrorCode.INVALID_FETCH_SESSION_EPOCH: "The epoch is not the next one of this fetch session.",
    ErrorCode.LISTENER_NOT_FOUND: "The leader has no listener with the name of the client's listener.",
    ErrorCode.TOPIC_DELETION_DISABLED: "Deleting topics is switched off by delete.topic.enable.",
    ErrorCode.FENCED_LEADER_EPOCH: "The leader epoch of the request is older than the current one.",
    ErrorCode.UNKNOWN_LEADER_EPOCH: "The leader epoch of the request is newer than the broker's metadata.",
    ErrorCode.UNSUPPORTED_COMPRESSION_TYPE: "The version of the request cannot carry this compression type.",
    ErrorCode.STALE_BROKER_EPOCH: "The broker has registered again since this epoch.",
    ErrorCode.OFFSET_NOT_AVAILABLE: "The new leader does not have its high watermark yet.",
    ErrorCode.MEMBER_ID_REQUIRED: "The member has to join again with the member id of this response.",
    ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE: "The preferred leader is not available.",
    ErrorCode.GROUP_MAX_SIZE_REACHED: "The group has as many members as group.max.size allows.",
    ErrorCode.FENCED_INSTANCE_ID: "Another member has taken over this group instance id.",
    ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE: "No replica that could lead the partition is available.",
    ErrorCode.ELECTION_NOT_NEEDED: "The partition has the wanted leader already.",
    ErrorCode.NO_REASSIGNMENT_IN_PROGRESS: "No replicas of this partition are being moved.",
    ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC: "The group is subscribed to this topic, so its offsets stay.",
    ErrorCode.INVALID_RECORD: "A record does not satisfy the rules of the broker or the topic.",
    ErrorCode.UNSTABLE_OFFSET_COMMIT: "Offsets of an unfinished transaction are pending.",
    ErrorCode.THROTTLING_QUOTA_EXCEEDED: "The quota for this kind of request is used up for now.",
    ErrorCode.PRODUCER_FENCED: "A newer producer has taken over this transactional id.",
    ErrorCode.RESOURCE_NOT_FOUND: "The request names a resource that does not exist.",
    ErrorCode.DUPLICATE_RESOURCE: "The request names the same resource twice.",
    ErrorCode.UNACCEPTABLE_CREDENTIAL: "The credential is not acceptable.",
    ErrorCode.INCONSISTENT_VOTER_SET: "Sender and receiver disagree about the set of voters.",
    ErrorCode.INVALID_UPDATE_VERSION: "The version to update to is not valid.",
    ErrorCode.FEATURE_UPDATE_FAILED: "The feature could not be updated.",
    ErrorCode.PRINCIPAL_DESERIALIZATION_FAILURE: "The principal of a forwarded request cannot be read.",
    ErrorCode.SNAPSHOT_NOT_FOUND: "There is no such snapshot.",
    ErrorCode.POSITION_OUT_OF_RANGE: "The position lies outside of the snapshot.",
    ErrorCode.UNKNOWN_TOPIC_ID: "This broker has no topic with that id.",
    ErrorCode.DUPLICATE_BROKER_REGISTRATION: "Another live broker uses this broker id.",
    ErrorCode.BROKER_ID_NOT_REGISTERED: "No broker is registered under this id.",
    ErrorCode.INCONSISTENT_TOPIC_ID: "The topic ids of the request and of the log differ.",
    ErrorCode.INCONSISTENT_CLUSTER_ID: "The request is meant for another cluster.",
    ErrorCode.TRANSACTIONAL_ID_NOT_FOUND: "There is no such transactional id.",
    ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR: "The fetch session mixes topic names and topic ids.",
    ErrorCode.INELIGIBLE_REPLICA: "The new set of in-sync replicas has a replica that may not be in it.",
    ErrorCode.NEW_LEADER_ELECTED: "The partition was changed, and has another leader now.",
    ErrorCode.OFFSET_MOVED_TO_TIERED_STORAGE: "The offset has moved to tiered storage.",
    ErrorCode.FENCED_MEMBER_EPOCH: (
        "The member's epoch is fenced; it has to give up its partitions and join again."
    ),
    ErrorCode.UNRELEASED_INSTANCE_ID: "Another member of the group still uses this instance id.",
    ErrorCode.UNSUPPORTED_ASSIGNOR: "The group does not support this assignor.",
    ErrorCode.STALE_MEMBER_EPOCH: (
        "The member has to get its new epoch by a heartbeat before it tries again."
    ),
    ErrorCode.MISMATCHED_ENDPOINT_TYPE: "The request was sent to the wrong kind of endpoint.",
    ErrorCode.UNSUPPORTED_ENDPOINT_TYPE: "This kind of endpoint is not supported.",
    ErrorCode.UNKNOWN_CONTROLLER_ID: "There is no controller with this id.",
    ErrorCode.UNKNOWN_SUBSCRIPTION_ID: "The telemetry subscription id is out of date.",
    ErrorCode.TELEMETRY_TOO_LARGE: "The telemetry is larger than the broker accepts.",
    ErrorCode.INVALID_REGISTRATION: "The registration of the broker is not valid.",
    ErrorCode.TRANSACTION_ABORTABLE: (
        "The transaction cannot go on; abort it, then the producer may continue."
    ),
    ErrorCode.INVALID_RECORD_STATE: (
        "The records are not in a state in which they can be acknowledged like this."
    ),
    ErrorCode.SHARE_SESSION_NOT_FOUND: "The broker does not have this share session any more.",
    ErrorCode.INVALID_SHARE_SESSION_EPOCH: "The epoch is not the next one of this share session.",
    ErrorCode.FENCED_STATE_EPOCH: "The state epoch is not that of the coordinator.",
    ErrorCode.INVALID_VOTER_KEY: "The voter's key is not the one of this replica.",
    ErrorCode.DUPLICATE_VOTER: "The node is a voter already.",
    ErrorCode.VOTER_NOT_FOUND: "The node is not a voter.",
    ErrorCode.INVALID_REGULAR_EXPRESSION: "The regular expression is not valid.",
    ErrorCode.REBOOTSTRAP_REQUIRED: "The client's view of the cluster is too old; it has to bootstrap again.",
    ErrorCode.STREAMS_INVALID_TOPOLOGY: "The topology is not valid.",
    ErrorCode.STREAMS_INVALID_TOPOLOGY_EPOCH: "The topology epoch is not valid.",
    ErrorCode.STREAMS_TOPOLOGY_FENCED: "The topology epoch is fenced.",
    ErrorCode.SHARE_SESSION_LIMIT_REACHED: "The broker has reached its limit of share sessions.",
    ErrorCode.GROUP_DELETION_FAILED: "The group could not be deleted.",
    ErrorCode.STREAMS_TOPOLOGY_DESCRIPTION_UPDATE_FAILED: "The description of the topology was not stored.",
    ErrorCode.CONTROLLER_ID_NOT_REGISTERED: "There is no registered controller with this id.",
}

_RETRIABLE = frozenset(
    {
        ErrorCode.CORRUPT_MESSAGE,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.REPLICA_NOT_AVAILABLE,
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ErrorCode.NOT_CONTROLLER,
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
        ErrorCode.INVALID_FETCH_SESSION_EPOCH,
        ErrorCode.LISTENER_NOT_FOUND,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.OFFSET_NOT_AVAILABLE,
        ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE,
        ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE,
        ErrorCode.ELECTION_NOT_NEEDED,
        ErrorCode.UNSTABLE_OFFSET_COMMIT,
        ErrorCode.THROTTLING_QUOTA_EXCEEDED,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.INCONSISTENT_TOPIC_ID,
        ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
        ErrorCode.SHARE_SESSION_NOT_FOUND,
        ErrorCode.INVALID_SHARE_SESSION_EPOCH,
        ErrorCode.SHARE_SESSION_LIMIT_REACHED,
    }
)
