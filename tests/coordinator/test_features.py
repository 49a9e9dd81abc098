"""Feature levels: which there are, and with which a new cluster begins."""

import pytest

from odradek.coordinator.cluster.features import (
    FEATURES,
    RELEASES,
    first_levels,
    loses_metadata,
    metadata_version_of,
    missing_levels,
)

OLD = {"kraft.version": 1, "share.version": 0}


def test_every_metadata_version_has_a_name():
    assert list(RELEASES) == list(range(7, 31))
    assert (RELEASES[7], RELEASES[21], RELEASES[30]) == ("3.3-IV3", "3.9-IV0", "4.3-IV0")


@pytest.mark.parametrize(
    ("release", "level"),
    [("4.3", 30), ("4.3.1", 30), ("4.3-IV0", 30), ("4.2", 29), ("4.2-IV0", 28), ("4.0", 25), ("3.3", 7)],
)
def test_a_release_is_named_as_for_kafkas_tools(release, level):
    assert metadata_version_of(release) == level


@pytest.mark.parametrize("release", ["4.4", "3.2", "3.3-IV2", "4", "", "four"])
def test_a_release_that_is_not_known_is_refused(release):
    with pytest.raises(ValueError, match="there is no release"):
        first_levels(release)


@pytest.mark.parametrize(
    ("release", "levels"),
    [
        # As `kafka-features version-mapping --release-version` of Kafka 4.3.1 says them.
        ("4.2-IV0", {"metadata.version": 28, "transaction.version": 2, "group.version": 1,
                     "eligible.leader.replicas.version": 1, "streams.version": 0}),
        ("4.1", {"metadata.version": 27, "transaction.version": 2, "group.version": 1,
                 "eligible.leader.replicas.version": 1, "streams.version": 0}),
        ("4.0", {"metadata.version": 25, "transaction.version": 2, "group.version": 1,
                 "eligible.leader.replicas.version": 0, "streams.version": 0}),
        ("4.0-IV0", {"metadata.version": 22, "transaction.version": 0, "group.version": 1,
                     "eligible.leader.replicas.version": 0, "streams.version": 0}),
        ("3.9", {"metadata.version": 21, "transaction.version": 0, "group.version": 0,
                 "eligible.leader.replicas.version": 0, "streams.version": 0}),
    ],
)  # fmt: skip
def test_a_release_brings_its_levels(release, levels):
    assert first_levels(release) == {**OLD, **levels}


def test_without_a_release_a_cluster_begins_with_the_newest_levels():
    newest = {name: one.highest for name, one in FEATURES.items()}
    assert first_levels() == first_levels("4.3") == {**newest, "share.version": 0}


def test_single_levels_rule_over_those_of_the_release():
    assert first_levels("4.0", {"transaction.version": 1})["transaction.version"] == 1
    assert first_levels(requested={"metadata.version": 25}) == first_levels("4.0")
    assert first_levels("4.0", {"eligible.leader.replicas.version": 1}) == {
        **first_levels("4.0"),
        "eligible.leader.replicas.version": 1,
    }


@pytest.mark.parametrize(
    ("release", "asked", "words"),
    [
        (None, {"nonsense": 1}, "there is no feature 'nonsense'"),
        (None, {"group.version": 2}, "group.version=2: its levels are 0 to 1"),
        (None, {"metadata.version": 6}, "metadata.version=6: its levels are 7 to 30"),
        ("4.0", {"metadata.version": 25}, "give one of them"),
        ("3.9", {"eligible.leader.replicas.version": 1}, r"needs metadata.version 23 \(4.0-IV1\) or later"),
    ],
)
def test_levels_that_cannot_be_are_refused(release, asked, words):
    with pytest.raises(ValueError, match=words):
        first_levels(release, asked)


@pytest.mark.parametrize(
    ("before", "after", "loses"),
    [
        (30, 30, False),
        (30, 29, True),
        (29, 23, False),
        (29, 22, True),
        (22, 17, False),
        (17, 16, True),
        (7, 30, False),
    ],
)
def test_metadata_is_lost_where_a_version_between_brought_some(before, after, loses):
    assert loses_metadata(before, after) == loses


def test_a_cluster_from_before_gets_what_changes_nothing_for_it():
    before = {"group.version": 1, "transaction.version": 1}
    assert missing_levels(before) == {"metadata.version": 30, "kraft.version": 1}
    assert missing_levels({**before, "metadata.version": 25}) == {}
