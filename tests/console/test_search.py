"""The search of messages: every record once, in both directions, whatever is left out on the way."""

import itertools

import pytest

from odradek.client.admin.lag import offset_bounds
from odradek.console.contents import TOO_LATE, Contents
from odradek.console.filters import chooser
from odradek.console.search import STEP_S, Wanted, search
from odradek.wire.record_layout import Record
from tests.client.topics import Transactions, create_topic, delete_records, produce
from tests.console.conftest import NOW_MS, write_orders


def steps(cluster, topic, partitions, *, limit=7, is_newest_first, query=None, clock=None):
    """Hits of each step to the end, as the links of a page lead to it."""
    keys = [(topic, number) for number in range(partitions)]
    bounds = {number: found for (_, number), found in offset_bounds(cluster, keys).items()}
    positions = {number: end if is_newest_first else start for number, (start, end) in bounds.items()}
    total = sum(end - start for start, end in bounds.values())
    while True:
        wanted = Wanted(
            topic=topic,
            bounds=bounds,
            positions=positions,
            is_newest_first=is_newest_first,
            limit=limit,
            chooses=chooser(query or {}),
            contents=Contents("auto", topic),
        )
        step = search(cluster, wanted, *([clock] if clock else []))
        assert step.left < total, "each step comes further"
        total, positions = step.left, step.positions
        yield step
        if not step.left:
            return


@pytest.mark.parametrize("is_newest_first", [False, True])
@pytest.mark.parametrize("limit", [1, 7, 1000])
def test_every_record_comes_once_and_in_the_order_of_time(cluster, is_newest_first, limit):
    topic = create_topic(cluster, partitions=3)
    write_orders(cluster, topic, 100)
    found = list(steps(cluster, topic, 3, limit=limit, is_newest_first=is_newest_first))
    assert all(len(step.hits) <= limit for step in found)
    hits = [hit for step in found for hit in step.hits]
    times = [(hit.timestamp_ms - NOW_MS) // 1000 for hit in hits]
    assert times == sorted(range(100), reverse=is_newest_first)
    assert {hit.partition for hit in hits} == {0, 1, 2}


@pytest.mark.parametrize("is_newest_first", [False, True])
def test_a_filter_finds_the_same_in_both_directions(cluster, orders, is_newest_first):
    query = {"value": "lines[0].sku=A3", "value_how": "path", "key": "o-1"}
    found = steps(cluster, orders, 3, is_newest_first=is_newest_first, query=query)
    numbers = [int(hit.key.text[2:]) for step in found for hit in step.hits]
    wanted = [number for number in range(300) if number % 7 == 3 and "o-1" in f"o-{number}"]
    assert sorted(numbers) == wanted


@pytest.mark.parametrize("is_newest_first", [False, True])
def test_what_transactions_left_behind_is_passed(cluster, is_newest_first):
    """Markers and aborted records have offsets, and are no hits: a page may be empty."""
    topic = create_topic(cluster)
    writer = Transactions(cluster, f"t-{topic}")
    for number in range(12):
        writer.write(topic, 0, [b"aborted"] * 5 if number % 3 else [b"kept %d" % number])
        writer.end(number % 3 == 0)
    hits = [hit for step in steps(cluster, topic, 1, is_newest_first=is_newest_first) for hit in step.hits]
    kept = [f"kept {number}" for number in range(0, 12, 3)]
    assert [hit.value.text for hit in hits] == (kept[::-1] if is_newest_first else kept)


def test_records_that_are_deleted_meanwhile_are_passed(cluster):
    topic = create_topic(cluster)
    produce(cluster, topic, 0, [b"%d" % number for number in range(50)])
    found = steps(cluster, topic, 1, limit=10, is_newest_first=True)
    first = next(found)
    delete_records(cluster, topic, 0, 30)
    rest = [hit.offset for step in found for hit in step.hits]
    assert [hit.offset for hit in first.hits] == list(range(49, 39, -1))
    assert rest == list(range(39, 29, -1))


def test_a_step_ends_in_time_and_the_next_goes_on(cluster, orders):
    ticks = itertools.count()

    def clock():
        return next(ticks) * STEP_S

    found = list(steps(cluster, orders, 3, is_newest_first=True, query={"value": "nothing"}, clock=clock))
    assert len(found) > 5
    assert not [hit for step in found for hit in step.hits]
    assert sum(step.looked_at for step in found) == 300


def test_large_records_are_cut_in_a_list(cluster):
    topic = create_topic(cluster)
    produce(cluster, topic, 0, [b"x" * 700_000, b'{"a": "' + b"y" * 5_000 + b'"}'])
    (step,) = steps(cluster, topic, 1, is_newest_first=False)
    large, long = (hit.value for hit in step.hits)
    assert (large.size_bytes, large.is_cut, len(large.text)) == (700_000, True, 400)
    assert (long.form, long.is_cut, len(long.text)) == ("json", True, 400)


def test_contents_that_are_slow_to_decode_do_not_hold_up_a_page(cluster, orders, monkeypatch):
    """The clock passes a second with each content."""
    seconds = itertools.count()
    (_, value) = Contents("auto", orders).both(Record(0, 0, b"k", b"v", ()))
    calls = []
    monkeypatch.setattr(Contents, "both", lambda self, record: (calls.append(next(seconds)), value)[1:] * 2)
    clock = lambda: float(calls[-1]) if calls else 0.0  # noqa: E731
    first = next(steps(cluster, orders, 3, limit=50, is_newest_first=True, clock=clock))
    assert len(first.hits) == 50
    assert 2 <= len(calls) < 6
    assert {hit.value.note for hit in first.hits[10:]} == {TOO_LATE}
    assert bytes.fromhex(first.hits[-1].key.text).startswith(b"o-")


def test_only_what_is_shown_is_decoded(cluster, orders, monkeypatch):
    decoded, both = [], Contents.both

    def counted(self, record):
        decoded.append(record.offset)
        return both(self, record)

    monkeypatch.setattr(Contents, "both", counted)
    first = next(steps(cluster, orders, 3, limit=10, is_newest_first=True))
    assert len(first.hits) == len(decoded) == 10
