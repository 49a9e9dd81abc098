"""The client's side of SASL, as requests and answers."""

from __future__ import annotations

import pytest

from odradek.config.credentials import Credentials
from odradek.config.secret import Secret
from odradek.security.sasl_login import SaslLogin, SaslRefused
from odradek.wire.errors import ErrorCode
from odradek.wire.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from odradek.wire.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse

SECRET = "nobody-may-see-this"
TAKEN = SaslHandshakeResponse(error_code=0, mechanisms=["PLAIN"])


def login(mechanism: str, *, is_token: bool = False) -> SaslLogin:
    return SaslLogin(Credentials(mechanism, "ann", Secret(SECRET), is_token), "nonce")


def answer(token: bytes = b"", error_code: int = 0, lifetime_ms: int = 0) -> SaslAuthenticateResponse:
    return SaslAuthenticateResponse(
        error_code=error_code, error_message=None, auth_bytes=token, session_lifetime_ms=lifetime_ms
    )


def after_handshake(one: SaslLogin) -> bytes:
    assert isinstance(one.request, SaslHandshakeRequest)
    one.take(TAKEN)
    assert isinstance(one.request, SaslAuthenticateRequest)
    return bytes(one.request.auth_bytes)


def test_plain_is_one_message_and_the_session_has_the_life_that_the_broker_says() -> None:
    one = login("PLAIN")
    assert after_handshake(one) == b"\0ann\0" + SECRET.encode()
    one.take(answer(lifetime_ms=5000))
    assert (one.request, one.lifetime_ms) == (None, 5000)


def test_a_token_is_told_by_an_extension_of_scram() -> None:
    assert after_handshake(login("SCRAM-SHA-256")) == b"n,,n=ann,r=nonce"
    assert after_handshake(login("SCRAM-SHA-512", is_token=True)) == b"n,,n=ann,r=nonce,tokenauth=true"


def test_a_bearer_token_is_one_message_and_a_refusal_of_it_is_heard_out() -> None:
    one = login("OAUTHBEARER")
    assert after_handshake(one) == b"n,,\x01auth=Bearer " + SECRET.encode() + b"\x01\x01"
    one.take(answer())
    assert one.request is None
    one = login("OAUTHBEARER")
    after_handshake(one)
    one.take(answer(b'{"status":"invalid_token"}'))
    assert isinstance(one.request, SaslAuthenticateRequest)
    assert one.request.auth_bytes == b"\x01"
    with pytest.raises(SaslRefused, match="refuses the token"):
        one.take(answer(error_code=ErrorCode.SASL_AUTHENTICATION_FAILED))
    with pytest.raises(SaslRefused, match="goes on after its refusal"):
        one.take(answer(b"more"))


def test_a_server_that_does_not_know_the_password_is_not_believed() -> None:
    one = login("SCRAM-SHA-256")
    after_handshake(one)
    with pytest.raises(SaslRefused, match="makes no sense"):
        one.take(answer(b"r=other,s=c2FsdA==,i=4096"))
    one = login("SCRAM-SHA-256")
    after_handshake(one)
    one.take(answer(b"r=nonce-and-more,s=c2FsdA==,i=4096"))
    with pytest.raises(SaslRefused, match="does not prove that it knows the password"):
        one.take(answer(b"v=c2FsdA=="))


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "OAUTHBEARER", "GSSAPI"])
def test_a_refusal_names_user_and_error_and_no_secret(mechanism: str) -> None:
    one = login(mechanism)
    refused = SaslHandshakeResponse(
        error_code=ErrorCode.UNSUPPORTED_SASL_MECHANISM, mechanisms=["PLAIN", "SCRAM-SHA-512"]
    )
    with pytest.raises(SaslRefused, match=r"UNSUPPORTED_SASL_MECHANISM.*offers: PLAIN, SCRAM-SHA-512"):
        one.take(refused)
    if mechanism == "GSSAPI":
        return
    after_handshake(one)
    with pytest.raises(SaslRefused) as caught:
        one.take(answer(error_code=999))
    assert "error 999" in str(caught.value)
    assert SECRET not in repr(caught.value) + repr(one.__dict__.get("_credentials"))
