"""The command lines of Odradek: one parser for the commands, their actions and the jobs on Spark.

What argparse leaves open is decided here: options may stand between names, a slip is answered with the name
that is near, and a command without its action shows its help. Names that are not UTF-8 become what a broker
would make of them.
"""

import argparse
import os
import sys
from collections.abc import Sequence
from typing import Any, NoReturn

from odradek.config.near_names import did_you_mean
from odradek.wire.java_text import AS_JAVA

FILES = frozenset({"FILE", "PATH", "server.properties", "DIR_OR_FILE"})
"""Metavars of arguments that are paths of files."""
DIRECTORIES = frozenset({"DIR", "DIRECTORY"})
"""Metavars of arguments that are paths of directories."""
SIMILAR_ACTIONS = 0.6
"""Names of actions are short: one letter is a larger share of them."""
COMMENT_COLUMN = 24
"""Where options are told, and examples."""


def readable(word: str) -> str:
    """A word of the command line as text that a request can hold: what is not UTF-8 becomes U+FFFD.

    Python keeps such bytes as surrogates, which no request can hold. Java's tools and brokers read U+FFFD.
    """
    if word.isascii() or not any("\ud800" <= letter <= "\udfff" for letter in word):
        return word
    try:
        return word.encode("utf-8", "surrogateescape").decode("utf-8", AS_JAVA)
    except UnicodeEncodeError:  # Halves of characters that stand for no byte, as Windows has them.
        return word.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def exact(word: str) -> str:
    """The type of an argument that keeps its bytes: a part of a record, or a value that may be a path."""
    return word


class Layout(argparse.RawDescriptionHelpFormatter):
    """Help as wide as the terminal; argparse would import shutil, and all compressors with it, to learn
    that."""

    def __init__(self, prog: str) -> None:
        try:
            columns = int(os.environ.get("COLUMNS") or os.get_terminal_size().columns)
        except (OSError, ValueError):
            columns = 80
        super().__init__(prog, width=max(columns, 20) - 2)

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        """A description, or examples: as written where the terminal has room for it."""
        lines = text.splitlines()
        if max(map(len, lines), default=0) > width:
            text = "\n".join(_wrapped(lines, width))
        return super()._fill_text(text, width, indent)


def _wrapped(lines: Sequence[str], width: int) -> list[str]:
    """Paragraphs and examples in which a line is too long are filled anew."""
    parts: list[list[str]] = []
    for line in lines:
        if parts and _goes_on(parts[-1], line):
            parts[-1].append(line)
        else:
            parts.append([line])
    found: list[str] = []
    for part in parts:
        if max(map(len, part)) <= width:
            found += part
        else:
            found += _example(part, width) if part[0][0] == " " else _filled(" ".join(part), width, "")
    return found


def _goes_on(part: Sequence[str], line: str) -> bool:
    """Whether a line belongs to the lines before: to a paragraph, or to what is told of an example."""
    if not line or not part[0]:
        return False
    if part[0][0] == " ":
        return _indentation(line) > _indentation(part[0])
    return line[0] != " " and not line.startswith("keys")


def _indentation(line: str) -> int:
    return len(line) - len(line.lstrip())


def _example(part: Sequence[str], width: int) -> list[str]:
    """A command, or a word, and what is told of it. A command that goes on in a second line says so."""
    first, *others = part
    place = _indentation(first)
    command, _, told = first.strip().partition("  ")
    told = told.strip()
    column = len(first) - len(told) if told else min(map(_indentation, others), default=0)
    all_told = " ".join([told, *map(str.strip, others)]).strip()
    if told and column <= COMMENT_COLUMN:
        return _filled(all_told, width, first[:column], " " * column)
    lines = _filled(command, width - 2, " " * place, " " * (place + 4))
    if command.startswith("odradek "):
        lines = [*(f"{line} \\" for line in lines[:-1]), lines[-1]]
    return lines + (_filled(all_told, width, " " * min(column, COMMENT_COLUMN)) if all_told else [])


def _filled(text: str, width: int, first: str, others: str | None = None) -> list[str]:
    import textwrap  # only help needs it, which argparse makes with it, too

    return textwrap.wrap(
        text,
        width,
        initial_indent=first,
        subsequent_indent=first if others is None else others,
        break_long_words=False,
        break_on_hyphens=False,
    )


class Parser(argparse.ArgumentParser):
    """The parser of a command, of an action or of a job; `add_subparsers` makes more of them."""

    def __init__(self, **texts: Any) -> None:
        layout: Any = Layout
        super().__init__(**{"formatter_class": layout, "allow_abbrev": False, **texts})
        self._is_parsing = False

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Everything that is not known is an error of this parser, which knows what it may have meant."""
        if self._subparsers is not None:
            return self._parse_action(sys.argv[1:] if args is None else args, namespace)
        if self._is_parsing:  # `parse_known_intermixed_args` comes here up to Python 3.12
            return super().parse_known_args(args, namespace)
        self._is_parsing = True
        try:
            found, unknown = self.parse_known_intermixed_args(args, namespace)
        finally:
            self._is_parsing = False
        if unknown:
            self._refuse(unknown)
        return found, []

    def _parse_action(self, args: Sequence[str], namespace: Any) -> Any:
        if not args:
            self.print_help(sys.stderr)
            self.exit(2)
        actions = [action for action in self._actions if isinstance(action, argparse._SubParsersAction)]
        words = list(args)
        if words[0].startswith("-"):
            # `odradek topics -b HOST list`: the options are those of the action.
            place = next((at for at, word in enumerate(words) if word in actions[0].choices), None)
            if place is not None:
                words.insert(0, words.pop(place))
            elif words[0] not in self._option_string_actions:
                self._refuse(words[:1])
        found, unknown = super().parse_known_args(words, namespace)
        if unknown:
            self._refuse(unknown)
        return found, []

    def _refuse(self, unknown: Sequence[str]) -> NoReturn:
        hint = ""
        for word in unknown:
            if word.startswith("-"):
                known = [name for name in self._option_string_actions if name.startswith("--")]
                hint = did_you_mean(word.partition("=")[0], known)
                break
        self.error(f"unrecognized arguments: {' '.join(unknown)}{hint}")

    def _get_value(self, action: argparse.Action, arg_string: str) -> Any:
        if action.type is not exact and action.metavar not in FILES | DIRECTORIES:
            arg_string = readable(arg_string)
        return super()._get_value(action, arg_string)

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        if action.choices is None or value in action.choices:
            return
        hint = did_you_mean(str(value), map(str, action.choices), SIMILAR_ACTIONS)
        if isinstance(action, argparse._SubParsersAction):
            known = "" if hint else f"; there are {', '.join(action.choices)}"
            raise argparse.ArgumentError(None, f"there is no {self._kind(action)} {value!r}{known}{hint}")
        try:
            super()._check_value(action, value)
        except argparse.ArgumentError as error:
            error.message += hint
            raise

    def _kind(self, action: argparse.Action) -> str:
        return str(action.metavar or "action").lower()
