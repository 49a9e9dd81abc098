"""The parts of a node that handlers use: its machines, logs, queues and settings.

The builder of a node (the server, a test) fills these in; each API gives its handler some of them
(`apis/declaration.py`). No handler gets all.
"""

from __future__ import annotations

import logging
import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from odradek.apis.access import ALLOW_ALL
from odradek.apis.coordinators import NoDeadLetters
from odradek.apis.quotas import ClientQuotas
from odradek.config.options import BROKER_OPTIONS, BrokerOptions
from odradek.coordinator.security.delegation_tokens import TokenRules

if TYPE_CHECKING:
    from odradek.apis.access import Authorizer
    from odradek.apis.controller.endpoint import ControllerEndpoint
    from odradek.apis.coordinators import (
        DeadLetters,
        Groups,
        OldestGroups,
        RemoteLogEnds,
        RemoteTransactions,
        Shares,
        Transactions,
    )
    from odradek.apis.leadership import Leadership
    from odradek.apis.turn import Timers, Turn, WorkQueue
    from odradek.coordinator.client_metrics.clients import ClientMetrics
    from odradek.coordinator.cluster.control_plane import ControlPlane, TopicCreator
    from odradek.coordinator.cluster.decisions import Decisions
    from odradek.coordinator.cluster.topics import NewTopic
    from odradek.coordinator.cluster.view import ClusterView
    from odradek.storage.directories.store import LogStore
    from odradek.wire.messages.envelope import EnvelopeRequest, EnvelopeResponse

logger = logging.getLogger("odradek.apis")

Part = TypeVar("Part")
ControllerVersions = Callable[[], Mapping[int, tuple[int, int]]]
"""First and last version by API key that the controllers serve; empty as long as none has answered."""
Answered = Callable[["EnvelopeResponse | None"], None]
Forward = Callable[["EnvelopeRequest", Answered], None]
"""Sends an envelope and calls back once: with None when no controller has answered in time."""


def _accept_configs(owner: str, configs: Mapping[str, str]) -> None:
    """For tests without settings to check against."""


def _one_for_all() -> Callable[[], ClientMetrics]:
    @cache
    def made() -> ClientMetrics:
        from odradek.coordinator.client_metrics.clients import ClientMetrics

        return ClientMetrics(lambda: os.urandom(16), logger.error)

    return made


def _leave_them() -> None:
    """For callers that begin moves without waiting for their end."""


def _of_node_alone() -> None:
    """There are no other brokers."""


def _stopped_clock() -> int:
    """For nodes without share groups."""
    return 0


def _no_subscription(function: Callable[[ClusterView, Any], None]) -> None:
    """For tests whose cluster does not change."""


def _no_address(name: str) -> bool:
    """For tests, where each host has a name."""
    return False


def _any_host(name: str) -> bool:
    """For tests that resolve nothing."""
    return True


class MetadataLogState(Protocol):
    """The metadata log, as far as it is described."""

    @property
    def end_offset(self) -> int:
        """Offset of the next record, and the high watermark."""

    @property
    def leader_epoch(self) -> int:
        """Epoch of this node's leadership."""

    @property
    def directory_id(self) -> bytes:
        """Id of the directory of the log."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class DecidingParts(ABC):
    """The part of a node for requests that change the cluster: of a broker, or of a controller."""

    node_id: int
    now_ms: Callable[[], int]
    """Milliseconds since 1970."""
    plane: TopicCreator
    timers: Timers
    changes: WorkQueue
    """Queue for changes of topics and settings, one after the other."""
    searches: WorkQueue
    """Queue for long searches, which change nothing."""
    reads: WorkQueue
    """Queue for reads from disk, several at once."""
    forward: Forward | None = None
    """Sends requests that change the cluster to its controllers."""
    controller_versions: ControllerVersions | None = None
    """Which versions of APIs the controllers serve; None where `forward` is."""
    is_address: Callable[[str], bool] = _no_address
    """Whether a text is an address; it does not block."""
    is_host: Callable[[str], bool] = _any_host
    """Whether a text is an address, or a name that has one here; it may block."""
    quotas: ClientQuotas = field(default_factory=ClientQuotas)
    metadata_log: MetadataLogState | None = None
    """The log of the metadata; None where `forward` is."""
    authorizer: Authorizer = ALLOW_ALL
    """For resources that only a handler knows."""
    clock_ms: Callable[[], int] = _stopped_clock
    """Milliseconds that only grow."""

    @property
    @abstractmethod
    def machine(self) -> Decisions:
        """The one that decides, here."""

    @property
    @abstractmethod
    def current_view(self) -> Callable[[], ClusterView]:
        """Returns the newest view of the cluster."""

    @property
    def is_controller(self) -> bool:
        """Whether it is a controller, and no broker."""
        return False

    @property
    def has_acls(self) -> bool:
        return self.authorizer is not ALLOW_ALL


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class NodeParts(DecidingParts):
    """One broker, as far as its handlers need it."""

    plane: ControlPlane
    """Where `forward` is None it makes the `Decisions`."""
    store: LogStore
    leadership: Leadership
    groups: Groups
    transactions: Transactions
    shares: Shares
    log_ends: Callable[[], RemoteLogEnds | None] = _of_node_alone
    """Logs that other brokers lead; None of a node alone."""
    remote_transactions: Callable[[], RemoteTransactions | None] = _of_node_alone
    """Coordinators on other brokers; None of a node alone."""
    dead_letters: Callable[[], DeadLetters] = NoDeadLetters
    """Dead letter queues of share groups; made when they are first needed."""
    new_producer_id: Callable[[], int]
    """Returns a new producer id."""
    turn: Turn
    conversions: WorkQueue
    """Queue for batches that have to be compressed or decompressed before they are stored, several at
    once."""
    saves: WorkQueue
    """Queue for flushes."""
    begin_moves: Callable[[], object] = _leave_them
    """Called when a partition is to be moved between data directories."""
    controller_endpoints: Sequence[ControllerEndpoint] = ()
    """Where a node alone is reached as a controller."""
    clock_timers: Timers
    """Timers of time-outs, by the broker's clock; `timers` are for whoever waits."""
    oldest_groups: OldestGroups | None = None
    """Where OffsetCommit 0 and OffsetFetch 0 keep offsets; None: with all others."""
    client_metrics: Callable[[], ClientMetrics] = field(default_factory=lambda: _one_for_all())
    """The metrics that clients push; made when they are first needed."""
    subscribe: Callable[[Callable[[ClusterView, Any], None]], object] = _no_subscription
    """Has a function called with each new view of the cluster and what is different in it."""

    @property
    def machine(self) -> Decisions:
        """The plane of a node alone, which decides."""
        from odradek.coordinator.cluster.decisions import Decisions

        assert isinstance(self.plane, Decisions)
        return self.plane

    @property
    def current_view(self) -> Callable[[], ClusterView]:
        """Returns the newest view of the cluster."""
        return self.leadership.current_view


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class ApiSettings:
    """The node's options for its APIs."""

    start_configs: Mapping[str, str]
    """The broker's settings at start, as text."""
    internal_topics: Iterable[NewTopic]
    """How the topics of coordinators are to be created."""
    controller_listener: str = "CONTROLLER"
    """The first of `controller.listener.names`"""
    auto_creates_topics: bool = True
    """`auto.create.topics.enable`"""
    deletes_topics: bool = True
    """`delete.topic.enable`"""
    fetch_max_bytes: int = 57_671_680
    """`fetch.max.bytes`"""
    fetch_session_slots: int = 1000
    """`max.incremental.fetch.session.cache.slots`"""
    share_sessions_max: int = 2000
    """`group.share.max.share.sessions`"""
    description_partitions_max: int = 2000
    """`max.request.partition.size.limit`"""
    verifies_transactions: Callable[[], bool] = lambda: True
    """`transaction.partition.verification.enable`, read each time: it may change."""
    verification_pause_ms_max: int = 20
    """`add.partitions.to.txn.retry.backoff.ms`"""
    verification_patience_ms: int = 100
    """`add.partitions.to.txn.retry.backoff.max.ms`"""
    broker_options: BrokerOptions = field(default_factory=lambda: BROKER_OPTIONS)
    """The broker's options."""
    check_broker_configs: Callable[[str, Mapping[str, str]], None] = _accept_configs
    """Refuses settings that this broker, by its id, or all brokers ("") cannot have."""
    telemetry_max_bytes: int = 1_048_576
    """`telemetry.max.bytes`"""
    changes_log_levels: bool = False
    """Whether the broker owns its process: then clients may change the levels of loggers."""
    token_rules: TokenRules = field(default_factory=lambda: TokenRules(None))
    """Rules of delegation tokens."""
    security_protocols: Mapping[str, str] = field(default_factory=dict)
    """By the name of a listener; those that are PLAINTEXT may be missing."""
    told_features: Mapping[str, tuple[int, int]] | None = None
    """Lowest and highest level of the features of which clients are told; None: of all."""
    option_value: Callable[[str], Any] = BROKER_OPTIONS.defaults.__getitem__
    """The present value of a broker option, by its name."""


AnyNode = TypeVar("AnyNode", bound=DecidingParts, covariant=True)


class HandlerParts(Generic[AnyNode]):
    """Parts of which the handlers of a node are made: of a broker, of a controller, or of either."""

    def __init__(self, node: AnyNode, settings: ApiSettings, versions: Mapping[int, range]) -> None:
        self.node = node
        self.settings = settings
        self.versions = versions
        """The served versions by API key: what ApiVersions tells."""
        self._shared: dict[Callable[[HandlerParts[AnyNode]], Any], Any] = {}

    def shared(self, make: Callable[[HandlerParts[AnyNode]], Part]) -> Part:
        """Result of `make` with these parts: made at the first call, and the same at each later one, as
        handlers share it."""
        if make not in self._shared:
            self._shared[make] = make(self)
        part: Part = self._shared[make]
        return part


ApiParts = HandlerParts[NodeParts]
"""Parts of a broker."""
SharedApiParts = HandlerParts[DecidingParts]
"""Parts of a broker or of a controller: a handler made of these serves at both."""
