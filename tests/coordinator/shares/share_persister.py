"""A share coordinator of tests: it keeps states in a table, and answers when the test says so."""

from odradek.coordinator.shares.state.persister import Refusal
from odradek.wire.errors import ErrorCode
from odradek.wire.messages.read_share_group_state_summary import PartitionResult as StateSummary

DONE = Refusal(ErrorCode.NONE)


class FakePersister:
    """A `Persister` of what groups ask. Answers wait in `waiting` for `answer`, unless `is_prompt`; each
    question is refused with the first code of `refusals`, while there is one."""

    def __init__(self) -> None:
        self.states: dict = {}
        """State epoch and start offset by share partition."""
        self.delivered: dict = {}
        """How many records after the start offset are done."""
        self.refusals: list[ErrorCode] = []
        self.is_prompt = True
        self.waiting: list = []

    def initialize(self, states, then) -> None:
        def work():
            for state in states:
                self.states[state.partition] = (state.state_epoch, state.start_offset)

        self._answer([state.partition for state in states], work, then)

    def delete(self, partitions, then) -> None:
        def work():
            for key in partitions:
                self.states.pop(key, None)

        self._answer(partitions, work, then)

    def read(self, partition, leader_epoch, then) -> None:
        raise NotImplementedError

    def write(self, write, then) -> None:
        raise NotImplementedError

    def summaries(self, partitions, then) -> None:
        def of(key):
            epoch, offset = self.states.get(key, (0, -1))
            count = self.delivered.get(key, -1)
            return StateSummary(
                error_code=code,
                state_epoch=epoch,
                leader_epoch=3,
                start_offset=offset,
                delivery_complete_count=count,
            )

        code = self.refusals.pop(0) if self.refusals else ErrorCode.NONE
        self._then(
            lambda: then({key: StateSummary(error_code=code) if code else of(key) for key in partitions})
        )

    def answer(self, count: int = 1) -> None:
        """To the oldest questions."""
        for _ in range(count):
            self.waiting.pop(0)()

    def _answer(self, keys, work, then) -> None:
        code = self.refusals.pop(0) if self.refusals else ErrorCode.NONE
        if not code:
            work()
        refusal = Refusal(code, "refused") if code else DONE
        self._then(lambda: then(dict.fromkeys(keys, refusal)))

    def _then(self, answer) -> None:
        if self.is_prompt:
            answer()
        else:
            self.waiting.append(answer)
