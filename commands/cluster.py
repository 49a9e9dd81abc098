"""`odradek cluster`: brokers, health, features and log directories; and a cluster on this machine."""

import argparse
from collections.abc import Mapping, Sequence
from typing import Any

from odradek.client.admin import description as admin
from odradek.client.admin.description import ClusterDescription, Features, LogDir
from odradek.client.admin.health import Check, check_health
from odradek.client.client_error import ClientError
from odradek.client.cluster import Cluster
from odradek.commands.actions import act_on_cluster, add_action, add_dry_run, new_actions
from odradek.commands.cluster_changes import change_features, elect, unregister
from odradek.commands.cluster_start import add_start
from odradek.commands.confirming import add_yes
from odradek.commands.output import Column, Output, quantity, size_text
from odradek.commands.selecting import parse_whole
from odradek.wire.errors import ErrorCode
from odradek.wire.releases import METADATA_VERSION, RELEASES, level_name

ABOUT = """\
Any Kafka cluster as a whole: its brokers, whether it is healthy, features, and what its log
directories hold. And a cluster of Odradek on this machine, for development."""

EXAMPLES = """\
examples:
  odradek cluster info
  odradek cluster health
  odradek cluster health --min-free 20 --output json
                        a row for each check
  odradek cluster features
  odradek cluster features upgrade --release-version 4.4 --dry-run
  odradek cluster features upgrade share.version=1
  odradek cluster elect                 after restarts: leaders as they were
  odradek cluster elect orders:3 --unclean
  odradek cluster log-dirs --broker 1
  odradek cluster unregister 7          after its partitions were moved, and its end
  odradek cluster start --nodes 3 --data-dir cluster
                        three nodes and a controller on this machine, at ports 9092 to 9094

keys of info: cluster_id broker host port rack controller fenced release metadata_version.
keys of health: check healthy of found unknown.
keys of features: feature finalized_level supported_min supported_max finalized_version
supported_min_version supported_max_version. A version is the name of a level of metadata.version,
such as 4.4-IV2, and else the level.
keys of features upgrade: feature finalized_level_before finalized_level finalized_version_before
finalized_version.
keys of elect: topic partition leader_before leader.
keys of unregister: broker.
keys of log-dirs: broker log_dir online replicas size_bytes usable_bytes total_bytes cordoned.

exit status: 0, or 1 when something could not be done, or is not healthy (a sentence says
what)."""

_NAMES_SHOWN = 10
_LEVELS = ("finalized_level", "supported_min", "supported_max")
_VERSIONS = {
    "finalized_version": "finalized",
    "supported_min_version": "lowest",
    "supported_max_version": "highest",
}
"""Keys of the names of these levels, and their headings."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The actions and their options."""
    actions = new_actions(parser)
    add_action(actions, "info", "brokers, with address, rack and versions", _info)
    one = add_action(
        actions, "health", "partitions without leader or replicas, brokers and disks that fail", _health
    )
    one.add_argument(
        "--min-free",
        default="5",
        metavar="PERCENT",
        help="a volume with less free space is not healthy (default 5)",
    )
    one = add_action(
        actions,
        "features",
        "levels that are finalized, and that all brokers have; raise or lower them",
        _features,
    )
    one.add_argument(
        "change", nargs="?", choices=("upgrade", "downgrade"), help="without it: show the levels"
    )
    one.add_argument("levels", nargs="*", metavar="NAME=LEVEL", help="levels to set, such as share.version=1")
    one.add_argument(
        "--release-version", metavar="VERSION", help="all levels of a release of Kafka, such as 4.4"
    )
    add_dry_run(one)
    one = add_action(actions, "elect", "make the preferred replicas leaders again", elect)
    one.add_argument("topics", nargs="*", metavar="TOPIC[:PARTITION]", help="only of these (default: all)")
    one.add_argument(
        "--unclean",
        action="store_true",
        help="elect a replica that is not in sync, where no other is left: records are lost",
    )
    add_dry_run(one)
    one = add_action(actions, "log-dirs", "what the directories of brokers hold, and what is free", _log_dirs)
    one.add_argument("--broker", action="append", default=[], dest="brokers", metavar="ID", help="only of it")
    one = add_action(
        actions, "unregister", "let the controllers forget a node that has left for good", unregister
    )
    one.add_argument("node", metavar="NODE", help="its node.id")
    add_dry_run(one)
    add_yes(one, "first")
    add_start(actions)


def run(options: argparse.Namespace) -> int:
    """Does the action; returns the exit status."""
    runs_alone = getattr(options, "runs_alone", None)
    status: int = act_on_cluster(options) if runs_alone is None else runs_alone(options)
    return status


# info -------------------------------------------------------------------------------------------------


def _info(cluster: Cluster, options: argparse.Namespace, output: Output) -> int:
    described = admin.describe_cluster(cluster)
    rows = broker_rows(described, features_by_broker(cluster, described))
    output.heading(f"cluster {described.cluster_id or '-'}: {quantity(len(described.brokers), 'broker')}")
    columns = [
        Column("broker", right=True),
        Column("host"),
        Column("port", text=str, right=True),
        Column("rack"),
        Column("controller"),
        Column("fenced"),
        Column("release"),
        Column("metadata_version", text=lambda level: level_name(METADATA_VERSION, level)),
    ]
    output.rows(columns if output.is_table else [Column("cluster_id"), *columns], rows)
    return 0


def broker_rows(described: ClusterDescription, features: Mapping[int, Features]) -> list[dict[str, Any]]:
    """Rows of `odradek cluster info`; a broker without features did not tell them."""
    rows: list[dict[str, Any]] = []
    for one in described.brokers:
        told = features.get(one.broker)
        rows.append(
            {
                "cluster_id": described.cluster_id,
                "broker": one.broker,
                "host": one.host,
                "port": one.port,
                "rack": one.rack,
                "controller": one.broker == described.controller,
                "fenced": one.is_fenced,
                "release": _release(told) if told else None,
                "metadata_version": _level(told, METADATA_VERSION) if told else None,
            }
        )
    return rows


def features_by_broker(cluster: Cluster, described: ClusterDescription) -> dict[int, Features]:
    """Features of the brokers that respond."""
    found = {}
    for one in described.brokers:
        if not one.is_fenced:
            try:
                found[one.broker] = admin.describe_features(cluster, one.broker)
            except ClientError:
                continue
    return found


def _level(told: Features, name: str) -> int | None:
    return told.finalized[name][1] if name in told.finalized else None


def _release(told: Features) -> str | None:
    """Brokers do not tell their version; this is the newest release of Kafka that it can work as."""
    _, highest = told.supported.get(METADATA_VERSION, (0, 0))
    return RELEASES[highest].partition("-")[0] if highest in RELEASES else None


# health -----------------------------------------------------------------------------------------------


def _health(cluster: Cluster, options: argparse.Namespace, output: Output) -> int:
    checks: list[Check] = []
    for check in check_health(cluster, _percent(options.min_free)):
        checks.append(check)
        if output.is_table:
            _tell(output, check)
    if not output.is_table:
        columns = [Column("check"), Column("healthy"), Column("of"), Column("found"), Column("unknown")]
        output.rows(columns, map(_row, checks))
    is_well = all(check.is_well for check in checks)
    output.line("The cluster is healthy." if is_well else "The cluster is not healthy.")
    return 0 if is_well else 1


def _tell(output: Output, check: Check) -> None:
    what = check.name.replace("_", " ")
    if check.found:
        names = ", ".join(check.found[:_NAMES_SHOWN])
        rest = len(check.found) - _NAMES_SHOWN
        names += f" and {rest:,} more" if rest > 0 else ""
        mark, codes = "FAIL", "1;31"
        text = f"{what}: {len(check.found):,} of {check.of:,}: {check.sentence}: {names}"
    elif check.unknown:
        mark, codes, text = " ?? ", "", f"{what}: not known: {check.unknown}"
    else:
        mark, codes, text = " ok ", "32", f"{what}: none of {check.of:,}"
    output.line(f"  {text}", mark=mark, codes=codes, hanging=6)
    output.out.flush()


def _row(check: Check) -> dict[str, object]:
    return {
        "check": check.name,
        "healthy": None if check.unknown and check.is_well else check.is_well,
        "of": check.of,
        "found": check.found,
        "unknown": check.unknown or None,
    }


def _percent(text: str) -> float:
    try:
        percent = float(text)
    except ValueError:
        percent = -1
    if not 0 <= percent <= 100:
        raise ClientError(f"--min-free is {text!r}: it has to be a number from 0 to 100")
    return percent


# features, log-dirs -----------------------------------------------------------------------------------


def _features(cluster: Cluster, options: argparse.Namespace, output: Output) -> int:
    if options.change is not None:
        return change_features(cluster, options, output)
    if options.release_version is not None:
        raise ClientError("--release-version is for 'features upgrade' and 'features downgrade'")
    told = list(features_by_broker(cluster, admin.describe_cluster(cluster)).values())
    rows = feature_rows(told)
    of_versions = [Column(name, heading) for name, heading in _VERSIONS.items()]
    of_levels = [] if output.is_table else [Column(name) for name in _LEVELS]
    output.rows([Column("feature"), *of_levels, *of_versions], rows, "no features")
    return 0


def feature_rows(told: Sequence[Features]) -> list[dict[str, Any]]:
    """Rows of `odradek cluster features`, from what each broker tells. ClientError if none does."""
    if not told:
        raise ClientError("no broker tells its features")
    newest = max(told, key=lambda one: one.epoch)
    names = sorted({*newest.finalized, *(name for one in told for name in one.supported)})
    rows = []
    for name in names:
        levels = (_level(newest, name) or 0, *_common(told, name))
        versions = (None if level is None else level_name(name, level) for level in levels)
        rows.append(
            {
                "feature": name,
                **dict(zip(_LEVELS, levels, strict=True)),
                **dict(zip(_VERSIONS, versions, strict=True)),
            }
        )
    return rows


def _common(told: Sequence[Features], name: str) -> tuple[int, int] | tuple[None, None]:
    """The levels that all brokers have."""
    ranges = [one.supported[name] for one in told if name in one.supported]
    if len(ranges) < len(told):
        return None, None
    return max(least for least, _ in ranges), min(most for _, most in ranges)


def _log_dirs(cluster: Cluster, options: argparse.Namespace, output: Output) -> int:
    brokers = [parse_whole(text, "--broker", 0, 2**31 - 1) for text in options.brokers] or None
    found = admin.describe_log_dirs(cluster, brokers)
    rows = list(map(log_dir_row, found))
    columns = [
        Column("broker", right=True),
        Column("log_dir", "directory"),
        Column("online"),
        Column("replicas", right=True),
        Column("size_bytes", "size", True, size_text),
        Column("usable_bytes", "free", True, size_text),
        Column("total_bytes", "volume", True, size_text),
    ]
    output.rows(columns, rows, "no directories: may this user describe the cluster?")
    return 0


def log_dir_row(one: LogDir) -> dict[str, Any]:
    """With the documented keys."""
    return {
        "broker": one.broker,
        "log_dir": one.path,
        "online": one.error == ErrorCode.NONE,
        "replicas": one.replicas,
        "size_bytes": one.size_bytes,
        "usable_bytes": one.usable_bytes,
        "total_bytes": one.total_bytes,
        "cordoned": one.is_cordoned,
    }
