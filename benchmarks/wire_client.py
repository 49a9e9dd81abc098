"""A blocking client of a few lines over `odradek.wire`: what the harness needs to set up a broker."""

from __future__ import annotations

import socket
import struct
from typing import Any

from odradek.wire.errors import ErrorCode
from odradek.wire.frames import read_response, request_frame
from odradek.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from odradek.wire.messages.delete_topics import DeleteTopicsRequest
from odradek.wire.messages.init_producer_id import InitProducerIdRequest
from odradek.wire.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic


class WireClient:
    """One connection, one request at a time."""

    def __init__(self, host: str, port: int) -> None:
        self._socket = socket.create_connection((host, port), timeout=60)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._correlation_id = 0

    def __enter__(self) -> WireClient:
        return self

    def __exit__(self, *_exc: object) -> None:
        self._socket.close()

    def call(self, request: Any, version: int) -> Any:
        """Sends one request and returns the decoded answer."""
        self._correlation_id += 1
        self._socket.sendall(request_frame(request, version, self._correlation_id, "benchmark"))
        (length,) = struct.unpack(">i", self._receive(4))
        correlation_id, response = read_response(self._receive(length), type(request), version)
        assert correlation_id == self._correlation_id
        return response

    def _receive(self, length: int) -> bytes:
        parts = bytearray()
        while len(parts) < length:
            chunk = self._socket.recv(length - len(parts))
            if not chunk:
                raise ConnectionError("the broker closed the connection")
            parts += chunk
        return bytes(parts)

    def create_topics(self, names: list[str], partitions: int) -> dict[str, bytes]:
        """Creates the topics and returns their ids by name."""
        response = self.call(
            CreateTopicsRequest(
                topics=[
                    CreatableTopic(
                        name=name, num_partitions=partitions, replication_factor=1, assignments=[], configs=[]
                    )
                    for name in names
                ],
                timeout_ms=30_000,
                validate_only=False,
            ),
            7,
        )
        for topic in response.topics:
            assert topic.error_code == 0, (topic.name, topic.error_code, topic.error_message)
        self.wait_for_leaders(names, partitions)
        return {topic.name: topic.topic_id for topic in response.topics}

    def wait_for_leaders(self, names: list[str], partitions: int) -> None:
        """Returns when every partition answers as its leader: Kafka creates topics after it has answered."""
        request = ListOffsetsRequest(
            replica_id=-1,
            topics=[
                ListOffsetsTopic(
                    name=name,
                    partitions=[
                        ListOffsetsPartition(partition_index=i, timestamp=-1) for i in range(partitions)
                    ],
                )
                for name in names
            ],
        )
        for _ in range(100_000):
            topics = self.call(request, 5).topics
            if all(p.error_code == 0 for topic in topics for p in topic.partitions):
                return
        raise TimeoutError(f"no leaders for {names}")

    def delete_topics(self, names: list[str]) -> None:
        self.call(DeleteTopicsRequest(topic_names=names, timeout_ms=30_000), 5)

    def producer_ids(self, count: int) -> int:
        """Asks for `count` producer ids that follow each other and returns the first."""
        ids: list[int] = []
        while len(ids) < count:
            response = self.call(InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=0), 4)
            if response.error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
                continue  # Kafka has no block of ids yet
            assert response.error_code == 0, response.error_code
            if ids and response.producer_id != ids[-1] + 1:
                ids.clear()
            ids.append(response.producer_id)
        return ids[0]
