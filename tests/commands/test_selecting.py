"""Topics, offsets and times as people write them."""

from datetime import UTC, datetime

import pytest

from odradek.client.client_error import ClientError
from odradek.commands.command import joined
from odradek.commands.selecting import matching, parse_partition, parse_time_ms

NOW_MS = 1_764_000_000_000


@pytest.mark.parametrize(
    ("patterns", "found"),
    [
        ([], ["a.b", "a.c", "axb", "b"]),
        (["a.b"], ["a.b"]),
        (["a.*"], ["a.b", "a.c"]),
        (["*b"], ["a.b", "axb", "b"]),
        (["/^a.b$/"], ["a.b", "axb"]),
        (["b", "a.c"], ["a.c", "b"]),
        (["nothing"], []),
        (["/"], []),
    ],
)
def test_a_pattern_is_a_name_a_star_or_a_regular_expression(patterns, found):
    assert matching(["b", "a.c", "a.b", "axb"], patterns) == found


@pytest.mark.parametrize(
    ("text", "ms"),
    [
        ("1700000000000", 1_700_000_000_000),
        ("-1h", NOW_MS - 3_600_000),
        ("-1.5m", NOW_MS - 90_000),
        ("-7d", NOW_MS - 7 * 86_400_000),
        ("-250ms", NOW_MS - 250),
        ("1970-01-01T00:00:01+00:00", 1000),
        ("1970-01-01T01:00:01.5+01:00", 1500),
        ("2026-11-27", round(datetime(2026, 11, 27).timestamp() * 1000)),
        ("1960-01-01T00:00:00+00:00", 0),
    ],
)
def test_a_time_is_a_number_an_age_or_iso_8601(text, ms):
    assert parse_time_ms(text, NOW_MS) == ms


@pytest.mark.parametrize("text", ["soon", "", "-1", "-1y", "1h", "2026-13-01", "--1h", "1" * 19])
def test_another_time_is_told(text):
    with pytest.raises(ClientError, match="is not understood: -90m, 2026-11-27"):
        parse_time_ms(text, NOW_MS)


def test_an_iso_time_without_zone_is_local():
    local = datetime.fromtimestamp(parse_time_ms("2026-01-02T03:04:05", NOW_MS) / 1000, UTC).astimezone()
    assert local.replace(tzinfo=None) == datetime(2026, 1, 2, 3, 4, 5)


@pytest.mark.parametrize(("text", "found"), [("t:0", ("t", 0)), ("a:b:12", ("a:b", 12))])
def test_a_partition_follows_the_last_colon(text, found):
    assert parse_partition(text) == found


@pytest.mark.parametrize("text", ["t", "t:", ":1", "t:-1", "t:1234567890"])
def test_another_partition_is_told(text):
    with pytest.raises(ClientError, match="is not TOPIC:PARTITION"):
        parse_partition(text)


@pytest.mark.parametrize(
    ("given", "found"),
    [
        (["--at", "-1h"], ["--at=-1h"]),
        (["-o", "-5", "t"], ["-o-5", "t"]),
        (["--at=x", "-1"], ["--at=x", "-1"]),
        (["list", "-b", "h:1"], ["list", "-b", "h:1"]),
        (["-n", "5"], ["-n", "5"]),
    ],
)
def test_a_value_with_a_hyphen_belongs_to_its_option(given, found):
    assert joined(given) == found
