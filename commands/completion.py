"""`odradek completion`: the scripts that complete commands, options and names in a shell.

They are made from the parsers before they are published (`tools/completions.py`).
"""

import argparse
import os
import sys

__all__ = ["ABOUT", "EXAMPLES", "add_arguments", "run"]

ABOUT = """\
Print a script that completes commands and options in a shell, and the names of topics,
groups and profiles. Names are asked of the brokers of the command line, for a second at
most, and are remembered for 5 seconds in $XDG_CACHE_HOME/odradek (else ~/.cache/odradek)."""

EXAMPLES = """\
examples:
  source <(odradek completion bash)
                        now; in ~/.bashrc: always
  odradek completion bash > ~/.local/share/bash-completion/completions/odradek
  odradek completion zsh > "${fpath[1]}/_odradek"
  odradek completion fish > ~/.config/fish/completions/odradek.fish

exit status: 0."""

SHELLS = ("bash", "zsh", "fish")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The shell."""
    parser.add_argument("shell", choices=SHELLS)


def run(options: argparse.Namespace) -> int:
    """Prints the script."""
    folder = os.path.join(os.path.dirname(__file__), "completions")
    with open(os.path.join(folder, f"odradek.{options.shell}"), encoding="utf-8") as file:
        sys.stdout.write(file.read())
    return 0
