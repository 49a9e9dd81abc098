"""Requests for many partitions that nobody has asked for since the start: opened first, a step at a time."""

import pytest

from odradek.apis.opening import OPENED_AT_ONCE_MAX
from odradek.storage.directories.store import LogStore
from odradek.wire.errors import ErrorCode
from odradek.wire.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from tests.apis.conftest import QuickDisk
from tests.apis.test_fetch import fetch, values

MANY = OPENED_AT_ONCE_MAX + 4


class HeldQueue:
    """Works that go on when the test says so."""

    def __init__(self):
        self.entries = []

    def run(self, work, done, failed):
        self.entries.append((work, done))

    def step(self):
        """One step of the first; whether it has ended."""
        work, done = self.entries[0]
        try:
            assert next(work) is None, "nothing of it is for a worker thread"
        except StopIteration as end:
            del self.entries[0]
            done(end.value)
            return True
        return False

    def finish(self):
        steps = 1
        while not self.step():
            steps += 1
        return steps


@pytest.fixture
def restarted(node, tmp_path):
    """A node whose partitions are there, with a batch each, and none of them open; `queue` holds its work."""
    node.create("t", 2 * MANY)
    for index in range(2 * MANY):
        node.fill("t", [b"%d" % index], index=index)
    node.store.close(node.loop.now_ms)
    node.store = LogStore(QuickDisk(), [str(tmp_path / "data0")])
    node.store.open(node.loop.now_ms)
    node.leadership._store, node.leadership._view = node.store, None
    node.queue = HeldQueue()
    node.loop.run = node.queue.run
    return node


def open_count(node):
    return len(list(node.store.places.loaded()))


def asked_offsets(count):
    partitions = [ListOffsetsPartition(partition_index=index, timestamp=-1) for index in range(count)]
    return ListOffsetsRequest(topics=[ListOffsetsTopic(name="t", partitions=partitions)])


@pytest.mark.parametrize("version", [11, 18])
def test_a_fetch_of_many_opens_them_one_after_the_other_and_is_answered_then(restarted, version):
    topic = restarted.machine.view.topics["t"].topic_id if version > 12 else "t"
    answer = restarted.start(fetch(*((topic, index, 0) for index in range(MANY))), version)
    for opened in range(MANY):
        assert (open_count(restarted), answer.was_sent) == (opened, False)
        assert not restarted.queue.step()
    assert restarted.queue.step()
    (found,) = answer.response.responses
    assert [values(one) for one in found.partitions] == [[b"%d" % index] for index in range(MANY)]
    assert open_count(restarted) == MANY


def test_so_does_a_question_for_the_ends_of_many(restarted):
    answer = restarted.start(asked_offsets(MANY))
    assert open_count(restarted) == 0
    assert restarted.queue.finish() == MANY + 1
    assert [one.offset for one in answer.response.topics[0].partitions] == [1] * MANY


def test_a_few_are_opened_where_they_are_asked_for(restarted):
    restarted.ask(fetch(*(("t", index, 0) for index in range(OPENED_AT_ONCE_MAX))), 11)
    assert open_count(restarted) == OPENED_AT_ONCE_MAX
    restarted.ask(asked_offsets(2 * OPENED_AT_ONCE_MAX))
    assert open_count(restarted) == 2 * OPENED_AT_ONCE_MAX


def test_what_is_open_is_read_at_once(restarted):
    request = fetch(*(("t", index, 0) for index in range(MANY)))
    restarted.start(request, 11)
    restarted.queue.finish()
    assert len(restarted.ask(request, 11).responses[0].partitions) == MANY
    assert not restarted.queue.entries


def test_what_cannot_be_opened_is_told_by_the_answer(restarted):
    wanted = [("t", index, 0) for index in range(MANY)]
    answer = restarted.start(fetch(*wanted, ("t", 9999, 0), ("nowhere", 0, 0)), 11)
    restarted.queue.finish()
    codes = {
        (topic.topic, one.partition_index): one.error_code
        for topic in answer.response.responses
        for one in topic.partitions
        if one.error_code
    }
    assert codes == {
        ("t", 9999): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ("nowhere", 0): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }


def test_a_long_poll_of_many_waits_as_long_as_it_would_have(restarted):
    answer = restarted.start(fetch(*(("t", index, 1) for index in range(MANY)), max_wait_ms=500), 11)
    restarted.queue.finish()
    restarted.loop.turn()
    assert not answer.was_sent
    restarted.fill("t", [b"new"], index=3)
    restarted.loop.turn()
    found = [one for one in answer.response.responses[0].partitions if one.records]
    assert [(one.partition_index, values(one)) for one in found] == [(3, [b"new"])]


@pytest.mark.parametrize("is_open", [False, True])
def test_a_client_that_is_gone_leaves_nothing_that_waits(restarted, is_open):
    answer = restarted.start(fetch(*(("t", index, 1) for index in range(MANY)), max_wait_ms=500), 11)
    if is_open:
        restarted.queue.finish()
        answer.cancel()
    else:
        answer.cancel()
        restarted.queue.finish()
    partitions = [restarted.partition("t", index) for index in range(MANY)]
    assert not any(partition.appender.high_watermark.is_watched for partition in partitions)
    assert restarted.loop.pending_timers == 0
    assert not answer.was_sent
