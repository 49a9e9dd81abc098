"""How a command that asks brokers is run: its failures become sentences and exit statuses."""

import argparse
import sys
from collections.abc import Iterable
from typing import Any

from odradek.client.admin.asking import Refused
from odradek.client.client_error import ClientError
from odradek.commands.output import flushed, output_failed

__all__ = ["failed", "run"]


def run(module: Any, options: argparse.Namespace) -> int:
    """Runs a command; returns its exit status. A closed pipe is no failure: the reader has seen enough."""
    try:
        return flushed(int(module.run(options)))
    except ClientError as error:
        print(f"odradek: {error}", file=sys.stderr)
        return 1
    except OSError as error:
        return output_failed(error)


def failed(refused: Iterable[Refused]) -> int:
    """Tells each refusal; the exit status: 1 if there is one."""
    status = 0
    for one in refused:
        print(f"odradek: {one.error}", file=sys.stderr)
        status = 1
    return status
