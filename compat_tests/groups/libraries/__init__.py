"""Consumers of three libraries in a group, which tell what they do; `member.py` makes a process of one."""

from __future__ import annotations

import abc
import importlib
import time
from collections.abc import Iterable, Mapping
from typing import Any

from compat_tests.kit import telling

LIBRARIES = {"confluent-kafka": "confluent", "aiokafka": "aio", "kafka-python": "kafka_python"}
"""Name -> module, which is imported when it is asked for: each of them takes its time."""
POLL_SECONDS = 0.2
HEARTBEAT_MS = 300
RECORDS_A_POLL = 100
COMMIT_PATIENCE_MS = 45_000


def say(name: str, **facts: Any) -> None:
    telling.tell({"timestamp": time.time_ns() // 1_000_000, "name": name, **facts})


class Program(abc.ABC):
    """One library's consumer."""

    def __init__(self, bootstrap: str, group: str, topic: str, settings: Mapping[str, str]) -> None:
        self.bootstrap, self.group, self.topic = bootstrap, group, topic
        self.assignor, self.protocol = settings["assignor"], settings["protocol"]
        self.instance = settings["instance"] or None
        self.session_ms = int(settings["session_ms"])
        self.is_stopping = False
        self._taken: dict[int, list[int]] = {}
        self.positions: dict[int, int] = {}
        """Of what is to be committed."""

    def stop(self, *_: object) -> None:
        self.is_stopping = True

    # -- what happened

    def take(self, partition: int, offset: int) -> None:
        self._taken.setdefault(partition, []).append(offset)

    def tell_taken(self) -> None:
        """What was taken since the last call is told, and is to be committed."""
        taken, self._taken = self._taken, {}
        if not taken:
            return
        say(
            "records_consumed",
            count=sum(map(len, taken.values())),
            generation=self.generation(),
            partitions=[
                {"partition": one, "count": len(offsets), "minOffset": offsets[0], "maxOffset": offsets[-1]}
                for one, offsets in taken.items()
            ],
        )
        self.positions.update({one: offsets[-1] + 1 for one, offsets in taken.items()})

    def assigned(self, partitions: Iterable[int]) -> None:
        self.tell_taken()
        say("partitions_assigned", partitions=[{"partition": one} for one in sorted(partitions)])

    def revoked(self, partitions: Iterable[int]) -> None:
        self.tell_taken()
        gone = sorted(partitions)
        for one in gone:
            self.positions.pop(one, None)
        say("partitions_revoked", partitions=[{"partition": one} for one in gone])

    def committed(self, offsets: Mapping[int, int]) -> None:
        for one, offset in offsets.items():
            if self.positions.get(one) == offset:
                del self.positions[one]
        say(
            "offsets_committed",
            success=True,
            offsets=[{"partition": one, "offset": offset} for one, offset in offsets.items()],
        )

    # -- what a library does

    def generation(self) -> int | None:
        """The generation that the library believes in; None if it does not tell."""
        return None

    @abc.abstractmethod
    def run(self) -> None: ...


class BlockingProgram(Program):
    def run(self) -> None:
        self.open()
        say("startup_complete")
        while not self.is_stopping:
            self.poll()
            self.tell_taken()
            if self.positions:
                self.commit(dict(self.positions))
        say("stopping")
        self.close()
        say("shutdown_complete")

    @abc.abstractmethod
    def open(self) -> None: ...

    @abc.abstractmethod
    def poll(self) -> None:
        """Takes records that come within POLL_SECONDS."""

    @abc.abstractmethod
    def commit(self, offsets: dict[int, int]) -> None:
        """Calls `committed` if it is done; a refusal for a rebalance is none of an error."""

    @abc.abstractmethod
    def close(self) -> None: ...


def load(name: str) -> type[Program]:
    found: type[Program] = importlib.import_module(f"{__name__}.{LIBRARIES[name]}").PROGRAM
    return found
