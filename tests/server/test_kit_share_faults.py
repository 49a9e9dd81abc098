"""Faults of ShareFetch and ShareAcknowledge for partitions that a share session has, whether a request names
them or not."""

import time

import pytest

import odradek
from odradek.wire.errors import ErrorCode
from odradek.wire.messages import share_acknowledge, share_fetch
from tests.server.clocked import PATIENCE_S, Client

MOVED = ErrorCode.NOT_LEADER_OR_FOLLOWER
ACCEPT, RELEASE = 1, 2


class Member:
    """A member of a share group with a session of both partitions of a topic, request by request."""

    def __init__(self, client):
        self.client = client
        self.topic_id = client.topic_id()
        self.epoch = 0

    def _fields(self, message, acknowledged, kind=ACCEPT):
        partitions = [
            message(
                partition_index=index,
                acknowledgement_batches=[
                    _batch_of(message)(first_offset=offset, last_offset=offset, acknowledge_types=[kind])
                    for offset in offsets
                ],
            )
            for index, offsets in acknowledged.items()
        ]
        fields = {"group_id": "s", "member_id": "m", "share_session_epoch": self.epoch}
        self.epoch += 1
        return fields, partitions

    def fetch(self, acknowledged=None, forgotten=(), kind=ACCEPT):
        """{partition: (name of the error, that of the acknowledgements, [(first, last, count), ...])}"""
        named = {0: [], 1: []} if self.epoch == 0 else acknowledged or {}
        fields, partitions = self._fields(share_fetch.FetchPartition, named, kind)
        topic = share_fetch.FetchTopic(topic_id=self.topic_id, partitions=partitions)
        left = share_fetch.ForgottenTopic(topic_id=self.topic_id, partitions=list(forgotten))
        request = share_fetch.ShareFetchRequest(
            **fields,
            max_wait_ms=0,
            min_bytes=0,
            max_bytes=1 << 20,
            max_records=100,
            batch_size=100,
            topics=[topic] if partitions else [],
            forgotten_topics_data=[left] if forgotten else [],
        )
        response = self.client.ask(request, 2)
        assert response.error_code == 0, ErrorCode(response.error_code)
        return {
            one.partition_index: (
                ErrorCode(one.error_code).name,
                ErrorCode(one.acknowledge_error_code).name,
                [(a.first_offset, a.last_offset, a.delivery_count) for a in one.acquired_records],
            )
            for topic in response.responses
            for one in topic.partitions
        }

    def fetch_until_some(self):
        """The first response with records, which may be late, as the group has to be read first."""
        deadline = time.monotonic() + PATIENCE_S
        while True:
            found = self.fetch()
            if any(acquired for _, _, acquired in found.values()):
                return found
            assert time.monotonic() < deadline, found

    def acknowledge(self, acknowledged):
        """{partition: name of the error}"""
        fields, partitions = self._fields(share_acknowledge.AcknowledgePartition, acknowledged)
        topic = share_acknowledge.AcknowledgeTopic(topic_id=self.topic_id, partitions=partitions)
        response = self.client.ask(share_acknowledge.ShareAcknowledgeRequest(**fields, topics=[topic]), 2)
        assert response.error_code == 0, ErrorCode(response.error_code)
        return {
            one.partition_index: ErrorCode(one.error_code).name
            for topic in response.responses
            for one in topic.partitions
        }


def _batch_of(message):
    module = share_fetch if message is share_fetch.FetchPartition else share_acknowledge
    return module.AcknowledgementBatch


@pytest.fixture
def shared():
    """A broker, and a member whose session knows its partitions, of which only 0 has records to come."""
    options = {"share.coordinator.state.topic.num.partitions": 1, "offsets.topic.num.partitions": 1}
    with odradek.Broker(options=options) as broker:
        client = Client(broker.port)
        try:
            client.find("s")
            client.create(partitions=2)
            client.configure_group("s", **{"share.auto.offset.reset": "earliest"})
            client.share_beat()
            member = Member(client)
            client.produce((b"k", b"first"))
            found = member.fetch_until_some()
            assert found[0] == ("NONE", "NONE", [(0, 0, 1)])
            yield broker, member
        finally:
            client.close()


def test_a_fetch_that_names_nothing_is_chosen_by_what_its_session_has(shared):
    broker, member = shared
    member.client.produce((b"k", b"second"))
    with (
        broker.faults.add("ShareFetch", topic="other", error=MOVED.name) as other_topic,
        broker.faults.add("ShareFetch", topic="t", partition=2, error=MOVED.name) as other_partition,
        broker.faults.add("ShareFetch", topic="t", partition=0, error=MOVED.name, times=2) as fault,
    ):
        for _ in range(2):
            assert member.fetch()[0] == (MOVED.name, "NONE", [])
        # Nothing was acquired, and the session goes on with the partition.
        assert member.fetch()[0] == ("NONE", "NONE", [(1, 1, 1)])
        assert (other_topic.fired, other_partition.fired, fault.fired) == (0, 0, 2)


def test_the_other_partitions_of_the_session_are_served(shared):
    broker, member = shared
    member.client.produce((b"k", b"second"))
    with broker.faults.add("ShareFetch", topic="t", partition=1, error=MOVED.name, times=1) as fault:
        found = member.fetch()
        assert (found[0][2], found[1]) == ([(1, 1, 1)], (MOVED.name, "NONE", []))
        # The client is told that the partition is well again.
        assert member.fetch() == {1: ("NONE", "NONE", [])}
        assert fault.fired == 1


def test_a_session_begins_with_a_partition_that_is_refused(shared):
    broker, member = shared
    member.epoch = 0
    with broker.faults.add("ShareFetch", topic="t", error=MOVED.name, times=1) as fault:
        assert member.fetch() == {0: (MOVED.name, "NONE", []), 1: (MOVED.name, "NONE", [])}
        assert fault.fired == 1
    # The new session reads on, whatever became of what the former one had acquired.
    member.client.produce((b"k", b"second"))
    assert (1, 1, 1) in member.fetch_until_some()[0][2]


def test_acknowledgements_of_a_refused_partition_are_refused_and_have_no_effect(shared):
    broker, member = shared
    with broker.faults.add("ShareFetch", topic="t", partition=0, error=MOVED.name, times=1):
        assert member.fetch({0: [0]})[0] == (MOVED.name, MOVED.name, [])
    # It was not accepted, so that it can be given back, and comes again.
    found = member.fetch({0: [0]}, kind=RELEASE)
    assert found[0][:2] == ("NONE", "NONE")
    acquired = found[0][2] or member.fetch_until_some()[0][2]
    assert acquired == [(0, 0, 2)]


def test_a_partition_that_the_request_forgets_is_not_of_the_session(shared):
    broker, member = shared
    with broker.faults.add("ShareFetch", topic="t", partition=1, error=MOVED.name) as fault:
        assert member.fetch()[1][0] == MOVED.name
        assert member.fetch(forgotten=[1]) == {}
        assert member.fetch() == {}
        assert fault.fired == 1


def test_other_actions_are_for_the_partitions_of_the_session_as_well(shared):
    broker, member = shared
    with (
        broker.faults.add("ShareFetch", topic="t", partition=0, lose_response=True, times=1) as fault,
        pytest.raises((EOFError, ConnectionError)),
    ):
        member.fetch()
    assert fault.fired == 1


def test_the_session_goes_on_behind_a_refused_acknowledgement(shared):
    broker, member = shared
    with broker.faults.add("ShareAcknowledge", topic="t", partition=0, error=MOVED.name, times=1) as fault:
        assert member.acknowledge({0: [0]}) == {0: MOVED.name}
        assert fault.fired == 1
    assert member.acknowledge({0: [0]}) == {0: "NONE"}
