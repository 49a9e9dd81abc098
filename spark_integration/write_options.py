"""The options for writing a topic: those of Spark's own Kafka sink, with its names and its syntax.

`write_options` makes `WriteOptions` of Spark's options (names in any case, values as text), or raises
`OptionError`: one sentence with the option and the remedy. An unknown option is refused, never ignored.
Nothing here connects to a broker.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from odradek.client.settings import ClientSettings
from odradek.client.transaction_manager import TRANSACTION_TIMEOUT_MS
from odradek.spark.batching import BATCH_BYTES, MEMORY_BYTES
from odradek.spark.markers import MARKERS_TOPIC
from odradek.spark.options import GivenOptions, client_settings, refuse
from odradek.wire.compression import Compression

DELIVERY_TIMEOUT_MS = 120_000
_SPARK_OWN = ("checkpointlocation", "queryname", "path")
"""Spark's own options, which it passes to every sink."""
_FIXED = "keys and values are written as bytes; use CAST or a function of Spark in the query"
REASONS = {
    "path": "the topic is named with the option topic or the column topic; call save() without a path",
    "kafka.transactional.id": "the sink has one for every task of a query; remove it (a batch: writeId)",
    "kafka.max.in.flight.requests.per.connection": "it is always five; remove it",
    "kafka.retries": "use kafka.delivery.timeout.ms for how long a write is tried, and remove it",
    "kafka.max.request.size": "a row may be as large as the topic's max.message.bytes; remove it",
    "kafka.linger.ms": "batches are sent when they are full; remove it",
    "kafka.partitioner.class": "it has no Java classes; fill the column partition to choose, and remove it",
    "kafka.interceptor.classes": "it has no Java classes; remove it",
    "kafka.key.serializer": _FIXED,
    "kafka.value.serializer": _FIXED,
    "includeheaders": "it belongs to reading; a column headers is written whenever it is there",
    "writeid": "a stream is exactly once without it, by its checkpoint; remove it",
}
"""Refused options, in lower case -> reason and remedy."""

_CODECS = {codec.name.lower(): codec for codec in Compression}
_LEVELS = {Compression.GZIP: (1, 9), Compression.LZ4: (1, 17), Compression.ZSTD: (-131_072, 22)}


@dataclass(frozen=True)
class WriteOptions:
    """The options of a write, batch or stream. Can be pickled: every task gets them."""

    settings: ClientSettings
    topic: str | None = None
    """The topic of all rows; None if the column `topic` names it for each row."""
    compression: Compression = Compression.NONE
    level: int | None = None
    batch_bytes: int = BATCH_BYTES
    memory_bytes: int = MEMORY_BYTES
    transaction_timeout_ms: int = TRANSACTION_TIMEOUT_MS
    write_id: str | None = None
    """A batch write with an id is written exactly once, however often it is run."""
    markers_topic: str = MARKERS_TOPIC


def write_options(options: Mapping[str, Any], *, is_stream: bool) -> WriteOptions:
    """The user's options, parsed; OptionError for an option that is wrong or unknown."""
    given = GivenOptions(options)
    settings = client_settings(given)
    compression = given.one_of("kafka.compression.type", _CODECS, Compression.NONE)
    patience_ms = given.number("kafka.delivery.timeout.ms", most=2**31 - 1) or DELIVERY_TIMEOUT_MS
    write = WriteOptions(
        settings=replace(settings, patience_ms=patience_ms),
        topic=_name(given, "topic"),
        compression=compression,
        level=_level(given, compression),
        batch_bytes=given.number("kafka.batch.size", 1, 64 << 20) or BATCH_BYTES,
        memory_bytes=given.number("kafka.buffer.memory", 1 << 20, 1 << 40) or MEMORY_BYTES,
        transaction_timeout_ms=given.number("kafka.transaction.timeout.ms", 1000, 2**31 - 1)
        or TRANSACTION_TIMEOUT_MS,
        write_id=None if is_stream else _name(given, "writeId"),
        markers_topic=_name(given, "markersTopic") or MARKERS_TOPIC,
    )
    given.one_of("kafka.acks", {"all": True, "-1": True}, True)
    given.one_of("kafka.enable.idempotence", {"true": True}, True)
    given.those(lambda name: is_stream and name in _SPARK_OWN)
    given.refuse_rest("odradek", REASONS)
    return write


def _name(given: GivenOptions, option: str) -> str | None:
    text = given.text(option)
    if text == "":
        refuse(f"{option} is empty: give it a name, or remove it")
    return text


def _level(given: GivenOptions, chosen: Compression) -> int | None:
    """The level of the chosen codec; levels of other codecs are allowed, as in Kafka."""
    levels = {
        codec: given.number(f"kafka.compression.{codec.name.lower()}.level", least, most)
        for codec, (least, most) in _LEVELS.items()
    }
    return levels.get(chosen)
