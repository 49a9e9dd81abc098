"""The authorizer of a broker (`apis/access.py`): it decides by ACLs and super users, and logs refusals.

A connection keeps what it was told (`Granted`), for its principal, its host and one state of the rules. It
never reads the decisions for another connection. When the rules change, the view of the cluster does: then
all decisions count as unknown, and the pipeline drops what connections have learnt.

Source: StandardAuthorizer of Kafka 4.3.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from odradek.apis.access import ANY, NOTHING_REFUSED, resources
from odradek.coordinator.security.acls import AclRules, Policy, host_text
from odradek.wire.acl_types import Operation, ResourceType
from odradek.wire.schema import Message

if TYPE_CHECKING:
    from odradek.apis.access import Needs, Refused, Requester, Resources
    from odradek.config.broker_config import BrokerConfig
    from odradek.coordinator.cluster.view import ClusterView

logger = logging.getLogger("odradek.authorizer")

DECISIONS_MAX = 2_000
"""Decisions that a connection keeps for one operation on one type of resource. Beyond, they are forgotten."""
NAME_CHARACTERS_MAX = 249
"""Length of a name whose decision is kept, as of a topic. Other names may have 32,767 bytes: they are decided
anew each time."""
LINES_MAX = 60
"""Lines in the log in `LOG_WINDOW_MS`."""
LOG_WINDOW_MS = 60_000
SHOWN_CHARACTERS_MAX = 100
"""Length of a name in the log: a client may name what no resource can be called."""
NO_RULES = AclRules()
_NO_DECISIONS: dict[Any, bool] = {}

Decisions = dict[tuple[Operation, ResourceType], dict[Any, bool]]
"""By operation and type of resource, then by the name of a resource; `ANY` for any resource."""


class Granted:
    """Decisions of the authorizer for one connection."""

    __slots__ = ("acls", "decisions", "is_super", "principal", "rules", "who")

    def __init__(self, connection: Requester, acls: AclRules | None, policy: Policy) -> None:
        self.principal = connection.principal
        self.acls = acls
        self.rules = NO_RULES if acls is None else acls
        self.who = self.rules.identities(self.principal, host_text(connection.peer_host))
        self.is_super = self.principal in policy.super_users
        self.decisions: Decisions = {}

    def knows(self, wanted: Resources) -> bool:
        """Whether all of them are known to be allowed."""
        decisions = self.decisions
        return all(all(map(decisions.get(kind, _NO_DECISIONS).get, names)) for kind, names in wanted.items())

    def of(self, kind: tuple[Operation, ResourceType]) -> dict[Any, bool]:
        """Its decisions, to be read and added to."""
        decisions = self.decisions.setdefault(kind, {})
        if len(decisions) >= DECISIONS_MAX:
            decisions.clear()
        return decisions


class StandardAuthorizer:
    """An `Authorizer`."""

    def __init__(
        self, policy: Policy, current_view: Callable[[], ClusterView], now_ms: Callable[[], int]
    ) -> None:
        self._policy = policy
        self._current_view = current_view
        self._log = RefusalLog(now_ms)

    def refused(self, connection: Requester, needs: Needs, request: Any) -> Refused:
        granted = self._granted(connection)
        if granted.is_super:
            return NOTHING_REFUSED
        decisions = granted.decisions
        for need in needs:
            if need.names is not None:
                known = decisions.get((need.operation, need.resource_type), _NO_DECISIONS)
                if not all(map(known.get, need.names(request))):
                    break
        else:
            # Mostly all of them are known and allowed.
            return NOTHING_REFUSED
        wanted = resources(needs, request)
        refused = self._refused(granted, wanted)
        if refused:
            self._tell(granted, wanted, refused, needs, request)
        return refused

    def hidden(self, connection: Requester, resources: Resources) -> Refused:
        granted = self._granted(connection)
        if granted.is_super or granted.knows(resources):
            return NOTHING_REFUSED
        return self._refused(granted, resources)

    def _tell(
        self, granted: Granted, wanted: Resources, refused: Refused, needs: Needs, request: Any
    ) -> None:
        """Log what is refused. The names that a handler asks about are no request."""
        api = type(request).__name__.removesuffix("Request") if isinstance(request, Message) else ""
        quiet = {(need.operation, need.resource_type) for need in needs if need.is_quiet}
        for kind, names in wanted.items():
            if kind in quiet:
                continue
            for name in dict.fromkeys(names):
                if (*kind, name) in refused:
                    self._log.tell(granted, *kind, self._name_of(kind[1], name), api)

    def _granted(self, connection: Requester) -> Granted:
        acls = self._current_view().acls
        granted: Granted | None = connection.granted
        if granted is None or granted.acls is not acls or granted.principal != connection.principal:
            granted = connection.granted = Granted(connection, acls, self._policy)
        return granted

    def _refused(self, granted: Granted, wanted: Resources) -> Refused:
        refused = [
            (*kind, name)
            for kind, names in wanted.items()
            for name in names
            if not self._may(granted, kind, name)
        ]
        return frozenset(refused) if refused else NOTHING_REFUSED

    def _may(self, granted: Granted, kind: tuple[Operation, ResourceType], name: Any) -> bool:
        decisions = granted.of(kind)
        known = decisions.get(name)
        if known is not None:
            return known
        if name is ANY:
            found = decisions[ANY] = self._policy.allows_any(granted.rules, granted.who, *kind)
            return found
        text = self._name_of(kind[1], name)
        if text is None:
            return True
        found = self._policy.allows(granted.rules, granted.who, *kind, text)
        if len(text) <= NAME_CHARACTERS_MAX:
            decisions[name] = found
        return found

    def _name_of(self, resource_type: ResourceType, name: Any) -> str | None:
        """None: it is the id of no topic."""
        if resource_type == ResourceType.TOPIC and isinstance(name, bytes):
            return self._current_view().topic_names.get(name)
        text: str = name
        return text


class RefusalLog:
    """One line for each refusal, once in a window of time; beyond `LINES_MAX` they are only counted."""

    def __init__(self, now_ms: Callable[[], int]) -> None:
        self._now_ms = now_ms
        self._window_ms = 0
        self._told: set[tuple[str, str, int, int, str | None]] = set()
        self._left_out = 0

    def tell(
        self,
        granted: Granted,
        operation: Operation,
        resource_type: ResourceType,
        name: str | None,
        api: str,
    ) -> None:
        if not logger.isEnabledFor(logging.INFO):
            return
        now_ms = self._now_ms()
        if not self._window_ms <= now_ms < self._window_ms + LOG_WINDOW_MS:
            if self._left_out:
                logger.info("%d refusals before were not logged", self._left_out)
            self._window_ms, self._left_out = now_ms, 0
            self._told.clear()
        principal, host = granted.who[0]
        shown = None if name is None else name[:SHOWN_CHARACTERS_MAX]
        key = (principal, host, operation, resource_type, shown)
        if key in self._told or len(self._told) >= LINES_MAX:
            self._left_out += 1
            return
        self._told.add(key)
        is_denied = granted.rules.denies(granted.who, operation, resource_type, name or "")
        logger.info(
            "%r from %s may not %s %s %r%s: %s",
            principal,
            host,
            operation.name,
            resource_type.name,
            shown,
            f" ({api})" if api else "",
            "an ACL denies it" if is_denied else "no ACL allows it",
        )


def new_authorizer(
    config: BrokerConfig, current_view: Callable[[], ClusterView], now_ms: Callable[[], int]
) -> StandardAuthorizer:
    """By the options of a broker that has one."""
    policy = Policy(frozenset(config.super_users), config.values["allow.everyone.if.no.acl.found"])
    return StandardAuthorizer(policy, current_view, now_ms)
