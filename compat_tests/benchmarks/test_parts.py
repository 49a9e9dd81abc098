"""Every part of `make bench` but the tables of cases, small and once: so that none rots unseen."""

import pytest

from benchmarks.__main__ import PARTS, TABLES, Part, main
from benchmarks.figures import Section

WITH_AN_INSTALLATION = {"scale"}
"""It builds a wheel, which takes half a minute."""
SMALL = sorted(set(PARTS) - set(TABLES) - WITH_AN_INSTALLATION)


@pytest.mark.parametrize("name", SMALL)
def test_a_part_runs_in_its_small_form_and_leaves_nothing_behind(name, tmp_path, monkeypatch):
    sections: list[Section] = []
    part = PARTS[name]

    def keep(run, warming):
        sections.append(part.measure(run, warming))
        return sections[-1]

    monkeypatch.setitem(PARTS, name, Part(part.says, part.minutes, keep))
    status = main(["--parts", name, "--quick", "--work", str(tmp_path), "--output", str(tmp_path)])
    if status and name == "cold-reads":
        pytest.skip("the file system of the tests has nothing but memory")
    assert status == 0
    (section,) = sections
    assert section.notes
    assert section.figures
    assert all(figure.value >= 0 for figure in section.figures)
    assert list(tmp_path.iterdir()) == []
