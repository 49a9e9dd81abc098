"""Changes of `odradek groups`: commits are moved or deleted, groups are deleted. A share group has no
commits, but an offset for each partition where its records begin; what moves commits moves these.

Nothing of this is done to a group that has members: they would go on from where they are, and commit that.
"""

import argparse
import re
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from odradek.client import group_offsets
from odradek.client.admin.asking import Outcome, Refused
from odradek.client.admin.groups import (
    GroupDescription,
    ListedGroup,
    Offsets,
    alter_share_offsets,
    delete_groups,
    delete_offsets,
    delete_share_offsets,
    describe_groups,
    list_groups,
    offsets_of_groups,
)
from odradek.client.admin.lag import Bounds, lag_of, partition_bounds
from odradek.client.admin.topics import describe_topics
from odradek.client.client_error import ClientError
from odradek.client.cluster import Cluster, TopicPartition, coordinator_of
from odradek.commands.asking import failed
from odradek.commands.confirming import confirm
from odradek.commands.output import Column, Output, quantity
from odradek.commands.reading_range import Place, parse_range
from odradek.commands.selecting import is_pattern, matching, named, named_and_missing, parse_partition

MEMBERS_SHOWN = 5


def named_groups(cluster: Cluster, patterns: Sequence[str]) -> list[ListedGroup]:
    """The groups that the patterns name; ClientError if one of them names none."""
    found, missing = existing_groups(cluster, patterns)
    for one in missing:
        raise one.error
    return found


def existing_groups(cluster: Cluster, patterns: Sequence[str]) -> tuple[list[ListedGroup], Outcome]:
    """The groups that the patterns name, and a refusal of each that names none."""
    listed = {one.group: one for one in list_groups(cluster)}
    for pattern in patterns:
        if pattern not in listed and not is_pattern(pattern):
            # Its coordinator may be away, or the user may not see it: that fails here.
            cluster.connect(coordinator_of("group", pattern))
    found, missing = named_and_missing(listed, patterns, "group")
    return [listed[group] for group in found], missing


# Moving -----------------------------------------------------------------------------------------------


def seek(cluster: Cluster, options: argparse.Namespace, output: Output) -> int:
    """Moves the commits of a group, and shows them before and after."""
    place = _destination(options.to, "--to ")
    plan = _planned(cluster, options.group, place, options.topics)
    if not options.dry_run:
        plan.carry_out(cluster)
    columns = [
        Column("topic"),
        Column("partition", right=True),
        Column("committed_offset_before", "before", True),
        Column("committed_offset", "then" if options.dry_run else "now", True),
        Column("start_offset", "start", True),
        Column("end_offset", "end", True),
        Column("lag", right=True),
    ]
    output.rows(columns, plan.rows(), f"group {options.group} has no commits")
    return failed(plan.refused)


@dataclass(slots=True)
class SeekPlan:
    """Moves of the commits of a group without members; nothing is done before `carry_out`."""

    group: str
    is_share: bool
    before: Offsets
    after: Offsets
    bounds: Mapping[TopicPartition, Bounds]
    refused: Outcome

    def carry_out(self, cluster: Cluster) -> None:
        """Moves the commits; what is refused is in `refused` then. ClientError if all is refused."""
        if not self.after:
            return
        if self.is_share:
            self.refused += alter_share_offsets(cluster, self.group, self.after)
        else:
            moved = {key: (offset, "") for key, offset in self.after.items()}
            group_offsets.commit(cluster, self.group, moved)

    def rows(self) -> list[dict[str, Any]]:
        """Rows of what is not refused, with the keys of `odradek groups seek`."""
        kept = {one.name for one in self.refused}
        return [
            {
                "group": self.group,
                "topic": key[0],
                "partition": key[1],
                "committed_offset_before": self.before.get(key),
                "committed_offset": offset,
                "start_offset": self.bounds[key][0],
                "end_offset": self.bounds[key][1],
                "lag": lag_of(offset, self.bounds[key]),
            }
            for key, offset in sorted(self.after.items())
            if f"{key[0]}-{key[1]}" not in kept
        ]


def plan_seek(cluster: Cluster, group: str, where: str, topics: Sequence[str] | None) -> SeekPlan:
    """The moves to `where`, which is as the help says; `topics` are TOPIC or TOPIC:PARTITION, None: all with
    a commit. ClientError for a group that has members, and for a text that is not understood."""
    return _planned(cluster, group, _destination(where), topics)


def _planned(cluster: Cluster, group: str, place: Place, topics: Sequence[str] | None) -> SeekPlan:
    is_share, before = _offsets_at_rest(cluster, group, topics)
    chosen = _chosen(cluster, topics, before)
    bounds = partition_bounds(cluster, chosen)
    after, refused = _moved(cluster, group, place, chosen, before, bounds)
    return SeekPlan(group, is_share, before, after, bounds, refused)


def _destination(text: str, option: str = "") -> Place:
    """ "after_start" and "before_end" mean from the present commit on here."""
    try:
        found = parse_range([text], None, time.time_ns() // 1_000_000)
    except ClientError:
        found = None
    if found is None or found.end is not None or found.start.kind == "stored":
        raise ClientError(
            f"{option}{text} is not understood: start, end, an offset, +10 or -10 from the present commit, "
            "-1h, 2026-11-27T09:00 or @1764230400000"
        )
    return found.start


def _offsets_at_rest(cluster: Cluster, group: str, topics: Sequence[str] | None) -> tuple[bool, Offsets]:
    """Whether it is a share group, and the commits; ClientError for a group that has members. One that is not
    there yet can be given commits for topics that are named."""
    found = [one for one in list_groups(cluster) if one.group == group]
    if not found:
        if topics is None:
            raise ClientError(f"group {group} does not exist; with --topics it would be made")
        return False, {}
    for described in _described(cluster, found):
        if described.members:
            raise _active(described)
    offsets, refused = offsets_of_groups(cluster, found)
    for one in refused:
        raise one.error
    return found[0].type == "share", offsets[group]


def _described(cluster: Cluster, groups: Sequence[ListedGroup]) -> list[GroupDescription]:
    found, refused = describe_groups(cluster, groups)
    for one in refused:
        raise one.error
    return found


def _active(group: GroupDescription) -> ClientError:
    shown = [one.name for one in group.members[:MEMBERS_SHOWN]]
    if len(group.members) > MEMBERS_SHOWN:
        shown.append(f"{len(group.members) - MEMBERS_SHOWN:,} more")
    return ClientError(
        f"group {group.group} is in use, so it stays as it is; stop its "
        f"{quantity(len(group.members), 'member')} first: {', '.join(shown)}"
    )


def _chosen(
    cluster: Cluster, texts: Sequence[str] | None, before: Iterable[TopicPartition]
) -> list[TopicPartition]:
    """All with a commit; or what is named, of a topic all its partitions."""
    if texts is None:
        return sorted(before)
    found = {parse_partition(text) for text in texts if ":" in text}
    whole = [text for text in texts if ":" not in text]
    if whole:
        topics, _ = describe_topics(cluster)
        names = {topic.name for topic in topics}
        matched = set(named(names, whole, "topic"))
        found |= {
            (topic.name, one.partition)
            for topic in topics
            if topic.name in matched
            for one in topic.partitions
        }
    return sorted(found)


def _moved(
    cluster: Cluster,
    group: str,
    place: Place,
    chosen: Sequence[TopicPartition],
    before: Mapping[TopicPartition, int],
    bounds: Mapping[TopicPartition, Bounds],
) -> tuple[Offsets, Outcome]:
    """The new commits; those that cannot be moved are refused."""
    times = cluster.list_offsets(dict.fromkeys(bounds, place.number)) if place.kind == "time" else {}
    after: Offsets = {}
    refused = []
    for key in chosen:
        name = f"{key[0]}-{key[1]}"
        if key not in bounds:
            refused.append(Refused(name, ClientError(f"{name} is not there, or has no leader at the moment")))
        elif place.kind in ("after_start", "before_end") and key not in before:
            sentence = f"group {group} has no commit for {name} from which to count"
            refused.append(Refused(name, ClientError(sentence)))
        else:
            start, end = bounds[key]
            wanted = _offset(place, start, end, before.get(key, start), times.get(key, -1))
            after[key] = min(max(wanted, start), end)
    return after, refused


def _offset(place: Place, start: int, end: int, present: int, at_time: int) -> int:
    if place.kind == "time":
        return at_time if at_time >= 0 else end
    return {
        "earliest": start,
        "latest": end,
        "offset": place.number,
        "after_start": present + place.number,
        "before_end": present - place.number,
    }[place.kind]


# Deleting ---------------------------------------------------------------------------------------------


def delete(cluster: Cluster, options: argparse.Namespace, output: Output) -> int:
    """Deletes the groups that nobody uses; the others are refused."""
    listed, missing = existing_groups(cluster, options.groups)
    described, refused = describe_groups(cluster, listed)
    refused += [Refused(one.group, _active(one)) for one in described if one.members]
    kept = {one.name for one in refused}
    unused = [one for one in listed if one.group not in kept]
    confirm(
        options,
        options.groups,
        [one.group for one in unused],
        "delete",
        "group with its commits",
        "groups with their commits",
    )
    if options.dry_run:
        kept.update(one.group for one in unused)
    else:
        not_deleted = delete_groups(cluster, unused)
        refused += not_deleted
        kept.update(one.name for one in not_deleted)
    rows = [{"group": one.group, "deleted": one.group not in kept} for one in listed]
    output.rows([Column("group"), Column("deleted")], rows)
    return failed([*missing, *refused])


def forget(cluster: Cluster, options: argparse.Namespace, output: Output) -> int:
    """Deletes commits of a group; the broker refuses those of topics that members read. A share group forgets
    whole topics, and only without members."""
    plan = plan_forget(cluster, options.group, options.topics)
    topics = sorted({topic for topic, _ in plan.chosen})
    confirm(options, options.topics, topics, f"delete what {plan.group} has committed for", "topic", "topics")
    if not options.dry_run:
        plan.carry_out(cluster)
    columns = [
        Column("topic"),
        Column("partition", right=True),
        Column("committed_offset_before", "before", True),
        Column("deleted"),
    ]
    output.rows(columns, plan.rows())
    return failed(plan.refused)


@dataclass(slots=True)
class ForgetPlan:
    """Commits of a group that are to be deleted; nothing is done before `carry_out`."""

    group: str
    is_share: bool
    committed: Offsets
    chosen: Sequence[TopicPartition]
    refused: Outcome
    is_done: bool = False

    def carry_out(self, cluster: Cluster) -> None:
        """Deletes them; what is refused is in `refused` then. ClientError if all is refused."""
        if self.refused:
            return
        if self.is_share:
            self.refused += delete_share_offsets(cluster, self.group, {topic for topic, _ in self.chosen})
        else:
            self.refused += delete_offsets(cluster, self.group, self.chosen)
        self.is_done = True

    def rows(self) -> list[dict[str, Any]]:
        """With the keys of `odradek groups delete-offsets`."""
        # A share group keeps a topic, another group a partition.
        kept = {one.name for one in self.refused}
        return [
            {
                "group": self.group,
                "topic": topic,
                "partition": partition,
                "committed_offset_before": self.committed[topic, partition],
                "deleted": self.is_done and kept.isdisjoint((topic, f"{topic}-{partition}")),
            }
            for topic, partition in self.chosen
        ]


def plan_forget(cluster: Cluster, name: str, topics: Sequence[str]) -> ForgetPlan:
    """The commits for `topics`, which are TOPIC or, unless it is a share group, TOPIC:PARTITION. ClientError
    for what has no commit, and for a pattern of several groups."""
    listed = named_groups(cluster, [name])
    if len(listed) != 1:
        raise ClientError(f"{name} has to be one group")
    offsets, refused = offsets_of_groups(cluster, listed)
    group = listed[0].group
    chosen = _committed(offsets[group], group, topics)
    is_share = listed[0].type == "share"
    if is_share:
        _refuse_single_partitions(group, offsets[group], chosen)
    return ForgetPlan(group, is_share, offsets[group], chosen, refused)


def _refuse_single_partitions(
    group: str, committed: Iterable[TopicPartition], chosen: Sequence[TopicPartition]
) -> None:
    topics = {topic for topic, _ in chosen}
    for key in committed:
        if key[0] in topics and key not in chosen:
            raise ClientError(
                f"share group {group} forgets topics, not partitions: name {key[0]} without a partition"
            )


def _committed(committed: Iterable[TopicPartition], group: str, texts: Sequence[str]) -> list[TopicPartition]:
    """The commits that are named; ClientError for a name that names none."""
    there = sorted(committed)
    found: set[TopicPartition] = set()
    for text in texts:
        if re.search(r":[0-9]+$", text):
            matched = {parse_partition(text)}.intersection(there)
        else:
            names = set(matching({topic for topic, _ in there}, [text]))
            matched = {key for key in there if key[0] in names}
        if not matched:
            raise ClientError(f"group {group} has no commit for {text}")
        found |= matched
    return sorted(found)
