"""How a command that asks brokers is run: its failures become sentences and exit statuses."""

import argparse
import signal
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from odradek.client.admin.asking import Refused
from odradek.client.client_error import ClientError
from odradek.commands.output import flushed, output_failed

TERMINATED = 128 + signal.SIGTERM
"""The exit status, as a shell tells it of who has no handler."""


class Terminated(KeyboardInterrupt):
    """SIGTERM came."""


def run(module: Any, options: argparse.Namespace) -> int:
    """Runs a command; returns its exit status. A closed pipe is no failure: the reader has seen enough.

    At SIGTERM it ends as at Ctrl-C: it leaves its group, aborts its transaction, deletes its own topic.
    """
    try:
        with _ending_at_sigterm():
            return flushed(int(module.run(options)))
    except Terminated:
        return TERMINATED
    except ClientError as error:
        print(f"odradek: {error}", file=sys.stderr)
        return 1
    except OSError as error:
        return output_failed(error)


@contextmanager
def _ending_at_sigterm() -> Iterator[None]:
    """Raises Terminated at SIGTERM, unless somebody has decided otherwise (as with `trap '' TERM`)."""

    def end(*_: object) -> None:
        raise Terminated

    if signal.getsignal(signal.SIGTERM) != signal.SIG_DFL:
        yield
        return
    signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


def failed(refused: Iterable[Refused]) -> int:
    """Tells each refusal; the exit status: 1 if there is one."""
    status = 0
    for one in refused:
        print(f"odradek: {one.error}", file=sys.stderr)
        status = 1
    return status
