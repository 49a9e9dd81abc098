"""Blows to the nodes of a cluster, at random moments: each waits until the last one has healed."""

from __future__ import annotations

import random
import time
from collections.abc import Sequence

from compat_tests.cluster.nodes import SESSION_MS, Cluster
from compat_tests.kit.chance import Blows
from compat_tests.kit.history import Partition
from compat_tests.transactions.workload import Worker

SESSION_SECONDS = SESSION_MS / 1000


class Kills:
    """The blows follow from `seed`; on whom they fall follows from who leads what at that moment.

    `led` are the partitions of which a leader or a follower is chosen; coordinators are those of `workers`.
    """

    BLOWS = {"kill": 6, "one after the other": 2, "pause": 2, "short pause": 1, "stop": 1}
    """And how often each comes."""
    ROLES = ("leader", "follower", "coordinator of a group", "coordinator of transactions")

    def __init__(
        self, cluster: Cluster, seed: str, led: Sequence[Partition], workers: Sequence[Worker]
    ) -> None:
        self._cluster, self._led, self._workers = cluster, led, workers
        self._chance = random.Random(f"{seed}/kills")
        self._blows = Blows(self.BLOWS, self._chance)
        self.planned = self._blows.planned
        self.kills = 0
        """By SIGKILL."""
        self.told: list[str] = []
        """What was done, in order."""

    def strike(self) -> None:
        """One blow, and what heals it."""
        self._cluster.wait_until_healthy()
        time.sleep(self._chance.uniform(0, 1.5))
        blow = self._blows.next()
        role = self._chance.choice(self.ROLES)
        node_id = self._chosen(role)
        self.told.append(f"{blow}: node {node_id}, {role}")
        node = self._cluster.nodes[node_id]
        match blow:
            case "kill":
                self._kill(node_id)
                time.sleep(self._chance.choice((0, self._chance.uniform(0, SESSION_SECONDS + 1))))
                node.start()
            case "one after the other":
                self._kill(node_id)
                time.sleep(self._chance.uniform(0, SESSION_SECONDS + 1))
                node.start()
                # It is unfenced, and may still lack what the others have acknowledged meanwhile.
                others = sorted(self._cluster.nodes.keys() - {node_id})
                other = self._chance.choice(others)
                self.told.append(f"then node {other}")
                self._kill(other)
                self._cluster.nodes[other].start()
            case "pause":
                self._pause(node_id, SESSION_SECONDS + self._chance.uniform(0.5, 3))
            case "short pause":
                self._pause(node_id, self._chance.uniform(0.2, SESSION_SECONDS))
            case "stop":
                node.restart()

    def _kill(self, node_id: int) -> None:
        self._cluster.nodes[node_id].kill()
        self.kills += 1

    def _pause(self, node_id: int, seconds: float) -> None:
        self._cluster.pause(node_id)
        try:
            time.sleep(seconds)
        finally:
            self._cluster.resume(node_id)

    def _chosen(self, role: str) -> int:
        worker = self._chance.choice(self._workers)
        led = self._chance.choice(self._led)
        match role:
            case "coordinator of a group":
                return self._cluster.leader(self._cluster.offsets_partition(worker.group))
            case "coordinator of transactions":
                return self._cluster.leader(self._cluster.transactions_partition(worker.name))
            case "leader":
                return self._cluster.leader(led)
        return self._chance.choice(sorted(self._cluster.nodes.keys() - {self._cluster.leader(led)}))

    def __str__(self) -> str:
        return f"{self.kills} kills in {len(self.told)} blows"
