"""The test in five languages of docs/testing.md: its code, with the addresses of a broker of a test."""

from __future__ import annotations

import contextlib
import os
import pathlib
import subprocess
from collections.abc import Iterator

import odradek
from odradek.embedding.free_port import free_port
from tests.kit.pages import block_with

PAGE = "testing.md"
OF_BROKER, OF_KIT = "127.0.0.1:9092", "127.0.0.1:9655"
"""Addresses in the page."""
IN_EACH = "faults/wait"
"""A text that the block of each language has, and no other block."""
SECONDS_MAX = 600
"""Time for a program, built included."""


class Served:
    """A broker, and the test of the page for it."""

    def __init__(self, broker: odradek.Broker, kit_port: int) -> None:
        self._broker = broker
        self._addresses = {OF_BROKER: broker.bootstrap_servers, OF_KIT: f"127.0.0.1:{kit_port}"}

    def code(self, language: str) -> str:
        """The code of a language, as its block is marked. Both addresses are in it."""
        text = block_with(PAGE, language, IN_EACH)
        for address, ours in self._addresses.items():
            assert address in text
            text = text.replace(address, ours)
        return text

    def check(self) -> None:
        """The fault of the page has fired twice, and there is one record."""
        (fault,) = self._broker.faults.all()
        assert (fault["error"], fault["fired"]) == ("NOT_LEADER_OR_FOLLOWER", 2)
        assert self._broker.wait_for.records("orders", 1) == 1


@contextlib.contextmanager
def served() -> Iterator[Served]:
    """A new broker for each language: the page has one name of a topic."""
    port = free_port()
    with odradek.Broker(options={"odradek.test.api.listen": str(port)}) as broker:
        yield Served(broker, port)


def tell(command: list[str], folder: pathlib.Path, **variables: str) -> None:
    """Runs a program to its end, which has to be a good one."""
    environment = {**os.environ, **variables}
    finished = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, timeout=SECONDS_MAX
    )
    assert finished.returncode == 0, f"{finished.stdout[-3000:]}\n{finished.stderr[-3000:]}"
