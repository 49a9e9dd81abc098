"""Settings that change while the broker runs, and the parts that follow them."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from odradek.config.live import LiveConfig
from odradek.config.option import Option
from odradek.config.options import GROUP_OPTIONS, honoured, without_effect

if TYPE_CHECKING:
    from odradek.config.broker_config import BrokerConfig
    from odradek.coordinator.cluster.view import ClusterChange, ClusterView, TopicView
    from odradek.storage.config import LogConfig

logger = logging.getLogger("odradek.broker")

Follower = Callable[[LiveConfig["LogConfig"]], None]
"""Takes the present settings to one part of the broker."""


def live_config(config: BrokerConfig) -> LiveConfig[LogConfig]:
    """The settings of a node, as they are at its start."""
    from odradek.storage.config import LogConfig

    return LiveConfig(config, LogConfig.from_mapping)


class Reconfiguration:
    """Parts register here when they are made. Others read `live` each time that they need a setting."""

    def __init__(self, live: LiveConfig[LogConfig]) -> None:
        self.live = live
        self._followers: list[Follower] = []
        self._refusals: frozenset[str] = frozenset()

    def register(self, follower: Follower) -> None:
        """Calls `follower(live)` now and after each change."""
        self._followers.append(follower)
        follower(self.live)

    def follow(self, view: ClusterView) -> None:
        """Reads the broker's settings in the metadata, and hands them to the parts."""
        self.live.follow(view.broker_configs)
        if self.live.without_effect:
            logger.info("set at run time, but without effect here: %s", ", ".join(self.live.without_effect))
        for sentence in self.live.refused:
            if sentence not in self._refusals:
                logger.error("set at run time, but not honoured here: %s", sentence)
        self._refusals = frozenset(self.live.refused)
        for follower in self._followers:
            follower(self.live)

    def view_changed(self, view: ClusterView, change: ClusterChange) -> None:
        """Subscriber of the cluster's metadata."""
        if change.brokers_configured:
            self.follow(view)
        created = {topic.name: topic for topic, _ in change.created}
        topics = configs_of([*created.values(), *change.configured])
        log_without_effect("topic", topics, self.live.topic_options)
        groups = {name: view.group_configs.get(name, {}) for name in change.groups_configured}
        log_without_effect("group", groups, GROUP_OPTIONS)


def configs_of(topics: Iterable[TopicView]) -> dict[str, Mapping[str, str]]:
    """The settings of topics by their names."""
    return {topic.name: topic.configs for topic in topics}


def log_without_effect(
    kind: str, configs: Mapping[str, Mapping[str, str]], options: Mapping[str, Option]
) -> None:
    """Names options that have no effect here or are not honoured, and one topic or group of each: there may
    be many."""
    found: dict[str, list[str]] = {}
    refused: dict[str, list[str]] = {}
    for owner, own in configs.items():
        for name in without_effect(own, options):
            found.setdefault(name, []).append(owner)
        for sentence in honoured(own, options)[1].values():
            refused.setdefault(sentence, []).append(owner)
    for name, owners in found.items():
        logger.info("set for %s %s, but without effect here: %s", kind, _some(owners), name)
    for sentence, owners in refused.items():
        logger.error("set for %s %s, but not honoured here: %s", kind, _some(owners), sentence)


def _some(owners: Sequence[str]) -> str:
    return f"{owners[0]} and {len(owners) - 1} more" if len(owners) > 1 else owners[0]
