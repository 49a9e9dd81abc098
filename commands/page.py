"""`python -m odradek.commands.page`: docs/commands.md, from the parsers of all commands."""

import argparse
import os
from collections.abc import Iterator

from odradek.commands.command import COMMANDS, Command, parser_of

COLUMNS = 100
"""Width of the help texts."""
_HEAD = """\
# Commands

This page is made from the parsers of the commands by `python -m odradek.commands.page`. `odradek spark` has a
page of its own: [spark.md](spark.md).

Commands that ask brokers are tested with Odradek and with Apache Kafka 4.4.0. They share these rules:

- Brokers and logins come, each overriding the one before, from a profile of the configuration file, from
  `ODRADEK_BOOTSTRAP_SERVERS` and `ODRADEK_SASL_PASSWORD`, from the file of `--command-config` (as Kafka's
  tools take it), from `-X`, from `-b`. The configuration file is `$XDG_CONFIG_HOME/odradek/config.toml`, else
  `~/.config/odradek/config.toml`; `ODRADEK_CONFIG` names another one. `--profile` or `ODRADEK_PROFILE`
  chooses the profile.
- Names of properties are those of Java's clients or of librdkafka. A password is never an argument; a person
  at a terminal is asked for the one that `sasl.username` lacks.
- A broker without a port is at 9092. After a second without one, a line on stderr says what is waited for; a
  host name without an address ends at once.
- Options may stand between names. An unknown command, action, option or property is an error, with the name
  that was meant if one is near. A command without its action shows its help.
- `--output json`, which is also `-J` and `--json`, is one list, `jsonl` an object a line, `tsv` has the keys
  in its first line. Commands that print while they find (`consume`, `check`, `dump`) have an object a line in
  both forms of JSON; `produce -J` reads such lines. Keys are in snake_case, with the unit in the name. What a
  table does not show for want of room is in all of these.
- Exit status: 0 done, 1 could not (a sentence on stderr; the rest was done), 2 wrong usage, 130 interrupted,
  143 ended by SIGTERM, which is handled as Ctrl-C is. A closed pipe is 0.
- Colours are for terminals; `NO_COLOR`, `FORCE_COLOR` and `--color` change that.

"""


def page() -> str:
    """The whole page."""
    before = os.environ.get("COLUMNS")
    os.environ["COLUMNS"] = str(COLUMNS)
    try:
        return _HEAD + "\n".join(_sections())
    finally:
        if before is None:
            del os.environ["COLUMNS"]
        else:
            os.environ["COLUMNS"] = before


def _sections() -> Iterator[str]:
    for command in COMMANDS.values():
        if not command.reads_arguments and command.help:
            yield from _section(command)


def _section(command: Command) -> Iterator[str]:
    parser = parser_of(command, command.load())
    yield f"## odradek {command.name}\n\n```text\n{parser.format_help()}```\n"
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for name, of_action in action.choices.items():
                yield f"### odradek {command.name} {name}\n\n```text\n{of_action.format_help()}```\n"


if __name__ == "__main__":
    print(page(), end="")
