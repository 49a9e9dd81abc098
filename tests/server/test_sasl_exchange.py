"""The exchange as a machine: every row of its table, with PLAIN and SCRAM, without a socket."""

import base64
import random
import re
import struct

import pytest

from odradek.coordinator.security.scram_users import NO_USERS, ScramUsers, credential_of
from odradek.server.security.sasl.exchange import (
    API_VERSIONS,
    SASL_HANDSHAKE,
    Authenticated,
    Close,
    Compute,
    Exchange,
    Send,
    Settings,
    State,
)
from odradek.server.security.sasl.mechanism import AuthenticationFailed, Later, Login
from odradek.server.security.sasl.plain import PlainServer, users_of
from odradek.server.security.sasl.scram import MESSAGE_BYTES_MAX, ScramServer, salt_text
from odradek.wire.errors import ErrorCode, MalformedMessage
from odradek.wire.frames import read_response, request_frame
from odradek.wire.messages.api_versions import ApiVersionsRequest
from odradek.wire.messages.metadata import MetadataRequest
from odradek.wire.messages.sasl_authenticate import SaslAuthenticateRequest
from odradek.wire.messages.sasl_handshake import SaslHandshakeRequest
from odradek.wire.scram import (
    ITERATIONS_MIN,
    MECHANISM_NUMBERS,
    ScramClient,
    ScramError,
    digest_of,
    keys_of,
    salted_password,
    sasl_name,
    user_of_sasl_name,
)
from tests.tiers import examples

PASSWORD = "pw-of-ann"
DELAY_MS = 100
NOW_MS = 1_000_000
SALT = b"salt of ann"
SECRET = bytes(32)


def users():
    found = {}
    for mechanism, iterations in ((1, 4096), (2, 8192)):
        salted = salted_password(mechanism, PASSWORD, SALT, iterations)
        found["ann", mechanism] = credential_of(mechanism, SALT, salted, iterations)
        found["b,=", mechanism] = found["ann", mechanism]
    return ScramUsers(found)


USERS = users()


class Slow:
    """A mechanism that needs a worker thread; the token is what it does."""

    def __init__(self):
        self.login = None

    def respond(self, token, now_ms):
        def call():
            if token == b"fail":
                raise AuthenticationFailed("the slow one has failed")
            if token == b"silent":
                raise AuthenticationFailed("try again", is_silent=True)
            self.login = Login("slow", ends_ms=now_ms + 5000, is_token=True)
            return None if token == b"no last word" else b"done"

        return Later(call)


class Versions:
    """Answers with the version, and refuses with the code."""

    def check(self, header):
        """All versions are served."""

    def respond(self, header, frame, position):
        if header.api_version > 4:
            return b"unknown version", False
        if header.api_version == 4:
            return b"bad name", False
        return b"versions", True

    def refusal(self, header, frame, position, code):
        if header.api_key == 99:
            raise MalformedMessage("no such API")
        return f"refused {header.api_key} with {code}".encode() if header.api_key != 0 else None


def exchange(**more):
    mechanisms = {
        "PLAIN": lambda: PlainServer({"ann": PASSWORD}),
        "SCRAM-SHA-256": lambda: ScramServer(1, lambda: USERS, SECRET, lambda: "server"),
        "SCRAM-SHA-512": lambda: ScramServer(2, lambda: USERS, SECRET, lambda: "server"),
        "SLOW": Slow,
    }
    return Exchange(Settings(mechanisms, more.pop("max_reauth_ms", {}), DELAY_MS, **more), Versions())


def frame(request, version, correlation_id=7):
    return request_frame(request, version, correlation_id, "client")[4:]


def ask(one, request, version, now_ms=NOW_MS):
    return one.receive(frame(request, version), now_ms)


def versions_request():
    return ApiVersionsRequest(client_software_name="test", client_software_version="1")


def shaken(mechanism="PLAIN", version=1, **more):
    one = exchange(**more)
    assert isinstance(ask(one, SaslHandshakeRequest(mechanism=mechanism), version), Send)
    return one


def token(one, auth_bytes, version=2, now_ms=NOW_MS):
    return ask(one, SaslAuthenticateRequest(auth_bytes=auth_bytes), version, now_ms)


def answered(effect, request_class, version):
    assert struct.unpack(">i", effect.frame[:4]) == (len(effect.frame) - 4,)
    correlation_id, message = read_response(effect.frame[4:], request_class, version)
    assert correlation_id == 7
    return message


RIGHT = b"\0ann\0" + PASSWORD.encode()


# First


def test_versions_may_be_asked_for_once_and_then_a_handshake_has_to_come():
    one = exchange()
    assert ask(one, versions_request(), 3) == Send(b"versions")
    assert one.state is State.HANDSHAKE
    again = ask(one, versions_request(), 3)
    assert isinstance(again, Close)
    assert (again.after_ms, again.frame, one.state) == (0, None, State.CLOSED)


@pytest.mark.parametrize(("version", "answer"), [(4, b"bad name"), (9, b"unknown version")])
def test_a_refused_question_for_versions_changes_nothing(version, answer):
    one = exchange()
    raw = struct.pack(">hhih", 18, version, 7, -1) + b"\0" + b"\1\1\0"
    assert one.receive(raw, NOW_MS) == Send(answer)
    assert one.state is State.FIRST
    assert ask(one, versions_request(), 3) == Send(b"versions")


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"\0",
        b"\x16\x03\x01",
        b"GET / HTTP/1.1\r\n",
        frame(MetadataRequest(topics=None), 1),
        frame(SaslAuthenticateRequest(auth_bytes=RIGHT), 1),
        struct.pack(">hhih", 17, 2, 7, -1) + b"\0\5PLAIN",
        struct.pack(">hhih", 17, -1, 7, -1) + b"\0\5PLAIN",
        struct.pack(">hhih", 17, 1, 7, -1) + b"\0\6PLAIN",
        struct.pack(">hhih", 17, 1, 7, 100) + b"\0\5PLAIN",
    ],
)
def test_what_is_no_beginning_closes_at_once_and_without_an_answer(raw):
    for first in (None, versions_request()):
        one = exchange()
        if first is not None:
            ask(one, first, 3)
        effect = one.receive(raw, NOW_MS)
        assert isinstance(effect, Close)
        assert (effect.after_ms, effect.frame) == (0, None)


def test_a_length_that_is_not_allowed_closes_after_the_delay():
    one = exchange()
    effect = one.refuse_length("too long")
    assert (effect.after_ms, effect.frame) == (DELAY_MS, None)


# Handshake


@pytest.mark.parametrize("version", [0, 1])
def test_a_mechanism_that_is_not_enabled_is_refused_late_with_the_list(version):
    one = exchange()
    effect = ask(one, SaslHandshakeRequest(mechanism="GSSAPI\n"), version)
    answer = answered(effect, SaslHandshakeRequest, version)
    assert (effect.after_ms, answer.error_code) == (DELAY_MS, ErrorCode.UNSUPPORTED_SASL_MECHANISM)
    assert answer.mechanisms == ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "SLOW"]
    assert "\n" not in effect.reason


@pytest.mark.parametrize(("version", "state"), [(0, State.TOKEN), (1, State.AUTHENTICATE)])
def test_the_version_of_the_handshake_says_how_tokens_come(version, state):
    one = exchange()
    effect = ask(one, SaslHandshakeRequest(mechanism="PLAIN"), version)
    answer = answered(effect, SaslHandshakeRequest, version)
    assert (answer.error_code, answer.mechanisms[0], one.state) == (0, "PLAIN", state)


# Authenticate


@pytest.mark.parametrize("version", [0, 1, 2])
def test_a_right_password_is_answered_without_a_token(version):
    one = shaken()
    effect = token(one, RIGHT, version)
    answer = answered(effect, SaslAuthenticateRequest, version)
    assert (answer.error_code, answer.error_message, bytes(answer.auth_bytes)) == (0, "", b"")
    assert answer.session_lifetime_ms == 0
    assert effect[1:] == ("User:ann", None, False, False)
    assert one.state is State.COMPLETE


def test_a_bare_token_is_answered_bare():
    one = shaken(version=0)
    assert one.receive(RIGHT, NOW_MS) == Authenticated(bytes(4), "User:ann", None, False, False)


def test_a_wrong_bare_token_closes_after_the_delay_without_a_word():
    effect = shaken(version=0).receive(b"\0ann\0wrong", NOW_MS)
    assert (effect.after_ms, effect.frame) == (DELAY_MS, None)


@pytest.mark.parametrize(
    ("request_class", "version"), [(SaslHandshakeRequest, 1), (MetadataRequest, 4), (ApiVersionsRequest, 3)]
)
def test_another_request_is_refused_late_in_its_own_form(request_class, version):
    requests = {
        SaslHandshakeRequest: SaslHandshakeRequest(mechanism="PLAIN"),
        MetadataRequest: MetadataRequest(topics=None),
        ApiVersionsRequest: versions_request(),
    }
    effect = ask(shaken(), requests[request_class], version)
    assert effect.frame == f"refused {request_class.api_key} with {ErrorCode.ILLEGAL_SASL_STATE}".encode()
    assert effect.after_ms == DELAY_MS


def test_another_request_without_a_form_of_refusal_gets_no_answer():
    effect = shaken().receive(struct.pack(">hhih", 0, 3, 7, -1), NOW_MS)
    assert (effect.after_ms, effect.frame) == (DELAY_MS, None)


@pytest.mark.parametrize(
    "raw",
    [
        struct.pack(">hhih", 36, 3, 7, -1) + b"\0\0\0\0\0",
        struct.pack(">hhih", 36, 0, 7, -1) + b"\0\0\0\5abc",
        struct.pack(">hhih", 99, 0, 7, -1),
        b"abc",
    ],
)
def test_what_is_no_request_of_an_authentication_closes_at_once(raw):
    effect = shaken().receive(raw, NOW_MS)
    assert (effect.after_ms, effect.frame) == (0, None)


# PLAIN


@pytest.mark.parametrize(
    ("message", "words"),
    [
        (b"", "three parts"),
        (b"ann", "three parts"),
        (b"\0ann", "three parts"),
        (b"\0ann\0pw\0", "three parts"),
        (b"\0\0" + PASSWORD.encode(), "needs the name"),
        (b"\0ann\0", "needs a password"),
        (b"\0ann\0wrong", "is wrong"),
        (b"\0bob\0" + PASSWORD.encode(), "is wrong"),
        (b"\0ann\0" + PASSWORD.encode() + b"\xff", "is wrong"),
        (b"\0bob\0no password at all", "is wrong"),
        (b"bob\0ann\0" + PASSWORD.encode(), "authorization id"),
        (b"bob\0ann\0wrong", "is wrong"),
    ],
)
def test_what_is_wrong_with_plain_is_said_without_a_hint(message, words):
    effect = token(shaken(), message)
    answer = answered(effect, SaslAuthenticateRequest, 2)
    assert (answer.error_code, effect.after_ms) == (ErrorCode.SASL_AUTHENTICATION_FAILED, DELAY_MS)
    assert words in answer.error_message
    for text in (answer.error_message, effect.reason):
        assert PASSWORD not in text
        assert "wrong\0" not in text
    assert "ann" not in answer.error_message


def test_the_authorization_id_may_be_the_user():
    assert isinstance(token(shaken(), b"ann" + RIGHT), Authenticated)


def test_a_name_in_a_reason_is_escaped_and_short():
    effect = token(shaken(), b"\0\n\x1b[31m\xe2\x80\xae" + b"n" * 1000 + b"\0x")
    assert "\\n\\x1b[31m\\u202e" in effect.reason
    assert effect.reason.isprintable()
    assert len(effect.reason) < 300


def test_users_of_plain_are_options_of_the_login_module():
    assert users_of({"user_ann": "x", "user_": "y", "username": "me", "password": "z"}) == {
        "ann": "x",
        "": "y",
    }


# SCRAM


def scram(
    mechanism="SCRAM-SHA-256", user="ann", password=PASSWORD, *, version=1, change=lambda text: text, **more
):
    """Goes through an authentication; `change` may spoil the last message."""
    one = shaken(mechanism, version, **more)
    client = ScramClient(mechanism, user, password, "nonce")
    first = tokens_of(one, client.first, version)
    if not isinstance(first[0], Send):
        return first[0]
    final = change(client.final(first[1]).decode()).encode()
    effect, answer = tokens_of(one, final, version)
    if isinstance(effect, Authenticated):
        client.verify(answer)
    return effect


def tokens_of(one, message, version):
    if version == 0:
        effect = one.receive(message, NOW_MS)
        return effect, None if effect.frame is None else effect.frame[4:]
    effect = token(one, message)
    return effect, bytes(answered(effect, SaslAuthenticateRequest, 2).auth_bytes)


@pytest.mark.parametrize("version", [0, 1])
@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "SCRAM-SHA-512"])
@pytest.mark.parametrize("user", ["ann", "b,="])
def test_client_and_server_prove_the_password_to_each_other(mechanism, user, version):
    effect = scram(mechanism, user, version=version)
    assert (effect.principal, effect.is_token) == (f"User:{user}", False)


@pytest.mark.parametrize(
    ("password", "user", "change"),
    [
        ("wrong", "ann", None),
        (PASSWORD, "nobody", None),
        (PASSWORD, "ann", (r"c=biws", "c=eSws")),
        (PASSWORD, "ann", (r"r=nonceserver", "r=nonceserveR")),
        (PASSWORD, "ann", (r"r=nonceserver", "r=othernonceserver")),
        (PASSWORD, "ann", (r"p=.*", "p=")),
        (PASSWORD, "ann", (r"p=.*", "p=AAAA")),
        (PASSWORD, "ann", (r".*", "nothing of this")),
        (PASSWORD, "ann", (r"c=biws", "c=biws,x=\u00e9")),
    ],
)
def test_whatever_is_wrong_with_scram_has_one_answer(password, user, change):
    spoil = (
        (lambda text: text) if change is None else lambda text: re.sub(change[0], change[1], text, count=1)
    )
    effect = scram(password=password, user=user, change=spoil)
    answer = answered(effect, SaslAuthenticateRequest, 2)
    assert (answer.error_code, effect.after_ms) == (ErrorCode.SASL_AUTHENTICATION_FAILED, DELAY_MS)
    assert answer.error_message == "The client could not be authenticated with SCRAM-SHA-256."
    assert PASSWORD not in effect.reason


def proven_final(bare, challenge, *, binding, nonce, mechanism="SCRAM-SHA-256", password=PASSWORD):
    """The last message with this binding and this nonce, and the proof of just this message."""
    number = MECHANISM_NUMBERS[mechanism]
    salt, iterations = re.search(r",s=([^,]+),i=([0-9]+)", challenge).groups()
    keys = keys_of(number, salted_password(number, password, base64.b64decode(salt), int(iterations)))
    without_proof = f"c={base64.b64encode(binding).decode()},r={nonce}"
    signature = digest_of(number, keys.stored, f"{bare},{challenge},{without_proof}".encode())
    proof = bytes(a ^ b for a, b in zip(keys.client, signature, strict=True))
    return f"{without_proof},p={base64.b64encode(proof).decode()}".encode()


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "SCRAM-SHA-512"])
@pytest.mark.parametrize(
    ("nonce", "binding", "is_right"),
    [
        ("nonceserver", b"n,,", True),
        ("Nonceserver", b"n,,", False),
        ("server", b"n,,", False),
        ("othernonceserver", b"n,,", False),
        ("nonceserveR", b"n,,", False),
        ("nonce", b"n,,", False),
        ("nonceserver2", b"n,,", False),
        ("servernonce", b"n,,", False),
        ("nonceserver", b"y,,", False),
        ("nonceserver", b"n,a=ann,", False),
        ("nonceserver", b"", False),
    ],
)
def test_a_proof_of_another_nonce_or_binding_lets_nobody_in(mechanism, nonce, binding, is_right):
    """The proof is right for what it covers, and the password, too (CVE-2024-56128)."""
    one = shaken(mechanism)
    effect = token(one, b"n,,n=ann,r=nonce")
    challenge = bytes(answered(effect, SaslAuthenticateRequest, 2).auth_bytes).decode()
    assert challenge.startswith("r=nonceserver,")
    final = proven_final("n=ann,r=nonce", challenge, binding=binding, nonce=nonce, mechanism=mechanism)
    effect = token(one, final)
    assert isinstance(effect, Authenticated) is is_right
    if not is_right:
        answer = answered(effect, SaslAuthenticateRequest, 2)
        assert answer.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
        assert answer.error_message == f"The client could not be authenticated with {mechanism}."
        assert effect.reason.endswith("wrong user or password for user 'ann'"), "no pattern has refused it"


@pytest.mark.parametrize(
    "message",
    [
        "",
        "y,,n=ann,r=nonce",
        "p=tls-unique,,n=ann,r=nonce",
        "n,a=bob,n=ann,r=nonce",
        "n,,n=ann",
        "n,,n=,r=nonce",
        "n,,n=a=b,r=nonce",
        "n,,r=nonce,n=ann",
        "n,,n=ann,r=",
        "n,,n=ann,r=no\u00e9",
        "n,,n=\u00e9,r=nonce",
        "n,,n=ann,r=nonce,1=2",
    ],
)
def test_a_first_message_that_makes_no_sense_has_the_same_answer(message):
    effect = token(shaken("SCRAM-SHA-256"), message.encode())
    answer = answered(effect, SaslAuthenticateRequest, 2)
    assert answer.error_message == "The client could not be authenticated with SCRAM-SHA-256."


@pytest.mark.parametrize(
    "message", ["n,a=ann,n=ann,r=nonce", "n,,m=x,n=ann,r=nonce", "n,,n=ann,r=nonce,x=y,z=w=v"]
)
def test_authorization_id_and_extensions_are_taken(message):
    one = shaken("SCRAM-SHA-256")
    effect = token(one, message.encode())
    challenge = bytes(answered(effect, SaslAuthenticateRequest, 2).auth_bytes).decode()
    salt = base64.b64encode(SALT).decode()
    assert challenge == f"r=nonceserver,s={salt},i=4096"
    header = message[: message.index(",", 2) + 1]
    final = proven_final(
        message.removeprefix(header), challenge, binding=header.encode(), nonce="nonceserver"
    )
    assert isinstance(token(one, final), Authenticated)


def test_a_long_message_is_refused_before_it_is_read():
    """A frame of half a megabyte may come from anybody."""
    reasons = [
        token(shaken("SCRAM-SHA-256"), message).reason
        for message in (
            b"n,,n=" + b"a" * MESSAGE_BYTES_MAX + b",r=nonce",
            b"n,,n=ann,r=nonce" + b",x=y" * MESSAGE_BYTES_MAX,
        )
    ]
    assert all(reason.endswith("a message of SCRAM is too long") for reason in reasons)
    one = shaken("SCRAM-SHA-256")
    assert isinstance(token(one, b"n,,n=ann,r=nonce"), Send)
    assert "too long" in token(one, b"c=biws,r=nonceserver" + b",x=y" * MESSAGE_BYTES_MAX + b",p=AAAA").reason


def test_a_user_that_does_not_exist_looks_like_one_that_does():
    def challenge(user, mechanism="SCRAM-SHA-512", secret=SECRET):
        server = ScramServer(2, lambda: USERS, secret, lambda: "server")
        return server.respond(f"n,,n={user},r=nonce".encode(), NOW_MS).decode()

    known, unknown = challenge("ann"), challenge("nobody")
    pattern = r"r=nonceserver,s=[A-Za-z0-9+/=]+,i=8192"
    assert re.fullmatch(pattern, known)
    assert re.fullmatch(pattern, unknown)
    assert challenge("nobody") == unknown
    assert challenge("somebody") != unknown
    assert challenge("nobody", secret=bytes(31) + b"x") != unknown
    salt = base64.b64decode(re.search("s=([^,]+)", unknown)[1])
    assert re.fullmatch(rb"[0-9a-z]{26}", salt)
    assert re.fullmatch(rb"[0-9a-z]{26}", salt_text(bytes(range(200, 226))))


def test_a_credential_with_too_few_iterations_lets_nobody_in():
    """Not even who knows the password, with its own number of iterations or with the one that it is told."""
    assert is_let_in(ITERATIONS_MIN)
    assert not is_let_in(ITERATIONS_MIN - 1)
    assert not is_let_in(1)
    assert not is_let_in(1, told=True)


def is_let_in(iterations, told=False):
    """A user with so many iterations sends the proof of its password."""
    salted = salted_password(1, PASSWORD, SALT, iterations)
    users = ScramUsers({("ann", 1): credential_of(1, SALT, salted, iterations)})
    server = ScramServer(1, lambda: users, SECRET, lambda: "server")
    challenge = server.respond(b"n,,n=ann,r=nonce", NOW_MS).decode()
    own = f"r=nonceserver,s={base64.b64encode(SALT).decode()},i={iterations}"
    assert (challenge == own) is (iterations >= ITERATIONS_MIN)
    keys = keys_of(1, salted)
    if told:
        salt, count = re.search(r",s=([^,]+),i=([0-9]+)", challenge).groups()
        keys = keys_of(1, salted_password(1, PASSWORD, base64.b64decode(salt), int(count)))
    signature = digest_of(1, keys.stored, f"n=ann,r=nonce,{challenge},c=biws,r=nonceserver".encode())
    proof = base64.b64encode(bytes(a ^ b for a, b in zip(keys.client, signature, strict=True)))
    try:
        server.respond(b"c=biws,r=nonceserver,p=" + proof, NOW_MS)
    except AuthenticationFailed:
        assert server.login is None
        return False
    return server.login == Login("ann")


def test_a_proof_for_the_made_up_key_lets_nobody_in():
    server = ScramServer(1, lambda: NO_USERS, SECRET, lambda: "server")
    server.respond(b"n,,n=nobody,r=nonce", NOW_MS)
    with pytest.raises(AuthenticationFailed):
        server.respond(b"c=biws,r=nonceserver,p=" + base64.b64encode(bytes(32)), NOW_MS)
    with pytest.raises(AuthenticationFailed):
        server.respond(b"c=biws,r=nonceserver,p=" + base64.b64encode(bytes(32)), NOW_MS)
    assert server.login is None


@pytest.mark.parametrize(
    "challenge",
    [
        b"",
        b"r=other,s=c2FsdA==,i=4096",
        b"r=nonce,s=c2FsdA==,i=4096",
        b"r=nonce1,s=c2FsdA==,i=1",
        b"r=nonce1,s=c2FsdA==,i=99999",
    ],
)
def test_a_client_of_ours_does_not_answer_a_server_that_makes_no_sense(challenge):
    with pytest.raises(ScramError):
        ScramClient("SCRAM-SHA-256", "ann", PASSWORD, "nonce").final(challenge)


def test_a_client_of_ours_does_not_believe_a_server_that_does_not_know_the_password():
    client = ScramClient("SCRAM-SHA-256", "ann", PASSWORD, "nonce")
    client.final(b"r=nonce1,s=c2FsdA==,i=4096")
    for answer in (b"v=" + base64.b64encode(bytes(32)), b"e=other-error", b""):
        with pytest.raises(ScramError):
            client.verify(answer)


def test_names_with_signs_of_scram_come_back():
    for name in ("a,b=c", "=2C", "=3D", ",=,="):
        assert user_of_sasl_name(sasl_name(name)) == name


# Sessions that end


def complete(max_reauth_ms=10_000, mechanism="PLAIN"):
    one = shaken(max_reauth_ms={mechanism: max_reauth_ms})
    effect = token(one, RIGHT)
    return one, effect


@pytest.mark.parametrize(("version", "lifetime_ms"), [(0, 0), (1, 10_000), (2, 10_000)])
def test_the_client_is_told_how_long_its_session_lasts(version, lifetime_ms):
    one = shaken(max_reauth_ms={"PLAIN": 10_000})
    effect = token(one, RIGHT, version)
    answer = answered(effect, SaslAuthenticateRequest, version)
    assert (answer.session_lifetime_ms, effect.lifetime_ms) == (lifetime_ms, 10_000)


def test_without_an_end_of_the_session_there_is_no_second_handshake():
    one, effect = complete(0)
    assert effect.lifetime_ms is None
    assert one.begin_again("PLAIN", 1, NOW_MS + 5000) is None
    assert one.state is State.COMPLETE


@pytest.mark.parametrize("after_ms", [1, 5_000, 50_000])
def test_a_client_authenticates_again_before_and_after_the_end(after_ms):
    one, _ = complete()
    answer = one.begin_again("PLAIN", 1, NOW_MS + after_ms)
    assert (answer.error_code, answer.mechanisms[0], one.state) == (0, "PLAIN", State.AUTHENTICATE)
    effect = token(one, RIGHT, now_ms=NOW_MS + after_ms)
    assert (effect.lifetime_ms, effect.is_again) == (10_000, True)


def test_a_client_authenticates_again_with_bare_tokens():
    one, _ = complete()
    one.begin_again("PLAIN", 0, NOW_MS)
    assert one.receive(RIGHT, NOW_MS).is_again


def test_a_client_authenticates_again_once_a_second():
    one, _ = complete()
    assert one.begin_again("PLAIN", 1, NOW_MS)
    token(one, RIGHT)
    assert one.begin_again("PLAIN", 1, NOW_MS + 999) is None
    assert one.state is State.COMPLETE
    assert one.begin_again("PLAIN", 1, NOW_MS + 1000)


def test_another_mechanism_than_before_is_taken_and_then_closes_without_a_word():
    one, _ = complete()
    answer = one.begin_again("SCRAM-SHA-256", 1, NOW_MS)
    assert answer.error_code == 0
    effect = token(one, RIGHT)
    assert isinstance(effect, Close)
    assert effect.frame is None


def test_an_unknown_mechanism_closes_a_session_at_once():
    one, _ = complete()
    effect = one.begin_again("NONE", 1, NOW_MS)
    assert (effect.after_ms, effect.frame) == (0, None)


@pytest.mark.parametrize("version", [0, 1])
def test_another_user_than_before_is_refused(version):
    one = Exchange(
        Settings({"PLAIN": lambda: PlainServer({"ann": PASSWORD, "bob": "x"})}, {"PLAIN": 5000}, DELAY_MS),
        Versions(),
    )
    ask(one, SaslHandshakeRequest(mechanism="PLAIN"), 1)
    token(one, RIGHT)
    one.begin_again("PLAIN", version, NOW_MS)
    effect = one.receive(b"\0bob\0x", NOW_MS) if version == 0 else token(one, b"\0bob\0x")
    assert isinstance(effect, Close)
    if version == 0:
        assert effect.frame is None
    else:
        message = answered(effect, SaslAuthenticateRequest, 2).error_message
        assert "User:ann" in message
        assert "User:bob" in message


def test_a_wrong_password_ends_a_session():
    one, _ = complete()
    one.begin_again("PLAIN", 1, NOW_MS)
    effect = token(one, b"\0ann\0wrong")
    assert (effect.after_ms, one.state) == (DELAY_MS, State.CLOSED)


def test_the_sentence_of_scram_says_that_it_was_not_the_first_time():
    one = shaken("SCRAM-SHA-256", max_reauth_ms={"SCRAM-SHA-256": 5000})
    client = ScramClient("SCRAM-SHA-256", "ann", PASSWORD, "nonce")
    challenge = answered(token(one, client.first), SaslAuthenticateRequest, 2).auth_bytes
    token(one, client.final(bytes(challenge)))
    one.begin_again("SCRAM-SHA-256", 1, NOW_MS)
    message = answered(token(one, b"nonsense"), SaslAuthenticateRequest, 2).error_message
    assert message == "The client could not be authenticated again with SCRAM-SHA-256."


# Mechanisms that wait


def run(effect):
    assert isinstance(effect, Compute)
    try:
        return effect.go_on(effect.call(), NOW_MS)
    except AuthenticationFailed as error:
        return effect.go_on(error, NOW_MS)


def test_a_mechanism_may_compute_in_a_worker_and_its_credential_may_end():
    one = shaken("SLOW", max_reauth_ms={"SLOW": 60_000})
    effect = run(token(one, b"right"))
    answer = answered(effect, SaslAuthenticateRequest, 2)
    assert (bytes(answer.auth_bytes), answer.session_lifetime_ms) == (b"done", 5000)
    assert (effect.principal, effect.is_token, effect.lifetime_ms) == ("User:slow", True, 5000)


@pytest.mark.parametrize("version", [0, 1])
def test_a_mechanism_without_a_last_word_sends_no_bare_token_at_its_end(version):
    one = shaken("SLOW", version)
    if version:
        effect = run(token(one, b"no last word"))
        assert bytes(answered(effect, SaslAuthenticateRequest, 2).auth_bytes) == b""
    else:
        effect = run(one.receive(b"no last word", NOW_MS))
        assert effect.frame == b""
    assert effect.principal == "User:slow"


def test_a_computed_failure_is_answered_late_or_not_at_all():
    effect = run(token(shaken("SLOW"), b"fail"))
    assert answered(effect, SaslAuthenticateRequest, 2).error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
    assert run(token(shaken("SLOW"), b"silent")).frame is None


def test_a_bound_of_the_session_comes_before_a_later_end_of_the_credential():
    effect = run(token(shaken("SLOW", max_reauth_ms={"SLOW": 3000}), b"right"))
    assert effect.lifetime_ms == 3000


# Everything in every state


def in_state(state, again):
    """An exchange that waits for it, of a client that is new, or of one that authenticates again."""
    if again:
        one, _ = complete()
        version = 0 if state is State.TOKEN else 1
        mechanism = "SCRAM-SHA-256" if state is State.OTHER_MECHANISM else "PLAIN"
        one.begin_again(mechanism, version, NOW_MS)
    elif state in (State.AUTHENTICATE, State.TOKEN):
        one = shaken(version=0 if state is State.TOKEN else 1)
    else:
        one = exchange()
        if state is State.HANDSHAKE:
            ask(one, versions_request(), 3)
    assert one.state is state
    return one


STATES = [
    *((state, False) for state in (State.FIRST, State.HANDSHAKE, State.AUTHENTICATE, State.TOKEN)),
    *((state, True) for state in (State.AUTHENTICATE, State.TOKEN, State.OTHER_MECHANISM)),
]


@pytest.mark.parametrize(("state", "again"), STATES)
def test_no_api_in_any_version_authenticates_or_breaks_the_machine(state, again):
    tails = (b"", b"\0", bytes(64), b"\xff" * 64, b"\0\5PLAIN", b"\0\0\0\5" + RIGHT[:5])
    for key in range(-2, 100):
        for version in (*range(-1, 8), 32767):
            for tail in tails:
                one = in_state(state, again)
                effect = one.receive(struct.pack(">hhih", key, version, 7, -1) + tail, NOW_MS)
                assert isinstance(effect, Send | Close), (key, version, tail)
                if isinstance(effect, Close):
                    assert one.state is State.CLOSED
                else:
                    assert key in (API_VERSIONS, SASL_HANDSHAKE), (key, version, tail)
                    assert state in (State.FIRST, State.HANDSHAKE)


@pytest.mark.parametrize(("state", "again"), STATES)
def test_damaged_frames_authenticate_nobody_without_the_password(state, again):
    """Bits of the right frames are flipped; whoever is let in has sent the right password all the same."""
    chance = random.Random(f"{state} {again}")
    right = [
        frame(versions_request(), 3),
        frame(SaslHandshakeRequest(mechanism="PLAIN"), 1),
        frame(SaslAuthenticateRequest(auth_bytes=RIGHT), 2),
        RIGHT,
    ]
    for _ in range(examples(3_000)):
        one = in_state(state, again)
        while one.state not in (State.CLOSED, State.COMPLETE):
            sent = bytearray(chance.choice(right))
            for _ in range(chance.randrange(3)):
                sent[chance.randrange(len(sent))] ^= 1 << chance.randrange(8)
            effect = one.receive(
                bytes(sent[: chance.choice([len(sent), chance.randrange(len(sent) + 1)])]), 0
            )
            if isinstance(effect, Authenticated):
                assert RIGHT in sent
                assert effect.principal == "User:ann"
