"""What drives one state machine in tests: its clock, its timers and its log.

A machine decides (`odradek/coordinator/effects.py`); who drives it, a stage of transcripts or a simulated
world, says what becomes of its replies and of effects of its own."""

from collections.abc import Iterable

from odradek.coordinator.effects import (
    Append,
    AppendMarker,
    CancelTimer,
    LoggedRecord,
    MarkerRecord,
    SetTimer,
    TransactionalRecord,
)


def logged(effect: Append | AppendMarker) -> list[LoggedRecord]:
    """What an append adds to the log, as it will be read back."""
    if isinstance(effect, AppendMarker):
        return [MarkerRecord(effect.marker.producer_id, effect.marker.commit)]
    if effect.producer is None:
        return list(effect.records)
    return [TransactionalRecord(*record, effect.producer[0]) for record in effect.records]


def replay_all(machine, log: Iterable[LoggedRecord]) -> None:
    for record in log:
        match record:
            case MarkerRecord():
                machine.replay_marker(record.producer_id, record.commit)
            case TransactionalRecord():
                machine.replay_pending(record.key, record.value, record.producer_id)
            case key, value, _:
                machine.replay(key, value)


class MachineRun:
    """One machine after the other over one log, which loses nothing."""

    def __init__(self, now_ms: float = 0) -> None:
        self.settings = self.new_settings()
        self.now_ms = now_ms
        self.log: list[LoggedRecord] = []
        self.timers: dict[tuple, int] = {}
        self.machine = self.new_machine()
        self.carry_out(self.machine.start(self.now_ms))

    def new_settings(self):
        raise NotImplementedError

    def new_machine(self):
        raise NotImplementedError

    def durable_state(self):
        """What a log must bring back."""
        raise NotImplementedError

    def compare(self, before, after) -> None:
        """Whether a log has brought back what was there before."""
        assert after == before

    def submit(self, command):
        return self.carry_out(self.machine.handle(command, self.now_ms))

    def carry_out(self, effects: Iterable):
        """What becomes of effects, each after the other; `take` has what all drivers do."""
        raise NotImplementedError

    def take(self, effect) -> bool:
        """Whether it was one that concerns the timers or the log, and is done."""
        match effect:
            case SetTimer(key, at_ms):
                self.timers[key] = at_ms
            case CancelTimer(key):
                self.timers.pop(key, None)
            case Append() | AppendMarker():
                self.log += logged(effect)
            case _:
                return False
        return True

    def replayed(self):
        """A new machine that has read the log."""
        machine = self.new_machine()
        replay_all(machine, self.log)
        return machine

    def reload(self, is_checked: bool = True) -> list:
        """Go on with a machine that has read the log: the effects of its start."""
        before = self.durable_state()
        self.machine = self.replayed()
        if is_checked:
            self.compare(before, self.durable_state())
        self.timers.clear()
        return self.machine.start(self.now_ms)

    def pass_time(self, until_ms: int) -> None:
        """Ring what is due by then, the earliest first."""
        while due := [(at_ms, key) for key, at_ms in self.timers.items() if at_ms <= until_ms]:
            at_ms, key = min(due)
            self.now_ms = max(self.now_ms, at_ms)
            del self.timers[key]
            self.carry_out(self.machine.expire(key, self.now_ms))
        self.now_ms = max(self.now_ms, until_ms)
