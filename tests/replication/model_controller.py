"""A controller as Kafka's is in what replication needs of it: brokers, ISR, ELR, elections, reassignment.

It is one object that nothing befalls; the way to it is unreliable. Source: `ReplicationControlManager`,
`PartitionChangeBuilder` and `BrokerHeartbeatManager` of Kafka, KIP-841, KIP-903, KIP-966.
"""

from dataclasses import dataclass, field
from typing import NamedTuple

from odradek.coordinator.replication.in_sync import AlteredIsr, AlterIsr
from odradek.coordinator.replication.values import NO_LEADER, BrokerState
from odradek.wire.errors import ErrorCode

SESSION_MS = 900


class View(NamedTuple):
    leader: int
    leader_epoch: int
    partition_epoch: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]


@dataclass(frozen=True)
class Image:
    version: int
    brokers: dict[int, BrokerState]
    partitions: dict[tuple[str, int], View]


@dataclass
class Broker:
    epoch: int
    incarnation: object
    is_fenced: bool = True
    is_in_shutdown: bool = False
    seen_ms: int = 0
    offset: int = -1

    @property
    def is_active(self) -> bool:
        return not self.is_fenced and not self.is_in_shutdown


@dataclass
class Partition:
    replicas: list[int]
    isr: list[int]
    leader: int
    leader_epoch: int = 0
    partition_epoch: int = 0
    elr: set[int] = field(default_factory=set)
    last_known_leader: int = NO_LEADER
    adding: list[int] = field(default_factory=list)
    removing: list[int] = field(default_factory=list)

    def view(self) -> View:
        return View(
            self.leader, self.leader_epoch, self.partition_epoch, tuple(self.replicas), tuple(self.isr)
        )


class Controller:
    """`world` hears of elections (`elected`) and of each change (`changed`), and has the time."""

    def __init__(self, world, partitions, *, min_isr: int, has_elr: bool, is_unclean: bool) -> None:
        self.world = world
        self.min_isr = min_isr
        self.has_elr = has_elr
        self.is_unclean = is_unclean
        self.brokers: dict[int, Broker] = {}
        self.partitions: dict[tuple[str, int], Partition] = partitions
        self.version = 0
        self.views = {key: partition.view() for key, partition in partitions.items()}
        self.image = Image(0, {}, self.views)

    def publish(self) -> None:
        self.version += 1
        brokers = {
            broker_id: BrokerState(broker.epoch, broker.is_fenced, broker.is_in_shutdown)
            for broker_id, broker in self.brokers.items()
        }
        self.image = Image(self.version, brokers, dict(self.views))
        self.world.published()

    # Brokers

    def register(self, broker_id: int, incarnation, previous_epoch: int) -> int | None:
        """The broker epoch; None while a former life has its session."""
        now_ms, known = self.world.now_ms, self.brokers.get(broker_id)
        if known is not None and known.incarnation is not incarnation:
            if not known.is_fenced and now_ms - known.seen_ms < SESSION_MS:
                return None
        elif known is not None:
            return known.epoch
        self.brokers[broker_id] = Broker(self.version + 1, incarnation, seen_ms=now_ms)
        if known is not None:
            is_clean = previous_epoch == known.epoch
            self._deactivate(broker_id, forget=self.has_elr and not is_clean)
        self.publish()
        return self.brokers[broker_id].epoch

    def heartbeat(self, broker_id: int, epoch: int, offset: int, wants_shutdown: bool):
        """(may stop, is fenced), or None: another life of the broker has registered."""
        broker = self.brokers.get(broker_id)
        if broker is None or broker.epoch != epoch:
            return None
        broker.seen_ms, broker.offset = self.world.now_ms, offset
        if wants_shutdown:
            if broker.is_fenced:
                return True, True
            if not broker.is_in_shutdown:
                broker.is_in_shutdown = True
                self._deactivate(broker_id)
                self.publish()
            leads = any(partition.leader == broker_id for partition in self.partitions.values())
            return not leads and self._have_heard(broker_id), False
        if broker.is_fenced and offset >= broker.epoch:
            broker.is_fenced = False
            for key, partition in self.partitions.items():
                if partition.leader == NO_LEADER:
                    self._change(key)
            self.publish()
        return False, broker.is_fenced

    def _have_heard(self, leaving: int) -> bool:
        others = [broker for broker_id, broker in self.brokers.items() if broker_id != leaving]
        return all(broker.is_fenced or broker.offset >= self.version for broker in others)

    def tick(self) -> None:
        """Sessions, and every time the elections that nothing else brings about."""
        late = [
            broker_id
            for broker_id, broker in self.brokers.items()
            if not broker.is_fenced and self.world.now_ms - broker.seen_ms >= SESSION_MS
        ]
        for broker_id in late:
            self.brokers[broker_id].is_fenced = True
            self._deactivate(broker_id)
        changed = bool(late)
        if self.is_unclean:
            for key, partition in self.partitions.items():
                if partition.leader == NO_LEADER:
                    changed = self._change(key, is_unclean=True) or changed
        if changed:
            self.publish()

    def is_active(self, broker_id: int) -> bool:
        broker = self.brokers.get(broker_id)
        return broker is not None and broker.is_active

    def _deactivate(self, broker_id: int, *, forget: bool = False) -> None:
        for key, partition in self.partitions.items():
            if broker_id in partition.isr or broker_id in partition.elr or partition.leader == broker_id:
                isr = [one for one in partition.isr if one != broker_id]
                self._change(key, isr=isr, forget=broker_id if forget else None)

    # Partitions

    def _change(self, key, *, isr=None, forget=None, is_unclean=False, prefers=None) -> bool:
        """What `PartitionChangeBuilder` builds: whether anything has changed."""
        partition = self.partitions[key]
        before = (partition.view(), set(partition.elr), partition.last_known_leader)
        target = list(partition.isr if isr is None else isr)
        self._complete_reassignment(partition, target)
        elr = self._target_elr(partition, target, forget)
        leader, unclean = self._elect(partition, target, elr, is_unclean, prefers)
        old_leader = partition.leader
        if unclean:
            target, elr = [leader], set()
        elif leader != NO_LEADER and leader not in target:
            target, elr = [leader], elr - {leader}
        if not target and not self.has_elr:
            target = list(partition.isr)  # the last one stays
        if not target and not partition.last_known_leader >= 0:
            partition.last_known_leader = old_leader
        elif leader != NO_LEADER:
            partition.last_known_leader = NO_LEADER
        members = set(partition.isr) | partition.elr
        added = set(target) - set(partition.isr)
        partition.isr, partition.elr, partition.leader = target, elr, leader
        if leader != old_leader:
            partition.leader_epoch += 1
        changed = before != (partition.view(), set(partition.elr), partition.last_known_leader)
        if changed:
            partition.partition_epoch += 1
            self.views[key] = partition.view()
            if leader != old_leader and leader != NO_LEADER:
                self.world.elected(key, leader, partition.leader_epoch, unclean, members)
            self.world.changed(key, added)
        return changed

    def _target_elr(self, partition, target, forget) -> set[int]:
        if not self.has_elr or len(target) >= min(self.min_isr, len(partition.replicas)):
            return set()
        elr = (set(partition.isr) | partition.elr) - set(target)
        return {one for one in elr if one != forget and one in partition.replicas}

    def _elect(self, partition, target, elr, is_unclean, prefers) -> tuple[int, bool]:
        def is_valid(broker_id):
            return (broker_id in target or broker_id in elr) and self.is_active(broker_id)

        first = partition.replicas[0]
        if prefers is not None and first in target and self.is_active(first):
            return first, False
        if is_valid(partition.leader) and partition.leader in partition.replicas:
            return partition.leader, False
        for broker_id in partition.replicas:
            if is_valid(broker_id):
                return broker_id, False
        last = partition.last_known_leader
        if self.has_elr and not target and not elr and last in partition.replicas and self.is_active(last):
            return last, True
        if is_unclean:
            for broker_id in partition.replicas:
                if self.is_active(broker_id):
                    return broker_id, True
        return NO_LEADER, False

    def prefer(self, key) -> None:
        if self._change(key, prefers=True):
            self.publish()

    def alter_partition(self, broker_id: int, broker_epoch: int, changes: tuple[AlterIsr, ...]):
        """Answers by partition, or an error for all of it."""
        broker = self.brokers.get(broker_id)
        if broker is None or broker.epoch != broker_epoch:
            return ErrorCode.STALE_BROKER_EPOCH
        answers = {change.key: self._alter(broker_id, change) for change in changes}
        self.publish()
        return answers

    def _alter(self, broker_id: int, change: AlterIsr) -> AlteredIsr | ErrorCode:
        partition = self.partitions.get(change.key)
        if partition is None:
            return ErrorCode.UNKNOWN_TOPIC_ID
        if change.leader_epoch < partition.leader_epoch:
            return ErrorCode.FENCED_LEADER_EPOCH
        isr = [one for one, _ in change.new_isr]
        if partition.leader != broker_id:
            return ErrorCode.INVALID_REQUEST
        if change.partition_epoch < partition.partition_epoch:
            return ErrorCode.INVALID_UPDATE_VERSION
        if broker_id not in isr or not set(isr) <= set(partition.replicas):
            return ErrorCode.INVALID_REQUEST
        if not all(self._may_be_in_sync(one, epoch) for one, epoch in change.new_isr):
            return ErrorCode.INELIGIBLE_REPLICA
        self._change(change.key, isr=isr)
        if partition.leader != broker_id:
            return ErrorCode.NEW_LEADER_ELECTED
        return AlteredIsr(partition.leader_epoch, partition.partition_epoch, tuple(partition.isr))

    def _may_be_in_sync(self, broker_id: int, epoch: int) -> bool:
        broker = self.brokers.get(broker_id)
        return broker is not None and broker.is_active and epoch in (-1, broker.epoch)

    # Reassignment

    def reassign(self, key, add: int, remove: int) -> None:
        partition = self.partitions[key]
        if partition.adding or add in partition.replicas or remove not in partition.replicas:
            return
        partition.replicas.append(add)
        partition.adding, partition.removing = [add], [remove]
        partition.partition_epoch += 1
        self.views[key] = partition.view()
        self.world.changed(key, set())
        self.publish()

    def _complete_reassignment(self, partition: Partition, target: list[int]) -> None:
        if not partition.adding or not set(partition.adding) <= set(target):
            return
        kept = [one for one in target if one not in partition.removing]
        if not any(self.is_active(one) for one in kept):
            return
        partition.replicas = [one for one in partition.replicas if one not in partition.removing]
        target[:] = kept
        partition.adding, partition.removing = [], []
        partition.leader_epoch += 1

    def begin_epoch(self, key) -> None:
        """The same leader once more."""
        partition = self.partitions[key]
        if partition.leader != NO_LEADER:
            partition.leader_epoch += 1
            partition.partition_epoch += 1
            self.views[key] = partition.view()
            self.publish()
