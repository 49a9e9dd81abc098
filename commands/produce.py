"""`odradek produce`: lines of stdin or of a file into a topic."""

import argparse
import contextlib
import os
import select
import sys
import time
from collections.abc import Callable, Iterator
from typing import BinaryIO

from odradek.client.admin.topics import await_topic, create_topic
from odradek.client.client_error import ClientError
from odradek.client.cluster import Cluster, UnknownTopic
from odradek.client.connecting import add_connection_arguments, cluster_of
from odradek.client.gathering import BATCH_BYTES, Gatherer
from odradek.client.partitioning import PARTITIONERS, Partitioner
from odradek.client.producing import ACKS_ALL, ACKS_LEADER, Producer
from odradek.client.progress import Progress
from odradek.commands.output import quantity, terminal
from odradek.commands.record_format import unescaped
from odradek.commands.record_json import ReadRecord, read_record
from odradek.commands.selecting import parse_whole
from odradek.config.command_line import exact
from odradek.wire.compression import compression_named
from odradek.wire.errors import ErrorCode

ABOUT = """\
Write records: each line of stdin, or of --file, is a value (an empty line an empty value).
When it ends with 0 the brokers have all of them, each once, in the order of the lines within
a partition."""

EXAMPLES = """\
examples:
  echo hello | odradek produce greetings --create
  odradek produce orders -K : < orders.txt          key:value in each line
  odradek produce orders -k o-17 -H source=shell -H trace < one-value.txt
  odradek produce orders --json < records.jsonl     what consume --json prints
  odradek produce orders -K : -Z < deletes.txt      'key:' is a tombstone of the key
  odradek produce orders --file day.jsonl --json --transaction --compression zstd
  odradek produce orders --rate 100 < /usr/share/dict/words

keys of --json: topic (if none is named here), partition, timestamp (ms), key, value, headers (a
list of {"key": ..., "value": ...}); key_base64 and value_base64 for what is not text. offset and
timestamp_type are not used.

exit status: 0 when all is written, 1 when something could not be (with --transaction: nothing
is), 130 after Ctrl-C, 143 after SIGTERM."""

READ_BYTES = 1 << 20
LINE_BYTES_MAX = 1 << 30
LINGER_S = 0.005
"""Longest wait for more input before the records so far are sent."""
NAMES_SHOWN = 3
_ACKS = {"all": ACKS_ALL, "-1": ACKS_ALL, "1": ACKS_LEADER}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of records and of writing."""
    parser.add_argument("topic", nargs="?", metavar="TOPIC", help="may be left out where --json names topics")
    records = parser.add_argument_group("records")
    records.add_argument("-l", "--file", metavar="FILE", help="read this instead of stdin")
    records.add_argument(
        "-J", "--json", action="store_true", help="each line is an object as consume --json prints"
    )
    records.add_argument("-k", "--key", type=exact, metavar="KEY", help="the key of all records")
    records.add_argument(
        "-K",
        "--key-separator",
        type=exact,
        metavar="SEP",
        help="the key is what stands before this; a line without it has none",
    )
    records.add_argument(
        "-H",
        "--header",
        type=exact,
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="a header of all records; without = its value is null; may be given many times",
    )
    records.add_argument("-Z", "--nulls", action="store_true", help="empty values and keys are null")
    records.add_argument(
        "-D",
        "--delimiter",
        type=exact,
        default="\\n",
        metavar="SEP",
        help="what ends a record (default \\n; \\0, \\xNN)",
    )
    writing = parser.add_argument_group("writing")
    writing.add_argument(
        "-p", "--partition", metavar="N", help="of all records; -1: by the key also where --json names one"
    )
    writing.add_argument(
        "--partitioner",
        choices=PARTITIONERS,
        default="murmur2",
        help="how keys choose partitions: as Java's clients (default) or as librdkafka",
    )
    writing.add_argument(
        "--acks",
        choices=("all", "-1", "1", "0"),
        default="all",
        help="who has a record before it counts as written: all replicas in sync (default), or the leader",
    )
    writing.add_argument(
        "--compression", choices=("none", "gzip", "snappy", "lz4", "zstd"), default="none", metavar="CODEC"
    )
    writing.add_argument(
        "--batch-bytes",
        default=str(BATCH_BYTES),
        metavar="N",
        help=f"size of batches before compression (default {BATCH_BYTES}); a larger record goes alone",
    )
    writing.add_argument("--rate", metavar="N", help="records a second at most")
    writing.add_argument(
        "--transaction",
        nargs="?",
        const="",
        metavar="ID",
        help="all or nothing: in one transaction, of this transactional id; stands after TOPIC",
    )
    writing.add_argument("--create", action="store_true", help="make the topic if it is not there")
    writing.add_argument("-q", "--quiet", action="store_true", help="no notes on stderr")
    add_connection_arguments(parser)


def run(options: argparse.Namespace) -> int:
    """Writes; returns the exit status."""
    lines = _Lines(options)
    if options.topic is None and not options.json:
        raise ClientError("no TOPIC is named (it stands before --transaction)")
    if options.acks == "0":
        raise ClientError(
            "--acks 0 is not possible: nobody would know what was written; --acks 1 waits for the leader only"
        )
    rate = None if options.rate is None else parse_whole(options.rate, "--rate", 1, 10**9)
    with _opened(options.file) as source, cluster_of(options) as cluster:
        targets = _Targets(cluster, options)
        if options.topic is not None:
            targets.partitioner(options.topic)
        with _producer(cluster, options) as producer:
            # Who types the records sees them.
            is_shown = not (options.quiet or source.isatty())
            if source.isatty() and not options.quiet:
                each = "each line is a record; " if lines.delimiter == b"\n" else ""
                print(f"odradek: {each}Ctrl-D ends", file=sys.stderr)
            progress = Progress("produce", terminal() if is_shown else None)
            writer = _Writer(producer, targets, options, progress.update)
            try:
                _write_all(source, lines, writer, _Pace(rate))
            except _Stopped:
                raise
            except ClientError as error:
                raise writer.given_up(error) from None
            finally:
                progress.clear()
        if sys.stderr.isatty() and not options.quiet:
            named = sorted(writer.topics) or [options.topic or "any topic"]
            topics = ", ".join(named[:NAMES_SHOWN])
            print(f"odradek: {quantity(writer.written, 'record')} to {topics}", file=sys.stderr)
    return 0


def _write_all(source: BinaryIO, lines: "_Lines", writer: "_Writer", pace: "_Pace") -> None:
    with _explained(), writer.transaction():
        for number, line in enumerate(_records_of(source, lines.delimiter, writer), 1):
            if pace.is_ahead(number):
                writer.flush()
                pace.wait(number)
            try:
                record = lines.record(line)
                place = None if record is None else writer.place(record)
            except ClientError as error:
                raise writer.stopped(f"line {number} {error}") from None
            if record is not None and place is not None:
                writer.write(record, *place)
        writer.flush()


@contextlib.contextmanager
def _explained() -> Iterator[None]:
    """Says which option helps."""
    try:
        yield
    except ClientError as error:
        if error.code != ErrorCode.MESSAGE_TOO_LARGE:
            raise
        raise ClientError(
            "a batch is larger than max.message.bytes of the topic allows: give a smaller --batch-bytes, or, "
            "if it is a single record, raise that option",
            error.code,
        ) from None


# Reading ----------------------------------------------------------------------------------------------


@contextlib.contextmanager
def _opened(path: str | None) -> Iterator[BinaryIO]:
    if path is None or path == "-":
        yield sys.stdin.buffer
        return
    try:
        source = open(path, "rb")  # noqa: SIM115
    except OSError as error:
        raise ClientError(f"{path} cannot be read: {error.strerror or error}") from None
    with source:
        yield source


def _records_of(source: BinaryIO, delimiter: bytes, writer: "_Writer") -> Iterator[bytes]:
    """The input in pieces; before it waits for more, what was read is written."""
    rest = b""
    while True:
        if not _has_input(source):
            writer.flush()
        read: bytes = source.read1(READ_BYTES)  # type: ignore[attr-defined]
        if not read:
            break
        *whole, rest = (rest + read).split(delimiter)
        yield from whole
        if len(rest) > LINE_BYTES_MAX:
            raise ClientError(f"has no end within {LINE_BYTES_MAX} bytes: another --delimiter?")
    if rest:
        yield rest


def _has_input(source: BinaryIO) -> bool:
    try:
        return bool(select.select([source.fileno()], [], [], LINGER_S)[0])
    except (OSError, ValueError):
        return True  # no file of the system, or one that never waits


class _Lines:
    """Makes records of lines, as the options say."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.delimiter = unescaped(options.delimiter)
        if not self.delimiter:
            raise ClientError("--delimiter is empty")
        self._is_json, self._nulls = options.json, options.nulls
        self._key = None if options.key is None else os.fsencode(options.key)
        self._separator = None if options.key_separator is None else unescaped(options.key_separator)
        self._headers = [_header(text) for text in options.header]
        if self._separator == b"":
            raise ClientError("--key-separator is empty")
        if self._key is not None and self._separator is not None:
            raise ClientError("-k names the key of all records, and -K takes it from each: one of them")
        if self._is_json and (self._key is not None or self._separator is not None or self._nulls):
            raise ClientError("--json has keys and nulls of its own, without -k, -K and -Z")

    def record(self, line: bytes) -> ReadRecord | None:
        """None for an empty line between objects of JSON; ClientError with what is wrong with the line."""
        if self._is_json and not line.strip():
            return None
        if self._is_json:
            found = read_record(line)
            return found if not self._headers else found._replace(headers=found.headers + self._headers)
        key, value = self._key, line
        if self._separator is not None:
            before, separator, after = line.partition(self._separator)
            if separator:
                key, value = before, after
        if self._nulls:
            return ReadRecord(None, None, None, key or None, value or None, self._headers)
        return ReadRecord(None, None, None, key, value, self._headers)


def _header(text: str) -> tuple[str, bytes | None]:
    name, equals, value = text.partition("=")
    if not name:
        raise ClientError(f"--header {text!r} has no name")
    return name, os.fsencode(value) if equals else None


# Writing ----------------------------------------------------------------------------------------------


class _Targets:
    """The topics that records go to, and the partitions in them."""

    def __init__(self, cluster: Cluster, options: argparse.Namespace) -> None:
        self.cluster, self._creates, self._name = cluster, options.create, options.partitioner
        self._partition = None
        if options.partition is not None:
            self._partition = parse_whole(options.partition, "--partition", -1, 2**31 - 1)
        self._known: dict[str, tuple[int, Partitioner]] = {}

    def partitioner(self, topic: str) -> tuple[int, Partitioner]:
        """The number of partitions of the topic with it; UnknownTopic."""
        found = self._known.get(topic)
        if found is None:
            count = self._count(topic)
            found = self._known[topic] = count, Partitioner(self._name, count)
        return found

    def partition(self, topic: str, record: ReadRecord) -> int:
        """The one that the options or the record name, or that of its key."""
        count, partitioner = self.partitioner(topic)
        wanted = record.partition if self._partition is None else self._partition
        if wanted is None or wanted < 0:
            return partitioner.partition(record.key)
        if wanted >= count:
            raise ClientError(
                f"names partition {wanted} of topic {topic}, which has {count}, counted from 0; "
                "-p -1 chooses by the key"
            )
        return wanted

    def _count(self, topic: str) -> int:
        counts = self.cluster.partitions_of([topic])
        if not counts.get(topic) and not self._creates:
            raise UnknownTopic(
                f"topic {topic} does not exist: make it with odradek topics create, or with --create here"
            )
        if not counts.get(topic):
            create_topic(self.cluster, topic, -1, {})
            return await_topic(self.cluster, topic)
        return counts[topic]


class _Stopped(ClientError):
    """A line that is wrong; the sentence says what is written."""


class _Writer:
    """Hands records to the producer."""

    def __init__(
        self,
        producer: Producer,
        targets: _Targets,
        options: argparse.Namespace,
        progressed: Callable[[int], object],
    ) -> None:
        """`progressed` is told how many records are written."""
        self._progressed = progressed
        self._producer, self._targets, self._topic = producer, targets, options.topic
        self._cluster = targets.cluster
        self._is_transaction = options.transaction is not None
        self._gatherer = Gatherer(
            compression_named(options.compression),
            parse_whole(options.batch_bytes, "--batch-bytes", 1, 1 << 30),
        )
        self.topics: set[str] = set()
        self.written = 0

    def place(self, record: ReadRecord) -> tuple[str, int]:
        """Topic and partition; ClientError, which begins with what is wrong, if there is no such place."""
        topic = self._topic or record.topic
        if topic is None:
            raise ClientError("names no topic, and the command line does not either")
        return topic, self._targets.partition(topic, record)

    def write(self, record: ReadRecord, topic: str, partition: int) -> None:
        """Sends the record with others; `flush` reports its failure."""
        timestamp_ms = time.time_ns() // 1_000_000 if record.timestamp_ms is None else record.timestamp_ms
        full = self._gatherer.add(topic, partition, timestamp_ms, record.key, record.value, record.headers)
        self.topics.add(topic)
        self.written += 1
        if full is not None:
            self._producer.send(full)
            self._progressed(self.written)

    def stopped(self, sentence: str) -> ClientError:
        """The failure of a line; what stands before it is written, if that is not for a transaction."""
        if self._is_transaction:
            return _Stopped(f"{sentence}; nothing is written")
        self.flush()
        return _Stopped(f"{sentence}; {quantity(self.written, 'record')} before it written")

    def given_up(self, error: ClientError) -> ClientError:
        """A failure of the brokers, with what they have before it; of records under way nothing is known."""
        if self._is_transaction:
            return ClientError(f"{error}; nothing is written", error.code)
        written = quantity(self._producer.written_count, "record")
        return ClientError(f"{error}; {written} of {self.written:,} are written for certain", error.code)

    def flush(self) -> None:
        """Returns when the brokers have all records; in a transaction it waits for its end."""
        for rest in self._gatherer.drain():
            self._producer.send(rest)
        self._producer.flush()
        self._progressed(self.written)

    @contextlib.contextmanager
    def transaction(self) -> Iterator[None]:
        """Committed at the end, aborted after a failure; nothing without one."""
        if not self._is_transaction:
            yield
            return
        self._producer.init_transactions()
        self._producer.begin()
        try:
            yield
            self._producer.commit()
        except BaseException as error:
            if isinstance(error, KeyboardInterrupt):
                # Half of a response may have been read: the abort needs another connection.
                self._cluster.close()
            with contextlib.suppress(ClientError):
                self._producer.abort()
            raise


def _producer(cluster: Cluster, options: argparse.Namespace) -> Producer:
    if options.transaction is None:
        return Producer(cluster, acks=_ACKS[options.acks])
    if options.acks == "1":
        raise ClientError("--acks 1 is not possible in a transaction, which is all or nothing")
    import secrets

    name = options.transaction or f"odradek-produce-{secrets.token_hex(8)}"
    return Producer(cluster, transactional_id=name, transaction_timeout_ms=60_000)


class _Pace:
    """Pace of `--rate`: when a record is due."""

    def __init__(self, rate: int | None) -> None:
        self._rate, self._began = rate, time.monotonic()

    def is_ahead(self, number: int) -> bool:
        return self._rate is not None and self._left_s(number) > 0

    def wait(self, number: int) -> None:
        time.sleep(max(0.0, self._left_s(number)))

    def _left_s(self, number: int) -> float:
        assert self._rate is not None
        return self._began + (number - 1) / self._rate - time.monotonic()
