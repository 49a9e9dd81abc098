"""`odradek quotas`: how much users, clients and addresses may do."""

import argparse
import math
from collections.abc import Mapping
from typing import Any

from odradek.client.admin import quotas as admin
from odradek.client.admin.quotas import CLIENT_ID, DEFAULT, IP, USER, Entity
from odradek.client.client_error import ClientError
from odradek.client.cluster import Cluster
from odradek.commands.actions import act_on_cluster, add_action, add_dry_run, new_actions
from odradek.commands.output import Column, Output

ABOUT = """\
Quotas of any Kafka cluster: producer_byte_rate and consumer_byte_rate (bytes a second),
request_percentage (of the time of a thread), controller_mutation_rate (partitions a second)
for a user, a client id or both; connection_creation_rate (a second) for an address. A
default counts for each user (client, address) without a quota of its own."""

EXAMPLES = """\
examples:
  odradek quotas list
  odradek quotas list --user ann
  odradek quotas set producer_byte_rate=1048576 consumer_byte_rate=2097152 --user ann
  odradek quotas set request_percentage=50 --user-defaults --client-id shop --dry-run
  odradek quotas set connection_creation_rate=10 --ip 192.0.2.7
  odradek quotas remove producer_byte_rate --user ann
  odradek quotas remove --user ann --dry-run
                        all quotas of the user, without those of its clients

keys of list: entity key value.
keys of set and remove: entity key value_before value.

exit status: 0, or 1 when nothing was changed (a sentence says why)."""

_NAME_OF_DEFAULT = "<default>"
_TYPES = {"user": USER, "client_id": CLIENT_ID, "ip": IP}


def entity_text(entity: Entity) -> str:
    """The entity for people: `user=ann client-id=<default>`."""
    return " ".join(
        f"{kind}={_NAME_OF_DEFAULT if name is DEFAULT else name}" for kind, name in entity.items()
    )


_ENTITY = Column("entity", text=entity_text)
_CHANGED = [_ENTITY, Column("key"), Column("value_before", "before", True), Column("value", "after", True)]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The actions and their options."""
    actions = new_actions(parser)
    one = add_action(actions, "list", "quotas, all or those of an entity", _list)
    _add_entity(one)
    one = add_action(actions, "set", "set quotas of an entity", _set)
    one.add_argument("values", nargs="+", metavar="KEY=VALUE")
    _add_entity(one)
    add_dry_run(one)
    one = add_action(actions, "remove", "remove quotas of an entity", _remove)
    one.add_argument("keys", nargs="*", metavar="KEY", help="only these; default: all of the entity")
    _add_entity(one)
    add_dry_run(one)


def _add_entity(parser: argparse.ArgumentParser) -> None:
    for destination, kind in _TYPES.items():
        which = parser.add_mutually_exclusive_group()
        which.add_argument(f"--{kind}", metavar="NAME" if kind != IP else "ADDRESS", dest=destination)
        which.add_argument(
            f"--{kind}-defaults",
            action="store_true",
            dest=f"{destination}_defaults",
            help=f"the default for each {kind.replace('-', ' ')}",
        )


def run(options: argparse.Namespace) -> int:
    """Does the action; returns the exit status."""
    return act_on_cluster(options)


def _list(cluster: Cluster, options: argparse.Namespace, output: Output) -> int:
    rows = [
        {"entity": one.entity, "key": key, "value": plain_number(value)}
        for one in admin.describe_quotas(cluster, _entity(options))
        for key, value in one.quotas.items()
    ]
    output.rows([_ENTITY, Column("key"), Column("value", right=True)], rows, "no quotas")
    return 0


def _set(cluster: Cluster, options: argparse.Namespace, output: Output) -> int:
    entity, changes = _named(options), dict(map(parse_quota, options.values))
    before = quotas_of(cluster, entity)
    return _altered(cluster, options, output, entity, before, changes)


def _remove(cluster: Cluster, options: argparse.Namespace, output: Output) -> int:
    entity = _named(options)
    before = quotas_of(cluster, entity)
    missing = [key for key in options.keys if key not in before]
    if missing or not before:
        raise ClientError(f"{entity_text(entity)} has no quota {', '.join(missing)}".rstrip())
    return _altered(cluster, options, output, entity, before, dict.fromkeys(options.keys or before))


def _altered(
    cluster: Cluster,
    options: argparse.Namespace,
    output: Output,
    entity: Entity,
    before: Mapping[str, float],
    changes: Mapping[str, float | None],
) -> int:
    admin.alter_quotas(cluster, entity, changes, only_validate=options.dry_run)
    rows = [
        {
            "entity": entity,
            "key": key,
            "value_before": plain_number(before.get(key)),
            "value": plain_number(value),
        }
        for key, value in changes.items()
    ]
    output.rows(_CHANGED, rows)
    return 0


def quotas_of(cluster: Cluster, entity: Entity) -> Mapping[str, float]:
    """Quotas of this very entity."""
    found = admin.describe_quotas(cluster, entity, only_these_types=True)
    return found[0].quotas if found else {}


# Reading what was typed -------------------------------------------------------------------------------


def _entity(options: argparse.Namespace) -> dict[str, Any]:
    named = {
        kind: DEFAULT if getattr(options, f"{destination}_defaults") else getattr(options, destination)
        for destination, kind in _TYPES.items()
        if getattr(options, f"{destination}_defaults") or getattr(options, destination) is not None
    }
    if "" in named.values():
        raise ClientError("the name of a user, a client or an address is empty")
    return named


def _named(options: argparse.Namespace) -> Entity:
    entity = _entity(options)
    if not entity:
        raise ClientError("whose quotas: give --user, --client-id or --ip, or their defaults")
    return entity


def parse_quota(text: str) -> tuple[str, float]:
    """KEY=VALUE with a finite number; ClientError."""
    key, equals, value = text.partition("=")
    try:
        number = float(value)
    except ValueError:
        number = math.nan
    if not equals or not key or not math.isfinite(number):
        raise ClientError(f"{text} is not KEY=VALUE with a number")
    return key, number


def plain_number(value: float | None) -> float | None:
    """Whole, if it is."""
    return int(value) if value is not None and value.is_integer() else value
