"""Files that Apache Kafka wrote of transactions, and ours of the same appends: they are the same bytes.

`from_kafka/4.3` and `3.9` are the partition of a topic after an orderly stop. Two transactional producers of
that version and a plain one had written to it: committed, aborted, across each other, and one transaction was
left open. (The records' timestamps are years before the markers', so Kafka rolled at the first one.) In 4.3
every transaction ends with an epoch of its own (transaction.version 2), in 3.9 it does not.
"""

import pathlib

import pytest
from memory_disk import MemoryDisk
from transacting import check_transactions, committed_values

from odradek.storage.config import LogConfig
from odradek.storage.directories.store import LogStore
from odradek.storage.disk import read_file
from odradek.storage.log.partition import Partition
from odradek.storage.log.producer_state import decode_snapshot, encode_snapshot
from odradek.storage.log.transactions import Verified, read_marker
from odradek.wire.records import iter_batches, patch_batch

FROM_KAFKA = pathlib.Path(__file__).parent / "from_kafka"
VERSIONS = {"3.9": 1, "4.3": 2}
NOW_MS = 1_700_000_000_000


def kafkas(version: str) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in (FROM_KAFKA / version).iterdir()}


def append_the_same(partition: Partition, log: bytes, transaction_version: int) -> None:
    for position, header in iter_batches(log):
        partition.follow_leader_epoch(header.leader_epoch)
        batch = bytearray(log[position : position + header.size_bytes])
        if header.is_control:
            marker = read_marker(memoryview(batch), header)
            partition.appends.append_marker(
                marker._replace(transaction_version=transaction_version), now_ms=header.max_timestamp
            )
        else:
            patch_batch(batch, 0, 0, -1)
            verified = None
            if header.is_transactional:
                verification = partition.begin_verification(
                    header.producer_id,
                    header.producer_epoch,
                    header.base_sequence,
                    version=transaction_version,
                )
                verified = Verified(verification, transaction_version)
            partition.appends.append(batch, now_ms=NOW_MS, transactions=verified)
        partition.commit()


@pytest.mark.parametrize("version", VERSIONS)
def test_the_same_appends_make_the_same_files(version):
    disk = MemoryDisk()
    store = LogStore(disk, ["data"])
    store.open(NOW_MS)
    partition = store.create("t", 0, bytes(16), LogConfig())
    theirs = kafkas(version)
    for name in sorted(name for name in theirs if name.endswith(".log")):
        append_the_same(partition, theirs[name], VERSIONS[version])
    store.close(NOW_MS)
    kinds = (".log", ".txnindex", ".snapshot")
    ours = {
        name: read_file(disk, f"data/t-0/{name}") for name in disk.list("data/t-0") if name.endswith(kinds)
    }
    assert sorted(ours) == sorted(theirs)
    for name, content in theirs.items():
        if name.endswith(".snapshot"):
            # Kafka's map has an order of its own.
            known = decode_snapshot(ours[name])
            assert len(known) == len(decode_snapshot(content))
            ours[name] = encode_snapshot({one: known[one] for one in decode_snapshot(content)})
        assert ours[name] == content


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("is_clean", [True, False])
def test_kafkas_files_say_the_same_to_us(version, is_clean):
    theirs = kafkas(version)
    contents = {
        f"data/t-0/{name}": content for name, content in theirs.items() if is_clean or name.endswith(".log")
    }
    if is_clean:
        contents["data/.kafka_cleanshutdown"] = b'{"version":0,"brokerEpoch":1}'
    disk = MemoryDisk.of(contents)
    store = LogStore(disk, ["data"])
    store.open(NOW_MS)
    assert store.opening.was_clean is is_clean
    partition = store.get("t", 0)
    check_transactions(partition)
    assert committed_values(partition) == [b"a", b"b", b"f", b"g"]
    (open_one,) = (one for one in partition.producers() if one.current_txn_start_offset >= 0)
    assert open_one.current_txn_start_offset == partition.last_stable_offset == partition.high_watermark - 1
    (index,) = (name for name in theirs if name.endswith(".txnindex"))
    assert read_file(disk, f"data/t-0/{index}") == theirs[index]
