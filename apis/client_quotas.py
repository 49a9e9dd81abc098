"""DescribeClientQuotas (key 48, versions 0 and 1) and AlterClientQuotas (49, 0 and 1): how much a user, a
client or an address may do.

There are no quotas yet. Requests are checked as Kafka checks them, and a request to remove a quota that does
not exist succeeds. A quota that Kafka would store is refused with UNSUPPORTED_VERSION: a quota that is listed
but not enforced would be worse than none. A dry run (`validate_only`) gets the same answer. Host names are
not resolved.

Source: ClientQuotasImage.describe, ClientQuotaControlManager and QuotaConfig of Kafka 4.3; KIP-546, KIP-612.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from odradek.wire.errors import ErrorCode, KafkaError
from odradek.wire.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    EntityData,
    EntryDataResult,
    OpData,
)
from odradek.wire.messages.describe_client_quotas import (
    ComponentData,
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
)

if TYPE_CHECKING:
    from odradek.apis.api import RequestContext

USER, CLIENT_ID, IP = "user", "client-id", "ip"
EXACT, DEFAULT, ANY = range(3)
MATCHES = {EXACT: "MATCH_TYPE_EXACT", DEFAULT: "MATCH_TYPE_DEFAULT", ANY: "MATCH_TYPE_SPECIFIED"}

LONG_MAX, INT_MAX = float(2**63 - 1), float(2**31 - 1)
FRACTION_MAX = 1e-6
"""The tolerance for whole numbers."""

OF_CLIENTS: Mapping[str, float | None] = {
    "producer_byte_rate": LONG_MAX,
    "consumer_byte_rate": LONG_MAX,
    "request_percentage": None,
    "controller_mutation_rate": None,
}
"""Quotas of users and clients: the largest value where it must be a whole number, else None."""
OF_ADDRESSES: Mapping[str, float | None] = {"connection_creation_rate": INT_MAX}


def describe_client_quotas(
    request: DescribeClientQuotasRequest, context: RequestContext
) -> DescribeClientQuotasResponse:
    """The handler."""
    try:
        _check_filter(request.components)
    except KafkaError as error:
        return DescribeClientQuotasResponse(error_code=error.code, error_message=error.message, entries=None)
    return DescribeClientQuotasResponse(error_code=0, error_message="", entries=[])


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
        raise _bad("Quotas of addresses are none of users or clients.")


def alter_client_quotas(
    request: AlterClientQuotasRequest, context: RequestContext
) -> AlterClientQuotasResponse:
    """The handler: each entity is answered once, however often the request has it."""
    refusals: dict[frozenset[tuple[str, str | None]], KafkaError | None] = {}
    for entry in request.entries:
        # If a type is named twice, the last one counts.
        entity = {one.entity_type: one.entity_name for one in entry.entity}
        key = frozenset(entity.items())
        try:
            if key in refusals or len({op.key for op in entry.ops}) < len(entry.ops):
                raise _bad("The request has this entity, or a key of it, twice.")
            _check_alteration(entity, entry.ops)
        except KafkaError as error:
            refusals[key] = error
        else:
            refusals[key] = None
    return AlterClientQuotasResponse(
        entries=[
            EntryDataResult(
                error_code=0 if refusal is None else refusal.code,
                error_message=None if refusal is None else refusal.message,
                entity=[EntityData(entity_type=kind, entity_name=name) for kind, name in key],
            )
            for key, refusal in refusals.items()
        ]
    )


def _check_alteration(entity: Mapping[str, str | None], ops: Sequence[OpData]) -> None:
    """Refuses as Kafka does, then everything that would have to be stored."""
    bounds = _quotas_of(entity)
    for op in ops:
        if not op.remove:
            _check_value(op.key, op.value, bounds)
    if any(not op.remove for op in ops):
        raise KafkaError(
            ErrorCode.UNSUPPORTED_VERSION, "Odradek keeps and enforces no quotas yet; nothing was changed."
        )


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
        raise _bad("Quotas of addresses are none of users or clients.")
    return OF_ADDRESSES


def _check_value(key: str, value: float, bounds: Mapping[str, float | None]) -> None:
    if key not in bounds:
        raise _bad(f"Invalid configuration key {key}")
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
