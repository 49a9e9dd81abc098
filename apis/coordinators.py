"""The coordinators of groups, transactions and share partitions as handlers see them, and responses from
several replies.

A request becomes a command for a coordinator, and the coordinator's reply becomes the response; the
coordinator decides. A closed connection of a member changes nothing by itself.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING, Any, Protocol

from odradek.apis.api import Waiting

if TYPE_CHECKING:
    from odradek.apis.api import ConnectionInfo
    from odradek.coordinator.groups import commands
    from odradek.coordinator.groups.settings import GroupConfig
    from odradek.coordinator.share_state.commands import ShareCommand
    from odradek.coordinator.share_state.persister import Persister
    from odradek.coordinator.transactions import commands as transaction_commands
    from odradek.wire.end_marker import EndMarker
    from odradek.wire.errors import ErrorCode


class RemoteLogEnds(Protocol):
    """Logs that other brokers lead: implemented by `server/remote_log_ends.py`."""

    def ask(
        self,
        partitions: Collection[tuple[str, int]],
        then: Callable[[Mapping[tuple[str, int], int | ErrorCode]], None],
    ) -> None:
        """`then` gets, once and later, the high watermark of each partition, or why it is not known."""


class Groups(Protocol):
    """What the handlers need of `coordinator.group_coordinator.GroupCoordinator`."""

    @property
    def log_ends(self) -> RemoteLogEnds | None:
        """None of a node alone."""

    @property
    def serves_consumer_groups(self) -> bool: ...

    @property
    def serves_streams_groups(self) -> bool: ...

    @property
    def serves_share_groups(self) -> bool: ...

    def config_of(self, group_id: str) -> GroupConfig: ...

    @property
    def persister(self) -> Persister: ...

    def partition_of(self, group_id: str) -> int: ...

    def submit(self, group_id: str, command: commands.Command) -> None: ...

    def submitter(self, group_id: str) -> Callable[[commands.Command], None]: ...

    def ask(self, command: Any) -> Any: ...

    def commit_in_transaction(
        self, command: commands.CommitTransactionalOffsets, verified: Any = None
    ) -> None: ...

    def end_offsets(self, index: int, marker: EndMarker, then: Callable[[ErrorCode], None]) -> None: ...

    def list_groups(self, states: Collection[str], types: Collection[str]) -> commands.ListGroupsReply: ...


class OldestGroups(Protocol):
    """Groups whose offsets are in ZooKeeper: implemented by `server/zookeeper/offsets.py`."""

    def submit(self, group_id: str, command: commands.CommitOffsets | commands.FetchOffsets) -> None: ...


class Gathering:
    """Several replies of coordinators that become one response, in the order of the commands."""

    __slots__ = ("_answers", "_make_response", "_missing", "waiting")

    def __init__(self, count: int, make_response: Callable[[list[Any]], Any]) -> None:
        self.waiting = Waiting()
        self._answers: list[Any] = [None] * count
        self._missing = count
        self._make_response = make_response
        if count == 0:
            self.waiting.complete(make_response([]))

    def ticket(self, index: int) -> Callable[[Any], None]:
        """The function to call with the reply to command number `index`."""

        def take(answer: Any) -> None:
            self._answers[index] = answer
            self._missing -= 1
            if self._missing == 0:
                self.waiting.complete(self._make_response(self._answers))

        return take


def client_host(connection: ConnectionInfo) -> str:
    """The member's address as group tools show it: Java's text of an address begins with a slash."""
    return f"/{connection.peer_host}"


class RemoteTransactions(Protocol):
    """Coordinators on other brokers: implemented by `server/remote_transactions.py`."""

    def ask(
        self,
        coordinator_partition: int,
        transactional_id: str,
        producer: tuple[int, int],
        partitions: Collection[tuple[str, int]],
        adds: bool,
        told: Callable[[Mapping[tuple[str, int], ErrorCode]], None],
    ) -> bool:
        """Has the partitions verified or added by the coordinator of that partition of `__transaction_state`;
        `told` gets the refusals. False where this node has the coordinator."""


class Transactions(Protocol):
    """What the handlers need of `coordinator.transactions.coordinator.TransactionCoordinator`."""

    @property
    def remote(self) -> RemoteTransactions | None:
        """None of a node alone."""

    def partition_of(self, transactional_id: str) -> int: ...

    def submit(self, transactional_id: str, command: transaction_commands.TransactionCommand) -> None: ...

    def list_transactions(
        self,
        states: Collection[str] = (),
        producer_ids: Collection[int] = (),
        duration_ms: int = -1,
    ) -> transaction_commands.ListTransactionsReply: ...


class Shares(Protocol):
    """What the handlers need of `coordinator.share_state.coordinator.ShareCoordinator`. Keys are
    `SharePartitionKey.text`."""

    def partition_of(self, key: str) -> int: ...

    def submit_state(self, command: ShareCommand) -> None: ...
