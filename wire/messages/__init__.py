"""Every message of the protocol, declared once for all of its versions; one module per API.

A module is imported on first use: `find` imports the module of an API.

Classes have the protocol's own names, fields these names in snake_case. A module is a name space: two modules
may both have a `NodeEndpoint`.
"""

from functools import cache
from importlib import import_module
from typing import NamedTuple

from odradek.wire.schema import Message


class _Row(NamedTuple):
    """An API, as far as it is known without its module. A test compares it with the messages."""

    name: str
    """In the protocol."""
    last: int
    """The last version."""
    first: int = 0
    """The first version. Those before it were an early access, and are gone."""
    flexible: int | None = None
    """The first flexible version, which the header's form depends on."""
    forwardable: bool = False
    """Whether the controllers of a cluster carry it out, for clients that send it to a broker (KIP-590)."""


# Versions begin at 0, as in Kafka 3.9, and end with the highest stable one of Kafka 4.4. kafka-python guesses
# the release from these, and librdkafka before 2.11 needs certain low versions (KAFKA-18659), so ranges are
# not narrowed without need.

_APIS: dict[int, _Row] = {
    0: _Row("Produce", last=13, flexible=9),
    1: _Row("Fetch", last=18, flexible=12),
    2: _Row("ListOffsets", last=11, flexible=6),
    3: _Row("Metadata", last=13, flexible=9),
    8: _Row("OffsetCommit", last=10, flexible=8),
    9: _Row("OffsetFetch", last=10, flexible=6),
    10: _Row("FindCoordinator", last=6, flexible=3),
    11: _Row("JoinGroup", last=9, flexible=6),
    12: _Row("Heartbeat", last=4, flexible=4),
    13: _Row("LeaveGroup", last=5, flexible=4),
    14: _Row("SyncGroup", last=5, flexible=4),
    15: _Row("DescribeGroups", last=6, flexible=5),
    16: _Row("ListGroups", last=5, flexible=3),
    17: _Row("SaslHandshake", last=1),
    18: _Row("ApiVersions", last=5, flexible=3),
    19: _Row("CreateTopics", last=7, flexible=5, forwardable=True),
    20: _Row("DeleteTopics", last=6, flexible=4, forwardable=True),
    21: _Row("DeleteRecords", last=2, flexible=2),
    22: _Row("InitProducerId", last=5, flexible=2),
    23: _Row("OffsetForLeaderEpoch", last=4, flexible=4),
    24: _Row("AddPartitionsToTxn", last=5, flexible=3),
    25: _Row("AddOffsetsToTxn", last=4, flexible=3),
    26: _Row("EndTxn", last=5, flexible=3),
    27: _Row("WriteTxnMarkers", last=2, flexible=1),
    28: _Row("TxnOffsetCommit", last=6, flexible=3),
    29: _Row("DescribeAcls", last=3, flexible=2),
    30: _Row("CreateAcls", last=3, flexible=2, forwardable=True),
    31: _Row("DeleteAcls", last=3, flexible=2, forwardable=True),
    32: _Row("DescribeConfigs", last=4, flexible=4),
    33: _Row("AlterConfigs", last=2, flexible=2, forwardable=True),
    34: _Row("AlterReplicaLogDirs", last=2, flexible=2),
    35: _Row("DescribeLogDirs", last=5, flexible=2),
    36: _Row("SaslAuthenticate", last=2, flexible=2),
    37: _Row("CreatePartitions", last=3, flexible=2, forwardable=True),
    38: _Row("CreateDelegationToken", last=3, flexible=2, forwardable=True),
    39: _Row("RenewDelegationToken", last=2, flexible=2, forwardable=True),
    40: _Row("ExpireDelegationToken", last=2, flexible=2, forwardable=True),
    41: _Row("DescribeDelegationToken", last=3, flexible=2),
    42: _Row("DeleteGroups", last=3, flexible=2),
    43: _Row("ElectLeaders", last=2, flexible=2, forwardable=True),
    44: _Row("IncrementalAlterConfigs", last=1, flexible=1, forwardable=True),
    45: _Row("AlterPartitionReassignments", last=1, flexible=0, forwardable=True),
    46: _Row("ListPartitionReassignments", last=0, flexible=0, forwardable=True),
    47: _Row("OffsetDelete", last=0),
    48: _Row("DescribeClientQuotas", last=1, flexible=1),
    49: _Row("AlterClientQuotas", last=1, flexible=1, forwardable=True),
    50: _Row("DescribeUserScramCredentials", last=0, flexible=0),
    51: _Row("AlterUserScramCredentials", last=0, flexible=0, forwardable=True),
    55: _Row("DescribeQuorum", last=2, flexible=0, forwardable=True),
    56: _Row("AlterPartition", last=3, first=2, flexible=0),
    57: _Row("UpdateFeatures", last=2, flexible=0, forwardable=True),
    58: _Row("Envelope", last=0, flexible=0),
    59: _Row("FetchSnapshot", last=1, flexible=0),
    60: _Row("DescribeCluster", last=2, flexible=0),
    61: _Row("DescribeProducers", last=0, flexible=0),
    62: _Row("BrokerRegistration", last=4, flexible=0),
    63: _Row("BrokerHeartbeat", last=2, flexible=0),
    64: _Row("UnregisterBroker", last=0, flexible=0, forwardable=True),
    65: _Row("DescribeTransactions", last=0, flexible=0),
    66: _Row("ListTransactions", last=2, flexible=0),
    67: _Row("AllocateProducerIds", last=0, flexible=0),
    68: _Row("ConsumerGroupHeartbeat", last=1, flexible=0),
    69: _Row("ConsumerGroupDescribe", last=1, flexible=0),
    71: _Row("GetTelemetrySubscriptions", last=0, flexible=0),
    72: _Row("PushTelemetry", last=0, flexible=0),
    73: _Row("AssignReplicasToDirs", last=0, flexible=0),
    74: _Row("ListConfigResources", last=1, flexible=0),
    75: _Row("DescribeTopicPartitions", last=0, flexible=0),
    76: _Row("ShareGroupHeartbeat", last=1, first=1, flexible=0),
    77: _Row("ShareGroupDescribe", last=1, first=1, flexible=0),
    78: _Row("ShareFetch", last=2, first=1, flexible=0),
    79: _Row("ShareAcknowledge", last=2, first=1, flexible=0),
    80: _Row("AddRaftVoter", last=1, flexible=0, forwardable=True),
    81: _Row("RemoveRaftVoter", last=0, flexible=0, forwardable=True),
    83: _Row("InitializeShareGroupState", last=0, flexible=0),
    84: _Row("ReadShareGroupState", last=0, flexible=0),
    85: _Row("WriteShareGroupState", last=1, flexible=0),
    86: _Row("DeleteShareGroupState", last=0, flexible=0),
    87: _Row("ReadShareGroupStateSummary", last=1, flexible=0),
    88: _Row("StreamsGroupHeartbeat", last=1, flexible=0),
    89: _Row("StreamsGroupDescribe", last=1, flexible=0),
    90: _Row("DescribeShareGroupOffsets", last=1, flexible=0),
    91: _Row("AlterShareGroupOffsets", last=0, flexible=0),
    92: _Row("DeleteShareGroupOffsets", last=0, flexible=0),
    93: _Row("StreamsGroupTopologyDescriptionUpdate", last=0, flexible=0),
    94: _Row("UnregisterController", last=0, flexible=0, forwardable=True),
}


@cache
def find(api_key: int) -> tuple[type[Message], type[Message]]:
    """Request and response class of an API; KeyError for one that is not declared."""
    name = _APIS[api_key].name
    module = import_module(f"odradek.wire.messages.{_module_name(name)}")
    return getattr(module, f"{name}Request"), getattr(module, f"{name}Response")


def api_keys() -> list[int]:
    """The keys of all declared APIs, ascending."""
    return sorted(_APIS)


def api_name(api_key: int) -> str:
    """The protocol's name of an API, such as "ListOffsets"; KeyError for one that is not declared."""
    return _APIS[api_key].name


def flexible_since(api_key: int) -> int | None:
    """The first version of an API with flexible headers; None if there is none or the API is not declared."""
    known = _APIS.get(api_key)
    return None if known is None else known.flexible


def versions_of(api_key: int) -> range:
    """The versions of an API; KeyError for one that is not declared."""
    row = _APIS[api_key]
    return range(row.first, row.last + 1)


def is_forwardable(api_key: int) -> bool:
    """Whether the controllers of a cluster carry an API out for its brokers."""
    known = _APIS.get(api_key)
    return known is not None and known.forwardable


def _module_name(name: str) -> str:
    return "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in name).lstrip("_")
