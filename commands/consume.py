"""`odradek consume`: the records of topics, as lines of a format or of JSON."""

import argparse
import contextlib
import sys
import time
from collections.abc import Iterator, Mapping
from typing import Any

from odradek.client.admin.topics import describe_topics
from odradek.client.client_error import ClientError
from odradek.client.cluster import Cluster, TopicPartition
from odradek.client.connecting import add_connection_arguments, options_of, settings_of
from odradek.client.member_settings import MEMBER_OPTIONS, MemberSettings
from odradek.client.progress import Progress
from odradek.client.reading import Reader
from odradek.client.stored_records import StoredBatch
from odradek.commands.decoding import DECODE_HELP, FORMS, Decoders
from odradek.commands.group_reading import GroupReading, tell_nothing, tell_skipped
from odradek.commands.output import LINES, add_form_arguments, quantity
from odradek.commands.reading_range import Place, Range, parse_range
from odradek.commands.record_format import FORMAT_HELP, RecordFormat
from odradek.commands.record_json import json_lines
from odradek.commands.record_printer import Lines, RecordPrinter, Test
from odradek.commands.schemas import SCHEMAS_HELP, add_schema_arguments, schemas_of
from odradek.commands.selecting import matching, no_such, parse_partition, parse_whole
from odradek.config.command_line import exact
from odradek.wire.record_layout import Record

ABOUT = """\
Print the records of topics. Reading ends at the end that the topics have at the start;
--follow goes on with what is written then, and so does -o end (without --exit).
Records of several partitions come as they arrive; those of one partition are in order."""

EXAMPLES = f"""\
{FORMAT_HELP}

{DECODE_HELP}

{SCHEMAS_HELP}

where to begin (-o):
  start, end        or kcat's beginning; in every partition
  42, -10, +10      an offset; ten before the end; ten after the start
  5:9               from offset 5 on, before 9; 5: and :9, too
  -1h, 2026-11-27T09:00, @TIME, @TIME:TIME, s@MS, e@MS
                    records of this time or later (e@: before it)
  stored            what the group has committed (the default with -g)

with -g the command is a member of the group, which gives it a part of the partitions. It goes on at
the commits of the group; where there is none, at -o beginning (default) or -o end. What was written
is committed every five seconds, before partitions are given up, and at the end; then it leaves.
Without --follow it ends when its own partitions are read. Options of the member are Java's, with -X
or in the file: group.protocol=consumer (KIP-848), session.timeout.ms, heartbeat.interval.ms,
max.poll.interval.ms, auto.offset.reset, group.instance.id, group.remote.assignor; the strategy of
the classic protocol is range. Patterns of topics are looked up once, at the start. Heartbeats go out
between two responses: who holds up the output longer than session.timeout.ms loses the partitions.

examples:
  odradek consume orders
  odradek consume orders -o -10 -f '%p %o %d %k %s\\n'
  odradek consume orders:2 payments -o -15m --follow
  odradek consume orders -o 2026-11-27T09:00 --until 2026-11-27T10:00 --json
  odradek consume orders --grep refund -n 5
  odradek consume __consumer_offsets --decode auto -f '%k %s\\n'
  odradek consume orders --decode auto --schema-registry http://localhost:8081
  odradek consume metrics -s key=q -s 'value=<hhs' -f '%k: %s\\n'
  odradek consume orders --key 'o-991' --json
  odradek consume orders -K :                       key:value in each line
  odradek consume orders --json | odradek produce orders.copy --json --create -p -1
  odradek consume orders -g billing -n 100
  odradek consume orders payments -g billing --follow -X group.protocol=consumer

exit status: 0 (also when the reader of a pipe has gone), 1 when something could not be read or
committed, 2 for options that do not go together, 130 after Ctrl-C, 143 after SIGTERM."""


_RESETS = ("earliest", "latest")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of reading and of printing."""
    parser.add_argument(
        "topics", nargs="+", metavar="TOPIC[:PARTITION]", help="a name, one with *, or /regular expression/"
    )
    reading = parser.add_argument_group("reading")
    reading.add_argument(
        "-o", "--offset", action="append", default=[], metavar="WHERE", help="where to begin (default start)"
    )
    reading.add_argument("--until", metavar="WHERE", help="an offset or a time before which to end")
    reading.add_argument("-p", "--partition", metavar="N", help="only this partition of the topics")
    reading.add_argument("-n", "-c", "--count", metavar="N", help="how many records to print at most")
    ending = reading.add_mutually_exclusive_group()
    ending.add_argument("--follow", action="store_true", help="go on at the end with what is written then")
    ending.add_argument("-e", "--exit", action="store_true", help="end at the end, also with -o end")
    reading.add_argument(
        "-g",
        "-G",
        "--group",
        metavar="GROUP",
        help="as a member of this group: read what it assigns, and commit what was printed",
    )
    reading.add_argument(
        "--isolation",
        choices=("read_committed", "read_uncommitted"),
        default="read_committed",
        help="whether records of open and aborted transactions are left out (default) or printed",
    )
    reading.add_argument(
        "--control-records", action="store_true", help="print also the markers that end transactions"
    )
    searching = parser.add_argument_group("searching")
    searching.add_argument("--key", type=exact, metavar="KEY", help="only records with this key")
    searching.add_argument(
        "--grep",
        type=exact,
        metavar="TEXT",
        help="only records with this in key, value or headers; /RE2/ is a pattern",
    )
    printing = parser.add_argument_group("printing")
    form = printing.add_mutually_exclusive_group()
    form.add_argument(
        "-f", "--format", type=exact, metavar="FORMAT", help="as said below (default: the value, a line)"
    )
    add_form_arguments(
        form, LINES, "lines of the format, or one object a line (json and jsonl), which produce --json takes"
    )
    printing.add_argument(
        "-K",
        "--key-separator",
        type=exact,
        metavar="SEP",
        help="the key and this before each value; not with -f, --json",
    )
    printing.add_argument(
        "-D",
        "--delimiter",
        type=exact,
        metavar="SEP",
        help="what ends a record (default \\n; \\0, \\xNN); not with -f, --json",
    )
    printing.add_argument(
        "--decode", choices=FORMS, metavar="FORM", help="keys and values as auto or a form says, see below"
    )
    printing.add_argument(
        "-s",
        action="append",
        default=[],
        dest="packs",
        metavar="[PART=]PACK",
        help="the numbers in keys or values, by kcat's letters",
    )
    printing.add_argument("-Z", "--nulls", action="store_true", help="show null keys and values as NULL")
    printing.add_argument("-u", "--unbuffered", action="store_true", help="write each record at once")
    printing.add_argument("-q", "--quiet", action="store_true", help="no notes on stderr")
    add_schema_arguments(parser)
    add_connection_arguments(parser)
    parser.set_defaults(usage_error=parser.error)


def run(options: argparse.Namespace) -> int:
    """Prints; returns the exit status."""
    if options.format == "json":
        options.format, options.output = None, "json"  # as rpk has it
    count = None if options.count is None else parse_whole(options.count, "--count")
    wanted = _range(options)
    printer = RecordPrinter(
        *(_lines(options), _tests(options), count),
        control=options.control_records,
        unbuffered=options.unbuffered,
    )
    is_tail = wanted.start.kind == "latest" and wanted.end is None
    follows = options.follow or (is_tail and not options.exit)
    named = options_of(options)
    used = () if options.group is None else MEMBER_OPTIONS
    with Cluster(settings_of(options, named, used)) as cluster, _progress(options) as progress:
        if options.group is None:
            _read(cluster, options, wanted, follows, printer, progress)
        else:
            member = _member_settings(options, wanted, named)
            _read_as_member(cluster, options, wanted, follows, member, printer, progress)
    if (options.key is not None or options.grep is not None) and not options.quiet:
        print(
            f"odradek: {quantity(printer.seen, 'record')} searched, {printer.printed:,} printed",
            file=sys.stderr,
        )
    return 0


def _read(
    cluster: Cluster,
    options: argparse.Namespace,
    wanted: Range,
    follows: bool,
    printer: RecordPrinter,
    progress: Progress,
) -> None:
    read_committed = options.isolation == "read_committed"
    bounds = wanted.bounds(
        cluster, _partitions(cluster, options), {}, read_committed=read_committed, follows=follows
    )
    skipped = tell_nothing if options.quiet else tell_skipped
    reader = Reader(cluster, bounds, read_committed=read_committed, skipped=skipped)
    if printer.is_full:
        return
    for fetched in reader:
        printer.take(fetched)
        progress.update(printer.seen, printer.seen_bytes)
        if printer.is_full:
            break


def _read_as_member(
    cluster: Cluster,
    options: argparse.Namespace,
    wanted: Range,
    follows: bool,
    member: MemberSettings,
    printer: RecordPrinter,
    progress: Progress,
) -> None:
    names = [name for text in options.topics for name in _names(cluster, text)]
    known = cluster.partitions_of(names)
    for name in names:
        if name not in known:
            raise ClientError(no_such("topic", name))
    reading = GroupReading(
        cluster,
        options.group,
        [*known],
        member,
        wanted._replace(start=Place("stored")),
        printer,
        read_committed=options.isolation == "read_committed",
        follows=follows,
        is_quiet=options.quiet,
    )
    reading.run(lambda: progress.update(printer.seen, printer.seen_bytes))


# What was typed ---------------------------------------------------------------------------------------


def _range(options: argparse.Namespace) -> Range:
    """A group goes on at its commits, and -o is for partitions without one."""
    default = "stored" if options.group is not None else "earliest"
    found = parse_range(options.offset, options.until, time.time_ns() // 1_000_000, default)
    if found.start.kind == "stored" and options.group is None:
        raise ClientError("-o stored needs a group: -g GROUP")
    if options.group is not None:
        _check_group(options, found)
    return found


def _check_group(options: argparse.Namespace, wanted: Range) -> None:
    """Ends with a usage error for what is the business of the group."""
    if wanted.start.kind not in ("stored", *_RESETS) or wanted.start.number:
        options.usage_error(
            "-g goes on where the group is, so -o may be beginning or end (where the group has no commit) or "
            "stored; odradek groups seek moves a group"
        )
    if options.partition is not None:
        options.usage_error("-p is not for -g: the group gives each member its partitions")
    for text in options.topics:
        if _names_partition(text):
            options.usage_error(f"{text} names a partition, and with -g the group gives each member its own")


def _member_settings(options: argparse.Namespace, wanted: Range, named: Mapping[str, str]) -> MemberSettings:
    """Unlike Java's consumer it reads all that the group has not read yet, if nothing else is said."""
    given = {"auto.offset.reset": "earliest"} | dict(named)
    if options.offset and wanted.start.kind in _RESETS:
        given["auto.offset.reset"] = wanted.start.kind
    return MemberSettings.from_options(given)


def _names_partition(text: str) -> bool:
    return ":" in text and not text.startswith("/")


def _lines(options: argparse.Namespace) -> Lines:
    is_terminal = sys.stdout.isatty()
    if (options.key_separator, options.delimiter) != (None, None) and (
        options.output != LINES[0] or options.format
    ):
        options.usage_error("-K and -D do not go with -f, which says it itself, nor with --json")
    decoders = None
    if options.decode is not None or options.packs:
        decoders = Decoders(options.decode, options.packs, schemas_of(options))
    elif options.schema_registry is not None or options.schemas is not None:
        options.usage_error("--schema-registry and --schemas are for --decode (auto, avro, protobuf)")
    if options.output != LINES[0]:
        lines = json_lines if decoders is None else decoders.json_lines
        return _for_terminal(lines) if is_terminal else lines
    return RecordFormat(
        _format(options), nulls=options.nulls, is_terminal=is_terminal, decoders=decoders
    ).lines


def _format(options: argparse.Namespace) -> str:
    """With kcat's -K and -D."""
    key, end = options.key_separator, options.delimiter
    if options.format is not None:
        return str(options.format)
    before = "" if key is None else "%k" + key.replace("%", "%%")
    return before + "%s" + ("\\n" if end is None else end.replace("%", "%%"))


def _for_terminal(lines: Lines) -> Lines:
    """JSON has no control characters, but for those from U+007F to U+009F."""
    controls = {code: f"\\u{code:04x}" for code in range(0x7F, 0xA0)}

    def shown(topic: str, partition: int, batch: StoredBatch) -> list[bytes]:
        return [line.decode().translate(controls).encode() for line in lines(topic, partition, batch)]

    return shown


def _tests(options: argparse.Namespace) -> list[Test]:
    tests: list[Test] = []
    if options.key is not None:
        key = options.key.encode("utf-8", "surrogateescape")
        tests.append(lambda record: record.key == key)
    if options.grep is not None:
        tests.append(_grep(options.grep))
    return tests


def _grep(text: str) -> Test:
    """The time of a search is bounded by the bytes: patterns are those of RE2, which never tries again."""
    if not (len(text) > 2 and text.startswith("/") and text.endswith("/")):
        sought = text.encode("utf-8", "surrogateescape")
        return lambda record: any(sought in content for content in _contents(record))
    try:
        import re2
    except ImportError:
        raise ClientError("--grep with a pattern needs google-re2; a text without slashes does not") from None
    options = re2.Options()
    options.log_errors = False
    options.encoding = re2.Options.Encoding.LATIN1
    try:
        # Of bytes, so that records that are no text are searched, too.
        search: Any = re2.compile(text[1:-1].encode("utf-8", "surrogateescape"), options).search
    except re2.error as error:
        why = error.args[0].decode() if isinstance(error.args[0], bytes) else error
        raise ClientError(f"the pattern {text} is not a regular expression: {why}") from None
    return lambda record: any(search(content) is not None for content in _contents(record))


def _contents(record: Record) -> Iterator[bytes]:
    if record.value is not None:
        yield record.value
    if record.key is not None:
        yield record.key
    for name, content in record.headers:
        yield name.encode("utf-8", "surrogateescape")
        if content is not None:
            yield content


def _partitions(cluster: Cluster, options: argparse.Namespace) -> list[TopicPartition]:
    """Sorted; ClientError for what is not there."""
    only = None if options.partition is None else parse_whole(options.partition, "--partition", 0, 2**31 - 1)
    found: dict[TopicPartition, None] = {}
    for text in options.topics:
        named = _names_partition(text)
        names = [parse_partition(text)[0]] if named else _names(cluster, text)
        numbers = cluster.partitions_of(names)
        for name in names:
            if name not in numbers:
                raise ClientError(no_such("topic", name))
            wanted = [parse_partition(text)[1]] if named else range(numbers[name]) if only is None else [only]
            if wanted and wanted[-1] >= numbers[name]:
                raise ClientError(
                    f"topic {name} has no partition {wanted[-1]}: it has {numbers[name]}, counted from 0"
                )
            found.update(dict.fromkeys((name, number) for number in wanted))
    return sorted(found)


def _names(cluster: Cluster, pattern: str) -> list[str]:
    if "*" not in pattern and not pattern.startswith("/"):
        return [pattern]
    topics, _ = describe_topics(cluster)
    names = matching((topic.name for topic in topics if not topic.is_internal), [pattern])
    if not names:
        raise ClientError(no_such("topic", pattern))
    return names


# Notes ------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def _progress(options: argparse.Namespace) -> Iterator[Progress]:
    """A line on the terminal of a person whose records go elsewhere; removed at the end."""
    is_shown = sys.stderr.isatty() and not sys.stdout.isatty() and not options.quiet
    progress = Progress("consume", sys.stderr if is_shown else None)
    try:
        yield progress
    finally:
        progress.clear()
