"""`odradek spark JOB`: each job as a command, from any shell or through spark-submit.

The exit status is 0 for success, 1 for an error in topics, options or data (one sentence on stderr) or if
`verify` found differences, 2 for wrong usage.
"""

import argparse
import os
import signal
import sys
import threading
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from odradek.client.client_error import ClientError
from odradek.client.cluster import Cluster
from odradek.client.connecting import (
    add_connection_arguments,
    check_names,
    options_of,
    properties_of,
    settings_of,
    timeout_ms,
)
from odradek.client.librdkafka_names import java_names
from odradek.client.progress import Progress
from odradek.client.settings import is_client_option
from odradek.config.command_line import Parser
from odradek.config.os_reason import reason_of
from odradek.spark.client_options import PREFIX
from odradek.spark.jobs.errors import JobError, sentence_of
from odradek.spark.report import Report
from odradek.wire.messages.metadata import MetadataRequest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_ABOUT = """\
Jobs on Spark for the topics of any Kafka broker: copy them into tables, back or to another cluster, and
report their content."""

_EXAMPLES = """\
examples:
  odradek spark archive --topic orders --table /data/orders
                        new records since the last run go into a Parquet table
  odradek spark verify --topic orders --table /data/orders
                        are topic and table the same? (--output html --report page.html)

'odradek spark JOB --help' describes each job."""

_OF_SOURCE_AND_SINK = frozenset(
    {
        *("acks", "batch.size", "buffer.memory", "compression.type", "delivery.timeout.ms"),
        *("compression.gzip.level", "compression.lz4.level", "compression.zstd.level"),
        *("enable.idempotence", "group.id", "isolation.level", "max.partition.fetch.bytes"),
        "transaction.timeout.ms",
    }
)
"""Properties that the format "odradek" takes, beside those of every client."""
_MISSING = "odradek spark needs PySpark: pip install 'odradek[spark]', and a Java runtime (17 or later)"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line after `odradek spark`; returns the exit status."""
    parser, jobs = make_parser()
    options = parser.parse_args(arguments)
    if find_spec("pyspark") is None:
        print(f"odradek: {_MISSING}", file=sys.stderr)
        return 1
    try:
        return _run(jobs[options.job], options)
    except (JobError, ClientError) as error:
        print(f"odradek: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130


def _run(job: "Job", options: argparse.Namespace) -> int:
    job.check(options)
    name_brokers(options)
    ask_brokers(options)
    stop = threading.Event()

    def end(*_: Any) -> None:
        """The first signal ends a stream after its epoch; a second one, or any other job, ends at once."""
        if stop.is_set() or not job.is_endless(options):
            raise KeyboardInterrupt
        stop.set()

    before = {number: signal.signal(number, end) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        spark, is_own_session = _session(options)
        progress = Progress(options.job, None if options.quiet else sys.stderr)
        report = job.run(spark, options, progress, stop)
        _write_report(report, options)
        if is_own_session:
            spark.stop()
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    return 0 if report.ok else 1


def _session(options: argparse.Namespace) -> tuple["SparkSession", bool]:
    """The session, and whether this command started it."""
    from pyspark.sql import SparkSession

    is_own_session = SparkSession.getActiveSession() is None
    builder = SparkSession.builder.appName(f"odradek {options.job}")
    # Settings of spark-submit stay.
    if options.master or "PYSPARK_GATEWAY_PORT" not in os.environ:
        builder = builder.master(options.master or "local[*]")
        builder = builder.config("spark.ui.enabled", "false").config("spark.log.level", "OFF")
        builder = builder.config("spark.ui.showConsoleProgress", "false")
    for name, value in named_options(options.conf, "--conf").items():
        builder = builder.config(name, value)
    try:
        return builder.getOrCreate(), is_own_session
    except Exception as error:
        raise JobError(f"Spark does not start: {sentence_of(error)}") from None


def _write_report(report: Report, options: argparse.Namespace) -> None:
    text = {"text": report.text, "json": report.json, "html": report.html}[options.output]()
    if options.report is None:
        sys.stdout.write(text if text.endswith("\n") else f"{text}\n")
        return
    try:
        with open(options.report, "w", encoding="utf-8") as file:
            file.write(text)
    except OSError as error:
        raise JobError(f"the report cannot be written to {options.report}: {reason_of(error)}") from None
    print(f"{report.job}: {report.summary} (report: {options.report})")


# The jobs ---------------------------------------------------------------------------------------------


class Job:
    """One command: its arguments, and the call of its function."""

    name: str
    help: str
    about: str
    examples: str

    def arguments(self, parser: argparse.ArgumentParser) -> None:
        raise NotImplementedError

    def check(self, options: argparse.Namespace) -> None:
        """JobError for mistakes that show before Spark starts."""

    def is_endless(self, options: argparse.Namespace) -> bool:
        """Whether the job runs until it is stopped."""
        return False

    def run(
        self, spark: "SparkSession", options: argparse.Namespace, progress: Progress, stop: threading.Event
    ) -> Report:
        raise NotImplementedError


def named_options(texts: Sequence[str], argument: str = "--option") -> dict[str, str]:
    """The options of `--option NAME=VALUE`, or of another argument of that form."""
    found = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals:
            raise JobError(f"{argument} {text} is not NAME=VALUE")
        found[name] = value
    return found


def name_brokers(options: argparse.Namespace) -> None:
    """Finds the brokers of the job and the options of their clients, and puts them into `options`.

    ClientError for a slip of a name, which Spark would tell after its start, in words of its own."""
    named = options_of(options)
    check_names(named, _OF_SOURCE_AND_SINK)
    named = {
        name: text for name, text in named.items() if is_client_option(name) or name in _OF_SOURCE_AND_SINK
    }
    if options.timeout is not None:
        named["default.api.timeout.ms"] = str(timeout_ms(options.timeout))
    options.bootstrap_servers = named.pop("bootstrap.servers")
    options.connection = {f"kafka.{name}": value for name, value in named.items()}


def ask_brokers(options: argparse.Namespace) -> None:
    """Asks once, before Spark takes its seconds to start: a broker that is not there is told as in all
    commands."""
    given = {name.lower(): text for name, text in kafka_options(options).items()}
    named = {name.removeprefix(PREFIX): text for name, text in given.items() if name.startswith(PREFIX)}
    named = {name: text for name, text in named.items() if is_client_option(name)}
    named["bootstrap.servers"] = options.bootstrap_servers
    with Cluster(settings_of(options, named)) as cluster:
        cluster.read_metadata(MetadataRequest(topics=[]))


def kafka_options(options: argparse.Namespace) -> dict[str, str]:
    """The options of the connection, then those of `--option`."""
    return {**options.connection, **named_options(options.options)}


def _command_config(path: str) -> dict[str, str]:
    # The brokers of the other cluster have an argument of their own.
    named = java_names(properties_of(path))
    return {f"kafka.{name}": value for name, value in named.items() if name != "bootstrap.servers"}


def _others(path: str | None) -> dict[str, str] | None:
    return None if path is None else _command_config(path)


def _topic_arguments(parser: argparse.ArgumentParser, *, only_committed: bool = False) -> None:
    add_connection_arguments(parser)
    parser.add_argument(
        "--topic", action="append", default=[], dest="topics", metavar="TOPIC", help="may be given many times"
    )
    if not only_committed:
        parser.add_argument(
            "--isolation",
            default="read_committed",
            choices=("read_committed", "read_uncommitted"),
            help="whether rows of open and aborted transactions count (default: read_committed, they do not)",
        )
    parser.add_argument(
        "--option",
        action="append",
        default=[],
        dest="options",
        metavar="NAME=VALUE",
        help="one more option of Spark's Kafka source, such as kafka.request.timeout.ms=60000",
    )


def _pace_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--stream", action="store_true", help="continue until stopped")
    parser.add_argument(
        "--trigger",
        type=float,
        default=10.0,
        metavar="SECONDS",
        help="time between epochs of a stream (default 10)",
    )
    parser.add_argument(
        "--max-offsets-per-trigger", type=int, metavar="N", help="maximum of rows in one epoch"
    )


def _table_format_argument(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--table-format",
        default="parquet",
        choices=("parquet", "iceberg"),
        help="format of the table; an Iceberg table is named CATALOG.NAMESPACE.NAME (default: parquet)",
    )


def _pattern_argument(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--topic-pattern", metavar="REGEX", help="instead of --topic: all topics whose whole name matches"
    )


def _start_argument(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--start",
        default="earliest",
        metavar="OFFSETS",
        help="where the first run begins: earliest, latest, or Spark's JSON",
    )


def _batch_compression_argument(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--compression",
        default="none",
        choices=("none", "gzip", "snappy", "lz4", "zstd"),
        help="codec of the record batches",
    )


def _compact_argument(parser: argparse.ArgumentParser, what: str) -> None:
    parser.add_argument(
        "--compact",
        action="store_true",
        help=f"merge {what} at the end, hourly in a stream (Parquet: on local file systems of Linux only)",
    )


def _loss_argument(parser: argparse.ArgumentParser, done: str) -> None:
    parser.add_argument(
        "--allow-data-loss",
        action="store_true",
        help=f"continue if records were deleted before they were {done}",
    )


def _common_arguments(parser: argparse.ArgumentParser) -> None:
    forms = parser.add_mutually_exclusive_group()
    forms.add_argument(
        "--output",
        default="text",
        choices=("text", "json", "html"),
        help="form of the report (default: text)",
    )
    forms.add_argument(
        "-J", "--json", dest="output", action="store_const", const="json", help="as --output json"
    )
    parser.add_argument("--report", metavar="FILE", help="where the report goes (default: stdout)")
    parser.add_argument("--quiet", action="store_true", help="no progress on stderr")
    parser.add_argument(
        "--master", metavar="URL", help="Spark's master (default: local[*], or spark-submit's)"
    )
    parser.add_argument(
        "--conf",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="one setting of Spark; may be given many times",
    )


class _ArchiveJob(Job):
    name = "archive"
    help = "topics into a Parquet or Iceberg table"
    about = """\
Put new records of topics into a Parquet or Iceberg table, partitioned by topic and day, each row exactly
once for every reader. A run continues where the last one ended, even if that one was killed."""
    examples = """\
examples:
  odradek spark archive --topic orders --table /data/orders
                        what is there now, once; for cron
  odradek spark archive ... --stream --trigger 30
                        until Ctrl-C or SIGTERM, every 30 seconds
  odradek spark archive ... --value json --schema 'id BIGINT, name STRING'
                        the value as columns of a struct
  odradek spark archive ... --value avro --schema @order.avsc --framing confluent
                        from Avro, written with Confluent's Schema Registry
  odradek spark archive ... --value protobuf --descriptor orders.desc --message shop.Order
                        from Protobuf, with the output of protoc --descriptor_set_out
  odradek spark archive ... --table-format iceberg --table lake.shop.orders
                        into a table of a catalog that --conf configures"""

    def arguments(self, parser: argparse.ArgumentParser) -> None:
        _topic_arguments(parser)
        _pattern_argument(parser)
        parser.add_argument(
            "--table",
            required=True,
            metavar="TABLE",
            help="directory of the table, in any file system of Spark, or name of an Iceberg table",
        )
        _table_format_argument(parser)
        parser.add_argument(
            "--checkpoint",
            metavar="DIR",
            help="directory for the checkpoint of an Iceberg table (default: the location of the table)",
        )
        _pace_arguments(parser)
        _start_argument(parser)
        parser.add_argument(
            "--value",
            default="binary",
            choices=("binary", "json", "avro", "protobuf"),
            help="how the value is stored: as bytes, or decoded (default: binary)",
        )
        parser.add_argument(
            "--schema",
            metavar="SCHEMA",
            help="or @FILE: for JSON in Spark's DDL or JSON form, for Avro the content of a schema file",
        )
        parser.add_argument(
            "--descriptor", metavar="FILE", help="for Protobuf: the output of protoc --descriptor_set_out"
        )
        parser.add_argument("--message", metavar="NAME", help="for Protobuf: full name of the message")
        parser.add_argument(
            "--framing",
            default="none",
            choices=("none", "confluent"),
            help="the bytes before a value: Confluent's serializers put the id of its schema there",
        )
        parser.add_argument(
            "--decode-mode",
            default="permissive",
            choices=("permissive", "failfast"),
            help="keep the bytes of a value that does not decode in the column undecoded, or end the job "
            "(default: permissive)",
        )
        parser.add_argument(
            "--decode-option",
            action="append",
            default=[],
            dest="decode_options",
            metavar="NAME=VALUE",
            help="one option of Spark's from_json or from_avro; may be given many times",
        )
        parser.add_argument(
            "--keep-raw", action="store_true", help="keep the bytes of decoded values too, in the column raw"
        )
        parser.add_argument(
            "--compression",
            default="snappy",
            choices=("none", "snappy", "gzip", "lz4", "zstd"),
            help="codec of the Parquet files",
        )
        _compact_argument(parser, "small files of a day")
        _loss_argument(parser, "archived")

    def is_endless(self, options: argparse.Namespace) -> bool:
        return bool(options.stream)

    def run(
        self, spark: "SparkSession", options: argparse.Namespace, progress: Progress, stop: threading.Event
    ) -> Report:
        from odradek.spark.jobs import archive

        return archive.run(
            spark,
            bootstrap_servers=options.bootstrap_servers,
            topics=options.topics,
            topic_pattern=options.topic_pattern,
            table=options.table,
            stream=options.stream,
            trigger_seconds=options.trigger,
            starting_offsets=options.start,
            isolation=options.isolation,
            value=options.value,
            schema=_text_or_file(options.schema),
            descriptor=None if options.descriptor is None else _read("--descriptor", options.descriptor),
            message=options.message,
            framing=options.framing,
            decode_mode=options.decode_mode,
            decode_options=named_options(options.decode_options, "--decode-option"),
            keep_raw=options.keep_raw,
            table_format=options.table_format,
            checkpoint=options.checkpoint,
            compression=options.compression,
            max_offsets_per_trigger=options.max_offsets_per_trigger,
            fail_on_data_loss=not options.allow_data_loss,
            compact=options.compact,
            options=kafka_options(options),
            progress=progress,
            stop=stop,
        )


def _text_or_file(text: str | None) -> str | None:
    if text is None or not text.startswith("@"):
        return text
    return _read("--schema", text[1:]).decode("utf-8", "replace")


def _read(argument: str, path: str) -> bytes:
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError as error:
        raise JobError(f"{argument} {path} cannot be read: {error.strerror}") from None


class _VerifyJob(Job):
    name = "verify"
    help = "is a table, or another topic, the same as a topic?"
    about = """\
Compare a topic with its archive, or with another topic: rows, missing offsets and a checksum of the content
by partition and window. If they differ, the exit status is 1, and the report has the first differing rows."""
    examples = """\
examples:
  odradek spark verify --topic orders --table /data/orders
  odradek spark verify --topic orders --table /data/orders --allow-lag
                        records that are not archived yet are no difference
  odradek spark verify --topic orders --other-topic orders-copy
                        position by position; --other-bootstrap-server for another cluster
  odradek spark verify ... --output html --report page.html"""

    def arguments(self, parser: argparse.ArgumentParser) -> None:
        _topic_arguments(parser)
        parser.add_argument("--table", metavar="TABLE", help="the archive of the topic")
        _table_format_argument(parser)
        parser.add_argument("--other-topic", metavar="TOPIC", help="the topic to compare with")
        parser.add_argument(
            "--other-bootstrap-server",
            dest="other_bootstrap_servers",
            metavar="HOST:PORT",
            help="brokers of the other topic",
        )
        parser.add_argument(
            "--other-command-config",
            metavar="FILE",
            help="for these brokers, in place of what --command-config has about TLS and SASL",
        )
        parser.add_argument(
            "--window", type=int, default=10_000, metavar="N", help="rows of a window (default 10,000)"
        )
        parser.add_argument(
            "--allow-lag",
            action="store_true",
            help="records after the table's last rows do not count as differences",
        )

    def check(self, options: argparse.Namespace) -> None:
        if len(options.topics) != 1:
            raise JobError("verify compares one topic: give --topic once")

    def run(
        self, spark: "SparkSession", options: argparse.Namespace, progress: Progress, stop: threading.Event
    ) -> Report:
        from odradek.spark.jobs import verify

        return verify.run(
            spark,
            bootstrap_servers=options.bootstrap_servers,
            topic=options.topics[0],
            table=options.table,
            table_format=options.table_format,
            other_topic=options.other_topic,
            other_bootstrap_servers=options.other_bootstrap_servers,
            isolation=options.isolation,
            window_rows=options.window,
            allow_lag=options.allow_lag,
            options=kafka_options(options),
            other_options=_others(options.other_command_config),
            progress=progress,
        )


class _ReplayJob(Job):
    name = "replay"
    help = "a table back into a topic"
    about = """\
Write the rows of an archive into a topic: same keys, values, headers, timestamps, partitions and order,
each row once for readers with read_committed. Started again, it continues where it ended."""
    examples = """\
examples:
  odradek spark replay --table /data/orders --topic orders --to orders-2
  odradek spark replay ... --rows-per-second 10000
  odradek spark replay ... --id again     a separate replay: all rows once more"""

    def arguments(self, parser: argparse.ArgumentParser) -> None:
        _topic_arguments(parser)
        parser.add_argument("--table", required=True, metavar="TABLE", help="the archive")
        _table_format_argument(parser)
        parser.add_argument(
            "--to", metavar="TOPIC", help="target of the rows (default: the topic's own name)"
        )
        parser.add_argument(
            "--id", metavar="ID", help="id of the replay (default: made of table, topic and target)"
        )
        parser.add_argument(
            "--rows-per-second", type=float, metavar="N", help="maximum for all partitions together"
        )
        _batch_compression_argument(parser)

    def check(self, options: argparse.Namespace) -> None:
        if len(options.topics) != 1:
            raise JobError("replay writes the rows of one topic: give --topic once")

    def run(
        self, spark: "SparkSession", options: argparse.Namespace, progress: Progress, stop: threading.Event
    ) -> Report:
        from odradek.spark.jobs import replay

        return replay.run(
            spark,
            bootstrap_servers=options.bootstrap_servers,
            table=options.table,
            table_format=options.table_format,
            topic=options.topics[0],
            to_topic=options.to,
            replay_id=options.id,
            rows_per_second=options.rows_per_second,
            compression=options.compression,
            options=kafka_options(options),
            progress=progress,
        )


class _MirrorJob(Job):
    name = "mirror"
    help = "topics of one cluster into another"
    about = """\
Copy topics to other brokers: same keys, values, headers, timestamps, partitions and order, each record once
for readers with read_committed, and a table that maps offsets to offsets of the copy. A run continues where
the last one ended, even if that one was killed."""
    examples = """\
examples:
  odradek spark mirror -b old:9092 --to new:9092 --topic orders --offsets /data/offsets
                        what is there now, once; for cron
  odradek spark mirror ... --stream --trigger 1
                        until Ctrl-C or SIGTERM, every second
  odradek spark mirror ... --group billing
                        the group continues there where it is here"""

    def arguments(self, parser: argparse.ArgumentParser) -> None:
        _topic_arguments(parser, only_committed=True)
        _pattern_argument(parser)
        parser.add_argument(
            "--to", required=True, metavar="HOST:PORT", help="brokers of the copies: one or more"
        )
        parser.add_argument(
            "--to-command-config",
            metavar="FILE",
            help="for these brokers, in place of what --command-config has about TLS and SASL",
        )
        parser.add_argument(
            "--prefix", default="", metavar="TEXT", help="before the copies' names (default: the same names)"
        )
        parser.add_argument(
            "--offsets",
            required=True,
            metavar="DIR",
            help="directory of the table of offsets, in any file system of Spark",
        )
        parser.add_argument(
            "--group",
            action="append",
            default=[],
            dest="groups",
            metavar="GROUP",
            help="translate its committed offsets and commit them there, at the end, and every minute of a "
            "stream; may be given many times",
        )
        _pace_arguments(parser)
        _start_argument(parser)
        parser.add_argument(
            "--id", metavar="ID", help="id of a separate mirror, which copies all once more (default: none)"
        )
        _batch_compression_argument(parser)
        _compact_argument(parser, "small files of the table")
        _loss_argument(parser, "copied")

    def is_endless(self, options: argparse.Namespace) -> bool:
        return bool(options.stream)

    def run(
        self, spark: "SparkSession", options: argparse.Namespace, progress: Progress, stop: threading.Event
    ) -> Report:
        from odradek.spark.jobs import mirror

        return mirror.run(
            spark,
            bootstrap_servers=options.bootstrap_servers,
            to_bootstrap_servers=options.to,
            offsets=options.offsets,
            topics=options.topics,
            topic_pattern=options.topic_pattern,
            prefix=options.prefix,
            groups=options.groups,
            stream=options.stream,
            trigger_seconds=options.trigger,
            starting_offsets=options.start,
            compression=options.compression,
            max_offsets_per_trigger=options.max_offsets_per_trigger,
            fail_on_data_loss=not options.allow_data_loss,
            compact=options.compact,
            mirror_id=options.id,
            options=kafka_options(options),
            to_options=_others(options.to_command_config),
            progress=progress,
            stop=stop,
        )


class _LatestJob(Job):
    name = "latest"
    help = "the last value of each key, as a table"
    about = """\
Update a table from a changelog topic: one row for each key, the last; a record without a value deletes its
key. A run continues where the last one ended."""
    examples = """\
examples:
  odradek spark latest --topic users --table /data/users
  odradek spark latest ... --stream --trigger 30
                        until Ctrl-C or SIGTERM, every 30 seconds"""

    def arguments(self, parser: argparse.ArgumentParser) -> None:
        _topic_arguments(parser)
        parser.add_argument("--table", required=True, metavar="DIR", help="local directory of the table")
        parser.add_argument(
            "--buckets", type=int, default=16, metavar="N", help="number of its directories (default 16)"
        )
        _pace_arguments(parser)

    def check(self, options: argparse.Namespace) -> None:
        if len(options.topics) != 1:
            raise JobError("latest follows one topic: give --topic once")

    def is_endless(self, options: argparse.Namespace) -> bool:
        return bool(options.stream)

    def run(
        self, spark: "SparkSession", options: argparse.Namespace, progress: Progress, stop: threading.Event
    ) -> Report:
        from odradek.spark.jobs import latest

        return latest.run(
            spark,
            bootstrap_servers=options.bootstrap_servers,
            topic=options.topics[0],
            table=options.table,
            stream=options.stream,
            trigger_seconds=options.trigger,
            max_offsets_per_trigger=options.max_offsets_per_trigger,
            isolation=options.isolation,
            buckets=options.buckets,
            options=kafka_options(options),
            progress=progress,
            stop=stop,
        )


class _ProfileJob(Job):
    name = "profile"
    help = "what is in a topic"
    about = """\
Read a topic once and report rates over time, sizes, keys with most rows, codecs and their savings, producers
and gaps."""
    examples = """\
examples:
  odradek spark profile --topic orders
  odradek spark profile --topic orders --output html
                        --report orders.html"""

    def arguments(self, parser: argparse.ArgumentParser) -> None:
        _topic_arguments(parser)

    def check(self, options: argparse.Namespace) -> None:
        if len(options.topics) != 1:
            raise JobError("profile reads one topic: give --topic once")

    def run(
        self, spark: "SparkSession", options: argparse.Namespace, progress: Progress, stop: threading.Event
    ) -> Report:
        from odradek.spark.jobs import profile

        return profile.run(
            spark,
            bootstrap_servers=options.bootstrap_servers,
            topic=options.topics[0],
            isolation=options.isolation,
            options=kafka_options(options),
            progress=progress,
        )


_JOBS: tuple[Callable[[], Job], ...] = (
    _ArchiveJob,
    _ReplayJob,
    _MirrorJob,
    _VerifyJob,
    _LatestJob,
    _ProfileJob,
)


def make_parser() -> tuple[argparse.ArgumentParser, dict[str, Job]]:
    """Parser of the command line, and the jobs by their names."""
    parser = Parser(prog="odradek spark", description=_ABOUT, epilog=_EXAMPLES)
    commands = parser.add_subparsers(dest="job", metavar="JOB", title="jobs", required=True)
    jobs = {}
    for make in _JOBS:
        job = make()
        jobs[job.name] = job
        command = commands.add_parser(
            job.name,
            help=job.help,
            description=job.about,
            epilog=job.examples,
        )
        job.arguments(command)
        _common_arguments(command)
    return parser, jobs
