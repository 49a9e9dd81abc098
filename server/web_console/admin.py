"""Facts that a broker tells its console alone, over HTTP at a Unix socket that only its user may open.

    POST /admin/segments {"principal": "User:ann", "host": "10.0.0.9", "topic": "orders", "partition": 0}

Each request names the principal and the host of the person who looks at the console. The authorizer of the
broker decides for them, as for a client: CLUSTER DESCRIBE for connections, slow requests and rates, TOPIC
DESCRIBE for what is about a topic. A refusal has the status 403 and `{"error": "one sentence"}`.
"""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import Awaitable, Callable, Collection
from typing import TYPE_CHECKING, Any

from odradek.apis.access import Need, need_of, on_cluster
from odradek.server.metrics.details import reasons_not_ready
from odradek.server.network.http_server import JSON, HttpRequest, HttpResponse, HttpServer
from odradek.server.network.timers import monotonic_ms
from odradek.server.web_console.connection_rows import Watch
from odradek.server.web_console.history import STEP_S
from odradek.server.web_console.rates import TOPIC_IN, TOPIC_OUT, Rates
from odradek.server.web_console.segment_rows import partition_facts, read_files, segment_facts
from odradek.server.web_console.slow_ring import SlowRing
from odradek.wire.acl_types import Operation, ResourceType
from odradek.wire.errors import KafkaError
from odradek.wire.version import __version__

if TYPE_CHECKING:
    from odradek.server.metrics.observed import Hosted

ROOT = "/admin/"
BODY_BYTES_MAX = 64 << 10
WATCH_S = 600.0
"""How long what connections do is watched after a look at the console."""
FIRST_LOOK_S = 1.0
"""Wait of the first look, so that there is a rate."""
TOPICS_TOLD_MAX = 20
TOPIC_POINTS = 60
"""Values that are told of a topic: ten minutes."""
DESCRIBE, TOPIC = Operation.DESCRIBE, ResourceType.TOPIC


class Person:
    """A person who looks, as an authorizer sees clients."""

    def __init__(self, principal: str, host: str) -> None:
        self.principal, self.peer_host = principal, host
        self.granted: Any = None


class Refusal(Exception):
    """The request is refused, with this status."""

    def __init__(self, status: int, sentence: str) -> None:
        super().__init__(sentence)
        self.status = status


class Admin:
    """Serves from `open` to `close`."""

    def __init__(self, server: Hosted) -> None:
        self._server = server
        self._now_ms = server.clock.now_ms
        self._http = HttpServer(self._respond, methods=("POST",), body_bytes_max=BODY_BYTES_MAX)
        slow_ms = server.config.values["odradek.log.slow.request.ms"]
        self._slow = SlowRing(slow_ms, self._now_ms, monotonic_ms)
        self._rates = Rates(server, self._now_ms)
        self._watch: Watch | None = None
        self._watched_until_s = 0.0
        self._dispatcher: Any = None
        self._started_ms = self._now_ms()
        self._operations: dict[str, Callable[[Person, dict[str, Any]], Awaitable[Any]]] = {
            "rates": self._tell_rates,
            "connections": self._tell_connections,
            "slow": self._tell_slow,
            "writers": self._tell_writers,
            "segments": self._tell_segments,
        }

    async def open(self, bound: socket.socket) -> None:
        """Serves at the socket. OSError if that cannot be."""
        self._loop = asyncio.get_running_loop()
        bound.listen()
        bound.setblocking(False)
        await self._http.open("", 0, [bound])
        self._follow()
        self._rates.start(self._step)

    async def close(self) -> None:
        """Ends all connections."""
        self._end_watch()
        await self._rates.close()
        await self._http.close()

    # Watching

    def _follow(self) -> None:
        """The connections are others once a snapshot was restored."""
        dispatcher = self._server.connections.dispatcher
        if dispatcher is not self._dispatcher:
            self._end_watch()
            self._dispatcher = dispatcher
            self._slow.watch(dispatcher)

    def _step(self) -> None:
        if not self._server.is_serving:
            return
        self._follow()
        if self._watch is not None:
            if self._loop.time() > self._watched_until_s:
                self._end_watch()
            else:
                self._watch.step(self._server.connections)

    def _look(self) -> Watch:
        """The watch, which goes on for a while."""
        self._watched_until_s = self._loop.time() + WATCH_S
        if self._watch is None:
            self._watch = Watch(self._loop.time, self._topic_name)
            self._watch.step(self._server.connections)
            self._dispatcher.produce_watch = self._watch
        return self._watch

    def _end_watch(self) -> None:
        self._watch = None
        if self._dispatcher is not None:
            self._dispatcher.produce_watch = None

    def _topic_name(self, topic_id: bytes) -> str | None:
        return self._server.cluster_view.topic_names.get(topic_id)

    # Requests

    async def _respond(self, request: HttpRequest) -> HttpResponse:
        tell = self._operations.get(request.path.removeprefix(ROOT))
        if tell is None or not request.path.startswith(ROOT):
            return _error(404, "there is no such operation")
        try:
            arguments = json.loads(request.body)
            person = Person(_text(arguments, "principal"), _text(arguments, "host"))
            if not person.principal.startswith("User:"):
                raise ValueError("the principal is not a user")
        except (ValueError, TypeError, KeyError) as error:
            return _error(400, f"the request is wrong: {error}")
        if not self._server.is_serving:
            return _error(503, "the broker does not serve at the moment")
        self._follow()
        self._look()
        try:
            told = await tell(person, arguments)
        except Refusal as refusal:
            return _error(refusal.status, str(refusal))
        except (ValueError, TypeError, KeyError) as error:
            return _error(400, f"the request is wrong: {error}")
        told["node_id"] = self._server.node_id
        return HttpResponse(200, JSON, json.dumps(told).encode())

    def _check(self, person: Person, need: Need, names: Collection[str], sentence: str) -> None:
        authorizer = self._server.connections.dispatcher.authorizer
        if authorizer.refused(person, (need,), names):
            raise Refusal(403, sentence)

    def _check_cluster(self, person: Person) -> None:
        sentence = "this needs the right DESCRIBE on the cluster"
        self._check(person, on_cluster(DESCRIBE), (), sentence)

    def _check_topic(self, person: Person, topic: str) -> None:
        self._check(person, need_of(DESCRIBE, TOPIC), (topic,), f"this needs the right DESCRIBE on {topic}")

    async def _tell_rates(self, person: Person, arguments: dict[str, Any]) -> dict[str, Any]:
        self._check_cluster(person)
        history, server = self._rates.history, self._server
        names = [name for name in history.names if not name.startswith((TOPIC_IN, TOPIC_OUT))]
        return {
            "version": __version__,
            "started_ms": self._started_ms,
            "now_ms": self._now_ms(),
            "last_ms": history.last_ms,
            "step_s": STEP_S,
            "noted": history.noted,
            "series": {name: _rounded(history.values(name)) for name in names},
            "topics": self._topics(person),
            "reasons_not_ready": reasons_not_ready(server),
            "connections": len(server.connections),
            "disks": self._disks(),
        }

    def _topics(self, person: Person) -> dict[str, Any]:
        """The last minutes of topics that the person may describe, those with the most traffic first."""
        history = self._rates.history
        topics = {
            name.removeprefix(TOPIC_IN).removeprefix(TOPIC_OUT)
            for name in history.names
            if name.startswith((TOPIC_IN, TOPIC_OUT))
        }
        hidden = self._server.connections.dispatcher.authorizer.hidden(person, {(DESCRIBE, TOPIC): topics})
        shown = topics - {name for _, _, name in hidden}

        def traffic(topic: str) -> float:
            newest = (history.values(begin + topic, 1) for begin in (TOPIC_IN, TOPIC_OUT))
            return sum(values[0] or 0.0 for values in newest if values)

        busiest = sorted(shown, key=lambda topic: (-traffic(topic), topic))[:TOPICS_TOLD_MAX]
        return {
            topic: {
                "in": _rounded(history.values(TOPIC_IN + topic, TOPIC_POINTS)),
                "out": _rounded(history.values(TOPIC_OUT + topic, TOPIC_POINTS)),
            }
            for topic in busiest
        }

    def _disks(self) -> list[dict[str, Any]]:
        store, disks = self._server.store, self._rates.disks
        told = []
        for path in store.directories:
            failure = store.failing_disks.failures.get(path)
            space = None if failure is not None else disks.space(path)
            told.append(
                {
                    "path": path,
                    "failure": failure,
                    "free_bytes": None if space is None else space.free_bytes,
                    "total_bytes": None if space is None else space.total_bytes,
                    "seconds_until_full": None if space is None else disks.seconds_until_full(path),
                }
            )
        return told

    async def _tell_connections(self, person: Person, arguments: dict[str, Any]) -> dict[str, Any]:
        self._check_cluster(person)
        connections = self._server.connections
        rows = self._look().connection_rows(connections, self._now_ms())
        return {"count": len(connections), "rows": rows}

    async def _tell_slow(self, person: Person, arguments: dict[str, Any]) -> dict[str, Any]:
        self._check_cluster(person)
        return {"slow_ms": self._slow.slow_ms, "rows": [*self._slow.rows]}

    async def _tell_writers(self, person: Person, arguments: dict[str, Any]) -> dict[str, Any]:
        topic = _text(arguments, "topic")
        self._check_topic(person, topic)
        if self._server.cluster_view.topic(topic) is None:
            raise Refusal(404, f"there is no topic {topic}")
        watch, connections = self._look(), self._server.connections
        missing_s = watch.began_s + FIRST_LOOK_S - self._loop.time()
        if missing_s > 0:
            await asyncio.sleep(missing_s)
        rows = watch.writer_rows(topic, connections)
        return {"rows": rows, "seconds": self._loop.time() - watch.began_s}

    async def _tell_segments(self, person: Person, arguments: dict[str, Any]) -> dict[str, Any]:
        topic, partition = _text(arguments, "topic"), arguments["partition"]
        if type(partition) is not int:
            raise ValueError("the partition is not a number")
        self._check_topic(person, topic)
        store = self._server.store
        try:
            log = store.get(topic, partition)
        except KafkaError as error:
            raise Refusal(503, str(error)) from None
        if log is None:
            return {"is_here": False}
        facts = partition_facts(log)
        rows = segment_facts(log, store.checkpointing.first_dirty_of(log))
        await asyncio.to_thread(read_files, rows, facts["retention_ms"])
        return {"is_here": True, "now_ms": self._now_ms(), "partition": facts, "rows": rows}


def _text(arguments: dict[str, Any], name: str) -> str:
    value = arguments[name]
    if not isinstance(value, str):
        raise TypeError(f"{name} is not a text")
    return value


def _rounded(values: list[float | None]) -> list[float | None]:
    return [None if one is None else round(one, 4) for one in values]


def _error(status: int, sentence: str) -> HttpResponse:
    return HttpResponse(status, JSON, json.dumps({"error": sentence}).encode())
