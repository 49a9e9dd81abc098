"""Delegation tokens: what there is. Their secrets are left where they came from."""

from dataclasses import dataclass

from odradek.client.client_error import refusal
from odradek.client.cluster import ANY_NODE, Cluster
from odradek.wire.errors import ErrorCode, error_of
from odradek.wire.messages.describe_delegation_token import DescribeDelegationTokenRequest


@dataclass(frozen=True, slots=True, order=True)
class Token:
    """A delegation token without its secret; times in ms since 1970."""

    token_id: str
    owner: str
    """TYPE:NAME, as the other principals."""
    requester: str | None
    """Principal that asked for it; None before Kafka 3.3."""
    renewers: tuple[str, ...]
    issue_time_ms: int
    expiry_time_ms: int
    max_time_ms: int


def describe_tokens(cluster: Cluster) -> list[Token]:
    """Tokens that the user may see, sorted by id. ClientError for a refusal."""
    response = cluster.ask(ANY_NODE, DescribeDelegationTokenRequest(owners=None))
    if response.error_code != ErrorCode.NONE:
        raise refusal("listing delegation tokens", error_of(response.error_code))
    return sorted(
        Token(
            one.token_id,
            f"{one.principal_type}:{one.principal_name}",
            f"{one.token_requester_principal_type}:{one.token_requester_principal_name}"
            if one.token_requester_principal_type
            else None,
            tuple(sorted(f"{by.principal_type}:{by.principal_name}" for by in one.renewers)),
            one.issue_timestamp,
            one.expiry_timestamp,
            one.max_timestamp,
        )
        for one in response.tokens
    )
