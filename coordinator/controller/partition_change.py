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

from collections.abc import Callable, Collection, Mapping
from enum import Enum
from types import MappingProxyType
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


_NONE: Mapping[int, bytes] = MappingProxyType({})
MayLead = Callable[[int, bytes], bool]
"""Whether a broker, by its id, may lead with a replica in that log directory."""


class PartitionChangeBuilder:
    """A change of one partition. Set what is to be other than before, then call `build`, once."""

    __slots__ = (
        *("_elr", "adding", "default_directory", "directories", "election", "isr", "leader_recovery_state"),
        *("lost", "may_lead", "partition", "removing", "replicas", "rules"),
    )

    def __init__(
        self,
        partition: PartitionView,
        rules: TopicRules,
        may_lead: MayLead,
        default_directory: Callable[[int], bytes],
    ) -> None:
        self.partition = partition
        self.rules = rules
        self.may_lead = may_lead
        self.default_directory = default_directory
        """Directory of a replica that is new on a broker."""
        self.election = Election.ONLINE
        self.lost: Collection[int] = ()
        """Brokers that have been shut down uncleanly: they are not eligible to lead."""
        self.directories: Mapping[int, bytes] = _NONE
        """New directories, by broker."""
        self.isr = partition.isr
        self.replicas = partition.replicas
        self.removing = partition.removing
        self.adding = partition.adding
        self.leader_recovery_state = partition.leader_recovery_state
        self._elr = partition.elr

    def build(self) -> PartitionChangeRecord | None:
        """The record of the change; None: nothing changes."""
        partition = self.partition
        rules = self.rules
        record = PartitionChangeRecord(partition_id=partition.index, topic_id=rules.topic_id)
        if self.adding or self.removing:
            self._complete_reassignment()
        if rules.has_elr:
            self._set_eligible()
        self._elect(record)
        if self.replicas != partition.replicas:
            self._replace_replicas(record)
        is_clean = record.isr is None
        elr = self._elr if is_clean and rules.has_elr else ()
        if elr != partition.elr:
            record.eligible_leader_replicas = list(elr)
        if is_clean and self.isr != partition.isr and (self.isr or rules.has_elr):
            record.isr = list(self.isr)
        if rules.metadata_version < SHRINKS_WITHOUT_EPOCH_SINCE:
            self._begin_epoch_of_smaller_isr(record)
        if rules.has_elr:
            self._note_last_leader(record)
        if self.directories:
            self._move(record)
        if self.removing != partition.removing:
            record.removing_replicas = list(self.removing)
        if self.adding != partition.adding:
            record.adding_replicas = list(self.adding)
        if self.leader_recovery_state != partition.leader_recovery_state:
            record.leader_recovery_state = self.leader_recovery_state
        return None if _is_no_op(record) else record

    # Reassignment

    def _complete_reassignment(self) -> None:
        """Once all added replicas are in sync, those to be removed go. A reassignment that removes more than
        it adds waits for all replicas that stay."""
        isr = tuple(replica for replica in self.isr if replica not in self.removing)
        replicas = tuple(replica for replica in self.replicas if replica not in self.removing)
        if self.removing and (not isr or not replicas):
            return
        needed = self.adding if len(self.adding) >= len(self.removing) else (*self.adding, *replicas)
        if set(needed) <= set(isr):
            self.isr, self.replicas = isr, replicas
            self.adding = self.removing = ()

    def _replace_replicas(self, record: PartitionChangeRecord) -> None:
        """A replica that goes begins a leader epoch, so that the others stop to fetch from it."""
        partition = self.partition
        if record.leader == NO_LEADER_CHANGE and not set(partition.replicas) <= set(self.replicas):
            record.leader = partition.leader
        record.replicas = list(self.replicas)
        self._move(record)

    def _move(self, record: PartitionChangeRecord) -> None:
        if self.rules.metadata_version >= DIRECTORIES_SINCE:
            now = tuple(self._directory_of(replica) for replica in self.replicas)
            if now != self.partition.directories:
                record.directories = list(now)

    def _directory_of(self, replica: int) -> bytes:
        if replica in self.directories:
            return self.directories[replica]
        if replica in self.partition.replicas:
            return self.partition.directory_of(replica)
        return self.default_directory(replica)

    # Eligible leaders

    def _set_eligible(self) -> None:
        if len(self.isr) >= self.rules.min_isr:
            self._elr = ()
            return
        out = {*self.isr, *self.lost}
        members = {*self.partition.elr, *self.partition.isr}
        self._elr = tuple(sorted(one for one in members if one not in out and one in self.replicas))

    def _note_last_leader(self, record: PartitionChangeRecord) -> None:
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

    def _begin_epoch_of_smaller_isr(self, record: PartitionChangeRecord) -> None:
        is_smaller = record.isr is not None and not set(self.partition.isr) <= set(record.isr)
        if is_smaller and record.leader == NO_LEADER_CHANGE:
            record.leader = self.partition.leader

    def _elected(self) -> tuple[int, bool]:
        """The leader, and whether it may lack committed records."""
        leader = self.partition.leader
        if self.election is Election.PREFERRED:
            candidates: tuple[int, ...] = (self.replicas[0], leader, *self.replicas[1:])
        else:
            candidates = (leader, *self.replicas)
        members = self.isr or self._elr
        for replica in candidates:
            if replica in members and self._is_acceptable(replica):
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
        if replica not in partition.replicas:
            return False
        return self.may_lead(replica, self._directory_of(replica))


def _is_no_op(record: PartitionChangeRecord) -> bool:
    return (
        record.leader == NO_LEADER_CHANGE
        and record.isr is None
        and record.eligible_leader_replicas is None
        and record.last_known_elr is None
        and record.replicas is None
        and record.removing_replicas is None
        and record.adding_replicas is None
        and record.leader_recovery_state == -1
        and record.directories is None
    )
