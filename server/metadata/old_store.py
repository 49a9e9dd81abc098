"""`odradek-metadata.db`: where a node alone of an earlier version has its metadata, rows in SQLite.

It is only read, to be taken over into the metadata log (`migration.py`). Each row has a CRC of its content. A
store that is damaged is refused: the version that wrote it repairs it at a start.
"""

from __future__ import annotations

import os
import shutil
import sqlite3
import tempfile
import zlib
from collections.abc import Iterator
from contextlib import closing

from odradek.config.config_error import ConfigError
from odradek.coordinator.controller.from_rows import Row
from odradek.server.metadata.meta_properties import OLD_STORE

_APPLICATION_ID = 0x0D7AD0EC
_SCHEMA_VERSION = 1
_VERSION_MAX = 0x7FFF
UNREADABLE = (sqlite3.Error, UnicodeDecodeError)
"""Errors that reading a damaged file may raise; the latter when SQLite quotes from it."""


def read_rows(path: str) -> list[Row]:
    """All rows of a store that nobody has open. ConfigError: it cannot be read, or is damaged."""
    rows, wrong = verify(path)
    if wrong:
        raise ConfigError(
            f"{path} cannot be taken over: {wrong[0]}. Restore it from a backup, or start the version of "
            "Odradek that wrote it, which repairs it."
        )
    return rows


def verify(path: str) -> tuple[list[Row], list[str]]:
    """The sound rows of the store at `path`, and the findings for the rest, a clause each. Nothing is
    changed."""
    rows: list[Row] = []
    wrong: list[str] = []
    try:
        # A copy: SQLite changes files beside one that it only reads.
        with (
            tempfile.TemporaryDirectory(prefix="odradek-store-") as folder,
            closing(sqlite3.connect(_copied(path, folder))) as connection,
        ):
            if finding := _wrong_with_head(connection):
                return rows, [finding]
            wrong += [told for (told,) in connection.execute("PRAGMA integrity_check(5)") if told != "ok"]
            for kind, key, value, crc in _facts(connection):
                if _is_sound(kind, key, value, crc):
                    rows.append(Row(str(kind), str(key), str(value)))
                else:
                    wrong.append(f"the checksum of row {kind} {key!r} does not fit")
    except (*UNREADABLE, OSError) as error:
        wrong.append(f"it cannot be read: {error}")
    return rows, wrong


def _copied(path: str, folder: str) -> str:
    """The store with what a kill has left in its write-ahead log."""
    copy = f"{folder}/{OLD_STORE}"
    for suffix in ("", "-wal"):
        if os.path.exists(path + suffix):
            shutil.copyfile(path + suffix, copy + suffix)
    return copy


def _wrong_with_head(connection: sqlite3.Connection) -> str | None:
    application_id, number = (_pragma(connection, name) for name in ("application_id", "user_version"))
    version = number & _VERSION_MAX
    is_new = (
        not application_id and not number and not connection.execute("SELECT 1 FROM sqlite_master").fetchone()
    )
    if is_new:
        return None
    if application_id != _APPLICATION_ID or number != (version ^ _VERSION_MAX) << 16 | version:
        return "its head is damaged, or it is a database of another program"
    if version > _SCHEMA_VERSION:
        return f"it has schema {version}, and {_SCHEMA_VERSION} is the newest known here"
    return None


def _facts(connection: sqlite3.Connection) -> Iterator[tuple[object, object, object, object]]:
    """None in a file that a first start has made and not filled."""
    if connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'facts'").fetchone():
        yield from connection.execute("SELECT kind, key, value, crc FROM facts ORDER BY kind, key")


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
