"""The one list of what is served. ApiVersions is derived from it: nothing is advertised that is not here."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from odradek.apis.api import Api, Handler
from odradek.apis.configs import DescribeConfigs, Settings
from odradek.apis.fetch import Fetch
from odradek.apis.fetch_sessions import FetchSessionCache
from odradek.apis.groups import (
    DeleteGroups,
    DescribeGroups,
    FindCoordinator,
    Groups,
    Heartbeat,
    JoinGroup,
    LeaveGroup,
    ListGroups,
    SyncGroup,
)
from odradek.apis.leadership import Leadership
from odradek.apis.log_dirs import DescribeLogDirs
from odradek.apis.metadata import DescribeCluster, DescribeTopicPartitions, Metadata
from odradek.apis.offsets import OffsetCommit, OffsetDelete, OffsetFetch
from odradek.apis.offsets_of_logs import ListOffsets, OffsetForLeaderEpoch
from odradek.apis.produce import Produce
from odradek.apis.producers import InitProducerId, ProducerIds
from odradek.apis.topic_creation import TopicCreation
from odradek.apis.topics import CreatePartitions, CreateTopics, DeleteTopics
from odradek.apis.versions import ApiVersions
from odradek.coordinator.cluster import NewTopic
from odradek.wire.messages import find

if TYPE_CHECKING:
    from odradek.apis.turn import Timers, Turn
    from odradek.coordinator.cluster import ClusterMachine
    from odradek.storage.store import LogStore

VERSIONS: dict[int, tuple[int, int]] = {
    0: (0, 13),  # Produce
    1: (0, 18),  # Fetch
    2: (0, 11),  # ListOffsets
    3: (0, 13),  # Metadata
    8: (0, 10),  # OffsetCommit
    9: (0, 10),  # OffsetFetch
    10: (0, 6),  # FindCoordinator
    11: (0, 9),  # JoinGroup
    12: (0, 4),  # Heartbeat
    13: (0, 5),  # LeaveGroup
    14: (0, 5),  # SyncGroup
    15: (0, 6),  # DescribeGroups
    16: (0, 5),  # ListGroups
    18: (0, 4),  # ApiVersions
    19: (0, 7),  # CreateTopics
    20: (0, 6),  # DeleteTopics
    22: (0, 5),  # InitProducerId
    23: (0, 4),  # OffsetForLeaderEpoch
    32: (0, 4),  # DescribeConfigs
    35: (0, 5),  # DescribeLogDirs
    37: (0, 3),  # CreatePartitions
    42: (0, 2),  # DeleteGroups
    47: (0, 0),  # OffsetDelete
    60: (0, 2),  # DescribeCluster
    75: (0, 0),  # DescribeTopicPartitions
}
"""First and last version by key: from 0, as Kafka 3.9 served them, to Kafka 4.3's highest stable one.

kafka-python tells the broker's release from these, and librdkafka before 2.11 looks for single versions from 0 on
(KAFKA-18659), so that a range is never narrowed without need.
"""


def build_apis(
    *,
    node_id: int,
    machine: ClusterMachine,
    store: LogStore,
    groups: Groups,
    turn: Turn,
    timers: Timers,
    start_configs: Mapping[str, str],
    offsets_topic: NewTopic,
    auto_creates_topics: bool = True,
    deletes_topics: bool = True,
    fetch_max_bytes: int = 57_671_680,
    fetch_session_slots: int = 1000,
) -> dict[int, Api]:
    """Every API by its key. The names of the last four parameters in Kafka: `auto.create.topics.enable`,
    `delete.topic.enable`, `fetch.max.bytes`, `max.incremental.fetch.session.cache.slots`.

    `start_configs` are the broker's settings as text, as they were given at start; `offsets_topic` says how
    `__consumer_offsets` is to be created.
    """

    def current_view():
        return machine.view

    leadership = Leadership(current_view, store, node_id)
    topics = TopicCreation(machine, offsets_topic)
    settings = Settings(node_id, current_view, start_configs)
    api_versions = ApiVersions(current_view)
    handlers: dict[int, Handler] = {
        0: Produce(leadership, turn),
        1: Fetch(leadership, timers, FetchSessionCache(fetch_session_slots), fetch_max_bytes),
        2: ListOffsets(leadership),
        3: Metadata(node_id, topics, auto_creates_topics=auto_creates_topics),
        8: OffsetCommit(leadership, groups),
        9: OffsetFetch(leadership, groups),
        10: FindCoordinator(node_id, topics, groups),
        11: JoinGroup(groups),
        12: Heartbeat(groups),
        13: LeaveGroup(groups),
        14: SyncGroup(groups),
        15: DescribeGroups(groups),
        16: ListGroups(groups),
        18: api_versions,
        19: CreateTopics(machine, settings.describe_topic),
        20: DeleteTopics(machine, is_enabled=deletes_topics),
        22: InitProducerId(ProducerIds(machine.allocate_producer_ids)),
        23: OffsetForLeaderEpoch(leadership),
        32: DescribeConfigs(settings),
        35: DescribeLogDirs(store),
        37: CreatePartitions(machine),
        42: DeleteGroups(groups),
        47: OffsetDelete(leadership, groups),
        60: DescribeCluster(node_id, topics),
        75: DescribeTopicPartitions(node_id, topics),
    }
    apis = {}
    for key, handler in handlers.items():
        first, last = VERSIONS[key]
        request, response = find(key)
        apis[key] = Api(request, response, handler, range(first, last + 1))
    api_versions.describe(apis.items())
    return apis
