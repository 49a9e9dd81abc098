"""Requests of a share group (KIP-932) to the share coordinator, and the commands that bring the responses."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from odradek.coordinator.effects import Asking
from odradek.coordinator.groups.commands import Command
from odradek.coordinator.shares.state.persister import InitialState, Results, SharePartitionKey
from odradek.wire.messages import alter_share_group_offsets as alter
from odradek.wire.messages import delete_share_group_offsets as delete


@dataclass(slots=True)
class StatesInitialized(Command):
    """Result of an `InitializeStates`."""

    group_id: str
    asked_at_ms: int
    """When that was; the response to an earlier trial counts no more."""
    response: alter.AlterShareGroupOffsetsResponse | None = None
    """The response for the ticket, if nothing was refused; None: a heartbeat began it, and nobody waits."""
    results: Results = field(default_factory=dict)


@dataclass(slots=True)
class InitializeStates(Asking):
    """Set up the state of share partitions, and submit a `StatesInitialized` with the results."""

    command: StatesInitialized
    states: Sequence[InitialState]


@dataclass(slots=True)
class StatesDeleted(Command):
    """Result of a `DeleteStates`."""

    group_id: str
    asked_at_ms: int
    refused_topics: Sequence[delete.DeleteShareGroupOffsetsResponseTopic] | None = None
    """Topics that a DeleteShareGroupOffsets named and that were refused before; None where all of the group
    is to be deleted."""
    results: Results = field(default_factory=dict)


@dataclass(slots=True)
class DeleteStates(Asking):
    """Delete the state of share partitions, and submit a `StatesDeleted` with the results."""

    command: StatesDeleted
    partitions: Sequence[SharePartitionKey]
