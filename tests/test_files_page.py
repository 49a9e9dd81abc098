"""docs/files.md: each file name of the code is there, and its layouts read the files of a broker."""

import ast
import pathlib
import re
import sqlite3
import struct

import pytest

from odradek.coordinator.streams.descriptions import StoredDescription
from odradek.offline import imports
from odradek.server.coordination import topology_file
from odradek.server.kafka07 import position_store
from odradek.server.kafka07.position_store import PositionStore
from odradek.server.metadata import meta_properties, quorum_state
from odradek.server.security.sasl import listeners
from odradek.server.workers import resizing
from odradek.storage.config import LogConfig
from odradek.storage.directories.store import LogStore
from odradek.storage.disk import OsDisk
from odradek.storage.log import flush_journal
from odradek.storage.log.durability import EndCheckpoint
from odradek.storage.log.scan_checkpoint import ScanCheckpoint
from odradek.wire.checksums import crc32c
from tests.kit.data_directories import make_data
from tests.storage.transacting import NOW_MS, Producer

ROOT = pathlib.Path(__file__).parent.parent
PAGE = (ROOT / "docs" / "files.md").read_text()
ROW = re.compile(r"^\| (.*) \|$", re.MULTILINE)
FILE_NAME = re.compile(r"\.[a-z]+(?:\.tmp|-\w+)?|-[a-z]+|[a-z.]+-[a-z-]+(?:\.\d)?|[a-z]+\.[a-z]+")
"""A constant of `storage/` that may be a name of a file, or the end of one."""


def row(first_cell):
    """The cells of a row of the page, by its first."""
    (found,) = [cells for cells in rows() if cells[0] == first_cell]
    return found


def rows():
    return [match.split(" | ") for match in ROW.findall(PAGE.replace("|  |", "| |"))]


def layouts(first_cell):
    cells = " | ".join(row(first_cell))
    return [struct.Struct(one) for one in re.findall(r"`(>\w+)`", cells)]


def names_in_storage():
    for path in sorted((ROOT / "storage").rglob("*.py")):
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]).strip("_").isupper():
                for one in ast.walk(node.value):
                    if isinstance(one, ast.Constant) and FILE_NAME.fullmatch(str(one.value)):
                        yield one.value


def test_each_file_name_of_the_code_is_on_the_page():
    names = set(names_in_storage())
    assert {"scan-checkpoint", ".timeindex", "-future", ".odradek-probe", "flush-journal.1"} <= names
    modules = (
        meta_properties.FILE_NAME,
        meta_properties.OLD_STORE,
        imports.FILE_NAME,
        quorum_state.FILE_NAME,
    )
    names |= {
        *modules,
        position_store.FILE_NAME,
        listeners.SECRET_FILE,
        topology_file.FILE_NAME,
        resizing.JOURNAL,
    }
    assert [name for name in sorted(names) if not re.search(rf"{re.escape(name)}`", PAGE)] == []


@pytest.fixture(scope="module")
def directory(tmp_path_factory):
    """A directory as a node alone leaves it, with an aborted transaction."""
    path = make_data(tmp_path_factory.mktemp("files"))
    store = LogStore(OsDisk(), [str(path)])
    store.open(NOW_MS)
    partition = store.create("paid", 0, b"1" * 16, LogConfig(index_interval_bytes=1))
    producer = Producer(partition, 7)
    for commit in (False, True):
        for _ in range(3):
            producer.send(b"value")
        producer.end(commit=commit)
    store.close(NOW_MS)
    return path


def test_every_file_of_a_directory_is_on_the_page(directory):
    for path in directory.rglob("*"):
        name = re.sub(r"-(wal|shm)$", "", re.sub(r"^\d{20}", "0" * 20, path.name))
        assert path.is_dir() or f"| `{name}` |" in PAGE


def test_segments_and_indexes_are_laid_out_as_the_page_says(directory):
    partition = directory / "paid-0"
    (batch,) = layouts("`00000000000000000000.log`")
    data = (partition / f"{0:020}.log").read_bytes()
    position, found = 0, {}
    while position < len(data):
        base, length, _, magic, crc, _, delta, *_ = batch.unpack_from(data, position)
        assert magic == 2
        assert crc == crc32c(data[position + 21 : position + 12 + length])
        found[base + delta] = position
        position += 12 + length
    assert len(found) == 8
    (index,) = layouts("`00000000000000000000.index`")
    entries = list(index.iter_unpack((partition / f"{0:020}.index").read_bytes()))
    assert entries
    assert set(entries) <= set(found.items())
    (time,) = layouts("`00000000000000000000.timeindex`")
    assert all(
        offset in found for _, offset in time.iter_unpack((partition / f"{0:020}.timeindex").read_bytes())
    )
    (aborted,) = layouts("`00000000000000000000.txnindex`")
    ((version, producer_id, first, last, stable),) = aborted.iter_unpack(
        (partition / f"{0:020}.txnindex").read_bytes()
    )
    assert (version, producer_id, first, last, stable) == (0, 7, 0, 3, 4)


def test_a_snapshot_is_laid_out_as_the_page_says(directory):
    head, entry = layouts("`00000000000000000000.snapshot`")
    data = (directory / "paid-0" / f"{8:020}.snapshot").read_bytes()
    version, crc, count = head.unpack_from(data)
    assert (version, crc, count) == (1, crc32c(data[6:]), 1)
    producer_id, _, sequence, offset, delta, _, _, first = entry.unpack_from(data, head.size)
    assert head.size + entry.size == len(data)
    assert (producer_id, sequence, offset, delta, first) == (7, 5, 6, 0, -1)


@pytest.mark.parametrize(
    ("name", "fields"), [("scan-checkpoint", ScanCheckpoint), ("end-checkpoint", EndCheckpoint)]
)
def test_our_checkpoints_have_the_fields_of_the_page(directory, name, fields):
    (line,) = [cells[1] for cells in rows() if cells[0] == f"`{name}`" and cells[1].startswith("`topic")]
    assert line.strip("`").split() == ["topic", "partition", *fields._fields]
    version, count, *lines = (directory / name).read_text().splitlines()
    assert version == "0"
    assert len(lines) == int(count)
    assert {len(one.split()) for one in lines} == {2 + len(fields._fields)}
    assert "paid 0 0" in {" ".join(one.split()[:3]) for one in lines}


def test_the_flush_journal_is_laid_out_as_the_page_says(tmp_path):
    store = LogStore(OsDisk(), [str(tmp_path)])
    store.open(NOW_MS)
    partition = store.create("paid", 0, b"1" * 16, LogConfig())
    partition.flush()
    (journal,) = store.flush_journals
    journal.prepare()
    Producer(partition, 7).send(b"value")
    block = journal.begin([partition])
    block.write()
    data = (tmp_path / flush_journal.NAMES[1]).read_bytes()
    assert len(data) == 32 << 20
    (head,), (identity,), (place,) = map(layouts, ("head of a block", "identity", "place"))
    crc, size_bytes, generation, number, count = head.unpack_from(data)
    assert (generation, number, count) == (1, 0, 1)
    assert crc == crc32c(data[4:size_bytes])
    assert identity.unpack_from(data, head.size) == (b"1" * 16, len("paid-0"))
    at = head.size + identity.size
    assert data[at : at + 6] == b"paid-0"
    base, position, end_offset, length = place.unpack_from(data, at + 6)
    assert (base, position, end_offset) == (0, 0, 1)
    content = (tmp_path / "paid-0" / f"{0:020}.log").read_bytes()
    assert data[at + 6 + place.size : size_bytes] == content
    assert len(content) == length
    journal.finish(block, None)
    store.close(NOW_MS)


def test_descriptions_of_topologies_are_laid_out_as_the_page_says():
    head, entry = (layouts(one)[0] for one in ("head of the descriptions", "entry"))
    data = topology_file.encoded({"group": StoredDescription(7, b"body")})
    magic, crc, count = head.unpack_from(data)
    assert (magic, crc, count) == (b"topology", crc32c(data[head.size :]), 1)
    assert entry.unpack_from(data, head.size) == (7, 5, 4)
    assert data[head.size + entry.size :] == b"groupbody"


def test_the_tables_of_sqlite_are_those_of_the_page(tmp_path):
    PositionStore(str(tmp_path)).close()
    files = {
        "kafka07-positions.sqlite": tmp_path / "kafka07-positions.sqlite",
    }
    told = {(cells[0].strip("`"), cells[1].strip("`")): cells[2] for cells in rows() if len(cells) == 3}
    for name, path in files.items():
        connection = sqlite3.connect(path)
        for (table,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall():
            columns = [column[1] for column in connection.execute(f"PRAGMA table_info({table})")]
            assert told[name, table] == ", ".join(f"`{column}`" for column in columns)
        connection.close()
