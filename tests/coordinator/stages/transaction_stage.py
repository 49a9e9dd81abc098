"""The machine of transactions in transcripts.

    set transaction_version=1
    0 init a timeout=60
    ----
    append x Empty producer=1000 epoch=0 at=0
    reply a NONE producer=1000 epoch=0

The transactional id is `x` and the time-out a minute unless said otherwise; producer ids count from 1000, the
coordinator's leader epoch is 7. `given ID STATE ...` puts a record into the log and loads it; `forgotten ID`
does so with a tombstone. Markers are written when a step `markers` says so. The timers of the two searches
are not shown."""

import itertools

from odradek.coordinator.asked import Asked
from odradek.coordinator.effects import Reply, WriteMarkers
from odradek.coordinator.transactions import record_codec
from odradek.coordinator.transactions.endings import MarkersWritten
from odradek.coordinator.transactions.machine import TransactionMachine
from odradek.coordinator.transactions.settings import TransactionSettings
from odradek.coordinator.transactions.state import STATES_BY_LABEL, Transaction
from odradek.wire.errors import ErrorCode, KafkaError
from odradek.wire.messages.describe_transactions import DescribeTransactionsResponse
from odradek.wire.messages.end_txn import EndTxnResponse
from odradek.wire.messages.init_producer_id import InitProducerIdResponse
from odradek.wire.messages.list_transactions import ListTransactionsRequest, ListTransactionsResponse
from tests.coordinator import transaction_requests as requests
from tests.kit.transcript import Line, Stage, partition_of, seconds

LEADER_EPOCH = 7


class TransactionStage(Stage):
    folder = "transaction_transcripts"
    background = (("abort_timed_out",), ("remove_expired",))
    new_settings = TransactionSettings

    def __init__(self) -> None:
        self.producer_ids = itertools.count(1_000)
        self.gives_ids = True
        self.verified: dict[str, list[tuple[str, int]]] = {}
        """Partitions in the order of the line that has them verified, by its ticket."""
        super().__init__()

    def new_machine(self) -> TransactionMachine:
        return TransactionMachine(self.settings, LEADER_EPOCH, self.new_producer_id)

    def new_producer_id(self) -> int:
        if not self.gives_ids:
            raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        return next(self.producer_ids)

    def set(self, name: str, value: int) -> None:
        if name == "gives_ids":
            self.gives_ids = bool(value)
        else:
            super().set(name, value)

    def text_of(self, effect) -> list[str]:
        if isinstance(effect, WriteMarkers):
            return [f"write {markers_text(effect)}"]
        if isinstance(effect, Reply) and effect.ticket in self.verified:
            return [f"reply {effect.ticket} {self.verification_text(effect)}"]
        return super().text_of(effect)

    def command(self, verb: str, words: list[str]):
        if verb == "verify":
            line = Line(verb, words, {})
            self.verified[line.ticket] = partitions_of(line)
        return super().command(verb, words)

    def verification_text(self, effect: Reply) -> str:
        codes = requests.codes_in(effect.response)
        return " ".join(
            codes.get(one, effect.response.error_code).name for one in self.verified[effect.ticket]
        )

    def given(self, words: list[str]) -> list[str]:
        line = Line("given", words, {})
        label, *partitions = line.rest
        transaction = Transaction(
            line.number("producer", 1_000),
            line.number("previous", line.number("producer", 1_000)),
            line.number("next"),
            line.number("epoch", 0),
            timeout_ms=line.time_ms("timeout", 60_000),
            state=STATES_BY_LABEL[label],
            partitions=frozenset(map(partition_of, partitions)),
            start_ms=line.time_ms("start"),
            updated_ms=line.time_ms("at", 0),
            client_version=line.number("version", 0),
        )
        return self.load(line.ticket, record_codec.encode_value(transaction, line.number("log", 1)))

    def load(self, transactional_id: str, value: bytes | None) -> list[str]:
        self.log.append((record_codec.encode_key(transactional_id), value, self.now_ms))
        return self.carry_out(self.reload(is_checked=False))

    steps = {"given": given, "forgotten": lambda stage, words: stage.load(words[0], None)}

    def durable_state(self) -> dict[str, bytes]:
        """What a log must bring back: every id with all that a record says of it."""
        level = self.settings.transaction_version
        return {
            transactional_id: record_codec.encode_value(transaction, level)
            for transactional_id, transaction in self.machine.transactions.items()
        }

    def record_text(self, key: bytes, value: bytes | None) -> str:
        return record_text(record_codec.decode_key(key), value)

    def answer_text(self, answer) -> str:
        return answer_text(answer)


# Commands


def id_of(line: Line) -> str:
    """`id=*9` is one of nine letters."""
    transactional_id = line.get("id", "x")
    return "i" * int(transactional_id[1:]) if transactional_id.startswith("*") else transactional_id


def identity(line: Line) -> tuple:
    return id_of(line), line.number("producer", 1_000), line.number("epoch", 0)


def partitions_of(line: Line) -> list[tuple[str, int]]:
    """`t-0`, or `t-0..999` for a thousand of them."""
    partitions = []
    for word in line.rest:
        first, _, last = word.partition("..")
        topic, index = partition_of(first)
        partitions += [(topic, number) for number in range(index, int(last or index) + 1)]
    return partitions


def asking(make, *fields_of):
    """Makes the command of a line."""

    def command(line: Line) -> Asked:
        asked = make(print, *(value for of in fields_of for value in of(line)))
        return Asked(asked.request, asked.client, line.ticket)

    return command


def added(line: Line) -> tuple:
    return partitions_of(line), line.number("version", 0)


def ended(line: Line) -> tuple:
    return line.verb == "commit", line.number("version", 0)


def listing(line: Line) -> Asked:
    request = ListTransactionsRequest(
        state_filters=line.names("states"),
        producer_id_filters=[*map(int, line.names("producers"))],
        duration_filter=line.time_ms("longer"),
    )
    return Asked(request, requests.client(2), line.ticket)


TransactionStage.commands = {
    "init": asking(
        requests.init_producer,
        lambda line: (id_of(line), line.time_ms("timeout", 60_000)),
        lambda line: (line.number("producer"), line.number("epoch")),
    ),
    "add": asking(requests.add_partitions, identity, added),
    "verify": asking(requests.verify_partitions, identity, added),
    "commit": asking(requests.end_transaction, identity, ended),
    "abort": asking(requests.end_transaction, identity, ended),
    # `t-0=NONE`: what became of each partition's marker.
    "markers": lambda line: MarkersWritten(
        *identity(line), {partition_of(name): ErrorCode[code] for name, code in line.pairs}, line.ticket
    ),
    "describe": asking(requests.describe, lambda line: (id_of(line),)),
    "list": listing,
}


# Effects as text


def names(partitions) -> str:
    shown = [f"{topic}-{index}" for topic, index in sorted(partitions)]
    return " ".join(shown if len(shown) < 10 else [shown[0], "...", shown[-1]])


def moment(time_ms: int) -> str:
    return "-1" if time_ms == -1 else seconds(time_ms)


def record_text(transactional_id: str, value: bytes | None) -> str:
    if value is None:
        return f"{transactional_id[:40]} tombstone"
    transaction = record_codec.decode_value(value)
    text = f"{transactional_id[:40]} {transaction.state.label} producer={transaction.producer_id}"
    if transaction.previous_producer_id not in (-1, transaction.producer_id):
        text += f" previous={transaction.previous_producer_id}"
    if transaction.next_producer_id != -1:
        text += f" next={transaction.next_producer_id}"
    text += f" epoch={transaction.producer_epoch} timeout={seconds(transaction.timeout_ms)}"
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
        case ErrorCode():
            return answer.name
        case InitProducerIdResponse() | EndTxnResponse() if answer.producer_id != -1:
            return f"{answer.error_code.name} producer={answer.producer_id} epoch={answer.producer_epoch}"
        case DescribeTransactionsResponse(transaction_states=[state]):
            if state.error_code:
                return state.error_code.name
            partitions = [(topic.topic, index) for topic in state.topics for index in topic.partitions]
            return (
                f"NONE {state.transaction_state} producer={state.producer_id} epoch={state.producer_epoch}"
                f" timeout={seconds(state.transaction_timeout_ms)}"
                f" start={moment(state.transaction_start_time_ms)} [{names(partitions)}]"
            )
        case ListTransactionsResponse():
            listed = [
                f"{one.transactional_id}:{one.producer_id}:{one.transaction_state}"
                for one in answer.transaction_states
            ]
            unknown = [f"unknown={name}" for name in answer.unknown_state_filters]
            return " ".join([answer.error_code.name, *listed, *unknown])
    return answer.error_code.name
