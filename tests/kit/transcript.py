"""Plays transcripts against a state machine: what is asked, when, and every effect that must follow.

    # A comment.
    set group_max_size=2
    1.5 join a member=c-1 session=10 protocols=range:t1+t2,roundrobin:t1
    ----
    timer session/g/c-1 at 11.5
    reply a NONE member=c-1 generation=1

A block is one step: `seconds verb ticket key=value ...`, a line of dashes, the effects in order, an empty
line. `timer KEY` rings a timer that is set and due; no step may come later than a timer that is due. `reload`
replays the log into a new machine, which must hold the same durable state. `set` changes settings.

`Stage` plays; each machine has an adapter (`tests/coordinator/stages`), which is a subclass: how the machine
is made, what it must know again after a reload, and how its effects read. `Stage.command` is the one place
where a line becomes a command. With ODRADEK_WRITE_TRANSCRIPTS=1 pytest writes the effects that follow today
into the files, for a person to read and judge."""

import dataclasses
import os
import pathlib
from collections.abc import Callable, Container, Iterable
from typing import Any, ClassVar

from odradek.coordinator.asked import Asked
from odradek.coordinator.effects import Append, AppendMarker, CancelTimer, Reply, SetTimer
from tests.kit.machine import MachineRun

COORDINATOR = pathlib.Path(__file__).parents[1] / "coordinator"
DASHES = "----"
SETTING = "set "


def is_partition(text: str) -> bool:
    topic, _, index = text.rpartition("-")
    return bool(topic) and index.isdigit()


def partition_of(text: str) -> tuple[str, int]:
    topic, _, index = text.rpartition("-")
    return topic, int(index)


def split_at(text: str, separator: str) -> list[str]:
    return [part for part in text.split(separator) if part]


def milliseconds(text: str) -> int:
    return round(float(text) * 1000)


def seconds(time_ms: int) -> str:
    return f"{time_ms / 1000:g}"


def refusal(answer) -> str:
    """An error with its message, if it has one."""
    return " ".join(filter(None, (answer.error_code.name, getattr(answer, "error_message", None))))


class Line:
    """One step: its verb, its ticket, options (`name=value`), and all other words, among them `t-0=value`."""

    def __init__(self, verb: str, words: list[str], defaults: dict[str, str]) -> None:
        self.verb = verb
        self.ticket = words[0] if words else None
        self.options = dict(defaults)
        self.rest: list[str] = []
        for word in words[1:]:
            name, equals, value = word.partition("=")
            if equals and not is_partition(name):
                self.options[name] = value
            else:
                self.rest.append(word)

    def __contains__(self, name: str) -> bool:
        return name in self.options

    def __getitem__(self, name: str) -> str:
        return self.options[name]

    def get(self, name: str, default: Any = None) -> Any:
        return self.options.get(name, default)

    def number(self, name: str, default: int = -1) -> int:
        return int(self.options.get(name, default))

    def time_ms(self, name: str, default_ms: int = -1) -> int:
        return milliseconds(self.options[name]) if name in self.options else default_ms

    def names(self, name: str, separator: str = ",") -> list[str]:
        return split_at(self.options.get(name, ""), separator)

    @property
    def group(self) -> str:
        """`group=-` is the group without a name."""
        return self.options.get("group", "g").replace("-", "")

    @property
    def partitions(self) -> list[tuple[str, int]]:
        return [partition_of(word) for word in self.rest]

    @property
    def pairs(self) -> list[tuple[str, str]]:
        """`name=value` among the other words."""
        return [word.partition("=")[::2] for word in self.rest]


def empty(message) -> None:
    """Take everything out of a message, as if its next user had it."""
    for field in dataclasses.fields(message):
        value = getattr(message, field.name)
        if isinstance(value, list):
            for one in filter(dataclasses.is_dataclass, value):
                empty(one)
            value.clear()
        elif dataclasses.is_dataclass(value):
            empty(value)
        setattr(message, field.name, None)


class Stage(MachineRun):
    """A machine, its clock, its timers and its log, and what it does as text."""

    folder: ClassVar[str]
    """Where the transcripts are, in `tests/coordinator`."""
    commands: ClassVar[dict[str, Callable]]
    """Makes the command of a `Line`, by verb."""
    steps: ClassVar[dict[str, Callable]] = {}
    """Verbs that are no commands: from the stage and its words to lines of text."""
    defaults: ClassVar[dict[str, dict[str, str]]] = {}
    """Options of a verb, unless the line says otherwise."""
    background: ClassVar[Container] = ()
    """Timers that are not shown, and may be late."""
    is_punctual = True
    """Whether no step may come later than a timer that is due."""

    @classmethod
    def transcripts(cls) -> list[pathlib.Path]:
        return sorted((COORDINATOR / cls.folder).glob("*.txt"))

    def command(self, verb: str, words: list[str]):
        """Make the command that a line says: for all machines it is made here."""
        return self.commands[verb](Line(verb, words, self.defaults.get(verb, {})))

    def play(self, line: str) -> list[str]:
        """Carry out one line; the effects as text."""
        at, *words = line.split()
        if not at[0].isdigit():
            return self.prepare(at, words)
        verb, *words = words
        key = tuple(words[0].split("/")) if verb == "timer" else None
        self.advance(milliseconds(at), key)
        if key is not None:
            assert self.timers.pop(key, self.now_ms + 1) <= self.now_ms, f"{key} is not due"
            return self.carry_out(self.machine.expire(key, self.now_ms))
        if verb == "reload":
            return self.carry_out(self.reload())
        if verb in self.steps:
            return self.steps[verb](self, words)
        return self.submit(self.command(verb, words))

    def submit(self, command) -> list[str]:
        """Carry out a command. A machine keeps no request: afterwards nothing is left of that."""
        lines = super().submit(command)
        if isinstance(command, Asked):
            empty(command.request)
        return lines

    def prepare(self, verb: str, words: list[str]) -> list[str]:
        assert verb == "set", verb
        for name, value in (word.split("=") for word in words):
            self.set(name, int(value) if value.lstrip("-").isdecimal() else tuple(value.split(",")))
        return []

    def set(self, name: str, value: int | tuple[str, ...]) -> None:
        assert hasattr(self.settings, name), name
        setattr(self.settings, name, value)

    def advance(self, now_ms: int, ringing: tuple | None) -> None:
        assert now_ms >= self.now_ms, "time runs backwards"
        self.now_ms = now_ms
        for key, at_ms in self.timers.items() if self.is_punctual else ():
            overdue = at_ms < now_ms and key != ringing and key not in self.background
            assert not overdue, f"{'/'.join(key)} rings at {seconds(at_ms)}"

    def carry_out(self, effects: Iterable) -> list[str]:
        lines: list[str] = []
        for effect in effects:
            self.take(effect)
            lines += self.text_of(effect)
        return lines

    def text_of(self, effect) -> list[str]:
        match effect:
            case SetTimer(key, at_ms):
                return [] if key in self.background else [f"timer {'/'.join(key)} at {seconds(at_ms)}"]
            case CancelTimer(key):
                return [f"cancel {'/'.join(key)}"]
            case AppendMarker(marker):
                kind = "commit" if marker.commit else "abort"
                return [f"append {kind} of {marker.producer_id}/{marker.producer_epoch}"]
            case Append():
                verb = "append" if effect.producer is None else "append in {}/{}".format(*effect.producer)
                return [f"{verb} {self.record_text(key, value)}" for key, value, _ in effect.records]
            case Reply(ticket, value):
                return [f"reply {ticket} {self.answer_text(value)}"]
        raise AssertionError(effect)

    def record_text(self, key: bytes, value: bytes | None) -> str:
        raise NotImplementedError

    def answer_text(self, answer) -> str:
        raise NotImplementedError

    def check_end(self) -> None:
        """Look at what is left after the last step."""


# Files


def rewrite(path: pathlib.Path, stage: Stage) -> str:
    """The transcript with the effects that follow today on a new stage."""
    written: list[str] = []
    expecting = False
    for number, line in enumerate(path.read_text().splitlines(), 1):
        if not line.strip() or line.startswith("#"):
            expecting = False
            if line.strip() or (written and written[-1]):
                written.append(line.rstrip())
        elif line == DASHES:
            expecting = True
        elif not expecting:
            try:
                effects = stage.play(line)
            except AssertionError as error:
                raise AssertionError(f"{path.name}:{number}: {line}: {error}") from error
            if written and written[-1] and not written[-1].startswith(("#", SETTING)):
                written.append("")
            written.append(line)
            written += [DASHES, *effects, ""] if not line.startswith(SETTING) else []
    stage.check_end()
    while written and not written[-1]:
        written.pop()
    return "\n".join(written) + "\n"


def check(path: pathlib.Path, stage: Stage) -> None:
    """The transcript says what the machine does; or it is written anew."""
    played = rewrite(path, stage)
    if os.environ.get("ODRADEK_WRITE_TRANSCRIPTS"):
        path.write_text(played)
    assert played == path.read_text()
