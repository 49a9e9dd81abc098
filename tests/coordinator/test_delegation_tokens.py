import hashlib
import hmac
import json

import pytest

from odradek.coordinator.security import delegation_tokens
from odradek.coordinator.security.delegation_tokens import (
    NO_TOKENS,
    DelegationToken,
    DelegationTokens,
    TokenRules,
    TokenSecret,
    from_row,
)
from odradek.wire.errors import ErrorCode, KafkaError

SECRET = "a secret of the cluster"
DAY_MS = 86_400_000
RULES = TokenRules(TokenSecret(SECRET))
ANN, BOB, CARL = "User:ann", "User:bob", "User:carl"


def hmac_of(token_id, secret=SECRET):
    return hmac.digest(secret.encode(), token_id.encode(), hashlib.sha512)


def created(life_ms=-1, *, token_id="t", renewers=(BOB,), now_ms=0, rules=RULES):
    token, password = rules.create(
        token_id, ANN, ANN, renewers, life_ms, now_ms, tokens=NO_TOKENS, are_supported=True
    )
    assert password == hmac_of(token_id)
    return token


def tokens(*these):
    return DelegationTokens({one.token_id: one for one in these})


def code(judge, *arguments, **more):
    with pytest.raises(KafkaError) as refused:
        judge(*arguments, **more)
    return refused.value.code


@pytest.mark.parametrize(
    ("life_ms", "max_ms", "expiry_ms"),
    [
        (-1, 7 * DAY_MS, DAY_MS),
        (0, 7 * DAY_MS, DAY_MS),
        (1, 1, 1),
        (2 * DAY_MS, 2 * DAY_MS, DAY_MS),
        (8 * DAY_MS, 7 * DAY_MS, DAY_MS),
        (2**63 - 1, 7 * DAY_MS, DAY_MS),
    ],
)
def test_a_token_lives_as_long_as_is_asked_for_within_the_bounds(life_ms, max_ms, expiry_ms):
    token = created(life_ms, now_ms=100)
    assert (token.issued_ms, token.max_ms, token.expiry_ms) == (100, 100 + max_ms, 100 + expiry_ms)


def test_no_time_is_beyond_64_bits():
    rules = TokenRules(TokenSecret(SECRET), 2**63 - 1, 2**63 - 1)
    token = created(rules=rules, now_ms=100)
    assert (token.max_ms, token.expiry_ms) == (2**63 - 1, 2**63 - 1)
    change = rules.expire(hmac_of("t"), ANN, 2**63 - 1, tokens(token), 200, are_supported=True)
    assert change.expiry_ms == 2**63 - 1


def test_one_client_cannot_fill_the_memory(monkeypatch):
    def refusal(owner=ANN, renewers=(), known=NO_TOKENS):
        return code(RULES.create, "new", owner, ANN, renewers, -1, 0, tokens=known, are_supported=True)

    assert refusal(owner="User:" + "x" * 4_092) == ErrorCode.POLICY_VIOLATION
    assert refusal(renewers=["User:b"] * 700) == ErrorCode.POLICY_VIOLATION
    monkeypatch.setattr(delegation_tokens, "TOKENS_OF_ONE_MAX", 2)
    one, two, three = (created(token_id=name) for name in "abc")
    assert refusal(known=tokens(one, two, three)) == ErrorCode.POLICY_VIOLATION
    others = tokens(one, two._replace(requester=BOB), three._replace(requester=BOB))
    assert RULES.create("new", ANN, ANN, (), -1, 0, tokens=others, are_supported=True)[0].token_id == "new"


@pytest.mark.parametrize(
    ("renewal_ms", "expiry_ms"),
    [(-1, 100 + DAY_MS), (0, 100 + DAY_MS), (5, 105), (2 * DAY_MS, 100 + DAY_MS)],
)
def test_owner_and_renewers_renew_within_the_bounds(renewal_ms, expiry_ms):
    known = tokens(created())
    for principal in (ANN, BOB):
        change = RULES.renew(hmac_of("t"), principal, renewal_ms, known, 100, are_supported=True)
        assert change.token == known.get("t")._replace(expiry_ms=expiry_ms)
        assert change.expiry_ms == expiry_ms


def test_a_renewal_ends_at_the_latest_with_the_life_of_the_token():
    change = RULES.renew(hmac_of("t"), ANN, -1, tokens(created(1000)), 900, are_supported=True)
    assert change.expiry_ms == 1000


def test_refusals_come_in_the_order_of_kafka():
    off, known, ended = TokenRules(None), tokens(created()), tokens(created(1))
    right, wrong = hmac_of("t"), hmac_of("t", "another secret")

    def refusal(rules, name, hmac, principal, table=known, now_ms=0, *, are_supported=True):
        judge = getattr(rules, name)
        return code(judge, hmac, principal, 5, table, now_ms, are_supported=are_supported)

    for name in ("renew", "expire"):
        assert refusal(off, name, wrong, CARL) == ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED
        assert refusal(RULES, name, wrong, CARL, are_supported=False) == ErrorCode.UNSUPPORTED_VERSION
        assert refusal(RULES, name, wrong, CARL) == ErrorCode.DELEGATION_TOKEN_NOT_FOUND
        assert refusal(RULES, name, b"", CARL) == ErrorCode.DELEGATION_TOKEN_NOT_FOUND
        assert refusal(RULES, name, right, CARL) == ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH
        assert refusal(RULES, name, right, ANN, ended, 9) == ErrorCode.DELEGATION_TOKEN_EXPIRED
    assert refusal(RULES, "renew", right, CARL, ended, 9) == ErrorCode.DELEGATION_TOKEN_EXPIRED
    assert refusal(RULES, "expire", right, CARL, ended, 9) == ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH
    for rules, expected in (
        (off, ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED),
        (RULES, ErrorCode.UNSUPPORTED_VERSION),
    ):
        wanted = ("t", ANN, ANN, (), -1, 0)
        assert code(rules.create, *wanted, tokens=NO_TOKENS, are_supported=False) == expected


def test_a_negative_period_removes_a_token_that_has_expired_too():
    change = RULES.expire(hmac_of("t"), BOB, -1, tokens(created(1)), 9, are_supported=True)
    assert (change.token_id, change.token, change.expiry_ms) == ("t", None, 9)
    assert tokens(created()).with_changes({"t": None}) == NO_TOKENS


def test_a_period_is_from_now_on_and_within_the_life():
    known = tokens(created(1000))
    assert RULES.expire(hmac_of("t"), ANN, 0, known, 500, are_supported=True).expiry_ms == 500
    assert RULES.expire(hmac_of("t"), ANN, 5000, known, 500, are_supported=True).expiry_ms == 1000


def test_an_hmac_finds_its_token_after_each_change_of_the_table():
    secret = TokenSecret(SECRET)
    one, two = created(), created(token_id="u")
    assert secret.token_of(hmac_of("t"), tokens(one)) == one
    assert secret.token_of(hmac_of("u"), tokens(one)) is None
    assert secret.token_of(hmac_of("u"), tokens(one, two)) == two
    assert secret.token_of(hmac_of("t"), tokens(two)) is None
    renewed = one._replace(expiry_ms=7)
    assert secret.token_of(hmac_of("t"), tokens(renewed, two)) == renewed


def test_a_secret_does_not_print():
    assert SECRET not in repr(RULES)
    assert SECRET not in repr(TokenSecret(SECRET))


def test_expired_tokens_are_those_whose_time_is_before_now():
    known = tokens(created(10), created(20, token_id="u"))
    assert known.over(10) == []
    assert [one.token_id for one in known.over(11)] == ["t"]
    assert len(known.over(21)) == 2


@pytest.mark.parametrize(
    ("owners", "found"),
    [
        (None, "abc"),
        (set(), ""),
        ({ANN}, "ab"),
        ({BOB}, "ab"),
        ({CARL}, "bc"),
        ({"User:dora", CARL}, "bc"),
        ({"User:dora"}, ""),
    ],
)
def test_the_tokens_of_owners_are_those_that_concern_any_of_them(owners, found):
    known = tokens(
        created(token_id="a"),
        created(token_id="b")._replace(requester=CARL),
        created(token_id="c", renewers=())._replace(owner=CARL, requester=CARL),
    )
    assert "".join(one.token_id for one in known.of(owners)) == found
    for owner in owners or ():
        assert all(one.concerns(owner) is one.concerns_any({owner}) for one in known.by_id.values())


def test_a_row_comes_back():
    token = DelegationToken("an id", 'User:"ann"', CARL, (BOB, "User:d,e"), 1, 2, 2**63 - 1)
    text = json.dumps(token[1:])
    assert from_row("an id", text) == token


@pytest.mark.parametrize(
    "text",
    ["", "{}", "[]", '["a", "b", [], 1, 2]', '["a", "b", [3], 1, 2, 3]', '["a", "b", [], 1, 2, true]', "nul"],
)
def test_a_row_that_makes_no_sense_is_none(text):
    with pytest.raises(ValueError):  # noqa: PT011
        from_row("t", text)
