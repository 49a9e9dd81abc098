"""`odradek import-log`: a topic of Apache Kafka, into a data directory."""

import argparse
import sys

from odradek.commands.output import flushed, output_failed, terminal

ABOUT = """\
Take a topic that Apache Kafka wrote into a data directory of Odradek: the directories of
its partitions, or the log directories (all of log.dirs) that hold them as TOPIC-0, TOPIC-1
and so on. Every batch is checked before anything is visible; messages of old formats are
converted. Offsets, timestamps, the topic's id and the state of producers stay, and its
settings where one of the log directories has Kafka's own metadata (__cluster_metadata-0).
Kafka and Odradek must not run on these directories meanwhile."""

EXAMPLES = """\
examples:
  odradek import-log /kafka/logs --topic orders --data-dir data
                        all of its partitions in that log directory
  odradek import-log /disk1/logs /disk2/logs --topic orders --data-dir data
                        of a Kafka with log.dirs=/disk1/logs,/disk2/logs
  odradek import-log backup/orders-0 backup/orders-1 --topic orders-2024 --data-dir data
  odradek import-log old --partition 0 --topic orders --data-dir data
  odradek import-log /kafka/logs --topic users --config retention.ms=-1
                        with another setting than Kafka had

The topics __consumer_offsets, which has what groups have committed, and
__share_group_state, which has where share groups are, can be taken in, too,
before any group has used the new broker.

exit status: 0, or 1 when nothing was taken in (one sentence says why)."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("paths", nargs="+", metavar="DIR", help="log directory, or directory of a partition")
    parser.add_argument("--topic", metavar="TOPIC", help="what the topic is called, and is to be called here")
    parser.add_argument(
        "--partition",
        action="append",
        default=[],
        type=int,
        dest="partitions",
        metavar="N",
        help="number of a partition directory, once for each DIR (default: what its name ends with)",
    )
    parser.add_argument(
        "--data-dir", default="./data", metavar="DIR", help="where Odradek has its data (default ./data)"
    )
    parser.add_argument(
        "--config",
        action="append",
        default=[],
        dest="configs",
        metavar="NAME=VALUE",
        help="set one option of the topic; may be given many times",
    )
    parser.add_argument(
        "--move",
        action="store_true",
        help="remove the source when the topic is there (links, where that is possible)",
    )


def run(options: argparse.Namespace) -> int:
    from odradek.offline.import_log import CannotImport, import_log

    configs = {}
    for text in options.configs:
        name, equals, value = text.partition("=")
        if not equals:
            print(f"odradek: --config {text} is not NAME=VALUE.", file=sys.stderr)
            return 1
        configs[name] = value
    try:
        import_log(
            options.paths,
            topic=options.topic,
            data_dir=options.data_dir,
            partitions=options.partitions,
            configs=configs,
            move=options.move,
            out=sys.stdout,
            terminal=terminal(),
        )
        return flushed(0)
    except CannotImport as error:
        print(f"odradek: {error}", file=sys.stderr)
        return 1
    except OSError as error:
        return output_failed(error)
