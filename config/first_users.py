"""The first users of a new cluster: `ODRADEK_ADD_SCRAM`, in the form of Kafka's `kafka-storage format
--add-scram`.

    ODRADEK_ADD_SCRAM='SCRAM-SHA-256=[name=admin,password=...]'

Several may stand behind each other, with blanks or semicolons between them. `iterations=` is optional; values
may stand in double quotes. A credential that the cluster has stays as it is: the variable makes users, and
changes none.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Final

from odradek.config.config_error import ConfigError
from odradek.config.secret import Secret
from odradek.wire.scram import ITERATIONS_MAX, ITERATIONS_MIN, MECHANISM_NUMBERS

VARIABLE: Final = "ODRADEK_ADD_SCRAM"
_USER = re.compile(r"\s*;?\s*(?P<mechanism>[A-Za-z0-9-]+)\s*=\s*\[(?P<fields>(?:\"[^\"]*\"|[^\]\"])*)\]")
_FIELD = re.compile(r"\s*(?P<key>[a-z]+)\s*=\s*(?:\"(?P<quoted>[^\"]*)\"|(?P<bare>[^,\"]*))\s*(?:,|$)")


@dataclass(frozen=True, slots=True)
class FirstUser:
    """One credential that is to be there."""

    name: str
    mechanism: str
    password: Secret = field(repr=False)
    iterations: int = ITERATIONS_MIN


def parse(text: str) -> tuple[FirstUser, ...]:
    """ConfigError: one sentence, which shows no password."""
    users = []
    at = 0
    text = text.rstrip("; \t\r\n")
    while at < len(text):
        found = _USER.match(text, at)
        if found is None:
            raise _wrong("an entry is SCRAM-SHA-256=[name=NAME,password=PASSWORD]")
        users.append(_user(found["mechanism"], found["fields"]))
        at = found.end()
    return tuple(users)


def checked_user(name: str, mechanism: str, password: str, iterations: int = ITERATIONS_MIN) -> FirstUser:
    """A user of the command line. ConfigError: one sentence."""
    if mechanism not in MECHANISM_NUMBERS:
        raise ConfigError(f"the mechanism is one of {', '.join(MECHANISM_NUMBERS)}, not {mechanism!r}.")
    if not name:
        raise ConfigError("the name of the user is empty.")
    if not password:
        raise ConfigError(f"the password of the user {name!r} is empty.")
    if not ITERATIONS_MIN <= iterations <= ITERATIONS_MAX:
        raise ConfigError(
            f"the number of iterations is {ITERATIONS_MIN} to {ITERATIONS_MAX}, not {iterations}."
        )
    return FirstUser(name, mechanism, Secret(password), iterations)


def _user(mechanism: str, text: str) -> FirstUser:
    fields: dict[str, str] = {}
    at = 0
    while at < len(text):
        found = _FIELD.match(text, at)
        if found is None or found["key"] in fields:
            raise _wrong("in the brackets stand name=, password= and iterations=, each once")
        fields[found["key"]] = found["quoted"] if found["quoted"] is not None else found["bare"].strip()
        at = found.end()
    iterations = fields.pop("iterations", str(ITERATIONS_MIN))
    if mechanism not in MECHANISM_NUMBERS:
        # What stands in its place may be the password.
        raise _wrong(f"the mechanism of an entry is one of {', '.join(MECHANISM_NUMBERS)}")
    if fields.keys() != {"name", "password"} or not iterations.isdecimal():
        raise _wrong("in the brackets stand name=, password= and iterations=, each once")
    try:
        return checked_user(fields["name"], mechanism, fields["password"], int(iterations[:9]))
    except ConfigError as error:
        raise _wrong(str(error)[:-1]) from None


def _wrong(sentence: str) -> ConfigError:
    return ConfigError(f"{VARIABLE}: {sentence}.")
