"""TxnOffsetCommit in every version, and OffsetFetch and the group's log beside what it has written."""

import pytest

from odradek.apis.api import RequestContext
from odradek.apis.txn_offset_commit import API, TxnOffsetCommit
from odradek.coordinator.cluster.topics import OFFSETS_TOPIC
from odradek.coordinator.runtime import RELOAD_PAUSE_S
from odradek.coordinator.transactions.queries import partitions_in
from odradek.storage.log.partition import READ_COMMITTED
from odradek.wire.codec import decode_message, encode_message
from odradek.wire.end_marker import EndMarker
from odradek.wire.errors import ErrorCode, KafkaError
from odradek.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from odradek.wire.messages.find_coordinator import FindCoordinatorRequest
from odradek.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from odradek.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)
from odradek.wire.messages.sync_group import SyncGroupRequest
from odradek.wire.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from odradek.wire.records import iter_whole_batches
from tests.apis.conftest import Answer

KEY = 28
VERSIONS = range(7)
FIRST_VERSION_THAT_ADDS = 5
PRODUCER = 4711
UNSTABLE = (-1, -1, "", ErrorCode.UNSTABLE_OFFSET_COMMIT)
NOTHING = (-1, -1, "", 0)


class Coordinator:
    """What a transaction's coordinator is asked; it says `code`, at once unless it `holds` its answers."""

    def __init__(self):
        self.asked = []
        self.held = []
        self.holds = False
        self.code = ErrorCode.NONE

    def submit(self, transactional_id, command):
        self.asked.append((transactional_id, command))
        if self.holds:
            self.held.append(command)
        else:
            self.answer(command)

    def answer(self, command):
        command.ticket.take(command.ticket.refused(self.code))


class Commits:
    """A node with a topic `t` of three partitions, and the handler."""

    def __init__(self, node):
        self.node = node
        self.coordinator = Coordinator()
        self.is_verifying = True
        node.ask(FindCoordinatorRequest(coordinator_keys=["g"]))
        node.create("t", 3)
        self.handler = TxnOffsetCommit(
            node.leadership,
            lambda: node.groups,
            lambda: self.coordinator,
            lambda: None,
            node.loop,
            lambda: self.is_verifying,
        )
        self.api = API
        self.index = node.groups.partition_of("g")
        self.log = node.partition(OFFSETS_TOPIC, self.index)

    def start(self, version, *positions, group_id="g", producer_id=PRODUCER, epoch=0, **fields):
        """Commits (topic, partition, offset) triples."""
        topics = {}
        for topic, index, offset in positions:
            asked = TxnOffsetCommitRequestPartition(
                partition_index=index, committed_offset=offset, committed_metadata=f"at {offset}"
            )
            topics.setdefault(topic, []).append(asked)
        request = TxnOffsetCommitRequest(
            transactional_id=fields.pop("transactional_id", "tx"),
            group_id=group_id,
            producer_id=producer_id,
            producer_epoch=epoch,
            member_id=fields.pop("member_id", ""),
            topics=[
                TxnOffsetCommitRequestTopic(name=topic, topic_id=self.id_of(topic), partitions=asked)
                for topic, asked in topics.items()
            ],
            **fields,
        )
        decoded = decode_message(TxnOffsetCommitRequest, version, encode_message(request, version))
        node = self.node
        context = RequestContext(KEY, version, 7, "tester", node.connection, node.loop.now_ms)
        return Answer(self.api, version, self.handler(decoded, context))

    def id_of(self, topic):
        known = self.node.machine.view.topics.get(topic)
        return bytes(16) if known is None else known.topic_id

    def errors_of(self, answer):
        by_id = self.node.machine.view.topic_by_id
        return [
            (topic.name or by_id(topic.topic_id).name, one.partition_index, one.error_code)
            for topic in answer.response.topics
            for one in topic.partitions
        ]

    def commit(self, version, *positions, **arguments):
        """The error of each, in the order of the answer."""
        answer = self.start(version, *positions, **arguments)
        self.node.loop.turn()
        return self.errors_of(answer)

    def end(self, *, commit, epoch=0, producer_id=PRODUCER, coordinator_epoch=0, version=0, index=None):
        codes = []
        marker = EndMarker(producer_id, epoch, coordinator_epoch, commit, version)
        self.node.groups.end_offsets(self.index if index is None else index, marker, codes.append)
        self.node.loop.turn()
        (code,) = codes
        return code

    def fetch(self, version=9, *, stable=True, group_id="g", partitions=(0, 1)):
        more = {"require_stable": stable} if version >= 7 else {}
        topic_id = self.node.machine.view.topics["t"].topic_id
        if version < 8:
            topics = [OffsetFetchRequestTopic(name="t", partition_indexes=list(partitions))]
            request = OffsetFetchRequest(group_id=group_id, topics=topics, **more)
            response = self.node.ask(request, version)
        else:
            name = {"topic_id": topic_id} if version >= 10 else {"name": "t"}
            topics = [OffsetFetchRequestTopics(**name, partition_indexes=list(partitions))]
            group = OffsetFetchRequestGroup(group_id=group_id, topics=topics)
            (response,) = self.node.ask(OffsetFetchRequest(groups=[group], **more), version).groups
        return [
            (one.committed_offset, one.committed_leader_epoch, one.metadata, one.error_code)
            for topic in response.topics
            for one in topic.partitions
        ]


@pytest.fixture
def commits(node):
    return Commits(node)


@pytest.mark.parametrize("version", [0, 4, 5])
def test_offsets_wait_for_the_marker(commits, version):
    assert commits.commit(version, ("t", 0, 5), ("t", 1, 6)) == [("t", 0, 0), ("t", 1, 0)]
    assert commits.fetch(stable=False) == [NOTHING, NOTHING]
    assert commits.fetch() == [UNSTABLE, UNSTABLE]
    assert commits.end(commit=True) == 0
    assert commits.fetch() == [(5, -1, "at 5", 0), (6, -1, "at 6", 0)]
    assert commits.commit(version, ("t", 0, 7), ("t", 2, 8)) == [("t", 0, 0), ("t", 2, 0)]
    assert commits.end(commit=False) == 0
    assert commits.fetch(partitions=(0, 2)) == [(5, -1, "at 5", 0), NOTHING]


@pytest.mark.parametrize("version", [6, 7, 8, 10])
def test_every_version_of_offset_fetch_that_can_ask_for_stable_offsets_is_told(commits, version):
    commits.commit(3, ("t", 0, 5))
    commits.end(commit=True)
    commits.commit(3, ("t", 0, 6))
    expected = [UNSTABLE, NOTHING] if version >= 7 else [(5, -1, "at 5", 0), NOTHING]
    assert commits.fetch(version) == expected
    assert commits.fetch(version, stable=False) == [(5, -1, "at 5", 0), NOTHING]
    assert commits.fetch(version, group_id="other") == [NOTHING, NOTHING]


def test_the_groups_log_has_a_last_stable_offset_and_a_list_of_the_aborted(commits):
    commits.commit(3, ("t", 0, 5), ("t", 1, 5))
    log = commits.log
    assert (log.last_stable_offset, log.high_watermark) == (0, 2)
    commits.end(commit=False)
    assert (log.last_stable_offset, log.high_watermark) == (3, 3)
    read = log.read(0, max_bytes=1 << 20, isolation=READ_COMMITTED)
    assert read.aborted == [(PRODUCER, 0)]
    headers = [header for _, header in iter_whole_batches(b"".join(read.records.buffers()))]
    assert [
        (one.is_transactional, one.is_control, one.producer_id, one.base_sequence) for one in headers
    ] == [
        (True, False, PRODUCER, -1),
        (True, True, PRODUCER, -1),
    ]


@pytest.mark.parametrize("is_committed", [True, False, None])
def test_a_restarted_coordinator_knows_what_was_pending(commits, is_committed):
    commits.commit(3, ("t", 0, 5))
    commits.end(commit=True)
    commits.commit(3, ("t", 0, 6), ("t", 1, 7))
    if is_committed is not None:
        commits.end(commit=is_committed)
    before = commits.fetch(), commits.fetch(stable=False)
    restart(commits.node)
    assert (commits.fetch(), commits.fetch(stable=False)) == before
    if is_committed is None:
        commits.end(commit=True)
        assert commits.fetch() == [(6, -1, "at 6", 0), (7, -1, "at 7", 0)]


def test_what_is_pending_for_a_topic_that_was_deleted_before_a_crash_is_gone_after_it(commits):
    commits.commit(3, ("t", 0, 5))
    node = commits.node
    node.machine.delete_topics(["t"])
    restart(node)
    assert commits.end(commit=True) == 0
    topics = [OffsetFetchRequestTopic(name="t", partition_indexes=[0])]
    response = node.ask(OffsetFetchRequest(group_id="g", topics=topics, require_stable=True), 7)
    assert response.topics[0].partitions[0].committed_offset == -1
    restart(node)
    response = node.ask(OffsetFetchRequest(group_id="g", topics=None, require_stable=True), 7)
    assert response.topics == []


def restart(node):
    """Has the groups loaded again from their logs."""
    node.groups.close()
    node.group_logs.clear()
    node.groups.view_changed(node.machine.view)
    node.loop.turn()
    assert not node.groups.is_loading


# The transaction's coordinator


@pytest.mark.parametrize("version", [4, 5])
def test_the_first_commit_asks_the_coordinator_and_the_next_ones_do_not(commits, version):
    commits.commit(version, ("t", 0, 5))
    commits.commit(version, ("t", 0, 6))
    ((transactional_id, asked),) = commits.coordinator.asked
    (transaction,) = asked.request.transactions
    assert transactional_id == transaction.transactional_id == "tx"
    assert transaction.verify_only is (version < FIRST_VERSION_THAT_ADDS)
    assert (transaction.producer_id, transaction.producer_epoch) == (PRODUCER, 0)
    assert partitions_in(transaction) == [(OFFSETS_TOPIC, commits.index)]
    commits.end(commit=True)
    commits.commit(version, ("t", 0, 7))
    assert len(commits.coordinator.asked) == 2


def test_without_verification_only_versions_that_add_the_partition_ask(commits):
    commits.is_verifying = False
    for version in VERSIONS:
        assert commits.commit(version, ("t", 0, 5), epoch=version) == [("t", 0, 0)]
        commits.end(commit=True, epoch=version)
    asked = [one.request.transactions[0].producer_epoch for _, one in commits.coordinator.asked]
    assert asked == [5, 6]
    assert commits.fetch() == [(5, -1, "at 5", 0), NOTHING]


@pytest.mark.parametrize(
    ("code", "version", "told"),
    [
        ("PRODUCER_FENCED", 5, "INVALID_PRODUCER_EPOCH"),
        ("INVALID_PRODUCER_ID_MAPPING", 5, "INVALID_PRODUCER_ID_MAPPING"),
        ("CONCURRENT_TRANSACTIONS", 5, "CONCURRENT_TRANSACTIONS"),
        ("INVALID_TXN_STATE", 5, "INVALID_TXN_STATE"),
        ("NOT_COORDINATOR", 5, "NOT_COORDINATOR"),
        ("COORDINATOR_NOT_AVAILABLE", 5, "COORDINATOR_NOT_AVAILABLE"),
        ("TRANSACTION_ABORTABLE", 3, "INVALID_TXN_STATE"),
        ("TRANSACTION_ABORTABLE", 4, "TRANSACTION_ABORTABLE"),
        ("COORDINATOR_LOAD_IN_PROGRESS", 1, "COORDINATOR_NOT_AVAILABLE"),
        ("COORDINATOR_LOAD_IN_PROGRESS", 2, "COORDINATOR_LOAD_IN_PROGRESS"),
        ("NETWORK_EXCEPTION", 1, "COORDINATOR_NOT_AVAILABLE"),
        ("NETWORK_EXCEPTION", 2, "COORDINATOR_LOAD_IN_PROGRESS"),
    ],
)
def test_what_the_coordinator_refuses_is_told_in_words_of_the_version(commits, version, code, told):
    commits.coordinator.code = ErrorCode[code]
    answer = commits.start(version, ("t", 0, 5), ("t", 1, 5))
    commits.node.loop.advance(7)
    assert commits.errors_of(answer) == [("t", 0, ErrorCode[told]), ("t", 1, ErrorCode[told])]
    assert commits.fetch() == [NOTHING, NOTHING]
    assert commits.log.log_end_offset == 0


@pytest.mark.parametrize("version", [3, 5])
def test_a_marker_that_overtakes_the_coordinators_answer_leaves_no_transaction_behind(commits, version):
    """It would stay open for ever: its coordinator has ended it already."""
    commits.coordinator.holds = True
    answer = commits.start(version, ("t", 0, 5))
    assert commits.end(commit=False) == 0
    (asked,) = commits.coordinator.held
    commits.coordinator.answer(asked)
    commits.node.loop.turn()
    assert commits.errors_of(answer) == [("t", 0, ErrorCode.INVALID_TXN_STATE)]
    assert commits.log.last_stable_offset == commits.log.high_watermark
    assert commits.fetch() == [NOTHING, NOTHING]


@pytest.mark.parametrize("version", [3, 5])
def test_a_coordinator_that_still_ends_the_last_transaction_is_asked_again(commits, version):
    """Its marker comes in between, which makes void what was asked before."""
    commits.coordinator.code = ErrorCode.CONCURRENT_TRANSACTIONS
    answer = commits.start(version, ("t", 0, 5))
    commits.node.loop.advance(2)
    assert not answer.was_sent
    commits.end(commit=True)
    commits.coordinator.code = ErrorCode.NONE
    commits.node.loop.advance(1)
    assert commits.errors_of(answer) == [("t", 0, 0)]
    assert len(commits.coordinator.asked) == 3
    commits.coordinator.code = ErrorCode.CONCURRENT_TRANSACTIONS
    commits.end(commit=True)
    answer = commits.start(version, ("t", 0, 6))
    commits.node.loop.advance(6)
    assert not answer.was_sent
    commits.node.loop.advance(1)
    assert commits.errors_of(answer) == [("t", 0, ErrorCode.CONCURRENT_TRANSACTIONS)]


def test_commits_that_wait_for_the_coordinator_together_are_written_in_their_order(commits):
    commits.coordinator.holds = True
    answers = [commits.start(5, ("t", 0, offset)) for offset in (5, 6, 7)]
    assert not any(answer.was_sent for answer in answers)
    for asked in commits.coordinator.held:
        commits.coordinator.answer(asked)
    commits.node.loop.turn()
    assert [commits.errors_of(answer) for answer in answers] == [[("t", 0, 0)]] * 3
    commits.end(commit=True)
    assert commits.fetch() == [(7, -1, "at 7", 0), NOTHING]


# Refusals


def test_what_does_not_exist_is_named_first_and_the_rest_committed(commits):
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert commits.commit(5, ("t", 0, 5), ("t", 9, 5), ("u", 0, 5), ("t", 1, 5)) == [
        ("t", 9, unknown),
        ("t", 0, 0),
        ("t", 1, 0),
        ("u", 0, unknown),
    ]
    commits.coordinator.asked.clear()
    assert commits.commit(5, ("u", 0, 5), ("t", 3, 5)) == [("u", 0, unknown), ("t", 3, unknown)]
    assert commits.commit(5) == []
    assert commits.coordinator.asked == []


def test_a_group_without_a_name_is_refused_at_once(commits):
    assert commits.commit(5, ("t", 0, 5), group_id="") == [("t", 0, ErrorCode.INVALID_GROUP_ID)]
    assert commits.coordinator.asked == []


@pytest.mark.parametrize(("version", "is_verifying"), [(4, True), (4, False), (5, False)])
@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        ({"producer_id": -1}, ErrorCode.INVALID_PRODUCER_ID_MAPPING),
        ({"epoch": -1}, ErrorCode.INVALID_PRODUCER_EPOCH),
    ],
)
def test_a_producer_that_cannot_be_is_left_to_the_coordinator_where_one_is_asked(
    commits, version, is_verifying, arguments, code
):
    """As in Kafka, where what is wrong with the transactional id counts more."""
    commits.is_verifying = is_verifying
    is_asked = is_verifying or version >= FIRST_VERSION_THAT_ADDS
    if is_asked:
        commits.coordinator.code = code = ErrorCode.INVALID_REQUEST
    assert commits.commit(version, ("t", 0, 5), **arguments) == [("t", 0, code)]
    assert len(commits.coordinator.asked) == is_asked


@pytest.mark.parametrize(("version", "is_verifying"), [(4, False), (5, True)])
def test_an_earlier_epoch_is_fenced_without_harm_to_the_group(commits, version, is_verifying):
    commits.is_verifying = is_verifying
    commits.commit(version, ("t", 0, 5), epoch=3)
    assert commits.commit(version, ("t", 0, 6), epoch=2) == [("t", 0, ErrorCode.INVALID_PRODUCER_EPOCH)]
    assert not commits.node.groups.is_loading
    assert commits.fetch() == [UNSTABLE, NOTHING]
    assert commits.end(commit=True, epoch=3) == 0
    assert commits.fetch() == [(5, -1, "at 5", 0), NOTHING]


def test_the_group_judges_who_commits(commits):
    as_member = {"member_id": "m", "generation_id_or_member_epoch": 1}
    assert commits.commit(5, ("t", 0, 5), **as_member) == [("t", 0, ErrorCode.ILLEGAL_GENERATION)]
    commits.commit(5, ("t", 1, 5))
    assert commits.commit(5, ("t", 0, 5), **as_member) == [("t", 0, ErrorCode.UNKNOWN_MEMBER_ID)]
    instance = {**as_member, "group_instance_id": "i"}
    assert commits.commit(5, ("t", 0, 5), **instance) == [("t", 0, ErrorCode.UNKNOWN_MEMBER_ID)]


def test_version_6_names_a_group_that_is_not_there_and_a_topic_without_its_id(commits):
    as_member = {"member_id": "m", "generation_id_or_member_epoch": 1}
    assert commits.commit(6, ("t", 0, 5), **as_member) == [("t", 0, ErrorCode.GROUP_ID_NOT_FOUND)]
    answer = commits.start(6, ("nowhere", 0, 5), ("t", 0, 5))
    commits.node.loop.turn()
    codes = [one.error_code for topic in answer.response.topics for one in topic.partitions]
    assert codes == [ErrorCode.UNKNOWN_TOPIC_ID, 0]


@pytest.mark.parametrize(
    ("version", "code"), [(5, ErrorCode.ILLEGAL_GENERATION), (6, ErrorCode.STALE_MEMBER_EPOCH)]
)
def test_an_old_epoch_has_the_error_that_its_client_knows(commits, version, code):
    joining = ConsumerGroupHeartbeatRequest(
        group_id="g", member_id="m", member_epoch=0, rebalance_timeout_ms=1_000, topic_partitions=[],
        subscribed_topic_names=["t"],
    )  # fmt: skip
    epoch = commits.node.ask(joining).member_epoch
    as_member = {"member_id": "m", "generation_id_or_member_epoch": epoch + 1}
    assert commits.commit(version, ("t", 0, 5), **as_member) == [("t", 0, code)]


def test_too_much_metadata_is_refused_partition_by_partition(commits):
    commits.node.group_settings.offset_metadata_max_bytes = 4
    assert commits.commit(5, ("t", 0, 5), ("t", 1, 12)) == [
        ("t", 0, 0),
        ("t", 1, ErrorCode.OFFSET_METADATA_TOO_LARGE),
    ]


def test_without_the_groups_topic_there_is_no_coordinator(node):
    node.create("t", 3)
    commits = Commits.__new__(Commits)
    commits.node, commits.coordinator = node, Coordinator()
    commits.handler = TxnOffsetCommit(
        node.leadership,
        lambda: node.groups,
        lambda: commits.coordinator,
        lambda: None,
        node.loop,
        lambda: True,
    )
    commits.api = API
    ((_, _, code),) = commits.commit(5, ("t", 0, 5))
    assert code in (ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_COORDINATOR)


def test_a_log_that_fails_is_told_and_forgotten_by_the_group(commits):
    failure = KafkaError(ErrorCode.KAFKA_STORAGE_ERROR)
    commits.node.group_logs[commits.index].failure = failure
    assert commits.commit(5, ("t", 0, 5)) == [("t", 0, ErrorCode.NOT_COORDINATOR)]
    commits.node.group_logs[commits.index].failure = None
    commits.node.loop.advance(1000 * RELOAD_PAUSE_S)
    assert commits.fetch() == [NOTHING, NOTHING]


# Markers


def test_markers_are_refused_without_harm_to_the_group(commits):
    commits.commit(3, ("t", 0, 5), epoch=3)
    assert commits.end(commit=True, epoch=2) is ErrorCode.INVALID_PRODUCER_EPOCH
    assert commits.end(commit=True, epoch=3, version=2) is ErrorCode.INVALID_PRODUCER_EPOCH
    assert not commits.node.groups.is_loading
    assert commits.fetch() == [UNSTABLE, NOTHING]
    assert commits.end(commit=True, epoch=3, coordinator_epoch=7) is ErrorCode.NONE
    commits.commit(3, ("t", 0, 6), epoch=3)
    fenced = commits.end(commit=True, epoch=3, coordinator_epoch=6)
    assert fenced is ErrorCode.TRANSACTION_COORDINATOR_FENCED
    assert commits.fetch() == [UNSTABLE, NOTHING]
    assert not commits.node.groups.is_loading


@pytest.mark.parametrize("nobody", [{"producer_id": -1}, {"epoch": -1}])
def test_a_marker_of_nobody_is_no_marker(commits, nobody):
    assert commits.end(commit=True, **nobody) is ErrorCode.UNKNOWN_SERVER_ERROR
    assert commits.log.log_end_offset == 0


def test_the_group_judges_the_member_that_commits_and_its_error_is_that_of_each_partition(commits):
    """KIP-447."""
    node, instance = commits.node, {"group_id": "g", "group_instance_id": "i"}
    member = node.ask(
        JoinGroupRequest(
            session_timeout_ms=10_000,
            member_id="",
            protocol_type="consumer",
            protocols=[JoinGroupRequestProtocol(name="range", metadata=b"")],
            **instance,
        )
    )
    naming = {"protocol_type": "consumer", "protocol_name": "range"}
    node.ask(SyncGroupRequest(generation_id=1, member_id=member.member_id, **instance, **naming))
    as_member = {"generation_id_or_member_epoch": 1, "member_id": member.member_id, "group_instance_id": "i"}
    for change, code in (
        ({}, ErrorCode.NONE),
        ({"member_id": "other"}, ErrorCode.FENCED_INSTANCE_ID),
        ({"group_instance_id": "nobody"}, ErrorCode.UNKNOWN_MEMBER_ID),
        ({"generation_id_or_member_epoch": 2}, ErrorCode.ILLEGAL_GENERATION),
    ):
        errors = commits.commit(5, ("t", 0, 5), ("t", 1, 6), **as_member | change)
        assert errors == [("t", 0, code), ("t", 1, code)]
