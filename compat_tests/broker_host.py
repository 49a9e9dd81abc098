"""One virtual machine for all brokers of Apache Kafka that a process of the tests starts, behind
`BrokerHost.java`.

A broker in a warm virtual machine starts in half a second of processor time. One of its own takes three until
it answers, and then still compiles what it runs.
"""

from __future__ import annotations

import atexit
import functools
import pathlib

from compat_tests import reference
from compat_tests.clients.java import SOURCE
from compat_tests.kit.java import compiled
from compat_tests.kit.programs import Program

JVM = ("-Xms256m", "-Xmx1g", "-XX:+UseG1GC", "-XX:TieredStopAtLevel=1", "-Dlog4j2.level=WARN")
"""Room for three brokers: each has 128 MB to compact logs with."""


class BrokerHost:
    """The virtual machine. It ends with this process at the latest."""

    def __init__(self) -> None:
        kafka = reference.class_path()
        classes = compiled(kafka, SOURCE.with_name("BrokerHost.java"))
        # Kafka's jars first: the archive of `fast_start` is for class paths that begin so.
        options = (*JVM, *reference.fast_start(reference.CURRENT))
        self._program = Program(["java", *options, "-cp", f"{kafka}:{classes}", "BrokerHost"])
        self.format, self.close = functools.partial(self._program.ask, "format"), self._program.close

    def start(self, config: pathlib.Path) -> None:
        """Returns when the broker of that server.properties answers."""
        self._program.ask("start", config)

    def stop(self, config: pathlib.Path) -> None:
        """Returns when the broker has shut down."""
        self._program.ask("stop", config)

    def log(self) -> str:
        """What all its brokers have logged."""
        return self._program.errors()


@functools.cache
def shared_host() -> BrokerHost:
    """The one of this process, for a `reference.Kafka` that is one of many."""
    host = BrokerHost()
    atexit.register(host.close)
    return host


def host_for(version: str) -> BrokerHost | None:
    """The shared one for the current version; None for others, which have virtual machines of their own."""
    return shared_host() if version == reference.CURRENT else None
