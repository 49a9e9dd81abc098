"""`odradek snapshot`: a data directory as a packed file, to be kept beside a test."""

import argparse
import sys

from odradek.commands.output import Column, Output, add_output_arguments, flushed, size_text
from odradek.config.os_reason import reason_of

ABOUT = """\
Copy a data directory into one packed file, from which brokers of tests begin:
odradek.Broker(snapshot=FILE), or broker.restore(FILE). A broker may serve the directory
meanwhile, as for odradek backup, whose file is the same without being packed."""

EXAMPLES = """\
examples:
  odradek snapshot data tests/orders.tar.gz

keys: file running partitions size_bytes.

exit status: 0, or 1 when there is no snapshot (one sentence says why)."""

_COLUMNS = [
    Column("file"),
    Column("running"),
    Column("partitions", right=True),
    Column("size_bytes", "size", True, size_text),
]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The directory and the file."""
    parser.add_argument("directory", metavar="DIR", help="data directory")
    parser.add_argument("file", metavar="FILE", help="the file to write, which must not exist")
    add_output_arguments(parser)


def run(options: argparse.Namespace) -> int:
    """Writes the file; returns the exit status."""
    from odradek.server.metadata.directory_archive import CannotBackUp, back_up

    try:
        done = back_up(options.directory, options.file, is_packed=True)
    except CannotBackUp as error:
        print(f"odradek: {error}", file=sys.stderr)
        return 1
    except OSError as error:
        print(f"odradek: {error.filename or options.file}: {reason_of(error)}", file=sys.stderr)
        return 1
    row = {
        "file": options.file,
        "running": done.was_running,
        "partitions": done.partitions,
        "size_bytes": done.size_bytes,
    }
    Output.of(options).rows(_COLUMNS, [row])
    return flushed(0)
