"""Users for SCRAM that the environment names: those that a cluster does not have are made at a start."""

from __future__ import annotations

import secrets
from collections.abc import Iterable
from typing import TYPE_CHECKING

from odradek.coordinator.security.scram_users import Key, ScramCredential, credential_of
from odradek.server.security.sasl.scram import SALT_LENGTH, salt_text
from odradek.wire.scram import MECHANISM_NUMBERS, salted_password

if TYPE_CHECKING:
    from odradek.config.first_users import FirstUser
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
