"""DescribeUserScramCredentials (key 50, version 0) and AlterUserScramCredentials (51, 0): users and their
passwords for SCRAM.

The client has hashed the password with the salt; the keys that follow from it are stored
(`coordinator/security/scram_users.py`). In a cluster the controllers change users; any node describes them.

Source: ScramImage.describe and ScramControlManager of Kafka 4.3; KIP-554.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from odradek.apis.access import on_cluster
from odradek.apis.api import WorkResponse
from odradek.apis.declaration import Api, Forwarding, SharedApi
from odradek.apis.refusals import Refusal
from odradek.coordinator.cluster.draft import at_once
from odradek.coordinator.security.scram_users import Deletion, Upsertion
from odradek.wire.acl_types import Operation
from odradek.wire.errors import ErrorCode, KafkaError
from odradek.wire.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    AlterUserScramCredentialsResult,
)
from odradek.wire.messages.describe_user_scram_credentials import (
    CredentialInfo,
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    DescribeUserScramCredentialsResult,
)

if TYPE_CHECKING:
    from odradek.apis.api import RequestContext
    from odradek.apis.refusals import Item
    from odradek.apis.turn import WorkQueue
    from odradek.coordinator.cluster.decisions import Decisions
    from odradek.coordinator.cluster.view import ClusterView
    from odradek.coordinator.security.scram_users import ScramCredential
    from odradek.wire.work import Work


class DescribeUserScramCredentials:
    """The handler."""

    def __init__(self, current_view: Callable[[], ClusterView]) -> None:
        self._current_view = current_view

    def __call__(
        self, request: DescribeUserScramCredentialsRequest, context: RequestContext
    ) -> DescribeUserScramCredentialsResponse:
        """Null or an empty list stands for all users."""
        names = None if request.users is None else [user.name for user in request.users]
        found = self._current_view().scram_users.described(names)
        return DescribeUserScramCredentialsResponse(
            error_code=ErrorCode.NONE,
            error_message="",
            results=[_described(user, one) for user, one in found.items()],
        )


def _described(
    user: str, found: KafkaError | Mapping[int, ScramCredential]
) -> DescribeUserScramCredentialsResult:
    if isinstance(found, KafkaError):
        return DescribeUserScramCredentialsResult(
            user=user, error_code=found.code, error_message=found.message, credential_infos=[]
        )
    infos = [CredentialInfo(mechanism=number, iterations=one.iterations) for number, one in found.items()]
    return DescribeUserScramCredentialsResult(
        user=user, error_code=ErrorCode.NONE, error_message="", credential_infos=infos
    )


class AlterUserScramCredentials:
    """The handler of a node alone."""

    def __init__(self, machine: Decisions, work: WorkQueue) -> None:
        self._machine = machine
        self._work = work

    def __call__(self, request: AlterUserScramCredentialsRequest, context: RequestContext) -> WorkResponse:
        # The request is a view of the receive buffer, which does not stay.
        deletions = [Deletion(one.name, one.mechanism) for one in request.deletions]
        upsertions = [
            Upsertion(one.name, one.mechanism, one.iterations, bytes(one.salt), bytes(one.salted_password))
            for one in request.upsertions
        ]
        return WorkResponse(self._work, self._alter(deletions, upsertions), context)

    def _alter(
        self, deletions: list[Deletion], upsertions: list[Upsertion]
    ) -> Work[AlterUserScramCredentialsResponse]:
        try:
            results = yield from self._machine.changing(
                at_once(lambda draft: draft.alter_scram_users(deletions, upsertions))
            )
        except KafkaError as error:
            users = [one.user for one in deletions] + [one.user for one in upsertions]
            results = dict.fromkeys(users, error)
        return AlterUserScramCredentialsResponse(
            results=[
                AlterUserScramCredentialsResult(
                    user=user,
                    error_code=ErrorCode.NONE if error is None else error.code,
                    error_message=None if error is None else error.message,
                )
                for user, error in results.items()
            ]
        )


def _results_of_described(request: DescribeUserScramCredentialsRequest) -> list[Item]:
    """One result for each user, without its name, as in Kafka. For all users Kafka does not answer at all."""
    return [({"user": ""}, None) for _ in request.users or ()]


def _results_of_altered(request: AlterUserScramCredentialsRequest) -> list[Item]:
    users = [one.name for one in request.deletions] + [one.name for one in request.upsertions]
    return [({"user": user}, None) for user in dict.fromkeys(users)]


APIS = (
    Api(
        DescribeUserScramCredentialsRequest,
        DescribeUserScramCredentialsResponse,
        make=lambda parts: DescribeUserScramCredentials(parts.node.current_view),
        needs=(on_cluster(Operation.DESCRIBE),),
        refusal=Refusal(results=("results", _results_of_described), has_message=False),
    ),
    SharedApi(
        AlterUserScramCredentialsRequest,
        AlterUserScramCredentialsResponse,
        make=lambda parts: AlterUserScramCredentials(parts.node.machine, parts.node.changes),
        needs=(on_cluster(Operation.ALTER),),
        changes=True,
        forwarded=Forwarding.AS_IT_COMES,
        refusal=Refusal(results=("results", _results_of_altered)),
    ),
)
