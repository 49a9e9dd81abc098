"""`odradek backup`: a data directory as one file, while its broker runs or not."""

import argparse
import sys

from odradek.commands.output import (
    Column,
    Output,
    add_output_arguments,
    flushed,
    output_failed,
    size_text,
    terminal,
)
from odradek.config.os_reason import reason_of

ABOUT = """\
Copy a data directory into one tar file. A broker may serve the directory meanwhile: then
the copy is what a kill would have left at one moment, and its first start recovers it. It
has everything: records, topics and their options, commits of groups, ACLs, keys of users;
the file is readable by its owner alone. tar restores it into a new directory."""

EXAMPLES = """\
examples:
  odradek backup data monday.tar
  odradek backup data - | zstd > monday.tar.zst
                        to stdout
  mkdir restored && tar -xf monday.tar -C restored && odradek check restored

keys: file running partitions size_bytes.

exit status: 0, or 1 when there is no backup (one sentence says why)."""

_COLUMNS = [
    Column("file"),
    Column("running"),
    Column("partitions", right=True),
    Column("size_bytes", "size", True, size_text),
]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The directory and the file."""
    parser.add_argument("directory", metavar="DIR", help="data directory")
    parser.add_argument("file", metavar="FILE", help="the tar file to write, which must not exist; -: stdout")
    add_output_arguments(parser)


def run(options: argparse.Namespace) -> int:
    """Writes the backup; returns the exit status."""
    from odradek.client.progress import Progress
    from odradek.server.metadata.directory_archive import CannotBackUp, back_up, back_up_to

    progress = Progress("backup", terminal())
    try:
        if options.file == "-":
            back_up_to(options.directory, sys.stdout.buffer)
            return flushed(0)
        try:
            done = back_up(
                options.directory,
                options.file,
                lambda copied, total: progress.update(None, copied, share=copied / max(1, total)),
            )
        finally:
            progress.clear()
        row = {
            "file": options.file,
            "running": done.was_running,
            "partitions": done.partitions,
            "size_bytes": done.size_bytes,
        }
        Output.of(options).rows(_COLUMNS, [row])
        return flushed(0)
    except CannotBackUp as error:
        print(f"odradek: {error}", file=sys.stderr)
        return 1
    except OSError as error:
        if error.filename is None:
            return output_failed(error)
        print(f"odradek: {error.filename}: {reason_of(error)}", file=sys.stderr)
        return 1
