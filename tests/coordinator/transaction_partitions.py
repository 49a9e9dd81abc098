"""The partitions of a world of transactions: those of data, and the one of `__consumer_offsets`.

That of data is a model of what storage promises: epochs, sequences, verification, markers. That of offsets
promises the same but for sequences, which offsets do not have, and under it is what a broker has: the real
coordinator of groups, with its machine, over a log of its own that loses what is on its way in a crash.
"""

from dataclasses import dataclass
from typing import NamedTuple

from odradek.coordinator.cluster.topics import OFFSETS_TOPIC
from odradek.coordinator.effects import MarkerRecord, TransactionalRecord
from odradek.coordinator.group_coordinator import GroupCoordinator
from odradek.coordinator.group_machine import GroupMachine
from odradek.coordinator.groups.record_codec import decode_key, decode_offset
from odradek.coordinator.groups.settings import GroupSettings
from odradek.wire.errors import ErrorCode, KafkaError
from tests.coordinator import group_requests as requests
from tests.coordinator.fakes import OneReplica, view_of
from tests.coordinator.shares.share_persister import FakePersister
from tests.coordinator.transaction_requests import add_partitions, codes_in, verify_partitions
from tests.kit.simulation import Connection, Log

NONE = ErrorCode.NONE
OFFSETS = (OFFSETS_TOPIC, 0)
DATA_PARTITIONS = 4
SHARED_GROUP = "shared"
NOT_READY = frozenset(
    {
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.NOT_COORDINATOR,
    }
)
"""What groups say, and a coordinator of transactions is told in a partition's words."""


@dataclass(frozen=True)
class Batch:
    transactional_id: str
    producer_id: int
    epoch: int
    sequence: int
    value: tuple
    """The transaction, as (transactional id, count), and the number in it."""
    version: int


@dataclass
class KnownProducer:
    epoch: int
    last_sequence: int = -1
    coordinator_epoch: int = -1


class Partition:
    """A model of what storage promises of transactions."""

    def __init__(self, world, name) -> None:
        self.world = world
        self.name = name
        self.entries: list = []
        self.producers: dict[int, KnownProducer] = {}
        self.open: set[int] = set()
        self.verifications: dict[int, object] = {}
        self.available_at_ms = 0.0
        self.markers = Connection(world, in_order=True)

    def crash(self) -> None:
        self.world.partition_crashes += 1
        self.verifications.clear()
        self.available_at_ms = self.world.now_ms + self.world.random.randrange(50, 800)

    @property
    def is_available(self) -> bool:
        return self.world.now_ms >= self.available_at_ms

    def is_lost(self, trouble: float) -> bool:
        """Whether an append is lost in a crash; one that arrives all the same is not answered for."""
        arrives = self.world.planned("data")
        if arrives is None and self.world.happens(trouble):
            arrives = not self.world.happens(0.5)
        if arrives is None:
            return False
        self.crash()
        return not arrives

    def produce(self, batch: Batch, then) -> None:
        code = self.judge(batch)
        if code is not None or self.is_open(batch):
            self.take(batch, code, then)
            return
        verification = self.verifications.setdefault(batch.producer_id, object())
        connection = Connection(self.world, in_order=batch.version < 2)

        def verified(reply) -> None:
            code = codes_in(reply).get(self.name, reply.error_code)
            if code is NONE and self.verifications.get(batch.producer_id) is not verification:
                code = ErrorCode.NOT_ENOUGH_REPLICAS
            if code is NONE:
                code = self.judge(batch)
            self.take(batch, code, then)

        asks = add_partitions if batch.version >= 2 else verify_partitions
        self.world.ask(
            connection,
            lambda ticket: asks(
                ticket, batch.transactional_id, batch.producer_id, batch.epoch, [self.name], batch.version
            ),
            verified,
        )

    def take(self, batch: Batch, code: ErrorCode | None, then) -> None:
        """Append it, unless it has its answer."""
        then(self.append(batch) if code is None else code)

    def is_open(self, batch: Batch) -> bool:
        """Whether the batch goes on in a transaction; that of another epoch is not its own."""
        return batch.producer_id in self.open and self.producers[batch.producer_id].epoch == batch.epoch

    def judge(self, batch: Batch) -> ErrorCode | None:
        """None if it may be appended."""
        if not self.is_available:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        known = self.producers.get(batch.producer_id)
        if known is not None and batch.epoch < known.epoch:
            return ErrorCode.INVALID_PRODUCER_EPOCH
        last = known.last_sequence if known is not None and known.epoch == batch.epoch else -1
        if batch.sequence <= last:
            return NONE
        return None if batch.sequence == last + 1 else ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER

    def append(self, batch: Batch) -> ErrorCode:
        if self.is_lost(0.01):
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        self.begin(batch.producer_id, batch.epoch).last_sequence = batch.sequence
        self.entries.append((batch.producer_id, batch.value))
        return NONE if self.is_available else ErrorCode.NOT_LEADER_OR_FOLLOWER

    def begin(self, producer_id: int, epoch: int) -> KnownProducer:
        """There is a record of this producer's transaction."""
        known = self.producers.setdefault(producer_id, KnownProducer(epoch))
        known.epoch = epoch
        self.open.add(producer_id)
        self.verifications.pop(producer_id, None)
        return known

    def write_marker(self, marker, then) -> None:
        then(self.append_marker(marker))

    def append_marker(self, marker) -> ErrorCode:
        code = self.judge_marker(marker)
        if code is not None:
            return code
        if self.is_lost(0.02):
            return ErrorCode.KAFKA_STORAGE_ERROR
        self.end(marker)
        self.entries.append((marker.producer_id, marker.commit))
        return NONE if self.is_available else ErrorCode.KAFKA_STORAGE_ERROR

    def judge_marker(self, marker) -> ErrorCode | None:
        """None if it may be appended."""
        if not self.is_available:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        known = self.producers.get(marker.producer_id)
        if known is not None:
            if marker.coordinator_epoch < known.coordinator_epoch:
                return ErrorCode.TRANSACTION_COORDINATOR_FENCED
            must_be_higher = marker.transaction_version >= 2 and marker.producer_id in self.open
            least = known.epoch + must_be_higher
            if marker.producer_epoch < least:
                return ErrorCode.INVALID_PRODUCER_EPOCH
        return None

    def end(self, marker) -> None:
        """There is a marker."""
        known = self.producers.get(marker.producer_id)
        if known is None or known.epoch < marker.producer_epoch:
            known = self.producers[marker.producer_id] = KnownProducer(marker.producer_epoch)
        known.coordinator_epoch = marker.coordinator_epoch
        self.open.discard(marker.producer_id)
        self.verifications.pop(marker.producer_id, None)

    def committed(self) -> list:
        """What a read_committed reader sees, in the order in which it was written."""
        return _committed(self.entries)


def _committed(entries: list) -> list:
    """The values of transactions that their markers commit. An entry is a producer's id with a value, or with
    whether its transaction commits."""
    pending: dict[int, list[int]] = {}
    shown: set[int] = set()
    for offset, (producer_id, value) in enumerate(entries):
        if isinstance(value, tuple):
            pending.setdefault(producer_id, []).append(offset)
        else:
            ended = pending.pop(producer_id, [])
            shown.update(ended if value else ())
    return [entries[offset][1] for offset in sorted(shown)]


# Offsets


class Place(NamedTuple):
    group_id: str
    topic: str
    partition: int


def place_of(value: tuple) -> Place:
    """Where a value is committed as an offset: in a group of its producer's, or one that all have."""
    (name, count), number = value
    return Place(SHARED_GROUP if number % 2 else name, "t", (count + number) % DATA_PARTITIONS)


def offset_of(value: tuple) -> tuple:
    """It counts the transactions of the producer, and its metadata says all."""
    (name, count), number = value
    _, topic, partition = place_of(value)
    return topic, partition, count, -1, f"{name}/{count}/{number}"


def value_of(metadata: str) -> tuple:
    name, count, number = metadata.split("/")
    return (name, int(count)), int(number)


class Kept(NamedTuple):
    """A batch in the log of offsets: what it says to a machine, and what storage knows of it besides."""

    records: list
    epoch: int
    marker: object = None


class OffsetsLog(OneReplica):
    """The partition as the log of one coordinator of groups."""

    def __init__(self, partition: "OffsetsPartition") -> None:
        self.partition = partition
        self.leader_epoch = partition.leader_epoch

    def append(self, records, then, producer=None) -> None:
        producer_id, epoch = producer
        self.put(Kept([TransactionalRecord(*record, producer_id) for record in records], epoch), then)

    def append_marker(self, marker, then) -> None:
        said = [MarkerRecord(marker.producer_id, marker.commit)]
        self.put(Kept(said, marker.producer_epoch, marker), then)

    def put(self, kept: Kept, then) -> None:
        assert self.partition.leader_epoch == self.leader_epoch
        self.partition.put(kept, then)

    def check_producer(self, producer, verified) -> None:
        """The partition has judged the batch, just now."""

    def check_marker(self, marker) -> None:
        code = self.partition.judge_marker(marker)
        if code is not None:
            raise KafkaError(code)

    def read_all(self):
        return (record for kept in self.partition.log.records for record in kept.records)


class OffsetsPartition(Partition):
    """See the module. Offsets are the values that producers send, at the places of `place_of`."""

    def __init__(self, world, name, machine_class=GroupMachine) -> None:
        super().__init__(world, name)
        self.machine_class = machine_class
        self.log_trouble = world.log_trouble
        self.log = Log(world, self, lambda: world.planned("offsets"))
        self.leader_epoch = 0
        self.loads = -1
        self.start_coordinator()

    def start_coordinator(self) -> None:
        self.leader_epoch += 1
        self.loads += 1
        partition = self

        class Coordinator(GroupCoordinator):
            def _new_machine(self, _):
                return partition.machine_class(self._settings, self._new_member_suffix, lambda: self._view)

        self.coordinator = Coordinator(
            node_id=1,
            settings=GroupSettings(),
            open_log=lambda index: OffsetsLog(self),
            clock_ms=self.world.clock_ms,
            call_later=self.world.timer,
            new_member_suffix=lambda: "1",
            persister=FakePersister,
        )
        self.coordinator.view_changed(view_of(OFFSETS_TOPIC, [1], self.leader_epoch, {"t": DATA_PARTITIONS}))

    def crash(self) -> None:
        super().crash()
        self.log.crash()
        self.remember()
        # Whoever waits sees the connection go.
        self.coordinator.close()
        self.start_coordinator()

    def put(self, kept: Kept, then) -> None:
        def told(error) -> None:
            if error is not None:
                self.remember()
            then(error)

        self.know(kept)
        self.log.append([kept], told)

    def know(self, kept: Kept) -> None:
        """What storage notes of a batch that it stages."""
        if kept.marker is None:
            self.begin(kept.records[0].producer_id, kept.epoch)
        else:
            self.end(kept.marker)

    def remember(self) -> None:
        """Know again what is in the log, or on its way there, and nothing else."""
        self.producers, self.open = {}, set()
        for kept in [*self.log.records, *(one for staged, _ in self.log.pending for one in staged)]:
            self.know(kept)

    def judge(self, batch: Batch) -> ErrorCode | None:
        code = super().judge(batch)
        return None if code in (NONE, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER) else code

    def take(self, batch: Batch, code: ErrorCode | None, then) -> None:
        if code is not None:
            then(code)
            return
        group_id = place_of(batch.value).group_id
        offsets = [offset_of(batch.value)]
        request = requests.commit_in_transaction(group_id, batch.producer_id, offsets, batch.epoch)

        def answered(response) -> None:
            then(requests.errors_in(response)[0])

        self.coordinator.commit_in_transaction(requests.asked(request, answered))

    def write_marker(self, marker, then) -> None:
        def told(code: ErrorCode) -> None:
            then(ErrorCode.NOT_LEADER_OR_FOLLOWER if code in NOT_READY else code)

        self.coordinator.end_offsets(0, marker, told)

    def entries_of_log(self) -> list:
        """As in a partition of data."""
        entries = []
        for kept in self.log.records:
            for record in kept.records:
                is_end = isinstance(record, MarkerRecord)
                value = record.commit if is_end else value_of(decode_offset(record.value).metadata)
                assert is_end or decode_key(record.key)[1] == place_of(value)
                entries.append((record.producer_id, value))
        return entries

    def committed(self) -> list:
        """The same offset may stand in the log twice, for it has no sequence."""
        return list(dict.fromkeys(_committed(self.entries_of_log())))

    def told_by_log(self) -> dict[Place, tuple]:
        """What is committed where: what was written last, whenever its transaction came to its end."""
        return {place_of(value): value for value in _committed(self.entries_of_log())}

    def audit(self) -> list[str]:
        """What the groups say in the midst of it, where it can be compared with the log."""
        answer = requests.fetched_now(self.coordinator, requests.fetch(SHARED_GROUP))
        if answer is None or self.log.pending:
            return []
        found = {
            Place(SHARED_GROUP, topic, one.partition_index): value_of(one.metadata)
            for topic, one in requests.results_in(answer)
        }
        told = {place: value for place, value in self.told_by_log().items() if place.group_id == SHARED_GROUP}
        return [] if found == told else [f"the shared group says {found}, its log {told}"]

    def fetched(self, group_ids: list[str]) -> dict[Place, object]:
        """What the coordinator answers who asks for the groups' stable offsets: a value, or an error code."""
        found: dict[Place, object] = {}
        for group_id in group_ids:
            answer = requests.fetched_now(self.coordinator, requests.fetch(group_id, require_stable=True))
            for topic, one in requests.results_in(answer):
                place = Place(group_id, topic, one.partition_index)
                found[place] = value_of(one.metadata) if one.error_code is NONE else one.error_code
        return found
