"""Which operation sends requests of an API, and what comes of it with each action of the kit.

The rule is in `expected`: a client tries again and the operation ends well, but for a final error, which is
its exception. Admin clients in Python do not try again. `OUTCOMES` has what is otherwise, with the reason.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from odradek.apis.table import MODULES, declared
from odradek.server.test_kit.fault_rules import OF_LEADERS
from odradek.wire.messages import api_name
from odradek.wire.throttle import has_throttle_time

KAFKA_PYTHON, CONFLUENT, JAVA = "kafka-python", "confluent-kafka", "java"
CLIENTS = (KAFKA_PYTHON, CONFLUENT, JAVA)


@dataclass(frozen=True)
class Story:
    """Requests of one API, and who sends them in which operation. `again` and `final` are errors: one that a
    client tries again, and one that ends the operation."""

    operation: str
    again: str
    final: str
    clients: tuple[str, ...] = CLIENTS
    by_topic: bool = False
    """Whether the faults name the topic: the API has an error for each topic or partition."""


LIBRDKAFKA_AND_JAVA = (CONFLUENT, JAVA)
PYTHON_AND_JAVA = (KAFKA_PYTHON, JAVA)
NOT_CONTROLLER, LOADING = "NOT_CONTROLLER", "COORDINATOR_LOAD_IN_PROGRESS"
MOVED = "NOT_LEADER_OR_FOLLOWER"
NO_TOPIC, NO_GROUP = "TOPIC_AUTHORIZATION_FAILED", "GROUP_AUTHORIZATION_FAILED"
NO_CLUSTER = "CLUSTER_AUTHORIZATION_FAILED"

STORIES: Mapping[str, Story] = {
    "ApiVersions": Story("read", "UNSUPPORTED_VERSION", "INVALID_REQUEST"),
    "Metadata": Story("produce", "LEADER_NOT_AVAILABLE", NO_TOPIC, by_topic=True),
    "Produce": Story("produce", "NOT_ENOUGH_REPLICAS", NO_TOPIC, by_topic=True),
    "Fetch": Story("read", "KAFKA_STORAGE_ERROR", NO_TOPIC, by_topic=True),
    "ListOffsets": Story("read", "LEADER_NOT_AVAILABLE", NO_TOPIC, by_topic=True),
    "OffsetForLeaderEpoch": Story(
        "read_validated", "UNKNOWN_LEADER_EPOCH", NO_TOPIC, LIBRDKAFKA_AND_JAVA, by_topic=True
    ),
    # Groups
    "FindCoordinator": Story("group", "COORDINATOR_NOT_AVAILABLE", NO_GROUP),
    "JoinGroup": Story("group", LOADING, NO_GROUP),
    "SyncGroup": Story("group", "REBALANCE_IN_PROGRESS", NO_GROUP),
    "Heartbeat": Story("group", "NOT_COORDINATOR", "FENCED_INSTANCE_ID"),
    "OffsetFetch": Story("group", LOADING, NO_GROUP),
    "OffsetCommit": Story("group", LOADING, NO_GROUP),
    "LeaveGroup": Story("group", "COORDINATOR_NOT_AVAILABLE", NO_GROUP),
    "ConsumerGroupHeartbeat": Story("consumer", LOADING, NO_GROUP, LIBRDKAFKA_AND_JAVA),
    "ShareGroupHeartbeat": Story("share", LOADING, NO_GROUP, LIBRDKAFKA_AND_JAVA),
    "ShareFetch": Story("share", MOVED, NO_TOPIC, LIBRDKAFKA_AND_JAVA, by_topic=True),
    "ShareAcknowledge": Story("share", MOVED, "INVALID_RECORD_STATE", LIBRDKAFKA_AND_JAVA, by_topic=True),
    # Transactions
    "InitProducerId": Story("transact", LOADING, "TRANSACTIONAL_ID_AUTHORIZATION_FAILED"),
    "AddPartitionsToTxn": Story("transact", "CONCURRENT_TRANSACTIONS", NO_TOPIC, by_topic=True),
    "AddOffsetsToTxn": Story("transact", LOADING, NO_GROUP),
    "TxnOffsetCommit": Story("transact", LOADING, NO_GROUP),
    "EndTxn": Story("transact", LOADING, "INVALID_TXN_STATE"),
    # Administration
    "CreateTopics": Story("create_topics", NOT_CONTROLLER, "POLICY_VIOLATION"),
    "DeleteTopics": Story("delete_topics", NOT_CONTROLLER, NO_TOPIC),
    "CreatePartitions": Story("create_partitions", NOT_CONTROLLER, "INVALID_PARTITIONS"),
    "DescribeConfigs": Story("describe_configs", "BROKER_NOT_AVAILABLE", NO_TOPIC),
    "IncrementalAlterConfigs": Story("alter_configs", NOT_CONTROLLER, "INVALID_CONFIG"),
    "DeleteRecords": Story("delete_records", MOVED, "POLICY_VIOLATION", by_topic=True),
    "ListGroups": Story("list_groups", LOADING, NO_CLUSTER),
    "DescribeGroups": Story("describe_groups", LOADING, NO_GROUP),
    "ConsumerGroupDescribe": Story("describe_groups", LOADING, NO_GROUP, (JAVA,)),
    "DeleteGroups": Story("delete_groups", LOADING, "NON_EMPTY_GROUP"),
    "OffsetDelete": Story("delete_group_offsets", LOADING, NO_GROUP, (JAVA, KAFKA_PYTHON)),
    "DescribeCluster": Story("describe_cluster", "BROKER_NOT_AVAILABLE", NO_CLUSTER, (JAVA, KAFKA_PYTHON)),
    "DescribeTopicPartitions": Story("describe_topics", "LEADER_NOT_AVAILABLE", NO_TOPIC, (JAVA,)),
    "DescribeLogDirs": Story("describe_log_dirs", "BROKER_NOT_AVAILABLE", NO_CLUSTER, PYTHON_AND_JAVA),
    "DescribeProducers": Story("describe_producers", MOVED, NO_TOPIC, PYTHON_AND_JAVA, by_topic=True),
    "ListTransactions": Story("list_transactions", LOADING, NO_CLUSTER, PYTHON_AND_JAVA),
    "ListConfigResources": Story(
        "list_config_resources", "BROKER_NOT_AVAILABLE", NO_CLUSTER, PYTHON_AND_JAVA
    ),
    "ListPartitionReassignments": Story("list_reassignments", NOT_CONTROLLER, NO_CLUSTER, PYTHON_AND_JAVA),
    "DescribeClientQuotas": Story("describe_quotas", "BROKER_NOT_AVAILABLE", NO_CLUSTER, (JAVA,)),
    "ShareGroupDescribe": Story("describe_share_groups", LOADING, NO_GROUP, (JAVA,)),
    "DescribeShareGroupOffsets": Story("list_share_group_offsets", LOADING, NO_GROUP, (JAVA,)),
    "DescribeQuorum": Story("describe_quorum", "BROKER_NOT_AVAILABLE", NO_CLUSTER, PYTHON_AND_JAVA),
}


FINAL_ERRORS: Mapping[tuple[str, str], str] = {(CONFLUENT, "Heartbeat"): NO_GROUP}
"""For single clients in place of the story's."""


def final_error_of(client: str, api: str) -> str:
    return FINAL_ERRORS.get((client, api), STORIES[api].final)


RECORDS, GROUPS, TRANSACTIONS, ADMINISTRATION = "records", "groups", "transactions", "administration"
AREAS: Mapping[str, tuple[str, ...]] = {
    RECORDS: ("produce", "read", "read_validated"),
    GROUPS: ("group", "consumer", "share"),
    TRANSACTIONS: ("transact",),
}
"""Operations of producers and consumers; all others are those of an admin client."""


def area_of(api: str) -> str:
    operation = STORIES[api].operation
    return next((area for area, operations in AREAS.items() if operation in operations), ADMINISTRATION)


@dataclass(frozen=True)
class Action:
    """`arguments` are those of a fault; "again" and "final" stand for the errors of the story."""

    arguments: Mapping[str, object]
    times: int | None = 1
    is_hasty: bool = False
    """Whether the client waits briefly: it has to find out by itself."""


AGAIN, FINAL, LOST, CUT, SILENT, MOVED_AWAY = "again", "final", "lost", "cut", "silent", "moved"
THROTTLED = "throttled"
ACTIONS: Mapping[str, Action] = {
    AGAIN: Action({"error": AGAIN}, times=2),
    FINAL: Action({"error": FINAL}, times=None, is_hasty=True),
    "delayed": Action({"delay_ms": 200}),
    "delayed_behind": Action({"delay_after_ms": 200}),
    LOST: Action({"lose_response": True}),
    CUT: Action({"cut_response_after_bytes": 6}),
    SILENT: Action({"never_respond": True}, is_hasty=True),
    THROTTLED: Action({"throttle_ms": 100}),
    MOVED_AWAY: Action({"leader_moved": True}, times=2),
}


NOT_PLAYED: Mapping[tuple[str, str], tuple[str, ...]] = {
    # A wait of its producer for a transaction has no time-out: the library may miss what ends it.
    (KAFKA_PYTHON, "transact"): (THROTTLED,),
    # The library goes on by itself, and tells nobody.
    (CONFLUENT, "SyncGroup"): (FINAL,),
}
"""Actions that are left out, by client and operation or API: what comes of them is the library's alone."""


def actions_of(client: str, api: str) -> Iterator[str]:
    """Actions that the API can have, and that are played with this client."""
    left_out = [one for what in (api, STORIES[api].operation) for one in NOT_PLAYED.get((client, what), ())]
    (key,) = [key for key in MODULES if api_name(key) == api]
    for name in ACTIONS:
        if name in left_out or (name == MOVED_AWAY and api not in OF_LEADERS):
            continue
        if name == THROTTLED and not has_throttle_time(declared(key).response):
            continue
        yield name


OK = "ok"
_ADMIN_CLIENTS: Mapping[tuple[str, str], str] = {
    (KAFKA_PYTHON, LOST): "KafkaConnectionError",
    (KAFKA_PYTHON, CUT): "KafkaConnectionError",
    (KAFKA_PYTHON, SILENT): "RequestTimedOutError",
    (CONFLUENT, LOST): "_TRANSPORT",
    (CONFLUENT, CUT): "_TRANSPORT",
    (CONFLUENT, SILENT): "_TIMED_OUT",
    # Java's waits for the whole time of its API, not for that of a request.
    (JAVA, SILENT): "TimeoutException",
}
"""Outcomes of a request whose response does not come; Java's asks again if the connection ends."""
NO_CONTROLLER = "RuntimeError"
"""kafka-python looks for the controller, and asks it once more."""
OUTCOMES: Mapping[tuple[str, str, str], str] = {
    # Connections are made again and again.
    (KAFKA_PYTHON, "ApiVersions", FINAL): "KafkaTimeoutError",
    (CONFLUENT, "ApiVersions", FINAL): "TimeoutError",
    (JAVA, "ApiVersions", FINAL): "TimeoutException",
    # Its bootstrap waits for the response as long as it may take in all.
    (KAFKA_PYTHON, "ApiVersions", SILENT): "KafkaTimeoutError",
    # Tried again for ever, and told to nobody.
    (CONFLUENT, "OffsetForLeaderEpoch", FINAL): "TimeoutError",
    # A join may take `max.poll.interval.ms`: it is waited for so long.
    (KAFKA_PYTHON, "JoinGroup", SILENT): "TimeoutError",
    (CONFLUENT, "JoinGroup", SILENT): "TimeoutError",
    (JAVA, "JoinGroup", SILENT): "TimeoutException",
    # Its thread for heartbeats ends, and the member does not know.
    (KAFKA_PYTHON, "Heartbeat", FINAL): OK,
    # Tried again until the session is over.
    (CONFLUENT, "Heartbeat", FINAL): OK,
    # The end of a membership does not fail.
    **{(client, "LeaveGroup", FINAL): OK for client in CLIENTS},
    (CONFLUENT, "ConsumerGroupHeartbeat", FINAL): "_FATAL",
    # Nobody sends an acknowledgement twice: the application is told.
    (CONFLUENT, "ShareAcknowledge", AGAIN): "NOT_LEADER_FOR_PARTITION",
    (CONFLUENT, "ShareAcknowledge", LOST): "_TRANSPORT",
    (CONFLUENT, "ShareAcknowledge", CUT): "_TRANSPORT",
    (CONFLUENT, "ShareAcknowledge", SILENT): "REQUEST_TIMED_OUT",
    (JAVA, "ShareAcknowledge", AGAIN): "NotLeaderOrFollowerException",
    (JAVA, "ShareAcknowledge", LOST): "UnknownServerException",
    (JAVA, "ShareAcknowledge", CUT): "UnknownServerException",
    (JAVA, "ShareAcknowledge", SILENT): "UnknownServerException",
    # The report of the delivery; the error itself comes with the end of the transaction.
    (CONFLUENT, "AddPartitionsToTxn", FINAL): "_PURGE_QUEUE",
    # A transaction does not get over a request that has no response in time.
    **{
        (KAFKA_PYTHON, api, SILENT): "KafkaError"
        for api in ("InitProducerId", "AddPartitionsToTxn", "AddOffsetsToTxn", "TxnOffsetCommit", "EndTxn")
    },
    # Asked again, the admin client hears that it is done already.
    (JAVA, "CreateTopics", LOST): "TopicExistsException",
    (JAVA, "CreateTopics", CUT): "TopicExistsException",
    (JAVA, "DeleteTopics", LOST): "UnknownTopicOrPartitionException",
    (JAVA, "DeleteTopics", CUT): "UnknownTopicOrPartitionException",
    (JAVA, "CreatePartitions", LOST): "InvalidPartitionsException",
    (JAVA, "CreatePartitions", CUT): "InvalidPartitionsException",
    (JAVA, "DeleteGroups", LOST): "GroupIdNotFoundException",
    (JAVA, "DeleteGroups", CUT): "GroupIdNotFoundException",
    # Errors that Java's admin client could try again, and does not.
    **{
        (JAVA, api, AGAIN): "BrokerNotAvailableException"
        for api in (
            *("DescribeConfigs", "DescribeCluster", "DescribeLogDirs", "ListConfigResources"),
            *("DescribeQuorum", "DescribeClientQuotas"),
        )
    },
    (JAVA, "DescribeTopicPartitions", AGAIN): "LeaderNotAvailableException",
    **{
        (KAFKA_PYTHON, api, AGAIN): NO_CONTROLLER
        for api in ("CreateTopics", "DeleteTopics", "CreatePartitions", "ListPartitionReassignments")
    },
    (KAFKA_PYTHON, "DeleteRecords", AGAIN): OK,
    # The error is left out of the result, which is empty.
    **{
        (KAFKA_PYTHON, api, action): "KeyError"
        for api in ("DescribeConfigs", "DescribeLogDirs")
        for action in (AGAIN, FINAL)
    },
}


def expected(client: str, api: str, action: str) -> str:
    """`ok`, or the name of the exception."""
    story = STORIES[api]
    found = OUTCOMES.get((client, api, action))
    if found is not None:
        return found
    if action == FINAL:
        return exception_of(client, final_error_of(client, api))
    if area_of(api) != ADMINISTRATION:
        return OK
    if (client, action) in ((CONFLUENT, AGAIN), (CONFLUENT, MOVED_AWAY), (KAFKA_PYTHON, AGAIN)):
        return exception_of(client, story.again)
    return _ADMIN_CLIENTS.get((client, action), OK)


_NAMES: Mapping[tuple[str, str], str] = {
    (CONFLUENT, MOVED): "NOT_LEADER_FOR_PARTITION",
    (KAFKA_PYTHON, MOVED): "NotLeaderForPartitionError",
    (JAVA, "INVALID_CONFIG"): "InvalidConfigurationException",
    (KAFKA_PYTHON, "INVALID_CONFIG"): "InvalidConfigurationError",
    (JAVA, "NON_EMPTY_GROUP"): "GroupNotEmptyException",
}


def exception_of(client: str, error: str) -> str:
    """Name of the client's exception for an error of the protocol."""
    if (client, error) in _NAMES:
        return _NAMES[client, error]
    if client == CONFLUENT:
        return error
    words = error.title().replace("_", "")
    if client == JAVA:
        return f"{words.removesuffix('Failed')}Exception"
    return f"{words}Error"


OLDER_BROKER = ((JAVA, "AddPartitionsToTxn"), (JAVA, "AddOffsetsToTxn"))
"""Sent to brokers without transactions of version 2 alone; else Produce and TxnOffsetCommit do it."""
NOT_SENT: Mapping[str, str] = {
    **dict.fromkeys(("SaslHandshake", "SaslAuthenticate"), "part of a login: test_connections.py"),
    **dict.fromkeys(
        ("DescribeAcls", "CreateAcls", "DeleteAcls"), "needs a broker with an authorizer: suite security"
    ),
    **dict.fromkeys(
        (
            *("CreateDelegationToken", "RenewDelegationToken", "ExpireDelegationToken"),
            *("DescribeDelegationToken", "DescribeUserScramCredentials", "AlterUserScramCredentials"),
        ),
        "needs a broker with logins: suite security",
    ),
    **dict.fromkeys(
        ("GetTelemetrySubscriptions", "PushTelemetry"), "has times of its own, and is off in these stories"
    ),
    **dict.fromkeys(
        (
            *("WriteTxnMarkers", "InitializeShareGroupState", "ReadShareGroupState"),
            *("WriteShareGroupState", "DeleteShareGroupState", "ReadShareGroupStateSummary"),
        ),
        "brokers send it to each other",
    ),
    **dict.fromkeys(
        ("StreamsGroupHeartbeat", "StreamsGroupDescribe", "StreamsGroupTopologyDescriptionUpdate"),
        "Kafka Streams sends it: suite streams",
    ),
    **dict.fromkeys(
        (
            *("AlterConfigs", "AlterReplicaLogDirs", "ElectLeaders", "AlterPartitionReassignments"),
            *("AlterClientQuotas", "UpdateFeatures", "UnregisterBroker", "AddRaftVoter", "RemoveRaftVoter"),
            *("DescribeTransactions", "AlterShareGroupOffsets", "DeleteShareGroupOffsets"),
            "UnregisterController",
        ),
        "operators' tools send it, applications do not",
    ),
}
"""APIs that no client of these sends in ordinary work, with the reason."""
NOT_SENT_BY: Mapping[str, Mapping[str, tuple[str, ...]]] = {
    KAFKA_PYTHON: {
        "only after the leader epoch of a partition has changed": ("OffsetForLeaderEpoch",),
        "it has no such groups": (
            *("ConsumerGroupHeartbeat", "ShareGroupHeartbeat", "ShareFetch", "ShareAcknowledge"),
            *("ConsumerGroupDescribe", "ShareGroupDescribe", "DescribeShareGroupOffsets"),
        ),
        "it has no such operation, or another API for it": (
            "DescribeTopicPartitions",
            "DescribeClientQuotas",
        ),
    },
    CONFLUENT: {
        "it has no such operation, or another API for it": (
            *("OffsetDelete", "DescribeCluster", "DescribeTopicPartitions", "DescribeLogDirs"),
            *("DescribeProducers", "ListTransactions", "ListConfigResources", "ListPartitionReassignments"),
            *("DescribeQuorum", "DescribeClientQuotas", "ConsumerGroupDescribe", "ShareGroupDescribe"),
            "DescribeShareGroupOffsets",
        ),
    },
    JAVA: {},
}
"""APIs that a client does not send, by the reason."""
