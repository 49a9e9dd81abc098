"""Brokers that get the replicas of new partitions.

Partitions go round the racks: each begins one rack further than the one before it, takes its leader there,
and one follower from each further rack, until racks come again. Within a rack brokers take turns in the same
way. So leaders and followers are spread evenly, and no rack has two replicas while another has none. A fenced
broker leads nothing, and gets a replica when its rack has no other broker left. All brokers without a rack
are one rack. Where the round begins is decided by the topic's id, so that small topics do not all begin at
the same broker.

Source: StripedReplicaPlacer of Kafka 4.4, which draws lots instead.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from itertools import chain, cycle
from typing import NamedTuple, TypeVar

from odradek.wire.errors import ErrorCode, KafkaError

T = TypeVar("T")
Below = Callable[[int], int]
"""Returns some number from 0 to one below the argument."""


class UsableBroker(NamedTuple):
    """A broker that takes replicas."""

    node_id: int
    rack: str | None = None
    is_fenced: bool = False


class Candidates(NamedTuple):
    """Brokers that may be given replicas."""

    usable: Sequence[UsableBroker]
    """Brokers that get replicas which nobody has assigned, by id."""
    assignable: Collection[int]
    """Ids of brokers that a request may assign replicas to."""


def place_replicas(
    brokers: Sequence[UsableBroker],
    topic_id: bytes,
    first_partition: int,
    partition_count: int,
    replication_factor: int,
) -> list[tuple[int, ...]]:
    """The replicas of each new partition, the leader first. Refuses with INVALID_REPLICATION_FACTOR."""
    if all(broker.is_fenced for broker in brokers):
        raise KafkaError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"Unable to replicate the partition {replication_factor} time(s): no broker is alive that has a "
            "log directory which is not cordoned.",
        )
    if replication_factor > len(brokers):
        raise KafkaError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"Replication factor {replication_factor} is more than the {len(brokers)} broker(s) that take "
            "replicas.",
        )
    if len(brokers) == 1:
        return [(brokers[0].node_id,)] * partition_count
    stripes = _Stripes(brokers, _numbers(topic_id + first_partition.to_bytes(4, "big")))
    return [stripes.place(replication_factor) for _ in range(partition_count)]


class _Ring:
    """Brokers of a rack, one after the other in each turn; each turn begins one further."""

    __slots__ = ("_brokers", "_start", "_taken", "_turn")

    def __init__(self, brokers: Iterable[int], below: Below) -> None:
        self._brokers = list(brokers)
        self._start = below(len(self._brokers)) if self._brokers else 0
        self._turn = 0
        self._taken = 0

    def next(self, turn: int) -> int | None:
        """The next broker in this turn; None: each has had its turn."""
        count = len(self._brokers)
        if not count:
            return None
        if turn != self._turn:
            self._turn, self._taken = turn, 0
            self._start = (self._start + 1) % count
        if self._taken == count:
            return None
        self._taken += 1
        return self._brokers[(self._start + self._taken - 1) % count]

    def shuffle(self, below: Below) -> None:
        _shuffle(self._brokers, below)


class _Rack:
    __slots__ = ("fenced", "unfenced")

    def __init__(self, brokers: Sequence[UsableBroker], below: Below) -> None:
        self.unfenced = _Ring((one.node_id for one in brokers if not one.is_fenced), below)
        self.fenced = _Ring((one.node_id for one in brokers if one.is_fenced), below)

    def next(self, turn: int) -> int | None:
        broker = self.unfenced.next(turn)
        return self.fenced.next(turn) if broker is None else broker


class _Stripes:
    """The racks, and whose turn it is."""

    def __init__(self, brokers: Sequence[UsableBroker], below: Below) -> None:
        names = sorted({one.rack for one in brokers}, key=lambda rack: (rack is not None, rack or ""))
        self._racks = [_Rack([one for one in brokers if one.rack == name], below) for name in names]
        self._leading = sum(not one.is_fenced for one in brokers)
        self._below = below
        self._first = below(len(self._racks))
        self._turn = 0

    def place(self, replication_factor: int) -> tuple[int, ...]:
        """The replicas of the next partition: there are enough brokers, and one that is not fenced."""
        if self._turn == self._leading > 1:
            self._shuffle()
        racks = self._racks
        if self._first == len(racks):
            self._first = 0
        order = [*range(self._first, len(racks)), *range(self._first)]
        leaders = ((rack, racks[rack].unfenced.next(self._turn)) for rack in order)
        leading_rack, leader = next((rack, one) for rack, one in leaders if one is not None)
        placed = [leader]
        # The first time round, the rack of the leader has its replica already.
        following = chain((rack for rack in order if rack != leading_rack), cycle(order))
        while len(placed) < replication_factor:
            follower = racks[next(following)].next(self._turn)
            if follower is not None:
                placed.append(follower)
        self._turn += 1
        self._first += 1
        return tuple(placed)

    def _shuffle(self) -> None:
        """Else the same brokers would share partitions again and again."""
        self._turn = 0
        _shuffle(self._racks, self._below)
        for rack in self._racks:
            rack.unfenced.shuffle(self._below)
            rack.fenced.shuffle(self._below)


def _shuffle(values: list[T], below: Below) -> None:
    for last in range(len(values) - 1, 0, -1):
        other = below(last + 1)
        values[last], values[other] = values[other], values[last]


def _numbers(seed: bytes) -> Below:
    """Numbers that look like chance, and are the same for the same seed."""
    from hashlib import blake2b  # one node alone needs none

    count = 0

    def below(bound: int) -> int:
        nonlocal count
        count += 1
        digest = blake2b(seed + count.to_bytes(8, "big"), digest_size=8).digest()
        return int.from_bytes(digest, "big") % bound

    return below
