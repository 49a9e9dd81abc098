import pytest

from benchmarks import security
from benchmarks.run import Run


@pytest.mark.timeout(120)
def test_the_part_measures_each_case_of_each_broker(tmp_path):
    section = security.measure(Run(tmp_path, rounds=1, seconds=0.1, is_quick=True))
    assert len(section.figures) == len(security.CASES) * len(security.SETUPS)
    assert all(figure.value >= 0 for figure in section.figures)
