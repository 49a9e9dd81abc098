"""The leader's side of a follower's fetches: requests of a session that is known are read in place, and their
responses written into the frame."""

from collections.abc import Callable
from typing import Any

from odradek.apis.api import RequestContext
from odradek.apis.fetch_sessions import FetchSession
from odradek.apis.in_place import FetchHandler
from odradek.apis.replicas import FetchingReplica, ReplicaKey
from odradek.apis.turn import Timers
from odradek.coordinator.cluster.view import ClusterView
from odradek.coordinator.replication._led import LedReplica
from odradek.server.network._pipeline import Slot, Turn
from odradek.storage.log.partition import Partition

FIRST_VERSION_IN_PLACE: int
"""The first version of Fetch that is served here: older ones are for the handler."""

class Exchange:
    """The fetches of one replica, in one session, on one connection (`server.network._pipeline.Exchange`).

    Promise: the follower, the leader and the session are afterwards as after the handler's response, and the
    response has the same partitions with the same fields. Partitions may come in another order, and records
    in other lengths, as far as their limits allow it. A request that waits is answered at the end of the turn
    in which one of its partitions has grown.

    All that is unusual is the handler's: what `LedReplica` takes for not ordinary in any partition that may
    have news; a request that changes the session; records that are not in memory; whatever fails. Where the
    request is noted already, or has waited, the handler goes on with it (`FetchHandler.go_on`).
    """

    @property
    def session(self) -> FetchSession: ...
    @property
    def is_parked(self) -> bool:
        """A request waits."""
    def __init__(
        self,
        handler: FetchHandler,
        find: Callable[[ReplicaKey], tuple[LedReplica, Partition] | None],
        turn: Turn,
        timers: Timers,
        clock_ms: Callable[[], int],
        session: FetchSession,
        replica: FetchingReplica,
    ) -> None:
        """`find` returns what is led here. `clock_ms` does not jump."""
    def is_of(self, session: FetchSession, replica: FetchingReplica) -> bool:
        """Whether it serves them."""
    def renew(self, context: RequestContext, view: ClusterView | None) -> None:
        """The handler has taken a request of the session, with `context`. With `view` later ones are served
        here as long as that is the newest one: another may bring other rules."""
    def take(
        self, content: bytearray, start: int, end: int, version: int, correlation_id: int, now_ms: int
    ) -> Any:
        """See `server.network._pipeline.Exchange`, as for the others below."""
    def wait(self, slot: Slot) -> None: ...
    def cancel(self) -> None: ...
    def close(self) -> None: ...
    @property
    def holds_back(self) -> bool: ...
    def send_ready(self) -> None:
        """The turn has ended in which a partition has grown."""
