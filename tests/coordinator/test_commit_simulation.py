"""Two dozen members of a classic group that commit, plainly or in transactions, in a world where everything
fails at times (`group_world.py`), and where requests overtake each other.

One third are static members, half join as clients did before they had to ask for an id. Markers come long
after their transaction, or before what they end. What is committed, and what may not be told yet, is worked
out once more from the log.
"""

import pytest

from odradek.coordinator.asked import kind_of
from odradek.coordinator.effects import LoggedRecord, MarkerRecord, TransactionalRecord
from odradek.coordinator.group_machine import GroupMachine
from odradek.coordinator.groups import record_codec
from odradek.coordinator.groups.committed_offsets import CommittedOffsets
from odradek.wire.end_marker import EndMarker
from odradek.wire.errors import ErrorCode
from odradek.wire.messages.txn_offset_commit import TxnOffsetCommitRequest
from tests.coordinator import group_requests as requests
from tests.coordinator.group_world import ANSWER_WITHIN_MS, ClassicConsumer, World
from tests.kit.simulation import Connection, failures
from tests.tiers import NIGHTLY

GROUP = "g"
MEMBERS = 24
SEEDS = 9 if NIGHTLY else 3
LATEST_MARKER_MS = 40_000
PRODUCERS = range(MEMBERS)


class CommittingWorld(World):
    """A world whose topics stay, and whose log is not compacted: it has transactions."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed, {GROUP: [Committer] * MEMBERS})

    def compact(self) -> None:
        pass

    def change_topics(self) -> None:
        self.random.choice(self.clients).begin()

    def change_topics_once_more(self) -> None:
        pass

    def submit(self, command) -> None:
        if kind_of(command) is TxnOffsetCommitRequest:
            self.coordinator.commit_in_transaction(command)
        else:
            super().submit(command)

    def end(self, marker: EndMarker) -> None:
        """Whoever writes markers tries until it is done."""

        def told(code: ErrorCode) -> None:
            if code is not ErrorCode.NONE:
                self.at(100, self.end, marker)

        self.coordinator.end_offsets(0, marker, told)

    def trouble(self) -> None:
        self.check_offsets()
        super().trouble()

    def judge(self) -> list[str]:
        super().judge()
        for client in self.clients:
            client.die()
        self.run(1_000)
        for producer_id in PRODUCERS:
            self.end(EndMarker(producer_id, 0, 0, True))
        self.settle()
        self.check_offsets()
        assert self.machine is not None
        if self.machine.pending.by_group:
            self.complain(f"{self.machine.pending.by_group} are left of transactions that have ended")
        return self.complaints

    def check_offsets(self) -> None:
        """The group tells what the log says, and nothing of what is not decided yet."""
        committed, pending = offsets_in(self.log.records)
        for is_stable in (False, True):
            places = sorted(committed.keys() | pending)
            question = requests.fetch(GROUP, places, require_stable=is_stable)
            response = requests.fetched_now(self.coordinator, question)
            if response is None or self.log.pending:
                continue
            for topic, one in requests.results_in(response):
                place = topic, one.partition_index
                is_open = is_stable and place in pending
                wanted = ErrorCode.UNSTABLE_OFFSET_COMMIT if is_open else ErrorCode.NONE
                offset = -1 if is_open else committed.get(place, -1)
                if (one.error_code, one.committed_offset) != (wanted, offset):
                    self.complain(f"{place} is told as {one}, the log says {offset} ({wanted.name})")


def offsets_in(log: list[LoggedRecord]) -> tuple[dict[tuple[str, int], int], set[tuple[str, int]]]:
    """What a log says: the committed offsets by topic and partition, and which are about to be replaced."""
    committed: dict[tuple[str, int], tuple[int, int]] = {}
    opened: dict[int, dict[tuple[str, int], tuple[int, int]]] = {}
    for number, record in enumerate(log):
        if isinstance(record, MarkerRecord):
            for place, written in opened.pop(record.producer_id, {}).items():
                if record.commit and written > committed.get(place, (-1, -1)):
                    committed[place] = written
            continue
        kind, subject = record_codec.decode_key(record[0])
        if kind is record_codec.Kind.OFFSET:
            place, written = subject[1:], (number, record_codec.decode_offset(record[1]).offset)
            if isinstance(record, TransactionalRecord):
                opened.setdefault(record.producer_id, {})[place] = written
            else:
                committed[place] = written
    told = {place: offset for place, (_, offset) in committed.items()}
    return told, {place for places in opened.values() for place in places}


class Committer(ClassicConsumer):
    def __init__(self, world: World, group_id: str, index: int) -> None:
        super().__init__(world, group_id, index)
        self.producer_id = index
        self.version = 9 if index % 2 else 3
        self.requests = Connection(world, in_order=False)
        self.answers = Connection(world, in_order=False)

    def work(self) -> None:
        what = self.world.random.random() if self.owned else 1.0
        now_ms = round(self.world.now_ms)
        offsets = [(one.topic, index, now_ms) for one in self.by_name() for index in one.partitions]
        if what < 0.3:
            # Beside the heartbeat, as from a producer: it keeps no session.
            self.end_later()
            member = (self.member_id, self.epoch, self.instance_id)
            write = requests.commit_in_transaction(self.group_id, self.producer_id, offsets, 0, *member)
            self.world.ask(self, lambda ticket: requests.asked(write, ticket), lambda reply: None)
        if not 0.3 <= what < 0.6:
            return super().work()
        commit = requests.commit(self.group_id, offsets, self.epoch, self.member_id, self.instance_id)
        self.attempt(
            lambda ticket: requests.asked(commit, ticket),
            self.commit_answered,
            ANSWER_WITHIN_MS,
            self.work,
        )

    def commit_answered(self, answer) -> None:
        code = requests.errors_in(answer)[0]
        if code is ErrorCode.NONE:
            super().work()
        else:
            self.refused(code)

    def end_later(self) -> None:
        """The marker comes from elsewhere, whatever becomes of the member; perhaps before the commit."""
        world = self.world
        marker = EndMarker(self.producer_id, 0, 0, world.random.random() < 0.7)
        world.at(
            world.random.randrange(1, LATEST_MARKER_MS if world.happens(0.2) else 200), world.end, marker
        )


def check_that_a_group_converges(seed: int) -> None:
    world = CommittingWorld(seed).play()
    assert world.judge() == []
    assert world.crashes > 1
    assert len({epoch for _, _, epoch in world.owners}) > 3
    committed, _ = offsets_in(world.log.records)
    assert len(committed) > 10
    assert any(isinstance(record, TransactionalRecord) for record in world.log.records)


def test_a_group_converges_after_any_trouble_and_tells_the_offsets_that_are_decided():
    assert failures(check_that_a_group_converges, range(SEEDS)) == {}


# --- Planted bugs ---


def commits_what_was_aborted(patch) -> None:
    end = CommittedOffsets.end_transaction
    patch(
        CommittedOffsets,
        "end_transaction",
        lambda offsets, producer_id, commit: end(offsets, producer_id, True),
    )


def counts_what_is_pending(patch) -> None:
    def put_pending(
        offsets, producer_id, group_id, topic, partition, offset, put=CommittedOffsets.put_pending
    ):
        put(offsets, producer_id, group_id, topic, partition, offset)
        offsets.table.put(group_id, topic, partition, offset)

    patch(CommittedOffsets, "put_pending", put_pending)


def forgets_what_is_pending_when_it_is_loaded(patch) -> None:
    patch(GroupMachine, "replay_pending", lambda *arguments: None)


@pytest.mark.parametrize(
    "bug", [commits_what_was_aborted, counts_what_is_pending, forgets_what_is_pending_when_it_is_loaded]
)
def test_a_planted_bug_is_found(bug, monkeypatch):
    bug(monkeypatch.setattr)
    assert any(CommittingWorld(seed).finds() for seed in range(SEEDS))
