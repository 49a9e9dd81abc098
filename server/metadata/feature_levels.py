"""The feature levels with which a new cluster begins: `--feature NAME=LEVEL` and `--release-version V`.

Kafka's storage tool takes these options when it formats a directory, `odradek serve` at the first start.
`kafka-features` (UpdateFeatures) changes levels later, so a start with existing data refuses them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from odradek.config.config_error import ConfigError
from odradek.coordinator.cluster.features import (
    DIRECTORIES_SINCE,
    KRAFT_VERSION,
    METADATA_VERSION,
    first_levels,
    levels_of,
)
from odradek.wire.releases import RELEASES

if TYPE_CHECKING:
    from odradek.config.broker_config import BrokerConfig


def read_levels(features: Sequence[str], release_version: str | None) -> dict[str, int] | None:
    """All levels of a new cluster; None without these options. ConfigError for an impossible level."""
    if not features and release_version is None:
        return None
    asked: dict[str, int] = {}
    for text in features:
        name, equals, level = (part.strip() for part in text.partition("="))
        if not equals or not level.isascii() or not level.isdecimal():
            raise ConfigError(f"--feature takes NAME=LEVEL, such as {METADATA_VERSION}=25, not {text!r}.")
        if name in asked:
            raise ConfigError(f"--feature names {name} twice.")
        asked[name] = int(level)
    if asked.get(KRAFT_VERSION, 1) < 1:
        raise ConfigError(f"--feature {KRAFT_VERSION}=0: it is 1, since the voters are in the metadata log.")
    try:
        return first_levels(release_version, asked)
    except ValueError as error:
        raise ConfigError(f"--feature, --release-version: {error}.") from None


def refuse_levels(config: BrokerConfig, directory: str) -> None:
    """ConfigError: levels are given for a directory that has some."""
    if config.first_levels is not None:
        raise ConfigError(
            f"log.dirs: {directory} is not new, and --feature and --release-version are for new directories: "
            "start without them, and change levels with odradek cluster features."
        )


def check_emulated(config: BrokerConfig, levels: Mapping[str, int]) -> None:
    """ConfigError: the directories are of a later release than the one for which the broker stands in."""
    if config.emulated is None:
        return
    begins = levels_of(config.emulated)
    for name, level in sorted(levels.items()):
        if level > begins.get(name, 0):
            raise ConfigError(
                f"odradek.emulate: Kafka {config.emulated} has {name} {begins.get(name, 0)} at most, and "
                f"{config.metadata_directory} has {level}: begin with a new directory."
            )


def check_level(config: BrokerConfig, levels: Mapping[str, int]) -> None:
    """ConfigError: the directories need a later metadata.version."""
    level = levels.get(METADATA_VERSION, DIRECTORIES_SINCE)
    if level < DIRECTORIES_SINCE and len(config.data_directories) > 1:
        raise ConfigError(
            f"log.dirs: several data directories need {METADATA_VERSION} {RELEASES[DIRECTORIES_SINCE]} or "
            f"later, and it is {RELEASES[level]}: name one directory, or begin with a later release."
        )
