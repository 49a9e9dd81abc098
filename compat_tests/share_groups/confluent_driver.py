"""Share consumers of confluent-kafka behind the lines of text of `ShareDriver.java`.

python confluent_driver.py BOOTSTRAP
"""

from __future__ import annotations

import sys
from typing import Any

from confluent_kafka import AcknowledgeType, KafkaException, ShareConsumer


class Member:
    """A consumer, and what its callback was told."""

    def __init__(self, settings: dict[str, str], topics: list[str]) -> None:
        self.told: list[str] = []
        self.consumer = ShareConsumer(settings)
        self.consumer.set_acknowledgement_commit_callback(self._take)
        self.consumer.subscribe(topics)

    def _take(self, offsets: dict[Any, set[int]], failure: KafkaException | None) -> None:
        for where, which in offsets.items():
            self.told += [f"{where.topic}\t{where.partition}\t{one}\t{name(failure)}" for one in which]


def name(failure: KafkaException | None) -> str:
    return "-" if failure is None else failure.args[0].name()


def text(value: bytes | None) -> str:
    return "-" if value is None else value.decode()


class Driver:
    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap
        self._members: dict[str, Member] = {}

    def open(self, identity: str, group: str, topics: str, *settings: str) -> list[str]:
        own = {"bootstrap.servers": self._bootstrap, "group.id": group, "client.id": identity}
        more = dict(setting.split("=", 1) for setting in settings)
        self._members[identity] = Member(own | more, topics.split(","))
        return []

    def poll(self, identity: str, patience_ms: str) -> list[str]:
        lines = []
        for one in self._members[identity].consumer.poll(timeout=int(patience_ms) / 1000):
            if one.error():
                raise KafkaException(one.error())
            place = f"{one.topic()}\t{one.partition()}\t{one.offset()}"
            lines.append(f"{place}\t{one.delivery_count()}\t{text(one.key())}\t{text(one.value())}")
        return lines

    def acknowledge(self, identity: str, count: str) -> list[str]:
        for line in [sys.stdin.readline().rstrip("\n") for _ in range(int(count))]:
            topic, partition, offset, kind = line.split("\t")
            self._members[identity].consumer.acknowledge_offset(
                topic, int(partition), int(offset), getattr(AcknowledgeType, kind)
            )
        return []

    def commit_sync(self, identity: str, patience_ms: str) -> list[str]:
        results = self._members[identity].consumer.commit_sync(int(patience_ms) / 1000)
        return [f"{where.topic}\t{where.partition}\t{name(failed)}" for where, failed in results.items()]

    def commit_async(self, identity: str) -> list[str]:
        self._members[identity].consumer.commit_async()
        return []

    def told(self, identity: str) -> list[str]:
        member = self._members[identity]
        told, member.told = member.told, []
        return told

    def unsubscribe(self, identity: str) -> list[str]:
        self._members[identity].consumer.unsubscribe()
        return []

    def close(self, identity: str, _patience_ms: str) -> list[str]:
        member = self._members.pop(identity)
        member.consumer.close()
        return member.told


def main(bootstrap: str) -> None:
    driver = Driver(bootstrap)
    while line := sys.stdin.readline():
        command, *arguments = line.rstrip("\n").split("\t")
        try:
            answer = getattr(driver, command.replace("-", "_"))(*arguments)
        except Exception as failure:
            print(f"error {type(failure).__name__}: {failure}".replace("\n", " "), flush=True)
        else:
            print("\n".join([f"ok {len(answer)}", *answer]), flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
