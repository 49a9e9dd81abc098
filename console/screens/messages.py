"""The messages of a topic: filters, and a search that says how far it has come and goes on."""

from collections.abc import Mapping
from dataclasses import dataclass

from starlette.responses import Response

from odradek.client.client_error import ClientError
from odradek.client.cluster import Cluster, UnknownTopic
from odradek.commands.reading_range import Range, parse_range
from odradek.console.contents import FORMS, Contents
from odradek.console.exporting import KINDS
from odradek.console.filters import HOWS, chooser
from odradek.console.rendering import link
from odradek.console.screens.partitions import described
from odradek.console.search import Step, Wanted, search
from odradek.console.visit import Screen, Visit
from odradek.wire.errors import ErrorCode

ROWS = (25, 50, 100, 200)
ROWS_DEFAULT = 50
PARTITIONS_MAX = 2_000
"""Most partitions of one search: its places stand in a URL."""
ORDERS = ("newest", "oldest")
FIELDS = (
    *("from", "until", "partition", "key", "key_how", "value", "value_how", "header"),
    *("order", "rows", "as", "uncommitted", "keep"),
)
"""Fields of the form, which each link of the page keeps."""


@dataclass(frozen=True, slots=True)
class Found:
    """Records of one page."""

    step: Step
    total: int
    """Offsets within the bounds."""
    next_url: str | None
    """Where the search goes on; None at its end."""
    hits_before: int

    @property
    def searched(self) -> int:
        """Offsets that this step and those before it have passed."""
        return self.total - self.step.left

    @property
    def share(self) -> float:
        """How far the search has come, from 0 to 1."""
        return 1.0 if not self.total else self.searched / self.total


async def show(visit: Visit) -> Response:
    """The filters, and the first or next records that they choose."""
    topic = visit.segment("topic")
    query = {name: visit.text(name) for name in FIELDS}

    def found(cluster: Cluster) -> Found:
        contents = Contents(query["as"], topic, schemas=visit.settings.schemas)
        hits_before = visit.whole("hits", 0, 0, 10**9)
        return _found(cluster, topic, query, visit.text("at"), hits_before, visit.now_ms, contents)

    part = await visit.part(found)
    next_url = (part.value.next_url or "") if part.value else ""
    # Without scripts, too, a search that has found nothing yet goes on by itself.
    is_searching = bool(next_url and part.value and not part.value.step.hits and query["keep"] == "1")
    return visit.page(
        "messages.html",
        topic=topic,
        query=query,
        found=part,
        is_search=bool(query["key"] or query["value"] or query["header"]),
        refresh=next_url if is_searching else "",
        keep_url=next_url.replace("&keep=1", "") + "&keep=1",
        stop_url=next_url.replace("&keep=1", ""),
        hows=HOWS,
        kinds=KINDS,
        forms=FORMS,
        rows=ROWS,
        row_count=row_count(query),
        tail_url=link(f"/topics/{topic}/tail", **{name: query[name] for name in FIELDS}),
    )


def _found(
    cluster: Cluster,
    topic: str,
    query: Mapping[str, str],
    at: str,
    hits_before: int,
    now_ms: int,
    contents: Contents,
) -> Found:
    bounds = bounds_of(cluster, topic, query, now_ms)
    is_newest_first = query["order"] != "oldest"
    firsts = {number: end if is_newest_first else start for number, (start, end) in bounds.items()}
    positions = _within(parse_positions(at), bounds) if at else firsts
    wanted = Wanted(
        topic=topic,
        bounds=bounds,
        positions=positions,
        is_newest_first=is_newest_first,
        limit=row_count(query),
        chooses=chooser(query),
        contents=contents,
        read_committed=query["uncommitted"] != "1",
    )
    step = search(cluster, wanted)
    total = sum(end - start for start, end in bounds.values())
    next_url = None
    if step.left:
        places = positions_text(step.positions)
        next_url = link(
            f"/topics/{topic}/messages", **query, at=places, hits=hits_before + len(step.hits) or None
        )
    return Found(step, total, next_url, hits_before)


def row_count(query: Mapping[str, str]) -> int:
    """Rows of a page, one of `ROWS`."""
    text = query["rows"]
    return int(text) if text in map(str, ROWS) else ROWS_DEFAULT


def bounds_of(
    cluster: Cluster, topic: str, query: Mapping[str, str], now_ms: int
) -> dict[int, tuple[int, int]]:
    """The offsets that the fields from, until and partition leave, by partition. ClientError."""
    description = described(cluster, topic)
    numbers = [one.partition for one in description.partitions if one.leader >= 0]
    chosen = _numbers(query["partition"], topic, len(description.partitions))
    if chosen is not None:
        numbers = [number for number in numbers if number in chosen]
    if len(numbers) > PARTITIONS_MAX:
        raise ClientError(f"topic {topic} has {len(numbers):,} partitions: choose some, such as 0-99")
    keys = [(topic, number) for number in numbers]
    found = _range(query, now_ms).bounds(
        cluster, keys, {}, read_committed=query["uncommitted"] != "1", follows=False
    )
    bounds: dict[int, tuple[int, int]] = {}
    for (_, number), (start, end) in found.items():
        assert end is not None
        bounds[number] = start, max(start, end)
    return bounds


def _range(query: Mapping[str, str], now_ms: int) -> Range:
    start, until = query["from"], query["until"]
    found = parse_range([start] if start else [], until or None, now_ms)
    if "stored" in (found.start.kind, found.end.kind if found.end else ""):
        raise ClientError(f"{start} is a place of a group: give a time, an offset, start or end")
    return found


def _numbers(text: str, topic: str, count: int) -> set[int] | None:
    """`0,2-4`; None: all."""
    if not text or text == "all":
        return None
    chosen: set[int] = set()
    for part in text.replace(" ", "").split(","):
        first, hyphen, last = part.partition("-")
        if not _is_number(first) or (hyphen and not _is_number(last)):
            raise ClientError(f"the partitions {text!r} are not understood: 0, 0,2 or 0-3")
        chosen.update(range(int(first), min(int(last or first), count) + 1))
    unknown = [number for number in chosen if number >= count]
    if not chosen or (len(unknown) == len(chosen)):
        code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        raise UnknownTopic(f"topic {topic} has {count} partitions, counted from 0", code)
    return chosen


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdecimal() and len(text) <= 9


def positions_text(positions: Mapping[int, int]) -> str:
    """Places of partitions for a URL: `0-123.1-456`."""
    return ".".join(f"{number}-{offset}" for number, offset in sorted(positions.items()))


def parse_positions(text: str) -> dict[int, int]:
    """The places of `positions_text`. ClientError."""
    found = {}
    for part in text.split("."):
        number, _, offset = part.partition("-")
        if not _is_number(number) or not (offset.isascii() and offset.isdecimal() and len(offset) <= 19):
            raise ClientError(f"the places {text[:80]!r} of this URL are not understood")
        found[int(number)] = int(offset)
    return found


def _within(positions: Mapping[int, int], bounds: Mapping[int, tuple[int, int]]) -> dict[int, int]:
    """Places of the partitions that are there, within what they have."""
    return {
        number: min(max(positions[number], start), end)
        for number, (start, end) in bounds.items()
        if number in positions
    }


SCREENS = [Screen("/topics/{topic}", show), Screen("/topics/{topic}/messages", show)]
