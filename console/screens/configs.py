"""Options of topics and brokers: values, defaults and where they are from; changes are checked first."""

from dataclasses import dataclass
from typing import Any

from starlette.responses import Response

from odradek.client.admin import configs as admin
from odradek.client.admin.configs import Change, Config, ConfigSource, Operation, Resource, ResourceKind
from odradek.client.client_error import ClientError
from odradek.client.cluster import Cluster
from odradek.commands.configs import SOURCES, parse_resource, refuse_unknown, value_after
from odradek.console.listing import Listing
from odradek.console.rendering import link
from odradek.console.screens.partitions import described
from odradek.console.visit import Part, Screen, Visit

KEYS = ("name", "value", "default", "source")
OPERATIONS = {"set": Operation.SET, "unset": Operation.DELETE}


@dataclass(frozen=True, slots=True)
class Changed:
    """A change that was checked, or made."""

    name: str
    before: str | None
    after: str | None
    is_made: bool
    is_sensitive: bool


async def of_topic(visit: Visit) -> Response:
    """The options of a topic."""
    topic = visit.segment("topic")

    return await _page(visit, Resource(ResourceKind.TOPIC, topic))


async def of_resource(visit: Visit) -> Response:
    """The options of the resource of the query; without one, the brokers lead there."""
    text = visit.text("resource")
    if not text:
        return visit.go("/brokers")
    return await _page(visit, parse_resource(text))


async def _page(visit: Visit, resource: Resource, *, changed: Part[Changed] | None = None) -> Response:
    path = _path(resource)
    query = visit.query | ({"resource": str(resource)} if path == "/configs" else {})
    filter_text, is_all = visit.text("filter"), visit.text("all") == "1"
    edited = visit.text("edit") or visit.form.get("name", "")

    def listed(cluster: Cluster) -> tuple[Listing, Config | None, int]:
        if resource.kind == ResourceKind.TOPIC:
            described(cluster, resource.name)
        found = admin.describe_configs(cluster, resource)
        chosen = [one for one in found if filter_text.lower() in one.name.lower()]
        changed_ones = [one for one in chosen if one.source != ConfigSource.DEFAULT_CONFIG]
        rows = [_row(one) for one in (chosen if is_all or filter_text else changed_ones)]
        option = next((one for one in found if one.name == edited), None)
        return Listing(rows, path, query, KEYS, page_rows=500), option, len(found)

    part = await visit.part(listed)
    return visit.page(
        "configs.html",
        resource=resource,
        topic=resource.name if resource.kind == ResourceKind.TOPIC else "",
        configs=part,
        sources=SOURCES,
        filter=filter_text,
        is_all=is_all,
        edited=edited,
        typed=visit.form.get("value"),
        changed=changed,
        path=path,
        link_to=lambda **more: link(path, **{**query, **more}),
    )


def _path(resource: Resource) -> str:
    if resource.kind == ResourceKind.TOPIC:
        return f"/topics/{resource.name}/configs"
    return "/configs"


def _row(one: Config) -> dict[str, Any]:
    return {
        "name": one.name,
        "value": one.value,
        "default": one.default,
        "source": one.source.name,
        "is_sensitive": one.is_sensitive,
        "is_read_only": one.is_read_only,
    }


async def change(visit: Visit) -> Response:
    """Lets the brokers check a change ("do" is check), or makes it (set, unset)."""
    resource = parse_resource(visit.text("resource"))
    name, do = visit.text("name"), visit.text("do")
    operation = Operation.DELETE if do == "unset" or visit.text("unset") == "1" else Operation.SET
    value = visit.form.get("value", "").replace("\r\n", "\n")
    wanted = Change(name, operation, None if operation == Operation.DELETE else value)

    def made(cluster: Cluster) -> Changed:
        if not name:
            raise ClientError("an option has a name")
        before = {one.name: one for one in admin.describe_configs(cluster, resource)}
        refuse_unknown(resource, before, [wanted])
        admin.alter_configs(cluster, resource, [wanted], only_validate=do == "check")
        known = before.get(name)
        is_sensitive = known is not None and known.is_sensitive
        after = None if is_sensitive else value_after(resource, known, wanted)
        return Changed(name, known.value if known else None, after, do != "check", is_sensitive)

    return await _page(visit, resource, changed=await visit.part(made))


SCREENS = [
    Screen("/topics/{topic}/configs", of_topic),
    Screen("/configs", of_resource),
    Screen("/configs/change", change, ("POST",)),
]
