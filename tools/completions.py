"""Makes the scripts of `odradek completion` from the parsers of the commands, by shtab.

    python -m tools.completions            writes commands/completions/odradek.{bash,zsh,fish}

Names of topics, groups and profiles are asked for when they are completed, by `odradek __complete`.
"""

from __future__ import annotations

import argparse
import pathlib
from typing import Any

import shtab

from odradek.commands.command import COMMANDS, Command
from odradek.commands.layout import Layout

FOLDER = pathlib.Path(__file__).resolve().parent.parent / "commands" / "completions"
SHELLS = ("bash", "zsh", "fish")
NAMES = {
    "TOPIC": "topics",
    "TOPIC[:PARTITION]": "topics",
    "GROUP": "groups",
    "PROFILE": "profiles",
}
"""What `odradek __complete` is asked for, by the metavar of an argument."""
FILES = {"FILE", "PATH", "server.properties"}
DIRECTORIES = {"DIR", "DIRECTORY"}

BASH = """
_odradek_names() {
  local name
  odradek __complete "$1" "$2" "${COMP_LINE:0:COMP_POINT}" 2>/dev/null | while IFS= read -r name; do
    printf '%q\\n' "$name"
  done
}
_odradek_topics() { _odradek_names topics "$1"; }
_odradek_groups() { _odradek_names groups "$1"; }
_odradek_profiles() { _odradek_names profiles "$1"; }
"""
BASH_END = """
# Bash splits words at colons and equals signs, too: localhost:9092 is one word here.
_odradek() {
  local line="${COMP_LINE:0:COMP_POINT}"
  local -a COMP_WORDS
  read -ra COMP_WORDS <<< "$line"
  [[ "$line" == *[[:space:]] ]] && COMP_WORDS+=("")
  local COMP_CWORD=$((${#COMP_WORDS[@]} - 1))
  local word="${COMP_WORDS[COMP_CWORD]}"
  _shtab_odradek
  # Only what stands behind the last of them is replaced.
  local kept="${word%"${word##*[:=]}"}"
  COMPREPLY=("${COMPREPLY[@]#"$kept"}")
}
complete -o bashdefault -F _odradek odradek
"""
ZSH = """
_odradek_names() {
  local -a names
  names=("${(@f)$(odradek __complete $1 "$PREFIX" "$BUFFER" 2>/dev/null)}")
  compadd -a names
}
_odradek_topics() { _odradek_names topics }
_odradek_groups() { _odradek_names groups }
_odradek_profiles() { _odradek_names profiles }
"""
FISH = """
function _odradek_names
  set -l word (commandline -ct)
  set -l line (commandline -pc | string collect)
  odradek __complete $argv[1] "$word" "$line" 2>/dev/null
end
"""


def parser() -> argparse.ArgumentParser:
    """Of all commands, as one."""
    layout: Any = Layout
    whole = argparse.ArgumentParser(prog="odradek", formatter_class=layout, allow_abbrev=False)
    whole.add_argument("--version", action="store_true", help="print version, Python and compiled parts")
    commands = whole.add_subparsers(metavar="COMMAND")
    for command in COMMANDS.values():
        if command.help:
            _add(commands, command)
    _name_completers(whole)
    return whole


def _add(commands: Any, command: Command) -> None:
    layout: Any = Layout
    made = commands.add_parser(command.name, help=command.help, formatter_class=layout)
    if command.name == "spark":
        from odradek.spark.cli import make_parser

        # It has a parser of its own.
        commands.choices[command.name] = make_parser(Layout)[0]
    else:
        command.load().add_arguments(made)


def _name_completers(one: argparse.ArgumentParser) -> None:
    for action in one._actions:
        if isinstance(action, argparse._SubParsersAction):
            for inner in action.choices.values():
                inner.description = None  # The help is a line.
                _name_completers(inner)
        elif (completer := _completer(action)) is not None:
            action.complete = completer  # type: ignore[attr-defined]


def _completer(action: argparse.Action) -> dict[str, str] | None:
    kind = NAMES.get(str(action.metavar), "profiles" if action.dest == "profile" else None)
    if kind is not None:
        return {"bash": f"_odradek_{kind}", "zsh": f"_odradek_{kind}", "fish": f"(_odradek_names {kind})"}
    if action.metavar in FILES:
        found: dict[str, str] = shtab.FILE
        return found
    return shtab.DIRECTORY if action.metavar in DIRECTORIES else None


def scripts() -> dict[str, str]:
    """Text by shell."""
    preambles = {"bash": BASH, "zsh": ZSH, "fish": FISH}
    endings = {"bash": BASH_END, "zsh": "", "fish": ""}
    return {
        shell: shtab.complete(parser(), shell, preamble=preambles[shell]) + endings[shell] for shell in SHELLS
    }


def main() -> None:
    """Writes the files."""
    FOLDER.mkdir(exist_ok=True)
    for shell, text in scripts().items():
        (FOLDER / f"odradek.{shell}").write_text(text)


if __name__ == "__main__":
    main()
