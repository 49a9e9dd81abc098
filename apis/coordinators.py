"""The coordinators of groups, transactions and share partitions as handlers see them, and responses from
several others.

A request goes to its coordinator, who decides and makes the response; one that names what several
coordinators have goes to each in part. A closed connection of a member changes nothing by itself.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from odradek.apis.api import Waiting
from odradek.coordinator.asked import Asked, Client, Ticket

if TYPE_CHECKING:
    from odradek.apis.api import RequestContext
    from odradek.coordinator.group_coordinator import GroupCoordinator
    from odradek.coordinator.shares.dead_letters.letters import DeadLetter
    from odradek.coordinator.shares.state.coordinator import ShareCoordinator
    from odradek.coordinator.shares.state.persister import SharePartitionKey
    from odradek.coordinator.transactions.coordinator import TransactionCoordinator
    from odradek.wire.errors import ErrorCode
    from odradek.wire.messages.add_partitions_to_txn import (
        AddPartitionsToTxnRequest,
        AddPartitionsToTxnResponse,
    )
    from odradek.wire.schema import Message


Refuse = Callable[["Message", int, "ErrorCode"], Any]
"""The refusal of an API (`Api.refuse`): the response to a request of a version."""


class RemoteLogEnds(Protocol):
    """Logs that other brokers lead: implemented by `server/coordination/remote_log_ends.py`."""

    def ask(
        self,
        partitions: Collection[tuple[str, int]],
        then: Callable[[Mapping[tuple[str, int], int | ErrorCode]], None],
    ) -> None:
        """`then` gets, once and later, the high watermark of each partition, or why it is not known."""


class DeadLetters(Protocol):
    """Dead letter queues: implemented by `server/coordination/dead_letters.py`."""

    def are_kept(self, group_id: str) -> bool:
        """Whether the group has a queue."""

    def write(
        self, key: SharePartitionKey, topic: str, letter: DeadLetter, ended: Callable[[], None]
    ) -> Callable[[], None]:
        """Calls `ended` once, perhaps before it returns, when the letter is written or given up. Returns a
        function that cancels it: then it is not called."""


class NoDeadLetters:
    """Implements `DeadLetters` of a node without any."""

    def are_kept(self, group_id: str) -> bool:
        return False

    def write(
        self, key: SharePartitionKey, topic: str, letter: DeadLetter, ended: Callable[[], None]
    ) -> Callable[[], None]:
        """The records are archived at once."""
        ended()
        return lambda: None


Groups = Callable[[], "GroupCoordinator"]
Transactions = Callable[[], "TransactionCoordinator"]
Shares = Callable[[], "ShareCoordinator"]
"""Coordinators of this node, which are made when they are first needed."""


class OldestGroups(Protocol):
    """Groups whose offsets are in ZooKeeper: implemented by `server/zookeeper/offsets.py`."""

    def submit(self, group_id: str, asked: Asked[Any, Any]) -> None: ...


class Gathering:
    """Responses of several coordinators that become one, in the order in which they were asked."""

    __slots__ = ("_make_response", "_missing", "_responses", "waiting")

    def __init__(self, count: int, make_response: Callable[[list[Any]], Any]) -> None:
        self.waiting = Waiting()
        self._responses: list[Any] = [None] * count
        self._missing = count
        self._make_response = make_response
        if count == 0:
            self.waiting.complete(make_response([]))

    def ticket(self, index: int) -> Callable[[Any], None]:
        """The function to call with the response to request number `index`."""

        def take(response: Any) -> None:
            self._responses[index] = response
            self._missing -= 1
            if self._missing == 0:
                self.waiting.complete(self._make_response(self._responses))

        return take


def asked_by(
    client: Client, refuse: Refuse, request: Message, take: Callable[[Any], object]
) -> Asked[Any, Any]:
    """The request on its way to a coordinator: `take` gets the response, or the API's refusal."""
    return Asked(request, client, Ticket(take, partial(refuse, request, client.version)))


def ask_for_each(
    parts: Iterable[Message],
    refuse: Refuse,
    context: RequestContext,
    submit: Callable[[Asked[Any, Any]], None],
    merge: Callable[[list[Any]], Any],
) -> Waiting:
    """Ask for the parts of a request, each of its class; `merge` makes one response of theirs."""
    client, parts = client_of(context), list(parts)
    gathering = Gathering(len(parts), merge)
    for number, part in enumerate(parts):
        submit(asked_by(client, refuse, part, gathering.ticket(number)))
    return gathering.waiting


def client_of(context: RequestContext) -> Client:
    """The sender of the request. Its address is as group tools show it: Java's text of an address begins with
    a slash."""
    return Client(context.client_id or "", f"/{context.connection.peer_host}", context.api_version)


class RemoteTransactions(Protocol):
    """Coordinators on other brokers: implemented by `server/coordination/remote_transactions.py`."""

    def ask(
        self,
        coordinator_partition: int,
        request: AddPartitionsToTxnRequest,
        told: Callable[[AddPartitionsToTxnResponse | None], None],
    ) -> bool:
        """Asks the coordinator of that partition of `__transaction_state`; `told` gets its response, None
        where none came. False where this node has the coordinator."""
