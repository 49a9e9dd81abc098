"""Where a password comes from: never from an argument, which all see who see the processes of a machine."""

import os
from typing import Final, TextIO

from odradek.config.config_error import ConfigError

__all__ = ["PASSWORD_VARIABLE", "read_password"]

PASSWORD_VARIABLE: Final = "ODRADEK_PASSWORD"
_PASSWORD_BYTES_MAX = 1024


def read_password(path: str | None, stdin: TextIO, variable: str | None = PASSWORD_VARIABLE) -> str:
    """From the variable of the environment, or the file at `path`, or a prompt, or a line of `stdin` (`path`
    is `-`, or there is no terminal). One line end at the end does not count. ConfigError: one sentence."""
    if path is None and variable is not None and variable in os.environ:
        return os.environ[variable]
    if path is None and stdin.isatty():
        return _prompted()
    try:
        if path in (None, "-"):
            text = stdin.readline(_PASSWORD_BYTES_MAX)
        else:
            assert path is not None
            with open(path, encoding="utf-8") as file:
                text = file.read(_PASSWORD_BYTES_MAX)
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is no UTF-8"
        raise ConfigError(f"{path} cannot be read: {reason}.") from None
    return text.removesuffix("\n").removesuffix("\r")


def _prompted() -> str:
    from getpass import getpass
    from hmac import compare_digest

    password = getpass("Password: ")
    if not compare_digest(password.encode(), getpass("Again: ").encode()):
        raise ConfigError("the two passwords differ; nothing was changed.")
    return password
