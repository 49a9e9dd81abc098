"""Makes a broker that starts with this folder on its path break one promise of transactions.

ODRADEK_PLANTED_BUG says which; without it nothing happens. Python imports `sitecustomize` before anything
else, so the class that is spoilt is not there yet: it is spoilt when its module has been imported.
"""

from __future__ import annotations

import functools
import importlib.abc
import importlib.machinery
import os
import sys
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any


def commit_what_was_aborted(module: ModuleType) -> None:
    """Every marker says commit, whatever the coordinator decided."""
    _change_markers(module, lambda marker: marker._replace(commit=True))


def abort_what_was_committed(module: ModuleType) -> None:
    """Every seventh marker of a commit says abort."""
    count = 0

    def change(marker: Any) -> Any:
        nonlocal count
        count += 1
        return marker._replace(commit=False) if count % 7 == 0 else marker

    _change_markers(module, change)


def _change_markers(module: ModuleType, change: Callable[[Any], Any]) -> None:
    append_marker = module.Appends.append_marker

    @functools.wraps(append_marker)
    def changed(self: Any, marker: Any, **keywords: Any) -> Any:
        return append_marker(self, change(marker), **keywords)

    module.Appends.append_marker = changed


def apply_offsets_at_once(module: ModuleType) -> None:
    """Offsets of a transaction are in force before it has ended, and whatever its end is."""
    for name in ("put_pending", "put"):
        assert hasattr(module.CommittedOffsets, name), "offsets are applied elsewhere now"

    def apply(self: Any, producer_id: int, group_id: str, *where_and_what: Any) -> None:
        self.put(group_id, [where_and_what])

    module.CommittedOffsets.put_pending = apply


def read_what_is_open(module: ModuleType) -> None:
    """read_committed reads as read_uncommitted does."""
    read = module.Partition.read

    @functools.wraps(read)
    def changed(self: Any, offset: int, **keywords: Any) -> Any:
        keywords.pop("isolation", None)
        return read(self, offset, **keywords)

    module.Partition.read = changed


def abort_nothing_that_timed_out(module: ModuleType) -> None:
    """A transaction whose producer is gone stays open."""
    assert hasattr(module.TransactionMachine, "_abort_timed_out"), "time-outs are looked for elsewhere now"
    module.TransactionMachine._abort_timed_out = lambda self, now_ms, out: None


def end_a_partition_the_other_way(module: ModuleType) -> None:
    """Of a transaction that is committed one partition is told that it was aborted."""
    continue_ending = module.TransactionMachine._continue_ending

    @functools.wraps(continue_ending)
    def changed(self: Any, transactional_id: str, now_ms: int, out: list[Any]) -> None:
        continue_ending(self, transactional_id, now_ms, out)
        effect = out[-1]
        if isinstance(effect, module.WriteMarkers) and effect.marker.commit and len(effect.partitions) > 1:
            *others, last = effect.partitions
            told_otherwise = effect.marker._replace(commit=False)
            out[-1:] = [
                module.WriteMarkers(transactional_id, effect.marker, others),
                module.WriteMarkers(transactional_id, told_otherwise, [last]),
            ]

    module.TransactionMachine._continue_ending = changed


BUGS: dict[str, tuple[str, Callable[[ModuleType], None]]] = {
    "commit-what-was-aborted": ("odradek.storage.log.appends", commit_what_was_aborted),
    "abort-what-was-committed": ("odradek.storage.log.appends", abort_what_was_committed),
    "apply-offsets-at-once": ("odradek.coordinator.groups.committed_offsets", apply_offsets_at_once),
    "abort-nothing-that-timed-out": (
        "odradek.coordinator.transactions.machine",
        abort_nothing_that_timed_out,
    ),
    "end-a-partition-the-other-way": (
        "odradek.coordinator.transactions.machine",
        end_a_partition_the_other_way,
    ),
    "read-what-is-open": ("odradek.storage.log.partition", read_what_is_open),
}
"""Name -> the module that has what is spoilt, and what spoils it."""


class _Spoiler(importlib.abc.MetaPathFinder):
    """Finds one module as all others do, and spoils it once it has been run."""

    def __init__(self, name: str, spoil: Callable[[ModuleType], None]) -> None:
        self._name, self._spoil = name, spoil

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if name != self._name:
            return None
        spec = next(
            (
                found
                for finder in sys.meta_path
                if finder is not self and (found := finder.find_spec(name, path, target)) is not None
            ),
            None,
        )
        if spec is None or spec.loader is None:
            return spec
        run, spoil = spec.loader.exec_module, self._spoil

        def run_and_spoil(module: ModuleType) -> None:
            run(module)
            spoil(module)

        spec.loader.exec_module = run_and_spoil  # type: ignore[method-assign]
        return spec


if bug := os.environ.get("ODRADEK_PLANTED_BUG"):
    sys.meta_path.insert(0, _Spoiler(*BUGS[bug]))
