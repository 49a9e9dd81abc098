"""The file of descriptions of topologies: written whole, read again, and of no harm when it is damaged."""

import contextlib

import pytest

from odradek.server.coordination.topology_file import FILE_NAME, decoded, encoded, open_descriptions
from odradek.wire.work import finish
from tests.coordinator.stages.description_stage import description
from tests.storage.memory_disk import MemoryDisk, PowerLost

PATH = f"data/{FILE_NAME}"


class AtOnce:
    """A queue whose works end before `run` returns."""

    def run(self, work, done, failed):
        try:
            result = finish(work)
        except OSError as error:
            failed(error)
        else:
            done(result)


def opened(disk):
    return open_descriptions(disk, PATH, AtOnce())


def with_one(**changes):
    """A disk with the description of the group `a`."""
    disk = MemoryDisk.of({"data/other": b""})
    opened(disk).put("a", 0, description("chain"), lambda failure: None)
    return MemoryDisk.of({path: bytes(inode.data) for path, inode in disk.files.items()} | changes)


def test_a_start_reads_what_was_stored_and_not_what_was_deleted():
    disk, done = with_one(), []
    before = opened(disk)
    before.put("\u00fcber \U0001f600", 7, description("global"), done.append)
    before.put("c", 0, description("chain"), done.append)
    before.delete("c", done.append)
    after = opened(disk)
    assert done == [None] * 3
    assert sorted(after) == ["a", "\u00fcber \U0001f600"]
    assert after.get("\u00fcber \U0001f600", 7) == (3, description("global"))


@pytest.mark.parametrize("seed", range(3))
def test_a_loss_of_power_leaves_the_old_file_or_the_new_one(seed):
    found = []
    while not found or found[-1] != ["a", "b"]:
        disk, done = with_one(), []
        disk.lose_power_at = len(found)
        with contextlib.suppress(PowerLost):
            opened(disk).put("b", 0, description("chain"), done.append)
        found.append(sorted(opened(disk.lose_power(seed))))
        assert found[-1] == ["a", "b"] or (found[-1] == ["a"] and not done)


def test_a_full_disk_fails_and_the_old_file_stays(caplog):
    disk, done = with_one(), []
    disk.room_bytes = sum(len(one.data) for one in disk.files.values())
    store = opened(disk)
    store.put("b", 0, description("chain"), done.append)
    assert [one.message for one in done] == ["The description was not written: the disk is full"]
    assert not done[0].is_permanent
    assert list(store) == list(opened(disk)) == ["a"]


@pytest.mark.parametrize("place", [0, 9, 20, -1])
def test_a_damaged_file_is_reported_and_replaced_with_the_next_description(place, caplog):
    content = bytearray(with_one().files[PATH].data)
    content[place] ^= 1
    disk = with_one(**{PATH: bytes(content)})
    store = opened(disk)
    assert list(store) == []
    assert f"{PATH} is damaged, members are asked again" in caplog.text
    store.put("b", 0, description("chain"), lambda failure: None)
    assert list(opened(disk)) == ["b"]


def test_a_cut_file_is_damaged_and_one_without_descriptions_is_not():
    assert decoded(encoded({})[:-1]) is None
    assert decoded(encoded({})) == {}
