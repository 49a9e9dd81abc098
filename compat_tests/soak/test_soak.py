"""Three client libraries produce, consume and commit while the broker is killed with -9 and started again.

Afterwards: each acknowledged record is read exactly where it was acknowledged; the records of idempotent
producers are in order and not doubled; no committed offset is below the last acknowledged commit.
"""

from __future__ import annotations

import itertools
import random
import threading
import time
from collections.abc import Callable, Iterator

import pytest
from confluent_kafka import Producer

from compat_tests.clients import Client, Member, Message, Record, wait_until
from compat_tests.clients.aio import AiokafkaClient
from compat_tests.clients.confluent import ConfluentClient
from compat_tests.clients.kafka_python import KafkaPythonClient

PARTITIONS = 3
KILLS_A_MINUTE = 5
LIBRARIES: dict[str, type[Client]] = {
    "kafka-python": KafkaPythonClient,
    "confluent-kafka": ConfluentClient,
    "aiokafka": AiokafkaClient,
}


class Worker(threading.Thread):
    """A thread whose failure fails the test."""

    def __init__(self, work: Callable[[], None]) -> None:
        super().__init__(daemon=True)
        self._work = work
        self.failure: BaseException | None = None
        self.start()

    def run(self) -> None:
        try:
            self._work()
        except BaseException as failure:
            self.failure = failure

    def finish(self) -> None:
        self.join(120)
        assert not self.is_alive(), "a client hangs"
        if self.failure is not None:
            raise self.failure


class Load:
    """What one library has had acknowledged: (partition, offset) -> value."""

    def __init__(self, client: Client, topic: str, over: threading.Event) -> None:
        self.client = client
        self.topic = topic
        self.acknowledged: dict[tuple[int, int], bytes] = {}
        self._over = over
        client.create_topic(topic, PARTITIONS)

    def produce(self) -> None:
        """Rounds of 50 records until time is over; a round in which a client gives up is not acknowledged."""
        for number in itertools.count():
            if self._over.is_set():
                return
            values = [f"{self.topic}/{number}/{n}".encode() for n in range(50)]
            messages = [Message(value, partition=n % PARTITIONS) for n, value in enumerate(values)]
            try:
                answers = self.client.produce(self.topic, messages)
            except Exception:  # every library has its own for "the broker is away too long"
                continue
            for where, value in zip(answers, values, strict=True):
                assert where not in self.acknowledged, f"{where} was acknowledged twice"
                self.acknowledged[where] = value


class IdempotentLoad:
    """One idempotent librdkafka producer: numbers in order, a series a partition."""

    def __init__(self, client: Client, bootstrap: str, topic: str, over: threading.Event) -> None:
        self.topic = topic
        self.acknowledged: dict[int, list[tuple[int, int]]] = {p: [] for p in range(PARTITIONS)}
        self._over = over
        self._producer = Producer(
            {"bootstrap.servers": bootstrap, "enable.idempotence": True, "linger.ms": 2}
        )
        client.create_topic(topic, PARTITIONS)

    def produce(self) -> None:
        def delivered(error: object, message: object) -> None:
            assert error is None, error
            number = int(message.value())  # type: ignore[attr-defined]
            where = (message.offset(), number)  # type: ignore[attr-defined]
            self.acknowledged[message.partition()].append(where)  # type: ignore[attr-defined]

        for number in itertools.count():
            if self._over.is_set():
                break
            for partition in range(PARTITIONS):
                self._producer.produce(self.topic, b"%d" % number, partition=partition, on_delivery=delivered)
            self._producer.poll(0.002)
        assert self._producer.flush(60) == 0


def keep_killing(broker: object, chance: random.Random, seconds: float, over: threading.Event) -> None:
    """Kills and restarts at random moments, then says that time is over."""
    kills = max(1, round(KILLS_A_MINUTE * seconds / 60))
    moments = sorted(chance.uniform(1, seconds - 1) for _ in range(kills))
    start = time.monotonic()
    try:
        for moment in moments:
            over.wait(max(0.0, start + moment - time.monotonic()))
            broker.kill()  # type: ignore[attr-defined]
            broker.restart()  # type: ignore[attr-defined]
        over.wait(max(0.0, start + seconds - time.monotonic()))
    finally:
        over.set()


@pytest.fixture
def clients(odradek_fresh_broker) -> Iterator[dict[str, Client]]:  # type: ignore[no-untyped-def]
    clients = {name: library(odradek_fresh_broker.bootstrap_servers) for name, library in LIBRARIES.items()}
    yield clients
    for client in clients.values():
        client.close()


def check_every_acknowledged_record(load: Load) -> None:
    count = len(load.acknowledged)
    assert count > 0, f"{load.topic}: nothing was produced"
    read: dict[tuple[int, int], bytes | None] = {}
    for partition in range(PARTITIONS):
        mine = [offset for p, offset in load.acknowledged if p == partition]
        records = load.client.read(load.topic, {partition: 0}, max(mine) + 1)
        read.update({(record.partition, record.offset): record.value for record in records})
    assert {where: read.get(where) for where in load.acknowledged} == load.acknowledged


def check_order(load: IdempotentLoad, client: Client) -> None:
    for partition, acknowledged in load.acknowledged.items():
        last_offset, last_number = max(acknowledged)
        records = client.read(load.topic, {partition: 0}, last_offset + 1)
        numbers = [int(record.value or b"") for record in records]
        assert numbers[: last_number + 1] == list(range(last_number + 1)), "out of order, doubled or lost"
        at = {record.offset: int(record.value or b"") for record in records}
        assert all(at[offset] == number for offset, number in acknowledged)


def check_commits(client: Client, group: str, topic: str, member: Member) -> None:
    """A member commits what a poll brought before it polls again, so its records tell the last commit."""
    last: dict[int, Record] = {record.partition: record for record in member.records}
    committed = client.committed(group, topic, range(PARTITIONS))
    for partition, record in last.items():
        assert (committed[partition] or 0) >= record.offset + 1, (partition, committed, record.offset)


@pytest.mark.timeout(3600)
def test_nothing_acknowledged_is_lost_while_the_broker_is_killed(
    odradek_fresh_broker,  # type: ignore[no-untyped-def]
    clients: dict[str, Client],
    pytestconfig: pytest.Config,
) -> None:
    seconds = pytestconfig.getoption("--soak-seconds")
    seed = pytestconfig.getoption("--soak-seed") or random.SystemRandom().randrange(2**31)
    print(f"soak: repeat with --soak-seed={seed} --soak-seconds={seconds:g}")
    over = threading.Event()
    loads = {name: Load(client, f"soak-{name}", over) for name, client in clients.items()}
    idempotent = IdempotentLoad(
        clients["confluent-kafka"], odradek_fresh_broker.bootstrap_servers, "soak-idempotent", over
    )
    members = {name: client.join(f"group-{name}", f"soak-{name}") for name, client in clients.items()}
    workers = [Worker(load.produce) for load in loads.values()] + [Worker(idempotent.produce)]
    keep_killing(odradek_fresh_broker, random.Random(seed), seconds, over)
    for worker in workers:
        worker.finish()
    for name, member in members.items():
        wanted = loads[name].acknowledged.keys()
        wait_until(
            lambda: {(r.partition, r.offset) for r in list(member.records)} >= wanted,  # noqa: B023
            f"{name}: the group has read every acknowledged record",
            [member],
        )
        member.leave()
        check_commits(clients[name], f"group-{name}", f"soak-{name}", member)
        check_every_acknowledged_record(loads[name])
    check_order(idempotent, clients["confluent-kafka"])
