"""Users for SCRAM of a data directory: those of the environment at a start, and `odradek users` for a
directory that no broker serves."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from odradek.config.config_error import ConfigError
from odradek.coordinator.cluster.machine import CLUSTER, SCRAM, Row, count_key, scram_row
from odradek.coordinator.security.scram_users import Key, ScramCredential, credential_of, from_row
from odradek.server.metadata.log_directories import refuse_misplaced
from odradek.server.metadata.meta_properties import claim_directories
from odradek.server.metadata.metadata_store import FILE_NAME, SqliteMetadataStore
from odradek.server.security.sasl.scram import SALT_LENGTH, salt_text
from odradek.storage import checkpoints
from odradek.storage.disk import OsDisk
from odradek.wire.errors import KafkaError
from odradek.wire.scram import MECHANISM_NAMES, MECHANISM_NUMBERS, salted_password

if TYPE_CHECKING:
    from odradek.config.broker_config import BrokerConfig
    from odradek.config.first_users import FirstUser
    from odradek.coordinator.cluster.machine import MetadataStore
    from odradek.coordinator.security.scram_users import ScramUsers


def new_credential(user: FirstUser) -> tuple[Key, ScramCredential]:
    """With a new salt; takes some milliseconds."""
    number = MECHANISM_NUMBERS[user.mechanism]
    salt = salt_text(secrets.token_bytes(SALT_LENGTH))
    salted = salted_password(number, user.password.reveal(), salt, user.iterations)
    return (user.name, number), credential_of(number, salt, salted, user.iterations)


def missing_credentials(users: Iterable[FirstUser], present: ScramUsers) -> dict[Key, ScramCredential]:
    """The credentials of those users that have none yet."""
    return dict(
        new_credential(user)
        for user in users
        if present.credential(user.name, MECHANISM_NUMBERS[user.mechanism]) is None
    )


def add(config: BrokerConfig, user: FirstUser) -> None:
    """Makes a credential, or replaces it. ConfigError: one sentence."""
    with _stopped(config) as store:
        _write(store, *new_credential(user))


def remove(config: BrokerConfig, name: str, mechanism: str) -> bool:
    """Whether there was such a credential. ConfigError: one sentence."""
    key = name, MECHANISM_NUMBERS[mechanism]
    with _stopped(config) as store:
        is_there = any(found == key for found, _ in _credentials(store))
        if is_there:
            _write(store, key, None)
    return is_there


def listed(config: BrokerConfig) -> list[tuple[str, str, int]]:
    """Name, mechanism and iterations of each credential. ConfigError: one sentence."""
    with _stopped(config) as store:
        return [
            (user, MECHANISM_NAMES[number], credential.iterations)
            for (user, number), credential in _credentials(store)
        ]


@contextmanager
def _stopped(config: BrokerConfig) -> Iterator[SqliteMetadataStore]:
    """The metadata of a node alone that does not run; a new directory becomes one of this node."""
    if config.cluster is not None:
        raise ConfigError(
            "the users of a cluster are with its controllers: use kafka-storage format --add-scram there, or "
            "kafka-configs."
        )
    refuse_misplaced(config.data_directories)
    first = config.data_directories[0]
    claim_directories(config.data_directories, node_id=config.node_id, cluster_id=config.cluster_id)
    try:
        lock = OsDisk().lock(f"{first}/{checkpoints.LOCK}")
    except BlockingIOError:
        raise ConfigError(
            f"{first} is in use: stop the broker first, or change its users while it runs: without "
            "--data-dir."
        ) from None
    try:
        store = SqliteMetadataStore(os.path.join(first, FILE_NAME))
        try:
            yield store
        finally:
            store.close()
    finally:
        lock.release()


def _credentials(store: MetadataStore) -> Iterator[tuple[Key, ScramCredential]]:
    for row in store.rows():
        if row.table == SCRAM and row.value is not None:
            yield from_row(row.key, row.value)


def _write(store: MetadataStore, key: Key, credential: ScramCredential | None) -> None:
    others = sum(found != key for found, _ in _credentials(store))
    count = others + (credential is not None)
    try:
        store.write([scram_row(key, credential), Row(CLUSTER, count_key(SCRAM), str(count))])
    except KafkaError as error:
        raise ConfigError(str(error)) from None
