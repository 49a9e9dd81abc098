"""ShareFetch and ShareAcknowledge: sessions, what is acquired, when it is answered, and what is refused."""

import random
from dataclasses import replace

import pytest

from odradek.apis.share_sessions import EPOCH_MAX, ShareSessions
from odradek.apis.table import Apis
from odradek.coordinator.cluster.features import SHARE_VERSION
from odradek.coordinator.shares.state.persister import (
    DeliveryState,
    SharePartitionKey,
)
from odradek.storage.log.partition import Partition
from odradek.wire.errors import ErrorCode
from odradek.wire.messages import share_acknowledge
from odradek.wire.messages.share_acknowledge import ShareAcknowledgeRequest
from odradek.wire.messages.share_fetch import (
    AcknowledgementBatch,
    FetchPartition,
    FetchTopic,
    ForgottenTopic,
    ShareFetchRequest,
)
from odradek.wire.records import iter_whole_batches
from tests.apis.conftest import FakeConnection
from tests.apis.transactional import end, write
from tests.coordinator.shares.memory_persister import MemoryPersister
from tests.coordinator.shares.share_state_requests import state_batch
from tests.tiers import seeds

GAP, ACCEPT, RELEASE, REJECT, RENEW = range(5)
FINAL = -1


class Member:
    """A member of a share group that reads one topic, and what it was answered last."""

    def __init__(self, node, topic="t", group_id="g", member_id="m", partitions=(0,), version=2):
        self.node, self.version = node, version
        self.group_id, self.member_id = group_id, member_id
        self.topic_id = node.machine.view.topics[topic].topic_id
        self.partitions = partitions
        self.epoch = 0
        self.connection = FakeConnection()

    def start(self, acknowledged=(), *, partitions=None, epoch=None, forgotten=(), max_wait_ms=0, **fields):
        """`acknowledged`: (partition, first, last, types)."""
        epoch = self.epoch if epoch is None else epoch
        wanted = (self.partitions if epoch == 0 else ()) if partitions is None else partitions
        asked = {index: FetchPartition(partition_index=index, acknowledgement_batches=[]) for index in wanted}
        for index, first, last, *types in acknowledged:
            one = asked.setdefault(index, FetchPartition(partition_index=index, acknowledgement_batches=[]))
            one.acknowledgement_batches.append(
                AcknowledgementBatch(first_offset=first, last_offset=last, acknowledge_types=types)
            )
        limits = {"min_bytes": 1, "max_bytes": 1 << 20, "max_records": 500, "batch_size": 500}
        request = ShareFetchRequest(
            group_id=self.group_id,
            member_id=self.member_id,
            share_session_epoch=epoch,
            max_wait_ms=max_wait_ms,
            topics=[FetchTopic(topic_id=self.topic_id, partitions=list(asked.values()))] if asked else [],
            forgotten_topics_data=[ForgottenTopic(topic_id=self.topic_id, partitions=list(forgotten))]
            if forgotten
            else [],
            **{**limits, **fields},
        )
        answer = self.node.start(request, self.version, connection=self.connection)
        self.epoch = self.epoch if epoch == FINAL else epoch + 1
        return answer

    def fetch(self, *arguments, **options):
        answer = self.start(*arguments, **options)
        self.node.loop.advance(options.get("max_wait_ms", 0))
        return answer.response

    def acknowledge(self, *acknowledged, epoch=None, **fields):
        epoch = self.epoch if epoch is None else epoch
        partitions = {}
        for index, first, last, *types in acknowledged:
            one = partitions.setdefault(
                index,
                share_acknowledge.AcknowledgePartition(partition_index=index, acknowledgement_batches=[]),
            )
            one.acknowledgement_batches.append(
                share_acknowledge.AcknowledgementBatch(
                    first_offset=first, last_offset=last, acknowledge_types=types
                )
            )
        topic = share_acknowledge.AcknowledgeTopic(
            topic_id=self.topic_id, partitions=list(partitions.values())
        )
        request = ShareAcknowledgeRequest(
            group_id=self.group_id,
            member_id=self.member_id,
            share_session_epoch=epoch,
            topics=[topic] if partitions else [],
            **fields,
        )
        answer = self.node.start(request, self.version, connection=self.connection)
        self.epoch = self.epoch if epoch == FINAL else epoch + 1
        self.node.loop.turn()
        return answer.response


def partitions_of(response):
    assert response.error_code == 0, response.error_message
    return {one.partition_index: one for topic in response.responses for one in topic.partitions}


def acquired(response, index=0):
    one = partitions_of(response).get(index)
    if one is None:
        return None
    return [(part.first_offset, part.last_offset, part.delivery_count) for part in one.acquired_records]


def bases(response, index=0):
    records = memoryview(partitions_of(response)[index].records)
    return [header.base_offset for _, header in iter_whole_batches(records)]


@pytest.fixture
def reads(monkeypatch):
    """The offsets of all reads of logs."""
    offsets = []
    read = Partition.read

    def counted(log, offset, **options):
        offsets.append(offset)
        return read(log, offset, **options)

    monkeypatch.setattr(Partition, "read", counted)
    return offsets


@pytest.fixture
def share_node(make_node):
    """With a topic of three batches of two records, read by share groups from its start."""
    node = make_node(persister=MemoryPersister())
    node.machine.set_features({**node.machine.view.features, SHARE_VERSION: 1})
    node.group_settings.group_configs = {"g": {"share.auto.offset.reset": "earliest"}}
    node.create("t", 2)
    for number in range(3):
        node.fill("t", [b"%d" % number, b"v"])
    return node


@pytest.mark.parametrize("version", [1, 2])
def test_a_member_acquires_and_accepts_records(share_node, version):
    member = Member(share_node, version=version)
    first = member.fetch()
    assert acquired(first) == [(0, 5, 1)]
    assert bases(first) == [0, 2, 4]
    assert first.acquisition_lock_timeout_ms == 30_000
    share_node.fill("t", [b"3", b"v"])
    second = member.fetch([(0, 0, 5, ACCEPT)])
    assert acquired(second) == [(6, 7, 1)]
    assert partitions_of(second)[0].acknowledge_error_code == 0
    (written,) = share_node.persister.writes
    assert written.state_batches == [state_batch(0, 5, DeliveryState.ACKNOWLEDGED, 1)]
    assert (written.start_offset, written.delivery_complete_count) == (0, 6)
    assert acquired(member.fetch()) is None


def test_only_whole_batches_with_acquired_records_are_sent(share_node):
    member, other = Member(share_node), Member(share_node, member_id="n")
    assert bases(member.fetch(max_records=1)) == [0]
    found = other.fetch(max_records=1)
    assert (acquired(found), bases(found)) == ([(2, 3, 1)], [2])


def test_a_strict_limit(share_node):
    member = Member(share_node)
    assert acquired(member.fetch(max_records=3, share_acquire_mode=1)) == [(0, 2, 1)]
    assert acquired(member.fetch(max_records=3, share_acquire_mode=1)) == [(3, 3, 1), (4, 5, 1)]


def test_a_fetch_waits_for_records(share_node):
    member = Member(share_node)
    member.fetch()
    answer = member.start(max_wait_ms=500)
    share_node.loop.advance(100)
    assert answer.response is None
    share_node.fill("t", [b"new"])
    share_node.loop.turn()
    assert acquired(answer.response) == [(6, 6, 1)]


def test_a_fetch_waits_for_what_others_give_back(share_node):
    member, other = Member(share_node), Member(share_node, member_id="n")
    member.fetch()
    answer = other.start(max_wait_ms=500)
    member.acknowledge((0, 0, 3, RELEASE))
    assert acquired(answer.response) == [(0, 3, 2)]


def test_a_fetch_waits_for_a_lock_that_runs_out(share_node):
    member, other = Member(share_node), Member(share_node, member_id="n")
    member.fetch()
    answer = other.start(max_wait_ms=60_000)
    share_node.loop.advance(29_999)
    assert answer.response is None
    share_node.loop.advance(1)
    assert acquired(answer.response) == [(0, 5, 2)]
    (written,) = share_node.persister.writes
    assert written.state_batches == [state_batch(0, 5, DeliveryState.AVAILABLE, 1)]


def test_a_fetch_without_records_ends_at_its_deadline(share_node):
    member = Member(share_node)
    member.fetch()
    answer = member.start(max_wait_ms=500)
    share_node.loop.advance(500)
    assert partitions_of(answer.response) == {}
    assert share_node.loop.pending_timers == 1, "only the lock's is left"


def test_a_closed_connection_ends_the_session_and_gives_back(share_node):
    member, other = Member(share_node), Member(share_node, member_id="n")
    member.fetch()
    waiting = other.start(max_wait_ms=500)
    for callback in member.connection.closings:
        callback(member.connection)
    share_node.loop.turn()
    assert acquired(waiting.response) == [(0, 5, 2)]
    assert member.fetch().error_code == ErrorCode.SHARE_SESSION_NOT_FOUND


def test_an_append_wakes_as_many_as_find_records(share_node, reads):
    members = [Member(share_node, member_id=f"m{number}") for number in range(4)]
    members[0].fetch()
    waiting = [member.start(max_wait_ms=500, max_records=1, share_acquire_mode=1) for member in members]
    share_node.loop.turn()
    reads.clear()
    share_node.fill("t", [b"for", b"two"])
    for _ in waiting:
        share_node.loop.turn()
    told = [answer.response for answer in waiting]
    assert [response and acquired(response) for response in told] == [[(6, 6, 1)], [(7, 7, 1)], None, None]
    assert len(reads) == 2
    share_node.fill("t", [b"next"])
    share_node.loop.turn()
    assert acquired(waiting[2].response) == [(8, 8, 1)]


def test_one_that_wants_more_is_in_the_way_of_nobody(share_node):
    members = [Member(share_node, member_id=name) for name in "abc"]
    members[0].fetch()
    greedy = members[0].start(max_wait_ms=500, min_bytes=100_000)
    modest = [member.start(max_wait_ms=500, max_records=1) for member in members[1:]]
    share_node.fill("t", [b"one"])
    share_node.fill("t", [b"two"])
    for _ in range(5):
        share_node.loop.turn()
    assert [acquired(answer.response) for answer in modest] == [[(6, 6, 1)], [(7, 7, 1)]]
    assert greedy.response is None
    share_node.fill("t", [b"three"])
    share_node.loop.advance(500)
    assert acquired(greedy.response) == [(8, 8, 1)]


def test_one_that_goes_away_when_it_is_woken_lets_the_next_one_look(share_node):
    members = [Member(share_node, member_id=name) for name in "ab"]
    members[0].fetch()
    first, second = (member.start(max_wait_ms=500) for member in members)
    share_node.fill("t", [b"new"])
    first.cancel()
    share_node.loop.turn()
    share_node.loop.turn()
    assert acquired(second.response) == [(6, 6, 1)]


@pytest.mark.parametrize("seed", seeds(20, fast=5))
def test_nobody_waits_while_there_is_something_to_acquire(share_node, seed):
    chance = random.Random(seed)
    share_node.group_settings.group_configs["g"]["share.partition.max.record.locks"] = "100"
    members = [Member(share_node, member_id=f"m{number}") for number in range(5)]
    waiting: dict[Member, object] = {}
    held: dict[Member, list] = {member: [] for member in members}

    def settle():
        for _ in range(2 * len(members)):
            share_node.loop.turn()
        for member in list(waiting):
            response = waiting[member].response
            if response is not None:
                del waiting[member]
                assert acquired(response) is not None, "the fetch has waited until its deadline"
                held[member] += [(0, first, last) for first, last, _ in acquired(response)]

    for _ in range(120):
        member = chance.choice(members)
        kind = chance.random()
        if kind < 0.3:
            for _ in range(chance.randint(1, 3)):
                share_node.fill("t", [b"v"] * chance.randint(1, 40))
        elif member in waiting:
            if kind < 0.5:
                waiting.pop(member).cancel()
        else:
            given = [(*one, chance.choice((ACCEPT, ACCEPT, RELEASE))) for one in held[member]]
            held[member] = []
            options = {"max_records": chance.randint(1, 50), "share_acquire_mode": chance.randint(0, 1)}
            waiting[member] = member.start(given, max_wait_ms=1000, **options)
        settle()
        # Who comes now finds nothing that those who wait could have had.
        if waiting:
            probe = Member(share_node, member_id="probe")
            found = probe.fetch(max_records=1, share_acquire_mode=1)
            assert not acquired(found), f"{len(waiting)} fetches wait"
            probe.fetch(epoch=FINAL)
            settle()


def test_a_waiting_fetch_of_a_closed_connection_leaves_nothing(share_node):
    member = Member(share_node)
    member.fetch([])
    member.acknowledge((0, 0, 5, ACCEPT))
    answer = member.start(max_wait_ms=500)
    answer.cancel()
    share_node.fill("t", [b"new"])
    assert acquired(Member(share_node, member_id="n").fetch()) == [(6, 6, 1)]


def test_the_final_epoch_gives_back_what_is_not_acknowledged(share_node):
    member = Member(share_node)
    member.fetch()
    final = member.fetch([(0, 0, 1, ACCEPT)], epoch=FINAL)
    assert acquired(final) == []
    assert acquired(Member(share_node, member_id="n").fetch()) == [(2, 5, 2)]
    assert member.acknowledge(epoch=FINAL).error_code == ErrorCode.SHARE_SESSION_NOT_FOUND


def test_sessions_count_their_requests(share_node):
    member = Member(share_node)
    assert member.fetch(epoch=3).error_code == ErrorCode.SHARE_SESSION_NOT_FOUND
    member.fetch(epoch=0)
    assert member.fetch(epoch=2).error_code == ErrorCode.INVALID_SHARE_SESSION_EPOCH
    assert member.fetch(epoch=1).error_code == 0
    assert member.acknowledge((0, 0, 5, ACCEPT), epoch=2).error_code == 0
    assert member.acknowledge(epoch=0).error_code == ErrorCode.INVALID_SHARE_SESSION_EPOCH
    assert member.fetch([(0, 0, 5, ACCEPT)], epoch=0).error_code == ErrorCode.INVALID_REQUEST


def test_the_epoch_begins_anew_at_its_end():
    sessions = ShareSessions(1)
    session = sessions.open("g", "m", [], FakeConnection())
    session.epoch = EPOCH_MAX
    sessions.resume("g", "m", EPOCH_MAX)
    assert session.epoch == 1


def test_there_are_only_so_many_sessions(share_node):
    settings = replace(share_node.api_settings, share_sessions_max=1)
    share_node.apis = Apis(share_node.parts, settings)
    Member(share_node).fetch()
    answer = Member(share_node, member_id="n").start(max_wait_ms=200)
    share_node.loop.advance(199)
    assert answer.response is None
    share_node.loop.advance(1)
    assert answer.response.error_code == ErrorCode.SHARE_SESSION_LIMIT_REACHED


def test_partitions_come_and_go(share_node):
    share_node.fill("t", [b"one"], index=1)
    member = Member(share_node)
    assert set(partitions_of(member.fetch())) == {0}
    assert acquired(member.fetch(partitions=[1]), 1) == [(0, 0, 1)]
    share_node.fill("t", [b"two"], index=1)
    assert partitions_of(member.fetch(forgotten=[1])) == {}


def test_each_request_begins_with_another_partition(share_node):
    for _ in range(4):
        share_node.fill("t", [b"v"], index=1)
    member = Member(share_node, partitions=(0, 1))
    first = member.fetch(max_records=1)
    assert (acquired(first, 0), acquired(first, 1)) == ([(0, 1, 1)], None)
    assert acquired(member.fetch(max_records=1), 1) == [(0, 0, 1)]


@pytest.mark.parametrize("fields", [{"max_wait_ms": 1}, {"min_bytes": 1, "max_records": 2}])
def test_who_renews_may_not_fetch(share_node, fields):
    member = Member(share_node)
    member.fetch()
    nothing = {"min_bytes": 0, "max_bytes": 0, "max_records": 0}
    refused = member.fetch([(0, 0, 5, RENEW)], is_renew_ack=True, **{**nothing, **fields})
    assert (refused.error_code, refused.error_message) == (ErrorCode.INVALID_REQUEST, None)


@pytest.mark.parametrize("mode", [-1, 2])
def test_a_mode_that_there_is_not_is_refused(share_node, mode):
    assert Member(share_node).fetch(share_acquire_mode=mode).error_code == ErrorCode.INVALID_REQUEST


def test_a_partition_without_records_is_told_of_once(share_node):
    member = Member(share_node, partitions=(1,))
    assert acquired(member.fetch(max_wait_ms=5), 1) == []
    assert acquired(member.fetch(), 1) is None
    assert acquired(member.fetch(partitions=[0], max_wait_ms=5), 0) == [(0, 5, 1)]


def test_partitions_without_batches_are_told_of_beside_others(share_node):
    member = Member(share_node, partitions=(0, 1))
    member.fetch(max_wait_ms=5)
    topic = share_acknowledge.AcknowledgeTopic(
        topic_id=member.topic_id,
        partitions=[share_acknowledge.AcknowledgePartition(partition_index=1, acknowledgement_batches=[])],
    )

    def told(*batches, epoch):
        one = share_acknowledge.AcknowledgePartition(
            partition_index=0,
            acknowledgement_batches=[
                share_acknowledge.AcknowledgementBatch(
                    first_offset=first, last_offset=last, acknowledge_types=types
                )
                for first, last, types in batches
            ],
        )
        request = ShareAcknowledgeRequest(
            group_id="g",
            member_id="m",
            share_session_epoch=epoch,
            topics=[replace(topic, partitions=[one, *topic.partitions])],
        )
        answer = share_node.start(request, 2, connection=member.connection)
        share_node.loop.turn()
        return {index: one.error_code for index, one in partitions_of(answer.response).items()}

    assert told(epoch=1) == {}
    assert told((0, 0, [7]), epoch=2) == {0: ErrorCode.INVALID_REQUEST}
    assert told((0, 0, [ACCEPT]), epoch=3) == {0: 0, 1: 0}


def test_a_renewed_lock_holds_longer(share_node):
    member = Member(share_node)
    member.fetch()
    share_node.loop.advance(20_000)
    nothing = {"min_bytes": 0, "max_bytes": 0, "max_records": 0}
    assert acquired(member.fetch([(0, 0, 5, RENEW)], is_renew_ack=True, **nothing)) == []
    share_node.loop.advance(20_000)
    accepted = partitions_of(member.acknowledge((0, 0, 5, ACCEPT)))
    assert accepted[0].error_code == 0


@pytest.mark.parametrize(
    ("batches", "code"),
    [
        ([(5, 4, ACCEPT)], ErrorCode.INVALID_REQUEST),
        ([(2, 3, ACCEPT), (0, 1, ACCEPT)], ErrorCode.INVALID_REQUEST),
        ([(0, 1)], ErrorCode.INVALID_REQUEST),
        ([(0, 2, ACCEPT, ACCEPT)], ErrorCode.INVALID_REQUEST),
        ([(0, 1, 5)], ErrorCode.INVALID_REQUEST),
        ([(0, 1, -1)], ErrorCode.INVALID_REQUEST),
        ([(0, 1, RENEW)], ErrorCode.INVALID_REQUEST),
        ([(0, 9, ACCEPT)], ErrorCode.INVALID_REQUEST),
        ([(0, 1, ACCEPT), (0, 1, ACCEPT)], ErrorCode.INVALID_REQUEST),
    ],
)
def test_senseless_acknowledgements_are_refused(share_node, batches, code):
    member = Member(share_node)
    member.fetch()
    found = partitions_of(member.acknowledge(*[(0, *one) for one in batches]))
    assert found[0].error_code == code
    assert partitions_of(member.acknowledge((0, 0, 5, ACCEPT)))[0].error_code == 0


def test_records_of_another_member_are_refused(share_node):
    member, other = Member(share_node), Member(share_node, member_id="n")
    member.fetch()
    other.fetch()
    found = partitions_of(other.fetch([(0, 0, 5, ACCEPT)]))[0]
    assert (found.error_code, found.acknowledge_error_code) == (0, ErrorCode.INVALID_RECORD_STATE)
    assert found.acknowledge_error_message == "Another member has acquired the records."


def test_what_was_never_fetched_is_unknown(share_node):
    member = Member(share_node, partitions=())
    member.fetch()
    found = partitions_of(member.acknowledge((1, 0, 0, ACCEPT)))[1]
    assert found.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


@pytest.mark.parametrize(
    ("group_id", "member_id", "code"),
    [
        (None, "m", ErrorCode.INVALID_REQUEST),
        ("g", "", ErrorCode.INVALID_REQUEST),
        ("g", None, ErrorCode.INVALID_REQUEST),
        ("g", "m" * 37, ErrorCode.INVALID_REQUEST),
    ],
)
def test_senseless_members_are_refused(share_node, group_id, member_id, code):
    member = Member(share_node, group_id=group_id, member_id=member_id)
    assert member.fetch().error_code == code
    assert member.acknowledge(epoch=1).error_code == code


def test_without_the_feature_there_are_no_share_groups(share_node):
    share_node.group_settings.share_version = 0
    assert Member(share_node).fetch().error_code == ErrorCode.UNSUPPORTED_VERSION
    assert Member(share_node).acknowledge(epoch=1).error_code == ErrorCode.UNSUPPORTED_VERSION


def test_unknown_topics_and_partitions(share_node):
    member = Member(share_node, partitions=(0, 7))
    member.topic_id = b"?" * 16
    unknown = partitions_of(member.fetch())
    assert {one.error_code for one in unknown.values()} == {ErrorCode.UNKNOWN_TOPIC_ID}
    member = Member(share_node, partitions=(7,), member_id="n")
    assert partitions_of(member.fetch())[7].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


# The state


def key(node, index=0):
    return SharePartitionKey("g", node.machine.view.topics["t"].topic_id, index)


def test_the_state_decides_where_to_go_on(share_node):
    share_node.persister.put(key(share_node), 1, {2: (DeliveryState.ACKNOWLEDGED, 1)}, state_epoch=4)
    member = Member(share_node)
    assert acquired(member.fetch()) == [(1, 1, 1), (3, 5, 1)]
    member.acknowledge((0, 1, 1, REJECT))
    (written,) = share_node.persister.writes
    assert (written.state_epoch, written.state_batches) == (4, [state_batch(1, 1, DeliveryState.ARCHIVED, 1)])


def test_a_fetch_waits_for_the_state(share_node):
    share_node.persister.is_slow = True
    member = Member(share_node)
    answer = member.start(max_wait_ms=500)
    share_node.loop.turn()
    assert answer.response is None
    share_node.persister.answer()
    share_node.loop.turn()
    assert acquired(answer.response) == [(0, 5, 1)]


@pytest.mark.parametrize(
    ("refusal", "told"),
    [
        (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.NOT_LEADER_OR_FOLLOWER),
        (ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.GROUP_ID_NOT_FOUND),
        (ErrorCode.INVALID_REQUEST, ErrorCode.UNKNOWN_SERVER_ERROR),
    ],
)
def test_a_state_that_cannot_be_read_is_told(share_node, refusal, told):
    share_node.persister.failure = refusal
    member = Member(share_node)
    assert partitions_of(member.fetch(max_wait_ms=10))[0].error_code == told
    share_node.persister.failure = ErrorCode.NONE
    assert acquired(member.fetch()) == [(0, 5, 1)]


def test_the_answer_waits_until_the_acknowledgements_are_stored(share_node):
    member = Member(share_node)
    member.fetch()
    share_node.persister.is_slow = True
    answer = member.start([(0, 0, 5, ACCEPT)])
    share_node.loop.turn()
    assert answer.response is None
    share_node.persister.answer()
    assert partitions_of(answer.response)[0].acknowledge_error_code == 0


def test_changes_are_stored_in_their_order_and_together(share_node):
    member = Member(share_node)
    member.fetch()
    share_node.persister.is_slow = True
    for offset in range(4):
        member.acknowledge((0, offset, offset, ACCEPT))
    assert len(share_node.persister.writes) == 1
    share_node.persister.answer()
    _, second = share_node.persister.writes
    assert [batch.first_offset for batch in second.state_batches] == [1, 2, 3]
    assert second.start_offset == 1


def test_a_change_that_cannot_be_stored_is_undone(share_node):
    member = Member(share_node)
    member.fetch()
    share_node.persister.failure = ErrorCode.COORDINATOR_NOT_AVAILABLE
    found = partitions_of(member.acknowledge((0, 0, 5, ACCEPT)))[0]
    assert (found.error_code, found.error_message) == (
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        "as the test wants it",
    )
    share_node.persister.failure = ErrorCode.NONE
    assert partitions_of(member.acknowledge((0, 0, 5, ACCEPT)))[0].error_code == 0


def test_a_fenced_leader_reads_the_state_again(share_node):
    member = Member(share_node)
    member.fetch()
    share_node.persister.failure = ErrorCode.FENCED_STATE_EPOCH
    found = partitions_of(member.acknowledge((0, 0, 5, ACCEPT)))[0]
    assert found.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert found.current_leader.leader_id == 1
    share_node.persister.failure = ErrorCode.NONE
    share_node.persister.put(key(share_node), 4, state_epoch=1)
    assert acquired(member.fetch()) == [(4, 5, 1)]


# The log


@pytest.mark.parametrize(
    ("reset", "expected"),
    [
        ("earliest", [(0, 6, 1)]),
        ("latest", [(6, 6, 1)]),
        ("by_duration:PT1H", [(0, 6, 1)]),
        ("by_duration:P0D", None),
    ],
)
def test_where_a_group_begins(share_node, reset, expected):
    share_node.group_settings.group_configs = {"g": {"share.auto.offset.reset": reset}}
    share_node.loop.now_ms += 1
    member = Member(share_node)
    answer = member.start(max_wait_ms=100)
    share_node.fill("t", [b"new"])
    share_node.loop.advance(100)
    if expected is None:
        assert partitions_of(answer.response)[0].error_code == ErrorCode.OFFSET_NOT_AVAILABLE
    else:
        found = acquired(answer.response)
        assert (found or acquired(member.fetch())) in (expected, [(0, 5, 1)])


def test_records_that_the_log_has_lost_are_passed_over(share_node):
    member = Member(share_node)
    share_node.persister.put(key(share_node), 0)
    share_node.partition("t").retention.delete_records(3)
    assert acquired(member.fetch()) == [(3, 5, 1)]


def test_aborted_records_are_left_out_of_committed_ones(share_node):
    share_node.group_settings.group_configs = {
        "g": {"share.auto.offset.reset": "earliest", "share.isolation.level": "read_committed"}
    }
    write(share_node, 9, b"aborted")
    member = Member(share_node)
    assert acquired(member.fetch()) == [(0, 5, 1)]
    end(share_node, 9, commit=False)
    share_node.fill("t", [b"after"])
    found = member.fetch([(0, 0, 5, ACCEPT)])
    assert acquired(found) == [(7, 8, 1)], "the marker, which clients pass over, and the record after it"
