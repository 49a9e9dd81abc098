"""`odradek check`: whether data directories are sound."""

import argparse
import sys

from odradek.commands.output import LINES, add_form_arguments, flushed, output_failed, terminal

ABOUT = """\
Check data directories, or single partitions in them, while no broker runs: every batch,
index, snapshot and checkpoint. One line a finding: damage, or a note of what a start
takes care of. Name all log.dirs of a broker together; the directories of its workers
(data.w1 beside data) are checked, too."""

EXAMPLES = """\
examples:
  odradek check data
  odradek check data/orders-0
  odradek check data --repair             removes what is beyond saving, no more, and says
                                          each byte and offset of it; makes indexes,
                                          snapshots and checkpoints anew
  odradek check /kafka/logs/orders-0      of Apache Kafka, too

exit status: 0, or 1 when something is damaged (with --repair: still damaged) or cannot be
checked."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("paths", nargs="+", metavar="DIR", help="data directory, or directory of a partition")
    parser.add_argument("--repair", action="store_true", help="make good what can be made good")
    add_form_arguments(parser, LINES, "lines for people, or one JSON object a line (json and jsonl)")


def run(options: argparse.Namespace) -> int:
    from odradek.offline.check import check
    from odradek.offline.directories import CannotCheck

    try:
        status = check(
            options.paths,
            repair=options.repair,
            as_json=options.output != LINES[0],
            out=sys.stdout,
            terminal=terminal(),
        )
        return flushed(status)
    except CannotCheck as error:
        print(f"odradek: {error}", file=sys.stderr)
        return 1
    except OSError as error:
        return output_failed(error)
