"""What a kill leaves in the metadata's write-ahead log, and what becomes of it when a bit of it flips."""

import random
import shutil
import sqlite3

import pytest

from odradek.coordinator.cluster.machine import Row
from odradek.server.metadata.metadata_store import SqliteMetadataStore, verify
from odradek.server.metadata.write_ahead_log import FRAME_HEADER_BYTES, HEADER_BYTES, mend, read, replayed
from tests.tiers import NIGHTLY

PAGE_BYTES = 4096
FRAME_BYTES = FRAME_HEADER_BYTES + PAGE_BYTES
CHANGES = 6


def change(number):
    return [("topic", f"t{number}", f"{number}" * 32), ("partition", f"t{number}/0", "1 0 1 1")]


@pytest.fixture
def killed(tmp_path):
    """The files of a store with some changes, as a kill leaves them."""
    store = SqliteMetadataStore(str(tmp_path / "metadata.db"))
    for number in range(CHANGES):
        store.write([Row(*row) for row in change(number)])
    kept = tmp_path / "killed"
    kept.mkdir()
    for ending in ("", "-wal"):
        shutil.copy(tmp_path / f"metadata.db{ending}", kept)
    store.close()
    return kept / "metadata.db"


def log_of(path):
    return path.with_name(path.name + "-wal")


def started(path):
    store = SqliteMetadataStore(str(path))
    try:
        return list(store.rows())
    finally:
        store.close()


ALL = sorted(row for number in range(CHANGES) for row in change(number))


def test_a_sound_log_is_left_as_it_is(killed, caplog):
    before = log_of(killed).read_bytes()
    assert read(before) == ([], [], 0)
    assert mend(str(log_of(killed))) == ([], [], 0)
    assert log_of(killed).read_bytes() == before
    assert started(killed) == ALL
    assert not caplog.records


def test_a_check_needs_no_room_for_what_a_kill_has_left(killed):
    before = {path.name: path.read_bytes() for path in killed.parent.iterdir()}
    rows, wrong = verify(str(killed))
    assert (sorted(rows), wrong) == (ALL, [])
    assert {path.name: path.read_bytes() for path in killed.parent.iterdir()} == before


def read_by_sqlite(database, log, tmp_path):
    """The rows that SQLite finds; None where it cannot read the file."""
    path = tmp_path / "copy.db"
    for left in tmp_path.glob("copy.db*"):
        left.unlink()
    path.write_bytes(database)
    if log is not None:
        log_of(path).write_bytes(log)
    connection = sqlite3.connect(path)
    try:
        return connection.execute("SELECT kind, key, value FROM facts ORDER BY kind, key").fetchall()
    except sqlite3.Error:
        return None
    finally:
        connection.close()


def test_a_log_is_replayed_as_far_as_sqlite_does(killed, tmp_path):
    database, log = killed.read_bytes(), log_of(killed).read_bytes()
    chance = random.Random(3)
    logs = [b"", log, log[:20], *(log[:size] for size in range(HEADER_BYTES, len(log), FRAME_BYTES // 2))]
    for _ in range(60):
        other = bytearray(log)
        other[chance.randrange(len(log))] ^= 1 << chance.randrange(8)
        logs.append(bytes(other))
    for number in range(len(log) // FRAME_BYTES):
        other = bytearray(log)
        other[HEADER_BYTES + number * FRAME_BYTES + 20] ^= 1
        logs.append(bytes(other))
    found = [read_by_sqlite(database, one, tmp_path) for one in logs]
    assert [read_by_sqlite(replayed(database, one), None, tmp_path) for one in logs] == found
    assert len({str(rows) for rows in found}) > CHANGES


def test_what_is_left_over_from_before_the_log_was_begun_anew_is_no_loss(tmp_path):
    path = tmp_path / "metadata.db"
    store = SqliteMetadataStore(str(path))
    for number in range(CHANGES):
        store.write([Row("topic", f"{number}", "x")])
    with sqlite3.connect(path) as other:
        other.execute("PRAGMA wal_checkpoint(RESTART)")
    length = log_of(path).stat().st_size
    store.write([Row("topic", "last", "y")])
    log = log_of(path).read_bytes()
    assert len(verify(str(path))[0]) == CHANGES + 1
    assert len(log) == length
    assert read(log) == ([], [], 0)
    store.close()


@pytest.mark.deep
@pytest.mark.timeout(600)
def test_a_flipped_bit_of_the_log_is_mended_wherever_it_is(killed, tmp_path, caplog):
    log = log_of(killed).read_bytes()
    chance = random.Random(1)
    heads = 8 * (HEADER_BYTES + FRAME_HEADER_BYTES)
    last = 8 * (len(log) - FRAME_BYTES)
    count, step = (3000, 1) if NIGHTLY else (20, 11)
    places = [*range(0, heads, step)]
    places += [last + bit for bit in range(0, 8 * FRAME_HEADER_BYTES, step)]
    places += [chance.randrange(8 * len(log)) for _ in range(count)]
    # The number of the page, where several bits make the checksum fit, and the end of a transaction.
    places += [last + bit for bit in (31, 30, 24, 25, 57, 56, 63)]
    copy = tmp_path / "copy" / "metadata.db"
    for place in places:
        shutil.rmtree(copy.parent, ignore_errors=True)
        shutil.copytree(killed.parent, copy.parent)
        damaged = bytearray(log)
        damaged[place // 8] ^= 1 << place % 8
        log_of(copy).write_bytes(damaged)
        caplog.clear()
        assert started(copy) == ALL, f"bit {place}"
        assert [record.getMessage() for record in caplog.records] == [
            f"{log_of(copy)} was damaged, and has been mended"
        ]


def test_what_cannot_be_mended_is_told_and_all_before_it_is_there(killed, caplog):
    log = bytearray(log_of(killed).read_bytes())
    third_from_last = len(log) - 3 * FRAME_BYTES + FRAME_HEADER_BYTES
    log[third_from_last : third_from_last + 512] = bytes(512)
    log_of(killed).write_bytes(log)
    _, wrong = verify(str(killed))
    assert wrong == [
        "of its write-ahead log the last 3 changes cannot be read, and what cannot be read is not there: it "
        "was damaged, or a loss of power has torn it before anybody was told of it"
    ]
    assert started(killed) == [row for row in ALL if row[1][1] in "012"]
    assert "the last 3 changes cannot be read" in caplog.text


def test_a_change_that_was_not_written_to_its_end_is_none(killed, caplog):
    """A kill, or a loss of power, in the middle of a write that nobody was told of."""
    log = log_of(killed).read_bytes()
    log_of(killed).write_bytes(log[: -FRAME_BYTES // 2])
    assert started(killed) == [row for row in ALL if row[1][1] != f"{CHANGES - 1}"]
    assert not caplog.records


def test_a_log_whose_head_is_lost_is_told(killed, caplog):
    log = bytearray(log_of(killed).read_bytes())
    log[:HEADER_BYTES] = bytes(HEADER_BYTES)
    log_of(killed).write_bytes(log)
    started(killed)
    assert "the last change cannot be read" in caplog.text


def test_what_nothing_was_committed_to_is_no_loss():
    for content in (b"", b"short", bytes(HEADER_BYTES)):
        assert read(content) == ([], [], 0)
