"""Ctrl-C in a session of tests that a script has started in its background, where it is ignored."""

import signal


def hear_interrupts() -> None:
    """Undo it for this process and its children, which would ignore the key that ends a command, too."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
