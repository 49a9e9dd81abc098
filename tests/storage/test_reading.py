"""What a read asks before it hands anything out; the oracle gives the same."""

import mmap

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.storage import _reading
from odradek.storage.log.batches import EXTENT, LOG_OVERHEAD_BYTES
from tests.oracles import reading as oracle


def header(base_offset, last_offset_delta, size_bytes):
    """A batch of which only the extent is filled."""
    extent = EXTENT.pack(base_offset, size_bytes - LOG_OVERHEAD_BYTES, last_offset_delta)
    return extent.ljust(size_bytes, b".")


WINDOW = header(10, 4, 100) + header(15, 0, 61) + header(30, 9, 200) + header(40, 0, 80)[:40]


@pytest.mark.parametrize(
    ("place", "limit", "offset", "found"),
    [
        (0, 1000, 3, (0, 100)),
        (0, 1000, 14, (0, 100)),
        (0, 1000, 15, (100, 61)),
        # Nobody has the offsets 16 to 29: what comes after them.
        (0, 1000, 16, (161, 200)),
        (161, 1000, 39, (161, 200)),
        (0, 1000, 40, (361, 80)),
        (0, 1000, 41, (441, 0)),
        (0, 161, 20, (161, 0)),
        (0, 162, 20, (161, 200)),
        (380, 1000, 0, (380, 0)),
        (0, 0, 0, (0, 0)),
    ],
)
def test_from_header_to_header_to_the_batch(place, limit, offset, found):
    assert _reading.hop(WINDOW, place, limit, offset) == found


@pytest.mark.parametrize("length", [0, -1, -(1 << 31)])
def test_a_header_without_a_length_is_said_with_its_place(length):
    assert _reading.hop(header(0, 0, 70) + EXTENT.pack(1, length, 5), 0, 1000, 1) == (70, -1)


@pytest.mark.parametrize(
    ("base_offset", "last_offset_delta", "offset", "is_found"),
    [
        (2**63 - 1, 2**31 - 1, 2**63 - 1, True),
        (2**63 - 5, 4, 2**63 - 1, True),
        (2**63 - 5, 3, 2**63 - 1, False),
        (-(2**63), -(2**31), -(2**63), False),
        (10, -3, 7, True),
        (10, -3, 8, False),
        (-(2**63), 2**31 - 1, 2**63 - 1, False),
    ],
)
def test_what_damage_says_is_counted_right(base_offset, last_offset_delta, offset, is_found):
    window = header(base_offset, last_offset_delta, 70)
    assert _reading.hop(window, 0, 1, offset) == ((0, 70) if is_found else (70, 0))


@given(
    window=st.binary(max_size=200),
    place=st.integers(0, 250),
    limit=st.integers(-10, 300),
    offset=st.integers(-(1 << 63), (1 << 63) - 1),
)
def test_of_garbage_the_oracle_says_the_same(window, place, limit, offset):
    assert _reading.hop(window, place, limit, offset) == oracle.hop(window, place, limit, offset)


def test_the_pages_of_a_mapping(tmp_path):
    path = tmp_path / "file"
    # More than is asked of the system at once.
    path.write_bytes(bytes(5000 * mmap.PAGESIZE + 100))
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) as mapped:
        view = memoryview(mapped)
        answers = [
            [module.is_in_memory(view, position, size_bytes) for module in (_reading, oracle)]
            for position, size_bytes in ((0, len(view)), (100, 1), (0, 0), (mmap.PAGESIZE - 1, 2))
        ]
        view.release()
    if [None, None] in answers:
        pytest.skip("this system has no mincore")
    assert answers == [[True, True]] * 4


@pytest.mark.parametrize(("position", "size_bytes"), [(0, 11), (10, 1), (-1, 1), (0, -1)])
def test_no_page_is_asked_for_outside_of_a_mapping(position, size_bytes):
    with pytest.raises(ValueError, match="of 10"):
        _reading.is_in_memory(memoryview(bytes(10)), position, size_bytes)
