"""Drives two brokers in step and compares what they answer.

Values that each broker makes up for itself (ids, ports, session numbers) are remembered under a common name
and compared by that name. Lists whose order Kafka does not promise are sorted by what identifies their items.
What may differ beyond that is `ALLOWED`, each entry with its reason; `error_code`, offsets, record bytes and
whether a value is null are compared always.
"""

from __future__ import annotations

import contextlib
import dataclasses
import re
import socket
import struct
import time
from collections.abc import Callable, Iterator
from typing import Any

from odradek.wire.compression import decompress
from odradek.wire.frames import read_response, request_frame
from odradek.wire.legacy_records import iter_messages
from odradek.wire.messages import find
from odradek.wire.schema import Message, Struct, fields_of

CLIENT_ID = "differential"
SECONDS = 8.0

CLOSED = "connection closed"
"""Stands for the answer when the broker closed the connection instead."""

NO_ANSWER = "no answer"
"""Stands for the answer when none came in SECONDS."""

IDENTIFYING = (
    "name",
    "topic_name",
    "topic",
    "topic_id",
    "group_id",
    "key",
    "resource_name",
    "partition_index",
    "partition",
    "index",
    "api_key",
    "member_id",
)


@dataclasses.dataclass(frozen=True)
class Allowed:
    """A difference that is right: where, when (both values), and why."""

    path: str
    when: Callable[[Any, Any], bool]
    why: str


def _both(kind: type) -> Callable[[Any, Any], bool]:
    return lambda theirs, ours: isinstance(theirs, kind) and isinstance(ours, kind)


FROM_ALL_BROKERS, FROM_DEFAULT = 3, 5
WITH_ELIGIBLE_LEADERS = (
    "where eligible leader replicas are on, Kafka's controller stores the default for all brokers; the value "
    "is the same"
)

ALLOWED = [
    Allowed(r"\.throttle_time_ms$", _both(int), "a measured time"),
    Allowed(r"error_message$", _both(str), "the wording is ours; that there is one is compared"),
    Allowed(r"\.documentation$", _both(str), "the wording is ours"),
    Allowed(r"\.log_append_time_ms$", lambda t, o: t > 0 and o > 0, "each broker's own clock"),
    Allowed(
        r"\.(total|usable)_bytes$", lambda t, o: t > 0 and o > 0, "the disk changes between two questions"
    ),
    Allowed(
        r"^(DescribeConfigs|CreateTopics) .*\[min\.insync\.replicas\]\.config_source$",
        lambda t, o: (t, o) == (FROM_ALL_BROKERS, FROM_DEFAULT),
        WITH_ELIGIBLE_LEADERS,
    ),
    Allowed(
        r"^DescribeConfigs .*\[min\.insync\.replicas\]\.synonyms$",
        lambda t, o: t == [{**o[0], "source": FROM_ALL_BROKERS}, *o] and o[0]["source"] == FROM_DEFAULT,
        WITH_ELIGIBLE_LEADERS,
    ),
    Allowed(
        r"DescribeConfigs v0 .*\.is_default$",
        lambda t, o: t is False,
        "Kafka 3.9 leaves it unset, and so false for every setting",
    ),
    Allowed(r"DescribeLogDirs.*\.log_dir$", _both(str), "each broker's own directory"),
]


def differences(theirs: Any, ours: Any, path: str) -> Iterator[tuple[str, Any, Any]]:
    """Leaves at which two plain values differ: (path, theirs, ours)."""
    if isinstance(theirs, dict) and isinstance(ours, dict) and theirs.keys() == {"messages"} == ours.keys():
        # How many fit differs; there is at least one on each side.
        for number, (one, other) in enumerate(zip(theirs["messages"], ours["messages"], strict=False)):
            yield from differences(one, other, f"{path}[{number}]")
    elif isinstance(theirs, dict) and isinstance(ours, dict):
        for name in theirs.keys() | ours.keys():
            yield from differences(theirs.get(name), ours.get(name), f"{path}.{name}")
    elif isinstance(theirs, list) and isinstance(ours, list) and len(theirs) == len(ours):
        for number, (one, other) in enumerate(zip(theirs, ours, strict=True)):
            label = one.get("name", number) if isinstance(one, dict) else number
            yield from differences(one, other, f"{path}[{label}]")
    elif theirs != ours:
        yield path, theirs, ours


class Side:
    """One of the two brokers: its connections, and the values that it made up."""

    def __init__(self, name: str, bootstrap: str) -> None:
        self.name = name
        self.host, port = bootstrap.split(":")
        self.port = int(port)
        self._connections: dict[str, socket.socket] = {}
        self._correlation_id = 0
        self._names: dict[Any, str] = {}
        self.values: dict[str, Any] = {}
        """What was remembered: common name -> this broker's value."""

    def __getitem__(self, name: str) -> Any:
        return self.values[name]

    def remember(self, name: str, value: Any, field: str | None = None) -> None:
        """Compare this value by `name` from now on; numbers only in the field of that name."""
        self.values[name] = value
        self._names[(field, value)] = f"<{name}>"

    def _connection(self, name: str) -> socket.socket:
        if name not in self._connections:
            self._connections[name] = socket.create_connection((self.host, self.port), timeout=SECONDS)
        return self._connections[name]

    def hang_up(self, name: str = "main") -> None:
        if connection := self._connections.pop(name, None):
            connection.close()

    def close(self) -> None:
        for name in list(self._connections):
            self.hang_up(name)

    def _receive(self, connection: socket.socket, size: int) -> bytes:
        data = b""
        while len(data) < size:
            piece = connection.recv(size - len(data))
            if not piece:
                raise ConnectionError
            data += piece
        return data

    def exchange(self, frame: bytes, connection: str = "main", *, seconds: float = SECONDS) -> bytes | None:
        """Sends bytes; the answer's frame without its size, or None when the broker closed the connection."""
        self.send(frame, connection)
        return self.receive(connection, seconds=seconds)

    def send(self, frame: bytes, connection: str = "main") -> None:
        with contextlib.suppress(ConnectionError):
            self._connection(connection).sendall(frame)

    def receive(self, connection: str = "main", *, seconds: float = SECONDS) -> bytes | None:
        wire = self._connection(connection)
        wire.settimeout(seconds)
        try:
            (size,) = struct.unpack(">i", self._receive(wire, 4))
            return self._receive(wire, size)
        except ConnectionError:
            self.hang_up(connection)
            return None

    def request(self, message: Message, version: int, connection: str = "main") -> None:
        self._correlation_id += 1
        self.send(request_frame(message, version, self._correlation_id, CLIENT_ID), connection)

    def answer(self, request: type[Message], version: int, connection: str = "main") -> Any:
        try:
            frame = self.receive(connection)
        except TimeoutError:
            self.hang_up(connection)
            return NO_ANSWER
        return CLOSED if frame is None else read_response(frame, request, version)[1]

    def ask(self, message: Message, version: int, connection: str = "main") -> Any:
        """The answer, or CLOSED."""
        self.request(message, version, connection)
        return self.answer(type(message), version, connection)

    def plain(self, value: Any, version: int, field: str = "") -> Any:
        """The answer as dicts, lists and names: what can be compared with another broker's."""
        if isinstance(value, Struct):
            return {
                spec.name: self.plain(getattr(value, spec.name), version, spec.name)
                for spec in fields_of(type(value))
                if spec.exists_in(version)
            }
        if isinstance(value, list):
            items = [self.plain(item, version, field) for item in value]
            return sorted(items, key=_identity) if items and isinstance(items[0], dict) else items
        if isinstance(value, bytes | bytearray | memoryview):
            value = bytes(value)
            if field == "records":
                return whole_records(value)
        if isinstance(value, str | bytes) and (None, value) in self._names:
            return self._names[None, value]
        if (field, value) in self._names:
            return self._names[field, value]
        return value.hex() if isinstance(value, bytes) else value


def whole_records(records: bytes) -> str | dict[str, Any]:
    """Batches as they are, old messages decoded; without what is cut off at the end, as consumers do.

    Kafka fills an answer up to its limit with the beginning of one more batch, Odradek ends it at a batch.
    Old formats are made by each broker from batches, with compressors of their own and as many as fit.
    """
    end, messages = 0, []
    while end + 17 <= len(records):
        size = 12 + int.from_bytes(records[end + 8 : end + 12], "big")
        if end + size > len(records):
            break
        if records[end + 16] < 2:
            (one,) = iter_messages(records[end : end + size])
            packed = one.compression and one.value is not None
            value = decompress(one.compression, one.value, 1 << 20, magic=one.magic) if packed else one.value
            shown = None if value is None else bytes(value).hex()
            messages.append([one.offset, one.magic, one.timestamp, one.compression, one.key, shown])
        end += size
    return {"messages": messages} if messages else records[:end].hex()


def _identity(item: dict[str, Any]) -> tuple[str, ...]:
    return tuple(f"{item[name]!s:>20}" for name in IDENTIFYING if name in item)


Build = Callable[[Side], Message]


class Pair:
    """Kafka and Odradek, asked the same."""

    def __init__(self, kafka: Side, odradek: Side, versions: dict[int, range]) -> None:
        self.kafka = kafka
        self.odradek = odradek
        self._versions = versions
        self.found: list[str] = []
        """Differences that are not allowed, a line each."""

    @property
    def sides(self) -> tuple[Side, Side]:
        return self.kafka, self.odradek

    def versions(self, request: type[Message]) -> range:
        """The versions to compare with this reference broker."""
        return self._versions.get(request.api_key, range(0))

    def compare(self, what: str, theirs: Any, ours: Any) -> None:
        """Notes every difference between two plain values that is not allowed."""
        for path, one, other in differences(theirs, ours, what):
            if not any(re.search(rule.path, path) and rule.when(one, other) for rule in ALLOWED):
                self.found.append(f"{path}: Kafka {_short(one)}, Odradek {_short(other)}")

    def ask(
        self,
        build: Build,
        version: int,
        note: str = "",
        *,
        connection: str = "main",
        settle: Callable[[Any], bool] | None = None,
        see: Callable[[Side, Any], None] | None = None,
    ) -> tuple[Any, Any]:
        """Asks both and compares. `build` makes each side's request.

        `settle` says of an answer whether the broker has finished an asynchronous step; until then it is
        asked again. `see` may remember values of an answer before it is compared.
        """
        answers = []
        for side in self.sides:
            deadline = time.monotonic() + SECONDS
            while True:
                answer = side.ask(build(side), version, connection)
                if settle is None or settle(answer) or time.monotonic() > deadline:
                    break
                time.sleep(0.05)
            if see is not None and answer not in (CLOSED, NO_ANSWER):
                see(side, answer)
            answers.append(answer)
        request = type(build(self.kafka))
        what = f"{request.__name__.removesuffix('Request')} v{version}{f' ({note})' if note else ''}"
        plain = [side.plain(answer, version) for side, answer in zip(self.sides, answers, strict=True)]
        self.compare(what, *plain)
        return answers[0], answers[1]

    def sweep(self, request: type[Message], build: Callable[[Side, int], Message], note: str = "") -> None:
        """Asks both in every version."""
        for version in self.versions(request):
            self.ask(lambda side, version=version: build(side, version), version, note)  # type: ignore[misc]


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 160 else f"{text[:160]}... ({len(text)} characters)"


def served_versions(side: Side) -> dict[int, range]:
    """What a broker says that it serves."""
    request, _ = find(18)
    answer = side.ask(request(client_software_name="differential", client_software_version="1"), 3)
    return {api.api_key: range(api.min_version, api.max_version + 1) for api in answer.api_keys}
