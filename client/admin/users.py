"""Users for SCRAM: their credentials, adding and removing them."""

import secrets
from collections.abc import Sequence
from dataclasses import dataclass

from odradek.client.admin.asking import ask_controller, controller_of
from odradek.client.client_error import refusal
from odradek.client.cluster import Cluster
from odradek.wire.errors import ErrorCode, error_of
from odradek.wire.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from odradek.wire.messages.describe_user_scram_credentials import (
    DescribeUserScramCredentialsRequest,
    UserName,
)
from odradek.wire.scram import MECHANISM_NAMES, MECHANISM_NUMBERS, salted_password

_SALT_BYTES = 32


@dataclass(frozen=True, slots=True, order=True)
class Credential:
    """That a user can log in by a mechanism; brokers tell neither password nor keys."""

    user: str
    mechanism: str
    iterations: int


def describe_users(cluster: Cluster, users: Sequence[str] | None = None) -> list[Credential]:
    """The credentials of users, sorted; None: of all. Users without any are left out."""
    names = None if users is None else [UserName(name=name) for name in sorted(set(users))]
    response = cluster.ask(controller_of(cluster), DescribeUserScramCredentialsRequest(users=names))
    if response.error_code != ErrorCode.NONE:
        raise refusal("listing users", error_of(response.error_code), response.error_message)
    found = []
    for result in response.results:
        if result.error_code not in (ErrorCode.NONE, ErrorCode.RESOURCE_NOT_FOUND):
            raise refusal(f"describing user {result.user}", error_of(result.error_code), result.error_message)
        found += [
            Credential(result.user, MECHANISM_NAMES.get(one.mechanism, str(one.mechanism)), one.iterations)
            for one in result.credential_infos
        ]
    return sorted(found)


def put_user(cluster: Cluster, user: str, mechanism: str, password: str, iterations: int) -> None:
    """Makes a credential, or replaces it. What is sent is salted and hashed. ClientError for a refusal."""
    number, salt = MECHANISM_NUMBERS[mechanism], secrets.token_bytes(_SALT_BYTES)
    upsertion = ScramCredentialUpsertion(
        name=user,
        mechanism=number,
        iterations=iterations,
        salt=salt,
        salted_password=salted_password(number, password, salt, iterations),
    )
    _alter(
        cluster, AlterUserScramCredentialsRequest(deletions=[], upsertions=[upsertion]), f"adding user {user}"
    )


def remove_user(cluster: Cluster, user: str, mechanism: str) -> None:
    """Removes a credential. ClientError for a refusal."""
    deletion = ScramCredentialDeletion(name=user, mechanism=MECHANISM_NUMBERS[mechanism])
    _alter(
        cluster,
        AlterUserScramCredentialsRequest(deletions=[deletion], upsertions=[]),
        f"removing user {user}",
    )


def _alter(cluster: Cluster, request: AlterUserScramCredentialsRequest, doing: str) -> None:
    for one in ask_controller(cluster, request).results:
        if one.error_code != ErrorCode.NONE:
            raise refusal(doing, error_of(one.error_code), one.error_message)
