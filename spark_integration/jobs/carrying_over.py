"""Moves consumer groups to the copies of their topics: translates their committed offsets, and commits them
there."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from odradek.client.group_offsets import GroupHasMembers, commit, committed
from odradek.spark.jobs.errors import JobError
from odradek.spark.jobs.offset_runs import Place, translated
from odradek.spark.jobs.topics import Topics
from odradek.spark.report import Table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

COLUMNS = ("group", "topic", "partition", "offset", "there", "there it", "the copy reaches")
"""The last is an offset of the source: a group that is further has to wait for the copy."""

TopicPartition = tuple[str, int]


@dataclass
class Groups:
    """Some groups at the source, and the brokers of the copies."""

    names: Sequence[str]
    source: Topics
    target: Topics

    def check(self) -> None:
        """JobError for a group without committed offsets."""
        with self.source.cluster() as cluster:
            for name in self.names:
                if not committed(cluster, name, None, is_stable=False):
                    raise JobError(
                        f"group {name} has committed no offset at {self.source.bootstrap_servers}: look for "
                        "a slip in its name, or leave it out until it has"
                    )

    def carry_over(self, session: "SparkSession", table: "DataFrame") -> Table:
        """Translates by the table of offsets, and commits; returns the result for each offset.

        A group that has members at the target is left alone, and no offset goes back.
        """
        rows = []
        for name in self.names:
            with self.source.cluster() as cluster:
                here = committed(cluster, name, None, is_stable=True)
            places = translated(session, table, {key: offset for key, (offset, _) in here.items()})
            states = self._commit(name, {key: (places[key], here[key][1]) for key in places})
            rows += [
                (name, *key, here[key][0], place.offset, states[key], place.mirrored_end)
                for key, place in sorted(places.items())
            ]
        return Table("groups", COLUMNS, rows)

    def _commit(
        self, name: str, places: Mapping[TopicPartition, tuple[Place, str]]
    ) -> dict[TopicPartition, str]:
        wanted = {
            (place.topic, partition): (place.offset, text) for (_, partition), (place, text) in places.items()
        }
        with self.target.cluster() as cluster:
            there = committed(cluster, name, None, is_stable=True)
            behind = {key: at for key, at in wanted.items() if there.get(key, (-1, ""))[0] < at[0]}
            has_members = False
            if behind:
                try:
                    commit(cluster, name, behind)
                except GroupHasMembers:
                    has_members = True
        states = {}
        for key, (place, _) in places.items():
            target = place.topic, key[1]
            if target not in behind:
                states[key] = f"was at {there[target][0]:,}"
            else:
                states[key] = "has members, and was left alone" if has_members else "is put there"
        return states
