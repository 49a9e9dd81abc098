"""The one way of every request: bytes come in, a frame finds its route, what its connection remembers or the
handler answers it, what was staged is committed at the end of the turn, the answer goes out."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from odradek.apis.access import Authorizer
from odradek.apis.api import Api, ConnectionInfo, Handler
from odradek.apis.turn import Committable, Timers
from odradek.server.group_flush import Done, Flushes

BUFFER_BYTES: int
"""Of a receive buffer as long as no larger frame comes."""
WAITING_ANSWERS_MAX: int
WAITING_BYTES_MAX: int
REMEMBERED_MAX: int
"""Prefixes that all connections remember together; past it all are forgotten."""
REMEMBERED_OF_CONNECTION_MAX: int

class Sender(Protocol):
    """Answers of a connection, as far as the turn knows them."""

    def send_ready(self) -> None: ...

class Turn:
    """What is staged in one turn of the event loop, and who sends at its end; implements `apis.turn.Turn`.

    Every partition that was appended to in one turn is committed once. Where an answer has to wait for the
    disk, the partition joins the next group flush (`server/group_flush.py`). Then each connection that has
    answers ready sends them in one write. While one connection alone asks, its requests are a turn of their
    own that ends where they have been read.
    """

    loop: asyncio.AbstractEventLoop
    flushes: Flushes
    @property
    def is_scheduled(self) -> bool:
        """Whether the turn has an end to come."""
    @property
    def number(self) -> int:
        """Counts the turns: what was staged while it had its present value is not committed yet, and the
        bytes that were staged must stay where they are."""
    @property
    def staged(self) -> dict[Committable, list[tuple[Done, int]]]:
        """Empty when nothing waits for a commit."""
    @property
    def is_flushing(self) -> bool:
        """True while answers wait for the disk."""
    @property
    def is_idle(self) -> bool:
        """True while neither the end of the turn nor the disk has something to do."""
    def __init__(self, loop: asyncio.AbstractEventLoop) -> None: ...
    def add(self, partition: Committable, done: Done, until: int) -> None:
        """`done` is called after this turn's commit, and after what else `until` names (`apis/turn.py`)."""
    def flush_in_background(self, partition: Committable) -> None:
        """Flushes with nobody waiting for it; joins a flush that is to come anyway."""
    def begin_alone(self, sender: Sender) -> bool:
        """Whether the requests of `sender` are a turn of their own, which it ends by `end_alone`."""
    def end_alone(self) -> None:
        """Ends such a turn. Requests that staged nothing, and wait for nothing, were none."""
    def forget(self, sender: Sender) -> None:
        """`sender` is gone."""
    def touch(self, sender: Sender) -> None:
        """`sender.send_ready()` is called at the end of this turn; once per call, so ask once."""
    def follow(self, callback: Callable[[], object]) -> None:
        """It is called when the loop has come round, behind the end of the turn that is then gathered:
        whoever else has something to do comes before it, and has its answer."""
    def end(self) -> None:
        """Ends the turn now: the event loop does it, and the server's stop."""
    def close(self) -> None:
        """Ends the worker threads, once they are done: who closes the partitions next flushes them, too."""

class Route:
    """How one version of one API is decoded, handled and answered, and what its requests have been."""

    api_key: int
    api_version: int
    api_name: str
    """As in Kafka's metrics: `Produce`."""
    name: str
    handle: Handler
    @property
    def requests(self) -> int:
        """Those that have been answered, or need no answer."""
    @property
    def from_prefix(self) -> int:
        """Those of them that were served by what their connection remembered."""
    @property
    def bytes_in(self) -> int: ...
    @property
    def bytes_out(self) -> int: ...
    @property
    def nanoseconds(self) -> int:
        """From the whole frame to the ready answer, of all requests together."""
    @property
    def errors(self) -> dict[int, int]:
        """Error codes other than 0 in the responses: code, and how often."""
    def __init__(self, api_key: int, api_version: int, api: Api) -> None: ...

class RouteTable(Protocol):
    """`server.routes.Routes`."""

    found: dict[int, Route]
    def resolve(self, key_and_version: int) -> Route | None: ...
    def refuse_version(self, correlation_id: int) -> bytes: ...

class Meters(Protocol):
    """What requests cost; there are none yet."""

    def charge(
        self, connection: ConnectionInfo, api_key: int, bytes_in: int, bytes_out: int, took_ns: int
    ) -> int:
        """For how many milliseconds no further request of the connection may begin."""

class Dispatcher:
    """What all connections of a broker share."""

    routes: Any
    turn: Turn
    now_ms: Callable[[], int]
    authorizer: Authorizer
    meters: Meters | None
    timers: Timers | None
    """Needed where `meters` are."""
    after_requests: Callable[[], None] | None
    """Called when requests were served: a loop that sleeps at once wakes late (`server.lingering`)."""
    request_bytes_max: int
    waiting_answers_max: int
    waiting_bytes_max: int
    remembered_max: int
    remembered_of_connection_max: int
    @property
    def remembered(self) -> int:
        """Prefixes that all connections remember together."""
    def __init__(
        self,
        routes: RouteTable,
        turn: Turn,
        now_ms: Callable[[], int],
        request_bytes_max: int,
        current_view: Callable[[], object],
    ) -> None: ...
    def forget_prefixes(self) -> None:
        """No connection uses what it remembers any more."""

class Owner(Protocol):
    """The connection, as far as its parts know it; it is also the `ConnectionInfo` of its requests."""

    peer_host: str
    def close(self, reason: str) -> None: ...
    def refuse_length(self, length: int) -> None: ...
    def close_when_answered(self) -> None: ...
    def write_vector(self, parts: Sequence[Any]) -> None: ...

class ReceiveBuffer:
    """Where the event loop writes what a client sends."""

    @property
    def capacity(self) -> int: ...
    @property
    def unserved_bytes(self) -> int: ...
    def __init__(self, turn: Turn) -> None: ...
    def unserved_start(self, count: int) -> bytes:
        """The first bytes that are not served, at most `count`."""
    def shrink(self) -> None:
        """Gives a large buffer back when no frame is under way."""

class Responses:
    """The answers of a connection, in the order of its requests."""

    transport: asyncio.Transport | None
    is_full: bool
    """The transport has as much as it wants."""
    is_pacing: bool
    """A long answer is not all written, nor what comes behind it."""
    is_closing: bool
    """Nothing more is served."""
    @property
    def is_empty(self) -> bool:
        """False while an answer is waited for, or stands behind one."""
    @property
    def is_write_paused(self) -> bool: ...
    @property
    def unanswered(self) -> int:
        """Places in the line whose answer is not ready."""
    @property
    def waiting_answers(self) -> int: ...
    @property
    def waiting_bytes(self) -> int: ...
    def __init__(self, owner: Owner, dispatcher: Dispatcher) -> None: ...
    def waits_for_work(self) -> bool:
        """Whether an answer comes when work of ours has ended, whatever the client does."""
    def send_ready(self) -> None:
        """Writes the answers whose turn has come; the turn calls it."""
    def begin_closing(self) -> None:
        """Serves nothing more; the end of the turn closes the connection when all is answered."""
    def forget(self) -> None:
        """The client is gone: cancels what is waited for."""

class Requests:
    """The requests of a connection: frames in, each to what answers it, as soon as it may begin."""

    buffer: ReceiveBuffer
    active_ms: int
    """When the last request came."""
    @property
    def client_id(self) -> str | None:
        """The newest one; None before the first."""
    @property
    def is_held(self) -> bool:
        """Nothing is read: a request may not begin, or the answers have not been taken."""
    @property
    def is_gated(self) -> bool:
        """The next request may not begin before those that are under way are answered."""
    def __init__(self, owner: Owner, dispatcher: Dispatcher, responses: Responses) -> None: ...
    def get_buffer(self, sizehint: int) -> memoryview: ...
    def buffer_updated(self, nbytes: int) -> None: ...
    def resume_if_possible(self) -> None: ...
    def hold_back(self, hold_ms: int) -> None:
        """No request begins in this time."""
    def forget_prefixes(self) -> None: ...
