"""A type of groups, as the group machine uses it: one entry that names all parts of the type.

A type has its groups (`group.py`), a membership with the rules of its members, handlers of its commands,
names of its timers, its records of `__consumer_offsets`, and checks that need no group. The machine and the
coordinator take a `GroupTypes`; `coordinator/group_types.py` has those of Kafka. CONTRIBUTING.md shows how
to add one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from odradek.coordinator.asked import Ticket, kind_of
from odradek.coordinator.cluster.view import ClusterView
from odradek.coordinator.effects import Effect
from odradek.coordinator.groups.group import Group, Membership, Store, TypeOfGroup
from odradek.coordinator.groups.settings import GroupSettings
from odradek.wire.messages import group_records
from odradek.wire.messages.log_records import RecordTypes

Handler = Callable[[Any, int, list[Effect]], None]
"""`(command, now_ms, out)`: adds the effects of the command, mostly an `Asked`, to `out`."""
QuickHandler = Callable[[Any, int], Any]
"""`(command, now_ms) -> response`, of a command that has no effect but its response; None, and nothing done,
where it may have another. The response may be given out again, so it is not to be changed."""
Check = Callable[[Any, GroupSettings], Any]
"""`(command, settings) -> response` that refuses a command whatever its group is like; None if it is
sound."""
DeleteGroup = Callable[[str, Ticket[Any], int, list[Effect]], None]
"""`(group_id, ticket, now_ms, out)`: deletes a group of any type; the ticket gets a
`DeleteGroupsResponse`."""

DeleteFirst = Callable[[Any, Ticket[Any], int, list[Effect]], None]
"""`(group, ticket, now_ms, out)`, as `DeleteGroup`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineParts:
    """Parts that one machine shares with its types.

    `topics` gives the newest view of the cluster. `new_member_suffix` makes the random part of the id of a
    member of a classic group, `new_member_id` a whole id. `memberships` and `handlers` have those of the
    types before. `delete_group` deletes a group of any type, for one that has to do something before.
    `has_offsets` tells whether a group has any, pending ones too.
    """

    groups: dict[str, Group]
    settings: GroupSettings
    new_member_suffix: Callable[[], str]
    new_member_id: Callable[[], str]
    topics: Callable[[], ClusterView]
    store: Store
    memberships: Mapping[TypeOfGroup, Membership]
    handlers: Mapping[type, Handler]
    delete_group: DeleteGroup
    has_offsets: Callable[[str], bool]


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupHandlers:
    """One type in one machine. It takes over commands that an earlier type handles, too. They are known by
    `kind_of` of `coordinator/asked.py`."""

    membership: Membership
    new_group: Callable[[str], Group]
    commands: Mapping[type, Handler]
    quick_commands: Mapping[type, QuickHandler] = field(default_factory=dict)
    delete: DeleteFirst | None = None
    """Deletes a group of this type, where something goes before it; None: nothing does."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupType:
    """The entry of a type. `timers` are the first parts of its timers' keys; the group's id is the second."""

    name: TypeOfGroup
    records: RecordTypes
    timers: tuple[str, ...]
    start: Callable[[MachineParts], GroupHandlers]
    checks: Mapping[type, Check] = field(default_factory=dict)


class GroupTypes:
    """The types of groups that a coordinator serves, in the order in which they are made."""

    def __init__(self, types: Iterable[GroupType]) -> None:
        self.types = tuple(types)
        self.records = group_records.OFFSETS
        self.type_of_key: dict[type, TypeOfGroup] = {}
        """The type of a group by the class of the keys of its records."""
        self.type_of_timer: dict[str, TypeOfGroup] = {}
        self.checks: dict[type, Check] = {}
        for one in self.types:
            assert self.type_of_timer.keys().isdisjoint(one.timers), one.name
            self.records |= one.records
            self.type_of_key |= dict.fromkeys(one.records.keys.values(), one.name)
            self.type_of_timer |= dict.fromkeys(one.timers, one.name)
            self.checks |= one.checks

    def __add__(self, more: Iterable[GroupType]) -> GroupTypes:
        return GroupTypes([*self.types, *more])

    def check(self, command: Any, settings: GroupSettings) -> Any:
        """The response that refuses the command; None if its group has to decide."""
        check = self.checks.get(kind_of(command))
        return None if check is None else check(command, settings)
