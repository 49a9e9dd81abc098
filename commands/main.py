"""Finds the command, and runs it: `odradek COMMAND ...`.

Exit status: 0 when all went well, 1 when something is wrong with options, brokers or data (one sentence on
stderr), 2 for a usage that is not understood, 130 after Ctrl-C, 143 after SIGTERM. Modules are imported where
they are needed, so that `odradek --version` answers at once and a broker starts in a tenth of a second.
"""

import io
import sys
from collections.abc import Sequence

from odradek.commands.command import COMMANDS, joined, main_parser, parser_of
from odradek.wire.version import __version__

INTERRUPTED = 130


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit status."""
    try:
        return _main(sys.argv[1:] if arguments is None else arguments)
    except KeyboardInterrupt:
        return INTERRUPTED


def _main(arguments: Sequence[str]) -> int:
    if isinstance(sys.stdout, io.TextIOWrapper) and sys.stdout.errors == "strict":
        # Names of files may be bytes that are no text at all.
        sys.stdout.reconfigure(errors="backslashreplace")
    command = COMMANDS.get(arguments[0]) if arguments else None
    if command is not None:
        module = command.load()
        if command.reads_arguments:
            return int(module.main(arguments[1:]))
        options = parser_of(command, module).parse_args(joined(arguments[1:]))
        if command.tells_failures:
            from odradek.commands.asking import run

            return run(module, options)
        return int(module.run(options))
    parser = main_parser()
    options = parser.parse_args(arguments)
    if options.version:
        return _tell_version()
    parser.print_help(sys.stderr)
    return 2


def _tell_version() -> int:
    try:
        print(_version_line(), flush=True)
        return 0
    except OSError as error:
        from odradek.commands.output import output_failed

        return output_failed(error)


def _version_line() -> str:
    import platform
    from importlib.util import find_spec

    uvloop = "yes" if find_spec("uvloop") else "no"
    python = f"{platform.python_implementation()} {platform.python_version()}"
    return f"odradek {__version__} ({python}; uvloop: {uvloop})"
