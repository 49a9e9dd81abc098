"""Delegation tokens of a broker: clients make them, log in with them, and are out when they have ended."""

import base64
import time

import pytest

from odradek import Broker
from odradek.coordinator.security.delegation_tokens import NO_TOKENS, TokenSecret
from odradek.embedding.free_port import free_port
from odradek.server.security import tokens
from odradek.server.security.tokens import TokenLogins
from odradek.wire.errors import ErrorCode
from odradek.wire.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialUpsertion,
)
from odradek.wire.messages.create_delegation_token import CreatableRenewers, CreateDelegationTokenRequest
from odradek.wire.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from odradek.wire.messages.describe_delegation_token import (
    DescribeDelegationTokenOwner,
    DescribeDelegationTokenRequest,
)
from odradek.wire.messages.expire_delegation_token import ExpireDelegationTokenRequest
from odradek.wire.messages.metadata import MetadataRequest
from odradek.wire.messages.renew_delegation_token import RenewDelegationTokenRequest
from odradek.wire.messages.sasl_authenticate import SaslAuthenticateRequest
from odradek.wire.messages.sasl_handshake import SaslHandshakeRequest
from odradek.wire.scram import ScramClient, salted_password
from tests.raw_client import RawClient

PATIENCE_S = 30
SECRET = "the-secret-of-the-tokens"
MECHANISMS = ("SCRAM-SHA-256", "SCRAM-SHA-512")
JAAS = (
    "org.apache.kafka.common.security.plain.PlainLoginModule required "
    "user_ann='pw-of-ann' user_bob='pw-of-bob' user_carl='pw-of-carl';"
)
OPTIONS = {
    "listeners": "SASL_PLAINTEXT://127.0.0.1:0",
    "sasl.enabled.mechanisms": ",".join(("PLAIN", *MECHANISMS)),
    "security.inter.broker.protocol": "SASL_PLAINTEXT",
    "listener.name.sasl_plaintext.plain.sasl.jaas.config": JAAS,
    "connection.failed.authentication.delay.ms": "10",
}
WITH_TOKENS = {**OPTIONS, "delegation.token.secret.key": SECRET}


@pytest.fixture(scope="module")
def broker():
    with Broker(options=WITH_TOKENS) as one:
        yield one


def as_user(broker, name):
    client = RawClient(broker.port)
    assert client.ask(SaslHandshakeRequest(mechanism="PLAIN"), 1).error_code == 0
    token = f"\0{name}\0pw-of-{name}".encode()
    assert client.ask(SaslAuthenticateRequest(auth_bytes=token), 2).error_code == 0
    return client


def log_in(client, token_id, hmac, mechanism="SCRAM-SHA-256", extensions="tokenauth=true"):
    """The last answer."""
    assert client.ask(SaslHandshakeRequest(mechanism=mechanism), 1).error_code == 0
    scram = ScramClient(mechanism, token_id, base64.b64encode(hmac).decode(), "nonce", extensions)
    challenge = client.ask(SaslAuthenticateRequest(auth_bytes=scram.first), 2)
    assert challenge.error_code == 0
    answer = client.ask(SaslAuthenticateRequest(auth_bytes=scram.final(bytes(challenge.auth_bytes))), 2)
    if answer.error_code == 0:
        scram.verify(bytes(answer.auth_bytes))
    return answer


def create(broker, user="ann", *, life_ms=-1, renewers=(), owner=(None, None), version=3):
    request = CreateDelegationTokenRequest(
        renewers=[CreatableRenewers(principal_type=kind, principal_name=name) for kind, name in renewers],
        max_lifetime_ms=life_ms,
    )
    if version >= 3:
        request.owner_principal_type, request.owner_principal_name = owner
    with as_user(broker, user) as client:
        return client.ask(request, version)


def described(broker, user, owners=None):
    wanted = None
    if owners is not None:
        wanted = [DescribeDelegationTokenOwner(principal_type="User", principal_name=one) for one in owners]
    with as_user(broker, user) as client:
        return client.ask(DescribeDelegationTokenRequest(owners=wanted), 3)


def expire(broker, user, hmac, period_ms=-1):
    with as_user(broker, user) as client:
        return client.ask(ExpireDelegationTokenRequest(hmac=hmac, expiry_time_period_ms=period_ms), 2)


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_a_token_lets_in_as_its_owner_until_it_is_removed(broker, mechanism):
    made = create(broker)
    assert (made.error_code, made.principal_name, len(made.hmac)) == (0, "ann", 64)
    for _ in range(2):  # at first its keys are made, then they are known
        with RawClient(broker.port) as client:
            answer = log_in(client, made.token_id, made.hmac, mechanism)
            assert answer.error_code == 0
            assert 86_000_000 < answer.session_lifetime_ms <= 86_400_000
            assert client.ask(MetadataRequest(topics=[]), 9).brokers
            # Who is known by a token may not ask for another one, nor see any.
            refused = client.ask(CreateDelegationTokenRequest(renewers=[], max_lifetime_ms=-1), 3)
            assert refused.error_code == ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
            assert refused.principal_name == "ann"
            refused = client.ask(DescribeDelegationTokenRequest(owners=None), 3)
            assert refused.error_code == ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
    assert expire(broker, "ann", made.hmac).error_code == 0
    with RawClient(broker.port) as client:
        assert log_in(client, made.token_id, made.hmac, mechanism).error_code == 58


def test_a_token_is_no_user_and_a_user_no_token(broker):
    made = create(broker)
    for token_id, hmac, extensions in (
        (made.token_id, made.hmac, ""),
        (made.token_id, made.hmac, "tokenauth=false"),
        (made.token_id, made.hmac[:-1] + b"x", "tokenauth=true"),
        ("ann", made.hmac, "tokenauth=true"),
        ("nothing-of-this", made.hmac, "tokenauth=true"),
    ):
        with RawClient(broker.port) as client:
            answer = log_in(client, token_id, hmac, extensions=extensions)
            assert answer.error_code == 58, (token_id, extensions)
            assert answer.error_message == "The client could not be authenticated with SCRAM-SHA-256."
    with RawClient(broker.port) as client:
        assert log_in(client, made.token_id, made.hmac, extensions="x=y,tokenauth=True").error_code == 0


def test_a_token_that_has_expired_lets_nobody_in(broker):
    made = create(broker, life_ms=1)
    assert made.expiry_timestamp_ms == made.max_timestamp_ms == made.issue_timestamp_ms + 1
    with RawClient(broker.port) as client:
        assert log_in(client, made.token_id, made.hmac).error_code == 58
    with as_user(broker, "ann") as client:
        answer = client.ask(RenewDelegationTokenRequest(hmac=made.hmac, renew_period_ms=-1), 2)
        assert answer.error_code == ErrorCode.DELEGATION_TOKEN_EXPIRED


def ask_for_ever(client):
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        client.ask(MetadataRequest(topics=[]), 9)


def test_a_session_ends_with_its_token(broker):
    made = create(broker, life_ms=2000)
    with RawClient(broker.port) as client:
        answer = log_in(client, made.token_id, made.hmac)
        assert 0 < answer.session_lifetime_ms <= 2000
        assert client.ask(MetadataRequest(topics=[]), 9).brokers
        with pytest.raises((ConnectionError, EOFError)):
            ask_for_ever(client)


def test_a_session_without_an_end_may_follow_one_that_has_ended(broker):
    salted = salted_password(1, "pw==", b"a salt of the test", 4096)
    with as_user(broker, "bob") as client:
        own = ScramCredentialUpsertion(
            name="ann", mechanism=1, iterations=4096, salt=b"a salt of the test", salted_password=salted
        )
        (altered,) = client.ask(AlterUserScramCredentialsRequest(deletions=[], upsertions=[own]), 0).results
        assert altered.error_code == 0
    made = create(broker, life_ms=1000)
    with RawClient(broker.port) as client:
        assert 0 < log_in(client, made.token_id, made.hmac).session_lifetime_ms <= 1000
        # The end of a session has no sign: the client has to wait for it.
        ends = time.monotonic() + 1.05
        while time.monotonic() < ends:
            time.sleep(0.005)
        again = log_in(client, "ann", base64.b64decode("pw=="), extensions="")
        assert (again.error_code, again.session_lifetime_ms) == (0, 0)
        assert client.ask(MetadataRequest(topics=[]), 9).brokers


def salt_of_nobody(broker):
    with RawClient(broker.port) as client:
        assert client.ask(SaslHandshakeRequest(mechanism="SCRAM-SHA-256"), 1).error_code == 0
        first = ScramClient("SCRAM-SHA-256", "nobody", "x", "nonce").first
        challenge = client.ask(SaslAuthenticateRequest(auth_bytes=first), 2)
        return bytes(challenge.auth_bytes).split(b",s=")[1]


def test_nodes_with_one_key_of_tokens_give_an_unknown_user_one_salt(broker):
    with Broker(options=WITH_TOKENS) as other:
        assert salt_of_nobody(other) == salt_of_nobody(broker)
    with Broker(options={**WITH_TOKENS, "delegation.token.secret.key": "another"}) as other:
        assert salt_of_nobody(other) != salt_of_nobody(broker)


def test_renewers_renew_and_others_do_not(broker):
    made = create(broker, renewers=[("User", "bob")])
    renewal = RenewDelegationTokenRequest(hmac=made.hmac, renew_period_ms=5_000)
    with as_user(broker, "bob") as client:
        answer = client.ask(renewal, 2)
        assert answer.error_code == 0
        assert answer.expiry_timestamp_ms < made.expiry_timestamp_ms
    with as_user(broker, "carl") as client:
        answer = client.ask(renewal, 2)
        assert answer.error_code == ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH
    assert expire(broker, "carl", made.hmac).error_code == ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH
    assert expire(broker, "bob", b"nothing").error_code == ErrorCode.DELEGATION_TOKEN_NOT_FOUND
    assert create(broker, renewers=[("Group", "x")]).error_code == ErrorCode.INVALID_PRINCIPAL_TYPE


def test_a_token_for_another_owner_shows_who_has_asked(broker):
    """Without an authorizer everybody may create and see all."""
    made = create(broker, "bob", owner=("User", "ann"))
    assert (made.principal_name, made.token_requester_principal_name) == ("ann", "bob")
    listed = {one.token_id: one for one in described(broker, "carl", ["bob"]).tokens}
    assert listed[made.token_id].token_requester_principal_name == "bob"
    assert listed[made.token_id].hmac == made.hmac
    assert made.token_id in {one.token_id for one in described(broker, "bob").tokens}
    assert described(broker, "ann", []).tokens == []
    assert described(broker, "ann", ["nobody"]).tokens == []


def test_a_token_of_an_owner_that_is_no_user_lets_nobody_in(broker):
    """It would become the user of the same name."""
    made = create(broker, "bob", owner=("Group", "ann"))
    assert (made.error_code, made.principal_type) == (0, "Group")
    with RawClient(broker.port) as client:
        assert log_in(client, made.token_id, made.hmac).error_code == 58


def test_tokens_are_not_for_clients_that_nobody_knows():
    port = free_port()
    listeners = f"SASL_PLAINTEXT://127.0.0.1:0,PLAINTEXT://127.0.0.1:{port}"
    with Broker(options={**WITH_TOKENS, "listeners": listeners}), RawClient(port) as client:
        answer = client.ask(CreateDelegationTokenRequest(renewers=[], max_lifetime_ms=-1), 3)
        assert answer.error_code == ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED


@pytest.mark.parametrize("version", range(4))
def test_every_version_makes_a_token(broker, version):
    made = create(broker, version=version)
    assert (made.error_code, len(made.hmac)) == (0, 64)


def test_without_the_secret_there_are_no_tokens():
    with Broker(options=OPTIONS) as broker:
        assert create(broker).error_code == ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED
        assert described(broker, "ann").error_code == ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED
        assert expire(broker, "ann", b"x").error_code == ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED
        with RawClient(broker.port) as client:
            assert log_in(client, "a", b"b").error_code == 58


def test_tokens_outlive_a_start_and_their_passwords_are_not_stored(tmp_path):
    with Broker(options=WITH_TOKENS, data_dir=tmp_path) as broker:
        kept, removed = create(broker), create(broker)
        assert expire(broker, "ann", removed.hmac).error_code == 0
    content = b"".join(path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())
    assert kept.token_id.encode() in content
    for text in (kept.hmac, kept.hmac.hex().encode(), base64.b64encode(kept.hmac), SECRET.encode()):
        assert text not in content
    with Broker(options=WITH_TOKENS, data_dir=tmp_path) as broker:
        assert [one.token_id for one in described(broker, "ann").tokens] == [kept.token_id]
        with RawClient(broker.port) as client:
            assert log_in(client, kept.token_id, kept.hmac).error_code == 0
    other = {**WITH_TOKENS, "delegation.token.secret.key": "another"}
    with Broker(options=other, data_dir=tmp_path) as broker, RawClient(broker.port) as client:
        assert log_in(client, kept.token_id, kept.hmac).error_code == 58


def test_expired_tokens_are_removed_by_and_by():
    options = {**WITH_TOKENS, "delegation.token.expiry.check.interval.ms": "50"}
    with Broker(options=options) as broker:
        kept, expired = create(broker), create(broker, life_ms=1)
        for _ in range(1000):
            ids = {one.token_id for one in described(broker, "ann").tokens}
            if expired.token_id not in ids:
                break
        assert ids == {kept.token_id}


def test_a_bounded_number_of_credentials_is_remembered(monkeypatch):
    monkeypatch.setattr(tokens, "CREDENTIALS_MAX", 2)
    logins = TokenLogins(TokenSecret(SECRET), lambda: NO_TOKENS)
    made = [logins.credential(name, 1, b"salt") for name in ("a", "b", "c")]
    known = [logins.known_credential(name, 1, b"salt") for name in ("a", "b", "c")]
    assert known == [None, *made[1:]]
    assert logins.known_credential("c", 2, b"salt") is None
    assert logins.known_credential("c", 1, b"other") is None


def test_keys_of_removed_tokens_are_forgotten():
    present = {}
    views = [present]
    logins = TokenLogins(TokenSecret(SECRET), lambda: views[-1])
    present.update(gone=object(), stays=object())
    for name in present:
        logins.credential(name, 1, b"salt")
    views.append({"stays": present["stays"], "new": object()})
    logins.credential("new", 1, b"salt")
    assert [logins.known_credential(name, 1, b"salt") is None for name in ("gone", "stays", "new")] == [
        True,
        False,
        False,
    ]


def test_the_secret_is_not_described(broker):
    with as_user(broker, "ann") as client:
        (node,) = client.ask(MetadataRequest(topics=[]), 9).brokers
        wanted = DescribeConfigsResource(
            resource_type=4, resource_name=str(node.node_id), configuration_keys=None
        )
        (found,) = client.ask(DescribeConfigsRequest(resources=[wanted]), 4).results
    (secret,) = [one for one in found.configs if one.name == "delegation.token.secret.key"]
    assert (secret.value, secret.is_sensitive) == (None, True)
    assert SECRET not in repr(found)
