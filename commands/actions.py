"""Commands with several actions, such as `odradek acls list`: the parser of each, and how it is run.

    one = add_action(actions, "list", "what there is", _list)

`act_on_cluster` runs the action that was chosen, with the brokers that the options name.
"""

import argparse
from collections.abc import Callable
from typing import Any

from odradek.client.cluster import Cluster
from odradek.client.connecting import add_connection_arguments, cluster_of
from odradek.commands.output import Output, add_output_arguments

Action = Callable[[Cluster, argparse.Namespace, Output], int]
"""Prints what it finds or does; returns the exit status."""


def new_actions(parser: argparse.ArgumentParser) -> Any:
    """Where the actions of a command are added."""
    return parser.add_subparsers(dest="action", metavar="ACTION", required=True)


def add_action(actions: Any, name: str, about: str, act: Action) -> argparse.ArgumentParser:
    """The parser of an action, with the options of connections and output."""
    parser: argparse.ArgumentParser = actions.add_parser(name, help=about, description=about)
    parser.set_defaults(act=act)
    add_connection_arguments(parser)
    add_output_arguments(parser)
    return parser


def add_dry_run(parser: argparse.ArgumentParser) -> None:
    """`--dry-run`."""
    parser.add_argument("--dry-run", action="store_true", help="show what would be done, and do nothing")


def act_on_cluster(options: argparse.Namespace) -> int:
    """Does the action; returns the exit status."""
    action: Action = options.act
    with cluster_of(options) as cluster:
        return action(cluster, options, Output.of(options))
