"""The side of a program that tells a test what it does, a line of JSON each: `programs.Teller` hears it."""

from __future__ import annotations

import json
import os
import sys
import threading
import traceback
from collections.abc import Callable
from typing import NoReturn

_output = 1


def keep_the_output_for_events() -> None:
    """Whatever a library prints is none."""
    global _output
    _output = os.dup(1)
    os.dup2(2, 1)


def tell(event: object) -> None:
    # Without a buffer: what has been told stays told.
    line = memoryview(json.dumps(event).encode() + b"\n")
    while line:
        line = line[os.write(_output, line) :]


def told_to_stop() -> threading.Event:
    """Set when the standard input has a line, or nobody is there any more to write one."""
    stopping = threading.Event()

    def wait() -> None:
        sys.stdin.readline()
        stopping.set()

    threading.Thread(target=wait, daemon=True).start()
    return stopping


def end_with(work: Callable[[], object]) -> NoReturn:
    """Does the work and ends this process: status 1 and a traceback say that it failed."""
    status = 1
    try:
        work()
        status = 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        # At once: whatever threads the libraries have may wait for something that never comes.
        os._exit(status)
