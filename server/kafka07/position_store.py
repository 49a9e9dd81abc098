"""The byte positions of logs on disk, in a table of SQLite in the first data directory.

An entry says where the messages from an offset on begin, in the form of 0.7. The last entry of a log is the
end of what has been counted. In a compacted log an entry also has the offset and the size of each value up to
the next entry, so that what compaction removes keeps its place.

A write is one transaction, on disk when it returns (WAL, synchronous=FULL). Logs are known by the ids of
their topics: a topic that is made anew begins anew, and a move to another data directory changes nothing.
Kafka ignores files beside the directories of partitions.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Collection, Iterable, Sequence
from struct import Struct
from threading import Lock
from typing import NamedTuple

from odradek.config.config_error import ConfigError
from odradek.wire.kafka07.served import Form

FILE_NAME = "kafka07-positions.sqlite"
_APPLICATION_ID = 0x0DAD_0007
_SCHEMA_VERSION = 1
_OF_LOG = "topic_id = ? AND partition = ? AND magic = ?"
_PAIR = Struct("<qq")

LogKey = tuple[bytes, int, int]
"""Id of a topic, a partition, and the magic of the messages: clients of 0.6 have other positions."""


class Entry(NamedTuple):
    """The first message at or after `offset` begins at `position`."""

    offset: int
    position: int
    mark: int = 0
    """The CRC-32C of the batch that ends at the offset; 0: unknown."""
    values: tuple[tuple[int, int], ...] = ()
    """Offset and size of each value from here to the next entry, in a compacted log."""


class PositionStore:
    """See the module. Reads are made in the thread of the event loop, `write` and `forget_others` in any:
    they have a connection of their own, so that a read never waits for the disk's confirmation of a write.
    """

    def __init__(self, directory: str) -> None:
        """ConfigError: the file cannot be used."""
        self.path = os.path.join(directory, FILE_NAME)
        self._lock = Lock()
        try:
            self._writer = self._connect()
            self._open(self._writer)
            self._reader = self._connect()
        except sqlite3.Error as error:
            raise ConfigError(
                f"{self.path} cannot be used ({error}): it has the positions of clients of Kafka 0.7. Repair "
                "it, or remove it; then positions begin anew, and their consumers have to begin anew too."
            ) from None

    def _connect(self) -> sqlite3.Connection:
        return sqlite3.connect(self.path, isolation_level=None, check_same_thread=False)

    def _open(self, connection: sqlite3.Connection) -> None:
        application_id = connection.execute("PRAGMA application_id").fetchone()[0]
        version = connection.execute("PRAGMA user_version").fetchone()[0]
        if (application_id, version) not in ((0, 0), (_APPLICATION_ID, _SCHEMA_VERSION)):
            raise sqlite3.DatabaseError("it is of another program, or of a newer version of this one")
        connection.execute("PRAGMA journal_mode=WAL")
        connection.execute("PRAGMA synchronous=FULL")
        if version == 0:
            connection.executescript(
                "BEGIN IMMEDIATE;"
                "CREATE TABLE logs (topic_id BLOB, partition INTEGER, magic INTEGER, form INTEGER NOT NULL,"
                " told INTEGER NOT NULL,"
                " PRIMARY KEY (topic_id, partition, magic)) WITHOUT ROWID;"
                "CREATE TABLE entries (topic_id BLOB, partition INTEGER, magic INTEGER, next_offset INTEGER,"
                " position INTEGER NOT NULL, mark INTEGER NOT NULL, sizes BLOB NOT NULL,"
                " PRIMARY KEY (topic_id, partition, magic, next_offset)) WITHOUT ROWID;"
                "CREATE INDEX by_position ON entries (topic_id, partition, magic, position);"
                f"PRAGMA application_id={_APPLICATION_ID}; PRAGMA user_version={_SCHEMA_VERSION};"
                "COMMIT;"
            )
        elif connection.execute("PRAGMA quick_check(1)").fetchone()[0] != "ok":
            raise sqlite3.DatabaseError("it is damaged")

    # Reading

    def log(self, key: LogKey) -> tuple[Form, int] | None:
        """The form of its messages, and the highest position that was told of what a loss of power has taken.
        None: nothing of the log has been counted."""
        rows = self._reader.execute(f"SELECT form, told FROM logs WHERE {_OF_LOG}", key).fetchall()
        return (Form(rows[0][0]), rows[0][1]) if rows else None

    def last(self, key: LogKey, count: int = 1) -> list[Entry]:
        """The last entries of a log, the latest first."""
        return self._entries(key, "ORDER BY next_offset DESC LIMIT ?", count)

    def at_position(self, key: LogKey, position: int) -> Entry | None:
        """The last entry at or before a position."""
        found = self._entries(
            key, "AND position <= ? ORDER BY position DESC, next_offset DESC LIMIT 1", position
        )
        return found[0] if found else None

    def at_offset(self, key: LogKey, offset: int) -> Entry | None:
        """The last entry at or before an offset."""
        found = self._entries(key, "AND next_offset <= ? ORDER BY next_offset DESC LIMIT 1", offset)
        return found[0] if found else None

    def from_offset(self, key: LogKey, offset: int) -> Entry | None:
        """The first entry at or after an offset."""
        found = self._entries(key, "AND next_offset >= ? ORDER BY next_offset LIMIT 1", offset)
        return found[0] if found else None

    def _entries(self, key: LogKey, rest: str, argument: int) -> list[Entry]:
        rows = self._reader.execute(
            f"SELECT next_offset, position, mark, sizes FROM entries WHERE {_OF_LOG} {rest}",
            (*key, argument),
        )
        return [Entry(offset, at, mark, _values(offset, sizes)) for offset, at, mark, sizes in rows]

    # Writing

    def write(
        self,
        key: LogKey,
        log: tuple[Form, int],
        put: Sequence[Entry],
        drop: Iterable[int] = (),
        drop_from: int | None = None,
        drop_before: int = 0,
    ) -> None:
        """In one transaction: puts what `log` returns, drops the entries at the offsets `drop`, those at
        `drop_from` and later, and those before `drop_before`, then puts others. Durable on return. Raises
        sqlite3.Error, with nothing changed."""
        with self._lock:
            execute = self._writer.execute
            execute("BEGIN IMMEDIATE")
            try:
                execute("INSERT OR REPLACE INTO logs VALUES (?, ?, ?, ?, ?)", (*key, *log))
                of_log = f"DELETE FROM entries WHERE {_OF_LOG} AND next_offset "
                for offset in drop:
                    execute(of_log + "= ?", (*key, offset))
                if drop_before:
                    execute(of_log + "< ?", (*key, drop_before))
                if drop_from is not None:
                    execute(of_log + ">= ?", (*key, drop_from))
                self._writer.executemany(
                    "INSERT OR REPLACE INTO entries VALUES (?, ?, ?, ?, ?, ?, ?)",
                    [(*key, one.offset, one.position, one.mark, _sizes(one)) for one in put],
                )
                execute("COMMIT")
            except BaseException:
                if self._writer.in_transaction:
                    execute("ROLLBACK")
                raise

    def forget_others(self, topic_ids: Collection[bytes]) -> None:
        """Drops the logs of all topics but these."""
        with self._lock:
            known = self._writer.execute("SELECT DISTINCT topic_id FROM logs").fetchall()
            for (topic_id,) in known:
                if topic_id not in topic_ids:
                    self._writer.execute("DELETE FROM entries WHERE topic_id = ?", (topic_id,))
                    self._writer.execute("DELETE FROM logs WHERE topic_id = ?", (topic_id,))

    def close(self) -> None:
        """Waits for a write that is under way; later ones fail."""
        with self._lock:
            self._reader.close()
            self._writer.close()


def _sizes(entry: Entry) -> bytes:
    """Pairs of 64-bit numbers, the offset relative to the entry's."""
    return b"".join(_PAIR.pack(offset - entry.offset, size) for offset, size in entry.values)


def _values(first_offset: int, sizes: bytes) -> tuple[tuple[int, int], ...]:
    return tuple((first_offset + delta, size) for delta, size in _PAIR.iter_unpack(sizes))
