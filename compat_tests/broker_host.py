"""One virtual machine for all brokers of Apache Kafka that a process of the tests starts, behind
`BrokerHost.java`.

A broker in a warm virtual machine starts in half a second of processor time. One of its own takes three until
it answers, and then still compiles what it runs.
"""

from __future__ import annotations

import atexit
import functools
import os
import pathlib
import shutil
from typing import TypedDict

from compat_tests import reference
from compat_tests.clients.java import SOURCE, Program
from compat_tests.kit.java import compiled

__all__ = ["BrokerHost", "hosted", "in_memory"]

JVM = ("-Xms256m", "-Xmx1g", "-XX:+UseG1GC", "-XX:TieredStopAtLevel=1", "-Dlog4j2.level=WARN")
"""Room for three brokers: each has 128 MB to compact logs with."""

MEMORY = pathlib.Path("/dev/shm")
FREE_BYTES_MIN = 2 << 30
"""Brokers of a test write a fraction of that, and nobody asks what they wrote after a loss of power."""


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


class Hosting(TypedDict):
    """Arguments of `reference.Kafka`."""

    host: BrokerHost
    parent: pathlib.Path | None


def hosted() -> Hosting:
    """Arguments of a `reference.Kafka` that is one of many, and whose data nobody needs after it."""
    return {"host": shared_host(), "parent": in_memory()}


@functools.cache
def in_memory() -> pathlib.Path | None:
    """A directory whose files are in memory, where there is one with room: brokers wait for disks often. None
    stands for the directory of temporary files."""
    has_room = MEMORY.is_dir() and os.access(MEMORY, os.W_OK)
    return MEMORY if has_room and shutil.disk_usage(MEMORY).free >= FREE_BYTES_MIN else None


@functools.cache
def shared_host() -> BrokerHost:
    """That of this process."""
    host = BrokerHost()
    atexit.register(host.close)
    return host
