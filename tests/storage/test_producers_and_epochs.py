"""What a log remembers beside its records: producers and leader epochs."""

import pytest

from odradek.storage.log.batches import SEQUENCE_MAX
from odradek.storage.log.leader_epochs import LeaderEpochs
from odradek.storage.log.producer_state import ProducerState, decode_snapshot, encode_snapshot
from odradek.wire.errors import ErrorCode, KafkaError


def appended(state: ProducerState, first: int, count: int = 1, *, epoch: int = 0, offset: int = 0) -> None:
    last = (first + count - 1) % (SEQUENCE_MAX + 1)
    assert state.check(1, epoch, first, last) is None
    state.table.stage(1, epoch, first, last, offset, offset + count - 1, 1000 + offset)
    state.table.commit()


def refusal(state: ProducerState, first: int, *, epoch: int = 0) -> ErrorCode:
    with pytest.raises(KafkaError) as refused:
        state.check(1, epoch, first, first)
    return refused.value.code


def test_any_sequence_is_taken_from_a_producer_nobody_knows():
    state = ProducerState()
    appended(state, 77)
    assert refusal(state, 79) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    appended(state, 78)


def test_the_last_five_batches_are_known_as_duplicates_and_no_more():
    state = ProducerState()
    for number in range(7):
        appended(state, 2 * number, 2, offset=100 + 2 * number)
    for number in range(2, 7):
        assert state.check(1, 0, 2 * number, 2 * number + 1)[2:4] == (100 + 2 * number, 101 + 2 * number)
    assert refusal(state, 2) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    # The same numbers in other batches are no duplicates.
    assert refusal(state, 12) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_a_new_epoch_begins_at_zero_and_ends_the_old_one():
    state = ProducerState()
    appended(state, 5)
    assert refusal(state, 6, epoch=1) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    appended(state, 0, epoch=1)
    assert refusal(state, 6, epoch=0) is ErrorCode.INVALID_PRODUCER_EPOCH
    appended(state, 1, epoch=1)


def test_sequences_go_on_with_zero_after_the_greatest():
    state = ProducerState()
    appended(state, SEQUENCE_MAX - 1, 4, offset=10)
    assert state.check(1, 0, SEQUENCE_MAX - 1, 1)[2] == 10
    appended(state, 2)
    state = ProducerState()
    appended(state, SEQUENCE_MAX)
    appended(state, 0)


def test_what_was_staged_can_be_taken_back():
    state = ProducerState()
    appended(state, 0)
    state.table.stage(1, 0, 1, 1, 1, 1, 5000)
    state.table.stage(1, 3, 0, 0, 2, 2, 6000)
    state.table.stage(2, 0, 0, 0, 3, 3, 6000)
    state.rollback()
    assert list(state.producers) == [1]
    entry = state.producers[1]
    assert (entry.producer_epoch, entry.last_sequence, entry.last_timestamp) == (0, 0, 1000)


def test_silent_producers_are_forgotten():
    state = ProducerState()
    appended(state, 0)
    state.expire(1999, 1000)
    assert state.producers
    state.expire(2000, 1000)
    assert not state.producers


def test_a_snapshot_gives_back_the_last_batch_of_each_and_a_damaged_one_nothing():
    state = ProducerState()
    appended(state, SEQUENCE_MAX - 1, 4, epoch=7, offset=20)
    data = encode_snapshot(state.producers)
    (entry,) = decode_snapshot(data).values()
    assert entry.batches == state.producers[1].batches
    assert (entry.producer_epoch, entry.last_timestamp) == (7, 1020)
    for place in range(len(data)):
        damaged = bytearray(data)
        damaged[place] ^= 0x10
        assert decode_snapshot(bytes(damaged)) is None
        assert decode_snapshot(data[:place]) is None


def test_the_end_of_an_epoch_is_the_beginning_of_the_next():
    epochs = LeaderEpochs([(2, 10), (5, 20), (6, 25)])
    ends = {epoch: epochs.end_offset_for(epoch, 30) for epoch in range(-1, 8)}
    assert ends == {
        -1: (-1, -1),
        0: (0, 10),
        1: (1, 10),
        2: (2, 20),
        3: (2, 20),
        4: (2, 20),
        5: (5, 25),
        6: (6, 30),
        7: (-1, -1),
    }
    assert [epochs.epoch_at(offset) for offset in (9, 10, 19, 20, 99)] == [-1, 2, 2, 5, 6]


def test_epochs_follow_the_log_when_it_is_cut_at_either_end():
    epochs = LeaderEpochs([(2, 10), (5, 20), (6, 25)])
    epochs.truncate_start(22)
    assert epochs.entries() == [(5, 22), (6, 25)]
    epochs.truncate_end(25)
    assert epochs.entries() == [(5, 22)]
    epochs.assign(5, 30)
    epochs.assign(7, 30)
    epochs.assign(8, 30)
    assert epochs.entries() == [(5, 22), (8, 30)]
