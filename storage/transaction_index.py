"""The `.txnindex` file beside a segment: which transactions ended there with an abort.

Format as in `TransactionIndex.java` and `AbortedTxn.java`: entries of version int16 (0), producer id, first
offset, last offset (the marker's) and the last stable offset after it, int64 each, in the order of their
markers. The file is only there when it has an entry.
"""

import struct
from collections.abc import Iterable
from typing import NamedTuple

from odradek.wire.errors import ErrorCode, KafkaError

ENTRY = struct.Struct(">hqqqq")
VERSION = 0


class AbortedTransaction(NamedTuple):
    """An entry, without its version."""

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


def encode_aborted(transactions: Iterable[AbortedTransaction]) -> bytes:
    return b"".join(ENTRY.pack(VERSION, *transaction) for transaction in transactions)


def decode_aborted(data: bytes) -> list[AbortedTransaction]:
    """The content of a file; refuses with KAFKA_STORAGE_ERROR what is none."""
    if len(data) % ENTRY.size:
        raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, "A transaction index ends in the middle of an entry.")
    entries = []
    for version, *fields in ENTRY.iter_unpack(data):
        entry = AbortedTransaction(*fields)
        if version != VERSION or not 0 <= entry.first_offset <= entry.last_offset:
            raise KafkaError(
                ErrorCode.KAFKA_STORAGE_ERROR,
                f"A transaction index has an entry that makes no sense: {entry}.",
            )
        entries.append(entry)
    return entries
