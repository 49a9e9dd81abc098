"""A world of consumers of both protocols, topics that come and go, and one coordinator, in which everything
fails at times.

The coordinator is the real one, over a log that loses what is on its way when it crashes, and that is
compacted at times. Clients behave as clients do: one request at a time, the same again when no answer comes
(and then what they have to say in full), partitions given up and taken over in their own time. Requests are
late, lost or carried out twice, but those of one client never overtake each other: its connection is one
stream of bytes. For the same reason a client takes over partitions only with the answer to its last request:
then nothing that it said earlier is still under way.

`World.owners` and `World.take` judge by what clients were told and do, not by what the coordinator believes.
All by one seed; no real time passes.
"""

import itertools
import re
from collections import Counter

from odradek.coordinator.asked import Asked, kind_of
from odradek.coordinator.cluster.topics import OFFSETS_TOPIC
from odradek.coordinator.cluster.view import (
    ClusterView,
    PartitionView,
    TopicView,
)
from odradek.coordinator.group_coordinator import GroupCoordinator
from odradek.coordinator.group_machine import GroupMachine
from odradek.coordinator.groups.assignors import AssignedMember, AssignmentSpec, assign_uniform
from odradek.coordinator.groups.classic_group import ClassicGroup, GroupState
from odradek.coordinator.groups.consumer_group import ConsumerGroup
from odradek.coordinator.groups.group import JOIN_EPOCH, LEAVE_EPOCH, LEAVE_FOR_A_WHILE_EPOCH
from odradek.coordinator.groups.settings import GroupSettings
from odradek.coordinator.streams.group import StreamsGroup
from odradek.wire.errors import ErrorCode
from odradek.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from odradek.wire.messages.consumer_protocol import (
    AssignedTopicPartitions,
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    TopicPartition,
    decode_assignment,
    decode_subscription,
    encode,
)
from tests.coordinator import group_requests as requests
from tests.coordinator.shares.share_persister import FakePersister
from tests.kit.simulation import Connection, CoordinatorWorld

NONE = ErrorCode.NONE
SESSION_MS = 6_000
REBALANCE_MS = 8_000
"""Longer than a session: every round of joins gives a static member that is gone another session, so that
rounds in quick succession would keep it for ever."""
HEARTBEAT_MS = 1_000
ASSIGNMENT_INTERVALS_MS = (300, 0, 1_000)
"""By seed, in turn."""
ANSWER_WITHIN_MS = 2_000
AGAIN = frozenset(
    {
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
    }
)
LOST = frozenset(
    {
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.FENCED_MEMBER_EPOCH,
        ErrorCode.ILLEGAL_GENERATION,
        ErrorCode.GROUP_ID_NOT_FOUND,
    }
)
Place = tuple[bytes, int]
"""Topic id and partition."""


class World(CoordinatorWorld):
    """`groups` says for each group id of which classes its members are, in turn."""

    def __init__(
        self,
        seed: int,
        groups: dict[str, list[type["Client"]]],
        machine_class: type[GroupMachine] = GroupMachine,
        log_trouble: float = 0.002,
        loss: float = 0.02,
    ) -> None:
        """`log_trouble` is how likely an append fails, and how likely the coordinator crashes with it; `loss`
        how likely a request is lost, and how likely its answer."""
        super().__init__(seed, log_trouble)
        self.machine_class = machine_class
        self.loss = loss
        self.assignment_interval_ms = ASSIGNMENT_INTERVALS_MS[seed % len(ASSIGNMENT_INTERVALS_MS)]
        self.settings = GroupSettings(
            group_initial_rebalance_delay_ms=300,
            group_min_session_timeout_ms=SESSION_MS,
            group_consumer_session_timeout_ms=SESSION_MS,
            group_consumer_min_session_timeout_ms=1_000,
            group_consumer_heartbeat_interval_ms=HEARTBEAT_MS,
            group_consumer_min_heartbeat_interval_ms=100,
            group_consumer_assignment_interval_ms=self.assignment_interval_ms,
            offsets_topic_num_partitions=1,
        )
        self.topics: dict[str, tuple[bytes, int]] = {}
        self.topic_ids = itertools.count(1)
        self.view = ClusterView()
        for name in ("t0", "t1", "t2", "u0", "u1"):
            self.topics[name] = self.new_topic_id(), self.random.randint(1, 40)
        self.holders: dict[tuple[str, Place], set[Client]] = {}
        """Who works on a partition, by group."""
        self.owners: dict[tuple[str, Place, int], str] = {}
        """Member or instance id by group, partition and epoch."""
        self.types: set[tuple[str, str]] = set()
        """Groups with the types that they have had."""
        self.clients: list[Client] = []
        self.start_coordinator()
        self.clients = [
            kind(self, group_id, index)
            for group_id, kinds in groups.items()
            for index, kind in enumerate(kinds)
        ]

    def latency(self) -> int:
        return self.random.randrange(1, 5_000 if self.happens(0.02) else 20)

    # Topics

    def new_topic_id(self) -> bytes:
        return next(self.topic_ids).to_bytes(16, "big")

    def publish(self) -> None:
        """The coordinator sees the topics as they are now."""
        views = {
            name: TopicView(name, topic_id, tuple(PartitionView(n, 1, 0, (1,), (1,)) for n in range(count)))
            for name, (topic_id, count) in self.topics.items()
        }
        own = PartitionView(0, 1, self.leader_epoch, (1,), (1,))
        views[OFFSETS_TOPIC] = TopicView(OFFSETS_TOPIC, bytes(15) + b"\xff", (own,), is_internal=True)
        names = {topic.topic_id: name for name, topic in views.items()}
        self.view = ClusterView(version=self.view.version + 1, topics=views, topic_names=names)
        self.coordinator.view_changed(self.view)

    def changeable(self) -> list[str]:
        """The topics with which anything may happen."""
        return sorted(self.topics)

    def change_topics(self) -> None:
        what, name = self.random.random(), self.random.choice(self.changeable())
        topic_id, count = self.topics[name]
        if what < 0.4:
            self.topics[name] = topic_id, count + self.random.randint(1, 5)
        elif what < 0.6:
            del self.topics[name]
            self.at(self.random.randrange(1, 8_000), self.bring_back, name)
        elif what < 0.8:
            self.topics[name] = self.new_topic_id(), self.random.randint(1, 40)
        else:
            self.topics[f"t{self.random.randrange(6)}"] = self.new_topic_id(), self.random.randint(1, 9)
        self.publish()

    def bring_back(self, name: str) -> None:
        if name not in self.topics:
            self.topics[name] = self.new_topic_id(), self.random.randint(1, 40)
            self.publish()

    # The coordinator

    def start_coordinator(self) -> None:
        self.leader_epoch += 1
        machine_class = self.machine_class

        class Coordinator(GroupCoordinator):
            def _new_machine(self, partition):
                return machine_class(self._settings, self._new_member_suffix, lambda: self._view)

        self.coordinator = Coordinator(
            node_id=1,
            settings=self.settings,
            open_log=self.open_log,
            clock_ms=self.clock_ms,
            call_later=self.call_later,
            new_member_suffix=lambda: f"#{next(self.numbers)}",
            persister=FakePersister,
            match_topics=self.match_topics,
        )
        self.publish()
        for client in self.clients:
            # Most see their connection go; the others find out in time.
            if not self.happens(0.2):
                self.at(self.latency(), client.disconnected)

    @property
    def machine(self) -> GroupMachine | None:
        """None while it is loaded."""
        partition = self.coordinator.partitions.get(0)
        return None if partition is None else partition.machine

    def match_topics(self, effect, then) -> None:
        found = {
            pattern: frozenset(name for name in self.topics if re.fullmatch(pattern, name))
            for pattern in effect.patterns
        }
        self.at(self.latency(), self.if_alive(then), None if self.happens(0.1) else found)

    def crash(self) -> None:
        self.crashes += 1
        self.log.crash()
        if self.random.random() < 0.5:
            self.compact()
        self.start_coordinator()

    def compact(self) -> None:
        """The beginning of the log keeps the last record of each key, and perhaps no tombstones."""
        records = self.log.records
        end = self.random.randint(0, len(records))
        last = {record[0]: place for place, record in enumerate(records[:end])}
        with_tombstones = self.random.random() < 0.5
        self.log.records = [
            record
            for place, record in enumerate(records[:end])
            if last[record[0]] == place and (record[1] is not None or with_tombstones)
        ] + records[end:]

    def reload(self) -> None:
        """A new coordinator reads the log, and finds what the old one knew; one member of each group dies."""
        self.settle()
        before = durable_state(self.machine)
        self.compact()
        for client in {client.group_id: client for client in self.clients if client.is_alive}.values():
            # Only the new coordinator can find out.
            client.die()
        self.start_coordinator()
        while self.machine is None:
            self.run(1)
        self.compare(before, durable_state(self.machine), "after a reload")

    def compare(self, known: dict[str, object], read: dict[str, object], where: str) -> None:
        for group_id, state in known.items():
            if state is not None and state != read.get(group_id):
                self.complain(f"{group_id} was {state} and is {read.get(group_id)} {where}")

    def settle(self) -> None:
        while self.machine is None or self.log.pending:
            self.run(1)

    # Clients

    def ask(self, client: "Client", make_command, then) -> None:
        """Bring a command to the coordinator and its answer back: late, or not at all. What is carried out
        twice is so because no answer came: there is none to either."""
        if self.happens(self.loss):
            return
        is_repeated = self.happens(0.04)
        for _ in range(1 + is_repeated):
            told = _unheard if is_repeated else then
            self.at(client.requests.delay_ms(), self.receive, client, make_command, told)

    def receive(self, client: "Client", make_command, then) -> None:
        def answer(reply) -> None:
            if not self.happens(self.loss):
                self.at(client.answers.delay_ms(), self.deliver, client, then, reply, self.view)

        self.submit(make_command(self.if_alive(answer)))

    def submit(self, command) -> None:
        self.coordinator.submit(group_of(command), command)

    def deliver(self, client: "Client", then, reply, view: ClusterView) -> None:
        client.view = view
        then(reply)

    # Judgement

    def take(self, client: "Client", places: set[Place], epoch: int) -> None:
        """A client begins to work on partitions, in an epoch of its group."""
        is_in_order = self.is_in_order(client)
        for place in places:
            holders = self.holders.setdefault((client.group_id, place), set())
            for other in holders:
                if is_in_order and other is not client and self.is_in_order(other):
                    self.complain(f"{client} takes {self.named(place)} that {other} still has")
            holders.add(client)
        self.work(client, places, epoch)

    def work(self, client: "Client", places: set[Place], epoch: int) -> None:
        """A client works on partitions in an epoch."""
        for place in places:
            who = client.instance_id or client.member_id
            owner = self.owners.setdefault((client.group_id, place, epoch), who)
            if owner != who:
                self.complain(f"{self.named(place)} is worked on by {owner} and {client} in epoch {epoch}")

    def drop(self, client: "Client", places: set[Place]) -> None:
        for place in places:
            self.holders[client.group_id, place].discard(client)

    def named(self, place: Place) -> str:
        return f"{int.from_bytes(place[0], 'big')}-{place[1]}"

    def is_in_order(self, client: "Client") -> bool:
        """Whether the coordinator still counts on it: a zombie works on what it had, in an old epoch."""
        machine = self.machine
        group = None if machine is None else machine.groups.get(client.group_id)
        member = None if group is None else group.members.get(client.member_id)
        if member is None:
            return False
        if isinstance(group, ConsumerGroup):
            return client.epoch in (member.current.member_epoch, member.current.previous_member_epoch)
        if isinstance(group, StreamsGroup):
            return client.epoch in (member.current.member_epoch, member.current.previous_member_epoch)
        return client.epoch == group.generation

    # Play

    def trouble(self) -> None:
        if not self.chaos:
            return
        if self.machine is not None:
            self.types |= {(group_id, one.group_type) for group_id, one in self.machine.groups.items()}
        what = self.random.random()
        client = self.random.choice(self.clients)
        if what < 0.04:
            self.crash()
        elif what < 0.14:
            self.change_topics()
        elif what < 0.4:
            client.die()
        elif what < 0.5:
            client.leave()
        elif what < 0.6:
            client.subscribe_anew()
        else:
            self.random.choice([each for each in self.clients if not each.is_alive] or [client]).begin()
        self.at(self.random.randrange(10, 400), self.trouble)

    def begin(self, milliseconds: int) -> None:
        """Everybody comes, and there is trouble."""
        for client in self.clients:
            self.at(self.random.randrange(3_000), client.begin)
        self.at(2_000, self.trouble)
        self.run(milliseconds)

    def play(self, milliseconds: int = 60_000) -> "World":
        """Trouble for a while; then peace, until the dead are forgotten."""
        self.begin(milliseconds)
        self.chaos = False
        for client in self.clients[::2]:
            client.begin()
        self.run(5_000 + 2 * SESSION_MS + REBALANCE_MS)
        return self

    def judge(self, heartbeats: int = 6) -> list[str]:
        """What is wrong: what was seen on the way, and what is not as it should be in peace, again so many
        heartbeats after one more change of topics, and again after a reload."""
        self.check_converged("in peace")
        self.change_topics_once_more()
        self.publish()
        self.run(heartbeats * HEARTBEAT_MS)
        self.check_converged("with new topics")
        self.reload()
        self.run(SESSION_MS + REBALANCE_MS + heartbeats * HEARTBEAT_MS)
        self.check_converged("after a reload")
        return self.complaints

    def change_topics_once_more(self) -> None:
        """One is made anew, one grows."""
        self.topics["t0"] = self.new_topic_id(), 17
        self.topics["u0"] = (self.topics.get("u0") or (self.new_topic_id(), 0))[0], 50

    def check_converged(self, when: str) -> None:
        by_group: dict[str, list[Client]] = {}
        for client in self.clients:
            if client.is_alive:
                by_group.setdefault(client.group_id, []).append(client)
        assert self.machine is not None
        for group_id, clients in by_group.items():
            group = self.machine.groups.get(group_id)
            if group is None or group.members.keys() != {client.member_id for client in clients}:
                self.complain(f"{when} {group_id} has other members than there are")
            elif group.state_name != "Stable":
                self.complain(f"{when} {group_id} is {group.state_name}")
            elif isinstance(group, ClassicGroup) is not all(client.is_classic for client in clients):
                self.complain(f"{when} {group_id} is a group of the type {group.group_type}")
            elif any(client.epoch != epoch_of(group) and not client.may_lag for client in clients):
                self.complain(f"{when} not everybody in {group_id} knows the epoch")
            self.check_partitions(when, group_id, clients)

    def check_partitions(self, when: str, group_id: str, clients: list["Client"]) -> None:
        """Every partition with subscribers has one, and nobody works on anything else."""
        wanted: Counter[Place] = Counter()
        for client in clients:
            for name in client.topics():
                if name in self.topics:
                    topic_id, count = self.topics[name]
                    wanted.update(dict.fromkeys(((topic_id, index) for index in range(count)), 1))
        worked_on = Counter(place for client in clients for place in client.owned)
        if worked_on.keys() != wanted.keys() or any(count > 1 for count in worked_on.values()):
            missing, wrong = wanted.keys() - worked_on.keys(), worked_on.keys() - wanted.keys()
            self.complain(
                f"{when} in {group_id} {len(missing)} partitions are left, {len(wrong)} are too many"
            )
        for client in clients:
            ids = {self.topics[name][0] for name in client.topics() if name in self.topics}
            if any(topic_id not in ids for topic_id, _ in client.owned):
                self.complain(f"{when} {client} works on what it does not subscribe to")
        loads = [len(client.owned) for client in clients]
        if all(isinstance(client, AlikeConsumer) for client in clients) and max(loads) - min(loads) > 1:
            self.complain(f"{when} in {group_id} members have from {min(loads)} to {max(loads)} partitions")


class AuditedWorld(World):
    """Reads the log along, and with each answer compares: nobody is told what the log does not have, and when
    nothing is on its way there, it has all that the coordinator knows.

    A bug in what is written, or when, shows in the first answer that it concerns. By what clients do of it,
    it shows only if the coordinator crashes in that moment and nothing is written again.
    """

    def start_coordinator(self) -> None:
        # What is in the log by now may have been compacted.
        self.reader = GroupMachine(self.settings, str, lambda: self.view)
        self.read = 0
        super().start_coordinator()

    def receive(self, client: "Client", make_command, then) -> None:
        def make_audited(ticket):
            def audited(reply) -> None:
                self.audit(command, reply)
                ticket(reply)

            command = make_command(audited)
            return command

        super().receive(client, make_audited, then)

    def audit(self, command, reply) -> None:
        is_news = self.read < len(self.log.records)
        while self.read < len(self.log.records):
            self.reader.replay(*self.log.records[self.read][:2])
            self.read += 1
        if (
            kind_of(command) is ConsumerGroupHeartbeatRequest
            and reply.error_code is NONE
            and reply.member_epoch > 0
        ):
            group = self.reader.groups.get(group_of(command))
            member = None if group is None else group.members.get(reply.member_id)
            epoch = None if member is None else member.current.member_epoch
            if epoch != reply.member_epoch:
                self.complain(f"{reply.member_id} is told epoch {reply.member_epoch}, the log has {epoch}")
        if is_news and self.machine is not None and not self.log.pending:
            self.compare(durable_state(self.machine), durable_state(self.reader), "in the log")


def group_of(command) -> str:
    return requests.group_of(command.request) if isinstance(command, Asked) else command.group_id


def _unheard(reply) -> None:
    pass


def epoch_of(group: ClassicGroup | ConsumerGroup | StreamsGroup) -> int:
    return group.generation if isinstance(group, ClassicGroup) else group.assignment_epoch


def durable_state(machine: GroupMachine) -> dict[str, object]:
    """What a log must bring back; None for a group of the classic protocol in a rebalance."""
    states: dict[str, object] = {}
    for group_id, group in machine.groups.items():
        if isinstance(group, ConsumerGroup):
            states[group_id] = (
                group.group_epoch,
                group.assignment_epoch,
                group.metadata_hash,
                {each: (member.metadata, member.current) for each, member in group.members.items()},
                {each: target for each, target in group.targets.items() if target},
                dict(group.subscriptions.resolved),
                dict(group.static_members),
            )
        elif isinstance(group, StreamsGroup):
            states[group_id] = (
                group.group_epoch,
                group.assignment_epoch,
                group.metadata_hash,
                group.validated_topology_epoch,
                group.topology,
                {
                    each: (member.metadata, member.current, group.targets.get(each))
                    for each, member in group.members.items()
                },
            )
        elif isinstance(group, ClassicGroup):
            is_settled = group.state in (GroupState.EMPTY, GroupState.STABLE)
            states[group_id] = (
                (group.state, group.record(group.state_timestamp_ms or -1)) if is_settled else None
            )
    return states


class Client:
    """A consumer of one group. Its process lives more than once; every third is a static member."""

    is_classic = False
    """Whether it speaks the classic protocol."""
    may_lag = False
    """Whether it need not know the epoch of a group that has nothing new for it."""

    def __init__(self, world: World, group_id: str, index: int) -> None:
        self.world = world
        self.group_id = group_id
        self.name = f"{group_id}.{index}"
        self.instance_id = f"i{index}" if index % 3 == 0 else None
        self.life = 0
        self.step = 0
        self.is_alive = False
        self.member_id = ""
        self.epoch = 0
        self.owned: set[Place] = set()
        self.view = world.view
        """Of when the last answer was made: what the topics that it names were then."""
        self.requests = Connection(world, in_order=True)
        self.answers = Connection(world, in_order=True)

    def __str__(self) -> str:
        return f"{self.name} ({self.member_id} at {self.epoch})"

    # Life

    def begin(self) -> None:
        if not self.is_alive:
            self.is_alive = True
            self.life += 1
            self.step += 1
            self.started()

    def die(self) -> None:
        """Nobody is told."""
        self.is_alive = False
        self.give_up_everything()

    def give_up_everything(self) -> None:
        self.world.drop(self, self.owned)
        self.owned = set()

    def heard(self, then):
        """What counts only as long as the client does nothing else."""
        life, step = self.life, self.step

        def act(*arguments) -> None:
            if self.is_alive and (life, step) == (self.life, self.step):
                then(*arguments)

        return act

    def later(self, delay_ms: float, then) -> None:
        self.step += 1
        self.world.at(delay_ms, self.heard(then))

    def attempt(self, make_command, then, within_ms: int, otherwise) -> None:
        """Ask; when no answer comes, do something else."""
        self.step += 1
        self.disconnected = self.heard(otherwise)
        self.world.ask(self, make_command, self.heard(then))
        self.world.at(within_ms, self.disconnected)

    def disconnected(self) -> None:
        """What is done when the coordinator goes away; of no effect once it has answered."""

    # What each kind does

    def started(self) -> None:
        raise NotImplementedError

    def leave(self) -> None:
        raise NotImplementedError

    def subscribe_anew(self) -> None:
        raise NotImplementedError

    def topics(self) -> set[str]:
        """The names that it subscribes to, by pattern too."""
        raise NotImplementedError


class Consumer(Client):
    """The protocol of KIP-848. A third of them subscribe by a pattern."""

    assignor: str | None = None
    subscribes_alike = False
    fatal = frozenset({ErrorCode.UNRELEASED_INSTANCE_ID, ErrorCode.FENCED_INSTANCE_ID})
    """What ends its process."""

    def started(self) -> None:
        self.member_id = f"{self.name}/{self.life}"
        self.choose_topics()
        self.is_revoking = False
        self.join()

    def choose_topics(self) -> None:
        rng = self.world.random
        if self.subscribes_alike:
            self.names, self.pattern = ["t0", "t1", "u0"], ""
        elif rng.random() < 0.3:
            self.names, self.pattern = [], rng.choice(["t.*", "u[01]", ".*1", "none"])
        else:
            self.names, self.pattern = rng.sample(["t0", "t1", "t2", "t3", "u0", "u1"], rng.randint(1, 4)), ""
        self.news = True

    def subscribe_anew(self) -> None:
        if self.is_alive:
            self.choose_topics()

    def topics(self) -> set[str]:
        matched = (
            {name for name in self.world.topics if re.fullmatch(self.pattern, name)}
            if self.pattern
            else set()
        )
        return matched.union(self.names)

    def leave(self) -> None:
        if self.is_alive and self.epoch > 0:
            self.give_up_everything()
            is_back_soon = self.instance_id is not None and self.world.random.random() < 0.7
            epoch = LEAVE_FOR_A_WHILE_EPOCH if is_back_soon else LEAVE_EPOCH
            request = requests.consumer_beat(
                self.group_id, self.member_id, epoch, instance_id=self.instance_id
            )
            self.world.ask(self, lambda ticket: asked(request, ticket), _unheard)
            self.die()

    def join(self) -> None:
        self.epoch = JOIN_EPOCH
        self.target: set[Place] = set()
        self.said: set[Place] = set()
        self.in_full = True
        self.heartbeat()

    def heartbeat(self) -> None:
        owned = set(self.owned)
        is_listed = self.in_full or owned != self.said
        make_command = self.to_say(owned if is_listed else None)
        self.news = False
        self.attempt(
            make_command,
            lambda reply: self.answered(reply, owned if is_listed else self.said),
            ANSWER_WITHIN_MS,
            self.unanswered,
        )

    def to_say(self, owned: set[Place] | None):
        """The heartbeat of this moment, for a ticket."""
        in_full, news = self.in_full, self.news
        request = requests.consumer_beat(
            self.group_id,
            self.member_id,
            self.epoch,
            None if owned is None else _listed(owned),
            instance_id=self.instance_id,
            rebalance_timeout_ms=REBALANCE_MS if in_full else -1,
            subscribed_topic_names=list(self.names) if in_full or news else None,
            subscribed_topic_regex=self.pattern if in_full or news else None,
            server_assignor=self.assignor if in_full else None,
        )
        return lambda ticket: asked(request, ticket)

    def assigned(self, response) -> set[Place] | None:
        """None: as before."""
        if response.assignment is None:
            return None
        return {
            (topic.topic_id, index)
            for topic in response.assignment.topic_partitions
            for index in topic.partitions
        }

    def unanswered(self) -> None:
        self.in_full = True
        self.heartbeat()

    def answered(self, reply, said: set[Place]) -> None:
        code = reply.error_code
        if code is NONE:
            self.in_full, self.said = False, said
            if reply.member_epoch != self.epoch:
                self.epoch = reply.member_epoch
                self.world.work(self, self.owned, self.epoch)
            self.target = self.target if (target := self.assigned(reply)) is None else target
            self.reconcile(reply.heartbeat_interval_ms)
        elif code in LOST:
            self.give_up_everything()
            self.is_revoking = False
            self.join()
        elif code in AGAIN:
            self.in_full = True
            self.later(self.world.random.randrange(50, 400), self.heartbeat)
        else:
            assert code in self.fatal, reply
            self.die()
            self.world.at(500, self.begin)

    def reconcile(self, interval_ms: int) -> None:
        gone = self.owned - self.target
        if gone and not self.is_revoking:
            self.is_revoking = True
            world = self.world
            takes_ms = world.random.randrange(1, 2 * REBALANCE_MS if world.happens(0.02) else 200)
            life, member_id = self.life, self.member_id
            world.at(takes_ms, self.revoked, life, member_id)
        elif not gone and self.target != self.owned:
            new = self.target - self.owned
            self.owned = self.owned | new
            self.world.take(self, new, self.epoch)
            return self.later(1, self.heartbeat)
        self.later(interval_ms, self.heartbeat)

    def revoked(self, life: int, member_id: str) -> None:
        """The application has finished with what it is to give up, which may be less or more by now."""
        if not self.is_alive or (life, member_id) != (self.life, self.member_id) or not self.is_revoking:
            return
        self.is_revoking = False
        gone = self.owned - self.target
        self.world.drop(self, gone)
        self.owned = self.owned - gone
        if self.epoch != JOIN_EPOCH and not self.in_full:
            self.heartbeat()


def asked(request, ticket) -> Asked:
    """The heartbeat of a client without a name."""
    return requests.asked(request, ticket, 1, client_id="", host="")


class AlikeConsumer(Consumer):
    subscribes_alike = True


class RangeConsumer(Consumer):
    assignor = "range"


def _listed(places: set[Place]) -> list[tuple[bytes, list[int]]]:
    by_topic: dict[bytes, list[int]] = {}
    for topic_id, index in sorted(places):
        by_topic.setdefault(topic_id, []).append(index)
    return list(by_topic.items())


class ClassicConsumer(Client):
    """The classic protocol with Kafka's own embedded messages; the leader assigns, and asks again when topics
    have changed. Gives everything up before each rebalance."""

    is_classic = True
    is_cooperative = False
    protocol = "range"
    version = 9
    """Of Join: clients before 4 need no member id to begin with."""
    may_lag = False

    def started(self) -> None:
        self.member_id = ""
        self.names = ["t0", "t1", "u0"]
        self.is_leader = False
        self.join()

    def subscribe_anew(self) -> None:
        if self.is_alive and self.epoch > 0:
            self.names = self.world.random.sample(
                ["t0", "t1", "t2", "u0", "u1"], self.world.random.randint(1, 4)
            )
            self.join()

    def topics(self) -> set[str]:
        return set(self.names)

    def leave(self) -> None:
        if self.is_alive and self.member_id and self.instance_id is None:
            self.give_up_everything()
            request = requests.leave(self.group_id, self.member_id)
            self.world.ask(self, lambda ticket: requests.asked(request, ticket), _unheard)
            self.die()

    def join(self) -> None:
        if not self.is_cooperative:
            self.give_up_everything()
        subscription = ConsumerProtocolSubscription(
            topics=sorted(self.names), owned_partitions=self.by_name(), generation_id=self.epoch or -1
        )
        offered = [(self.protocol, encode(subscription, 3))]
        request = requests.join(
            self.group_id, self.member_id, offered, SESSION_MS, REBALANCE_MS, self.instance_id
        )
        self.attempt(
            lambda ticket: requests.asked(request, ticket, self.version, client_id="", host=""),
            self.joined,
            REBALANCE_MS + SESSION_MS,
            self.join,
        )

    def by_name(self) -> list[TopicPartition]:
        names = self.world.view.topic_names
        return [
            TopicPartition(topic=names[topic_id], partitions=indexes)
            for topic_id, indexes in _listed(self.owned)
            if topic_id in names
        ]

    def joined(self, answer) -> None:
        if answer.error_code is ErrorCode.MEMBER_ID_REQUIRED:
            self.member_id = answer.member_id
            self.join()
        elif answer.error_code is NONE:
            self.member_id, self.epoch = answer.member_id, answer.generation_id
            self.is_leader = answer.leader == self.member_id
            assignments = {}
            if self.is_leader:
                self.seen = dict(self.world.topics)
                if not answer.skip_assignment:
                    assignments = self.assign(answer.members)
            self.sync(assignments)
        else:
            self.refused(answer.error_code)

    def assign(self, members) -> dict[str, bytes]:
        """Evenly; what somebody else still has goes to nobody in this round."""
        topics = self.world.topics
        spec_members: dict[str, AssignedMember] = {}
        owners: dict[Place, str] = {}
        for member in members:
            subscription = decode_subscription(member.metadata)
            own: dict[bytes, frozenset[int]] = {}
            for owned in subscription.owned_partitions:
                if owned.topic in topics:
                    own[topics[owned.topic][0]] = frozenset(owned.partitions)
                    owners.update(
                        {(topics[owned.topic][0], index): member.member_id for index in owned.partitions}
                    )
            subscribed = frozenset(topics[name][0] for name in subscription.topics if name in topics)
            spec_members[member.member_id] = AssignedMember(subscribed, own)
        counts = dict(topics.values())
        names = {topic_id: name for name, (topic_id, _) in topics.items()}
        assignments = {}
        for member_id, assignment in assign_uniform(AssignmentSpec(spec_members, counts)).items():
            parts = [
                AssignedTopicPartitions(
                    topic=names[topic_id],
                    partitions=[
                        index
                        for index in sorted(indexes)
                        if owners.get((topic_id, index), member_id) == member_id
                    ],
                )
                for topic_id, indexes in assignment.items()
            ]
            assignments[member_id] = encode(ConsumerProtocolAssignment(assigned_partitions=parts), 3)
        return assignments

    def sync(self, assignments: dict[str, bytes]) -> None:
        request = requests.sync(
            self.group_id,
            self.epoch,
            self.member_id,
            assignments,
            group_instance_id=self.instance_id,
            protocol_type="consumer",
            protocol_name=self.protocol,
        )
        self.attempt(
            lambda ticket: requests.asked(request, ticket),
            self.synced,
            REBALANCE_MS,
            self.join,
        )

    def synced(self, answer) -> None:
        if answer.error_code is not NONE:
            return self.refused(answer.error_code)
        topics = self.view.topics
        target = {
            (topics[part.topic].topic_id, index)
            for part in (
                decode_assignment(answer.assignment).assigned_partitions if answer.assignment else ()
            )
            if part.topic in topics
            for index in part.partitions
        }
        gone, new = self.owned - target, target - self.owned
        self.world.drop(self, gone)
        self.owned = target
        self.world.take(self, new, self.epoch)
        # Not before: a generation that was never stored may come once more after a crash.
        self.world.work(self, target, self.epoch)
        if gone and self.is_cooperative:
            return self.join()
        self.work()

    def work(self) -> None:
        if self.is_leader and self.seen != self.world.topics:
            return self.join()
        request = requests.beat(self.group_id, self.epoch, self.member_id, self.instance_id)
        self.attempt(
            lambda ticket: requests.asked(request, ticket),
            self.heartbeat_answered,
            ANSWER_WITHIN_MS,
            self.work,
        )

    def heartbeat_answered(self, answer) -> None:
        if answer.error_code is NONE:
            self.later(HEARTBEAT_MS, self.work)
        else:
            self.refused(answer.error_code)

    def refused(self, code: ErrorCode) -> None:
        if code is ErrorCode.FENCED_INSTANCE_ID:
            self.die()
            return
        if code in LOST:
            self.give_up_everything()
            self.member_id, self.epoch = "" if code is ErrorCode.UNKNOWN_MEMBER_ID else self.member_id, 0
        else:
            assert code in AGAIN or code is ErrorCode.REBALANCE_IN_PROGRESS, code
        self.later(self.world.random.randrange(1, 200), self.join)


class CooperativeConsumer(ClassicConsumer):
    """Keeps what it has while it joins again."""

    is_cooperative = True
    protocol = "cooperative-sticky"
