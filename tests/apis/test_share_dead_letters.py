"""Share partitions of a group with a dead letter queue: when letters are asked for, and what is stored."""

import pytest

from odradek.coordinator.cluster.features import SHARE_VERSION
from odradek.coordinator.shares.dead_letters.letters import Cause, DeadLetter
from odradek.coordinator.shares.state.persister import DeliveryState, SharePartitionKey
from odradek.wire.errors import ErrorCode
from tests.apis.test_share_fetch import ACCEPT, FINAL, REJECT, Member, acquired, partitions_of
from tests.coordinator.shares.memory_persister import MemoryPersister
from tests.coordinator.shares.share_state_requests import state_batch

ARCHIVING, ARCHIVED = DeliveryState.ARCHIVING, DeliveryState.ARCHIVED


class Letters:
    """A queue whose letters end when a test says so."""

    def __init__(self):
        self.waiting = {}
        self.cancelled = []

    def are_kept(self, group_id):
        return True

    def write(self, key, topic, letter, ended):
        assert (key.group_id, topic) == ("g", "t")
        self.waiting[letter] = ended
        return lambda: self.cancelled.append(letter)

    def end(self, letter):
        self.waiting.pop(letter)()


@pytest.fixture
def letters():
    return Letters()


@pytest.fixture
def node(make_node, letters):
    node = make_node(persister=MemoryPersister(), dead_letters=letters)
    node.machine.set_features({**node.machine.view.features, SHARE_VERSION: 2})
    node.group_settings.group_configs = {"g": {"share.auto.offset.reset": "earliest"}}
    node.create("t", 1)
    node.fill("t", [b"v"] * 4)
    return node


def stored(node):
    return [write.state_batches for write in node.persister.writes]


def test_the_acknowledgement_waits_for_the_state_and_not_for_the_letter(node, letters):
    member = Member(node)
    assert acquired(member.fetch()) == [(0, 3, 1)]
    node.persister.is_slow = True
    pending = member.start([(0, 0, 1, REJECT)])
    assert letters.waiting == {}, "nothing is stored yet"
    node.persister.answer()
    node.loop.advance(0)
    assert partitions_of(pending.response)[0].acknowledge_error_code == 0
    letter = DeadLetter(0, 1, 1, Cause.REJECTED)
    assert letters.waiting.keys() == {letter}
    node.persister.is_slow = False
    letters.end(letter)
    assert stored(node) == [[state_batch(0, 1, ARCHIVING, 1)], [state_batch(0, 1, ARCHIVED, 1)]]
    member.acknowledge((0, 2, 3, ACCEPT))
    assert node.persister.writes[-1].start_offset == 2


def test_what_was_not_stored_has_no_letter(node, letters):
    member = Member(node)
    member.fetch()
    node.persister.failure = ErrorCode.COORDINATOR_NOT_AVAILABLE
    answer = partitions_of(member.acknowledge((0, 0, 3, REJECT)))[0]
    assert answer.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert letters.waiting == {}


def test_a_group_that_leaves_is_forgotten_when_its_letters_have_ended(node, letters):
    member = Member(node)
    member.fetch()
    member.acknowledge((0, 0, 3, REJECT))
    member.acknowledge(epoch=FINAL)
    (letter,) = letters.waiting
    letters.end(letter)
    assert letters.cancelled == []
    assert stored(node)[-1] == [state_batch(0, 3, ARCHIVED, 1)]
    # The next member has the state read again.
    other = Member(node, member_id="n")
    node.fill("t", [b"w"])
    assert acquired(other.fetch()) == [(4, 4, 1)]


def test_a_leader_goes_on_with_what_it_reads(node, letters):
    key = SharePartitionKey("g", node.machine.view.topics["t"].topic_id, 0)
    node.persister.put(key, 0, {0: (ARCHIVING, 1), 1: (ARCHIVING, 5)})
    assert acquired(Member(node).fetch()) == [(2, 3, 1)]
    assert list(letters.waiting) == [
        DeadLetter(0, 0, 1, Cause.REJECTED),
        DeadLetter(1, 1, 5, Cause.DELIVERED_TOO_OFTEN),
    ]


def test_letters_of_a_deleted_topic_are_written_all_the_same(node, letters):
    """No later leader would write them."""
    member = Member(node)
    member.fetch()
    member.acknowledge((0, 0, 3, REJECT))
    node.machine.delete_topics(["t"])
    assert letters.cancelled == []
    (letter,) = letters.waiting
    count = len(node.persister.writes)
    letters.end(letter)
    assert len(node.persister.writes) == count


def test_a_level_without_dead_letters_leaves_them_to_the_state(node, letters):
    member = Member(node)
    member.fetch()
    member.acknowledge((0, 0, 3, REJECT))
    node.machine.set_features({**node.machine.view.features, SHARE_VERSION: 0})
    assert letters.cancelled == list(letters.waiting)
