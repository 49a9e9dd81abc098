"""A node alone decides for its cluster: the controller is in its process, over the metadata log."""

from __future__ import annotations

import logging
from collections.abc import Collection
from concurrent.futures import Future
from contextlib import AsyncExitStack
from functools import partial
from typing import TYPE_CHECKING, Any

from odradek.config.config_error import ConfigError
from odradek.config.listeners import OLDEST
from odradek.coordinator.cluster.features import DIRECTORIES_SINCE, FEATURES
from odradek.coordinator.cluster.view import Broker, Endpoint
from odradek.coordinator.controller.alone import LoneController
from odradek.server.cluster.replica_homes import NO_DIRECTORY, ReplicaHomes
from odradek.server.controller import Deciding
from odradek.server.controlling.snapshots import Snapshots
from odradek.server.metadata.feature_levels import check_emulated, check_level
from odradek.server.metadata.log_directories import refuse_replaced
from odradek.server.metadata.metadata_log_start import (
    close_metadata_log,
    loaded_controller,
    open_own_log,
    partition_defaults,
)
from odradek.server.node_parts import add_first_users
from odradek.wire.errors import KafkaError
from odradek.wire.schema import uuid_from_text
from odradek.wire.work import finish

if TYPE_CHECKING:
    from odradek.apis.access import Authorizer
    from odradek.apis.controller.endpoint import ControllerEndpoint
    from odradek.apis.node import ApiSettings
    from odradek.coordinator.controller.draft import RecordDraft
    from odradek.server.background.schedule import Schedule
    from odradek.server.metadata.metadata_log import DiskMetadataLog
    from odradek.server.network.connections import Connections
    from odradek.server.phase_bind import Bound
    from odradek.wire.messages.assign_replicas_to_dirs import (
        AssignReplicasToDirsRequest,
        AssignReplicasToDirsResponse,
    )
    from odradek.wire.work import Work

logger = logging.getLogger("odradek.broker")


def decide_alone(bound: Bound, ending: AsyncExitStack) -> Deciding:
    """`ending` gets what undoes it. Raises ConfigError with one sentence for people."""
    return _Alone(bound, ending).deciding()


class _Alone:
    """The start of a node that decides itself."""

    def __init__(self, bound: Bound, ending: AsyncExitStack) -> None:
        self._bound = bound
        self._node = bound.node
        self._ending = ending
        config = bound.node.config
        self._defaults = partial(partition_defaults, config)
        self._directory_ids = {
            path: uuid_from_text(text) for path, text in bound.identity.directory_ids.items()
        }
        check_level(config, config.first_levels or {})
        self._endpoints = _endpoints(bound)
        self._log = self._opened_log()
        ending.callback(close_metadata_log, self._log)
        self._snapshots: list[Snapshots] = []
        ending.callback(self._stop_snapshots)
        live = bound.reconfiguration.live
        self._controller = loaded_controller(
            LoneController, config, self._log, bound.identity.cluster_id, live
        )
        check_level(config, self._controller.view.features)
        check_emulated(config, self._controller.view.features)
        self._refuse_without_brokers()
        self._absent = self._absent_directories()
        self._register(self._absent)
        self._homes = ReplicaHomes(
            self._node.id, self._log_directories, bound.store, has_absent=bool(self._absent)
        )

    def _stop_snapshots(self) -> None:
        """The works of the queues have ended by now."""
        for one in self._snapshots:
            one.stop()

    def deciding(self) -> Deciding:
        return Deciding(
            plane=self._controller,
            allocate_producer_ids=self._controller.allocate_producer_ids,
            when_open=self._when_open,
            homes=self._homes,
            metadata_log=self._log,
            serve_controllers=self._serve_controllers if self._endpoints else None,
            endpoints=self._endpoints,
            abandon=self._log.abandon,
        )

    def _serve_controllers(
        self, schedule: Schedule, authorizer: Authorizer, settings: ApiSettings, ending: AsyncExitStack
    ) -> Connections:
        from odradek.server.controlling.beside_broker import serve_beside_broker
        from odradek.server.controlling.serving import DecidingHere

        deciding = DecidingHere(
            node=self._node,
            schedule=schedule,
            reconfiguration=self._bound.reconfiguration,
            controller=self._controller,
            log=self._log,
        )
        return serve_beside_broker(deciding, self._bound.controller_ports, authorizer, settings, ending)

    @property
    def _log_directories(self) -> dict[str, bytes]:
        """Ids of the directories of partitions that can be used, by their path."""
        ids = self._directory_ids
        return {path: ids[path] for path in self._node.config.data_directories if path in ids}

    # The log

    def _opened_log(self) -> DiskMetadataLog:
        config = self._node.config
        return open_own_log(
            config,
            self._bound.identity,
            config.data_directories,
            config.metadata_directory,
            now_ms=self._node.now_ms,
            on_failure=partial(logger.critical, "the metadata are not changed before the next start: %s"),
            endpoints=self._endpoints,
        )

    def _refuse_without_brokers(self) -> None:
        view = self._controller.view
        if view.registrations and self._node.id not in view.registrations:
            others = ", ".join(map(str, sorted(view.registrations)))
            raise ConfigError(
                f"{self._log.directory} is the log of a controller, whose brokers are other nodes "
                f"({others}): start it with process.roles=controller."
            )

    # This broker

    def _absent_directories(self) -> Collection[bytes]:
        """Registered directories that cannot be used now. ConfigError: a new one may be in the place of one
        of them."""
        known = self._controller.view.registrations.get(self._node.id)
        if known is None:
            return ()
        present = self._log_directories
        absent = [one for one in known.directories if one not in present.values()]
        failures = [
            path for path in self._bound.identity.failures if path in self._node.config.data_directories
        ]
        if len(absent) > len(failures):
            # The directory with the log is known by that, even if its `meta.properties` was made anew.
            log = self._node.config.metadata_directory
            new = [path for path, id_ in present.items() if id_ not in known.directories and path != log]
            refuse_replaced(absent, new if known.directories else [])
        return absent

    def _register(self, absent: Collection[bytes]) -> None:
        config = self._node.config
        endpoints = {}
        oldest = {one.name for one in config.listeners if one.protocol in OLDEST}
        protocols = {one.name: one.protocol for one in config.listeners}
        for listener in self._bound.ports.listeners:
            if listener.name in oldest:
                continue
            host, port = listener.advertised or ("", listener.port)
            endpoints[listener.name] = Endpoint(host, port, protocols[listener.name])
        me = Broker(
            self._node.id,
            endpoints,
            config.values["broker.rack"],
            directories=tuple(sorted({*self._log_directories.values(), *absent})),
            features={name: (one.lowest, one.highest) for name, one in FEATURES.items()},
        )
        try:
            self._controller.register(me, self._defaults)
        except KafkaError as error:
            raise ConfigError(f"{self._log.directory} cannot be written: {error.message}") from error

    def _when_open(self, schedule: Schedule) -> None:
        add_first_users(self._node.config, self._controller)
        if self._controller.metadata_version >= DIRECTORIES_SINCE:
            self._correct_homes()
            self._keep_homes(schedule)
        snapshots = Snapshots(self._log, self._controller, schedule, self._node.now_ms)
        snapshots.start()
        self._snapshots.append(snapshots)

    def _may_miss_some(self) -> bool:
        """Whether partitions that the records have in no directory may be in an absent one."""
        if self._bound.identity.failures:
            return True
        places, me = self._bound.store.places, self._node.id
        return any(
            one.directory_of(me) in NO_DIRECTORY and (topic.name, one.index) not in places
            for topic in self._controller.view.topics.values()
            for one in topic.partitions
        )

    # Homes of partitions

    def _correct_homes(self) -> None:
        """The records have the log directory of each partition that is on a disk."""
        wanted = self._homes.differences(self._controller.view)
        is_forgotten = bool(self._absent) and not self._may_miss_some()
        try:
            if wanted:
                from odradek.server.cluster.home_reporter import request_of

                finish(self._assigning(request_of(self._node.id, self._epoch, wanted)))
        except KafkaError as error:
            raise ConfigError(f"{self._log.directory} cannot be written: {error.message}") from error
        if is_forgotten:
            # All that may be in a directory which is not there any more has a record that says so.
            self._absent = ()
        if wanted or is_forgotten:
            self._register(self._absent)

    def _keep_homes(self, schedule: Schedule) -> None:
        """The same from now on."""
        if len(self._node.config.data_directories) == 1:
            return
        from odradek.server.cluster.home_reporter import HomeReporter

        controller = self._controller
        reporter = HomeReporter(
            self._node.id,
            self._homes,
            partial(self._assign, schedule),
            lambda: self._epoch,
            lambda: controller.view,
        )
        self._ending.callback(reporter.close)
        self._bound.store_events.on_moved = reporter.moved
        controller.publisher.subscribe(reporter.view_changed)

    @property
    def _epoch(self) -> int:
        return self._controller.view.registrations[self._node.id].epoch

    def _assign(self, schedule: Schedule, request: AssignReplicasToDirsRequest) -> Future[Any]:
        assigned = Future[Any]()
        schedule.changes.run(self._assigning(request), assigned.set_result, assigned.set_exception)
        return assigned

    def _assigning(self, request: AssignReplicasToDirsRequest) -> Work[AssignReplicasToDirsResponse]:
        from odradek.coordinator.controller.directories import assign_replicas

        def edit(draft: RecordDraft) -> Work[AssignReplicasToDirsResponse]:
            decision = assign_replicas(self._controller.view, self._defaults(), request)
            draft.add_records(decision.records)
            return decision.response
            yield None

        return self._controller.changing(edit)


def _endpoints(bound: Bound) -> tuple[ControllerEndpoint, ...]:
    """Where the node is reached as a controller. Imports nothing where it has no such listener."""
    if not bound.controller_ports.listeners:
        return ()
    from odradek.server.controlling.serving import endpoints_of

    return endpoints_of(bound.controller_ports)
