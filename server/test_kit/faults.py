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
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, cast

from odradek.apis.api import HeldBack, Waiting
from odradek.server.test_kit.fault_rules import (
    ACTIONS,
    MOVED,
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
from odradek.server.test_kit.moves import COORDINATOR_MOVED, LEADER_MOVED, MoveFault, Moves
from odradek.server.test_kit.named import KINDS, PARTITION, TOPIC, TOPIC_ID, Named, named_in
from odradek.server.test_kit.other_faults import (
    DISK_ERRORS,
    ConnectionFault,
    DiskFault,
    LoginFault,
    OtherFaults,
)
from odradek.server.test_kit.partial_errors import changed, refuse
from odradek.server.test_kit.response_fields import set_fields
from odradek.server.test_kit.share_faults import named_with_session, refuse_partitions
from odradek.wire.errors import ErrorCode, KafkaError
from odradek.wire.messages import api_name
from odradek.wire.messages.fetch import FetchResponse
from odradek.wire.schema import Array, Struct, copied_as, fields_of

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

    operations = ("add", "all", "end", "move_leader", "one", "release", "remove", "wait")

    def __init__(self, kit: TestKit) -> None:
        self._kit = kit
        self._timers = kit.server.schedule.timers
        self._served = kit.server.connections.dispatcher.routes.api_keys
        self._others = OtherFaults(kit.server, self._tell)
        self._moves = Moves(kit.server)
        self._moving = asyncio.Lock()
        self._faults: dict[int, Firing] = {}
        self._over: dict[int, Firing] = {}
        """Faults that are used up, or were ended."""
        self._last_id = 0
        self._cuts: dict[int, tuple[Any, int, RequestContext]] = {}
        """By identities of responses, which it has: so no other one has the same."""
        self._cutting: Counter[int] = Counter()
        """By keys of APIs: responses that are to be cut and are not sent yet."""
        self._waiting: dict[int, list[tuple[int, Callable[[], None]]]] = {}
        self._releases: dict[int, list[Callable[[], None]]] = {}
        """By ids of faults: requests and responses that they hold."""

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
        often = _often(given)
        kind = next((name for name in OTHER_KINDS if name in given), REQUESTS)
        check_arguments(kind, given)
        if self._moves.are_possible and (LEADER_MOVED in given or COORDINATOR_MOVED in given):
            async with self._moving:
                self._last_id += 1
                moved = await self._moves.move(self._last_id, given, often, list(self._faults.values()))
                self._faults[moved.id] = moved
                return moved.id
        fault = self._of_requests(given, often) if kind == REQUESTS else self._other(kind, given, often)
        self._last_id = fault.id
        self._faults[fault.id] = fault
        self._follow()
        return fault.id

    def _of_requests(self, given: dict[str, Any], often: dict[str, Any]) -> Rule:
        keys, error = keys_of(given.get("api"), self._served), given.get("error")
        for kind, (code, able_apis) in MOVED.items():
            if kind not in given:
                continue
            if error is not None:
                raise TestKitError(f"{kind} is an error by itself: leave error out")
            error = code
            keys &= {key for key in self._served if api_name(key) in able_apis}
            if not keys:
                raise TestKitError(f"{kind} is for {', '.join(able_apis)}")
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
                    f"{given['directory']!r} is not a data directory of this broker; there are "
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
            await self._undo([fault])
        self._release(id)

    async def move_leader(self, topic: str, partition: int, to: int, timeout: float = 60.0) -> None:
        """Has the node with the id `to` lead a partition, for good; with `leader_moved` it is another node,
        until the end of the fault. TestKitError: not within `timeout` seconds, or this is a broker alone."""
        if not self._moves.are_possible:
            raise TestKitError("a broker alone leads everything: a leader moves in a cluster")
        await self._moves.lead(topic, partition, to, timeout)

    async def release(self, id: Any) -> int:
        """Lets go on what the fault holds now; how many there were. TestKitError: there is none of this
        id."""
        return self._release(self._fault(id).id)

    def _release(self, id: int) -> int:
        held = self._releases.pop(id, [])
        for go_on in held:
            go_on()
        return len(held)

    async def _undo(self, ended: Iterable[Firing]) -> None:
        """Brings leaders back. TestKitError: the controllers refuse it."""
        for fault in ended:
            if isinstance(fault, MoveFault):
                async with self._moving:
                    await self._moves.undo(fault)

    async def remove(self, id: Any = None) -> int:
        """Removes one, without an id all; how many there were. TestKitError: there is none of this id."""
        if id is None:
            ended = list(self._faults.values())
            count = len(self._faults) + len(self._over)
            self._faults.clear()
            self._over.clear()
            for number in list(self._releases):
                self._release(number)
        else:
            number = self._fault(id).id
            ended = [self._faults.pop(number)] if number in self._faults else []
            self._over.pop(number, None)
            self._release(number)
            count = 1
        self._follow()
        await self._undo(ended)
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
                return self._carry_out(rule, place, matched, api, request, context, proceed)
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
        rule: Rule,
        place: Any,
        matched: list[Named],
        api: AnyApi,
        request: Any,
        context: RequestContext,
        proceed: Proceed,
    ) -> Any:
        action = rule.action

        def act() -> Any:
            if action.never_respond:
                return HeldBack()
            if action.disconnect:
                connection: Any = context.connection
                connection.close("a fault closes the connection")
                return None
            if action.respond is not None:
                made = action.respond(request, context)
                return self._after(rule, proceed(request, context) if made is None else made, context)
            if action.error is None:
                response = proceed(request, context)
            elif context.api_key == SHARE_FETCH and place.lists:
                response = refuse_partitions(
                    request, context, place, matched, action.error, proceed, self._share_sessions
                )
            else:
                response = refuse(api, request, context, place, matched, action.error, proceed)
            return self._after(rule, response, context)

        if action.delay_ms or action.hold:
            _detach(request)
        if action.delay_ms:
            act = partial(self._later, partial(self._timers.after, action.delay_ms), act)
        if action.hold:
            return self._later(partial(self._hold, rule.id), act)
        return act()

    def _later(self, call: Callable[[Callable[[], None]], Any], act: Callable[[], Any]) -> Waiting:
        """Response of `act`, which `call` calls at some time, unless it is cancelled."""

        def go_on() -> None:
            response = act()
            if isinstance(response, Waiting):
                held.leave_to(response)
            else:
                held.complete(response)

        held = HeldBack(call(go_on).cancel)
        return held

    def _hold(self, id: int, go_on: Callable[[], None]) -> _Hold:
        """Calls it when the fault of this id is released."""
        return _Hold(self._releases.setdefault(id, []), go_on)

    def _after(self, rule: Rule, response: Any, context: RequestContext) -> Any:
        """Carries out the part of an action that comes behind the effect."""
        action, connection = rule.action, cast("Any", context.connection)
        if action.throttle_ms is not None:

            def throttle(found: Any) -> Any:
                if action.throttle_ms:
                    found.throttle_time_ms = action.throttle_ms
                    connection.requests.hold_back(action.throttle_ms)
                return found

            response = changed(response, throttle)
        if action.change_response is not None:
            change = action.change_response

            def change_it(found: Any) -> Any:
                if found is None:
                    return None
                own = copied_as(type(found), found)
                change(own, context)
                return own

            response = changed(response, change_it)
        if action.response_fields is not None:
            fields = action.response_fields

            def set_them(found: Any) -> Any:
                return None if found is None else set_fields(found, fields, self._names_of(rule))

            response = changed(response, set_them)
        if action.cut_response_after_bytes is not None:
            response = self._cut(response, action.cut_response_after_bytes, context)
        if action.delay_after_ms:
            response = self._held(response, partial(self._timers.after, action.delay_after_ms))
        if action.hold_response:
            response = self._held(response, partial(self._hold, rule.id))
        if action.lose_response:
            response = _lost(response, connection)
        return response

    def _names_of(self, rule: Rule) -> dict[str, Any]:
        """Names that the fault is about, by kind, and the id of its topic."""
        topic = self._kit.server.cluster_view.topics.get(rule.names.get(TOPIC, ""))
        return {**rule.names, **({} if topic is None else {TOPIC_ID: topic.topic_id})}

    def _held(self, response: Any, call: Callable[[Callable[[], None]], Any]) -> Waiting:
        """The response, when `call` calls that it is to be sent."""
        held = HeldBack(response.cancel if isinstance(response, Waiting) else None)

        def hold(found: Any) -> None:
            call(lambda: held.complete(found))

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


class _Hold:
    """An entry of those whom a fault holds."""

    def __init__(self, entries: list[Callable[[], None]], go_on: Callable[[], None]) -> None:
        self._entries, self._go_on = entries, go_on
        entries.append(go_on)

    def cancel(self) -> None:
        """The connection is closed."""
        if self._go_on in self._entries:
            self._entries.remove(self._go_on)


def _often(given: dict[str, Any]) -> dict[str, Any]:
    """Takes out what says how often it fires."""
    return {name: given.pop(name) for name in OFTEN if name in given}


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
