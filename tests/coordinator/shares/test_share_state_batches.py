"""State batches that are combined say of each offset what a plain dictionary of offsets says."""

from itertools import pairwise

from hypothesis import example, given
from hypothesis import strategies as st

from odradek.wire.share_batches import Batch, are_sound, combined

OFFSETS = st.integers(0, 40)
BATCHES = st.lists(
    st.builds(
        lambda first, length, count, state: Batch(first, first + length, count, state),
        OFFSETS,
        st.integers(0, 12),
        st.integers(0, 3),
        st.sampled_from([0, 2, 4]),
    ),
    max_size=8,
)


def by_offset(batches, start_offset):
    """The highest count of each offset, and the highest state with it."""
    known = {}
    for batch in batches:
        for offset in range(max(batch.first_offset, start_offset), batch.last_offset + 1):
            told = batch.delivery_count, batch.delivery_state
            known[offset] = max(known.get(offset, told), told)
    return known


@given(BATCHES, BATCHES, st.one_of(st.just(-1), OFFSETS))
@example([], [Batch(0, 9, 1, 0), Batch(3, 5, 2, 2)], 4)
def test_what_is_combined_says_the_same_of_each_offset(known, new, start_offset):
    batches = combined(known, new, start_offset)
    assert are_sound(batches)
    assert by_offset(batches, -1) == by_offset([*known, *new], start_offset)


@given(BATCHES, BATCHES)
def test_no_batch_overlaps_another_and_they_are_in_order(known, new):
    batches = combined(known, new, -1)
    for before, after in pairwise(batches):
        assert before.last_offset < after.first_offset


@given(BATCHES, BATCHES, OFFSETS)
def test_to_combine_again_changes_nothing_that_is_known(known, new, start_offset):
    once = combined(known, new, start_offset)
    assert by_offset(combined(once, new, start_offset), -1) == by_offset(once, -1)


def test_neighbours_in_one_state_become_one():
    assert combined([Batch(0, 4, 1, 2)], [Batch(5, 9, 1, 2)], -1) == [Batch(0, 9, 1, 2)]
    assert combined([Batch(0, 4, 1, 2)], [Batch(5, 9, 2, 2)], -1) == [Batch(0, 4, 1, 2), Batch(5, 9, 2, 2)]


def test_neighbours_become_one_also_out_of_an_overlap():
    known = [Batch(0, 4, 2, 2), Batch(5, 10, 1, 0)]
    assert combined(known, [Batch(5, 12, 2, 2)], -1) == [Batch(0, 12, 2, 2)]


def test_a_batch_that_ends_before_it_begins_is_not_sound():
    assert are_sound([Batch(3, 3, 1, 0)])
    assert not are_sound([Batch(3, 3, 1, 0), Batch(4, 3, 1, 0)])
