"""The commands, by name, and their parsers."""

import argparse
from collections.abc import Sequence
from importlib import import_module
from typing import Any, NamedTuple

from odradek.config.command_line import Parser

_ABOUT = """\
Odradek is a durable broker that speaks Kafka's protocol: any Kafka client can use it
as it is, and it takes Kafka's own server.properties."""

_EXAMPLES = """\
examples:
  odradek serve                           a broker on localhost:9092, its data in ./data
  odradek serve --listen 0.0.0.0:9092     the same, reachable from other machines
  odradek serve server.properties         with Kafka's own options
  odradek topics create orders -p 6       at the broker on localhost:9092 (-b for another)
  odradek consume orders --follow
  odradek doctor                          why does my client not connect?
  odradek users add admin --mechanism SCRAM-SHA-256 --data-dir data
                                          the first user, before a start
  odradek dump data                       what a data directory holds
  odradek check data                      whether it is sound
  odradek backup data monday.tar          a copy of it, also while the broker runs
  odradek import-log kafka-logs --topic orders
                                          take a topic of Apache Kafka into ./data
  odradek spark archive --help            jobs on Spark: topics into tables and back

'odradek serve --help' says more of serve, and so for each command."""


class Command(NamedTuple):
    """A command. Its module has ABOUT and EXAMPLES (for the help), `add_arguments(parser)` and
    `run(options)`, which returns the exit status."""

    name: str
    help: str
    """Empty for what scripts call, and people do not."""

    module: str
    reads_arguments: bool = False
    """Whether the module has `main(arguments)` instead, with a parser of its own."""

    tells_failures: bool = False
    """Whether it is run by `asking.run`, which tells its failures."""

    def load(self) -> Any:
        return import_module(f"odradek.commands.{self.module}")


COMMANDS = {
    command.name: command
    for command in (
        Command("serve", "start a broker", "serve"),
        Command("users", "users for SCRAM: list, add, remove", "users", tells_failures=True),
        Command(
            "topics", "list, describe, create, change, trim, delete topics", "topics", tells_failures=True
        ),
        Command("groups", "lag and members of groups; seek, delete", "groups", tells_failures=True),
        Command(
            "transactions", "list, describe, abort, find hanging ones", "transactions", tells_failures=True
        ),
        Command("producers", "who writes to a topic", "producers", tells_failures=True),
        Command(
            "configs",
            "options of topics, brokers, groups: get, diff, set, unset",
            "configs",
            tells_failures=True,
        ),
        Command("acls", "who may do what: list, add, remove", "acls", tells_failures=True),
        Command(
            "quotas",
            "limits of users, clients and addresses: list, set, remove",
            "quotas",
            tells_failures=True,
        ),
        Command("cluster", "brokers, health, features, log directories", "cluster", tells_failures=True),
        Command(
            "config", "profiles: how brokers are reached, and who logs in", "config", tells_failures=True
        ),
        Command(
            "completion",
            "scripts that complete commands and names in a shell",
            "completion",
            tells_failures=True,
        ),
        Command("doctor", "why does my client not connect?", "doctor", tells_failures=True),
        Command("produce", "write lines, or lines of JSON, into a topic", "produce", tells_failures=True),
        Command("consume", "print the records of topics", "consume", tells_failures=True),
        Command("console", "a web console for a browser", "console", tells_failures=True),
        Command(
            "trace",
            "requests of clients, as a broker with a test API saw them",
            "trace",
            tells_failures=True,
        ),
        Command("bench", "a load for a broker, and its latencies", "bench", tells_failures=True),
        Command("backup", "copy a data directory into a file, also while it is served", "backup"),
        Command("snapshot", "the same, packed, for tests to begin with", "snapshot"),
        Command("check", "check data directories, and repair them", "check"),
        Command("dump", "show what files of a broker hold", "dump"),
        Command("import-log", "take a topic of Apache Kafka into a data directory", "import_log"),
        Command("monitoring", "boards for Grafana and rules for Prometheus, as files", "monitoring"),
        Command("spark", "jobs on Spark (pip install 'odradek[spark]')", "spark", reads_arguments=True),
        Command("__complete", "", "completing", reads_arguments=True),
    )
}


def joined(arguments: Sequence[str]) -> list[str]:
    """The arguments, with a value such as `-1h` or `-5` joined to the option before it: argparse takes what
    begins with a hyphen for an option."""
    found: list[str] = []
    for argument in arguments:
        before = found[-1] if found else ""
        if argument[:1] == "-" and argument[1:2].isdigit() and before[:1] == "-" and "=" not in before:
            found[-1] = f"{before}={argument}" if before.startswith("--") else before + argument
        else:
            found.append(argument)
    return found


def main_parser() -> argparse.ArgumentParser:
    """For the options without a command, and for the list of commands."""
    parser = Parser(prog="odradek", usage="odradek COMMAND ...", description=_ABOUT, epilog=_EXAMPLES)
    parser.add_argument("--version", action="store_true", help="print version, Python and compiled parts")
    commands = parser.add_subparsers(metavar="COMMAND", title="commands")
    for command in filter(lambda one: one.help, COMMANDS.values()):
        commands.add_parser(command.name, help=command.help, add_help=False)
    return parser


def parser_of(command: Command, module: Any) -> argparse.ArgumentParser:
    """The parser of a command whose module is loaded."""
    parser = Parser(prog=f"odradek {command.name}", description=module.ABOUT, epilog=module.EXAMPLES)
    module.add_arguments(parser)
    return parser
