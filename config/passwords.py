"""Where a password comes from: never from an argument, which all see who see the processes of a machine."""

import os
from collections.abc import Callable
from typing import Final, TextIO

from odradek.config.config_error import ConfigError

PASSWORD_VARIABLE: Final = "ODRADEK_PASSWORD"
_PASSWORD_LENGTH_MAX = 1024


def read_password(path: str | None, stdin: TextIO, variable: str | None = PASSWORD_VARIABLE) -> str:
    """From the variable of the environment, or the file at `path`, or a prompt, or a line of `stdin` (`path`
    is `-`, or there is no terminal). One line end at the end does not count. ConfigError: one sentence, also
    for a password that is too long or has a second line."""
    if path is None and variable is not None and variable in os.environ:
        source, text = variable, os.environ[variable]
    elif path is None and stdin.isatty():
        source, text = "the prompt", _prompted()
    elif path in (None, "-"):
        source, text = "standard input", _text_of(stdin.readline, "standard input")
    else:
        assert path is not None
        source = path
        try:
            with open(path, encoding="utf-8", newline="") as file:
                text = _text_of(file.read, source)
        except OSError as error:
            raise ConfigError(f"{path} cannot be read: {error.strerror}.") from None
    line = text.removesuffix("\n").removesuffix("\r")
    if len(line) > _PASSWORD_LENGTH_MAX:
        raise ConfigError(f"the password of {source} has more than {_PASSWORD_LENGTH_MAX} characters.")
    if "\n" in line or "\r" in line:
        raise ConfigError(f"the password of {source} has more than one line.")
    return line


def _text_of(read: Callable[[int], str], source: str) -> str:
    """The text, up to a length that shows that a password is too long."""
    try:
        return read(_PASSWORD_LENGTH_MAX + len("\r\n") + 1)
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise ConfigError(f"{source} cannot be read: {reason}.") from None


def _prompted() -> str:
    from getpass import getpass
    from hmac import compare_digest

    password = getpass("Password: ")
    if not compare_digest(password.encode(), getpass("Again: ").encode()):
        raise ConfigError("the two passwords differ; nothing was changed.")
    return password
