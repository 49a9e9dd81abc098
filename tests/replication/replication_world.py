"""Nodes with the machines of replication and a controller, over model logs and an unreliable network.

Every node runs the real `LeaderState`, `LedReplica`, `ReplicaFetchers` and `AlterPartitionQueue`; the
decisions are those of `coordinator/controller`. Without a `LedReplica` the world is the same by the same
seed. Requests and answers are late, lost, doubled or overtake each other, also
in one direction alone; nodes crash and lose what they had not flushed, are paused and wake up believing that
they lead, their clocks jump, their disks are slow; brokers are fenced, shut down in order, and partitions
move to other brokers. All by one seed; no real time passes.

What is judged: `complaints` has every record that was committed and is not where it should be, offsets that
have two records in one leader epoch, cuts below the high watermark without an unclean election, brokers that
are fenced though the controller hears of them, and what is not in order a while after the last trouble. A
high watermark that is lower at a new leader is no complaint.
"""

import random
from collections import Counter, defaultdict

from odradek.coordinator.replication._led import LedReplica
from odradek.coordinator.replication.alter_partition import AlterPartitionQueue
from odradek.coordinator.replication.in_sync import AlterIsr
from odradek.coordinator.replication.replica_fetcher import BeginAnew, Failed, Truncate
from odradek.coordinator.replication.replica_fetchers import ReplicaFetchers
from odradek.coordinator.replication.replica_state import (
    BeginEpoch,
    FollowerRead,
    HighWatermark,
    LeaderEffect,
    LeaderState,
)
from odradek.coordinator.replication.transitions import (
    Delete,
    Follow,
    Lead,
    Stop,
    transition,
)
from odradek.coordinator.replication.values import NO_LEADER
from odradek.wire.errors import ErrorCode, KafkaError
from odradek.wire.messages.fetch import (
    EpochEndOffset,
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    PartitionData,
)
from odradek.wire.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from tests.kit.simulation import Simulation
from tests.replication.controller import SESSION_MS, Controller, topic_id_of
from tests.replication.model_log import ModelLog, decode

LAG_MS = 800
HEARTBEAT_MS = 150
ANSWER_WITHIN_MS = 700
CHAOS_MS = 12_000
QUIET_MS = 6_000
CONTROLLER = 0
"""The address of the controller in the network; nodes are numbered from 1."""
NONE = int(ErrorCode.NONE)
IN_PLACE = "in place"
"""Counts looks at a partition that the compiled part has decided."""


TOPIC_NAMES = {topic_id_of(topic): topic for topic in ("a", "b")}


def first_high_watermark(checkpoint: int, log_start_offset: int, log_end_offset: int) -> int:
    """Where a replica begins: at its checkpoint (0 without one), never at the end of its log, which may hold
    records that no other replica has.
    """
    return min(max(checkpoint, log_start_offset), log_end_offset)


class LeaderSettings:
    replica_lag_time_max_ms = LAG_MS

    def __init__(self, min_isr: int) -> None:
        self.min_insync_replicas = min_isr


class FetcherSettings:
    max_wait_ms = 250
    min_bytes = 1
    max_bytes = 2_000
    partition_max_bytes = 600
    backoff_ms = 80


class Weather:
    """How likely what is, in one world: in each world some kinds of trouble are frequent, others absent."""

    KINDS = (
        ("crash", 4),
        ("cut_links", 5),
        ("pause", 2),
        ("shut_down", 1),
        ("set_clock", 1),
        ("slow_disk", 2),
        ("delete", 2),
        ("prefer", 2),
        ("reassign", 2),
        ("begin_epoch", 1),
    )

    def __init__(self, choose: random.Random) -> None:
        self.kinds = [getattr(World, name) for name, _ in self.KINDS]
        self.weights = [weight * choose.choice((0.2, 1, 1, 3)) for _, weight in self.KINDS]
        self.late = choose.choice((0.005, 0.02, 0.1))
        """Messages that take long."""
        self.lost = choose.choice((0.002, 0.01, 0.05))
        """Requests and answers, of nodes and controller."""
        self.image_lag_ms = choose.choice((8, 8, 300, 1_200))
        self.late_files = choose.choice((0, 0.05, 0.3))
        """Answers whose records are read when they are sent."""

    def trouble(self, choose: random.Random):
        return choose.choices(self.kinds, self.weights)[0]


class World(Simulation):
    def __init__(self, seed: int, led: type[LedReplica] | None = LedReplica) -> None:
        super().__init__(seed, now_ms=1_000)
        self.led = led
        """The compiled part of leaders; None: all is decided by `LeaderState`."""
        self.blocked: set[tuple[int, int]] = set()
        self.counts: Counter[str] = Counter()
        choose = self.random
        self.weather = Weather(choose)
        count = 3 + seed % 3
        self.has_elr = choose.random() < 0.6
        self.min_isr = choose.choice((1, 2, 2))
        keys = [("a", 0), ("b", 0), ("b", 1)]
        self.owners: dict = {}
        """Partition, offset, leader epoch -> the batch there."""
        self.committed: dict = {key: {} for key in keys}
        """Offset -> the batch that a consumer may have seen there."""
        self.dirty: set[tuple[int, tuple[str, int]]] = set()
        """Nodes that have lost records of a partition in a crash, and have not been in sync since then."""
        self.unclean: dict = defaultdict(list)
        """Leader epochs by elections of a replica that need not have everything."""
        self.deleted_to: Counter = Counter()
        self.nodes: dict[int, Node] = {}
        self.controller = Controller(
            self,
            {key: [1 + (place + one) % count for one in range(3)] for place, key in enumerate(keys)},
            min_isr=self.min_isr,
            has_elr=self.has_elr,
            is_unclean=choose.random() < 0.3,
        )
        self.nodes = {node_id: self.new_node(node_id) for node_id in range(1, count + 1)}
        self.consumers = [Consumer(self, key) for key in keys for _ in range(2)]

    def new_node(self, node_id: int) -> "Node":
        return Node(self, node_id)

    # The network

    def latency(self) -> int:
        return self.random.randrange(1, 1_500 if self.happens(self.weather.late) else 8)

    def send(self, source: int, target: int, action, *arguments) -> None:
        """`action` is done where it arrives: perhaps late, twice or never."""
        if (source, target) in self.blocked or self.happens(self.weather.lost):
            self.counts["lost"] += 1
            return
        for _ in range(2 if self.happens(0.01) else 1):
            self.at(self.latency(), self.arrive, source, target, action, arguments)

    def arrive(self, source: int, target: int, action, arguments) -> None:
        if (source, target) in self.blocked:
            return
        if target == CONTROLLER:
            action(*arguments)
        else:
            self.nodes[target].receive(action, arguments)

    # The controller

    def published(self) -> None:
        for node_id in self.nodes:
            lag_ms = self.random.randrange(self.weather.image_lag_ms) if self.chaos else 0
            see, image = self.nodes[node_id].see, self.controller.image
            self.at(lag_ms, self.send, CONTROLLER, node_id, see, image)

    def tick(self) -> None:
        self.controller.tick()
        self.at(100, self.tick)

    # Judging

    def stands(self, key, batch, who) -> None:
        """A batch is in the log of `who`."""
        known = self.owners.setdefault((key, batch.base_offset, batch.leader_epoch), batch)
        if known != batch:
            self.complain(f"{key}: {who} has {batch} where {known} stands")

    def is_of_this_era(self, key, leader_epoch: int) -> bool:
        return not self.unclean[key] or leader_epoch >= self.unclean[key][-1]

    def commits(self, key, batch, leader_epoch: int, who: str) -> None:
        """`who` has told somebody, in that leader epoch, that the batch is there to stay."""
        if not self.is_of_this_era(key, leader_epoch):
            return
        known = self.committed[key].setdefault(batch.base_offset, batch)
        if known != batch:
            self.complain(f"{key}: {who} tells {batch} where {known} was committed")
        for node in self.clean_members(key):
            self.holds(node, key, batch, f"after {who}")

    def clean_members(self, key):
        partition = self.controller.partitions[key]
        return [
            self.nodes[node_id]
            for node_id in sorted({*partition.isr, *partition.elr})
            if (node_id, key) not in self.dirty
        ]

    def holds(self, node, key, batch, when: str) -> None:
        log = node.disk.get(key)
        if log is None:
            self.complain(f"{key}: {node.id} has no log, and should have {batch}")
        elif batch.last_offset >= log.log_start_offset and batch != log.batch_at(batch.base_offset):
            self.complain(f"{key}: {node.id} lacks the committed {batch} {when}")

    def changed(self, key, added) -> None:
        """The controller has another ISR. Who comes into it has all that was committed."""
        for node_id in added:
            node, broker = self.nodes[node_id], self.controller.brokers[node_id]
            if node.is_up and node.broker_epoch == broker.epoch:
                self.dirty.discard((node_id, key))
        for node in self.clean_members(key):
            for batch in self.committed[key].values():
                self.holds(node, key, batch, "in the ISR or ELR")

    def fenced(self, broker_id: int, silent_ms: float) -> None:
        """The controller takes a broker for gone. It may hear nothing of the controller itself."""
        self.counts["fenced"] += 1
        if silent_ms <= SESSION_MS:
            self.complain(f"{broker_id} is fenced, and was heard of {silent_ms:.0f} ms ago")

    def elected(self, key, node_id: int, leader_epoch: int, unclean: bool, members) -> None:
        self.counts["unclean" if unclean else "elections"] += 1
        if unclean:
            self.begins_era(key, node_id, leader_epoch, members)

    def begins_era(self, key, node_id: int, leader_epoch: int, members) -> None:
        """One leads that need not have everything: what it lacks is lost, unless somebody has it."""
        others = [
            one
            for one in members
            if one != node_id and (one, key) not in self.dirty and self.controller.is_active(one)
        ]
        if others:
            self.complain(f"{key}: {node_id} leads though {others} have everything")
        self.unclean[key].append(leader_epoch)
        self.dirty.discard((node_id, key))
        log = self.nodes[node_id].disk.get(key) or ModelLog()
        self.committed[key] = {
            offset: batch for offset, batch in self.committed[key].items() if log.batch_at(offset) == batch
        }

    def begins_to_lead(self, node, key, leader_epoch: int) -> None:
        self.counts["leaders"] += 1
        partition = self.controller.partitions[key]
        members = {*partition.isr, *partition.elr}
        is_late = leader_epoch < partition.leader_epoch
        if (node.id, key) in self.dirty and (not is_late or members == {node.id}):
            # The last one in the ISR, which has come back with less than it had.
            self.begins_era(key, node.id, leader_epoch, members)
        if is_late:
            return  # it hears of a time that is over
        for batch in self.committed[key].values():
            self.holds(node, key, batch, f"and leads in epoch {leader_epoch}")

    def cuts(self, node, key, offset: int) -> None:
        self.counts["cuts"] += 1
        log = node.disk[key]
        last = log.batches[-1].leader_epoch if log.batches else -1
        if offset < log.high_watermark and all(epoch <= last for epoch in self.unclean[key]):
            self.complain(f"{key}: {node.id} cuts at {offset}, below {log.high_watermark}")

    def outcome(self) -> object:
        """All that has become of the world, whoever has decided it."""
        counts = self.counts.copy()
        del counts[IN_PLACE]
        logs = {
            (node.id, key): (log.batches, log.log_start_offset, log.high_watermark, log.epochs.entries())
            for node in self.nodes.values()
            for key, log in node.disk.items()
        }
        return counts, logs, self.committed, self.complaints, self.random.getstate()

    # Trouble

    def trouble(self) -> None:
        if not self.chaos:
            return
        choose = self.random
        node = choose.choice(list(self.nodes.values()))
        key = choose.choice(list(self.committed))
        self.weather.trouble(choose)(self, node, key)
        self.at(choose.randrange(50, 700), self.trouble)

    def crash(self, node, key) -> None:
        node.crash(loses=self.random.random() < 0.6)

    def pause(self, node, key) -> None:
        node.pause(self.random.choice((300, 1_500, 3_000)))

    def shut_down(self, node, key) -> None:
        node.wants_shutdown = True

    def set_clock(self, node, key) -> None:
        node.skew_ms += self.random.choice((-700, 700, 3_000))

    def slow_disk(self, node, key) -> None:
        node.disk_ms = self.random.choice((0, 30, 400))

    def delete(self, node, key) -> None:
        node.delete_records(key)

    def prefer(self, node, key) -> None:
        self.controller.prefer(key)

    def reassign(self, node, key) -> None:
        """One replica moves to the node; where that is under way already, it is cancelled."""
        partition = self.controller.partitions[key]
        target = [one for one in partition.replicas if one not in partition.removing]
        replaced = self.random.choice(target)
        if node.id in partition.adding:
            self.controller.reassign(key, None)
        elif node.id not in target:
            self.controller.reassign(key, [*(one for one in target if one != replaced), node.id])

    def begin_epoch(self, node, key) -> None:
        self.controller.begin_epoch(key)

    def cut_links(self, node, key) -> None:
        """To and from some, in one direction or both, or the controller alone; some of it heals soon."""
        choose = self.random
        others = [CONTROLLER, *(one for one in self.nodes if one != node.id)]
        chosen = choose.choice(([CONTROLLER], others, others[1:], choose.sample(others, 1)))
        direction = choose.random()
        links = [(node.id, one) for one in chosen if direction < 0.7]
        links += [(one, node.id) for one in chosen if direction > 0.3]
        if not 0.3 < direction < 0.7:
            self.counts["one-way cuts"] += 1
            self.counts["one-way cuts of the controller"] += CONTROLLER in chosen
        self.blocked.update(links)
        self.counts["cut links"] += 1
        self.at(choose.randrange(200, 2_500), self.blocked.difference_update, links)

    def produce(self) -> None:
        choose = self.random
        key = choose.choice(list(self.committed))
        node_id = self.controller.partitions[key].leader
        if node_id == NO_LEADER or self.happens(0.15):
            node_id = choose.choice(list(self.nodes))
        node = self.nodes[node_id]
        by_all = choose.random() < 0.7
        self.at(self.latency(), node.receive, node.produce, (key, next(self.numbers), by_all))
        if self.chaos:
            self.at(choose.randrange(1, 60), self.produce)

    # A run

    def begin(self) -> None:
        self.at(0, self.tick)
        for node in self.nodes.values():
            node.start()
        for consumer in self.consumers:
            self.at(500, consumer.read)

    def play(self) -> "World":
        self.begin()
        self.at(400, self.produce)
        self.at(1_500, self.trouble)
        self.run(CHAOS_MS)
        return self.end()

    def end(self) -> "World":
        self.chaos = False
        self.blocked.clear()
        for node in self.nodes.values():
            node.recover()
        self.run(QUIET_MS)
        self.judge_isr()
        self.produce_everywhere()
        self.run(1_500)
        self.judge_end()
        return self

    def produce_everywhere(self) -> None:
        for key, partition in self.controller.partitions.items():
            if partition.leader != NO_LEADER:
                self.nodes[partition.leader].produce(key, next(self.numbers), True)

    def judge_isr(self) -> None:
        for key, partition in self.controller.partitions.items():
            if partition.leader == NO_LEADER or set(partition.isr) != set(partition.replicas):
                self.complain(f"{key}: {partition} is not whole after the last trouble")

    def judge_end(self) -> None:
        self.judge_isr()
        for key, partition in self.controller.partitions.items():
            if partition.leader == NO_LEADER:
                continue
            leader = self.nodes[partition.leader].disk[key]
            for node_id in partition.replicas:
                log = self.nodes[node_id].disk[key]
                if log.log_end_offset != leader.log_end_offset:
                    self.complain(f"{key}: {node_id} ends at {log.log_end_offset}")
                if log.high_watermark != log.log_end_offset:
                    self.complain(f"{key}: {node_id} has {log.high_watermark} of {log.log_end_offset}")
                if log.log_start_offset < leader.log_start_offset:
                    self.complain(f"{key}: {node_id} begins at {log.log_start_offset}")
                if log.content_from(log.log_start_offset) != leader.content_from(log.log_start_offset):
                    self.complain(f"{key}: {node_id} has another log")
            for node_id, node in self.nodes.items():
                if node_id not in partition.replicas and key in node.disk:
                    self.complain(f"{key}: {node_id} still has a log")


class LedLog:
    """A log as `LedReplica` reads it."""

    def __init__(self, log: ModelLog) -> None:
        self.buffer = log
        self.high_watermark = self

    @property
    def offset(self) -> int:
        return self.buffer.high_watermark

    @property
    def log_start_offset(self) -> int:
        return self.buffer.log_start_offset


class Replica:
    """One replica on one node."""

    def __init__(self, node: "Node", key, log: ModelLog) -> None:
        self.log = log
        self.leader = LeaderState(key, node.id, log, node.broker, LeaderSettings(node.world.min_isr))
        led = node.world.led
        self.led = None if led is None else led(self.leader, LedLog(log), (), lambda key: False)
        self.is_busy = False
        self.held: list = []
        """Views that came while the log was being changed."""
        self.produces: list = []
        self.deletions: list = []

    @property
    def leader_epoch(self) -> int:
        return self.leader.leader_epoch


class Node:
    def __init__(self, world: World, node_id: int) -> None:
        self.world = world
        self.id = node_id
        self.disk: dict = {}
        known = world.controller.brokers.get(node_id)
        self.clean_epoch = -1 if known is None else known.epoch
        """The broker epoch that a stop in order has left behind."""
        self.is_up = False
        self.paused_until_ms = 0
        self.skew_ms = 0
        self.disk_ms = 0
        self.backlog: list = []
        self.life = 0
        self.wants_shutdown = False
        self.forget_all()

    def forget_all(self) -> None:
        self.life += 1
        self.image = None
        self.broker_epoch = -1
        self.views: dict = {}
        self.replicas: dict = {}
        self.queue = AlterPartitionQueue()
        self.fetchers = ReplicaFetchers(self.id, lambda: self.broker_epoch, FetcherSettings())
        self.wakes: dict = {}
        self.sessions: dict = {}
        self.polls: list = []
        self.backlog = []

    @property
    def now_ms(self) -> int:
        return self.world.now_ms + self.skew_ms

    def broker(self, broker_id: int):
        return None if self.image is None else self.image.brokers.get(broker_id)

    # Life

    def at(self, delay_ms: int, action, *arguments) -> None:
        """In this life, and not while it is paused."""
        self.world.at(delay_ms, self.wake, self.life, action, arguments)

    def wake(self, life: int, action, arguments) -> None:
        if life == self.life:
            self.receive(action, arguments)

    def receive(self, action, arguments) -> None:
        if not self.is_up:
            return
        if self.world.now_ms < self.paused_until_ms:
            self.backlog.append((action, arguments))
        else:
            action(*arguments)

    def pause(self, milliseconds: int) -> None:
        if self.is_up:
            self.world.counts["pauses"] += 1
            self.paused_until_ms = self.world.now_ms + milliseconds
            self.world.at(milliseconds, self.go_on, self.life)

    def go_on(self, life: int) -> None:
        if life != self.life or self.world.now_ms < self.paused_until_ms:
            return
        backlog, self.backlog = self.backlog, []
        if self.world.random.random() < 0.5:
            # What a thread was about to do comes before what the sockets have.
            self.world.random.shuffle(backlog)
        for action, arguments in backlog:
            self.receive(action, arguments)

    def start(self) -> None:
        if self.is_up:
            return
        self.forget_all()
        self.is_up = True
        self.wants_shutdown = False
        self.paused_until_ms = 0
        for log in self.disk.values():
            log.high_watermark = first_high_watermark(
                log.checkpoint, log.log_start_offset, log.log_end_offset
            )
        self.incarnation = next(self.world.numbers).to_bytes(16, "big")
        self.at(1, self.register)
        self.at(HEARTBEAT_MS, self.heartbeat)
        self.at(self.world.random.randrange(100, 400), self.keep_files)
        self.at(LAG_MS // 2, self.shrink)

    def crash(self, *, loses: bool) -> None:
        if not self.is_up:
            return
        self.world.counts["crashes"] += 1
        self.stop()
        self.clean_epoch = -1
        if loses:
            for key, log in self.disk.items():
                self.lose(key, log, self.world.random.randint(log.flushed_offset, log.log_end_offset))

    def lose(self, key, log: ModelLog, offset: int) -> None:
        before = log.log_end_offset
        log.lose(offset)
        if log.log_end_offset < before:
            self.world.counts["losses"] += 1
            self.world.dirty.add((self.id, key))

    def stop(self) -> None:
        self.is_up = False
        self.forget_all()
        self.world.at(self.world.random.randrange(50, self.world.random.choice((300, 2_500))), self.start)

    def recover(self) -> None:
        self.paused_until_ms = min(self.paused_until_ms, self.world.now_ms)
        self.disk_ms = 0
        self.go_on(self.life)
        self.start()

    def keep_files(self) -> None:
        for log in self.disk.values():
            log.checkpoint = log.high_watermark
            if self.world.random.random() < 0.3:
                log.flush()
        self.at(self.world.random.randrange(200, 900), self.keep_files)

    # The controller

    def ask_controller(self, action, *arguments, then) -> None:
        """`then` gets the answer in this life, if it comes."""
        self.world.send(self.id, CONTROLLER, self.serve_request, action, arguments, self.life, then)

    def serve_request(self, action, arguments, life: int, then) -> None:
        """At the controller."""
        self.world.send(CONTROLLER, self.id, self.request_served, action(*arguments), life, then)

    def request_served(self, answer, life: int, then) -> None:
        if life == self.life:
            then(answer)

    def ask_controller_for(self, action, then) -> None:
        self.ask_controller(action, then=then)

    def register(self) -> None:
        if self.broker_epoch < 0:
            register = self.world.controller.register
            self.ask_controller(register, self.id, self.incarnation, self.clean_epoch, then=self.registered)
            self.at(300, self.register)

    def registered(self, epoch: int | None) -> None:
        if epoch is not None and self.broker_epoch < 0:
            self.broker_epoch = epoch

    def heartbeat(self) -> None:
        self.at(HEARTBEAT_MS, self.heartbeat)
        if self.broker_epoch < 0:
            return
        controller = self.world.controller
        offset = -1 if self.image is None else self.image.version
        self.ask_controller(
            controller.heartbeat,
            self.id,
            self.broker_epoch,
            offset,
            self.wants_shutdown,
            then=self.heartbeat_answered,
        )
        if self.image is None or self.image.version < controller.version:
            # The metadata log is fetched again and again.
            lag_ms = self.world.weather.image_lag_ms if self.world.chaos else 0
            self.at(lag_ms, self.ask_controller_for, lambda: controller.image, self.see)

    def heartbeat_answered(self, answer) -> None:
        if answer is None:
            # A late request of a former life has taken its place (STALE_BROKER_EPOCH).
            if self.broker_epoch >= 0:
                self.broker_epoch = -1
                self.register()
        elif answer[0] and self.wants_shutdown:
            self.world.counts["stops in order"] += 1
            for log in self.disk.values():
                log.flush()
                log.checkpoint = log.high_watermark
            self.clean_epoch = self.broker_epoch
            self.stop()

    def see(self, image) -> None:
        """A view comes; parts of it, or all, may be the same as before."""
        if not self.is_up or not 0 <= self.broker_epoch <= image.version:
            return  # before its registration: what it was in its last life it is no more
        if self.image is not None and image.version <= self.image.version:
            return
        self.image = image
        again = self.world.happens(0.1)
        for key, view in image.partitions.items():
            if again or view != self.views.get(key):
                self.views[key] = view
                if self.id in view.replicas or key in self.disk:
                    self.apply(key, view)
        self.pump()

    def apply(self, key, view) -> None:
        replica = self.replicas.get(key)
        if replica is not None and replica.is_busy:
            replica.held.append(view)
            return
        if replica is None:
            log = self.disk.get(key)
            if log is None:
                if self.id not in view.replicas:
                    return
                log = self.disk[key] = ModelLog()
            replica = self.replicas[key] = Replica(self, key, log)
        known = replica.leader.known
        change = transition(self.id, known, view, is_in_shutdown=self.wants_shutdown)
        if change is None:
            return
        if isinstance(change, Lead):
            self.fetchers.stop(key)
            effects = replica.leader.lead(view, self.now_ms)
            if change.is_new_epoch:
                self.world.begins_to_lead(self, key, view.leader_epoch)
            self.carry_out(replica, key, effects)
            self.settle(replica, key)
        else:
            self.step_down(replica, key, view)
            if isinstance(change, Follow) and change.restarts:
                self.fetchers.stop(key)
                log = self.followed_log(key, replica.log)
                effects = self.fetchers.follow(
                    key, topic_id_of(key[0]), change.leader, view.leader_epoch, log
                )
                self.change_logs(effects)
            elif isinstance(change, Stop | Delete):
                self.fetchers.stop(key)
                if isinstance(change, Delete):
                    del self.replicas[key], self.disk[key]
                    self.world.dirty.discard((self.id, key))
        self.wake_polls()

    def step_down(self, replica: Replica, key, view) -> None:
        replica.leader.resign(type(replica.leader.known)(view.leader_epoch, view.partition_epoch))
        replica.produces.clear()
        replica.deletions.clear()
        self.queue.forget(key)

    # As leader

    def carry_out(self, replica: Replica, key, effects) -> None:
        log = replica.log
        for effect in effects:
            if isinstance(effect, HighWatermark):
                assert log.high_watermark < effect.offset <= log.log_end_offset
                before, log.high_watermark = log.high_watermark, effect.offset
                for batch in log.between(before, effect.offset):
                    self.world.commits(key, batch, replica.leader_epoch, f"the leader {self.id}")
            elif isinstance(effect, BeginEpoch):
                log.epochs.assign(effect.leader_epoch, effect.start_offset)
            elif isinstance(effect, AlterIsr):
                self.world.counts["changes"] += 1
                self.queue.submit(effect)
        self.settle(replica, key)
        self.pump_queue()

    def settle(self, replica: Replica, key) -> None:
        waiting = []
        for produce in replica.produces:
            batch, leader_epoch = produce
            code = replica.leader.acknowledgement(batch.last_offset + 1, leader_epoch)
            if code is None:
                waiting.append(produce)
            elif code is ErrorCode.NONE:
                self.world.counts["acknowledged"] += 1
                self.world.commits(key, batch, leader_epoch, f"the leader {self.id} with an answer")
        replica.produces = waiting

    def shrink(self) -> None:
        for key, replica in self.replicas.items():
            self.carry_out(replica, key, replica.leader.shrink(self.now_ms))
        self.at(LAG_MS // 2, self.shrink)

    def pump_queue(self) -> None:
        request = self.queue.next_request(self.now_ms)
        if request is None:
            return
        is_open = True

        def answered(answers):
            nonlocal is_open
            if not is_open:
                return
            is_open = False
            if isinstance(answers, ErrorCode):
                self.queue.failed(request, self.now_ms)
            else:
                for change, answer in self.queue.answered(request, answers):
                    if isinstance(answer, ErrorCode):
                        self.world.counts[answer.name] += 1
                    replica = self.replicas.get(change.key)
                    if replica is not None:
                        effects = replica.leader.altered(change, answer, self.now_ms)
                        self.carry_out(replica, change.key, effects)
            self.pump_queue()

        def given_up():
            if is_open:
                answered(ErrorCode.REQUEST_TIMED_OUT)

        controller = self.world.controller
        self.ask_controller(controller.alter_partition, self.id, self.broker_epoch, request, then=answered)
        self.at(ANSWER_WITHIN_MS, given_up)
        self.at(ANSWER_WITHIN_MS + 60, self.pump_queue)

    def produce(self, key, value: int, by_all: bool) -> None:
        replica = self.replicas.get(key)
        if replica is None or replica.is_busy:
            return
        try:
            replica.leader.check_append(by_all=by_all)
        except KafkaError as error:
            self.world.counts[error.code.name] += 1
            return
        epoch = replica.leader_epoch
        batch = replica.log.append_new(epoch, value, self.world.random.choice((1, 1, 3)))
        self.world.stands(key, batch, self.id)
        self.world.counts["produced"] += 1
        if by_all:
            replica.produces.append((batch, epoch))
        offset = None if replica.led is None else replica.led.appended(self.image, self.now_ms)
        if offset is None:
            self.carry_out(replica, key, replica.leader.appended(self.now_ms))
        else:
            self.carry_out(replica, key, self.advanced(replica, key, offset))
        self.wake_polls()

    @staticmethod
    def advanced(replica: Replica, key, offset: int) -> list[LeaderEffect]:
        """Effects of what the compiled part has decided."""
        return [HighWatermark(key, offset)] if offset > replica.log.high_watermark else []

    def delete_records(self, key) -> None:
        """As leader for a client, as follower by its own retention."""
        replica = self.replicas.get(key)
        if replica is not None and not replica.is_busy and self.is_up:
            log = replica.log
            offset = self.world.random.randint(log.log_start_offset, log.high_watermark)
            self.world.deleted_to[key] = max(self.world.deleted_to[key], offset)
            log.raise_start(offset)
            self.fetchers.log_changed(key)

    def serve_fetch(self, follower: int, request: FetchRequest, answer) -> None:
        sessions = self.sessions
        if request.session_epoch == 0:
            sessions.pop(request.session_id, None)
            session = Session(next(self.world.numbers))
            sessions[session.id] = session
        else:
            session = sessions.get(request.session_id)
            if session is None:
                return answer(FetchResponse(error_code=70, session_id=0, responses=[]))
            if session.epoch != request.session_epoch:
                return answer(FetchResponse(error_code=71, session_id=0, responses=[]))
        session.update(request)
        broker_epoch = request.replica_state.replica_epoch
        found = self.read_all(follower, broker_epoch, session, notes=True)
        if session.is_news(found):
            return answer(session.answer(found))
        poll = Poll(follower, broker_epoch, session, answer)
        self.polls.append(poll)
        self.at(request.max_wait_ms, self.end_poll, poll)

    def wake_polls(self) -> None:
        for poll in list(self.polls):
            found = self.read_all(poll.follower, poll.broker_epoch, poll.session, notes=False)
            if any(data.records or data.error_code or data.diverging_epoch for data in found.values()):
                self.polls.remove(poll)
                poll.answer(poll.session.answer(found))

    def end_poll(self, poll) -> None:
        if poll in self.polls:
            self.polls.remove(poll)
            found = self.read_all(poll.follower, poll.broker_epoch, poll.session, notes=False)
            poll.answer(poll.session.answer(found))

    def read_all(self, follower: int, broker_epoch: int, session, *, notes: bool) -> dict:
        return {
            place: self.read(follower, broker_epoch, place, asked, notes=notes)
            for place, asked in session.partitions.items()
        }

    def read(self, follower: int, broker_epoch: int, place, asked, *, notes: bool) -> PartitionData:
        key = TOPIC_NAMES[place[0]], place[1]
        replica = self.replicas.get(key)
        data = PartitionData(partition_index=place[1], error_code=0, high_watermark=-1, records=b"")
        if replica is None:
            data.error_code = int(ErrorCode.UNKNOWN_TOPIC_ID)
            return data
        leader, log, led = replica.leader, replica.log, replica.led
        offset, epoch = asked.fetch_offset, asked.current_leader_epoch
        is_ordinary = led is not None and led.is_ordinary(
            self.image,
            follower,
            broker_epoch,
            epoch,
            offset,
            asked.last_fetched_epoch,
            asked.log_start_offset,
        )
        try:
            if is_ordinary:
                self.world.counts[IN_PLACE] += 1
                read = FollowerRead(log.log_end_offset)
            else:
                read = leader.read_for_follower(follower, epoch, offset, asked.last_fetched_epoch)
            data.high_watermark, data.log_start_offset = log.high_watermark, log.log_start_offset
            if read.diverging is not None:
                self.world.counts["diverging"] += 1
                data.diverging_epoch = EpochEndOffset(
                    epoch=read.diverging.epoch, end_offset=read.diverging.end_offset
                )
            else:
                batches = log.between(asked.fetch_offset, log.log_end_offset)[:6]
                data.records = b"".join(batch.encode() for batch in batches)
                if len(batches) > 1 and self.world.random.random() < 0.2:
                    data.records = data.records[: -self.world.random.randrange(1, 60)]
            if notes and is_ordinary:
                committed = led.fetched(follower, offset, self.now_ms)
                self.carry_out(replica, key, self.advanced(replica, key, committed))
            elif notes:
                effects = leader.fetched(
                    follower, offset, asked.log_start_offset, broker_epoch, read, self.now_ms
                )
                self.carry_out(replica, key, effects)
        except KafkaError as error:
            self.world.counts[error.code.name] += 1
            data.error_code = int(error.code)
            data.records, data.diverging_epoch = b"", None
        return data

    def send_from_file(self, request: FetchRequest, response: FetchResponse, answered, follower: int) -> None:
        """The records of an answer are read when the socket takes them: perhaps the log has been cut and has
        gone on otherwise."""
        asked = {(topic.topic_id, one.partition): one for topic in request.topics for one in topic.partitions}
        for topic in response.responses:
            for data in topic.partitions:
                place = topic.topic_id, data.partition_index
                log = self.disk.get((TOPIC_NAMES[place[0]], place[1]))
                if data.records and place in asked and log is not None:
                    offset = asked[place].fetch_offset
                    batches = log.between(offset, log.log_end_offset)[:6]
                    if batches and batches[0].base_offset == offset:
                        data.records = b"".join(batch.encode() for batch in batches)
        self.world.send(self.id, follower, answered, response)

    def serve_offsets(self, request, answer) -> None:
        topics = []
        for topic in request.topics:
            found = []
            for asked in topic.partitions:
                replica = self.replicas.get((topic.name, asked.partition_index))
                data = ListOffsetsPartitionResponse(partition_index=asked.partition_index, error_code=0)
                try:
                    if replica is None:
                        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
                    replica.leader.check_follower(request.replica_id, asked.current_leader_epoch)
                    log = replica.log
                    data.offset = log.log_end_offset if asked.timestamp == -1 else log.log_start_offset
                except KafkaError as error:
                    data.error_code = int(error.code)
                found.append(data)
            topics.append(ListOffsetsTopicResponse(name=topic.name, partitions=found))
        answer(ListOffsetsResponse(topics=topics))

    # As follower

    def followed_log(self, key, log: ModelLog):
        """The log as its fetcher sees it."""
        return log

    def pump(self) -> None:
        self.fetchers.take_idle()
        for fetcher in self.fetchers.fetchers.values():
            self.pump_fetcher(fetcher)

    def pump_fetcher(self, fetcher) -> None:
        request = fetcher.next_request(self.now_ms)
        if request is None:
            self.wake_later(fetcher)
        else:
            self.ask(fetcher, request)

    def ask(self, fetcher, request) -> None:
        world, leader, life = self.world, self.world.nodes[fetcher.leader_id], self.life
        is_fetch = isinstance(request, FetchRequest)

        def answer(response):
            if is_fetch and world.happens(world.weather.late_files):
                world.at(
                    world.random.randrange(500), leader.send_from_file, request, response, answered, self.id
                )
            else:
                world.send(leader.id, self.id, answered, response)

        def answered(response):
            if life != self.life:
                return
            judge = fetcher.fetch_answered if is_fetch else fetcher.offsets_answered
            self.change_logs(judge(request, response, self.now_ms))
            self.pump_fetcher(fetcher)

        def given_up():
            fetcher.failed(request, self.now_ms)
            self.pump_fetcher(fetcher)

        if is_fetch:
            world.send(self.id, leader.id, leader.serve_fetch, self.id, request, answer)
        else:
            world.counts["out of range"] += 1
            world.send(self.id, leader.id, leader.serve_offsets, request, answer)
        self.at(ANSWER_WITHIN_MS, given_up)

    def wake_later(self, fetcher) -> None:
        wake_at_ms = fetcher.wake_at_ms
        if wake_at_ms is not None and self.wakes.get(fetcher) != wake_at_ms:
            self.wakes[fetcher] = wake_at_ms
            self.at(max(wake_at_ms - self.now_ms, 1), self.pump_fetcher_if_there, fetcher)

    def pump_fetcher_if_there(self, fetcher) -> None:
        self.wakes.pop(fetcher, None)
        if self.fetchers.fetchers.get((fetcher.leader_id, 0)) is fetcher:
            self.pump_fetcher(fetcher)

    def change_logs(self, effects) -> None:
        for effect in effects:
            replica = self.replicas[effect.key]
            if isinstance(effect, Failed):
                self.world.complain(f"{self.id}: {effect}")
                continue
            assert not replica.is_busy
            replica.is_busy = True
            delay_ms = self.world.random.randrange(self.disk_ms + 1) if self.disk_ms else 0
            if delay_ms:
                self.at(delay_ms, self.change_log, effect)
            else:
                self.change_log(effect)

    def change_log(self, effect) -> None:
        replica, key = self.replicas[effect.key], effect.key
        log, error = replica.log, None
        if isinstance(effect, Truncate):
            self.world.cuts(self, key, effect.offset)
            log.truncate(effect.offset)
        elif isinstance(effect, BeginAnew):
            self.world.counts["begun anew"] += 1
            log.begin_anew(effect.offset)
        else:
            error = self.replicate(log, effect)
        if not log.log_start_offset <= log.high_watermark <= log.log_end_offset:
            self.world.complain(f"{key}: {self.id} has the high watermark {log.high_watermark}")
        replica.is_busy = False
        self.change_logs(self.fetchers.done(key, error, self.now_ms))
        held, replica.held = replica.held, []
        for view in held:
            self.apply(key, view)
        self.wake_polls()
        self.pump()

    def replicate(self, log: ModelLog, effect) -> Exception | None:
        key = effect.key
        if self.world.happens(0.01):
            return KafkaError(ErrorCode.CORRUPT_MESSAGE)  # damaged on its way
        if effect.begin_at is not None:
            self.world.counts["begun within a batch"] += 1
            log.begin_anew(effect.begin_at)
        for batch in decode(effect.records):
            if batch.base_offset < log.log_end_offset:
                return KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR)
            log.append(batch)
            self.world.stands(key, batch, self.id)
        log.high_watermark = max(log.high_watermark, min(effect.high_watermark, log.log_end_offset))
        log.raise_start(effect.log_start_offset)
        if log.log_start_offset > self.world.deleted_to[key]:
            self.world.complain(f"{key}: {self.id} has deleted up to {log.log_start_offset}")
        return None


class Session:
    """A fetch session as the leader has it."""

    def __init__(self, session_id: int) -> None:
        self.id = session_id
        self.epoch = 0
        self.partitions: dict = {}
        self.sent: dict = {}

    def update(self, request: FetchRequest) -> None:
        for topic in request.forgotten_topics_data:
            for index in topic.partitions:
                self.partitions.pop((topic.topic_id, index), None)
        for topic in request.topics:
            for asked in topic.partitions:
                self.partitions[topic.topic_id, asked.partition] = asked
        self.epoch += 1

    def is_news_of(self, place, data: PartitionData) -> bool:
        return bool(
            data.records
            or data.error_code
            or data.diverging_epoch
            or self.sent.get(place) != (data.high_watermark, data.log_start_offset)
        )

    def is_news(self, found: dict) -> bool:
        """Whether the answer goes out at once; a new high watermark waits for the next one."""
        return not found or any(
            data.records or data.error_code or data.diverging_epoch for data in found.values()
        )

    def answer(self, found: dict) -> FetchResponse:
        responses = []
        for place, data in found.items():
            if place in self.partitions and self.is_news_of(place, data):
                failed = data.error_code or data.diverging_epoch
                self.sent[place] = None if failed else (data.high_watermark, data.log_start_offset)
                responses.append(FetchableTopicResponse(topic="", topic_id=place[0], partitions=[data]))
        return FetchResponse(error_code=0, session_id=self.id, responses=responses)


class Poll:
    def __init__(self, follower: int, broker_epoch: int, session: Session, answer) -> None:
        self.follower = follower
        self.broker_epoch = broker_epoch
        self.session = session
        self.answer = answer


class Consumer:
    """Reads on, from the leader or any other replica."""

    def __init__(self, world: World, key) -> None:
        self.world = world
        self.key = key
        self.offset = 0

    def read(self) -> None:
        world = self.world
        world.at(world.random.randrange(20, 120), self.read)
        node = world.nodes[world.random.choice(world.controller.partitions[self.key].replicas)]
        node.receive(self.read_from, (node,))

    def read_from(self, node: Node) -> None:
        replica = node.replicas.get(self.key)
        if replica is None or replica.is_busy:
            return
        log = replica.log
        if not log.log_start_offset <= self.offset <= log.log_end_offset:
            self.offset = log.log_start_offset
        for batch in log.between(self.offset, log.high_watermark)[:10]:
            self.world.counts["consumed"] += 1
            self.offset = batch.last_offset + 1
            # After an unclean election a follower may not have been cut yet.
            epoch = replica.leader_epoch if replica.leader.is_leading else batch.leader_epoch
            self.world.commits(self.key, batch, epoch, f"the replica {node.id}")
