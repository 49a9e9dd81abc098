"""ACLs: those that match, adding some, and removing exactly those that were shown."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from starlette.responses import Response

from odradek.client.admin.acls import Acl, AclFilter, add_acls, describe_acls, remove_acls
from odradek.client.admin.asking import Outcome
from odradek.client.client_error import ClientError
from odradek.client.cluster import Cluster
from odradek.commands.acls import acl_row, parse_operation, pattern_of
from odradek.console.listing import Listing
from odradek.console.rendering import link
from odradek.console.visit import Part, Screen, Visit, sentence
from odradek.wire.acl_types import CLUSTER_NAME, WILDCARD, Operation, PatternType, Permission, ResourceType

KEYS = ("principal", "host", "permission", "operation", "resource_type", "resource_name", "pattern_type")
FIELDS: Final = ("principal", "host", "permission", "operation", "type", "name", "pattern")
"""Names of the fields of a filter, in URLs and forms."""
REMOVED_MAX = 1_000
"""Rules that are removed at a time."""
ADDED_MAX = 100
Kind = TypeVar("Kind", ResourceType, PatternType, Permission, Operation)


@dataclass(frozen=True, slots=True)
class Found:
    """The rules that a filter matches."""

    listing: Listing
    count: int
    seen: str
    """Fingerprint of the rules, so that those which are removed are those that were shown."""


@dataclass(frozen=True, slots=True)
class Added:
    """Rules that would be added, or were."""

    rows: Sequence[dict[str, Any]]
    """Keys of the command, and `is_there`."""
    refused: Outcome
    is_done: bool


async def show(visit: Visit) -> Response:
    """The rules that match the filter of the query; without one, all."""
    return await _page(visit)


async def _page(visit: Visit, *, failed: str = "", added: Part[Added] | None = None) -> Response:
    fields = {name: visit.request.query_params.get(name, "").strip() for name in FIELDS}
    if visit.form and added is None:
        fields = {name: visit.text(name) for name in FIELDS}

    def listed(cluster: Cluster) -> Found:
        found = describe_acls(cluster, [_filter(fields)])
        given = {name: text for name, text in fields.items() if text}
        kept = {key: text for key, text in visit.query.items() if key in ("sort", "desc", "page")}
        query = kept | given
        return Found(Listing([_row(one) for one in found], "/acls", query, KEYS), len(found), _seen(found))

    part = await visit.part(listed)
    typed = {name: visit.form.get(name, "") if added is not None else "" for name in FIELDS}
    return visit.page(
        "acls.html",
        acls=part,
        fields=fields,
        word=_word(fields),
        failed=failed,
        added=added,
        typed=typed,
        removed=visit.whole("removed", 0, 0, REMOVED_MAX),
        removed_max=REMOVED_MAX,
        types=_names(ResourceType),
        patterns=[PatternType.LITERAL.name, PatternType.PREFIXED.name],
        permissions=_names(Permission),
        operations=_names(Operation),
    )


def _names(kind: type[Any]) -> list[str]:
    return [one.name for one in kind if one.name not in ("UNKNOWN", "ANY", "MATCH")]


def _row(one: Acl) -> dict[str, Any]:
    row: dict[str, Any] = dict(acl_row(one))
    row["url"] = link("/acls", **_exactly(one))
    return row


def _exactly(one: Acl) -> dict[str, str]:
    """Fields of a filter that matches this rule alone."""
    return {
        "principal": one.principal,
        "host": one.host,
        "permission": one.permission.name,
        "operation": one.operation.name,
        "type": one.resource_type.name,
        "name": one.resource_name,
        "pattern": one.pattern_type.name,
    }


def _filter(fields: dict[str, str]) -> AclFilter:
    """ClientError for a name that is none."""
    return AclFilter(
        _kind(ResourceType, fields["type"], ResourceType.ANY),
        fields["name"] or None,
        _kind(PatternType, fields["pattern"], PatternType.ANY),
        fields["principal"] or None,
        fields["host"] or None,
        parse_operation(fields["operation"], "the operation ") if fields["operation"] else Operation.ANY,
        _kind(Permission, fields["permission"], Permission.ANY),
    )


def _kind(kind: type[Kind], text: str, default: Kind) -> Kind:
    if not text:
        return default
    if text not in kind.__members__ or text == "UNKNOWN":
        raise ClientError(f"{text} is none of {', '.join(_names(kind))}")
    return kind[text]


def _seen(found: Sequence[Acl]) -> str:
    digest = hashlib.sha256()
    for one in found:
        digest.update(repr(tuple(_exactly(one).values())).encode("utf-8", "surrogateescape"))
    return digest.hexdigest()


def _word(fields: dict[str, str]) -> str:
    """Word that a person types to remove the rules of a filter."""
    return fields["principal"] or fields["name"] or "all rules"


# Changes ----------------------------------------------------------------------------------------------


async def add(visit: Visit) -> Response:
    """Shows the rules that would be added ("do" is check), or adds them (add)."""
    is_done = visit.text("do") == "add"

    def made(cluster: Cluster) -> Added:
        wanted = _wanted(visit)
        there = {found for one in wanted for found in describe_acls(cluster, [_exact_filter(one)])}
        refused = add_acls(cluster, wanted) if is_done else []
        not_added = {one.name for one in refused}
        rows = [
            {**acl_row(one), "is_there": one in there, "refused": str(one) in not_added} for one in wanted
        ]
        return Added(rows, refused, is_done)

    return await _page(visit, added=await visit.part(made))


def _wanted(visit: Visit) -> list[Acl]:
    """A rule of each operation that was typed. ClientError for what is no rule."""
    principal, host = visit.text("principal"), visit.text("host") or WILDCARD
    kind, colon, name = principal.partition(":")
    if not colon or not kind or not name:
        raise ClientError(f"the principal {principal} is not TYPE:NAME, such as User:ann")
    resource = _kind(ResourceType, visit.text("type"), ResourceType.TOPIC)
    resource_name = CLUSTER_NAME if resource == ResourceType.CLUSTER else visit.text("name")
    if not resource_name:
        raise ClientError("a rule is about something: give its name, or * for all")
    pattern = pattern_of(resource, _kind(PatternType, visit.text("pattern"), PatternType.LITERAL))
    permission = _kind(Permission, visit.text("permission"), Permission.ALLOW)
    is_pattern = pattern in (PatternType.LITERAL, PatternType.PREFIXED)
    if not is_pattern or permission == Permission.ANY or resource == ResourceType.ANY:
        raise ClientError("ANY and MATCH are for filters, not for rules")
    texts = dict.fromkeys(visit.text("operation").replace(",", " ").split())
    if not texts:
        raise ClientError("a rule has an operation, such as READ")
    if len(texts) > ADDED_MAX:
        raise ClientError(f"{ADDED_MAX} rules are possible at a time")
    operations = dict.fromkeys(parse_operation(text, "the operation ") for text in texts)
    return [Acl(resource, resource_name, pattern, principal, host, one, permission) for one in operations]


def _exact_filter(one: Acl) -> AclFilter:
    return AclFilter(
        one.resource_type,
        one.resource_name,
        one.pattern_type,
        one.principal,
        one.host,
        one.operation,
        one.permission,
    )


async def remove(visit: Visit) -> Response:
    """Removes the rules that the page showed, each by a filter that matches it alone."""
    fields = {name: visit.text(name) for name in FIELDS}
    word = _word(fields)
    if visit.text("word") != word:
        return await _page(visit, failed=f"Type {word} to remove these rules; nothing was removed.")

    def removed(cluster: Cluster) -> int:
        found = describe_acls(cluster, [_filter(fields)])
        if _seen(found) != visit.text("seen"):
            raise ClientError("there are other rules now than those that were shown; nothing was removed")
        if len(found) > REMOVED_MAX:
            raise ClientError(f"{REMOVED_MAX:,} rules can be removed at a time: filter them first")
        gone, refused = remove_acls(cluster, [_exact_filter(one) for one in found])
        for one in refused:
            raise one.error
        return len(gone)

    try:
        count = await visit.ask(removed)
    except ClientError as error:
        return await _page(visit, failed=sentence(error))
    return visit.go(link("/acls", removed=count))


SCREENS = [
    Screen("/acls", show),
    Screen("/acls/add", add, ("POST",)),
    Screen("/acls/remove", remove, ("POST",)),
]
