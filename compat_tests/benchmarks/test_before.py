"""This build beside another one: here beside itself."""

import pytest

from benchmarks import before
from benchmarks.cases import ListOffsetsCase
from tools.environment import CHECKOUT


@pytest.mark.parametrize(
    ("part", "case"),
    [("pinned", "ListOffsets, 1"), ("groups", "Heartbeat, 1"), ("share", "500 records/s, 1 member")],
)
def test_a_case_of_each_kind_is_measured_for_both_builds(part, case, tmp_path, capsys):
    words = ["--parts", part, "--only", case, "--rounds", "1", "--seconds", "0.2", "--work", str(tmp_path)]
    assert before.main([str(CHECKOUT), *words]) == 0
    rows = [
        line.split(" | ") for line in capsys.readouterr().out.splitlines() if case in line and "|" in line
    ]
    assert rows
    assert all(float(row[2].replace(",", "")) > 0 for row in rows)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("lower", "expected"), [(False, 0.5), (True, 2.0)])
def test_a_ratio_below_one_is_worse_whichever_way_the_figure_goes(lower, expected):
    case = ListOffsetsCase(name="one", unit="any", lower=lower)
    assert before.ratio(case, [8.0, 10.0, 90.0], [5.0, 5.0, 1.0]) == expected


def test_a_checkout_that_is_not_built_is_refused(tmp_path, capsys):
    with pytest.raises(SystemExit):
        before.main([str(tmp_path)])
    assert "is not built" in capsys.readouterr().err
