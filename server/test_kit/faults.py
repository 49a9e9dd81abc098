"""Faults on command: requests that are refused, late, half answered or not answered, as a test wants it.

Requests come here decoded, before their handlers (`server/test_kit/interposing.py`). The first fault that was
added, is for the request and fires is the only one that does. A request that a client is not allowed is
refused as ever if no fault fires.

While a fault is about topics or partitions of Fetch, there are no fetch sessions: each request has to name
what it fetches. A client that has one is told that it is gone, as when a broker has too many, and asks anew.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from odradek.apis.api import HeldBack, Waiting
from odradek.server.test_kit.fault_rules import (
    OF_LEADERS,
    Action,
    Rule,
    able,
    error_named,
    keys_of,
    names_wanted,
)
from odradek.server.test_kit.kit import TestKitError
from odradek.server.test_kit.named import TOPIC, Named
from odradek.server.test_kit.partial_errors import changed, refuse
from odradek.wire.errors import ErrorCode
from odradek.wire.messages.fetch import FetchResponse
from odradek.wire.schema import Array, Struct, fields_of

if TYPE_CHECKING:
    from odradek.apis.api import RequestContext
    from odradek.apis.declaration import AnyApi
    from odradek.server.test_kit.fault_rules import Predicate
    from odradek.server.test_kit.interposing import Proceed
    from odradek.server.test_kit.kit import TestKit

METADATA, FETCH = 3, 1
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
        self._served = kit.server.connections.dispatcher.routes.api_keys()
        self._rules: dict[int, Rule] = {}
        self._used_up: dict[int, Rule] = {}
        self._last_id = 0
        self._cuts: dict[int, tuple[Any, int, RequestContext]] = {}
        """By identities of responses, which it has: so no other one has the same."""
        self._cutting: Counter[int] = Counter()
        """By keys of APIs: responses that are to be cut and are not sent yet."""
        self._waiting: dict[int, list[tuple[int, Callable[[], None]]]] = {}

    def close(self) -> None:
        """The broker stops."""

    # Operations

    async def add(
        self,
        api: str | None = None,
        *,
        versions: Any = None,
        client_id: str | None = None,
        principal: str | None = None,
        topic: str | None = None,
        partition: int | None = None,
        group: str | None = None,
        transactional_id: str | None = None,
        every: int = 1,
        probability: float = 1.0,
        seed: int = 0,
        predicate: Predicate | None = None,
        times: int | None = None,
        error: str | None = None,
        delay_ms: int = 0,
        delay_after_ms: int = 0,
        lose_response: bool = False,
        cut_response_after_bytes: int | None = None,
        never_respond: bool = False,
        throttle_ms: int | None = None,
        leader_moved: bool = False,
    ) -> int:
        """Id of a new fault. TestKitError: it could never fire."""
        _check_number("every", every, 1)
        _check_number("times", times, 1)
        for name, value in (
            ("delay_ms", delay_ms),
            ("delay_after_ms", delay_after_ms),
            ("cut_response_after_bytes", cut_response_after_bytes),
            ("throttle_ms", throttle_ms),
            ("partition", partition),
        ):
            _check_number(name, value, 0)
        if not isinstance(probability, int | float) or not 0 < probability <= 1:
            raise TestKitError(f"probability is more than 0 and at most 1, not {probability!r}")
        keys = keys_of(api, self._served)
        if leader_moved:
            if error is not None:
                raise TestKitError("leader_moved is an error by itself: leave error out")
            error = "NOT_LEADER_OR_FOLLOWER"
            keys &= {key for name in OF_LEADERS for key in keys_of(name, self._served)}
            if not keys:
                raise TestKitError(f"leader_moved is for {', '.join(OF_LEADERS)}")
        action = Action(
            error=error_named(error),
            lose_response=lose_response,
            cut_response_after_bytes=cut_response_after_bytes,
            never_respond=never_respond,
            throttle_ms=throttle_ms,
            delay_ms=delay_ms,
            delay_after_ms=delay_after_ms,
        )
        _check_action(action)
        names, wanted_versions = names_wanted(topic, partition, group, transactional_id), _versions(versions)
        apis = [self._kit.interposing.api(key) for key in sorted(keys)]
        self._last_id += 1
        rule = self._rules[self._last_id] = Rule(
            id=self._last_id,
            api_keys=able(apis, action, names, wanted_versions),
            api=api,
            action=action,
            versions=wanted_versions,
            client_id=client_id,
            principal=principal,
            names=names,
            every=every,
            probability=probability,
            seed=seed,
            predicate=predicate,
            times=times,
        )
        self._interpose()
        return rule.id

    async def all(self) -> list[dict[str, Any]]:
        """All faults that were added and not removed, also those that are used up."""
        return [rule.told() for rule in (*self._used_up.values(), *self._rules.values())]

    async def one(self, id: Any) -> dict[str, Any]:
        """One of them. TestKitError: there is none of this id."""
        return self._rule(id).told()

    async def end(self, id: int) -> None:
        """No more requests for it; what it has done can still be asked. Harmless a second time."""
        rule = self._rules.pop(id, None)
        if rule is not None:
            self._used_up[id] = rule
            self._interpose()

    async def remove(self, id: Any = None) -> int:
        """Removes one, without an id all; how many there were. TestKitError: there is none of this id."""
        if id is None:
            count = len(self._rules) + len(self._used_up)
            self._rules.clear()
            self._used_up.clear()
        else:
            number = self._rule(id).id
            self._rules.pop(number, None)
            self._used_up.pop(number, None)
            count = 1
        self._interpose()
        return count

    async def wait(self, id: Any, count: int = 1, timeout: float = 30.0) -> int:
        """How often it has fired, once that is `count`. TestKitError: not within `timeout` seconds."""
        import asyncio

        rule = self._rule(id)
        if rule.fired < count:
            fired = asyncio.Event()
            waiting = self._waiting.setdefault(rule.id, [])
            entry = (count, fired.set)
            waiting.append(entry)
            try:
                await asyncio.wait_for(fired.wait(), timeout)
            except TimeoutError:
                raise TestKitError(
                    f"waited {timeout:g} s for a fault to fire {_times(count)}: it fired "
                    f"{_times(rule.fired)}, at {rule.seen} requests that it is for"
                ) from None
            finally:
                if entry in waiting:
                    waiting.remove(entry)
        return rule.fired

    def _rule(self, id: Any) -> Rule:
        number = int(id) if isinstance(id, str) and id.isdecimal() else id
        rule = self._rules.get(number) or self._used_up.get(number)
        if rule is None:
            raise TestKitError(f"there is no fault {id!r}")
        return rule

    def _interpose(self) -> None:
        keys = {key for rule in self._rules.values() for key in rule.api_keys}
        self._kit.interposing.put(self, keys | {key for key, count in self._cutting.items() if count})

    # Requests

    def serve(self, api: AnyApi, request: Any, context: RequestContext, proceed: Proceed) -> Any:
        """See `Interposer`."""
        if context.api_key == FETCH and any(rule.is_about_parts for rule in self._of(FETCH)):
            refusal = _without_session(request)
            if refusal is not None:
                return refusal
        view = self._kit.server.cluster_view
        for rule in self._of(context.api_key):
            place = rule.place(api, context.api_version)
            if rule.action.error is not None and place is None:
                continue
            matched = rule.found_in(request, context, view.topic_names)
            if matched is None and context.api_key == METADATA and request.topics is None:
                matched = _in_whole_cluster(rule, view.topics)
            if matched is not None and rule.fires():
                self._tell(rule)
                return self._carry_out(rule.action, place, matched, api, request, context, proceed)
        return proceed(request, context)

    def _of(self, api_key: int) -> list[Rule]:
        return [rule for rule in self._rules.values() if api_key in rule.api_keys]

    def _tell(self, rule: Rule) -> None:
        """It has fired."""
        for count, tell in self._waiting.get(rule.id, ()):
            if rule.fired >= count:
                tell()
        if rule.is_used_up:
            self._used_up[rule.id] = self._rules.pop(rule.id)
            # Not from within a request of the API.
            self._timers.after(0, self._interpose)

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
            else:
                response = refuse(api, request, context, place, matched, action.error, proceed)
            return self._after(action, response, context)

        if not action.delay_ms:
            return act()
        _detach(request)
        return self._later(action.delay_ms, act)

    def _later(self, delay_ms: int, act: Callable[[], Any]) -> Waiting:
        """What `act` returns, after a while."""

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
        """What happens to a response."""
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
        self._timers.after(0, self._interpose)

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


def _check_number(name: str, value: Any, low: int) -> None:
    if value is not None and (not isinstance(value, int) or isinstance(value, bool) or value < low):
        raise TestKitError(f"{name} is a number from {low} on, not {value!r}")


def _check_action(action: Action) -> None:
    """TestKitError: it does nothing, or more than one thing."""
    given = action.told()
    kinds = [name for name in given if name not in ("delay_ms", "delay_after_ms")]
    if not given:
        raise TestKitError("a fault does something: give error, delay_ms, lose_response or another action")
    if len(kinds) > 1:
        raise TestKitError(f"a fault does one thing, not {' and '.join(kinds)}: add a fault for each")
    if action.never_respond and action.delay_after_ms:
        raise TestKitError("never_respond has no response that delay_after_ms could delay")


def _versions(given: Any) -> frozenset[int] | None:
    """A number, or several."""
    if given is None:
        return None
    found = [given] if isinstance(given, int) else list(given)
    if not found or not all(isinstance(one, int) and not isinstance(one, bool) for one in found):
        raise TestKitError(f"versions is a number or a list of numbers, not {given!r}")
    return frozenset(found)


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count} times"


def _without_session(request: Any) -> Any:
    """Makes a fetch one without a session. The response that ends its session, if it has one."""
    if request.session_id:
        return FetchResponse(error_code=ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
    request.session_epoch = FULL_FETCH
    return None


def _in_whole_cluster(rule: Rule, topics: Mapping[str, Any]) -> list[Named] | None:
    """A request for all topics names each of them."""
    wanted = rule.names.get(TOPIC)
    found = [
        Named({**rule.names, TOPIC: name}, (), ()) for name in topics if wanted is None or name == wanted
    ]
    return found or None


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
