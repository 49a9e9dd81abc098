"""Definitions that a program adds to those of Kafka: APIs, types of groups, options.

CONTRIBUTING.md shows how to write one of each; `tests/server/test_extension.py` uses them over the wire.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from odradek.apis.declaration import Api
    from odradek.config.option import Option
    from odradek.coordinator.groups.group_type import GroupType


@dataclass(frozen=True, slots=True, kw_only=True)
class Extensions:
    """Definitions beside those of Kafka, for one broker."""

    apis: Sequence[Api] = ()
    """APIs beside those of Kafka; they may also replace one of Kafka's."""
    group_types: Sequence[GroupType] = ()
    options: Sequence[Option] = ()
    """Options of the broker."""


NO_EXTENSIONS = Extensions()
