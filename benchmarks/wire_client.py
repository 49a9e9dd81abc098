"""A blocking client of a few lines over `odradek.wire`: what the harness needs to set up a broker."""

from __future__ import annotations

import socket
import ssl
import struct
from collections.abc import Mapping, Sequence
from typing import Any

from odradek.wire.errors import ErrorCode
from odradek.wire.frames import read_response, request_frame
from odradek.wire.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from odradek.wire.messages.delete_topics import DeleteTopicsRequest
from odradek.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from odradek.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from odradek.wire.messages.init_producer_id import InitProducerIdRequest
from odradek.wire.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from odradek.wire.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)

PRODUCE_VERSION = 9
FETCH_VERSION = 11
LATEST = -1
TOPIC_RESOURCE = 2
BROKER_RESOURCE = 4
GROUP_RESOURCE = 32
SET = 0
PIPELINE_DEPTH = 32


class WireClient:
    """One connection, one request at a time."""

    def __init__(self, host: str, port: int, tls: ssl.SSLContext | None = None) -> None:
        self._socket: socket.socket = socket.create_connection((host, port), timeout=60)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if tls is not None:
            self._socket = tls.wrap_socket(self._socket, server_hostname=host)
        self._correlation_id = 0

    def __enter__(self) -> WireClient:
        return self

    def __exit__(self, *_exc: object) -> None:
        self._socket.close()

    @property
    def connection(self) -> socket.socket:
        """For those who send frames of their own."""
        return self._socket

    def call(self, request: Any, version: int) -> Any:
        """Sends one request and returns the decoded answer."""
        self.send(request, version)
        return self.receive(request, version)

    def send(self, request: Any, version: int) -> None:
        """One request, whose answer `receive` gives."""
        self._correlation_id += 1
        self._socket.sendall(request_frame(request, version, self._correlation_id, "benchmark"))

    def receive(self, request: Any, version: int) -> Any:
        """The decoded answer to the request that was sent last."""
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

    def create_topics(
        self,
        names: Sequence[str],
        partitions: int,
        configs: Mapping[str, str] | None = None,
        *,
        at: int | None = None,
    ) -> dict[str, bytes]:
        """Creates the topics and returns their ids by name. `at`: the node that this client is connected to,
        where it is one of several; it leads all partitions then."""
        if at is not None:
            ids = self.create_placed(names, [[at]] * partitions, configs)
        else:
            settings = _topic_configs(configs)
            topics = [
                CreatableTopic(name=name, num_partitions=partitions, replication_factor=1, configs=settings)
                for name in names
            ]
            ids = self._create(topics)
        self.wait_for_leaders(names, partitions)
        return ids

    def create_placed(
        self,
        names: Sequence[str],
        replicas: Sequence[Sequence[int]],
        configs: Mapping[str, str] | None = None,
    ) -> dict[str, bytes]:
        """Creates topics whose partitions have replicas at these nodes, and returns their ids by name; waits
        for nobody."""
        assignments = [
            CreatableReplicaAssignment(partition_index=index, broker_ids=list(ids))
            for index, ids in enumerate(replicas)
        ]
        topics = [
            CreatableTopic(
                name=name,
                num_partitions=-1,
                replication_factor=-1,
                assignments=assignments,
                configs=_topic_configs(configs),
            )
            for name in names
        ]
        return self._create(topics)

    def _create(self, topics: list[CreatableTopic]) -> dict[str, bytes]:
        response = self.call(CreateTopicsRequest(topics=topics, timeout_ms=60_000), 7)
        for topic in response.topics:
            assert topic.error_code == 0, (topic.name, topic.error_code, topic.error_message)
        return {topic.name: topic.topic_id for topic in response.topics}

    def wait_for_leaders(self, names: Sequence[str], partitions: int) -> None:
        """Returns when every partition answers as its leader: Kafka creates topics after it has answered."""
        asked = [ListOffsetsPartition(partition_index=i, timestamp=LATEST) for i in range(partitions)]
        request = ListOffsetsRequest(
            replica_id=-1, topics=[ListOffsetsTopic(name=name, partitions=asked) for name in names]
        )
        for _ in range(100_000):
            topics = self.call(request, 5).topics
            if all(p.error_code == 0 for topic in topics for p in topic.partitions):
                return
        raise TimeoutError(f"no leaders for {names}")

    def delete_topics(self, names: Sequence[str]) -> None:
        self.call(DeleteTopicsRequest(topic_names=list(names), timeout_ms=30_000), 5)

    def configure_topic(self, name: str, configs: Mapping[str, str]) -> None:
        """Sets these settings of a topic and leaves the others."""
        self._configure(TOPIC_RESOURCE, name, configs)

    def configure_brokers(self, configs: Mapping[str, str]) -> None:
        """Sets these settings of all brokers, which go by them at once."""
        self._configure(BROKER_RESOURCE, "", configs)

    def configure_group(self, name: str, configs: Mapping[str, str]) -> None:
        """Sets these settings of a group, which need not exist yet."""
        self._configure(GROUP_RESOURCE, name, configs)

    def _configure(self, kind: int, name: str, configs: Mapping[str, str]) -> None:
        changes = [
            AlterableConfig(name=setting, config_operation=SET, value=value)
            for setting, value in configs.items()
        ]
        resource = AlterConfigsResource(resource_type=kind, resource_name=name, configs=changes)
        (answer,) = self.call(IncrementalAlterConfigsRequest(resources=[resource]), 1).responses
        assert answer.error_code == 0, (name, answer.error_code, answer.error_message)

    def produce(self, topics: Sequence[str], batch: bytes, partitions: Sequence[int] = (0,)) -> None:
        """The same batch to each of these partitions of each topic, in one request."""
        check_produced(self.call(produce_request(topics, batch, partitions), PRODUCE_VERSION))

    def fetch(self, topic: str, offset: int, max_bytes: int) -> bytes:
        """The batches of partition 0 from that offset on, as they came."""
        wanted = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=max_bytes)
        request = FetchRequest(
            max_wait_ms=1000,
            min_bytes=1,
            max_bytes=max_bytes,
            topics=[FetchTopic(topic=topic, partitions=[wanted])],
        )
        (partition,) = self.call(request, FETCH_VERSION).responses[0].partitions
        assert partition.error_code == 0, (topic, offset, partition.error_code)
        return bytes(partition.records or b"")

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


class Pipeline(WireClient):
    """Produces, so many at a time: a log of gigabytes is not written one round trip after the other."""

    _under_way = 0

    def __exit__(self, *exception: object) -> None:
        try:
            if exception[0] is None:
                self.finish()
        finally:
            super().__exit__(*exception)

    def write(self, topic: str, batch: bytes, partition: int = 0) -> None:
        """Returns when it is on its way, and one of those before it answered if there are too many."""
        if self._under_way == PIPELINE_DEPTH:
            self._take_answer()
        self._under_way += 1
        request = produce_request([topic], batch, [partition])
        self._socket.sendall(request_frame(request, PRODUCE_VERSION, 1, "benchmark"))

    def finish(self) -> None:
        """Returns when everything is answered."""
        while self._under_way:
            self._take_answer()

    def _take_answer(self) -> None:
        self._under_way -= 1
        (length,) = struct.unpack(">i", self._receive(4))
        _, response = read_response(self._receive(length), ProduceRequest, PRODUCE_VERSION)
        check_produced(response)


def _topic_configs(configs: Mapping[str, str] | None) -> list[CreatableTopicConfig]:
    return [CreatableTopicConfig(name=name, value=value) for name, value in (configs or {}).items()]


def produce_request(topics: Sequence[str], batch: bytes, partitions: Sequence[int]) -> ProduceRequest:
    data = [PartitionProduceData(index=index, records=batch) for index in partitions]
    topic_data = [TopicProduceData(name=name, partition_data=data) for name in topics]
    return ProduceRequest(acks=-1, timeout_ms=30_000, topic_data=topic_data)


def check_produced(answer: ProduceResponse) -> None:
    for topic in answer.responses:
        for partition in topic.partition_responses:
            assert partition.error_code == 0, (topic.name, partition.index, partition.error_code)
