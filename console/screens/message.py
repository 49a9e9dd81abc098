"""One message: its headers, key and value in each form, and its bytes as a file."""

from collections.abc import AsyncIterator, Sequence

from starlette.responses import PlainTextResponse, Response, StreamingResponse

from odradek.client.client_error import ClientError
from odradek.client.cluster import LATEST, Cluster
from odradek.client.reading import Reader
from odradek.client.stored_records import StoredBatch, batches_of
from odradek.commands.record_json import json_lines
from odradek.console.contents import (
    FORMS,
    WHOLE_CHARACTERS,
    Contents,
    Shown,
    header_texts,
    hex_lines,
    pretty,
)
from odradek.console.rendering import visible
from odradek.console.screens.messages import FIELDS
from odradek.console.visit import Screen, Visit
from odradek.wire.errors import ErrorCode
from odradek.wire.record_layout import Record

PARTS = ("key", "value")
OFFSET_MAX = 2**63 - 2
DIGITS_MAX = 40
TEXT_CHARACTERS = 1 << 20
"""Length of a key or value as plain text."""
PIECE_BYTES = 256 << 10
"""A file is handed over in pieces: the server copies what it sends."""


class Place:
    """A record's topic, partition and offset, from a path or a query."""

    def __init__(self, topic: str, partition: str, offset: str) -> None:
        """ClientError for numbers that no record has."""
        self.topic = topic
        if len(partition) > DIGITS_MAX or len(offset) > DIGITS_MAX:
            raise ClientError("there is no such offset", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        self.partition, self.offset = int(partition), int(offset)
        if self.partition >= 2**31 or self.offset > OFFSET_MAX:
            raise ClientError("there is no such offset", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)

    def read(self, cluster: Cluster) -> StoredBatch:
        """The record alone in its batch. ClientError if it is not there."""
        key = self.topic, self.partition
        end = cluster.list_offsets({key: LATEST})[key]
        if self.offset >= end:
            raise ClientError(
                f"partition {self.partition} of {self.topic} ends before offset {end}, "
                f"so there is no record {self.offset}",
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            )
        reader = Reader(cluster, {key: (self.offset, self.offset + 1)}, read_committed=False)
        for fetched in reader:
            for batch in batches_of(fetched):
                return batch
        raise ClientError(
            f"partition {self.partition} of {self.topic} has no record {self.offset}: it is a marker of a "
            "transaction, or compaction has taken it out",
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        )

    def read_one(self, cluster: Cluster) -> Record:
        """The record. ClientError if it is not there."""
        return _only(self.read(cluster).records)


def _place(visit: Visit) -> Place:
    params = visit.request.path_params
    return Place(visit.segment("topic"), str(params["partition"]), str(params["offset"]))


async def show(visit: Visit) -> Response:
    """The page of a message."""
    place, form = _place(visit), visit.text("as", "auto")
    part = await visit.part(place.read)
    shown = None
    if part.value is not None:
        (record,) = part.value.records
        key, value = Contents(form, place.topic, WHOLE_CHARACTERS, visit.settings.schemas).both(record)
        shown = {
            "timestamp_ms": record.timestamp,
            "timestamp_type": part.value.timestamp_type,
            "parts": [
                ("key", key, _text(key, record.key)),
                ("value", value, _text(value, record.value)),
            ],
            "headers": header_texts(record.headers),
            "header_count": len(record.headers),
            "producer_id": part.value.header.producer_id,
            "is_transactional": part.value.header.is_transactional,
        }
    return visit.page(
        "message.html",
        topic=place.topic,
        place=place,
        message=shown,
        error=part.error,
        form=form if form in FORMS else "auto",
        forms=FORMS,
        query={name: visit.text(name) for name in FIELDS},
    )


def _text(shown: Shown, content: bytes | memoryview | None) -> str:
    if content is not None and shown.form == "hex":
        return hex_lines(bytes(content[: 16 << 10]))
    return pretty(shown)


async def download(visit: Visit) -> Response:
    """The bytes of a key or value, as a file that no browser shows."""
    place, part = _place(visit), visit.segment("part")
    if part not in PARTS:
        raise ClientError("a message has a key and a value", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    record = await visit.ask(place.read_one)
    return _file(getattr(record, part) or b"", f"{place.topic}-{place.partition}-{place.offset}-{part}.bin")


async def text(visit: Visit) -> Response:
    """A key or value as the page shows it, as plain text: for copying without scripts."""
    place, part, form = _place(visit), visit.segment("part"), visit.text("as", "auto")
    if part not in PARTS:
        raise ClientError("a message has a key and a value", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    record = await visit.ask(place.read_one)
    shown = Contents(form, place.topic, TEXT_CHARACTERS, visit.settings.schemas).both(record)[
        PARTS.index(part)
    ]
    return PlainTextResponse(visible(_text(shown, getattr(record, part))))


async def export(visit: Visit) -> Response:
    """The message as a line of JSON, which `odradek produce --json` takes."""
    place = _place(visit)
    batch = await visit.ask(place.read)
    (line,) = json_lines(place.topic, place.partition, batch)
    return _file(line, f"{place.topic}-{place.partition}-{place.offset}.jsonl")


def _only(records: Sequence[Record]) -> Record:
    (record,) = records
    return record


def _file(content: bytes | memoryview, name: str) -> Response:
    headers = attachment(name) | {"content-length": str(len(content))}
    return StreamingResponse(_pieces(content), media_type="application/octet-stream", headers=headers)


async def _pieces(content: bytes | memoryview) -> AsyncIterator[bytes]:
    view = memoryview(content)
    for start in range(0, len(view), PIECE_BYTES):
        yield bytes(view[start : start + PIECE_BYTES])


def attachment(name: str) -> dict[str, str]:
    """Headers of a file that no browser shows, under a name of ASCII."""
    safe = "".join(one if (one.isalnum() and one.isascii()) or one in "._-" else "_" for one in name)
    return {"content-disposition": f'attachment; filename="{safe}"'}


_PATH = "/topics/{topic}/messages/{partition:int}/{offset:int}"
SCREENS = [
    Screen(_PATH, show),
    Screen(f"{_PATH}/message.jsonl", export),
    Screen(f"{_PATH}/{{part}}.bin", download),
    Screen(f"{_PATH}/{{part}}.txt", text),
]
