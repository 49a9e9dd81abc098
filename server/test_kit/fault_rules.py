"""A fault: which requests it is for, how often, and what happens to them.

A fault that can never fire is refused when it is made, in one sentence.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from odradek.server.test_kit.kit import TestKitError
from odradek.server.test_kit.named import (
    GROUP,
    KINDS,
    PARTITION,
    TOPIC,
    TOPIC_ID,
    TRANSACTIONAL_ID,
    Named,
    Place,
    error_places,
    kinds_named,
)
from odradek.server.test_kit.response_fields import check_fields
from odradek.wire.errors import ErrorCode
from odradek.wire.messages import api_name
from odradek.wire.throttle import has_throttle_time

if TYPE_CHECKING:
    from odradek.apis.api import RequestContext
    from odradek.apis.declaration import AnyApi

Predicate = Callable[[Any, "RequestContext"], object]
"""Takes a decoded request and its context; whether the fault is for it."""
Respond = Callable[[Any, "RequestContext"], Any]
"""Takes the same; the response, or None: the broker is to serve it."""
ChangeResponse = Callable[[Any, "RequestContext"], object]
"""Takes a response, which it changes, and the context of its request."""

OF_LEADERS = ("Produce", "Fetch", "ListOffsets", "OffsetForLeaderEpoch", "DeleteRecords")
"""Requests that a broker refuses where it does not lead."""
OF_COORDINATORS = (
    *("JoinGroup", "SyncGroup", "Heartbeat", "LeaveGroup", "OffsetCommit", "OffsetFetch", "OffsetDelete"),
    *("ConsumerGroupHeartbeat", "StreamsGroupHeartbeat", "ShareGroupHeartbeat", "TxnOffsetCommit"),
    *("InitProducerId", "AddPartitionsToTxn", "AddOffsetsToTxn", "EndTxn"),
)
"""Requests that a broker refuses where it does not coordinate the group or the transaction."""
MOVED = {
    "leader_moved": ("NOT_LEADER_OR_FOLLOWER", OF_LEADERS),
    "coordinator_moved": ("NOT_COORDINATOR", OF_COORDINATORS),
}
"""On a broker alone: the error, and the requests that can have it."""


@dataclass(frozen=True, kw_only=True)
class Action:
    """Fate of a request: exactly one of those before the delays, or delays alone."""

    error: ErrorCode | None = None
    """The response says it, and there is no effect."""
    lose_response: bool = False
    """The effect happens, then the connection is closed in place of the response."""
    cut_response_after_bytes: int | None = None
    """The effect happens, then the connection is closed after so many bytes of the response."""
    never_respond: bool = False
    """No effect and no response; the connection stays open."""
    disconnect: bool = False
    """No effect, and the connection is closed."""
    throttle_ms: int | None = None
    """The response says so, and the connection is not read for so long."""
    respond: Respond | None = None
    """Makes the response in place of the broker; no effect."""
    change_response: ChangeResponse | None = None
    """The effect happens; changes the response."""
    response_fields: Mapping[str, Any] | None = None
    """The effect happens; sets fields of the response by their paths."""
    delay_ms: int | None = None
    """Before the effect."""
    delay_after_ms: int | None = None
    """After the effect, before the response."""
    hold: bool = False
    """Before the effect, until the fault is released."""
    hold_response: bool = False
    """After the effect, until then."""

    def told(self) -> dict[str, Any]:
        """Itself, by the names of the arguments."""
        found = {name: value for name, value in vars(self).items() if is_given(value)}
        if self.error is not None:
            found["error"] = self.error.name
        for name in FUNCTIONS:
            if name in found:
                found[name] = getattr(found[name], "__name__", "a function")
        return found


@dataclass(kw_only=True, eq=False)
class Firing:
    """How often a fault fires."""

    id: int
    every: int = 1
    probability: float = 1.0
    seed: int = 0
    times: int | None = None
    """None: as often as it can."""
    seen: int = 0
    """Requests that it was for, or whatever else it is for."""
    fired: int = 0

    def __post_init__(self) -> None:
        self._random = random.Random(self.seed)

    @property
    def is_used_up(self) -> bool:
        return self.times is not None and self.fired >= self.times

    def fires(self) -> bool:
        """Counts what it is for; whether it fires."""
        self.seen += 1
        if self.is_used_up or self.seen % self.every:
            return False
        if self.probability < 1 and self._random.random() >= self.probability:
            return False
        self.fired += 1
        return True

    def about(self) -> dict[str, Any]:
        """Requests that it is for, and their fate, by the names of the arguments."""
        return {}

    def told(self) -> dict[str, Any]:
        """Itself, as JSON has it."""
        found = {"id": self.id, **self.about()}
        if self.times is not None:
            found["times"] = self.times
        if self.every > 1:
            found["every"] = self.every
        if self.probability < 1:
            found |= {"probability": self.probability, "seed": self.seed}
        return {**found, "seen": self.seen, "fired": self.fired}


@dataclass(kw_only=True, eq=False)
class Rule(Firing):
    """A fault of requests."""

    api_keys: frozenset[int]
    api: str | None
    action: Action
    versions: Collection[int] | None = None
    client_id: str | None = None
    principal: str | None = None
    names: Mapping[str, Any] = field(default_factory=dict)
    """By `KINDS`."""
    predicate: Predicate | None = None

    @property
    def is_about_parts(self) -> bool:
        """Whether it is about topics or partitions of a request, and not about all of it."""
        return TOPIC in self.names or PARTITION in self.names

    def place(self, api: AnyApi, version: int) -> Place | None:
        """Where the response has the error; None: nowhere in this version."""
        wanted = {kind for kind in (TOPIC, PARTITION) if kind in self.names}
        places = error_places(api.response, version)
        if not any(wanted <= _by_names(place) for place in places):
            wanted = set()
        return next((place for place in places if wanted <= _by_names(place)), None)

    def found_in(
        self, named: Sequence[Named], request: Any, context: RequestContext, topic_names: Mapping[bytes, str]
    ) -> list[Named]:
        """Parts of the request, which names these, that the fault is about; none: it is not for it."""
        if self.versions is not None and context.api_version not in self.versions:
            return []
        if self.client_id is not None and context.client_id != self.client_id:
            return []
        if self.principal is not None and context.connection.principal != self.principal:
            return []
        found = [one for one in named if self._is_about(one.values, topic_names)]
        if not found or (self.predicate is not None and not self.predicate(request, context)):
            return []
        return found

    def _is_about(self, values: Mapping[str, Any], topic_names: Mapping[bytes, str]) -> bool:
        for kind, value in self.names.items():
            if values.get(kind) == value:
                continue
            if kind != TOPIC or topic_names.get(values.get(TOPIC_ID, b"")) != value:
                return False
        return True

    def about(self) -> dict[str, Any]:
        found: dict[str, Any] = {} if self.api is None else {"api": self.api}
        for name in ("client_id", "principal"):
            if getattr(self, name) is not None:
                found[name] = getattr(self, name)
        if self.versions is not None:
            found["version"] = sorted(self.versions)
        return {**found, **self.names, **self.action.told()}


def _by_names(place: Place) -> set[str]:
    return {TOPIC if kind == TOPIC_ID else kind for kind in place.kinds}


# Making one


def is_given(value: Any) -> bool:
    """Whether an argument says something."""
    return value is not None and value is not False


def keys_of(api: str | None, served: Collection[int]) -> frozenset[int]:
    """The keys of the API of this name, or of all that are served."""
    if api is None:
        return frozenset(served)
    found = [key for key in served if api_name(key) == api]
    if not found:
        known = ", ".join(sorted(api_name(key) for key in served))
        raise TestKitError(f"there is no API {api!r}; there are {known}")
    return frozenset(found)


def able(
    apis: Collection[AnyApi], action: Action, wanted: Mapping[str, Any], versions: Collection[int] | None
) -> frozenset[int]:
    """The keys of those APIs for which such a fault can fire. TestKitError: for none."""
    reason = ""
    found = set()
    for api in apis:
        why_not = _why_not(api, action, wanted, versions)
        if why_not is None:
            found.add(api.request.api_key)
        reason = reason or why_not or ""
    if not found:
        raise TestKitError(reason)
    return frozenset(found)


def _why_not(
    api: AnyApi, action: Action, wanted: Mapping[str, Any], versions: Collection[int] | None
) -> str | None:
    name = api_name(api.request.api_key)
    named = {TOPIC if kind == TOPIC_ID else kind for kind in kinds_named(api.request)}
    missing = [kind for kind in KINDS if kind in wanted and kind not in named]
    if missing:
        return f"{name} names no {_word(missing[0])}, so the fault could never fire"
    served = [version for version in api.versions if versions is None or version in versions]
    if not served:
        first, last = api.versions[0], api.versions[-1]
        return f"{name} is served in the versions {first} to {last}, so the fault could never fire"
    if action.error is not None and not any(error_places(api.response, version) for version in served):
        return f"the response of {name} has no place for an error in these versions"
    if action.response_fields is not None:
        why_not = check_fields(api.response, action.response_fields)
        if why_not is not None:
            return why_not
    if action.throttle_ms is not None and not has_throttle_time(api.response):
        return f"the response of {name} has no throttle time"
    return None


def _word(kind: str) -> str:
    return kind.replace("_", " ")


def error_named(name: str | None) -> ErrorCode | None:
    """The error of this name. TestKitError: there is none, or it says that all is well."""
    if name is None:
        return None
    found = ErrorCode.__members__.get(name.upper())
    if found is None:
        close = ", ".join(_similar(name.upper(), ErrorCode.__members__))
        raise TestKitError(f"there is no error {name!r}" + (f"; did you mean {close}?" if close else ""))
    if found is ErrorCode.NONE:
        raise TestKitError("NONE is not an error")
    return found


def _similar(name: str, known: Collection[str]) -> list[str]:
    from difflib import get_close_matches

    return get_close_matches(name, list(known), n=3)


OFTEN = ("every", "probability", "seed", "times")
REQUESTS = "requests"
OTHER_KINDS = ("refuse_connection", "fail_login", "disk_error")
FUNCTIONS = ("respond", "change_response")
PAUSES = ("delay_ms", "delay_after_ms", "hold", "hold_response")
"""Actions that may stand beside another one."""
ACTIONS = (
    *("lose_response", "cut_response_after_bytes", "never_respond", "disconnect", "throttle_ms"),
    *FUNCTIONS,
    "response_fields",
    *PAUSES,
)
_NUMBERS = {
    **dict.fromkeys(("every", "times"), 1),
    **dict.fromkeys(("cut_response_after_bytes", "throttle_ms", "delay_ms", "delay_after_ms", PARTITION), 0),
}
"""The least of each."""
_TEXTS = (
    *("api", "client_id", "principal", TOPIC, GROUP, TRANSACTIONAL_ID, "error"),
    *("listener", "directory", "disk_error"),
)
_OF_REQUESTS = {*("api", "version", "client_id", "principal", *KINDS, "predicate", "error", *MOVED, *ACTIONS)}
_TAKEN = {
    REQUESTS: _OF_REQUESTS,
    "refuse_connection": {"refuse_connection", "listener"},
    "fail_login": {"fail_login", "principal"},
    "disk_error": {"disk_error", "directory", TOPIC, PARTITION},
}
"""The arguments that say what a fault is for and does, by its kind."""


def check_values(given: Mapping[str, Any]) -> None:
    """TestKitError: a text is none, or a number is none or too small."""
    for name in _TEXTS:
        if not isinstance(given.get(name, ""), str):
            raise TestKitError(f"{name} is a text, not {given[name]!r}")
    for name, low in _NUMBERS.items():
        value = given.get(name, low)
        if not isinstance(value, int) or isinstance(value, bool) or value < low:
            raise TestKitError(f"{name} is a number from {low} on, not {value!r}")
    for name in ("predicate", *FUNCTIONS):
        if name in given and not callable(given[name]):
            raise TestKitError(f"{name} is a function, not {given[name]!r}")
    probability = given.get("probability", 1.0)
    if not isinstance(probability, int | float) or not 0 < probability <= 1:
        raise TestKitError(f"probability is more than 0 and at most 1, not {probability!r}")


def check_arguments(kind: str, given: Mapping[str, Any]) -> None:
    """TestKitError: a fault of this kind has no such argument."""
    wrong = [name for name in given if name not in _TAKEN[kind]]
    if not wrong:
        return
    if kind == REQUESTS:
        known = ", ".join(sorted(_OF_REQUESTS))
        raise TestKitError(f"a fault of requests has no {wrong[0]}; it has {known}")
    raise TestKitError(f"{kind} cannot be combined with {wrong[0]}")


def check_action(action: Action) -> None:
    """TestKitError: it does nothing, or more than one thing."""
    given = action.told()
    kinds = [name for name in given if name not in PAUSES]
    if not given:
        raise TestKitError("a fault does something: give error, delay_ms, lose_response or another action")
    if len(kinds) > 1:
        raise TestKitError(f"a fault does one thing, not {' and '.join(kinds)}: add a fault for each")
    for kind in ("never_respond", "disconnect"):
        for pause in ("delay_after_ms", "hold_response"):
            if kind in given and pause in given:
                raise TestKitError(f"{kind} has no response that {pause} could delay")


def versions_of(given: Any) -> frozenset[int] | None:
    """A number, or several."""
    if given is None:
        return None
    found = list(given) if isinstance(given, list | tuple) else [given]
    if not found or not all(isinstance(one, int) and not isinstance(one, bool) for one in found):
        raise TestKitError(f"version is a number or a list of numbers, not {given!r}")
    return frozenset(found)
