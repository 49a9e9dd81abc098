"""UpdateFeatures, and what ApiVersions tells of it."""

import pytest

from odradek.coordinator.cluster.features import FEATURES, first_levels
from odradek.wire.errors import ErrorCode, KafkaError
from odradek.wire.messages.api_versions import ApiVersionsRequest
from odradek.wire.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest

UPGRADE, SAFE_DOWNGRADE, UNSAFE_DOWNGRADE = 1, 2, 3
NAME = "transaction.version"


EPOCH = 10
"""Offset of the last record of a new node."""

NEWEST = {name: level for name, level in first_levels().items() if level}


@pytest.fixture
def new_node(node):
    """A node of a new cluster."""
    node.machine.set_features(first_levels())
    return node


def without(name):
    return {one: level for one, level in NEWEST.items() if one != name}


def update(node, *updates, version=2, **fields):
    """`updates` are (feature, level, upgrade type)."""
    keys = []
    for name, level, upgrade_type in updates:
        told = {"upgrade_type": upgrade_type} if version else {"allow_downgrade": upgrade_type != UPGRADE}
        keys.append(FeatureUpdateKey(feature=name, max_version_level=level, **told))
    return node.ask(UpdateFeaturesRequest(feature_updates=keys, **fields), version)


def told(node, version=4):
    """Levels by feature, and their epoch, as a client learns them."""
    response = node.ask(ApiVersionsRequest(client_software_name="c", client_software_version="1"), version)
    levels = {one.name: one.max_version_level for one in response.finalized_features}
    return levels, response.finalized_features_epoch


def test_a_new_cluster_has_the_newest_levels(new_node):
    response = new_node.ask(ApiVersionsRequest(client_software_name="c", client_software_version="1"), 4)
    supported = {one.name: (one.min_version, one.max_version) for one in response.supported_features}
    assert supported == {name: (one.lowest, one.highest) for name, one in FEATURES.items()}
    assert told(new_node) == (NEWEST, EPOCH) == told(new_node, 3)
    assert {name: one.highest for name, one in FEATURES.items()} == NEWEST


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("upgrade_type", [SAFE_DOWNGRADE, UNSAFE_DOWNGRADE])
def test_a_level_is_lowered_and_raised(new_node, version, upgrade_type):
    lowered = update(new_node, (NAME, 1, upgrade_type), version=version)
    assert (lowered.error_code, lowered.error_message) == (0, None)
    if version == 1:
        (result,) = lowered.results
        assert (result.feature, result.error_code, result.error_message) == (NAME, 0, "NONE")
    assert told(new_node) == ({**NEWEST, NAME: 1}, EPOCH + 1)
    assert update(new_node, (NAME, 2, UPGRADE), version=version).error_code == 0
    assert told(new_node) == (NEWEST, EPOCH + 2)


def test_level_0_is_the_feature_switched_off(new_node):
    assert update(new_node, (NAME, 0, SAFE_DOWNGRADE)).error_code == 0
    assert told(new_node) == (without(NAME), EPOCH + 1)
    assert update(new_node, (NAME, 1, UPGRADE)).error_code == 0
    assert told(new_node) == ({**NEWEST, NAME: 1}, EPOCH + 2)


@pytest.mark.parametrize("version", range(3))
@pytest.mark.parametrize(
    ("asked", "why"),
    [
        ((NAME, 1, UPGRADE), "Can't downgrade the version of this feature without setting the upgrade type"),
        ((NAME, 3, UPGRADE), "Local controller 1 only supports versions 0-2"),
        ((NAME, -1, UPGRADE), "A feature version cannot be less than 0."),
        (("metadata.version", 34, UPGRADE), "Local controller 1 only supports versions 7-33"),
        (("metadata.version", 0, SAFE_DOWNGRADE), "Local controller 1 only supports versions 7-33"),
        (("kraft.version", 0, UPGRADE), "Can't downgrade the version of this feature without setting"),
        (("nonsense", 1, UPGRADE), "Local controller 1 does not support this feature."),
        (("nonsense", 0, UPGRADE), "Feature nonsense not found."),
    ],
)
def test_what_cannot_be_is_refused_with_its_reason(new_node, version, asked, why):
    answer = update(new_node, asked, version=version)
    assert answer.error_code == ErrorCode.INVALID_UPDATE_VERSION
    assert answer.results == []
    begin = "The update failed for all features since the following feature had an error: "
    begin += f"Invalid update version {asked[1]} for feature {asked[0]}. {why}"
    assert answer.error_message.startswith(begin)
    assert told(new_node) == (NEWEST, EPOCH)


@pytest.mark.parametrize("upgrade_type", [SAFE_DOWNGRADE, UNSAFE_DOWNGRADE])
def test_an_upgrade_is_no_downgrade(new_node, upgrade_type):
    update(new_node, (NAME, 1, SAFE_DOWNGRADE))
    answer = update(new_node, (NAME, 2, upgrade_type))
    assert answer.error_code == ErrorCode.INVALID_UPDATE_VERSION
    assert answer.error_message.endswith("Can't downgrade to a newer version.")


@pytest.mark.parametrize("upgrade_type", [0, 4, -1])
def test_there_are_three_types_of_upgrade(new_node, upgrade_type):
    answer = update(new_node, (NAME, 2, upgrade_type))
    assert answer.error_code == ErrorCode.INVALID_UPDATE_VERSION
    assert answer.error_message.endswith("The controller does not support the given upgrade type.")


def test_version_0_lowers_nothing(new_node):
    assert update(new_node, (NAME, 1, SAFE_DOWNGRADE), version=0).error_code != 0
    assert update(new_node, (NAME, 2, UPGRADE), version=0).error_code == 0


def test_all_of_a_request_or_nothing(new_node):
    answer = update(new_node, (NAME, 1, SAFE_DOWNGRADE), ("nonsense", 1, UPGRADE))
    assert answer.error_code == ErrorCode.INVALID_UPDATE_VERSION
    assert told(new_node) == (NEWEST, EPOCH)
    assert update(new_node).error_code == 0
    assert told(new_node) == (NEWEST, EPOCH)


def test_a_dry_run_changes_nothing(new_node):
    assert update(new_node, (NAME, 1, SAFE_DOWNGRADE), validate_only=True).error_code == 0
    assert update(new_node, (NAME, 1, UPGRADE), validate_only=True).error_code != 0
    assert told(new_node) == (NEWEST, EPOCH)


def test_a_store_that_fails_changes_nothing_and_says_so(new_node):
    new_node.metadata.failure = KafkaError(ErrorCode.KAFKA_STORAGE_ERROR)
    assert update(new_node, (NAME, 1, SAFE_DOWNGRADE)).error_code == ErrorCode.KAFKA_STORAGE_ERROR
    assert told(new_node) == (NEWEST, EPOCH)


@pytest.mark.parametrize(
    ("upgrade_type", "why"), [(SAFE_DOWNGRADE, "Refusing to perform"), (UNSAFE_DOWNGRADE, "Unsafe metadata")]
)
def test_a_metadata_version_is_not_lowered_below_new_metadata(new_node, upgrade_type, why):
    answer = update(new_node, ("metadata.version", 29, upgrade_type))
    assert answer.error_code == ErrorCode.INVALID_UPDATE_VERSION
    assert f"Unsupported metadata.version downgrade from 33 to 29. {why}" in answer.error_message


@pytest.mark.parametrize(("before", "after"), [(29, 23), (22, 17), (10, 8)])
def test_a_metadata_version_is_lowered_where_nothing_new_was_written(node, before, after):
    node.machine.set_features({"metadata.version": before})
    assert update(node, ("metadata.version", after - 1, SAFE_DOWNGRADE)).error_code != 0
    assert update(node, ("metadata.version", after, SAFE_DOWNGRADE)).error_code == 0
    assert told(node)[0] == {"metadata.version": after, "kraft.version": 1}


@pytest.mark.parametrize("upgrade_type", [SAFE_DOWNGRADE, UNSAFE_DOWNGRADE])
def test_the_form_of_the_quorum_is_not_taken_back(node, upgrade_type):
    answer = update(node, ("kraft.version", 0, upgrade_type))
    assert answer.error_message.endswith("Can't downgrade the version of this feature.")
    assert update(node, ("kraft.version", 1, upgrade_type)).error_code == 0


def test_a_level_may_need_a_metadata_version(node):
    node.machine.set_features(first_levels("4.0-IV0"))
    answer = update(node, ("eligible.leader.replicas.version", 1, UPGRADE))
    assert answer.error_code == ErrorCode.INVALID_UPDATE_VERSION
    assert answer.error_message.endswith("because it depends on metadata.version level 23")
    both = ("eligible.leader.replicas.version", 1, UPGRADE), ("metadata.version", 23, UPGRADE)
    assert update(node, *both).error_code == 0
    assert node.machine.view.broker_configs == {None: {"min.insync.replicas": "1"}}
