"""The section `odradek` in the report of a failed test: topics with the number of their records, groups with
their lag, the last requests if they are recorded, and the log since the test began."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from odradek.embedding.embedded import Broker

LOG_CHARACTERS_MAX = 8_000
LINES_MAX = 50
"""Topics, and groups."""
REQUESTS_SHOWN = 20
LINE_CHARACTERS_MAX = 300
CALL_SECONDS = 5.0
"""A broker that hangs does not hold up the report for longer."""


def section(brokers: Iterable[tuple[Broker, int]]) -> str:
    """The text for these brokers; of each with the length of its log when the test began."""
    return "\n\n".join("\n".join(_lines(broker, log_begin)) for broker, log_begin in brokers)


def _lines(broker: Broker, log_begin: int) -> Iterator[str]:
    yield repr(broker)
    for part in (_topics, _groups, _requests):
        yield from _asked(broker, part)
    log = broker.log()[log_begin:].rstrip()
    if log:
        yield "log since the test began:"
        if len(log) > LOG_CHARACTERS_MAX:
            yield f"  ({len(log) - LOG_CHARACTERS_MAX} characters before are left out)"
        yield from (f"  {line}" for line in log[-LOG_CHARACTERS_MAX:].splitlines())


def _asked(broker: Broker, part: Callable[[Broker], list[str]]) -> list[str]:
    """Nothing of a broker that does not answer, for whatever reason: the test's own failure matters more."""
    if not broker.is_running:
        return []
    try:
        return [line[:LINE_CHARACTERS_MAX] for line in part(broker)]
    except Exception as error:
        return [f"{part.__name__.strip('_')}: not known ({type(error).__name__}: {error})"]


def _topics(broker: Broker) -> list[str]:
    topics = broker.call_kit("state.topics", {}, CALL_SECONDS)
    return _listed(
        "topics",
        [
            f"{one['topic']}: {_number(one['partitions'], 'partition')}, {_number(one['offsets'], 'offset')}"
            for one in topics
        ],
    )


def _groups(broker: Broker) -> list[str]:
    groups = broker.call_kit("state.groups", {}, CALL_SECONDS)
    return _listed(
        "groups",
        [
            f"{one['group']}: {one['state']}, {_number(len(one['members']), 'member')}, lag {one['lag']}"
            for one in groups
        ],
    )


def _requests(broker: Broker) -> list[str]:
    if not broker.call_kit("requests.status", {}, CALL_SECONDS)["recording"]:
        return []
    result = broker.call_kit("requests.all", {"limit": REQUESTS_SHOWN}, CALL_SECONDS)
    return _listed(f"last {REQUESTS_SHOWN} requests", [_request(one) for one in result["requests"]])


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


def _listed(heading: str, lines: list[str]) -> list[str]:
    if not lines:
        return [f"{heading}: none"]
    more = len(lines) - LINES_MAX
    shown = [f"  {line}" for line in lines[:LINES_MAX]]
    return [f"{heading}:", *shown, *([f"  and {more} more"] if more > 0 else [])]
