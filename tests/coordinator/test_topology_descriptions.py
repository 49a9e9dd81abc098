"""The store of descriptions of topologies: what it gives back, its bounds, and a failed save."""

import pytest

from odradek.coordinator.streams import descriptions
from odradek.coordinator.streams.descriptions import (
    AVAILABLE,
    FAILED,
    NOT_STORED,
    Failure,
    StoredDescription,
    TopologyDescriptions,
    next_pause,
)
from tests.coordinator.stages.description_stage import description


class Saving:
    """A file that takes what it is given when the test says so."""

    def __init__(self):
        self.open = []

    def __call__(self, stored, then):
        self.open.append((stored, then))

    def end(self, failure=None):
        stored, then = self.open.pop(0)
        then(failure)
        return list(stored)


class Results(list):
    def __call__(self, failure):
        self.append(failure)


def test_a_description_is_given_back_as_it_came_and_is_the_callers_own():
    store = TopologyDescriptions()
    done = Results()
    store.put("g", 3, description("chain"), done)
    status, found = store.get("g", 3)
    assert (done, status, found) == ([None], AVAILABLE, description("chain"))
    found.subtopologies.clear()
    assert store.get("g", 3)[1] == description("chain")
    assert store.get("g", 4) == store.get("other", 3) == (NOT_STORED, None)
    assert (store.has("g", 3), store.has("g", 4)) == (True, False)


def test_one_that_cannot_be_read_fails():
    store = TopologyDescriptions({"g": StoredDescription(0, b"\x00")})
    assert store.get("g", 0) == (FAILED, None)
    assert (store.counts.get_success, store.counts.get_error) == (0, 1)


def test_one_that_is_too_large_is_refused_for_good(monkeypatch):
    monkeypatch.setattr(descriptions, "DESCRIPTION_BYTES_MAX", 50)
    store, done = TopologyDescriptions(), Results()
    store.put("g", 0, description("chain"), done)
    assert done == [Failure("The description has 96 bytes, and 50 are the most.", is_permanent=True)]
    assert not store.has("g", 0)


@pytest.mark.parametrize(("bound", "value"), [("DESCRIPTIONS_MAX", 2), ("TOTAL_BYTES_MAX", 2 * 96)])
def test_a_full_store_takes_no_other_group(monkeypatch, bound, value):
    monkeypatch.setattr(descriptions, bound, value)
    store, done = TopologyDescriptions(), Results()
    for group_id in ("a", "b", "c"):
        store.put(group_id, 0, description("chain"), done)
    assert done == [None, None, Failure("There is no room for one more description.")]
    store.put("b", 1, description("chain"), done)
    store.delete("a", done)
    store.put("c", 0, description("chain"), done)
    assert (sorted(store), done[3:]) == (["b", "c"], [None, None, None])


def test_one_that_was_not_saved_is_not_kept_and_its_deletion_is_written_anyway():
    saving, done = Saving(), Results()
    store = TopologyDescriptions(save=saving)
    store.put("g", 0, description("chain"), done)
    saving.end(Failure("disk full"))
    assert (done, store.has("g", 0)) == ([Failure("disk full")], False)
    store.delete("g", done)
    assert saving.end() == []
    store.delete("g", done)
    assert (done[1:], saving.open) == ([None, None], [])
    counts = store.counts
    assert (counts.set_success, counts.set_error, counts.delete_success) == (0, 1, 2)


def test_a_failed_save_leaves_a_later_description_alone():
    saving, done = Saving(), Results()
    store = TopologyDescriptions(save=saving)
    store.put("g", 0, description("chain"), done)
    store.put("g", 1, description("global"), done)
    saving.end(Failure("disk full"))
    assert saving.end() == ["g"]
    assert (done, store.has("g", 1)) == ([Failure("disk full"), None], True)


def test_pauses_double_up_to_an_hour_and_begin_anew_with_another_epoch():
    pause, lengths = None, []
    for _ in range(9):
        pause = next_pause(pause, 0, 1_000)
        lengths.append((pause.until_ms - 1_000) // 1_000)
    assert lengths == [30, 60, 120, 240, 480, 960, 1_920, 3_600, 3_600]
    assert next_pause(pause, 1, 1_000).until_ms == 31_000
