"""Which tokens a client is shown."""

from types import SimpleNamespace

import pytest

from odradek.apis.delegation_tokens import DescribeDelegationToken
from odradek.coordinator.security.delegation_tokens import (
    DelegationToken,
    DelegationTokens,
    TokenRules,
    TokenSecret,
)
from odradek.wire.acl_types import ResourceType
from odradek.wire.messages.describe_delegation_token import (
    DescribeDelegationTokenOwner,
    DescribeDelegationTokenRequest,
)

ANN, BOB, CARL = "User:ann", "User:bob", "User:carl"
TOKENS = DelegationTokens(
    {
        token_id: DelegationToken(token_id, owner, requester, renewers, 1, 9, 5)
        for token_id, owner, requester, renewers in (
            ("a", ANN, ANN, ()),
            ("b", BOB, ANN, ()),
            ("c", BOB, BOB, (ANN,)),
            ("d", BOB, BOB, ()),
            ("e", CARL, CARL, ()),
        )
    }
)


@pytest.mark.parametrize(
    ("owners", "permitted", "shown"),
    [
        (None, (), "abc"),
        (None, ("d",), "abcd"),
        (None, (CARL,), "abce"),
        (None, ("d", "e", BOB), "abcde"),
        ({BOB}, (), "bc"),
        ({BOB}, (BOB,), "bcd"),
        ({CARL}, ("d",), ""),
        (set(), (ANN, BOB, CARL), ""),
    ],
)
def test_a_client_sees_its_own_tokens_and_those_that_it_may_describe_by_id_or_owner(owners, permitted, shown):
    asked = []

    def hidden_names(operation, resource_type, names):
        asked.extend(names)
        assert resource_type in (ResourceType.DELEGATION_TOKEN, ResourceType.USER)
        return {name for name in names if name not in permitted}

    parts = SimpleNamespace(
        current_view=lambda: SimpleNamespace(delegation_tokens=TOKENS),
        rules=TokenRules(TokenSecret("secret")),
        refuses=lambda connection: False,
    )
    context = SimpleNamespace(
        connection=SimpleNamespace(principal=ANN), hidden_names=hidden_names, api_version=3
    )
    named = None
    if owners is not None:
        parted = [one.split(":") for one in owners]
        named = [
            DescribeDelegationTokenOwner(principal_type=kind, principal_name=name) for kind, name in parted
        ]
    answer = DescribeDelegationToken(parts)(DescribeDelegationTokenRequest(owners=named), context)
    assert "".join(one.token_id for one in answer.tokens) == shown
    assert not {"a", "b", "c"} & {*asked}, "nothing of the client itself is asked for"
