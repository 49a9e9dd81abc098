"""ListOffsets requests that are remembered get the handler's answer, to the byte; it gets what is unusual."""

import itertools
from dataclasses import replace

import pytest

from odradek.apis.api import RequestContext
from odradek.wire.codec import decode_message, encode_message
from odradek.wire.errors import ErrorCode, KafkaError
from odradek.wire.frames import read_response, request_frame, response_parts
from odradek.wire.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from tests.apis import transactional
from tests.wired import Asker, from_prefix, wired

LIST_OFFSETS = 2
VERSIONS = range(4, 12)


@pytest.fixture
def filled(node):
    """A topic `t`: three batches at 1000, 3000 and 2000 ms in its first partition, none in the second."""
    node.create("t", 2)
    log = node.partition("t")
    for timestamp, values in ((1000, [b"a", b"b"]), (3000, [b"c"]), (2000, [b"d"])):
        log.appends.append(node.batch(*values, timestamp=timestamp), now_ms=node.loop.now_ms)
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


class Remembering:
    """Clients of the node, and of one with the same handlers that remembers nothing."""

    def __init__(self, node):
        self.node = node
        self.asker, self.ordinary = (
            Asker(
                wired(
                    node.apis,
                    node.loop,
                    lambda: node.loop.now_ms,
                    lambda: node.machine.view,
                    with_prefixes=with_prefixes,
                )
            )
            for with_prefixes in (True, False)
        )

    def ask(self, frame):
        """The answer to a frame that is served by its prefix; None where the handler answers, or nobody."""
        before = from_prefix(self.asker.connections)
        answers = self.asker.ask(frame)
        if from_prefix(self.asker.connections) == before:
            return None
        (answer,) = answers()
        return answer


@pytest.fixture
def client(filled):
    return Remembering(filled)


@pytest.mark.parametrize("version", VERSIONS)
def test_prefix_and_handler_give_the_same_bytes(filled, client, version):
    special = [
        -1,
        -2,
        *(timestamp for timestamp in (-4, -5, -6) if version >= {-4: 8, -5: 9, -6: 11}[timestamp]),
    ]
    choices = itertools.product(special, (0, 1), (0, 1), ("me", "", None, "ä"), (-1, 0))
    for number, (timestamp, index, isolation, client_id, epoch) in enumerate(choices):
        request = question(timestamp, index=index, isolation=isolation, current_leader_epoch=epoch)
        frame = request_frame(request, version, number - 5, client_id)
        for _ in range(2):  # learnt, then remembered
            assert client.ask(frame) == ordinary(filled, request, version, number - 5)


def test_an_answer_is_as_new_as_the_log(filled, client):
    frame = request_frame(question(), 5, 1, "me")
    for _ in range(3):
        filled.fill("t", [b"more"])
        assert client.ask(frame) == ordinary(filled, question(), 5, 1)
    filled.partition("t").retention.delete_records(2)
    earliest = request_frame(question(-2), 5, 1, "me")
    assert client.ask(earliest) == ordinary(filled, question(-2), 5, 1)


@pytest.mark.parametrize("version", VERSIONS)
def test_open_transactions_end_the_log_for_committed_readers_as_for_the_handler(filled, client, version):
    frames = {
        (timestamp, isolation): request_frame(question(timestamp, isolation=isolation), version, 1, "me")
        for timestamp in (-1, -2)
        for isolation in (0, 1, 2)
    }

    def check(last_stable_offset):
        for (timestamp, isolation), frame in frames.items():
            request = question(timestamp, isolation=isolation)
            told = client.ask(frame)
            if isolation == 2:
                assert told is None
                continue
            assert told == ordinary(filled, request, version, 1)
            if (timestamp, isolation) == (-1, 1):
                answer = read_response(told[4:], ListOffsetsRequest, version)[1]
                assert answer.topics[0].partitions[0].offset == last_stable_offset

    check(4)
    transactional.write(filled, 7, b"open")
    filled.fill("t", [b"plain"])
    check(4)
    transactional.end(filled, 7, commit=False)
    check(7)


def test_what_was_learnt_is_forgotten_when_the_cluster_changes(filled, client):
    frame = request_frame(question(), 11, 1, "me")
    assert client.ask(frame) is not None
    view = filled.machine.view
    topic = view.topics["t"]
    elsewhere = tuple(one._replace(leader=2) for one in topic.partitions)
    filled.machine.publisher.view = replace(view, topics={"t": replace(topic, partitions=elsewhere)})
    assert client.ask(frame) is None
    newer = tuple(one._replace(leader_epoch=7) for one in topic.partitions)
    filled.machine.publisher.view = replace(view, topics={"t": replace(topic, partitions=newer)})
    assert client.ask(frame) == ordinary(filled, question(), 11, 1)
    filled.machine.publisher.view = view
    filled.machine.delete_topics(["t"])
    assert client.ask(frame) is None
    filled.create("t")
    assert client.ask(frame) == ordinary(filled, question(), 11, 1)


@pytest.mark.parametrize("version", range(12))
def test_what_is_unusual_goes_to_the_handler(filled, client, version):
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
        assert client.ask(request_frame(request, version, 1, "me")) is None


def test_a_refusal_while_looking_goes_to_the_handler(client, monkeypatch):
    frame = request_frame(question(-2), 11, 1, "me")
    assert client.ask(frame) is not None

    def fail(led):
        raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR)

    monkeypatch.setattr("odradek.apis.list_offsets._epoch_at_start", fail)
    assert client.ask(frame) is None


def test_torn_requests_get_the_same_answers_as_without_a_memory(client):
    frame = request_frame(question(), 6, 1, "me")
    assert client.ask(frame) is not None
    lengths = (-1, 0, 7, 8, 9, len(frame) - 5)
    torn = [length.to_bytes(4, "big", signed=True) + frame[4:] for length in lengths]
    torn += [
        frame[:at] + bytes([value]) + frame[at + 1 :]
        for at in range(4, len(frame))
        for value in (0, 1, 0x7F, 0xFF)
    ]
    for data in torn:
        assert client.asker.ask(data)() == client.ordinary.ask(data)()
    for end in range(len(frame)):
        assert client.asker.ask(frame[:end])() == []


def test_requests_that_arrive_together_are_answered_in_their_order(client):
    requests = [(question((-1, -2)[n % 2], index=n % 3 % 2), 4 + n % 8) for n in range(150)]
    requests.insert(77, (question(topic="u"), 5))
    frames = [request_frame(request, version, n, "me") for n, (request, version) in enumerate(requests)]
    answers = client.asker.ask(b"".join(frames))()
    assert answers == [
        ordinary(client.node, request, version, n) for n, (request, version) in enumerate(requests)
    ]
    assert from_prefix(client.asker.connections) == 150
