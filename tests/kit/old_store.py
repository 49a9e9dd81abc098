"""The metadata of a node alone of an earlier version, rows in SQLite."""

import sqlite3
from contextlib import closing

from odradek.server.metadata.old_store import checksum


def write_store(path, rows, *, version=1, application_id=0x0D7AD0EC, crc=None):
    """Make the store at `path` with rows (table, key, value); with `crc` their checksum is wrong."""
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA journal_mode=WAL")
        connection.execute(
            "CREATE TABLE facts (kind TEXT NOT NULL, key TEXT NOT NULL, value TEXT NOT NULL,"
            " crc INTEGER NOT NULL, PRIMARY KEY (kind, key)) WITHOUT ROWID"
        )
        connection.execute(f"PRAGMA application_id={application_id}")
        connection.execute(f"PRAGMA user_version={(version ^ 0x7FFF) << 16 | version}")
        connection.executemany(
            "INSERT INTO facts VALUES (?, ?, ?, ?)",
            [(*row, checksum(*row) if crc is None else crc) for row in rows],
        )
        connection.commit()
