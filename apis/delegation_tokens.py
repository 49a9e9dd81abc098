"""CreateDelegationToken (key 38, versions 0 to 3), RenewDelegationToken (39, 0 to 2), ExpireDelegationToken
(40, 0 to 2) and DescribeDelegationToken (41, 0 to 3): passwords for a while, with which other clients act as
their owner.

Only a client that is known without such a token may ask: not on a plaintext listener, nor on one of TLS
without a certificate. A node alone changes tokens itself. In a cluster the controllers do, and each node
describes those of its view; all have the same `delegation.token.secret.key`.

Sources: KafkaApis and DelegationTokenControlManager of Kafka 4.3; KIP-48, KIP-373.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from odradek.apis.access import Need
from odradek.apis.api import Waiting, WorkResponse
from odradek.apis.declaration import Api, Forwarding, SharedApi
from odradek.coordinator.security.delegation_tokens import (
    USER,
    Change,
    DelegationToken,
    DelegationTokens,
    TokenRules,
)
from odradek.wire.acl_types import Operation, ResourceType
from odradek.wire.errors import ErrorCode, KafkaError
from odradek.wire.messages.create_delegation_token import (
    CreateDelegationTokenRequest,
    CreateDelegationTokenResponse,
)
from odradek.wire.messages.describe_delegation_token import (
    DescribedDelegationToken,
    DescribedDelegationTokenRenewer,
    DescribeDelegationTokenRequest,
    DescribeDelegationTokenResponse,
)
from odradek.wire.messages.expire_delegation_token import (
    ExpireDelegationTokenRequest,
    ExpireDelegationTokenResponse,
)
from odradek.wire.messages.renew_delegation_token import (
    RenewDelegationTokenRequest,
    RenewDelegationTokenResponse,
)
from odradek.wire.schema import uuid_to_text

if TYPE_CHECKING:
    from odradek.apis.api import ConnectionInfo, RequestContext
    from odradek.apis.declaration import AnyApi
    from odradek.apis.node import Forward, SharedApiParts
    from odradek.apis.turn import WorkQueue
    from odradek.coordinator.cluster.decisions import Decisions
    from odradek.coordinator.cluster.draft import Draft
    from odradek.coordinator.cluster.view import ClusterView
    from odradek.wire.work import Work

FIRST_VERSION_WITH_OWNER = 3
NO_TIME_MS = -1
ANONYMOUS = "User:ANONYMOUS"
PLAINTEXT, SSL = "PLAINTEXT", "SSL"

Judge = Callable[[DelegationTokens, bool], Change]
"""Takes the tokens, and whether the cluster has them; may refuse."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenParts:
    """Parts of the node that the handlers need."""

    rules: TokenRules
    protocols: Mapping[str, str]
    """The security protocol of each listener that is not PLAINTEXT."""
    current_view: Callable[[], ClusterView]
    machine: Decisions | None
    """None: the controllers change tokens."""
    work: WorkQueue
    forwarding: Forward | None
    """Sends requests to the controllers; None where `machine` is."""

    def refuses(self, connection: ConnectionInfo) -> bool:
        """Whether the connection may not ask for tokens at all."""
        protocol = self.protocols.get(connection.listener_name, PLAINTEXT)
        is_unknown = protocol == PLAINTEXT or (protocol == SSL and connection.principal == ANONYMOUS)
        return is_unknown or connection.is_token

    def forward(self, api: AnyApi, request: Any, context: RequestContext) -> Waiting:
        from odradek.apis.forwarding import Forwarded

        assert self.forwarding is not None
        return Forwarded(api, self.forwarding)(request, context)


def token_parts(parts: SharedApiParts) -> TokenParts:
    """The token parts of a node."""
    node, settings = parts.node, parts.settings
    return TokenParts(
        rules=settings.token_rules,
        protocols=settings.security_protocols,
        current_view=node.current_view,
        machine=node.machine if node.forward is None else None,
        work=node.changes,
        forwarding=node.forward,
    )


class CreateDelegationToken:
    """The handler."""

    def __init__(self, parts: TokenParts) -> None:
        self._parts = parts

    def __call__(
        self, request: CreateDelegationTokenRequest, context: RequestContext
    ) -> CreateDelegationTokenResponse | Waiting:
        requester = context.connection.principal
        owner = requester
        if request.owner_principal_name:
            owner = f"{request.owner_principal_type or ''}:{request.owner_principal_name}"
        code = self._refusal(request, owner, context)
        version = context.api_version
        if code is not ErrorCode.NONE:
            return _not_created(code, owner, requester, version, NO_TIME_MS)
        if self._parts.machine is None:
            return self._parts.forward(CREATE, request, context)
        renewers = [f"{one.principal_type}:{one.principal_name}" for one in request.renewers]
        work = self._create(owner, requester, renewers, request.max_lifetime_ms, context.now_ms, version)
        return WorkResponse(self._parts.work, work, context)

    def _refusal(
        self, request: CreateDelegationTokenRequest, owner: str, context: RequestContext
    ) -> ErrorCode:
        if self._parts.refuses(context.connection):
            return ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
        if owner != context.connection.principal and context.refused_names(
            Operation.CREATE_TOKENS, ResourceType.USER, [owner]
        ):
            return ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED
        if any(one.principal_type != USER for one in request.renewers):
            return ErrorCode.INVALID_PRINCIPAL_TYPE
        return ErrorCode.NONE

    def _create(
        self, owner: str, requester: str, renewers: list[str], life_ms: int, now_ms: int, version: int
    ) -> Work[CreateDelegationTokenResponse]:
        machine, rules = self._parts.machine, self._parts.rules
        assert machine is not None
        token_id = uuid_to_text(machine.new_id())

        def edit(draft: Draft) -> Work[tuple[DelegationToken, bytes]]:
            yield None
            token, hmac = rules.create(
                *(token_id, owner, requester, renewers, life_ms, now_ms),
                tokens=draft.tokens,
                are_supported=draft.has_tokens,
            )
            draft.change_tokens({token_id: token})
            return token, hmac

        try:
            token, hmac = yield from machine.changing(edit)
        except KafkaError as error:
            return _not_created(error.code, owner, requester, version)
        return _created(token, hmac, version)


def _created(token: DelegationToken, hmac: bytes, version: int) -> CreateDelegationTokenResponse:
    response = _not_created(ErrorCode.NONE, token.owner, token.requester, version)
    response.issue_timestamp_ms, response.max_timestamp_ms = token.issued_ms, token.max_ms
    response.expiry_timestamp_ms = token.expiry_ms
    response.token_id, response.hmac = token.token_id, hmac
    return response


def _not_created(
    code: ErrorCode, owner: str, requester: str, version: int, time_ms: int = 0
) -> CreateDelegationTokenResponse:
    """Response of a refusal. In Kafka `time_ms` is -1 if a broker refuses, and 0 if a controller does."""
    owner_type, _, owner_name = owner.partition(":")
    response = CreateDelegationTokenResponse(
        error_code=code,
        principal_type=owner_type,
        principal_name=owner_name,
        issue_timestamp_ms=time_ms,
        expiry_timestamp_ms=time_ms,
        max_timestamp_ms=time_ms,
        token_id="",
        hmac=b"",
    )
    if version >= FIRST_VERSION_WITH_OWNER:
        requester_type, _, requester_name = requester.partition(":")
        response.token_requester_principal_type = requester_type
        response.token_requester_principal_name = requester_name
    return response


class RenewDelegationToken:
    """The handler."""

    def __init__(self, parts: TokenParts) -> None:
        self._parts = parts

    def __call__(
        self, request: RenewDelegationTokenRequest, context: RequestContext
    ) -> RenewDelegationTokenResponse | Waiting:
        parts = self._parts
        # The request is a view of the receive buffer, which does not stay.
        hmac, renewal_ms = bytes(request.hmac), request.renew_period_ms
        principal, now_ms = context.connection.principal, context.now_ms

        def judge(tokens: DelegationTokens, are_supported: bool) -> Change:
            return parts.rules.renew(hmac, principal, renewal_ms, tokens, now_ms, are_supported=are_supported)

        response: RenewDelegationTokenResponse | Waiting = _changing(
            parts, RENEW, request, context, judge, RenewDelegationTokenResponse
        )
        return response


class ExpireDelegationToken:
    """The handler."""

    def __init__(self, parts: TokenParts) -> None:
        self._parts = parts

    def __call__(
        self, request: ExpireDelegationTokenRequest, context: RequestContext
    ) -> ExpireDelegationTokenResponse | Waiting:
        parts = self._parts
        hmac, period_ms = bytes(request.hmac), request.expiry_time_period_ms
        principal, now_ms = context.connection.principal, context.now_ms

        def judge(tokens: DelegationTokens, are_supported: bool) -> Change:
            return parts.rules.expire(hmac, principal, period_ms, tokens, now_ms, are_supported=are_supported)

        response: ExpireDelegationTokenResponse | Waiting = _changing(
            parts, EXPIRE, request, context, judge, ExpireDelegationTokenResponse
        )
        return response


def _changing(
    parts: TokenParts,
    api: AnyApi,
    request: Any,
    context: RequestContext,
    judge: Judge,
    response: Callable[..., Any],
) -> Any:
    """Changes one token, here or at the controllers."""
    if parts.refuses(context.connection):
        code = ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
        return response(error_code=code, expiry_timestamp_ms=NO_TIME_MS)
    machine = parts.machine
    if machine is None:
        return parts.forward(api, request, context)

    def edit(draft: Draft) -> Work[int]:
        yield None
        change = judge(draft.tokens, draft.has_tokens)
        draft.change_tokens({change.token_id: change.token})
        return change.expiry_ms

    def work() -> Work[Any]:
        try:
            expiry_ms = yield from machine.changing(edit)
        except KafkaError as error:
            return response(error_code=error.code, expiry_timestamp_ms=0)
        return response(error_code=ErrorCode.NONE, expiry_timestamp_ms=expiry_ms)

    return WorkResponse(parts.work, work(), context)


class DescribeDelegationToken:
    """The handler."""

    def __init__(self, parts: TokenParts) -> None:
        self._parts = parts

    def __call__(
        self, request: DescribeDelegationTokenRequest, context: RequestContext
    ) -> DescribeDelegationTokenResponse:
        """Null stands for all owners."""
        parts = self._parts
        secret = parts.rules.secret
        if parts.refuses(context.connection):
            return _described(ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED)
        if secret is None:
            return _described(ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED)
        owners = None
        if request.owners is not None:
            owners = {f"{one.principal_type}:{one.principal_name}" for one in request.owners}
        tokens = self._listed(owners, context)
        version = context.api_version
        return _described(
            ErrorCode.NONE, *(_description(one, secret.hmac_of(one.token_id), version) for one in tokens)
        )

    def _listed(self, owners: set[str] | None, context: RequestContext) -> list[DelegationToken]:
        principal = context.connection.principal
        wanted = self._parts.current_view().delegation_tokens.of(owners)
        others = [one for one in wanted if not one.concerns(principal)]
        hidden_ids = context.hidden_names(
            Operation.DESCRIBE, ResourceType.DELEGATION_TOKEN, [one.token_id for one in others]
        )
        hidden_owners = context.hidden_names(
            Operation.DESCRIBE_TOKENS, ResourceType.USER, [one.owner for one in others]
        )
        hidden = {one.token_id for one in others if one.token_id in hidden_ids and one.owner in hidden_owners}
        return [one for one in wanted if one.token_id not in hidden]


def _described(code: ErrorCode, *tokens: DescribedDelegationToken) -> DescribeDelegationTokenResponse:
    return DescribeDelegationTokenResponse(error_code=code, tokens=list(tokens))


def _description(token: DelegationToken, hmac: bytes, version: int) -> DescribedDelegationToken:
    owner_type, _, owner_name = token.owner.partition(":")
    described = DescribedDelegationToken(
        principal_type=owner_type,
        principal_name=owner_name,
        issue_timestamp=token.issued_ms,
        expiry_timestamp=token.expiry_ms,
        max_timestamp=token.max_ms,
        token_id=token.token_id,
        hmac=hmac,
        renewers=[_renewer(one) for one in token.renewers],
    )
    if version >= FIRST_VERSION_WITH_OWNER:
        kind, _, name = token.requester.partition(":")
        described.token_requester_principal_type = kind
        described.token_requester_principal_name = name
    return described


def _renewer(principal: str) -> DescribedDelegationTokenRenewer:
    kind, _, name = principal.partition(":")
    return DescribedDelegationTokenRenewer(principal_type=kind, principal_name=name)


CREATE = SharedApi(
    CreateDelegationTokenRequest,
    CreateDelegationTokenResponse,
    make=lambda parts: CreateDelegationToken(parts.shared(token_parts)),
    needs=(Need(Operation.CREATE_TOKENS, ResourceType.USER),),
    changes=True,
    forwarded=Forwarding.AFTER_CHECKS,
)
RENEW = SharedApi(
    RenewDelegationTokenRequest,
    RenewDelegationTokenResponse,
    make=lambda parts: RenewDelegationToken(parts.shared(token_parts)),
    needs=(),
    changes=True,
    forwarded=Forwarding.AFTER_CHECKS,
)
EXPIRE = SharedApi(
    ExpireDelegationTokenRequest,
    ExpireDelegationTokenResponse,
    make=lambda parts: ExpireDelegationToken(parts.shared(token_parts)),
    needs=(),
    changes=True,
    forwarded=Forwarding.AFTER_CHECKS,
)
DESCRIBE = Api(
    DescribeDelegationTokenRequest,
    DescribeDelegationTokenResponse,
    make=lambda parts: DescribeDelegationToken(parts.shared(token_parts)),
    needs=(
        Need(Operation.DESCRIBE, ResourceType.DELEGATION_TOKEN),
        Need(Operation.DESCRIBE_TOKENS, ResourceType.USER),
    ),
)
APIS = (CREATE, RENEW, EXPIRE, DESCRIBE)
