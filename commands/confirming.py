"""A question before a pattern deletes: it may name more than its writer thinks of.

A person at a terminal is asked; a script has to say `--yes`.
"""

import argparse
import sys
from collections.abc import Sequence

from odradek.client.client_error import ClientError
from odradek.commands.output import printable, quantity
from odradek.commands.selecting import is_pattern

NAMES_SHOWN = 10


def add_yes(parser: argparse.ArgumentParser) -> None:
    """`--yes`."""
    parser.add_argument("-y", "--yes", action="store_true", help="do not ask before a pattern deletes")


def confirm(
    options: argparse.Namespace,
    patterns: Sequence[str],
    names: Sequence[str],
    doing: str,
    one: str,
    many: str,
) -> None:
    """Returns if `names` may be deleted: no pattern is among `patterns`, `--yes` or `--dry-run` is given, or
    a person says so. Else ClientError. The texts are as in "delete", "topic", "topics"."""
    if not names or options.yes or options.dry_run or not any(map(is_pattern, patterns)):
        return
    what = quantity(len(names), one, many)
    if not (_is_terminal(sys.stdin) and _is_terminal(sys.stderr)):
        text = " ".join(filter(is_pattern, patterns))
        raise ClientError(f"{text} would {doing} {what}: give --yes, or --dry-run to see them first")
    shown = "\n".join(f"  {printable(name)}" for name in names[:NAMES_SHOWN])
    more = f"\n  and {len(names) - NAMES_SHOWN:,} more" if len(names) > NAMES_SHOWN else ""
    sys.stderr.write(f"{shown}{more}\n{doing[0].upper()}{doing[1:]} {what}? [y/N] ")
    sys.stderr.flush()
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        raise ClientError("nothing was deleted")


def _is_terminal(stream: object) -> bool:
    return bool(getattr(stream, "isatty", lambda: False)())
