"""The second phase of a broker: metadata and logs are recovered and agree with each other.

A start does what the first request needs and no more: the files of a partition are opened at its first use,
unless the last stop was not a clean one.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING

from odradek.config.options import GROUP_OPTIONS
from odradek.config.os_reason import reason_of
from odradek.coordinator.cluster.decisions import Decisions
from odradek.server.background.schedule import Schedule
from odradek.server.reconfiguration import configs_of, log_without_effect
from odradek.server.topic_logs import TopicLogs
from odradek.wire.errors import KafkaError

if TYPE_CHECKING:
    from odradek.config.live import LiveConfig
    from odradek.coordinator.cluster.control_plane import ControlPlane
    from odradek.coordinator.cluster.view import ClusterChange, ClusterView
    from odradek.server.controller import Deciding
    from odradek.server.phase_bind import Bound
    from odradek.storage.config import LogConfig
    from odradek.storage.directories.store import LogStore

logger = logging.getLogger("odradek.broker")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class Opened:
    """See the module. From here on topics can be made and deleted, and records appended."""

    bound: Bound
    schedule: Schedule
    deciding: Deciding
    topic_logs: TopicLogs

    @property
    def plane(self) -> ControlPlane:
        """The plane that decides for the cluster."""
        return self.deciding.plane


def open_data(bound: Bound, deciding: Deciding, ending: AsyncExitStack) -> Opened:
    """`ending` gets what undoes it. Raises ConfigError with one sentence for people."""
    node, store, plane = bound.node, bound.store, deciding.plane
    publisher = plane.publisher
    bound.topics.current_view = lambda: publisher.view
    schedule = Schedule(asyncio.get_running_loop(), node.clock)
    ending.callback(schedule.close)
    schedule.turn.flushes.use(store.flush_journals)
    topic_logs = _follow_metadata(bound, deciding)
    open_logs(store, node.now_ms())
    deciding.when_open(schedule)
    if isinstance(plane, Decisions):
        topic_logs.finish_deletions()
    else:
        topic_logs.set_strays_aside()
    topic_logs.make_missing(deciding.homes)
    topic_logs.report_offline()
    opened = Opened(bound=bound, schedule=schedule, deciding=deciding, topic_logs=topic_logs)
    _follow_changes(opened)
    return opened


# Metadata


def _follow_metadata(bound: Bound, deciding: Deciding) -> TopicLogs:
    """Makes the store work by the metadata, and the machine decide about the logs of the store."""
    node, store, plane = bound.node, bound.store, deciding.plane
    topic_logs = TopicLogs(
        node.id,
        store,
        plane,
        bound.reconfiguration.live,
        node.now_ms,
        node.after_loading,
        deciding.homes.directory_for,
    )
    plane.publisher.logs = topic_logs
    bound.reconfiguration.follow(plane.view)
    bound.reconfiguration.register(lambda live: _configure_store(store, live))
    topic_options = bound.reconfiguration.live.topic_options
    log_without_effect("topic", configs_of(plane.view.topics.values()), topic_options)
    log_without_effect("group", plane.view.group_configs, GROUP_OPTIONS)
    return topic_logs


def _configure_store(store: LogStore, live: LiveConfig[LogConfig]) -> None:
    store.places.producer_expiration_ms = live.values["producer.id.expiration.ms"]
    store.creating.cordon(live.cordoned_directories)
    store.relocation.allowance.change(live.values["replica.alter.log.dirs.io.max.bytes.per.second"])


def _follow_changes(opened: Opened) -> None:
    loop, topic_logs = opened.schedule.loop, opened.topic_logs

    def report_offline(view: ClusterView, change: ClusterChange) -> None:
        if (change.created or change.deleted) and topic_logs.may_be_offline:
            # The new view was made without knowing what has gone offline since.
            loop.call_soon(topic_logs.report_offline)

    opened.plane.publisher.subscribe(opened.bound.reconfiguration.view_changed)
    opened.plane.publisher.subscribe(report_offline)


# Logs


def open_logs(store: LogStore, now_ms: int) -> None:
    """Finds and recovers the partitions, and tells of it. Raises ConfigError."""
    from odradek.config.config_error import ConfigError

    try:
        cut_bytes = store.open(now_ms)
    except OSError as error:
        raise ConfigError(
            f"log.dirs: {error.filename or 'the data directories'} cannot be used: {reason_of(error)}."
        ) from error
    except KafkaError as error:
        raise ConfigError(f"log.dirs: the data directories cannot be used: {error}") from error
    _tell_last_stop(store, sum(cut_bytes.values()))
    for (topic, index), size_bytes in cut_bytes.items():
        logger.warning("%s-%d: cut %d bytes after the last sound batch", topic, index, size_bytes)
    if store.opening.restored_bytes:
        logger.info("restored %d bytes that only the flush journal had", store.opening.restored_bytes)


def _tell_last_stop(store: LogStore, cut_bytes: int) -> None:
    """A new directory has had none."""
    opening, number = store.opening, len(store.places.by_key)
    if opening.unclean:
        logger.info(
            "after an unclean stop: %d %s recovered, %d bytes cut",
            opening.recovered_count,
            "partition" if opening.recovered_count == 1 else "partitions",
            cut_bytes,
        )
    elif opening.was_clean:
        logger.info("after a clean stop: %d %s", number, "partition" if number == 1 else "partitions")
