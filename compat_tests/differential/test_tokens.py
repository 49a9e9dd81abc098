"""Delegation tokens and OAUTHBEARER: the same requests to Kafka and to Odradek, on SASL listeners.

Kafka signs nothing here: its default handler takes unsigned tokens, and ours is told to do so. Ids, HMACs and
times are not compared, but how they belong together.
"""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from compat_tests.broker_host import shared_host
from compat_tests.clients import wait_until
from compat_tests.differential.harness import SECONDS
from compat_tests.differential.test_sasl import (
    ATTEMPTS,
    LISTING,
    Ports,
    assert_alike,
    assert_all_alike,
    bare,
    prove,
    shake,
    transcript,
)
from compat_tests.secured import LISTENER, SecuredKafka, secured_odradek
from compat_tests.token_client import Client, creation, described, ids, made_by
from odradek.wire.messages.describe_delegation_token import (
    DescribeDelegationTokenRequest,
)
from odradek.wire.messages.expire_delegation_token import ExpireDelegationTokenRequest
from odradek.wire.messages.renew_delegation_token import RenewDelegationTokenRequest
from odradek.wire.messages.sasl_authenticate import SaslAuthenticateRequest
from odradek.wire.messages.sasl_handshake import SaslHandshakeRequest
from odradek.wire.schema import Message

DAY_MS = 86_400_000
VERSIONS = (1, 2, 3)
"""Of Create and Describe; Renew and Expire end with 2. Kafka 4.3 closes the connection of a version 0."""
PACKAGE = "org.apache.kafka.common.security.oauthbearer"
PREFIX = f"listener.name.{LISTENER.lower()}.oauthbearer"
UNSIGNED_HANDLER = f"{PACKAGE}.internals.unsecured.OAuthBearerUnsecuredValidatorCallbackHandler"
SETTINGS = {
    "delegation.token.secret.key": "the secret of this test",
    "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512,OAUTHBEARER",
    f"{PREFIX}.sasl.server.callback.handler.class": UNSIGNED_HANDLER,
    f"{PREFIX}.sasl.jaas.config": (
        f'{PACKAGE}.OAuthBearerLoginModule required unsecuredValidatorRequiredScope="a" '
        # With any option a broker of Kafka needs a token of its own.
        'unsecuredLoginStringClaim_sub="admin";'
    ),
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:admin;User:ANONYMOUS",
}


class TokenKafka(SecuredKafka):
    def __init__(self, settings: dict[str, str]) -> None:
        super().__init__(host=shared_host())
        self._properties.update(settings)


@pytest.fixture(scope="module")
def ports(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ports]:
    with (
        TokenKafka(SETTINGS) as kafka,
        secured_odradek(tmp_path_factory.mktemp("data"), SETTINGS) as ours,
    ):
        yield Ports(kafka.port, ours.port)


@pytest.fixture(scope="module")
def ports_without_tokens(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ports]:
    with SecuredKafka(host=shared_host()) as kafka, secured_odradek(tmp_path_factory.mktemp("data")) as ours:
        yield Ports(kafka.port, ours.port)


def both(ports: Ports, scenario: Callable[[int], Any]) -> None:
    theirs, ours = scenario(ports.kafka), scenario(ports.odradek)
    assert ours == theirs


def shown_creation(answer: Any) -> Any:
    if answer is None:
        return None
    begin_ms = answer.issue_timestamp_ms if answer.error_code == 0 else 0
    return (
        answer.error_code,
        (answer.principal_type, answer.principal_name),
        (answer.token_requester_principal_type, answer.token_requester_principal_name),
        answer.expiry_timestamp_ms - begin_ms,
        answer.max_timestamp_ms - begin_ms,
        answer.issue_timestamp_ms - begin_ms,
        len(answer.token_id),
        len(answer.hmac),
        answer.throttle_time_ms,
    )


CREATIONS: dict[str, dict[str, Any]] = {
    "plain": {},
    "short": {"life_ms": 5000},
    "zero": {"life_ms": 0},
    "long": {"life_ms": 2**63 - 1},
    "two days": {"life_ms": 2 * DAY_MS},
    "renewers": {"renewers": [("User", "bob"), ("User", "bob"), ("User", "")]},
    "a group as a renewer": {"renewers": [("User", "bob"), ("Group", "x")]},
    "a renewer without a type": {"renewers": [("", "bob")]},
}
OWNERS: dict[str, dict[str, Any]] = {
    "itself": {"owner": ("User", "ann")},
    "another": {"owner": ("User", "bob")},
    "another, and a group as a renewer": {"owner": ("User", "bob"), "renewers": [("Group", "x")]},
    "another type": {"owner": ("Group", "ann")},
    "an empty name": {"owner": ("User", "")},
    "an empty name of an unknown type": {"owner": ("x", "")},
    "a type without a name": {"owner": ("User", None)},
}


@pytest.mark.parametrize("user", ["ann", "admin"])
@pytest.mark.parametrize("version", VERSIONS)
def test_creations_are_alike(ports: Ports, version: int, user: str) -> None:
    def scenario(port: int) -> Any:
        with Client(port) as client:
            client.as_user(user)
            cases = CREATIONS if version < 3 else CREATIONS | OWNERS
            return {
                name: shown_creation(client.ask(creation(version, **case), version))
                for name, case in cases.items()
            }

    both(ports, scenario)


def test_nothing_is_made_without_a_secret(ports_without_tokens: Ports) -> None:
    def scenario(port: int) -> Any:
        seen = []

        def ask(request: Message, version: int) -> Any:
            with Client(port) as client:
                return client.as_user("ann").ask(request, version)

        for version in VERSIONS:
            seen.append(shown_creation(ask(creation(version), version)))
            seen.append(shown_creation(ask(creation(version, [("Group", "x")]), version)))
            seen.append(str(ask(DescribeDelegationTokenRequest(owners=None), version)))
        for version in VERSIONS[:-1]:
            seen.append(str(ask(RenewDelegationTokenRequest(hmac=b"x", renew_period_ms=-1), version)))
            seen.append(str(ask(ExpireDelegationTokenRequest(hmac=b"x", expiry_time_period_ms=-1), version)))
        return seen

    both(ports_without_tokens, scenario)


@pytest.mark.parametrize("version", VERSIONS[:-1])
def test_renewals_and_expiries_are_alike(ports: Ports, version: int) -> None:
    def scenario(port: int) -> Any:
        seen: list[Any] = []
        made = made_by(port, "ann", renewers=[("User", "bob")], life_ms=3_600_000)
        hmac = bytes(made.hmac)
        for user in ("ann", "bob", "admin"):
            with Client(port) as client:
                client.as_user(user)
                for period_ms in (-1, 0, 2**62, 60_000_000):
                    for secret in (hmac, b"", b"wrong", hmac[:-1]):
                        renewal = RenewDelegationTokenRequest(hmac=secret, renew_period_ms=period_ms)
                        answer = client.ask(renewal, version)
                        rest_ms = answer.expiry_timestamp_ms - made.max_timestamp_ms
                        seen.append((answer.error_code, rest_ms if not answer.error_code else None))
                        seen.append(answer.expiry_timestamp_ms if answer.error_code else None)
        for user in ("admin", "bob"):
            with Client(port) as client:
                client.as_user(user)
                for secret, period_ms in ((b"wrong", -1), (hmac, 2**62), (hmac, -1)):
                    expiry = ExpireDelegationTokenRequest(hmac=secret, expiry_time_period_ms=period_ms)
                    answer = client.ask(expiry, version)
                    seen.append((answer.error_code, answer.expiry_timestamp_ms > 0))
        with Client(port) as client:
            client.as_user("ann")
            wait_until(lambda: made.token_id not in ids(client), "its end", seconds=SECONDS)
            expiry = ExpireDelegationTokenRequest(hmac=hmac, expiry_time_period_ms=-1)
            seen.append(client.ask(expiry, version).error_code)
        return seen

    both(ports, scenario)


def test_expired_tokens_are_alike(ports: Ports) -> None:
    def scenario(port: int) -> Any:
        made = made_by(port, "ann", life_ms=3000)
        time.sleep(max(0, made.max_timestamp_ms / 1000 + 0.1 - time.time()))  # its end has no other sign
        seen: list[Any] = []
        for user in ("ann", "bob"):
            with Client(port) as client:
                client.as_user(user)
                for period_ms in (5, -1):
                    renewal = RenewDelegationTokenRequest(hmac=made.hmac, renew_period_ms=period_ms)
                    seen.append(client.ask(renewal, 2).error_code)
                expiry = ExpireDelegationTokenRequest(hmac=made.hmac, expiry_time_period_ms=5)
                seen.append(client.ask(expiry, 2).error_code)
                seen.append(made.token_id in ids(client))
        with Client(port) as client:
            expiry = ExpireDelegationTokenRequest(hmac=made.hmac, expiry_time_period_ms=-1)
            seen.append(client.as_user("ann").ask(expiry, 2).error_code)
        return seen

    both(ports, scenario)


def test_descriptions_are_alike(ports: Ports) -> None:
    def scenario(port: int) -> Any:
        anns = made_by(port, "ann", renewers=[("User", "carl")])
        bobs = made_by(port, "admin", owner=("User", "bob"))
        names = {anns.token_id: "ann's", bobs.token_id: "bob's"}
        seen: list[Any] = []
        for user in ("ann", "bob", "admin"):
            with Client(port) as client:
                client.as_user(user)
                for version in VERSIONS:
                    for owners in (None, [], ["ann"], ["bob"], ["carl"], ["ann", "bob"], ["nobody"]):
                        answer = described(client, owners, version)
                        seen.append((answer.error_code, user, version, owners))
                        seen.append(
                            sorted(shown_token(one, names) for one in answer.tokens if one.token_id in names)
                        )
        for made, user in ((anns, "ann"), (bobs, "bob")):
            with Client(port) as client:
                expiry = ExpireDelegationTokenRequest(hmac=made.hmac, expiry_time_period_ms=-1)
                assert client.as_user(user).ask(expiry, 2).error_code == 0
        return seen

    def shown_token(one: Any, names: dict[str, str]) -> Any:
        return (
            names[one.token_id],
            (one.principal_type, one.principal_name),
            (one.token_requester_principal_type, one.token_requester_principal_name),
            [(each.principal_type, each.principal_name) for each in one.renewers],
            one.max_timestamp - one.issue_timestamp,
            one.expiry_timestamp - one.issue_timestamp,
            len(one.hmac),
        )

    both(ports, scenario)


def test_logins_with_a_token_are_alike(ports: Ports) -> None:
    def scenario(port: int) -> Any:
        made = made_by(port, "ann")
        seen: list[Any] = []
        for mechanism in ("SCRAM-SHA-256", "SCRAM-SHA-512"):
            for extension in ("tokenauth=true", "tokenauth=TRUE", "tokenauth=false", "x=true"):
                with Client(port) as client:
                    code = client.with_token(made, mechanism, extension)
                    seen.append((mechanism, extension, code))
                    if code:
                        continue
                    seen.append(shown_creation(client.ask(creation(3, owner=("User", "bob")), 3)))
                    seen.append(described(client).error_code)
                    renewal = RenewDelegationTokenRequest(hmac=made.hmac, renew_period_ms=5)
                    seen.append(str(client.ask(renewal, 2)))
                    expiry = ExpireDelegationTokenRequest(hmac=made.hmac, expiry_time_period_ms=5)
                    seen.append(str(client.ask(expiry, 2)))
        return seen

    both(ports, scenario)


def test_a_token_beside_another_extension_gets_in_with_odradek_in_any_order(ports: Ports) -> None:
    """A process of Kafka takes one order, by chance: it puts the proved message together again from a map."""

    def codes(port: int) -> set[int]:
        made = made_by(port, "ann")
        found = set()
        for extensions in ("tokenauth=true,x=y", "x=y,tokenauth=true"):
            with Client(port) as client:
                found.add(client.with_token(made, "SCRAM-SHA-256", extensions))
        return found

    assert codes(ports.kafka) == {0, 58}
    assert codes(ports.odradek) == {0}


# OAUTHBEARER


def part(value: Any) -> str:
    content = value if isinstance(value, bytes) else json.dumps(value).encode()
    return base64.urlsafe_b64encode(content).rstrip(b"=").decode()


def jws(header: Any = None, **more: Any) -> str:
    """`...` leaves a claim out."""
    now_s = int(time.time())
    claims = {"sub": "ann", "scope": ["a", "b"], "iat": now_s - 5, "exp": now_s + 3600, **more}
    left = {name: one for name, one in claims.items() if one is not ...}
    return f"{part({'alg': 'none'} if header is None else header)}.{part(left)}."


def bearer(token: str, before: str = "n,,", after: str = "") -> bytes:
    return f"{before}\x01auth=Bearer {token}\x01{after}\x01".encode()


OAUTH_ROWS: dict[str, Callable[[], bytes]] = {
    "right": lambda: bearer(jws()),
    "with extensions": lambda: bearer(jws(), after="a=b\x01c=d e\x01"),
    "the same authorization id": lambda: bearer(jws(), "n,a=ann,"),
    "another authorization id": lambda: bearer(jws(), "n,a=bob,"),
    "scope as a text": lambda: bearer(jws(scope="a")),
    "without a time of issue": lambda: bearer(jws(iat=...)),
    "a fraction of a second": lambda: bearer(jws(exp=time.time() + 60.5)),
    "expired": lambda: bearer(jws(iat=1, exp=2)),
    "issued later": lambda: bearer(jws(iat=int(time.time()) + 600)),
    "without an end": lambda: bearer(jws(exp=...)),
    "an end that is a text": lambda: bearer(jws(exp="soon")),
    "without a subject": lambda: bearer(jws(sub=...)),
    "a blank subject": lambda: bearer(jws(sub=" ")),
    "a subject that is a list": lambda: bearer(jws(sub=["ann"])),
    "too small a scope": lambda: bearer(jws(scope=["b"])),
    "without a scope": lambda: bearer(jws(scope=...)),
    "a scope of words in one text": lambda: bearer(jws(scope="a b")),
    "another algorithm": lambda: bearer(jws({"alg": "HS256"})),
    "with a signature": lambda: bearer(jws() + "x"),
    "two parts": lambda: bearer("a.b"),
    "nonsense": lambda: bearer("nonsense"),
    "no JSON": lambda: bearer(f"{part(b'{')}.{part(b'{')}."),
    "no message": lambda: b"nonsense",
    "nothing": lambda: b"",
    "the last byte at first": lambda: b"\x01",
    "no auth": lambda: b"n,,\x01a=b\x01\x01",
    "channel binding": lambda: bearer(jws(), "y,,"),
    "no end": lambda: bearer(jws())[:-1],
}


def oauth_transcript(port: int, first: bytes, second: bytes | None) -> list[Any]:
    """What comes of a first message, and of a second one if there is no end after it."""
    steps: list[Any] = [shake("OAUTHBEARER"), prove(first)]
    if second is not None:
        steps.append(prove(second))
    seen = transcript(port, [*steps, LISTING])
    for one in seen:
        if isinstance(one, tuple) and isinstance(one[0], dict) and one[0].get("lifetime"):
            # To the second: both have looked at the clock.
            one[0]["lifetime"] = round(one[0]["lifetime"], -4)
    return seen


def test_each_dialogue_of_oauthbearer_is_alike(ports: Ports) -> None:
    def dialogue(first: Callable[[], bytes], second: bytes) -> Callable[[int], list[Any]]:
        return lambda port: oauth_transcript(port, first(), second)

    rows = {
        f"{name}, then {second!r}": dialogue(first, second)
        for name, first in OAUTH_ROWS.items()
        for second in (b"\x01", b"nonsense")
    }
    assert_all_alike(ports, rows)


def test_another_token_after_a_refused_one_is_alike(ports: Ports) -> None:
    assert_alike(ports, lambda port: oauth_transcript(port, bearer(jws(iat=1, exp=2)), bearer(jws())))


def test_bare_tokens_of_oauthbearer_are_alike(ports: Ports) -> None:
    """But the time of the end: Kafka waits for the delay only where it has a sentence of its own."""

    def scenario(port: int) -> Any:
        seen: list[Any] = []
        for token in (bearer(jws()), bearer(jws(iat=1, exp=2)), b"nonsense"):
            steps = transcript(port, [shake("OAUTHBEARER", 0), bare(token), LISTING])
            seen += ["closed" if one[0] == "closed" else one for one in steps]
        return seen

    both(ports, scenario)


def test_another_scheme_than_bearer_gets_an_answer_from_odradek_alone(ports: Ports) -> None:
    steps = [shake("OAUTHBEARER"), prove(f"n,,\x01auth=Basic {jws()}\x01\x01".encode())]
    ends = (transcript(ports.kafka, steps)[1] for _ in range(ATTEMPTS))
    assert ("closed", "at once") in ends, "a busy machine is late now and then"
    assert transcript(ports.odradek, steps)[1][0]["error_code"] == 58


@pytest.mark.parametrize("row", ["expired", "too small a scope"])
def test_the_refusal_of_a_token_has_the_same_text(ports: Ports, row: str) -> None:
    def scenario(port: int) -> Any:
        with Client(port) as client:
            client.ask(SaslHandshakeRequest(mechanism="OAUTHBEARER"), 1)
            told = client.ask(SaslAuthenticateRequest(auth_bytes=OAUTH_ROWS[row]()), 2)
            last = client.ask(SaslAuthenticateRequest(auth_bytes=b"\x01"), 2)
            return bytes(told.auth_bytes), told.error_code, last.error_code, last.error_message

    both(ports, scenario)


def test_another_token_renews_a_session_alike(ports: Ports) -> None:
    def scenario(port: int) -> Any:
        seen: list[Any] = []
        for again in (jws(), jws(sub="bob"), jws(iat=1, exp=2)):
            steps = [shake("OAUTHBEARER"), prove(bearer(jws())), shake("OAUTHBEARER"), prove(bearer(again))]
            for one in transcript(port, [*steps, prove(b"\x01"), LISTING]):
                if isinstance(one, tuple) and isinstance(one[0], dict):
                    one[0].pop("lifetime", None)
                seen.append(one)
        return seen

    assert_alike(ports, scenario)
