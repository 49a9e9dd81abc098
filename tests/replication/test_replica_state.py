"""The leader's side of a partition, rule by rule."""

from typing import NamedTuple

import pytest

from odradek.coordinator.replication.in_sync import AlteredIsr, AlterIsr
from odradek.coordinator.replication.read_replica import preferred_read_replica
from odradek.coordinator.replication.replica_state import (
    BeginEpoch,
    DivergingEpoch,
    FollowerRead,
    HighWatermark,
    LeaderState,
)
from odradek.coordinator.replication.transitions import (
    Delete,
    Follow,
    Known,
    Lead,
    Stop,
    transition,
)
from odradek.coordinator.replication.values import BrokerState
from odradek.wire.errors import ErrorCode, KafkaError
from tests.replication.model_log import ModelLog

KEY = ("t", 0)
LAG_MS = 1_000


class View(NamedTuple):
    leader: int = 1
    leader_epoch: int = 5
    partition_epoch: int = 10
    replicas: tuple[int, ...] = (1, 2, 3)
    isr: tuple[int, ...] = (1, 2, 3)


FIRST_VIEW = View()


class Settings:
    replica_lag_time_max_ms = LAG_MS
    min_insync_replicas = 1


class Leader:
    """A leader of three replicas in epoch 5, whose effects are carried out at once."""

    def __init__(self, view: View = FIRST_VIEW, *, records: int = 10, min_isr: int = 1) -> None:
        self.log = ModelLog()
        for value in range(records):
            self.log.append_new(4, value)
        self.brokers = {node: BrokerState(100 + node) for node in (1, 2, 3, 4)}
        self.settings = Settings()
        self.settings.min_insync_replicas = min_isr
        self.state = LeaderState(KEY, 1, self.log, self.brokers.get, self.settings)
        self.now_ms = 50_000
        self.changes: list[AlterIsr] = []
        self.carry_out(self.state.lead(view, self.now_ms))

    def carry_out(self, effects):
        for effect in effects:
            if isinstance(effect, HighWatermark):
                self.log.high_watermark = effect.offset
            elif isinstance(effect, AlterIsr):
                self.changes.append(effect)
            else:
                self.log.epochs.assign(effect.leader_epoch, effect.start_offset)
        return effects

    def fetch(self, replica_id, offset, *, start=0, broker_epoch=None, last_epoch=-1, leader_epoch=5):
        read = self.state.read_for_follower(replica_id, leader_epoch, offset, last_epoch)
        epoch = self.brokers[replica_id].epoch if broker_epoch is None else broker_epoch
        return self.carry_out(self.state.fetched(replica_id, offset, start, epoch, read, self.now_ms))

    def append(self, count=1):
        for _ in range(count):
            self.log.append_new(5, 1_000 + self.log.log_end_offset)
        return self.carry_out(self.state.appended(self.now_ms))

    def shrink(self):
        return self.carry_out(self.state.shrink(self.now_ms))

    def answer(self, answer, change=None):
        return self.carry_out(self.state.altered(change or self.changes[-1], answer, self.now_ms))

    def agree(self, partition_epoch=11):
        isr = tuple(broker_id for broker_id, _ in self.changes[-1].new_isr)
        return self.answer(AlteredIsr(5, partition_epoch, isr))


def code_of(function, *arguments, **options) -> ErrorCode:
    with pytest.raises(KafkaError) as refused:
        function(*arguments, **options)
    return refused.value.code


# Views


@pytest.mark.parametrize(
    ("view", "expected"),
    [
        (None, Delete()),
        (View(replicas=(2, 3)), Delete()),
        (View(leader=1), Lead(is_new_epoch=True)),
        (View(leader=1, leader_epoch=4), Lead(is_new_epoch=False)),
        (View(leader=2), Follow(2, restarts=True)),
        (View(leader=2, leader_epoch=4), Follow(2, restarts=False)),
        (View(leader=-1), Stop(is_new_epoch=True)),
        (View(leader=2, partition_epoch=8), None),
    ],
)
def test_a_view_says_lead_follow_stop_delete_or_nothing(view, expected):
    assert transition(1, Known(leader_epoch=4, partition_epoch=9), view) == expected


def test_in_a_controlled_shutdown_only_what_is_in_sync_is_fetched():
    """KAFKA-14292, KAFKA-14296."""
    shut = {"is_in_shutdown": True}
    assert transition(1, Known(), View(leader=2, isr=(2, 3)), **shut) == Stop(is_new_epoch=True)
    assert transition(1, Known(), View(leader=2), **shut) == Follow(2, restarts=True)


def test_a_new_epoch_is_noted_where_it_begins_even_without_a_record():
    """KAFKA-7415."""
    leader = Leader()
    assert leader.log.epochs.entries() == [(4, 0), (5, 10)]
    assert leader.log.end_offset_for_epoch(5) == (5, 10)


def test_a_new_leader_knows_nothing_of_its_followers_and_those_in_sync_are_given_time():
    leader = Leader(View(isr=(1, 2)))
    assert {follower.log_end_offset for follower in leader.state.followers.values()} == {-1}
    assert leader.state.followers[2].caught_up_ms == leader.now_ms
    assert leader.state.followers[3].caught_up_ms < 0
    assert leader.log.high_watermark == 0


def test_nor_does_a_leader_that_is_elected_again():
    """Between the two another may have led, and cut the followers."""
    leader = Leader()
    leader.fetch(2, 10)
    leader.fetch(3, 10)
    effects = leader.state.lead(View(leader_epoch=7, partition_epoch=12), leader.now_ms)
    assert effects == [BeginEpoch(KEY, 7, 10)]
    assert {follower.log_end_offset for follower in leader.state.followers.values()} == {-1}
    assert leader.append() == []


def test_another_isr_in_the_same_epoch_begins_nothing_anew():
    """KAFKA-13132, KAFKA-13161."""
    leader = Leader()
    leader.fetch(2, 10)
    assert leader.state.lead(View(partition_epoch=11, isr=(1, 2)), leader.now_ms) == [HighWatermark(KEY, 10)]
    assert leader.state.epoch_start_offset == 10


def test_an_older_view_says_nothing():
    leader = Leader()
    assert leader.state.lead(View(partition_epoch=9, leader_epoch=9, isr=(1,)), leader.now_ms) == []
    assert leader.state.leader_epoch == 5
    assert leader.state.in_sync.isr == {1, 2, 3}


def test_who_resigns_keeps_nothing_but_the_epochs():
    leader = Leader()
    leader.state.resign(Known(6, 12))
    assert leader.state.known == Known(6, 12)
    assert not leader.state.followers
    assert not leader.state.in_sync.isr
    assert leader.state.acknowledgement(1, 5) is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert leader.state.appended(0) == leader.state.shrink(0) == []


# The high watermark


def test_the_high_watermark_is_where_the_shortest_log_in_the_isr_ends():
    leader = Leader()
    assert leader.fetch(2, 8) == []
    assert leader.fetch(3, 4) == [HighWatermark(KEY, 4)]
    assert leader.fetch(3, 9) == [HighWatermark(KEY, 8)]


def test_the_high_watermark_does_not_go_down():
    leader = Leader()
    leader.fetch(2, 9)
    leader.fetch(3, 9)
    assert leader.fetch(3, 2) == []
    assert leader.log.high_watermark == 9


def test_alone_in_the_isr_an_append_moves_the_high_watermark():
    leader = Leader(View(isr=(1,)))
    assert leader.log.high_watermark == 10
    assert leader.append() == [HighWatermark(KEY, 11)]


def test_under_min_isr_nothing_is_committed():
    """KAFKA-15583: a member that left may still be elected."""
    leader = Leader(View(isr=(1,)), min_isr=2)
    assert leader.append() == []
    assert leader.log.high_watermark == 0


def test_min_isr_is_at_most_the_number_of_replicas():
    leader = Leader(View(replicas=(1,), isr=(1,)), min_isr=2)
    assert leader.log.high_watermark == 10


def test_the_high_watermark_waits_for_a_replica_that_is_being_added():
    leader = Leader(View(isr=(1, 2)))
    leader.fetch(2, 10)
    leader.now_ms += LAG_MS * 2
    leader.append(2)
    assert leader.fetch(3, 10)[-1].new_isr == ((1, 101), (2, 102), (3, 103))
    leader.now_ms += LAG_MS * 2
    assert leader.fetch(2, 12) == []
    assert leader.agree() == []
    assert leader.fetch(3, 12) == [HighWatermark(KEY, 12)]


def test_the_high_watermark_waits_for_replicas_that_are_being_removed_until_that_is_committed():
    leader = Leader()
    leader.now_ms += LAG_MS * 2
    leader.fetch(2, 10)
    (change,) = leader.shrink()
    assert change.new_isr == ((1, 101), (2, 102))
    assert leader.log.high_watermark == 0
    assert leader.agree() == [HighWatermark(KEY, 10)]


def test_the_high_watermark_waits_for_one_that_keeps_up_and_may_come_in():
    leader = Leader(View(isr=(1,)))
    leader.fetch(2, 10)
    leader.fetch(3, 10)
    leader.append(3)
    assert leader.state.in_sync.maximal == {1, 2}
    assert leader.fetch(2, 13) == []
    leader.brokers[3] = BrokerState(103, is_fenced=True)
    assert leader.fetch(2, 13) == [HighWatermark(KEY, 13)]


# The ISR


def test_a_replica_comes_in_at_the_high_watermark_but_not_before_the_start_of_the_epoch():
    """KAFKA-7128: between the high watermark and the start of the epoch records may be committed."""
    leader = Leader(View(isr=(1, 2)))
    leader.fetch(2, 5)
    assert leader.log.high_watermark == 5
    assert leader.fetch(3, 9) == []
    (change, *_) = leader.fetch(3, 10)
    assert change == AlterIsr(KEY, 5, 10, ((1, 101), (2, 102), (3, 103)))


@pytest.mark.parametrize(
    "broker",
    [
        None,
        BrokerState(103, is_fenced=True),
        BrokerState(103, is_in_shutdown=True),
    ],
)
def test_no_fenced_or_leaving_broker_comes_in(broker):
    """KIP-841."""
    leader = Leader(View(isr=(1, 2)))
    leader.brokers[3] = broker
    assert leader.fetch(3, 10, broker_epoch=103) == []
    assert not leader.changes


def test_a_replica_does_not_come_in_with_what_it_had_in_another_life():
    """KIP-903."""
    leader = Leader(View(isr=(1, 2)))
    assert code_of(leader.fetch, 3, 10, broker_epoch=102) is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert leader.state.followers[3].log_end_offset == -1
    leader.fetch(3, 10, broker_epoch=104)  # which our view has not got yet
    assert not leader.changes


def test_a_follower_that_does_not_know_its_epoch_comes_in():
    leader = Leader(View(isr=(1, 2)))
    leader.fetch(3, 10, broker_epoch=-1)
    assert leader.changes[-1].new_isr[-1] == (3, -1)


def test_who_lags_for_too_long_goes_and_who_has_everything_stays():
    """KAFKA-7152: an idle partition has no traffic that would tell."""
    leader = Leader()
    leader.fetch(2, 10)
    leader.now_ms += LAG_MS
    assert leader.shrink() == []
    leader.now_ms += 1
    (change,) = leader.shrink()
    assert change.new_isr == ((1, 101), (2, 102))


def test_who_has_at_each_fetch_what_the_leader_had_at_the_one_before_keeps_up():
    leader = Leader()
    leader.fetch(3, 10)
    leader.fetch(2, 10)
    for _ in range(10):
        leader.append(2)
        leader.now_ms += LAG_MS // 2
        leader.fetch(2, leader.log.log_end_offset - 2)
    leader.append()
    assert leader.shrink()[0].new_isr == ((1, 101), (2, 102))


def test_one_change_is_pending_at_a_time():
    leader = Leader(View(isr=(1,)))
    leader.fetch(2, 10)
    leader.fetch(3, 10)
    assert leader.shrink() == []
    assert len(leader.changes) == 1
    leader.agree()
    leader.fetch(3, 10)
    assert leader.changes[-1] == AlterIsr(KEY, 5, 11, ((1, 101), (2, 102), (3, 103)))


@pytest.mark.parametrize("code", [ErrorCode.OPERATION_NOT_ATTEMPTED, ErrorCode.INELIGIBLE_REPLICA])
def test_a_change_that_was_not_made_is_forgotten(code):
    leader = Leader(View(isr=(1,)))
    leader.fetch(2, 10)
    leader.now_ms += LAG_MS * 2
    leader.append()
    assert leader.log.high_watermark == 10
    assert leader.answer(code) == [HighWatermark(KEY, 11)]
    assert leader.state.in_sync.pending is None


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.INVALID_UPDATE_VERSION,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.NEW_LEADER_ELECTED,
    ],
)
def test_a_change_that_may_have_been_made_stays_pending_until_a_view(code):
    leader = Leader(View(isr=(1,)))
    leader.fetch(2, 10)
    assert leader.answer(code) == []
    assert leader.state.in_sync.maximal == {1, 2}
    leader.state.lead(View(partition_epoch=11, isr=(1,)), leader.now_ms)
    assert leader.state.in_sync.maximal == {1}


def test_after_any_other_error_the_same_change_is_sent_again():
    leader = Leader(View(isr=(1,)))
    leader.fetch(2, 10)
    change = leader.changes[-1]
    assert leader.answer(ErrorCode.UNKNOWN_SERVER_ERROR) == [change]
    assert leader.state.in_sync.pending is change


def test_a_late_answer_to_a_change_that_a_view_has_overtaken_is_dropped():
    leader = Leader()
    leader.now_ms += LAG_MS * 2
    leader.fetch(2, 10)
    (change,) = leader.shrink()
    leader.state.lead(View(partition_epoch=12), leader.now_ms)
    assert leader.answer(AlteredIsr(5, 11, (1, 2)), change) == []
    assert leader.state.in_sync.isr == {1, 2, 3}


def test_a_view_that_comes_twice_leaves_the_pending_change_alone():
    leader = Leader(View(isr=(1,)))
    leader.fetch(2, 10)
    leader.state.lead(View(isr=(1,)), leader.now_ms)
    assert leader.state.in_sync.maximal == {1, 2}


def test_an_answer_of_another_epoch_is_not_taken():
    leader = Leader()
    leader.now_ms += LAG_MS * 2
    leader.fetch(2, 10)
    leader.shrink()
    assert leader.answer(AlteredIsr(6, 11, (1, 2))) == []
    assert leader.state.in_sync.maximal == {1, 2, 3}


# Fetches of followers


def test_the_epochs_of_a_fetch_are_checked():
    leader = Leader()
    assert code_of(leader.fetch, 2, 10, leader_epoch=4) is ErrorCode.FENCED_LEADER_EPOCH
    assert code_of(leader.fetch, 2, 10, leader_epoch=6) is ErrorCode.UNKNOWN_LEADER_EPOCH


def test_a_replica_that_is_not_known_yet_tries_again():
    """KAFKA-13837."""
    leader = Leader()
    assert code_of(leader.fetch, 4, 10) is ErrorCode.UNKNOWN_LEADER_EPOCH
    assert code_of(leader.fetch, 4, 10, leader_epoch=-1) is ErrorCode.NOT_LEADER_OR_FOLLOWER


@pytest.mark.parametrize(
    ("offset", "last_epoch", "diverging"),
    [(10, 4, None), (8, 4, None), (11, 4, (4, 10)), (9, 3, None), (12, 5, (5, 10)), (10, 5, None)],
)
def test_a_fetch_of_a_log_that_parts_from_ours_is_told_where(offset, last_epoch, diverging):
    leader = Leader()
    leader.log.epochs.epochs[:0], leader.log.epochs.starts[:0] = [2], [0]
    leader.log.epochs.starts[1] = 3
    read = leader.state.read_for_follower(2, 5, offset, last_epoch)
    expected = (2, 3) if last_epoch == 3 else diverging
    assert read == FollowerRead(10, expected and DivergingEpoch(*expected))


def test_a_diverging_fetch_says_nothing_about_its_log():
    """KAFKA-13141."""
    leader = Leader()
    assert leader.fetch(2, 12, last_epoch=4) == []
    assert leader.state.followers[2].log_end_offset == -1


def test_a_fetch_that_fails_says_nothing_about_its_log():
    """KAFKA-8400."""
    leader = Leader()
    leader.log.high_watermark = 5
    leader.log.raise_start(3)
    assert code_of(leader.fetch, 2, 2, last_epoch=1) is ErrorCode.OFFSET_OUT_OF_RANGE
    assert code_of(leader.fetch, 2, 11) is ErrorCode.OFFSET_OUT_OF_RANGE
    assert code_of(leader.fetch, 2, 9, last_epoch=7) is ErrorCode.OFFSET_OUT_OF_RANGE
    assert leader.state.followers[2].log_end_offset == -1


# Produce, readers, deletion


def test_acks_all_is_refused_while_the_isr_is_too_small():
    leader = Leader(View(isr=(1,)), min_isr=2)
    assert code_of(leader.state.check_append, by_all=True) is ErrorCode.NOT_ENOUGH_REPLICAS
    leader.state.check_append(by_all=False)


def test_acks_all_waits_for_the_high_watermark():
    leader = Leader()
    assert leader.state.acknowledgement(10, 5) is None
    leader.fetch(2, 10)
    leader.fetch(3, 10)
    assert leader.state.acknowledgement(10, 5) is ErrorCode.NONE
    assert leader.state.acknowledgement(10, 4) is ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_acks_all_goes_on_waiting_when_the_isr_has_become_too_small():
    """What is committed stays acknowledged; what is not waits until the ISR is large enough again."""
    leader = Leader(View(isr=(1, 2)), min_isr=2)
    leader.fetch(2, 10)
    leader.state.lead(View(partition_epoch=11, isr=(1,)), leader.now_ms)
    assert leader.state.acknowledgement(10, 5) is ErrorCode.NONE
    assert leader.state.acknowledgement(11, 5) is None


def test_the_latest_offset_is_told_from_the_start_of_the_epoch_on():
    """KIP-207."""
    leader = Leader(View(isr=(1, 2)))
    leader.fetch(2, 9)
    assert not leader.state.has_offsets
    leader.fetch(2, 10)
    assert leader.state.has_offsets


def test_deleted_records_are_gone_when_all_live_replicas_say_so():
    leader = Leader()
    for replica_id in (2, 3):
        leader.fetch(replica_id, 10)
    leader.log.raise_start(6)
    assert leader.state.low_watermark() == 0
    leader.fetch(2, 10, start=6)
    leader.brokers[3] = BrokerState(103, is_fenced=True)
    assert leader.state.low_watermark() == 6


RACKS = {1: "a", 2: "b", 3: "b"}


def reads_from(leader, offset, rack="b"):
    return preferred_read_replica(leader.state, rack, offset, RACKS.get)


def test_a_consumer_reads_from_its_rack_where_the_replica_has_the_offset_and_is_in_sync():
    """KAFKA-14372."""
    leader = Leader(View(isr=(1, 2)))
    leader.fetch(2, 8, start=2)
    leader.fetch(3, 9)
    assert reads_from(leader, 8) == 2
    assert reads_from(leader, 9) is None
    assert reads_from(leader, 1) is None
    assert reads_from(leader, 8, rack="a") is None
    assert reads_from(leader, 8, rack="") is None


def test_of_two_the_one_with_the_longer_log_is_read():
    leader = Leader()
    leader.fetch(2, 8)
    leader.fetch(3, 9)
    assert reads_from(leader, 5) == 3
