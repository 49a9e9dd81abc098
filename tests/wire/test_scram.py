"""The client's side of SCRAM: what a server may answer."""

import pytest

from odradek.wire.scram import ScramClient, ScramError


@pytest.mark.parametrize("salt", ["A", "A=", "A==", "AAAAA", "AAAAA=="])
def test_a_salt_that_is_no_base64_is_refused(salt):
    with pytest.raises(ScramError):
        ScramClient("SCRAM-SHA-256", "ann", "secret", "nonce").final(f"r=nonce1,s={salt},i=4096".encode())


@pytest.mark.parametrize("signature", ["A", "A=", "A==", "AAAAA", "AAAA"])
def test_a_signature_that_is_none_is_refused(signature):
    client = ScramClient("SCRAM-SHA-256", "ann", "secret", "nonce")
    client.final(b"r=nonce1,s=c2FsdA==,i=4096")
    with pytest.raises(ScramError):
        client.verify(f"v={signature}".encode())
