"""What is committed stays, whatever happens to nodes, disks and network, and all is whole again afterwards;
and the simulation that says so finds the bugs that are planted."""

from collections import Counter

import pytest

from odradek.coordinator.controller import brokers, in_sync
from odradek.coordinator.controller.broker_sessions import BrokerSessions
from odradek.coordinator.controller.partition_change import PartitionChangeBuilder
from odradek.coordinator.replication import replica_fetcher, replica_state, transitions
from odradek.coordinator.replication._led import LedReplica
from odradek.coordinator.replication.alter_partition import AlterPartitionQueue
from odradek.coordinator.replication.fetch_session import ReplicaFetchSession
from odradek.coordinator.replication.in_sync import AlteredIsr, InSync
from odradek.coordinator.replication.replica_fetcher import Failed, Phase, ReplicaFetcher
from odradek.coordinator.replication.replica_state import (
    BeginEpoch,
    FollowerRead,
    LeaderState,
)
from odradek.coordinator.replication.transitions import Follow
from odradek.wire.errors import ErrorCode, KafkaError
from tests.oracles.follower_state import FollowerState
from tests.replication import replication_world
from tests.replication.model_log import ModelLog
from tests.replication.replication_world import CONTROLLER, IN_PLACE, World
from tests.tiers import NIGHTLY

SEEDS = 10_000 if NIGHTLY else 200
SEEDS_OF_CHECK = 15
"""By day `make check` plays these, and the suite `log` all."""
SEEDS_OF_COMPARISON = 5
SEEDS_OF_A_TEST = 50
SEARCHED = 500


@pytest.mark.parametrize(
    "seeds",
    [
        range(SEEDS_OF_CHECK),
        *(
            pytest.param(range(first, first + SEEDS_OF_A_TEST), marks=pytest.mark.deep)
            for first in range(0, SEEDS, SEEDS_OF_A_TEST)
        ),
    ],
)
def test_what_is_committed_stays_and_all_is_whole_after_the_last_trouble(seeds):
    happened: Counter[str] = Counter()
    for seed in seeds:
        world = World(seed).play()
        assert world.complaints == [], seed
        happened += world.counts
    for what in (
        "acknowledged",
        "begun anew",
        "consumed",
        "crashes",
        "cut links",
        "cuts",
        "fenced",
        "FENCED_LEADER_EPOCH",
        "losses",
        "one-way cuts of the controller",
        "pauses",
        "stops in order",
        "unclean",
        "UNKNOWN_LEADER_EPOCH",
    ):
        assert happened[what], what
    assert happened["acknowledged"] > 40 * len(seeds)
    assert happened["one-way cuts"] > len(seeds)


@pytest.mark.parametrize(
    "seeds",
    [
        range(SEEDS_OF_COMPARISON),
        *(
            pytest.param(range(first, first + SEEDS_OF_A_TEST), marks=pytest.mark.deep)
            for first in range(0, SEEDS, SEEDS_OF_A_TEST)
        ),
    ],
)
def test_the_compiled_leader_leaves_the_same_world_as_the_plain_one(seeds, monkeypatch):
    in_place = 0
    for seed in seeds:
        compiled = World(seed).play()
        with monkeypatch.context() as patch:
            patch.setattr(replica_state, "FollowerState", FollowerState)
            plain = World(seed, led=None).play()
        assert compiled.outcome() == plain.outcome(), seed
        assert not plain.counts[IN_PLACE]
        in_place += compiled.counts[IN_PLACE]
    assert in_place > 200 * len(seeds)


# --- Planted bugs: each undoes one rule ---


def original(owner, name):
    return getattr(owner, name)


def notes_no_epoch_without_records(patch):
    """KAFKA-7415."""
    lead = LeaderState.lead

    def silent(self, view, now_ms):
        return [effect for effect in lead(self, view, now_ms) if not isinstance(effect, BeginEpoch)]

    patch(LeaderState, "lead", silent)


def knows_its_followers_when_it_leads_again(patch):
    """As Kafka does (`resetReplicaState`), where it has not heard of the leader in between."""
    follower_of = original(LeaderState, "_follower_of_new_epoch")

    def keeps(self, replica_id, view, now_ms):
        return self.followers[replica_id] if self.is_leading else follower_of(self, replica_id, view, now_ms)

    patch(LeaderState, "_follower_of_new_epoch", keeps)


def a_new_epoch_of_the_same_leader_restarts_nothing(patch):
    """KAFKA-13132, KAFKA-13161: the other way round."""
    leaders: dict = {}

    def stays(node_id, known, view, **options):
        found = transitions.transition(node_id, known, view, **options)
        if isinstance(found, Follow):
            before = leaders.get((node_id, view.replicas))
            leaders[node_id, view.replicas] = found.leader
            return found._replace(restarts=found.restarts and before != found.leader)
        return found

    patch(replication_world, "transition", stays)


def does_not_hear_of_another_isr_in_the_same_epoch(patch):
    """KAFKA-13161."""

    def deaf(node_id, known, view, **options):
        if known.leader_epoch == view.leader_epoch and node_id in view.replicas:
            return None
        return transitions.transition(node_id, known, view, **options)

    patch(replication_world, "transition", deaf)


def believes_older_views(patch):
    lead = LeaderState.lead

    def leads(self, view, now_ms):
        self.partition_epoch = min(self.partition_epoch, view.partition_epoch - 1)
        return lead(self, view, now_ms)

    patch(LeaderState, "lead", leads)

    def believes(node_id, known, view, **options):
        return transitions.transition(node_id, known._replace(partition_epoch=-1), view, **options)

    patch(replication_world, "transition", believes)


def begins_at_the_end_of_its_log(patch):
    patch(replication_world, "first_high_watermark", lambda checkpoint, start, end: end)


def applies_views_of_its_former_life(patch):
    see = replication_world.Node.see

    def sees(self, image):
        broker_epoch = self.broker_epoch
        self.broker_epoch = 0
        see(self, image)
        self.broker_epoch = broker_epoch

    patch(replication_world.Node, "see", sees)


# The fetcher


def does_not_send_a_changed_leader_epoch(patch):
    """KAFKA-9338."""

    def is_news(self, held, asked):
        return _without_epoch(held) != _without_epoch(asked)

    patch(ReplicaFetchSession, "_is_news", is_news)


def _without_epoch(asked):
    return asked.fetch_offset, asked.log_start_offset, asked.last_fetched_epoch


def takes_answers_for_another_place(patch):
    """KAFKA-13207."""
    patch(ReplicaFetcher, "_is_as_asked", lambda self, one, asked: not one.is_busy)


def takes_answers_that_it_had_given_up(patch):
    answered = ReplicaFetcher.fetch_answered

    def takes(self, request, response, now_ms):
        vars(self)["_in_flight"] = request
        return answered(self, request, response, now_ms)

    patch(ReplicaFetcher, "fetch_answered", takes)
    patch(ReplicaFetcher, "_is_as_asked", lambda self, one, asked: not one.is_busy)


def takes_the_high_watermark_of_another_log(patch):
    """KAFKA-14704."""
    judge = original(ReplicaFetcher, "_judge")

    def judges(self, one, data, now_ms):
        if data.diverging_epoch is not None:
            offset = min(data.high_watermark, one.log.log_end_offset)
            one.log.high_watermark = max(one.log.high_watermark, offset)
        return judge(self, one, data, now_ms)

    patch(ReplicaFetcher, "_judge", judges)


def forgets_its_epoch_after_an_empty_answer(patch):
    """KAFKA-15510."""
    replicate, asks = original(ReplicaFetcher, "_replicate"), original(ReplicaFetcher, "_asked")

    def replicates(self, one, data):
        forgetful = self.__dict__.setdefault("forgetful", set())
        if data.records:
            forgetful.discard(one.key)
        else:
            forgetful.add(one.key)
        return replicate(self, one, data)

    def asked(self, one):
        found = asks(self, one)
        if one.key in self.__dict__.get("forgetful", ()):
            found.last_fetched_epoch = -1
        return found

    patch(ReplicaFetcher, "_replicate", replicates)
    patch(ReplicaFetcher, "_asked", asked)


def names_no_epoch(patch):
    """KIP-595."""
    asks = original(ReplicaFetcher, "_asked")

    def asked(self, one):
        found = asks(self, one)
        found.last_fetched_epoch = -1
        return found

    patch(ReplicaFetcher, "_asked", asked)


def cannot_begin_within_a_batch(patch):
    """KAFKA-6975."""
    whole_batches = replica_fetcher.whole_batches

    def batches(records, log, epoch):
        found = whole_batches(records, log, epoch)
        if found.begin_at is not None:
            raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR)
        return found

    patch(replica_fetcher, "whole_batches", batches)


def cuts_where_the_leaders_epoch_ends(patch):
    """KIP-279: without a look at its own epochs."""

    def offset(log, leader_epoch, leader_end_offset):
        return min(leader_end_offset, log.log_end_offset)

    patch(replica_fetcher, "truncation_offset", offset)


def cuts_at_the_high_watermark(patch):
    """KIP-101."""

    def offset(log, leader_epoch, leader_end_offset):
        return min(log.high_watermark, log.log_end_offset)

    patch(replica_fetcher, "truncation_offset", offset)


def cuts_no_epochs_at_the_end(patch):
    truncate = ModelLog.truncate

    def cuts(self, offset):
        if offset < self.log_end_offset:
            truncate(self, offset)

    patch(ModelLog, "truncate", cuts)


def begins_anew_with_the_old_high_watermark(patch):
    """KAFKA-9491."""
    begin_anew = ModelLog.begin_anew

    def begins(self, offset):
        high_watermark = self.high_watermark
        begin_anew(self, offset)
        self.high_watermark = high_watermark

    patch(ModelLog, "begin_anew", begins)


def does_not_begin_anew(patch):
    """KAFKA-9491: the log that ends before the leader's begins goes on as if nothing was."""
    find_place = original(ReplicaFetcher, "_find_place")

    def finds(self, one, leader_offset):
        if one.phase is Phase.ASKING_EARLIEST:
            leader_offset = min(leader_offset, one.log.log_end_offset)
        return find_place(self, one, leader_offset)

    patch(ReplicaFetcher, "_find_place", finds)


def dies_out_of_range(patch):
    """KAFKA-7414."""
    judge = original(ReplicaFetcher, "_judge")

    def judges(self, one, data, now_ms):
        if data.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
            return [Failed(one.key, "out of range")]
        return judge(self, one, data, now_ms)

    patch(ReplicaFetcher, "_judge", judges)


def all_partitions_fail_with_one(patch):
    """KIP-461."""

    def refused(self, one, error, now_ms):
        for other in self.partitions.values():
            other.phase = Phase.FAILED
        return []

    patch(ReplicaFetcher, "_refused", refused)


def is_fenced_for_ever(patch):
    """UNKNOWN_LEADER_EPOCH is taken for FENCED_LEADER_EPOCH."""
    refused = original(ReplicaFetcher, "_refused_by_leader")

    def refuses(self, one, error_code, now_ms):
        if error_code == ErrorCode.UNKNOWN_LEADER_EPOCH:
            error_code = ErrorCode.FENCED_LEADER_EPOCH
        refused(self, one, error_code, now_ms)

    patch(ReplicaFetcher, "_refused_by_leader", refuses)


# The leader


def counts_a_diverging_fetch(patch):
    """KAFKA-13141."""
    fetched = LeaderState.fetched

    def counts(self, replica_id, fetch_offset, log_start_offset, broker_epoch, read, now_ms):
        read = FollowerRead(read.log_end_offset)
        return fetched(self, replica_id, fetch_offset, log_start_offset, broker_epoch, read, now_ms)

    patch(LeaderState, "fetched", counts)


def counts_a_failed_fetch(patch):
    """KAFKA-8400."""
    read_for_follower = LeaderState.read_for_follower

    def counts(self, replica_id, leader_epoch, fetch_offset, last_fetched_epoch):
        try:
            return read_for_follower(self, replica_id, leader_epoch, fetch_offset, last_fetched_epoch)
        except KafkaError:
            if replica_id in self.followers:
                self.followers[replica_id].log_end_offset = fetch_offset
            raise

    patch(LeaderState, "read_for_follower", counts)


def serves_followers_of_any_epoch(patch):
    def check(self, replica_id, leader_epoch):
        if not self.is_leading or replica_id not in self.followers:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)

    patch(LeaderState, "check_follower", check)


def is_there(broker):
    return broker is not None and not broker.is_fenced and not broker.is_in_shutdown


def takes_the_log_end_of_another_life(patch):
    """KIP-903, in all three places: the fetch, who is eligible, and what the controller is told."""
    patch(LeaderState, "_check_broker_epoch", lambda *arguments: None)
    patch(LeaderState, "_broker_epoch_of", lambda self, replica_id: -1)
    patch(
        LeaderState,
        "_is_eligible",
        lambda self, replica_id: is_there(self.brokers(replica_id)),
    )


def does_not_wait_for_who_is_being_added(patch):
    """KIP-497: then the high watermark is wrong where the change was made and its answer is lost."""
    patch(InSync, "maximal", property(lambda self: self.isr))
    waits_for_nobody_who_is_joining(patch)


def does_not_wait_for_who_is_being_removed(patch):
    """KIP-497."""

    def maximal(self):
        if self.pending is None:
            return self.isr
        return frozenset(broker_id for broker_id, _ in self.pending.new_isr)

    patch(InSync, "maximal", property(maximal))


def commits_under_min_isr(patch):
    """KAFKA-15583, KIP-966."""
    patch(LeaderState, "is_under_min_isr", False)


def lets_in_at_the_high_watermark(patch):
    """KAFKA-7128."""
    patch(
        LeaderState,
        "_has_caught_up",
        lambda self, follower: follower.log_end_offset >= self.log.high_watermark,
    )


def a_rejected_change_stays_pending(patch):
    """KIP-841: INELIGIBLE_REPLICA."""
    altered = LeaderState.altered

    def waits(self, change, answer, now_ms):
        return [] if answer is ErrorCode.INELIGIBLE_REPLICA else altered(self, change, answer, now_ms)

    patch(LeaderState, "altered", waits)


def waits_for_nobody_who_is_joining(patch):
    """No loss by itself; but it covers what changes of the ISR might do wrong."""
    patch(LeaderState, "_is_joining", lambda *arguments: False)


def an_uncertain_change_is_taken_back(patch):
    waits_for_nobody_who_is_joining(patch)
    altered = LeaderState.altered

    def takes_back(self, change, answer, now_ms):
        if answer is ErrorCode.INVALID_UPDATE_VERSION:
            answer = ErrorCode.INELIGIBLE_REPLICA
        return altered(self, change, answer, now_ms)

    patch(LeaderState, "altered", takes_back)


def takes_late_answers(patch):
    def altered(self, change, answer, now_ms):
        if isinstance(answer, AlteredIsr):
            self.in_sync = InSync(frozenset(answer.isr))
        return self.appended(now_ms)

    patch(LeaderState, "altered", altered)


def a_repeated_view_ends_the_pending_change(patch):
    waits_for_nobody_who_is_joining(patch)
    patch(LeaderState, "_replaces_isr", lambda *arguments: True)


def forgets_changes_that_were_not_answered(patch):
    failed = AlterPartitionQueue.failed

    def forgets(self, request, now_ms):
        failed(self, request, now_ms)
        for change in request:
            self.forget(change.key)

    patch(AlterPartitionQueue, "failed", forgets)


def acknowledges_at_once(patch):
    patch(LeaderState, "acknowledgement", lambda *arguments: ErrorCode.NONE)


# The controller


def believes_in_who_was_shut_down_uncleanly(patch):
    """KIP-966."""
    begin = brokers.begin_incarnation
    patch(brokers, "begin_incarnation", lambda batch, one, *, was_clean: begin(batch, one, was_clean=True))


def takes_anyone_into_the_isr(patch):
    """KIP-841 and KIP-903."""
    patch(in_sync, "_is_eligible", lambda *arguments: True)


def takes_who_lags_for_dead(patch):
    """A heartbeat counts if its sender has what another broker has: so a cut in one direction gets it fenced,
    though it is heard of."""
    contact = BrokerSessions.contact

    def counts(self, broker, now_ms):
        session = original(self, "_of")(broker)
        newest = max((one.metadata_offset for one in original(self, "_sessions").values()), default=-1)
        if session is None or session.metadata_offset >= newest:
            contact(self, broker, now_ms)

    patch(BrokerSessions, "contact", counts)


def keeps_the_others_eligible_beside_a_leader_that_commits_alone(patch):
    build = PartitionChangeBuilder.build

    def keeps(self):
        record = build(self)
        was_elected = record is not None and record.leader in self.partition.elr
        if was_elected and record.eligible_leader_replicas == []:
            record.eligible_leader_replicas = [one for one in self.partition.elr if one != record.leader]
        return record

    patch(PartitionChangeBuilder, "build", keeps)


FOUND_BY = {
    notes_no_epoch_without_records: 15,
    a_new_epoch_of_the_same_leader_restarts_nothing: 0,
    does_not_hear_of_another_isr_in_the_same_epoch: 4,
    believes_older_views: 202,
    begins_at_the_end_of_its_log: 0,
    applies_views_of_its_former_life: 0,
    does_not_send_a_changed_leader_epoch: 5,
    takes_answers_for_another_place: 7,
    takes_answers_that_it_had_given_up: 0,
    takes_the_high_watermark_of_another_log: 1,
    forgets_its_epoch_after_an_empty_answer: 30,
    names_no_epoch: 0,
    cannot_begin_within_a_batch: 23,
    cuts_where_the_leaders_epoch_ends: 4,
    cuts_at_the_high_watermark: 3,
    cuts_no_epochs_at_the_end: 12,
    begins_anew_with_the_old_high_watermark: 1,
    does_not_begin_anew: 1,
    dies_out_of_range: 1,
    all_partitions_fail_with_one: 0,
    is_fenced_for_ever: 6,
    counts_a_diverging_fetch: 9,
    counts_a_failed_fetch: 1641,
    does_not_wait_for_who_is_being_added: 1,
    does_not_wait_for_who_is_being_removed: 0,
    commits_under_min_isr: 4,
    lets_in_at_the_high_watermark: 11,
    a_rejected_change_stays_pending: 100,
    an_uncertain_change_is_taken_back: 112,
    takes_late_answers: 137,
    a_repeated_view_ends_the_pending_change: 18,
    forgets_changes_that_were_not_answered: 0,
    acknowledges_at_once: 0,
    believes_in_who_was_shut_down_uncleanly: 7,
    takes_who_lags_for_dead: 0,
    keeps_the_others_eligible_beside_a_leader_that_commits_alone: 184,
}
"""A seed that finds the bug. When worlds have changed, another one does.

Rules that no seed has missed, each with a test of its own beside this file or in `tests/storage`:
KAFKA-18723 (batches of a later leader): the bytes that a leader sends late would have to begin where the
follower's log ends, after a cut below that. KAFKA-7152, and that slow replicas leave the ISR: the controller
fences who is silent, and links heal; it costs time, not records. KIP-841, KAFKA-14292 and KAFKA-14296: the
controller refuses who is fenced or shutting down. KAFKA-13837: a follower waits after either error.
KIP-207, KAFKA-14372, KAFKA-13778, KAFKA-9004: these worlds have no clients that ask
for offsets or for the nearest replica. KAFKA-9617, KAFKA-10778, KAFKA-5634, KAFKA-3123: they concern the log
itself, which is a model here.
"""


def is_found(seed: int) -> bool:
    return World(seed, led=None).finds()


@pytest.mark.deep
@pytest.mark.parametrize("bug", FOUND_BY, ids=lambda bug: bug.__name__)
def test_a_planted_bug_is_found(bug, monkeypatch):
    bug(monkeypatch.setattr)
    assert any(is_found(seed) for seed in (FOUND_BY[bug], *range(SEARCHED)))


# --- The same, planted in the compiled part alone ---


class Planted(LedReplica):
    def __init__(self, state, log, unsaved, is_throttled):
        super().__init__(state, log, unsaved, is_throttled)
        self.state, self.log = state, log


class CountsFetchesBeyondTheEnd(Planted):
    """KAFKA-8400."""

    def is_ordinary(self, view, replica_id, broker_epoch, leader_epoch, offset, last_epoch, log_start):
        if offset > self.log.buffer.log_end_offset and replica_id in self.state.followers:
            self.state.followers[replica_id].log_end_offset = offset
        return super().is_ordinary(
            view, replica_id, broker_epoch, leader_epoch, offset, last_epoch, log_start
        )


class DoesNotWaitForWhoIsBeingAdded(Planted):
    """KIP-497: a change on its way counts for nothing, and nobody is waited for who is joining."""

    def is_plain(self, view):
        self.state.in_sync = InSync(self.state.in_sync.isr)
        return super().is_plain(view)

    def committed(self, now_ms):
        offsets = [
            follower.log_end_offset
            for replica_id, follower in self.state.followers.items()
            if replica_id in self.state.in_sync.isr
        ]
        offset = min([self.log.buffer.log_end_offset, *offsets])
        return max(offset, self.log.high_watermark.offset)


class CommitsUnderMinIsr(Planted):
    """KAFKA-15583, KIP-966."""

    def is_under_min_isr(self):
        return False


class CommitsAtTheLogEnd(Planted):
    def committed(self, now_ms):
        return self.log.buffer.log_end_offset


class WaitsForOneFollower(Planted):
    def committed(self, now_ms):
        found = max([follower.log_end_offset for follower in self.state.followers.values()], default=0)
        return max(min(found, self.log.buffer.log_end_offset), self.log.high_watermark.offset)


class BelievesInTheIsrOfItsFirstLook(Planted):
    first = None

    def is_plain(self, view):
        if self.first is None and super().is_plain(view):
            self.first = view
        return self.first is not None


FOUND_IN_COMPILED_BY = {
    CountsFetchesBeyondTheEnd: 7,
    DoesNotWaitForWhoIsBeingAdded: 0,
    CommitsUnderMinIsr: 4,
    CommitsAtTheLogEnd: 0,
    WaitsForOneFollower: 0,
    BelievesInTheIsrOfItsFirstLook: 0,
}
"""A seed that finds the bug. All other rules of the leader are those of `LeaderState`, which the compiled
part asks or leaves alone.

No seed finds a compiled part that does not compare leader epochs, or that takes a diverging log for an
ordinary one: each is guarded twice. The first fetch of a follower in an epoch, and each of one that is not in
the ISR, is decided by `LeaderState`.
"""


@pytest.mark.deep
@pytest.mark.parametrize("led", FOUND_IN_COMPILED_BY, ids=lambda led: led.__name__)
def test_a_bug_that_is_planted_in_the_compiled_leader_is_found(led):
    seeds = (FOUND_IN_COMPILED_BY[led], *range(SEARCHED))
    assert any(World(seed, led).finds() for seed in seeds)


# --- Scripts, for what takes too many accidents ---


class Script(World):
    KEY = ("a", 0)

    def __init__(self) -> None:
        super().__init__(0)
        self.chaos = self.has_elr = False
        self.min_isr = 1
        self.controller.configure(min_isr=1, has_elr=False, is_unclean=self.controller.is_unclean)
        self.begin()
        self.run(1_500)
        partition = self.controller.partitions[self.KEY]
        self.leader = self.nodes[partition.leader]
        self.follower, self.other = (self.nodes[one] for one in partition.replicas if one != partition.leader)

    def links(self, one, other) -> set[tuple[int, int]]:
        return {(one.id, other.id), (other.id, one.id)}


class LateChange(Script):
    """The leader asks for a follower to come into the ISR. The request takes so long that the follower has
    crashed meanwhile, has lost all records, and is registered again.
    """

    changes_are_late = False

    def send(self, source, target, action, *arguments) -> None:
        is_change = bool(arguments) and arguments[0] == self.controller.alter_partition
        if not (is_change and self.changes_are_late):
            super().send(source, target, action, *arguments)

    def play(self) -> "World":
        follower, links = self.follower, self.links(self.leader, self.follower)
        self.blocked |= links
        self.produce_everywhere()
        self.run(2_000)
        assert follower.id not in self.controller.partitions[self.KEY].isr
        self.changes_are_late = True
        self.blocked -= links
        self.run(500)
        assert follower.id in self.leader.replicas[self.KEY].leader.in_sync.maximal
        self.blocked |= links
        follower.crash(loses=False)
        for key, log in follower.disk.items():
            log.flushed_offset = 0
            follower.lose(key, log, 0)
        self.run(4_000)
        assert self.controller.is_active(follower.id)
        self.changes_are_late = False
        self.run(1_500)
        return self.end()


def test_a_late_change_takes_nobody_in_who_has_lost_what_it_had():
    world = LateChange().play()
    assert world.complaints == []
    assert world.counts["INELIGIBLE_REPLICA"]


@pytest.mark.parametrize("bug", [takes_the_log_end_of_another_life, takes_anyone_into_the_isr])
def test_a_late_change_finds_who_does_not_look_at_broker_epochs(bug, monkeypatch):
    bug(monkeypatch.setattr)
    assert LateChange().play().complaints


class MissedEpoch(Script):
    """A leader does not hear of an epoch in which another leads and cuts a follower; then it leads again.
    A request of the follower from before the cut comes after that.
    """

    late: list | None = None

    def send(self, source, target, action, *arguments) -> None:
        if self.late is not None and (source, target) == (self.follower.id, self.leader.id):
            self.late.append((action, arguments))
        else:
            super().send(source, target, action, *arguments)

    def elect(self, node) -> None:
        self.controller.begin_epoch(self.KEY, node.id)
        self.run(50)

    def play(self) -> "World":
        leader, follower, other = self.leader, self.follower, self.other
        to_other = self.links(leader, other)
        self.blocked |= to_other
        self.produce_everywhere()
        self.run(50)
        self.late = []
        self.run(300)
        assert self.late
        self.blocked.add((CONTROLLER, leader.id))
        self.elect(other)
        assert follower.disk[self.KEY].log_end_offset < leader.disk[self.KEY].log_end_offset
        self.blocked -= {(CONTROLLER, leader.id), *to_other}
        self.elect(leader)
        self.run(300)
        assert leader.replicas[self.KEY].leader.is_leading
        for action, arguments in self.late[:1]:
            leader.receive(action, arguments)
        self.run(200)
        self.late = None
        return self.end()


def test_a_leader_that_missed_an_epoch_commits_nothing_that_a_follower_has_lost_in_it():
    assert MissedEpoch().play().complaints == []


@pytest.mark.parametrize("bug", [knows_its_followers_when_it_leads_again, serves_followers_of_any_epoch])
def test_a_missed_epoch_finds_a_leader_that_believes_in_what_followers_had(bug, monkeypatch):
    bug(monkeypatch.setattr)
    assert MissedEpoch().play().complaints
