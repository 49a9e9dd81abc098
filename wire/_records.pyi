"""The compiled part of `records`: reading and writing of headers, checksums and records of batches."""

from odradek.wire.record_layout import Buffer, Record, RecordTable

class BatchHeader:
    """The first 61 bytes of a batch; `size_bytes` is the size of the whole batch, with the 12 leading
    bytes."""

    base_offset: int
    size_bytes: int
    leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int
    def __init__(
        self,
        base_offset: int,
        size_bytes: int,
        leader_epoch: int,
        magic: int,
        crc: int,
        attributes: int,
        last_offset_delta: int,
        base_timestamp: int,
        max_timestamp: int,
        producer_id: int,
        producer_epoch: int,
        base_sequence: int,
        record_count: int,
    ) -> None: ...
    @property
    def compression(self) -> int:
        """A `Compression`, or 5 to 7, which are undefined and refused by `validate_header`."""
    @property
    def is_transactional(self) -> bool: ...
    @property
    def is_control(self) -> bool: ...
    @property
    def uses_log_append_time(self) -> bool:
        """Whether every record's timestamp is `max_timestamp`; its own delta is ignored."""
    @property
    def delete_horizon_ms(self) -> int | None:
        """The time at which compaction may drop this batch's tombstones (KIP-534)."""
    @property
    def last_offset(self) -> int: ...
    @property
    def last_sequence(self) -> int:
        """The sequence of the last record, or NO_SEQUENCE; after 2**31 - 1 comes 0."""

def read_batch_header(buffer: Buffer, position: int = 0) -> BatchHeader:
    """The header at `position`; refuses with CORRUPT_MESSAGE."""

def rising_batches(buffer: Buffer, next_offset: int, leader_epoch_max: int) -> tuple[int, int]:
    """How far `buffer` has whole batches whose offsets rise from `next_offset` on, of no later leader epoch:
    the size of these batches in bytes, and the offset after the last one. Checksums are not checked."""

def verify_crc(buffer: Buffer, position: int, header: BatchHeader) -> None:
    """Refuse with CORRUPT_MESSAGE a batch with a wrong CRC-32C, or an incomplete one."""

def read_client_batch(
    buffer: Buffer, position: int, size_bytes: int, produce_version: int = ...
) -> BatchHeader:
    """The checked header of a client's v2 batch, which has to fill these bytes."""

def survey_if_sound(data: Buffer, record_count: int, base_timestamp: int) -> tuple[int, int, bool] | None:
    """`survey_records`, or None instead of a refusal, whose reason plain Python may need long to find."""

def survey_records(data: Buffer, record_count: int, base_timestamp: int) -> tuple[int, int, bool]:
    """The earliest and the latest timestamp, and whether a key is missing; refuses with INVALID_RECORD."""

def scan_records(data: Buffer, record_count: int, base_offset: int, base_timestamp: int) -> RecordTable:
    """The table of the `record_count` records in `data`; refuses with INVALID_RECORD."""

def read_records(data: bytes, header: BatchHeader) -> list[Record]:
    """The records in the records section `data` of a batch; refuses as `scan_records`."""

def build_keyed_batch(
    rows: list[tuple[bytes, bytes | None, int]], producer_id: int = -1, producer_epoch: int = -1
) -> bytes:
    """A coordinator's batch: as `build_batch` of at least one record from offset 0 on, each a key, a value
    (None deletes) and a timestamp. With a producer it is a part of the producer's transaction."""
