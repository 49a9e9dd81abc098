"""A persister that keeps states in memory. What is asked waits until `answer`, if `is_slow`."""

from odradek.coordinator.share_state.persister import (
    UNINITIALIZED_OFFSET,
    DeliveryState,
    Refusal,
    ShareState,
    StateBatch,
)
from odradek.wire.errors import ErrorCode


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

    def write(self, write, then):
        self.writes.append(write)
        self._later(lambda: then(self._written(write)))

    def _state(self, key):
        if self.failure:
            return ShareState(error_code=self.failure)
        epoch, start, offsets = self.states.setdefault(key, [0, UNINITIALIZED_OFFSET, {}])
        batches = []
        for offset, (state, count) in sorted(offsets.items()):
            if batches and batches[-1][1:] == (offset - 1, state, count):
                batches[-1] = batches[-1]._replace(last_offset=offset)
            elif offset >= start:
                batches.append(StateBatch(offset, offset, DeliveryState(state), count))
        return ShareState(state_epoch=epoch, start_offset=start, batches=batches)

    def _written(self, write):
        if self.failure:
            return Refusal(self.failure, "as the test wants it")
        state = self.states[write.partition]
        state[1] = write.start_offset
        for first, last, delivery_state, count in write.batches:
            state[2] |= dict.fromkeys(range(first, last + 1), (delivery_state, count))
        return Refusal(ErrorCode.NONE)
