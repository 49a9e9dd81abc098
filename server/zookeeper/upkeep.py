"""The thread that keeps ZooKeeper and the metadata of the cluster the same.

It looks at everything again after each event of ZooKeeper and each new view; what is unchanged costs a
comparison. Whatever goes wrong, it begins anew: it elects, reads what is there, and writes the difference.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from odradek.config.config_error import ConfigError
from odradek.coordinator.zookeeper import nodes
from odradek.coordinator.zookeeper.projection import Projection
from odradek.server.zookeeper.controllership import Controllership, NotController, elect, write
from odradek.server.zookeeper.survey import survey
from odradek.server.zookeeper.tools import Ask, Holds, NoResponse, Tools

if TYPE_CHECKING:
    from concurrent.futures import Future

    from odradek.coordinator.cluster.view import ClusterView
    from odradek.server.zookeeper.oldest import OldestNodes
    from odradek.server.zookeeper.registration import Registration
    from odradek.server.zookeeper.session import Session
    from odradek.wire.schema import Message

logger = logging.getLogger("odradek.zookeeper")

PAUSE_S = 1.0
"""Before it begins anew after a failure."""
CATCH_UP_S = 5.0
"""How long a view may be behind what the controllers have answered."""
BEATEN_MAX = 5
"""Times in a row that others may be faster before that is told."""


class _Leading:
    """One controllership: what is known to be in ZooKeeper, and what tools ask for."""

    def __init__(
        self, session: Session, controllership: Controllership, tools: Tools, known: Mapping[str, bytes]
    ) -> None:
        self._session = session
        self._controllership = controllership
        self.tools = tools
        self._projection = Projection(known, controllership.epoch)

    def keep(self, view: Callable[[], ClusterView]) -> None:
        """Tools first: a topic that they have made is not removed as one that nobody knows."""
        tools, projection = self.tools, self._projection
        tools.look_at_deletions()
        for found in (tools.look_at_topics(projection.topics()), tools.look_at_settings()):
            for path, content in found.items():
                projection.forget(path, content)
        tools.look_at_reassignment()
        tools.look_at_election()
        write(self._session, self._controllership, projection.steps(view()))


class Upkeep:
    """`start` begins the thread, `close` ends it and the session. `view` gives the newest view in any thread;
    `ask` makes requests for tools, `agree` raises ConfigError where another cluster is, `oldest` are
    the nodes for clients of Kafka 0.7."""

    def __init__(
        self,
        session: Session,
        registration: Callable[[Callable[[Any], object]], Registration],
        node_id: int,
        now_ms: Callable[[], int],
        view: Callable[[], ClusterView],
        ask: Ask,
        agree: Callable[[], None],
        oldest: Sequence[OldestNodes] = (),
    ) -> None:
        self._session = session
        self._registration = registration(self._changed)
        self._node_id = node_id
        self._now_ms = now_ms
        self._view = view
        self._ask = ask
        self.agree = agree
        self._oldest = oldest
        self._asked: Future[Any] | None = None
        """The newest request for a tool."""
        self._leading: _Leading | None = None
        self._session_id: int | None = None
        """Id of the session that all is done in."""
        self._is_contested = False
        """Whether `/controller` is other than when it was read."""
        self._is_told = False
        self._beaten = 0
        """How often in a row another writer was faster."""
        self._new_view = threading.Event()
        self._work = threading.Event()
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run, name="odradek-zookeeper", daemon=True)
        session.on_change = self._work.set

    def start(self) -> None:
        """Registers the broker; raises ConfigError for an id that is taken."""
        for path in nodes.ROOTS:
            self._session.ensure_path(path)
        self._registration.begin()
        self._session_id = self._session.id
        self._thread.start()
        self.wake()

    def wake(self) -> None:
        """There is a new view."""
        self._new_view.set()
        self._work.set()

    def close(self) -> None:
        """Blocks until the thread has ended."""
        self._end.set()
        self.wake()
        if self._asked is not None:
            self._asked.cancel()
        # Its requests to ZooKeeper end with the session.
        self._session.close()
        if self._thread.is_alive():
            self._thread.join()

    def _begin_request(self, request: Message, /) -> Future[Any]:
        self._asked = asked = self._ask(request)
        if self._end.is_set():
            asked.cancel()
        return asked

    def _changed(self, event: Any) -> None:
        """A watch, in a thread of the client."""
        if event.path == nodes.CONTROLLER:
            self._is_contested = True
        leading = self._leading
        if leading is not None and event.path is not None and event.path.startswith(f"{nodes.TOPICS}/"):
            leading.tools.topic_changed(event.path)
        self._work.set()

    def _run(self) -> None:
        while True:
            self._work.wait()
            if self._end.is_set():
                return
            self._work.clear()
            if not self._session.is_connected:
                self._leading = None
                if self._session.has_given_up:
                    self._begin_anew()
                continue
            try:
                self._keep()
                self._session.tell_return()
                self._is_told = False
                self._beaten = 0
            except Exception as error:
                self._leading = None
                if self._end.is_set():
                    return
                self._log_failure_once(error)
                if self._session.is_connected:
                    self._end.wait(PAUSE_S)
                    self._work.set()

    def _begin_anew(self) -> None:
        """After a login that was refused: somebody may mend it."""
        self._log_failure_once(NoResponse("the login is refused"))
        self._end.wait(PAUSE_S)
        if not self._end.is_set():
            self._session.revive()

    def _log_failure_once(self, error: Exception) -> None:
        """Once, until all went well again. A lost connection is told by the session."""
        from kazoo.exceptions import KazooException

        self._beaten = self._beaten + 1 if isinstance(error, NotController) else 0
        if 0 < self._beaten < BEATEN_MAX or (
            isinstance(error, KazooException) and not self._session.is_connected
        ):
            return
        if not self._is_told:
            self._is_told = True
            is_known = isinstance(error, (KazooException, NoResponse, NotController, ConfigError))
            logger.error(
                "what is in ZooKeeper is not up to date, and is tried again: %s: %s",
                type(error).__name__,
                error,
                exc_info=None if is_known else error,
            )

    def _keep(self) -> None:
        session = self._session
        if self._session_id != session.id:
            self._leading = None
            # It may have lost all that was in it, or be another one.
            session.make_root()
            self.agree()
            for path in nodes.ROOTS:
                session.ensure_path(path)
            self._session_id = session.id
        self._register()
        for one in self._oldest:
            one.keep(self._view())
        if self._is_contested:
            self._is_contested = False
            self._leading = None
        if self._leading is None:
            controllership = elect(session, self._node_id, self._now_ms, self._changed)
            if controllership is None:
                return
            tools = Tools(
                session, controllership, self._begin_request, self._view, self._await_view, self._changed
            )
            self._leading = _Leading(session, controllership, tools, survey(session))
        self._leading.keep(self._view)

    def _await_view(self, holds: Holds) -> None:
        """Returns when the newest view is so; also when it does not become so for long, as somebody may have
        changed it again meanwhile."""
        deadline = time.monotonic() + CATCH_UP_S
        while not self._end.is_set():
            self._new_view.clear()
            left_s = deadline - time.monotonic()
            if holds(self._view()) or left_s <= 0:
                return
            self._new_view.wait(left_s)

    def _register(self) -> None:
        if not self._registration.renew():
            raise NoResponse(f"the id {self._node_id} is taken by another broker")
