"""Repair of the cluster's metadata from the readable rows of a damaged file and from the directories.

A broker that refused to start for one flipped bit would never start again. So a new store is made of all rows
with a right checksum, read from both ends; the damaged file is kept beside it
(`odradek-metadata.db.0.damaged`). The part before the rows (SQLite's header, the schema) is the same in every
store, so it is taken from a new one if it is damaged; a row with one flipped bit is mended by its checksum.
Topics whose rows are lost are restored from the directories of their partitions, which have name, number and
topic id.

When rows are lost, settings may be among them. The defaults would delete records after a week: so topics
without these settings keep all records until the settings are changed. Producer ids go on far beyond all that
were given out. Every step is logged.

Nothing stands in for rows that guard something (`GUARDING`: ACLs, users for SCRAM): a start without them
could allow what they forbid. If such rows may be lost, the repair is refused, unless an administrator asks
for it by `odradek check --repair`.

After a crash a repair begins again, or the next start finishes it: the new store is complete under another
name before the damaged one is touched.
"""

import os
import sqlite3
from collections.abc import Callable, Mapping, Sequence

from odradek.config.config_error import ConfigError
from odradek.coordinator.cluster.machine import (
    ACL,
    CLUSTER,
    DELETION,
    GUARDING,
    PARTITION,
    SCRAM,
    TOPIC,
    TOPIC_CONFIG,
    Row,
    count_key,
    partition_row,
)
from odradek.coordinator.cluster.topics import OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from odradek.coordinator.cluster.view import PartitionView
from odradek.server.metadata.metadata_files import (
    READING,
    REPAIRED,
    copy_store,
    finish_repair,
    remove_store,
    sync_directory_of,
)
from odradek.server.metadata.metadata_store import UNREADABLE, SqliteMetadataStore, checksum
from odradek.server.metadata.topics_on_disk import FoundTopic, topics_on_disk
from odradek.storage.disk import Disk
from odradek.wire.errors import KafkaError

_BUILDING = ".building"
_PAGE_SIZE, _COUNTER, _FREE_PAGES, _VALID_FOR = slice(16, 18), slice(24, 28), slice(32, 40), slice(92, 96)
"""In SQLite's header; the second counts changes, the last says for which of them the count of pages is."""
_MENDED_BYTES_MAX = 4096
"""Size of a row that can be mended; each of its bits is tried."""
KEEPING_ALL = {"cleanup.policy": "delete", "retention.ms": "-1", "retention.bytes": "-1"}
KEEPING_LATEST = {"cleanup.policy": "compact"}
NAMES_TOLD = 20

Rows = dict[tuple[str, str], str]


def repair(
    path: str,
    disk: Disk,
    directories: Sequence[str],
    *,
    node_id: int,
    now_ms: int,
    tell: Callable[[str], object],
    is_guarded: bool = False,
    gives_up_guards: bool = False,
) -> SqliteMetadataStore:
    """A new store at `path` in the place of a damaged one that nobody has open.

    `is_guarded` says that guarding rows are in use, also if none of them can be read. ConfigError: the new
    store cannot be written (the damaged one is still there then, or kept beside), or guarding rows may be
    lost and are not given up.
    """
    try:
        rows, is_whole = _saved_rows(path)
        if gives_up_guards:
            _give_up_guards(rows, is_whole, tell)
        elif may_lack_guards(rows, is_whole, is_guarded=is_guarded):
            raise ConfigError(
                f"{path} is damaged, and ACLs or users may be lost: without an ACL clients could do what it "
                "forbids. Put a copy of the file from a backup in its place, or run odradek check --repair, "
                "which goes on without what is lost; then look at ACLs and users before clients connect."
            )
        rows = _repaired_rows(rows, is_whole, disk, directories, node_id=node_id, now_ms=now_ms, tell=tell)
        _build(path, rows)
        finish_repair(path, tell=tell)
    except (OSError, KafkaError) as error:
        raise ConfigError(f"{path} is damaged and cannot be repaired: {error}.") from error
    return SqliteMetadataStore(path)


def may_lack_guards(rows: Mapping[tuple[str, str], str], is_whole: bool, *, is_guarded: bool = False) -> bool:
    """Whether the readable rows (by kind and key) may lack guarding ones. `is_whole`: all were readable."""
    if not is_whole and is_guarded:
        return True
    for kind in GUARDING:
        count = sum(table == kind for table, _ in rows)
        has_number = (CLUSTER, count_key(kind)) in rows
        if (count or has_number) and not is_whole:
            return True
        if count != int(rows.get((CLUSTER, count_key(kind)), "0")):
            return True
    return any(_is_unknown(kind, key, value) for (kind, key), value in rows.items())


def _is_unknown(kind: str, key: str, value: str) -> bool:
    """Whether it is a guarding row that makes no sense."""
    from odradek.coordinator.security import scram_users
    from odradek.coordinator.security.acls import acl_from_text

    try:
        if kind == ACL:
            acl_from_text(value)
        elif kind == SCRAM:
            scram_users.from_row(key, value)
    except ValueError:
        return True
    return False


def _give_up_guards(rows: Rows, is_whole: bool, tell: Callable[[str], object]) -> None:
    """Accepts the guarding rows that can be read as the only ones from now on."""
    if not may_lack_guards(rows, is_whole):
        return
    for place in [place for place, value in rows.items() if _is_unknown(*place, value)]:
        del rows[place]
    counts = {kind: sum(table == kind for table, _ in rows) for kind in GUARDING}
    for kind, count in counts.items():
        rows[CLUSTER, count_key(kind)] = str(count)
    tell(
        f"ACLs and users may be lost: {counts[ACL]} ACLs and {counts[SCRAM]} credentials of users could be "
        "read. Look at them before clients connect; without a DENY that is lost, clients may do what it "
        "forbade"
    )


def _repaired_rows(
    rows: Rows,
    is_whole: bool,
    disk: Disk,
    directories: Sequence[str],
    *,
    node_id: int,
    now_ms: int,
    tell: Callable[[str], object],
) -> Rows:
    found = _topics_on_disk(disk, directories, rows, tell)
    if is_whole:
        # Then a directory without a row belongs to no topic; other rows may still lack directories.
        named = {key for kind, key in rows if kind == TOPIC}
        named |= {key.rpartition("/")[0] for kind, key in rows if kind == PARTITION}
        found = [one for one in found if one[0] in named]
        is_whole = not found
    rest = "and that is all that there were" if is_whole else "and others are lost"
    tell(f"{len(rows)} rows of the metadata could be read, {rest}")
    for name, topic_id, count in found:
        tell(f"topic {name}: found again by its directories")
        rows[TOPIC, name] = topic_id.hex()
        for index in range(count):
            view = PartitionView(index, node_id, 0, (node_id,), (node_id,))
            row = partition_row(name, view)
            assert row.value is not None
            rows.setdefault((PARTITION, row.key), row.value)
    if not is_whole:
        _stand_in_for_lost(rows, now_ms, tell)
    return rows


def _build(path: str, rows: Rows) -> None:
    building = path + _BUILDING
    remove_store(building)
    store = SqliteMetadataStore(building)
    try:
        store.write(Row(kind, key, value) for (kind, key), value in rows.items())
    finally:
        store.close()
    os.replace(building, path + REPAIRED)
    sync_directory_of(path)


def _stand_in_for_lost(rows: Rows, now_ms: int, tell: Callable[[str], object]) -> None:
    """After a loss no records are deleted, and no producer id is given out twice."""
    # One id a microsecond at the most has been given out since 1970.
    rows[CLUSTER, "next_producer_id"] = str(
        max(int(rows.get((CLUSTER, "next_producer_id"), "0")), now_ms * 1000)
    )
    kept = []
    for name in sorted(key for kind, key in rows if kind == TOPIC):
        keeping = KEEPING_LATEST if name in (OFFSETS_TOPIC, TRANSACTIONS_TOPIC) else KEEPING_ALL
        missing = {option for option in keeping if (TOPIC_CONFIG, f"{name}/{option}") not in rows}
        for option in missing:
            rows[TOPIC_CONFIG, f"{name}/{option}"] = keeping[option]
        if missing and keeping is KEEPING_ALL:
            kept.append(name)
    if kept:
        more = f" and {len(kept) - NAMES_TOLD} more" if len(kept) > NAMES_TOLD else ""
        options = ", ".join(KEEPING_ALL)
        tell(
            f"topics {', '.join(kept[:NAMES_TOLD])}{more}: their settings may be lost; they keep all "
            f"records until somebody says anew what {options} are to be"
        )


# The readable rows
# -------------------------------------------------------------------------------------------


def _saved_rows(path: str) -> tuple[Rows, bool]:
    """The rows with a right checksum, and whether no other rows are lost."""
    copy = path + READING
    rows: Rows = {}
    try:
        copy_store(path, copy)
        if _scan(copy, rows):
            return rows, True
        copy_store(path, copy)
        _give_first_page(copy)
        return rows, _scan(copy, rows)
    finally:
        remove_store(copy)


def _scan(path: str, rows: Rows) -> bool:
    """Add what can be read from either end; whether nothing at all is wrong, save for what was mended."""
    for order in ("ASC", "DESC"):
        is_whole = True
        try:
            connection = sqlite3.connect(path)
            connection.text_factory = bytes
            try:
                query = f"SELECT kind, key, value, crc FROM facts ORDER BY kind {order}, key {order}"
                for fields in connection.execute(query):
                    row = _row_of(*fields)
                    if row is None or row.value is None:
                        is_whole = False
                    else:
                        rows[row.table, row.key] = row.value
                if is_whole and connection.execute("PRAGMA integrity_check(1)").fetchone()[0] == b"ok":
                    return True
            finally:
                connection.close()
        except UNREADABLE:
            continue
    return False


def _row_of(kind: object, key: object, value: object, crc: object) -> Row | None:
    """The row by its checksum, with one flipped bit mended; None if it is damaged further."""
    fields = (kind, key, value)
    texts = [text for text in fields if isinstance(text, bytes)]
    if len(texts) < len(fields) or not isinstance(crc, int):
        return None
    row, found = _decoded(texts)
    if row is not None and (found ^ crc).bit_count() <= 1:
        return row  # or the checksum itself is damaged
    if sum(map(len, texts)) > _MENDED_BYTES_MAX:
        return None
    for place, text in enumerate(texts):
        for bit in range(8 * len(text)):
            other = bytearray(text)
            other[bit // 8] ^= 1 << bit % 8
            row, found = _decoded([*texts[:place], bytes(other), *texts[place + 1 :]])
            if row is not None and found == crc:
                return row
    return None


def _decoded(texts: Sequence[bytes]) -> tuple[Row | None, int]:
    """The row of these texts, and its checksum; none where they are no texts."""
    try:
        kind, key, value = (text.decode() for text in texts)
    except UnicodeDecodeError:
        return None, 0
    return Row(kind, key, value), checksum(kind, key, value)


def _give_first_page(path: str) -> None:
    """Put the first page of a new store in the place of its own: SQLite's header and the schema."""
    new = path + _BUILDING
    remove_store(new)
    SqliteMetadataStore(new).close()
    with open(new, "rb") as file:
        content = file.read()
    remove_store(new)
    page = bytearray(content[: int.from_bytes(content[_PAGE_SIZE], "big")])
    with open(path, "r+b") as file:
        header = file.read(_VALID_FOR.stop)
        if len(header) < _VALID_FOR.stop:
            return
        page[_FREE_PAGES] = header[_FREE_PAGES]
        # Two different numbers: how many pages there are is then asked of the file.
        page[_COUNTER], page[_VALID_FOR] = b"\0\0\0\2", b"\0\0\0\1"
        file.seek(0)
        file.write(page)


def _topics_on_disk(
    disk: Disk, directories: Sequence[str], rows: Rows, tell: Callable[[str], object]
) -> list[FoundTopic]:
    """Topics of which rows are missing."""
    indexes: dict[str, set[int]] = {}
    for kind, key in rows:
        if kind == PARTITION:
            name, _, number = key.rpartition("/")
            indexes.setdefault(name, set()).add(int(number))
    ids = {name: bytes.fromhex(value) for (kind, name), value in rows.items() if kind == TOPIC}
    deleted = {bytes.fromhex(key) for kind, key in rows if kind == DELETION}
    return topics_on_disk(disk, directories, ids, indexes, deleted, tell)
