"""A persister that keeps states in memory. What is asked waits until `answer`, if `is_slow`."""

from odradek.coordinator.shares.state.persister import UNINITIALIZED_OFFSET, DeliveryState, Refusal
from odradek.wire.errors import ErrorCode
from odradek.wire.messages.read_share_group_state import PartitionResult as ShareState
from tests.coordinator.shares.share_state_requests import state_batch


class MemoryPersister:
    def __init__(self):
        self.states = {}
        """By key: state epoch, start offset, and state and count by offset."""
        self.writes = []
        self.is_slow = False
        self.failure = ErrorCode.NONE
        """The answer to whatever is asked."""
        self._waiting = []

    def put(self, key, start=UNINITIALIZED_OFFSET, offsets=None, state_epoch=0):
        self.states[key] = [state_epoch, start, dict(offsets or {})]

    def answer(self):
        waiting, self._waiting = self._waiting, []
        for one in waiting:
            one()

    def _later(self, call):
        if self.is_slow:
            self._waiting.append(call)
        else:
            call()

    def read(self, partition, leader_epoch, then):
        self._later(lambda: then(self._state(partition)))

    def write(self, partition, change, then):
        self.writes.append(change)
        self._later(lambda: then(self._written(partition, change)))

    def _state(self, key):
        if self.failure:
            return ShareState(error_code=self.failure)
        epoch, start, offsets = self.states.setdefault(key, [0, UNINITIALIZED_OFFSET, {}])
        batches = []
        for offset, value in sorted(offsets.items()):
            last = batches[-1] if batches else None
            if (
                last
                and last.last_offset == offset - 1
                and (last.delivery_state, last.delivery_count) == value
            ):
                last.last_offset = offset
            elif offset >= start:
                state, count = value
                batches.append(state_batch(offset, offset, DeliveryState(state), count))
        return ShareState(state_epoch=epoch, start_offset=start, state_batches=batches)

    def _written(self, partition, change):
        if self.failure:
            return Refusal(self.failure, "as the test wants it")
        state = self.states[partition]
        state[1] = change.start_offset
        for one in change.state_batches:
            offsets = range(one.first_offset, one.last_offset + 1)
            state[2] |= dict.fromkeys(offsets, (one.delivery_state, one.delivery_count))
        return Refusal(ErrorCode.NONE)
