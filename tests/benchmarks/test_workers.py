"""How one case is measured on several workers at once, and which cores they have."""

import os
import pathlib

import pytest

from benchmarks.brokers import Running
from benchmarks.cases import Case
from benchmarks.load import CorePinning, Watch
from benchmarks.workers import OnEachWorker, Places

FOLDER = pathlib.Path()


class Load(Case):
    """A load that knows what it got."""

    warm_up_s = 0.5

    def __init__(self, seen):
        super().__init__("", "requests/s")
        self.seen = seen
        self.watch = Watch()

    def prepare(self, broker, work):
        self.seen.append(("prepare", broker.name))

    def measure(self, broker, work, pinning, seconds):
        self.watch.add({"seconds": 1.0, "cpu_seconds": 0.25, "waited_seconds": 0.5})
        return 100.0

    def clean_up(self, broker):
        self.seen.append(("clean up", broker.name))


def broker(*workers):
    return Running("all", os.getpid(), 1, FOLDER, workers=workers)


def worker(index):
    return Running(f"all-{index}", os.getpid(), 1 + index, FOLDER, node_id=1 + index)


def test_rates_of_all_workers_are_added_and_each_has_its_part():
    seen, parts = [], []
    case = OnEachWorker("", "requests/s", make=lambda count: parts.append(count) or Load(seen))
    both = broker(worker(0), worker(1))
    case.prepare(both, FOLDER)
    assert case.measure(both, FOLDER, CorePinning(None), 1.0) == 200.0
    case.clean_up(both)
    assert parts == [2, 2]
    assert seen == [(what, name) for what in ("prepare", "clean up") for name in ("all-0", "all-1")]
    assert (case.watch.busy_percent, case.watch.waiting_percent) == (50.0, 50.0)


def test_a_broker_without_workers_is_measured_as_it_is():
    seen = []
    case = OnEachWorker("", "requests/s", make=lambda count: Load(seen))
    case.prepare(broker(), FOLDER)
    assert case.measure(broker(), FOLDER, CorePinning(None), 1.0) == 100.0
    assert seen == [("prepare", "all")]


def test_a_rate_may_be_that_of_a_second_of_processor_time(monkeypatch):
    spent = iter([1.0, 1.5])
    monkeypatch.setattr(Running, "cpu_seconds", lambda self: next(spent))
    case = OnEachWorker("", "requests/s", make=lambda count: Load([]), by_processor_time=True)
    case.prepare(broker(), FOLDER)
    # 100 in each of 1.5 seconds, for half a second of a core.
    assert case.measure(broker(), FOLDER, CorePinning(None), 1.0) == 300.0


@pytest.mark.parametrize(
    ("cores", "expected"),
    [
        ({0, 1}, Places(0, (0,), (1,))),
        ({4, 5, 6}, Places(4, (4,), (5,))),
        ({0, 1, 2, 3}, Places(0, (0, 2), (1, 3))),
    ],
)
def test_workers_have_a_core_each_where_the_load_has_as_many(cores, expected, monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: cores)
    assert Places.of_machine() == expected
    assert expected.are_shared == (len(cores) < 4)
    assert ("processor time" in expected.told()) == expected.are_shared
