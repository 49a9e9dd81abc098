"""`odradek cluster features upgrade`, `elect` and `unregister`: what changes a whole cluster."""

import argparse
from collections.abc import Mapping
from typing import Any

from odradek.client.admin.asking import Refused
from odradek.client.admin.brokers import unregister_broker
from odradek.client.admin.description import describe_cluster, describe_features
from odradek.client.admin.features import SAFE_DOWNGRADE, UPGRADE, update_features
from odradek.client.admin.replicas import PREFERRED, UNCLEAN, elect_leaders
from odradek.client.admin.topics import PartitionDescription
from odradek.client.client_error import ClientError
from odradek.client.cluster import Cluster, TopicPartition
from odradek.commands.asking import failed
from odradek.commands.confirming import confirm_one
from odradek.commands.moving import described_partitions
from odradek.commands.output import Column, Output, quantity
from odradek.commands.selecting import parse_whole
from odradek.config.near_names import did_you_mean
from odradek.wire.releases import METADATA_VERSION, RELEASES, level_name

_CHANGED = [
    Column("feature"),
    Column("finalized_level_before", "before", True),
    Column("finalized_level", "then", True),
]
_CHANGED_NAMES = [
    Column("feature"),
    Column("finalized_version_before", "before"),
    Column("finalized_version", "then"),
]
_ELECTED = [
    Column("topic"),
    Column("partition", right=True),
    Column("leader_before", "before", True),
    Column("leader", right=True),
]


# Features ---------------------------------------------------------------------------------------------


def change_features(cluster: Cluster, options: argparse.Namespace, output: Output) -> int:
    """Raises or lowers the levels; the controllers refuse what a broker does not serve."""
    told = describe_features(cluster)
    before = {name: told.finalized.get(name, (0, 0))[1] for name in told.supported}
    is_upgrade = options.change == "upgrade"
    levels = _levels(options, before, is_upgrade)
    refused: list[Refused] = []
    if levels:
        kind = UPGRADE if is_upgrade else SAFE_DOWNGRADE
        refused = update_features(cluster, levels, kind, only_validate=options.dry_run)
    kept = {one.name for one in refused}
    rows = [
        {
            "feature": name,
            "finalized_level_before": before.get(name, 0),
            "finalized_level": level,
            "finalized_version_before": level_name(name, before.get(name, 0)),
            "finalized_version": level_name(name, level),
        }
        for name, level in sorted(levels.items())
        if name not in kept
    ]
    output.rows(
        _CHANGED_NAMES if output.is_table else _CHANGED + _CHANGED_NAMES[1:],
        rows,
        "all features have these levels",
    )
    return failed(refused)


def _levels(options: argparse.Namespace, before: Mapping[str, int], is_upgrade: bool) -> dict[str, int]:
    """The levels that are asked for and would change something."""
    if bool(options.levels) == (options.release_version is not None):
        raise ClientError(f"features {options.change} needs either NAME=LEVEL or --release-version")
    if options.release_version is not None:
        wanted = _levels_of(options.release_version)
        # A cluster does not have the features of later releases.
        wanted = {name: level for name, level in wanted.items() if name in before}
        return {
            name: level
            for name, level in wanted.items()
            if (level > before[name] if is_upgrade else level < before[name])
        }
    found: dict[str, int] = {}
    for text in options.levels:
        name, equals, level = text.partition("=")
        if not equals or not name:
            raise ClientError(f"{text!r} is not NAME=LEVEL, such as share.version=1")
        if name not in before:
            raise ClientError(f"the cluster has no feature {name}{did_you_mean(name, before)}")
        found[name] = _level(name, level)
    return found


def _level(name: str, text: str) -> int:
    """A number; that of metadata.version may be its name, such as 4.4-IV0."""
    if name == METADATA_VERSION and not text.isdecimal():
        for level, known in RELEASES.items():
            if known == text:
                return level
        hint = did_you_mean(text, RELEASES.values()) or f": they are numbers or names such as {_newest()}"
        raise ClientError(f"{name} has no level {text!r}{hint}")
    return parse_whole(text, name, 0, 2**15 - 1)


def _newest() -> str:
    return RELEASES[max(RELEASES)]


def _levels_of(release: str) -> Mapping[str, int]:
    from odradek.config.config_error import ConfigError
    from odradek.server.metadata.feature_levels import read_levels

    try:
        return read_levels([], release) or {}
    except ConfigError as error:
        raise ClientError(str(error).removeprefix("--feature, ").rstrip(".")) from None


# Elections --------------------------------------------------------------------------------------------


def elect(cluster: Cluster, options: argparse.Namespace, output: Output) -> int:
    """Elects leaders where the present ones are not those that there should be."""
    if options.unclean and not options.topics:
        raise ClientError("--unclean loses records: name the partitions, as TOPIC:PARTITION")
    described = described_partitions(cluster, options.topics)
    refused: list[Refused] = []
    wanted: list[TopicPartition] = []
    for (topic, number), one in described.items():
        if options.unclean:
            if one.leader < 0:
                wanted.append((topic, number))
        elif one.replicas and one.leader != one.replicas[0]:
            # Asked for it, the controllers would tell us to wait.
            if one.replicas[0] in one.in_sync:
                wanted.append((topic, number))
            else:
                sentence = f"broker {one.replicas[0]}, the first replica of {topic}-{number}, is not in sync"
                refused.append(Refused(f"{topic}-{number}", ClientError(sentence)))
    if wanted and not options.dry_run:
        refused += elect_leaders(cluster, UNCLEAN if options.unclean else PREFERRED, wanted)
    kept = {one.name for one in refused}
    rows = [_row(key, described[key], options.unclean) for key in wanted if f"{key[0]}-{key[1]}" not in kept]
    output.rows(_ELECTED, rows, "no partition needs an election")
    return failed(refused)


def _row(key: TopicPartition, one: PartitionDescription, is_unclean: bool) -> dict[str, Any]:
    """A row of the output; the controllers decide who is elected uncleanly."""
    return {
        "topic": key[0],
        "partition": key[1],
        "leader_before": one.leader if one.leader >= 0 else None,
        "leader": None if is_unclean else one.replicas[0],
    }


# A node that has left ---------------------------------------------------------------------------------


def unregister(cluster: Cluster, options: argparse.Namespace, output: Output) -> int:
    """Lets the controllers forget a node."""
    node = parse_whole(options.node, "NODE", 0, 2**31 - 1)
    known = {one.broker: one for one in describe_cluster(cluster).brokers}
    if node not in known:
        there = ", ".join(map(str, known))
        raise ClientError(f"broker {node} is not registered: there are {there}")
    held = sum(node in one.replicas for one in described_partitions(cluster, []).values())
    of_it = ["which is running"] if known[node].is_fenced is False else []
    of_it += [f"which has replicas of {quantity(held, 'partition')}"] if held else []
    told = f", {' and '.join(of_it)}" if of_it else ""
    if options.dry_run:
        output.line(f"this would unregister broker {node}{told}")
    else:
        _unregister(cluster, options, node, told)
        output.line(f"broker {node} is unregistered")
    if not output.is_table:
        output.rows([Column("broker")], [{"broker": node}])
    return 0


def _unregister(cluster: Cluster, options: argparse.Namespace, node: int, told: str) -> None:
    if not options.yes:
        confirm_one(f"unregister broker {node}{told}", f"broker {node} stays registered")
    unregister_broker(cluster, node)
