"""Members of a group as processes, whatever library they are of, and a group of them that is judged."""

from __future__ import annotations

import contextlib
import pathlib
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from confluent_kafka import Producer

from compat_tests import reference
from compat_tests.clients import wait_until
from compat_tests.groups import judge
from compat_tests.groups.log import GroupLog
from compat_tests.groups.observer import Observer
from compat_tests.kit import readers
from compat_tests.kit.programs import Teller
from compat_tests.kit.topics import create_topics
from compat_tests.kit.transaction_brokers import TransactionBroker
from compat_tests.kit.working import Working
from compat_tests.reference import tool_command
from compat_tests.stories import topic_name
from tools import environment

VERIFIABLE = "org.apache.kafka.tools.VerifiableConsumer"
JAVA = {"java-4.3": reference.CURRENT, "java-3.9": reference.OLDER}
CLASSIC, CONSUMER = "classic", "consumer"

PARTITIONS = 6
SESSION_MS = 6000
"""Of those that are killed for good, so that they are found dead soon; the least that brokers take."""
PATIENCE_SECONDS = 90
CLOSE_SECONDS = 45
FEED_PAUSE_S = 0.05


@dataclass(frozen=True)
class Kind:
    """Whose consumer, in which protocol, with which assignor."""

    library: str
    assignor: str = "range"
    protocol: str = CLASSIC

    def __str__(self) -> str:
        return "-".join([self.library, *([] if self.protocol == CLASSIC else [self.protocol]), self.assignor])


JAVA_ASSIGNORS = {
    "range": "RangeAssignor",
    "roundrobin": "RoundRobinAssignor",
    "sticky": "StickyAssignor",
    "cooperative-sticky": "CooperativeStickyAssignor",
}


class Member(Working):
    """A process, and what it has told so far."""

    patience_seconds = CLOSE_SECONDS

    def __init__(self, name: str, identity: str, kind: Kind, command: Sequence[str]) -> None:
        super().__init__()
        self.name, self.identity, self.kind = name, identity, kind
        self.killed_ms: int | None = None
        self._events: list[dict[str, Any]] = []
        self._process = Teller(command, cwd=environment.CHECKOUT)
        self.complaints = self._process.complaints
        self.start()

    def _run(self) -> None:
        for event in self._process.events(b"{"):
            self._events.append(event)

    def read(self) -> list[dict[str, Any]]:
        """All events that it has told in whole lines."""
        self.raise_failure()
        return [*self._events]

    @property
    def owned(self) -> frozenset[int]:
        """The partitions that it has, as it knows."""
        if not self.is_running:
            return frozenset()
        return judge.owned_after(self.read())

    @property
    def is_running(self) -> bool:
        return self._process.is_running

    def delivered(self) -> int:
        return sum(event["count"] for event in self.read() if event["name"] == "records_consumed")

    def rebalances(self) -> int:
        """How often it was told of a change of what it has."""
        return sum(event["name"] in ("partitions_assigned", "partitions_revoked") for event in self.read())

    def leave(self, *, wait: bool = True) -> None:
        """Asks it to close its consumer, as a user would stop it."""
        self._process.process.send_signal(signal.SIGTERM)
        if wait:
            self.wait()

    def wait(self) -> None:
        try:
            self._process.process.wait(CLOSE_SECONDS)
        except subprocess.TimeoutExpired as error:
            self.kill()
            raise AssertionError(f"{self.name} did not close: {self.complaints()}") from error
        self.stop()

    def kill(self) -> None:
        if self.is_running:
            self._process.kill()
            self.killed_ms = time.time_ns() // 1_000_000
            self.stop()


def command_of(
    kind: Kind,
    directory: pathlib.Path,
    bootstrap: str,
    group: str,
    topic: str,
    *,
    session_ms: int,
    instance: str | None,
) -> list[str]:
    if kind.library not in JAVA:
        pairs = {"assignor": kind.assignor, "protocol": kind.protocol, "session_ms": str(session_ms)}
        pairs |= {"instance": instance} if instance else {}
        command = [sys.executable, "-m", "compat_tests.groups.member", kind.library, bootstrap, group, topic]
        return [*command, *(f"{name}={value}" for name, value in pairs.items())]
    arguments = ["--bootstrap-server", bootstrap, "--group-id", group, "--topic", topic]
    arguments += ["--reset-policy", "earliest"]
    arguments += ["--group-instance-id", instance] if instance else []
    if kind.protocol == CONSUMER:
        arguments += ["--group-protocol", CONSUMER, "--group-remote-assignor", kind.assignor]
    else:
        assignor = f"org.apache.kafka.clients.consumer.{JAVA_ASSIGNORS[kind.assignor]}"
        config = directory / "consumer.properties"
        config.write_text("heartbeat.interval.ms=300\n")
        arguments += ["--assignment-strategy", assignor, "--session-timeout", str(session_ms)]
        arguments += ["--consumer.config", str(config)]
    version = JAVA[kind.library]
    jvm = [] if version == reference.CURRENT else [reference.older_logging(directory, "ERROR")]
    return tool_command(VERIFIABLE, *arguments, version=version, jvm=jvm)


class Feeder(Working):
    """Produces to every partition, on and on, whatever the broker does meanwhile."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        super().__init__()
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "acks": "all",
                "linger.ms": 5,
                "reconnect.backoff.max.ms": 300,
                "log_level": 0,
            }
        )
        self._topic = topic

    def _run(self) -> None:
        number = 0
        while not self._ending.wait(FEED_PAUSE_S):
            for partition in range(PARTITIONS):
                with contextlib.suppress(BufferError):
                    self._producer.produce(self._topic, b"%d" % number, partition=partition)
            number += 1
            self._producer.poll(0)

    def stop(self) -> None:
        super().stop()
        assert self._producer.flush(PATIENCE_SECONDS) == 0, "the producer did not get rid of its records"


class Group:
    """Members of one group on one topic, which is fed all the time; `finish` judges what they did."""

    def __init__(
        self,
        broker: TransactionBroker,
        directory: pathlib.Path,
        kind: Kind,
        session_ms: int,
        replicas: int = 1,
    ) -> None:
        self.broker, self.kind, self._directory = broker, kind, directory
        self._session_ms = session_ms
        self.name, self.topic = topic_name("group"), topic_name("shared")
        self.partitions = create_topics(broker.bootstrap, {self.topic: PARTITIONS}, replicas)
        self.members: list[Member] = []
        self.everyone: list[Member] = []
        self._observer = Observer(broker.direct, self.name, self.topic, PARTITIONS).start()
        self._feeder: Feeder | None = Feeder(broker.direct, self.topic).start()

    def join(self, kind: Kind | None = None, instance: str | None = None) -> Member:
        kind = kind or self.kind
        name = f"{len(self.everyone)}-{kind}"
        where = (self.broker.bootstrap, self.name, self.topic)
        more = {"session_ms": self._session_ms, "instance": instance}
        command = command_of(kind, self._directory, *where, **more)
        member = Member(name, instance or name, kind, command)
        self.members.append(member)
        self.everyone.append(member)
        return member

    def leave(self, member: Member) -> None:
        self.members.remove(member)
        member.leave()

    def kill(self, member: Member) -> None:
        self.members.remove(member)
        member.kill()

    def is_shared_out(self) -> bool:
        """Whether all partitions are given out, each once, and evenly, as each assignor does with one topic.
        On the way there all may be given out unevenly."""
        for member in self.members:
            assert member.is_running, f"{member.name} has ended: {member.complaints()}"
        parts = [member.owned for member in self.members]
        sizes = [len(part) for part in parts]
        is_even = min(sizes) > 0 and max(sizes) - min(sizes) <= 1
        return is_even and sum(sizes) == PARTITIONS == len(frozenset().union(*parts))

    def wait(self, claim: Callable[[], bool], what: str) -> None:
        try:
            wait_until(claim, what, seconds=PATIENCE_SECONDS)
        except AssertionError as error:
            error.add_note(f"{self}; states {self._observer.states[-9:]}; {self._observer.last}")
            for member in self.members:
                error.add_note(f"{member.name} said {member.complaints()[-700:]}")
            raise

    def wait_until_shared(self) -> None:
        """And until every member has got records since then."""
        self.wait(self.is_shared_out, f"{self.name} is shared out")
        before = {member.name: member.delivered() for member in self.members}

        def all_go_on() -> bool:
            return all(member.delivered() > before[member.name] for member in self.members)

        self.wait(all_go_on, f"all members of {self.name} get records")

    def __str__(self) -> str:
        return ", ".join(f"{one.name} has {sorted(one.owned)}" for one in self.members)

    def finish(self, allowed: judge.Allowed = judge.NOTHING) -> None:
        """Everything is consumed and committed, all leave, and the whole history is judged."""
        assert self._feeder is not None
        self._feeder.stop()
        self._feeder = None
        ends = {
            where[1]: end.high_watermark
            for where, end in readers.ends(self.broker.direct, self.partitions).items()
        }

        def is_done() -> bool:
            return self._observer.committed() == ends

        self.wait(is_done, f"{self.name} has committed {ends}")
        for member in self.members:
            member.leave(wait=False)
        for member in self.members:
            member.wait()
        self.members.clear()
        self._observer.stop()
        found = judge.faults(self.everyone, ends, allowed)
        seen = self._observer.faults + ([] if allowed.commits_go_back else self._observer.went_back)
        found += [f"seen from outside: {fault}" for fault in seen]
        found += GroupLog(self.broker.direct, self.name, self.topic).faults(allowed)
        assert not found, "\n" + "\n".join(found[:40])

    def stop(self) -> None:
        """Ends what still runs; harmless after `finish`."""
        for member in self.everyone:
            member.kill()
        self._observer.stop()
        if self._feeder is not None:
            with contextlib.suppress(AssertionError):
                self._feeder.stop()


@contextlib.contextmanager
def group_of(
    broker: TransactionBroker,
    directory: pathlib.Path,
    kind: Kind,
    *,
    session_ms: int = SESSION_MS,
    replicas: int = 1,
) -> Iterator[Group]:
    """`session_ms` is that of classic members; those of the new protocol have the broker's. `replicas` are
    those of the topic."""
    group = Group(broker, directory, kind, session_ms, replicas)
    try:
        yield group
    finally:
        group.stop()
