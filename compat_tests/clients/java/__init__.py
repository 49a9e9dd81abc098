"""Kafka's Java client, any version with headers, behind `Driver.java`: one JVM for all of a test module."""

from __future__ import annotations

import base64
import itertools
import pathlib
from collections.abc import Iterable, Mapping, Sequence

from compat_tests import reference
from compat_tests.clients import FETCH_BYTES, POLL_SECONDS, Client, Headers, Member, Message, Record
from compat_tests.clients.kafka_python import KafkaPythonClient
from compat_tests.kit.java import compile_java
from compat_tests.kit.programs import JavaProgram

SOURCE = pathlib.Path(__file__).with_name("Driver.java")


def _text(value: bytes | None) -> str:
    return "-" if value is None else base64.b64encode(value).decode()


def _bytes(text: str) -> bytes | None:
    return None if text == "-" else base64.b64decode(text)


def _headers(fields: Iterable[str]) -> Headers:
    pairs = (field.split("=", 1) for field in fields)
    return tuple((name, _bytes(value)) for name, value in pairs)


def _record(line: str) -> Record:
    partition, offset, timestamp, key, value, *headers = line.split("\t")
    return Record(int(partition), int(offset), int(timestamp), _bytes(key), _bytes(value), _headers(headers))


class JavaClient(Client):
    source = SOURCE

    def __init__(self, bootstrap: str, version: str = reference.CURRENT) -> None:
        super().__init__(bootstrap)
        class_path = compile_java(reference.class_path(version), self.source)
        program = JavaProgram(class_path, self.source.stem, bootstrap)
        self._program, self.ask = program, program.ask
        self._ids = itertools.count()

    def close(self) -> None:
        self._program.close()

    def create_topic(self, topic: str, partitions: int) -> None:
        self.ask("create", topic, partitions)

    def produce(self, topic: str, messages: Sequence[Message], codec: str = "none") -> list[tuple[int, int]]:
        lines = [
            "\t".join(
                [
                    str(m.partition),
                    "-" if m.timestamp_ms is None else str(m.timestamp_ms),
                    _text(m.key),
                    _text(m.value),
                    *(f"{name}={_text(value)}" for name, value in m.headers),
                ]
            )
            for m in messages
        ]
        answers = self.ask("produce", topic, codec, len(lines), lines=lines)
        return [(int(partition), int(offset)) for partition, offset in (a.split("\t") for a in answers)]

    def read(
        self,
        topic: str,
        starts: Mapping[int, int],
        count: int,
        *,
        fetch_bytes: int = FETCH_BYTES,
        reset: str = "earliest",
    ) -> list[Record]:
        places = ",".join(f"{partition}:{offset}" for partition, offset in starts.items())
        return [_record(line) for line in self.ask("read", topic, places, count, fetch_bytes, reset)]

    def offset_at(self, topic: str, partition: int, timestamp_ms: int) -> int | None:
        found = self.ask("offset-at", topic, partition, timestamp_ms)
        return int(found[0]) if found else None

    def commit(self, group: str, topic: str, offsets: Mapping[int, int]) -> None:
        self.ask("commit", group, topic, ",".join(f"{p}:{offset}" for p, offset in offsets.items()))

    def committed(self, group: str, topic: str, partitions: Iterable[int]) -> dict[int, int | None]:
        answers = self.ask("committed", group, topic, ",".join(map(str, partitions)))
        return {
            int(partition): None if offset == "-" else int(offset)
            for partition, offset in (answer.split("\t") for answer in answers)
        }

    def join(self, group: str, topic: str) -> Member:
        return JavaMember(self, str(next(self._ids)), group, topic).start()


class OldJavaClient(JavaClient):
    """That of 0.9, behind `OldDriver.java`: no headers, no timestamps, no look-up by time."""

    source = SOURCE.with_name("OldDriver.java")

    def create_topic(self, topic: str, partitions: int) -> None:
        KafkaPythonClient(self.bootstrap).create_topic(topic, partitions)


class JavaMember(Member):
    """The polling and committing thread is the JVM's; this one fetches what it saw."""

    def __init__(self, client: JavaClient, identity: str, group: str, topic: str) -> None:
        super().__init__()
        self._client = client
        self._identity = identity
        self._arguments = (group, topic)

    def open(self) -> None:
        self._client.ask("join", self._identity, *self._arguments)

    def poll(self) -> list[Record]:
        self._ending.wait(POLL_SECONDS)
        return self._seen(self._client.ask("state", self._identity))

    def _seen(self, answer: list[str]) -> list[Record]:
        assigned, *records = answer
        self._assigned = frozenset(int(partition) for partition in assigned.split(",") if partition)
        return [_record(line) for line in records]

    def assignment(self) -> frozenset[int]:
        return self._assigned

    def commit(self) -> None:
        """The JVM's thread has done it."""

    def close(self) -> None:
        self.records += self._seen(self._client.ask("leave", self._identity))
