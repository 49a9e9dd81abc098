"""Where replicas are and who leads: moves between brokers, and elections."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import ceil

from odradek.client.admin.asking import TIMEOUT_MS, Outcome, Refused, ask_controller, outcome
from odradek.client.client_error import ClientError, refusal
from odradek.client.cluster import Cluster, TopicPartition
from odradek.wire.errors import ErrorCode, error_of
from odradek.wire.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from odradek.wire.messages.elect_leaders import ElectLeadersRequest, TopicPartitions
from odradek.wire.messages.list_partition_reassignments import ListPartitionReassignmentsRequest

PREFERRED, UNCLEAN = 0, 1
"""Kinds of elections: the first replica, if it is in sync; or one that is not, where no other is left."""
_DONE = (ErrorCode.NONE, ErrorCode.ELECTION_NOT_NEEDED)


@dataclass(frozen=True, slots=True, order=True)
class Move:
    """A partition that is being moved."""

    topic: str
    partition: int
    replicas: tuple[int, ...]
    """The present ones, the new ones among them."""
    adding: tuple[int, ...]
    removing: tuple[int, ...]


def plan_moves(
    replicas: Mapping[TopicPartition, Sequence[int]],
    racks: Mapping[int, str | None],
    factor: int | None = None,
) -> dict[TopicPartition, list[int]]:
    """New replicas on the brokers of `racks`, with `factor` replicas or as many as before.

    Each broker gets as many as the others, and a partition's replicas are on different racks, if that is
    possible. What may stay stays, in its order. The first replica is the preferred leader, and brokers have
    as many of these as others. ClientError if there are fewer brokers than replicas.
    """
    wanted = {key: factor or len(those) for key, those in replicas.items()}
    most_wanted = max(wanted.values(), default=0)
    if most_wanted > len(racks):
        raise ClientError(f"{most_wanted} replicas need as many brokers, and --to names {len(racks)}")
    planned = {key: [one for one in those if one in racks][: wanted[key]] for key, those in replicas.items()}
    counts = Counter(dict.fromkeys(racks, 0))
    for chosen in planned.values():
        counts.update(chosen)
    for key, chosen in sorted(planned.items()):
        while len(chosen) < wanted[key]:
            used = {racks[one] for one in chosen} - {None}
            best = min(
                (one for one in racks if one not in chosen),
                key=lambda one: (racks[one] in used, counts[one], one),
            )
            chosen.append(best)
            counts[best] += 1
    while _moved_one(planned, counts, racks):
        pass
    leaders: Counter[int] = Counter()
    for key, chosen in sorted(planned.items()):
        if chosen[0] != replicas[key][0] or leaders[chosen[0]] >= ceil(len(planned) / len(racks)):
            first = min(chosen, key=lambda one: (leaders[one], chosen.index(one)))
            chosen.remove(first)
            chosen.insert(0, first)
        leaders[chosen[0]] += 1
    return planned


def _moved_one(
    planned: Mapping[TopicPartition, list[int]], counts: Counter[int], racks: Mapping[int, str | None]
) -> bool:
    """Takes a replica from a broker with many to one with at least two fewer, in its place; False: there is
    none that can go without a loss of racks."""
    for many in sorted(counts, key=lambda one: (-counts[one], one)):
        for few in sorted(counts, key=lambda one: (counts[one], one)):
            if counts[many] - counts[few] < 2:
                break
            for _, chosen in sorted(planned.items(), reverse=True):
                if many in chosen and few not in chosen:
                    then = [few if one == many else one for one in chosen]
                    if len({racks[one] for one in then}) >= len({racks[one] for one in chosen}):
                        chosen[:] = then
                        counts[many] -= 1
                        counts[few] += 1
                        return True
    return False


def move_partitions(cluster: Cluster, planned: Mapping[TopicPartition, Sequence[int] | None]) -> Outcome:
    """Begins the moves; None takes a move back. The refusals are by `TOPIC-PARTITION`."""
    topics: dict[str, list[ReassignablePartition]] = {}
    for (topic, partition), replicas in planned.items():
        one = ReassignablePartition(
            partition_index=partition, replicas=None if replicas is None else list(replicas)
        )
        topics.setdefault(topic, []).append(one)
    request = AlterPartitionReassignmentsRequest(
        timeout_ms=TIMEOUT_MS,
        topics=[ReassignableTopic(name=name, partitions=parts) for name, parts in topics.items()],
    )
    response = ask_controller(cluster, request)
    if response.error_code != ErrorCode.NONE:
        raise refusal("moving partitions", response.error_code, response.error_message)
    return outcome(
        "moving",
        [
            (f"{topic.name}-{one.partition_index}", one.error_code, one.error_message)
            for topic in response.responses
            for one in topic.partitions
        ],
    )


def list_moves(cluster: Cluster) -> list[Move]:
    """The partitions that are being moved, sorted."""
    response = ask_controller(cluster, ListPartitionReassignmentsRequest(timeout_ms=TIMEOUT_MS, topics=None))
    if response.error_code != ErrorCode.NONE:
        raise refusal("listing moves", response.error_code, response.error_message)
    return sorted(
        Move(
            topic.name,
            one.partition_index,
            tuple(one.replicas),
            tuple(one.adding_replicas),
            tuple(one.removing_replicas),
        )
        for topic in response.topics
        for one in topic.partitions
    )


def elect_leaders(cluster: Cluster, kind: int, partitions: Iterable[TopicPartition]) -> Outcome:
    """Holds an election in each of the partitions; the refusals are by `TOPIC-PARTITION`."""
    topics: dict[str, list[int]] = {}
    for topic, partition in partitions:
        topics.setdefault(topic, []).append(partition)
    request = ElectLeadersRequest(
        election_type=kind,
        topic_partitions=[
            TopicPartitions(topic=name, partitions=numbers) for name, numbers in topics.items()
        ],
        timeout_ms=TIMEOUT_MS,
    )
    response = ask_controller(cluster, request)
    if response.error_code != ErrorCode.NONE:
        raise refusal("electing leaders", response.error_code)
    return [
        Refused(
            f"{topic.topic}-{one.partition_id}",
            refusal(
                f"electing a leader of {topic.topic}-{one.partition_id}", one.error_code, one.error_message
            ),
        )
        for topic in response.replica_election_results
        for one in topic.partition_result
        if error_of(one.error_code) not in _DONE
    ]
