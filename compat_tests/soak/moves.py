"""Moves of partitions between the data directories of a broker, as an administrator asks for them."""

from __future__ import annotations

import os
import pathlib
import random

from kafka import KafkaAdminClient
from kafka.errors import NoError


class Moves:
    """Those of one broker, one after the other."""

    def __init__(self, bootstrap: str, directories: list[pathlib.Path], chance: random.Random) -> None:
        self._bootstrap, self._chance = bootstrap, chance
        self._directories = [os.fspath(one) for one in directories]
        self._wanted: tuple[str, int, str] | None = None
        self.begun = 0
        self.seen = 0
        """How many have come to their end while the broker went on."""

    def begin(self, topic: str, partition: int) -> None:
        """Ask for a move to another directory than the one in which the partition is."""
        with KafkaAdminClient(bootstrap_servers=self._bootstrap) as admin:
            broker, here = _place(admin, topic, partition)
            target = self._chance.choice([one for one in self._directories if one != here])
            (code,) = admin.alter_replica_log_dirs({(topic, partition, broker): target}).values()
        assert code is NoError, f"{topic}-{partition} is not to be moved to {target}: {code}"
        self._wanted = topic, partition, target
        self.begun += 1

    def is_over(self) -> bool:
        """Whether the partition is served from where the last move was to bring it."""
        assert self._wanted is not None
        topic, partition, target = self._wanted
        with KafkaAdminClient(bootstrap_servers=self._bootstrap) as admin:
            is_over = _place(admin, topic, partition)[1] == target
        self.seen += is_over
        return is_over


def _place(admin: KafkaAdminClient, topic: str, partition: int) -> tuple[int, str]:
    """The broker that has a partition, and the directory from which it is served."""
    ((broker, directory),) = [
        (broker["broker"], directory["log_dir"])
        for broker in admin.describe_log_dirs({topic: [partition]})
        for directory in broker["log_dirs"]
        for topics in directory["topics"]
        for one in topics["partitions"]
        if not one["is_future_key"]
    ]
    return broker, directory
