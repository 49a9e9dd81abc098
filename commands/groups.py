"""`odradek groups`: groups, their members and their lag. What changes groups is in `group_changes.py`."""

import argparse
import io
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from odradek.client.admin.configs import Resource, ResourceKind, describe_configs
from odradek.client.admin.groups import (
    GroupDescription,
    GroupMember,
    ListedGroup,
    Offsets,
    describe_groups,
    list_groups,
    offsets_of_groups,
)
from odradek.client.admin.lag import Bounds, lag_of, partition_bounds, seconds_behind
from odradek.client.client_error import ClientError
from odradek.client.cluster import Cluster, TopicPartition
from odradek.client.progress import duration
from odradek.commands.actions import act_on_cluster, add_action, add_dry_run, new_actions
from odradek.commands.asking import failed
from odradek.commands.confirming import add_yes
from odradek.commands.group_changes import delete, existing_groups, forget, named_groups, seek
from odradek.commands.output import Column, Output, quantity
from odradek.commands.selecting import matching, parse_seconds, parse_whole
from odradek.commands.topologies import show_topologies

ABOUT = """\
Groups of consumers at any Kafka broker: where they are, how far behind, and who is in them.
A GROUP may have * in it, or be /a regular expression/.

lag is the number of offsets from the commit to the end of the partition (its high watermark), as
Kafka's tools count it; lag_seconds is the age of the first record that is to come, 0 if there is none.
Both are empty where they are not known: a partition without a commit, or one that is gone."""

EXAMPLES = """\
examples:
  odradek groups list
  odradek groups list --lagging 1000      those that are so far behind, the worst first
  odradek groups list 'shop-*' --state Empty
  odradek groups describe billing
  odradek groups describe billing --members
  odradek groups describe billing --watch 5
  odradek groups describe word-count --topology
  odradek groups seek billing --to start --dry-run
  odradek groups seek billing --to -1h --topics orders payments:0
  odradek groups seek billing --to +1 --topics orders:3
                                          past a record that cannot be handled
  odradek groups delete 'test-*'          shows them, and asks; in a script: --yes
  odradek groups delete-offsets billing old-topic
  odradek groups seek parcels --to start  a share group gets all records again

seek goes to start, end, an offset, a time (-1h, 2026-11-27T09:00, @1764230400000), or so many
offsets from the present commit (+10, -10); never past the end, nor before the start. Only a group
without members can be moved: a refusal says who is in it. A share group has no commits: of each
partition committed_offset is where its records begin that are not acknowledged; delete-offsets makes
it forget whole topics.

keys of list: group type state protocol_type coordinator; with --lag or --lagging partitions lag, too.
keys of describe: group type state topic partition committed_offset start_offset end_offset lag
lag_seconds member_id instance_id client_id host. A member without partitions, and a group without
any, are rows without a topic; with --watch there is timestamp_ms, too.
keys of describe --members: group type state assignor member_id instance_id client_id host partitions.
keys of describe --topology: group type state topology_epoch subtopology global node node_type topics
stores successors predecessors. A broker has a topology if members sent it (Kafka Streams 4.4), and
group.streams.topology.description.plugin.class says where it keeps them.
keys of seek: group topic partition committed_offset_before committed_offset start_offset end_offset lag.
keys of delete: group deleted.
keys of delete-offsets: group topic partition committed_offset_before deleted.

exit status: 0, or 1 when something could not be done (a sentence says what)."""

STATES = "Stable, Empty, PreparingRebalance, CompletingRebalance, Assigning, Reconciling, NotReady, Dead"
QUEUE = "errors.deadletterqueue.topic.name"
TYPES = ("classic", "consumer", "share", "streams")
_WATCH_SECONDS = "2"
_SECONDS = Column("lag_seconds", "behind", True, lambda seconds: duration(seconds))
_LAG = Column("lag", right=True)
_CLEAR = "\x1b[H\x1b[2J"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The actions and their options."""
    actions = new_actions(parser)
    one = add_action(actions, "list", "names, types, states; with --lagging also lag", _list)
    one.add_argument("groups", nargs="*", metavar="GROUP", help="only these")
    one.add_argument("--lag", action="store_true", help="also the lag of each, the largest first")
    one.add_argument("--lagging", metavar="N", help="only those that are N offsets behind, or more")
    one.add_argument("--state", action="append", default=[], metavar="STATE", help=f"only these: {STATES}")
    one.add_argument("--type", action="append", default=[], choices=TYPES, help="only these")
    one = add_action(actions, "describe", "commits, lag and members of each partition", _describe)
    one.add_argument("groups", nargs="+", metavar="GROUP")
    shown = one.add_mutually_exclusive_group()
    shown.add_argument("--members", action="store_true", help="the members and what each of them has")
    shown.add_argument(
        "--topology", action="store_true", help="what an application of Kafka Streams does, node by node"
    )
    one.add_argument(
        "--watch",
        nargs="?",
        const=_WATCH_SECONDS,
        metavar="SECONDS",
        help=f"again and again (default: every {_WATCH_SECONDS} s), until Ctrl-C",
    )
    one = add_action(actions, "seek", "move the commits of a group without members", seek)
    one.add_argument("group", metavar="GROUP")
    one.add_argument("--to", required=True, metavar="WHERE", help="start, end, OFFSET, TIME, +N or -N")
    one.add_argument(
        "--topics",
        nargs="+",
        metavar="TOPIC[:PARTITION]",
        help="only these; also what has no commit yet (default: all that has one)",
    )
    add_dry_run(one)
    one = add_action(actions, "delete", "delete groups without members, with their commits", delete)
    one.add_argument("groups", nargs="+", metavar="GROUP")
    add_dry_run(one)
    add_yes(one)
    one = add_action(actions, "delete-offsets", "delete the commits of a group for some topics", forget)
    one.add_argument("group", metavar="GROUP")
    one.add_argument("topics", nargs="+", metavar="TOPIC[:PARTITION]")
    add_dry_run(one)
    add_yes(one)


run = act_on_cluster


# A list -----------------------------------------------------------------------------------------------


def _list(cluster: Cluster, options: argparse.Namespace, output: Output) -> int:
    least = 0 if options.lagging is None else parse_whole(options.lagging, "--lagging")
    found = _chosen(list_groups(cluster), options)
    rows: list[dict[str, Any]] = [
        {
            "group": one.group,
            "type": one.type,
            "state": one.state or None,
            "protocol_type": one.protocol_type or None,
            "coordinator": one.coordinator,
        }
        for one in found
    ]
    columns = [Column("group"), Column("type"), Column("state"), Column("coordinator", right=True)]
    if not options.lag and options.lagging is None:
        output.rows(columns, rows, "no groups")
        return 0
    offsets, refused = offsets_of_groups(cluster, found)
    bounds = partition_bounds(cluster, {key for of in offsets.values() for key in of})
    for row, one in zip(rows, found, strict=True):
        row["partitions"] = len(offsets[one.group])
        row["lag"] = sum_known(lag_of(offset, bounds.get(key)) for key, offset in offsets[one.group].items())
    if options.lagging is not None:
        rows = [row for row in rows if row["lag"] is not None and row["lag"] >= least]
    rows.sort(key=lambda row: -1 if row["lag"] is None else row["lag"], reverse=True)
    output.rows([*columns, Column("partitions", right=True), _LAG], rows, "no groups")
    return failed(refused)


def _chosen(listed: Sequence[ListedGroup], options: argparse.Namespace) -> list[ListedGroup]:
    states = {state.lower() for state in options.state}
    if states and any(not one.state for one in listed):
        raise ClientError(
            "--state cannot be used: the brokers do not tell it (they are older than Kafka 2.6)"
        )
    names = set(matching((one.group for one in listed), options.groups))
    return [
        one
        for one in listed
        if one.group in names
        and (not states or one.state.lower() in states)
        and (not options.type or one.type in options.type)
    ]


def sum_known(lags: Iterable[int | None]) -> int | None:
    """Sum of the known lags; None if none is known."""
    known = [lag for lag in lags if lag is not None]
    return sum(known) if known else None


# Partitions and members -------------------------------------------------------------------------------


def _describe(cluster: Cluster, options: argparse.Namespace, output: Output) -> int:
    show = _show_members if options.members else show_topologies if options.topology else _show_partitions
    if options.watch is None:
        return show(cluster, options.groups, output, {})
    if output.form not in ("table", "jsonl"):
        raise ClientError("--watch has no end, so its --output is table or jsonl")
    seconds = parse_seconds(options.watch, "--watch")
    named_groups(cluster, options.groups)  # a slip in a name would be watched for ever
    while True:
        # The last screen stays until the next one is complete.
        screen = io.StringIO()
        shown = Output(output.form, screen, output.width, output.colour)
        show(cluster, options.groups, shown, {"timestamp_ms": _now_ms()})
        output.out.write((_CLEAR if output.is_table and output.out.isatty() else "") + screen.getvalue())
        output.line()
        output.out.flush()
        time.sleep(seconds)


def _show_partitions(
    cluster: Cluster, patterns: Sequence[str], output: Output, more: Mapping[str, Any]
) -> int:
    listed, missing = existing_groups(cluster, patterns)
    groups, refused = describe_groups(cluster, listed)
    # The ends are read after the commits: no group can be past them by the order of the questions.
    offsets, not_read = offsets_of_groups(cluster, listed)
    rows = partition_rows(cluster, groups, offsets)
    columns = [
        Column("topic"),
        Column("partition", "part", True),
        Column("committed_offset", "committed", True),
        Column("start_offset", "start", True),
        Column("end_offset", "end", True),
        _LAG,
        _SECONDS,
        Column("client_id", "client"),
        Column("host"),
        Column("member_id", "member"),
    ]
    if output.is_table:
        for one, described in zip(groups, rows, strict=True):
            output.heading(_heading(one, described) + _dead_letters(cluster, one))
            output.rows(columns, [row for row in described if row["topic"] or row["member_id"]])
    else:
        output.rows([Column("group"), *columns], [{**more, **row} for described in rows for row in described])
    return failed([*missing, *refused, *not_read])


def _heading(group: GroupDescription, rows: Sequence[Mapping[str, Any]]) -> str:
    lag = sum_known(row["lag"] for row in rows)
    seconds = [row["lag_seconds"] for row in rows if row["lag_seconds"] is not None]
    text = f"{group.group}: {group.state}, {group.type}, {quantity(len(group.members), 'member')}"
    text += f", lag {lag:,}" if lag is not None else ", no commits"
    return text + (f", {duration(max(seconds))} behind" if seconds and lag else "")


def _dead_letters(cluster: Cluster, group: GroupDescription) -> str:
    """The dead letter queue of a share group, for people; nothing if there is none, or none may be seen."""
    if group.type != "share":
        return ""
    try:
        found = describe_configs(cluster, Resource(ResourceKind.GROUP, group.group), [QUEUE])
    except ClientError:
        return ""
    return "".join(f", dead letters go to {one.value}" for one in found if one.value)


def partition_rows(
    cluster: Cluster,
    groups: Sequence[GroupDescription],
    offsets: Mapping[str, Offsets],
    *,
    has_times: bool = True,
) -> list[list[dict[str, Any]]]:
    """Rows of each group, with the keys of `odradek groups describe`. Without `has_times` no record is read,
    and `lag_seconds` is None."""
    owners = [_owners(group.members) for group in groups]
    every = {key for of in offsets.values() for key in of} | {key for of in owners for key in of}
    bounds = partition_bounds(cluster, every)
    places = {(key, offset) for of in offsets.values() for key, offset in of.items()}
    seconds = seconds_behind(cluster, places, bounds, _now_ms()) if has_times else {}
    found = []
    for group, owner_of in zip(groups, owners, strict=True):
        rows = []
        for key in sorted({*offsets[group.group], *owner_of}):
            offset = offsets[group.group].get(key)
            behind = None if offset is None else seconds.get((key, offset))
            rows.append(_row(group, key, offset, bounds.get(key), behind, owner_of.get(key)))
        rows += [_row(group, None, None, None, None, one) for one in group.members if not one.partitions]
        found.append(rows or [_row(group, None, None, None, None, None)])
    return found


def _owners(members: Iterable[GroupMember]) -> dict[TopicPartition, GroupMember | None]:
    """The member of each assigned partition; None for one of a share group that several have."""
    found: dict[TopicPartition, GroupMember | None] = {}
    for member in members:
        for key in member.partitions:
            found[key] = None if key in found else member
    return found


def _row(
    group: GroupDescription,
    key: TopicPartition | None,
    offset: int | None,
    bounds: Bounds | None,
    seconds: float | None,
    member: GroupMember | None,
) -> dict[str, Any]:
    return {
        "group": group.group,
        "type": group.type,
        "state": group.state,
        "topic": None if key is None else key[0],
        "partition": None if key is None else key[1],
        "committed_offset": offset,
        "start_offset": None if bounds is None else bounds[0],
        "end_offset": None if bounds is None else bounds[1],
        "lag": lag_of(offset, bounds),
        "lag_seconds": seconds,
        **_of_member(member),
    }


def _of_member(member: GroupMember | None) -> dict[str, Any]:
    return {
        "member_id": None if member is None else member.member_id,
        "instance_id": None if member is None else member.instance_id,
        "client_id": None if member is None else member.client_id,
        "host": None if member is None else member.host,
    }


def _show_members(cluster: Cluster, patterns: Sequence[str], output: Output, more: Mapping[str, Any]) -> int:
    listed, missing = existing_groups(cluster, patterns)
    groups, refused = describe_groups(cluster, listed)
    columns = [
        Column("client_id", "client"),
        Column("host"),
        Column("member_id", "member"),
        Column("instance_id", "instance"),
        Column("partitions"),
    ]
    rows: list[dict[str, Any]] = []
    for group in groups:
        described: list[dict[str, Any]] = [
            {
                **more,
                "group": group.group,
                "type": group.type,
                "state": group.state,
                "assignor": group.assignor or None,
                **_of_member(one),
                "partitions": [f"{topic}:{partition}" for topic, partition in one.partitions],
            }
            for one in group.members
        ]
        if output.is_table:
            assignor = f", assigned by {group.assignor}" if group.assignor else ""
            members = quantity(len(group.members), "member")
            output.heading(f"{group.group}: {group.state}, {group.type}, {members}{assignor}")
            output.rows(columns, described)
        rows += described
    if not output.is_table:
        output.rows([Column("group"), *columns], rows)
    return failed([*missing, *refused])


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
