"""`odradek users`: users for SCRAM of a node that does not run."""

import argparse
import os
import sys
from typing import Any

from odradek.commands.layout import Layout

__all__ = ["ABOUT", "EXAMPLES", "add_arguments", "run"]

ABOUT = """\
Users for SCRAM of a node that does not run: the first one, for example, who may then make
others with kafka-configs. A password comes from the variable ODRADEK_PASSWORD, from a file,
from stdin or from a prompt; only keys that follow from it are stored. A broker that runs
keeps its directories locked: use kafka-configs there. A start makes the users of the
variable ODRADEK_ADD_SCRAM, such as SCRAM-SHA-256=[name=admin,password=...], if they are missing."""

EXAMPLES = """\
examples:
  odradek users add admin --mechanism SCRAM-SHA-256 --data-dir data
  odradek users add admin --mechanism SCRAM-SHA-512 --password-file secret server.properties
  odradek users list --data-dir data
  odradek users remove admin --mechanism SCRAM-SHA-256 --data-dir data

exit status: 0, or 1 when nothing was changed (one sentence says why)."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    layout: Any = Layout
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    for name, about in (
        ("add", "make a user, or give it another password"),
        ("remove", "remove one"),
        ("list", "show all"),
    ):
        action = actions.add_parser(
            name, help=about, description=about, formatter_class=layout, allow_abbrev=False
        )
        if name != "list":
            action.add_argument("name", metavar="NAME", help="name of the user")
            action.add_argument(
                "--mechanism",
                required=True,
                choices=("SCRAM-SHA-256", "SCRAM-SHA-512"),
                help="of the password",
            )
        action.add_argument(
            "properties", nargs="?", metavar="server.properties", help="file with Kafka's options"
        )
        action.add_argument(
            "--data-dir", metavar="DIR", help="where the data is (default ./data, or option log.dirs)"
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


def run(options: argparse.Namespace) -> int:
    from odradek.config import first_users
    from odradek.config.broker_config import ConfigError, load
    from odradek.server.security import users

    try:
        config = load(options.properties, environ=os.environ, data_dir=options.data_dir)
        if options.action == "list":
            for name, mechanism, iterations in users.listed(config):
                print(f"{name!r} {mechanism} iterations={iterations}")
        elif options.action == "remove":
            if not users.remove(config, options.name, options.mechanism):
                raise ConfigError(f"there is no user {options.name!r} with {options.mechanism}.")
        else:
            password = users.read_password(options.password_file, sys.stdin)
            user = first_users.checked_user(options.name, options.mechanism, password, options.iterations)
            users.add(config, user)
    except ConfigError as error:
        print(f"odradek: {error}", file=sys.stderr)
        return 1
    return 0
