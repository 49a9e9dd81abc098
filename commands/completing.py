"""`odradek __complete LINE`: what may stand where the line of a shell ends, for `odradek completion`.

The first line that it prints says what the other ones are: `names`, a candidate and its help each, with a tab
between them; or `files`, or `directories`, which the shell finds by itself. The parsers are asked, so a
command and its completion are never of two versions.
"""

import argparse
import shlex
import sys
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from odradek.commands.command import COMMANDS, main_parser, parser_of
from odradek.config.command_line import DIRECTORIES, FILES

_NAMES = {
    "TOPIC": "topics",
    "TOPIC:PARTITION": "topics",
    "TOPIC[:PARTITION]": "topics",
    "GROUP": "groups",
    "PROFILE": "profiles",
}
"""Metavar of an argument -> the kind of the names that brokers or the configuration know."""
_CURSOR = "\0"

Names = Callable[[str, Sequence[str]], list[str]]
"""The names of a kind, with the options of the words before them."""


class Found(NamedTuple):
    """Candidates for a place in the line."""

    kind: str
    """`names`, `files` or `directories`."""
    names: dict[str, str] = {}
    """Candidate -> its help, which may be empty."""


def main(arguments: Sequence[str]) -> int:
    """Prints what may stand at the end of the line."""
    found = complete(*words_of("".join(arguments[:1])), _known_names)
    sys.stdout.write(f"{found.kind}\n")
    for name, told in found.names.items():
        if name.isprintable():
            sys.stdout.write(f"{name}\t{' '.join(told.split())}\n")
    return 0


def _known_names(kind: str, words: Sequence[str]) -> list[str]:
    # Only here: to import a client takes longer than all else.
    from odradek.commands.known_names import known_names

    return known_names(kind, words)


def words_of(line: str) -> tuple[list[str], str]:
    """The words behind the name of the program, without quotes; and the last of them, which is not complete.
    A quote of it may not be closed yet."""
    for closing in ("", "'", '"'):
        try:
            *words, last = shlex.split(line + _CURSOR + closing)
        except ValueError:
            continue
        return words[1:], last.removesuffix(_CURSOR)
    return [], ""


def complete(words: Sequence[str], last: str, names: Names) -> Found:
    """Candidates for the place of `last` behind these words."""
    command = COMMANDS.get(words[0]) if words else None
    if words and (command is None or not command.help):
        return Found("names")
    place = _Place(main_parser() if command is None else _parser(words[0]))
    for word in words[1:]:
        place.pass_word(word)
    option, equals, value = last.partition("=")
    if last.startswith("--") and equals and option in place.options:
        found = _values(place, place.options[option], words, names)
        return _beginning(found, value, f"{option}=")
    if place.awaiting is not None:
        return _beginning(_values(place, place.awaiting, words, names), last)
    if last.startswith("-") and not place.only_positionals:
        return _beginning(Found("names", _helps_of_options(place)), last)
    if place.positionals:
        return _beginning(_values(place, place.positionals[0], words, names), last)
    return Found("names")


def _parser(name: str) -> argparse.ArgumentParser:
    command = COMMANDS[name]
    if name == "spark":
        from odradek.spark.cli import make_parser

        return make_parser()[0]
    return parser_of(command, command.load())


class _Place:
    """Where among the arguments of a parser a line has come."""

    def __init__(self, parser: argparse.ArgumentParser) -> None:
        self._enter(parser)
        self.awaiting: argparse.Action | None = None
        """The option whose value has to come next."""
        self.only_positionals = False

    def _enter(self, parser: argparse.ArgumentParser) -> None:
        self.parser = parser
        self.options = {name: action for action in parser._actions for name in action.option_strings}
        self.positionals = [action for action in parser._actions if not action.option_strings]

    def pass_word(self, word: str) -> None:
        """Go on behind a word."""
        if self.awaiting is not None:
            self.awaiting = None
        elif word == "--":
            self.only_positionals = True
        elif word.startswith("-") and word != "-" and not self.only_positionals:
            option = self.options.get(word)
            self.awaiting = option if option is not None and option.nargs != 0 else None
        elif self.positionals:
            self._pass_positional(self.positionals[0], word)

    def _pass_positional(self, action: argparse.Action, word: str) -> None:
        if isinstance(action, argparse._SubParsersAction):
            self.positionals = []
            if word in action.choices:
                self._enter(action.choices[word])
        elif action.nargs not in ("*", "+"):
            del self.positionals[0]


def _values(place: _Place, action: argparse.Action, words: Sequence[str], names: Names) -> Found:
    if isinstance(action, argparse._SubParsersAction):
        return Found("names", {one.dest: one.help or "" for one in action._choices_actions})
    if action.choices is not None:
        return Found("names", dict.fromkeys(map(str, action.choices), ""))
    kind = _NAMES.get(str(action.metavar), "profiles" if action.dest == "profile" else None)
    if kind is not None:
        return Found("names", dict.fromkeys(names(kind, words), ""))
    if action.metavar in FILES:
        return Found("files")
    return Found("directories") if action.metavar in DIRECTORIES else Found("names")


def _helps_of_options(place: _Place) -> dict[str, str]:
    formatter: Any = place.parser._get_formatter()
    return {
        name: formatter._expand_help(action) if action.help else ""
        for name, action in place.options.items()
        if action.help != argparse.SUPPRESS
    }


def _beginning(found: Found, beginning: str, before: str = "") -> Found:
    kept = {f"{before}{name}": told for name, told in found.names.items() if name.startswith(beginning)}
    return Found(found.kind, kept)
