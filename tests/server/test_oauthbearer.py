"""OAUTHBEARER: the dialogue, unsigned and signed tokens, and the keys of an authority, without a socket."""

import hashlib
import hmac
import itertools
import json
import random
import threading
import tracemalloc

import pytest

from odradek.config.config_error import ConfigError
from odradek.config.oauthbearer import SignedTokens, UnsignedTokens
from odradek.server.security import jwks as jwks_module
from odradek.server.security.jwks import Jwks, fetch
from odradek.server.security.sasl.mechanism import AuthenticationFailed, Later, Login
from odradek.server.security.sasl.oauthbearer import (
    MESSAGE_BYTES_MAX,
    SUBJECT_LENGTH_MAX,
    InvalidToken,
    OAuthBearerServer,
    UnsignedValidator,
)
from odradek.server.security.signed_tokens import SignedValidator, read_key_set
from tests.server.jwt_authority import jwk, jwks, new_key, part, signed, unsigned

NOW_S = 1_000_000
NOW_MS = NOW_S * 1000
SETTINGS = SignedTokens("file:/none", 60_000, 100, 1_000, 30, (), None, "sub", "scope")
KEY, OTHER_KEY = new_key(), new_key()


def claims(**more):
    found = {"sub": "ann", "iat": NOW_S, "exp": NOW_S + 60, **more}
    return {name: value for name, value in found.items() if value is not ...}


# The dialogue


class Known:
    """Knows the token `right` of ann."""

    def validate(self, token, now_ms):
        if token == "right":
            return Login("ann", now_ms + 5)
        raise InvalidToken("it is wrong", "[a]" if token == "small" else None)


def message(token="right", *, authorization_id="", extensions=""):
    return f"n,{authorization_id},\x01auth=Bearer {token}\x01{extensions}\x01".encode()


def respond(server, token):
    later = server.respond(token, NOW_MS)
    assert isinstance(later, Later)
    return later.call()


@pytest.mark.parametrize(
    "first",
    [
        message(),
        message(authorization_id="a=ann"),
        message(extensions="trace=x y=z\x01other=!\x01"),
        b"n,,\x01other=x\x01auth=bEARER   right\x01\x01",
        b"n,,\x01auth=Bearer wrong\x01auth=Bearer right\x01\x01",
    ],
)
def test_a_right_token_says_who_the_client_is(first):
    server = OAuthBearerServer(Known())
    assert respond(server, first) == b""
    assert server.login == Login("ann", NOW_MS + 5)


@pytest.mark.parametrize(
    "first",
    [
        b"",
        b"\x01",
        b"y,,\x01auth=Bearer right\x01\x01",
        b"n,,\x01\x01",
        b"n,,\x01auth=Basic right\x01\x01",
        b"n,,\x01auth=Bearer\x01\x01",
        b"n,,\x01auth=Bearer right\x01",
        b"n,,\x01auth=Bearer ri ght\x01\x01",
        b"n,,\x01auth=Bearer right\x01x1=y\x01\x01",
        b"n,,\x01auth=Bearer right\x01x=\x01\x01",
        b"n,,\x01auth=Bearer right\xff\x01\x01",
        b"n,a=,\x01auth=Bearer right\x01\x01",
        message("x" * 65_537),
        message(authorization_id="a=bob"),
    ],
)
def test_a_message_that_makes_no_sense_ends_the_authentication(first):
    server = OAuthBearerServer(Known())
    with pytest.raises(AuthenticationFailed) as failed:
        respond(server, first)
    assert server.login is None
    assert "right" not in failed.value.message


@pytest.mark.parametrize(
    ("token", "answer"),
    [
        ("wrong", {"status": "invalid_token"}),
        ("small", {"status": "insufficient_scope", "scope": "[a]"}),
    ],
)
def test_a_refused_token_is_told_as_json_and_then_the_authentication_fails(token, answer):
    server = OAuthBearerServer(Known())
    told = respond(server, message(token))
    assert (json.loads(told), server.login) == (answer, None)
    with pytest.raises(AuthenticationFailed) as failed:
        server.respond(b"\x01", NOW_MS)
    assert failed.value.message.encode() == told
    assert server.login is None


def test_the_byte_of_the_client_counts_after_a_refusal_only():
    server = OAuthBearerServer(Known())
    respond(server, message("wrong"))
    assert respond(server, message()) == b""
    with pytest.raises(AuthenticationFailed, match="no sense"):
        OAuthBearerServer(Known()).respond(b"\x01", NOW_MS)


def test_a_long_message_is_refused_before_it_is_read():
    for text in (
        message("x" * MESSAGE_BYTES_MAX),
        message(authorization_id="a=" + "a" * MESSAGE_BYTES_MAX),
        message(extensions="x=y\x01" * MESSAGE_BYTES_MAX),
    ):
        with pytest.raises(AuthenticationFailed, match="the message of OAUTHBEARER is too long"):
            OAuthBearerServer(Known()).respond(text, NOW_MS)


def test_the_longest_names_take_no_more_memory_than_some_copies_of_them():
    """A pattern that may give characters back remembers each of them."""
    text = message(authorization_id="a=" + "a" * (MESSAGE_BYTES_MAX - 100))
    tracemalloc.start()
    try:
        OAuthBearerServer(Known()).respond(text, NOW_MS)
        assert tracemalloc.get_traced_memory()[1] < 10 * MESSAGE_BYTES_MAX
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("subject", ["half \ud83d", "\udc80", "a" * (SUBJECT_LENGTH_MAX + 1)])
def test_a_subject_that_no_response_could_carry_is_refused(subject):
    for one, token in (
        (UnsignedValidator(UnsignedTokens()), unsigned(claims(sub=subject))),
        (validator(), signed(KEY, claims(sub=subject))),
    ):
        with pytest.raises(InvalidToken, match="its subject") as refused:
            one.validate(token, NOW_MS)
        assert refused.value.reason.isascii()
    whole = "\U0001f600" * SUBJECT_LENGTH_MAX
    assert validator().validate(signed(KEY, claims(sub=whole)), NOW_MS).name == whole


@pytest.mark.parametrize("seed", range(8))
def test_nothing_but_a_refusal_comes_of_nonsense(seed):
    """Flipped, lost and doubled bytes of messages with tokens of both kinds."""
    source = random.Random(seed)
    validators = [UnsignedValidator(UnsignedTokens()), validator()]
    messages = [message(unsigned(claims(sub="x"))), message(signed(KEY, claims(sub="x")))]
    refused = 0
    for number in range(400):
        content = bytearray(messages[number % 2])
        for _ in range(source.randint(1, 4)):
            at = source.randrange(len(content))
            piece = source.choice([b"", bytes([source.randrange(256)]), content[at : at + 9] * 2, b"."])
            content[at : at + source.randint(1, 3)] = piece
        server = OAuthBearerServer(validators[number // 2 % 2])
        try:
            answer = respond(server, bytes(content))
        except AuthenticationFailed:
            refused += 1
            continue
        # What is still right by chance is of the same user, or of nobody where there are keys.
        assert (answer == b"") == (server.login is not None)
        refused += server.login is None
    assert refused > 200


# Unsigned tokens


def test_an_unsigned_token_is_believed_where_the_listener_says_so():
    login = UnsignedValidator(UnsignedTokens()).validate(unsigned(claims()), NOW_MS)
    assert login == Login("ann", NOW_MS + 60_000)


@pytest.mark.parametrize(
    "token",
    [
        "",
        "x",
        "a.b.",
        "a.b.c",
        "..",
        unsigned(claims(sub=...)),
        unsigned(claims(sub="  ")),
        unsigned(claims(sub=7)),
        unsigned(claims(sub=None)),
        unsigned(claims(exp=...)),
        unsigned(claims(exp="soon")),
        unsigned(claims(exp=True)),
        unsigned(claims(exp=-1)),
        unsigned(claims(exp=10**400)),
        unsigned(claims(exp=NOW_S)),
        unsigned(claims(iat=NOW_S + 1)),
        unsigned(claims(iat=NOW_S + 60)),
        unsigned(claims(), {"alg": "RS256"}),
        unsigned(claims(), {}),
        unsigned(claims(), []),
        unsigned([]),
        unsigned(b"{"),
        unsigned(b'{"exp": Infinity, "sub": "ann"}'),
        unsigned(b"[" * 30_000),
        unsigned(claims()) + "x",
        signed(KEY, claims()),
    ],
    # One is signed anew in each process, and one is very long.
    ids=map(str, itertools.count()),
)
def test_an_unsigned_token_that_makes_no_sense_is_refused(token):
    with pytest.raises(InvalidToken) as refused:
        UnsignedValidator(UnsignedTokens()).validate(token, NOW_MS)
    assert refused.value.missing_scope is None


def test_options_say_which_claims_count():
    settings = UnsignedTokens("name", "may", ("a", "b"), 1_000)
    validator = UnsignedValidator(settings)
    right = claims(sub=..., name="bob", may=["b", " a ", "c"], exp=NOW_S, iat=NOW_S - 1)
    assert validator.validate(unsigned(right), NOW_MS).name == "bob"
    with pytest.raises(InvalidToken) as refused:
        validator.validate(unsigned({**right, "may": "a"}), NOW_MS)
    assert refused.value.missing_scope == "[a, b]"


# Signed tokens


def validator(*keys, misses=None, **more):
    fields = {name: more.get(name, getattr(SETTINGS, name)) for name in SETTINGS.__slots__}
    found = read_key_set(jwks(*(keys or (jwk(KEY, kid="k1"),))))
    return SignedValidator(SignedTokens(**fields), lambda: found, ([] if misses is None else misses).append)


@pytest.mark.parametrize(
    "algorithm", ["RS256", "RS512", "PS256", "PS384", "ES256", "ES384", "ES512", "EdDSA"]
)
def test_a_token_with_a_right_signature_says_who_the_client_is(algorithm):
    key = new_key(algorithm)
    one = validator(jwk(OTHER_KEY, kid="k0"), jwk(key, algorithm, kid="k1"))
    token = signed(key, claims(), algorithm=algorithm)
    assert one.validate(token, NOW_MS) == Login("ann", NOW_MS + 60_000)
    header, payload, signature = token.split(".")
    spoiled = part(claims(sub="admin"))
    for wrong in (
        f"{header}.{spoiled}.{signature}",
        f"{header}.{payload}.",
        f"{header}.{payload}",
        f"{header}.{payload}.{part(b'x' * 64)}",
    ):
        with pytest.raises(InvalidToken):
            one.validate(wrong, NOW_MS)


def test_an_unsigned_token_is_refused_where_there_are_keys():
    for header in ({"alg": "none"}, {"alg": "None"}, {"alg": "none", "kid": "k1"}, {}):
        with pytest.raises(InvalidToken):
            validator().validate(unsigned(claims(), header), NOW_MS)


def test_a_public_key_is_no_shared_secret():
    key = new_key("RS256")
    public = jwk(key, "RS256", kid="k1")
    from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

    pem = key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    secrets = [pem, json.dumps(public).encode(), b""]
    for secret in secrets:
        content = f"{part({'alg': 'HS256', 'kid': 'k1'})}.{part(claims())}"
        forged = f"{content}.{part(hmac.digest(secret, content.encode(), hashlib.sha256))}"
        with pytest.raises(InvalidToken, match="algorithm"):
            validator(public).validate(forged, NOW_MS)


def test_a_shared_secret_a_key_for_encryption_and_a_weak_key_are_no_keys():
    from cryptography.hazmat.primitives.asymmetric import rsa

    weak = rsa.generate_private_key(65537, 1024)
    for entry in (
        {"kty": "oct", "k": part(b"x" * 32), "kid": "k1"},
        jwk(KEY, kid="k1", use="enc"),
        jwk(KEY, kid="k1", key_ops=["sign"]),
        jwk(KEY, kid="k1", alg="RS256"),
        jwk(KEY, kid=7),
        jwk(weak, "RS256", kid="k1"),
        {"kty": "EC", "crv": "P-256", "x": "AA", "y": "AA", "kid": "k1"},
        {"kty": "EC", "kid": "k1"},
        "nonsense",
    ):
        with pytest.raises(ValueError, match="no key"):
            read_key_set(jwks(entry))
        assert len(read_key_set(jwks(entry, jwk(KEY, kid="k2"))).keys) == 1


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"{}", b'{"keys": 1}', b"[" * 30_000])
def test_what_is_no_jwks_is_refused(content):
    with pytest.raises(ValueError, match="it is no"):
        read_key_set(content)


def test_an_algorithm_has_to_fit_to_the_key():
    rsa_key = new_key("RS256")
    one = validator(jwk(rsa_key, "RS256", kid="k1", alg="RS256"))
    assert one.validate(signed(rsa_key, claims(), algorithm="RS256"), NOW_MS).name == "ann"
    with pytest.raises(InvalidToken):
        one.validate(signed(rsa_key, claims(), algorithm="PS256"), NOW_MS)
    with pytest.raises(InvalidToken):
        one.validate(signed(KEY, claims()), NOW_MS)


def test_a_token_that_names_no_key_has_to_leave_no_choice():
    token = signed(KEY, claims(), kid=None)
    assert validator().validate(token, NOW_MS).name == "ann"
    with pytest.raises(InvalidToken):
        validator(jwk(KEY, kid="k1"), jwk(OTHER_KEY, kid="k2")).validate(token, NOW_MS)


def test_an_unknown_key_is_asked_for():
    misses = []
    with pytest.raises(InvalidToken, match="is not known"):
        validator(misses=misses).validate(signed(KEY, claims(), kid="k2"), NOW_MS)
    assert misses == ["k2"]


@pytest.mark.parametrize(
    "wrong",
    [
        claims(exp=NOW_S - 30),
        claims(exp=...),
        claims(iat=...),
        claims(iat="now"),
        claims(iat=NOW_S + 61),
        claims(nbf=NOW_S + 31),
        claims(sub=...),
        claims(sub=" "),
        claims(sub=["ann"]),
        claims(scope=["a", "a"]),
        claims(scope=[""]),
        claims(scope=7),
        claims(scope=[7]),
    ],
)
def test_claims_that_make_no_sense_are_refused(wrong):
    with pytest.raises(InvalidToken):
        validator().validate(signed(KEY, wrong), NOW_MS)


def test_clocks_may_differ_a_little():
    one = claims(exp=NOW_S - 29, iat=NOW_S - 50, nbf=NOW_S - 40)
    assert validator().validate(signed(KEY, one), NOW_MS).ends_ms == NOW_MS - 29_000
    with pytest.raises(InvalidToken):
        validator(skew_s=0).validate(signed(KEY, one), NOW_MS)


@pytest.mark.parametrize(
    ("audience", "issuer", "is_right"),
    [
        ("kafka", "https://us", True),
        (["others", "kafka"], "https://us", True),
        ("Kafka", "https://us", False),
        (["others"], "https://us", False),
        ([["kafka"]], "https://us", False),
        (None, "https://us", False),
        ("kafka", "https://us/", False),
        ("kafka", None, False),
    ],
)
def test_audience_and_issuer_have_to_be_the_expected_ones(audience, issuer, is_right):
    one = validator(audiences=("kafka", "broker"), issuer="https://us")
    token = signed(
        KEY, claims(aud=... if audience is None else audience, iss=... if issuer is None else issuer)
    )
    if is_right:
        assert one.validate(token, NOW_MS).name == "ann"
    else:
        with pytest.raises(InvalidToken, match="another"):
            one.validate(token, NOW_MS)


def test_other_claims_may_name_the_user_and_the_scope():
    one = validator(subject_claim="name", scope_claim="may")
    assert one.validate(signed(KEY, claims(name=" bob ", may="a")), NOW_MS).name == "bob"
    with pytest.raises(InvalidToken):
        one.validate(signed(KEY, claims(may="a")), NOW_MS)


@pytest.mark.parametrize("header", [{"crit": ["exp"]}, {"b64": False}, {"kid": 7}])
def test_headers_that_change_the_meaning_are_refused(header):
    content = f"{part({'alg': 'ES256', 'kid': 'k1', **header})}.{part(claims())}"
    with pytest.raises(InvalidToken):
        validator().validate(f"{content}.{part(b'x' * 64)}", NOW_MS)


def test_no_reason_has_a_part_of_the_token():
    tokens = [signed(KEY, claims(exp=1)), signed(OTHER_KEY, claims()), signed(KEY, claims(sub="x\ny", exp=1))]
    for token in tokens:
        with pytest.raises(InvalidToken) as refused:
            validator().validate(token, NOW_MS)
        assert not any(one in refused.value.reason for one in [*token.split("."), "\n"])


# The keys of an authority


class Loop:
    def call_soon_threadsafe(self, function, *arguments):
        function(*arguments)


class Timers:
    def __init__(self):
        self.set = []

    def after(self, delay_ms, callback):
        timer = Timer(delay_ms, callback)
        self.set = [one for one in self.set if not one.is_cancelled] + [timer]
        return timer


class Timer:
    def __init__(self, delay_ms, callback):
        self.delay_ms, self.callback, self.is_cancelled = delay_ms, callback, False

    def cancel(self):
        self.is_cancelled = True


class Threads:
    """Does what is to be done in a thread when the test says so."""

    def __init__(self):
        self.waiting = []

    def run(self, function, done, failed):
        self.waiting.append((function, done, failed))

    def go_on(self):
        function, done, failed = self.waiting.pop(0)
        try:
            result = function()
        except Exception as error:
            failed(error)
        else:
            done(result)


class Authority:
    def __init__(self):
        self.content = jwks(jwk(KEY, kid="k1"))
        self.timers, self.threads, self.now_ms = Timers(), Threads(), 0
        self.jwks = Jwks(SETTINGS, Loop(), self.timers, self.threads.run, lambda: self.now_ms, self.get)
        self.fetches = 0

    def get(self, url):
        assert url == SETTINGS.jwks_url
        self.fetches += 1
        if isinstance(self.content, Exception):
            raise self.content
        return self.content

    @property
    def pauses(self):
        return [one.delay_ms for one in self.timers.set if not one.is_cancelled]

    def knows(self, key_id):
        return bool(self.jwks.keys().find(key_id, "ES256"))


def test_keys_are_there_at_the_start_and_fetched_again():
    authority = Authority()
    authority.jwks.load()
    assert (authority.knows("k1"), authority.pauses) == (True, [60_000])
    authority.content = jwks(jwk(OTHER_KEY, kid="k2"))
    authority.timers.set[-1].callback()
    authority.threads.go_on()
    assert (authority.knows("k1"), authority.knows("k2"), authority.pauses) == (False, True, [60_000])


def test_no_keys_at_the_start_are_an_error():
    for content in (OSError("gone"), b"nonsense"):
        authority = Authority()
        authority.content = content
        with pytest.raises(ConfigError, match="cannot be used"):
            authority.jwks.load()


def test_keys_stay_when_a_fetch_fails_and_pauses_grow():
    authority = Authority()
    authority.jwks.load()
    right, authority.content = authority.content, OSError("gone")
    for pause in (100, 200, 400, 800, 1_000, 1_000):
        authority.timers.set[-1].callback()
        authority.threads.go_on()
        assert (authority.pauses, authority.knows("k1")) == ([pause], True)
    authority.content = right
    authority.timers.set[-1].callback()
    authority.threads.go_on()
    assert authority.pauses == [60_000]


def test_an_unknown_key_fetches_once_a_minute_and_for_a_bounded_number():
    authority = Authority()
    authority.jwks.load()
    for number in range(100):
        authority.jwks.miss(f"x{number}")
        authority.jwks.miss(f"x{number}")
        if authority.threads.waiting:
            authority.threads.go_on()
    assert authority.fetches == 1 + 16
    authority.now_ms = 60_000
    authority.jwks.miss("x0")
    authority.jwks.miss("x1")
    assert len(authority.threads.waiting) == 1, "one at a time"
    authority.jwks.miss(None)
    authority.threads.go_on()
    assert authority.fetches == 1 + 16 + 1


def test_an_end_stops_it():
    authority = Authority()
    authority.jwks.load()
    authority.jwks.close()
    authority.jwks.miss("k2")
    assert (authority.threads.waiting, authority.pauses) == ([], [])


def test_a_file_is_read_up_to_a_bound(tmp_path, monkeypatch):
    path = tmp_path / "the keys.json"
    path.write_bytes(b"12345")
    assert fetch(path.as_uri()) == b"12345"
    monkeypatch.setattr(jwks_module, "BYTES_MAX", 4)
    with pytest.raises(ValueError, match="more than 4 bytes"):
        fetch(path.as_uri())
    with pytest.raises(OSError, match="No such file"):
        fetch((tmp_path / "other").as_uri())


def test_an_authority_that_hangs_is_given_up_in_sum(monkeypatch):
    """Each piece of its answer comes in time, and there is no end of them."""
    is_over = threading.Event()

    def drip(url, deadline):
        is_over.wait(20)
        return b""

    monkeypatch.setattr(jwks_module, "_read", drip)
    monkeypatch.setattr(jwks_module, "FETCH_SECONDS_MAX", 0.01)
    with pytest.raises(TimeoutError, match="did not end within"):
        fetch("http://authority.example/keys")
    is_over.set()
