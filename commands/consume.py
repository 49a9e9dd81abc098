"""`odradek consume`: the records of topics, as lines of a format or of JSON."""

import argparse
import contextlib
import io
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, BinaryIO

from odradek.client.admin.topics import describe_topics
from odradek.client.client_error import ClientError
from odradek.client.cluster import Cluster, TopicPartition
from odradek.client.group_offsets import commit, committed
from odradek.client.progress import Progress
from odradek.client.reading import PartitionRecords, Reader
from odradek.client.stored_records import StoredBatch, batches_of
from odradek.commands.connecting import add_connection_arguments, cluster_of
from odradek.commands.output import quantity
from odradek.commands.reading_range import Range, parse_range
from odradek.commands.record_format import FORMAT_HELP, RecordFormat
from odradek.commands.record_json import json_lines
from odradek.commands.selecting import matching, parse_partition, parse_whole
from odradek.wire.records import Record

__all__ = ["ABOUT", "EXAMPLES", "add_arguments", "run"]

ABOUT = """\
Print the records of topics. Reading ends at the end that the topics have at the start;
--follow goes on with what is written then, and so does -o end (without --exit).
Records of several partitions come as they arrive; those of one partition are in order."""

EXAMPLES = f"""\
{FORMAT_HELP}

where to begin (-o):
  start, end        or kcat's beginning; in every partition
  42, -10, +10      an offset; ten before the end; ten after the start
  5:9               from offset 5 on, before 9; 5: and :9, too
  -1h, 2026-11-27T09:00, @TIME, @TIME:TIME, s@MS, e@MS
                    records of this time or later (e@: before it)
  stored            what the group has committed (the default with -g)

examples:
  odradek consume orders
  odradek consume orders -o -10 -f '%p %o %d %k %s\\n'
  odradek consume orders:2 payments -o -15m --follow
  odradek consume orders -o 2026-11-27T09:00 --until 2026-11-27T10:00 --json
  odradek consume orders --grep refund -n 5
  odradek consume orders --key 'o-991' --json
  odradek consume orders --json | odradek produce orders.copy --json --create
  odradek consume orders -g billing -n 100

exit status: 0 (also when the reader of a pipe has gone), 1 when something could not be read,
130 after Ctrl-C."""

Lines = Callable[[str, int, StoredBatch], list[bytes]]
Test = Callable[[Record], object]
COMMIT_S = 5.0
"""How often the offsets of a group are committed meanwhile."""


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
        "-g", "--group", metavar="GROUP", help="go on where this group is, and commit what was printed"
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
    searching.add_argument("--key", metavar="KEY", help="only records with this key")
    searching.add_argument(
        "--grep", metavar="TEXT", help="only records with this in key, value or headers; /RE2/ is a pattern"
    )
    printing = parser.add_argument_group("printing")
    form = printing.add_mutually_exclusive_group()
    form.add_argument("-f", "--format", metavar="FORMAT", help="as said below (default: the value, a line)")
    form.add_argument("--json", action="store_true", help="one object a line, which produce --json takes")
    printing.add_argument("-Z", "--nulls", action="store_true", help="show null keys and values as NULL")
    printing.add_argument("-u", "--unbuffered", action="store_true", help="write each record at once")
    printing.add_argument("-q", "--quiet", action="store_true", help="no notes on stderr")
    add_connection_arguments(parser)


def run(options: argparse.Namespace) -> int:
    """Prints; returns the exit status."""
    count = None if options.count is None else parse_whole(options.count, "--count")
    wanted = _range(options)
    lines, tests = _lines(options), _tests(options)
    with cluster_of(options) as cluster:
        partitions = _partitions(cluster, options)
        stored = _stored(cluster, options, partitions)
        is_tail = wanted.start.kind == "latest" and wanted.end is None
        bounds = wanted.bounds(
            cluster,
            partitions,
            stored,
            read_committed=options.isolation == "read_committed",
            follows=options.follow or (is_tail and not options.exit),
        )
        reader = Reader(
            cluster,
            bounds,
            read_committed=options.isolation == "read_committed",
            skipped=None if options.quiet else _skipped,
        )
        printer = _Printer(
            lines, tests, count, control=options.control_records, unbuffered=options.unbuffered
        )
        group = _Group(cluster, options.group, printer)
        with _progress(options) as progress:
            _print(cluster, reader, printer, group, progress)
        if tests and not options.quiet:
            print(
                f"odradek: {quantity(printer.seen, 'record')} searched, {printer.printed:,} printed",
                file=sys.stderr,
            )
    return 0


def _print(
    cluster: Cluster, reader: Reader, printer: "_Printer", group: "_Group", progress: Progress
) -> None:
    try:
        if printer.is_full:
            return
        for fetched in reader:
            printer.take(fetched)
            group.commit_if_due()
            progress.update(printer.seen, printer.seen_bytes)
            if printer.is_full:
                break
    except KeyboardInterrupt:
        # Half of a response may have been read: the commit needs another connection.
        cluster.close()
        group.commit()
        raise
    group.commit()


class _Printer:
    """Writes records, as many as are wanted."""

    def __init__(
        self, lines: Lines, tests: Sequence[Test], count: int | None, *, control: bool, unbuffered: bool
    ) -> None:
        self._lines, self._tests, self._control, self._unbuffered = lines, tests, control, unbuffered
        self._left = count
        self._out = _buffered(sys.stdout.buffer)
        self.seen = self.printed = self.seen_bytes = 0
        self.positions: dict[TopicPartition, int] = {}
        """The offset after the last record that was printed, or that was searched in vain."""

    @property
    def is_full(self) -> bool:
        return self._left == 0

    def take(self, fetched: PartitionRecords) -> None:
        """Prints what came of one partition, and flushes it."""
        key = fetched.topic, fetched.partition
        self.seen_bytes += len(fetched.buffer)
        for batch in batches_of(fetched, control=self._control):
            last = self._print(fetched, batch)
            self.positions[key] = last + 1
            if self._left == 0:
                break
        else:
            self.positions[key] = max(self.positions.get(key, 0), _end_of(fetched))
        self._out.flush()

    def _print(self, fetched: PartitionRecords, batch: StoredBatch) -> int:
        """Returns the last offset that was looked at."""
        records = batch.records
        last, seen = records[-1].offset, len(records)
        if self._tests:
            records = [one for one in records if all(test(one) for test in self._tests)]
        if self._left is not None:
            if len(records) >= self._left:
                records = records[: self._left]
                last = records[-1].offset
                seen = sum(one.offset <= last for one in batch.records)
            self._left -= len(records)
        self.seen += seen
        self.printed += len(records)
        if records:
            self._write(self._lines(fetched.topic, fetched.partition, batch._replace(records=records)))
        return last

    def _write(self, lines: list[bytes]) -> None:
        if not self._unbuffered:
            self._out.write(b"".join(lines))
            return
        for line in lines:
            self._out.write(line)
            self._out.flush()


def _buffered(out: BinaryIO) -> BinaryIO:
    """With PYTHONUNBUFFERED, which images of containers often set, stdout is a file whose `write` may write
    less than it is given."""
    return open(out.fileno(), "wb", closefd=False) if isinstance(out, io.RawIOBase) else out


def _end_of(fetched: PartitionRecords) -> int:
    return fetched.next_offset if fetched.end is None else min(fetched.next_offset, fetched.end)


class _Group:
    """Commits for a group what was printed; does nothing without a group."""

    def __init__(self, cluster: Cluster, name: str | None, printer: _Printer) -> None:
        self._cluster, self._name, self._printer = cluster, name, printer
        self._committed: dict[TopicPartition, int] = {}
        self._next = time.monotonic() + COMMIT_S

    def commit_if_due(self) -> None:
        if time.monotonic() >= self._next:
            self.commit()

    def commit(self) -> None:
        self._next = time.monotonic() + COMMIT_S
        new = {
            key: (offset, "")
            for key, offset in self._printer.positions.items()
            if self._committed.get(key) != offset
        }
        if self._name is not None and new:
            commit(self._cluster, self._name, new)
            self._committed.update({key: offset for key, (offset, _) in new.items()})


# What was typed ---------------------------------------------------------------------------------------


def _range(options: argparse.Namespace) -> Range:
    default = "stored" if options.group is not None else "earliest"
    found = parse_range(options.offset, options.until, time.time_ns() // 1_000_000, default)
    if found.start.kind == "stored" and options.group is None:
        raise ClientError("-o stored needs a group: -g GROUP")
    return found


def _lines(options: argparse.Namespace) -> Lines:
    is_terminal = sys.stdout.isatty()
    if options.json:
        return _terminal_json_lines if is_terminal else json_lines
    text = "%s\\n" if options.format is None else options.format
    return RecordFormat(text, nulls=options.nulls, is_terminal=is_terminal).lines


def _terminal_json_lines(topic: str, partition: int, batch: StoredBatch) -> list[bytes]:
    """JSON has no control characters, but for those from U+007F to U+009F."""
    controls = {code: f"\\u{code:04x}" for code in range(0x7F, 0xA0)}
    return [line.decode().translate(controls).encode() for line in json_lines(topic, partition, batch)]


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
        raise ClientError(f"the pattern {text} is no regular expression: {why}") from None
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
        named = ":" in text and not text.startswith("/")
        names = [parse_partition(text)[0]] if named else _names(cluster, text)
        numbers = cluster.partitions_of(names)
        for name in names:
            if name not in numbers:
                raise ClientError(f"there is no topic {name}")
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
        raise ClientError(f"there is no topic {pattern}")
    return names


def _stored(
    cluster: Cluster, options: argparse.Namespace, partitions: Sequence[TopicPartition]
) -> dict[TopicPartition, int]:
    """The commits of the group. They are committed again, which changes nothing, but is refused while the
    group has members: better now than after the first records."""
    if options.group is None:
        return {}
    wanted: dict[str, list[int]] = {}
    for topic, number in partitions:
        wanted.setdefault(topic, []).append(number)
    found = committed(cluster, options.group, wanted, is_stable=True)
    if found:
        commit(cluster, options.group, found)
    return {key: offset for key, (offset, _) in found.items()}


# Notes ------------------------------------------------------------------------------------------------


def _skipped(topic: str, partition: int, wanted: int, earliest: int) -> None:
    print(
        f"odradek: the records of {topic}, partition {partition} from {wanted} to {earliest - 1} were "
        "deleted before they were read",
        file=sys.stderr,
    )


@contextlib.contextmanager
def _progress(options: argparse.Namespace) -> Iterator[Progress]:
    """A line on the terminal of a person whose records go elsewhere; removed at the end."""
    is_shown = sys.stderr.isatty() and not sys.stdout.isatty() and not options.quiet
    progress = Progress("consume", sys.stderr if is_shown else None)
    try:
        yield progress
    finally:
        progress.clear()
