"""Quotas of users, clients and addresses: who has which, what may be set, and which one counts for a client.

An entity is a tuple of pairs (type, name), sorted by type; a name of None is the default of its type. For a
client the first of eight levels that has a quota counts: its user and client id, its user and the default
client, its user, the default user and its client id, the default user and the default client, the default
user, its client id, the default client. A client without an id has no quota of a client id.

Source: ClientQuotasImage.describe, ClientQuotaControlManager, ClientQuotaManager.DefaultQuotaCallback and
QuotaConfig of Kafka 4.3; KIP-13, KIP-55, KIP-546, KIP-612.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import isfinite

from odradek.coordinator.cluster.view import QuotaEntity, Quotas, quota_entity
from odradek.wire.errors import ErrorCode, KafkaError
from odradek.wire.messages.alter_client_quotas import EntryData, OpData
from odradek.wire.messages.describe_client_quotas import ComponentData

USER, CLIENT_ID, IP = "user", "client-id", "ip"
EXACT, DEFAULT, ANY = range(3)
MATCHES = {EXACT: "MATCH_TYPE_EXACT", DEFAULT: "MATCH_TYPE_DEFAULT", ANY: "MATCH_TYPE_SPECIFIED"}

PRODUCER_BYTE_RATE = "producer_byte_rate"
CONSUMER_BYTE_RATE = "consumer_byte_rate"
REQUEST_PERCENTAGE = "request_percentage"
CONTROLLER_MUTATION_RATE = "controller_mutation_rate"
CONNECTION_CREATION_RATE = "connection_creation_rate"

LONG_MAX, INT_MAX = float(2**63 - 1), float(2**31 - 1)
FRACTION_MAX = 1e-6
"""The tolerance for whole numbers."""

OF_CLIENTS: Mapping[str, float | None] = {
    PRODUCER_BYTE_RATE: LONG_MAX,
    CONSUMER_BYTE_RATE: LONG_MAX,
    REQUEST_PERCENTAGE: None,
    CONTROLLER_MUTATION_RATE: None,
}
"""Quotas of users and clients: the largest value where it must be a whole number, else None."""
OF_ADDRESSES: Mapping[str, float | None] = {CONNECTION_CREATION_RATE: INT_MAX}

ABSENT = ""
"""Stands for a type that an entity does not have: no name is empty."""
Level = tuple[str | None, str | None]
"""User and client id of an entity: a name, None for the default, or ABSENT."""
Whose = tuple[str, str]
"""Whose use is measured together: a user and client id, a user, or a client id; the other is ABSENT."""


# --- Which one counts ---


class QuotaLevels:
    """The values of one quota by level."""

    __slots__ = ("_values",)

    def __init__(self, quotas: Quotas, name: str) -> None:
        self._values: dict[Level, float] = {}
        for entity, values in quotas.items():
            types = dict(entity)
            if name in values and IP not in types:
                self._values[types.get(USER, ABSENT), types.get(CLIENT_ID, ABSENT)] = values[name]

    def __bool__(self) -> bool:
        return bool(self._values)

    def find(self, user: str, client_id: str) -> tuple[Whose, float] | None:
        """The quota for a client; None if there is none for it. An empty `client_id` is none."""
        values = self._values
        for level in _levels(user, client_id):
            value = values.get(level)
            if value is not None:
                whose = ABSENT if level[0] == ABSENT else user
                return (whose, ABSENT if level[1] == ABSENT else client_id), value
        return None

    def value_of(self, whose: Whose) -> float | None:
        """The value for those whose use is measured together, if that is still so."""
        found = self.find(*whose)
        return found[1] if found is not None and found[0] == whose else None


def _levels(user: str, client_id: str) -> Iterator[Level]:
    for owner in (user, None) if user else ():
        if client_id:
            yield owner, client_id
            yield owner, None
        yield owner, ABSENT
    if client_id:
        yield ABSENT, client_id
        yield ABSENT, None


# --- DescribeClientQuotas ---


def described(quotas: Quotas, components: Sequence[ComponentData], *, strict: bool) -> Quotas:
    """The quotas of entities that fit to the filter; `strict`: those that have no other types. Raises
    KafkaError for a filter that makes no sense."""
    _check_filter(components)
    exact = {one.entity_type: one.match for one in components if one.match_type != ANY}
    types = {one.entity_type for one in components}
    return {
        entity: values
        for entity, values in quotas.items()
        if _fits(dict(entity), types, exact) and (not strict or len(entity) == len(types))
    }


def _fits(entity: Mapping[str, str | None], types: set[str], exact: Mapping[str, str | None]) -> bool:
    return types <= entity.keys() and all(entity[kind] == name for kind, name in exact.items())


def _check_filter(components: Sequence[ComponentData]) -> None:
    """In Kafka's order: each component alone, then components that exclude each other."""
    seen: set[str] = set()
    for component in components:
        kind = component.entity_type
        if not kind:
            raise _bad("Invalid empty entity type.")
        if kind in seen:
            raise _bad(f"Entity type {kind} cannot appear more than once in the filter.")
        if kind not in (USER, CLIENT_ID, IP):
            raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, f"Unsupported entity type {kind}")
        if component.match_type not in MATCHES:
            raise _bad(f"Unknown match type {component.match_type}")
        if (component.match is None) == (component.match_type == EXACT):
            needs = "a match string" if component.match_type == EXACT else "no match string"
            raise _bad(f"{MATCHES[component.match_type]} goes with {needs}.")
        seen.add(kind)
    if IP in seen and len(seen) > 1:
        raise _bad(
            "Invalid entity filter component combination. IP filter component should not be used with user "
            "or clientId filter component."
        )


# --- AlterClientQuotas ---


@dataclass(slots=True)
class Alterations:
    """Result of a request to alter quotas."""

    refusals: dict[QuotaEntity, KafkaError | None] = field(default_factory=dict)
    """Each entity once; None: it is as the request wants it."""
    changed: dict[QuotaEntity, Mapping[str, float]] = field(default_factory=dict)
    """All quotas that an entity has from now on; empty: it has none."""


def altered(
    quotas: Quotas, entries: Sequence[EntryData], refusal_of_host: Callable[[str], str | None]
) -> Alterations:
    """`refusal_of_host(name)`: a sentence about why it can have no quota; None for an address, or the name of
    one. As in Kafka, an entity that a request has twice is refused, but its first entry counts."""
    result = Alterations()
    for entry in entries:
        # If a type is named twice, the last one counts.
        entity = quota_entity((one.entity_type, one.entity_name) for one in entry.entity)
        try:
            if entity in result.refusals or len({op.key for op in entry.ops}) < len(entry.ops):
                raise _bad("The request has this entity, or a key of it, twice.")
            _check_alteration(dict(entity), entry.ops, refusal_of_host)
        except KafkaError as error:
            result.refusals[entity] = error
            continue
        result.refusals[entity] = None
        before = quotas.get(entity, {})
        after = _with(before, entry.ops)
        if after != before:
            result.changed[entity] = after
    return result


def hosts_of(entries: Sequence[EntryData]) -> list[str]:
    """The addresses that entities of a request name, each once, in their order."""
    parts = [one for entry in entries for one in entry.entity]
    return list(dict.fromkeys(one.entity_name for one in parts if one.entity_type == IP and one.entity_name))


def _with(before: Mapping[str, float], ops: Sequence[OpData]) -> dict[str, float]:
    after = dict(before)
    for op in ops:
        if op.remove:
            after.pop(op.key, None)
        else:
            after[op.key] = op.value
    return after


def _check_alteration(
    entity: Mapping[str, str | None], ops: Sequence[OpData], refusal_of_host: Callable[[str], str | None]
) -> None:
    bounds = _quotas_of(entity)
    host = entity.get(IP)
    if host is not None and (refusal := refusal_of_host(host)) is not None:
        raise _bad(refusal)
    for op in ops:
        if not op.remove:
            _check_value(op.key, op.value, bounds)


def _quotas_of(entity: Mapping[str, str | None]) -> Mapping[str, float | None]:
    if not entity:
        raise _bad("Invalid empty client quota entity")
    for kind, name in entity.items():
        if kind not in (USER, CLIENT_ID, IP):
            raise _bad(f"Unhandled client quota entity type: {kind}")
        if name == "":
            raise _bad(f"Empty {kind} not supported")
    if IP not in entity:
        return OF_CLIENTS
    if len(entity) > 1:
        # With Kafka's slip: programs compare this phrase.
        raise _bad("Invalid quota entity combination, IP entity shouldnot be combined with User or ClientId")
    return OF_ADDRESSES


def _check_value(key: str, value: float, bounds: Mapping[str, float | None]) -> None:
    if key not in bounds:
        raise _bad(f"Invalid configuration key {key}")
    if not isfinite(value):
        raise _bad(f"Quota {key} must be a finite number")
    if value <= 0:
        raise _bad(f"Quota {key} must be greater than 0")
    limit = bounds[key]
    if limit is None:
        return
    if value > limit:
        raise _bad(f"{key} can be {limit:.0f} at most.")
    if abs(value % 1) > FRACTION_MAX:
        raise _bad(f"{key} cannot be a fractional value.")


def _bad(why: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REQUEST, why)
