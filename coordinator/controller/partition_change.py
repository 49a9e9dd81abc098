"""Next state of one partition: leader, in-sync replicas, eligible leaders, and the end of a reassignment.

A leader is elected among the in-sync replicas. When none of them is left, one of the eligible leader replicas
(ELR, KIP-966) leads: a replica that left an ISR smaller than `min.insync.replicas`, so that nothing was
committed without it. Without ELR the last in-sync replica stays in the ISR, and the partition waits for it.
With ELR, when ISR and ELR are empty, the last leader is elected again, in an unclean election; any other
unclean election has to be asked for.

The leader epoch grows with each record that names a leader: when another one leads, when a replica leaves the
assignment, and below metadata.version 3.6-IV0 when the ISR shrinks.

Differences from Kafka: a replica that has left the assignment is not eligible; Kafka keeps it among the ELR,
and can never elect it. A last known leader that is no replica any more is not elected, which in Kafka is an
unexpected exception. "No leader" never becomes the last known leader.

Source: PartitionChangeBuilder and PartitionReassignmentReplicas of Kafka 4.4.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple

from odradek.coordinator.cluster.features import DIRECTORIES_SINCE
from odradek.coordinator.cluster.view import NO_LEADER, RECOVERING, PartitionView
from odradek.wire.messages.metadata_records import NO_LEADER_CHANGE, PartitionChangeRecord

SHRINKS_WITHOUT_EPOCH_SINCE = 12
"""The metadata.version (3.6-IV0) from which a smaller ISR alone needs no new leader epoch."""


class Election(Enum):
    """Kind of election; each of them keeps a leader that may go on, except PREFERRED."""

    PREFERRED = "PREFERRED"
    """The first replica leads, if it is in sync."""
    ONLINE = "ONLINE"
    """A replica leads that has all committed records."""
    UNCLEAN = "UNCLEAN"
    """If there is no such replica, any other may lead: records may be lost."""


class TopicRules(NamedTuple):
    """Rules for all partitions of one topic."""

    topic_id: bytes
    min_isr: int
    """`min.insync.replicas` of the topic, at most its replication factor."""
    is_unclean: bool
    """`unclean.leader.election.enable` of the topic."""
    has_elr: bool
    """Whether the cluster has eligible leader replicas."""
    metadata_version: int

    @property
    def election(self) -> Election:
        return Election.UNCLEAN if self.is_unclean else Election.ONLINE


MayLead = Callable[[int, bytes], bool]
"""Whether a broker, by its id, may lead with a replica in that log directory."""


@dataclass(slots=True)
class PartitionChangeBuilder:
    """A change of one partition. Set what is to be other than before, then call `build`, once."""

    partition: PartitionView
    rules: TopicRules
    may_lead: MayLead
    default_directory: Callable[[int], bytes]
    """Directory of a replica that is new on a broker."""
    election: Election = Election.ONLINE
    lost: Collection[int] = ()
    """Brokers that have been shut down uncleanly: they are not eligible to lead."""
    isr: tuple[int, ...] = field(init=False)
    replicas: tuple[int, ...] = field(init=False)
    removing: tuple[int, ...] = field(init=False)
    adding: tuple[int, ...] = field(init=False)
    leader_recovery_state: int = field(init=False)
    directories: dict[int, bytes] = field(init=False, default_factory=dict)
    """New directories, by broker."""
    _elr: tuple[int, ...] = field(init=False)

    def __post_init__(self) -> None:
        partition = self.partition
        self.isr = partition.isr
        self.replicas = partition.replicas
        self.removing = partition.removing
        self.adding = partition.adding
        self.leader_recovery_state = partition.leader_recovery_state
        self._elr = partition.elr

    def build(self) -> PartitionChangeRecord | None:
        """The record of the change; None: nothing changes."""
        partition = self.partition
        record = PartitionChangeRecord(partition_id=partition.index, topic_id=self.rules.topic_id)
        self._complete_reassignment()
        self._set_eligible()
        self._elect(record)
        if record.leader == NO_LEADER_CHANGE and not set(partition.replicas) <= set(self.replicas):
            record.leader = partition.leader
        is_clean = record.isr is None
        elr = self._elr if is_clean and self.rules.has_elr else ()
        if elr != partition.elr:
            record.eligible_leader_replicas = list(elr)
        if is_clean and self.isr != partition.isr and (self.isr or self.rules.has_elr):
            record.isr = list(self.isr)
        if (
            record.leader == NO_LEADER_CHANGE
            and record.isr is not None
            and self.rules.metadata_version < SHRINKS_WITHOUT_EPOCH_SINCE
            and not set(partition.isr) <= set(record.isr)
        ):
            record.leader = partition.leader
        self._note_last_leader(record)
        self._assign(record)
        if self.leader_recovery_state != partition.leader_recovery_state:
            record.leader_recovery_state = self.leader_recovery_state
        return None if _is_no_op(record) else record

    # Reassignment

    def _complete_reassignment(self) -> None:
        """Once all added replicas are in sync, those to be removed go. A reassignment that removes more than
        it adds waits for all replicas that stay."""
        if not self.adding and not self.removing:
            return
        isr = tuple(replica for replica in self.isr if replica not in self.removing)
        replicas = tuple(replica for replica in self.replicas if replica not in self.removing)
        if self.removing and (not isr or not replicas):
            return
        needed = self.adding if len(self.adding) >= len(self.removing) else (*self.adding, *replicas)
        if set(needed) <= set(isr):
            self.isr, self.replicas = isr, replicas
            self.adding = self.removing = ()

    def _assign(self, record: PartitionChangeRecord) -> None:
        partition = self.partition
        if self.rules.metadata_version >= DIRECTORIES_SINCE and (
            self.directories or self.replicas != partition.replicas
        ):
            now = tuple(self._directory_of(replica) for replica in self.replicas)
            if now != partition.directories:
                record.directories = list(now)
        if self.replicas != partition.replicas:
            record.replicas = list(self.replicas)
        if self.removing != partition.removing:
            record.removing_replicas = list(self.removing)
        if self.adding != partition.adding:
            record.adding_replicas = list(self.adding)

    def _directory_of(self, replica: int) -> bytes:
        if replica in self.directories:
            return self.directories[replica]
        if replica in self.partition.replicas:
            return self.partition.directory_of(replica)
        return self.default_directory(replica)

    # Eligible leaders

    def _set_eligible(self) -> None:
        if not self.rules.has_elr:
            return
        if len(self.isr) >= self.rules.min_isr:
            self._elr = ()
            return
        out = {*self.isr, *self.lost}
        members = {*self.partition.elr, *self.partition.isr}
        self._elr = tuple(sorted(one for one in members if one not in out and one in self.replicas))

    def _note_last_leader(self, record: PartitionChangeRecord) -> None:
        if not self.rules.has_elr:
            return
        partition = self.partition
        if record.leader == NO_LEADER and not partition.last_known_elr and partition.leader != NO_LEADER:
            record.last_known_elr = [partition.leader]
        elif record.leader >= 0 and partition.last_known_elr:
            record.last_known_elr = []

    # Elections

    def _elect(self, record: PartitionChangeRecord) -> None:
        leader, is_unclean = self._elected()
        partition = self.partition
        if leader == partition.leader:
            return
        if leader in self._elr:
            self.isr = (leader,)
            # A leader alone commits by itself where that is enough: the others miss what comes.
            is_enough = self.rules.min_isr <= 1
            self._elr = () if is_enough else tuple(one for one in self._elr if one != leader)
        record.leader = leader
        if is_unclean:
            record.isr = [leader]
            if partition.leader_recovery_state != RECOVERING:
                record.leader_recovery_state = RECOVERING

    def _elected(self) -> tuple[int, bool]:
        """The leader, and whether it may lack committed records."""
        leader = self.partition.leader
        if self.election is Election.PREFERRED:
            candidates: tuple[int, ...] = (self.replicas[0], leader, *self.replicas[1:])
        else:
            candidates = (leader, *self.replicas)
        for replica in candidates:
            if (replica in self.isr or (not self.isr and replica in self._elr)) and self._is_acceptable(
                replica
            ):
                return replica, False
        last = self.partition.last_known_elr
        is_last_resort = self.rules.has_elr and not self.isr and not self._elr
        if is_last_resort and len(last) == 1 and self._is_acceptable(last[0]):
            return last[0], True
        if self.election is Election.UNCLEAN:
            for replica in self.replicas:
                if self._is_acceptable(replica):
                    return replica, True
        return NO_LEADER, False

    def _is_acceptable(self, replica: int) -> bool:
        partition = self.partition
        return replica in partition.replicas and self.may_lead(replica, self._directory_of(replica))


def _is_no_op(record: PartitionChangeRecord) -> bool:
    return (
        record.leader == NO_LEADER_CHANGE
        and record.leader_recovery_state == -1
        and all(
            part is None
            for part in (
                *(record.isr, record.replicas, record.removing_replicas, record.adding_replicas),
                *(record.directories, record.eligible_leader_replicas, record.last_known_elr),
            )
        )
    )
