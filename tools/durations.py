"""A plugin of pytest that writes where the seconds of a run went, to a file: columns with tabs between them.

    python -m pytest -p tools.durations --seconds-to=FILE ...

A row is a file of tests, with the seconds of its set-up, calls and teardown, workers added up, or a fixture
with the seconds of its own set-up: neither what it asks for nor its end. The dearest come first.
"""

from __future__ import annotations

import pathlib
from collections import Counter
from collections.abc import Iterator
from time import perf_counter as clock
from typing import Any

import pytest

HEAD = "kind\tname\ttimes\tset-up\tcall\tteardown"
OUTPUT = "seconds_of_fixtures"
"""The key of what a worker hands to the process that began it."""


def seconds_of_files(report: pathlib.Path) -> Iterator[tuple[str, float]]:
    """Each file of tests in such a report, and its seconds of all three phases."""
    for line in report.read_text().splitlines():
        kind, name, _, *seconds = line.split("\t")
        if kind == "file":
            yield name, sum(map(float, seconds))


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--seconds-to", type=pathlib.Path, help="the file to write")


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("--seconds-to") is not None:
        config.pluginmanager.register(Durations(config), "durations of this run")


class Durations:
    """The sums of one process."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._phases: Counter[tuple[str, str]] = Counter()
        """File and phase -> seconds."""
        self._tests: Counter[str] = Counter()
        self._fixtures: Counter[str] = Counter()
        self._set_ups: Counter[str] = Counter()

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(self, fixturedef: pytest.FixtureDef[Any]) -> Iterator[None]:
        began = clock()
        try:
            return (yield)
        finally:
            name = f"{fixturedef.baseid or 'pytest'}::{fixturedef.argname}"
            self._fixtures[name] += clock() - began
            self._set_ups[name] += 1

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        file = report.nodeid.partition("::")[0]
        self._phases[file, report.when or ""] += report.duration
        self._tests[file] += report.when == "call"

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        seconds, times = getattr(node, "workeroutput", {}).get(OUTPUT, ({}, {}))
        self._fixtures.update(seconds)
        self._set_ups.update(times)

    def pytest_sessionfinish(self) -> None:
        if hasattr(self._config, "workeroutput"):
            self._config.workeroutput[OUTPUT] = (dict(self._fixtures), dict(self._set_ups))
            return
        target = self._config.getoption("--seconds-to")
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text("".join(f"{line}\n" for line in (HEAD, *self._rows())))

    def _rows(self) -> Iterator[str]:
        phases = ("setup", "call", "teardown")
        files = {file: [self._phases[file, phase] for phase in phases] for file in self._tests}
        for file, seconds in sorted(files.items(), key=lambda item: -sum(item[1])):
            columns = "\t".join(f"{one:.2f}" for one in seconds)
            yield f"file\t{file}\t{self._tests[file]}\t{columns}"
        for name, total in self._fixtures.most_common():
            yield f"fixture\t{name}\t{self._set_ups[name]}\t{total:.2f}\t\t"
