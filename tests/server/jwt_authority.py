"""An authority that signs tokens, and its keys as a JWKS."""

import base64
import json

from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from jwt.algorithms import get_default_algorithms
from jwt.api_jws import PyJWS

CLASS_OF = {"RS": "RS256", "PS": "RS256", "ES": "ES256", "Ed": "EdDSA"}


def new_key(algorithm="ES256"):
    if algorithm[:2] in ("RS", "PS"):
        return rsa.generate_private_key(65537, 2048)
    if algorithm == "EdDSA":
        return ed25519.Ed25519PrivateKey.generate()
    curve = {"ES256": ec.SECP256R1, "ES384": ec.SECP384R1, "ES512": ec.SECP521R1}[algorithm]
    return ec.generate_private_key(curve())


def jwk(key, algorithm="ES256", **more):
    """The public part."""
    text = get_default_algorithms()[CLASS_OF[algorithm[:2]]].to_jwk(key.public_key())
    return {**json.loads(text), **more}


def jwks(*keys):
    return json.dumps({"keys": list(keys)}).encode()


def signed(key, claims, kid="k1", algorithm="ES256", **header):
    """`kid` None: the token names no key."""
    headers = header if kid is None else {"kid": kid, **header}
    return PyJWS().encode(json.dumps(claims).encode(), key, algorithm=algorithm, headers=headers)


def part(value):
    content = value if isinstance(value, bytes) else json.dumps(value).encode()
    return base64.urlsafe_b64encode(content).rstrip(b"=").decode()


def unsigned(claims, header=None):
    return f"{part({'alg': 'none'} if header is None else header)}.{part(claims)}."
