"""Share consumers of several libraries in one group, while the broker and they themselves are killed with -9.

Chance decides what each acknowledges, and how. At the end others read what is left, and the ledger judges.
"""

from __future__ import annotations

import itertools
import random

import pytest
from confluent_kafka import KafkaError, Message, Producer

from compat_tests.clients import wait_until
from compat_tests.kit.transaction_brokers import Start, TransactionBroker
from compat_tests.kit.working import Working
from compat_tests.share_groups.brokers import new_topic, places, set_up_group
from compat_tests.share_groups.ledger import Ledger
from compat_tests.share_groups.members import FRANZ, LIBRDKAFKA, Where
from compat_tests.share_groups.workers import Worker
from tests.tiers import NIGHTLY

LIMIT = 5
PARTITIONS = 3
GROUP = {
    "share.delivery.count.limit": f"{LIMIT}",
    "share.session.timeout.ms": "6000",
    # A lock that ended would be a delivery more, which nobody has seen.
    "share.record.lock.duration.ms": "60000",
}
BY_DAY = ["4.4.0", "4.1.2", LIBRDKAFKA]
BY_NIGHT = [*BY_DAY, "4.3.1", FRANZ]
KILLS = 300 if NIGHTLY else 5
CONFIRMED_BETWEEN = 40
"""Acknowledgements that have to be taken before the next kill."""
BACKLOG = 200


class Producing(Working):
    """A thread that sends numbers to all partitions, as long as not too many wait for the group."""

    def __init__(self, ledger: Ledger, bootstrap: str, topic: str) -> None:
        super().__init__()
        self._ledger, self._topic = ledger, topic
        self._producer = Producer(
            {"bootstrap.servers": bootstrap, "enable.idempotence": True, "linger.ms": 5}
        )

    def _run(self) -> None:
        for number in itertools.count():
            if self._ending.is_set():
                break
            value = f"{number}"
            self._ledger.send(value)
            self._producer.produce(
                self._topic, value, partition=number % PARTITIONS, on_delivery=self._delivered
            )
            is_far_ahead = number % 20 == 0 and len(self._ledger.open_records()) > BACKLOG
            self._producer.poll(0.2 if is_far_ahead else 0.005)

    def _delivered(self, failure: KafkaError | None, message: Message) -> None:
        if failure is None:
            where = Where(message.topic(), message.partition(), message.offset())
            self._ledger.keep(where, message.value().decode())

    def stop(self) -> None:
        super().stop()
        assert self._producer.flush(60) == 0


def drain(broker: TransactionBroker, ledger: Ledger, group: str, topic: str) -> None:
    """Consumers that began after everything accept what is left."""
    last = [
        Worker(ledger, library, broker.bootstrap, group, topic, chance=random.Random(0), accepts_all=True)
        for library in (LIBRDKAFKA, "4.4.0")
    ]

    def is_done() -> bool:
        for one in last:
            one.raise_failure()
        return {one.lag for one in places(broker.bootstrap, group, topic, PARTITIONS)} == {0}

    try:
        wait_until(is_done, "the group has read everything", seconds=90)
    except AssertionError as failure:
        failure.add_note("\n".join(ledger.faults(is_drained=False)[:20]))
        raise
    finally:
        for one in last:
            one.stop()


@pytest.mark.parametrize("seed", [1])
def test_what_was_answered_outlives_every_kill(start_broker: Start, seed: int) -> None:
    broker = start_broker()
    group, topic = set_up_group(broker.bootstrap, GROUP), new_topic(broker.bootstrap, partitions=PARTITIONS)
    chance, ledger = random.Random(seed), Ledger(LIMIT)
    producing = Producing(ledger, broker.bootstrap, topic).start()
    workers = [
        Worker(ledger, library, broker.bootstrap, group, topic, chance=random.Random(chance.random()))
        for library in (BY_NIGHT if NIGHTLY else BY_DAY)
    ]
    try:
        for number in range(KILLS):
            wanted = ledger.confirmed + CONFIRMED_BETWEEN
            wait_until(
                lambda wanted=wanted: ledger.confirmed >= wanted,
                f"acknowledgements are taken after kill {number}",
                workers,
                seconds=90,
            )
            if number % 3 == 2:
                chance.choice(workers).kill()
            if number % 6 != 5:
                broker.crash_and_restart()
    finally:
        producing.stop()
        for worker in workers:
            worker.stop()
    drain(broker, ledger, group, topic)
    print(f"{KILLS} kills: {ledger.summary()}")
    faults = ledger.faults()
    assert not faults, "\n".join(faults[:20])
    taken = ledger.summary()
    assert min(taken["ACCEPT"], taken["RELEASE"], taken["REJECT"], taken["redelivered"]) > 0, taken
