"""Features of the cluster: which there are, who may have which level, and what a level brings."""

# ruff: noqa: B023  (every function is called in the round of the loop that makes it)

from __future__ import annotations

import itertools
import os
import pathlib
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from compat_tests import reference
from compat_tests.broker_host import shared_host
from compat_tests.clients import wait_until
from compat_tests.differential.harness import CLOSED, Pair, Side, served_versions
from compat_tests.differential.topics import new_topic
from odradek.coordinator.cluster.features import (
    ELIGIBLE_LEADERS_VERSION,
    FEATURES,
    METADATA_VERSION,
)
from odradek.wire.messages import alter_configs, incremental_alter_configs
from odradek.wire.messages import alter_user_scram_credentials as scram
from odradek.wire.messages.api_versions import ApiVersionsRequest
from odradek.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from odradek.wire.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from odradek.wire.messages.describe_log_dirs import DescribeLogDirsRequest
from odradek.wire.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest
from odradek.wire.schema import ZERO_UUID

UPGRADE, SAFE_DOWNGRADE, UNSAFE_DOWNGRADE = 1, 2, 3
KINDS = (UPGRADE, SAFE_DOWNGRADE, UNSAFE_DOWNGRADE)
TOPIC, BROKER = 2, 4
SET, DELETE = 0, 1
MIN_INSYNC = "min.insync.replicas"


def versions_request() -> ApiVersionsRequest:
    return ApiVersionsRequest(client_software_name="differential", client_software_version="1")


def told_alike(pair: Pair, note: str, metadata_version: int | None = None) -> None:
    """What ApiVersions says of features. It is asked until the metadata.version is told: Kafka's broker hears
    of it after the controller has answered."""

    def is_settled(answer: Any) -> bool:
        levels = {one.name: one.max_version_level for one in answer.finalized_features}
        return metadata_version in (None, levels.get(METADATA_VERSION))

    def only_features(side: Side, answer: Any) -> None:
        answer.api_keys = []
        answer.finalized_features_epoch = min(answer.finalized_features_epoch, 1)

    for version in pair.versions(ApiVersionsRequest):
        if version >= 3:
            pair.ask(lambda _: versions_request(), version, note, settle=is_settled, see=only_features)


def is_of_4_3(pair: Pair) -> bool:
    return len(pair.versions(UpdateFeaturesRequest)) > 0


def update(*levels: tuple[str, int], kind: int = UPGRADE, dry: bool = False) -> UpdateFeaturesRequest:
    updates = [
        FeatureUpdateKey(feature=name, max_version_level=level, upgrade_type=kind) for name, level in levels
    ]
    return UpdateFeaturesRequest(feature_updates=updates, validate_only=dry)


def test_features_are_told_alike(pair: Pair) -> None:
    told_alike(pair, "")


def test_levels_are_taken_and_refused_alike(pair: Pair) -> None:
    for version in pair.versions(UpdateFeaturesRequest):
        if version == 0:
            continue
        for name, kind in itertools.product(FEATURES, KINDS):
            highest = FEATURES[name].highest
            for level in sorted({*range(-1, highest + 2), 99}):
                request = update((name, level), kind=kind, dry=True)
                pair.ask(lambda _: request, version, f"{name} to {level}, {kind}")
        pairs = {
            "one that may and one that may not": (("metadata.version", 30), ("group.version", 7)),
            "one that may not and one that may": (("group.version", 7), ("metadata.version", 30)),
            "all of a release": tuple((name, one.highest) for name, one in FEATURES.items()),
            "nothing": (),
        }
        for note, levels in pairs.items():
            pair.ask(lambda _: update(*levels), version, note)
        told_alike(pair, f"after UpdateFeatures v{version}")


def test_a_new_cluster_may_ask_for_all_levels_of_its_release(pair: Pair) -> None:
    """As `kafka-features upgrade --release-version` does."""
    if not is_of_4_3(pair):
        return
    levels = [(name, one.highest) for name, one in FEATURES.items()]
    pair.ask(lambda _: update(*levels), 2, "upgrade")
    told_alike(pair, "all levels")


# Eligible leader replicas, and the setting for all brokers that comes with them


def described(pair: Pair, topic: str, note: str) -> None:
    """The setting, and where it comes from, of a topic, the broker and all brokers."""
    resources = [
        DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=[MIN_INSYNC])
        for kind, name in ((TOPIC, topic), (BROKER, "1"), (BROKER, ""))
    ]
    request = DescribeConfigsRequest(resources=resources, include_synonyms=True)

    def values(answer: Any) -> list[Any]:
        found = [config for result in answer.results for config in result.configs]
        return [(one.value, [synonym.value for synonym in one.synonyms]) for one in found]

    def is_settled(answer: Any) -> bool:
        # Kafka's broker hears of it a moment after the controller has answered.
        return values(answer) == values(pair.odradek.ask(request, version))

    for version in pair.versions(DescribeConfigsRequest):
        pair.ask(lambda _: request, version, note, settle=is_settled)


def incrementally(pair: Pair, owner: str, operation: int, value: str | None, note: str) -> None:
    config = incremental_alter_configs.AlterableConfig(
        name=MIN_INSYNC, config_operation=operation, value=value
    )
    resource = incremental_alter_configs.AlterConfigsResource(
        resource_type=BROKER, resource_name=owner, configs=[config]
    )
    request = incremental_alter_configs.IncrementalAlterConfigsRequest(resources=[resource])
    pair.ask(lambda _: request, 1, f"{note}: broker {owner!r} {operation} {value}")


def as_a_whole(pair: Pair, owner: str, configs: dict[str, str], note: str) -> None:
    resource = alter_configs.AlterConfigsResource(
        resource_type=BROKER,
        resource_name=owner,
        configs=[alter_configs.AlterableConfig(name=name, value=value) for name, value in configs.items()],
    )
    request = alter_configs.AlterConfigsRequest(resources=[resource])
    pair.ask(lambda _: request, 2, f"{note}: all of broker {owner!r}: {configs}")


def finalized(pair: Pair, level: int) -> None:
    request = update((ELIGIBLE_LEADERS_VERSION, level), kind=UPGRADE if level else SAFE_DOWNGRADE)
    pair.ask(lambda _: request, 2, f"eligible leaders {level}")

    def has_level(answer: Any) -> bool:
        names = {one.name for one in answer.finalized_features}
        return answer != CLOSED and (ELIGIBLE_LEADERS_VERSION in names) == bool(level)

    def only_features(side: Side, answer: Any) -> None:
        answer.api_keys, answer.supported_features, answer.finalized_features = [], [], []
        answer.finalized_features_epoch = 0

    pair.ask(lambda _: versions_request(), 4, settle=has_level, see=only_features)


@contextmanager
def without_eligible_leaders(pair: Pair) -> Iterator[None]:
    finalized(pair, 0)
    try:
        yield
    finally:
        finalized(pair, 1)


def test_with_eligible_leaders_all_brokers_have_one_setting(pair: Pair) -> None:
    if not is_of_4_3(pair):
        return
    topic = new_topic(pair, "eligible")
    described(pair, topic, "at first")
    for owner in ("1", ""):
        incrementally(pair, owner, SET, "2", "with")
        incrementally(pair, owner, SET, "much", "with")
        incrementally(pair, owner, DELETE, None, "with")
        as_a_whole(pair, owner, {}, "with")
        as_a_whole(pair, owner, {"log.cleaner.threads": "1"}, "with")
        as_a_whole(pair, owner, {MIN_INSYNC: "3"}, "with")
    described(pair, topic, "altered")
    as_a_whole(pair, "1", {}, "with")
    as_a_whole(pair, "", {MIN_INSYNC: "1"}, "with")
    described(pair, topic, "back")


def test_the_setting_comes_with_the_level_and_stays_without_it(pair: Pair) -> None:
    if not is_of_4_3(pair):
        return
    topic = new_topic(pair, "eligible")
    with without_eligible_leaders(pair):
        described(pair, topic, "switched off")
        incrementally(pair, "", DELETE, None, "without")
        described(pair, topic, "removed")
    described(pair, topic, "made by the level")
    with without_eligible_leaders(pair):
        incrementally(pair, "1", SET, "2", "without")
        incrementally(pair, "", SET, "3", "without")
        described(pair, topic, "both set")
    described(pair, topic, "that of the broker is gone")
    incrementally(pair, "", SET, "1", "with")
    described(pair, topic, "as it was")


def test_a_new_topic_is_told_where_its_setting_comes_from(pair: Pair) -> None:
    if not is_of_4_3(pair):
        return
    topic = CreatableTopic(name="eligible-new", num_partitions=1, replication_factor=1)
    request = CreateTopicsRequest(topics=[topic], timeout_ms=30_000, validate_only=True)

    def without_id(side: Side, answer: Any) -> None:
        answer.topics[0].topic_id = ZERO_UUID

    for version in pair.versions(CreateTopicsRequest):
        if version >= 5:
            pair.ask(lambda _: request, version, see=without_id)


# A cluster that has begun at an older release


@contextmanager
def begun_at(
    directory: pathlib.Path, *arguments: str, properties: Mapping[str, str] | None = None
) -> Iterator[Pair]:
    """Both brokers over new directories, formatted with these arguments."""
    address = directory / "address"
    command = [sys.executable, "-m", "odradek", "serve", "--listen", "127.0.0.1:0", "--log-level", "error"]
    command += ["--data-dir", str(directory / "data"), *arguments]
    for name, value in (properties or {}).items():
        command += ["--set", f"{name}={value}"]
    environment = {**os.environ, "ODRADEK_ADDRESS_FILE": str(address)}
    with reference.Kafka(properties=properties, formatting=arguments, host=shared_host()) as kafka:
        process = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL)
        try:
            wait_until(lambda: address.exists() and bool(address.read_text()), "it is ready")
            theirs, ours = (
                Side("kafka", kafka.bootstrap_servers),
                Side("odradek", address.read_text().strip()),
            )
            served = served_versions(theirs)
            yield Pair(theirs, ours, {**served, 32: range(1, served[32].stop)})
            theirs.close()
            ours.close()
        finally:
            process.terminate()
            process.wait(30)


def cordoning(operation: int, value: str | None) -> incremental_alter_configs.IncrementalAlterConfigsRequest:
    setting = incremental_alter_configs.AlterableConfig(
        name="cordoned.log.dirs", config_operation=operation, value=value
    )
    broker = incremental_alter_configs.AlterConfigsResource(
        resource_type=BROKER, resource_name="1", configs=[setting]
    )
    return incremental_alter_configs.IncrementalAlterConfigsRequest(resources=[broker])


def who_is_cordoned(side: Side) -> list[bool]:
    answer = side.ask(DescribeLogDirsRequest(topics=[]), 5)
    return [one.is_cordoned for one in answer.results]


def test_directories_that_a_file_cordons_count_alike_from_the_level_that_knows_them(
    tmp_path: pathlib.Path,
) -> None:
    cordoned = {"cordoned.log.dirs": "*"}
    with begun_at(tmp_path, "--release-version", "4.2", properties=cordoned) as pair:
        assert [who_is_cordoned(side) for side in pair.sides] == [[False], [False]]
        new_topic(pair, "below")
        pair.ask(lambda _: update(("metadata.version", 30)), 2, "up")
        for side in pair.sides:
            wait_until(lambda side=side: who_is_cordoned(side) == [True], "it is told")  # type: ignore[misc]
        topic = CreatableTopic(name="above", num_partitions=1, replication_factor=1)
        request = CreateTopicsRequest(topics=[topic], timeout_ms=30_000, validate_only=True)

        def is_refused(answer: Any) -> bool:
            """Kafka's controller hears of it by the next heartbeat."""
            return bool(answer.topics[0].error_code)

        def without_message(side: Side, answer: Any) -> None:
            answer.topics[0].error_message = None

        pair.ask(lambda _: request, 7, "above", settle=is_refused, see=without_message)


def test_a_cluster_that_began_at_an_older_release_goes_up_alike(tmp_path: pathlib.Path) -> None:
    release = ("--release-version", "3.5-IV1", "--feature", "group.version=1")
    with begun_at(tmp_path, *release) as pair:
        told_alike(pair, "at first")
        topic = new_topic(pair, "older")
        described(pair, topic, "at first")
        user = scram.ScramCredentialUpsertion(
            name="a", mechanism=1, iterations=4096, salt=b"salt", salted_password=bytes(32)
        )
        for deletions, upsertions in (
            ([], [user]),
            ([scram.ScramCredentialDeletion(name="b", mechanism=1)], []),
        ):
            request = scram.AlterUserScramCredentialsRequest(deletions=deletions, upsertions=upsertions)
            pair.ask(lambda _: request, 0, "below the level that brought users")
        for level in range(6, 31):
            for kind in KINDS:
                pair.ask(
                    lambda _: update(("metadata.version", level), kind=kind, dry=True),
                    1,
                    f"to {level}, {kind}",
                )
        for operation, value in ((SET, "*"), (SET, ""), (DELETE, None)):
            pair.ask(lambda _: cordoning(operation, value), 1, f"cordoned too early: {value}")
        leaders = (ELIGIBLE_LEADERS_VERSION, 1)
        pair.ask(lambda _: update(leaders), 2, "too early")
        pair.ask(lambda _: update(leaders, ("metadata.version", 22)), 2, "still too early")
        pair.ask(lambda _: update(("metadata.version", 9), kind=SAFE_DOWNGRADE), 2, "down")
        pair.ask(lambda _: update(("metadata.version", 9), kind=SAFE_DOWNGRADE), 2, "down once more")
        told_alike(pair, "one lower", 9)
        pair.ask(lambda _: update(leaders, ("metadata.version", 23)), 2, "both")
        told_alike(pair, "both", 23)
        described(pair, topic, "both")
