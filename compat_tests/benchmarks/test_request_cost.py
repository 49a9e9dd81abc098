"""The parts that compare what a request costs by what a broker has configured."""

from __future__ import annotations

import pathlib

from benchmarks import metrics, security
from benchmarks.request_cost import CASES
from benchmarks.run import Run


def test_security_measures_each_case_of_each_broker(tmp_path: pathlib.Path) -> None:
    section = security.measure(Run(tmp_path, rounds=1, seconds=0.1, is_quick=True))
    assert len(section.figures) == len(CASES) * len(security.SETUPS)
    assert all(figure.value >= 0 for figure in section.figures)


def test_metrics_measure_each_case_and_scrapes(tmp_path: pathlib.Path) -> None:
    section = metrics.measure(Run(tmp_path, rounds=1, seconds=0.1, is_quick=True))
    assert len(section.figures) == len(CASES) * 2 + 5
    assert all(figure.value >= 0 for figure in section.figures)
