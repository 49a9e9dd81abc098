"""A new message from a form, which may be filled with an earlier one: produce again.

The form is at `/produce?topic=NAME`, and with `&from=PARTITION-OFFSET` it is filled. The user needs WRITE.
"""

from collections.abc import Mapping

from starlette.responses import Response

from odradek.client.client_error import ClientError
from odradek.client.cluster import Cluster
from odradek.console.producing import (
    FORMS,
    SAME,
    Written,
    draft_of,
    headers_text,
    typed_again,
    typed_of,
    write,
)
from odradek.console.rendering import link
from odradek.console.screens.message import Place
from odradek.console.visit import Screen, Visit, sentence
from odradek.wire.errors import ErrorCode
from odradek.wire.record_layout import Record

EMPTY = {"key": "", "key_form": "null", "value": "", "value_form": "text", "headers": "", "partition": ""}


async def show(visit: Visit) -> Response:
    """The form: empty, or filled with a message."""
    topic, source = visit.text("topic"), visit.text("from")
    fields: Mapping[str, str] = {**EMPTY, "topic": topic}
    failed = ""
    if source:
        place = _place(topic, source)
        try:
            fields = _filled(place, await visit.ask(place.read_one))
        except ClientError as error:
            if error.code == ErrorCode.SASL_AUTHENTICATION_FAILED:
                raise
            failed, source = sentence(error), ""
    return _page(visit, topic, fields, source=source, failed=failed, written=_written(visit, topic))


def _filled(place: Place, record: Record) -> dict[str, str]:
    key, value = typed_of(record.key), typed_of(record.value)
    return {
        "topic": place.topic,
        "partition": str(place.partition),
        "key": key.text,
        "key_form": key.form,
        "value": value.text,
        "value_form": value.form,
        "headers": headers_text(record.headers),
    }


def _written(visit: Visit, topic: str) -> Written | None:
    """Place that the URL after a write has."""
    partition, _, offset = visit.text("written").partition("-")
    if not (partition.isascii() and partition.isdecimal() and len(partition) <= 10):
        return None
    is_known = offset.isascii() and offset.isdecimal() and len(offset) <= 19
    return Written(topic, int(partition), int(offset) if is_known else -1)


def _page(
    visit: Visit,
    topic: str,
    fields: Mapping[str, str],
    *,
    source: str = "",
    failed: str = "",
    written: Written | None = None,
) -> Response:
    return visit.page(
        "produce.html",
        topic=topic,
        fields=fields,
        forms=(*FORMS, SAME) if source else FORMS,
        source=source,
        source_place=_place(topic, source) if source else None,
        failed=failed,
        written=written,
    )


async def send(visit: Visit) -> Response:
    """Writes the message, and says where it is."""
    source_topic, source = visit.text("source_topic"), visit.text("source")
    fields = {name: visit.form.get(name, "") for name in (*EMPTY, "topic")}

    def written(cluster: Cluster) -> Written:
        original = None
        if SAME in (fields["key_form"], fields["value_form"]) and source:
            original = _place(source_topic, source).read_one(cluster)
        return write(cluster, draft_of(fields, original), visit.now_ms)

    try:
        done = await visit.ask(written)
    except ClientError as error:
        if error.code == ErrorCode.SASL_AUTHENTICATION_FAILED:
            raise
        for name in ("key", "value"):
            fields[f"{name}_form"], fields[name] = typed_again(fields[f"{name}_form"], fields[name])
        source = source if _is_place(source) else ""
        shown = source_topic or fields["topic"]
        return _page(visit, shown, fields, source=source, failed=sentence(error))
    # A page that is loaded again writes nothing again.
    place = f"{done.partition}-{done.offset if done.offset >= 0 else 'unknown'}"
    return visit.go(link("/produce", topic=done.topic, written=place))


def _is_place(text: str) -> bool:
    partition, _, offset = text.partition("-")
    return all(one.isascii() and one.isdecimal() and len(one) <= 18 for one in (partition, offset))


def _place(topic: str, text: str) -> Place:
    partition, _, offset = text.partition("-")
    if not _is_place(text):
        raise ClientError("there is no such offset", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    return Place(topic, partition, offset)


SCREENS = [Screen("/produce", show), Screen("/produce/send", send, ("POST",))]
