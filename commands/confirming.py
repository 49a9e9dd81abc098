"""A question before what may be more than its writer thinks of, such as the deletion of a pattern.

A person at a terminal is asked; a script has to say `--yes`.
"""

import argparse
import sys
from collections.abc import Sequence

from odradek.client.client_error import ClientError
from odradek.commands.output import printable, quantity
from odradek.commands.selecting import is_pattern

NAMES_SHOWN = 10


def add_yes(parser: argparse.ArgumentParser, when: str = "before a pattern deletes") -> None:
    """`--yes`."""
    parser.add_argument("-y", "--yes", action="store_true", help=f"do not ask {when}")


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
    if not _has_person():
        text = " ".join(filter(is_pattern, patterns))
        raise ClientError(f"{text} would {doing} {what}: give --yes, or --dry-run to see them first")
    shown = "\n".join(f"  {printable(name)}" for name in names[:NAMES_SHOWN])
    more = f"\n  and {len(names) - NAMES_SHOWN:,} more" if len(names) > NAMES_SHOWN else ""
    if not _agrees(f"{shown}{more}\n{doing[0].upper()}{doing[1:]} {what}?"):
        raise ClientError("nothing was deleted")


def confirm_one(doing: str, otherwise: str) -> None:
    """Returns if a person agrees to that one thing. Else ClientError, for which `otherwise` says what has not
    happened."""
    if not _has_person():
        raise ClientError(f"this would {doing}: give --yes")
    if not _agrees(f"{doing[0].upper()}{doing[1:]}?"):
        raise ClientError(otherwise)


def _has_person() -> bool:
    return _is_terminal(sys.stdin) and _is_terminal(sys.stderr)


def _agrees(question: str) -> bool:
    sys.stderr.write(f"{question} [y/N] ")
    sys.stderr.flush()
    return sys.stdin.readline().strip().lower() in ("y", "yes")


def _is_terminal(stream: object) -> bool:
    return bool(getattr(stream, "isatty", lambda: False)())
