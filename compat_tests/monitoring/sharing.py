"""Share groups with dead letters, with dead letters that no queue takes, and with locks that run out."""

from __future__ import annotations

from contextlib import ExitStack

from confluent_kafka import AcknowledgeType, Message, ShareConsumer

from compat_tests.monitoring.prometheus import DAY_MS, PATIENCE_S, until
from odradek.client.admin.configs import Change, Operation, Resource, ResourceKind, alter_configs
from odradek.client.admin.topics import create_topic
from odradek.client.cluster import Cluster
from tests.client.topics import produce

TOPIC = "jobs"
LOCK_MS = 1000
BROKER_OPTIONS = {
    "group.share.assignment.interval.ms": "0",
    "group.share.min.record.lock.duration.ms": f"{LOCK_MS}",
}
"""Members know of their partitions soon, and a group may have short locks."""
WORKERS = {
    "workers": {},
    # It takes no record without a key, and dead letters have none unless they are copies.
    "workers-without-a-fit-queue": {"cleanup.policy": "compact"},
}
"""Groups that reject records, and the settings of their queues."""
SLEEPERS = "sleepers"
"""The group whose member takes records, and says nothing more about them."""
REJECTED_OF = 3
"""One record of so many is rejected."""


class Sharing:
    """Use as a context manager."""

    def __init__(self, bootstrap: str, cluster: Cluster) -> None:
        self._bootstrap = bootstrap
        self._cluster = cluster
        self._open = ExitStack()
        self._workers: list[ShareConsumer] = []

    def __enter__(self) -> Sharing:
        create_topic(self._cluster, TOPIC, 1, {})
        produce(self._cluster, TOPIC, 0, [b"v"] * REJECTED_OF)
        with self._open:
            for group, settings in WORKERS.items():
                queue = f"dlq.{group}"
                create_topic(
                    self._cluster, queue, 1, {"errors.deadletterqueue.group.enable": "true", **settings}
                )
                self._workers.append(self._join(group, {"errors.deadletterqueue.topic.name": queue}))
            sleeper = self._join(SLEEPERS, {"share.record.lock.duration.ms": f"{LOCK_MS}"})
            until(lambda: _records(sleeper), bool, "the member that sleeps gets records")
            self._open = self._open.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._open.close()

    def traffic(self) -> None:
        """Some records, and what the members do with those that they get."""
        produce(self._cluster, TOPIC, 0, [b"v"] * REJECTED_OF)
        for worker in self._workers:
            for record in _records(worker):
                is_rejected = record.offset() % REJECTED_OF == 0
                worker.acknowledge(record, AcknowledgeType.REJECT if is_rejected else AcknowledgeType.ACCEPT)
            worker.commit_sync(PATIENCE_S)

    def _join(self, group: str, settings: dict[str, str]) -> ShareConsumer:
        changes = [
            Change(name, Operation.SET, value)
            for name, value in {"share.auto.offset.reset": "earliest", **settings}.items()
        ]
        alter_configs(self._cluster, Resource(ResourceKind.GROUP, group), changes)
        member = ShareConsumer(
            {
                "bootstrap.servers": self._bootstrap,
                "group.id": group,
                "share.acknowledgement.mode": "explicit",
                "max.poll.interval.ms": DAY_MS,
            }
        )
        self._open.enter_context(member)
        member.subscribe([TOPIC])
        return member


def _records(member: ShareConsumer) -> list[Message]:
    """The records that are there. Errors that the client overcomes by itself are no records."""
    return [one for one in member.poll(timeout=0.1) if one.error() is None]
