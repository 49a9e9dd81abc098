"""Profiles: named sets of options in `config.toml`, for the command line.

    profile = "test"                       # which one is used without a name
    [profiles.test]
    "bootstrap.servers" = "localhost:9092"
    [profiles.live]
    bootstrap.servers = "kafka.example:9093"   # dots may also be TOML's
    security.protocol = "SASL_SSL"
    sasl.mechanism = "SCRAM-SHA-512"
    sasl.username = "ann"
    sasl.password_command = "pass show kafka"  # its output is the password

Names are those of Java's clients or of librdkafka. A password comes from the file (which then should be
readable by its owner alone), or from `sasl.password_command` or `sasl.password_file`.
"""

import os
import stat
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from odradek.client.client_error import ClientError
from odradek.client.librdkafka_names import SECRETS

PASSWORD_SECONDS_MAX = 60
PASSWORD_BYTES_MAX = 64 * 1024
_PASSWORD = "sasl.password"


@dataclass(frozen=True, slots=True)
class Profile:
    """A name and its options, as they are in the file."""

    name: str
    options: Mapping[str, str]

    def resolved(self) -> dict[str, str]:
        """The options with the password, if a file or a command gives it. ClientError if that fails."""
        options = dict(self.options)
        command, path = options.pop(f"{_PASSWORD}_command", None), options.pop(f"{_PASSWORD}_file", None)
        if command is not None:
            options[_PASSWORD] = _password_of_command(command)
        elif path is not None:
            options[_PASSWORD] = _password_of_file(path)
        return options


@dataclass(frozen=True, slots=True)
class Profiles:
    """The content of `config.toml`; without the file there are none."""

    path: str
    by_name: Mapping[str, Profile]
    default: str | None = None
    """The profile that is used without a name."""
    is_readable_by_others: bool = False

    def get(self, name: str | None) -> Profile:
        """The profile of a name, or the default; ClientError if the name is unknown."""
        name = name or self.default
        if name is None:
            return Profile("", {})
        if name not in self.by_name:
            known = ", ".join(sorted(self.by_name)) or "none"
            raise ClientError(f"profile {name!r} does not exist in {self.path}; it has: {known}")
        return self.by_name[name]

    def warning(self, profile: Profile) -> str | None:
        """A sentence, if others can read a password in the file."""
        if self.is_readable_by_others and SECRETS.intersection(profile.options):
            return f"{self.path} has a password ({profile.name}), and others can read it: chmod 600"
        return None


def config_path(environ: Mapping[str, str]) -> str:
    """`odradek/config.toml` in the directory of XDG_CONFIG_HOME, else of ~/.config; ODRADEK_CONFIG names
    another file."""
    named = environ.get("ODRADEK_CONFIG")
    if named:
        return named
    base = environ.get("XDG_CONFIG_HOME") or os.path.join(os.path.expanduser("~"), ".config")
    return os.path.join(base, "odradek", "config.toml")


def read_profiles(path: str) -> Profiles:
    """ClientError for a file that is there and cannot be understood."""
    try:
        with open(path, "rb") as file:
            # Not imported before: it costs more than all of `odradek --version` may.
            import tomllib

            is_open = bool(os.fstat(file.fileno()).st_mode & (stat.S_IRGRP | stat.S_IROTH))
            content = tomllib.load(file)
    except FileNotFoundError:
        return Profiles(path, {})
    except OSError as error:
        raise ClientError(f"{path} cannot be read: {error.strerror or error}") from None
    except ValueError as error:
        raise ClientError(f"{path} is not a TOML file: {error}") from None
    return profiles_of(path, content, is_open)


def profiles_of(path: str, content: Mapping[str, Any], is_open: bool = False) -> Profiles:
    """Profiles from the parsed content of a file; ClientError for a content that is no profiles."""
    unknown = sorted(set(content) - {"profile", "profiles"})
    if unknown:
        raise ClientError(f"{path} has {unknown[0]!r}: it may have 'profile' and tables [profiles.NAME]")
    tables, default = content.get("profiles", {}), content.get("profile")
    if not isinstance(tables, dict) or not all(isinstance(table, dict) for table in tables.values()):
        raise ClientError(f"{path}: each profile is a table [profiles.NAME]")
    by_name = {name: Profile(name, dict(_flat(path, name, table))) for name, table in tables.items()}
    if default is not None and default not in by_name:
        raise ClientError(f"{path}: profile is {default!r}, and there is no [profiles.{default}]")
    return Profiles(path, by_name, default, is_open)


def _flat(path: str, name: str, table: Mapping[str, Any], before: str = "") -> Iterator[tuple[str, str]]:
    for key, value in table.items():
        if isinstance(value, dict):
            yield from _flat(path, name, value, f"{before}{key}.")
        elif isinstance(value, bool):
            yield before + key, str(value).lower()
        elif isinstance(value, str | int | float):
            yield before + key, str(value)
        else:
            raise ClientError(f"{path}: {before}{key} of profile {name!r} has to be a text or a number")


def _password_of_command(command: str) -> str:
    try:
        done = subprocess.run(
            command, shell=True, stdout=subprocess.PIPE, check=False, timeout=PASSWORD_SECONDS_MAX
        )
    except subprocess.TimeoutExpired:
        raise ClientError(f"{_PASSWORD}_command gave no password within {PASSWORD_SECONDS_MAX} s") from None
    if done.returncode != 0:
        raise ClientError(f"{_PASSWORD}_command failed with the exit status {done.returncode}")
    return _password(done.stdout, f"{_PASSWORD}_command")


def _password_of_file(path: str) -> str:
    try:
        with open(os.path.expanduser(path), "rb") as file:
            return _password(file.read(PASSWORD_BYTES_MAX + 1), f"{_PASSWORD}_file {path}")
    except OSError as error:
        raise ClientError(f"{_PASSWORD}_file {path} cannot be read: {error.strerror or error}") from None


def _password(content: bytes, what: str) -> str:
    """One line; the end of the line is not part of it."""
    try:
        text = content.decode().removesuffix("\n").removesuffix("\r")
    except ValueError:
        raise ClientError(f"{what} gives no text in UTF-8") from None
    if not text or "\n" in text or len(content) > PASSWORD_BYTES_MAX:
        raise ClientError(f"{what} has to give one line, the password")
    return text
