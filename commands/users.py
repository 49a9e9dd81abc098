"""`odradek users`: users for SCRAM, of a cluster that runs or of a data directory that nobody serves."""

import argparse
import os
import sys
from collections.abc import Iterable
from typing import Protocol

from odradek.client.admin.users import Credential, describe_users, put_user, remove_user
from odradek.client.client_error import ClientError
from odradek.client.cluster import Cluster
from odradek.client.connecting import add_connection_arguments, cluster_of
from odradek.commands.actions import add_dry_run, new_actions
from odradek.commands.output import Column, Output, add_output_arguments
from odradek.config.config_error import ConfigError
from odradek.config.first_users import FirstUser, checked_user
from odradek.config.passwords import read_password
from odradek.wire.errors import ErrorCode

ABOUT = """\
Users for SCRAM: of any Kafka cluster, or (with --data-dir or server.properties, and only
then) of a node that does not run: the first user, for example, who may then log in and make
others. A broker that runs keeps its directories locked. A password comes from the variable
ODRADEK_PASSWORD, from a file, from stdin or from a prompt; only keys that follow from it are
sent and stored. A start makes the users of the variable ODRADEK_ADD_SCRAM, such as
SCRAM-SHA-256=[name=admin,password=...], if they are missing."""

EXAMPLES = """\
examples:
  odradek users list -b kafka.example:9093 --command-config admin.properties
  odradek users add ann --mechanism SCRAM-SHA-512
  odradek users remove ann --mechanism SCRAM-SHA-512 --dry-run
  odradek users add admin --mechanism SCRAM-SHA-256 --data-dir data
                        before the first start
  odradek users add admin server.properties --mechanism SCRAM-SHA-512 --password-file secret
  odradek users list --data-dir data

keys: user mechanism iterations.

exit status: 0, or 1 when nothing was changed (one sentence says why)."""

_COLUMNS = [Column("user"), Column("mechanism"), Column("iterations", right=True)]


class _Place(Protocol):
    """Where users are."""

    def listed(self) -> list[Credential]: ...

    def add(self, user: FirstUser) -> None: ...

    def remove(self, credential: Credential) -> None: ...


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The actions and their options."""
    actions = new_actions(parser)
    for name, about, act in (
        ("add", "make a user, or give it another password", _add),
        ("remove", "remove one", _remove),
        ("list", "show all", _list),
    ):
        action = actions.add_parser(name, help=about, description=about)
        action.set_defaults(act=act)
        if name != "list":
            action.add_argument("name", metavar="NAME", help="name of the user")
            action.add_argument(
                "--mechanism",
                required=True,
                choices=("SCRAM-SHA-256", "SCRAM-SHA-512"),
                help="of the password",
            )
        if name == "add":
            action.add_argument("--password-file", metavar="FILE", help="file with the password; -: stdin")
            action.add_argument(
                "--iterations",
                type=int,
                default=4096,
                metavar="N",
                help="of the hash, 4096 to 16384 (default 4096)",
            )
        if name == "remove":
            add_dry_run(action)
        _add_place(action)


def _add_place(action: argparse.ArgumentParser) -> None:
    stopped = action.add_argument_group("a node that does not run")
    stopped.add_argument(
        "server_properties", nargs="?", metavar="server.properties", help="its file with Kafka's options"
    )
    stopped.add_argument("--data-dir", metavar="DIR", help="its data (default: option log.dirs of the file)")
    add_connection_arguments(action)
    add_output_arguments(action)


def run(options: argparse.Namespace) -> int:
    """Does the action; returns the exit status."""
    output = Output.of(options)
    try:
        if options.data_dir is not None or options.server_properties is not None:
            return int(options.act(_Directory(options), options, output))
        with cluster_of(options) as cluster:
            return int(options.act(_Brokers(cluster), options, output))
    except ClientError as error:
        raise ClientError(f"{error}{_hint(options) if error.code is None else ''}", error.code) from None
    except ConfigError as error:
        raise ClientError(str(error).rstrip(".")) from None


def _hint(options: argparse.Namespace) -> str:
    """Without options, some may have the node in mind that they have just stopped."""
    if _names_brokers(options) or not os.path.isdir("data"):
        return ""
    return "; for the users of a node that does not run, give --data-dir data"


def _names_brokers(options: argparse.Namespace) -> bool:
    return bool(options.bootstrap_server or options.profile or options.command_config or options.properties)


# The actions ------------------------------------------------------------------------------------------


def _list(place: _Place, options: argparse.Namespace, output: Output) -> int:
    found = place.listed()
    if isinstance(place, _Directory):
        for one in found:
            output.line(f"{one.user!r} {one.mechanism} iterations={one.iterations}")
    if isinstance(place, _Brokers) or not output.is_table:
        _show(output, found, "no users")
    return 0


def _add(place: _Place, options: argparse.Namespace, output: Output) -> int:
    password = read_password(options.password_file, sys.stdin)
    user = checked_user(options.name, options.mechanism, password, options.iterations)
    place.add(user)
    _show(output, [Credential(user.name, user.mechanism, user.iterations)])
    return 0


def _remove(place: _Place, options: argparse.Namespace, output: Output) -> int:
    wanted = [one for one in place.listed() if (one.user, one.mechanism) == (options.name, options.mechanism)]
    if not wanted:
        raise ClientError(
            f"user {options.name!r} with {options.mechanism} does not exist", ErrorCode.RESOURCE_NOT_FOUND
        )
    if not options.dry_run:
        place.remove(wanted[0])
    _show(output, wanted)
    return 0


def _show(output: Output, credentials: Iterable[Credential], nothing: str = "") -> None:
    rows = [
        {"user": one.user, "mechanism": one.mechanism, "iterations": one.iterations} for one in credentials
    ]
    output.rows(_COLUMNS, rows, nothing)


# The places -------------------------------------------------------------------------------------------


class _Brokers:
    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    def listed(self) -> list[Credential]:
        return describe_users(self._cluster)

    def add(self, user: FirstUser) -> None:
        put_user(self._cluster, user.name, user.mechanism, user.password.reveal(), user.iterations)

    def remove(self, credential: Credential) -> None:
        remove_user(self._cluster, credential.user, credential.mechanism)


class _Directory:
    """ConfigError from all methods: one sentence."""

    def __init__(self, options: argparse.Namespace) -> None:
        """ClientError for options that name brokers as well."""
        # Imported late: the modules of a node are many.
        from odradek.config.broker_config import load
        from odradek.server.security import stopped_users as users

        if _names_brokers(options):
            raise ClientError("the users are either of brokers or of a data directory: name one of them")
        self._config = load(options.server_properties, environ=os.environ, data_dir=options.data_dir)
        self._users = users

    def listed(self) -> list[Credential]:
        return [Credential(*found) for found in self._users.listed(self._config)]

    def add(self, user: FirstUser) -> None:
        self._users.add(self._config, user)

    def remove(self, credential: Credential) -> None:
        self._users.remove(self._config, credential.user, credential.mechanism)
