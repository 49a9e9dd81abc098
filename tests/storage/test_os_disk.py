"""What only a real file system answers: whether a stretch of a file is in memory, and the loading of it."""

import ctypes
import errno
import mmap
import os
import pathlib
import platform
import tempfile

import pytest

from odradek.storage import disk
from odradek.storage.disk import SAMPLE_EVERY_BYTES, OsDisk
from odradek.storage.log.slices import MAP_AT_LEAST_BYTES, Slice

CONTENT = os.urandom(64 * SAMPLE_EVERY_BYTES)
"""Much more than is read ahead: Linux begins with that when it is only asked."""


CHECKOUT = pathlib.Path(__file__).parents[2]


@pytest.fixture
def tmp_path():
    """On a disk: the directory of temporary files is in memory by day, which drops nothing."""
    build = CHECKOUT / "build"
    build.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(dir=build) as directory:
        yield pathlib.Path(directory)


@pytest.fixture
def file(tmp_path):
    opened = OsDisk().open(str(tmp_path / "file"), create=True)
    opened.write(0, [CONTENT])
    opened.sync()
    yield opened
    opened.close()


def test_what_was_just_written_is_in_memory(file):
    assert file.is_resident(0, len(CONTENT))
    assert file.read_now(100, 1000) == CONTENT[100:1100]


def dropped(path):
    """Has the system drop a file from its memory; whether it did, by `mincore`: that reads nothing."""
    descriptor = os.open(path, os.O_RDWR)
    mapping = mmap.mmap(descriptor, len(CONTENT))
    first = ctypes.c_char.from_buffer(mapping)
    pages = (ctypes.c_ubyte * -(-len(CONTENT) // mmap.PAGESIZE))()
    try:
        # What is on its way through the system's lists is not dropped at the first word.
        for _ in range(100):
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
            address = ctypes.c_void_p(ctypes.addressof(first))
            assert not ctypes.CDLL(None).mincore(address, ctypes.c_size_t(len(CONTENT)), pages)
            if not any(page & 1 for page in pages):
                return True
        return False
    finally:
        del first
        mapping.close()
        os.close(descriptor)


@pytest.mark.parametrize(
    "is_there",
    [
        lambda file: file.is_resident(0, len(CONTENT)),
        lambda file: file.read_now(len(CONTENT) - 100, 100) is not None,
    ],
)
def test_what_the_system_has_dropped_is_told_and_can_be_loaded(file, tmp_path, is_there):
    # To be asked has the system fetch it without anybody's waiting for it, and a fast disk may be done before
    # the system looks again: then that was a true answer, and the question is put anew.
    for _ in range(50):
        if not dropped(tmp_path / "file"):
            pytest.skip("the file system of the temporary directory keeps what it is told to drop")
        if not is_there(file):
            break
    else:
        pytest.skip("the disk is as fast as the memory: what was dropped is there whenever it is asked for")
    file.load(0, len(CONTENT))
    assert is_there(file)
    assert file.read_now(0, len(CONTENT)) == CONTENT


def test_what_the_system_would_have_to_wait_for_is_told_by_any_disk(file, monkeypatch):
    """Where the test above is skipped, too: the system's word is put in its mouth."""
    asked = []

    def refuse(descriptor, buffers, position, flags):
        asked.append(flags)
        raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))

    monkeypatch.setattr(os, "preadv", refuse)
    assert file.read_now(0, 100) is None
    assert not file.is_resident(0, len(CONTENT))
    assert asked == [os.RWF_NOWAIT, os.RWF_NOWAIT]


@pytest.mark.parametrize("ahead_bytes", [0, 1 << 30])
@pytest.mark.parametrize("is_new", [False, True])
def test_what_is_loaded_is_in_memory_by_any_way_of_reading(file, tmp_path, monkeypatch, ahead_bytes, is_new):
    """With and without a null device that takes pages, and a system that reads far ahead."""
    monkeypatch.setattr(disk, "_can_throw_away", is_new)
    monkeypatch.setattr(disk, "_read_ahead_bytes", lambda device: ahead_bytes)
    file.map(len(CONTENT))
    if not dropped(tmp_path / "file"):
        pytest.skip("the file system of the temporary directory keeps what it is told to drop")
    file.load(4097, len(CONTENT) - 5000)
    assert file.is_resident(4097, len(CONTENT) - 5000)
    file.load(len(CONTENT) - 10, 1000)
    assert disk._can_throw_away is is_new


def test_without_a_null_device_that_takes_pages_they_are_read(file, monkeypatch):
    def refuse(*arguments):
        raise OSError(errno.EINVAL, "not to this one")

    monkeypatch.setattr(disk, "_can_throw_away", True)
    monkeypatch.setattr(os, "sendfile", refuse)
    file.load(0, len(CONTENT))
    assert not disk._can_throw_away
    assert file.is_resident(0, len(CONTENT))


def test_a_disk_that_does_not_answer_fails_the_loading(file, monkeypatch):
    def fail(*arguments):
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(disk, "_can_throw_away", True)
    monkeypatch.setattr(os, "sendfile", fail)
    with pytest.raises(OSError, match="Input/output"):
        file.load(0, len(CONTENT))


def test_how_far_the_system_reads_ahead_is_nothing_where_it_cannot_be_told():
    assert disk._read_ahead_bytes(os.makedev(4094, 1_000_000)) == 0


def test_a_file_that_nobody_has_any_more_is_closed(tmp_path):
    opened = OsDisk().open(str(tmp_path / "file"), create=True)
    descriptor = opened._descriptor
    os.fstat(descriptor)
    del opened
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(descriptor)


def test_a_page_that_is_missing_between_others_is_told_of_what_is_mapped_and_nobody_fetches_it(
    file, tmp_path, monkeypatch
):
    file.map(len(CONTENT))
    if disk.is_in_memory(file._mapped, 0, 1) is None:
        pytest.skip("this system has no mincore")
    assert file.is_resident(0, len(CONTENT))
    if not dropped(tmp_path / "file"):
        pytest.skip("the file system of the temporary directory keeps what it is told to drop")
    for _ in range(3):
        assert not file.is_resident(0, mmap.PAGESIZE)
    os.posix_fadvise(file._descriptor, 0, 0, os.POSIX_FADV_RANDOM)
    for position in range(0, len(CONTENT), SAMPLE_EVERY_BYTES):
        file.read(position, 1)
        assert file.is_resident(position, 1)
    assert not file.is_resident(0, len(CONTENT))
    file.load(0, len(CONTENT))
    assert file.is_resident(0, len(CONTENT))
    assert file.is_resident(100, len(CONTENT) - 101)


def test_a_file_is_forgotten_piece_by_piece_and_others_come_in_between(file, tmp_path, monkeypatch):
    steps = []

    def forget(descriptor, position, size_bytes, advice):
        assert os.path.samestat(os.fstat(descriptor), os.stat(tmp_path / "file"))
        assert advice == os.POSIX_FADV_DONTNEED
        steps.append((position, size_bytes))

    monkeypatch.setattr(os, "posix_fadvise", forget)
    monkeypatch.setattr(os, "sched_yield", lambda: steps.append("yield"))
    OsDisk().forget(str(tmp_path / "file"))
    pieces = [(start, disk.FORGOTTEN_BYTES) for start in range(0, len(CONTENT), disk.FORGOTTEN_BYTES)]
    assert len(pieces) > 10
    assert steps == [step for piece in pieces for step in (piece, "yield")]


def test_who_reads_a_file_that_is_forgotten_and_removed_reads_on(file, tmp_path):
    mapped = file.map(len(CONTENT))
    OsDisk().forget(str(tmp_path / "file"))
    OsDisk().remove(str(tmp_path / "file"))
    assert file.read(0, len(CONTENT)) == CONTENT
    assert mapped == CONTENT


def test_that_a_file_cannot_be_forgotten_is_no_error(file, tmp_path, monkeypatch):
    def refuse(*_):
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))

    OsDisk().forget(str(tmp_path / "nothing"))
    monkeypatch.setattr(os, "posix_fadvise", refuse)
    OsDisk().forget(str(tmp_path / "file"))
    assert file.read(0, len(CONTENT)) == CONTENT


def test_without_mincore_samples_tell(file, monkeypatch):
    file.map(len(CONTENT))
    monkeypatch.setattr(disk, "is_in_memory", lambda *_: None)
    assert file.is_resident(0, len(CONTENT))


def test_of_a_stretch_the_last_byte_is_looked_at_too(file, monkeypatch):
    looked_at = []

    def note(descriptor, buffers, position, flags):
        looked_at.append(position)
        return 1

    monkeypatch.setattr(os, "preadv", note)
    assert file.is_resident(100, SAMPLE_EVERY_BYTES + 500)
    assert looked_at == [100, 100 + SAMPLE_EVERY_BYTES, 599 + SAMPLE_EVERY_BYTES]


@pytest.mark.parametrize("code", [errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL])
def test_a_file_system_that_cannot_tell_is_read_as_ever(file, monkeypatch, code):
    def refuse(*arguments):
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(os, "preadv", refuse)
    assert file.is_resident(0, len(CONTENT))
    assert file.read_now(0, 100) == CONTENT[:100]


def test_a_disk_that_fails_is_an_error_at_once(file, monkeypatch):
    def fail(*arguments):
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(os, "preadv", fail)
    with pytest.raises(OSError, match="Input/output"):
        file.is_resident(0, 1)
    with pytest.raises(OSError, match="Input/output"):
        file.read_now(0, 1)


class Source:
    """What a slice reads from; counts who was asked."""

    def __init__(self, resident):
        self.resident = resident
        self.reads = 0

    def read(self, position, size_bytes):
        self.reads += 1
        return CONTENT[position : position + size_bytes]

    def view(self, position, size_bytes):
        return memoryview(CONTENT)[position : position + size_bytes]

    def read_now(self, position, size_bytes):
        return CONTENT[position : position + size_bytes] if self.resident else None

    def is_resident(self, position, size_bytes):
        return self.resident

    def load(self, position, size_bytes):
        self.resident = True


@pytest.mark.parametrize("size", [100, MAP_AT_LEAST_BYTES])
def test_a_slice_waits_until_it_is_loaded_and_reads_once(size):
    source = Source(resident=False)
    records = Slice(source, 10, size)
    assert records.would_wait()
    records.load()
    assert not records.would_wait()
    assert records.tobytes() == CONTENT[10 : 10 + size]
    assert source.reads == 0


def test_a_whole_file_system_is_synced_or_it_says_that_it_cannot(tmp_path, monkeypatch):
    disk = OsDisk()
    disk.sync_file_system(str(tmp_path))
    with pytest.raises(FileNotFoundError):
        disk.sync_file_system(str(tmp_path / "missing"))
    monkeypatch.setattr(platform, "release", lambda: "5.4.0-generic")
    with pytest.raises(OSError, match="not implemented"):
        disk.sync_file_system(str(tmp_path))
