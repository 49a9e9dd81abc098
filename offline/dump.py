"""`odradek dump`: prints the content of a broker's files, without a broker.

Each fact is one line: `what name=value ...`, or with `--json` one JSON object. A damaged file is shown up to
the damage, whose position has a line of its own, and makes the exit status 1. Files are only read.

Supported: segments (`.log`, batches of format v2), offset, time and transaction indexes, producer snapshots,
checkpoints, `partition.metadata`, `meta.properties`, snapshots of the metadata log, the flush journal, a
partition's directory, a data directory in summary (without `include_empty`, partitions without a batch are
only counted). The records of the coordinators' topics and of the metadata log are decoded. Not supported:
message sets of formats v0 and v1, which are converted when they arrive and so are never on disk. `odradek
check` checks whether files agree with each other.
"""

import json
import mmap
import os
import struct
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import fields as dataclass_fields
from dataclasses import is_dataclass
from typing import Any, TextIO

from odradek.config.secret import HIDDEN, Secret
from odradek.offline.kinds import CHECKPOINTS, JOURNALS, NEITHER, is_of_a_broker
from odradek.offline.workers import with_workers
from odradek.storage.log import transaction_index
from odradek.wire.errors import KafkaError, MalformedMessage
from odradek.wire.readable import InternalRecord, internal_reader, plain
from odradek.wire.schema import uuid_to_text

Fact = dict[str, Any]
"""One line: "what" and the fields in the order of the output."""

_COMPRESSIONS = ("none", "gzip", "snappy", "lz4", "zstd")
_OFFSET_ENTRY = struct.Struct(">ii")
_TIME_ENTRY = struct.Struct(">qi")


def dump(
    paths: Sequence[str],
    *,
    records: bool,
    as_json: bool,
    out: TextIO,
    err: TextIO | None = None,
    include_empty: bool = False,
) -> int:
    """Print the files at the paths, and after a data directory those of further workers; 1 if one is damaged
    or cannot be read, else 0. `err` (or stderr) gets a sentence for each path that is nothing of a broker.

    The summary of a data directory has its partitions by topic and number, those without a batch only with
    `include_empty`.
    """
    status = 0
    for path in (path for of_worker in with_workers(paths) for path in of_worker):
        refusal = _refusal(path)
        if refusal is not None:
            print(f"odradek: {refusal}", file=err or sys.stderr)
            status = 1
            continue
        for fact in _facts(path, records, include_empty):
            if fact["what"] == "damage":
                status = 1
            out.write((json.dumps(fact) if as_json else _line(fact)) + "\n")
    out.flush()
    return status


def _refusal(path: str) -> str | None:
    """Why a path is nothing that can be shown: most often its name has a slip."""
    name = os.path.basename(path.rstrip("/"))
    try:
        names = os.listdir(path) if os.path.isdir(path) else None
        os.stat(path)
    except FileNotFoundError:
        return f"{path} does not exist"
    except OSError as error:
        return f"{path} cannot be read: {error.strerror or error}"
    if names is None:
        is_known = name in (*CHECKPOINTS, *JOURNALS) or name.endswith((".log", *_READERS))
        return None if is_known else f"{path} is not a file of a broker"
    return None if is_of_a_broker(path, names) else f"{path} {NEITHER}"


def _line(fact: Fact) -> str:
    fields = (f"{name}={_shown(value)}" for name, value in fact.items() if name != "what")
    return " ".join([fact["what"], *fields])


def _shown(value: Any) -> str:
    if isinstance(value, str) and value and value.isprintable() and not set(value) & set(' "=\\'):
        return value
    return json.dumps(value)


def _damage(path: str, why: object, position: int | None = None) -> Fact:
    fact: Fact = {"what": "damage", "file": path}
    if position is not None:
        fact["position"] = position
    return {**fact, "why": str(why)}


# --- Kinds of files ---


def _facts(path: str, records: bool, include_empty: bool) -> Iterator[Fact]:
    try:
        if os.path.isdir(path):
            if any(name.endswith(".log") for name in os.listdir(path)):
                yield from _partition(path, records)
            else:
                yield from _data_directory(path, include_empty)
        else:
            yield from _file(path, records)
    except OSError as error:
        yield _damage(path, error.strerror or error)


def _file(path: str, records: bool) -> Iterator[Fact]:
    name = os.path.basename(path)
    if name in JOURNALS:
        yield from _flush_journal(os.path.dirname(path) or ".", name)
        return
    if name.endswith(".log"):
        yield from _segment(path, records)
        return
    for ending, reader in _READERS.items():
        if name.endswith(ending):
            yield from reader(path)
            return
    if name in CHECKPOINTS:
        yield from _checkpoint(path)
        return


# --- Directories ---


def _data_directory(path: str, include_empty: bool) -> Iterator[Fact]:
    yield {"what": "data-directory", "path": path, "clean_stop": _exists(path, ".kafka_cleanshutdown")}
    names = sorted(os.listdir(path))
    if "meta.properties" in names:
        yield from _properties(os.path.join(path, "meta.properties"))
    if any(name.startswith("flush-journal.") for name in names):
        yield from _flush_journal(path)
    inside = (os.path.join(path, name) for name in names)
    partitions = [one for one in inside if os.path.isdir(one) and _segments(one)]
    empty_count = 0
    for partition in sorted(partitions, key=_topic_and_index):
        summary, damages = _partition_summary(partition)
        if summary["batches"] or damages or include_empty:
            yield summary
            yield from damages
        else:
            empty_count += 1
    if empty_count:
        yield {"what": "empty-partitions", "left_out": empty_count}


def _partition_summary(path: str) -> tuple[Fact, list[Fact]]:
    """The summary of a partition, and the damage of its segments."""
    topic, index = _topic_and_index(path)
    segments = _segments(path)
    batch_count = record_count = size_bytes = 0
    end_offset = _base_offset(segments[0])
    damages = []
    for segment in segments:
        size_bytes += os.path.getsize(segment)
        for fact in _batches(segment, check=False):
            if fact["what"] == "damage":
                damages.append(fact)
                continue
            batch_count += 1
            record_count += fact["records"]
            end_offset = fact["last_offset"] + 1
    summary: Fact = {
        "what": "partition",
        "topic": topic,
        "partition": index,
        "segments": len(segments),
        "size_bytes": size_bytes,
        "first_segment": _base_offset(segments[0]),
        "end_offset": end_offset,
        "batches": batch_count,
        "records": record_count,
    }
    return summary, damages


def _partition(path: str, records: bool) -> Iterator[Fact]:
    topic, index = _topic_and_index(path)
    yield {"what": "partition", "topic": topic, "partition": index, "path": path}
    for name in ("partition.metadata", "leader-epoch-checkpoint"):
        if _exists(path, name):
            yield from _file(os.path.join(path, name), records)
    for segment in _segments(path):
        yield {"what": "segment", "file": segment, "size_bytes": os.path.getsize(segment)}
        yield from _segment(segment, records)
        for ending in (".index", ".timeindex", ".txnindex"):
            file = segment.removesuffix(".log") + ending
            if os.path.exists(file):
                yield from _index_summary(file)
    for name in sorted(os.listdir(path)):
        if name.endswith(".snapshot"):
            yield from _snapshot(os.path.join(path, name))


def _index_summary(path: str) -> Iterator[Fact]:
    entries = 0
    for fact in _READERS[os.path.splitext(path)[1]](path):
        if fact["what"] == "damage":
            yield fact
        else:
            entries += 1
    yield {"what": "index", "file": path, "entries": entries}


def _segments(path: str) -> list[str]:
    return [os.path.join(path, name) for name in sorted(os.listdir(path)) if name.endswith(".log")]


def _topic_and_index(path: str) -> tuple[str, int]:
    topic, _, index = os.path.basename(os.path.abspath(path)).rpartition("-")
    return (topic, int(index)) if index.isdecimal() else (os.path.basename(os.path.abspath(path)), -1)


def _base_offset(path: str) -> int:
    stem = os.path.basename(path).partition(".")[0]
    return int(stem) if stem.isdecimal() else 0


def _exists(directory: str, name: str) -> bool:
    return os.path.exists(os.path.join(directory, name))


# --- Segments ---


def _segment(path: str, records: bool) -> Iterator[Fact]:
    decode = _decoder_for(_topic_and_index(os.path.dirname(os.path.abspath(path)))[0])
    yield from _batches(path, check=True, decode=decode if records else None)


def _batches(path: str, *, check: bool, decode: Callable[[Any], Fact] | None = None) -> Iterator[Fact]:
    """A fact for each batch, and with `decode` one for each record; the first damage ends the file."""
    if os.path.getsize(path) == 0:
        return
    with (
        open(path, "rb") as file,
        mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped,
        memoryview(mapped) as view,
    ):
        position = 0
        while position < len(view):
            header, why = _next_batch(view, position, check=check)
            if header is None:
                yield _damage(path, why, position)
                return
            yield _batch_fact(header, position)
            if decode is not None:
                # A copy, so that an open generator of records does not keep the mapping.
                batch = bytes(view[position : position + header.size_bytes])
                yield from _records(path, batch, header, position, decode)
            position += header.size_bytes


def _next_batch(view: memoryview, position: int, *, check: bool) -> tuple[Any, str]:
    """The header of the batch at `position`; None and the defect if it is not sound."""
    from odradek.wire._records import read_batch_header
    from odradek.wire.records import verify_crc

    try:
        header = read_batch_header(view, position)
        left = len(view) - position
        if header.size_bytes > left:
            return None, f"a batch of {header.size_bytes} bytes has only {left}"
        if check:
            verify_crc(view, position, header)
    except KafkaError as error:
        return None, error.message
    return header, ""


def _records(
    path: str, batch: bytes, header: Any, position: int, decode: Callable[[Any], Fact]
) -> Iterator[Fact]:
    from odradek.wire.records import iter_records

    try:
        for record in iter_records(batch, header):
            yield _control_fact(record) if header.is_control else decode(record)
    except KafkaError as error:
        yield _damage(path, error.message, position)


def _batch_fact(header: Any, position: int) -> Fact:
    fact: Fact = {
        "what": "batch",
        "position": position,
        "base_offset": header.base_offset,
        "last_offset": header.last_offset,
        "records": header.record_count,
        "size_bytes": header.size_bytes,
        "compression": _COMPRESSIONS[header.compression] if header.compression < 5 else header.compression,
        "leader_epoch": header.leader_epoch,
        "timestamp_type": "LogAppendTime" if header.uses_log_append_time else "CreateTime",
        "max_timestamp": header.max_timestamp,
    }
    if header.producer_id >= 0:
        fact |= {
            "producer_id": header.producer_id,
            "producer_epoch": header.producer_epoch,
            "base_sequence": header.base_sequence,
        }
    if header.is_transactional:
        fact["transactional"] = True
    if header.is_control:
        fact["control"] = True
    return fact


def _decoder_for(topic: str) -> Callable[[Any], Fact]:
    if topic == "__cluster_metadata":
        return _metadata_fact
    read = internal_reader(topic)
    return _record_fact if read is None else lambda record: _internal_fact(record, read)


def _record_fact(record: Any) -> Fact:
    fact: Fact = {"what": "record", "offset": record.offset, "timestamp": record.timestamp}
    _add_bytes(fact, "key", record.key)
    _add_bytes(fact, "value", record.value)
    if record.headers:
        fact["headers"] = [[name, plain(value)] for name, value in record.headers]
    return fact


def _internal_fact(record: Any, read: Callable[..., InternalRecord | None]) -> Fact:
    """A record of an internal topic by its fields; as plain bytes if it cannot be decoded."""
    try:
        found = read(record.key, record.value)
    except MalformedMessage as error:
        return {**_record_fact(record), "not_decoded": str(error)}
    if found is None:
        return _record_fact(record)
    return {
        "what": "record",
        "offset": record.offset,
        "timestamp": record.timestamp,
        "type": found.type,
        "key": found.key,
        "value": found.value,
    }


def _control_fact(record: Any) -> Fact:
    from odradek.wire.records import read_end_txn_marker

    fact: Fact = {"what": "control-record", "offset": record.offset, "timestamp": record.timestamp}
    marker = read_end_txn_marker(record)
    if marker is None:
        _add_bytes(fact, "key", record.key)
        return fact
    return {
        **fact,
        "marker": "commit" if marker.committed else "abort",
        "coordinator_epoch": marker.coordinator_epoch,
    }


def _add_bytes(fact: Fact, name: str, value: bytes | None) -> None:
    """The value as text, else as base64 with another name."""
    shown = plain(value)
    if isinstance(shown, dict):
        fact[f"{name}_base64"] = shown["base64"]
    else:
        fact[name] = shown


# --- Indexes, snapshots, checkpoints, metadata ---


def _offset_index(path: str) -> Iterator[Fact]:
    base_offset = _base_offset(path)
    for relative_offset, position in _entries(path, _OFFSET_ENTRY):
        yield {"what": "offset-index-entry", "offset": base_offset + relative_offset, "position": position}
    yield from _odd_end(path, _OFFSET_ENTRY)


def _time_index(path: str) -> Iterator[Fact]:
    base_offset = _base_offset(path)
    for timestamp, relative_offset in _entries(path, _TIME_ENTRY):
        yield {"what": "time-index-entry", "timestamp": timestamp, "offset": base_offset + relative_offset}
    yield from _odd_end(path, _TIME_ENTRY)


def _transaction_index(path: str) -> Iterator[Fact]:
    for version, producer_id, first, last, last_stable in _entries(path, transaction_index.ENTRY):
        yield {
            "what": "aborted-transaction",
            "version": version,
            "producer_id": producer_id,
            "first_offset": first,
            "last_offset": last,
            "last_stable_offset": last_stable,
        }
    yield from _odd_end(path, transaction_index.ENTRY)


def _entries(path: str, entry: struct.Struct) -> Iterator[tuple[int, ...]]:
    """The used entries. Kafka allocates the file at its full size, so an open one ends in zeros."""
    data = _read(path)
    used_bytes = len(data.rstrip(b"\0"))
    whole_bytes = len(data) // entry.size * entry.size
    for position in range(0, whole_bytes, entry.size):
        if position >= used_bytes and position > 0:
            return
        yield entry.unpack_from(data, position)


def _odd_end(path: str, entry: struct.Struct) -> Iterator[Fact]:
    size_bytes = os.path.getsize(path)
    over = size_bytes % entry.size
    if over:
        yield _damage(path, f"{over} bytes follow the last whole entry", size_bytes - over)


def _snapshot(path: str) -> Iterator[Fact]:
    from odradek.storage.log.producer_state import decode_snapshot

    producers = decode_snapshot(_read(path))
    if producers is None:
        yield _damage(path, "the checksum or the length of the snapshot does not fit")
        return
    yield {"what": "snapshot", "file": path, "producers": len(producers)}
    for producer_id, entry in producers.items():
        yield {
            "what": "producer",
            "producer_id": producer_id,
            "producer_epoch": entry.producer_epoch,
            "last_sequence": entry.last_sequence,
            "last_offset": entry.last_data_offset,
            "last_timestamp": entry.last_timestamp,
            "coordinator_epoch": entry.coordinator_epoch,
            "open_transaction_from": entry.current_txn_first_offset,
        }


def _checkpoint(path: str) -> Iterator[Fact]:
    names: tuple[str, ...] = ("topic", "partition", "offset")
    if os.path.basename(path) == "leader-epoch-checkpoint":
        names = ("leader_epoch", "start_offset")
    elif os.path.basename(path) == "scan-checkpoint":
        from odradek.storage.log.scan_checkpoint import ScanCheckpoint

        names = ("topic", "partition", *ScanCheckpoint._fields)
    elif os.path.basename(path) == "end-checkpoint":
        from odradek.storage.log.durability import EndCheckpoint

        names = ("topic", "partition", *EndCheckpoint._fields)
    lines = _read(path).decode("utf-8", "replace").splitlines()
    if len(lines) < 2 or not lines[1].strip().isdecimal():
        yield _damage(path, "a checkpoint begins with its version and its number of entries")
        return
    entries = [line.split() for line in lines[2:] if line.strip()]
    for number, fields in enumerate(entries, start=3):
        if len(fields) != len(names):
            yield _damage(path, f"line {number} does not have {len(names)} fields")
            return
        yield {"what": os.path.basename(path), **dict(zip(names, fields, strict=True))}
    if len(entries) != int(lines[1]):
        yield _damage(path, f"it has {len(entries)} entries, its count is {lines[1]}")


def _partition_metadata(path: str) -> Iterator[Fact]:
    fields = dict(
        line.split(":", 1) for line in _read(path).decode("utf-8", "replace").splitlines() if ":" in line
    )
    yield {"what": "partition.metadata", **{name.strip(): value.strip() for name, value in fields.items()}}


def _properties(path: str) -> Iterator[Fact]:
    from odradek.config.properties import parse_properties

    try:
        yield {"what": "meta.properties", **parse_properties(_read(path))}
    except ValueError as error:
        yield _damage(path, error)


def _flush_journal(directory: str, name: str | None = None) -> Iterator[Fact]:
    """The entries of the flush journal: a line for each partition and block. `name` is one of its two files;
    without it both are shown in the order of writing.
    """
    from odradek.offline.directories import ReadingDisk
    from odradek.storage.log.flush_journal import READ_NAMES, read_entries

    names = READ_NAMES if name is None else (name,)
    size_bytes = 0
    for one in names:
        file = os.path.join(directory, one)
        if os.path.exists(file) or name is not None:
            size_bytes += os.path.getsize(file)
    yield {"what": "flush-journal", "path": directory, "size_bytes": size_bytes}
    for entry in read_entries(ReadingDisk(), directory, names):
        yield {
            "what": "flush-journal-entry",
            "partition": entry.name,
            "topic_id": uuid_to_text(entry.topic_id),
            "segment": entry.base_offset,
            "position": entry.position,
            "size_bytes": len(entry.content),
            "end_offset": entry.end_offset,
        }


def _metadata_snapshot(path: str) -> Iterator[Fact]:
    """A snapshot of the metadata log, with its records."""
    yield from _batches(path, check=True, decode=_metadata_fact)


def _metadata_fact(record: Any) -> Fact:
    """A record of the metadata log by its fields; as plain bytes if it cannot be decoded."""
    from odradek.wire.messages.metadata_records import decode_metadata_record

    try:
        found: Any = decode_metadata_record(record.value)
    except MalformedMessage as error:
        return {**_record_fact(record), "not_decoded": str(error)}
    fact: Fact = {"what": "metadata-record", "offset": record.offset, "timestamp": record.timestamp}
    fact["type"] = type(found).__name__.removesuffix("Record")
    return fact | {one.name: _without_secrets(found, one.name) for one in dataclass_fields(found)}


def _without_secrets(record: Any, name: str) -> Any:
    """A field without passwords and keys."""
    from odradek.config.options import BROKER_OPTIONS, hidden
    from odradek.wire.messages.metadata_records import ConfigRecord, UserScramCredentialRecord

    value = getattr(record, name)
    if isinstance(record, UserScramCredentialRecord) and isinstance(value, bytes):
        return HIDDEN
    if isinstance(record, ConfigRecord) and name == "value" and value is not None:
        return HIDDEN if isinstance(hidden(record.name, value, BROKER_OPTIONS), Secret) else value
    return _readable(value)


def _readable(value: Any) -> Any:
    if isinstance(value, bytes):
        return uuid_to_text(value) if len(value) == 16 else plain(value)
    if isinstance(value, list):
        return [_readable(one) for one in value]
    if is_dataclass(value):
        return {one.name: _readable(getattr(value, one.name)) for one in dataclass_fields(value)}
    return value


def _read(path: str) -> bytes:
    with open(path, "rb") as file:
        return file.read()


_READERS: dict[str, Callable[[str], Iterator[Fact]]] = {
    ".index": _offset_index,
    ".timeindex": _time_index,
    ".txnindex": _transaction_index,
    ".snapshot": _snapshot,
    "leader-epoch-checkpoint": _checkpoint,
    "partition.metadata": _partition_metadata,
    "meta.properties": _properties,
    ".checkpoint": _metadata_snapshot,
}
