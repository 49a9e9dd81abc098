"""The markers `odradek_restore` and `odradek_faults`, and a watch on the brokers of the fixtures: what a test
does to that of the session is undone after it.

`Watch` notes what is done with the test kit of one broker or node; `TestWatch` has those of one test.
"""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest

from odradek.config.near_names import did_you_mean
from odradek.embedding.faults import Faults
from odradek.embedding.pytest_names import FAULTS, RESTORE
from odradek.server.test_kit.kit import TestKitError

if TYPE_CHECKING:
    from odradek.embedding.embedded import Broker
    from odradek.embedding.snapshots import Snapshot

SHARED_RESTORE = (
    f"{RESTORE}: with --odradek-shared tests of other workers use this broker, too, and a restore would take "
    "their data away: leave --odradek-shared out, or use odradek_fresh_broker"
)
SHARED_FAULTS = (
    f"{FAULTS}: with --odradek-shared tests of other workers use this broker, too, and would meet the fault: "
    "leave --odradek-shared out, or use odradek_fresh_broker"
)
CALL_SECONDS = 10.0
_MOVES_CLOCK = ("clock.advance", "clock.to", "clock.freeze")
_UNREACHABLE = (RuntimeError, OSError, TestKitError)
"""A broker that has ended, does not answer, or has started anew and knows nothing of it."""


class MarkerError(Exception):
    """A marker is wrong, or what it asks for has not come; the text is one sentence for people."""


class Watch:
    """The watcher of one broker or node (`KitWatcher`)."""

    def __init__(self, broker: Any, requests_kept: int, *, is_shared: bool = False) -> None:
        """`requests_kept`: so many are kept for the report of a failed test. `is_shared`: tests of other
        processes use it at the same time."""
        self.broker = broker
        self.requests_kept = requests_kept
        self.is_shared = is_shared
        self.starts = 0
        """Each start and each restore counts: what the kit had is gone."""
        self.added: list[int] = []
        """Ids of faults that were added since `begin`."""
        self.has_moved_clock = False
        self.log_begin = 0
        """Length of the log at the last `begin`, in characters."""
        self.since = 0
        """Mark of requests at the last `begin`."""
        self.fired_before: dict[int, int] = {}
        """How often faults of fixtures had fired at the last `begin`, by their ids."""
        self._has_faults_of_fixtures = False
        self._is_in_test = False

    def started(self) -> None:
        """See `KitWatcher`."""
        self.starts += 1
        self.added.clear()
        self.fired_before.clear()
        self.has_moved_clock = self._has_faults_of_fixtures = False
        self.since = 0
        if self.requests_kept:
            # The report of a failure is not worth another one.
            with contextlib.suppress(*_UNREACHABLE):
                self.broker.call_kit("requests.keep", {"count": self.requests_kept}, CALL_SECONDS)

    def called(self, operation: str, result: Any) -> None:
        """See `KitWatcher`."""
        if operation == "faults.add":
            self.added.append(result)
            self._has_faults_of_fixtures |= not self._is_in_test
        elif operation in _MOVES_CLOCK:
            self.has_moved_clock = True
        elif operation == "snapshots.restore":
            self.started()

    @property
    def is_paused(self) -> bool:
        """Whether it is a node that answers nobody."""
        process = getattr(self.broker, "process", None)
        return process is not None and bool(process.is_paused)

    def log(self) -> str:
        """All that the broker has logged since its start."""
        log = self.broker.log
        return str(log() if callable(log) else log)

    def begin(self) -> None:
        """A test begins: what comes from now on is its own."""
        self.log_begin = len(self.log())
        self.has_moved_clock = False
        self.added.clear()
        self.fired_before.clear()
        self._is_in_test = True
        with contextlib.suppress(*_UNREACHABLE):
            if self.requests_kept:
                self.since = self.broker.call_kit("requests.mark", {}, CALL_SECONDS)
            if self._has_faults_of_fixtures:
                found = self.broker.call_kit("faults.all", {}, CALL_SECONDS)
                self.fired_before = {one["id"]: one["fired"] for one in found}

    def end(self) -> None:
        """Removes the faults of the test."""
        self._is_in_test = False
        for number in self.added:
            with contextlib.suppress(*_UNREACHABLE):
                self.broker.call_kit("faults.remove", {"id": number}, CALL_SECONDS)
        self.added.clear()


@dataclass(eq=False)
class MarkedFault:
    """One marker `odradek_faults`."""

    given: dict[str, Any]
    """Arguments of `Faults.add`."""
    fires: int | None = 1
    """The test fails if it has fired less often; None: never for that."""
    places: list[tuple[Watch, int, int]] = field(default_factory=list)
    """Brokers on which it is, with their starts when it was added, and its id there."""

    def add_to(self, watch: Watch) -> None:
        """MarkerError: it could never fire there."""
        try:
            fault = Faults(watch.broker.call_kit).add(**self.given)
        except (TypeError, TestKitError) as error:
            raise MarkerError(f"{self}: {error}") from None
        self.places.append((watch, watch.starts, fault.id))

    def end(self) -> None:
        """Harmless a second time."""
        for watch, starts, number in self.places:
            if watch.starts == starts and watch.broker.is_running and not watch.is_paused:
                with contextlib.suppress(*_UNREACHABLE):
                    watch.broker.call_kit("faults.end", {"id": number}, CALL_SECONDS)

    def complaint(self) -> str | None:
        """Why the test fails; None: it does not. On a broker that has started anew, or does not answer, it
        may have fired."""
        if not self.places:
            return f"{self}: this test has no broker and no cluster of the fixtures that it could be on"
        if self.fires is None:
            return None
        fired = 0
        for watch, starts, number in self.places:
            if watch.starts != starts or watch.is_paused:
                return None
            try:
                told = watch.broker.call_kit("faults.one", {"id": number}, CALL_SECONDS)
            except _UNREACHABLE:
                return None
            fired += told["fired"]
        if fired >= self.fires:
            return None
        if not fired:
            return f"{self}: it has never fired"
        return f"{self}: it has fired {_times(fired)}, and {_times(self.fires)} is the least"

    def __str__(self) -> str:
        return f"{FAULTS}({', '.join(f'{name}={value!r}' for name, value in self.given.items())})"


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count} times"


def marked_fault(marker: pytest.Mark) -> MarkedFault:
    """MarkerError: its arguments are wrong, in one sentence."""
    given = dict(marker.kwargs)
    if marker.args:
        if len(marker.args) > 1 or "api" in given:
            raise MarkerError(f"{FAULTS} takes the API as its first argument, and all others by their names")
        given = {"api": marker.args[0], **given}
    fires = given.pop("fires", 1)
    if fires is not None and (not isinstance(fires, int) or isinstance(fires, bool) or fires < 1):
        raise MarkerError(f"{FAULTS}: fires is a number from 1 on, or None, not {fires!r}")
    known = [name for name in inspect.signature(Faults.add).parameters if name != "self"]
    for name in given:
        if name not in known:
            raise MarkerError(f"{FAULTS} has no argument {name!r}{did_you_mean(name, known)}")
    return MarkedFault(given, fires)


class RestoredData:
    """The snapshot for tests with `odradek_restore`, one after the other: a new one is only made when
    something has changed since the last of them."""

    def __init__(self) -> None:
        self._snapshot: Snapshot | None = None

    def begin(self, broker: Broker) -> None:
        """The data of now are those to which `restore` returns. MarkerError: there is no snapshot of them."""
        if self._snapshot is not None and not self._is_served(broker, self._snapshot):
            self._snapshot.close()
            self._snapshot = None
        if self._snapshot is None:
            try:
                self._snapshot = broker.snapshot()
            except TestKitError as error:
                raise MarkerError(f"{RESTORE}: {error}") from None

    def restore(self, broker: Broker, *, is_changed: bool) -> None:
        """Nothing where nothing has changed. `is_changed`: something else than its data has."""
        assert self._snapshot is not None
        if is_changed or not self._is_served(broker, self._snapshot):
            broker.restore(self._snapshot)
            broker.start()

    @staticmethod
    def _is_served(broker: Broker, snapshot: Snapshot) -> bool:
        if not broker.is_running:
            return False
        return bool(broker.call_kit("snapshots.is_served", {"path": snapshot.path}))


class TestWatch:
    """The brokers and nodes of a test, and what its markers ask for."""

    __test__ = False

    def __init__(self, markers: Iterable[pytest.Mark]) -> None:
        """MarkerError: a marker has wrong arguments."""
        self.session: Watch | None = None
        """The broker of the session, if the test uses it."""
        self.made: list[Watch] = []
        """Brokers and nodes of the test alone."""
        self.restores = False
        self.faults: list[MarkedFault] = []
        self._has_begun = False
        for marker in markers:
            if marker.name == FAULTS:
                self.faults.append(marked_fault(marker))
            elif marker.name == RESTORE:
                if marker.args or marker.kwargs:
                    raise MarkerError(f"{RESTORE} takes no arguments")
                self.restores = True

    @property
    def watches(self) -> list[Watch]:
        """The one of the session first."""
        return [*([] if self.session is None else [self.session]), *self.made]

    @contextlib.contextmanager
    def session_undone(self, watch: Watch, restored: RestoredData) -> Iterator[None]:
        """Undoes in the end what the test does to the broker of the session. MarkerError: a marker
        is not for a shared one."""
        if watch.is_shared and self.restores:
            raise MarkerError(SHARED_RESTORE)
        if watch.is_shared and self.faults:
            raise MarkerError(SHARED_FAULTS)
        self.session = watch
        watch.begin()
        broker: Broker = watch.broker
        if self.restores:
            restored.begin(broker)
        try:
            yield
        finally:
            watch.end()
            if self.restores:
                restored.restore(broker, is_changed=watch.has_moved_clock)
            elif watch.has_moved_clock and not watch.is_shared and broker.is_running:
                # The clock never goes backwards but by a restore: to the data of now.
                with broker.snapshot() as now:
                    broker.restore(now)

    def add(self, watch: Watch) -> None:
        """A broker or a node that the test has made and that runs."""
        self.made.append(watch)
        if self._has_begun:
            self._add_faults(watch)

    def _add_faults(self, watch: Watch) -> None:
        for fault in self.faults:
            fault.add_to(watch)

    @contextlib.contextmanager
    def with_faults(self) -> Iterator[None]:
        """Has the faults of the markers on all brokers. MarkerError: one of them could not fire, or has not
        fired."""
        self._has_begun = True
        try:
            for watch in self.watches:
                if watch.broker.is_running:
                    self._add_faults(watch)
            yield
            for fault in self.faults:
                complaint = fault.complaint()
                if complaint is not None:
                    raise MarkerError(complaint)
        finally:
            self._has_begun = False
            for fault in self.faults:
                fault.end()
