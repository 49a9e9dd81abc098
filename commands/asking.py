"""How a command that asks brokers is run: its failures become sentences and exit statuses."""

import argparse
import os
import sys
from collections.abc import Iterable
from typing import Any

from odradek.client.admin.asking import Refused
from odradek.client.client_error import ClientError

__all__ = ["failed", "run"]


def run(module: Any, options: argparse.Namespace) -> int:
    """Runs a command; returns its exit status. A closed pipe is no failure: the reader has seen enough."""
    try:
        status = int(module.run(options))
        sys.stdout.flush()
        return status
    except ClientError as error:
        print(f"odradek: {error}", file=sys.stderr)
        return 1
    except BrokenPipeError:
        # Python would complain once more while it closes stdout.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except OSError as error:
        print(f"odradek: the output cannot be written: {error.strerror or error}", file=sys.stderr)
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1


def failed(refused: Iterable[Refused]) -> int:
    """Tells each refusal; the exit status: 1 if there is one."""
    status = 0
    for one in refused:
        print(f"odradek: {one.error}", file=sys.stderr)
        status = 1
    return status
