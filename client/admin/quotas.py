"""Quotas of users, clients and addresses."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from odradek.client.admin.asking import ask_controller
from odradek.client.client_error import refusal
from odradek.client.cluster import ANY_NODE, Cluster
from odradek.wire.errors import ErrorCode, error_of
from odradek.wire.messages.alter_client_quotas import AlterClientQuotasRequest, OpData
from odradek.wire.messages.alter_client_quotas import EntityData as AlteredEntity
from odradek.wire.messages.alter_client_quotas import EntryData as AlteredEntry
from odradek.wire.messages.describe_client_quotas import ComponentData, DescribeClientQuotasRequest

USER, CLIENT_ID, IP = "user", "client-id", "ip"
"""Types of entities, as Kafka names them."""
DEFAULT = None
"""The name that stands for all of a type that have no quota of their own."""
Entity = Mapping[str, str | None]
"""Name by type: a user, a client id, an address, or a user with a client id."""
_EXACT, _DEFAULT = 0, 1


@dataclass(frozen=True, slots=True)
class EntityQuotas:
    """The quotas of an entity by key, such as producer_byte_rate (bytes a second)."""

    entity: Entity
    quotas: Mapping[str, float]


def describe_quotas(
    cluster: Cluster, wanted: Entity, *, only_these_types: bool = False
) -> list[EntityQuotas]:
    """The entities that have all the wanted names, sorted; with `only_these_types` those that have no other
    type of name. ClientError for a refusal."""
    components = [_component(kind, name) for kind, name in wanted.items()]
    request = DescribeClientQuotasRequest(components=components, strict=only_these_types)
    response = cluster.ask(ANY_NODE, request)
    if response.error_code != ErrorCode.NONE:
        raise refusal("listing quotas", error_of(response.error_code), response.error_message)
    found = [
        EntityQuotas(
            _ordered({one.entity_type: one.entity_name for one in entry.entity}),
            {value.key: value.value for value in sorted(entry.values, key=lambda value: value.key)},
        )
        for entry in response.entries or ()
    ]
    return sorted(found, key=_rank)


def alter_quotas(
    cluster: Cluster, entity: Entity, changes: Mapping[str, float | None], *, only_validate: bool = False
) -> None:
    """Sets quotas of an entity, or removes them (None). `only_validate` only checks the request.
    ClientError for a refusal."""
    operations = [
        OpData(key=key, value=0.0 if value is None else value, remove=value is None)
        for key, value in changes.items()
    ]
    named = [AlteredEntity(entity_type=kind, entity_name=name) for kind, name in entity.items()]
    request = AlterClientQuotasRequest(
        entries=[AlteredEntry(entity=named, ops=operations)], validate_only=only_validate
    )
    for response in ask_controller(cluster, request).entries:
        if response.error_code != ErrorCode.NONE:
            raise refusal("changing quotas", error_of(response.error_code), response.error_message)


def _component(kind: str, name: str | None) -> ComponentData:
    return ComponentData(entity_type=kind, match_type=_DEFAULT if name is DEFAULT else _EXACT, match=name)


def _ordered(entity: dict[str, str | None]) -> dict[str, str | None]:
    """The user before the client."""
    return {kind: entity[kind] for kind in sorted(entity, reverse=True)}


def _rank(one: EntityQuotas) -> Any:
    """By type, the defaults first."""
    return [(kind, name is not DEFAULT, name or "") for kind, name in one.entity.items()]
