"""Nothing that a client was promised is lost, doubled, moved or reordered by crashes of the broker.

Three libraries at once: of each an idempotent producer, a plain one, a reader and a group of its own, and a
group in which all three meet. The broker is killed with SIGKILL at random moments and started again on the
same port and data; after every start each of them must get on. Before each crash a partition of the topic
or of `__consumer_offsets` is moved to another data directory. The seed decides the moments, which partition
that is, and who leaves its group when: ODRADEK_SOAK_SEED repeats a run, as far as threads can be repeated.
"""

from __future__ import annotations

import pathlib
import random
import time
from collections.abc import Callable, Iterator

import pytest
from kafka import KafkaAdminClient

import odradek
from compat_tests.clients import wait_until
from compat_tests.clients.aio import AiokafkaClient, LoopThread
from compat_tests.clients.confluent import ConfluentClient
from compat_tests.clients.kafka_python import KafkaPythonClient
from compat_tests.kit.chance import told_seed
from compat_tests.soak import conftest
from compat_tests.soak.ledger import Commits, Records, check_order
from compat_tests.soak.load import GroupMember, Library, Load, Reader, libraries, whole_log
from compat_tests.soak.moves import Moves

TOPIC = "soak"
PARTITIONS = 4
ALL_MEET = "group-of-all"
ALIVE_RECORDS = 50
"""So many more acknowledged records after a start show that a producer got over the crash."""

OPTIONS = {
    "group.initial.rebalance.delay.ms": 0,
    # Small pieces and a busy compactor, so that crashes meet rolling, indexes, snapshots and swaps of files.
    "log.segment.bytes": 1 << 20,
    "offsets.topic.num.partitions": 1,
    "offsets.topic.segment.bytes": 1 << 20,
    "log.cleaner.backoff.ms": 500,
    "log.flush.offset.checkpoint.interval.ms": 2000,
    "log.retention.check.interval.ms": 2000,
}


class Soak:
    """The broker and all that goes on around it."""

    def __init__(self, broker: odradek.Broker, directories: list[pathlib.Path], seed: int) -> None:
        self.broker, self.chance = broker, random.Random(seed)
        self.moves = Moves(broker.bootstrap_servers, directories, self.chance)
        self.records, self.commits = Records(), Commits()
        self.kills = 0
        self._thread = LoopThread()
        self._libraries = libraries(self._thread)
        self.loads: list[Load] = []
        self.readers: list[Reader] = []
        self.members: list[GroupMember] = []
        self._kafka = KafkaPythonClient(broker.bootstrap_servers)

    def start(self) -> None:
        self._kafka.create_topic(TOPIC, PARTITIONS)
        where = (self.broker.bootstrap_servers, TOPIC, PARTITIONS, self.records)
        for name, library in self._libraries.items():
            self.loads.append(library.load(f"{name}-idempotent", *where, idempotent=True))
            self.loads.append(library.load(f"{name}-plain", *where, idempotent=False))
            self.readers.append(self._reader(name, library))
            self.members.append(self._member(f"group-of-{name}", library))
            self.members.append(self._member(ALL_MEET, library))
        for worker in (*self.loads, *self.readers, *self.members):
            worker.start()

    def _reader(self, name: str, library: Library) -> Reader:
        address = (self.broker.bootstrap_servers, "", TOPIC)
        return library.reader(f"reader-of-{name}", self.records, PARTITIONS, *address)

    def _member(self, group: str, library: Library) -> GroupMember:
        address = (self.broker.bootstrap_servers, group, TOPIC)
        return library.member(group, self.commits, self.records, PARTITIONS, *address)

    @property
    def groups(self) -> list[str]:
        return sorted({member.group for member in self.members})

    def wait(self, claim: Callable[[], bool], what: str) -> None:
        """Until `claim` holds, or a worker fails."""

        def claim_while_all_are_well() -> bool:
            for load in self.loads:
                load.raise_failure()
            return claim()

        wait_until(claim_while_all_are_well, what, [*self.readers, *self.members], seconds=90)

    def wait_until_everybody_gets_on(self) -> None:
        """Every producer has more records acknowledged, every group commits again."""
        sent, committed = self.records.acknowledged_of.copy(), self.commits.acknowledged_of.copy()
        for load in self.loads:
            self.wait(
                lambda name=load.name: self.records.acknowledged_of[name] >= sent[name] + ALIVE_RECORDS,
                f"{load.name} gets on",
            )
        for group in self.groups:
            self.wait(
                lambda group=group: self.commits.acknowledged_of[group] > committed[group],
                f"{group} commits again",
            )

    def move(self) -> None:
        """Moves a partition, and most of the time waits until it is served from its new directory."""
        topic, partition = self.chance.choice(
            [("__consumer_offsets", 0), *((TOPIC, partition) for partition in range(PARTITIONS))]
        )
        self.moves.begin(topic, partition)
        if self.chance.random() < 0.7:
            self.wait(self.moves.is_over, f"{topic}-{partition} is in the other directory")
            self.wait_until_everybody_gets_on()

    def crash(self) -> None:
        """Kills the broker, sometimes once more as soon as it is back, and looks at the commits."""
        self._kill_and_restart()
        if self.chance.random() < 0.4:
            self._kill_and_restart()
        for group in self.groups:
            floors = self.commits.floors(group)
            committed = self._kafka.committed(group, TOPIC, floors)
            low = {p: (committed[p], floor) for p, floor in floors.items() if (committed[p] or 0) < floor}
            assert not low, f"{group} has committed less than was acknowledged (partition: has, was): {low}"
        self.commits.held = False

    def _kill_and_restart(self) -> None:
        self.broker.kill()
        self.commits.held = True
        self.broker.restart()
        self.kills += 1

    def replace_a_member(self) -> None:
        """One leaves the group in which all meet, and one of the same library takes its place."""
        old = self.chance.choice([member for member in self.members if member.group == ALL_MEET])
        try:
            old.leave()
        except AssertionError as failure:
            with KafkaAdminClient(bootstrap_servers=self.broker.bootstrap_servers) as admin:
                failure.add_note(f"{old.library}; its group: {admin.describe_groups([ALL_MEET])}")
            raise
        self.members.remove(old)
        new = self._member(ALL_MEET, self._libraries[old.library])
        self.members.append(new)
        new.start()

    def finish(self) -> None:
        """Lets producers end, readers and groups catch up; then all leave."""
        for load in self.loads:
            load.stop()
        for name in [*(reader.name for reader in self.readers), *self.groups]:
            self.wait(lambda name=name: self.records.has_seen_all(name), f"{name} has read every record")
        for worker in (*self.readers, *self.members):
            worker.leave()

    def close(self) -> None:
        self._kafka.close()
        self._thread.close()


@pytest.fixture
def soak(capsys: pytest.CaptureFixture[str], tmp_path: pathlib.Path) -> Iterator[Soak]:
    seed = told_seed(capsys, "ODRADEK_SOAK_SEED")
    directories = [tmp_path / "one", tmp_path / "two"]
    with odradek.Broker(process=True, data_dir=",".join(map(str, directories)), options=OPTIONS) as broker:
        soak = Soak(broker, directories, seed)
        yield soak
        soak.close()


def test_nothing_promised_is_lost_when_the_broker_is_killed(
    soak: Soak, soak_seconds: int, capsys: pytest.CaptureFixture[str]
) -> None:
    soak.start()
    kills = max(conftest.KILLS, conftest.KILLS * soak_seconds // conftest.SECONDS)
    start, slot = time.monotonic(), soak_seconds / kills
    for number in range(kills):
        moment = start + slot * (number + soak.chance.random())
        soak.wait_until_everybody_gets_on()
        soak.wait(lambda moment=moment: time.monotonic() >= moment, "the random moment")
        soak.move()
        soak.crash()
        if soak.chance.random() < 0.5:
            soak.replace_a_member()
    soak.wait_until_everybody_gets_on()
    soak.finish()
    bootstrap = soak.broker.bootstrap_servers
    for library in (KafkaPythonClient, ConfluentClient, AiokafkaClient):
        client = library(bootstrap)
        log = whole_log(client, TOPIC, PARTITIONS)
        client.close()
        soak.records.check(log)
        check_order(log, [load.name for load in soak.loads if load.idempotent])
    with capsys.disabled():
        print(
            f"{soak.records.acknowledged()} acknowledged records survived {soak.kills} kills "
            f"and {soak.moves.begun} moves, of which {soak.moves.seen} were over"
        )
