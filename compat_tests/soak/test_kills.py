"""Round after round: SIGKILL at a random moment under load, start again, read everything back.

Two producers, one idempotent and one plain, go on through all of it. After each start every record that was
acknowledged is where it was, the idempotent one's are whole and in order, and nothing else has been sent.
Before each kill a partition is moved to another data directory; every other kill waits until it is there.
Every few rounds a new topic takes the place of the old one, so that what is read stays little; its segments
are small and half of the topics are flushed before they are acknowledged (`flush.messages=1`), so that kills
meet rolling, indexes, snapshots, checkpoints and the flush journal.

6 rounds; 200 in `make nightly`. ODRADEK_KILLS_SEED, which is printed, repeats a run as far as threads can be
repeated.
"""

from __future__ import annotations

import pathlib
import random
import time

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

import odradek
from compat_tests.clients import wait_until
from compat_tests.clients.confluent import ConfluentClient
from compat_tests.kit.chance import told_seed
from compat_tests.soak.ledger import Records, check_order
from compat_tests.soak.load import ConfluentLoad, Load, whole_log
from compat_tests.soak.moves import Moves
from tests.tiers import NIGHTLY

ROUNDS, ROUNDS_PER_TOPIC = (200, 5) if NIGHTLY else (6, 3)
PARTITIONS = 3
ALIVE_RECORDS = 20
SECONDS_UNDER_LOAD_MAX = 0.6
PATIENCE_SECONDS = 60

OPTIONS = {
    "log.segment.bytes": 1 << 20,
    "log.index.interval.bytes": 1024,
    "log.flush.offset.checkpoint.interval.ms": 500,
    "log.retention.check.interval.ms": 500,
}


class Round:
    """A topic, its load, and what was promised of it."""

    def __init__(self, broker: odradek.Broker, topic: str, *, is_flushed: bool) -> None:
        self.broker, self.topic = broker, topic
        self.records = Records()
        admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
        config = {"flush.messages": "1"} if is_flushed else {}
        (made,) = admin.create_topics([NewTopic(topic, PARTITIONS, 1, config=config)]).values()
        made.result(PATIENCE_SECONDS)
        self.loads: list[Load] = [
            ConfluentLoad(
                f"{topic}-{kind}",
                broker.bootstrap_servers,
                topic,
                PARTITIONS,
                self.records,
                idempotent=kind == "idempotent",
            )
            for kind in ("idempotent", "plain")
        ]
        for load in self.loads:
            load.start()

    def wait_for_more(self) -> None:
        """Until both producers have got over whatever happened."""
        before = self.records.acknowledged_of.copy()
        deadline = time.monotonic() + PATIENCE_SECONDS
        while any(
            self.records.acknowledged_of[load.name] < before[load.name] + ALIVE_RECORDS for load in self.loads
        ):
            for load in self.loads:
                load.raise_failure()
            assert time.monotonic() < deadline, f"the producers of {self.topic} do not get on"
            time.sleep(0.01)

    def check(self) -> None:
        """Read all of it; there may be more than is known to be acknowledged, but nothing else."""
        client = ConfluentClient(self.broker.bootstrap_servers)
        log = whole_log(client, self.topic, PARTITIONS)
        client.close()
        self.known.check(log)
        check_order(log, [load.name for load in self.loads if load.idempotent])

    def kill(self, chance: random.Random) -> None:
        time.sleep(chance.random() * SECONDS_UNDER_LOAD_MAX)
        self.broker.kill()
        # What is acknowledged after this is another matter.
        self.known = self.records.copy()
        self.broker.restart()

    def stop(self) -> None:
        for load in self.loads:
            load.stop()


def test_everything_is_read_back_after_each_of_many_kills(
    capsys: pytest.CaptureFixture[str], tmp_path: pathlib.Path
) -> None:
    chance = random.Random(told_seed(capsys, "ODRADEK_KILLS_SEED"))
    acknowledged = 0
    directories = [tmp_path / "one", tmp_path / "two"]
    with odradek.Broker(process=True, data_dir=",".join(map(str, directories)), options=OPTIONS) as broker:
        moves = Moves(broker.bootstrap_servers, directories, chance)
        for number in range(0, ROUNDS, ROUNDS_PER_TOPIC):
            now = Round(broker, f"kills-{number}", is_flushed=number % 2 == 1)
            for place in range(min(ROUNDS_PER_TOPIC, ROUNDS - number)):
                now.wait_for_more()
                moves.begin(now.topic, chance.randrange(PARTITIONS))
                if place % 2:
                    wait_until(moves.is_over, "the partition is in the other directory", [])
                    now.wait_for_more()
                now.kill(chance)
                now.check()
            now.stop()
            now.known = now.records
            now.check()
            acknowledged += now.records.acknowledged()
    with capsys.disabled():
        print(
            f"{acknowledged} acknowledged records were read back, after {ROUNDS} kills "
            f"and {moves.begun} moves, of which {moves.seen} were over"
        )
