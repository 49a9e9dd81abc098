"""Observers of the metadata log: how far each is, and when it last had all."""

from odradek.coordinator.controller import observers
from odradek.coordinator.controller.observers import FORGOTTEN_AFTER_MS, UNKNOWN, Observers

DIRECTORY = bytes(15) + b"\1"


def progress(known: Observers, now_ms: int) -> list[tuple[int, int, int, int]]:
    return [(one.node_id, one.end_offset, one.fetched_ms, one.caught_up_ms) for one in known.all(now_ms)]


def test_one_that_fetches_at_the_end_has_all():
    known = Observers()
    known.fetched(7, DIRECTORY, 10, 10, 1_000)
    assert progress(known, 1_000) == [(7, 10, 1_000, 1_000)]


def test_one_behind_had_all_once_it_asks_beyond_the_end_at_its_fetch_before():
    known = Observers()
    known.fetched(7, DIRECTORY, 0, 10, 1_000)
    assert progress(known, 1_000) == [(7, 0, 1_000, UNKNOWN)]
    known.fetched(7, DIRECTORY, 9, 20, 2_000)  # it lacks the last record of those that were there
    assert progress(known, 2_000) == [(7, 9, 2_000, UNKNOWN)]
    known.fetched(7, DIRECTORY, 20, 30, 3_000)
    assert progress(known, 3_000) == [(7, 20, 3_000, 2_000)]


def test_they_are_in_the_order_of_their_ids_and_directories():
    known = Observers()
    for node_id, directory in ((3, DIRECTORY), (1, DIRECTORY), (1, bytes(16))):
        known.fetched(node_id, directory, 1, 1, 0)
    found = [(one.node_id, one.directory_id) for one in known.all(0)]
    assert found == [(1, bytes(16)), (1, DIRECTORY), (3, DIRECTORY)]


def test_one_that_is_silent_is_forgotten_and_their_number_has_a_bound(monkeypatch):
    monkeypatch.setattr(observers, "OBSERVERS_MAX", 2)
    known = Observers()
    for node_id in (1, 2, 3):
        known.fetched(node_id, DIRECTORY, 1, 1, 0)
    assert [one.node_id for one in known.all(FORGOTTEN_AFTER_MS - 1)] == [1, 2]
    known.fetched(3, DIRECTORY, 1, 1, FORGOTTEN_AFTER_MS)
    assert [one.node_id for one in known.all(FORGOTTEN_AFTER_MS)] == [3]
