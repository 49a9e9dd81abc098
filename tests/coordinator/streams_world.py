"""The world of `group_world.py` for streams groups (KIP-1071): threads of several processes, tasks in place
of partitions, standbys, and internal topics that are made when the coordinator asks for them.

What a thread works on are places like those of consumers: `b"active 0"` or `b"standby 0"`, the kind of the
task and its subtopology, and a partition. Nobody else may run what it runs; and no other thread of its
process may have a copy of any task of which it has one, since they would share a directory.
"""

from collections import Counter

from odradek.coordinator.group_machine import GroupMachine
from odradek.coordinator.groups.group import LEAVE_EPOCH
from odradek.wire.errors import ErrorCode
from tests.coordinator import group_requests as requests
from tests.coordinator.group_world import (
    HEARTBEAT_MS,
    REBALANCE_MS,
    SESSION_MS,
    Client,
    Consumer,
    Place,
    World,
    asked,
)
from tests.coordinator.stages.streams_stage import subtopology, topology

TOPOLOGIES = {
    # Of topics with which anything happens.
    "plain": [subtopology("0", "t0 t1"), subtopology("1", "u0")],
    # With state, of which there are standbys.
    "counts": [subtopology("0", "steady", changelogs="internal-counts")],
    # In two halves, with a topic in between.
    "words": [
        subtopology("0", "steady", sinks="internal-words"),
        subtopology("1", "", ("internal-words",), changelogs="internal-sums"),
    ],
}
"""By group."""
STEADY_COUNT = 9
STANDBYS = (1, 2, 0)
"""By seed, in turn."""
THREADS = 2
"""Of a process."""
ACTIVE, STANDBY = b"active ", b"standby "


class StreamsWorld(World):
    def __init__(
        self,
        seed: int,
        groups: dict[str, int],
        machine_class: type[GroupMachine] = GroupMachine,
        log_trouble: float = 0.002,
        loss: float = 0.02,
    ) -> None:
        """`groups` says how many threads each of the `TOPOLOGIES` has."""
        super().__init__(
            seed, {name: [Thread] * size for name, size in groups.items()}, machine_class, log_trouble, loss
        )
        settings = self.settings
        settings.group_streams_min_session_timeout_ms = 1_000
        settings.group_streams_session_timeout_ms = SESSION_MS
        settings.group_streams_min_heartbeat_interval_ms = 100
        settings.group_streams_heartbeat_interval_ms = HEARTBEAT_MS
        settings.group_streams_assignment_interval_ms = self.assignment_interval_ms
        settings.group_streams_initial_rebalance_delay_ms = self.assignment_interval_ms
        self.standbys = settings.group_streams_num_standby_replicas = STANDBYS[seed % len(STANDBYS)]
        self.topics["steady"] = self.new_topic_id(), STEADY_COUNT
        self.publish()

    # Topics

    def changeable(self) -> list[str]:
        return sorted(name for name in self.topics if name[0] in "tu")

    def change_topics(self) -> None:
        internal = sorted(name for name in self.topics if name.startswith("internal"))
        if internal and self.random.random() < 0.3:
            del self.topics[self.random.choice(internal)]
            self.publish()
        else:
            super().change_topics()

    def change_topics_once_more(self) -> None:
        """They grow, and internal ones are gone. One with fewer partitions would end threads that say that
        they have its tasks."""
        self.topics = {
            name: (topic_id, count + 3) if name in ("t0", "u0") else (topic_id, count)
            for name, (topic_id, count) in self.topics.items()
            if not name.startswith("internal")
        }

    def make_topics(self, topics) -> None:
        """What the coordinator has asked for, unless somebody was faster."""
        missing = {name: topic for name, topic in topics.items() if name not in self.topics}
        for name, topic in missing.items():
            self.topics[name] = self.new_topic_id(), topic.partition_count
        if missing:
            self.publish()

    # Judgement

    def take(self, client: Client, places: set[Place], epoch: int) -> None:
        super().take(client, _exclusive(client, places), epoch)

    def work(self, client: Client, places: set[Place], epoch: int) -> None:
        super().work(client, _exclusive(client, places), epoch)

    def drop(self, client: Client, places: set[Place]) -> None:
        super().drop(client, _exclusive(client, places))

    def named(self, place: Place) -> str:
        return f"{place[0].decode()}-{place[1]}"

    def check_partitions(self, when: str, group_id: str, clients: list[Client]) -> None:
        """Every task is run by one thread, all by about equally many, and what has state has its standbys."""
        worked_on = Counter(place for client in clients for place in client.owned)
        process_count = len({client.process for client in clients})
        wanted: Counter[Place] = Counter()
        for part in TOPOLOGIES[group_id]:
            sources = (*part.source_topics, *(topic.name for topic in part.repartition_source_topics))
            if not self.topics.keys() >= set(sources):
                return self.complain(f"{when} {group_id} lacks one of {sources}")
            count = max(self.topics[name][1] for name in sources)
            kinds = {
                ACTIVE: 1,
                STANDBY: min(self.standbys, process_count - 1) if part.state_changelog_topics else 0,
            }
            for kind, copies in kinds.items():
                place = kind + part.subtopology_id.encode()
                wanted.update({(place, index): copies for index in range(count) if copies})
        if worked_on != wanted:
            missing, wrong = wanted - worked_on, worked_on - wanted
            self.complain(f"{when} in {group_id} {missing} are left, {wrong} are too many")
        loads = [sum(kind.startswith(ACTIVE) for kind, _ in client.owned) for client in clients]
        if max(loads) - min(loads) > 1:
            self.complain(f"{when} in {group_id} threads run from {min(loads)} to {max(loads)} tasks")


def _exclusive(client: Client, tasks: set[Place]) -> set[Place]:
    """What nobody else may have at the same time, given the tasks of a thread."""
    running = {task for task in tasks if task[0].startswith(ACTIVE)}
    copies = {
        (f"{client.process} ".encode() + kind.removeprefix(ACTIVE).removeprefix(STANDBY), index)
        for kind, index in tasks
    }
    return running | copies


class Thread(Consumer):
    """One thread of an application; a member that gives up, takes over and says so as consumers do."""

    # A topic was made anew with fewer partitions, and it says that it has a task of one that is gone.
    fatal = frozenset({ErrorCode.INVALID_REQUEST})

    def __init__(self, world: StreamsWorld, group_id: str, index: int) -> None:
        super().__init__(world, group_id, index)
        self.instance_id = None
        self.process = f"{group_id}/p{index // THREADS}"

    def choose_topics(self) -> None:
        self.news = False

    def leave(self) -> None:
        if self.is_alive and self.epoch > 0:
            self.give_up_everything()
            request = requests.streams_beat(self.group_id, self.member_id, LEAVE_EPOCH)
            self.world.ask(self, lambda ticket: asked(request, ticket), lambda result: None)
            self.die()

    def to_say(self, owned: set[Place] | None):
        in_full = self.in_full
        request = requests.streams_beat(
            self.group_id,
            self.member_id,
            self.epoch,
            None if owned is None else (_tasks(owned, ACTIVE), _tasks(owned, STANDBY), {}),
            endpoint_information_epoch=-1,
            rebalance_timeout_ms=REBALANCE_MS if in_full else -1,
            topology=topology(TOPOLOGIES[self.group_id]) if self.epoch == 0 else None,
            process_id=self.process if in_full else None,
            client_tags=[] if in_full else None,
        )
        return lambda ticket: asked(request, ticket)

    def assigned(self, response) -> set[Place] | None:
        assert not response.warmup_tasks
        if response.active_tasks is None:
            return None
        return {
            (kind + one.subtopology_id.encode(), index)
            for kind, tasks in ((ACTIVE, response.active_tasks), (STANDBY, response.standby_tasks))
            for one in tasks
            for index in one.partitions
        }

    def answered(self, result, said: set[Place]) -> None:
        if result.creatable_topics:
            self.world.at(self.world.latency(), self.world.make_topics, result.creatable_topics)
        super().answered(result.response, said)


def _tasks(places: set[Place], kind: bytes) -> dict[str, frozenset[int]]:
    tasks: dict[str, set[int]] = {}
    for place, index in places:
        if place.startswith(kind):
            tasks.setdefault(place.removeprefix(kind).decode(), set()).add(index)
    return {subtopology_id: frozenset(indexes) for subtopology_id, indexes in tasks.items()}
