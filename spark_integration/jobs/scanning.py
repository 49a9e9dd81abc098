"""Values of record batches that rows lack: codec, producer, sizes; read by tasks of Spark with our own
client.

A task reads ranges of offsets and returns, for each partition, sums by codec and producer. It reads the
headers of batches, decompresses compressed batches for their size, and compresses a sample with every codec
to measure the savings.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from odradek.client.cluster import Cluster
from odradek.client.fetching import Fetcher
from odradek.spark.client_options import settings_of
from odradek.wire._records import BatchHeader
from odradek.wire.compression import Compression, compress
from odradek.wire.legacy_records import is_legacy, to_v2
from odradek.wire.record_layout import HEADER_SIZE_BYTES
from odradek.wire.records import iter_batches, records_section

if TYPE_CHECKING:
    import pyarrow

CODECS = tuple(Compression)
SAMPLED_BATCHES = 50
"""Sampled batches of each range."""
SAMPLED_BYTES_MAX = 4 << 20
BATCHES = (
    "partition INT, codec STRING, producer_id BIGINT, producer_epoch INT, is_transactional BOOLEAN, "
    "is_control BOOLEAN, batches BIGINT, rows BIGINT, stored_bytes BIGINT, plain_bytes BIGINT, "
    "sampled_bytes BIGINT, " + ", ".join(f"as_{codec.name.lower()} BIGINT" for codec in CODECS)
)
"""Sums; `plain_bytes` is the size of the batches without compression, `as_CODEC` of the sampled ones with
it."""

_Key = tuple[int, str, int, int, bool, bool]


@dataclass
class _Sums:
    batches: int = 0
    rows: int = 0
    stored_bytes: int = 0
    plain_bytes: int = 0
    sampled_bytes: int = 0
    as_codec: list[int] = field(default_factory=lambda: [0] * len(CODECS))


def scanning(
    settings: Mapping[str, str], topic: str
) -> "Callable[[Iterator[pyarrow.RecordBatch]], Iterator[pyarrow.RecordBatch]]":
    """For `mapInArrow`, on rows of (partition, start, end)."""

    def scan(ranges: "Iterator[pyarrow.RecordBatch]") -> "Iterator[pyarrow.RecordBatch]":
        with Cluster(settings_of(settings)) as cluster:
            for batch in ranges:
                for row in batch.to_pylist():
                    sums: dict[_Key, _Sums] = {}
                    _scan_range(cluster, topic, row["partition"], row["start"], row["end"], sums)
                    yield _as_arrow(sums)

    return scan


def _scan_range(
    cluster: Cluster, topic: str, partition: int, start: int, end: int, sums: dict[_Key, _Sums]
) -> None:
    sampled = 0
    for fetched in Fetcher(cluster, topic, partition, start, end, read_committed=False):
        for codec, buffer, position, header in _batches(fetched.buffer):
            if not start <= header.base_offset < end:
                continue  # before the range, or after its end
            key = (
                partition,
                codec,
                header.producer_id,
                header.producer_epoch,
                header.is_transactional,
                header.is_control,
            )
            plain = _add(sums.setdefault(key, _Sums()), buffer, position, header)
            if sampled < SAMPLED_BATCHES and not header.is_control and len(plain) <= SAMPLED_BYTES_MAX:
                sampled += 1
                _sample(sums[key], plain)


def _batches(buffer: Any) -> Iterator[tuple[str, Any, int, BatchHeader]]:
    """(codec, buffer, position in it, header) of each batch; a message of an old format counts as a batch."""
    if not is_legacy(buffer):
        for position, header in iter_batches(buffer):
            yield Compression(header.compression).name.lower(), buffer, position, header
        return
    for batch in to_v2(buffer, now_ms=0):
        for position, header in iter_batches(batch):
            yield "old format", batch, position, header


def _add(sums: _Sums, buffer: Any, position: int, header: BatchHeader) -> bytes:
    """Counts a batch; returns its records without compression."""
    batch = memoryview(buffer)[position : position + header.size_bytes]
    plain = records_section(batch, header)
    sums.batches += 1
    sums.rows += header.record_count
    sums.stored_bytes += header.size_bytes
    sums.plain_bytes += HEADER_SIZE_BYTES + len(plain)
    return plain


def _sample(sums: _Sums, plain: bytes) -> None:
    sums.sampled_bytes += len(plain)
    for place, codec in enumerate(CODECS):
        sums.as_codec[place] += len(compress(codec, plain))


def _as_arrow(sums: dict[_Key, _Sums]) -> "pyarrow.RecordBatch":
    import pyarrow

    kinds = [
        *(
            pyarrow.int32(),
            pyarrow.string(),
            pyarrow.int64(),
            pyarrow.int32(),
            pyarrow.bool_(),
            pyarrow.bool_(),
        ),
        *[pyarrow.int64()] * (5 + len(CODECS)),
    ]
    names = [column.strip().split()[0] for column in BATCHES.split(",")]
    rows = [
        (*key, one.batches, one.rows, one.stored_bytes, one.plain_bytes, one.sampled_bytes, *one.as_codec)
        for key, one in sums.items()
    ]
    columns = zip(*rows, strict=True) if rows else [[] for _ in names]
    arrays = [pyarrow.array(list(column), kind) for column, kind in zip(columns, kinds, strict=True)]
    return pyarrow.RecordBatch.from_arrays(arrays, names=names)
