"""Each kind of damage to a partition's directory: what the check says of it, and what the repair leaves."""

import errno
import random
import struct

import pytest

from odradek.offline.check_partition import DAMAGE, PartitionCheck
from odradek.offline.repair_partition import repair_caches, repair_log
from odradek.storage.config import LogConfig
from odradek.storage.directories.store import LogStore
from odradek.storage.disk import read_file, replace_file
from odradek.storage.log import transaction_index
from odradek.storage.log.batches import StoredBatch, scan
from odradek.storage.log.producer_state import ProducerEntry, encode_snapshot
from odradek.storage.log.transaction_index import AbortedTransaction as Aborted
from odradek.storage.log.transaction_index import encode_aborted
from odradek.wire.legacy_records import build_message
from odradek.wire.records import Record, build_batch, end_txn_marker, iter_records, patch_batch
from tests.kit import compressed_forms
from tests.kit.collecting import collected
from tests.storage.memory_disk import MemoryDisk

NOW_MS = 1_700_000_000_000
PATH = "data/orders-0"
FIRST, SECOND = f"{0:020}", f"{12:020}"
LOG = f"{PATH}/{FIRST}.log"
PER_BATCH = 3
SEGMENT_BATCHES = 4
BATCHES = 7
LATEST_UNTIL_5 = NOW_MS + 12
LATEST = NOW_MS + 32
"""Of the first segment."""


def a_batch(number: int, **kwargs) -> bytearray:
    records = [Record(n, NOW_MS + 10 * number + n, b"k%d" % n, b"v" * 30) for n in range(PER_BATCH)]
    return build_batch(records, **kwargs)


@pytest.fixture
def disk() -> MemoryDisk:
    """Two segments: offsets 0 to 11 in four batches, 12 to 20 in three; one idempotent producer."""
    disk = MemoryDisk()
    store = LogStore(disk, ["data"])
    store.open(NOW_MS)
    config = LogConfig(index_interval_bytes=100, segment_bytes=SEGMENT_BATCHES * len(a_batch(0)) + 50)
    partition = store.create("orders", 0, bytes(range(16)), config)
    for number in range(BATCHES):
        sequence = PER_BATCH * number
        batch = a_batch(number, producer_id=7, producer_epoch=0, base_sequence=sequence)
        partition.appends.append(batch, now_ms=NOW_MS + 10 * number)
        partition.commit()
    store.close(NOW_MS)
    return disk


def check(disk: MemoryDisk, **surroundings) -> PartitionCheck:
    checked = PartitionCheck(disk, PATH, **{"was_clean": True, "recovery_point": 21, **surroundings})
    for _ in checked.steps():
        pass
    return checked


def told(disk: MemoryDisk, **surroundings) -> list[str]:
    """The findings, each as "kind file at position: what | consequence"."""
    return [
        f"{kind} {path.removeprefix(PATH).removeprefix('/')}{'' if position is None else f' at {position}'}: "
        f"{what} | {consequence}"
        for kind, path, position, what, consequence in check(disk, **surroundings).findings
    ]


def damaged_files(disk: MemoryDisk) -> set[str]:
    found = check(disk).findings
    return {finding.path.removeprefix(f"{PATH}/") for finding in found if finding.kind == DAMAGE}


def repair(disk: MemoryDisk) -> list[tuple[str, int]]:
    """What was done, and the bytes that it cost; afterwards nothing is damaged."""
    checked = check(disk)
    done = repair_log(disk, checked)
    done += repair_caches(disk, check(disk))
    again = check(disk)
    assert [finding for finding in again.findings if finding.kind == DAMAGE] == []
    return [(one.what, one.lost_bytes) for one in done]


def batches(disk: MemoryDisk, name: str = FIRST) -> list[StoredBatch]:
    file = disk.open(f"{PATH}/{name}.log")
    return list(scan(file.read, 0, file.size()))


def offsets(disk: MemoryDisk) -> list[int]:
    """Of all records that can be read, through sound batches."""
    found = []
    for name in (FIRST, SECOND):
        if f"{PATH}/{name}.log" in disk.files:
            file = disk.open(f"{PATH}/{name}.log")
            for batch in scan(file.read, 0, file.size(), verify=True):
                found += [
                    record.offset for record in iter_records(file.read(batch.position, batch.size_bytes))
                ]
    return found


def change(disk: MemoryDisk, path: str, position: int, content: bytes) -> None:
    disk.files[path].data[position : position + len(content)] = content


def flip(disk: MemoryDisk, path: str, position: int, bit: int = 0) -> None:
    disk.files[path].data[position] ^= 1 << bit


# --- Log files ---


def test_what_a_broker_leaves_behind_is_sound(disk):
    checked = check(disk)
    assert checked.findings == []
    assert (checked.end_offset, checked.batch_count, checked.record_count) == (21, 7, 21)
    assert [segment.base_offset for segment in checked.segments] == [0, 12]


def test_a_flipped_bit_of_a_record_costs_its_batch_and_no_other(disk):
    second = batches(disk)[1]
    flip(disk, LOG, second.end_position - 1)
    (finding, *indexes) = told(disk)
    assert finding.startswith(f"damage {FIRST}.log at {second.position}: the checksum of a batch is 0x")
    assert finding.endswith(
        f"; {second.size_bytes} bytes are no sound batch | the records from offset 3 to 5 cannot be read"
    )
    assert all(".index" in line or ".timeindex" in line for line in indexes)
    done = repair(disk)
    assert (f"removed {second.size_bytes} bytes, the offsets 3 to 5 are lost", second.size_bytes) in done
    assert offsets(disk) == [0, 1, 2, *range(6, 21)]


def test_a_torn_tail_is_cut_and_nothing_else(disk):
    path = f"{PATH}/{SECOND}.log"
    last = batches(disk, SECOND)[-1]
    del disk.files[path].data[-5:]
    first = told(disk)[0]
    assert first == (
        f"damage {SECOND}.log at {last.position}: a batch claims {last.size_bytes} bytes where "
        f"{last.size_bytes - 5} are left; {last.size_bytes - 5} bytes are no sound batch | "
        "the records from offset 18 to 20 cannot be read"
    )
    done = repair(disk)
    lost = last.size_bytes - 5
    assert done[0] == (f"removed {lost} bytes, the offsets 18 to 20 are lost", lost)
    assert offsets(disk) == list(range(18))


def test_zeros_at_the_end_are_told_as_zeros(disk):
    path = f"{PATH}/{SECOND}.log"
    end = len(disk.files[path].data)
    disk.files[path].data.extend(bytes(4096))
    assert told(disk) == [
        f"damage {SECOND}.log at {end}: there are only zeros from here on; 4096 bytes are no sound batch | "
        "no offset is missing"
    ]
    assert told(disk, was_clean=False)[0].endswith("the records from offset 21 on cannot be read")
    assert repair(disk) == [("removed 4096 bytes, no records", 4096)]
    assert offsets(disk) == list(range(21))


def test_garbage_between_batches_is_cut_out(disk):
    place = batches(disk)[2].position
    garbage = random.Random(5).randbytes(1000)
    disk.files[LOG].data[place:place] = garbage
    first = told(disk)[0]
    assert first.startswith(f"damage {FIRST}.log at {place}: ")
    assert first.endswith("1000 bytes are no sound batch | no offset is missing")
    assert ("removed 1000 bytes, no records", 1000) in repair(disk)
    assert offsets(disk) == list(range(21))


def test_a_segment_without_a_sound_batch_goes_unless_it_is_the_last(disk):
    disk.files[LOG].data[:] = bytes(len(disk.files[LOG].data))
    assert "the records from offset 0 to 11 cannot be read" in told(disk)[0]
    repair(disk)
    assert LOG not in disk.files
    assert offsets(disk) == list(range(12, 21))
    path = f"{PATH}/{SECOND}.log"
    disk.files[path].data[:] = b"x" * 100
    repair(disk)
    assert read_file(disk, path) == b""
    assert check(disk).end_offset == 12


@pytest.mark.parametrize(
    ("position", "content", "what"),
    [
        (0, (7).to_bytes(8, "big"), "a batch has the offset 7 where 3 is due"),
        (0, (2**40).to_bytes(8, "big"), "a batch has the offset 1099511627776 where 3 is due"),
        (8, (500).to_bytes(4, "big"), "a batch claims 512 bytes instead of {size}"),
        (8, (0).to_bytes(4, "big"), "a batch claims 12 bytes instead of {size}"),
        (16, b"\x03", "a batch has the magic 3 instead of 2"),
        (16, b"\x00", "a batch has the magic 0 instead of 2"),
        (12, (9).to_bytes(4, "big"), "a batch has the leader epoch 9 where the checkpoint has 0"),
    ],
)
def test_a_header_that_no_checksum_covers_is_put_right(disk, position, content, what):
    before = read_file(disk, LOG)
    second = batches(disk)[1]
    change(disk, LOG, second.position + position, content)
    what = what.format(size=second.size_bytes)
    assert any(f"{FIRST}.log at {second.position}: {what}" in line for line in told(disk))
    assert (f"repaired: {what}", 0) in repair(disk)
    assert read_file(disk, LOG) == before


def test_the_last_batch_of_the_log_has_the_offset_that_is_due(disk):
    last = batches(disk, SECOND)[-1]
    change(disk, f"{PATH}/{SECOND}.log", last.position, (3).to_bytes(8, "big"))
    assert "a batch has the offset 3 where 18 is due" in told(disk)[0]
    repair(disk)
    assert offsets(disk) == list(range(21))


def test_a_batch_inside_a_record_is_not_taken_for_one(disk):
    inner = bytes(a_batch(0))
    patch = bytearray(inner)
    patch_batch(patch, 0, 30, 0)
    outer = bytearray(build_batch([Record(21, NOW_MS, None, bytes(patch))], leader_epoch=0))
    outer[-1] ^= 1
    path = f"{PATH}/{SECOND}.log"
    end = len(disk.files[path].data)
    disk.files[path].data.extend(outer)
    assert f"{len(outer)} bytes are no sound batch" in told(disk)[0]
    repair(disk)
    assert len(disk.files[path].data) == end


@pytest.mark.parametrize("seed", range(4))
def test_any_flipped_bit_of_a_log_file_is_found_and_costs_one_batch_at_most(disk, seed):
    chance = random.Random(seed)
    for name in (FIRST, SECOND):
        path = f"{PATH}/{name}.log"
        before = read_file(disk, path)
        for _ in range(60):
            bit = chance.randrange(8 * len(before))
            flip(disk, path, bit // 8, bit % 8)
            assert damaged_files(disk), bit
            repair(disk)
            kept = offsets(disk)
            assert len(kept) >= BATCHES * PER_BATCH - PER_BATCH, (name, bit)
            assert set(kept) <= set(range(BATCHES * PER_BATCH)), (name, bit)
            disk.files[path].data[:] = before
            if PATH + "/" + FIRST + ".index" in disk.files:
                repair(disk)


def test_messages_of_old_formats_are_told_and_kept(disk):
    path = f"{PATH}/{SECOND}.log"
    end = len(disk.files[path].data)
    for magic, offset in ((0, 21), (1, 22)):
        disk.files[path].data.extend(
            build_message(magic, offset=offset, timestamp=NOW_MS + 99, key=None, value=b"old")
        )
    assert told(disk)[-1] == (
        f"damage {SECOND}.log at {end}: 2 messages have the old format v0 | "
        "a start after a crash would cut them; odradek import-log converts them"
    )
    checked = check(disk)
    assert (checked.end_offset, checked.legacy_count, checked.log_damage) == (23, 2, [])
    assert repair_log(disk, checked) == []


# --- Indexes ---


@pytest.mark.parametrize(
    ("kind", "content", "what"),
    [
        (".index", b"\0", "1 bytes follow the last whole entry"),
        (".index", struct.pack(">ii", 5, 61), "no batch begins at position 61"),
        (".index", struct.pack(">ii", 4, -1), "the batch at position {second} ends at offset 5, not at 4"),
        (".index", struct.pack(">ii", 6, -1), "the batch at position {second} ends at offset 5, not at 6"),
        (
            ".index",
            struct.pack(">ii", 2**21 + 5, -1),
            "the batch at position {second} ends at offset 5, not at 2097157",
        ),
        (
            ".timeindex",
            struct.pack(">qi", NOW_MS, 5),
            f"until offset 5 the latest timestamp is {LATEST_UNTIL_5}, not {NOW_MS}",
        ),
        (
            ".timeindex",
            struct.pack(">qi", NOW_MS + 99, 5),
            f"until offset 5 no record has the timestamp {NOW_MS + 99}",
        ),
        (
            ".timeindex",
            struct.pack(">qi", NOW_MS + 12, 5),
            f"the latest timestamp of the segment is {LATEST}, the last entry has {LATEST_UNTIL_5}",
        ),
        (".timeindex", b"", f"the latest timestamp of the segment is {LATEST}, the last entry has -1"),
    ],
)
def test_an_index_that_does_not_fit_the_log_is_found_and_made_anew(disk, kind, content, what):
    second = batches(disk)[1].position
    path = f"{PATH}/{FIRST}{kind}"
    sound = read_file(disk, path)
    if content[4:] == b"\xff" * 4:
        content = content[:4] + second.to_bytes(4, "big")
    disk.files[path].data[:] = sound + content if len(content) == 1 else content
    (line,) = told(disk)
    assert line.startswith(f"damage {FIRST}{kind} at ")
    assert f": {what.format(second=second)} | " in line
    repair(disk)
    found = check(disk)
    assert found.findings == []


def test_an_index_may_be_missing_or_sparse_or_have_room_behind_its_entries(disk):
    disk.files[f"{PATH}/{FIRST}.index"].data.extend(bytes(800))
    disk.files[f"{PATH}/{FIRST}.timeindex"].data.extend(bytes(1200))
    disk.remove(f"{PATH}/{SECOND}.index")
    disk.remove(f"{PATH}/{SECOND}.timeindex")
    checked = check(disk)
    assert checked.findings == []
    assert checked.segments[0].padded_indexes == {".index", ".timeindex"}


def test_an_index_of_a_follower_may_name_the_end_of_all_that_one_fetch_brought(disk):
    second, third = (batch.position for batch in batches(disk)[1:3])
    content = disk.files[f"{PATH}/{FIRST}.index"].data
    content[:] = struct.pack(">ii", 8, second)
    assert told(disk) == []
    content[:] = struct.pack(">iiii", 8, second, 11, third)
    (line,) = told(disk)
    assert f": the batch at position {second} ends at offset 5, not at 8 | " in line


def test_any_flipped_bit_of_an_offset_index_is_found(disk):
    path = f"{PATH}/{FIRST}.index"
    size_bytes = len(disk.files[path].data)
    assert size_bytes
    for bit in range(8 * size_bytes):
        flip(disk, path, bit // 8, bit % 8)
        assert damaged_files(disk) == {f"{FIRST}.index"}, bit
        flip(disk, path, bit // 8, bit % 8)


def test_an_index_without_a_log_is_a_note(disk):
    replace_file(disk, f"{PATH}/{99:020}.index", b"")
    replace_file(disk, f"{PATH}/{FIRST}.log.deleted", b"")
    assert told(disk) == [
        f"note {FIRST}.log.deleted: was left by work that a stop interrupted | a start removes it",
        f"note {99:020}.index: belongs to no segment | a start removes it",
    ]


# --- Transactions ---


@pytest.fixture
def with_transactions() -> MemoryDisk:
    """Producer 7 aborts the offsets 0 to 3, producer 8 commits 3 to 5; 9 begins at 6 and is open."""
    disk = MemoryDisk()
    disk.make_directory(PATH)
    log = bytearray()

    def add(batch: bytearray, offset: int) -> None:
        patch_batch(batch, 0, offset, 0)
        log.extend(batch)

    transactional = {"producer_epoch": 0, "base_sequence": 0, "transactional": True}
    ends = {"producer_epoch": 0, "coordinator_epoch": 2, "timestamp": NOW_MS}
    add(a_batch(0, producer_id=7, **transactional), 0)
    add(build_batch([Record(0, NOW_MS, None, b"8")], producer_id=8, **transactional), 3)
    add(end_txn_marker(committed=False, producer_id=7, **ends), 4)
    add(end_txn_marker(committed=True, producer_id=8, **ends), 5)
    add(build_batch([Record(0, NOW_MS, None, b"9")], producer_id=9, **transactional), 6)
    replace_file(disk, LOG, bytes(log))
    replace_file(disk, f"{PATH}/{FIRST}.txnindex", encode_aborted([Aborted(7, 0, 4, 3)]))
    replace_file(disk, f"{PATH}/leader-epoch-checkpoint", b"0\n1\n0 0\n")
    return disk


def test_a_transaction_index_as_kafka_writes_it_is_sound(with_transactions):
    assert told(with_transactions) == []


@pytest.mark.parametrize(
    ("content", "what"),
    [
        (b"", "the aborted transaction of producer 7 from offset 0 to 4 is missing"),
        (
            encode_aborted([Aborted(8, 3, 5, 6)]),
            "at offset 5 is not an abort marker of producer 8 (and 1 more)",
        ),
        (
            encode_aborted([Aborted(7, 2, 4, 3)]),
            "the aborted transaction of producer 7 from offset 0 to 4 begins at 2 by this entry",
        ),
        (
            encode_aborted([Aborted(7, 0, 4, 2**40 + 3)]),
            "after the aborted transaction of producer 7 from offset 0 to 4 the last stable offset is "
            "1099511627779 by this entry, by the log it is 3",
        ),
        (
            encode_aborted([Aborted(7, 0, 4, 2)]),
            "after the aborted transaction of producer 7 from offset 0 to 4 the last stable offset is 2 "
            "by this entry, by the log it is 3",
        ),
        (encode_aborted([Aborted(7, 0, 4, 3)]) + b"xx", "2 bytes follow the last whole entry"),
        (encode_aborted([Aborted(7, 0, 4, 3)] * 2), "last offset 4 comes after 4"),
        (
            encode_aborted([Aborted(7, 0, 40, 3)]),
            "a transaction from offset 0 to 40 is not in a segment that ends at 7 (and 1 more)",
        ),
    ],
)
def test_a_wrong_transaction_index_is_found_and_made_anew(with_transactions, content, what):
    disk = with_transactions
    path = f"{PATH}/{FIRST}.txnindex"
    sound = read_file(disk, path)
    disk.files[path].data[:] = content
    (line,) = told(disk)
    assert line.startswith(f"damage {FIRST}.txnindex at ")
    assert f": {what} | READ_COMMITTED would show" in line
    assert repair(disk) == [("rebuilt from the log", 0)]
    assert read_file(disk, path) == sound


def test_any_flipped_bit_of_a_transaction_index_is_found(with_transactions):
    disk = with_transactions
    path = f"{PATH}/{FIRST}.txnindex"
    for bit in range(8 * transaction_index.ENTRY.size):
        flip(disk, path, bit // 8, bit % 8)
        assert damaged_files(disk) == {f"{FIRST}.txnindex"}, bit
        flip(disk, path, bit // 8, bit % 8)


def transaction_log(*batches: tuple[int, str, int]) -> MemoryDisk:
    """A log of (offset, what, producer): "data" in a transaction, "commit", "abort", "empty" as compaction
    leaves the last batch of a producer, "plain" in no transaction. No index.
    """
    disk = MemoryDisk()
    disk.make_directory(PATH)
    log = bytearray()
    for offset, what, producer_id in batches:
        if what in ("commit", "abort"):
            batch = bytearray(
                end_txn_marker(
                    committed=what == "commit",
                    producer_id=producer_id,
                    producer_epoch=0,
                    coordinator_epoch=0,
                    timestamp=NOW_MS,
                )
            )
        else:
            records = [] if what == "empty" else [Record(0, NOW_MS, None, b"%d" % offset)]
            batch = build_batch(
                records,
                producer_id=producer_id,
                producer_epoch=0,
                base_sequence=offset,
                transactional=what != "plain",
            )
        patch_batch(batch, 0, offset, 0)
        log.extend(batch)
    replace_file(disk, f"{PATH}/{batches[0][0]:020}.log", bytes(log))
    replace_file(disk, f"{PATH}/leader-epoch-checkpoint", f"0\n1\n0 {batches[0][0]}\n".encode())
    return disk


def has_index(disk: MemoryDisk, *entries: Aborted, base_offset: int = 0) -> list[str]:
    replace_file(disk, f"{PATH}/{base_offset:020}.txnindex", encode_aborted(entries))
    return [line for line in told(disk) if ".txnindex" in line]


def test_where_compaction_has_left_gaps_an_entry_may_say_what_is_not_there_any_more():
    # What was there: 0 data of 7, 1 data of 8, 2 data of 7, 3 its abort; 4 commit of 8, 5 data of 9.
    disk = transaction_log((2, "data", 7), (3, "abort", 7), (4, "commit", 8), (5, "data", 9))
    disk.rename(f"{PATH}/{2:020}.log", LOG)
    assert has_index(disk, Aborted(7, 0, 3, 1)) == []
    # By the log alone.
    assert has_index(disk, Aborted(7, 2, 3, 4)) == []
    assert has_index(disk, Aborted(7, 3, 3, 1)) != []
    assert has_index(disk, Aborted(7, 0, 3, 2)) != []
    assert has_index(disk, Aborted(7, 0, 3, 6)) != []


def test_a_transaction_that_began_before_the_log_does_may_have_any_first_offset_there():
    disk = transaction_log((50, "data", 7), (51, "plain", 5), (52, "abort", 7), (53, "data", 8))
    assert has_index(disk, Aborted(7, 44, 52, 53), base_offset=50) == []
    assert has_index(disk, Aborted(7, 50, 52, 41), base_offset=50) == []
    assert has_index(disk, Aborted(7, 51, 52, 53), base_offset=50) != []
    assert has_index(disk, Aborted(7, 44, 52, 54), base_offset=50) != []
    # Nothing of it is there but its marker.
    disk = transaction_log((50, "plain", 5), (51, "abort", 7), (52, "abort", 7))
    assert has_index(disk, Aborted(7, 44, 51, 52), base_offset=50) == []
    assert has_index(disk, base_offset=50) == []
    (line,) = has_index(disk, Aborted(7, 44, 52, 53), base_offset=50)
    assert "at offset 52 no transaction of producer 7 is open" in line


def test_a_follower_may_note_the_transaction_that_begins_next_as_last_stable():
    disk = transaction_log((0, "data", 7), (1, "abort", 7), (2, "plain", 5), (3, "data", 8), (4, "abort", 8))
    assert has_index(disk, Aborted(7, 0, 1, 2), Aborted(8, 3, 4, 5)) == []
    assert has_index(disk, Aborted(7, 0, 1, 3), Aborted(8, 3, 4, 5)) == []
    assert has_index(disk, Aborted(7, 0, 1, 4), Aborted(8, 3, 4, 5)) != []


def committed(disk: MemoryDisk, offset: int, end_offset: int) -> list[int]:
    """What a consumer sees of a fetch, by the index as it is."""
    index = transaction_index.TransactionIndex.load(disk, f"{PATH}/{FIRST}.txnindex")
    left = sorted((first, producer_id) for producer_id, first in index.find(offset, end_offset)[0])
    file, aborted, seen = disk.open(LOG), set(), []
    for batch in scan(file.read, 0, file.size()):
        if not offset <= batch.base_offset < end_offset:
            continue
        while left and left[0][0] <= batch.base_offset:
            aborted.add(left.pop(0)[1])
        if batch.is_control:
            aborted.discard(batch.producer_id)
        elif batch.record_count and not (batch.is_transactional and batch.producer_id in aborted):
            seen.append(batch.base_offset)
    return seen


@pytest.mark.deep
def test_no_flipped_bit_of_a_transaction_index_changes_unseen_what_is_read():
    disk = transaction_log(
        *(
            (3, "empty", 9),
            (6, "data", 7),
            (7, "data", 8),
            (8, "abort", 7),
            (9, "data", 7),
            (10, "commit", 7),
        ),
        *((12, "plain", 5), (13, "abort", 8), (20, "data", 8), (21, "data", 7), (22, "abort", 8)),
        *((23, "abort", 7), (30, "data", 8), (31, "commit", 8), (33, "abort", 9), (34, "data", 9)),
    )
    disk.rename(f"{PATH}/{3:020}.log", LOG)
    entries = [Aborted(7, 5, 8, 4), Aborted(8, 4, 13, 14), Aborted(8, 20, 22, 21), Aborted(7, 21, 23, 24)]
    assert has_index(disk, *entries, Aborted(9, 32, 33, 34)) == []
    path = f"{PATH}/{FIRST}.txnindex"
    fetches = [(offset, end) for offset in range(35) for end in range(offset + 1, 37)]
    before = [committed(disk, *fetch) for fetch in fetches]
    for bit in range(8 * len(disk.files[path].data)):
        flip(disk, path, bit // 8, bit % 8)
        if not damaged_files(disk):
            assert [committed(disk, *fetch) for fetch in fetches] == before, bit
        flip(disk, path, bit // 8, bit % 8)


# --- Snapshots, epochs, identity ---


def snapshot(producer_id: int, batch: tuple[int, int, int, int], epoch: int = 0) -> bytes:
    """Of one producer whose last batch had these sequences and offsets, the first and the last of each."""
    return encode_snapshot({producer_id: ProducerEntry(epoch, NOW_MS, ((*batch, NOW_MS),))})


@pytest.mark.parametrize(
    ("content", "what"),
    [
        (b"\0\x01garbage", "the checksum or the length of the snapshot does not fit"),
        (snapshot(7, (9, 9, 11, 11)), "producer 7: last sequence 9 in the snapshot, 11 in the log"),
        (snapshot(7, (6, 8, 6, 8)), "producer 7: last offset 8 in the snapshot, 11 in the log"),
        (snapshot(7, (9, 11, 9, 11), epoch=-1), "producer 7: epoch -1 in the snapshot, 0 in the log"),
        (snapshot(8, (0, 0, 5, 5)), "producer 8: last offset 5 in the snapshot, none in the log"),
        (
            snapshot(7, (9, 11, 9, 12)),
            "producer 7: the last offset 12 is not before the offset of the snapshot",
        ),
    ],
)
def test_a_snapshot_that_a_rescan_contradicts_is_found_and_made_anew(disk, content, what):
    path = f"{PATH}/{SECOND}.snapshot"
    sound = read_file(disk, path)
    disk.files[path].data[:] = content
    (line,) = told(disk)
    assert line.startswith(f"damage {SECOND}.snapshot: {what} | ")
    assert repair(disk) == [("rebuilt from the log", 0)]
    if b"\x08" not in content[:20]:
        assert read_file(disk, path) == sound


def test_a_producer_may_have_expired(disk):
    disk.files[f"{PATH}/{SECOND}.snapshot"].data[:] = encode_snapshot({})
    assert told(disk) == []


def test_a_snapshot_behind_the_end_of_the_log_goes(disk):
    replace_file(disk, f"{PATH}/{50:020}.snapshot", encode_snapshot({}))
    assert told(disk) == [
        f"damage {50:020}.snapshot: it is of offset 50, the log ends at 21 | a start removes it"
    ]
    assert repair(disk) == [("removed", 0)]


@pytest.mark.parametrize(
    ("content", "what"),
    [
        (b"0\n2\n0 0\n", "it is not a checkpoint of version 0 with as many lines as its count"),
        (b"0\n1\nx 0\n", "a line is not two numbers"),
        (b"0\n2\n3 0\n3 9\n", "epoch 3 from offset 9 on comes after epoch 3 from 0 on"),
        (b"0\n1\n3 0\n", "offset 0 has the leader epoch 0, the checkpoint has 3"),
        (b"0\n0\n", "it has no epoch"),
        (None, "it is missing"),
    ],
)
def test_a_wrong_epoch_checkpoint_is_found_and_made_anew(disk, content, what):
    path = f"{PATH}/leader-epoch-checkpoint"
    sound = read_file(disk, path)
    if content is None:
        disk.remove(path)
    else:
        disk.files[path].data[:] = content
    (line,) = told(disk)
    assert line == (
        f"damage leader-epoch-checkpoint: {what} | consumers get a wrong end of an epoch; it can be rebuilt"
    )
    assert repair(disk) == [("rebuilt from the log", 0)]
    assert read_file(disk, path) == sound


def test_an_epoch_checkpoint_may_be_behind_what_is_not_flushed(disk):
    disk.remove(f"{PATH}/leader-epoch-checkpoint")
    assert told(disk, was_clean=False, recovery_point=0) == []


def test_a_directory_has_to_say_whose_it_is(disk):
    disk.files[f"{PATH}/partition.metadata"].data[:] = b"version: 0\ntopic_id: ??"
    assert told(disk) == [
        "damage partition.metadata: it has no topic id | a start uses the directory for any topic of its name"
    ]


# --- What the disk does not give ---


UNREAD = "its content was not checked, and the partition is not repaired"


@pytest.mark.parametrize(
    "name",
    [
        *(f"{FIRST}{kind}" for kind in (".log", ".index", ".timeindex")),
        *(f"{SECOND}{kind}" for kind in (".log", ".index", ".timeindex", ".snapshot")),
        "partition.metadata",
        "leader-epoch-checkpoint",
    ],
)
def test_a_file_that_cannot_be_read_is_one_finding_and_the_rest_is_checked(disk, name):
    damaged = SECOND if name == f"{FIRST}.log" else FIRST
    second = batches(disk, damaged)[1]
    flip(disk, f"{PATH}/{damaged}.log", second.end_position - 1)
    before = [line for line in told(disk) if not line.startswith(f"damage {name}")]
    disk.fail = lambda operation, path: errno.EIO if (operation, path) == ("read", f"{PATH}/{name}") else None
    lines = told(disk)
    finding = f"damage {name}: it cannot be read: Input/output error | {UNREAD}"
    assert finding in lines
    assert {*lines} - {finding} <= {*before}
    assert any(f"damage {damaged}.log at {second.position}" in line for line in lines)
    assert check(disk).unread == [f"{PATH}/{name}"]


# --- Segments ---


def test_a_gap_between_segments_is_a_note_unless_a_start_would_cut_there(disk):
    path = f"{PATH}/{30:020}"
    batch = a_batch(9)
    patch_batch(batch, 0, 30, 0)
    replace_file(disk, f"{path}.log", bytes(batch))
    assert told(disk) == [
        f"note {30:020}.log: no segment has the offsets 21 to 29 | "
        "compaction leaves such gaps, and so does a repair"
    ]
    assert told(disk, was_clean=False, recovery_point=33) == told(disk)
    assert told(disk, was_clean=False, recovery_point=15) == [
        f"damage {30:020}.log: no segment has the offsets 21 to 29 | "
        "a start after a crash takes it for a loss and cuts the log there"
    ]


def test_a_gap_of_a_log_that_is_not_compacted_is_said_to_be_a_loss(disk):
    batch = a_batch(9)
    patch_batch(batch, 0, 30, 0)
    replace_file(disk, f"{PATH}/{30:020}.log", bytes(batch))
    assert told(disk, is_compacted=False) == [
        f"note {30:020}.log: no segment has the offsets 21 to 29 | "
        "they are lost, unless a repair has reported them, or the topic was once compacted"
    ]


LOST = "it is missing, but it has indexes; a broker removes all files of a segment together"


def test_a_log_file_that_is_gone_is_told_by_its_indexes(disk):
    batch = a_batch(9)
    patch_batch(batch, 0, 21, 0)
    replace_file(disk, f"{PATH}/{21:020}.log", bytes(batch))
    gone = f"{PATH}/{SECOND}"
    size_bytes = struct.unpack(">i", disk.files[f"{gone}.index"].data[-4:])[0] + 61
    assert 61 < size_bytes < len(disk.files[f"{gone}.log"].data)
    disk.remove(f"{gone}.log")
    lost = f"the offsets 12 to 20 are lost, at least {size_bytes} bytes"
    assert told(disk, recovery_point=24, is_compacted=False) == [f"damage {SECOND}.log: {LOST} | {lost}"]
    lost = f"the remaining records of the offsets 12 to 20 are lost, at least {size_bytes} bytes"
    assert told(disk, recovery_point=24) == [f"damage {SECOND}.log: {LOST} | {lost}"]
    index = read_file(disk, f"{gone}.index")
    replace_file(disk, f"{gone}.index", b"")
    assert told(disk, recovery_point=24)[0].endswith("12 to 20 are lost, the number of bytes is not known")
    replace_file(disk, f"{gone}.index", index)
    done = repair(disk)
    assert done[0] == (f"removed its indexes; {lost}", size_bytes)
    assert not any(path.startswith(gone) for path in disk.files)
    assert [line.partition(":")[0] for line in told(disk, recovery_point=24)] == [f"note {21:020}.log"]


def test_a_log_file_that_is_gone_from_either_end_is_told_as_far_as_it_is_known(disk):
    for name in (FIRST, SECOND):
        disk.remove(f"{PATH}/{name}.snapshot")
    disk.remove(LOG)
    (line,) = told(disk)
    assert line.startswith(
        f"damage {FIRST}.log: {LOST} | the remaining records of the offsets 0 to 11 are lost"
    )
    disk.remove(f"{PATH}/{SECOND}.log")
    lines = [line for line in told(disk, is_compacted=False) if ".log: " in line]
    assert [line.rpartition(" are ")[0] for line in lines] == [
        f"damage {FIRST}.log: {LOST} | the offsets 0 to 11",
        f"damage {SECOND}.log: {LOST} | the offsets 12 to 20",
    ]
    # What was never flushed may never have been there.
    lines = told(disk, was_clean=False, recovery_point=10)
    assert f"note {SECOND}.index: belongs to no segment | a start removes it" in lines


def test_what_was_cut_off_a_segment_is_told_by_its_index(disk):
    first, second, *_, last = batches(disk)
    size_bytes = last.position + 61 - second.position
    del disk.files[LOG].data[second.position :]
    lost = f"the offsets 3 to 11 are lost, at least {size_bytes} bytes"
    damage = f"damage {FIRST}.log at {first.end_position}: it was longer, by its index | {lost}"
    assert damage in told(disk, is_compacted=False)
    lost = f"the remaining records of the offsets 3 to 11 are lost, at least {size_bytes} bytes"
    assert damage.replace(damage.partition(" | ")[2], lost) in told(disk)
    assert (f"it was longer: {lost}", size_bytes) in repair(disk)
    assert [line.partition(":")[0] for line in told(disk)] == [f"note {SECOND}.log"]


def test_an_entry_that_is_wrong_tells_of_no_loss_behind_a_segment(disk):
    """Compaction may have left a gap there."""
    last = batches(disk)[-1]
    del disk.files[LOG].data[last.position :]
    del disk.files[f"{PATH}/{FIRST}.index"].data[-8:]
    assert not any("longer" in line for line in told(disk))
    flip(disk, f"{PATH}/{FIRST}.index", -4)
    lines = told(disk)
    assert any(line.startswith(f"damage {FIRST}.index ") for line in lines)
    assert not any("longer" in line for line in lines)


def test_a_deletion_or_a_compaction_that_was_interrupted_is_no_loss(disk):
    disk.rename(LOG, f"{LOG}.deleted")
    assert all(line.startswith("note ") for line in told(disk))
    disk.rename(f"{LOG}.deleted", f"{LOG}.1.deleted")
    assert all(line.startswith("note ") for line in told(disk))
    disk.rename(f"{LOG}.1.deleted", f"{LOG}.swap")
    assert all(line.startswith("note ") for line in told(disk))


@pytest.mark.parametrize("content", [b"", b"torn"])
@pytest.mark.parametrize("base_offset", [5, 15])
def test_a_segment_in_the_midst_of_another_that_has_no_batch_goes(disk, base_offset, content):
    before = offsets(disk)
    path = f"{PATH}/{base_offset:020}.log"
    replace_file(disk, path, content)
    said = (
        f"damage {base_offset:020}.log: the segment begins at offset {base_offset}, the previous one ends at"
    )
    assert any(line.startswith(said) for line in told(disk))
    done = repair(disk)
    assert sum(lost_bytes for _, lost_bytes in done) == len(content)
    assert path not in disk.files
    assert (told(disk), offsets(disk)) == ([], before)


def test_segments_that_overlap_are_told(disk):
    path = f"{PATH}/{15:020}.log"
    batch = a_batch(9)
    patch_batch(batch, 0, 15, 0)
    replace_file(disk, path, bytes(batch))
    assert any(
        f"{15:020}.log: the segment begins at offset 15, the previous one ends at 21" in line
        for line in told(disk)
    )


def test_compressed_data_of_each_form_are_no_damage():
    with collected() as failures:
        for name, batch in compressed_forms.readable_batches():
            disk = MemoryDisk()
            store = LogStore(disk, ["data"])
            store.open(NOW_MS)
            partition = store.create("orders", 0, bytes(range(16)), LogConfig())
            partition.appends.append(bytearray(batch), now_ms=NOW_MS)
            partition.commit()
            store.close(NOW_MS)
            with failures.of(name):
                assert told(disk, recovery_point=len(compressed_forms.RECORDS)) == []
