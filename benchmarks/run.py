"""What the parts of a run share: which core does what, a folder on the disk, the load, how large and how
often.
"""

from __future__ import annotations

import contextlib
import os
import pathlib
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TypeVar

from benchmarks import brokers
from benchmarks.load import CorePinning, compile_load

Sizes = TypeVar("Sizes")

MEGABYTE = 1_000_000
GIGABYTE = 1_000_000_000


class Refused(Exception):
    """A measurement that this machine cannot make; the text is one sentence for people."""


@dataclass(frozen=True)
class Cores:
    """One for the server, one for the load, one for what is to disturb neither: where there is no third, that
    of the load."""

    server: int
    load: int
    third: int

    @classmethod
    def of_machine(cls) -> Cores:
        allowed = sorted(os.sched_getaffinity(0))
        load = allowed[1 % len(allowed)]
        return cls(allowed[0], load, allowed[2] if len(allowed) > 2 else load)


@dataclass
class Run:
    """See the module. `work` is on the disk to be measured."""

    work: pathlib.Path
    rounds: int
    seconds: float
    """Length of one measurement."""
    is_quick: bool = False
    """Everything small: whether it works, not how fast it is."""
    cores: Cores = field(default_factory=Cores.of_machine)

    @cached_property
    def load_program(self) -> pathlib.Path:
        return compile_load(self.work)

    @property
    def load_pinning(self) -> CorePinning:
        return CorePinning(self.cores.load)

    def choose(self, full: Sizes, quick: Sizes) -> Sizes:
        return quick if self.is_quick else full

    def odradek(
        self,
        folder: pathlib.Path,
        settings: Mapping[str, str] | None = None,
        *,
        name: str = "odradek",
        links: pathlib.Path | None = None,
    ) -> brokers.Odradek:
        """A broker on its core; of another checkout where `links` has that one's packages."""
        core = self.cores.server
        return brokers.Odradek(self.load_program, folder, core, settings=settings, name=name, links=links)

    @contextlib.contextmanager
    def folder(self, name: str) -> Iterator[pathlib.Path]:
        """One that is gone afterwards with all that is in it."""
        with tempfile.TemporaryDirectory(
            prefix=f"{name}-", dir=self.work, ignore_cleanup_errors=True
        ) as path:
            yield pathlib.Path(path)

    @contextlib.contextmanager
    def on_core(self, core: int) -> Iterator[None]:
        """This process itself, which asks and waits while others are measured."""
        before = os.sched_getaffinity(0)
        os.sched_setaffinity(0, {core})
        try:
            yield
        finally:
            os.sched_setaffinity(0, before)

    def need_room(self, size_bytes: int, what: str) -> None:
        """Refuses when the disk has not so much left, and a tenth more."""
        free_bytes = shutil.disk_usage(self.work).free
        wanted_bytes = size_bytes * 11 // 10
        if free_bytes < wanted_bytes:
            raise Refused(
                f"{what} needs {wanted_bytes / GIGABYTE:.1f} GB of disk for a while and {self.work} has "
                f"{free_bytes / GIGABYTE:.1f} GB: make room, or name a folder elsewhere with --work."
            )
