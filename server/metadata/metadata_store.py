"""The cluster's metadata on disk: durable rows in SQLite, for one process.

Rows are (table, key) -> text, as `coordinator/cluster/machine.py` writes them. A write is one transaction
that is on disk when `write` returns (WAL, synchronous=FULL). Each row carries a CRC of its content, so that
damage is told at start instead of being served. A file of a newer schema is refused, never changed; a number
in which a bit has flipped is no newer schema. What a kill has left in the write-ahead log is looked at before
SQLite reads it (`write_ahead_log`).
"""

import logging
import os
import sqlite3
import zlib
from collections.abc import Iterable, Iterator
from itertools import islice

from odradek.config.config_error import ConfigError
from odradek.coordinator.cluster.machine import Row
from odradek.server.metadata.metadata_files import LOG, REPAIRED, choose, finish_repair
from odradek.wire.errors import ErrorCode, KafkaError
from odradek.wire.work import Work, finish

logger = logging.getLogger("odradek.metadata")

FILE_NAME = "odradek-metadata.db"
_APPLICATION_ID = 0x0D7AD0EC
_SCHEMA_VERSION = 1
_VERSION_MAX = 0x7FFF
_JOURNAL_MODES, _WITH_LOG, _WITHOUT_LOG = slice(18, 20), b"\2\2", b"\1\1"
"""In SQLite's header: whether who reads and who writes has to know of a write-ahead log."""
_ROWS_PER_STEP = 64
"""Half a millisecond."""
_NOT_THE_FILES_FAULT = (
    sqlite3.SQLITE_BUSY,
    sqlite3.SQLITE_CANTOPEN,
    sqlite3.SQLITE_FULL,
    sqlite3.SQLITE_IOERR,
    sqlite3.SQLITE_LOCKED,
    sqlite3.SQLITE_NOMEM,
    sqlite3.SQLITE_PERM,
)


UNREADABLE = (sqlite3.Error, UnicodeDecodeError)
"""Errors that reading a damaged file may raise; the latter when SQLite quotes from it."""


class DamagedMetadata(ConfigError):
    """The file is ours, and not as it was written; `metadata_repair` knows what to do."""


class SqliteMetadataStore:
    """A `coordinator.cluster.machine.MetadataStore` in the file at `path`. Close it when the broker stops.

    ConfigError: the file cannot be opened, is no metadata of ours, or is newer than this program;
    `DamagedMetadata`: it is ours and damaged.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        self._look_before(path)
        # Slow writes run in a worker thread, never in two at once.
        try:
            self._connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
        except sqlite3.Error as error:
            raise ConfigError(f"{path} cannot be opened: {error}.") from None
        try:
            self._open()
        except UNREADABLE as error:
            self._connection.close()
            code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_CORRUPT) & 0xFF
            if code in _NOT_THE_FILES_FAULT and _is_full(path, error):
                raise ConfigError(
                    f"{path} cannot be opened: the disk is full, and SQLite needs room beside the file. Make "
                    "room on it and start again."
                ) from None
            kind = ConfigError if code in _NOT_THE_FILES_FAULT else DamagedMetadata
            raise kind(f"{path} cannot be read as the cluster's metadata: {error}.") from None
        except ConfigError:
            self._connection.close()
            raise
        except OSError as error:
            self._connection.close()
            raise ConfigError(f"{path} cannot be opened: {error.strerror or error}.") from None

    def _look_before(self, path: str) -> None:
        """At what a kill has left: a repair that was not finished, changes that are in the log only. And
        whether the file can be written: SQLite would open it all the same, and fail with the first topic.
        """
        if os.path.exists(path) and not os.access(path, os.R_OK | os.W_OK):
            raise ConfigError(f"{path} (log.dirs) cannot be read and written: change its owner or mode.")
        try:
            if os.path.exists(path + REPAIRED):
                finish_repair(path, tell=logger.error)
            if not os.path.exists(path + LOG):
                return
            from odradek.server.metadata import write_ahead_log

            found = write_ahead_log.mend(path + LOG)
            if found.choices:
                best = choose(path, found.choices, lambda copy: not verify(copy)[1])
                write_ahead_log.patch(path + LOG, [best])
        except OSError as error:
            raise ConfigError(f"{path} cannot be opened: {error.strerror or error}.") from None
        if found.patches or found.choices:
            logger.error("%s was damaged, and has been mended", path + LOG)
        if found.lost_count:
            logger.error("%s: %s", path + LOG, _told_of_lost(found.lost_count))

    def _open(self) -> None:
        connection = self._connection
        application_id = _pragma(connection, "application_id")
        version = _version_of(_pragma(connection, "user_version"))
        tables = {name for (name,) in connection.execute("SELECT name FROM sqlite_master")}
        is_ours = application_id == _APPLICATION_ID
        if (is_ours and version is None) or ("facts" in tables and not (is_ours and version)):
            raise DamagedMetadata(f"{self.path} is damaged in its head.")
        if not is_ours and (tables or application_id or version != 0):
            raise ConfigError(
                f"{self.path} is a database of another program: name another directory in log.dirs."
            )
        if version and version > _SCHEMA_VERSION:
            raise ConfigError(
                f"{self.path} has schema {version} and this version of Odradek knows {_SCHEMA_VERSION}: "
                "start it with the newer version that wrote it."
            )
        if is_ours and not _has_journal_mode(_head(self.path)):
            # SQLite would open it, and refuse every write.
            raise DamagedMetadata(f"{self.path} is damaged in its head.")
        connection.execute("PRAGMA journal_mode=WAL")
        connection.execute("PRAGMA synchronous=FULL")
        if not version:
            self._create()
        elif (found := connection.execute("PRAGMA quick_check(1)").fetchone()[0]) != "ok":
            # A row may be missing, which no row's checksum shows.
            raise DamagedMetadata(f"{self.path} is damaged: {found}.")

    def _create(self) -> None:
        connection = self._connection
        connection.execute("BEGIN IMMEDIATE")
        connection.execute(
            "CREATE TABLE facts (kind TEXT NOT NULL, key TEXT NOT NULL, value TEXT NOT NULL,"
            " crc INTEGER NOT NULL, PRIMARY KEY (kind, key)) WITHOUT ROWID"
        )
        connection.execute(f"PRAGMA application_id={_APPLICATION_ID}")
        connection.execute(f"PRAGMA user_version={_number_of(_SCHEMA_VERSION)}")
        connection.execute("COMMIT")

    def rows(self) -> Iterator[Row]:
        """Every row, ordered by table and key. `DamagedMetadata` at the first one that is damaged."""
        try:
            found = self._connection.execute("SELECT kind, key, value, crc FROM facts ORDER BY kind, key")
            for kind, key, value, crc in found:
                if not _is_sound(kind, key, value, crc):
                    raise DamagedMetadata(f"{self.path} is damaged at {kind} {key!r}.")
                yield Row(kind, key, value)
        except UNREADABLE as error:
            raise DamagedMetadata(f"{self.path} is damaged ({error}).") from None

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
                    (kind, key, value, checksum(kind, key, value)),
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


def _number_of(version: int) -> int:
    """Number for a schema in the file's head: the version, and above it the version with all bits the other
    way. So no flipped bit makes another version of it.
    """
    return (version ^ _VERSION_MAX) << 16 | version


def _version_of(number: int) -> int | None:
    """The schema's version, 0 for a file without one; None when the number is damaged."""
    version = number & _VERSION_MAX
    return version if number == _number_of(version) or not number else None


def _is_full(path: str, error: BaseException) -> bool:
    """Whether it was for want of room that SQLite could not do something; it calls that an I/O error, too."""
    if getattr(error, "sqlite_errorcode", 0) in (sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR_SHMSIZE):
        return True
    try:
        return os.statvfs(os.path.dirname(path) or os.curdir).f_bavail == 0
    except OSError:
        return False


def _told_of_lost(count: int) -> str:
    changes = "the last change" if count == 1 else f"the last {count} changes"
    return (
        f"{changes} cannot be read, and what cannot be read is not there: it was damaged, or a loss of power "
        "has torn it before anybody was told of it"
    )


def _pragma(connection: sqlite3.Connection, name: str) -> int:
    value: int = connection.execute(f"PRAGMA {name}").fetchone()[0]
    return value


def checksum(kind: str, key: str, value: str) -> int:
    """The checksum of a row."""
    # Lengths keep ("a", "bc") and ("ab", "c") apart.
    return zlib.crc32(f"{len(kind)},{len(key)},{kind}{key}{value}".encode())


def _is_sound(kind: object, key: object, value: object, crc: object) -> bool:
    """Whether a row's checksum is right; a damaged row may have any types."""
    texts = (kind, key, value)
    return all(isinstance(text, str) for text in texts) and crc == checksum(*map(str, texts))


def verify(path: str) -> tuple[list[Row], list[str]]:
    """The sound rows of the store at `path`, and the findings for the rest, a clause each.

    Nothing is changed. A store that cannot be read at all has no rows.
    """
    rows: list[Row] = []
    wrong: list[str] = []
    try:
        wrong = _wrong_with_log(path)
        connection = _in_memory(path)
        try:
            version = _version_of(_pragma(connection, "user_version"))
            is_ours = _pragma(connection, "application_id") == _APPLICATION_ID
            if version and version > _SCHEMA_VERSION:
                return rows, [f"it has schema {version}, and {_SCHEMA_VERSION} is the newest known here"]
            if not is_ours or not version or not _has_journal_mode(_head(path)):
                wrong.append("its head is damaged, or it is a database of another program")
            wrong += [told for (told,) in connection.execute("PRAGMA integrity_check(5)") if told != "ok"]
            for kind, key, value, crc in connection.execute("SELECT kind, key, value, crc FROM facts"):
                if _is_sound(kind, key, value, crc):
                    rows.append(Row(kind, key, value))
                else:
                    wrong.append(f"the checksum of row {kind} {key!r} does not fit")
            return rows, wrong
        finally:
            connection.close()
    except UNREADABLE as error:
        return rows, [*wrong, f"it cannot be read: {error}"]
    except OSError as error:
        return rows, [*wrong, f"it cannot be read: {error.strerror or error}"]


def _wrong_with_log(path: str) -> list[str]:
    """The findings of the write-ahead log that a start would handle."""
    from odradek.server.metadata import write_ahead_log

    found = write_ahead_log.read(_content(path + LOG))
    wrong = []
    for position, _ in (*found.patches, *found.choices[:1]):
        wrong.append(f"its write-ahead log is damaged at byte {position}, and can be mended")
    if found.lost_count:
        wrong.append(f"of its write-ahead log {_told_of_lost(found.lost_count)}")
    return wrong


def _head(path: str) -> bytes:
    with open(path, "rb") as file:
        return file.read(_JOURNAL_MODES.stop)


def _has_journal_mode(head: bytes | bytearray) -> bool:
    return head[_JOURNAL_MODES] in (_WITH_LOG, _WITHOUT_LOG)


def _content(path: str) -> bytes:
    try:
        with open(path, "rb") as file:
            return file.read()
    except FileNotFoundError:
        return b""


def _in_memory(path: str) -> sqlite3.Connection:
    """A copy of the store. SQLite would need room on the disk to read one with a write-ahead log, and leave
    files beside it.
    """
    from odradek.server.metadata import write_ahead_log

    with open(path, "rb") as file:
        pages = write_ahead_log.replayed(file.read(), _content(path + LOG))
    if _has_journal_mode(pages[: _JOURNAL_MODES.stop]):
        # In memory there is no log beside it, and what it had is in the pages.
        pages[_JOURNAL_MODES] = _WITHOUT_LOG
    connection = sqlite3.connect(":memory:")
    try:
        if pages:  # of nothing SQLite makes a MemoryError
            connection.deserialize(pages)
    except sqlite3.Error:
        connection.close()
        raise
    return connection
