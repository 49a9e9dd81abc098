"""The broker under test: Odradek, or Apache Kafka (`--broker=kafka`) to prove that the tests are right."""

from __future__ import annotations

import pathlib
from typing import Protocol

from compat_tests import reference


class TestBroker(Protocol):
    """What a test may do with the broker of the session."""

    __test__ = False  # not a test class, whatever its name

    is_odradek: bool
    data_dir: pathlib.Path

    @property
    def bootstrap(self) -> str: ...

    def crash_and_restart(self) -> None:
        """Ends the broker as a crash would and starts it on the same port and data."""


class OdradekBroker:
    """A child process, from the `odradek_broker` fixture that users have too."""

    is_odradek = True

    def __init__(self, broker) -> None:  # type: ignore[no-untyped-def]
        self._broker = broker
        self.data_dir = broker.data_dir

    @property
    def bootstrap(self) -> str:
        return self._broker.bootstrap_servers

    def crash_and_restart(self) -> None:
        self._broker.kill()
        self._broker.restart()


class ApacheBroker:
    """The real one. A cold JVM takes seconds to come back after a kill, so it is asked to stop."""

    is_odradek = False

    def __init__(self, broker: reference.Kafka) -> None:
        self._broker = broker
        self.data_dir = broker.data_dir

    @property
    def bootstrap(self) -> str:
        return self._broker.bootstrap_servers

    def crash_and_restart(self) -> None:
        self._broker.restart()
