"""The one list of what is served. ApiVersions is derived from it: nothing is advertised that is not here.

A row names its handler; module and messages of an API are imported when the first request for it comes, since
a broker that starts in a tenth of a second cannot import them all.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Any

from odradek.apis.api import Api, Handler
from odradek.apis.leadership import Leadership
from odradek.apis.topic_creation import TopicCreation
from odradek.apis.versions import ApiVersions
from odradek.coordinator.cluster import NewTopic
from odradek.wire.messages import find

if TYPE_CHECKING:
    from odradek.apis.configs import Settings
    from odradek.apis.groups import Groups
    from odradek.apis.turn import Timers, Turn, WorkQueue
    from odradek.coordinator.cluster import ClusterMachine
    from odradek.storage.store import LogStore

MakeHandler = Callable[[], Handler]


class Apis(Mapping[int, Api]):
    """Every API by its key; an API is made when it is first asked for."""

    def __init__(self, rows: Mapping[int, tuple[int, MakeHandler]]) -> None:
        self._rows = rows
        self._made: dict[int, Api] = {}

    def __getitem__(self, api_key: int) -> Api:
        api = self._made.get(api_key)
        if api is None:
            make_handler = self._rows[api_key][1]
            request, response = find(api_key)
            handler = make_handler()
            make_shortcut = getattr(handler, "shortcut", None)
            shortcut = None if make_shortcut is None else make_shortcut()
            api = Api(request, response, handler, self.versions(api_key), shortcut)
            self._made[api_key] = api
        return api

    def __iter__(self) -> Iterator[int]:
        return iter(self._rows)

    def __len__(self) -> int:
        return len(self._rows)

    def versions(self, api_key: int) -> range:
        """What is served of an API, without making it."""
        return range(self._rows[api_key][0] + 1)


def _later(name: str, *arguments: Any, **keywords: Any) -> MakeHandler:
    """`module.Class` of this package, to be made with these arguments when it is needed."""
    module, _, handler = name.partition(".")
    return lambda: getattr(import_module(f"odradek.apis.{module}"), handler)(*arguments, **keywords)


def _leave_them() -> None:
    """For those who go on with the moves by themselves."""


def build_apis(
    *,
    node_id: int,
    machine: ClusterMachine,
    store: LogStore,
    groups: Groups,
    turn: Turn,
    timers: Timers,
    work: WorkQueue,
    searches: WorkQueue,
    saves: WorkQueue | None = None,
    begin_moves: Callable[[], object] = _leave_them,
    reads: WorkQueue,
    conversions: WorkQueue,
    start_configs: Mapping[str, str],
    offsets_topic: NewTopic,
    auto_creates_topics: bool = True,
    deletes_topics: bool = True,
    fetch_max_bytes: int = 57_671_680,
    fetch_session_slots: int = 1000,
    description_partitions_max: int = 2000,
) -> Apis:
    """Every API by its key. The names of the last five parameters in Kafka: `auto.create.topics.enable`,
    `delete.topic.enable`, `fetch.max.bytes`, `max.incremental.fetch.session.cache.slots`,
    `max.request.partition.size.limit`.

    `start_configs` are the broker's settings as text, as they were given at start; `offsets_topic` says how
    `__consumer_offsets` is to be created. `work` is for what changes topics, one after the other; `searches`
    for what looks long and changes nothing, `reads` for what waits for the disk, several at once,
    `conversions` for batches that have to be packed or unpacked before they are stored, several at once, too,
    `saves` for what only waits for the disk. `begin_moves` is called when there is something to move between
    data directories.
    """

    def current_view():
        return machine.view

    leadership = Leadership(current_view, store, node_id)
    topics = TopicCreation(machine, offsets_topic)
    api_versions = ApiVersions(current_view)

    @cache
    def settings() -> Settings:
        from odradek.apis.configs import Settings

        return Settings(node_id, current_view, start_configs)

    # Key: last version, handler. Versions begin at 0, as in Kafka 3.9, and end with the highest stable one of
    # Kafka 4.3. kafka-python tells the release from these, and librdkafka before 2.11 looks for single low
    # versions (KAFKA-18659), so that a range is never narrowed without need.
    rows: dict[int, tuple[int, MakeHandler]] = {
        0: (13, _later("produce.Produce", leadership, turn, conversions)),
        1: (18, lambda: _fetch(leadership, timers, reads, fetch_session_slots, fetch_max_bytes)),
        2: (11, _later("offsets_of_logs.ListOffsets", leadership, searches)),
        3: (13, _later("metadata.Metadata", node_id, topics, work, auto_creates_topics=auto_creates_topics)),
        8: (10, _later("offsets.OffsetCommit", leadership, groups)),
        9: (10, _later("offsets.OffsetFetch", leadership, groups)),
        10: (6, _later("groups.FindCoordinator", node_id, topics, work, groups)),
        11: (9, _later("groups.JoinGroup", groups)),
        12: (4, _later("groups.Heartbeat", groups)),
        13: (5, _later("groups.LeaveGroup", groups)),
        14: (5, _later("groups.SyncGroup", groups)),
        15: (6, _later("groups.DescribeGroups", groups)),
        16: (5, _later("groups.ListGroups", groups)),
        18: (4, lambda: api_versions),
        19: (7, lambda: _create_topics(machine, work, settings())),
        20: (6, _later("topics.DeleteTopics", machine, work, is_enabled=deletes_topics)),
        21: (2, _later("delete_records.DeleteRecords", leadership, store, work if saves is None else saves)),
        22: (5, lambda: _init_producer_id(machine)),
        23: (4, _later("offsets_of_logs.OffsetForLeaderEpoch", leadership)),
        32: (4, lambda: _describe_configs(settings())),
        33: (2, _later("alter_configs.AlterConfigs", node_id, machine, work)),
        34: (2, _later("log_dirs.AlterReplicaLogDirs", current_view, store, begin_moves)),
        35: (5, _later("log_dirs.DescribeLogDirs", store)),
        37: (3, _later("topics.CreatePartitions", machine, work)),
        42: (2, _later("groups.DeleteGroups", groups)),
        44: (1, _later("alter_configs.IncrementalAlterConfigs", node_id, machine, work)),
        47: (0, _later("offsets.OffsetDelete", leadership, groups)),
        60: (2, _later("metadata.DescribeCluster", node_id, topics)),
        75: (0, _later("metadata.DescribeTopicPartitions", node_id, topics, description_partitions_max)),
    }
    apis = Apis(rows)
    api_versions.describe((key, apis.versions(key)) for key in apis)
    return apis


# Handlers that need something which only they use.


def _fetch(
    leadership: Leadership, timers: Timers, reads: WorkQueue, session_slots: int, max_bytes: int
) -> Handler:
    from odradek.apis.fetch import Fetch
    from odradek.apis.fetch_sessions import FetchSessionCache

    return Fetch(leadership, timers, reads, FetchSessionCache(session_slots), max_bytes)


def _create_topics(machine: ClusterMachine, work: WorkQueue, settings: Settings) -> Handler:
    from odradek.apis.topics import CreateTopics

    return CreateTopics(machine, work, settings.describe_topic)


def _describe_configs(settings: Settings) -> Handler:
    from odradek.apis.configs import DescribeConfigs

    return DescribeConfigs(settings)


def _init_producer_id(machine: ClusterMachine) -> Handler:
    from odradek.apis.producers import InitProducerId, ProducerIds

    return InitProducerId(ProducerIds(machine.allocate_producer_ids))
