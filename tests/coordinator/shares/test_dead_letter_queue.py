"""The queue of dead letters as transcripts: calls with the time, and the effects as lines."""

import pytest

from odradek.coordinator.shares.dead_letters import queue as module
from odradek.coordinator.shares.dead_letters.letters import Cause, DeadLetter
from odradek.coordinator.shares.dead_letters.queue import (
    ATTEMPTS_MAX,
    CreateTopic,
    DeadLetterQueue,
    End,
    QueueTopic,
    ReadOriginals,
    Reason,
    Report,
    Request,
)
from odradek.coordinator.shares.state.persister import SharePartitionKey
from odradek.wire.errors import ErrorCode
from odradek.wire.records import iter_records

TOPIC_ID = bytes(15) + b"\x07"
NONE, MOVED, LOST = ErrorCode.NONE, ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NETWORK_EXCEPTION
LARGE = 1_048_588


class Story:
    """A queue, its settings, and what has come out of it."""

    def __init__(self, **topics):
        self.names = {"g": "dlq.q"}
        self.copying = set()
        self.prefix, self.creates_topics = "dlq.", False
        self.topics = {f"dlq.{name}": topic for name, topic in topics.items()}
        self.now_ms = 0
        self.machine = DeadLetterQueue(self, lambda failures: 1_000 * 2**failures)
        self.writes, self.reads = [], []
        self.ended = []

    # Settings

    def queue_of(self, group_id):
        return self.names.get(group_id, "")

    def copies(self, group_id):
        return group_id in self.copying

    def topic(self, name):
        return self.topics.get(name)

    # Calls

    def add(self, first, last=None, partition=0, group="g"):
        letter = DeadLetter(first, first if last is None else last, 1, Cause.REJECTED)
        key = SharePartitionKey(group, TOPIC_ID, partition)
        request = Request(key, "t", letter, lambda: None)
        return request, self.take(self.machine.add(request, self.now_ms))

    def wrote(self, code=NONE):
        return self.take(self.machine.wrote(self.writes.pop(0).lane, code, self.now_ms))

    def created(self, code=NONE):
        return self.take(self.machine.created("dlq.q", code, self.now_ms))

    def read(self, originals, end):
        return self.take(self.machine.read(self.reads.pop(0).lane, originals, end, self.now_ms))

    def tick(self):
        """At the time that the machine has asked for."""
        self.now_ms = self.machine.next_ms
        return self.take(self.machine.tick(self.now_ms))

    def see(self):
        return self.take(self.machine.view_changed(self.now_ms))

    def take(self, effects):
        lines = []
        for effect in effects:
            match effect:
                case End(request):
                    self.ended.append(request)
                    lines.append(f"end {request.letter.first_offset}")
                case Report(request, queue, reason, _):
                    lines.append(f"report {request.key.group_id} {queue} {reason.label}")
                case CreateTopic(queue):
                    lines.append(f"create {queue}")
                case ReadOriginals(_, request, _):
                    self.reads.append(effect)
                    lines.append(f"read {request.next_offset}")
                case _:
                    self.writes.append(effect)
                    offsets = [offset_of(record) for record in records_of(effect)]
                    lane = effect.lane
                    lines.append(f"write {lane.queue}-{lane.index} at {effect.leader}: {offsets}")
        return lines


def records_of(write):
    return list(iter_records(write.batch.encoded(77)))


def offset_of(record):
    return int(dict(record.headers)["__dlq.errors.offset"])


def enabled(*leaders, bytes_max=LARGE):
    return QueueTopic(True, leaders, bytes_max)


def test_the_letters_of_a_partition_go_one_batch_at_a_time_and_many_together():
    story = Story(q=enabled(1, 2))
    assert story.add(0, 2)[1] == ["write dlq.q-0 at 1: [0, 1, 2]"]
    assert story.add(5)[1] == []
    assert story.add(7, 8)[1] == []
    assert story.add(3, partition=3)[1] == ["write dlq.q-1 at 2: [3]"]
    assert story.wrote() == ["end 0", "write dlq.q-0 at 1: [5, 7, 8]"]
    assert story.wrote() == ["end 3"]
    assert story.wrote() == ["end 5", "end 7"]
    assert story.machine.waiting_count == 0
    assert story.machine.written == {"g": 7}
    assert story.machine.produced == {"g": 4}
    assert not story.machine.lanes


def test_a_record_of_the_queue_is_kafkas():
    story = Story(q=enabled(1))
    story.names = {"gruppe-ä": "dlq.q"}
    story.add(41, partition=0, group="gruppe-ä")
    ((write),) = story.writes
    (record,) = records_of(write)
    assert (record.timestamp, record.key, record.value) == (77, None, None)
    assert record.headers == (
        ("__dlq.errors.topic", b"t"),
        ("__dlq.errors.partition", b"0"),
        ("__dlq.errors.offset", b"41"),
        ("__dlq.errors.group", "gruppe-ä".encode()),
        ("__dlq.errors.delivery.count", b"1"),
        ("__dlq.errors.message", b"Offset rejected by client."),
    )


def test_a_batch_is_not_larger_than_the_topic_allows():
    story = Story(q=enabled(1, bytes_max=450))
    assert story.add(0, 4)[1] == ["write dlq.q-0 at 1: [0, 1]"]
    assert len(story.writes[0].batch.encoded(0)) <= 450
    assert story.wrote() == ["write dlq.q-0 at 1: [2, 3]"]
    assert story.wrote() == ["write dlq.q-0 at 1: [4]"]
    assert story.wrote() == ["end 0"]


def test_originals_are_read_before_their_batch_is_filled():
    story = Story(q=enabled(1, bytes_max=1_000))
    story.copying.add("g")
    assert story.add(0, 3)[1] == ["read 0"]
    # Only two of them had room, and one has no record in the log.
    assert story.read({0: (b"k", b"v" * 300)}, 2) == ["write dlq.q-0 at 1: [0, 1]"]
    first, second = records_of(story.writes[0])
    assert (first.key, first.value, second.key, second.value) == (b"k", b"v" * 300, None, None)
    assert story.wrote() == ["read 2"]
    # What does not fit even alone goes without.
    assert story.read({2: (None, b"v" * 990), 3: (None, b"w")}, 4) == ["write dlq.q-0 at 1: [2, 3]"]
    assert [record.value for record in records_of(story.writes[0])] == [None, b"w"]
    assert story.wrote() == ["end 0"]


def test_originals_that_cannot_be_had_are_left_out():
    story = Story(q=enabled(1))
    story.copying.add("g")
    story.add(0, 3)
    assert story.read(None, 0) == ["write dlq.q-0 at 1: [0, 1, 2, 3]"]


def test_what_is_passing_is_tried_again_after_growing_pauses():
    story = Story(q=enabled(1))
    story.add(0)
    pauses = []
    for _ in range(ATTEMPTS_MAX - 1):
        assert story.wrote(LOST) == []
        pauses.append(story.machine.next_ms - story.now_ms)
        assert story.add(len(pauses))[1] == [], "those behind it wait, too"
        assert story.tick() == [f"write dlq.q-0 at 1: {list(range(len(pauses) + 1))}"]
    assert pauses == [2_000, 4_000, 8_000, 16_000]
    assert story.wrote(LOST) == ["report g dlq.q unreachable", "end 0"]
    assert story.machine.lost == {("g", Reason.UNREACHABLE): 1}
    assert story.tick() == ["write dlq.q-0 at 1: [1, 2, 3, 4]"]
    assert story.wrote() == ["end 1", "end 2", "end 3", "end 4"]


def test_a_new_leader_is_tried_without_a_pause():
    story = Story(q=enabled(1))
    story.add(0)
    assert story.wrote(MOVED) == []
    assert story.see() == []
    story.topics["dlq.q"] = enabled(2)
    assert story.see() == ["write dlq.q-0 at 2: [0]"]


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"names": {}}, Reason.UNNAMED),
        ({"names": {"g": "__dlq"}}, Reason.RESERVED),
        ({"topics": {}}, Reason.MISSING),
        ({"topics": {"dlq.q": QueueTopic(False, (1,), LARGE)}}, Reason.NOT_ENABLED),
        ({"prefix": "dead."}, Reason.PREFIX),
    ],
)
def test_a_queue_that_may_not_be_used_is_reported_once(change, reason):
    story = Story(q=enabled(1))
    for name, value in change.items():
        setattr(story, name, value)
    name = story.names.get("g", "")
    assert story.add(0)[1] == [f"report g {name} {reason.label}", "end 0"]
    assert story.add(1, 3)[1] == ["end 1"]
    assert story.machine.lost == {("g", reason): 4}
    story.names, story.prefix, story.topics = {"g": "dlq.q"}, "dlq.", {"dlq.q": enabled(1)}
    story.add(4)
    story.wrote()
    for name, value in change.items():
        setattr(story, name, value)
    assert len(story.add(5)[1]) == (2 if story.names == {"g": "dlq.q"} else 1)


def test_without_a_prefix_any_name_will_do():
    story = Story()
    story.prefix, story.names, story.topics = "", {"g": "any"}, {"any": enabled(1)}
    assert story.add(0)[1] == ["write any-0 at 1: [0]"]


def test_a_refused_batch_is_given_up_at_once():
    story = Story(q=enabled(1))
    story.add(0)
    story.add(1)
    assert story.wrote(ErrorCode.MESSAGE_TOO_LARGE) == [
        "report g dlq.q refused",
        "end 0",
        "write dlq.q-0 at 1: [1]",
    ]
    assert story.machine.failed == {"g": 1}


def test_a_missing_topic_is_created_once_for_all_that_wait():
    story = Story()
    story.creates_topics = True
    assert story.add(0)[1] == ["create dlq.q"]
    assert story.add(1)[1] == []
    assert story.created() == []
    story.topics["dlq.q"] = enabled(1)
    assert story.see() == ["write dlq.q-0 at 1: [0]"]
    assert story.wrote() == ["end 0", "write dlq.q-0 at 1: [1]"]


def test_a_topic_that_somebody_else_creates_is_waited_for():
    story = Story()
    story.creates_topics = True
    story.add(0)
    assert story.created(ErrorCode.TOPIC_ALREADY_EXISTS) == []
    for _ in range(ATTEMPTS_MAX - 2):
        assert story.tick() == ["create dlq.q"]
        assert story.created(ErrorCode.TOPIC_ALREADY_EXISTS) == []
    assert story.tick() == ["create dlq.q"]
    assert story.created(ErrorCode.TOPIC_ALREADY_EXISTS) == ["report g dlq.q not_created", "end 0"]
    assert story.machine.next_ms is None


def test_a_refused_creation_gives_up_at_once():
    story = Story()
    story.creates_topics = True
    story.add(0)
    refused = story.created(ErrorCode.INVALID_TOPIC_EXCEPTION)
    assert refused == ["report g dlq.q not_created", "end 0"]


def test_what_is_cancelled_is_dropped_and_nobody_is_told():
    story = Story(q=enabled(1))
    story.add(0)
    request, _ = story.add(1)
    story.add(2)
    request.cancel()
    assert story.wrote() == ["end 0", "write dlq.q-0 at 1: [2]"]
    assert story.wrote() == ["end 2"]
    assert story.machine.waiting_count == 0


def test_a_topic_that_is_deleted_or_renamed_meanwhile_is_no_place_for_letters():
    story = Story(q=enabled(1), other=enabled(3))
    story.add(0)
    story.add(1)
    story.names["g"] = "dlq.other"
    assert story.wrote() == ["end 0", "write dlq.other-0 at 3: [1]"]
    story.add(2)
    del story.topics["dlq.other"]
    assert story.wrote(ErrorCode.UNKNOWN_TOPIC_ID) == []
    assert story.tick() == ["report g dlq.other missing", "end 1", "end 2"]


def test_what_waits_is_bounded(monkeypatch):
    monkeypatch.setattr(module, "WAITING_MAX", 2)
    monkeypatch.setattr(module, "WRITES_MAX", 1)
    story = Story(q=enabled(1, 1, 1))
    assert story.add(0)[1] == ["write dlq.q-0 at 1: [0]"]
    assert story.add(1, partition=1)[1] == [], "another batch is under way"
    assert story.add(2)[1] == ["report g dlq.q too_many", "end 2"]
    assert story.wrote() == ["end 0", "write dlq.q-1 at 1: [1]"]
    assert story.wrote() == ["end 1"]
    assert story.machine.waiting_count == 0


def test_nothing_is_left_behind_by_a_leader_that_never_comes():
    """Each request ends within its attempts, however many come meanwhile."""
    story = Story(q=enabled(1))
    for offset in range(50):
        story.add(offset)
        if story.writes:
            story.wrote(LOST)
        elif story.machine.next_ms is not None:
            story.tick()
    while story.writes or story.machine.next_ms is not None:
        if story.writes:
            story.wrote(LOST)
        else:
            story.tick()
    assert len(story.ended) == 50
    assert (story.machine.waiting_count, story.machine.lanes) == (0, {})


def test_requests_hold_no_originals_while_they_wait():
    story = Story(q=enabled(1))
    story.copying.add("g")
    request, _ = story.add(0)
    story.read({0: (b"k", b"v")}, 1)
    story.wrote(LOST)
    assert request.originals is None
    assert story.tick() == ["read 0"]
