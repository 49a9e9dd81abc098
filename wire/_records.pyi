"""The hot part of `records`: headers, checksums and records of batches, read and written."""

from odradek.wire.record_layout import Buffer, Record, RecordTable

class BatchHeader:
    """The first 61 bytes of a batch; `size_bytes` is that of the whole batch, 12 leading bytes included."""

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
        """A `Compression`, or 5 to 7, which no client writes and `validate_header` refuses."""
    @property
    def is_transactional(self) -> bool: ...
    @property
    def is_control(self) -> bool: ...
    @property
    def uses_log_append_time(self) -> bool:
        """Whether every record's timestamp is `max_timestamp`, whatever its own delta says."""
    @property
    def delete_horizon_ms(self) -> int | None:
        """When compaction may drop this batch's tombstones (KIP-534)."""
    @property
    def last_offset(self) -> int: ...
    @property
    def last_sequence(self) -> int:
        """The sequence of the last record, or NO_SEQUENCE; after 2**31 - 1 comes 0."""

def read_batch_header(buffer: Buffer, position: int = 0) -> BatchHeader:
    """The header at `position`; refuses with CORRUPT_MESSAGE."""

def verify_crc(buffer: Buffer, position: int, header: BatchHeader) -> None:
    """Refuse with CORRUPT_MESSAGE a batch whose CRC-32C does not fit its bytes, or that is not all there."""

def read_client_batch(
    buffer: Buffer, position: int, size_bytes: int, produce_version: int = ...
) -> BatchHeader:
    """The header of the one v2 batch that a client sent in these bytes; checksum and header are checked."""

def survey_if_sound(data: Buffer, record_count: int, base_timestamp: int) -> tuple[int, int, bool] | None:
    """`survey_records`, or None instead of a refusal, which may take plain Python long to find out."""

def survey_records(data: Buffer, record_count: int, base_timestamp: int) -> tuple[int, int, bool]:
    """The least and the greatest timestamp, and whether a key is missing; refuses with INVALID_RECORD."""

def scan_records(data: Buffer, record_count: int, base_offset: int, base_timestamp: int) -> RecordTable:
    """The table of the `record_count` records that `data` has to consist of, or INVALID_RECORD."""

def read_records(data: bytes, header: BatchHeader) -> list[Record]:
    """The records that the records section `data` of a batch consists of; refuses as `scan_records`."""

def build_keyed_batch(
    rows: list[tuple[bytes, bytes | None, int]], producer_id: int = -1, producer_epoch: int = -1
) -> bytes:
    """What a coordinator writes: `build_batch` of records from offset 0 on, each a key, a value (None
    deletes) and a timestamp; at least one. With a producer it is a part of that one's transaction."""
