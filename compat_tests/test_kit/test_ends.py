"""Clients that do not end: each is ended by its deadline, and told by itself."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import pytest

from compat_tests.test_kit.clients import ENDLESS, Failed, InPython, Patience

NOWHERE = "127.0.0.1:1"


@dataclass(frozen=True)
class Brief(Patience):
    """Waits for the start of a process, and not much longer."""

    end_seconds = 5.0


class Stubborn:
    """Operations that do not end."""

    def __init__(
        self,
        bootstrap: str,
        name: str,
        patience: Patience,
        released: threading.Event,
        closing: Callable[[], None],
        settings: Mapping[str, str],
    ) -> None:
        self._name, self._released, self._closing = name, released, closing

    def works(self) -> None:
        threading.Event().wait()

    def closes(self) -> None:
        self._closing()
        threading.Event().wait()

    def dies(self) -> None:
        os._exit(7)

    def returns(self) -> list[str]:
        return [self._name]

    def is_released(self) -> list[str]:
        self._released.wait()
        return []

    def raises(self) -> None:
        raise OSError("none")


class StubbornClient(InPython):
    name = "stubborn"
    operations = Stubborn

    def failed(self, failure: Exception) -> Failed:
        return Failed(type(failure).__name__, "as told")


@pytest.mark.parametrize(("operation", "phase"), [("works", "at work"), ("closes", "closing")])
def test_a_client_that_does_not_end_is_ended_and_told_by_itself(operation: str, phase: str) -> None:
    with pytest.raises(Failed) as told:
        StubbornClient().run(NOWHERE, operation, "one", Brief())
    assert told.value.name == ENDLESS
    assert str(told.value) == f"{ENDLESS}: one was still {phase} after 5 s, and was killed"


def test_a_client_that_dies_is_told() -> None:
    with pytest.raises(RuntimeError, match="the process of one has ended with 7, at work"):
        StubbornClient().run(NOWHERE, "dies", "one", Patience())


def test_what_a_client_finds_and_raises_comes_back() -> None:
    assert StubbornClient().run(NOWHERE, "returns", "one", Patience()) == ["one"]
    assert StubbornClient().run(NOWHERE, "is_released", "one", Patience(), lambda: None) == []
    with pytest.raises(Failed, match="OSError: none") as told:
        StubbornClient().run(NOWHERE, "raises", "one", Patience())
    assert told.value.name == "OSError"
