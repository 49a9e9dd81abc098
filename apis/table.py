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
    # Key, last version, handler. Versions begin at 0, as in Kafka 3.9, and end with the highest stable one of
    # Kafka 4.3. kafka-python tells the release from these, and librdkafka before 2.11 looks for single low
    # versions (KAFKA-18659), so that a range is never narrowed without need.
    rows: tuple[tuple[int, int, Handler], ...] = (
        (0, 13, Produce(leadership, turn)),
        (1, 18, Fetch(leadership, timers, FetchSessionCache(fetch_session_slots), fetch_max_bytes)),
        (2, 11, ListOffsets(leadership)),
        (3, 13, Metadata(node_id, topics, auto_creates_topics=auto_creates_topics)),
        (8, 10, OffsetCommit(leadership, groups)),
        (9, 10, OffsetFetch(leadership, groups)),
        (10, 6, FindCoordinator(node_id, topics, groups)),
        (11, 9, JoinGroup(groups)),
        (12, 4, Heartbeat(groups)),
        (13, 5, LeaveGroup(groups)),
        (14, 5, SyncGroup(groups)),
        (15, 6, DescribeGroups(groups)),
        (16, 5, ListGroups(groups)),
        (18, 4, api_versions),
        (19, 7, CreateTopics(machine, settings.describe_topic)),
        (20, 6, DeleteTopics(machine, is_enabled=deletes_topics)),
        (22, 5, InitProducerId(ProducerIds(machine.allocate_producer_ids))),
        (23, 4, OffsetForLeaderEpoch(leadership)),
        (32, 4, DescribeConfigs(settings)),
        (35, 5, DescribeLogDirs(store)),
        (37, 3, CreatePartitions(machine)),
        (42, 2, DeleteGroups(groups)),
        (47, 0, OffsetDelete(leadership, groups)),
        (60, 2, DescribeCluster(node_id, topics)),
        (75, 0, DescribeTopicPartitions(node_id, topics)),
    )
    apis = {}
    for key, last_version, handler in rows:
        request, response = find(key)
        apis[key] = Api(request, response, handler, range(last_version + 1))
    api_versions.describe(apis.items())
    return apis
