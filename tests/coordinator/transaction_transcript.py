"""Plays transcripts against a transaction machine, in the form that `tests/coordinator/transcript.py` has.

    set transaction_version=1
    0 init a timeout=60
    ----
    append x Empty producer=1000 epoch=0 at=0
    reply a NONE producer=1000 epoch=0

The transactional id is `x` and the time-out a minute unless said otherwise; producer ids count from 1000,
the coordinator's leader epoch is 7. `given ID STATE ...` puts a record into the log and loads it; `forgotten
ID` does so with a tombstone. `reload` replays the log into a new machine, which must hold the same durable
state, and shows what that does at once. Markers are written when a step `markers` says so. The timers of the
two searches are not shown.
"""

import itertools
import pathlib

from odradek.coordinator.effects import Append, CancelTimer, SetTimer, WriteMarkers
from odradek.coordinator.transactions import record_codec
from odradek.coordinator.transactions.commands import (
    AddPartitions,
    AddPartitionsReply,
    DescribeTransaction,
    EndTransaction,
    EndTransactionReply,
    InitProducer,
    InitProducerReply,
    ListTransactions,
    ListTransactionsReply,
    MarkersWritten,
    MarkersWrittenReply,
    TransactionDescription,
    VerifyPartitions,
    VerifyPartitionsReply,
)
from odradek.coordinator.transactions.machine import TransactionMachine
from odradek.coordinator.transactions.settings import TransactionSettings
from odradek.coordinator.transactions.state import STATES_BY_LABEL, Transaction
from odradek.wire.errors import ErrorCode, KafkaError
from tests.coordinator.transcript import rewrite as rewrite_on

LEADER_EPOCH = 7
BACKGROUND = (("abort_timed_out",), ("remove_expired",))


class Stage:
    """A machine, its clock, its timers and its log."""

    def __init__(self) -> None:
        self.settings = TransactionSettings()
        self.producer_ids = itertools.count(1_000)
        self.gives_ids = True
        self.log: list = []
        self.now_ms = 0
        self.begin_anew()
        self.carry_out(self.machine.start(0))

    def begin_anew(self) -> None:
        self.machine = TransactionMachine(self.settings, LEADER_EPOCH, self.new_producer_id)
        self.timers: dict[tuple, int] = {}

    def new_producer_id(self) -> int:
        if not self.gives_ids:
            raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        return next(self.producer_ids)

    def play(self, line: str) -> list[str]:
        """Carry out one line; the effects as text."""
        if line.startswith("set "):
            for name, value in (pair.split("=") for pair in line.split()[1:]):
                target = self if name == "gives_ids" else self.settings
                assert hasattr(target, name), name
                setattr(target, name, int(value))
            return []
        at, verb, *words = line.split()
        key = (words[0],) if verb == "timer" else None
        self.advance(round(float(at) * 1000), key)
        if key is not None:
            assert self.timers.pop(key, self.now_ms + 1) <= self.now_ms, f"{key} is not due"
            return self.carry_out(self.machine.expire(key, self.now_ms))
        if verb == "given":
            return self.given(words)
        if verb == "forgotten":
            self.log.append((record_codec.encode_key(words[0]), None, self.now_ms))
            return self.reload(checked=False)
        if verb == "reload":
            return self.reload()
        return self.carry_out(self.machine.handle(command_of(verb, words), self.now_ms))

    def advance(self, now_ms: int, ringing: tuple | None) -> None:
        assert now_ms >= self.now_ms, "time runs backwards"
        self.now_ms = now_ms
        for key, at_ms in self.timers.items():
            overdue = at_ms < now_ms and key != ringing and key not in BACKGROUND
            assert not overdue, f"{key[0]} rings at {at_ms / 1000:g}"

    def carry_out(self, effects: list) -> list[str]:
        lines = []
        for effect in effects:
            if isinstance(effect, SetTimer):
                self.timers[effect.key] = effect.at_ms
                if effect.key not in BACKGROUND:
                    lines.append(f"timer {'/'.join(effect.key)} at {effect.at_ms / 1000:g}")
            elif isinstance(effect, CancelTimer):
                self.timers.pop(effect.key, None)
                lines.append(f"cancel {'/'.join(effect.key)}")
            elif isinstance(effect, Append):
                assert effect.producer is None
                self.log += effect.records
                lines += [f"append {record_text(key, value)}" for key, value, _ in effect.records]
            elif isinstance(effect, WriteMarkers):
                lines.append(f"write {markers_text(effect)}")
            else:
                lines.append(f"reply {effect.ticket} {answer_text(effect.value)}")
        return lines

    def given(self, words: list[str]) -> list[str]:
        options, (transactional_id, label, *partitions) = split(words)
        transaction = Transaction(
            int(options.get("producer", 1_000)),
            int(options.get("previous", options.get("producer", 1_000))),
            int(options.get("next", -1)),
            int(options.get("epoch", 0)),
            timeout_ms=seconds(options.get("timeout", "60")),
            state=STATES_BY_LABEL[label],
            partitions=frozenset(map(partition_of, partitions)),
            start_ms=seconds(options["start"]) if "start" in options else -1,
            updated_ms=seconds(options.get("at", "0")),
            client_version=int(options.get("version", 0)),
        )
        value = record_codec.encode_value(transaction, int(options.get("log", 1)))
        self.log.append((record_codec.encode_key(transactional_id), value, self.now_ms))
        return self.reload(checked=False)

    def reload(self, checked: bool = True) -> list[str]:
        before = durable_state(self.machine, self.settings)
        self.begin_anew()
        for key, value, _ in self.log:
            self.machine.replay(key, value)
        assert not checked or durable_state(self.machine, self.settings) == before
        return self.carry_out(self.machine.start(self.now_ms))


def durable_state(machine: TransactionMachine, settings: TransactionSettings) -> dict[str, bytes]:
    """What a log must bring back: every id with all that a record says of it."""
    level = settings.transaction_version
    return {
        transactional_id: record_codec.encode_value(transaction, level)
        for transactional_id, transaction in machine.transactions.items()
    }


# Commands


def split(words: list[str]) -> tuple[dict[str, str], list[str]]:
    """`name=value` words, and the others."""
    options = dict(word.split("=", 1) for word in words if "=" in word)
    return options, [word for word in words if "=" not in word]


def seconds(text: str) -> int:
    return round(float(text) * 1000)


def partition_of(word: str) -> tuple[str, int]:
    topic, _, index = word.rpartition("-")
    return topic, int(index)


def command_of(verb: str, words: list[str]):
    ticket, *words = words
    if verb == "markers":
        return markers_command(ticket, words)
    options, rest = split(words)
    transactional_id = options.get("id", "x")
    if transactional_id.startswith("*"):
        transactional_id = "i" * int(transactional_id[1:])
    identity = (transactional_id, int(options.get("producer", 1_000)), int(options.get("epoch", 0)))
    version = int(options.get("version", 0))
    if verb == "init":
        return InitProducer(
            ticket,
            transactional_id,
            seconds(options.get("timeout", "60")),
            int(options.get("producer", -1)),
            int(options.get("epoch", -1)),
        )
    if verb == "add":
        return AddPartitions(ticket, *identity, partitions_of(rest), version)
    if verb == "verify":
        return VerifyPartitions(ticket, *identity, partitions_of(rest), version)
    if verb in ("commit", "abort"):
        return EndTransaction(ticket, *identity, verb == "commit", version)
    if verb == "describe":
        return DescribeTransaction(ticket, transactional_id)
    assert verb == "list", verb
    return ListTransactions(
        ticket,
        frozenset(filter(None, options.get("states", "").split(","))),
        frozenset(map(int, filter(None, options.get("producers", "").split(",")))),
        seconds(options["longer"]) if "longer" in options else -1,
    )


def partitions_of(words: list[str]) -> list[tuple[str, int]]:
    """`t-0`, or `t-0..999` for a thousand of them."""
    partitions = []
    for word in words:
        first, _, last = word.partition("..")
        topic, index = partition_of(first)
        partitions += [(topic, number) for number in range(index, int(last or index) + 1)]
    return partitions


def markers_command(ticket: str, words: list[str]) -> MarkersWritten:
    """`t-0=NONE`: what became of each partition's marker."""
    named = ("id", "producer", "epoch")
    options, _ = split(words)
    results = {partition_of(name): ErrorCode[code] for name, code in options.items() if name not in named}
    return MarkersWritten(
        ticket,
        options.get("id", "x"),
        int(options.get("producer", 1_000)),
        int(options.get("epoch", 0)),
        results,
    )


# Effects as text


def names(partitions) -> str:
    shown = [f"{topic}-{index}" for topic, index in sorted(partitions)]
    return " ".join(shown if len(shown) < 10 else [shown[0], "...", shown[-1]])


def moment(milliseconds: int) -> str:
    return "-1" if milliseconds == -1 else f"{milliseconds / 1000:g}"


def record_text(key: bytes, value: bytes | None) -> str:
    transactional_id = record_codec.decode_key(key)
    if value is None:
        return f"{transactional_id[:40]} tombstone"
    transaction = record_codec.decode_value(value)
    text = f"{transactional_id[:40]} {transaction.state.label} producer={transaction.producer_id}"
    if transaction.previous_producer_id not in (-1, transaction.producer_id):
        text += f" previous={transaction.previous_producer_id}"
    if transaction.next_producer_id != -1:
        text += f" next={transaction.next_producer_id}"
    text += f" epoch={transaction.producer_epoch} timeout={transaction.timeout_ms / 1000:g}"
    text += f" start={moment(transaction.start_ms)} at={moment(transaction.updated_ms)}"
    if transaction.client_version:
        text += f" version={transaction.client_version}"
    return text + (f" [{names(transaction.partitions)}]" if transaction.partitions else "")


def markers_text(effect: WriteMarkers) -> str:
    marker = effect.marker
    assert marker.coordinator_epoch == LEADER_EPOCH
    outcome = "commit" if marker.commit else "abort"
    version = f" version={marker.transaction_version}" if marker.transaction_version else ""
    return (
        f"{outcome} {effect.transactional_id} producer={marker.producer_id} epoch={marker.producer_epoch}"
        f"{version} [{names(effect.partitions)}]"
    )


def answer_text(answer) -> str:
    match answer:
        case InitProducerReply(code, producer_id, epoch) | EndTransactionReply(code, producer_id, epoch):
            return code.name if producer_id == -1 else f"{code.name} producer={producer_id} epoch={epoch}"
        case AddPartitionsReply(code) | MarkersWrittenReply(code):
            return code.name
        case VerifyPartitionsReply(errors):
            return " ".join(code.name for code in errors)
        case TransactionDescription(code):
            if code is not ErrorCode.NONE:
                return code.name
            return (
                f"NONE {answer.state} producer={answer.producer_id} epoch={answer.producer_epoch}"
                f" timeout={answer.timeout_ms / 1000:g} start={moment(answer.start_ms)}"
                f" [{names(answer.partitions)}]"
            )
        case ListTransactionsReply(code, unknown, transactions):
            listed = [f"{each.transactional_id}:{each.producer_id}:{each.state}" for each in transactions]
            return " ".join([code.name, *listed, *(f"unknown={name}" for name in unknown)])
        case _:
            raise AssertionError(answer)


def rewrite(path: pathlib.Path) -> str:
    """The transcript with the effects that follow today."""
    return rewrite_on(path, Stage())
