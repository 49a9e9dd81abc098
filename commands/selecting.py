"""Topics, partitions, offsets and times, as people write them."""

import re
from collections.abc import Callable, Collection, Iterable

from odradek.client.admin.asking import Refused
from odradek.client.client_error import ClientError
from odradek.client.cluster import TopicPartition

_UNITS_MS = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}


def matching(names: Iterable[str], patterns: Collection[str]) -> list[str]:
    """Names that one of the patterns matches, sorted; without patterns all. A pattern is a whole name or one
    with `*`, or `/.../` around a regular expression, which may match a part."""
    if not patterns:
        return sorted(names)
    tests = [_test_of(pattern) for pattern in patterns]
    return sorted(name for name in names if any(test(name) for test in tests))


def named(names: Collection[str], patterns: Collection[str], what: str) -> list[str]:
    """Names as from `matching`; ClientError for a pattern that names none."""
    found, missing = named_and_missing(names, patterns, what)
    for one in missing:
        raise one.error
    return found


def named_and_missing(
    names: Collection[str], patterns: Collection[str], what: str
) -> tuple[list[str], list[Refused]]:
    """Names as from `matching`, and a refusal of each pattern that names none."""
    missing = [
        Refused(pattern, ClientError(no_such(what, pattern)))
        for pattern in dict.fromkeys(patterns)
        if not matching(names, [pattern])
    ]
    return matching(names, patterns) if patterns else [], missing


def no_such(what: str, pattern: str) -> str:
    """The sentence for a name or a pattern that names nothing; `what` is as in "topic"."""
    return f"no {what} matches {pattern}" if is_pattern(pattern) else f"{what} {pattern} does not exist"


def is_pattern(text: str) -> bool:
    """Whether it may match other names than itself."""
    return "*" in text or _is_expression(text)


def _is_expression(text: str) -> bool:
    return len(text) > 1 and text.startswith("/") and text.endswith("/")


def _test_of(pattern: str) -> Callable[[str], object]:
    if _is_expression(pattern):
        try:
            return re.compile(pattern[1:-1]).search
        except re.error as error:
            raise ClientError(f"the pattern {pattern} is not a regular expression: {error}") from None
    return re.compile(".*".join(map(re.escape, pattern.split("*"))), re.DOTALL).fullmatch


def parse_partition(text: str) -> TopicPartition:
    """`TOPIC:PARTITION`."""
    topic, colon, number = text.rpartition(":")
    if not colon or not topic or not re.fullmatch(r"[0-9]{1,9}", number):
        raise ClientError(f"{text!r} is not TOPIC:PARTITION")
    return topic, int(number)


def parse_whole(text: str, what: str, least: int = 0, most: int = 2**63 - 1) -> int:
    """A whole number within bounds; `what` begins the sentence of a ClientError."""
    if not re.fullmatch(r"[+-]?[0-9]{1,19}", text) or not least <= int(text) <= most:
        raise ClientError(f"{what} is {text!r}: it has to be a whole number from {least} to {most}")
    return int(text)


def parse_seconds(text: str, what: str) -> float:
    """Seconds above 0, of a year at most; `what` begins the sentence of a ClientError."""
    if not re.fullmatch(r"[0-9]{1,8}(\.[0-9]{1,6})?", text) or not 0 < float(text) <= 366 * 86_400:
        raise ClientError(f"{what} is {text!r}: it has to be a number of seconds above 0")
    return float(text)


def parse_time_ms(text: str, now_ms: int) -> int:
    """Milliseconds since 1970: of a number (that), `-1h` (before now: ms, s, m, h, d), or a time in ISO 8601
    (local without a zone). ClientError for anything else."""
    if re.fullmatch(r"[0-9]{1,18}", text):
        return int(text)
    ago = re.fullmatch(r"-([0-9]{1,12}(?:\.[0-9]{1,6})?)(ms|s|m|h|d)", text)
    if ago:
        return max(0, now_ms - round(float(ago[1]) * _UNITS_MS[ago[2]]))
    from datetime import datetime

    try:
        if text.isdecimal():
            raise ValueError("more milliseconds than time has")
        return max(0, round(datetime.fromisoformat(text).timestamp() * 1000))
    except (ValueError, OverflowError, OSError):
        raise ClientError(
            f"the time {text!r} is not understood: -90m, 2026-11-27, 2026-11-27T09:00:00+01:00, or "
            "milliseconds since 1970"
        ) from None
