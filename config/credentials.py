"""With what a node or a client logs in to others."""

from dataclasses import dataclass, field

from odradek.config.secret import Secret


@dataclass(frozen=True, slots=True)
class Credentials:
    """With which this node, or a client, authenticates to others."""

    mechanism: str
    user: str
    password: Secret = field(repr=False)
    """With OAUTHBEARER the token, which has the user in it."""
    is_token: bool = False
    """Whether user and password are the id and the HMAC of a delegation token (SCRAM alone)."""
