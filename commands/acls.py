"""`odradek acls`: who may do what."""

import argparse
from collections.abc import Iterable, Sequence
from itertools import product
from typing import TypeVar

from odradek.client.admin import acls as admin
from odradek.client.admin.acls import Acl, AclFilter
from odradek.client.admin.asking import Outcome
from odradek.client.client_error import ClientError
from odradek.client.cluster import Cluster
from odradek.commands.actions import act_on_cluster, add_action, add_dry_run, new_actions
from odradek.commands.asking import failed
from odradek.commands.output import Column, Output
from odradek.wire.acl_types import CLUSTER_NAME, WILDCARD, Operation, PatternType, Permission, ResourceType

ABOUT = """\
ACLs of any Kafka cluster, in Kafka's words. A rule allows (or denies) an operation on a
resource to a principal. Options that may be given many times make a rule of each
combination. Operations: ALL, READ, WRITE, CREATE, DELETE, ALTER, DESCRIBE, CLUSTER_ACTION,
DESCRIBE_CONFIGS, ALTER_CONFIGS, IDEMPOTENT_WRITE, CREATE_TOKENS, DESCRIBE_TOKENS,
TWO_PHASE_COMMIT; READ, WRITE, DELETE and ALTER allow DESCRIBE, too."""

EXAMPLES = """\
examples:
  odradek acls list
  odradek acls list --topic orders
                        every rule that the topic obeys, also by prefix or '*'
  odradek acls add --principal User:ann --operation READ --topic orders --group billing
  odradek acls add --principal User:ann --producer --consumer --topic orders --group billing
  odradek acls add --principal User:shop --operation WRITE --topic shop. --prefixed
  odradek acls add --principal 'User:*' --host 192.0.2.7 --deny --operation ALL --topic '*'
  odradek acls remove --principal User:ann --topic orders --dry-run
  odradek acls remove --principal User:ann

keys: principal host permission operation resource_type resource_name pattern_type.

exit status: 0, or 1 when something could not be done (a sentence says what)."""

_RESOURCES = {
    "topics": ("--topic", ResourceType.TOPIC),
    "groups": ("--group", ResourceType.GROUP),
    "transactional_ids": ("--transactional-id", ResourceType.TRANSACTIONAL_ID),
    "delegation_tokens": ("--delegation-token", ResourceType.DELEGATION_TOKEN),
    "user_principals": ("--user-principal", ResourceType.USER),
}
_COLUMNS = [
    Column("principal"),
    Column("host"),
    Column("permission"),
    Column("operation"),
    Column("resource_type", "resource"),
    Column("resource_name", "name"),
    Column("pattern_type", "pattern"),
]
T = TypeVar("T")
_MOST = 10_000
"""Rules of one command: more is a slip."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The actions and their options."""
    actions = new_actions(parser)
    one = add_action(actions, "list", "list all rules, or those that match", _list)
    _add_who_and_what(one, "any host")
    one.add_argument("--prefixed", action="store_true", help="only rules for exactly this prefix")
    one.add_argument("--deny", action="store_true", help="only rules that deny")
    one = add_action(actions, "add", "add rules", _add)
    _add_who_and_what(one, f"'{WILDCARD}'")
    one.add_argument("--prefixed", action="store_true", help="the names are prefixes")
    one.add_argument("--deny", action="store_true", help="deny instead of allow")
    one.add_argument(
        "--producer",
        action="store_true",
        help="what a producer needs: WRITE, DESCRIBE and CREATE of the topics, WRITE and DESCRIBE of "
        "transactional ids",
    )
    one.add_argument(
        "--consumer",
        action="store_true",
        help="what a consumer needs: READ and DESCRIBE of the topics, READ of the groups",
    )
    one.add_argument(
        "--idempotent",
        action="store_true",
        help="with --producer: IDEMPOTENT_WRITE of the cluster, which Kafka before 2.8 needs",
    )
    one = add_action(actions, "remove", "remove the rules that match", _remove)
    _add_who_and_what(one, "any host")
    one.add_argument(
        "--prefixed", action="store_true", help="rules for exactly this prefix, not for the name"
    )
    one.add_argument("--deny", action="store_true", help="only rules that deny")
    one.add_argument("--all", action="store_true", help="every rule of the cluster")
    add_dry_run(one)


def _add_who_and_what(parser: argparse.ArgumentParser, host: str) -> None:
    def add(option: str, destination: str, metavar: str, about: str) -> None:
        parser.add_argument(
            option, action="append", default=[], dest=destination, metavar=metavar, help=about
        )

    add(
        "--principal",
        "principals",
        "TYPE:NAME",
        "such as User:ann; this option and the next ones may be given many times",
    )
    add("--host", "hosts", "ADDRESS", f"of the client (default {host})")
    add("--operation", "operations", "OPERATION", "such as READ, Read, or describe-configs")
    for destination, (option, kind) in _RESOURCES.items():
        what = kind.name.lower().replace("_", " ")
        add(option, destination, option[2:].upper(), f"name of a {what}; '{WILDCARD}': every {what}")
    parser.add_argument("--cluster", action="store_true", help="the cluster itself")


def run(options: argparse.Namespace) -> int:
    """Does the action; returns the exit status."""
    return act_on_cluster(options)


def _list(cluster: Cluster, options: argparse.Namespace, output: Output) -> int:
    pattern = PatternType.PREFIXED if options.prefixed else PatternType.MATCH
    found = admin.describe_acls(cluster, _filters(options, pattern))
    output.rows(_COLUMNS, map(acl_row, found), "no ACLs")
    return 0


def _add(cluster: Cluster, options: argparse.Namespace, output: Output) -> int:
    has_role = options.producer or options.consumer or options.idempotent
    acls = _acls_of_roles(options) if has_role else _acls(options)
    refused = admin.add_acls(cluster, acls)
    not_added = {one.name for one in refused}
    output.rows(_COLUMNS, [acl_row(one) for one in acls if str(one) not in not_added])
    return failed(refused)


def _remove(cluster: Cluster, options: argparse.Namespace, output: Output) -> int:
    pattern = PatternType.PREFIXED if options.prefixed else PatternType.LITERAL
    filters = _filters(options, pattern)
    if AclFilter() in filters and not options.all:
        raise ClientError("this is every rule of the cluster: say which ones, or --all")
    refused: Outcome = []
    if options.dry_run:
        removed = admin.describe_acls(cluster, filters)
    else:
        removed, refused = admin.remove_acls(cluster, filters)
    output.rows(_COLUMNS, map(acl_row, removed), "no rule matches, nothing to remove")
    return failed(refused)


def acl_row(one: Acl) -> dict[str, str]:
    """With the documented keys."""
    return {
        "principal": one.principal,
        "host": one.host,
        "permission": one.permission.name,
        "operation": one.operation.name,
        "resource_type": one.resource_type.name,
        "resource_name": one.resource_name,
        "pattern_type": one.pattern_type.name,
    }


# Reading what was typed -------------------------------------------------------------------------------


def _acls(options: argparse.Namespace) -> list[Acl]:
    """A rule of each combination."""
    resources = _resources(options)
    if not resources or not options.principals or not options.operations:
        raise ClientError("a rule needs --principal, --operation, and what it is about, such as --topic")
    pattern = PatternType.PREFIXED if options.prefixed else PatternType.LITERAL
    permission = Permission.DENY if options.deny else Permission.ALLOW
    combined = product(
        resources, _principals(options), options.hosts or [WILDCARD], map(parse_operation, options.operations)
    )
    return _bounded(
        Acl(kind, name, pattern_of(kind, pattern), principal, host, operation, permission)
        for (kind, name), principal, host, operation in combined
    )


def _acls_of_roles(options: argparse.Namespace) -> list[Acl]:
    """The rules that Kafka's own tool makes for producers and consumers.

    Source: AclCommand of Kafka 4.3.
    """
    resources = _resources(options)
    kinds = {kind for kind, _ in resources}
    if options.idempotent and not options.producer:
        raise ClientError("--idempotent is for --producer")
    if options.deny or options.operations:
        raise ClientError(
            "--producer and --consumer say which operations are allowed: without --operation, --deny"
        )
    if not options.principals or ResourceType.TOPIC not in kinds:
        raise ClientError("--producer and --consumer need --principal and --topic")
    if options.consumer and ResourceType.GROUP not in kinds:
        raise ClientError("--consumer needs --group, too")
    operations: dict[ResourceType, list[Operation]] = {kind: [] for kind in kinds}
    if options.producer:
        operations[ResourceType.TOPIC] += [Operation.WRITE, Operation.DESCRIBE, Operation.CREATE]
        operations[ResourceType.TRANSACTIONAL_ID] = [Operation.WRITE, Operation.DESCRIBE]
    if options.consumer:
        operations[ResourceType.TOPIC] += [Operation.READ, Operation.DESCRIBE]
        operations[ResourceType.GROUP] = [Operation.READ]
    unused = sorted(kind.name.lower() for kind in kinds if not operations[kind])
    if unused:
        raise ClientError(f"--producer and --consumer say nothing of a {unused[0].replace('_', ' ')}")
    if options.idempotent:
        resources = [*resources, (ResourceType.CLUSTER, CLUSTER_NAME)]
        operations[ResourceType.CLUSTER] = [Operation.IDEMPOTENT_WRITE]
    pattern = PatternType.PREFIXED if options.prefixed else PatternType.LITERAL
    return _bounded(
        Acl(kind, name, pattern_of(kind, pattern), principal, host, operation, Permission.ALLOW)
        for (kind, name), principal, host in product(
            resources, _principals(options), options.hosts or [WILDCARD]
        )
        for operation in operations[kind]
    )


def _filters(options: argparse.Namespace, pattern: PatternType) -> list[AclFilter]:
    """A filter of each combination; `pattern` is for those that have a name."""
    wanted: list[tuple[ResourceType, str | None, PatternType]]
    wanted = [(kind, name, pattern_of(kind, pattern)) for kind, name in _resources(options)]
    nameless = PatternType.PREFIXED if options.prefixed else PatternType.ANY
    principals: Sequence[str | None] = _principals(options) or [None]
    combined = product(
        wanted or [(ResourceType.ANY, None, nameless)],
        principals,
        options.hosts or [None],
        [parse_operation(text) for text in options.operations] or [Operation.ANY],
    )
    permission = Permission.DENY if options.deny else Permission.ANY
    return _bounded(
        AclFilter(kind, name, pattern_type, principal, host, operation, permission)
        for (kind, name, pattern_type), principal, host, operation in combined
    )


def _bounded(found: Iterable[T]) -> list[T]:
    listed = list(dict.fromkeys(found))
    if len(listed) > _MOST:
        raise ClientError(f"these are {len(listed):,} rules, and {_MOST:,} are possible in one command")
    return listed


def _resources(options: argparse.Namespace) -> list[tuple[ResourceType, str]]:
    named = [
        (kind, name)
        for destination, (_, kind) in _RESOURCES.items()
        for name in getattr(options, destination)
    ]
    return [*named, *([(ResourceType.CLUSTER, CLUSTER_NAME)] if options.cluster else [])]


def pattern_of(kind: ResourceType, pattern: PatternType) -> PatternType:
    """The name of the cluster has no beginning."""
    is_prefix = kind == ResourceType.CLUSTER and pattern == PatternType.PREFIXED
    return PatternType.LITERAL if is_prefix else pattern


def _principals(options: argparse.Namespace) -> Sequence[str]:
    for text in options.principals:
        kind, colon, name = text.partition(":")
        if not colon or not kind or not name:
            raise ClientError(f"--principal {text} is not TYPE:NAME, such as User:{text or 'ann'}")
    found: Sequence[str] = options.principals
    return found


def parse_operation(text: str, what: str = "--operation ") -> Operation:
    """An operation by its name; `what` begins the sentence of a ClientError."""
    wanted = text.upper().replace("-", "").replace("_", "")
    for one in Operation:
        if one > Operation.ANY and one.name.replace("_", "") == wanted:
            return one
    known = ", ".join(one.name for one in Operation if one > Operation.ANY)
    raise ClientError(f"{what}{text} is none of {known}")
