"""The commands of a group machine that no client sends. What clients ask are their requests
(`coordinator/asked.py`)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from odradek.coordinator.asked import NOBODY, Ticket
from odradek.wire.end_marker import EndMarker


@dataclass(slots=True, kw_only=True)
class Command:
    ticket: Ticket[Any] = NOBODY
    """Receiver of an error code, or the response to the request from which the command follows."""


@dataclass(slots=True)
class EndOffsets(Command):
    """A transaction is over: write its marker, and let the offsets that it wrote count or forget them. To be
    put to `GroupCoordinator.end_offsets`."""

    marker: EndMarker


@dataclass(slots=True)
class RemoveTopics(Command):
    """Remove the offsets of deleted topics, in all groups of the machine."""

    topics: Mapping[str, bytes | None]
    """By name: the id of the topic that has the name now, whose offsets stay; None when there is none."""


@dataclass(slots=True)
class TopicsChanged(Command):
    """Topics were created, deleted, or got partitions: groups that subscribe to them look again."""

    names: frozenset[str]


@dataclass(slots=True)
class TopicsMatched(Command):
    """Topics that a `MatchTopics` has found (None: it could not look)."""

    group_id: str
    version: int
    """Version of the view whose topics were looked through."""
    topics: Mapping[str, frozenset[str]] | None
    """Names of topics by regular expression."""
