"""The options for reading a topic: those of Spark's own Kafka source, with its names and its syntax.

`read_options` makes `ReadOptions` of Spark's options (names in any case, values as text), or raises
`OptionError`: one sentence with the option and the remedy. An unknown option is refused, never ignored.
Nothing here connects to a broker.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NoReturn, TypeVar

from odradek.client.client_error import ClientError
from odradek.client.cluster import EARLIEST, LATEST
from odradek.client.fetching import FETCH_BYTES
from odradek.client.settings import CLIENT_OPTIONS, ClientSettings
from odradek.config.near_names import did_you_mean
from odradek.security.client_security import SECURITY_OPTIONS
from odradek.spark.client_options import PREFIX, is_client_option, settings_of

T = TypeVar("T")
Offsets = dict[str, dict[int, int]]
"""Topic -> partition -> offset (or, where timestamps are given, milliseconds)."""

COLUMNS = {
    "key": "BINARY",
    "value": "BINARY",
    "topic": "STRING",
    "partition": "INT",
    "offset": "BIGINT",
    "timestamp": "TIMESTAMP",
    "timestampType": "INT",
    "headers": "ARRAY<STRUCT<key: STRING, value: BINARY>>",
}
"""Column -> its type in Spark's DDL, in the order of Spark's Kafka source."""

MAX_TRIGGER_DELAY_MS = 15 * 60_000

_UNITS_MS = {
    "us": 0.001, "ms": 1, "s": 1000, "m": 60_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000,
}  # fmt: skip
_LARGEST = (1 << 63) - 1


class OptionError(ValueError):
    """A wrong or unknown option; the text is one sentence for the person who wrote it."""


# -- what is read


@dataclass(frozen=True)
class Subscribed:
    """`subscribe`: these topics, whole."""

    topics: tuple[str, ...]


@dataclass(frozen=True)
class Matching:
    """`subscribePattern`: every topic whose whole name matches, also one that appears later."""

    pattern: str


@dataclass(frozen=True)
class Assigned:
    """`assign`: these partitions."""

    partitions: dict[str, tuple[int, ...]]


# -- from where, and to where


@dataclass(frozen=True)
class Everywhere:
    """The same in every partition: EARLIEST or LATEST."""

    offset: int


@dataclass(frozen=True)
class ByOffset:
    """An offset for each partition, EARLIEST and LATEST among them."""

    offsets: Offsets
    option: str


@dataclass(frozen=True)
class ByTimestamp:
    """The first record of each partition at or after a time: one time for all, or one for each."""

    timestamp_ms: int | Offsets
    option: str


Bound = Everywhere | ByOffset | ByTimestamp


@dataclass(frozen=True)
class ReadOptions:
    """The options of a read, batch or stream. Can be pickled: every task gets them."""

    settings: ClientSettings
    subscription: Subscribed | Matching | Assigned
    start: Bound
    end: Bound
    columns: tuple[str, ...]
    unmatched_is_latest: bool = False
    """`startingOffsetsByTimestampStrategy=latest`: a partition without so late a record starts at its end."""
    fail_on_data_loss: bool = True
    read_committed: bool = False
    min_partitions: int | None = None
    max_records_per_partition: int | None = None
    max_offsets_per_trigger: int | None = None
    max_bytes_per_trigger: int | None = None
    min_offsets_per_trigger: int | None = None
    max_trigger_delay_ms: int = MAX_TRIGGER_DELAY_MS
    is_processing_time: bool = False
    """The user states (`trigger=processingTime`) that the query does not end by itself."""
    fetch_bytes: int = FETCH_BYTES


class GivenOptions:
    """Options by name in any case. Reading one takes it, and `refuse_rest` refuses the others."""

    def __init__(self, options: Mapping[str, Any]) -> None:
        self._values = {name.lower(): str(value) for name, value in options.items()}
        self._spelling = {name.lower(): name for name in options}
        self._known = {name: f"{PREFIX}{name}" for name in (*CLIENT_OPTIONS, *SECURITY_OPTIONS)}
        """Names that were asked for: what one that is left may have meant."""

    def __contains__(self, name: str) -> bool:
        self._known[name.lower()] = name
        return name.lower() in self._values

    def text(self, name: str) -> str | None:
        """The stripped value, once; None if the option was not given."""
        self._known[name.lower()] = name
        value = self._values.pop(name.lower(), None)
        return None if value is None else value.strip()

    def those(self, wanted: Callable[[str], bool]) -> dict[str, Any]:
        """Takes and returns the options whose names, in lower case, are wanted."""
        return {name: self._values.pop(name) for name in [*self._values] if wanted(name)}

    def number(self, name: str, least: int = 1, most: int = _LARGEST) -> int | None:
        text = self.text(name)
        if text is None:
            return None
        if not re.fullmatch(r"[+-]?\d{1,19}", text) or not least <= int(text) <= most:
            refuse(f"{name} must be a whole number from {least} to {most}, and is {text!r}")
        return int(text)

    def boolean(self, name: str, default: bool) -> bool:
        return self.one_of(name, {"true": True, "false": False}, default)

    def one_of(self, name: str, choices: Mapping[str, T], default: T) -> T:
        text = self.text(name)
        if text is None:
            return default
        if text.lower() not in choices:
            refuse(f"{name} must be {' or '.join(choices)}, and is {text!r}")
        return choices[text.lower()]

    def duration_ms(self, name: str, default: int) -> int:
        """A duration in Spark's form: 500ms, 10s, 15m, 2h; a bare number is milliseconds."""
        text = self.text(name)
        if text is None:
            return default
        match = re.fullmatch(r"(\d{1,15})\s*([a-z]*)", text.lower())
        unit = _UNITS_MS.get(match[2] or "ms") if match else None
        if match is None or unit is None:
            refuse(f"{name} must be a duration such as 500ms, 10s or 15m, and is {text!r}")
        return int(int(match[1]) * unit)

    def refuse_rest(self, format_name: str, why: Mapping[str, str]) -> None:
        """Refuses the options that were not taken; `why` has a reason and a remedy for some."""
        known = {name.lower(): name for name in why}
        for lowered in self._values:
            if lowered in known:
                name = known[lowered]
                refuse(f"format({format_name!r}) does not take the option {name}: {why[name]}")
            name = self._spelling[lowered]
            near = did_you_mean(name, self._known.values()) or "; remove it"
            refuse(f"format({format_name!r}) does not take the option {name}{near}")


def refuse(sentence: str) -> NoReturn:
    raise OptionError(sentence)


# -- reading


_FIXED_DESERIALIZERS = "keys and values come as bytes; use CAST or a function of Spark in the query"
_LIMITS = (
    *("maxOffsetsPerTrigger", "maxBytesPerTrigger", "minOffsetsPerTrigger"),
    *("maxTriggerDelay", "trigger"),
)
REASONS = {
    "path": "topics are named with subscribe, subscribePattern or assign; call load() without a path",
    "kafka.auto.offset.reset": "use startingOffsets, and failOnDataLoss for what is no longer there",
    "kafka.enable.auto.commit": "offsets are kept by Spark, in the checkpoint; remove it",
    "kafka.key.deserializer": _FIXED_DESERIALIZERS,
    "kafka.value.deserializer": _FIXED_DESERIALIZERS,
    "kafka.interceptor.classes": "it has no Java classes; remove it",
    "kafka.max.poll.records": "use maxRecordsPerPartition for the size of tasks, and remove it",
}
"""Refused options of Spark's Kafka source -> reason and remedy."""

STREAM_ONLY = dict.fromkeys(_LIMITS, "it belongs to streams (spark.readStream); remove it from a batch read")
BATCH_ONLY = dict.fromkeys(
    ("endingOffsets", "endingOffsetsByTimestamp", "endingTimestamp"),
    "a stream has no end; remove it, or read a batch (spark.read)",
)


def read_options(options: Mapping[str, Any], *, is_stream: bool) -> ReadOptions:
    """The user's options, parsed; OptionError for an option that is wrong or unknown."""
    given = GivenOptions(options)
    read = ReadOptions(
        settings=client_settings(given),
        subscription=_subscription(given),
        start=_start(given, is_stream),
        end=Everywhere(LATEST) if is_stream else _end(given),
        columns=_columns(given),
        unmatched_is_latest=given.one_of(
            "startingOffsetsByTimestampStrategy", {"error": False, "latest": True}, False
        ),
        fail_on_data_loss=given.boolean("failOnDataLoss", True),
        read_committed=given.one_of(
            "kafka.isolation.level", {"read_committed": True, "read_uncommitted": False}, False
        ),
        min_partitions=given.number("minPartitions", most=1_000_000),
        max_records_per_partition=given.number("maxRecordsPerPartition"),
        fetch_bytes=given.number("kafka.max.partition.fetch.bytes", 1024, 1 << 30) or FETCH_BYTES,
        **(_limits(given) if is_stream else {}),
    )
    given.refuse_rest("odradek", REASONS | (BATCH_ONLY if is_stream else STREAM_ONLY))
    _check_partitions(read)
    return read


def read_columns(options: Mapping[str, Any]) -> tuple[str, ...]:
    """The columns of these options; the others are not checked."""
    return _columns(GivenOptions(options))


def _subscription(given: GivenOptions) -> Subscribed | Matching | Assigned:
    names = ("subscribe", "subscribePattern", "assign")
    found = [name for name in names if name in given]
    if len(found) != 1:
        refuse(
            "one of subscribe, subscribePattern and assign is needed: "
            + (f"{' and '.join(found)} are given" if found else "none is given")
        )
    text = given.text(found[0]) or ""
    if not text:
        refuse(f"{found[0]} is empty: name the topics to read")
    if found[0] == "assign":
        return Assigned(_assignment(text))
    if found[0] == "subscribePattern":
        try:
            re.compile(text)
        except re.error as error:
            refuse(f"subscribePattern {text!r} is not a regular expression: {error}")
        return Matching(text)
    topics = tuple(dict.fromkeys(name for part in text.split(",") if (name := part.strip())))
    return Subscribed(topics) if topics else refuse("subscribe is empty: name the topics to read")


def _assignment(text: str) -> dict[str, tuple[int, ...]]:
    example = '{"topicA":[0,1],"topicB":[2]}'
    parsed = _json(text)
    if not isinstance(parsed, dict) or not parsed or not all(isinstance(of, list) for of in parsed.values()):
        refuse(f"assign must name partitions by topic, such as {example}, and is {text!r}")
    if not all(_is_whole(number) and number >= 0 for of in parsed.values() for number in of):
        refuse(f"assign must name partitions by their numbers, such as {example}, and is {text!r}")
    return {topic: tuple(sorted(set(numbers))) for topic, numbers in sorted(parsed.items())}


def _start(given: GivenOptions, is_stream: bool) -> Bound:
    default = Everywhere(LATEST if is_stream else EARLIEST)
    bound = _bound(given, "starting", default)
    if not is_stream and _mentions(bound, LATEST):
        refuse("startingOffsets of a batch read cannot be latest, which is its end; use earliest or offsets")
    return bound


def _end(given: GivenOptions) -> Bound:
    bound = _bound(given, "ending", Everywhere(LATEST))
    if _mentions(bound, EARLIEST):
        refuse("endingOffsets cannot be earliest, which is the start; use latest or offsets")
    return bound


def _bound(given: GivenOptions, side: str, default: Everywhere) -> Bound:
    """The bound of three possible options; a time for all partitions comes first, as in Spark's source."""
    by_offset, by_timestamp = f"{side}Offsets", f"{side}OffsetsByTimestamp"
    everywhere = given.number(f"{side}Timestamp", least=0)
    timestamps, text = given.text(by_timestamp), given.text(by_offset)
    if everywhere is not None:
        return ByTimestamp(everywhere, f"{side}Timestamp")
    if timestamps is not None:
        return ByTimestamp(_partition_numbers(by_timestamp, timestamps, least=0), by_timestamp)
    if text is None:
        return default
    if text.lower() in ("earliest", "latest"):
        return Everywhere(EARLIEST if text.lower() == "earliest" else LATEST)
    return ByOffset(_partition_numbers(by_offset, text, least=EARLIEST), by_offset)


def _mentions(bound: Bound, offset: int) -> bool:
    if isinstance(bound, Everywhere):
        return bound.offset == offset
    if isinstance(bound, ByOffset):
        return any(offset in of_topic.values() for of_topic in bound.offsets.values())
    return False


def _partition_numbers(option: str, text: str, least: int) -> Offsets:
    if option.endswith("Timestamp"):
        expected = '{"topicA":{"0":1767225600000}} (milliseconds since 1970)'
    else:
        expected = 'earliest, latest or {"topicA":{"0":23,"1":-1},"topicB":{"0":-2}} (latest, earliest)'
    parsed = _json(text)
    if not isinstance(parsed, dict) or not all(isinstance(of, dict) for of in parsed.values()):
        refuse(f"{option} must be {expected}, and is {text!r}")
    found: Offsets = {}
    for topic, of_topic in parsed.items():
        for partition, number in of_topic.items():
            if not partition.isdecimal() or not _is_whole(number) or not least <= number <= _LARGEST:
                refuse(f"{option} must be {expected}, and has {partition!r}: {number!r} for {topic!r}")
            found.setdefault(topic, {})[int(partition)] = number
    return found


def _json(text: str) -> Any:
    """None for invalid JSON, which the caller refuses with an example."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _is_whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _columns(given: GivenOptions) -> tuple[str, ...]:
    include_headers = given.boolean("includeHeaders", False)
    text = given.text("columns")
    if text is None:
        return tuple(name for name in COLUMNS if include_headers or name != "headers")
    columns = named_columns(text, COLUMNS)
    if include_headers and "headers" not in columns:
        refuse("includeHeaders=true contradicts columns without headers: name headers in columns")
    return columns


def named_columns(text: str, there: Iterable[str]) -> tuple[str, ...]:
    """The columns of the option `columns`, in its order; refuses names that are not in `there`."""
    known = {name.lower(): name for name in there}
    asked = [part.strip() for part in text.split(",")]
    unknown = [name for name in asked if name.lower() not in known]
    if unknown:
        refuse(f"columns has {unknown[0]!r}; there are {', '.join(known.values())}")
    columns = tuple(known[name.lower()] for name in asked)
    if len(set(columns)) != len(columns):
        refuse(f"columns names a column twice: {text!r}")
    return columns


def client_settings(given: GivenOptions) -> ClientSettings:
    """The settings of the client, from the options that begin with `kafka.`.

    Nothing here joins a group or commits to one, nor do the tasks of Spark's source. So the options of the
    group become the client id, unless that is given.
    """
    prefix, group = given.text("groupIdPrefix"), given.text("kafka.group.id")
    named = given.those(is_client_option)
    if group or prefix:
        named.setdefault("kafka.client.id", group or prefix)
    try:
        return settings_of(named)
    except ClientError as error:
        raise OptionError(str(error)) from None


def _limits(given: GivenOptions) -> dict[str, Any]:
    most = given.number("maxOffsetsPerTrigger")
    most_bytes = given.number("maxBytesPerTrigger")
    least = given.number("minOffsetsPerTrigger")
    if most is not None and most_bytes is not None:
        refuse("maxOffsetsPerTrigger and maxBytesPerTrigger are two limits of a batch: give one of them")
    if most is not None and least is not None and least > most:
        refuse(f"minOffsetsPerTrigger ({least}) cannot be more than maxOffsetsPerTrigger ({most})")
    if "maxTriggerDelay" in given and least is None:
        refuse("maxTriggerDelay has no meaning without minOffsetsPerTrigger: give both or neither")
    return {
        "max_offsets_per_trigger": most,
        "max_bytes_per_trigger": most_bytes,
        "min_offsets_per_trigger": least,
        "max_trigger_delay_ms": given.duration_ms("maxTriggerDelay", MAX_TRIGGER_DELAY_MS),
        "is_processing_time": given.one_of("trigger", {"processingtime": True}, False),
    }


def _check_partitions(read: ReadOptions) -> None:
    """Checks the partitions of a bound early with `assign`; otherwise that needs metadata from brokers."""
    if isinstance(read.subscription, Assigned):
        partitions = {(topic, n) for topic, of in read.subscription.partitions.items() for n in of}
        for bound in (read.start, read.end):
            check_bound(bound, partitions)


def check_bound(bound: Bound, partitions: Iterable[tuple[str, int]]) -> None:
    """Refuses offsets or timestamps for other partitions than the read has."""
    if isinstance(bound, ByOffset):
        given = bound.offsets
    elif isinstance(bound, ByTimestamp) and not isinstance(bound.timestamp_ms, int):
        given = bound.timestamp_ms
    else:
        return
    named = {(topic, number) for topic, of_topic in given.items() for number in of_topic}
    wanted = set(partitions)
    if wanted - named:
        topic, number = min(wanted - named)
        wildcard = " (-1 is latest, -2 earliest)" if isinstance(bound, ByOffset) else ""
        refuse(f"{bound.option} must name every partition that is read{wildcard}: it lacks {topic}-{number}")
    if named - wanted:
        topic, number = min(named - wanted)
        refuse(f"{bound.option} names {topic}-{number}, which is not read or does not exist: leave it out")


def batch_range(given: GivenOptions) -> tuple[Subscribed | Matching | Assigned | None, Bound, Bound]:
    """Topics (None where no option names any), start and end of a read without a broker."""
    is_named = any(name in given for name in ("subscribe", "subscribePattern", "assign"))
    return (_subscription(given) if is_named else None), _start(given, is_stream=False), _end(given)
