"""Chains of Kafka's own TransactionalMessageCopier, killed at random: every message arrives once, in order.

The first link is of Kafka 4.3 and reads as a group, the second of 3.9 and reads assigned partitions; so one
broker serves both protocols of transactions at once. Copiers abort every third transaction of their own
accord, some are killed, and so is the broker. ODRADEK_COPIERS_SEED, which is printed, repeats the choices.
"""

from __future__ import annotations

import pathlib
import random
import subprocess
import time
from typing import NoReturn

import pytest

from compat_tests import reference
from compat_tests.clients import Message
from compat_tests.clients.confluent import ConfluentClient
from compat_tests.kit import readers
from compat_tests.kit.chance import told_seed
from compat_tests.kit.topics import create_topics
from compat_tests.kit.transaction_brokers import Start, TransactionBroker, broken_by_kafka
from compat_tests.stories import topic_name
from compat_tests.transactions.features import set_transaction_version
from tests.tiers import NIGHTLY

COPIER = "org.apache.kafka.tools.TransactionalMessageCopier"
PARTITIONS = 2
MESSAGES = 8000 if NIGHTLY else 1500
"""In each partition of the input."""
MESSAGES_PER_TRANSACTION = 40
KILLS = 12 if NIGHTLY else 3
"""Of copiers; the broker is killed a third as often."""
PATIENCE_SECONDS = 300
RESPAWN_SECONDS = 1.0

CHAINS = {
    "both-versions": (2, (reference.CURRENT, reference.OLDER)),
    "version-1": (1, (reference.CURRENT, reference.OLDER)),
    "older-first": (2, (reference.OLDER, reference.CURRENT)),
}
"""Name -> the finalized transaction.version, and whose copiers are the links."""


class Copier:
    """One copier's process, started again when it has ended: it was killed, or thinks that all is copied."""

    def __init__(self, directory: pathlib.Path, name: str, version: str, *arguments: str) -> None:
        self.name, self._version = name, version
        self._log = directory / f"{name}.log"
        self._arguments = ("--transactional-id", name, *arguments)
        self._process: subprocess.Popen[bytes] | None = None
        self._started = 0.0

    def keep_running(self) -> None:
        now = time.monotonic()
        if (self._process is None or self._process.poll() is not None) and (
            now - self._started >= RESPAWN_SECONDS
        ):
            command = reference.tool_command(COPIER, *self._arguments, version=self._version)
            with self._log.open("ab") as log:
                self._process = subprocess.Popen(command, stdout=log, stderr=log)
            self._started = now

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def said(self) -> str:
        return self._log.read_text(errors="replace")[-1500:] if self._log.exists() else "nothing"


def _group_of(source: str) -> str:
    return f"group-of-{source}"


class Chain:
    """Three topics, and copiers from each to the next."""

    def __init__(
        self, broker: TransactionBroker, directory: pathlib.Path, versions: tuple[str, str], seed: int
    ) -> None:
        self.broker, self._chance = broker, random.Random(seed)
        name = topic_name("copies")
        self.topics = [f"{name}-{number}" for number in range(3)]
        create_topics(broker.bootstrap, dict.fromkeys(self.topics, PARTITIONS))
        self.sent = {
            (self.topics[-1], partition): [b"%d-%d" % (partition, n) for n in range(MESSAGES)]
            for partition in range(PARTITIONS)
        }
        messages = [Message(value, partition=one[1]) for one, values in self.sent.items() for value in values]
        ConfluentClient(broker.bootstrap).produce(self.topics[0], messages)
        self.copiers = [
            Copier(directory, f"{name}-{link}-{number}", versions[link], *self._arguments(link, number))
            for link in range(2)
            for number in range(PARTITIONS)
        ]

    def _arguments(self, link: int, number: int) -> tuple[str, ...]:
        source, target = self.topics[link : link + 2]
        reads_as = ("--group-mode", "--use-group-metadata") if link == 0 else ()
        return (
            *("--input-topic", source, "--input-partition", str(number), "--output-topic", target),
            *("--broker-list", self.broker.bootstrap, "--consumer-group", _group_of(source)),
            *("--transaction-size", str(MESSAGES_PER_TRANSACTION), "--transaction-timeout", "20000"),
            *("--enable-random-aborts", *reads_as),
        )

    def run(self) -> None:
        """Until every message has come to the last topic; at random parts of the way somebody is killed."""
        blows = sorted(self._chance.uniform(0.02, 0.9) for _ in range(KILLS + KILLS // 3))
        deadline = time.monotonic() + PATIENCE_SECONDS
        with Progress(self.broker.bootstrap, self.topics[-1]) as progress:
            while progress.seen < MESSAGES * PARTITIONS:
                for copier in self.copiers:
                    copier.keep_running()
                progress.poll()
                while blows and progress.seen >= blows[0] * MESSAGES * PARTITIONS:
                    self._strike(is_for_broker=len(blows) % 4 == 2)
                    del blows[0]
                if time.monotonic() > deadline:
                    self._fail(progress.seen)

    def _fail(self, count: int) -> NoReturn:
        """Says which promise of the broker the copiers wait for, if it is one."""
        bootstrap = self.broker.bootstrap
        everywhere = [(topic, number) for topic in self.topics for number in range(PARTITIONS)]
        is_stable = readers.wait_until_stable(bootstrap, everywhere, readers.LOOK_SECONDS)
        assert is_stable, f"a transaction is still open: {count} messages came"
        for source, number in everywhere[:-PARTITIONS]:
            group = _group_of(source)
            readers.committed_offset(bootstrap, group, (source, number), readers.LOOK_SECONDS)
        said = "\n".join(f"{copier.name}: {copier.said()}" for copier in self.copiers)
        raise AssertionError(f"{count} messages came\n{said}")

    def _strike(self, *, is_for_broker: bool) -> None:
        if is_for_broker:
            self.broker.crash_and_restart()
        else:
            self._chance.choice(self.copiers).kill()

    def stop(self) -> None:
        for copier in self.copiers:
            copier.kill()


class Progress:
    """Counts what a reader of committed messages has seen."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self._consumer = readers.new_consumer(bootstrap)
        self._consumer.assign(readers.from_start((topic, number) for number in range(PARTITIONS)))
        self.seen = 0

    def poll(self) -> None:
        self.seen += sum(message.error() is None for message in self._consumer.consume(500, 0.2))

    def __enter__(self) -> Progress:
        return self

    def __exit__(self, *_: object) -> None:
        self._consumer.close()


@pytest.fixture
def seed(capsys: pytest.CaptureFixture[str]) -> int:
    return told_seed(capsys, "ODRADEK_COPIERS_SEED")


@pytest.mark.parametrize("chain", CHAINS if NIGHTLY else ["both-versions"])
def test_every_message_comes_out_of_a_chain_of_killed_copiers_once_and_in_order(
    chain: str, start_broker: Start, tmp_path: pathlib.Path, seed: int
) -> None:
    transaction_version, versions = CHAINS[chain]
    broker = start_broker()
    set_transaction_version(broker.direct, transaction_version)
    copies = Chain(broker, tmp_path, versions, seed)
    with broken_by_kafka(broker):
        try:
            copies.run()
        finally:
            copies.stop()
        assert readers.wait_until_stable(broker.bootstrap, copies.sent, 40), "a transaction is still open"
        copied = readers.values_of(broker.bootstrap, list(copies.sent))
        for where, sent in copies.sent.items():
            readers.assert_copied(copied[where], sent)
    written = readers.values_of(broker.bootstrap, list(copies.sent), readers.READ_UNCOMMITTED)
    assert sum(map(len, written.values())) > MESSAGES * PARTITIONS, "none was aborted, so nothing was shown"
