"""Starts a program that knows nothing of its parent, and ends it when the parent ends.

    python lifeline.py DESCRIPTOR PROGRAM [ARGUMENT ...]

The parent holds the other end of the pipe DESCRIPTOR: the kernel closes it whatever ends the parent. This
process becomes the program. A child process waits until that pipe is closed, or another pipe that the program
has inherited. It ends a program that outlives the parent, also one that was stopped by SIGSTOP.

Imports nothing of ours: it is run as a file, and has to start quickly.
"""

from __future__ import annotations

import os
import selectors
import signal
import sys

PATIENCE_S = 5.0
"""From SIGTERM to SIGKILL."""


def main(descriptor: int, command: list[str]) -> None:
    """Does not return."""
    program = os.getpid()
    its_end, of_program = os.pipe()
    if os.fork() == 0:
        os.close(of_program)
        try:
            _watch(descriptor, its_end, program)
        finally:
            os._exit(0)
    os.close(descriptor)
    os.close(its_end)
    os.set_inheritable(of_program, True)
    os.execvp(command[0], command)


def _watch(parent: int, its_end: int, program: int) -> None:
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    # Whoever reads the program's output waits for its end, and not for this one's.
    null = os.open(os.devnull, os.O_RDWR)
    for standard in range(3):
        os.dup2(null, standard)
    _wait(parent, its_end)
    if not _wait(its_end, seconds=0):
        _signal(program, signal.SIGTERM)
        _signal(program, signal.SIGCONT)
        if not _wait(its_end, seconds=PATIENCE_S):
            _signal(program, signal.SIGKILL)


def _wait(*descriptors: int, seconds: float | None = None) -> bool:
    """Whether the other end of one of them is closed."""
    with selectors.DefaultSelector() as selector:
        for descriptor in descriptors:
            selector.register(descriptor, selectors.EVENT_READ)
        return bool(selector.select(seconds))


def _signal(program: int, number: int) -> None:
    # The program is the parent of this process for as long as it lives: the number is no other process's.
    if os.getppid() == program:
        os.kill(program, number)


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2:])
