"""Where reading begins and ends: the forms of kcat and rpk, and what they mean for a log."""

import pytest

from odradek.client.client_error import ClientError
from odradek.client.cluster import EARLIEST, LATEST
from odradek.commands.reading_range import Place, Range, parse_range

NOW = 1_800_000_000_000
HOUR = 3_600_000
NINE = 1_795_770_000_000
"""2026-11-27T09:00Z."""


@pytest.mark.parametrize(
    ("texts", "start", "end"),
    [
        ([], ("earliest", 0), None),
        (["beginning"], ("earliest", 0), None),
        (["start"], ("earliest", 0), None),
        (["end"], ("latest", 0), None),
        (["stored"], ("stored", 0), None),
        (["42"], ("offset", 42), None),
        (["-10"], ("before_end", 10), None),
        (["+10"], ("after_start", 10), None),
        (["5:9"], ("offset", 5), ("offset", 9)),
        ([":9"], ("earliest", 0), ("offset", 9)),
        (["5:"], ("offset", 5), ("latest", 0)),
        (["start:end"], ("earliest", 0), ("latest", 0)),
        (["-10:-2"], ("before_end", 10), ("before_end", 2)),
        (["-1h"], ("time", NOW - HOUR), None),
        (["2026-11-27T09:00Z"], ("time", NINE), None),
        (["@2026-11-27T09:00Z"], ("time", NINE), None),
        (["@2026-11-27T09:00:00+00:00:2026-11-27T10:00Z"], ("time", NINE), ("time", NINE + HOUR)),
        (["@-2h:-1h"], ("time", NOW - 2 * HOUR), ("time", NOW - HOUR)),
        (["@-2h:end"], ("time", NOW - 2 * HOUR), ("latest", 0)),
        (["@1795770000:1795773600000"], ("time", NINE), ("time", NINE + HOUR)),
        ([f"s@{NINE}", f"e@{NINE + HOUR}"], ("time", NINE), ("time", NINE + HOUR)),
        ([f"e@{NINE}"], ("earliest", 0), ("time", NINE)),
    ],
)  # fmt: skip
def test_a_form_has_its_meaning(texts, start, end):
    found = parse_range(texts, None, NOW)
    assert (found.start, found.end) == (start, end)


@pytest.mark.parametrize(
    ("until", "end"),
    [("9", ("offset", 9)), ("-1h", ("time", NOW - HOUR)), ("-3", ("before_end", 3)), ("end", ("latest", 0))],
)
def test_until_rules_over_the_end_of_a_range(until, end):
    assert parse_range(["1:2"], until, NOW).end == end


@pytest.mark.parametrize("text", ["", ":", "first", "5:x", "@", "@x:y", "s@", "1.5", "stored:5", "@1:2:3"])
def test_other_forms_are_refused(text):
    with pytest.raises(ClientError, match="not understood"):
        parse_range([text], None, NOW)


class Log:
    """A partition with the offsets from 10 to 19, of which 16 to 19 are not stable; offset 10 + n was written
    at the time n."""

    def list_offsets(self, wanted, read_committed=False):
        answers = {EARLIEST: 10, LATEST: 16 if read_committed else 20}
        return {key: answers.get(at, 10 + at if at < 10 else -1) for key, at in wanted.items()}


@pytest.mark.parametrize(
    ("start", "end", "follows", "bounds"),
    [
        (("earliest", 0), None, False, (10, 16)),
        (("earliest", 0), None, True, (10, None)),
        (("latest", 0), None, True, (16, None)),
        (("offset", 3), None, False, (10, 16)),
        (("offset", 99), None, False, (16, 16)),
        (("after_start", 2), None, False, (12, 16)),
        (("before_end", 2), None, False, (14, 16)),
        (("before_end", 99), None, False, (10, 16)),
        (("offset", 12), ("offset", 14), False, (12, 14)),
        (("offset", 12), ("offset", 99), False, (12, 16)),
        (("offset", 12), ("offset", 99), True, (12, 99)),
        (("time", 3), ("time", 5), False, (13, 15)),
        (("time", 3), ("time", 50), False, (13, 16)),
        (("time", 50), None, False, (16, 16)),
        (("stored", 0), None, False, (15, 16)),
    ],
)  # fmt: skip
def test_a_range_stays_within_the_log(start, end, follows, bounds):
    wanted = Range(Place(*start), None if end is None else Place(*end))
    key = ("t", 0)
    assert wanted.bounds(Log(), [key], {key: 15}, read_committed=True, follows=follows) == {key: bounds}


def test_without_a_commit_a_group_begins_at_the_start():
    wanted = Range(Place("stored"), None)
    assert wanted.bounds(Log(), [("t", 0)], {}, read_committed=False, follows=False) == {("t", 0): (10, 20)}


def test_no_partitions_have_no_bounds():
    assert Range(Place("earliest"), None).bounds(Log(), [], {}, read_committed=True, follows=True) == {}
