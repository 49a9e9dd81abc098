"""DescribeUserScramCredentials (key 50, version 0) and AlterUserScramCredentials (51, 0): users and their
passwords for SCRAM.

There are none yet, as there is no SASL. Requests are checked as Kafka checks them, and a credential that
Kafka would store is refused with UNSUPPORTED_VERSION, Kafka's code for a metadata.version without SCRAM.

Source: ScramImage.describe and ScramControlManager of Kafka 4.3; KIP-554.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING

from odradek.coordinator.cluster.features import METADATA_VERSION, SCRAM_SINCE
from odradek.wire.errors import ErrorCode, KafkaError
from odradek.wire.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    AlterUserScramCredentialsResult,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from odradek.wire.messages.describe_user_scram_credentials import (
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    DescribeUserScramCredentialsResult,
)

if TYPE_CHECKING:
    from odradek.apis.api import RequestContext
    from odradek.coordinator.cluster.view import ClusterView

Alteration = ScramCredentialDeletion | ScramCredentialUpsertion

SCRAM_SHA_256, SCRAM_SHA_512 = 1, 2
ITERATIONS_MIN, ITERATIONS_MAX = 4096, 16384


def describe_user_scram_credentials(
    request: DescribeUserScramCredentialsRequest, context: RequestContext
) -> DescribeUserScramCredentialsResponse:
    """The handler: null or an empty list stands for all users, and there are none."""
    results = []
    for name, count in Counter(user.name for user in request.users or ()).items():
        code = ErrorCode.RESOURCE_NOT_FOUND if count == 1 else ErrorCode.DUPLICATE_RESOURCE
        what = "does not exist" if count == 1 else "was asked for twice"
        results.append(
            DescribeUserScramCredentialsResult(
                user=name,
                error_code=code,
                error_message=f"Attempt to describe a user credential that {what}: {name}",
                credential_infos=[],
            )
        )
    return DescribeUserScramCredentialsResponse(error_code=0, error_message="", results=results)


class AlterUserScramCredentials:
    """The handler."""

    def __init__(self, current_view: Callable[[], ClusterView]) -> None:
        self._current_view = current_view

    def __call__(
        self, request: AlterUserScramCredentialsRequest, context: RequestContext
    ) -> AlterUserScramCredentialsResponse:
        """Each user has one result. As in Kafka, the first refusal of a user stays; a second valid alteration
        of a user is refused.
        """
        refusals: dict[str, KafkaError] = {}
        sound: dict[str, None] = {}
        alterations: list[Alteration] = [*request.deletions, *request.upsertions]
        for one in alterations:
            if one.name in refusals:
                continue
            try:
                self._check(one, is_second=one.name in sound)
            except KafkaError as error:
                refusals[one.name] = error
            else:
                sound[one.name] = None
        not_built = KafkaError(
            ErrorCode.UNSUPPORTED_VERSION, "Odradek keeps no SCRAM credentials yet; nothing was changed."
        )
        refusals = {**dict.fromkeys(sound, not_built), **refusals}
        return AlterUserScramCredentialsResponse(
            results=[
                AlterUserScramCredentialsResult(user=name, error_code=error.code, error_message=error.message)
                for name, error in refusals.items()
            ]
        )

    def _check(self, one: Alteration, *, is_second: bool) -> None:
        if is_second:
            raise KafkaError(
                ErrorCode.DUPLICATE_RESOURCE, "A user credential cannot be altered twice in the same request"
            )
        if self._current_view().features.get(METADATA_VERSION, 0) < SCRAM_SINCE:
            raise KafkaError(
                ErrorCode.UNSUPPORTED_VERSION, f"The current {METADATA_VERSION} does not support SCRAM"
            )
        if not one.name:
            raise KafkaError(ErrorCode.UNACCEPTABLE_CREDENTIAL, "Username must not be empty")
        if one.mechanism not in (SCRAM_SHA_256, SCRAM_SHA_512):
            raise KafkaError(ErrorCode.UNSUPPORTED_SASL_MECHANISM, "Unknown SCRAM mechanism")
        if isinstance(one, ScramCredentialDeletion):
            raise KafkaError(
                ErrorCode.RESOURCE_NOT_FOUND, "Attempt to delete a user credential that does not exist"
            )
        if not ITERATIONS_MIN <= one.iterations <= ITERATIONS_MAX:
            many = "few" if one.iterations < ITERATIONS_MIN else "many"
            raise KafkaError(ErrorCode.UNACCEPTABLE_CREDENTIAL, f"Too {many} iterations")
