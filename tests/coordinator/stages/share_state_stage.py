"""The machine of the states of share partitions in transcripts.

    0 initialize a start=5
    ----
    append snapshot g/t-0 epoch=0 state=0 leader=0 start=5 done=0 created=0 written=0
    reply a NONE

    1 write b leader=1 5-9:acknowledged*2

A batch is FIRST-LAST:STATE*COUNT. The share partition is `g/t-0` unless said otherwise; the topics `t` and
`u` have two partitions each, until `topics` says which there are. After each step a new machine that replays
the log must hold the same state."""

from dataclasses import replace

from odradek.coordinator.asked import Asked
from odradek.coordinator.shares.state import record_codec
from odradek.coordinator.shares.state.machine import DeleteBefore, RemoveTopics, ShareMachine
from odradek.coordinator.shares.state.persister import DeliveryState, SharePartitionKey
from odradek.coordinator.shares.state.record_codec import SNAPSHOT
from odradek.coordinator.shares.state.settings import ShareStateSettings
from odradek.wire.errors import ErrorCode
from odradek.wire.messages.read_share_group_state import ReadShareGroupStateResponse
from odradek.wire.messages.read_share_group_state_summary import ReadShareGroupStateSummaryResponse
from odradek.wire.share_batches import Batch
from tests.coordinator.shares import share_state_requests as requests
from tests.coordinator.stages.group_stage import topic_id, topic_name
from tests.kit.transcript import Line, Stage, seconds

PARTITIONS_EACH = 2


class ShareStateStage(Stage):
    folder = "share_state_transcripts"
    is_punctual = False
    new_settings = ShareStateSettings

    def __init__(self) -> None:
        self.topics = ["t", "u"]
        self.first = 0
        """Records of the log that were deleted."""
        super().__init__()

    def new_machine(self) -> ShareMachine:
        return ShareMachine(self.settings, lambda one: PARTITIONS_EACH * (topic_name(one) in self.topics))

    def have(self, words: list[str]) -> list[str]:
        self.topics = words
        return []

    steps = {"topics": have}

    def carry_out(self, effects) -> list[str]:
        lines = super().carry_out(effects)
        if not self.first:
            assert durable_state(self.replayed()) == self.durable_state()
        return lines

    def text_of(self, effect) -> list[str]:
        if not isinstance(effect, DeleteBefore):
            return super().text_of(effect)
        count = effect.position - self.first
        lines = [f"delete {self.record_text(key, value)}" for key, value, _ in self.log[:count]]
        del self.log[:count]
        self.first = effect.position
        return lines

    def durable_state(self):
        return durable_state(self.machine)

    def compare(self, before, after) -> None:
        if self.first:
            # Fences and counts of what was deleted are not known any more.
            before, after = ({key: kept.state for key, kept in each.items()} for each in (before, after))
        assert after == before
        self.first = 0

    def record_text(self, key: bytes, value: bytes | None) -> str:
        found = record_codec.decode_key(key)
        assert found is not None
        record_type, partition = found
        if value is None:
            return f"tombstone {key_text(partition)}"
        if record_type == SNAPSHOT:
            state = record_codec.decode_snapshot(value)
            times = f"created={seconds(state.created_ms)} written={seconds(state.written_ms)}"
            return (
                f"snapshot {key_text(partition)} epoch={state.snapshot_epoch} state={state.state_epoch} "
                f"leader={state.leader_epoch} start={state.start_offset} "
                f"done={state.delivery_complete_count} {times}{batches_text(state.batches)}"
            )
        update = record_codec.decode_update(value)
        return (
            f"update {key_text(partition)} epoch={update.snapshot_epoch} leader={update.leader_epoch} "
            f"start={update.start_offset} done={update.delivery_complete_count}{batches_text(update.batches)}"
        )

    def answer_text(self, answer) -> str:
        if isinstance(answer, ErrorCode):
            return answer.name
        result = requests.result_of(answer)
        if result.error_code:
            return f"{result.error_code.name}: {result.error_message}"
        match answer:
            case ReadShareGroupStateResponse():
                batches = batches_text(result.state_batches)
                return f"NONE state={result.state_epoch} start={result.start_offset}{batches}"
            case ReadShareGroupStateSummaryResponse():
                return (
                    f"NONE state={result.state_epoch} leader={result.leader_epoch} "
                    f"start={result.start_offset} done={result.delivery_complete_count}"
                )
        return "NONE"


def durable_state(machine: ShareMachine) -> dict:
    """What a log must bring back, in the order of the snapshots."""
    found = {}
    for key, kept in machine.states.items():
        found[key] = replace(kept, state=replace(kept.state, batches=tuple(kept.state.batches)))
    assert list(found) == sorted(found, key=lambda key: found[key].position)
    return found


# Commands


def key_of(line: Line) -> SharePartitionKey:
    """`GROUP/TOPIC-PARTITION`; the group `*9` has a name of nine letters."""
    group_id, _, place = line.get("of", "g/t-0").partition("/")
    if group_id.startswith("*"):
        group_id = "g" * int(group_id[1:])
    topic, _, partition = place.partition("-")
    return SharePartitionKey(group_id, topic_id(topic), int(partition))


def batches_of(words: list[str]) -> list[Batch]:
    """`many*N`: so many batches of one offset each, with gaps between them."""
    batches = []
    for word in words:
        offsets, _, rest = word.partition(":")
        if word.startswith("many*"):
            batches += [Batch(2 * number, 2 * number, 1, 0) for number in range(int(word[5:]))]
        else:
            first, _, last = offsets.partition("-")
            state, _, count = rest.partition("*")
            batches.append(Batch(int(first), int(last), int(count), DeliveryState[state.upper()]))
    return batches


def asking(request):
    """Makes the command of a line: `request` makes its message."""
    return lambda line: Asked(request(line), requests.CLIENT, line.ticket)


def write(line: Line):
    return requests.write(
        key_of(line),
        line.number("state", 0),
        line.number("leader", 0),
        line.number("start"),
        line.number("done"),
        batches_of(line.rest),
    )


ShareStateStage.commands = {
    "initialize": asking(
        lambda line: requests.initialize(key_of(line), line.number("state", 0), line.number("start"))
    ),
    "read": asking(lambda line: requests.read(key_of(line), line.number("leader"))),
    "write": asking(write),
    "delete": asking(lambda line: requests.delete(key_of(line))),
    "summarize": asking(lambda line: requests.summarize(key_of(line))),
    "remove": lambda line: RemoveTopics([topic_id(name) for name in line.rest], line.ticket),
}


# Texts


def key_text(key: SharePartitionKey) -> str:
    return f"{key.group_id[:40]}/{topic_name(key.topic_id)}-{key.partition}"


def batches_text(batches) -> str:
    if len(batches) > 9:
        return f" {len(batches)} batches"
    return "".join(
        f" {batch.first_offset}-{batch.last_offset}:{DeliveryState(batch.delivery_state).name.lower()}"
        f"*{batch.delivery_count}"
        for batch in batches
    )
