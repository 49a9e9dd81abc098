"""Users for SCRAM of a directory that no broker serves: `odradek users --data-dir`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING

from odradek.config.config_error import ConfigError
from odradek.coordinator.cluster.draft import at_once
from odradek.coordinator.controller.machine import Controller
from odradek.coordinator.security.scram_users import Key, ScramCredential
from odradek.server.metadata.log_directories import refuse_misplaced
from odradek.server.metadata.meta_properties import claim_directories
from odradek.server.metadata.metadata_log_start import close_metadata_log, loaded_controller, open_own_log
from odradek.server.network.timers import wall_clock_ms
from odradek.server.reconfiguration import live_config
from odradek.server.security.users import new_credential
from odradek.storage import checkpoints
from odradek.storage.disk import OsDisk
from odradek.wire.errors import KafkaError
from odradek.wire.scram import MECHANISM_NAMES, MECHANISM_NUMBERS
from odradek.wire.work import finish

if TYPE_CHECKING:
    from odradek.config.broker_config import BrokerConfig
    from odradek.config.first_users import FirstUser


def add(config: BrokerConfig, user: FirstUser) -> None:
    """Makes a credential, or replaces it. ConfigError: one sentence."""
    key, credential = new_credential(user)
    with _stopped(config) as controller:
        _change(controller, {key: credential})


def remove(config: BrokerConfig, name: str, mechanism: str) -> bool:
    """Whether there was such a credential. ConfigError: one sentence."""
    key = name, MECHANISM_NUMBERS[mechanism]
    with _stopped(config) as controller:
        is_there = key in controller.view.scram_users.credentials
        if is_there:
            _change(controller, {key: None})
    return is_there


def listed(config: BrokerConfig) -> list[tuple[str, str, int]]:
    """Name, mechanism and iterations of each credential, sorted. ConfigError: one sentence."""
    with _stopped(config) as controller:
        return sorted(
            (user, MECHANISM_NAMES[number], credential.iterations)
            for (user, number), credential in controller.view.scram_users.credentials.items()
        )


@contextmanager
def _stopped(config: BrokerConfig) -> Iterator[Controller]:
    """The controller of a node alone that does not run; a new directory becomes one of this node."""
    if config.cluster is not None:
        raise ConfigError(
            "the users of a cluster are with its controllers: use kafka-storage format --add-scram there, or "
            "kafka-configs."
        )
    directory = config.metadata_directory
    refuse_misplaced(config.data_directories, directory)
    identity = claim_directories(
        config.data_directories,
        node_id=config.node_id,
        cluster_id=config.cluster_id,
        metadata_directory=directory,
    )
    if directory in identity.failures:
        raise ConfigError(identity.failures[directory])
    try:
        lock = OsDisk().lock(f"{directory}/{checkpoints.LOCK}")
    except BlockingIOError:
        raise ConfigError(
            f"{directory} is in use: stop the broker first, or change its users while it runs: without "
            "--data-dir."
        ) from None
    try:
        log = open_own_log(config, identity, config.data_directories, directory, now_ms=wall_clock_ms)
        try:
            yield loaded_controller(Controller, config, log, identity.cluster_id, live_config(config))
        finally:
            close_metadata_log(log)
    finally:
        lock.release()


def _change(controller: Controller, credentials: Mapping[Key, ScramCredential | None]) -> None:
    try:
        finish(controller.changing(at_once(lambda draft: draft.change_scram_users(credentials))))
    except KafkaError as error:
        raise ConfigError(str(error)) from None
