"""Drives two brokers in step and compares what they answer.

Values that each broker makes up for itself (ids, ports, session numbers) are remembered under a common name
and compared by that name. Lists are compared in their order, save for those that Kafka answers in the order
of a hash table (`UNORDERED`). What may differ beyond that is `ALLOWED`, each entry with its reason;
`error_code`, offsets, record bytes and whether a value is null are compared always.
"""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import re
import socket
import struct
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from odradek.wire.compression import Compression, decompress
from odradek.wire.frames import read_response, request_frame
from odradek.wire.legacy_records import LegacyMessage, iter_messages
from odradek.wire.messages import find
from odradek.wire.records import LOG_OVERHEAD_BYTES
from odradek.wire.schema import Message, Struct, fields_of

CLIENT_ID = "differential"
SECONDS = 60.0
"""For whatever a broker does in a moment: an answer, and what comes behind it. Long enough for a machine that
has other things to do."""
SHORTEST_PAUSE, LONGEST_PAUSE = 0.002, 0.05
SHOWN_CHARACTERS = 400
"""Of a value that differs, at most."""

STARTED_MS = int(time.time() * 1000)
"""Records have earlier timestamps, what the brokers write themselves has later ones."""

CLOSED = "connection closed"
"""Stands for the answer when the broker closed the connection instead."""

NO_ANSWER = "no answer"
"""Stands for the answer when none came in SECONDS."""

UNORDERED = {
    "AlterClientQuotas": {"entries": "entity", "entity": "entity_type"},
    "AlterShareGroupOffsets": {"responses": "topic_name", "partitions": "partition_index"},
    "AlterReplicaLogDirs": {"results": "topic_name", "partitions": "partition_index"},
    "AlterUserScramCredentials": {"results": "user"},
    "ApiVersions": {"supported_features": "name", "finalized_features": "name"},
    "ConsumerGroupDescribe": {"groups": "group_id", "members": "member_id", "topic_partitions": "topic_id"},
    "CreateTopics": {"configs": "name"},
    "DeleteGroups": {"results": "group_id"},
    "DeleteRecords": {"topics": "name", "partitions": "partition_index"},
    "DeleteShareGroupOffsets": {"responses": "topic_name"},
    "DeleteTopics": {"responses": "name"},
    "DescribeClientQuotas": {"entries": "entity", "entity": "entity_type", "values": "key"},
    "DescribeConfigs": {"configs": "name"},
    "DescribeGroups": {"members": "member_id"},
    "DescribeLogDirs": {"topics": "name", "partitions": "partition_index"},
    "DescribeShareGroupOffsets": {
        "groups": "group_id",
        "topics": "topic_name",
        "partitions": "partition_index",
    },
    "DescribeUserScramCredentials": {"results": "user"},
    "ListConfigResources": {"config_resources": "resource_name"},
    "ListGroups": {"groups": "group_id"},
    "ShareAcknowledge": {"responses": "topic_id", "partitions": "partition_index"},
    "ShareFetch": {"responses": "topic_id", "partitions": "partition_index"},
    "ShareGroupDescribe": {"groups": "group_id", "members": "member_id", "topic_partitions": "topic_id"},
    "ShareGroupHeartbeat": {"topic_partitions": "topic_id"},
    "StreamsGroupDescribe": {"groups": "group_id", "members": "member_id", "client_tags": "key"},
}
"""Lists that Kafka keeps in hash tables: API -> field -> what to sort its items by."""


@dataclasses.dataclass(frozen=True)
class Allowed:
    """A difference that is right: where, when (both values), and why."""

    path: str
    when: Callable[[Any, Any], bool]
    why: str


def _both(kind: type) -> Callable[[Any, Any], bool]:
    return lambda theirs, ours: isinstance(theirs, kind) and isinstance(ours, kind)


ALLOWED = [
    Allowed(r"error_message$", _both(str), "the wording is ours; that there is one is compared"),
    Allowed(r"\.documentation$", _both(str), "the wording is ours"),
    Allowed(
        r"^Produce .*\.log_append_time_ms$",
        lambda t, o: t > 0 and 0 <= o - t < 1000 * SECONDS,
        "the broker's clock: Odradek is asked right after Kafka",
    ),
    Allowed(
        r"^DescribeProducers .*\.last_timestamp$",
        lambda t, o: min(t, o) > STARTED_MS and abs(o - t) < 1000 * SECONDS,
        "the clock of the broker that wrote the marker of a transaction",
    ),
    Allowed(
        r"^DescribeLogDirs .*\.(total|usable)_bytes$",
        lambda t, o: t > 0 and o > 0,
        "each broker's own disk: Kafka's may be that of a container",
    ),
    Allowed(
        r"^Fetch v[0-3] .*\.records$",
        lambda t, o: isinstance(t, str) and isinstance(o, str) and _differ_by_packing(t, o),
        "an old format is made anew from the stored batch, and each broker has another snappy library; what "
        "is packed, and every byte of what is not, is compared",
    ),
    Allowed(
        r"^AlterShareGroupOffsets .*\.topic_id$",
        lambda t, o: t.startswith("<id of ") and o == "00" * 16,
        "Kafka tells the id of a topic that the client may not read",
    ),
    Allowed(r"DescribeLogDirs.*\.log_dir$", _both(str), "each broker's own directory"),
    Allowed(
        r"^StreamsGroupHeartbeat .*\.status_detail$",
        lambda t, o: sorted(re.split(r"\W ", t)) == sorted(re.split(r"\W ", o)),
        "Kafka names the topics that are missing in the order of a hash table",
    ),
    Allowed(
        r"^StreamsGroupHeartbeat .*\((topology|client_tags)[^)]*\)\.error_(code|message)$",
        lambda t, o: (t, o) in ((-1, 130), (-1, 42)) or (t is None and isinstance(o, str)),
        "Kafka trips over what an application names twice, and does not say why; it is refused all the same",
    ),
    Allowed(
        r"^WriteTxnMarkers .*\(markers\.topics[^)]*\)$|^AlterConfigs .*\(resources: [^)]*\)$",
        lambda t, o: t == NO_ANSWER and isinstance(o, dict),
        "Kafka trips over a partition that a marker names twice and a resource that is named twice, and "
        "never answers; what it does with them is compared",
    ),
    Allowed(
        r"^JoinGroup .*\(protocols: [^)]*\)\.(protocol_name|members\[0\]\.metadata)$",
        lambda t, o: bool(t) and bool(o),
        "Kafka counts a protocol as often as the member names it, takes it for one that not all members "
        "know, and chooses another; where there is no other it never answers",
    ),
]


PACKED_OTHERWISE = {Compression.SNAPPY}
"""Codecs whose library packs otherwise than Kafka's. The lz4 of Kafka's jars and the zlib that a JVM takes
from the system find the same matches as ours; what a container brings along is not known."""


def messages(records: bytes) -> list[tuple[Any, ...]]:
    """What the whole messages of an old format hold, packed or not."""
    return [tuple(_unpacked(message)) for _, message in _messages(records)]


def _messages(records: bytes) -> Iterator[tuple[bytes, LegacyMessage]]:
    """The whole messages of an old format, each with its bytes."""
    begin = 0
    while len(records) - begin >= LOG_OVERHEAD_BYTES:
        end = begin + LOG_OVERHEAD_BYTES + int.from_bytes(records[begin + 8 : begin + 12], "big")
        if end > len(records):
            return
        one = records[begin:end]
        yield one, next(iter_messages(one))
        begin = end


def _unpacked(message: LegacyMessage) -> LegacyMessage:
    if message.compression == Compression.NONE or message.value is None:
        return message
    return message._replace(
        value=decompress(message.compression, message.value, 1 << 24, magic=message.magic)
    )


def _differ_by_packing(theirs: str, ours: str) -> bool:
    """Whether messages of an old format differ in nothing but how `PACKED_OTHERWISE` packed them.

    An answer is as long as the batches that were read, or as its first message where that is longer. So what
    follows a wrapper of another size may be cut off elsewhere, or be one message more or less.
    """
    both = [bytes.fromhex(theirs), bytes.fromhex(ours)]
    longer = max(both, key=len)
    if len(both[0]) != len(both[1]) and len(longer) != len(next(_messages(longer))[0]):
        return False
    has_moved = False
    for (one, their), (other, our) in zip(*map(_messages, both), strict=False):
        if one != other and (their.compression not in PACKED_OTHERWISE or _unpacked(their) != _unpacked(our)):
            return False
        has_moved = has_moved or len(one) != len(other)
        both = [both[0][len(one) :], both[1][len(other) :]]
    if has_moved or both[0] == both[1]:
        return True
    # What is left is the same message, cut off on one side or both: its offset, magic and attributes.
    heads = [(left[:8], left[16:18]) for left in both]
    return heads[0] == heads[1] and (len(heads[0][1]) < 2 or heads[0][1][1] & 7 in PACKED_OTHERWISE)


def differences(theirs: Any, ours: Any, path: str) -> Iterator[tuple[str, Any, Any]]:
    """Leaves at which two plain values differ: (path, theirs, ours)."""
    if isinstance(theirs, dict) and isinstance(ours, dict):
        for name in theirs.keys() | ours.keys():
            yield from differences(theirs.get(name), ours.get(name), f"{path}.{name}")
    elif isinstance(theirs, list) and isinstance(ours, list) and len(theirs) == len(ours):
        for number, (one, other) in enumerate(zip(theirs, ours, strict=True)):
            label = one.get("name", number) if isinstance(one, dict) else number
            yield from differences(one, other, f"{path}[{label}]")
    elif theirs != ours:
        yield path, theirs, ours


class Pauses:
    """A pause at each call, between two looks at a step that a broker takes behind its answer: most take a
    moment, and who waits for seconds has no need to look often."""

    def __init__(self) -> None:
        self._seconds = SHORTEST_PAUSE

    def __call__(self) -> None:
        time.sleep(self._seconds)
        self._seconds = min(2 * self._seconds, LONGEST_PAUSE)


class Side:
    """One of the two brokers: its connections, and the values that it made up."""

    def __init__(self, name: str, bootstrap: str) -> None:
        self.name = name
        self.host, port = bootstrap.split(":")
        self.port = int(port)
        self.sources: dict[str, str] = {}
        """By the name of a connection: the address that it comes from, where the default will not do."""
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
            source = (self.sources[name], 0) if name in self.sources else None
            self._connections[name] = socket.create_connection((self.host, self.port), SECONDS, source)
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

    def answer(
        self, request: type[Message], version: int, connection: str = "main", *, seconds: float = SECONDS
    ) -> Any:
        """The answer, CLOSED, or NO_ANSWER. With fewer than SECONDS one that is late may still be waited for
        with another call."""
        try:
            frame = self.receive(connection, seconds=seconds)
        except TimeoutError:
            if seconds >= SECONDS:
                self.hang_up(connection)
            return NO_ANSWER
        return CLOSED if frame is None else read_response(frame, request, version)[1]

    def pipeline(
        self, messages: Sequence[tuple[Message, int, bool]], connection: str = "pipeline"
    ) -> list[Any]:
        """Sends them at once: each a message, its version, and whether it is answered. The answers, None
        where none is expected, as many as came before the broker closed the connection, if it did."""
        frames = []
        for message, version, _ in messages:
            self._correlation_id += 1
            frames.append(request_frame(message, version, self._correlation_id, CLIENT_ID))
        self.send(b"".join(frames), connection)
        return [
            self.answer(type(message), version, connection) if is_answered else None
            for message, version, is_answered in messages
        ]

    def ask(
        self, message: Message, version: int, connection: str = "main", *, seconds: float = SECONDS
    ) -> Any:
        """The same as `answer`, of a request that is sent now."""
        self.request(message, version, connection)
        return self.answer(type(message), version, connection, seconds=seconds)

    def plain(self, value: Any, version: int, field: str = "") -> Any:
        """The answer as dicts, lists and names: what can be compared with another broker's."""
        if isinstance(value, Struct):
            return {
                spec.name: self.plain(getattr(value, spec.name), version, spec.name)
                for spec in fields_of(type(value))
                if spec.exists_in(version)
            }
        if isinstance(value, list):
            return [self.plain(item, version, field) for item in value]
        if isinstance(value, bytes | bytearray | memoryview):
            value = bytes(value)
        if isinstance(value, str | bytes) and (None, value) in self._names:
            return self._names[None, value]
        if (field, value) in self._names:
            return self._names[field, value]
        return value.hex() if isinstance(value, bytes) else value


def sorted_lists(value: Any, keys: dict[str, str]) -> Any:
    """A plain value with the lists of these fields sorted by the keys of their items."""
    if isinstance(value, list):
        return [sorted_lists(item, keys) for item in value]
    if not isinstance(value, dict):
        return value
    found = {name: sorted_lists(item, keys) for name, item in value.items()}
    for name in found.keys() & keys.keys():
        found[name] = found[name] and sorted(found[name], key=lambda item: str(item[keys[name]]))
    return found


def in_any_order(value: Any) -> Any:
    """A plain value with every list sorted, for answers whose order says nothing."""
    if isinstance(value, dict):
        return {name: in_any_order(item) for name, item in value.items()}
    return sorted(map(in_any_order, value), key=str) if isinstance(value, list) else value


Build = Callable[[Side], Message]
Settled = Callable[[Any], bool]
"""Whether a broker has finished an asynchronous step, by its answer."""


class Pair:
    """Kafka and Odradek, asked the same."""

    def __init__(self, kafka: Side, odradek: Side, versions: dict[int, range]) -> None:
        self.kafka = kafka
        self.odradek = odradek
        self.served = versions
        """API key -> the versions to compare with this reference broker."""
        self.collected: list[str] | None = None
        """The differences of a sweep so far, a line each; None where each fails at once."""

    @property
    def sides(self) -> tuple[Side, Side]:
        return self.kafka, self.odradek

    @property
    def api_keys(self) -> set[int]:
        """What both serve."""
        return set(self.served)

    def versions(self, request: type[Message]) -> range:
        """The versions to compare with this reference broker."""
        return self.served.get(request.api_key, range(0))

    def compare(self, what: str, theirs: Any, ours: Any) -> None:
        """Fails where two plain values differ in a way that is not allowed."""
        __tracebackhide__ = True  # The failure shows the test's line.
        self.fail([_line(*one) for one in differences(theirs, ours, what) if not _is_allowed(*one)])

    def collecting(self) -> Collecting:
        """For a sweep of which every difference matters: the context fails at its end, with all of them."""
        return Collecting(self)

    def fail(self, found: list[str]) -> None:
        """Fails with these differences, if there are any."""
        __tracebackhide__ = True
        if self.collected is not None:
            self.collected += found
        elif found:
            raise AssertionError("\n" + "\n".join(found))

    def ask(
        self,
        build: Build,
        version: int,
        note: str = "",
        *,
        connection: str = "main",
        settle: Settled | None = None,
        see: Callable[[Side, Any], None] | None = None,
        any_order: bool = False,
        seconds: float = SECONDS,
    ) -> tuple[Any, Any]:
        """Asks both and compares, with `any_order` without regard to the order in any list. `build` makes
        each side's request.

        `settle` says of an answer whether the broker has finished an asynchronous step; until then it is
        asked again, and fails after `SECONDS`. `see` may remember values of an answer before it is compared.
        """
        __tracebackhide__ = True
        answers = []
        for side in self.sides:
            deadline, pause = time.monotonic() + SECONDS, Pauses()
            while True:
                answer = side.ask(build(side), version, connection, seconds=seconds)
                if settle is None or settle(answer):
                    break
                assert time.monotonic() < deadline, f"{side.name} has not settled ({note}): {answer}"
                pause()
            answers.append(answer)
        answers = self._with_late_answers(answers, type(build(self.kafka)), version, connection)
        for side, answer in zip(self.sides, answers, strict=True):
            if see is not None and answer not in (CLOSED, NO_ANSWER):
                see(side, answer)
        api = type(build(self.kafka)).__name__.removesuffix("Request")
        keys = UNORDERED.get(api, {})
        plain = [
            sorted_lists(side.plain(answer, version), keys)
            for side, answer in zip(self.sides, answers, strict=True)
        ]
        if any_order:
            plain = [in_any_order(value) for value in plain]
        self.compare(f"{api} v{version}{f' ({note})' if note else ''}", *plain)
        return answers[0], answers[1]

    def _with_late_answers(
        self, answers: list[Any], request: type[Message], version: int, connection: str
    ) -> list[Any]:
        """Kafka leaves some requests without an answer. Where it answers, ours may only be late."""
        kafka, ours = answers
        if ours == NO_ANSWER != kafka:
            answers = [kafka, self.odradek.answer(request, version, connection)]
        for side, answer in zip(self.sides, answers, strict=True):
            if answer == NO_ANSWER:
                side.hang_up(connection)
        return answers

    def sweep(self, request: type[Message], build: Callable[[Side, int], Message], note: str = "") -> None:
        """Asks both in every version."""
        __tracebackhide__ = True
        for version in self.versions(request):
            self.ask(lambda side, version=version: build(side, version), version, note)  # type: ignore[misc]


class Collecting:
    """A sweep: gives the list of the differences so far, a line each."""

    def __init__(self, pair: Pair) -> None:
        self._pair = pair
        self._found: list[str] = []

    def __enter__(self) -> list[str]:
        self._outer, self._pair.collected = self._pair.collected, self._found
        return self._found

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        __tracebackhide__ = True
        self._pair.collected = self._outer
        if error is None:
            self._pair.fail(self._found)
        elif self._found:
            error.add_note("\n".join(["differences until then:", *self._found]))


def _is_allowed(path: str, theirs: Any, ours: Any) -> bool:
    return any(re.search(rule.path, path) and rule.when(theirs, ours) for rule in ALLOWED)


def _line(path: str, theirs: Any, ours: Any) -> str:
    one, other = repr(theirs), repr(ours)
    pairs = zip(one, other, strict=False)
    same = sum(1 for _ in itertools.takewhile(lambda pair: pair[0] == pair[1], pairs))
    return f"{path}: Kafka {_short(one, same)}, Odradek {_short(other, same)}"


def _short(text: str, same: int) -> str:
    """The part that begins to differ behind the first `same` characters."""
    if len(text) <= SHOWN_CHARACTERS:
        return text
    start = max(same - SHOWN_CHARACTERS // 4, 0)
    shown = text[start : start + SHOWN_CHARACTERS]
    return f"{'...' if start else ''}{shown}... ({len(text)} characters)"


def served_versions(side: Side) -> dict[int, range]:
    """What a broker says that it serves."""
    request, _ = find(18)
    answer = side.ask(request(client_software_name="differential", client_software_version="1"), 3)
    return {api.api_key: range(api.min_version, api.max_version + 1) for api in answer.api_keys}


def common_versions(theirs: Side, ours: Side) -> dict[int, range]:
    """What both serve."""
    served, wanted = served_versions(theirs), served_versions(ours)
    return {
        key: range(max(served[key].start, wanted[key].start), min(served[key].stop, wanted[key].stop))
        for key in served.keys() & wanted.keys()
    }


def side_of(name: str, bootstrap: str) -> Side:
    """A broker whose own address is compared by name."""
    side = Side(name, bootstrap)
    side.remember("port", side.port, "port")
    side.remember("host", side.host)
    return side
