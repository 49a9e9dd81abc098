"""The cluster's metadata on disk: durable rows in SQLite, for one process.

Rows are (table, key) -> text, as `coordinator/cluster.py` writes them. A write is one transaction that is on
disk when `write` returns (WAL, synchronous=FULL). Each row carries a CRC of its content, so that damage is
told at start instead of being served. A file of a newer schema is refused, never changed.
"""

import os
import sqlite3
import zlib
from collections.abc import Iterable, Iterator
from itertools import islice

from odradek.coordinator.cluster import Row
from odradek.server.config import ConfigError
from odradek.wire.errors import ErrorCode, KafkaError
from odradek.wire.work import Work, finish

__all__ = ["FILE_NAME", "SqliteMetadataStore", "verify"]

FILE_NAME = "odradek-metadata.db"
_APPLICATION_ID = 0x0D7AD0EC
_SCHEMA_VERSION = 1
_ROWS_PER_STEP = 64
"""Half a millisecond."""


class SqliteMetadataStore:
    """A `coordinator.cluster.MetadataStore` in the file at `path`. Close it when the broker stops.

    ConfigError: the file cannot be opened, is no metadata of ours, is damaged, or is newer than this program.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        # The broker hands slow writes to a worker thread now and then; never to two at once.
        try:
            self._connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
        except sqlite3.Error as error:
            raise ConfigError(f"{path} cannot be opened: {error}.") from None
        try:
            self._open()
        except sqlite3.Error as error:
            self._connection.close()
            raise ConfigError(f"{path} cannot be read as the cluster's metadata: {error}.") from None
        except ConfigError:
            self._connection.close()
            raise

    def _open(self) -> None:
        connection = self._connection
        application_id = _pragma(connection, "application_id")
        version = _pragma(connection, "user_version")
        is_empty = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0] == 0
        if application_id != _APPLICATION_ID and not (is_empty and application_id == 0):
            raise ConfigError(
                f"{self.path} is a database of another program: name another directory in log.dirs."
            )
        if version > _SCHEMA_VERSION:
            raise ConfigError(
                f"{self.path} has schema {version} and this version of Odradek knows {_SCHEMA_VERSION}: "
                "start it with the newer version that wrote it."
            )
        connection.execute("PRAGMA journal_mode=WAL")
        connection.execute("PRAGMA synchronous=FULL")
        if version < _SCHEMA_VERSION:
            self._create()

    def _create(self) -> None:
        connection = self._connection
        connection.execute("BEGIN IMMEDIATE")
        connection.execute(
            "CREATE TABLE facts (kind TEXT NOT NULL, key TEXT NOT NULL, value TEXT NOT NULL,"
            " crc INTEGER NOT NULL, PRIMARY KEY (kind, key)) WITHOUT ROWID"
        )
        connection.execute(f"PRAGMA application_id={_APPLICATION_ID}")
        connection.execute(f"PRAGMA user_version={_SCHEMA_VERSION}")
        connection.execute("COMMIT")

    def rows(self) -> Iterator[Row]:
        """Every row, ordered by table and key. ConfigError at the first one that is damaged."""
        try:
            found = self._connection.execute("SELECT kind, key, value, crc FROM facts ORDER BY kind, key")
            for kind, key, value, crc in found:
                if crc != _checksum(kind, key, value):
                    raise ConfigError(
                        f"{self.path} is damaged at {kind} {key!r}: restore the file from a backup."
                    )
                yield Row(kind, key, value)
        except sqlite3.Error as error:
            raise ConfigError(f"{self.path} is damaged ({error}): restore the file from a backup.") from None

    def write(self, rows: Iterable[Row]) -> None:
        """Put or delete (value None) the rows in one transaction, durable on return.

        KafkaError(KAFKA_STORAGE_ERROR): nothing changed.
        """
        finish(self.writing(rows))

    def writing(self, rows: Iterable[Row]) -> Work[None]:
        """`write` in steps, the last of which waits for the disk. Nothing else may be written meanwhile."""
        connection = self._connection
        left = iter(rows)
        try:
            connection.execute("BEGIN IMMEDIATE")
            while step := list(islice(left, _ROWS_PER_STEP)):
                self._put(step)
                yield None
            yield lambda: connection.execute("COMMIT")
        except sqlite3.Error as error:
            self._roll_back()
            raise KafkaError(
                ErrorCode.KAFKA_STORAGE_ERROR, f"The cluster's metadata could not be written: {error}."
            ) from None
        except BaseException:
            self._roll_back()
            raise

    def _put(self, rows: Iterable[Row]) -> None:
        execute = self._connection.execute
        for kind, key, value in rows:
            if value is None:
                execute("DELETE FROM facts WHERE kind = ? AND key = ?", (kind, key))
            else:
                execute(
                    "INSERT OR REPLACE INTO facts VALUES (?, ?, ?, ?)",
                    (kind, key, value, _checksum(kind, key, value)),
                )

    def close(self) -> None:
        """Fold the write-ahead log into the file and close it."""
        self._connection.close()

    def _roll_back(self) -> None:
        if self._connection.in_transaction:
            try:
                self._connection.execute("ROLLBACK")
            except sqlite3.Error:
                pass


def _pragma(connection: sqlite3.Connection, name: str) -> int:
    return connection.execute(f"PRAGMA {name}").fetchone()[0]


def _checksum(kind: str, key: str, value: str) -> int:
    # Lengths keep ("a", "bc") and ("ab", "c") apart.
    return zlib.crc32(f"{len(kind)},{len(key)},{kind}{key}{value}".encode())


def verify(path: str) -> tuple[list[Row], list[str]]:
    """The sound rows of the store at `path`, and what is wrong with the rest, a clause each.

    Nothing is changed. A store that cannot be read at all has no rows.
    """
    from urllib.parse import quote  # a start does without

    rows: list[Row] = []
    try:
        # With "immutable" no file is made beside it; a write-ahead log that is there has to be read, though.
        how = "mode=ro" if os.path.exists(f"{path}-wal") else "immutable=1"
        connection = sqlite3.connect(f"file:{quote(os.path.abspath(path))}?{how}", uri=True)
        try:
            version = _pragma(connection, "user_version")
            if _pragma(connection, "application_id") != _APPLICATION_ID:
                return rows, ["it is a database of another program"]
            if version > _SCHEMA_VERSION:
                return rows, [f"it has schema {version}, and {_SCHEMA_VERSION} is the newest known here"]
            wrong = [told for (told,) in connection.execute("PRAGMA integrity_check(5)") if told != "ok"]
            for kind, key, value, crc in connection.execute("SELECT kind, key, value, crc FROM facts"):
                if crc == _checksum(kind, key, value):
                    rows.append(Row(kind, key, value))
                else:
                    wrong.append(f"the checksum of row {kind} {key!r} does not fit")
            return rows, wrong
        finally:
            connection.close()
    except sqlite3.Error as error:
        return rows, [f"it cannot be read: {error}"]
