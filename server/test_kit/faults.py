"""Faults on command: requests that are refused, late, half answered or not answered, as a test wants it.

Requests come here decoded, before their handlers (`server/test_kit/interposing.py`). The first fault that was
added, is for the request and fires is the only one that does. A request that a client is not allowed is
refused as ever if no fault fires.

While a fault is about topics or partitions of Fetch, there are no fetch sessions: each request has to name
what it fetches. A client that has one is told that it is gone, as when a broker has too many, and asks anew.
A ShareFetch is for all partitions of its session (`server/test_kit/share_faults.py`).
"""

from __future__ import annotations

import asyncio
import os
from collections import Counter
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from odradek.apis.api import HeldBack, Waiting
from odradek.server.test_kit.fault_rules import (
    ACTIONS,
    OF_LEADERS,
    OFTEN,
    OTHER_KINDS,
    REQUESTS,
    Action,
    Firing,
    Rule,
    able,
    check_action,
    check_arguments,
    check_values,
    error_named,
    is_given,
    keys_of,
    versions_of,
)
from odradek.server.test_kit.kit import TestKitError
from odradek.server.test_kit.named import KINDS, PARTITION, TOPIC, Named, named_in
from odradek.server.test_kit.other_faults import (
    DISK_ERRORS,
    ConnectionFault,
    DiskFault,
    LoginFault,
    OtherFaults,
)
from odradek.server.test_kit.partial_errors import changed, refuse
from odradek.server.test_kit.share_faults import named_with_session, refuse_partitions
from odradek.wire.errors import ErrorCode, KafkaError
from odradek.wire.messages.fetch import FetchResponse
from odradek.wire.schema import Array, Struct, fields_of

if TYPE_CHECKING:
    from odradek.apis.api import RequestContext
    from odradek.apis.declaration import AnyApi
    from odradek.apis.share_fetch import ShareFetch
    from odradek.apis.share_sessions import ShareSessions
    from odradek.server.test_kit.interposing import Proceed
    from odradek.server.test_kit.kit import TestKit

METADATA, FETCH, SHARE_FETCH = 3, 1, 78
FULL_FETCH = -1
"""Session epoch of a fetch without a session."""


def make(kit: TestKit) -> Faults:
    return Faults(kit)


class Faults:
    """The faults of one broker."""

    operations = ("add", "all", "end", "one", "remove", "wait")

    def __init__(self, kit: TestKit) -> None:
        self._kit = kit
        self._timers = kit.server.schedule.timers
        self._served = kit.server.connections.dispatcher.routes.api_keys
        self._others = OtherFaults(kit.server, self._tell)
        self._faults: dict[int, Firing] = {}
        self._over: dict[int, Firing] = {}
        """Faults that are used up, or were ended."""
        self._last_id = 0
        self._cuts: dict[int, tuple[Any, int, RequestContext]] = {}
        """By identities of responses, which it has: so no other one has the same."""
        self._cutting: Counter[int] = Counter()
        """By keys of APIs: responses that are to be cut and are not sent yet."""
        self._waiting: dict[int, list[tuple[int, Callable[[], None]]]] = {}

    def close(self) -> None:
        """The broker stops."""
        self._others.use(())

    # Operations

    async def add(self, **given: Any) -> int:
        """Id of a new fault; `embedding/faults.py` has the arguments. TestKitError: it could never fire."""
        given = {name: value for name, value in given.items() if is_given(value)}
        for name in ("delay_ms", "delay_after_ms"):
            if given.get(name) == 0:
                del given[name]
        check_values(given)
        often = {name: given.pop(name) for name in OFTEN if name in given}
        kind = next((name for name in OTHER_KINDS if name in given), REQUESTS)
        check_arguments(kind, given)
        fault = self._of_requests(given, often) if kind == REQUESTS else self._other(kind, given, often)
        self._last_id = fault.id
        self._faults[fault.id] = fault
        self._follow()
        return fault.id

    def _of_requests(self, given: dict[str, Any], often: dict[str, Any]) -> Rule:
        keys, error = keys_of(given.get("api"), self._served), given.get("error")
        if given.get("leader_moved"):
            if error is not None:
                raise TestKitError("leader_moved is an error by itself: leave error out")
            error = "NOT_LEADER_OR_FOLLOWER"
            keys &= {key for name in OF_LEADERS for key in keys_of(name, self._served)}
            if not keys:
                raise TestKitError(f"leader_moved is for {', '.join(OF_LEADERS)}")
        action = Action(
            error=error_named(error),
            **{name: given[name] for name in ACTIONS if name in given},
        )
        check_action(action)
        names = {kind: given[kind] for kind in KINDS if kind in given}
        versions = versions_of(given.get("version"))
        apis = [self._kit.interposing.api(key) for key in sorted(keys)]
        return Rule(
            id=self._last_id + 1,
            api_keys=able(apis, action, names, versions),
            api=given.get("api"),
            action=action,
            versions=versions,
            client_id=given.get("client_id"),
            principal=given.get("principal"),
            names=names,
            predicate=given.get("predicate"),
            **often,
        )

    def _other(self, kind: str, given: dict[str, Any], often: dict[str, Any]) -> Firing:
        number = self._last_id + 1
        if kind == "refuse_connection":
            known = [one.name for one in self._kit.server.listeners]
            if given.get("listener", known[0]) not in known:
                raise TestKitError(
                    f"there is no listener {given['listener']!r}; there are {', '.join(known)}"
                )
            return ConnectionFault(id=number, given=given, **often)
        if kind == "fail_login":
            if not self._others.login_listeners:
                raise TestKitError("no listener has SASL, so no login could fail")
            return LoginFault(id=number, given=given, **often)
        error = given["disk_error"]
        if error not in DISK_ERRORS:
            raise TestKitError(f"disk_error is {' or '.join(DISK_ERRORS)}, not {error!r}")
        return DiskFault(id=number, given=given, error=error, directory=self._directory(given), **often)

    def _directory(self, given: Mapping[str, Any]) -> str:
        """The directory that a fault of a disk is about."""
        store = self._kit.server.store
        if "directory" in given:
            known = {os.path.realpath(path): path for path in store.directories}
            path = str(os.path.realpath(given["directory"]))
            if path not in known:
                raise TestKitError(
                    f"{given['directory']!r} is no data directory of this broker; there are "
                    f"{', '.join(known.values())}"
                )
            return path
        if TOPIC not in given or PARTITION not in given:
            raise TestKitError("disk_error needs a directory, or a topic and a partition")
        try:
            partition = store.get(given[TOPIC], given[PARTITION])
        except KafkaError as error:
            raise TestKitError(str(error)) from None
        if partition is None:
            raise TestKitError(f"this broker has no partition {given[TOPIC]}-{given[PARTITION]}")
        return os.path.realpath(partition.directory)

    async def all(self) -> list[dict[str, Any]]:
        """All faults that were added and not removed, also those that are over."""
        return [fault.told() for fault in (*self._over.values(), *self._faults.values())]

    async def one(self, id: Any) -> dict[str, Any]:
        """One of them. TestKitError: there is none of this id."""
        return self._fault(id).told()

    async def end(self, id: int) -> None:
        """Ends it; how often it has fired can still be asked. Harmless a second time."""
        fault = self._faults.pop(id, None)
        if fault is not None:
            self._over[id] = fault
            self._follow()

    async def remove(self, id: Any = None) -> int:
        """Removes one, without an id all; how many there were. TestKitError: there is none of this id."""
        if id is None:
            count = len(self._faults) + len(self._over)
            self._faults.clear()
            self._over.clear()
        else:
            number = self._fault(id).id
            self._faults.pop(number, None)
            self._over.pop(number, None)
            count = 1
        self._follow()
        return count

    async def wait(self, id: Any, count: int = 1, timeout: float = 30.0) -> int:
        """How often it has fired, once that is `count`. TestKitError: not within `timeout` seconds."""
        fault = self._fault(id)
        if fault.fired < count:
            fired = asyncio.Event()
            waiting = self._waiting.setdefault(fault.id, [])
            entry = (count, fired.set)
            waiting.append(entry)
            try:
                await asyncio.wait_for(fired.wait(), timeout)
            except TimeoutError:
                raise TestKitError(
                    f"waited {timeout:g} s for a fault to fire {_times(count)}: it fired "
                    f"{_times(fault.fired)}, and could have {_times(fault.seen)}"
                ) from None
            finally:
                waiting.remove(entry)
        return fault.fired

    def _fault(self, id: Any) -> Firing:
        number = int(id) if isinstance(id, str) and id.isdecimal() else id
        fault = self._faults.get(number) or self._over.get(number)
        if fault is None:
            raise TestKitError(f"there is no fault {id!r}")
        return fault

    def _follow(self) -> None:
        """Puts the faults that there are now where they belong."""
        keys = {key for rule in self._rules() for key in rule.api_keys}
        self._kit.interposing.put(self, keys | {key for key, count in self._cutting.items() if count})
        self._others.use([fault for fault in self._faults.values() if not isinstance(fault, Rule)])

    def _rules(self) -> list[Rule]:
        return [fault for fault in self._faults.values() if isinstance(fault, Rule)]

    def _tell(self, fault: Firing) -> None:
        """Tells those who wait that it has fired."""
        for count, tell in self._waiting.get(fault.id, ()):
            if fault.fired >= count:
                tell()
        if fault.is_used_up:
            self._faults.pop(fault.id, None)
            self._over[fault.id] = fault
            # Not from within what it is about.
            self._timers.after(0, self._follow)

    # Requests

    def serve(self, api: AnyApi, request: Any, context: RequestContext, proceed: Proceed) -> Any:
        """See `Interposer`."""
        if context.api_key == FETCH and any(rule.is_about_parts for rule in self._of(FETCH)):
            refusal = _without_session(request)
            if refusal is not None:
                return refusal
        view, names = self._kit.server.cluster_view, self._named_in(request, context)
        for rule in self._of(context.api_key):
            named = names
            place = rule.place(api, context.api_version)
            if rule.action.error is not None and place is None:
                continue
            if _asks_for_all(context, request) and rule.names.get(TOPIC) in view.topics:
                named = [Named({TOPIC: rule.names[TOPIC]}, (), ())]
            matched = rule.found_in(named, request, context, view.topic_names)
            if matched and rule.fires():
                self._tell(rule)
                return self._carry_out(rule.action, place, matched, api, request, context, proceed)
        return proceed(request, context)

    def _named_in(self, request: Any, context: RequestContext) -> list[Named]:
        if context.api_key == SHARE_FETCH:
            return named_with_session(request, self._share_sessions)
        return named_in(request)

    @property
    def _share_sessions(self) -> ShareSessions:
        handler: ShareFetch = self._kit.interposing.handler(SHARE_FETCH)
        return handler.parts.sessions

    def _of(self, api_key: int) -> list[Rule]:
        return [rule for rule in self._rules() if api_key in rule.api_keys]

    def _carry_out(
        self,
        action: Action,
        place: Any,
        matched: list[Named],
        api: AnyApi,
        request: Any,
        context: RequestContext,
        proceed: Proceed,
    ) -> Any:
        def act() -> Any:
            if action.never_respond:
                return HeldBack()
            if action.error is None:
                response = proceed(request, context)
            elif context.api_key == SHARE_FETCH and place.lists:
                response = refuse_partitions(
                    request, context, place, matched, action.error, proceed, self._share_sessions
                )
            else:
                response = refuse(api, request, context, place, matched, action.error, proceed)
            return self._after(action, response, context)

        if not action.delay_ms:
            return act()
        _detach(request)
        return self._later(action.delay_ms, act)

    def _later(self, delay_ms: int, act: Callable[[], Any]) -> Waiting:
        """Response of `act`, which is called after a while."""

        def go_on() -> None:
            response = act()
            if isinstance(response, Waiting):
                held.leave_to(response)
            else:
                held.complete(response)

        timer = self._timers.after(delay_ms, go_on)
        held = HeldBack(timer.cancel)
        return held

    def _after(self, action: Action, response: Any, context: RequestContext) -> Any:
        """Carries out the part of an action that comes behind the effect."""
        connection: Any = context.connection
        if action.throttle_ms is not None:

            def throttle(found: Any) -> Any:
                if action.throttle_ms:
                    found.throttle_time_ms = action.throttle_ms
                    connection.requests.hold_back(action.throttle_ms)
                return found

            response = changed(response, throttle)
        if action.cut_response_after_bytes is not None:
            response = self._cut(response, action.cut_response_after_bytes, context)
        if action.delay_after_ms:
            response = self._held(response, action.delay_after_ms)
        if action.lose_response:
            response = _lost(response, connection)
        return response

    def _held(self, response: Any, delay_ms: int) -> Waiting:
        """The response, so much later than it is there."""
        held = HeldBack(response.cancel if isinstance(response, Waiting) else None)

        def hold(found: Any) -> None:
            self._timers.after(delay_ms, lambda: held.complete(found))

        if isinstance(response, Waiting):
            response.on_complete(hold)
        else:
            hold(response)
        return held

    def _cut(self, response: Any, kept_bytes: int, context: RequestContext) -> Any:
        """The response, of which only so much is to be sent. Until then its API stays interposed."""
        self._cutting[context.api_key] += 1

        def note(found: Any) -> Any:
            if found is None:
                self._cut_is_over(context.api_key)
            else:
                self._cuts[id(found)] = found, kept_bytes, context
            return found

        def give_up() -> None:
            response.cancel()
            self._cut_is_over(context.api_key)

        if not isinstance(response, Waiting):
            return note(response)
        held = HeldBack(give_up)
        response.on_complete(lambda found: held.complete(note(found)))
        return held

    def _cut_is_over(self, api_key: int) -> None:
        self._cutting[api_key] -= 1
        self._timers.after(0, self._follow)

    def sent(self, response: Any, parts: list[Any], size_bytes: int) -> tuple[list[Any], int]:
        """See `Interposer`."""
        cut = self._cuts.pop(id(response), None)
        if cut is None:
            return parts, size_bytes
        _, kept_bytes, context = cut
        self._cut_is_over(context.api_key)
        context.connection.close(f"a fault cuts a response after {kept_bytes} of {size_bytes} bytes")
        kept = _first_bytes(parts, kept_bytes)
        return kept, sum(len(part) for part in kept)


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count} times"


def _without_session(request: Any) -> Any:
    """Makes a fetch one without a session. The response that ends its session, if it has one."""
    if request.session_id:
        return FetchResponse(error_code=ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
    request.session_epoch = FULL_FETCH
    return None


def _asks_for_all(context: RequestContext, request: Any) -> bool:
    """Whether it is for all topics, and so names none."""
    return context.api_key == METADATA and request.topics is None


def _lost(response: Any, connection: Any) -> Any:
    """No response: the connection ends in its place, after the responses before it."""

    def close(_: Any) -> None:
        connection.close("a fault loses a response")
        held.complete(None)

    if not isinstance(response, Waiting):
        connection.close("a fault loses a response")
        return None
    held = HeldBack(response.cancel)
    response.on_complete(close)
    return held


def _detach(struct: Struct) -> None:
    """Copies what is in the receive buffer, which is used again before the request is served."""
    for field in fields_of(type(struct)):
        value = getattr(struct, field.name)
        if isinstance(value, memoryview):
            setattr(struct, field.name, memoryview(bytes(value)))
        elif isinstance(value, Struct):
            _detach(value)
        elif isinstance(field.type, Array) and value and isinstance(value[0], Struct):
            for item in value:
                _detach(item)


def _first_bytes(parts: list[Any], kept_bytes: int) -> list[Any]:
    """The first bytes of a response, as buffers. Nothing of what is made only while it is sent."""
    found: list[Any] = []
    for part in parts:
        buffers = [part] if isinstance(part, bytes | bytearray | memoryview) else _buffers(part)
        for buffer in buffers:
            if kept_bytes <= 0:
                return found
            found.append(buffer[:kept_bytes])
            kept_bytes -= len(found[-1])
    return found


def _buffers(part: Any) -> list[Any]:
    return list(part.buffers()) if hasattr(part, "buffers") else []
