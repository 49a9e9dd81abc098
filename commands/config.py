"""`odradek config`: the configuration file with its profiles."""

import argparse
import os
import sys
from collections.abc import Callable
from typing import Any

from odradek.client.client_error import ClientError
from odradek.client.config_file import change_default, change_profile, remove_profile
from odradek.client.connecting import tell_unused
from odradek.client.librdkafka_names import SECRETS
from odradek.client.profiles import Profile, Profiles, config_path, read_profiles
from odradek.client.settings import is_client_option
from odradek.commands.actions import add_dry_run, new_actions
from odradek.commands.output import Column, Output, add_output_arguments
from odradek.config.config_error import ConfigError
from odradek.config.passwords import read_password

ABOUT = """\
The configuration file of the command line. A profile has a name and the properties of one
connection, with Kafka's names or librdkafka's; --profile or the variable ODRADEK_PROFILE
says which one a command uses, else the default. Secrets are never shown, and are no
arguments; the file is readable by its owner alone."""

EXAMPLES = """\
examples:
  odradek config set live bootstrap.servers=kafka.example:9093 security.protocol=SASL_SSL
  odradek config set live sasl.mechanism=SCRAM-SHA-512 sasl.username=ann
  odradek config set-password live
                        asks for it; or from stdin: pass show kafka | odradek config ...
  odradek config set live "sasl.password_command=pass show kafka"
                        instead: what the command prints is the password
  odradek config use live
  odradek config list
  odradek config unset live ssl.ca.location
  odradek config unset live
                        the whole profile
  odradek config path

keys of path: path exists.
keys of list, set, set-password, unset and use: profile default name value.

exit status: 0, or 1 when something could not be done (a sentence says what)."""

HIDDEN = "***"
PASSWORD = "sasl.password"
_OTHER_SOURCES = (f"{PASSWORD}_command", f"{PASSWORD}_file")
_KEYS = {"ssl.key.pem", "ssl.keystore.key"}
_OF_A_LINE = sorted(SECRETS - _KEYS)
_COLUMNS = [Column("profile"), Column("default"), Column("name"), Column("value")]
Act = Callable[[str, argparse.Namespace, Output], int]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The actions and their options."""
    actions = new_actions(parser)
    _action(actions, "path", "where the file is", _path)
    _action(actions, "list", "the profiles and their properties", _list)
    one = _action(actions, "set", "set properties of a profile, which is made if it is missing", _set)
    one.add_argument("profile", metavar="PROFILE")
    one.add_argument("values", nargs="+", metavar="NAME=VALUE")
    one = _action(
        actions, "set-password", "set the password of a profile, from a prompt or stdin", _set_password
    )
    one.add_argument("profile", metavar="PROFILE")
    one.add_argument(
        "--name", choices=_OF_A_LINE, default=PASSWORD, metavar="NAME", help=f"default {PASSWORD}"
    )
    one = _action(actions, "unset", "take properties out of a profile, or the whole profile", _unset)
    one.add_argument("profile", metavar="PROFILE")
    one.add_argument("names", nargs="*", metavar="NAME")
    add_dry_run(one)
    one = _action(actions, "use", "make a profile the default", _use)
    one.add_argument("profile", metavar="PROFILE")


def _action(actions: Any, name: str, about: str, act: Act) -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = actions.add_parser(name, help=about, description=about)
    parser.set_defaults(act=act)
    add_output_arguments(parser)
    return parser


def run(options: argparse.Namespace) -> int:
    """Does the action; returns the exit status."""
    act: Act = options.act
    try:
        return act(config_path(os.environ), options, Output.of(options))
    except ConfigError as error:
        raise ClientError(str(error).rstrip(".")) from None


def _path(path: str, options: argparse.Namespace, output: Output) -> int:
    if output.is_table:
        output.line(path)
    else:
        output.rows([Column("path"), Column("exists")], [{"path": path, "exists": os.path.exists(path)}])
    return 0


def _list(path: str, options: argparse.Namespace, output: Output) -> int:
    found = read_profiles(path)
    rows = [row for name in sorted(found.by_name) for row in _rows(found, name)]
    output.rows(_COLUMNS, rows, f"no profiles ({path})")
    return 0


def _rows(found: Profiles, name: str) -> list[dict[str, object]]:
    """A row for each property; one without a property for an empty profile."""
    options = found.by_name[name].options
    shown: list[tuple[str | None, str | None]] = [
        (option, HIDDEN if option in SECRETS else value) for option, value in sorted(options.items())
    ]
    return [
        {"profile": name, "default": name == found.default, "name": option, "value": value}
        for option, value in shown or [(None, None)]
    ]


def _set(path: str, options: argparse.Namespace, output: Output) -> int:
    _refuse_empty(options.profile)
    changes: dict[str, str | None] = dict(map(_property, options.values))
    for name in changes:
        if not is_client_option(name):
            tell_unused(name, _OTHER_SOURCES)
    change_profile(path, options.profile, changes)
    return _show(path, options.profile, changes, output)


def _set_password(path: str, options: argparse.Namespace, output: Output) -> int:
    _known(path, options.profile)
    secret = read_password(None, sys.stdin, variable=None)
    if not secret:
        raise ClientError("the password is empty; nothing was changed")
    changes: dict[str, str | None] = {options.name: secret}
    if options.name == PASSWORD:
        # They would rule over it.
        changes.update(dict.fromkeys(_OTHER_SOURCES))
    change_profile(path, options.profile, changes)
    return _show(path, options.profile, [options.name], output)


def _unset(path: str, options: argparse.Namespace, output: Output) -> int:
    found = read_profiles(path)
    profile = _known(path, options.profile)
    missing = [name for name in options.names if name not in profile.options]
    if missing:
        raise ClientError(f"the profile {options.profile!r} has no property {missing[0]}")
    rows = [row for row in _rows(found, options.profile) if not options.names or row["name"] in options.names]
    if not options.dry_run:
        if options.names:
            change_profile(path, options.profile, dict.fromkeys(options.names))
        else:
            remove_profile(path, options.profile)
    output.rows(_COLUMNS, rows)
    return 0


def _use(path: str, options: argparse.Namespace, output: Output) -> int:
    _known(path, options.profile)
    change_default(path, options.profile)
    output.rows(_COLUMNS, _rows(read_profiles(path), options.profile))
    return 0


def _show(path: str, profile: str, names: Any, output: Output) -> int:
    output.rows(_COLUMNS, [row for row in _rows(read_profiles(path), profile) if row["name"] in names])
    return 0


def _known(path: str, profile: str) -> Profile:
    _refuse_empty(profile)
    return read_profiles(path).get(profile)


def _refuse_empty(profile: str) -> None:
    if not profile:
        raise ClientError("the name of the profile is empty")


def _property(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise ClientError(f"{text} is not NAME=VALUE")
    if name in SECRETS:
        instead = f"'odradek config set-password PROFILE{'' if name == PASSWORD else f' --name {name}'}'"
        raise ClientError(
            f"{name} would show the secret to everybody who can list the processes of this machine: use "
            f"{'ssl.key.location, which names a file' if name in _KEYS else instead}"
        )
    return name, value
