"""`odradek configs`: the options of topics, brokers and others, what is not default, and changes."""

import argparse
import sys
from collections.abc import Iterable, Iterator, Sequence

from odradek.client.admin import configs as admin
from odradek.client.admin.asking import Refused
from odradek.client.admin.configs import Change, Config, ConfigSource, Operation, Resource, ResourceKind
from odradek.client.admin.topics import describe_topics
from odradek.client.client_error import ClientError, Unreachable
from odradek.client.cluster import Cluster
from odradek.commands.actions import act_on_cluster, add_action, add_dry_run, new_actions
from odradek.commands.asking import failed
from odradek.commands.output import Column, Output, quantity
from odradek.commands.selecting import matching, no_such
from odradek.config.command_line import exact, readable
from odradek.wire.errors import ErrorCode

ABOUT = """\
Options of any Kafka cluster. A RESOURCE is topic:NAME, broker:ID, broker (the defaults of
all brokers), broker-logger:ID, group:NAME or client-metrics:NAME; the NAME of a topic may
have * in it, or be /a regular expression/. Secrets are never shown."""

EXAMPLES = """\
examples:
  odradek configs get topic:orders
  odradek configs get broker:1 log.retention.ms num.io.threads
  odradek configs diff broker:1 'topic:*'
                        what is not default, and from where
  odradek configs set topic:orders retention.ms=86400000 --dry-run
  odradek configs set topic:orders cleanup.policy+=compact
                        += appends to a list, -= takes out of it
  odradek configs set broker:1 --secret listener.name.tls.ssl.key.password=secret.txt
                        the value is in the file (-: stdin)
  odradek configs set broker-logger:1 odradek.cleaner=DEBUG
  odradek configs unset topic:orders retention.ms

keys of get: resource name value source sensitive read_only.
keys of diff: resource name value source sensitive read_only default.
keys of set and unset: resource name value_before value sensitive.

exit status: 0, or 1 when something could not be done (a sentence says what)."""

_KINDS = {kind.name.lower().replace("_", "-"): kind for kind in ResourceKind}
_NAME = Column("name", whole=True)
SOURCES = {
    "DYNAMIC_TOPIC_CONFIG": "topic",
    "DYNAMIC_GROUP_CONFIG": "group",
    "DYNAMIC_CLIENT_METRICS_CONFIG": "client metrics",
    "DYNAMIC_BROKER_CONFIG": "broker",
    "DYNAMIC_DEFAULT_BROKER_CONFIG": "all brokers",
    "DYNAMIC_BROKER_LOGGER_CONFIG": "logger",
    "STATIC_BROKER_CONFIG": "file",
    "DEFAULT_CONFIG": "default",
}
"""For people: Kafka's names take half of a line."""
_SOURCE = Column("source", text=lambda source: SOURCES.get(source, source))
_CHANGED = [
    Column("resource"),
    _NAME,
    Column("value_before", "before"),
    Column("value", "after"),
]
_SECRET_BYTES_MAX = 1 << 20


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The actions and their options."""
    actions = new_actions(parser)
    one = add_action(actions, "get", "values and their sources", _get)
    one.add_argument("resource", metavar="RESOURCE")
    one.add_argument("names", nargs="*", metavar="NAME", help="only these options")
    one = add_action(actions, "diff", "what is not default, and from where", _diff)
    one.add_argument("resources", nargs="+", metavar="RESOURCE")
    one = add_action(actions, "set", "set options", _set)
    one.add_argument("resource", metavar="RESOURCE")
    one.add_argument("values", nargs="*", metavar="NAME=VALUE", help="or NAME+=VALUE, NAME-=VALUE for lists")
    one.add_argument(
        "--secret",
        type=exact,
        action="append",
        default=[],
        dest="secrets",
        metavar="NAME=FILE",
        help="an option whose value is the content of a file (-: stdin)",
    )
    add_dry_run(one)
    one = add_action(actions, "unset", "give options back to what is below them", _unset)
    one.add_argument("resource", metavar="RESOURCE")
    one.add_argument("names", nargs="+", metavar="NAME")
    add_dry_run(one)


def run(options: argparse.Namespace) -> int:
    """Does the action; returns the exit status."""
    return act_on_cluster(options)


# Looking ----------------------------------------------------------------------------------------------


def _get(cluster: Cluster, options: argparse.Namespace, output: Output) -> int:
    resources = _resources(cluster, options.resource)
    found, refused = _described(cluster, resources, options.names or None)
    rows = [_row(resource, one) for resource, configs in found for one in configs]
    missing = [
        Refused(name, ClientError(f"{resource} has no option {name}"))
        for resource, configs in found
        for name in options.names
        if name not in {one.name for one in configs}
    ]
    columns = [_NAME, Column("value"), _SOURCE]
    output.rows(columns if len(resources) == 1 else [Column("resource"), *columns], rows, "no options")
    return failed([*refused, *missing])


def _diff(cluster: Cluster, options: argparse.Namespace, output: Output) -> int:
    resources, missing = [], []
    for text in dict.fromkeys(options.resources):
        try:
            resources += _resources(cluster, text)
        except ClientError as error:
            missing.append(Refused(text, error))
    found, refused = _described(cluster, list(dict.fromkeys(resources)))
    rows = [
        {**_row(resource, one), "default": one.default}
        for resource, configs in found
        for one in _not_default(resource, configs)
    ]
    columns = [Column("resource"), _NAME, Column("value"), Column("default"), _SOURCE]
    nothing = f"all is default ({quantity(len(found), 'resource')})" if found else ""
    output.rows(columns, rows, nothing)
    return failed([*missing, *refused])


def _not_default(resource: Resource, configs: Sequence[Config]) -> Iterator[Config]:
    """Kafka gives all loggers the same source: those that do not have the level of the root differ."""
    root = next((one.value for one in configs if one.name == "root"), None)
    for one in configs:
        if resource.kind == ResourceKind.BROKER_LOGGER:
            is_default = one.value == root
        else:
            is_default = one.source == ConfigSource.DEFAULT_CONFIG
        if not is_default:
            yield one


def _described(
    cluster: Cluster, resources: Sequence[Resource], names: Sequence[str] | None = None
) -> tuple[list[tuple[Resource, list[Config]]], list[Refused]]:
    found, refused = [], []
    for resource in resources:
        try:
            found.append((resource, admin.describe_configs(cluster, resource, names)))
        except Unreachable:
            raise
        except ClientError as error:
            refused.append(Refused(str(resource), error))
    return found, refused


def _row(resource: Resource, one: Config) -> dict[str, object]:
    return {
        "resource": str(resource),
        "name": one.name,
        "value": one.value,
        "source": one.source.name,
        "sensitive": one.is_sensitive,
        "read_only": one.is_read_only,
    }


# Changing ---------------------------------------------------------------------------------------------


def _set(cluster: Cluster, options: argparse.Namespace, output: Output) -> int:
    secrets = dict(map(_secret, options.secrets))
    changes = [_change(text) for text in options.values]
    changes += [Change(name, Operation.SET, value) for name, value in secrets.items()]
    if not changes:
        raise ClientError("there is nothing to set: give NAME=VALUE")
    return _altered(cluster, options, output, changes, secrets)


def _unset(cluster: Cluster, options: argparse.Namespace, output: Output) -> int:
    changes = [Change(name, Operation.DELETE) for name in options.names]
    return _altered(cluster, options, output, changes, ())


def _altered(
    cluster: Cluster,
    options: argparse.Namespace,
    output: Output,
    changes: Sequence[Change],
    secrets: Iterable[str],
) -> int:
    rows, refused = [], []
    for resource in _resources(cluster, options.resource):
        try:
            before = {one.name: one for one in admin.describe_configs(cluster, resource)}
            refuse_unknown(resource, before, changes)
            _refuse_secrets(before, changes, secrets)
            admin.alter_configs(cluster, resource, changes, only_validate=options.dry_run)
        except Unreachable:
            raise
        except ClientError as error:
            refused.append(Refused(str(resource), error))
            continue
        rows += [_changed(resource, before.get(one.name), one, one.name in secrets) for one in changes]
    output.rows(_CHANGED, rows)
    return failed(refused)


def refuse_unknown(resource: Resource, before: dict[str, Config], changes: Sequence[Change]) -> None:
    """Brokers take an unknown name to unset for done. Of the defaults of all brokers they only tell what is
    set."""
    for one in changes:
        is_told = resource.name and resource.kind != ResourceKind.BROKER_LOGGER
        if one.operation == Operation.DELETE and is_told and one.name not in before:
            raise ClientError(f"{resource} has no option {one.name}")


def _refuse_secrets(before: dict[str, Config], changes: Sequence[Change], secrets: Iterable[str]) -> None:
    """Refuses secrets as arguments: all who see the processes of this machine see them."""
    for one in changes:
        known = before.get(one.name)
        is_secret = (
            known.is_sensitive if known is not None else one.name.endswith(("password", ".jaas.config"))
        )
        if is_secret and one.value is not None and one.name not in secrets:
            raise ClientError(f"{one.name} is a secret, and no argument: give --secret {one.name}=FILE")


def _changed(resource: Resource, before: Config | None, change: Change, is_secret: bool) -> dict[str, object]:
    hidden = is_secret or (before is not None and before.is_sensitive)
    return {
        "resource": str(resource),
        "name": change.name,
        "value_before": before.value if before is not None else None,
        "value": None if hidden else value_after(resource, before, change),
        "sensitive": hidden,
    }


def value_after(resource: Resource, before: Config | None, change: Change) -> str | None:
    """Computed: a broker may learn of the change only after its response."""
    if change.operation == Operation.SET:
        return change.value
    if change.operation == Operation.DELETE:
        own = _own_source(resource)
        left = [one.value for one in before.synonyms if one.source != own] if before is not None else []
        return left[0] if left else None
    items = [one for one in ((before.value if before else None) or "").split(",") if one]
    given = (change.value or "").split(",")
    if change.operation == Operation.APPEND:
        return ",".join([*items, *(one for one in given if one not in items)])
    return ",".join(one for one in items if one not in given)


def _own_source(resource: Resource) -> ConfigSource:
    return {
        ResourceKind.TOPIC: ConfigSource.DYNAMIC_TOPIC_CONFIG,
        ResourceKind.BROKER: (
            ConfigSource.DYNAMIC_BROKER_CONFIG
            if resource.name
            else ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG
        ),
        ResourceKind.BROKER_LOGGER: ConfigSource.DYNAMIC_BROKER_LOGGER_CONFIG,
        ResourceKind.CLIENT_METRICS: ConfigSource.DYNAMIC_CLIENT_METRICS_CONFIG,
        ResourceKind.GROUP: ConfigSource.DYNAMIC_GROUP_CONFIG,
    }[resource.kind]


# Reading what was typed -------------------------------------------------------------------------------


def _resources(cluster: Cluster, text: str) -> list[Resource]:
    """ClientError for a text that is no resource, and for a topic that is not there."""
    return _matching_topics(cluster, parse_resource(text))


def parse_resource(text: str) -> Resource:
    """The resource of a text as the help has it, of one name. ClientError."""
    word, colon, name = text.partition(":")
    if word in _KINDS and (name or (word == "broker" and not colon)):
        return Resource(_KINDS[word], name)
    raise ClientError(
        f"{text!r} is not a resource: write topic:NAME, broker:ID, broker, broker-logger:ID, group:NAME or "
        "client-metrics:NAME"
    )


def _matching_topics(cluster: Cluster, resource: Resource) -> list[Resource]:
    name = resource.name
    if resource.kind != ResourceKind.TOPIC:
        return [resource]
    if not ("*" in name or name.startswith("/")):
        # Asked for the options of an unknown topic, the client would wait for it: it may be new.
        _, refused = describe_topics(cluster, [name])
        is_there = not any(one.error.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION for one in refused)
        names = [name] if is_there else []
    else:
        topics, _ = describe_topics(cluster)
        names = matching((topic.name for topic in topics if not topic.is_internal), [name])
    if not names:
        raise ClientError(no_such("topic", name))
    return [Resource(ResourceKind.TOPIC, one) for one in names]


def _change(text: str) -> Change:
    name, equals, value = text.partition("=")
    operations = {"+": Operation.APPEND, "-": Operation.SUBTRACT}
    operation = operations.get(name[-1:], Operation.SET)
    name = name if operation == Operation.SET else name[:-1]
    if not equals or not name:
        raise ClientError(f"{text} is not NAME=VALUE")
    return Change(name, operation, value)


def _secret(text: str) -> tuple[str, str]:
    name, equals, path = text.partition("=")
    if not equals or not name or not path:
        raise ClientError(f"--secret {text} is not NAME=FILE")
    name = readable(name)
    try:
        if path == "-":
            value = sys.stdin.read(_SECRET_BYTES_MAX)
        else:
            with open(path, encoding="utf-8") as file:
                value = file.read(_SECRET_BYTES_MAX)
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise ClientError(f"the file of --secret {name} cannot be read: {reason}") from None
    return name, value.removesuffix("\n").removesuffix("\r")
