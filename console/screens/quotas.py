"""Quotas of users, clients and addresses: what there is; a change is checked before it is made."""

from dataclasses import dataclass
from typing import Any, Final

from starlette.responses import Response

from odradek.client.admin.quotas import CLIENT_ID, DEFAULT, IP, USER, Entity, alter_quotas, describe_quotas
from odradek.client.client_error import ClientError
from odradek.client.cluster import Cluster
from odradek.commands.quotas import entity_text, parse_quota, plain_number, quotas_of
from odradek.console.listing import Listing
from odradek.console.rendering import link
from odradek.console.visit import Part, Screen, Visit

KEYS = ("entity", "key", "value")
QUOTAS: Final = {
    "producer_byte_rate": "bytes a second",
    "consumer_byte_rate": "bytes a second",
    "request_percentage": "percent of the time of a thread",
    "controller_mutation_rate": "partitions a second",
    "connection_creation_rate": "connections a second of an address",
}
"""Quotas and what they count."""
TYPES: Final = {"user": USER, "client_id": CLIENT_ID, "ip": IP}
"""Type of an entity by the field of a form; with `_defaults` behind it: all without a quota of their own."""


@dataclass(frozen=True, slots=True)
class Changed:
    """A change that was checked, or made."""

    entity: str
    key: str
    before: float | None
    after: float | None
    is_made: bool


async def show(visit: Visit) -> Response:
    """Quotas by their entities."""
    return await _page(visit)


async def _page(visit: Visit, changed: Part[Changed] | None = None) -> Response:
    query, text = visit.query, visit.text("filter")

    def listed(cluster: Cluster) -> Listing:
        rows = [
            {
                "entity": entity_text(one.entity),
                "key": key,
                "value": plain_number(value),
                "url": link("/quotas", key=key, value=plain_number(value), **_fields(one.entity)),
            }
            for one in describe_quotas(cluster, {})
            for key, value in one.quotas.items()
        ]
        chosen = [row for row in rows if text.lower() in f"{row['entity']} {row['key']}".lower()]
        return Listing(chosen, "/quotas", query, KEYS)

    return visit.page(
        "quotas.html",
        quotas=await visit.part(listed),
        filter=text,
        changed=changed,
        units=QUOTAS,
        types=TYPES,
        key=visit.text("key"),
        value=visit.text("value"),
    )


def _fields(entity: Entity) -> dict[str, Any]:
    """The fields of a form that names the entity."""
    fields: dict[str, Any] = {}
    for field, kind in TYPES.items():
        if kind in entity:
            name = entity[kind]
            fields |= {f"{field}_defaults": True} if name is DEFAULT else {field: name}
    return fields


async def change(visit: Visit) -> Response:
    """Lets the brokers check a change ("do" is check), or makes it (set, unset)."""
    do = visit.text("do")

    def made(cluster: Cluster) -> Changed:
        entity = _entity(visit)
        key, value = visit.text("key"), None
        if do == "unset":
            if key not in quotas_of(cluster, entity):
                raise ClientError(f"{entity_text(entity)} has no quota {key}")
        else:
            _, value = parse_quota(f"{key}={visit.text('value')}")
        before = quotas_of(cluster, entity).get(key)
        alter_quotas(cluster, entity, {key: value}, only_validate=do == "check")
        return Changed(entity_text(entity), key, plain_number(before), plain_number(value), do != "check")

    return await _page(visit, await visit.part(made))


def _entity(visit: Visit) -> Entity:
    """The entity that was typed. ClientError for none."""
    entity: dict[str, str | None] = {}
    for field, kind in TYPES.items():
        name, is_default = visit.text(field), visit.text(f"{field}_defaults") == "1"
        if name and is_default:
            raise ClientError(f"give either a {kind} or the default of all, not both")
        if name or is_default:
            entity[kind] = DEFAULT if is_default else name
    if not entity:
        raise ClientError("whose quota: give a user, a client id or an address, or their defaults")
    return entity


SCREENS = [Screen("/quotas", show), Screen("/quotas/change", change, ("POST",))]
