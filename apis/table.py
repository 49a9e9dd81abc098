"""The list of served APIs. ApiVersions is derived from it: only what is here is advertised.

A row names its handler; module and messages of an API are imported with the first request for it, so that a
broker can start in 0.1 s.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from functools import cache, partial
from importlib import import_module
from typing import TYPE_CHECKING, Any

from odradek.apis import access
from odradek.apis.access import Needs
from odradek.apis.api import Api, Handler
from odradek.apis.api_versions import ApiVersions
from odradek.apis.audit import CHANGING, Audited
from odradek.apis.overlaps import overlaps_of
from odradek.apis.topic_creation import TopicCreation
from odradek.wire.messages import find

if TYPE_CHECKING:
    from odradek.apis.client_metrics import ClientMetricsApis
    from odradek.apis.delegation_tokens import TokenParts
    from odradek.apis.describe_configs import Settings
    from odradek.apis.node import ApiSettings, NodeParts
    from odradek.apis.share_fetch import ShareParts
    from odradek.apis.transaction_verification import TransactionVerification

FIRST_VERSIONS = dict.fromkeys((76, 77, 78, 79), 1)
"""Of APIs whose version 0 was an early access, and is gone; 0 of all others."""
MakeHandler = Callable[[], Handler]
MakeApi = Callable[["NodeParts", "ApiSettings"], Api]
"""An API that a program adds."""


class Apis(Mapping[int, Api]):
    """Every API by its key; an API is made when it is first used."""

    def __init__(
        self,
        rows: Mapping[int, tuple[int, MakeHandler]],
        added: Iterable[Api] = (),
        forwarded: Collection[int] = (),
    ) -> None:
        self._rows = rows
        self._forwarded = forwarded
        self._made: dict[int, Api] = {api.request.api_key: api for api in added}
        self._versions = {key: range(FIRST_VERSIONS.get(key, 0), last + 1) for key, (last, _) in rows.items()}
        self._versions |= {key: api.versions for key, api in self._made.items()}

    def __getitem__(self, api_key: int) -> Api:
        api = self._made.get(api_key)
        if api is None:
            make_handler = self._rows[api_key][1]
            request, response = find(api_key)
            handler = make_handler()
            if api_key in CHANGING:
                handler = Audited(handler)
            api = Api(
                request,
                response,
                handler,
                self.versions(api_key),
                self.needs(api_key),
                getattr(handler, "prefix", None),
                overlaps_of(api_key),
            )
            self._made[api_key] = api
        return api

    def __iter__(self) -> Iterator[int]:
        return iter(self._versions)

    def __len__(self) -> int:
        return len(self._versions)

    def needs(self, api_key: int) -> Needs | None:
        """What a client has to be allowed, without making the API; None if it has no row.

        The controllers authorize what is forwarded to them, with rules that this node may not have yet.
        """
        api = self._made.get(api_key)
        if api is not None:
            return api.needs
        return () if api_key in self._forwarded else access.NEEDS.get(api_key)

    def versions(self, api_key: int) -> range:
        """The served versions of an API, without making it."""
        return self._versions[api_key]


def _later(name: str, *arguments: Any, **keywords: Any) -> MakeHandler:
    """`module.Class` of this package, made with these arguments when it is needed."""
    module, _, handler = name.partition(".")
    return lambda: getattr(import_module(f"odradek.apis.{module}"), handler)(*arguments, **keywords)


def _function(name: str) -> MakeHandler:
    """`module.function` of this package, the handler itself."""
    module, _, handler = name.partition(".")
    return lambda: getattr(import_module(f"odradek.apis.{module}"), handler)


def build_apis(node: NodeParts, settings: ApiSettings, more: Iterable[MakeApi] = ()) -> Apis:
    """Every API by its key: those of Kafka, and `more`, which may also replace one of Kafka's."""
    topics = TopicCreation(node.plane, settings.internal_topics)
    api_versions = ApiVersions(node.leadership.current_view, node.controller_versions)
    rows: Rows = {
        **_of_records(node, settings),
        **_of_groups(node, topics),
        **_of_share_groups(node, settings),
        **_of_transactions(node, settings),
        **_of_share_states(node),
        **_of_the_cluster(node, settings, topics),
        **_of_nodes(node, settings),
        **_of_security(node, settings),
        **_of_client_metrics(node, settings),
        18: (4, lambda: api_versions),
    }
    forwarded: Collection[int] = ()
    decided_elsewhere: Collection[int] = ()
    if node.forward is not None:
        from odradek.apis.forwarding import FORWARDED, FORWARDED_AFTER_CHECKS

        rows |= {key: (rows[key][0], _later("forwarding.Forwarded", key, node.forward)) for key in FORWARDED}
        rows |= _changing_configs(node, settings)
        forwarded = FORWARDED | FORWARDED_AFTER_CHECKS
        # Of settings the controllers see all but the loggers of this node.
        decided_elsewhere = FORWARDED - {33, 44}
    apis = Apis(rows, [make(node, settings) for make in more], decided_elsewhere)
    access.check_complete({key: apis.needs(key) for key in apis})
    api_versions.describe(((key, apis.versions(key)) for key in apis), forwarded)
    return apis


# Key: last version, handler. Versions begin at 0, as in Kafka 3.9, and end with the highest stable one of #
# Kafka 4.3. kafka-python guesses the release from these, and librdkafka before 2.11 needs certain low #
# versions (KAFKA-18659), so ranges are not narrowed without need.

Rows = dict[int, tuple[int, MakeHandler]]


def _of_records(node: NodeParts, settings: ApiSettings) -> Rows:
    leadership = node.leadership
    return {
        0: (13, lambda: _produce(node, settings)),
        1: (18, lambda: _fetch(node, settings)),
        2: (11, _later("list_offsets.ListOffsets", leadership, node.searches)),
        21: (2, _later("delete_records.DeleteRecords", leadership, node.store, node.saves, node.timers)),
        23: (4, _later("offset_for_leader_epoch.OffsetForLeaderEpoch", leadership)),
        61: (0, _later("describe_producers.DescribeProducers", leadership)),
    }


def _of_groups(node: NodeParts, topics: TopicCreation) -> Rows:
    groups, leadership = node.groups, node.leadership
    finder = (node.node_id, topics, node.changes, groups, node.transactions, node.shares)
    streams = (groups, topics, node.changes, node.timers, node.now_ms)
    return {
        8: (10, _later("offset_commit.OffsetCommit", leadership, groups, node.oldest_groups)),
        9: (10, _later("offset_fetch.OffsetFetch", leadership, groups, node.oldest_groups)),
        10: (6, _later("find_coordinator.FindCoordinator", *finder)),
        11: (9, _later("join_group.JoinGroup", groups)),
        12: (4, _later("heartbeat.Heartbeat", groups)),
        13: (5, _later("leave_group.LeaveGroup", groups)),
        14: (5, _later("sync_group.SyncGroup", groups)),
        15: (6, _later("describe_groups.DescribeGroups", groups)),
        16: (5, _later("list_groups.ListGroups", groups)),
        42: (2, _later("delete_groups.DeleteGroups", groups)),
        47: (0, _later("offset_delete.OffsetDelete", leadership, groups)),
        68: (1, _later("consumer_groups.ConsumerGroupHeartbeat", groups)),
        69: (1, _later("consumer_groups.ConsumerGroupDescribe", leadership.current_view, groups)),
        88: (0, _later("streams_groups.StreamsGroupHeartbeat", *streams)),
        89: (0, _later("streams_groups.StreamsGroupDescribe", groups)),
    }


def _of_share_groups(node: NodeParts, settings: ApiSettings) -> Rows:
    groups, leadership = node.groups, node.leadership
    parts = cache(partial(_share_parts, node, settings))

    def fetch() -> Handler:
        from odradek.apis.share_fetch import ShareFetch

        return ShareFetch(parts())

    def acknowledge() -> Handler:
        from odradek.apis.share_acknowledge import ShareAcknowledge

        return ShareAcknowledge(parts())

    return {
        76: (1, _later("share_groups.ShareGroupHeartbeat", groups)),
        77: (1, _later("share_groups.ShareGroupDescribe", groups)),
        78: (2, fetch),
        79: (2, acknowledge),
        90: (1, _later("share_groups.DescribeShareGroupOffsets", groups, leadership)),
        91: (0, _later("share_groups.AlterShareGroupOffsets", groups)),
        92: (0, _later("share_groups.DeleteShareGroupOffsets", groups)),
    }


def _of_transactions(node: NodeParts, settings: ApiSettings) -> Rows:
    transactions, current_view = node.transactions, node.leadership.current_view
    commits = (node.leadership, node.groups, transactions, node.timers, settings.verifies_transactions)
    return {
        22: (5, _later("init_producer_id.InitProducerId", node.new_producer_id, transactions)),
        24: (5, _later("add_partitions_to_txn.AddPartitionsToTxn", current_view, transactions, node.timers)),
        25: (4, _later("add_offsets_to_txn.AddOffsetsToTxn", node.groups, transactions, node.timers)),
        26: (5, _later("end_txn.EndTxn", transactions)),
        27: (2, lambda: _write_txn_markers(node)),
        28: (5, _later("txn_offset_commit.TxnOffsetCommit", *commits)),
        65: (0, _later("describe_transactions.DescribeTransactions", transactions)),
        66: (2, _later("list_transactions.ListTransactions", transactions, node.searches)),
    }


def _of_share_states(node: NodeParts) -> Rows:
    """Of brokers, not of clients."""
    shares = node.shares
    return {
        83: (0, _later("share_state.InitializeShareGroupState", shares)),
        84: (0, _later("share_state.ReadShareGroupState", shares)),
        85: (1, _later("share_state.WriteShareGroupState", shares)),
        86: (0, _later("share_state.DeleteShareGroupState", shares)),
        87: (1, _later("share_state.ReadShareGroupStateSummary", shares)),
    }


def _of_the_cluster(node: NodeParts, settings: ApiSettings, topics: TopicCreation) -> Rows:
    node_id, machine, changes = node.node_id, node.plane, node.changes
    current_view = node.leadership.current_view

    @cache
    def describing() -> Settings:
        from odradek.apis.describe_configs import Settings

        return Settings(node_id, current_view, settings.start_configs, settings.broker_options)

    options = settings.broker_options
    creates, deletes = settings.auto_creates_topics, settings.deletes_topics
    announce = topics.will_be_deleted
    partitions_max = settings.description_partitions_max
    describer = (node_id, topics, changes)
    return {
        3: (13, _later("metadata.Metadata", *describer, auto_creates_topics=creates, quotas=node.quotas)),
        19: (7, lambda: _create_topics(node, describing())),
        20: (6, lambda: _delete_topics(node, announce, is_enabled=deletes)),
        32: (4, lambda: _describe_configs(describing())),
        33: (2, _later("alter_configs.AlterConfigs", node_id, machine, changes, options)),
        34: (
            2,
            _later("alter_replica_log_dirs.AlterReplicaLogDirs", current_view, node.store, node.begin_moves),
        ),
        35: (5, _later("describe_log_dirs.DescribeLogDirs", node.store)),
        37: (3, _later("create_partitions.CreatePartitions", machine, changes, node.quotas)),
        44: (
            1,
            _later(
                "alter_configs.IncrementalAlterConfigs",
                *(node_id, machine, changes, options),
                changes_log_levels=settings.changes_log_levels,
            ),
        ),
        45: (1, _later("alter_partition_reassignments.AlterPartitionReassignments", current_view)),
        46: (0, _later("list_partition_reassignments.ListPartitionReassignments")),
        57: (2, _later("update_features.UpdateFeatures", node_id, machine, changes)),
        60: (2, _later("metadata.DescribeCluster", node_id, topics)),
        74: (1, _later("list_config_resources.ListConfigResources", current_view)),
        75: (0, _later("metadata.DescribeTopicPartitions", node_id, topics, partitions_max)),
    }


def _of_nodes(node: NodeParts, settings: ApiSettings) -> Rows:
    """The nodes and the leaders of partitions."""
    current_view = node.leadership.current_view
    voter = (node.node_id, node.directory_id, current_view)
    return {
        43: (2, _later("elect_leaders.ElectLeaders", current_view)),
        55: (2, _later("quorum.DescribeQuorum", *voter)),
        64: (0, _later("quorum.UnregisterBroker", current_view)),
        80: (1, _later("quorum.AddRaftVoter", *voter, settings.controller_listener)),
        81: (0, _later("quorum.RemoveRaftVoter", *voter)),
    }


def _of_security(node: NodeParts, settings: ApiSettings) -> Rows:
    """ACLs, quotas, users and tokens."""

    @cache
    def tokens() -> TokenParts:
        return _token_parts(node, settings)

    def of_tokens(name: str) -> MakeHandler:
        return lambda: _later(f"delegation_tokens.{name}", tokens())()

    current_view = node.leadership.current_view
    has_acls = node.authorizer is not access.ALLOW_ALL
    machine = node.plane if has_acls else None
    altering = (node.changes, node.reads)
    return {
        17: (1, _function("sasl.sasl_handshake")),
        29: (3, _later("acls.DescribeAcls", current_view, node.searches if has_acls else None)),
        30: (3, _later("acls.CreateAcls", machine, node.changes)),
        31: (3, _later("acls.DeleteAcls", machine, node.changes)),
        36: (2, _function("sasl.sasl_authenticate")),
        38: (3, of_tokens("CreateDelegationToken")),
        39: (2, of_tokens("RenewDelegationToken")),
        40: (2, of_tokens("ExpireDelegationToken")),
        41: (3, of_tokens("DescribeDelegationToken")),
        48: (1, _later("client_quotas.DescribeClientQuotas", current_view)),
        49: (
            1,
            _later("client_quotas.AlterClientQuotas", node.plane, *altering, node.is_address, node.is_host),
        ),
        50: (0, _later("scram_credentials.DescribeUserScramCredentials", current_view)),
        51: (0, _later("scram_credentials.AlterUserScramCredentials", node.plane, node.changes)),
    }


def _of_client_metrics(node: NodeParts, settings: ApiSettings) -> Rows:
    @cache
    def apis() -> ClientMetricsApis:
        from odradek.apis.client_metrics import ClientMetricsApis

        current_view = node.leadership.current_view
        return ClientMetricsApis(
            node.client_metrics(), current_view, node.conversions, settings.telemetry_max_bytes
        )

    return {71: (0, lambda: apis().subscriptions), 72: (0, lambda: apis().push)}


# Handlers with parts that only they use.


def _produce(node: NodeParts, settings: ApiSettings) -> Handler:
    from odradek.apis.produce import Produce

    @cache
    def verification() -> TransactionVerification:
        from odradek.apis.transaction_verification import TransactionVerification

        return TransactionVerification(
            node.leadership,
            node.transactions,
            node.timers,
            is_enabled=settings.verifies_transactions,
            pause_ms_max=settings.verification_pause_ms_max,
            patience_ms=settings.verification_patience_ms,
        )

    return Produce(node.leadership, node.turn, node.conversions, verification)


def _fetch(node: NodeParts, settings: ApiSettings) -> Handler:
    from odradek.apis.fetch import Fetch
    from odradek.apis.fetch_sessions import FetchSessionCache

    sessions = FetchSessionCache(settings.fetch_session_slots)
    max_bytes = settings.fetch_max_bytes
    return Fetch(node.leadership, node.timers, node.reads, sessions, max_bytes, node.quotas)


def _share_parts(node: NodeParts, settings: ApiSettings) -> ShareParts:
    from odradek.apis.share_fetch import ShareParts
    from odradek.apis.share_partitions import SharePartitions
    from odradek.apis.share_sessions import ShareSessions

    shares = SharePartitions(
        node.leadership,
        node.groups.persister,
        node.groups.config_of,
        node.timers,
        node.searches,
        node.clock_ms,
        node.now_ms,
    )
    parts = ShareParts(
        leadership=node.leadership,
        shares=shares,
        sessions=ShareSessions(settings.share_sessions_max),
        timers=node.timers,
        reads=node.reads,
        groups=node.groups,
        quotas=node.quotas,
        max_bytes=settings.fetch_max_bytes,
    )
    node.subscribe(parts.view_changed)
    return parts


def _token_parts(node: NodeParts, settings: ApiSettings) -> TokenParts:
    from odradek.apis.delegation_tokens import TokenParts
    from odradek.coordinator.cluster.machine import ClusterMachine

    def forwarded(api_key: int) -> Handler:
        from odradek.apis.forwarding import Forwarded

        assert node.forward is not None
        return Forwarded(api_key, node.forward)

    machine = node.plane if node.forward is None else None
    assert machine is None or isinstance(machine, ClusterMachine)
    return TokenParts(
        rules=settings.token_rules,
        protocols=settings.security_protocols,
        current_view=node.leadership.current_view,
        machine=machine,
        work=node.changes,
        forwarded=None if node.forward is None else forwarded,
    )


def _write_txn_markers(node: NodeParts) -> Handler:
    from odradek.apis.write_txn_markers import WriteTxnMarkers, marker_writer

    return WriteTxnMarkers(marker_writer(node))


def _create_topics(node: NodeParts, settings: Settings) -> Handler:
    from odradek.apis.create_topics import CreateTopics
    from odradek.coordinator.cluster.machine import ClusterMachine

    assert isinstance(node.plane, ClusterMachine)
    return CreateTopics(node.plane, node.changes, settings.describe_topic, node.quotas)


def _delete_topics(
    node: NodeParts, announce: Callable[[Iterable[str]], None], *, is_enabled: bool
) -> Handler:
    from odradek.apis.delete_topics import DeleteTopics
    from odradek.coordinator.cluster.machine import ClusterMachine

    assert isinstance(node.plane, ClusterMachine)
    return DeleteTopics(node.plane, node.changes, announce, is_enabled=is_enabled, quotas=node.quotas)


def _changing_configs(node: NodeParts, settings: ApiSettings) -> Rows:
    """Of a node of a cluster."""
    options, current_view = settings.broker_options, node.leadership.current_view

    def make(api_key: int, kind: str) -> Handler:
        from odradek.apis import alter_configs
        from odradek.apis.forwarded_configs import ForwardedConfigs

        assert node.forward is not None
        altering = getattr(alter_configs, kind)(
            node.node_id,
            node.plane,
            node.changes,
            options,
            changes_log_levels=settings.changes_log_levels,
        )
        check = settings.check_broker_configs
        return ForwardedConfigs(altering, api_key, node.forward, current_view, options, check)

    return {
        33: (2, lambda: make(33, "AlterConfigs")),
        44: (1, lambda: make(44, "IncrementalAlterConfigs")),
    }


def _describe_configs(settings: Settings) -> Handler:
    from odradek.apis.describe_configs import DescribeConfigs

    return DescribeConfigs(settings)
