"""What the handlers of a node are made of: its machines, logs and queues, and the settings that they obey.

Whoever builds a node (the server, a test) fills these in; `apis/table.py` gives each handler its share. No
handler gets the whole.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from odradek.config.options import BROKER_OPTIONS, BrokerOptions
from odradek.wire.schema import ZERO_UUID

if TYPE_CHECKING:
    from odradek.apis.coordinators import Groups, Transactions
    from odradek.apis.leadership import Leadership
    from odradek.apis.turn import Timers, Turn, WorkQueue
    from odradek.coordinator.cluster.machine import ClusterMachine
    from odradek.coordinator.cluster.topics import NewTopic
    from odradek.storage.directories.store import LogStore


def _leave_them() -> None:
    """For those who go on with the moves by themselves."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeParts:
    """One node, as far as its handlers need it."""

    node_id: int
    machine: ClusterMachine
    store: LogStore
    leadership: Leadership
    groups: Groups
    transactions: Transactions
    new_producer_id: Callable[[], int]
    """Gives an id that no producer ever had."""
    now_ms: Callable[[], int]
    """Milliseconds since 1970."""
    turn: Turn
    timers: Timers
    changes: WorkQueue
    """For what changes topics and settings, one after the other."""
    searches: WorkQueue
    """For what looks long and changes nothing."""
    reads: WorkQueue
    """For what waits for the disk, several at once."""
    conversions: WorkQueue
    """For batches that have to be packed or unpacked before they are stored, several at once, too."""
    saves: WorkQueue
    """For what only waits for the disk."""
    begin_moves: Callable[[], object] = _leave_them
    """Called when there is something to move between data directories."""
    directory_id: bytes = ZERO_UUID
    """Of the data directory with the cluster's metadata."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiSettings:
    """What the node's options say of its APIs."""

    start_configs: Mapping[str, str]
    """The broker's settings as text, as they were given at start."""
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
    description_partitions_max: int = 2000
    """`max.request.partition.size.limit`"""
    verifies_transactions: Callable[[], bool] = lambda: True
    """`transaction.partition.verification.enable`, asked each time: it may change."""
    verification_pause_ms_max: int = 20
    """`add.partitions.to.txn.retry.backoff.ms`"""
    verification_patience_ms: int = 100
    """`add.partitions.to.txn.retry.backoff.max.ms`"""
    broker_options: BrokerOptions = field(default_factory=lambda: BROKER_OPTIONS)
    """The options that the broker has."""
    option_value: Callable[[str], Any] = BROKER_OPTIONS.defaults.__getitem__
    """The present value of a broker option, by its name."""
