"""Plays transcripts against the machine of share partitions, in the form of `transcript.py`.

    0 initialize a start=5
    ----
    append snapshot g/t-0 epoch=0 state=0 leader=0 start=5 done=0 created=0 written=0
    reply a NONE

    1 write b leader=1 5-9:acknowledged*2

A batch is FIRST-LAST:STATE*COUNT. The share partition is `g/t-0` unless said otherwise; the topics `t` and
`u` have two partitions each, until `topics` says which there are. After each step a new machine that replays
the log must hold the same state; `reload` goes on with it. Time is in seconds.
"""

import pathlib
from dataclasses import replace

from odradek.coordinator.effects import Append, SetTimer
from odradek.coordinator.share_state import record_codec
from odradek.coordinator.share_state.batches import Batch
from odradek.coordinator.share_state.commands import (
    DeleteState,
    DoneReply,
    InitializeState,
    ReadState,
    RemoveTopics,
    StateReply,
    SummarizeState,
    SummaryReply,
    WriteState,
)
from odradek.coordinator.share_state.machine import DeleteBefore, ShareMachine
from odradek.coordinator.share_state.persister import DeliveryState, SharePartitionKey
from odradek.coordinator.share_state.record_codec import SNAPSHOT
from odradek.coordinator.share_state.settings import ShareStateSettings
from odradek.wire.errors import ErrorCode
from tests.coordinator.transcript import rewrite as rewrite_on

PARTITIONS_EACH = 2


class Stage:
    """A machine, its clock, its timers and its log."""

    def __init__(self) -> None:
        self.settings = ShareStateSettings()
        self.topics = ["t", "u"]
        self.log: list = []
        self.first = 0
        """Records of the log that were deleted."""
        self.now_ms = 0
        self.begin_anew()
        self.carry_out(self.machine.start(0))

    def begin_anew(self) -> None:
        self.machine = ShareMachine(self.settings, self.partition_count_of)
        self.timers: dict[tuple, int] = {}

    def partition_count_of(self, topic_id: bytes) -> int:
        return PARTITIONS_EACH if name_of(topic_id) in self.topics else 0

    def play(self, line: str) -> list[str]:
        """Carry out one line; the effects as text."""
        if line.startswith("set "):
            for name, value in (pair.split("=") for pair in line.split()[1:]):
                assert hasattr(self.settings, name), name
                setattr(self.settings, name, int(value))
            return []
        at, verb, *words = line.split()
        self.now_ms = round(float(at) * 1000)
        if verb == "timer":
            key = (words[0],)
            assert self.timers.pop(key, self.now_ms + 1) <= self.now_ms, f"{key} is not due"
            return self.carry_out(self.machine.expire(key, self.now_ms))
        if verb == "topics":
            self.topics = words
            return []
        if verb == "reload":
            return self.reload()
        return self.carry_out(self.machine.handle(command_of(verb, words), self.now_ms))

    def carry_out(self, effects: list) -> list[str]:
        lines = []
        for effect in effects:
            if isinstance(effect, SetTimer):
                self.timers[effect.key] = effect.at_ms
                lines.append(f"timer {'/'.join(effect.key)} at {effect.at_ms / 1000:g}")
            elif isinstance(effect, Append):
                self.log += effect.records
                lines += [f"append {record_text(key, value)}" for key, value, _ in effect.records]
            elif isinstance(effect, DeleteBefore):
                count = effect.position - self.first
                lines += [f"delete {record_text(key, value)}" for key, value, _ in self.log[:count]]
                del self.log[:count]
                self.first = effect.position
            else:
                lines.append(f"reply {effect.ticket} {answer_text(effect.value)}")
        if not self.first:
            assert durable_state(replayed(self)) == durable_state(self.machine)
        return lines

    def reload(self) -> list[str]:
        before = durable_state(self.machine)
        self.machine = replayed(self)
        if not self.first:
            assert durable_state(self.machine) == before
        else:
            # Fences and counts of what was deleted are not known any more.
            after = durable_state(self.machine)
            assert {key: kept.state for key, kept in after.items()} == {
                key: kept.state for key, kept in before.items()
            }
        self.first = 0
        return self.carry_out(self.machine.start(self.now_ms))


def replayed(stage: Stage) -> ShareMachine:
    """A new machine that has read the log."""
    machine = ShareMachine(
        stage.settings, lambda topic_id: PARTITIONS_EACH * (name_of(topic_id) in stage.topics)
    )
    for key, value, _ in stage.log:
        machine.replay(key, value)
    return machine


def durable_state(machine: ShareMachine) -> dict:
    """What a log must bring back, in the order of the snapshots."""
    found = {}
    for key, kept in machine.states.items():
        found[key] = replace(kept, state=replace(kept.state, batches=tuple(kept.state.batches)))
    assert list(found) == sorted(found, key=lambda key: found[key].position)
    return found


# Commands


def split(words: list[str]) -> tuple[dict[str, str], list[str]]:
    """`name=value` words, and the others."""
    options = dict(word.split("=", 1) for word in words if "=" in word)
    return options, [word for word in words if "=" not in word]


def topic_id_of(name: str) -> bytes:
    return name.encode().ljust(16, b"\0")


def name_of(topic_id: bytes) -> str:
    return topic_id.rstrip(b"\0").decode()


def key_of(text: str) -> SharePartitionKey:
    group_id, _, place = text.partition("/")
    if group_id.startswith("*"):
        group_id = "g" * int(group_id[1:])
    topic, _, partition = place.partition("-")
    return SharePartitionKey(group_id, topic_id_of(topic), int(partition))


def key_text(key: SharePartitionKey) -> str:
    return f"{key.group_id[:40]}/{name_of(key.topic_id)}-{key.partition}"


def batch_of(word: str) -> Batch:
    offsets, _, rest = word.partition(":")
    first, _, last = offsets.partition("-")
    state, _, count = rest.partition("*")
    return Batch(int(first), int(last), int(count), DeliveryState[state.upper()])


def batch_text(batch: Batch) -> str:
    state = DeliveryState(batch.delivery_state).name.lower()
    return f"{batch.first_offset}-{batch.last_offset}:{state}*{batch.delivery_count}"


def batches_of(words: list[str]) -> list[Batch]:
    """`many*N`: so many batches of one offset each, with gaps between them."""
    batches = []
    for word in words:
        if word.startswith("many*"):
            batches += [Batch(2 * number, 2 * number, 1, 0) for number in range(int(word[5:]))]
        else:
            batches.append(batch_of(word))
    return batches


def command_of(verb: str, words: list[str]):
    ticket, *words = words
    options, rest = split(words)
    if verb == "remove":
        return RemoveTopics(ticket, [topic_id_of(name) for name in rest])
    key = key_of(options.get("of", "g/t-0"))
    if verb == "initialize":
        return InitializeState(ticket, key, int(options.get("state", 0)), int(options.get("start", -1)))
    if verb == "read":
        return ReadState(ticket, key, int(options.get("leader", -1)))
    if verb == "write":
        return WriteState(
            ticket,
            key,
            int(options.get("state", 0)),
            int(options.get("leader", 0)),
            int(options.get("start", -1)),
            int(options.get("done", -1)),
            batches_of(rest),
        )
    if verb == "delete":
        return DeleteState(ticket, key)
    assert verb == "summarize", verb
    return SummarizeState(ticket, key)


# Texts


def record_text(key: bytes, value: bytes | None) -> str:
    found = record_codec.decode_key(key)
    assert found is not None
    record_type, partition = found
    if value is None:
        return f"tombstone {key_text(partition)}"
    if record_type == SNAPSHOT:
        state = record_codec.decode_snapshot(value)
        return (
            f"snapshot {key_text(partition)} epoch={state.snapshot_epoch} state={state.state_epoch} "
            f"leader={state.leader_epoch} start={state.start_offset} done={state.delivery_complete_count} "
            f"created={state.created_ms / 1000:g} written={state.written_ms / 1000:g}{batches_text(state)}"
        )
    update = record_codec.decode_update(value)
    return (
        f"update {key_text(partition)} epoch={update.snapshot_epoch} leader={update.leader_epoch} "
        f"start={update.start_offset} done={update.delivery_complete_count}{batches_text(update)}"
    )


def batches_text(holder) -> str:
    if len(holder.batches) > 9:
        return f" {len(holder.batches)} batches"
    return "".join(f" {batch_text(batch)}" for batch in holder.batches)


def answer_text(answer: DoneReply) -> str:
    code = answer.error_code
    if code is not ErrorCode.NONE:
        return f"{code.name}: {answer.error_message}"
    if isinstance(answer, StateReply):
        return f"NONE state={answer.state_epoch} start={answer.start_offset}{batches_text(answer)}"
    if isinstance(answer, SummaryReply):
        return (
            f"NONE state={answer.state_epoch} leader={answer.leader_epoch} start={answer.start_offset} "
            f"done={answer.delivery_complete_count}"
        )
    return "NONE"


def rewrite(path: pathlib.Path) -> str:
    """The transcript with the effects that follow today."""
    return rewrite_on(path, Stage())
