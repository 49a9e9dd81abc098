"""What the first requests after a start need, made before they come.

The modules of an API are imported, and its codecs made, when it is first asked for: that keeps the start
short. But it takes 10 to 100 ms for each API, in which the event loop serves nobody. So a broker that is
ready does it for what will be asked for soon: to write and to read at once, for groups and transactions
too when its data says that there were some, and a second later for the rest of what clients and tools ask
for. Modules are imported in a worker thread, which leaves the interpreter to the loop every few
milliseconds; codecs are made a step at a time, between the requests that come meanwhile. An API that is
asked for earlier is made then, as one that is not among these is.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, NamedTuple

from odradek.coordinator.cluster.topics import OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from odradek.storage._reading import is_in_memory
from odradek.wire.messages import find

if TYPE_CHECKING:
    from odradek.server.routes import Routes
    from odradek.wire.work import Work


class Part(NamedTuple):
    """APIs that are used together: their keys, and the modules of this package behind them."""

    keys: tuple[int, ...]
    modules: tuple[str, ...]


# ApiVersions, Metadata, Produce, Fetch, ListOffsets
RECORDS = Part(
    (18, 3, 0, 1, 2),
    ("apis.metadata", "apis.produce", "apis.fetch", "apis.fetch_sessions", "apis.list_offsets"),
)
# FindCoordinator, OffsetFetch, JoinGroup, SyncGroup, Heartbeat, OffsetCommit, LeaveGroup,
# ConsumerGroupHeartbeat
GROUPS = Part(
    (10, 9, 11, 14, 12, 8, 13, 68),
    (
        "apis.find_coordinator",
        "apis.join_group",
        "apis.sync_group",
        "apis.heartbeat",
        "apis.leave_group",
        "apis.offset_commit",
        "apis.offset_fetch",
        "coordinator.group_coordinator",
        "server.coordinator_log",
        "apis.consumer_groups",
    ),
)
# InitProducerId, AddPartitionsToTxn, AddOffsetsToTxn, EndTxn, TxnOffsetCommit
TRANSACTIONS = Part(
    (22, 24, 25, 26, 28),
    (
        "apis.init_producer_id",
        "apis.add_partitions_to_txn",
        "apis.add_offsets_to_txn",
        "apis.end_txn",
        "coordinator.transactions.coordinator",
        "apis.write_txn_markers",
        "apis.txn_offset_commit",
    ),
)
# CreateTopics, DeleteTopics, CreatePartitions, DescribeConfigs, IncrementalAlterConfigs, AlterConfigs,
# DescribeCluster, DescribeTopicPartitions, ListConfigResources, DeleteRecords, OffsetForLeaderEpoch,
# DescribeLogDirs, DescribeProducers, of groups DescribeGroups, ListGroups, ConsumerGroupDescribe,
# DeleteGroups, OffsetDelete, and of transactions DescribeTransactions, ListTransactions
ADMINISTRATION = Part(
    (19, 20, 37, 32, 44, 33, 60, 75, 74, 21, 23, 35, 61, 15, 16, 69, 42, 47, 65, 66),
    (
        "apis.create_topics",
        "apis.delete_topics",
        "apis.create_partitions",
        "apis.describe_configs",
        "apis.alter_configs",
        "apis.list_config_resources",
        "apis.delete_records",
        "apis.describe_log_dirs",
        "apis.describe_producers",
        "apis.offset_for_leader_epoch",
        "apis.describe_groups",
        "apis.list_groups",
        "apis.delete_groups",
        "apis.offset_delete",
        "apis.describe_transactions",
        "apis.list_transactions",
    ),
)


def parts_at_once(topics: Collection[str]) -> list[Part]:
    """What clients of a broker with these topics will use first."""
    parts = [RECORDS]
    if OFFSETS_TOPIC in topics:
        parts.append(GROUPS)
    if TRANSACTIONS_TOPIC in topics:
        parts.append(TRANSACTIONS)
    return parts


def parts_later(topics: Collection[str]) -> list[Part]:
    """What is left after `parts_at_once` with the same topics."""
    at_once = parts_at_once(topics)
    return [part for part in (GROUPS, TRANSACTIONS, ADMINISTRATION) if part not in at_once]


def warming_up(routes: Routes, parts: Iterable[Part]) -> Work[None]:
    """The newest version of each API: those before it have the modules then, and lack their codec alone."""
    for part in parts:
        for module in part.modules:
            yield partial(import_module, f"odradek.{module}")
        for key in part.keys:
            yield partial(find, key)
            routes.prepare(key)
            yield None
    # Without the compiled parts the first question makes its own tools.
    is_in_memory(memoryview(bytes(1)), 0, 1)
