"""The section `odradek` in the report of a failed test: topics with the number of their records, groups with
their lag, faults, the last requests, and the log since the test began."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from odradek.embedding.pytest_markers import Watch

LOG_CHARACTERS_MAX = 8_000
LINES_MAX = 50
"""Topics, and groups."""
LINE_CHARACTERS_MAX = 300
CALL_SECONDS = 5.0
"""A broker that hangs does not hold up the report for longer."""


def section(watches: Iterable[Watch]) -> str:
    """The text for these brokers and nodes."""
    return "\n\n".join("\n".join(_lines(watch)) for watch in watches)


def _lines(watch: Watch) -> Iterator[str]:
    yield repr(watch.broker)
    yield from _asked(watch)
    log = watch.log()[watch.log_begin :].rstrip()
    if log:
        yield "log since the test began:"
        if len(log) > LOG_CHARACTERS_MAX:
            yield f"  ({len(log) - LOG_CHARACTERS_MAX} characters before are left out)"
        yield from (f"  {line}" for line in log[-LOG_CHARACTERS_MAX:].splitlines())


def _asked(watch: Watch) -> Iterator[str]:
    """Nothing of a broker that does not answer, for whatever reason: the test's own failure matters more."""
    if not watch.broker.is_running:
        return
    if watch.is_paused:
        yield "it is paused, and says nothing"
        return
    for part in (_topics, _groups, _faults, _requests):
        try:
            yield from [line[:LINE_CHARACTERS_MAX] for line in part(watch)]
        except TimeoutError:
            yield f"it has not answered within {CALL_SECONDS:g} s"
            return
        except Exception as error:
            yield f"{part.__name__.strip('_')}: not known ({type(error).__name__}: {error})"


def _topics(watch: Watch) -> list[str]:
    topics = watch.broker.call_kit("state.topics", {}, CALL_SECONDS)
    return _listed(
        "topics",
        [
            f"{one['topic']}: {_number(one['partitions'], 'partition')}, {_number(one['offsets'], 'offset')}"
            for one in topics
        ],
    )


def _groups(watch: Watch) -> list[str]:
    groups = watch.broker.call_kit("state.groups", {}, CALL_SECONDS)
    return _listed(
        "groups",
        [
            f"{one['group']}: {one['state']}, {_number(len(one['members']), 'member')}, lag {one['lag']}"
            for one in groups
        ],
    )


def _faults(watch: Watch) -> list[str]:
    """Faults of the test and of fixtures, with how often each has fired since the test began."""
    faults = watch.broker.call_kit("faults.all", {}, CALL_SECONDS)
    lines = [_fault(one, watch.fired_before.get(one["id"], 0)) for one in faults]
    return _listed("faults", lines) if lines else []


def _fault(one: dict[str, Any], fired_before: int) -> str:
    given = [f"{name}={value!r}" for name, value in one.items() if name not in ("id", "seen", "fired")]
    fired = one["fired"] - fired_before
    ending = (
        "has never fired" if not fired else "has fired once" if fired == 1 else f"has fired {fired} times"
    )
    return f"{', '.join(given)}: {ending}"


def _requests(watch: Watch) -> list[str]:
    requests = watch.broker.call_kit("requests.last", {"since": watch.since}, CALL_SECONDS)
    if requests is None:
        return []
    heading = "last request" if watch.requests_kept == 1 else f"last {watch.requests_kept} requests"
    return _listed(heading, [_request(one) for one in requests], watch.requests_kept)


def _request(one: dict[str, Any]) -> str:
    errors = sorted(set(_error_names(one["response"])))
    ending = one["outcome"]
    if one["duration_ms"] is not None:
        ending += f" after {one['duration_ms']:g} ms"
    if errors:
        ending += f" with {', '.join(errors)}"
    topics = f" {', '.join(one['topics'])}" if one["topics"] else ""
    return f"#{one['number']} {one['api']} {one['version']}{topics} of {one['client_id']!r}: {ending}"


def _error_names(value: Any) -> Iterator[str]:
    """Names of the error codes in a response, but NONE."""
    if isinstance(value, list):
        for one in value:
            yield from _error_names(one)
    elif isinstance(value, dict):
        for name, one in value.items():
            if name.endswith("error_code_name") and one != "NONE":
                yield one
            else:
                yield from _error_names(one)


def _number(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def _listed(heading: str, lines: list[str], lines_max: int = LINES_MAX) -> list[str]:
    if not lines:
        return [f"{heading}: none"]
    more = len(lines) - lines_max
    shown = [f"  {line}" for line in lines[:lines_max]]
    return [f"{heading}:", *shown, *([f"  and {more} more"] if more > 0 else [])]
