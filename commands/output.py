"""What commands print, and where."""

import os
import sys
from typing import TextIO

__all__ = ["output_failed", "terminal"]


def output_failed(error: OSError) -> int:
    """The reader (head, less) has seen enough, or the disk of a file is full."""
    if not isinstance(error, BrokenPipeError):
        print(f"odradek: the output cannot be written: {error.strerror or error}.", file=sys.stderr)
    # Python would complain once more while it closes stdout.
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 1


def terminal() -> TextIO | None:
    """Where to show progress: a person's terminal."""
    return sys.stderr if sys.stderr.isatty() else None
