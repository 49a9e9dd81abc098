"""The short way of ListOffsets says the same as the ordinary one, to the byte, and leaves the rest to it."""

import itertools
from dataclasses import replace

import pytest

from odradek.apis.api import RequestContext
from odradek.wire.codec import decode_message, encode_message
from odradek.wire.errors import ErrorCode, KafkaError
from odradek.wire.frames import read_response, request_frame, response_parts
from odradek.wire.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from tests.apis import transactional

LIST_OFFSETS = 2
VERSIONS = range(4, 12)
LONGEST = 1 << 20


@pytest.fixture
def filled(node):
    """A topic `t`: three batches at 1000, 3000 and 2000 ms in its first partition, none in the second."""
    node.create("t", 2)
    log = node.partition("t")
    for timestamp, values in ((1000, [b"a", b"b"]), (3000, [b"c"]), (2000, [b"d"])):
        log.append(node.batch(*values, timestamp=timestamp), now_ms=node.loop.now_ms)
    log.commit()
    return node


def question(timestamp=-1, *, topic="t", index=0, isolation=0, copies=1, **fields):
    asked = ListOffsetsPartition(partition_index=index, timestamp=timestamp, **fields)
    topics = [ListOffsetsTopic(name=topic, partitions=[asked] * copies)]
    return ListOffsetsRequest(replica_id=-1, isolation_level=isolation, topics=topics)


def ordinary(node, request, version, correlation_id):
    api = node.apis[LIST_OFFSETS]
    decoded = decode_message(ListOffsetsRequest, version, encode_message(request, version))
    context = RequestContext(LIST_OFFSETS, version, correlation_id, "me", node.connection, node.loop.now_ms)
    return b"".join(response_parts(api.handle(decoded, context), version, correlation_id))


def ask(node, data, start=0, filled=None, longest=LONGEST):
    """Bytes of the answers, where the last request taken ends, and how many were; None: not for this way."""
    shortcut = node.apis[LIST_OFFSETS].shortcut
    filled = len(data) if filled is None else filled
    answer = shortcut(memoryview(data), start, filled, longest, node.connection, node.loop.now_ms)
    if answer is None:
        return None
    (told,) = answer.parts
    assert (type(told), len(told), answer.waiting) == (bytes, answer.size_bytes, None)
    return told, answer.end, answer.count


@pytest.mark.parametrize("version", VERSIONS)
def test_both_ways_give_the_same_bytes(filled, version):
    special = [
        -1,
        -2,
        *(timestamp for timestamp in (-4, -5, -6) if version >= {-4: 8, -5: 9, -6: 11}[timestamp]),
    ]
    choices = itertools.product(special, (0, 1), (0, 1), ("me", "", None, "ä"), (-1, 0))
    for number, (timestamp, index, isolation, client_id, epoch) in enumerate(choices):
        request = question(timestamp, index=index, isolation=isolation, current_leader_epoch=epoch)
        frame = request_frame(request, version, number - 5, client_id)
        for _ in range(2):  # learnt, then known
            told = ask(filled, b"before" + frame + b"after", 6, 6 + len(frame) + 5)
            assert told == (ordinary(filled, request, version, number - 5), 6 + len(frame), 1)


def test_an_answer_is_as_new_as_the_log(filled):
    frame = request_frame(question(), 5, 1, "me")
    for _ in range(3):
        filled.fill("t", [b"more"])
        assert ask(filled, frame)[0] == ordinary(filled, question(), 5, 1)
    filled.partition("t").delete_records(2)
    earliest = request_frame(question(-2), 5, 1, "me")
    assert ask(filled, earliest)[0] == ordinary(filled, question(-2), 5, 1)


@pytest.mark.parametrize("version", VERSIONS)
def test_open_transactions_end_the_log_for_committed_readers_as_in_the_ordinary_way(filled, version):
    frames = {
        (timestamp, isolation): request_frame(question(timestamp, isolation=isolation), version, 1, "me")
        for timestamp in (-1, -2)
        for isolation in (0, 1, 2)
    }

    def check(last_stable_offset):
        for (timestamp, isolation), frame in frames.items():
            request = question(timestamp, isolation=isolation)
            told = ask(filled, frame)
            if isolation == 2:
                assert told is None
                continue
            assert told[0] == ordinary(filled, request, version, 1)
            if (timestamp, isolation) == (-1, 1):
                answer = read_response(told[0][4:], ListOffsetsRequest, version)[1]
                assert answer.topics[0].partitions[0].offset == last_stable_offset

    check(4)
    transactional.write(filled, 7, b"open")
    filled.fill("t", [b"plain"])
    check(4)
    transactional.end(filled, 7, commit=False)
    check(7)


def test_what_was_learnt_is_forgotten_when_the_cluster_changes(filled):
    frame = request_frame(question(), 11, 1, "me")
    assert ask(filled, frame) is not None
    view = filled.machine.view
    topic = view.topics["t"]
    elsewhere = tuple(one._replace(leader=2) for one in topic.partitions)
    filled.machine.view = replace(view, topics={"t": replace(topic, partitions=elsewhere)})
    assert ask(filled, frame) is None
    newer = tuple(one._replace(leader_epoch=7) for one in topic.partitions)
    filled.machine.view = replace(view, topics={"t": replace(topic, partitions=newer)})
    assert ask(filled, frame)[0] == ordinary(filled, question(), 11, 1)
    filled.machine.view = view
    filled.machine.delete_topics(["t"])
    assert ask(filled, frame) is None
    filled.create("t")
    assert ask(filled, frame)[0] == ordinary(filled, question(), 11, 1)


@pytest.mark.parametrize("version", range(12))
def test_what_is_unusual_takes_the_ordinary_way(filled, version):
    unusual = [
        question(topic="u"),
        question(index=2),
        question(index=-1),
        question(copies=2),
        question(topic="n" * 249),
    ]
    if version >= 4:
        unusual += [question(current_leader_epoch=3), question(-7)]
    if version < 4:
        unusual += [question(), question(-2)]
    unusual += [question(timestamp) for timestamp in (0, 1001, 5000, -3)]  # records have to be read for these
    for request in unusual:
        assert ask(filled, request_frame(request, version, 1, "me")) is None


def test_a_refusal_while_looking_takes_the_ordinary_way(filled, monkeypatch):
    frame = request_frame(question(-2), 11, 1, "me")
    assert ask(filled, frame) is not None

    def fail(led):
        raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR)

    monkeypatch.setattr("odradek.apis.list_offsets._epoch_at_start", fail)
    assert ask(filled, frame) is None


def test_what_is_cut_off_too_long_or_no_request_is_left_alone(filled):
    frame = request_frame(question(), 6, 1, "me")
    assert ask(filled, frame) is not None
    for end in range(len(frame)):
        assert ask(filled, frame, 0, end) is None
        told = ask(filled, frame + frame[:end])
        assert told is None or told[1:] == (len(frame), 1)
    assert ask(filled, frame, longest=len(frame) - 5) is None
    for length in (-1, 0, 7, 8, 9, len(frame) - 5):
        assert ask(filled, length.to_bytes(4, "big", signed=True) + frame[4:]) is None
    for at in range(4, len(frame)):
        for value in (0, 1, 0x7F, 0xFF):
            torn = frame[:at] + bytes([value]) + frame[at + 1 :]
            told = ask(filled, torn)
            assert told is None or told[1] == len(frame)


def test_questions_that_arrive_together_are_answered_together_up_to_a_bound(filled):
    requests = [(question((-1, -2)[n % 2], index=n % 3 % 2), 4 + n % 8) for n in range(150)]
    frames = [request_frame(request, version, n, "me") for n, (request, version) in enumerate(requests)]
    expected = [ordinary(filled, request, version, n) for n, (request, version) in enumerate(requests)]
    data, position, answers = b"".join(frames) + b"rest", 0, b""
    counts = []
    while position < len(data) - 4:
        told, position, count = ask(filled, data, position)
        answers += told
        counts.append(count)
    assert answers == b"".join(expected)
    assert counts == [64, 64, 22]
    other = request_frame(question(topic="u"), 5, 1, "me")
    assert ask(filled, frames[0] + other + frames[1]) == (expected[0], len(frames[0]), 1)


def test_what_is_remembered_is_bounded(node, monkeypatch):
    monkeypatch.setattr("odradek.apis.list_offsets.FEW_KNOWN_MAX", 5)
    filled = node
    filled.create("t")
    for number in range(20):
        frame = request_frame(question(), 5, 1, f"client {number}")
        assert ask(filled, frame)[0] == ordinary(filled, question(), 5, 1)
