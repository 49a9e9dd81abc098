"""The path of every request: bytes arrive, a frame gets its route, a remembered prefix or the handler answers
it, staged records are committed at the end of the turn, and the response is sent."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from odradek.apis.access import Authorizer
from odradek.apis.api import Handler, Waiting
from odradek.apis.declaration import Served
from odradek.apis.turn import Committable, Timers, Until
from odradek.coordinator.security.client_meters import QuotaMeters
from odradek.server.network._clock import Clock
from odradek.server.network.group_flush import Done, Flushes
from odradek.wire.schema import Message

BUFFER_BYTES: int
"""The size of a receive buffer until a larger frame arrives."""
WAITING_RESPONSES_MAX: int
WAITING_BYTES_MAX: int
REMEMBERED_MAX: int
"""Limit of remembered prefixes of all connections; beyond it all are dropped."""
REMEMBERED_OF_CONNECTION_MAX: int

class Sender(Protocol):
    """The responses of a connection as the turn sees them."""

    def send_ready(self) -> None: ...

class Turn:
    """Staged partitions of one turn of the event loop, and senders at its end; implements `apis.turn.Turn`.

    Every partition with appends in one turn is committed once. If a response has to wait for the disk, the
    partition joins the next group flush (`server/network/group_flush.py`). Then each connection sends its
    ready responses in one write. While only one connection sends requests, they are a turn of their own,
    which ends when they have been read.
    """

    loop: asyncio.AbstractEventLoop
    flushes: Flushes
    @property
    def is_scheduled(self) -> bool:
        """Whether the end of the turn is still to come."""
    @property
    def number(self) -> int:
        """Counts the turns: appends that were staged with the present number are not committed yet, and their
        bytes must stay in place."""
    @property
    def staged(self) -> dict[Committable, list[tuple[Done, int]]]:
        """Empty when nothing waits for a commit."""
    @property
    def is_flushing(self) -> bool:
        """True while responses wait for the disk."""
    @property
    def is_idle(self) -> bool:
        """True while neither the end of the turn nor a flush is to come."""
    def __init__(self, loop: asyncio.AbstractEventLoop) -> None: ...
    def add(self, partition: Committable, done: Done, until: Until) -> None:
        """`done` is called after this turn's commit, and after what else `until` names (`apis/turn.py`)."""
    def flush_in_background(self, partition: Committable) -> None:
        """Flushes without a response that waits for it; joins the next flush."""
    def begin_alone(self, sender: Sender) -> bool:
        """Whether the requests of `sender` are a turn of their own, which it ends by `end_alone`."""
    def end_alone(self) -> None:
        """Ends such a turn. Requests that staged nothing, and wait for nothing, were none."""
    def forget(self, sender: Sender) -> None:
        """`sender` was closed."""
    def touch(self, sender: Sender) -> None:
        """`sender.send_ready()` is called at the end of this turn; once per call, so ask once."""
    def follow(self, callback: Callable[[], object]) -> None:
        """The callback runs in the next round of the loop, after the end of the turn that is gathered then:
        other connections are served before it."""
    def end(self) -> None:
        """Ends the turn now: the event loop does it, and the server's stop."""
    def close(self) -> None:
        """Ends the worker threads when they are done; the caller then flushes and closes the partitions."""

class Route:
    """How one version of one API is decoded, handled and answered, with counters of its requests."""

    api_key: int
    api_version: int
    api_name: str
    """Name in Kafka's metrics: `Produce`."""
    name: str
    handle: Handler
    @property
    def requests(self) -> int:
        """Requests that were answered or need no response."""
    @property
    def from_prefix(self) -> int:
        """Requests among them that were served by a remembered prefix."""
    @property
    def bytes_in(self) -> int: ...
    @property
    def bytes_out(self) -> int: ...
    @property
    def nanoseconds(self) -> int:
        """From the whole frame to the ready response, of all requests together."""
    @property
    def times(self) -> tuple[int, ...]:
        """How many requests took up to 1.024 us, more and up to 2.048 us, and so on; the last: more than
        68.7 s."""
    @property
    def errors(self) -> dict[int, int]:
        """Error codes other than 0 in the responses: code, and how often."""
    def __init__(self, api_key: int, api_version: int, served: Served) -> None: ...
    def interpose(self, served: Served | None) -> None:
        """Requests go to `served`, each by itself: none is answered by what is remembered. None: as ever."""

class ProduceWatch(Protocol):
    """Sees what producers bring, for `server.web_console.writers`."""

    def saw_request(self, connection: Any, request: Any) -> None:
        """A decoded ProduceRequest, before its handler."""
    def saw_batch(self, connection: Any, partition: Any, size_bytes: int) -> None:
        """A batch of a remembered request, which a partition has taken."""

class RouteTable(Protocol):
    """`server.network.routes.Routes`."""

    found: dict[int, Route]
    def resolve(self, key_and_version: int) -> Route | None: ...
    def refuse_version(self, correlation_id: int) -> bytes: ...

def monotonic_ms() -> int:
    """The clock of meters."""

class Dispatcher:
    """The shared state of all connections of a broker."""

    routes: Any
    turn: Turn
    @property
    def clock(self) -> Clock: ...
    @property
    def now_ms(self) -> Callable[[], int]:
        """`Clock.now_ms`."""
    authorizer: Authorizer
    meters: QuotaMeters | None
    """None while no client has a quota."""
    timers: Timers | None
    """Timers of `clock`, which end waits for a quota; needed with `meters`."""
    after_requests: Callable[[], None] | None
    """Called when requests were served: a loop that sleeps at once wakes late
    (`server.network.busy_poll`)."""
    produce_watch: ProduceWatch | None
    """None while nobody looks at writers."""
    def watch_slow(self, slow_ns: int, on_slow: Callable[[Route, Any, int, int, int], None]) -> None:
        """From now on `on_slow(route, connection, took_ns, bytes_in, bytes_out)` is called for each request
        that took so long."""
    request_bytes_max: int
    waiting_responses_max: int
    waiting_bytes_max: int
    remembered_max: int
    remembered_of_connection_max: int
    @property
    def remembered(self) -> int:
        """The number of prefixes that all connections remember."""
    def __init__(
        self,
        routes: RouteTable,
        turn: Turn,
        clock: Clock,
        request_bytes_max: int,
        current_view: Callable[[], object],
    ) -> None: ...
    def forget_prefixes(self) -> None:
        """Drops the remembered prefixes of all connections."""

class Owner(Protocol):
    """The connection as its parts see it; it is also the `ConnectionInfo` of its requests."""

    peer_host: str
    def close(self, reason: str) -> None: ...
    def close_expired(self) -> None: ...
    def refuse_length(self, length: int) -> None: ...
    def close_when_answered(self) -> None: ...
    def write_vector(self, parts: Sequence[Any]) -> None: ...

class Slot:
    """The place of a response in the order of a connection, for an `Exchange`."""

    def respond(self, parts: list[Any]) -> None:
        """The whole frame, in one or more buffers."""
    def follow(self, response: Message | Waiting) -> None:
        """A response of the handler, in place of a frame."""

class Exchange(Protocol):
    """Serves requests of one kind before their handler is asked."""

    def take(
        self, content: bytearray, start: int, end: int, version: int, correlation_id: int, now_ms: int
    ) -> Any:
        """A request without its header, `content[start:end]`. Returns the buffers of the response; or itself,
        and waits: `wait` is called next; or None, without any effect, if the handler has to respond."""
    def wait(self, slot: Slot) -> None:
        """Where the response goes to."""
    def cancel(self) -> None:
        """Nobody waits for the response any more."""
    def close(self) -> None:
        """No more requests come."""
    @property
    def holds_back(self) -> bool:
        """See `Waiting`."""

class ReceiveBuffer:
    """The receive buffer of a connection."""

    @property
    def capacity(self) -> int: ...
    @property
    def unserved_bytes(self) -> int: ...
    def __init__(self, turn: Turn) -> None: ...
    def take_in(self, nbytes: int) -> None:
        """For readers of frames that are no requests: as many bytes have been received."""
    def take_frame(self, length_max: int) -> bytes | None:
        """The content of the first whole frame, which counts as served then; None without one. Raises
        MalformedMessage for a length that no frame may have."""
    def unserved_start(self, count: int) -> bytes:
        """The first unserved bytes, at most `count`."""
    def shrink(self) -> None:
        """Frees a large buffer when no frame is incomplete."""
    def discard(self) -> None:
        """Frees all of it: the connection has ended."""

class Responses:
    """The responses of a connection, in the order of its requests."""

    transport: asyncio.Transport | None
    is_full: bool
    """The transport's buffer is full."""
    is_pacing: bool
    """A long response and the responses behind it are not completely written."""
    is_closing: bool
    """No more requests are served."""
    @property
    def bytes_out(self) -> int:
        """Responses that were given to the transport."""
    @property
    def is_empty(self) -> bool:
        """False while a response is still to come."""
    @property
    def is_write_paused(self) -> bool: ...
    @property
    def unanswered(self) -> int:
        """The number of slots whose response is not ready."""
    @property
    def waiting_responses(self) -> int: ...
    @property
    def waiting_bytes(self) -> int: ...
    def __init__(self, owner: Owner, dispatcher: Dispatcher) -> None: ...
    def waits_for_work(self) -> bool:
        """Whether a response waits for work of the broker only, not for the client."""
    def send_ready(self) -> None:
        """Writes the responses whose turn has come; the turn calls it."""
    def begin_closing(self) -> None:
        """Serves no more requests; the end of the turn closes the connection when all are answered."""
    def forget(self) -> None:
        """The connection closed: cancels all waiting responses."""

class Requests:
    """The requests of a connection: gets frames, and passes each to its prefix or handler when it may
    begin."""

    buffer: ReceiveBuffer
    active_ms: int
    """The time of the last request."""
    @property
    def count(self) -> int:
        """Requests that came."""
    @property
    def bytes_in(self) -> int:
        """Size of these with their heads."""
    def remembered_partitions(self) -> list[Any]:
        """Partitions (`Partition`) to which it has produced, as far as that is remembered."""
    @property
    def client_id(self) -> str | None:
        """The newest client id; None before the first request."""
    @property
    def is_held(self) -> bool:
        """The socket is not read: a request may not begin, or the client does not read its responses."""
    @property
    def is_gated(self) -> bool:
        """The next request may not begin before the earlier ones are answered."""
    @property
    def exchange(self) -> Any:
        """The fetches of a replica that are served in place (`server/cluster/_exchange.pyi`); None of
        others."""
    def __init__(self, owner: Owner, dispatcher: Dispatcher, responses: Responses) -> None: ...
    def begin_exchange(self, exchange: Exchange) -> None:
        """Fetches go to it first. It is closed when another one begins, or the connection has ended."""
    def end_exchange(self) -> None:
        """Fetches go to the handler."""
    def get_buffer(self, sizehint: int) -> memoryview: ...
    def buffer_updated(self, nbytes: int) -> None: ...
    def resume_if_possible(self) -> None: ...
    def clock_moved(self, by_ms: int) -> None:
        """The broker's clock was moved: the connection is idle by the system's time, its login ends by that
        clock."""
    @property
    def is_held_back(self) -> bool:
        """Whether the client has to wait, since it has used up a quota."""
    @property
    def is_suspended(self) -> bool:
        """The frames are read by somebody else."""
    def suspend(self) -> None:
        """Serves no more: the caller reads the frames that follow from `buffer`, until `end_suspension`. The
        socket is still read."""
    def end_suspension(self) -> None:
        """Serves the frames that the caller has left, and those after them."""
    def limit_session(self, lifetime_ms: int | None) -> None:
        """After this time no request is served but SaslHandshake; None: all are."""
    def hold_back(self, hold_ms: int) -> None:
        """No request begins in this time."""
    def forget_prefixes(self) -> None: ...
