"""One message: its headers, key and value in each form, and its bytes as a file."""

from collections.abc import Sequence

from starlette.responses import Response

from odradek.client.client_error import ClientError
from odradek.client.cluster import LATEST, Cluster
from odradek.client.reading import Reader
from odradek.client.stored_records import StoredBatch, batches_of
from odradek.commands.record_json import json_lines
from odradek.console.contents import FORMS, WHOLE_CHARACTERS, Contents, header_texts, hex_lines, pretty
from odradek.console.screens.messages import FIELDS
from odradek.console.visit import Screen, Visit
from odradek.wire.errors import ErrorCode
from odradek.wire.record_layout import Record

PARTS = ("key", "value")
OFFSET_MAX = 2**63 - 2


class _Place:
    """A record's topic, partition and offset, from the path."""

    def __init__(self, visit: Visit) -> None:
        self.topic = visit.segment("topic")
        self.partition, self.offset = (
            int(visit.request.path_params[name]) for name in ("partition", "offset")
        )
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


async def show(visit: Visit) -> Response:
    """The page of a message."""
    place, form = _Place(visit), visit.text("as", "auto")
    part = await visit.part(place.read)
    shown = None
    if part.value is not None:
        (record,) = part.value.records
        key, value = Contents(form, place.topic, WHOLE_CHARACTERS).both(record)
        shown = {
            "timestamp_ms": record.timestamp,
            "timestamp_type": part.value.timestamp_type,
            "parts": [
                ("key", key, _text(form, key, record.key)),
                ("value", value, _text(form, value, record.value)),
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


def _text(form: str, shown: object, content: bytes | memoryview | None) -> str:
    from odradek.console.contents import Shown

    assert isinstance(shown, Shown)
    if content is not None and shown.form == "hex":
        return hex_lines(bytes(content[: 16 << 10]))
    return pretty(shown)


async def download(visit: Visit) -> Response:
    """The bytes of a key or value, as a file that no browser shows."""
    place, part = _Place(visit), visit.segment("part")
    if part not in PARTS:
        raise ClientError("a message has a key and a value", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    batch = await visit.ask(place.read)
    content = getattr(_only(batch.records), part)
    return _file(bytes(content or b""), f"{place.topic}-{place.partition}-{place.offset}-{part}.bin")


async def export(visit: Visit) -> Response:
    """The message as a line of JSON, which `odradek produce --json` takes."""
    place = _Place(visit)
    batch = await visit.ask(place.read)
    (line,) = json_lines(place.topic, place.partition, batch)
    return _file(line, f"{place.topic}-{place.partition}-{place.offset}.jsonl")


def _only(records: Sequence[Record]) -> Record:
    (record,) = records
    return record


def _file(content: bytes, name: str) -> Response:
    safe = "".join(one if (one.isalnum() and one.isascii()) or one in "._-" else "_" for one in name)
    return Response(
        content,
        media_type="application/octet-stream",
        headers={"content-disposition": f'attachment; filename="{safe}"'},
    )


_PATH = "/topics/{topic}/messages/{partition:int}/{offset:int}"
SCREENS = [
    Screen(_PATH, show),
    Screen(f"{_PATH}/message.jsonl", export),
    Screen(f"{_PATH}/{{part}}.bin", download),
]
