"""The command line of the benchmarks: which parts are run, what is refused, what is written."""

import json
import shlex
import shutil

import pytest

from benchmarks import machine
from benchmarks.__main__ import PARTS, TABLES, Part, command_for, main, parse_arguments
from benchmarks.cases import Case, EndToEndCase, all_cases
from benchmarks.comparison import is_warm, trust, warm
from benchmarks.figures import Figure, Outcome, Section


@pytest.fixture(autouse=True)
def short_looks_at_the_machine(monkeypatch):
    """The loops that look for gaps take all of two cores, which other tests need."""
    monkeypatch.setattr(machine, "WATCHED_S", 0.02)


def test_a_part_that_there_is_not_is_refused_with_the_names_of_all(capsys):
    with pytest.raises(SystemExit, match="2"):
        main(["--parts", "retention,nonsense"])
    said = capsys.readouterr().err
    assert "there is no part nonsense" in said
    assert "compaction-latency" in said


def test_only_some_cases_of_the_tables_means_no_other_part():
    assert parse_arguments(["--only", "produce"]).parts == TABLES
    assert parse_arguments([]).parts == tuple(PARTS)
    assert parse_arguments(["--only", "produce", "--parts", "pinned"]).parts == ("pinned",)


def test_a_measurement_for_which_there_is_no_room_is_refused_in_one_sentence(tmp_path, monkeypatch, capsys):
    class Full:
        free = 1_000_000

    monkeypatch.setattr(shutil, "disk_usage", lambda path: Full)
    assert main(["--parts", "log-size", "--quick", "--work", str(tmp_path)]) == 1
    said = capsys.readouterr().out
    assert "needs" in said
    assert "GB of disk" in said
    assert said.endswith("not measured: log-size\n")


def test_a_part_that_fails_does_not_keep_the_next_ones_from_running(tmp_path, monkeypatch, capsys):
    def fail(run, warming):
        raise RuntimeError("the broker ended with status 1")

    monkeypatch.setitem(PARTS, "segments", Part("fails", 1, fail))
    monkeypatch.setitem(PARTS, "retention", Part("works", 1, lambda run, warming: Section("Retention")))
    assert main(["--parts", "segments,retention", "--work", str(tmp_path)]) == 1
    said = capsys.readouterr()
    assert "the broker ended with status 1" in said.err
    assert "retention: works" in said.out
    assert said.out.endswith("not measured: segments\n")


def test_a_part_is_told_with_the_command_that_measures_it_so():
    options = parse_arguments(["--parts", "pinned,scale", "--rounds", "3", "--seconds", "0.5"])
    make, bench, said = shlex.split(command_for("scale", options))
    assert (make, bench) == ("make", "bench")
    again = parse_arguments(said.removeprefix("BENCH=").split())
    assert again.parts == ("scale",)
    for name in ("rounds", "seconds", "warm_rounds", "compile_seconds"):
        assert getattr(again, name) == getattr(options, name)


class Told(Case):
    """Its figures are given."""

    def measure(self, broker, work, pinning, seconds):
        return next(self.figures)


def told(name, *figures):
    case = Told(name, "requests/s")
    case.figures = iter(figures)
    return case


def test_kafka_is_warm_once_its_rate_does_not_rise_any_more():
    assert warm(told("still", 1, 5, 9, 10, 10, 10, 10, 10, 10), None, None, None, 15) == 8
    assert warm(told("not in time", 1, 2, 3, 4, 5, 6, 7, 8), None, None, None, 8) is None


def test_a_rate_that_goes_up_and_down_is_as_warm_as_it_gets():
    assert warm(told("noise", 90, 110, 100, 80, 85, 84), None, None, None, 15) == 6
    # Back at the best that there was, from worse: no rise.
    assert is_warm([100, 100, 100, 80, 80, 80, 102, 102, 102])
    assert not is_warm([100, 100, 100, 80, 80, 80, 104, 104, 104])


def test_kafka_is_not_warm_while_less_and_less_time_is_needed():
    assert not is_warm([9, 8, 7, 6, 5, 4], lower=True)
    assert is_warm([5, 5, 5, 5, 5, 4.9], lower=True)
    assert is_warm([4, 4, 4, 6, 6, 6], lower=True)


def test_what_a_tool_tells_in_whole_milliseconds_has_a_target_only_where_it_can_miss_it():
    cases = [case for case in all_cases() if isinstance(case, EndToEndCase)]
    assert {case.figure: case.at_least for case in cases} == {"mean": 1.0, "50th": None, "99th": 1.2}


def test_a_table_says_how_busy_its_load_was_and_what_was_not_warm():
    calm, busy = told("calm"), told("busy")
    for case, share, waited in ((calm, 0.5, 0.02), (busy, 0.95, 0.001), (told("of another client"), 0, 0)):
        if share:
            case.watch.add({"seconds": 2.0, "cpu_seconds": 2 * share, "waited_seconds": 2 * waited})
    warm_one, cold_one = (
        Outcome(name, "requests/s", False, 1.0, [1.0], [1.0], is_kafka_warm=name == "calm")
        for name in ("calm", "busy")
    )
    [load, cold] = trust([calm, busy, told("of another client")], [warm_one, cold_one])
    assert "ran for 95 % of a measurement at most (busy)" in load
    assert "2.0 % at most (calm)" in load
    assert load.endswith("may have waited for it: busy.")
    assert cold.endswith("began: busy.")
    assert trust([told("of another client")], []) == []


def test_whole_parts_are_written_and_the_others_stay(tmp_path, monkeypatch):
    output = tmp_path / "output"
    output.mkdir()
    monkeypatch.setattr(machine, "facts", lambda work: {"cpu": "one"})
    for name, value in (("retention", 1.0), ("segments", 2.0), ("retention", 3.0)):
        section = Section(f"Title of {name}", figures=[Figure("how long", value, "ms", 5)])
        made = Part("works", 1, lambda run, warming, section=section: section)
        monkeypatch.setitem(PARTS, name, made)
        assert main(["--parts", name, "--work", str(tmp_path), "--output", str(output)]) == 0
    for name, value in (("retention", 3.0), ("segments", 2.0)):
        raw = json.loads((output / "raw" / f"{name}.json").read_text())
        assert raw["figures"][0]["value"] == value
    text = (output / "RESULTS.md").read_text()
    assert text.index("## Title of segments") < text.index("## Title of retention")
    assert text.count("| how long | 3 ms | at most 5 ms | yes |") == text.count("| how long | 2 ms |") == 1
    assert "| how long | 1 ms" not in text
