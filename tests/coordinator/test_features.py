"""Feature levels: which there are, and with which a new cluster begins."""

import pytest

from odradek.coordinator.cluster.features import (
    FEATURES,
    NODE_FEATURES,
    Unserved,
    broker_gates,
    first_levels,
    loses_metadata,
    metadata_version_of,
    missing_levels,
    refusal_of_features,
    unserved_features,
)
from odradek.wire.releases import RELEASES

OLD = {"kraft.version": 1}


def test_every_metadata_version_has_a_name():
    assert list(RELEASES) == list(range(7, 34))
    assert (RELEASES[7], RELEASES[21], RELEASES[30]) == ("3.3-IV3", "3.9-IV0", "4.3-IV0")
    assert (RELEASES[31], RELEASES[33]) == ("4.4-IV0", "4.4-IV2")


@pytest.mark.parametrize(
    ("release", "level"),
    [
        ("4.4", 33),
        ("4.4-IV1", 32),
        ("4.3", 30),
        ("4.3.1", 30),
        ("4.3-IV0", 30),
        ("4.2", 29),
        ("4.2-IV0", 28),
        ("4.0", 25),
        ("3.3", 7),
    ],
)
def test_a_release_is_named_as_for_kafkas_tools(release, level):
    assert metadata_version_of(release) == level


@pytest.mark.parametrize("release", ["4.5", "3.2", "3.3-IV2", "4", "", "four"])
def test_a_release_that_is_not_known_is_refused(release):
    with pytest.raises(ValueError, match="there is no release"):
        first_levels(release)


@pytest.mark.parametrize(
    ("release", "levels"),
    [
        # As `kafka-features version-mapping --release-version` of Kafka 4.3.1 and 4.4.0 says them.
        ("4.4-IV0", {"metadata.version": 31, "transaction.version": 2, "group.version": 1,
                     "eligible.leader.replicas.version": 1, "streams.version": 1, "share.version": 2}),
        ("4.3", {"metadata.version": 30, "transaction.version": 2, "group.version": 1,
                 "eligible.leader.replicas.version": 1, "streams.version": 1, "share.version": 1}),
        ("4.2-IV0", {"metadata.version": 28, "transaction.version": 2, "group.version": 1,
                     "eligible.leader.replicas.version": 1, "streams.version": 0, "share.version": 1}),
        ("4.1", {"metadata.version": 27, "transaction.version": 2, "group.version": 1,
                 "eligible.leader.replicas.version": 1, "streams.version": 0, "share.version": 0}),
        ("4.0", {"metadata.version": 25, "transaction.version": 2, "group.version": 1,
                 "eligible.leader.replicas.version": 0, "streams.version": 0, "share.version": 0}),
        ("4.0-IV0", {"metadata.version": 22, "transaction.version": 0, "group.version": 1,
                     "eligible.leader.replicas.version": 0, "streams.version": 0, "share.version": 0}),
        ("3.9", {"metadata.version": 21, "transaction.version": 0, "group.version": 0,
                 "eligible.leader.replicas.version": 0, "streams.version": 0, "share.version": 0}),
    ],
)  # fmt: skip
def test_a_release_brings_its_levels(release, levels):
    assert first_levels(release) == {**OLD, **levels}


def test_without_a_release_a_cluster_begins_with_the_newest_levels():
    newest = {name: one.highest for name, one in FEATURES.items()}
    assert first_levels() == first_levels("4.4") == newest


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
        (None, {"metadata.version": 6}, "metadata.version=6: its levels are 7 to 33"),
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
        (33, 32, True),
        (32, 31, True),
        (31, 30, False),
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
    assert missing_levels(before) == {"metadata.version": 33, "kraft.version": 1}
    assert missing_levels({**before, "metadata.version": 25}) == {}


# A node of a cluster

FRESH = {
    "eligible.leader.replicas.version": 1,
    "group.version": 1,
    "kraft.version": 1,
    "metadata.version": 33,
    "share.version": 2,
    "streams.version": 1,
    "transaction.version": 2,
}
"""What Kafka 4.4.0 finalizes in a new cluster."""


def test_a_node_registers_what_it_serves():
    assert NODE_FEATURES == {
        "eligible.leader.replicas.version": (0, 1),
        "group.version": (0, 1),
        "kraft.version": (0, 1),
        "metadata.version": (21, 33),
        "share.version": (0, 2),
        "streams.version": (0, 1),
        "transaction.version": (0, 2),
    }
    for name, (lowest, highest) in NODE_FEATURES.items():
        assert FEATURES[name].lowest <= lowest < highest == FEATURES[name].highest


LATER = {**FRESH, "share.version": 3}


def test_a_new_cluster_of_kafka_is_served():
    assert unserved_features(FRESH) == []
    assert refusal_of_features(FRESH) is None


def test_a_level_of_a_later_release_is_refused_with_the_command_that_lowers_it():
    assert unserved_features(LATER) == [Unserved("share.version", 3, 2)]
    assert refusal_of_features(LATER, "broker.example:9092") == (
        "The cluster has finalized share.version=3, which this node does not serve: run kafka-features.sh "
        "--bootstrap-server broker.example:9092 downgrade --feature share.version=2."
    )


def test_where_no_broker_is_known_the_command_asks_the_controllers():
    assert "--bootstrap-controller c.example:9093 downgrade" in refusal_of_features(
        LATER, "", "c.example:9093"
    )
    assert "--bootstrap-server HOST:PORT downgrade" in refusal_of_features(LATER)


@pytest.mark.parametrize("metadata_version", [21, 25, 30, 31, 32, 33])
@pytest.mark.parametrize("share_version", [0, 1, 2])
def test_a_cluster_of_these_releases_is_served(metadata_version, share_version):
    finalized = {**FRESH, "share.version": share_version, "metadata.version": metadata_version}
    assert refusal_of_features(finalized) is None
    assert refusal_of_features({"metadata.version": metadata_version}) is None


def test_levels_below_and_above_those_of_a_node_are_named_with_their_commands():
    finalized = {"metadata.version": 20, "transaction.version": 3, "new.version": 1, "other.version": 0}
    assert refusal_of_features(finalized, "b:1") == (
        "The cluster has finalized metadata.version=20, new.version=1, transaction.version=3, which this "
        "node does not serve: run kafka-features.sh --bootstrap-server b:1 upgrade --feature "
        "metadata.version=21 and kafka-features.sh --bootstrap-server b:1 downgrade --feature new.version=0 "
        "--feature transaction.version=2."
    )


def test_a_later_metadata_version_is_never_lowered_so_the_node_has_to_be_a_later_one():
    assert unserved_features({"metadata.version": 34}) == [Unserved("metadata.version", 34, 33)]
    assert refusal_of_features({**LATER, "metadata.version": 34}, "b:1") == (
        "The cluster has finalized metadata.version=34, share.version=3, which this node does not serve, and "
        "a metadata.version is not lowered: run a release of Odradek that serves it."
    )


@pytest.mark.parametrize(
    ("metadata_version", "fetch", "list_offsets", "partition", "register"),
    # As MetadataVersion of Kafka 4.3.1 says them.
    [
        (7, 13, 7, 0, 1),
        (8, 13, 7, 0, 2),
        (9, 14, 8, 0, 2),
        (17, 15, 8, 1, 3),
        (19, 16, 8, 1, 3),
        (21, 17, 9, 1, 3),
        (22, 17, 9, 1, 3),
        (23, 17, 9, 2, 3),
        (25, 17, 10, 2, 3),
        (26, 17, 10, 2, 3),
        (27, 18, 10, 2, 3),
        (29, 18, 11, 2, 3),
        (30, 18, 11, 2, 4),
        (33, 18, 11, 2, 4),
    ],
)
def test_brokers_talk_as_the_metadata_version_says(
    metadata_version, fetch, list_offsets, partition, register
):
    gates = broker_gates(metadata_version)
    assert (gates.fetch_version, gates.list_offsets_version) == (fetch, list_offsets)
    assert (gates.partition_record_version, gates.register_broker_record_version) == (partition, register)


def test_a_metadata_version_opens_what_it_brought():
    def since(attribute):
        return [level for level in RELEASES if getattr(broker_gates(level), attribute)]

    assert since("has_directories") == list(range(17, 34))
    assert since("has_eligible_leaders") == list(range(23, 34))
    assert since("bumps_leader_epoch_on_shrink") == list(range(7, 12))
