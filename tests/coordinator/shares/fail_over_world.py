"""Nodes that lead a share partition and have its coordinator by turns, over one replicated log of states.

Every node runs what a node runs: `SharePartitions`, `SharePersister` and `ShareCoordinator` with their pure
machines. Around them all is a model: the log of `__share_group_state`, an unreliable network between nodes
and to the members of the group, a controller that elects, and views that reach each node late. A node that
has not heard of an election believes that it leads. Requests are lost or late, also so late that the one who
asked has given up and asked again; nodes crash and forget everything. All by one seed; no real time passes.

What is judged (`complaints`):

- An acknowledgement that was answered is in the log of states, and no leader that began after it, or has
  answered it, delivers the record.
- A leader whose next one has read the state changes it no more.
- What is done at the end was acknowledged by somebody, or delivered as often as it may be.
- Where the group has a dead letter queue (in every other world), it has what was rejected or delivered too
  often, at least once.
"""

import random
from collections import Counter
from collections.abc import Callable
from types import SimpleNamespace

from odradek.apis import share_state
from odradek.apis.share_partitions import SharePartitions
from odradek.coordinator.asked import Ticket
from odradek.coordinator.cluster.topics import SHARE_STATE_TOPIC
from odradek.coordinator.cluster.view import Broker, ClusterView, PartitionView, TopicView
from odradek.coordinator.shares.dead_letters.queue import DeadLetterQueue, End, QueueTopic, Request, Write
from odradek.coordinator.shares.partitions.share_partition import (
    Acknowledgement,
    AcknowledgeType,
    Demand,
    LogBatch,
)
from odradek.coordinator.shares.state.coordinator import ShareCoordinator
from odradek.coordinator.shares.state.keys import partition_in
from odradek.coordinator.shares.state.machine import ShareMachine
from odradek.coordinator.shares.state.persister import DeliveryState, SharePartitionKey
from odradek.coordinator.shares.state.settings import ShareStateSettings
from odradek.server.coordination.share_persister import SharePersister
from odradek.wire.errors import ErrorCode, KafkaError
from odradek.wire.messages.read_share_group_state import ReadShareGroupStateRequest
from odradek.wire.messages.write_share_group_state import WriteShareGroupStateRequest
from odradek.wire.share_batches import Batch
from tests.coordinator.fakes import FakeHandle, OneReplica
from tests.coordinator.shares.share_state_requests import asked, initialize, result_of
from tests.kit.simulation import Simulation

TOPIC_ID = bytes(15) + b"\x07"
TOPIC = "t"
KEY = SharePartitionKey("g", TOPIC_ID, 0)
NODES = (1, 2, 3)
MEMBERS = ("a", "b", "c")
LOCK_MS = 3_000
DELIVERIES_MAX = 6
ASK_WITHIN_MS = 900
PAUSE_MS = 150
"""Of the persister, before it tries again."""
CHAOS_MS = 40_000
QUIET_MS = 120_000
DONE_STATES = (DeliveryState.ACKNOWLEDGED, DeliveryState.ARCHIVING, DeliveryState.ARCHIVED)

CONFIG = SimpleNamespace(
    share_record_lock_duration_ms=LOCK_MS,
    share_delivery_count_limit=DELIVERIES_MAX,
    share_partition_max_record_locks=200,
    share_renew_acknowledge_enable=True,
    share_auto_offset_reset="earliest",
)

CONTEXT = SimpleNamespace(client_id="node", connection=SimpleNamespace(peer_host="node"), api_version=0)
"""Of requests between nodes."""


class Weather:
    """How likely what is, in one world."""

    def __init__(self, choose: random.Random) -> None:
        self.lost = choose.choice((0.0, 0.02, 0.1))
        self.late = choose.choice((0.0, 0.02, 0.1))
        """Longer than anybody waits for an answer."""
        self.view_lag_ms = choose.choice((5, 300, 4_000))
        self.elections_ms = choose.choice((1_500, 4_000))
        """Between two troubles, about."""
        self.crashes = choose.choice((0.0, 0.3))
        """Of the troubles; the others are elections."""
        self.stale = choose.choice((0.0, 0.3))
        """Members that ask a node which does not lead any more, as far as it knows."""


class StateLog:
    """One partition of `__share_group_state`, as all replicas together have it."""

    def __init__(self) -> None:
        self.records: list = []
        self.start = 0
        self.opened: list[OpenLog] = []
        """By the leaders of this epoch."""


class OpenLog(OneReplica):
    """The log as one coordinator has it, who may not lead it any more."""

    name = "states"

    def __init__(self, node, leader_epoch: int) -> None:
        self.node, self.world = node, node.world
        self.leader_epoch = leader_epoch
        self.life = node.life
        self.pending: list = []
        self.next_ms = self.told_ms = 0.0
        self.read_from = self.world.log.start
        self.world.log.opened.append(self)

    def append(self, records, then, producer=None) -> None:
        entry = (records, then)
        self.pending.append(entry)
        self.next_ms = max(self.next_ms, self.world.now_ms) + self.world.latency()
        self.world.at(self.next_ms - self.world.now_ms, self.settle, entry)

    def settle(self, entry) -> None:
        if self.node.life != self.life or entry not in self.pending:
            return
        self.pending.remove(entry)
        records, then = entry
        if self.leader_epoch == self.world.places[SHARE_STATE_TOPIC][1]:
            self.world.commit(records)
            self.tell(then, None)
        else:
            self.tell(then, KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER))

    def tell(self, then, error) -> None:
        """In order."""
        self.told_ms = max(self.told_ms, self.world.now_ms) + self.world.latency()
        self.node.after(self.told_ms - self.world.now_ms, lambda: then(error), self.life)

    def deposed(self) -> None:
        """Another one leads: what has reached it counts, and this one is not told so."""
        kept = self.world.random.randint(0, len(self.pending))
        for number, (records, then) in enumerate(self.pending):
            if number < kept:
                self.world.commit(records)
            self.tell(then, KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER))
        self.pending.clear()

    def read_all(self):
        self.read_from = self.world.log.start
        return iter(list(self.world.log.records))

    def delete_before(self, offset: int, then: Callable[[KafkaError | None], None]) -> None:
        log = self.world.log
        if self.leader_epoch != self.world.places[SHARE_STATE_TOPIC][1]:
            then(KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER))
            return
        del log.records[: offset - log.start]
        log.start = offset
        self.world.counts["prunings"] += 1
        then(None)


class Connection:
    """From one node to another: requests arrive in order, until it breaks."""

    def __init__(self, life: int) -> None:
        self.life = life
        """Of the other node."""
        self.is_broken = False
        self.last_ms = 0.0
        self.asked: list = []


class Peers:
    """What a node asks of others. Implements what `SharePersister` needs of `BrokerPeers`."""

    def __init__(self, node) -> None:
        self.node, self.world = node, node.world
        self.life = node.life
        self.connections: dict[int, Connection] = {}

    def ask(self, broker_id, request, answered) -> None:
        world = self.world
        other = world.nodes[broker_id]
        connection = self.connections.get(broker_id)
        if connection is None:
            connection = self.connections[broker_id] = Connection(other.life)
        once = _Once(answered)
        connection.asked.append(once)
        self.node.after(ASK_WITHIN_MS, lambda: once.is_answered or self.break_off(broker_id, connection))
        if world.happens(world.weather.lost):
            # All that comes behind it on this connection is lost, too.
            connection.is_broken = True
        if connection.is_broken:
            world.counts["lost requests"] += 1
            return
        delay_ms = world.latency()
        if world.happens(world.weather.late):
            delay_ms += world.random.uniform(1, 5) * ASK_WITHIN_MS
            world.counts["late requests"] += 1
        connection.last_ms = max(connection.last_ms, world.now_ms + delay_ms)
        world.at(connection.last_ms - world.now_ms, self.arrive, other, connection, request, once)

    def break_off(self, broker_id, connection) -> None:
        """No answer came in time: the connection is closed, and what is in it may arrive all the same."""
        if self.connections.get(broker_id) is connection:
            del self.connections[broker_id]
        for once in connection.asked:
            once(None)

    def arrive(self, other, connection, request, once) -> None:
        if not other.is_up or other.life != connection.life:
            self.node.after(0, lambda: self.break_off(other.node_id, connection), self.life)
            return
        if once.is_answered:
            self.world.counts["requests after their time"] += 1

        def respond(response) -> None:
            if not self.world.happens(self.world.weather.lost):
                self.node.after(self.world.latency(), lambda: once(response), self.life)

        other.serve(request).on_complete(respond)


class _Once:
    def __init__(self, answered) -> None:
        self.answered = answered
        self.is_answered = False

    def __call__(self, response) -> None:
        if not self.is_answered:
            self.is_answered = True
            self.answered(response)


class DeadLetters:
    """The dead letter queue of a node, whose topic takes all that reaches it. Implements what
    `SharePartitions` needs."""

    def __init__(self, node) -> None:
        self.node, self.world = node, node.world
        self.machine = DeadLetterQueue(self, lambda failures: PAUSE_MS)
        self.prefix, self.creates_topics = "", False

    def queue_of(self, group_id) -> str:
        return "queue"

    def copies(self, group_id) -> bool:
        return False

    def topic(self, name) -> QueueTopic:
        return QueueTopic(True, (1,), 2_000)

    def are_kept(self, group_id) -> bool:
        return self.world.has_dead_letters

    def write(self, key, topic, letter, ended):
        request = Request(key, topic, letter, ended)
        self.run(self.machine.add(request, self.node.clock_ms()))
        return request.cancel

    def run(self, effects) -> None:
        for effect in effects:
            if isinstance(effect, End):
                effect.request.ended()
            elif isinstance(effect, Write):
                taken = [(request.next_offset, last) for request, last in effect.lane.taken]
                self.world.at(self.world.latency(), self.arrive, effect.lane, taken, self.node.life)
            else:
                self.world.counts["dead letters given up"] += 1

    def arrive(self, lane, taken, life) -> None:
        """A batch may be taken though nobody hears of that, also from a node that has crashed meanwhile."""
        world = self.world
        is_lost = world.happens(world.weather.lost)
        if not is_lost or world.random.random() < 0.5:
            for first, last in taken:
                world.dead.update(range(first, last + 1))
        code = ErrorCode.NETWORK_EXCEPTION if is_lost else ErrorCode.NONE
        self.node.after(world.latency(), lambda: self.wrote(lane, code), life)

    def wrote(self, lane, code) -> None:
        self.run(self.machine.wrote(lane, code, self.node.clock_ms()))
        if code:
            self.node.after(PAUSE_MS, self.tick)

    def tick(self) -> None:
        self.run(self.machine.tick(self.node.clock_ms()))


class Leadership:
    """What `SharePartitions` needs of `apis.leadership.Leadership`."""

    replicas = None

    def __init__(self, node) -> None:
        self.node = node
        self.node_id = node.node_id

    @property
    def view(self) -> ClusterView:
        return self.node.view

    def lead(self, name, index):
        found = self.view.partition(name, index)
        if found.leader != self.node_id:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        return SimpleNamespace(leader_epoch=found.leader_epoch, view=found)


class Node:
    def __init__(self, world, node_id: int) -> None:
        self.world, self.node_id = world, node_id
        self.life = 0
        self.is_up = False
        self.start()

    def start(self) -> None:
        """With nothing in its memory."""
        world = self.world
        self.is_up = True
        self.view = world.newest_view()
        self.coordinator = ShareCoordinator(
            node_id=self.node_id,
            settings=ShareStateSettings(
                updates_per_snapshot=5,
                prune_interval_ms=900,
                cold_snapshot_interval_ms=2_000,
                topic_num_partitions=1,
            ),
            open_log=lambda index: OpenLog(self, self.view.partition(SHARE_STATE_TOPIC, 0).leader_epoch),
            clock_ms=self.clock_ms,
            call_later=lambda seconds, function: self.after(seconds * 1000, function),
        )
        judged = Judged(world, self.coordinator)
        self.handlers = {
            api.request: share_state.ShareStates(lambda: judged, api)
            for api in (share_state.READ, share_state.WRITE)
        }
        peers = Peers(self)
        self.persister = SharePersister(
            node_id=self.node_id,
            shares=lambda: judged,
            current_view=lambda: self.view,
            timers=self,
            create_topic=None,
            peers=lambda: peers,
            pause_ms=PAUSE_MS,
        )
        self.shares = SharePartitions(
            Leadership(self),
            self.persister,
            DeadLetters(self),
            lambda group: CONFIG,
            self,
            None,
            self.clock_ms,
            self.clock_ms,
        )
        self.coordinator.view_changed(self.view)

    def crash(self) -> None:
        self.life += 1
        self.is_up = False

    def clock_ms(self) -> int:
        return int(self.world.now_ms)

    def after(self, delay_ms, callback, life=None):
        """In this life of the node, or in that one; not in the next."""
        handle = FakeHandle(callback)
        life = self.life if life is None else life
        self.world.at(delay_ms, lambda: handle() if self.life == life else None)
        return handle

    def see(self, view) -> None:
        if self.is_up and view.version > self.view.version:
            self.view = view
            self.coordinator.view_changed(view)
            self.shares.view_changed()

    def serve(self, request):
        return self.handlers[type(request)](request, CONTEXT)

    # What members ask

    def fetch(self, member: str, records_max: int):
        """(leader epoch, what it has acquired); None while there is no state."""
        try:
            share, _ = self.shares.find(KEY, TOPIC)
        except KafkaError:
            return None
        partition = share.partition
        limits = self.shares.limits_of(KEY.group_id)
        if partition is None or not partition.can_acquire(limits):
            return None
        read_from = partition.next_offset()
        batches = [one for one in self.world.data if one.last_offset >= read_from][:10]
        demand = Demand(member, records_max, 5)
        found = partition.acquire(demand, read_from, batches, (), limits, self.clock_ms())
        self.shares.acquired(share)
        self.world.note_delivered(share, found)
        return share.leader_epoch, found

    def acknowledge(self, member: str, acknowledgement, then) -> None:
        """`then` gets None, or the error."""
        share = self.shares.known(KEY)
        if share is None:
            then(KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
            return
        epoch = share.leader_epoch

        def done(error) -> None:
            if error is None:
                self.world.note_answered(epoch, acknowledgement)
            then(error)

        self.shares.acknowledge(share, member, [acknowledgement], done)

    def leave(self, member: str, is_last: bool) -> None:
        share = self.shares.known(KEY)
        if share is not None:
            self.shares.release(share, member, lambda error: None)
        if is_last:
            self.shares.give_up_group(KEY.group_id)


class Judged:
    """The coordinator of a node, and whether it lets a fenced leader change something."""

    def __init__(self, world, coordinator) -> None:
        self.world, self.coordinator = world, coordinator

    def submit_state(self, command) -> None:
        world, ticket, request = self.world, command.ticket, command.request
        fence = world.fence

        def told(response) -> None:
            result = result_of(response)
            if result.error_code:
                world.counts[f"{type(request).__name__}: {ErrorCode(result.error_code).name}"] += 1
            elif isinstance(request, ReadShareGroupStateRequest):
                world.fence = max(world.fence, leader_epoch_in(request))
            elif isinstance(request, WriteShareGroupStateRequest) and leader_epoch_in(request) < fence:
                world.complain(f"leader {leader_epoch_in(request)} writes after leader {fence} has read")
            ticket.take(response)

        command.ticket = Ticket(told, ticket.refused)
        self.coordinator.submit_state(command)


def leader_epoch_in(request) -> int:
    _, one = partition_in(request)
    return one.leader_epoch


class World(Simulation):
    def __init__(self, seed: int) -> None:
        super().__init__(seed, now_ms=1_000.0)
        self.weather = Weather(self.random)
        self.counts: Counter[str] = Counter()
        self.log = StateLog()
        self.places = {TOPIC: (1, 0), SHARE_STATE_TOPIC: (2, 0)}
        """Leader and leader epoch, as the controller has them."""
        self.version = 0
        self.alive = set(NODES)
        self.data: list[LogBatch] = []
        self.end = 0
        self.has_dead_letters = seed % 2 == 1
        self.dead: Counter[int] = Counter()
        """Offsets in the dead letter queue."""
        self.rejected: set[int] = set()
        """Offsets that a member has rejected, and was told so."""
        self.delivered: Counter[int] = Counter()
        self.wanted_done: set[int] = set()
        """Offsets that a member has accepted or rejected, told so or not."""
        self.answered: dict[int, int] = {}
        """Of those that it was told of: by a leader of which epoch."""
        self.fence = -1
        """The newest leader that has read the state."""
        machine = ShareMachine(ShareStateSettings(), lambda topic_id: 1)
        for effect in machine.handle(asked(initialize(KEY, 0, 0), print), 0):
            self.log.records += getattr(effect, "records", [])
        self.nodes = {node_id: Node(self, node_id) for node_id in NODES}

    def latency(self) -> float:
        return self.random.uniform(1, 25)

    def play(self):
        for member in MEMBERS:
            self.at(self.latency(), self.turn_of, member)
        self.at(0, self.produce)
        self.at(self.weather.elections_ms, self.trouble)
        self.run(CHAOS_MS)
        self.chaos = False
        for _ in range(QUIET_MS // 1_000):
            self.run(1_000)
            if self.left() == 0:
                break
        else:
            self.complain(f"{self.left()} records are left")
        self.check_log()
        for offset in range(self.end):
            if offset not in self.wanted_done and self.delivered[offset] < DELIVERIES_MAX:
                self.complain(f"{offset} is done after {self.delivered[offset]} deliveries")
        self.check_dead_letters()
        return self

    def check_dead_letters(self) -> None:
        if not self.has_dead_letters:
            assert not self.dead
            return
        self.counts["dead letters"] += len(self.dead)
        self.counts["dead letters twice"] += self.dead.total() - len(self.dead)
        if not self.counts["dead letters given up"]:
            wanted = self.rejected | (set(range(self.end)) - self.wanted_done)
            for offset in wanted - self.dead.keys():
                self.complain(f"{offset} has no dead letter")

    # The cluster

    def newest_view(self) -> ClusterView:
        def topic(name, topic_id):
            leader, epoch = self.places[name]
            return TopicView(name, topic_id, (PartitionView(0, leader, epoch, NODES, NODES),))

        found = [topic(TOPIC, TOPIC_ID), topic(SHARE_STATE_TOPIC, bytes(16))]
        return ClusterView(
            version=self.version,
            brokers={number: Broker(number, {}) for number in sorted(self.alive)},
            topics={one.name: one for one in found},
            topic_names={one.topic_id: one.name for one in found},
        )

    def trouble(self) -> None:
        if not self.chaos:
            return
        choose = self.random
        if self.happens(self.weather.crashes) and len(self.alive) == len(NODES):
            self.crash(choose.choice(NODES))
        else:
            self.elect(choose.choice(list(self.places)))
        self.at(choose.uniform(0.3, 1.7) * self.weather.elections_ms, self.trouble)

    def elect(self, topic: str) -> None:
        """Another leader, or the same one again."""
        self.places[topic] = self.random.choice(sorted(self.alive)), self.places[topic][1] + 1
        self.counts[f"elections of {topic}"] += 1
        if topic == SHARE_STATE_TOPIC:
            opened, self.log.opened = self.log.opened, []
            for one in opened:
                one.deposed()
            self.check_log()
        self.publish()

    def crash(self, node_id: int) -> None:
        self.nodes[node_id].crash()
        self.alive.discard(node_id)
        self.counts["crashes"] += 1
        for topic, (leader, _) in self.places.items():
            if leader == node_id:
                self.elect(topic)
        self.publish()
        self.at(self.random.uniform(200, 2_000), self.restart, node_id)

    def restart(self, node_id: int) -> None:
        self.alive.add(node_id)
        self.publish()
        self.nodes[node_id].start()

    def publish(self) -> None:
        self.version += 1
        view = self.newest_view()
        for node in self.nodes.values():
            lag_ms = self.random.uniform(0, self.weather.view_lag_ms) if self.chaos else 5
            self.at(lag_ms, node.see, view)

    # The log of states

    def commit(self, records) -> None:
        self.log.records += records

    def state(self):
        machine = ShareMachine(ShareStateSettings(), lambda topic_id: 1)
        for key, value, _ in self.log.records:
            machine.replay(key, value)
        return machine.states[KEY].state

    def left(self) -> int:
        """Records that are not done, for the leader: that one has been archived need not be stored."""
        share = self.nodes[self.places[TOPIC][0]].shares.known(KEY)
        if share is None or share.partition is None or share.is_storing:
            return self.end
        return self.end - share.partition.start

    def check_log(self) -> None:
        """Whether it has all that was answered."""
        state = self.state()
        for offset in self.answered:
            if offset >= state.start_offset and not _is_done(state.batches, offset):
                self.complain(f"{offset} was acknowledged, and the log of states does not have that")

    # What is judged

    def note_delivered(self, share, found) -> None:
        self.counts["deliveries"] += len(found)
        for first, last, _ in found:
            for offset in range(first, last + 1):
                self.delivered[offset] += 1
                if self.answered.get(offset, share.leader_epoch + 1) <= share.leader_epoch:
                    self.complain(
                        f"leader {share.leader_epoch} delivers {offset}, which leader "
                        f"{self.answered[offset]} has acknowledged"
                    )

    def note_answered(self, epoch: int, acknowledgement) -> None:
        first, last, (kind,) = acknowledgement
        self.counts["acknowledgements"] += 1
        if kind in (AcknowledgeType.ACCEPT, AcknowledgeType.REJECT):
            # A late one of somebody else, of records before the start, is answered as if it counted.
            for offset in range(first, last + 1):
                if kind is AcknowledgeType.REJECT and offset not in self.answered:
                    self.rejected.add(offset)
                self.answered.setdefault(offset, epoch)

    # Producers and members

    def produce(self) -> None:
        if self.chaos:
            size = self.random.randint(1, 8)
            self.data.append(LogBatch(self.end, self.end + size - 1))
            self.end += size
            self.at(self.random.uniform(50, 500), self.produce)

    def turn_of(self, member: str) -> None:
        self.at(self.random.uniform(30, 300), self.turn_of, member)
        choose = self.random
        leader = self.places[TOPIC][0]
        node = self.nodes[choose.choice(NODES) if self.happens(self.weather.stale) else leader]
        if not node.is_up:
            return
        if self.happens(0.02):
            node.leave(member, is_last=choose.random() < 0.5)
            return
        told = node.fetch(member, choose.choice((1, 5, 20)))
        if told is None or self.happens(self.weather.lost):
            return
        _, found = told
        for first, last, _ in found:
            self.at(choose.uniform(1, 400), self.settle, member, node, node.life, first, last)

    def settle(self, member: str, node, life: int, first: int, last: int) -> None:
        """Some of what it has, and the rest later."""
        choose = self.random
        if node.life != life or self.happens(0.05):
            return
        until = choose.randint(first, last)
        kind = choose.choices(
            (AcknowledgeType.ACCEPT, AcknowledgeType.RELEASE, AcknowledgeType.REJECT), (8, 2, 1)
        )[0]
        if kind is not AcknowledgeType.RELEASE:
            self.wanted_done |= set(range(first, until + 1))

        def told(error) -> None:
            if error is not None:
                self.counts[f"refused: {error.code.name}"] += 1

        node.acknowledge(member, Acknowledgement(first, until, [kind]), told)
        if until < last:
            self.at(choose.uniform(1, 200), self.settle, member, node, life, until + 1, last)


def _is_done(batches: list[Batch], offset: int) -> bool:
    return any(
        first <= offset <= last and delivery_state in DONE_STATES
        for first, last, _, delivery_state in batches
    )
