"""Where reading begins and ends, as people write it: the forms of kcat and of rpk.

found = parse_range(["@-2h:-1h"], None, now_ms)
bounds = found.bounds(cluster, [("orders", 0)], {}, read_committed=True, follows=False)
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from odradek.client.client_error import ClientError
from odradek.client.cluster import EARLIEST, LATEST, Cluster, TopicPartition
from odradek.client.reading import Bounds
from odradek.commands.selecting import parse_time_ms

_NAMES = {
    "beginning": "earliest",
    "start": "earliest",
    "earliest": "earliest",
    "end": "latest",
    "latest": "latest",
    "stored": "stored",
}
SECONDS_DIGITS = (9, 10)
"""A time of so many digits is in seconds, as for rpk; 13 digits are milliseconds."""


class Place(NamedTuple):
    """A place in every partition: "earliest", "latest", "stored" (what the group has committed), or with a
    number "offset", "after_start", "before_end", "time" (ms)."""

    kind: str
    number: int = 0


class Range(NamedTuple):
    """From `start` on, before `end`; None is where reading ends by itself."""

    start: Place
    end: Place | None

    def bounds(
        self,
        cluster: Cluster,
        partitions: Sequence[TopicPartition],
        stored: Mapping[TopicPartition, int],
        *,
        read_committed: bool,
        follows: bool,
    ) -> dict[TopicPartition, Bounds]:
        """Offsets of each partition, within what its log has; `stored` are the commits of the group. Without
        an end of its own a range ends at the present end of the log, or never if it `follows`."""
        if not partitions:
            return {}
        firsts = cluster.list_offsets(dict.fromkeys(partitions, EARLIEST))
        # Records may be deleted between the two responses.
        lasts = {
            key: max(firsts[key], last)
            for key, last in cluster.list_offsets(
                dict.fromkeys(partitions, LATEST), read_committed=read_committed
            ).items()
        }
        starts = _offsets(cluster, self.start, firsts, lasts, stored)
        starts = {key: min(max(starts[key], firsts[key]), lasts[key]) for key in partitions}
        if self.end is None:
            return {key: (starts[key], None if follows else lasts[key]) for key in partitions}
        if follows and self.end.kind == "offset":
            return {key: (starts[key], self.end.number) for key in partitions}
        ends = _offsets(cluster, self.end, firsts, lasts, stored)
        return {key: (starts[key], min(ends[key], lasts[key])) for key in partitions}


def _offsets(
    cluster: Cluster,
    place: Place,
    firsts: Mapping[TopicPartition, int],
    lasts: Mapping[TopicPartition, int],
    stored: Mapping[TopicPartition, int],
) -> dict[TopicPartition, int]:
    if place.kind == "time":
        found = cluster.list_offsets(dict.fromkeys(firsts, place.number))
        return {key: found[key] if found[key] >= 0 else lasts[key] for key in firsts}
    if place.kind == "stored":
        return {key: stored.get(key, first) for key, first in firsts.items()}
    if place.kind in ("latest", "before_end"):
        return {key: last - place.number for key, last in lasts.items()}
    if place.kind == "offset":
        return dict.fromkeys(firsts, place.number)
    return {key: first + place.number for key, first in firsts.items()}


def parse_range(texts: Sequence[str], until: str | None, now_ms: int, default: str = "earliest") -> Range:
    """Range from the values of `-o`, of which a later one rules, and from `--until`."""
    start, end = Place(default), None
    for text in texts:
        first, last = _parse(text, now_ms)
        start, end = first or start, last or end
    if until is not None:
        end = _until(until, now_ms)
    return Range(start, end)


def _parse(text: str, now_ms: int) -> tuple[Place | None, Place | None]:
    if (kcat := re.fullmatch(r"([se])@(.+)", text)) is not None:
        moment = Place("time", _time_ms(kcat[2], now_ms))
        return (moment, None) if kcat[1] == "s" else (None, moment)
    if text.startswith("@"):
        return _times(text[1:], now_ms)
    place = _place(text, now_ms)
    if place is not None:
        return place, None
    first, colon, last = text.partition(":")
    if colon and (first or last):
        # An empty side is the start, or the end that there is.
        begins = _place(first or "start", now_ms)
        ends = _place(last or "end", now_ms)
        if begins is not None and ends is not None and "stored" not in (begins.kind, ends.kind):
            return begins, ends
    raise ClientError(
        f"-o {text} is not understood: start, end, 42, -10 (before the end), +10, 5:9, -1h, "
        "2026-11-27T09:00, @TIME:TIME, s@MS, e@MS or stored"
    )


def _times(text: str, now_ms: int) -> tuple[Place, Place | None]:
    """`TIME` or `TIME:TIME`; a time may have colons itself."""
    for first, last in _halves(text):
        try:
            start = Place("time", _time_ms(first, now_ms))
            end = None
            if last is not None:
                end = Place("latest") if last in ("", "end") else Place("time", _time_ms(last, now_ms))
            return start, end
        except ClientError:
            continue
    raise ClientError(f"-o @{text} is not understood: @TIME or @TIME:TIME, as @-2h:-1h")


def _halves(text: str) -> Iterator[tuple[str, str | None]]:
    yield text, None
    for position, character in enumerate(text):
        if character == ":":
            yield text[:position], text[position + 1 :]


def _place(text: str, now_ms: int) -> Place | None:
    if text in _NAMES:
        return Place(_NAMES[text])
    if re.fullmatch(r"[0-9]{1,18}", text):
        return Place("offset", int(text))
    if (counted := re.fullmatch(r"([+-])([0-9]{1,18})", text)) is not None:
        return Place("after_start" if counted[1] == "+" else "before_end", int(counted[2]))
    try:
        return Place("time", parse_time_ms(text, now_ms))
    except ClientError:
        return None


def _until(text: str, now_ms: int) -> Place:
    place = _place(text, now_ms)
    if place is None or place.kind == "stored":
        raise ClientError(f"--until {text} is not understood: an offset, end, -1h, or a time in ISO 8601")
    return place


def _time_ms(text: str, now_ms: int) -> int:
    if text.isdecimal() and len(text) in SECONDS_DIGITS:
        return int(text) * 1000
    return parse_time_ms(text, now_ms)
