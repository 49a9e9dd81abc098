"""Loops over cases in one test: each failing case is told by its name, and none hides the next ones."""

from __future__ import annotations

import contextlib
import traceback
from collections.abc import Iterator

import pytest

CASES_SHOWN = 20
"""Of the failing cases, those that are told in full; of the others only the names."""


class Failures:
    """Names of the cases that failed, each with its reason."""

    def __init__(self) -> None:
        self._reasons: dict[str, str] = {}
        self._cases = 0

    @contextlib.contextmanager
    def of(self, name: object) -> Iterator[None]:
        """One case of the loop: what it raises is kept, and the loop goes on."""
        self._cases += 1
        try:
            yield
        except (Exception, pytest.fail.Exception) as error:
            if "pytest-timeout" in str(error):
                raise  # It is about the whole test, and it is raised once only.
            self._reasons[str(name)] = _reason(error)

    def told(self) -> str:
        """All failing cases in one text."""
        lines = [f"{len(self._reasons)} of {self._cases} cases failed"]
        for number, (name, reason) in enumerate(self._reasons.items()):
            lines.append(f"{name}: {reason}" if number < CASES_SHOWN else name)
        return "\n".join(lines)

    def check(self) -> None:
        assert self._cases, "no case was tried"
        if self._reasons:
            pytest.fail(self.told(), pytrace=False)


@contextlib.contextmanager
def collected() -> Iterator[Failures]:
    """All failures of the cases in its block, raised at its end; no case at all is a failure, too."""
    failures = Failures()
    yield failures
    failures.check()


def _reason(error: BaseException) -> str:
    """The kind and the text of an error, and the line of the test at which it was raised."""
    place = traceback.extract_tb(error.__traceback__)[1:]
    where = f"{place[0].name}, line {place[0].lineno}: " if place else ""
    return f"{where}{type(error).__name__}: {error}"
