"""`odradek dump`: what files of a broker hold."""

import argparse
import sys

from odradek.commands.output import LINES, add_form_arguments, output_failed

ABOUT = """\
Show what files of a broker hold, without a broker: segments (.log), indexes, producer
snapshots, checkpoints, a partition's directory, or a whole data directory in summary,
without its empty partitions, and with the directories of its workers (data.w1 beside data).
Damaged files are shown up to the damage, with its place."""

EXAMPLES = """\
examples:
  odradek dump data
  odradek dump data --include-empty
  odradek dump data/orders-0 --records
  odradek dump data/__consumer_offsets-12 --records --json

exit status: 0, or 1 when something is damaged or cannot be read."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("paths", nargs="+", metavar="DIR_OR_FILE", help="what to show")
    parser.add_argument("--records", action="store_true", help="show every record, not batches only")
    parser.add_argument(
        "--include-empty", action="store_true", help="show the empty partitions of a data directory, too"
    )
    add_form_arguments(parser, LINES, "lines for people, or one JSON object a line (json and jsonl)")


def run(options: argparse.Namespace) -> int:
    from odradek.offline.dump import dump

    try:
        return dump(
            options.paths,
            records=options.records,
            as_json=options.output != LINES[0],
            out=sys.stdout,
            include_empty=options.include_empty,
        )
    except OSError as error:
        return output_failed(error)
